"""The report as a page: without external files, with names as text, bounded, also for odd
results."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from turbopump.spark.throughput.buckets import buckets_of
from turbopump.spark.throughput.report import render, size, summary_lines
from turbopump.spark.throughput.result import (
    ROWS_SHOWN,
    STEPS_SHOWN,
    CopyComparison,
    ReplicaLag,
    Shown,
    Throughput,
    format_iso,
    step_seconds,
)

EVIL = "<script>alert(1)</script>\"'&$x^2$\x01"
START_S = 1_700_000_000
BUCKET = int(buckets_of(np.array([5000]))[0])
FIGURES: dict[str, object] = {
    "messages": 10,
    "bytes": 1234,
    "body_bytes": 1000,
    "size_min": 100,
    "size_avg": 123.4,
    "size_max": 300,
    "size_p50": 120.0,
    "size_p99": 290.0,
    "size_p999": 300.0,
    "body_avg": 100.0,
    "body_max": 200,
    "latency_ms_p50": 3.0,
    "latency_ms_p99": 40.5,
    "latency_ms_p999": 80.0,
    "latency_ms_max": 99,
    "skewed_messages": 2,
    "skew_ms_max": 300,
    "unborn_messages": 1,
    "peak_messages_per_s": 7,
    "peak_bytes_per_s": 700,
}
TOTALS = FIGURES | {
    "first_time": format_iso(START_S * 1000),
    "last_time": format_iso(START_S * 1000 + 9000),
    "topics": 2,
    "queues": 3,
    "hosts": 2,
    "gaps": 1,
    "missing_offsets": 4,
    "duplicate_offsets": 0,
    "queue_stalls": 1,
    "topic_stalls": 0,
    "store_stalls": 0,
    "clock_steps": 1,
    "back_ms_max": 500,
}


def result(**changes: Any) -> Throughput:
    place = {"store": "a", "topic": EVIL, "queue_id": 0}
    row = {**place, **FIGURES, "missing_offsets": 4, "duplicate_offsets": 0}
    stall = {
        "level": "queue",
        **place,
        "from_time": format_iso(START_S * 1000),
        "until_time": format_iso(START_S * 1000 + 7000),
        "silent_ms": 7000,
    }
    step = {
        "store": "a",
        "later_time": format_iso(5),
        "later_log_offset": 7,
        "earlier_time": format_iso(1),
        "earlier_log_offset": 9,
        "back_ms": 4,
    }
    gap = {**place, "first_missing": 5, "last_missing": 8, "missing": 4, "seen_time": format_iso(1)}
    point = {"start_s": START_S, **FIGURES}
    kept = Throughput(
        stores=(EVIL,),
        totals=TOTALS,
        by_store=Shown((row,), 1),
        topics=Shown((row,), 1),
        queues=Shown((row,) * 3, 1000),
        hosts=Shown(({**row, "born_host": EVIL},), 1),
        gaps=Shown((gap,), 1),
        stalls=Shown((stall,), 1),
        clock_steps=Shown((step,), 1),
        stall_seconds=5,
        step_seconds=1,
        over_time=(point, {**point, "start_s": START_S + 9, "latency_ms_p50": None}),
        topics_over_time=({"topic": "_T", "start_s": START_S, "messages": 4, "bytes": 9},),
        histograms=({"metric": "size", "bucket": BUCKET, "messages": 3},),
        written=("out/cells",),
    )
    return replace(kept, **changes)


def test_the_longest_silences_are_told_however_short_they_are() -> None:
    """Outages of three seconds are no stalls of at least five."""
    silences = tuple(
        {
            "level": level,
            "store": "a",
            "from_time": format_iso(START_S * 1000 + at_ms),
            "until_time": format_iso(START_S * 1000 + at_ms + 3000),
            "silent_ms": silent_ms,
        }
        for level, at_ms, silent_ms in (("queue", 1, 3100), ("store", 2, 3012), ("store", 9, 2998))
    )
    quiet = result(stalls=Shown(), silences=silences)
    assert (
        "longest silences of a store: 3,012 ms from 2023-11-14T22:13:20.002Z, 2,998 ms from"
        " 2023-11-14T22:13:20.009Z"
    ) in summary_lines(quiet)
    page = render(quiet)
    assert all(f"{row['silent_ms']:,} ms" in page for row in silences)


LAG = ReplicaLag("a", EVIL, 100, 60, 60, False, 90, 60, 40, 2, 1500, 1600, 0, 0)
COPIES = CopyComparison(
    EVIL,
    {
        "copied": 5,
        "early": 1,
        "missing": 2,
        "missing_inside": 1,
        "only_in_copy": 0,
        "copied_again": 0,
        "delay_ms_p50": 3.0,
        "delay_ms_p99": 8.0,
        "delay_ms_p999": 9.0,
        "delay_ms_max": 9,
    },
    Shown(),
    ({"start_s": START_S, "delay_ms_p50": 3.0, "delay_ms_p99": None},),
)


class Page(HTMLParser):
    """A parser that checks that tags close in order, and records ids, tags and external
    references."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"src", "href", "xlink:href", "data", "srcset", "action"}:
                self.links.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def test_the_page_is_whole_and_loads_nothing() -> None:
    text = render(result(replicas=(LAG,), copies=COPIES))
    page = parsed(text)
    assert page.tags.count("svg") == 7
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert all(name in page.ids for name in re.findall(r"url\(#([^)]+)\)", text))
    assert not {"script", "link", "img", "iframe", "object", "image"} & set(page.tags)
    assert not re.search(r"@import|url\((?!#)", text)
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)


