"""Waiting pops: an arrival wakes one pop of each group, and each pop is answered once."""

import pytest

from turbopump.broker.pop import waiters
from turbopump.broker.pop.waiters import MAX_OF_GROUP, Arrived, PopWaiter, PopWaiters, WaiterAdded


class World:
    """Waiters, the recorded attempts, and the groups whose attempts find messages."""

    def __init__(self) -> None:
        self.wakes = 0
        self.watched: list[bool] = []
        self.waiters = PopWaiters(self.wake, self.watched.append)
        self.attempts: list[tuple[str, Arrived | None]] = []
        self.finds: set[str] = set()

    def wake(self) -> None:
        self.wakes += 1

    def add(
        self,
        name: str,
        *,
        group: str = "g",
        queue_id: int = -1,
        until_ms: int = 100,
        asks: bool = False,
    ) -> PopWaiter:
        def attempt(arrived: Arrived | None) -> bool:
            self.attempts.append((name, arrived))
            return arrived is None or name in self.finds

        topics = ("T", f"%RETRY%{group}_T")
        waiter = PopWaiter(topics, group, queue_id, until_ms, name, attempt, only_asks=asks)
        assert self.waiters.add(waiter) is WaiterAdded.WAITS
        return waiter

    def arrive(self, topic: str = "T", queue_id: int = 3) -> list[str]:
        self.attempts.clear()
        self.waiters.on_arrival(topic, queue_id)
        self.waiters.wake_waiters()
        return [name for name, _ in self.attempts]


def test_an_arrival_wakes_one_of_each_group_the_first_that_came() -> None:
    world = World()
    for name in ("a", "b"):
        world.add(name)
    world.add("other", group="h")
    world.finds = {"a", "b", "other"}
    assert world.arrive() == ["a", "other"]
    assert world.arrive() == ["b"]
    assert world.waiters.count == 0
    assert world.arrive() == []


def test_one_of_any_queue_comes_before_one_of_this_queue_and_others_sleep() -> None:
    world = World()
    world.add("this", queue_id=3)
    world.add("that", queue_id=4)
    world.finds = {"this", "that"}
    assert world.arrive() == ["this"]
    assert world.arrive(queue_id=4) == ["that"]
    world.add("this", queue_id=3)
    world.add("any")
    world.finds = {"any"}
    assert world.arrive() == ["any"]


def test_an_arrival_in_a_retry_topic_wakes_whatever_queue_is_waited_for() -> None:
    world = World()
    world.add("this", queue_id=3)
    assert world.arrive("%RETRY%g_T", 0) == ["this"]
    assert world.waiters.count == 1  # it found nothing and waits on


def test_those_that_only_ask_are_all_woken_and_take_nothing_from_the_others() -> None:
    world = World()
    world.add("asks", asks=True)
    world.add("asks too", asks=True)
    world.add("pops")
    world.finds = {"asks", "asks too", "pops"}
    assert sorted(world.arrive()) == ["asks", "asks too", "pops"]


def test_the_time_of_a_poll_is_over() -> None:
    world = World()
    world.add("late", until_ms=200)
    world.add("soon", until_ms=100)
    world.waiters.tick(99)
    assert world.attempts == []
    world.waiters.tick(100)
    assert world.attempts == [("soon", None)]
    world.waiters.release_all()
    assert world.waiters.release_some() is False
    assert world.attempts[1:] == [("late", None)]
    assert (world.waiters.count, world.waiters.size) == (0, 0)


@pytest.mark.parametrize("how", ["release", "stop", "tick"])
def test_many_waits_end_in_portions(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "ENDS_MAX", 2)
    world = World()
    for number in range(5):
        world.add(str(number))
    if how == "tick":
        world.waiters.tick(100)
    else:
        world.waiters.release_all()
        world.add("later")
        assert (world.attempts, world.wakes) == ([], 1)
        world.waiters.wake_waiters()
    for ended in (2, 4):
        assert len(world.attempts) == ended
        if how == "stop":
            assert world.waiters.release_some() is (ended == 2)
        else:
            wakes = world.wakes
            world.waiters.wake_waiters()
            assert (world.wakes > wakes) is (ended == 2)
    assert world.attempts == [(str(number), None) for number in range(5)]
    assert world.waiters.count == (0 if how == "tick" else 1), "it came after the call"


def test_a_call_that_the_loop_dropped_is_made_up_for() -> None:
    """The loop drops posted calls while another thread uses the store."""
    world = World()
    world.add("a")
    world.waiters.on_arrival("T", 3)
    for now_ms in (10, 20):
        world.waiters.tick(now_ms)
    assert world.wakes > 1
    world.waiters.wake_waiters()
    assert world.attempts == [("a", ("T", 3))]


def test_a_message_is_anothers_when_the_connection_that_was_woken_is_gone() -> None:
    world = World()
    world.add("gone")
    world.add("next")
    world.finds = {"gone", "next"}
    world.waiters.on_arrival("T", 3)
    world.waiters.drop_waiters("gone")
    world.waiters.wake_waiters()
    assert [name for name, _ in world.attempts] == ["next"]


def test_too_many_of_a_group_are_refused() -> None:
    world = World()
    for number in range(MAX_OF_GROUP):
        world.add(str(number))
    more = PopWaiter(("T",), "g", -1, 100, "more", lambda _arrived: True)
    assert world.waiters.add(more) is WaiterAdded.FULL
    assert world.waiters.number_of("T", "g", -1) == MAX_OF_GROUP
    world.waiters.drop_waiters("0")
    assert world.waiters.add(more) is WaiterAdded.WAITS


@pytest.mark.parametrize("limit", ["MAX_SIZE", "MAX_WAITING"])
def test_waiting_pops_are_bounded(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.add("first")
    one = world.waiters.size if limit == "MAX_SIZE" else 1
    monkeypatch.setattr(waiters, limit, 2 * one)
    world.add("second")
    more = PopWaiter(("T",), "g", -1, 100, "more", lambda _arrived: True)
    assert world.waiters.add(more) is WaiterAdded.FULL


def test_watching_begins_with_the_first_and_ends_with_the_last() -> None:
    world = World()
    world.add("a")
    world.add("b")
    world.waiters.drop_waiters("a")
    world.waiters.drop_waiters("b")
    assert world.watched == [True, False]
    world.waiters.on_arrival("T", 3)
    assert world.wakes == 0, "an arrival for which no pop waits"
