"""The average allocation: every queue has exactly one consumer, whichever member computes it."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from turbopump.net.allocation.shares import sharing_of, sorted_queues
from turbopump.net.allocation.strategies import allocate_averagely
from turbopump.net.client.rebalance import queue_changes
from turbopump.net.wire.queues import MessageQueue


def queues(count: int, broker_name: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("T", broker_name, queue_id) for queue_id in range(count)]


def share_of(
    who: str, members: Iterable[str], queues: Iterable[MessageQueue]
) -> list[MessageQueue]:
    return allocate_averagely(sharing_of(members, queues)).get(who, [])


def ids(share: list[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in share]


def test_shares_are_consecutive_and_the_first_ones_larger() -> None:
    shares = [ids(share_of(who, ["c", "a", "b"], queues(8))) for who in "abc"]
    assert shares == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_more_members_than_queues_leaves_the_last_without() -> None:
    shares = [ids(share_of(who, ["a", "b", "c"], queues(2))) for who in "abc"]
    assert shares == [[0], [1], []]


def test_queue_ids_are_ordered_as_numbers_and_brokers_by_name() -> None:
    mixed = [*queues(11, "broker-b"), *queues(11, "broker-a")]
    share = share_of("a", ["a", "b"], reversed(mixed))
    assert share == queues(11, "broker-a")


def test_member_that_is_not_listed_gets_nothing() -> None:
    assert share_of("x", ["a", "b"], queues(4)) == []
    assert share_of("x", [], queues(4)) == []


def test_client_over_two_sockets_counts_once() -> None:
    assert ids(share_of("a", ["a", "b", "a"], queues(4))) == [0, 1]
    assert ids(share_of("b", ["a", "b", "a"], queues(4))) == [2, 3]


def test_order_of_names_is_that_of_java() -> None:
    # U+FF5E sorts after U+1F600 in Java (its first UTF-16 unit is 0xD83D), before it in Python.
    high, astral = "\uff5e", "\U0001f600"
    assert ids(share_of(astral, [high, astral], queues(2))) == [0]


def test_changes_name_removed_and_added_queues() -> None:
    gone, new = queue_changes(set(queues(3)), queues(5)[2:])
    assert ids(gone) == [0, 1]
    assert ids(new) == [3, 4]


@given(
    members=st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=9),
    count=st.integers(0, 40),
    seed=st.randoms(),
)
def test_every_queue_goes_to_exactly_one_member(
    members: set[str], count: int, seed: object
) -> None:
    everything = queues(count)
    shares = [share_of(member, members, everything) for member in members]
    assert sorted_queues(queue for share in shares for queue in share) == everything
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
