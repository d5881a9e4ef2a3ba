"""Groups with controllers: brokers that lost their disk (F26) or their page cache (F38)."""

import pytest

from tests.sim.group.broker import GroupBroker
from tests.sim.group.stories import Story


def left_with_one_replica(story: Story) -> GroupBroker:
    """Reduce the set to the master and one replica, which both have all acknowledged messages;
    return the replica.
    """
    left, other = story.replicas
    other.crash(power=False)
    story.alone(2)
    for _ in range(4):
        story.writes()
    return left


def test_f26_a_replica_comes_back_with_an_empty_disk() -> None:
    """A replica with an empty disk gets another id and all messages; its former id is in no set."""
    story = Story.whole(timeout_ms=1000)
    lost, former = story.replicas[0], story.replicas[0].controller_id
    lost.crash(power=True)
    lost.lose_disk()
    story.start(lost)
    story.until(story.is_whole, 30_000, "not whole")
    assert lost.controller_id not in (0, former)
    assert former not in story.journal.members
    dead, epoch = story.master, story.journal.role.epoch
    dead.crash(power=False)
    story.elected(epoch)
    story.writes()
    story.start(dead)
    story.end()


@pytest.mark.parametrize("seed", range(3))
def test_f38_who_lost_its_page_cache_is_not_elected(seed: int) -> None:
    """The last member but the master loses its power under ASYNC_FLUSH, and the master dies before
    that one could catch up: none is elected until the master is back (KIP-966).

    The master is apart from the controllers too: it would take that one out of the set at times."""
    story = Story.whole(seed, timeout_ms=1000, sync=False)
    unclean = left_with_one_replica(story)
    master, epoch, broker_id = story.master, story.journal.role.epoch, unclean.controller_id
    unclean.crash(power=True)
    story.apart([master], story.rest(master))
    assert broker_id in story.journal.role.candidates, "it left the set before it was back"
    story.start(unclean)
    story.until(lambda: story.is_known(unclean), 10_000, "it does not register")
    master.crash(power=False)
    story.go(4000)
    role = story.journal.role
    assert role.epoch == epoch or role.master is None, f"elected is {role.master}"
    story.net.heal()
    story.start(master)
    story.elected(epoch)
    assert story.master is master
    story.end()


@pytest.mark.parametrize("seed", range(3))
def test_f38_who_lost_its_page_cache_is_not_elected_before_it_says_so(seed: int) -> None:
    """A broker without its page cache is not elected, not even by a new leader that has not
    received its registration yet (group seed 195912).
    """
    story = Story.whole(seed, timeout_ms=3000, sync=False)
    unclean = left_with_one_replica(story)
    master, leader, epoch = story.master, story.leader, story.journal.role.epoch
    unclean.crash(power=True)
    story.go(1300)  # the report of its last life is outdated
    story.apart([unclean], [master, leader])
    master.crash(power=False)
    story.start(unclean)
    story.go(500)
    leader.crash(power=False)
    story.until(lambda: any(one.is_leader for one in story.controllers), 10_000, "none leads")
    story.go(2000)
    role = story.journal.role
    assert role.epoch == epoch or role.master is None, f"elected is {role.master}"
    story.net.heal()
    for one in (master, leader):
        story.start(one)
    story.elected(epoch)
    assert story.master is master
    story.end()


@pytest.mark.parametrize("seed", range(3))
def test_f38_whoever_is_elected_for_what_its_last_life_told_gives_way(seed: int) -> None:
    """Power fails at the last member but the master, and the master is killed before any missed
    that one, which is elected. It comes back without its page cache: the set is it alone, but
    nothing was acknowledged in its term."""
    story = Story.whole(seed, timeout_ms=3000, sync=False)
    unclean = left_with_one_replica(story)
    master, epoch = story.master, story.journal.role.epoch
    unclean.crash(power=True)
    master.crash(power=False)
    story.elected(epoch)
    assert story.master is unclean
    story.start(unclean)
    story.until(lambda: bool(story.journal.role.unfit), 10_000, "it does not register")
    story.go(4000)
    assert story.journal.role.master is None, story.journal.role
    story.start(master)
    story.elected(epoch + 1)
    assert story.master is master
    story.end()


@pytest.mark.parametrize("seed", range(3))
def test_f26_a_member_that_is_elected_after_its_disk_was_lost(seed: int) -> None:
    """No controller missed it yet when the master was killed. Once its silence counts the former
    master is elected again, and no administrator is needed (group seed 157)."""
    story = Story.whole(seed, timeout_ms=3000)
    lost = left_with_one_replica(story)
    master, epoch, broker_id = story.master, story.journal.role.epoch, lost.controller_id
    lost.crash(power=True)
    master.crash(power=False)
    story.elected(epoch)
    assert story.journal.role.master == broker_id
    lost.lose_disk()
    for one in story.brokers:
        story.start(one)
    story.end()


@pytest.mark.parametrize("unheard", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_f38_a_master_that_lost_its_page_cache_is_not_elected_again(
    seed: int, unheard: bool
) -> None:
    """A master without its page cache is not elected again, not even if it is killed once more
    before its registration arrives (group seed 104368).
    """
    story = Story.whole(seed, sync=False)
    master, epoch = story.master, story.journal.role.epoch
    master.crash(power=True)
    if unheard:
        story.apart([master], story.rest(master))
        story.start(master)
        story.go(200)
        master.crash(power=False)
        story.net.heal()
    story.start(master)
    story.elected(epoch)
    assert story.master is not master
    story.end()
