"""Plots as SVG for an HTML page: lines over time, histograms, bars of time.

Owns matplotlib. It must never put a name from a store into a plot (legends are HTML, and numbers
stand for rows of tables), nor load or refer to anything outside the page. It needs no Spark and no
display.
"""

import io
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from matplotlib import rc_context
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

COLOURS = (
    "#3b6fb6",
    "#d1762c",
    "#3f8f5b",
    "#b0413e",
    "#7a5ba6",
    "#8c6d46",
    "#c26aa0",
    "#5f6b76",
    "#9aa5ae",
)
"""Colours of lines, in the order of their use."""
BINS = 60
"""Bars of a histogram, at most."""

Bucket = tuple[int, int, int]
"""(least value, upper bound, count): one bucket of measured values, the upper bound exclusive."""

_SIZE_INCHES = (9.2, 2.6)
_YEAR_10000_S = 253_402_300_800
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "turbopump",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#889",
    "axes.grid": True,
    "grid.color": "#e6e8ec",
    "axes.axisbelow": True,
    "xtick.color": "#556",
    "ytick.color": "#556",
    "axes.labelcolor": "#445",
}


@dataclass(frozen=True)
class Line:
    """A line over time; a value of None interrupts it."""

    points: Sequence[tuple[float, float | None]]
    """(unix time in s, value) in order of time; `numbered_lines`: (number, value)."""
    colour: str
    """HTML colour, such as "#3b6fb6"."""


def lines_over_time(number: int, lines: Sequence[Line], label: str, *, log: bool = False) -> str:
    """Draw lines over time in UTC, and return SVG.

    `number` is the plot's own on the page, `label` the text of the value axis. With `log`, that
    axis is logarithmic above 1.
    """
    with _new_figure(number) as (figure, axes, done):
        everything = [time for line in lines for time, _ in line.points]
        dated = _time_axis(axes, everything)
        for line in lines:
            axes.plot(
                [_utc_time(time) if dated else time for time, _ in line.points],
                [math.nan if value is None else value for _, value in line.points],
                color=line.colour,
                linewidth=1.3,
                marker="o" if len(line.points) < 3 else None,
                markersize=3,
            )
        values = [v for line in lines for _, v in line.points if v is not None]
        if log and any(value > 0 for value in values):
            axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
        _label_axis(figure, axes, label, log=log)
    return done[0]


def numbered_lines(number: int, lines: Sequence[Line], label: str) -> str:
    """Draw lines over the numbers 1, 2, ... in place of times, so that runs of different days are
    comparable. Returns SVG."""
    with _new_figure(number) as (figure, axes, done):
        for line in lines:
            axes.plot(
                [at for at, _ in line.points],
                [math.nan if value is None else value for _, value in line.points],
                color=line.colour,
                linewidth=1.1,
                marker="o",
                markersize=2.5,
            )
        axes.set_ylim(bottom=0)
        _label_axis(figure, axes, label)
    return done[0]


def draw_histogram(number: int, metrics: Sequence[tuple[Iterable[Bucket], str]], label: str) -> str:
    """Draw bars over a logarithmic value axis with the text `label`, and return SVG; each metric is
    (its buckets, HTML colour). `number` is the plot's own on the page."""
    with _new_figure(number) as (figure, axes, done):
        buckets = [list(rows) for rows, _ in metrics]
        edges = _bin_edges([bucket for rows in buckets for bucket in rows])
        for rows, (_, colour) in zip(buckets, metrics, strict=True):
            axes.stairs(_in_bins(rows, edges), edges, fill=True, color=colour, alpha=0.45)
            axes.stairs(_in_bins(rows, edges), edges, color=colour, linewidth=1.1)
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(edges[0], edges[-1])
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel(label)
        _label_axis(figure, axes, "messages")
    return done[0]


def interval_bars(number: int, rows: Sequence[tuple[float, float]], label: str) -> str:
    """Draw a horizontal bar from a start to an end time, in seconds, for each row; rows are
    numbered from 1 at the top like the table's rows. Returns SVG."""
    with _new_figure(number, height=min(5.0, 0.9 + 0.17 * len(rows))) as (figure, axes, done):
        everything = [time for row in rows for time in row]
        dated = _time_axis(axes, everything)
        for at, (start, end) in enumerate(rows, 1):
            ends = (_utc_time(start), _utc_time(end)) if dated else (start, end)
            axes.plot(ends, (at, at), color=COLOURS[3], linewidth=4, solid_capstyle="butt")
        axes.set_ylim(len(rows) + 0.6, 0.4)
        axes.set_yticks(range(1, len(rows) + 1, max(1, len(rows) // 20)))
        figure.supylabel(label, fontsize=9, color="#445")
    return done[0]


@contextmanager
def _new_figure(
    number: int, height: float = _SIZE_INCHES[1]
) -> Iterator[tuple[Figure, Any, list[str]]]:
    """Yield (figure, its axes, a list that receives the SVG as its only item when the block
    ends)."""
    done: list[str] = []
    with rc_context(_STYLE):
        figure = Figure(figsize=(_SIZE_INCHES[0], height), layout="constrained")
        yield figure, figure.add_subplot(), done
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    done.append(_inline_svg(text.getvalue(), number))


def _inline_svg(svg: str, number: int) -> str:
    """Return the SVG element alone, with ids unique on the page and the page's full width."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id="|url\(#|href="#)', rf"\g<1>plot{number}-", svg)
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s(?:width|height|version|xmlns(?::\w+)?)="[^"]*"', "", head)
    return f'{head} xmlns:xlink="http://www.w3.org/1999/xlink" role="img">{rest.strip()}'


def _label_axis(figure: Figure, axes: Any, label: str, *, log: bool = False) -> None:
    """Label the value axis; with `log` show the grid lines of its powers."""
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    figure.supylabel(label, fontsize=9, color="#445")
    if log:
        axes.yaxis.grid(True, which="major")


def _time_axis(axes: Any, times: Sequence[float]) -> bool:
    """Show the axis as dates in UTC; return False if the calendar lacks one of the times."""
    if not times or min(times) < 0 or max(times) >= _YEAR_10000_S:
        return False
    locator: Any = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    shown: Any = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(shown)
    return True


def _utc_time(time_s: float) -> datetime:
    return datetime.fromtimestamp(time_s, UTC)


def _bin_edges(buckets: Sequence[Bucket]) -> list[float]:
    """Return at most BINS + 1 edges around all buckets, evenly spaced on a logarithmic scale.

    No edge lies inside a bucket: values measured in it could lie on either side, so the bar's
    height would be a guess.
    """
    low = min((bucket[0] for bucket in buckets), default=0)
    high = max((bucket[1] for bucket in buckets), default=1)
    start, end = math.log1p(low), math.log1p(high)
    step = (end - start) / BINS or 1 / BINS
    edges = [float(low)]
    ordered = sorted({bucket[:2] for bucket in buckets})
    for at in range(1, BINS):
        edge = math.expm1(start + step * at)
        index = bisect_left(ordered, (edge,)) - 1
        if index >= 0 and edge < ordered[index][1]:
            edge = float(ordered[index][1])
        if edges[-1] < edge < high:
            edges.append(edge)
    return [*edges, float(high)]


def _in_bins(buckets: Iterable[Bucket], edges: Sequence[float]) -> list[int]:
    """Return the number of values in each bin between two edges; each bucket lies within one
    bin."""
    counts = [0] * (len(edges) - 1)
    for low, _high, count in buckets:
        counts[bisect_right(edges, low) - 1] += count
    return counts