def test_names_are_text_wherever_they_stand() -> None:
    text = render(result(replicas=(LAG,), copies=COPIES))
    assert "<script" not in text and "\x01" not in text
    assert (
        text.count(
            "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;$x^2$\N{REPLACEMENT CHARACTER}"
        )
        >= 9
    )
    assert ">_T<" in text, "a name that matplotlib would hide"


def test_left_out_rows_are_reported() -> None:
    assert "997 more rows are in the Parquet table" in render(result())


def test_an_empty_store_has_a_page_too() -> None:
    none: dict[str, Any] = {name: None if "ms" in name or "size" in name else 0 for name in FIGURES}
    totals = {**TOTALS, **none, "first_time": None, "last_time": None}
    nothing = result(
        totals=totals,
        by_store=Shown(),
        topics=Shown(),
        queues=Shown(),
        hosts=Shown(),
        gaps=Shown(),
        stalls=Shown(),
        clock_steps=Shown(),
        over_time=(),
        topics_over_time=(),
        histograms=(),
    )
    assert "no message" in render(nothing)
    assert "no message" in " ".join(summary_lines(nothing))


@pytest.mark.parametrize("start_s", [-62_135_596_800 * 2, 0, 253_402_300_800 * 4])
def test_times_that_no_calendar_has_are_drawn(start_s: int) -> None:
    point = {"start_s": start_s, **FIGURES}
    stall = {
        "level": "store",
        "store": "a",
        "from_time": format_iso(start_s * 1000),
        "until_time": format_iso(start_s * 1000 + 9000),
        "silent_ms": 9000,
    }
    parsed(render(result(over_time=(point,), topics_over_time=(), stalls=Shown((stall,), 1))))


def test_hundreds_of_topics_stay_readable() -> None:
    rows = tuple({"store": "a", "topic": f"topic-{n}", **FIGURES} for n in range(ROWS_SHOWN))
    many = render(result(topics=Shown(rows, 5000)))
    assert len(many) < 400_000
    assert "4,900 more rows" in many


def test_the_same_result_is_the_same_page() -> None:
    assert render(result()) == render(result())


def test_json_has_everything() -> None:
    parsed = json.loads(result(replicas=(LAG,), copies=COPIES).to_json())
    assert parsed["totals"]["messages"] == 10
    assert parsed["replicas"][0]["waiting_ms"] == 1500
    assert parsed["copies"]["totals"]["missing"] == 2


def test_the_summary_has_the_lag_of_a_replica() -> None:
    text = "\n".join(
        summary_lines(result(replicas=(LAG, replace(LAG, differs=True)), copies=COPIES))
    )
    assert "2 records and 40 B behind a, for at least 1,500 ms" in text
    assert "they differ from log offset 60 on" in text
    assert "2 missing (1 before later ones)" in text


@pytest.mark.parametrize(
    ("span_s", "step_s"), [(1, 1), (399, 1), (400, 2), (3600, 10), (86400, 300), (10**9, 2592000)]
)
def test_the_steps_of_a_line_are_bounded(span_s: int, step_s: int) -> None:
    first_s = 1_700_000_001
    assert step_seconds(first_s * 1000, (first_s + span_s) * 1000 - 1) == step_s
    steps = (first_s + span_s - 1) // step_s - first_s // step_s + 1
    assert steps <= STEPS_SHOWN


def test_sizes_are_told_in_units() -> None:
    assert [size(n) for n in (0, 999, 1000, 1_500_000, 10**21)] == [
        "0 B",
        "999 B",
        "1.00 kB",
        "1.50 MB",
        "1,000.00 EB",
    ]
    assert size(None) == "–"
