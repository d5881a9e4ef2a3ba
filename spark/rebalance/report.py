"""The rebalance report as one HTML page: strategies side by side, and their rebalances in order.

Owns how a RebalanceResult is shown. It must never need Spark or the network, and never let a name
from a history be read as markup.

Tests: tests/unit/spark/rebalance/test_job.py
"""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from turbopump.spark import plots

if TYPE_CHECKING:
    from turbopump.spark.rebalance.job import RebalanceResult, StrategySummary

STRATEGIES_MAX: Final = len(plots.COLOURS)
"""Strategies that colours can distinguish in a plot; the rest are in the table only."""

Point = Mapping[str, Any]
"""The measures of a rebalance, by the names of MEASURES; None: unknown."""

MEASURES: Final = (
    ("balance_degree", "balance degree, queues"),
    ("stickiness", "stickiness, share of all queues"),
    ("time_consumed_ms", "time from the trigger to the end, ms"),
    ("beyond", "queues that moved beyond the minimum"),
    ("overlap_ms", "time with two owners, ms"),
    ("unowned_ms", "time without an owner, ms"),
)
"""(name, label with unit) of each plotted measure."""

_ROWS: Final[tuple[tuple[str, Callable[["StrategySummary"], Any], str], ...]] = (
    ("rebalances", lambda one: one.rebalances, ",.0f"),
    ("balance degree, mean", lambda one: one.balance_degree_mean, ".3f"),
    ("balance degree, worst", lambda one: one.balance_degree_max, ".3f"),
    ("stickiness", lambda one: one.stickiness, ".3f"),
    ("queues moved", lambda one: one.moved, ",.0f"),
    ("had to move", lambda one: one.moved_min, ",.0f"),
    ("moved beyond the minimum", lambda one: one.moved - one.moved_min, ",.0f"),
    ("time p50, ms", lambda one: _item_or_none(one.time_consumed_ms, 0), ",.0f"),
    ("time p99, ms", lambda one: _item_or_none(one.time_consumed_ms, 2), ",.0f"),
    ("time at most, ms", lambda one: _item_or_none(one.time_consumed_ms, 3), ",.0f"),
    ("computing p99, ms", lambda one: _item_or_none(one.compute_ms, 2), ",.2f"),
    ("two owners p99, ms", lambda one: _item_or_none(one.overlap_ms, 2), ",.0f"),
    ("two owners at most, ms", lambda one: _item_or_none(one.overlap_ms, 3), ",.0f"),
    ("no owner at most, ms", lambda one: _item_or_none(one.unowned_ms, 3), ",.0f"),
    ("not settled before the next", lambda one: one.unsettled, ",.0f"),
    ("faulty", lambda one: one.faulty, ",.0f"),
)

_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;color:#223;background:#fbfbfc;margin:0 auto;
max-width:1120px;padding:28px 20px 60px}h1{font-size:25px}h2{font-size:18px;margin:34px 0 8px}
figure{margin:10px 0;background:#fff;border:1px solid #e3e5ea;border-radius:8px;padding:10px}
figure svg{width:100%;height:auto;display:block}figcaption{font-size:13px}
.key{margin-right:14px}.key i{display:inline-block;width:11px;height:11px;margin-right:5px}
table{border-collapse:collapse;background:#fff;font-size:13px}
th,td{padding:4px 12px;text-align:right;border-bottom:1px solid #eef0f3}
th:first-child,td:first-child{text-align:left}.bad{color:#b0413e}
"""


def render(result: "RebalanceResult", points: Mapping[str, Sequence[Point]]) -> str:
    """Return the whole page as HTML. `points` are the rebalances by strategy name, in order of
    time; the first STRATEGIES_MAX strategies are drawn."""
    verdict = "ok" if result.is_ok else "violated"
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        "<title>Rebalances</title>",
        f"<style>{_STYLE}</style></head><body><h1>Rebalances, strategy by strategy</h1>",
        f"<p>{result.rebalances:,} rebalances, verdict: {verdict}. A time is known where the"
        " history has it.</p>",
        *_table_html(result.strategies),
        *_plots_html(points),
        *(f'<p class="bad">violated: {_escape_name(text)}</p>' for text in result.violations),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _table_html(strategies: Sequence["StrategySummary"]) -> Iterable[str]:
    """Yield the HTML of the table with a column for each strategy."""
    names = "".join(f"<th>{_escape_name(one.allocator)}</th>" for one in strategies)
    yield f"<table><tr><th></th>{names}</tr>"
    for name, value, form in _ROWS:
        cells = "".join(f"<td>{_number_text(value(one), form)}</td>" for one in strategies)
        yield f"<tr><td>{name}</td>{cells}</tr>"
    yield "</table>"


def _plots_html(points: Mapping[str, Sequence[Point]]) -> Iterable[str]:
    """Yield the HTML of a plot for each measure that has values."""
    drawn = list(points.items())[:STRATEGIES_MAX]
    key = "".join(
        f'<span class="key"><i style="background:{colour}"></i>{_escape_name(name)}</span>'
        for (name, _), colour in zip(drawn, plots.COLOURS, strict=False)
    )
    for number, (measure, label) in enumerate(MEASURES, 1):
        lines = [
            plots.Line([(at, row[measure]) for at, row in enumerate(rows, 1)], colour)
            for (_, rows), colour in zip(drawn, plots.COLOURS, strict=False)
        ]
        if any(value is not None for line in lines for _, value in line.points):
            yield f"<h2>{label}</h2><figure>{plots.numbered_lines(number, lines, label)}"
            yield f"<figcaption>{key}by the number of the rebalance</figcaption></figure>"


def _item_or_none(found: Sequence[float] | None, index: int) -> float | None:
    """Return the item at this index; None without a list."""
    return None if found is None else found[index]


def _number_text(value: float | None, form: str) -> str:
    """Format a number by `form`; None is a dash."""
    return "–" if value is None else format(value, form)


def _escape_name(text: str) -> str:
    """Return a name from a history for HTML: escaped, at most 200 characters."""
    clean = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return html.escape(clean[:200], quote=True)
