"""The report of an audit: findings with their places, the first ones in order, the rest counted."""

import itertools
import random

import pytest

from turbopump.spark.audit.verdicts import (
    FINDINGS_MAX,
    REASONS_MAX,
    Finding,
    PromiseOutcome,
    Tally,
)


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding("gone"), "gone"),
        (Finding("gone", "a"), "gone [a]"),
        (Finding("gone", "a", "/a/commitlog/0", 0), "gone [a; /a/commitlog/0 at byte 0]"),
        (Finding("gone", "a", "/a/epochs"), "gone [a; /a/epochs]"),
        (Finding("gone", log_offset=0, epoch=0), "gone [log offset 0; epoch 0]"),
        (
            Finding("gone", "a", "", None, 7, "T", 0, 3, 2),
            "gone [a; log offset 7; T queue 0 offset 3; epoch 2]",
        ),
    ],
)
def test_a_place_as_text(finding: Finding, text: str) -> None:
    assert str(finding) == text


def test_a_place_as_json_has_zeros_but_no_unknown_values() -> None:
    assert Finding("gone").members() == {"what": "gone"}
    whole = Finding("gone", "a", "f", 0, 0, "T", 0, 0, 0)
    assert whole.members() == {
        "what": "gone",
        "store": "a",
        "file": "f",
        "position": 0,
        "logOffset": 0,
        "topic": "T",
        "queue": 0,
        "queueOffset": 0,
        "epoch": 0,
    }


def test_findings_are_in_the_order_of_the_log_then_of_queues() -> None:
    ordered = [
        Finding("no place"),
        Finding("no log offset", topic="T", queue_id=0, queue_offset=4),
        Finding("first", log_offset=5, topic="S", queue_id=9, queue_offset=9),
        Finding("queue 0", log_offset=5, topic="T", queue_id=0, queue_offset=9),
        Finding("queue 1", log_offset=5, topic="T", queue_id=1, queue_offset=0),
        Finding("last", log_offset=6),
    ]
    rng = random.Random(1)
    for _ in range(20):
        mixed = rng.sample(ordered, len(ordered))
        assert sorted(mixed, key=lambda one: one.sort_key) == ordered


def findings(*log_offsets: int) -> list[Finding]:
    return [Finding("wrong", "a", log_offset=at) for at in log_offsets]


def test_the_first_findings_are_kept_and_the_rest_is_counted() -> None:
    tally = Tally("records", limit=3)
    numbers = list(range(100))
    random.Random(1).shuffle(numbers)
    for finding in findings(*numbers):
        tally.add_finding(finding)
        assert len(tally.findings) <= 4 * tally.limit, "bounded however many there are"
    verdict = tally.make_verdict()
    assert [one.log_offset for one in verdict.findings] == [0, 1, 2]
    assert verdict.more == 97 and verdict.outcome is PromiseOutcome.VIOLATED
    assert verdict.lines()[-1] == "    and 97 more"


def test_reasons_are_told_once_and_so_many() -> None:
    tally = Tally("records")
    for _ in range(3):
        tally.cannot_check("a: no epoch list")
    assert tally.make_verdict().undecided == ("a: no epoch list",)
    for number in range(2 * REASONS_MAX):
        tally.cannot_check(str(number))
    assert len(tally.make_verdict().undecided) == REASONS_MAX


def test_the_definition_of_an_outcome() -> None:
    nothing = Tally("records")
    assert nothing.make_verdict().outcome is PromiseOutcome.HOLDS
    assert nothing.make_verdict(looked=False).outcome is PromiseOutcome.UNDECIDED
    nothing.cannot_check("it may be open")
    assert nothing.make_verdict().outcome is PromiseOutcome.UNDECIDED, (
        "then it does not count as holding"
    )
    nothing.add_findings(findings(5))
    assert nothing.make_verdict().outcome is PromiseOutcome.VIOLATED
    assert nothing.make_verdict(looked=False).outcome is PromiseOutcome.VIOLATED


def test_parts_add_up_in_any_order() -> None:
    parts = []
    for number in range(3):
        part = Tally("records")
        part.add_findings(findings(*range(number * 10, number * 10 + 15)))
        part.count("records", 100 + number)
        part.count(f"of {number}", 0)
        part.cannot_check(f"reason {number}")
        parts.append(part)
    found = set()
    for order in itertools.permutations(parts):
        total = Tally("records")
        for part in order:
            total.merge(part)
        found.add(str(total.make_verdict().members()))
    (text,) = found
    assert "'records': 303" in text and "'of 2': 0" in text
    assert f"'more': {45 - FINDINGS_MAX}" in text


def test_a_verdict_as_lines_and_as_json() -> None:
    tally = Tally("acked-survives")
    tally.count("acknowledged", 1_234_567)
    tally.count("abandoned", 0)
    assert tally.make_verdict().lines() == [
        "acked-survives     holds          0 abandoned, 1,234,567 acknowledged"
    ]
    assert Tally("records").make_verdict().lines() == ["records            holds"]
    tally.add_findings(findings(7))
    tally.cannot_check("b: it may be open")
    head, first, reason = tally.make_verdict().lines()
    assert head.split()[:2] == ["acked-survives", "VIOLATED"]
    assert first == "    wrong [a; log offset 7]"
    assert reason == "    not decidable: b: it may be open"
    assert tally.make_verdict().members() == {
        "verdict": "acked-survives",
        "outcome": "violated",
        "counts": {"abandoned": 0, "acknowledged": 1_234_567},
        "findings": [{"what": "wrong", "store": "a", "logOffset": 7}],
        "more": 0,
        "undecided": ["b: it may be open"],
    }
