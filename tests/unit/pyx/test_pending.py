"""The common list of waiting sends: its order, needed copies, deadlines, failures, re-entrance.

The sends here stand for handlers' sends; native responses of a real connection are tested in
tests/unit/broker/traffic/test_pending_answers.py.
"""

import sys
from collections.abc import Callable

import pytest

from turbopump.engine.types import PutStatus
from turbopump.pyx import pending as module
from turbopump.pyx.pending import NEED_MAX, PENDING_MAX, PendingSends

OK = PutStatus.PUT_OK
LATE_REPLICAS, LATE_DISK = PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.FLUSH_DISK_TIMEOUT
ENDED = PutStatus.SERVICE_NOT_AVAILABLE
ALL = -1
DISK_MS, REPLICAS_MS = 500, 300


class Sends:
    """A list of sends, and their responses in order."""

    def __init__(self, *, durable: bool = True) -> None:
        self.pending = PendingSends(OK, LATE_REPLICAS, LATE_DISK)
        self.pending.disk_wait_ms, self.pending.replica_wait_ms = DISK_MS, REPLICAS_MS
        self.responses: list[tuple[str, PutStatus]] = []
        if not durable:
            self.pending.flushed_to(0)

    def wait(self, name: str, end: int, need: int, then: Callable[[], None] | None = None) -> None:
        def answered(status: PutStatus) -> None:
            self.responses.append((name, status))
            if then is not None:
                then()

        self.pending.wait(end, need, answered)


def test_safe_messages_are_answered_at_once() -> None:
    sends = Sends()
    sends.wait("alone", 100, 1)
    sends.pending.replicated_to(2, 100)
    sends.wait("two have it", 100, 2)
    assert sends.responses == [("alone", OK), ("two have it", OK)]


@pytest.mark.parametrize("disk_first", [True, False])
def test_both_have_to_have_it(disk_first: bool) -> None:
    sends = Sends(durable=False)
    sends.wait("a", 100, ALL)
    pushes = [lambda: sends.pending.flushed_to(100), lambda: sends.pending.replicated_to(ALL, 100)]
    first, second = pushes if disk_first else pushes[::-1]
    first()
    assert sends.responses == []
    second()
    assert sends.responses == [("a", OK)]


def test_answers_leave_in_the_order_of_the_log() -> None:
    """A send that needs fewer copies does not overtake a send that needs more."""
    sends = Sends()
    for name, end, need in (("a", 100, 3), ("b", 200, 2), ("c", 300, 2)):
        sends.wait(name, end, need)
    sends.pending.replicated_to(2, 200)
    assert sends.responses == []
    sends.pending.replicated_to(3, 100)
    assert sends.responses == [("a", OK), ("b", OK)]
    sends.pending.replicated_to(2, 300)
    assert sends.responses[2:] == [("c", OK)]


def test_messages_appended_together_are_answered_together() -> None:
    sends = Sends()
    for name, end in (("a", 200), ("b", 100)):
        sends.wait(name, end, 2)
    sends.pending.replicated_to(2, 199)
    assert sends.responses == []
    sends.pending.replicated_to(2, 200)
    assert sends.responses == [("a", OK), ("b", OK)]


def test_other_numbers_of_copies_say_nothing() -> None:
    sends = Sends()
    sends.wait("a", 100, 3)
    sends.pending.replicated_to(2, 100)
    sends.pending.replicated_to(ALL, 100)
    assert sends.responses == []
    assert [sends.pending.safe_end(need) for need in (ALL, 2, 3)] == [100, 100, -1]


def test_all_wait_equally_long() -> None:
    sends = Sends()
    sends.pending.expire(1000)
    sends.wait("a", 100, 2)
    sends.pending.expire(1100)
    sends.wait("b", 200, 2)
    sends.pending.expire(1000 + REPLICAS_MS - 1)
    assert sends.responses == []
    sends.pending.expire(1000 + REPLICAS_MS)
    assert sends.responses == [("a", LATE_REPLICAS)]
    sends.pending.replicated_to(2, 200)
    assert sends.responses[1:] == [("b", OK)]


