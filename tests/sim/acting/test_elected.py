"""Groups with controllers whose replicas act: stories, seeds that hold, and planted bugs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.sim.acting.elected import ACTS_MS, ActingStory, run_seed
from tests.sim.group.broker import GroupBroker
from tests.sim.planting import Patch, Plant
from tests.sim.share import check_found, played
from turbopump.broker.ha.acting.acting_group import ActingGroup
from turbopump.broker.ha.acting.acting_state import ActingState
from turbopump.broker.ha.acting.pre_online import ElectedPreOnline
from turbopump.broker.ha.service import HaService

SEEDS = range(15)
# A name server refuses a replica once, and shows the elected master no replica where it is taken
# for an old one for that.
HELD = (78,)


def an_elected_master_does_not_ask(patch: Patch) -> None:
    """An elected master serves at once, without a request to acting replicas."""
    patch.setattr(ActingGroup, "on_elected", lambda self, term: False)


def what_was_committed_to_who_acted_stays_there(patch: Patch) -> None:
    """Offsets committed to an acting replica are not taken over when it stops."""

    def nothing(self: ElectedPreOnline, name: str, former: object) -> Any:
        yield from ()

    patch.setattr(ElectedPreOnline, "_take_over_offsets", nothing)
    patch.setattr(ActingGroup, "_ask_new_replicas", lambda self: None)


def who_acts_hears_no_master(patch: Patch) -> None:
    """An acting replica goes on beside the elected master."""
    patch.setattr(ActingState, "on_master_returning", lambda self, number: None)


def who_acts_leads(patch: Patch) -> None:
    """An acting replica begins a term of its own, and writes (R38)."""
    changed = ActingGroup._on_acting_changed

    def leads(self: ActingGroup) -> None:
        changed(self)
        service = self._service
        assert isinstance(service, HaService), "it is the real one"
        if self._broker.role.is_acting and not self._broker.role.is_master:
            service.to_master(service.epoch + 1, frozenset({service.options.own_id}), 1)

    patch.setattr(ActingGroup, "_on_acting_changed", leads)


def a_replica_that_may_not_be_elected(seed: int) -> None:
    """A replica outside of the set acts while the set's only member is gone, and stops when the
    member is back.
    """
    story = ActingStory.whole(seed)
    replicas, master = story.replicas, story.master
    for one in replicas:
        one.paused = True
    story.alone(1)
    master.crash(power=False)
    for one in replicas:
        story.start(one)
    story.until(lambda: len(acting(story)) == 1, ACTS_MS + 15_000, "no replica acts")
    assert acting(story)[0] in replicas
    story.go(3_000)
    story.start(master)
    story.writes(20_000)
    assert not acting(story)
    story.end()


BUGS: dict[Plant, Callable[[int], object]] = {
    an_elected_master_does_not_ask: run_seed,
    what_was_committed_to_who_acted_stays_there: run_seed,
    who_acts_hears_no_master: a_replica_that_may_not_be_elected,
    who_acts_leads: run_seed,
}
"""Planted bugs, each with the story that finds it."""


def test_elected_groups() -> None:
    for seed in played(SEEDS):
        run_seed(seed)


@pytest.mark.parametrize("seed", HELD)
def test_seeds_that_found_something(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(bug, monkeypatch, BUGS[bug], SEEDS)


def acting(story: ActingStory) -> list:
    return [one for one in story.brokers if one.up and one.context.role.is_acting]


def commits(story: ActingStory, broker: GroupBroker) -> None:
    """A consumer group commits there. By itself the clerk may not have made one by then."""
    clerk = story.clerk
    (topic, queue_id), end = min(clerk.safe.items())
    clerk.active = False
    report(story, broker, partial(clerk.group_of, "one"))
    report(story, broker, partial(clerk.commit, "one", topic, queue_id, end))
    clerk.active = True
    story.until(lambda: story.acted > 0, 1_000, "nothing is committed there")


def report(story: ActingStory, broker: GroupBroker, ask: Callable[[], None]) -> None:
    """The clerk asks that broker, and gets success."""
    clerk = story.clerk
    story.until(lambda: not clerk.is_busy, 5_000, "the clerk is busy")
    clerk.ask_of(broker.endpoint.address)
    count = len(clerk.done)
    ask()
    story.until(lambda: len(clerk.done) > count, 5_000, "it is not done there")


def test_without_controllers_and_master_a_replica_acts() -> None:
    """Without controllers and master a replica acts until a master is elected, which has the
    offsets committed meanwhile.
    """
    story = ActingStory.whole()
    master, epoch = story.master, story.journal.role.epoch
    for one in (*story.controllers, master):
        one.crash(power=False)
    story.until(lambda: bool(acting(story)), ACTS_MS, "no replica acts")
    commits(story, acting(story)[0])
    for one in story.controllers:
        story.start(one)
    story.elected(epoch)
    story.writes()
    assert not acting(story)
    story.end()


def test_a_master_without_a_lease_acts() -> None:
    """A master without a lease writes nothing, but keeps offsets and locks, while its replicas
    follow it.
    """
    story = ActingStory.whole()
    master = story.master
    for one in story.controllers:
        one.crash(power=False)
    story.until(lambda: acting(story) == [master], ACTS_MS, "the master does not act")
    assert not master.context.role.is_active_master
    for one in story.controllers:
        story.start(one)
    story.writes(20_000)
    assert not acting(story)
    story.end()


def test_a_replica_acts_that_may_not_be_elected() -> None:
    a_replica_that_may_not_be_elected(1)


def test_an_ordinary_election_lets_no_replica_act() -> None:
    story = ActingStory.whole()
    epoch = story.journal.role.epoch
    story.master.crash(power=False)
    assert story.elected(epoch) < 3_000
    story.writes()
    story.go(3_000)
    assert story.acted == 0
    assert not story.seen, "who acted is seen"
    story.end()
