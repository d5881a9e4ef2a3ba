"""The verdict over rebalances, without Spark: limits, sentences, and the row of a line."""

import json
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from turbopump.spark.rebalance import job
from turbopump.spark.rebalance.job import (
    GroupSummary,
    RebalanceOptions,
    RebalanceResult,
    StrategySummary,
    main,
)

QUEUES = [["b", number] for number in range(4)]
SUMMARY = GroupSummary(
    group="g",
    topic="t",
    allocator="AVG",
    rebalances=3,
    balance_degree_mean=0.25,
    balance_degree_max=0.5,
    stickiness=0.75,
    evenness_mean=0.9,
    evenness_min=0.8,
    balance_score_max=2,
    spread_max=1,
    retention=0.6,
    moved=5,
    moved_min=3,
    revoked=4,
    assigned=4,
    faulty=0,
    breaks=0,
    unsettled=0,
    compute_ms=None,
    time_consumed_ms=(1.0, 2.0, 30.0, 40.0),
    overlap_ms=None,
    unowned_ms=None,
)


def history(**more: object) -> str:
    return json.dumps(
        {
            "time_ms": 1_700_000_000_123,
            "group": "g",
            "topic": "t",
            "allocator": "AVG",
            "members": ["c1", "c2"],
            "queues": QUEUES,
            "before": {"c1": QUEUES},
            "after": {"c1": QUEUES[:2], "c2": QUEUES[2:]},
            "start_ms": 100,
            "end_ms": 130,
            **more,
        }
    )


def test_a_line_becomes_a_row() -> None:
    row = job._parse_line(history(), "file")
    names = [part.split()[0].strip("`") for part in job.ROW_DDL.split(", ")]
    assert set(row) <= set(names) and row.get("error") is None
    assert row["time"] == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert (row["members"], row["queues"], row["stayed"], row["moved"]) == (2, 4, 2, 2)
    assert (row["moved_min"], row["retention"], row["balance_degree"]) == (2, 1.0, 0.0)
    assert (row["time_consumed_ms"], row["faults"]) == (30, [])


def test_rows_that_follow_each_other_are_known_by_their_assignments() -> None:
    """The end of a rebalance equals the start of the next, in any order of queues and members."""
    first = job._parse_line(history(), "file")
    after = {"c2": [QUEUES[3], QUEUES[2]], "c1": QUEUES[:2]}
    second = job._parse_line(history(before=after, after={"c2": QUEUES}), "file")
    assert second["before_id"] == first["after_id"] != first["before_id"]
    other = job._parse_line(history(before={"c1": QUEUES[:3], "c2": QUEUES[3:]}), "file")
    assert other["before_id"] != first["after_id"]


def test_a_line_that_is_none_is_named_and_shortened() -> None:
    row = job._parse_line("x" * 500, "file")
    assert row["file"] == "file" and row["error"].startswith("no JSON: ")
    assert len(row["error"]) < 200


LIMITS: list[tuple[str, float, bool, float]] = [
    ("max_balance_degree", 0.5, False, 0.5),
    ("max_balance_degree", 0.49, True, 0.5),
    ("max_time_ms", 30.0, False, 30.0),
    ("max_time_ms", 29.0, True, 30.0),
    ("min_stickiness", 0.75, False, 0.75),
    ("min_stickiness", 0.76, True, 0.75),
    ("min_evenness", 0.8, False, 0.8),
    ("min_evenness", 0.85, True, 0.8),
    ("min_retention", 0.6, False, 0.6),
    ("min_retention", 0.61, True, 0.6),
]


@pytest.mark.parametrize(("name", "limit", "is_broken", "found"), LIMITS)
def test_each_limit(name: str, limit: float, is_broken: bool, found: float) -> None:
    given: dict[str, Any] = {name: limit}
    ((_, value, asked, broken),) = job._check_limits(SUMMARY, RebalanceOptions(("h",), **given))
    assert (value, asked, broken) == (found, limit, is_broken)


def test_unknown_figures_break_no_limit() -> None:
    unknown = replace(SUMMARY, stickiness=None, time_consumed_ms=None)
    options = RebalanceOptions(("h",), max_time_ms=0.0, min_stickiness=1.0)
    assert list(job._check_limits(unknown, options)) == []
    assert list(job._check_limits(SUMMARY, RebalanceOptions(("h",)))) == []


def test_the_report_for_people() -> None:
    first = replace(SUMMARY, stickiness=None, breaks=2, compute_ms=(0.1, 0.2, 0.3, 0.4))
    result = RebalanceResult(3, 0, (first,), (), ())
    text = "\n".join(result.lines())
    assert "unknown: there are first assignments only" in text
    assert "computing p50 0.1 ms, p99 0.3 ms, at most 0.4 ms" in text
    assert "2 did not begin with the assignment before" in text
    assert text.endswith("verdict: ok") and result.is_ok
    broken = replace(result, violations=("too slow",))
    assert broken.lines()[-2:] == ["violated: too slow", "verdict: violated"]
    text = "\n".join(replace(result, groups=(SUMMARY,)).lines())
    assert "computing unknown" in text and "did not begin" not in text


def test_strategies_stand_side_by_side() -> None:
    known = {one.name: getattr(SUMMARY, one.name) for one in fields(StrategySummary)}
    one = StrategySummary(**known)
    other = replace(one, allocator="B", stickiness=None, time_consumed_ms=None)
    other = replace(other, overlap_ms=(0.0, 1.0, 2.0, 7.0))
    lines = RebalanceResult(6, 0, (), (one, other), ()).lines()
    assert [line.split() for line in lines[2:4]] == [
        ["AVG", "3", "0.250", "0.750", "5", "2", "1", "30", "-"],
        ["B", "3", "0.250", "-", "5", "2", "-", "-", "7"],
    ]
    assert len(RebalanceResult(3, 0, (), (one,), ()).lines()) == 2, "one alone is in its groups"


def test_the_report_for_programs() -> None:
    found = RebalanceResult(3, 1, (SUMMARY,), (), ("x",), "out").to_json()
    assert (found["verdict"], found["unreadable"], found["output"]) == ("violated", 1, "out")
    assert found["groups"][0]["time_consumed_ms"] == (1.0, 2.0, 30.0, 40.0)
    assert json.loads(json.dumps(found))["violations"] == ["x"]


@pytest.mark.parametrize(
    "words", [["h", "--min-stickiness", "much"], ["h", "--window-minutes", "0"], []]
)
def test_an_invalid_option_ends_with_two(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and "error: " in capsys.readouterr().err
