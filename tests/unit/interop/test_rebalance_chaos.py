"""The verdicts of the chaos evaluation on invented histories; and its plans and its network."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.rebalance_chaos import checkers
from interop.rebalance_chaos.__main__ import logged
from interop.rebalance_chaos.faults import LOSSES, NAMES, Fault, chosen, plan
from interop.rebalance_chaos.history import (
    Down,
    Ended,
    Event,
    Happened,
    Heard,
    History,
    gathered,
    noticed,
    read,
    written,
)
from interop.rebalance_chaos.ownership import Ownership
from interop.rebalance_chaos.report import FIGURES, broken, outcome, paged
from interop.rebalance_chaos.windows import Window, measured

A, B, C = "1.2.3.4@chaos-n1.1-0", "1.2.3.4@chaos-n2.1-0", "1.2.3.4@chaos-n1.2-0"
D = "1.2.3.4@chaos-n1.2-1"
FIRST, SECOND = "broker-a:0,broker-a:1", "broker-b:0,broker-b:1"
ALL = f"{FIRST},{SECOND}"


def lines(*rows: str) -> str:
    return "".join(row.replace(" ", "\t") + "\n" for row in rows)


def sent(number: int, outcome: str = "SUCCESS", at: int = 0, latency: int = 1) -> str:
    return f"producer enqueue RESPONSE {outcome} {number} key {at} {latency} q -1"


def got(number: int, at: int = 0) -> str:
    return f"n1 dequeue RESPONSE SUCCESS {number} key {at} 0 q 7"


def history(tmp_path: Path, *rows: str, happened: tuple[Event, ...] = ()) -> History:
    file = tmp_path / "lines"
    file.write_text(lines(*rows) + "cut off")
    return gathered([file], happened)


def test_acknowledged_messages_that_never_came_are_lost(tmp_path: Path) -> None:
    seen = checkers.delivery(
        history(tmp_path, sent(1), sent(2), sent(3, "UNKNOWN"), got(1), got(1))
    )
    assert seen["lostMessages"] == ["2"] and not seen["atLeastOnce"]
    assert seen["duplicateMessageCount"] == 1 and not seen["atMostOnce"]


@pytest.mark.parametrize(
    ("came", "wrong"), [((1, 2, 3), {}), ((1, 2, 1, 2, 3), {}), ((1, 3, 2), {"key": "3"})]
)
def test_order_may_repeat_but_not_skip(
    tmp_path: Path, came: tuple[int, ...], wrong: dict[str, str]
) -> None:
    rows = [sent(number) for number in (1, 2, 3)] + [got(number) for number in came]
    assert checkers.order(history(tmp_path, *rows))["firstWrong"] == wrong


def test_recovery_is_from_the_first_refusal_to_the_next_success(tmp_path: Path) -> None:
    fault = Happened("fixed-kill", True, 100, ("n1",))
    end = Happened("fixed-kill", False, 900, ("n1",))
    rows = [sent(1, at=50), sent(2, "FAILURE", 200, 40), sent(3, at=500)]
    (seen,) = checkers.recovery(history(tmp_path, *rows, happened=(fault, end)))
    assert seen["recoveryTimeMs"] == 340 and seen["isRecoveryInFaultInterval"]


def killed(tmp_path: Path, *, b_takes_at: int = 1200) -> list[Window]:
    """A has half, its process is killed at 1000, B gets all, C joins and gets the first half."""
    rows = [
        f"own {A} 10 {FIRST}",
        f"own {B} 11 {SECOND}",
        f"started {A} 12",
        f"started {B} 12",
        f"own {B} {b_takes_at} {ALL}",
        f"started {C} 3000",
        f"own {B} 3400 {SECOND}",
        f"own {C} 3300 {FIRST}",
    ]
    happened = (
        Happened("fixed-kill", True, 1000, ("n1",)),
        Down("n1.1", 1001, True),
        Happened("fixed-kill", False, 2500, ("n1",)),
        Ended(4000),
    )
    found = history(tmp_path, *rows, happened=happened)
    written(found, tmp_path / "kept")
    assert read(tmp_path / "kept") == found
    return measured(found, "STICKY", "group")


def test_a_kill_and_its_recovery_are_measured(tmp_path: Path) -> None:
    fault, after = killed(tmp_path)
    assert (fault.settle_ms, fault.unowned_ms, fault.overlap_ms) == (200, 199, 0)
    assert (fault.moved, fault.measures.moved_min, fault.measures.stickiness) == (0, 0, 0.5)
    assert (after.notice_ms, after.settle_ms) == (3000, 400)
    assert (after.overlap_ms, after.overlaps_ms, after.unowned_ms) == (100, 200, 0)
    assert (after.moved, after.measures.moved_min, after.beyond) == (2, 2, 0)
    assert fault.is_settled and after.is_settled


@pytest.mark.parametrize("swapped", [0, 1])
def test_members_that_come_one_after_the_other_each_take_their_share(
    tmp_path: Path, swapped: int
) -> None:
    """Six queues of two members go to four members: C gets two queues, D gets one. Any other queue
    that a member loses was moved needlessly."""
    rows = [f"own {A} 10 q:0,q:1,q:2", f"own {B} 11 q:3,q:4,q:5", f"started {A} 12"]
    rows += [f"started {B} 12", f"started {C} 3000", f"started {D} 3200"]
    rows += [f"own {A} 3100 q:0,q:1", f"own {B} 3100 q:3,q:4", f"own {C} 3110 q:2,q:5"]
    rows += [f"own {A} 3300 q:0", f"own {D} 3310 q:1"]
    rows += [f"own {B} 3400 q:0,q:3", f"own {A} 3410 q:4"] * swapped
    happened = (Happened("fixed-kill", False, 2500, ("n1",)), Ended(4000))
    (after,) = measured(history(tmp_path, *rows, happened=happened), "STICKY", "group")
    assert (after.measures.moved_min, after.moved - after.beyond) == (2, 3)
    assert after.beyond == 2 * swapped


def lossy(tmp_path: Path, *changes: str) -> Window:
    """Packets to n3 are lost; n2 and n1 share the queues, with a coordinator's notices, if
    given."""
    rows = [f"own {A} 10 {FIRST}", f"own {B} 11 {ALL}", f"own {B} 1500 {SECOND}"]
    rows += [f"own {A} 2700 broker-a:0", f"own {A} 2900 {FIRST}"]
    rows += [f"started {one} 12" for one in (A, B)]
    happened = (Happened("random-loss", True, 1000, ("n3",)), Ended(9000))
    file = tmp_path / "rebalance-00000001.jsonl"
    file.write_text("".join(one + "\n" for one in changes))
    found = history(tmp_path, *rows, happened=(*happened, *noticed([file])))
    written(found, tmp_path / "kept")
    assert read(tmp_path / "kept").notices() == found.notices()
    return measured(found, "STICKY", "group")[0]


def test_under_loss_each_notice_of_the_coordinator_counts_for_itself(tmp_path: Path) -> None:
    """Members leave and return within a single window."""
    one = lossy(tmp_path)
    assert (one.notice_ms, one.settle_ms) == (1500, 1400)
    first = '{"trigger":"left","time_ms":1100,"start_ms":1000}'
    second = '{"trigger":"came","time_ms":2600}'
    one = lossy(tmp_path, first, second)
    assert (one.notice_ms, one.settle_ms) == (1000, 500)
    assert (one.line["start_ms"], one.line["end_ms"]) == (1000, 1500)


@pytest.mark.parametrize(("b_at", "found"), [(2700, (3500, 900)), (3900, (2600, 1300))])
def test_a_node_receives_a_notice_when_the_awaited_message_was_sent_again(
    tmp_path: Path, b_at: int, found: tuple[int, int]
) -> None:
    """This does not excuse late changes of the other members."""
    rows = [f"own {B} 11 {ALL}", f"own {B} {b_at} {SECOND}", f"own {A} 4400 {FIRST}"]
    rows += [f"started {one} 12" for one in (A, B)]
    happened = (Happened("random-loss", False, 2000, ("n1",)), Heard("n1", 3500), Ended(9000))
    file = tmp_path / "rebalance-00000001.jsonl"
    file.write_text('{"trigger":"came","time_ms":2600}\n')
    seen = history(tmp_path, *rows, happened=(*happened, *noticed([file])))
    written(seen, tmp_path / "kept")
    assert list(read(tmp_path / "kept").heard()) == [Heard("n1", 3500)]
    (one,) = measured(seen, "STICKY", "group")
    assert (one.notice_ms, one.settle_ms) == found


def test_a_process_that_is_stopped_is_no_change(tmp_path: Path) -> None:
    """Brokers notice a pause by its missing heartbeats."""
    rows = [f"own {A} 10 {FIRST}", f"own {B} 11 {SECOND}", f"own {B} 6000 {ALL}"]
    rows += [f"own {B} 6300 {ALL},broker-a:2"] + [f"started {one} 12" for one in (A, B)]
    fault, down = Happened("minor-suspend", True, 1000, ("n1",)), Down("n1.1", 1001, True)
    seen = history(tmp_path, *rows, happened=(fault, down, Ended(9000)))
    (one,) = measured(seen, "STICKY", "group")
    assert (one.notice_ms, one.settle_ms) == (6000, 300)


def test_the_page_has_the_tables_of_the_last_run(tmp_path: Path) -> None:
    rows = [f"own {A} 10 {ALL}", f"started {A} 5"]
    happened = (Happened("fixed-kill", True, 1000, ("n2",)), Ended(3_000))
    seen = outcome("turbopump", "broker-STICKY", history(tmp_path, *rows, happened=happened))
    page = f"before\n{FIGURES}\nstale\n{FIGURES}\nbehind\n"
    text = paged(page, "Told:", [seen])
    assert "stale" not in text and text.startswith("before\n") and text.endswith("\nbehind\n")
    assert "| 1 fixed-kill | 0, 0, 0 |" in text and "\n| turbopump broker-STICKY | 0 |" in text
    assert paged(text, "Told:", [seen]) == text
    with pytest.raises(ValueError, match="twice"):
        paged("before", "Told:", [seen])


def test_owners_under_loss_are_held_against_brokers_alone(tmp_path: Path) -> None:
    """RocketMQ's clients check for silent members at such long intervals that few are removed."""
    rows = [f"own {A} 10 {ALL}", f"own {B} 1500 broker-a:0", f"own {B} 1900 "]
    happened = (Happened("random-loss", True, 1000, ("n3",)), Ended(3_000))
    seen = history(tmp_path, *rows, happened=happened)
    mine = outcome("turbopump", "broker-STICKY", seen)
    theirs = [outcome("rocketmq", name, seen) for name in ("client-AVG", "broker-AVG")]
    texts = [text for text in broken(mine, theirs) if "two owners" in text]
    assert texts == ["two owners for 400 ms, rocketmq broker-AVG 400"]


