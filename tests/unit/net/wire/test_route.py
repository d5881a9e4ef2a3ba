"""Numbers of queues that a peer sent: negative and absurd ones, wherever they become queues."""

from collections.abc import Callable

import pytest

from turbopump.broker.escape.topic_masters import masters_of
from turbopump.net.allocation.shares import queues_of, readable_counts
from turbopump.net.client.admin import reading
from turbopump.net.client.routes import read_route
from turbopump.net.wire.route import (
    QUEUES_MAX,
    BrokerData,
    QueueData,
    TopicRouteData,
    bounded_queue_counts,
)

INT_MAX, INT_MIN = 2**31 - 1, -(2**31)
HOSTILE = TopicRouteData.decode(
    TopicRouteData(
        [
            QueueData("a", INT_MAX, INT_MAX, 6),
            QueueData("b", -8, -8, 6),
            QueueData("c", 4, 4, 6),
            QueueData("d", INT_MIN, INT_MIN, 6),
        ],
        [BrokerData("C", name, {0: f"{name}:10911"}) for name in "abcd"],
    ).encode()
)
"""A route with the queues of an honest broker, c."""


@pytest.mark.parametrize(
    ("given", "legal"),
    [
        ([], []),
        ([("a", 4), ("b", 0)], [("a", 4), ("b", 0)]),
        ([("b", -1), ("a", INT_MIN)], [("b", 0), ("a", 0)]),
        ([("a", QUEUES_MAX)], [("a", QUEUES_MAX)]),
        ([("a", QUEUES_MAX + 1)], [("a", QUEUES_MAX)]),
        ([("b", INT_MAX), ("c", 4), ("a", -3)], [("b", QUEUES_MAX - 4), ("c", 4), ("a", 0)]),
        ([("a", INT_MAX), ("b", INT_MAX)], [("a", QUEUES_MAX // 2), ("b", QUEUES_MAX // 2)]),
    ],
)
def test_counts_are_bounded_together(
    given: list[tuple[str, int]], legal: list[tuple[str, int]]
) -> None:
    assert bounded_queue_counts(given) == bounded_queue_counts(legal) == legal


def test_a_route_of_very_many_brokers_is_bounded() -> None:
    found = bounded_queue_counts((f"broker-{number}", INT_MAX) for number in range(QUEUES_MAX + 9))
    assert len(found) == QUEUES_MAX + 9 and sum(count for _, count in found) <= QUEUES_MAX


def _counts(names: list[str]) -> dict[str, int]:
    return {name: names.count(name) for name in dict.fromkeys(names)}


@pytest.mark.parametrize(
    "read",
    [
        lambda: dict(readable_counts(HOSTILE)),
        lambda: _counts([one.broker_name for one in queues_of("T", [("a", INT_MAX), ("c", 4)])]),
        lambda: _counts([one.broker_name for one in read_route("T", HOSTILE).subscribe]),
        lambda: _counts([one.broker_name for one in read_route("T", HOSTILE).publish]),
        lambda: _counts([one.broker_name for one, _ in reading._queues("T", HOSTILE)]),
        lambda: {one.name: one.queue_count for one in masters_of(HOSTILE, "own")},
    ],
    ids=["coordinator", "queues", "consumer", "producer", "administrator", "escape"],
)
def test_a_hostile_route_makes_few_queues_and_keeps_those_of_others(
    read: Callable[[], dict[str, int]],
) -> None:
    found = read()
    assert found["c"] == 4 and found["a"] == QUEUES_MAX - 4
    assert found.get("b", 0) == found.get("d", 0) == 0