def test_late_replicas_count_more_than_a_late_disk() -> None:
    sends = Sends(durable=False)
    sends.pending.disk_wait_ms = REPLICAS_MS - 100
    sends.wait("a", 100, 2)
    sends.wait("b", 200, 1)
    sends.pending.expire(REPLICAS_MS - 100)
    assert sends.responses == [], "the replicas of the first may still come"
    sends.pending.expire(REPLICAS_MS)
    assert sends.responses == [("a", LATE_REPLICAS), ("b", LATE_DISK)]


def test_a_late_disk_is_the_last_wait_once_the_replicas_have_responded() -> None:
    sends = Sends(durable=False)
    sends.wait("a", 100, 2)
    sends.pending.replicated_to(2, 100)
    sends.pending.expire(DISK_MS - 1)
    assert sends.responses == []
    sends.pending.expire(DISK_MS)
    assert sends.responses == [("a", LATE_DISK)]


def test_waits_that_end_after_a_cut_fail() -> None:
    sends = Sends(durable=False)
    for number in range(1, 5):
        sends.wait(str(number), 100 * number, 1)
    withdrawn = sends.pending.withdraw(LATE_DISK, 200)
    assert (sends.pending.count, sends.responses) == (2, [])
    sends.pending.answer(withdrawn)
    assert sends.responses == [("3", LATE_DISK), ("4", LATE_DISK)]
    sends.pending.flushed_to(200)
    assert sends.responses[2:] == [("1", OK), ("2", OK)]


def test_waits_of_a_term_are_forgotten_with_it() -> None:
    """Otherwise the next master's records at lower offsets would count as safe at once."""
    sends = Sends()
    sends.wait("a", 200, 2)
    sends.pending.replicated_to(2, 100)
    sends.pending.withhold(ENDED)
    assert (sends.responses, sends.pending.withheld) == ([("a", ENDED)], True)
    sends.pending.ask_for(2)
    assert not sends.pending.withheld
    sends.wait("b", 50, 2)
    assert len(sends.responses) == 1
    sends.pending.replicated_to(2, 50)
    assert sends.responses[1:] == [("b", OK)]


@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_may_add_others(fails: bool) -> None:
    """The callbacks add enough sends that the ring is reallocated meanwhile."""
    sends = Sends()

    def more() -> None:
        for number in range(3000):
            sends.wait(f"more {number}", 1000 + number, 2)

    sends.wait("a", 100, 2, more)
    sends.wait("b", 100, 2)
    if fails:
        sends.pending.fail(ENDED)
    else:
        sends.pending.replicated_to(2, 100)
    status = ENDED if fails else OK
    assert sends.responses == [("a", status), ("b", status)]
    assert sends.pending.count == 3000
    sends.pending.replicated_to(2, 4000)
    assert sends.responses[2:] == [(f"more {number}", OK) for number in range(3000)]


def test_an_answer_may_end_the_term() -> None:
    sends = Sends()
    sends.wait("a", 100, 2, lambda: sends.pending.withhold(ENDED))
    sends.wait("b", 100, 2)
    sends.pending.replicated_to(2, 100)
    assert sends.responses == [("a", OK), ("b", ENDED)]


def test_no_more_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PENDING_MAX == 1_000_000
    monkeypatch.setattr(module, "PENDING_MAX", 2)
    sends = Sends(durable=False)
    for name, need in (("a", 2), ("b", 2), ("c", 2), ("d", 1)):
        sends.wait(name, 100, need)
    assert sends.responses == [("c", LATE_REPLICAS), ("d", LATE_DISK)]


@pytest.mark.parametrize("need", [-2, NEED_MAX + 1])
def test_copies_that_cannot_be_requested(need: int) -> None:
    sends = Sends()
    for call in (
        lambda: sends.wait("a", 100, need),
        lambda: sends.pending.ask_for(need),
        lambda: sends.pending.replicated_to(need, 100),
        lambda: sends.pending.safe_end(need),
    ):
        with pytest.raises(ValueError, match="copies"):
            call()
    assert (sends.pending.count, sends.responses) == (0, [])


def test_waiting_sends_end_with_the_list() -> None:
    sends = Sends()
    kept = object()
    sends.pending.wait(100, 2, lambda _status, kept=kept: None)
    del sends
    assert sys.getrefcount(kept) == 2
