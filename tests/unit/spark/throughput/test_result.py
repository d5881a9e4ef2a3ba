"""Results as data: times as text, truncated tables, and plots without names."""

import json
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

from turbopump.spark import plots
from turbopump.spark.plots import (
    COLOURS,
    Line,
    draw_histogram,
    interval_bars,
    lines_over_time,
    numbered_lines,
)
from turbopump.spark.throughput.result import (
    STEPS_SHOWN,
    TIMES,
    Shown,
    format_iso,
    step_seconds,
    times_as_text,
)
from turbopump.spark.throughput.spark_tables import SparkTables

START_S = 1_700_000_000


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000 ms"),
        ((1 << 63) - 1, "9223372036854775807 ms"),
        (-(1 << 63), "-9223372036854775808 ms"),
    ],
)
def test_times_are_text_and_times_outside_the_calendar_are_numbers(time_ms: int, text: str) -> None:
    assert format_iso(time_ms) == text


def test_a_row_has_its_times_under_the_names_of_tables() -> None:
    row = {name: 1_000 * number for number, name in enumerate(TIMES)}
    found = times_as_text({**row, "topic": "T", "first_missing": 5})
    assert set(found) == {*TIMES.values(), "topic", "first_missing"}
    assert found["first_time"] == format_iso(0) and found["first_missing"] == 5
    assert times_as_text({"first_ms": None, "last_ms": None}) == {
        "first_time": None,
        "last_time": None,
    }


def test_rows_left_out_of_a_table() -> None:
    assert Shown().rows_left_out == 0
    assert Shown(({"a": 1}, {"a": 2}), 2).rows_left_out == 0
    assert Shown(({"a": 1},), 1_000).rows_left_out == 999


@pytest.mark.parametrize("first_s", [0, 1, 59, 86_399, START_S, -5])
def test_steps_are_round_and_few(first_s: int) -> None:
    before = 0
    for span_s in (1, 2, 100, 399, 400, 5_000, 86_400, 40_000_000, 10**9, 10**12):
        width = step_seconds(first_s * 1000, (first_s + span_s) * 1000 - 1)
        steps = (first_s + span_s - 1) // width - first_s // width + 1
        assert 1 <= steps <= STEPS_SHOWN
        assert width >= before and (86_400 % width == 0 or width % 86_400 == 0)
        before = width


class Frame:
    """Stands for a frame of Spark; records its calls."""

    def __init__(self, journal: list[str]) -> None:
        self._journal = journal
        self.schema = "schema"

    def persist(self) -> "Frame":
        self._journal.append("persist")
        return self

    def unpersist(self) -> None:
        self._journal.append("unpersist")

    def hint(self, name: str, *columns: str) -> "Frame":
        self._journal.append(f"hint {name} {columns}")
        return self

    @property
    def write(self) -> "Frame":
        return self

    @property
    def read(self) -> "Frame":
        return self

    def mode(self, name: str) -> "Frame":
        self._journal.append(name)
        return self

    def partitionBy(self, *columns: str) -> "Frame":
        self._journal.append(f"by {columns}")
        return self

    def parquet(self, path: str) -> "Frame":
        self._journal.append(path)
        return self

    def schema_of(self, _schema: Any) -> "Frame":
        return self


def test_tables_stay_in_memory_without_a_place() -> None:
    journal: list[str] = []
    tables = SparkTables(Frame(journal), None, overwrite=False)  # type: ignore[arg-type]
    frame = Frame(journal)
    assert tables.write("cells", frame) is frame  # type: ignore[arg-type, comparison-overlap]
    tables.close()
    assert journal == ["persist", "unpersist"] and tables.written == []


@pytest.mark.parametrize(
    ("overwrite", "is_large", "mode"),
    [(False, False, "errorifexists"), (True, True, "overwrite")],
)
def test_tables_are_written_below_their_place(overwrite: bool, is_large: bool, mode: str) -> None:
    journal: list[str] = []

    class Reader(Frame):
        @property
        def schema(self) -> Any:  # type: ignore[override]
            return self.schema_of

        @schema.setter
        def schema(self, _value: Any) -> None:
            pass

    tables = SparkTables(Reader(journal), "s3://out//", overwrite=overwrite)  # type: ignore[arg-type]
    tables.write("cells", Frame(journal), "metric", is_large=is_large)  # type: ignore[arg-type]
    assert tables.written == ["s3://out/cells"]
    assert mode in journal and "by ('metric',)" in journal
    assert ("hint rebalance ('metric',)" in journal) is not is_large, "it is not shuffled for it"
    assert journal[-2:] == ["s3://out/cells"] * 2, "written, then read"
    tables.close()


# Plots


def svg(text: str) -> ElementTree.Element:
    """Parse a plot, which must be a single self-contained element."""
    assert text.startswith("<svg") and text.endswith("</svg>") and "<!--" not in text
    return ElementTree.fromstring(text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '))


LINES = [
    Line([(START_S, 1.0), (START_S + 60, None), (START_S + 120, 3.0)], COLOURS[0]),
    Line([(START_S, 2.0)], COLOURS[1]),
]


def plotted() -> Iterator[str]:
    """Yields a plot of each kind, so that no plot is drawn while tests are collected."""
    yield from (lines_over_time(1, LINES, "a"), lines_over_time(1, LINES, "a", log=True))
    yield lines_over_time(1, [], "a")
    yield lines_over_time(1, [Line([(0, None)], COLOURS[0])], "a", log=True)
    yield numbered_lines(1, [Line([(1, 5.0), (2, None)], COLOURS[2])], "a")
    yield draw_histogram(1, [([(0, 1, 5), (10, 20, 3)], COLOURS[0]), ([], COLOURS[1])], "a")
    yield from (
        interval_bars(1, [(START_S, START_S + 5), (START_S, START_S)], "a"),
        interval_bars(1, [], "a"),
    )


def test_each_plot_is_an_element_with_its_own_ids() -> None:
    for drawn in plotted():
        check_ids(drawn)


def check_ids(drawn: str) -> None:
    svg(drawn)
    ids = re.findall(r'\bid="([^"]+)"', drawn)
    assert ids and all(one.startswith("plot1-") for one in ids) and len(set(ids)) == len(ids)
    assert set(re.findall(r"url\(#([^)]+)\)", drawn)) <= set(ids)
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", drawn), "nothing is loaded"
    assert not re.search(r"<svg[^>]*\s(width|height)=", drawn), "as wide as the page lets it be"


def test_the_same_is_drawn_the_same() -> None:
    assert lines_over_time(3, LINES, "a") == lines_over_time(3, LINES, "a")
    assert lines_over_time(3, LINES, "a") != lines_over_time(4, LINES, "a")


def test_colours_and_dates_are_in_the_plot() -> None:
    drawn = lines_over_time(1, LINES, "messages")
    assert COLOURS[0] in drawn and COLOURS[1] in drawn and "messages" in drawn
    assert "2023" in drawn
    late = lines_over_time(1, [Line([(plots._YEAR_10000_S, 1.0)], COLOURS[0])], "a")
    svg(late)


def test_results_are_json() -> None:
    assert json.dumps(times_as_text({"topic": "bröker", "first_ms": 0}), ensure_ascii=False) == (
        '{"topic": "bröker", "first_time": "1970-01-01T00:00:00.000Z"}'
    )
