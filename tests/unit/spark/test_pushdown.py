"""Which filters the decoder answers, and that none of them loses a row."""

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from turbopump.spark.pushdown import EVERYTHING, Pushed, push

AT = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)
MICRO = timedelta(microseconds=1)
TOPIC, QUEUE, TIME, PLACE = ("topic",), ("queue_id",), ("store_time",), ("log_offset",)


@pytest.mark.parametrize(
    ("one", "selection"),
    [
        (EqualTo(TOPIC, "a"), Pushed(topics=frozenset({"a"}))),
        (EqualNullSafe(TOPIC, "a"), Pushed(topics=frozenset({"a"}))),
        (In(TOPIC, ("a", None, "b")), Pushed(topics=frozenset({"a", "b"}))),
        (EqualTo(TOPIC, None), Pushed(topics=frozenset())),
        (In(QUEUE, (1, 2)), Pushed(queue_ids=frozenset({1, 2}))),
        (EqualTo(("store",), "/s"), Pushed(stores=frozenset({"/s"}))),
        (EqualTo(("confirmed",), True), Pushed(confirmed=True)),
        (IsNotNull(TOPIC), EVERYTHING),
        (GreaterThan(PLACE, 5), Pushed(min_log_offset=6)),
        (GreaterThanOrEqual(PLACE, 5), Pushed(min_log_offset=5)),
        (LessThan(PLACE, 5), Pushed(end_log_offset=5)),
        (LessThanOrEqual(PLACE, 5), Pushed(end_log_offset=6)),
        (EqualTo(PLACE, 5), Pushed(min_log_offset=5, end_log_offset=6)),
        (GreaterThan(TIME, AT), Pushed(min_store_ms=AT_MS + 1)),
        (GreaterThan(TIME, AT + MICRO), Pushed(min_store_ms=AT_MS + 1)),
        (GreaterThan(TIME, AT - MICRO), Pushed(min_store_ms=AT_MS)),
        (GreaterThanOrEqual(TIME, AT), Pushed(min_store_ms=AT_MS)),
        (GreaterThanOrEqual(TIME, AT + MICRO), Pushed(min_store_ms=AT_MS + 1)),
        (LessThan(TIME, AT), Pushed(max_store_ms=AT_MS - 1)),
        (LessThan(TIME, AT + MICRO), Pushed(max_store_ms=AT_MS)),
        (LessThanOrEqual(TIME, AT), Pushed(max_store_ms=AT_MS)),
        (LessThanOrEqual(TIME, AT + MICRO), Pushed(max_store_ms=AT_MS)),
        (EqualTo(TIME, AT), Pushed(min_store_ms=AT_MS, max_store_ms=AT_MS)),
    ],
    ids=lambda one: "" if isinstance(one, Pushed) else str(one),  # sets have no order
)
def test_understood(one: Filter, selection: Pushed) -> None:
    assert push([one]) == (selection, [])


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(TOPIC, "bad \ufffd byte"),
        In(TOPIC, ("a", "\ufffd")),
        Not(EqualTo(TOPIC, "a")),
        StringStartsWith(TOPIC, "a"),
        GreaterThan(QUEUE, 1),
        GreaterThan(TOPIC, "a"),
        EqualTo(("queue_offset",), 5),
        EqualTo(("properties", "a"), "b"),
        EqualTo(("confirmed",), False),
        IsNotNull(("keys",)),
        EqualTo(PLACE, None),
        GreaterThan(TIME, AT.replace(tzinfo=None)),
        GreaterThan(("born_time",), AT),
    ],
    ids=str,
)
def test_given_back(one: Filter) -> None:
    other = EqualTo(QUEUE, 1)
    assert push([one, other]) == (Pushed(queue_ids=frozenset({1})), [one])


@pytest.mark.parametrize(
    "filters",
    [
        [EqualTo(TOPIC, "a"), EqualTo(TOPIC, "b")],
        [In(QUEUE, (1, 2)), EqualTo(QUEUE, 3)],
        [GreaterThan(PLACE, 5), LessThan(PLACE, 6)],
        [GreaterThan(TIME, AT), LessThanOrEqual(TIME, AT)],
        [EqualTo(TIME, AT + MICRO)],
    ],
    ids=str,
)
def test_contradictions_leave_nothing(filters: list[Filter]) -> None:
    selection, left = push(filters)
    assert selection.is_empty
    assert not left


def test_all_of_them_must_hold() -> None:
    selection, _left = push(
        [GreaterThan(PLACE, 5), GreaterThan(PLACE, 3), LessThan(PLACE, 9), In(TOPIC, ("a", "b")),
         In(TOPIC, ("b", "c"))]
    )  # fmt: skip
    assert selection == Pushed(topics=frozenset({"b"}), min_log_offset=6, end_log_offset=9)
    assert not selection.is_empty
    assert not EVERYTHING.is_empty
