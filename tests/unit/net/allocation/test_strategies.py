"""Each strategy against RocketMQ's results, and the common rules of all strategies."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.net.allocation.pop_shares import ANY_QUEUE, pop_share
from turbopump.net.allocation.ring import _hash_key
from turbopump.net.allocation.shares import (
    AllocationError,
    MachineRooms,
    Shares,
    Sharing,
    sharing_of,
)
from turbopump.net.allocation.strategies import (
    NEARBY,
    STICKY,
    STRATEGIES,
    allocate_averagely,
    allocate_by_name,
    is_strategy,
)
from turbopump.net.wire.queues import MessageQueue

IDC = MachineRooms((("CID-0", "hz"), ("CID-1", "hz"), ("CID-2", "sh"), ("CID-3", "sh")))


def queues(count: int, broker_name: str = "broker-a", topic: str = "TopicA") -> list[MessageQueue]:
    return [MessageQueue(topic, broker_name, queue_id) for queue_id in range(count)]


def clients(count: int) -> list[str]:
    return [f"CID-{number}" for number in range(count)]


def ids(shares: Shares) -> list[list[int]]:
    return [[queue.queue_id for queue in share] for share in shares.values()]


@pytest.mark.parametrize(
    ("name", "group", "shares"),
    [
        ("AVG", (4, 2), [[0, 1], [2, 3]]),
        ("AVG", (5, 2), [[0, 1, 2], [3, 4]]),
        ("AVG", (10, 4), [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        ("AVG", (3, 4), [[0], [1], [2], []]),
        ("AVG", (8, 3), [[0, 1, 2], [3, 4, 5], [6, 7]]),
        ("AVG_BY_CIRCLE", (8, 3), [[0, 3, 6], [1, 4, 7], [2, 5]]),
        ("CONSISTENT_HASH", (8, 3), [[0, 6], [1, 2, 4, 7], [3, 5]]),
        (STICKY, (8, 3), [[0, 3, 6], [1, 4, 7], [2, 5]]),
    ],
)
def test_results_of_rocketmq(name, group, shares) -> None:
    count, members = group
    assert ids(allocate_by_name(name, sharing_of(clients(members), queues(count)))) == shares


def test_the_ring_is_that_of_rocketmq_when_a_member_has_left() -> None:
    assert _hash_key("CID-0-0") == 1900518137
    shares = allocate_by_name("CONSISTENT_HASH", sharing_of(["CID-0", "CID-2"], queues(8)))
    assert ids(shares) == [[0, 1, 2, 4, 6], [3, 5, 7]]


def test_machine_room_takes_brokers_of_named_rooms_alone() -> None:
    rooms = MachineRooms((("x", "hz"), ("y", "sh")))
    given_queues = [
        *queues(10, "hz@a"),
        *queues(4, "plain"),
        *queues(4, "far@b"),
        *queues(2, "h@z@a"),
    ]
    shares = allocate_by_name("MACHINE_ROOM", sharing_of(clients(4), given_queues, rooms=rooms))
    assert ids(shares) == [[0, 1, 8], [2, 3, 9], [4, 5], [6, 7]]
    assert {queue.broker_name for share in shares.values() for queue in share} == {"hz@a"}


def test_nearby_stays_in_the_room_and_shares_rooms_without_members() -> None:
    given_queues = [*queues(4, "hz@a"), *queues(2, "sh@b"), *queues(4, "gz@c")]
    shares = allocate_by_name(NEARBY, sharing_of(clients(4), given_queues, rooms=IDC))
    found = [[(q.broker_name[:2], q.queue_id) for q in share] for share in shares.values()]
    assert found == [
        [("gz", 0), ("hz", 0), ("hz", 1)],
        [("gz", 1), ("hz", 2), ("hz", 3)],
        [("gz", 2), ("sh", 0)],
        [("gz", 3), ("sh", 1)],
    ]
    circle = allocate_by_name(
        f"{NEARBY}-AVG_BY_CIRCLE", sharing_of(clients(4), given_queues, rooms=IDC)
    )
    assert [queue.queue_id for queue in circle["CID-0"]] == [0, 0, 2]


def test_nearby_names_strategies_without_room() -> None:
    with pytest.raises(AllocationError, match="consumer stranger is not known"):
        allocate_by_name(NEARBY, sharing_of(["stranger"], queues(1, "hz@a"), rooms=IDC))
    with pytest.raises(AllocationError, match="broker broker-a is not known"):
        allocate_by_name(NEARBY, sharing_of(["CID-0"], queues(1), rooms=IDC))


def test_the_longest_prefix_names_the_room() -> None:
    rooms = MachineRooms((("10.1", "hz"), ("10.1.7", "sh")))
    assert (rooms.of_client("10.1.7.3@x"), rooms.of_client("10.1.2.3@x")) == ("sh", "hz")
    assert (rooms.of_broker("gz@b"), rooms.of_broker("gz@b@c"), rooms.of_broker("@b")) == (
        "gz",
        "",
        "",
    )


def test_config_equals_the_users_values() -> None:
    fixed = {"CID-0": queues(2), "gone": queues(1)}
    assert ids(allocate_by_name("CONFIG", sharing_of(clients(2), queues(8), fixed=fixed))) == [
        [0, 1],
        [],
    ]


def test_a_strategy_that_does_not_exist() -> None:
    with pytest.raises(AllocationError, match="no strategy NONE: AVG, "):
        allocate_by_name("NONE", sharing_of(clients(2), queues(8)))
    assert [is_strategy(one) for one in ("AVG", NEARBY, f"{NEARBY}-AVG", f"{NEARBY}-X", "")] == [
        True,
        True,
        True,
        False,
        False,
    ]


GROUPS = st.tuples(
    st.sets(st.text(min_size=1, max_size=5), max_size=8),
    st.sets(st.tuples(st.sampled_from(["hz@a", "sh@b", "hz@c"]), st.integers(0, 12)), max_size=30),
    st.randoms(use_true_random=False),
)


def drawn(drawn_group: tuple[set[str], set[tuple[str, int]], random.Random]) -> Sharing:
    members, places, rng = drawn_group
    pool = [*sorted(members), "gone", None]
    previous: dict[str, list[MessageQueue]] = {}
    for broker, number in [*sorted(places), ("hz@old", 1)]:
        for owner in {rng.choice(pool), rng.choice(pool)}:  # now and then two had it
            if owner is not None:
                previous.setdefault(owner, []).append(MessageQueue("T", broker, number))
    prefixes = tuple((member, rng.choice(["hz", "sh", "gz"])) for member in sorted(members))
    order = sorted(places)
    rng.shuffle(order)
    wanted = [MessageQueue("T", *place) for place in order]
    return sharing_of(sorted(members, reverse=True), wanted, previous, rooms=MachineRooms(prefixes))


@given(GROUPS)
def test_each_queue_has_one_consumer_whichever_node_computes_it(found) -> None:
    group = drawn(found)
    again = sharing_of(
        reversed(group.members), reversed(group.queues), group.previous, rooms=group.rooms
    )
    for name in (*STRATEGIES.keys() - {"CONFIG", "MACHINE_ROOM"}, NEARBY, f"{NEARBY}-{STICKY}"):
        shares = allocate_by_name(name, group)
        assert tuple(shares) == group.members
        given_out = [queue for share in shares.values() for queue in share]
        assert sorted(given_out) == (list(group.queues) if group.members else []), name
        assert allocate_by_name(name, again) == shares, name


@given(GROUPS)
def test_sticky_is_balanced_and_stays_when_nothing_changed(found) -> None:
    group = drawn(found)
    shares = allocate_by_name(STICKY, group)
    sizes = [len(share) for share in shares.values()]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert allocate_by_name(STICKY, sharing_of(group.members, group.queues, shares)) == shares


@given(data=st.data(), members=st.integers(1, 4), count=st.integers(0, 6))
def test_sticky_moves_no_more_than_the_best_balanced_allocation(data, members, count) -> None:
    """Brute force over all balanced allocations: the minimum of queues that move between live
    members."""
    names = clients(members)
    had = data.draw(
        st.lists(st.sampled_from([*names, "gone", None]), min_size=count, max_size=count)
    )
    places = queues(count // 2, "broker-b") + queues(count - count // 2)
    previous: dict[str, list[MessageQueue]] = {}
    for queue, owner in zip(places, had, strict=True):
        if owner is not None:
            previous.setdefault(owner, []).append(queue)
    least = min(
        sum(one in names and one != other for one, other in zip(had, chosen, strict=True))
        for chosen in itertools.product(names, repeat=count)
        if max(map(chosen.count, names)) - min(map(chosen.count, names)) <= 1
    )
    shares = allocate_by_name(STICKY, sharing_of(names, places, previous))
    owner_of = {queue: name for name, share in shares.items() for queue in share}
    moved = sum(
        one in names and one != owner_of[queue] for one, queue in zip(had, places, strict=True)
    )
    assert moved == least


def numbers(shares: Shares) -> dict[str, list[int]]:
    return {member: [queue.queue_id + 1 for queue in share] for member, share in shares.items()}


def test_the_vectors_of_the_proposal() -> None:
    first = allocate_by_name(STICKY, sharing_of(["C0", "C1", "C2"], queues(8)))
    assert numbers(first) == {"C0": [1, 4, 7], "C1": [2, 5, 8], "C2": [3, 6]}
    left = allocate_by_name(STICKY, sharing_of(["C0", "C2"], queues(8), first))
    assert numbers(left) == {"C0": [1, 4, 5, 7], "C2": [2, 3, 6, 8]}
    joined = allocate_by_name(STICKY, sharing_of(["C0", "C2", "C3"], queues(8), left))
    assert numbers(joined) == {"C0": [1, 4, 5], "C2": [2, 3, 6], "C3": [7, 8]}
    twelve = allocate_by_name(STICKY, sharing_of(["C1", "C2", "C3"], queues(12)))
    fewer = allocate_by_name(STICKY, sharing_of(["C2", "C3"], queues(12), twelve))
    assert numbers(fewer) == {"C2": [1, 2, 5, 7, 8, 11], "C3": [3, 4, 6, 9, 10, 12]}


@pytest.mark.parametrize("count", [1, 3, 8, 12])
@pytest.mark.parametrize("members", [1, 2, 4, 9])
@pytest.mark.parametrize("share_number", [-1, 0, 1, 2, 7])
def test_sizes_of_pop_shares(count, members, share_number) -> None:
    group = sharing_of(clients(members), queues(count))
    shares = allocate_averagely(group)
    for client in group.members:
        found = pop_share(group, shares, client, share_number)
        if share_number <= 0 or share_number >= members - 1:
            assert found == [MessageQueue("TopicA", "broker-a", ANY_QUEUE)]
        elif count < members:
            assert len(found) == 1
        elif count % members == 0:
            assert len(found) == count // members * (share_number + 1)
    assert pop_share(group, shares, "stranger", share_number) == []
