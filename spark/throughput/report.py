"""The throughput report: one self-contained HTML file, and the few lines for a terminal.

Owns how a Throughput is shown. It must never need Spark or the network, and never let a name from a
store be read as markup. A stored result can be drawn again.
"""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from turbopump.spark import plots
from turbopump.spark.throughput.buckets import ERROR_MAX, EXACT_BELOW, bucket_bounds
from turbopump.spark.throughput.result import CopyComparison, ReplicaLag, Row, Shown, Throughput

OTHERS = "all others"
"""Name of the line for topics without their own."""
SILENCES_TOLD = 3
"""Longest silences of stores that the terminal shows."""
STALLS_DRAWN = 40
"""Stalls in the plot: more bars would not be distinguishable."""
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_CONTROL = dict.fromkeys((*range(9), *range(11, 32), 127), "\N{REPLACEMENT CHARACTER}")
_STYLE = """
:root{color-scheme:light}*{box-sizing:border-box}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;color:#223;background:#fbfbfc;
margin:0 auto;max-width:1120px;padding:28px 20px 60px}
h1{font-size:25px;margin:0 0 4px}h2{font-size:18px;margin:38px 0 8px}
p{margin:6px 0}.note{color:#667;font-size:13px}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(170px,1fr));
gap:10px;margin:20px 0}
.fact{background:#fff;border:1px solid #e3e5ea;border-radius:8px;padding:9px 12px}
.fact b{display:block;font-size:19px;font-weight:600}.fact span{color:#667;font-size:13px}
.bad b{color:#b0413e}figure{margin:10px 0;background:#fff;border:1px solid #e3e5ea;
border-radius:8px;padding:10px}figure svg{width:100%;height:auto;display:block}
figcaption{font-size:13px;color:#445}.key{display:inline-block;margin-right:14px;white-space:nowrap}
.key i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px}
.scroll{overflow-x:auto;background:#fff;border:1px solid #e3e5ea;border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{padding:4px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid #eef0f3}
th{background:#f4f5f7;font-weight:600}th.t,td.t{text-align:left}
td.t{max-width:340px;overflow:hidden;text-overflow:ellipsis}tr:last-child td{border-bottom:0}
"""

Column = tuple[str, str, Callable[[Any], str]]
"""(column of the row, heading, formatter): a column of an HTML table."""


def render(result: Throughput) -> str:
    """Return the whole report as an HTML page without external files."""
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>Throughput of {escape_html(_stores_text(result))}</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>Throughput</h1><p>{escape_html(_stores_text(result))}</p>",
        f'<p class="note">{escape_html(_span_text(result))}. Percentiles are exact below'
        f" {EXACT_BELOW} (ms, bytes) and off by less than {ERROR_MAX:.1%} above. Times are"
        " store times in UTC.</p>",
        _facts_html(result),
        *_plots_html(result),
        *_tables_html(result),
        *(_replicas_html(result.replicas) if result.replicas else ()),
        *(_copies_html(result.copies) if result.copies else ()),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def summary_lines(result: Throughput) -> list[str]:
    """Return the result as lines for a terminal."""
    t: Mapping[str, Any] = result.totals
    lines = [
        f"{_stores_text(result)}: {count(t['messages'])} messages, {size(t['bytes'])}, in"
        f" {count(t['topics'])} topics and {count(t['queues'])} queues from"
        f" {count(t['hosts'])} producer hosts",
        f"time: {_span_text(result)}; at most {count(t['peak_messages_per_s'])} messages and"
        f" {size(t['peak_bytes_per_s'])} in a second",
        f"record size: avg {format_number(t['size_avg'])}, p50 {format_number(t['size_p50'])}, p99"
        f" {format_number(t['size_p99'])}, at most {count(t['size_max'])} B; body: avg"
        f" {format_number(t['body_avg'])}, at most {count(t['body_max'])} B",
        f"latency born to stored: p50 {format_ms(t['latency_ms_p50'])}, p99"
        f" {format_ms(t['latency_ms_p99'])}, p99.9 {format_ms(t['latency_ms_p999'])}, at most"
        f" {format_ms(t['latency_ms_max'])}",
        f"clocks: {count(t['skewed_messages'])} messages were born after they were stored (by"
        f" {format_ms(t['skew_ms_max'])} at most), {count(t['unborn_messages'])} have no born time;"
        f" store time went back {count(t['clock_steps'])} times (by"
        f" {format_ms(t['back_ms_max'])} at most)",
        f"queue offsets: {count(t['missing_offsets'])} missing in {count(t['gaps'])} gaps,"
        f" {count(t['duplicate_offsets'])} more than once",
        f"stalls of {result.stall_seconds} s or more: {count(t['queue_stalls'])} of queues,"
        f" {count(t['topic_stalls'])} of topics, {count(t['store_stalls'])} of stores",
    ]
    longest = [row for row in result.silences if row["level"] == "store"][:SILENCES_TOLD]
    if longest:
        spans = (f"{format_ms(row['silent_ms'])} from {text(row['from_time'])}" for row in longest)
        lines.append(f"longest silences of a store: {', '.join(spans)}")
    lines += [_lag_line(lag) for lag in result.replicas]
    if result.copies is not None:
        c: Mapping[str, Any] = result.copies.totals
        lines.append(
            f"copy {result.copies.copy}: {count(c['copied'] + c['early'])} messages copied, delay"
            f" p50 {format_ms(c['delay_ms_p50'])}, p99 {format_ms(c['delay_ms_p99'])}, at most"
            f" {format_ms(c['delay_ms_max'])}; {count(c['early'])} with a negative delay,"
            f" {count(c['missing'])} missing ({count(c['missing_inside'])} before later ones)"
        )
    return [*lines, *(f"written: {place}" for place in result.written)]


