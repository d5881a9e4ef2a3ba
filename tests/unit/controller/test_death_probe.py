"""Death probes: brokers with a closed connection, and the results of probing their port."""

import pytest
from tests.unit.controller.groups import Ports

from turbopump.controller import death_probe
from turbopump.controller.death_probe import DeathProbes, Probed
from turbopump.controller.liveness import Key

KEY: Key = ("c", "b", 1)


class World:
    """Death probes, and the brokers found dead."""

    def __init__(self, found: Probed | None) -> None:
        self.ports = Ports(found)
        self.heard: set[Key] = set()
        self.dead: list[Key] = []
        self.death_probe = DeathProbes(
            self.ports.probe, lambda key: key not in self.heard, self.dead.append
        )

    def tick(self, until_ms: int, since_ms: int = 0) -> None:
        for now_ms in range(since_ms + 20, until_ms + 1, 20):
            self.death_probe.on_tick(now_ms)


def test_a_host_that_refuses_is_dead_at_once() -> None:
    world = World(Probed.REFUSED)
    world.death_probe.add(KEY, "a:1", 0)
    assert world.dead == [KEY] and world.ports.asked == ["a:1"] and not len(world.death_probe)


def test_a_silent_host_is_dead_after_a_moment() -> None:
    for found in (None, Probed.NO_RESPONSE):
        world = World(found)
        world.death_probe.add(KEY, "a:1", 0)
        world.tick(death_probe.UNANSWERED_MS - 20)
        assert world.dead == [] and len(world.death_probe) == 1
        world.death_probe.on_tick(death_probe.UNANSWERED_MS)
        assert world.dead == [KEY]
        for later in world.ports.waiting:  # too late to mean anything
            later.resolve(Probed.REFUSED)
        assert world.dead == [KEY] and not len(world.death_probe)


def test_a_host_that_accepts_lives_and_is_asked_until_it_is_heard() -> None:
    world = World(Probed.ACCEPTED)
    world.death_probe.add(KEY, "a:1", 0)
    world.tick(200)
    assert len(world.ports.asked) == 6
    world.tick(2_200, 200)
    assert len(world.ports.asked) == 10 and world.dead == []
    world.heard.add(KEY)
    world.tick(4_000, 2_200)
    assert len(world.ports.asked) == 10 and world.dead == [] and not len(world.death_probe)


def test_a_host_that_ends_slowly_is_dead_once_it_refuses() -> None:
    world = World(Probed.ACCEPTED)
    world.death_probe.add(KEY, "a:1", 0)
    world.tick(1_000)
    world.ports.found = Probed.REFUSED
    world.tick(1_600, 1_000)
    assert world.dead == [KEY]


def test_a_host_that_closes_again_begins_anew() -> None:
    """The result of the earlier probe does not hold for the second connection."""
    world = World(None)
    world.death_probe.add(KEY, "a:1", 0)
    world.death_probe.add(KEY, "a:1", 180)
    world.ports.waiting[0].resolve(Probed.REFUSED)
    world.tick(360, 180)
    assert world.dead == []
    world.ports.waiting[1].resolve(Probed.REFUSED)
    assert world.dead == [KEY]


def test_the_sleep_of_this_process_is_no_answer() -> None:
    world = World(None)
    world.death_probe.add(KEY, "a:1", 0)
    world.death_probe.on_tick(1_100)
    assert world.dead == []
    world.ports.waiting[0].resolve(Probed.ACCEPTED)
    world.tick(3_000, 1_100)
    assert world.dead == []


def test_not_all_are_asked_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(death_probe, "PROBES_MAX", 2)
    world = World(None)
    keys = [("c", "b", number) for number in range(3)]
    for key in keys:
        world.death_probe.add(key, f"a:{key[2]}", 0)
    assert world.ports.asked == ["a:0", "a:1"]
    for later in world.ports.waiting:
        later.resolve(Probed.REFUSED)
    assert world.dead == keys[:2]
    world.death_probe.on_tick(1_000)  # suspects without a probe are ignored
    assert world.ports.asked == ["a:0", "a:1", "a:2"] and world.dead == keys[:2]
