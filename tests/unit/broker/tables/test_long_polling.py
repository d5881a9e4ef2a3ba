"""Waiting pulls: woken once per growth, answered in time, removed with their connection."""

from turbopump.broker.tables.long_polling import HeldPull, HeldPulls
from turbopump.engine.types import QueueOffset


class Pulls:
    """Holds that note when they are attempted; `ready` ones answer."""

    def __init__(self, max_holds: int = 100, sweep_max: int = 100) -> None:
        self.wakes = 0
        self.attempts: list[tuple[int, bool]] = []
        self.ready = True
        self.holds = HeldPulls(self._wake, lambda watched: None, max_holds, sweep_max)

    def _wake(self) -> None:
        self.wakes += 1

    def add(self, number: int, queue_offset: int = 0, **changed: object) -> bool:
        """Let pull `number` wait, at queue 0 of topic T until 1000 by default."""

        def attempt(_hold: HeldPull, final: bool) -> bool:
            self.attempts.append((number, final))
            return self.ready or final

        values = {"topic": "T", "queue_id": 0, "deadline_ms": 1_000, "owner": "peer", **changed}
        hold = HeldPull(queue_offset=QueueOffset(queue_offset), attempt=attempt, **values)  # type: ignore[arg-type]
        return self.holds.add(hold)


def test_arrivals_wake_once_and_attempt_those_behind() -> None:
    pulls = Pulls()
    pulls.add(1, queue_offset=5)
    pulls.add(2, queue_offset=7)
    pulls.add(3, queue_offset=5, queue_id=1)
    pulls.holds.on_arrival("T", 0, QueueOffset(6))
    pulls.holds.on_arrival("T", 0, QueueOffset(7))
    assert pulls.wakes == 1
    assert pulls.attempts == []
    pulls.holds.attempt_grown()
    assert pulls.attempts == [(1, False)]
    assert pulls.holds.count == 2
    pulls.holds.on_arrival("T", 0, QueueOffset(8))
    assert pulls.wakes == 2
    pulls.holds.attempt_grown()
    assert pulls.attempts[1:] == [(2, False)]


def test_arrival_without_a_waiting_pull_wakes_no_pull() -> None:
    pulls = Pulls()
    pulls.holds.on_arrival("T", 0, QueueOffset(1))
    assert pulls.wakes == 0


def test_pull_that_is_not_answered_waits_on() -> None:
    pulls = Pulls()
    pulls.ready = False
    pulls.add(1)
    for queue_offset in (1, 2):
        pulls.holds.on_arrival("T", 0, QueueOffset(queue_offset))
        pulls.holds.attempt_grown()
    assert pulls.attempts == [(1, False), (1, False)]
    assert pulls.holds.count == 1


def test_many_pulls_are_attempted_in_parts() -> None:
    pulls = Pulls(sweep_max=2)
    pulls.ready = False
    for number in range(5):
        pulls.add(number)
    pulls.holds.on_arrival("T", 0, QueueOffset(1))
    pulls.holds.attempt_grown()
    assert [number for number, _ in pulls.attempts] == [0, 1]
    pulls.holds.on_arrival("T", 0, QueueOffset(2))
    assert pulls.wakes == 2, "one for the arrival, one for the rest"
    for _ in range(2):
        pulls.holds.attempt_grown()
    assert [number for number, _ in pulls.attempts] == [0, 1, 2, 3, 4]
    pulls.ready = True
    for _ in range(3):
        pulls.holds.attempt_grown()
    assert pulls.holds.count == 0, "the second arrival was for all of them, too"
    wakes = pulls.wakes
    pulls.holds.attempt_grown()
    assert pulls.wakes == wakes


def test_deadline_is_a_final_attempt() -> None:
    pulls = Pulls()
    pulls.add(1, deadline_ms=500)
    pulls.add(2, deadline_ms=400)
    pulls.holds.tick(399)
    assert pulls.attempts == []
    pulls.holds.tick(450)
    assert pulls.attempts == [(2, True)]
    pulls.holds.tick(500)
    assert pulls.attempts == [(2, True), (1, True)]
    assert pulls.holds.count == 0