def escape_html(text: object) -> str:
    """Return a value as text with HTML escaped and control characters replaced, for any place on
    the page."""
    return html.escape(str(text).translate(_CONTROL), quote=True)


def count(value: Any) -> str:
    """Format a whole number with thousands separators; None: a dash, as in all formatters here."""
    return "–" if value is None else f"{value:,.0f}"


def format_number(value: Any) -> str:
    """Format a number with thousands separators, and one decimal if it is a fraction below 100."""
    if value is None:
        return "–"
    return f"{value:,.1f}" if abs(value) < 100 and value != int(value) else f"{value:,.0f}"


def format_ms(value: Any) -> str:
    """Format a number of milliseconds, as "12.5 ms"."""
    return "–" if value is None else f"{format_number(value)} ms"


def size(value: Any) -> str:
    """Format a number of bytes in decimal units, as "1.50 kB"."""
    if value is None:
        return "–"
    amount, unit = float(value), 0
    while abs(amount) >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:,.0f} B" if unit == 0 else f"{amount:,.2f} {_UNITS[unit]}"


def text(value: Any) -> str:
    """Format a name or a time, unescaped."""
    return "–" if value is None else str(value)


def _stores_text(result: Throughput) -> str:
    """Return the names of the stores, of three at most."""
    names = ", ".join(result.stores[:3])
    return names + (f" and {len(result.stores) - 3} more" if len(result.stores) > 3 else "")


def _span_text(result: Throughput) -> str:
    """Return the times of the first and the last message as text."""
    first, last = result.totals.get("first_time"), result.totals.get("last_time")
    return f"from {first} to {last}" if first is not None else "no message"


def _lag_line(lag: ReplicaLag) -> str:
    """Return a replica's lag as one line of text."""
    line = (
        f"replica {lag.replica}: {count(lag.records_behind)} records and"
        f" {size(lag.bytes_behind)} behind {lag.leader}"
    )
    if lag.records_behind:
        line += f", for at least {format_ms(lag.waiting_ms)}"
    if lag.differs:
        line += f"; they differ from log offset {lag.common_end} on"
    elif lag.records_extra:
        line += f"; and {count(lag.records_extra)} records ahead of it"
    return line


