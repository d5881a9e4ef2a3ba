"""A replica with a restarted log requests the counts of queues of which it has no message."""

import pytest
from tests.unit.broker.ha.pairs import MASTER, Group, Link

from turbopump.broker.ha.metadata.pulling import MetadataFollower
from turbopump.engine.types import LogOffset
from turbopump.net.wire.command import Command


def test_a_log_that_began_anew_is_told_at_once_how_far_idle_queues_are(group: Group) -> None:
    """The log has nothing about idle queues (seed 206001 of the simulation); the replica asks until
    the master answers."""
    master, replica = group.master.broker, group.replica.broker
    replicated = master.store.as_replicated(group.master.now_ms)
    replicated.to_master(1, group.master.now_ms)
    assert replicated.save_queue_counts({"T": {0: 7}}).value is None
    log = replica.store.as_replicated(group.replica.now_ms)
    follower = MetadataFollower(replica, group.link, log=log)
    follower.begin_following(MASTER, 1, group.replica.steady_ms)
    follower.tick(group.replica.now_ms, group.replica.steady_ms)
    assert "queueCounts" not in group.link.asked[0].fields, "it has the log from its first byte on"
    asked = len(group.link.asked)
    log.append(LogOffset(log.file_size), b"\x00\x00", group.replica.now_ms)
    group.link.target, target = None, group.link.target
    follower.tick(group.replica.now_ms, group.replica.steady_ms)
    assert len(group.link.asked) == asked + 1 and log.needs_queue_counts
    group.link.target = target
    group.replica.now_ms += 60_000
    assert not log.has_queue_counts
    follower.tick(group.replica.now_ms, group.replica.steady_ms)
    assert (log.needs_queue_counts, log.has_queue_counts) == (False, True)
    assert log.idle_queue_counts() == {"T": {0: 7}}


@pytest.mark.parametrize("is_rocketmq", [True, False])
def test_a_master_that_cannot_count_is_waited_for_if_it_is_ours(
    group: Group, is_rocketmq: bool
) -> None:
    """A RocketMQ master never reports the counts of idle queues: its replica goes on with its own.
    Turbopump's master reports them once it serves."""
    log = group.replica.broker.store.as_replicated(group.replica.now_ms)
    master = Link(group.master)

    def rocketmq(request: Command) -> Command | str:
        request.fields.pop("deletedTopics", None)
        request.fields.pop("queueCounts", None)
        return master.answer(request)

    if is_rocketmq:
        group.link.target = rocketmq
    else:
        group.master.broker.role.become_replica(2)
    follower = MetadataFollower(group.replica.broker, group.link, log=log)
    follower.begin_following(MASTER, 1, group.replica.steady_ms)
    log.append(LogOffset(log.file_size), b"\x00\x00", group.replica.now_ms)
    assert not log.has_queue_counts
    follower.tick(group.replica.now_ms, group.replica.steady_ms)
    assert (log.needs_queue_counts, log.has_queue_counts) == (True, is_rocketmq)