def test_answered_pull_has_no_deadline_any_more() -> None:
    pulls = Pulls()
    pulls.add(1)
    pulls.holds.on_arrival("T", 0, QueueOffset(1))
    pulls.holds.attempt_grown()
    pulls.holds.tick(10_000)
    assert pulls.attempts == [(1, False)]


def test_touch_attempts_whatever_is_waited_for() -> None:
    pulls = Pulls()
    pulls.add(1, queue_offset=1 << 40)
    pulls.holds.attempt_all("T", 0)
    pulls.holds.attempt_grown()
    assert pulls.attempts == [(1, False)]


def test_closed_connection_is_forgotten() -> None:
    pulls = Pulls()
    pulls.add(1, owner="a")
    pulls.add(2, owner="b")
    pulls.holds.drop_pulls("a")
    pulls.holds.drop_pulls("a")
    pulls.holds.tick(1_000)
    assert pulls.attempts == [(2, True)]


def test_full_table_holds_nothing_more() -> None:
    pulls = Pulls(max_holds=2)
    assert [pulls.add(number) for number in range(3)] == [True, True, False]
    pulls.holds.drop_pulls("peer")
    assert pulls.add(4)


def test_release_answers_everybody() -> None:
    pulls = Pulls()
    pulls.ready = False
    for number in range(3):
        pulls.add(number, owner=number)
    pulls.holds.release_all()
    assert pulls.wakes == 1
    pulls.holds.attempt_grown()
    assert [final for _, final in pulls.attempts] == [True] * 3
    assert pulls.holds.count == 0


def test_release_answers_the_pulls_of_its_call_in_portions() -> None:
    pulls = Pulls(sweep_max=2)
    pulls.ready = False
    for number in range(5):
        pulls.add(number)
    pulls.holds.release_all()
    pulls.add(5)
    for answered in ([0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]):
        pulls.holds.attempt_grown()
        assert [number for number, _ in pulls.attempts] == answered
    wakes = pulls.wakes
    pulls.holds.attempt_grown()
    assert (pulls.holds.count, pulls.wakes) == (1, wakes), "the last pull came later"


def test_a_stop_answers_portion_after_portion_until_none_is_left() -> None:
    pulls = Pulls(sweep_max=2)
    for number in range(5):
        pulls.add(number)
    pulls.holds.release_all()
    portions = 1
    while pulls.holds.release_some():
        portions += 1
    assert (portions, pulls.holds.count) == (3, 0)


def test_times_that_end_together_are_answered_in_portions() -> None:
    pulls = Pulls(sweep_max=2)
    for number in range(5):
        pulls.add(number)
    pulls.holds.tick(1_000)
    assert pulls.attempts == [(0, True), (1, True)]
    assert pulls.wakes == 1
    for _ in range(2):
        pulls.holds.attempt_grown()
    assert pulls.attempts == [(number, True) for number in range(5)]


def test_a_sweep_that_the_loop_dropped_is_made_up_for() -> None:
    """The loop drops posted calls while another thread uses the store."""
    pulls = Pulls()
    pulls.add(1)
    pulls.holds.on_arrival("T", 0, QueueOffset(1))
    for now_ms in (100, 200):
        pulls.holds.tick(now_ms)
    assert pulls.wakes > 1
    pulls.holds.attempt_grown()
    assert pulls.attempts == [(1, False)]


def test_answered_pulls_do_not_pile_up() -> None:
    pulls = Pulls()
    for queue_offset in range(10_000):
        pulls.add(1, queue_offset=queue_offset)
        pulls.holds.on_arrival("T", 0, QueueOffset(queue_offset + 1))
        pulls.holds.attempt_grown()
    assert len(pulls.holds._deadlines) < 2_000
