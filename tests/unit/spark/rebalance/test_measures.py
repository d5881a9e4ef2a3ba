"""The measures of a rebalance, compared with their literal definitions."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.spark.allocation import Queue, averaged, history, lines, sticky

from turbopump.spark.rebalance.measures import (
    BadHistory,
    assignment_id,
    measure_rebalance,
    parse,
    sum_of_differences,
)

Q = [("b", number) for number in range(6)]


def line(before: object, after: dict[str, list[Queue]], /, **more: object) -> str:
    value = {
        "time_ms": 1,
        "group": "g",
        "topic": "t",
        "allocator": "AVG",
        "members": sorted(after),
        "queues": Q,
        "before": before,
        "after": after,
        **more,
    }
    return json.dumps(value)


@given(st.lists(st.integers(0, 50), max_size=8))
def test_the_balance_score_is_the_sum_over_all_pairs(sizes) -> None:
    pairs = itertools.combinations(sizes, 2)
    assert sum_of_differences(sizes) == sum(abs(one - two) for one, two in pairs)


def owned(**queues: str) -> dict[str, list[Queue]]:
    """Queues from the digits of each member: `C0="147"`."""
    return {client: [("b", int(q, 16)) for q in numbers] for client, numbers in queues.items()}


@pytest.mark.parametrize(
    ("before", "after", "degree", "stickiness"),
    [
        ({}, owned(C0="147", C1="258", C2="36"), (2 / 9) ** 0.5, None),
        (owned(C0="147", C1="258", C2="36"), owned(C0="1457", C2="2368"), 0.0, 5 / 8),
        (owned(C1="147a", C2="258b", C3="369c"), owned(C2="12578b", C3="3469ac"), 0.0, 8 / 12),
        (owned(C1="1234", C2="5678", C3="9abc"), owned(C2="123456", C3="789abc"), 0.0, 6 / 12),
    ],
)
def test_the_measures_of_the_proposal(before, after, degree, stickiness) -> None:
    """The proposal's examples: a first assignment, one of three members leaves, sticky and by
    average."""
    queues = sorted({queue for owned in after.values() for queue in owned})
    found = measure_rebalance(parse(line(before, after, queues=queues, start_ms=5, end_ms=12)))
    assert found.balance_degree == pytest.approx(degree)
    assert found.stickiness == stickiness


@pytest.mark.parametrize(
    ("sizes", "score", "balance", "spread"),
    [
        ([3, 3], 0, 1.0, 0),
        ([6, 0], 6, 0.0, 6),
        ([2, 2, 2], 0, 1.0, 0),
        ([4, 2], 2, 2 / 3, 2),
        ([2, 2, 1, 1], 4, 1.0, 1),
        ([1] * 6 + [0], 6, 1.0, 1),
        ([6], 0, 1.0, 0),
    ],
)
def test_balance(sizes, score, balance, spread) -> None:
    places = iter(Q)
    after = {f"c{at}": list(itertools.islice(places, size)) for at, size in enumerate(sizes)}
    found = measure_rebalance(parse(line({}, after)))
    assert (found.balance_score, found.spread) == (score, spread)
    assert found.evenness == pytest.approx(balance)


def test_movement_by_hand() -> None:
    """c leaves; a may keep 3 of its 4, b both of its 2."""
    before = {"a": Q[:4], "b": Q[4:5], "c": Q[5:]}
    found = measure_rebalance(parse(line(before, {"a": Q[1:4], "b": [Q[0], *Q[4:]]})))
    assert (found.stayed, found.moved, found.moved_min, found.retention) == (4, 1, 1, 1.0)
    assert found.stickiness == 4 / 6
    assert (found.revoked, found.assigned) == (2, 2)
    worse = measure_rebalance(parse(line(before, {"a": Q[3:], "b": Q[:3]})))
    assert (worse.stayed, worse.moved, worse.moved_min) == (1, 4, 1)
    assert worse.retention == 0.25


@given(data=st.data(), members=st.integers(1, 3), queues=st.integers(0, 5))
def test_no_balanced_assignment_moves_less_than_the_bound(data, members, queues) -> None:
    clients = [f"c{number}" for number in range(members)]
    places = [("b", number) for number in range(queues)]
    owners = data.draw(
        st.lists(st.sampled_from([*clients, "gone", None]), min_size=queues, max_size=queues)
    )
    before: dict[str, list[Queue]] = {}
    for place, owner in zip(places, owners, strict=True):
        if owner is not None:
            before.setdefault(owner, []).append(place)
    least = min(
        sum(had in clients and had != has for had, has in zip(owners, chosen, strict=True))
        for chosen in itertools.product(clients, repeat=queues)
        if max(map(chosen.count, clients)) - min(map(chosen.count, clients)) <= 1
    )
    after = sticky(clients, places, before)
    found = measure_rebalance(parse(line(before, after, members=clients, queues=places)))
    assert found.moved_min == least
    assert (found.moved, found.retention, found.evenness) == (least, 1.0, 1.0)


def test_the_models_match_their_names() -> None:
    worth = {
        allocate: [measure_rebalance(parse(text)) for text in lines(history(allocate, 7, 60))]
        for allocate in (averaged, sticky)
    }
    for found in worth.values():
        assert all(one.evenness == 1.0 and one.spread <= 1 for one in found)
    assert all(one.retention == 1.0 for one in worth[sticky])
    assert sum(one.moved for one in worth[averaged]) > 2 * sum(one.moved for one in worth[sticky])
    assert min(one.retention for one in worth[averaged]) < 0.7


@pytest.mark.parametrize(
    ("after", "more", "faults"),
    [
        ({"a": Q[:3], "b": Q[3:]}, {}, []),
        ({"a": Q[:3], "b": Q[2:]}, {}, ["queue b/2 is assigned 2 times"]),
        ({"a": Q[:2], "b": Q[3:]}, {}, ["queue b/2 has no owner"]),
        (
            {"a": [*Q[:3], ("x", 1)], "b": Q[3:]},
            {},
            ["queue x/1 is assigned, but does not belong to the topic"],
        ),
        ({"a": Q[:3], "b": Q[3:]}, {"members": ["a"]}, ["b has queues, but is no member"]),
        ({}, {"members": []}, []),
    ],
)
def test_a_wrong_assignment_is_named(after, more, faults) -> None:
    one = parse(line({}, after, **more))
    assert list(one.faults) == faults
    measure_rebalance(one)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{}",
        line({}, {}, time_ms="1"),
        line({}, {}, time_ms=True),
        line({}, {}, group=3),
        line({}, {}, members=[1]),
        line({}, {}, queues=[["b"]]),
        line({}, {}, queues=[["b", "1"]]),
        line([], {}),
        line({}, {}, after={"a": 1}),
        line({}, {}, compute_ms=-1),
        line({}, {}, start_ms=True, end_ms=2),
        line({}, {}, start_ms=2),
        line({}, {}, start_ms=2, end_ms=1),
        line({}, {}, queues=[[1, 1]]),
    ],
)
def test_an_invalid_rebalance_is_refused(text) -> None:
    with pytest.raises(BadHistory):
        parse(text)


def test_an_assignment_is_known_again_whatever_its_order() -> None:
    one = parse(line({"a": Q[:2], "b": []}, {"a": [Q[1], Q[0]]}))
    assert assignment_id(one.before) == assignment_id(one.after)
    assert assignment_id(one.before) != assignment_id({"b": frozenset(Q[:2])})