def _facts_html(result: Throughput) -> str:
    """Return the HTML of the boxes with the most important numbers."""
    t: Mapping[str, Any] = result.totals
    facts = [
        (count(t["messages"]), "messages", False),
        (size(t["bytes"]), f"records ({size(t['body_bytes'])} of bodies)", False),
        (f"{count(t['topics'])} / {count(t['queues'])}", "topics / queues", False),
        (count(t["hosts"]), "producer hosts", False),
        (count(t["peak_messages_per_s"]), "most messages in a second", False),
        (format_ms(t["latency_ms_p50"]), "latency p50", False),
        (format_ms(t["latency_ms_p99"]), "latency p99", False),
        (format_ms(t["latency_ms_p999"]), "latency p99.9", False),
        (count(t["skewed_messages"]), "born after they were stored", bool(t["skewed_messages"])),
        (count(t["unborn_messages"]), "without a born time", False),
        (
            count(t["missing_offsets"]),
            f"queue offsets missing in {count(t['gaps'])} gaps",
            bool(t["gaps"]),
        ),
        (
            count(t["duplicate_offsets"]),
            "queue offsets more than once",
            bool(t["duplicate_offsets"]),
        ),
        (
            count(t["store_stalls"]),
            f"stalls of a store ({result.stall_seconds} s or more)",
            bool(t["store_stalls"]),
        ),
        (count(t["clock_steps"]), "times store time went back", bool(t["clock_steps"])),
    ]
    boxes = (
        f'<div class="fact{" bad" if bad else ""}"><b>{escape_html(value)}</b>'
        f"<span>{escape_html(name)}</span></div>"
        for value, name, bad in facts
    )
    return f'<div class="facts">{"".join(boxes)}</div>'


def _plots_html(result: Throughput) -> Iterable[str]:
    """Yield the HTML of all plots."""
    if not result.over_time:
        return
    step, colour = result.step_seconds, plots.COLOURS
    yield f'<h2>Throughput over time</h2><p class="note">Points are {count(step)} s wide.</p>'
    lines = _topic_lines(result)
    drawn = [plots.Line(points, colour[at]) for at, (_, points) in enumerate(lines)]
    yield _figure_html(
        plots.lines_over_time(1, drawn, "messages a second"),
        [(name, colour[at]) for at, (name, _) in enumerate(lines)],
    )
    traffic = _filled_rates(result.over_time, "bytes", step)
    yield _figure_html(
        plots.lines_over_time(2, [plots.Line(traffic, colour[0])], "bytes a second"),
        [("records of all topics", colour[0])],
    )
    yield "<h2>Latency over time</h2>"
    wanted = (("latency_ms_p50", "p50"), ("latency_ms_p99", "p99"), ("latency_ms_p999", "p99.9"))
    yield _figure_html(
        plots.lines_over_time(
            3,
            [
                plots.Line(_plot_values(result.over_time, key, step), colour[at])
                for at, (key, _) in enumerate(wanted)
            ],
            "ms, born to stored",
            log=True,
        ),
        [(name, colour[at]) for at, (_, name) in enumerate(wanted)],
    )
    yield "<h2>Sizes and latencies</h2>"
    yield _figure_html(
        plots.draw_histogram(
            4,
            [
                (_metric_buckets(result, metric), colour[at])
                for at, metric in enumerate(("size", "body"))
            ],
            "bytes",
        ),
        [("record", colour[0]), ("body", colour[1])],
    )
    yield _figure_html(
        plots.draw_histogram(5, [(_metric_buckets(result, "latency"), colour[0])], "ms"),
        [("latency, where it is not negative", colour[0])],
    )


def _topic_lines(result: Throughput) -> list[tuple[str, list[tuple[float, float | None]]]]:
    """Return (topic, its points as (start in s, messages per second)) for the largest topics,
    and for all others together."""
    step = result.step_seconds
    of_topic: dict[str, list[Row]] = {}
    for row in result.topics_over_time:
        of_topic.setdefault(str(row["topic"]), []).append(row)
    everything = _filled_rates(result.over_time, "messages", step)
    starts = [start for start, _ in everything]
    rest = {start: value or 0.0 for start, value in everything}
    lines: list[tuple[str, list[tuple[float, float | None]]]] = []
    for name, rows in of_topic.items():
        points = _plot_values(rows, "messages", step, per_s=True)
        values = {start: value or 0.0 for start, value in points}
        lines.append((name, [(start, values.get(start, 0.0)) for start in starts]))
        for start, value in values.items():
            rest[start] = rest.get(start, 0.0) - value
    if any(value > 1e-6 for value in rest.values()):
        lines.append((OTHERS, [(start, max(0.0, rest[start])) for start in starts]))
    return lines


def _plot_values(
    rows: Iterable[Row], key: str, step_s: int, *, per_s: bool = False
) -> list[tuple[float, float | None]]:
    """Return (start in s, value) of rows, with `per_s` as a rate; a missing step breaks the
    line."""
    points: list[tuple[float, float | None]] = []
    for row in rows:
        start, value = float(_as_number(row["start_s"])), row[key]
        if points and start > points[-1][0] + step_s and not per_s:
            points.append((points[-1][0] + step_s, None))
        amount = None if value is None else float(_as_number(value))
        points.append((start, amount / step_s if per_s and amount is not None else amount))
    return points


