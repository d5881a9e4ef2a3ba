"""Groups with controllers in which a store takes no messages, though its broker lives."""

import errno

from tests.sim.group.broker import GroupBroker
from tests.sim.group.stories import Story
from turbopump.engine.types import StoreHealth

SOON_MS = 1_000


def sync_fails(broker: GroupBroker) -> None:
    """Let the store fail as after a failed sync of its log."""
    assert broker.store is not None
    broker.tries_again = False
    broker.store._commit.fail_for_good(OSError(errno.EIO, "input/output error"))


def is_full(broker: GroupBroker, full: bool) -> None:
    """Set the store's flag of a full disk, as its retention does."""
    assert broker.store is not None
    broker.store._retention.disk_full = full


def opened_anew(story: Story, broker: GroupBroker) -> None:
    """Open the broker's store again, as broker/lifecycle/store_reopen.py does: a new life in the
    same boot."""
    broker.crash(power=False)
    story.start(broker)


def test_a_master_whose_sync_failed_is_replaced_within_a_second() -> None:
    story = Story.whole()
    failed, epoch = story.master, story.journal.role.epoch
    sync_fails(failed)
    assert story.elected(epoch) + story.writes() <= SOON_MS
    assert failed.up and story.master is not failed
    story.alone(2)
    opened_anew(story, failed)
    story.alone(3)
    story.end()


def test_a_full_master_is_replaced_and_takes_part_when_there_is_room() -> None:
    story = Story.whole()
    full, epoch = story.master, story.journal.role.epoch
    is_full(full, True)
    assert story.elected(epoch) + story.writes() <= SOON_MS
    assert story.master is not full
    is_full(full, False)
    story.alone(3)
    story.end()


def test_where_all_disks_are_full_no_broker_is_elected_and_with_room_it_goes_on() -> None:
    story = Story.whole()
    epoch = story.journal.role.epoch
    for broker in [*story.replicas, story.master]:
        is_full(broker, True)
        story.go(500)
    story.go(20_000)
    assert story.journal.role.epoch == epoch
    for broker in story.brokers:
        is_full(broker, False)
    story.writes(SOON_MS)
    story.end()


def test_all_stores_failed_and_the_first_that_is_whole_again_leads() -> None:
    """The controllers give the master up once, and elect no broker that reports itself unfit."""
    story = Story.whole()
    brokers = [*story.replicas, story.master]
    for broker in brokers:
        sync_fails(broker)
    story.go(2_000)  # one may be elected whose heartbeat comes later
    given_up = story.journal.role
    assert given_up.master is None
    story.go(20_000)
    assert story.journal.role.epoch == given_up.epoch
    assert all(one.member.health is StoreHealth.FAILED for one in brokers)
    opened_anew(story, brokers[-1])
    story.elected(given_up.epoch, SOON_MS)
    for broker in brokers[:-1]:
        opened_anew(story, broker)
    story.alone(3)
    story.end()


def test_sends_do_not_wait_for_a_replica_whose_sync_failed() -> None:
    story = Story.whole()
    epoch, failed = story.journal.role.epoch, story.replicas[0]
    sync_fails(failed)
    assert story.writes() <= SOON_MS
    opened_anew(story, failed)
    story.alone(3)
    assert story.journal.role.epoch == epoch, "no broker was elected for it"
    story.end()
