"""A queue has one owner at a time, as far as its members know (I18)."""

import random

from tests.unit.broker.assignment.conftest import GROUP, TOPIC, Brokers

from turbopump.broker.assignment.handover import QueueHandover
from turbopump.broker.assignment.history import lines_of
from turbopump.net.allocation.shares import Shares, sharing_of
from turbopump.net.allocation.strategies import STRATEGIES, allocate_by_name
from turbopump.net.wire.queues import MessageQueue
from turbopump.spark.rebalance.measures import measure_rebalance, parse

Q = [MessageQueue(TOPIC, "a", number) for number in range(8)]


def test_a_queue_goes_when_its_owner_was_told(brokers: Brokers) -> None:
    brokers.add("a", queues=4)
    brokers.join("c0")
    assert len(brokers.ask("c0") or []) == 4
    brokers.join("c1")
    assert (brokers.noticed("c0"), brokers.noticed("c1")) == (2, 1)
    assert brokers.ask("c1") == []  # c0 still has all
    assert brokers.ask("c0") == [("a", 0), ("a", 1)]
    brokers.pass_time(100)
    assert (brokers.noticed("c0"), brokers.noticed("c1")) == (0, 1)
    assert brokers.ask("c1") == [("a", 2), ("a", 3)]
    brokers.pass_time(2_000)
    assert (brokers.noticed("c0"), brokers.noticed("c1")) == (0, 0)


def test_a_member_that_went_and_came_back_has_nothing_until_it_asks(brokers: Brokers) -> None:
    brokers.add("a", queues=4)
    brokers.join("c0", "c1")
    shares = brokers.ask_all("c0", "c1")
    brokers.leave("c1")
    brokers.join("c1")
    brokers.join("c2")
    brokers.ask("c2")
    assert brokers.ask("c1") != []
    found = brokers.ask_all("c0", "c1", "c2")
    held = sorted(queue for share in found.values() for queue in share or [])
    assert held == [("a", number) for number in range(4)]
    assert set(found["c0"] or []) <= set(shares["c0"] or [])


def test_an_owner_that_does_not_ask_has_its_time_and_no_more(brokers: Brokers) -> None:
    brokers.add("a", queues=4)
    brokers.join("c0")
    brokers.ask("c0")
    brokers.join("c1")
    assert brokers.ask("c1") == []
    brokers.noticed("c1")
    brokers.pass_time(1_400)
    assert (brokers.noticed("c1"), brokers.ask("c1")) == (0, [])
    brokers.pass_time(100)
    assert brokers.noticed("c1") == 1
    assert brokers.ask("c1") == [("a", 2), ("a", 3)]
    brokers.pass_time(700)
    assert brokers.ask("c0") == [("a", 0), ("a", 1)]
    line = history(brokers)[-1]
    assert b'"overlap_ms":700' in line and b'"end_ms":1700000002200' in line


def test_queues_of_a_member_are_free_when_it_leaves(brokers: Brokers) -> None:
    brokers.add("a", queues=4)
    brokers.join("c0", "c1")
    brokers.ask_all("c0", "c1")
    brokers.noticed("c0")
    brokers.leave("c1")
    assert brokers.noticed("c0") == 1
    assert len(brokers.ask("c0") or []) == 4
    lines = history(brokers)
    assert len(lines) == 2 and b'"trigger":"leave"' in lines[1] and b'"overlap_ms":0' in lines[1]


def test_a_change_in_the_midst_of_another(brokers: Brokers) -> None:
    brokers.add("a", queues=6)
    brokers.join("c0")
    brokers.ask("c0")
    brokers.join("c1")
    assert brokers.ask("c1") == []
    brokers.join("c2")
    assert brokers.ask_all("c1", "c2") == {"c1": [], "c2": []}
    assert len(brokers.ask("c0") or []) == 2
    shares = brokers.ask_all("c0", "c1", "c2")
    assert sorted(queue for share in shares.values() for queue in share or []) == [
        ("a", number) for number in range(6)
    ]
    lines = history(brokers)
    assert [b'"end_ms"' in line for line in lines] == [True, False, True]


def test_the_lines_are_those_that_the_report_reads(brokers: Brokers) -> None:
    brokers.add("a", queues=5)
    brokers.join("c0")
    brokers.ask("c0")
    brokers.join("c1")
    brokers.ask_all("c1", "c0", "c1")
    brokers.leave("c0")
    brokers.ask("c1")
    found = [parse(line.decode()) for line in history(brokers)]
    assert [one.trigger for one in found] == ["join", "join", "leave"]
    assert all(not one.faults and one.allocator == "STICKY" for one in found)
    assert [measure_rebalance(one).moved for one in found] == [0, 2, 0]
    assert [one.after for one in found[:2]] == [one.before for one in found[1:]]
    assert all(one.time_consumed_ms == 0 and one.overlap_ms == 0 for one in found)


def history(brokers: Brokers) -> list[bytes]:
    return list(lines_of(brokers.worlds["a"].broker.assignments.history.take_changes()))


class Member:
    """A member that owns the queues of its last response."""

    def __init__(self) -> None:
        self.held: set[MessageQueue] = set()


def test_no_order_of_questions_gives_a_queue_to_two() -> None:
    """Members join, leave and ask in random order; pending queues are requested again."""
    for seed in range(150):
        rng = random.Random(seed)
        settling, members, now_ms = QueueHandover(), dict[str, Member](), 0
        shares: Shares = {}
        due: list[str] = []
        for _ in range(60):
            now_ms += rng.randrange(40)
            step = rng.randrange(4)
            if step == 0 and len(members) < 6:
                members[f"c{rng.randrange(100):02}"] = Member()
            elif step == 1 and len(members) > 1:
                gone = rng.choice(sorted(members))
                del members[gone]
                due += settling.remove_member(gone, now_ms)
            if set(members) != set(shares):
                name = rng.choice(sorted(STRATEGIES.keys() - {"CONFIG", "MACHINE_ROOM"}))
                shares = allocate_by_name(name, sharing_of(members, Q, settling.shares))
                settling.begin_handover(shares, now_ms, 10**9)
                due += members
            rng.shuffle(due)
            for _ in range(rng.randrange(len(due) + 1)):
                ask(settling, members, due, now_ms)
            check(members)
        while due:
            ask(settling, members, due, now_ms)
            check(members)
        assert settling.is_settled, seed
        assert {who: sorted(member.held) for who, member in members.items()} == {
            who: sorted(share) for who, share in shares.items()
        }
        assert settling.overlap_ms == 0


def ask(settling: QueueHandover, members: dict[str, Member], due: list[str], now_ms: int) -> None:
    who = due.pop()
    if who in members:
        queues, awaited = settling.queues_for_member(who, now_ms)
        if who not in settling.shares:
            assert not queues
        members[who].held = set(queues)
        due += sorted(awaited)


def check(members: dict[str, Member]) -> None:
    held = [queue for member in members.values() for queue in member.held]
    assert len(held) == len(set(held))


def test_forgotten_groups_take_no_memory(brokers: Brokers) -> None:
    a = brokers.add("a")
    brokers.join("c0")
    brokers.ask("c0")
    brokers.leave("c0")
    a.now_ms += 600_000
    a.broker.assignments.forget_unused()
    assert not a.broker.assignments._topics._groups and not a.broker.assignments._generations
    assert a.broker.assignments.kept.get(GROUP, TOPIC) is not None