def test_a_queue_without_an_owner_is_not_settled(tmp_path: Path) -> None:
    fault, _ = killed(tmp_path, b_takes_at=2600)
    assert not fault.is_settled and fault.unowned_ms == 1499


def test_a_suspended_process_has_its_queues_when_it_goes_on(tmp_path: Path) -> None:
    happened = (Down("n1.1", 100, True), Down("n1.1", 300, False))
    found = Ownership(history(tmp_path, f"own {A} 10 {FIRST}", happened=happened), 400)
    assert [found.with_owners(0, 0, low, low + 100) for low in (0, 100, 200, 300)] == [
        (10, 20),
        (100, 200),
        (100, 200),
        (0, 0),
    ]


def test_missed_targets_are_reported(tmp_path: Path) -> None:
    rows = [f"own {A} 10 {FIRST}", f"started {A} 5", f"own {A} 9000 broker-a:0", sent(1), sent(2)]
    happened = (
        Happened("fixed-suspend", True, 1000, ("n2",)),
        Happened("fixed-suspend", False, 2000, ("n2",)),
        Ended(30_000),
    )
    seen = outcome("turbopump", "broker-STICKY", history(tmp_path, *rows, happened=happened))
    assert [text.partition(":")[0] for text in broken(seen, [seen])] == [
        "lost ['1', '2']",
        "out of order",
        *["after fixed-suspend"] * 4,
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_leaves_a_node_alone(name: str) -> None:
    for seed in range(20):
        nodes = chosen(name, ("n1", "n2", "n3"), random.Random(seed))
        assert 1 <= len(nodes) <= 2


def test_a_plan_follows_from_its_seed() -> None:
    def made() -> Iterator[list[Fault]]:
        for seed in range(5):
            yield plan(NAMES, ("n1", "n2", "n3"), 70, random.Random(seed))

    first, second = list(made()), list(made())
    assert first == second and len({tuple(one) for one in first}) > 1
    for faults in first:
        assert {fault.kind for fault in faults} >= {"kill", "suspend", "loss"}
    assert [one.name for one in plan(LOSSES, ("n1", "n2"), 1, random.Random(1))] == list(LOSSES)


def test_under_loss_the_rest_is_judged(tmp_path: Path) -> None:
    """A receives no messages and keeps the queues that B got: an overlap, but the other members
    settled."""
    rows = [
        f"own {A} 10 {FIRST}",
        f"own {B} 11 {SECOND}",
        f"started {A} 12",
        f"started {B} 12",
        f"own {B} 2000 {ALL}",
        f"own {A} 5000 ",
        f"own {B} 5400 {SECOND}",
        f"own {A} 5500 {FIRST}",
    ]
    happened = (
        Happened("random-loss", True, 1000, ("n1",)),
        Happened("random-loss", False, 4000, ("n1",)),
        Ended(9000),
    )
    fault, after = measured(history(tmp_path, *rows, happened=happened), "STICKY", "group")
    assert (fault.settle_ms, fault.is_settled, fault.overlap_ms) == (0, True, 2000)
    assert (after.settle_ms, after.is_settled, after.overlap_ms, after.unowned_ms) == (
        500,
        True,
        1000,
        100,
    )


def test_a_traceback_of_a_node_of_ours_is_a_flaw(tmp_path: Path) -> None:
    for side in ("rocketmq", "turbopump"):
        folder = tmp_path / f"{side}-broker-AVG" / "broker-a" / "logs"
        folder.mkdir(parents=True)
        (folder / "broker.log").write_text(
            "request 11 failed\nTraceback (most recent call last):\n"
        )
        (tmp_path / f"{side}-broker-AVG-history").write_text("")
    (found,) = logged(tmp_path)
    assert "turbopump-broker-AVG" in found
    (tmp_path / "turbopump-broker-AVG" / "broker-a" / "logs" / "broker.log").write_text("started\n")
    assert logged(tmp_path) == []