def _filled_rates(rows: Sequence[Row], key: str, step_s: int) -> list[tuple[float, float | None]]:
    """Return (start in s, value per second) of rows, with 0 for each step without a row."""
    there = dict(_plot_values(rows, key, step_s, per_s=True))
    first, last = min(there), max(there)
    starts = (first + step_s * at for at in range(int((last - first) // step_s) + 1))
    return [(start, there.get(start, 0.0)) for start in starts]


def _metric_buckets(result: Throughput, metric: str) -> Iterable[tuple[int, int, int]]:
    """Yield (least value, next bucket's least value, number of messages) of a metric's
    histogram."""
    for row in result.histograms:
        if row["metric"] == metric:
            low, high = bucket_bounds(int(_as_number(row["bucket"])))
            yield low, high, int(_as_number(row["messages"]))


def _as_number(value: object) -> int | float:
    assert isinstance(value, int | float), f"{value!r} is no number"
    return value


_PLACE: tuple[Column, ...] = (
    ("store", "store", text),
    ("topic", "topic", text),
    ("queue_id", "queue", text),
)
_TRAFFIC: tuple[Column, ...] = (
    ("messages", "messages", count),
    ("bytes", "bytes", size),
    ("size_avg", "avg size", format_number),
    ("size_p99", "size p99", format_number),
    ("size_max", "largest", count),
    ("peak_messages_per_s", "most in 1 s", count),
)
_LATENCY: tuple[Column, ...] = (
    ("latency_ms_p50", "p50 ms", format_number),
    ("latency_ms_p99", "p99 ms", format_number),
    ("latency_ms_p999", "p99.9 ms", format_number),
    ("latency_ms_max", "max ms", format_number),
    ("skewed_messages", "negative", count),
    ("unborn_messages", "no born time", count),
)


def _tables_html(result: Throughput) -> Iterable[str]:
    """Yield the HTML of all tables."""
    yield _table_html("Stores", result.by_store, (_PLACE[0], *_TRAFFIC, *_LATENCY))
    yield _table_html("Topics with most bytes", result.topics, (*_PLACE[:2], *_TRAFFIC, *_LATENCY))
    yield _table_html(
        "Worst queues by latency p99",
        result.queues,
        (
            *_PLACE,
            *_TRAFFIC[:2],
            *_LATENCY,
            ("missing_offsets", "missing", count),
            ("duplicate_offsets", "twice", count),
        ),
    )
    host = ("born_host", "producer host", text)
    yield _table_html("Producer hosts", result.hosts, (_PLACE[0], host, *_TRAFFIC[:2], *_LATENCY))
    yield _table_html(
        "Gaps: queue offsets that no record has",
        result.gaps,
        (
            *_PLACE,
            ("first_missing", "from", count),
            ("last_missing", "to", count),
            ("missing", "missing", count),
            ("seen_time", "found at", text),
        ),
    )
    yield _table_html(
        f"Stalls: {result.stall_seconds} s or more without a record",
        result.stalls,
        (
            ("level", "of a", text),
            *_PLACE,
            ("from_time", "from", text),
            ("until_time", "until", text),
            ("silent_ms", "silent", format_ms),
        ),
    )
    if result.stalls.rows:
        bars = [
            (_unix_s(row["from_time"]), _unix_s(row["until_time"]))
            for row in result.stalls.rows[:STALLS_DRAWN]
        ]
        yield _figure_html(plots.interval_bars(6, bars, "row of the table"), [])
    yield _table_html(
        "Longest silences",
        Shown(result.silences, len(result.silences)),
        (
            ("level", "of a", text),
            *_PLACE,
            ("from_time", "from", text),
            ("until_time", "until", text),
            ("silent_ms", "silent", format_ms),
        ),
    )
    yield _table_html(
        "Store time that went back",
        result.clock_steps,
        (
            _PLACE[0],
            ("later_time", "first", text),
            ("later_log_offset", "at log offset", count),
            ("earlier_time", "then", text),
            ("earlier_log_offset", "at log offset", count),
            ("back_ms", "back", format_ms),
        ),
    )


def _replicas_html(lags: Sequence[ReplicaLag]) -> Iterable[str]:
    """Yield the HTML about the lag of replicas."""
    yield "<h2>Replicas when they were read</h2>"
    yield (
        '<p class="note">Records are the same bytes on all replicas, so none shows when a replica'
        " got it. Waiting: how long the oldest record that the replica lacks had been in the"
        " leader's log, at least.</p>"
    )
    yield from (f"<p>{escape_html(_lag_line(lag))}</p>" for lag in lags)
    rows = tuple(vars(lag) for lag in lags)
    yield _table_html(
        "",
        Shown(rows, len(rows)),
        (
            ("leader", "leader", text),
            ("replica", "replica", text),
            ("leader_end", "leader's end", count),
            ("replica_end", "replica's end", count),
            ("common_end", "same until", count),
            ("replica_confirmed_end", "confirmed", count),
            ("records_behind", "records behind", count),
            ("bytes_behind", "bytes", count),
            ("waiting_ms", "waiting", format_ms),
            ("ends_apart_ms", "ends apart", format_ms),
            ("records_extra", "records extra", count),
        ),
    )


def _copies_html(copies: CopyComparison) -> Iterable[str]:
    """Yield the HTML about a copy in another group."""
    columns: tuple[Column, ...] = (
        ("copied", "copied", count),
        ("early", "negative delay", count),
        ("missing", "missing", count),
        ("missing_inside", "before later ones", count),
        ("only_in_copy", "only in the copy", count),
        ("copied_again", "again", count),
        ("delay_ms_p50", "p50 ms", format_number),
        ("delay_ms_p99", "p99 ms", format_number),
        ("delay_ms_p999", "p99.9 ms", format_number),
        ("delay_ms_max", "max ms", format_number),
    )
    yield f"<h2>Copy in {escape_html(copies.copy)}</h2>"
    yield '<p class="note">Delay: store time there less store time here, by unique key.</p>'
    if copies.over_time:
        wanted = (("delay_ms_p50", "p50"), ("delay_ms_p99", "p99"))
        step = _step_of(copies.over_time)
        lines = [
            plots.Line(_plot_values(copies.over_time, key, step), plots.COLOURS[at])
            for at, (key, _) in enumerate(wanted)
        ]
        yield _figure_html(
            plots.lines_over_time(7, lines, "ms, stored to stored", log=True),
            [(name, plots.COLOURS[at]) for at, (_, name) in enumerate(wanted)],
        )
    yield _table_html("All topics", Shown((copies.totals,), 1), columns)
    yield _table_html("Topics", copies.topics, (("topic", "topic", text), *columns))


def _step_of(rows: Sequence[Row]) -> int:
    """Return the width of the time steps of rows, in s."""
    starts = [int(_as_number(row["start_s"])) for row in rows]
    return min((b - a for a, b in pairwise(starts)), default=1)


def _unix_s(value: object) -> float:
    """Return a time of a row in seconds since 1970."""
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return float(str(value).removesuffix(" ms")) / 1000


def _figure_html(svg: str, keys: Sequence[tuple[str, str]]) -> str:
    """Return the HTML of a plot with a legend of (name, colour)."""
    legend = "".join(
        f'<span class="key"><i style="background:{colour}"></i>{escape_html(name)}</span>'
        for name, colour in keys
    )
    return f"<figure>{svg}<figcaption>{legend}</figcaption></figure>"


def _table_html(title: str, shown: Shown, columns: Sequence[Column]) -> str:
    """Return the HTML of a table."""
    heading = f"<h2>{escape_html(title)}</h2>" if title else ""
    if not shown.rows:
        return f'{heading}<p class="note">None.</p>'
    kinds = [' class="t"' if show is text else "" for _, _, show in columns]
    head = "".join(
        f'<th scope="col"{kind}>{escape_html(name)}</th>'
        for kind, (_, name, _) in zip(kinds, columns, strict=True)
    )
    body = "\n".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{escape_html(show(row.get(key)))}</td>"
            for kind, (key, _, show) in zip(kinds, columns, strict=True)
        )
        + "</tr>"
        for row in shown.rows
    )
    left = (
        f'<p class="note">{count(shown.rows_left_out)} more rows are in the Parquet table.</p>'
        if shown.rows_left_out
        else ""
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'{heading}<div class="scroll">{table}</div>{left}'
