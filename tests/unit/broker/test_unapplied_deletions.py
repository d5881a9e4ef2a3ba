"""A master answered a deletion and died before its replicas had copied the tables: the next master
finds the deletion in the log, and delivers all messages of the topic's new life."""

import errno
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.ha.pairs import MASTER, Group, copy_log, put

from turbopump.broker import unapplied_deletions
from turbopump.engine.types import StoreError
from turbopump.net.wire.topics import TopicConfig


@pytest.fixture
def group(make_world: Callable[..., Any]) -> Group:
    """A group whose replica's tables are of the former life, while its log has four messages of
    that life and two of the new one."""
    group = Group(make_world)
    group.master.broker.topics.put(TopicConfig("T"), 7)
    group.commit(3)
    for number in range(6):
        if number == 4:
            group.round()
            group.master.ask_fields(215, {"topic": "T"})
            group.master.broker.topics.put(TopicConfig("T"), 7)
        group.master.now_ms += 10
        put(group.master)
    return group


def first_of(world: Any) -> int:
    """Log offset of the first message that consumers of T read."""
    store = world.broker.store
    record = store.record_of(store.units("T", 0, 0, 1)[0])
    assert record is not None
    assert record.queue_offset == 0
    return int(record.log_offset)


def test_a_new_master_serves_the_new_life(group: Group) -> None:
    master, replica = group.master, group.replica
    copy_log(master, replica)
    group.follower.begin_leading(2, replica.now_ms)
    assert replica.broker.store.max_queue_offset("T", 0) == 2
    assert first_of(replica) == first_of(master)
    assert replica.broker.store.deletions.unapplied_deletions() == {}
    assert not replica.broker.store.deletions.in_progress
    assert group.offset() == 0, "it was one of the former life"
    assert replica.broker.topics.get("T") == TopicConfig("T")
    assert replica.broker.offsets.has_resets("G", "T"), "its clients begin with the first message"
    replica.close()
    replica.open()
    assert replica.broker.store.max_queue_offset("T", 0) == 2
    assert group.offset() == -1


def test_a_replica_applies_it_too(group: Group) -> None:
    """A RocketMQ master never reports the deletion."""
    master, replica = group.master, group.replica
    copy_log(master, replica)
    assert replica.broker.store.max_queue_offset("T", 0) == 2
    assert first_of(replica) == first_of(master)


def test_the_masters_word_comes_first(group: Group) -> None:
    """The master knows the exact time and log offset of the deletion."""
    master, replica = group.master, group.replica
    group.round()
    assert replica.broker.store.deletions.former_life_ends() == {}
    copy_log(master, replica)
    ends = replica.broker.store.deletions.former_life_ends()
    assert ends == master.broker.store.deletions.former_life_ends()
    times = replica.broker.store.deletions.deletion_times()
    assert times == master.broker.store.deletions.deletion_times()
    assert replica.broker.store.max_queue_offset("T", 0) == 2


def test_the_masters_word_comes_later(group: Group) -> None:
    master, replica = group.master, group.replica
    copy_log(master, replica)
    group.commit(1)
    group.round()
    assert (
        replica.broker.store.deletions.former_life_ends()
        == master.broker.store.deletions.former_life_ends()
    )
    assert replica.broker.store.max_queue_offset("T", 0) == 2
    assert group.offset() == 1, "of the new life, and copied"


def test_the_time_of_the_masters_deletion_replaces_the_latest_possible_one(group: Group) -> None:
    """The replica must not keep the later time: pops of the new life would count as pops of the
    former life, here and, after it queries this replica, at the master."""
    master, replica = group.master, group.replica
    copy_log(master, replica)
    deletions, theirs = replica.broker.store.deletions, master.broker.store.deletions
    assert deletions.is_proven("T")
    assert deletions.deleted_ms("T") > theirs.deleted_ms("T")
    group.round()
    assert deletions.deletion_times() == theirs.deletion_times()
    assert not deletions.is_proven("T")
    assert replica.broker.store.max_queue_offset("T", 0) == 2
    assert first_of(replica) == first_of(master)


def test_a_restart_keeps_that_only_the_log_proves_a_deletion(group: Group) -> None:
    master, replica = group.master, group.replica
    copy_log(master, replica)
    latest_ms = replica.broker.store.deletions.deleted_ms("T")
    replica.close()
    replica.open()
    assert replica.broker.store.deletions.is_proven("T")
    assert replica.broker.store.deletions.deleted_ms("T") == latest_ms > 0


def test_offsets_that_go_with_the_former_life_are_copied_again(group: Group) -> None:
    """The replica copied the master's offset before its log had the new life: the deletion removes
    the offset, and the next round copies it again."""
    group.commit(1)
    group.round()
    copy_log(group.master, group.replica)
    group.round()
    assert group.offset() == 1


def test_pops_of_the_former_life_do_not_count(group: Group) -> None:
    master, replica = group.master, group.replica
    copy_log(master, replica)
    lives = replica.broker.pop.lives
    first_ms = master.now_ms - 10
    assert lives.is_former("T", "G", first_ms - 1)
    assert not lives.is_former("T", "G", first_ms)


def test_no_message_is_taken_before_it_is_applied(group: Group) -> None:
    """No message of the former life is handed out either: the table waits for the disk."""
    master, replica = group.master, group.replica
    replica.config_disk.hold()
    copy_log(master, replica)
    assert "T" in replica.broker.store.deletions.in_progress
    assert replica.broker.pop.lives.is_ending("T")
    assert replica.broker.store.max_queue_offset("T", 0) == 4
    replica.config_disk.release()
    assert replica.broker.store.max_queue_offset("T", 0) == 2
    assert "T" not in replica.broker.store.deletions.in_progress


def test_the_master_tells_of_it_meanwhile(group: Group) -> None:
    master, replica = group.master, group.replica
    replica.config_disk.hold()
    copy_log(master, replica)
    group.round()
    replica.config_disk.release()
    assert (
        replica.broker.store.deletions.former_life_ends()
        == master.broker.store.deletions.former_life_ends()
    )
    assert not replica.broker.store.deletions.in_progress


def test_one_that_fails_is_tried_again(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    master, replica = group.master, group.replica
    group.follower.stop()
    deletions = replica.broker.store.deletions

    def fails(*_args: object, **_more: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(deletions, "delete", fails)
        copy_log(master, replica)
    replica.broker.store.tick(replica.now_ms, replica.steady_ms)
    assert replica.broker.store.max_queue_offset("T", 0) == 4
    replica.now_ms += unapplied_deletions.AGAIN_MS
    replica.broker.store.tick(replica.now_ms, replica.steady_ms)
    assert replica.broker.store.max_queue_offset("T", 0) == 2


def test_offsets_that_cannot_be_saved_hold_it_up(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash the old offsets would count for the new life."""
    master, replica = group.master, group.replica
    group.follower.stop()

    def fails(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(replica.files, "replace", fails)
        patched.setattr(replica.files, "save", fails)
        copy_log(master, replica)
        assert replica.broker.store.max_queue_offset("T", 0) == 4


def test_a_broker_alone_applies_the_records_its_recovery_finds(group: Group) -> None:
    master, replica = group.master, group.replica
    replica.broker.store.on_unapplied_deletions.clear()
    copy_log(master, replica)
    assert list(replica.broker.store.deletions.unapplied_deletions()) == ["T"]
    replica.close()
    replica.open()
    replica.broker.store.stand_alone(replica.now_ms)
    assert replica.broker.store.max_queue_offset("T", 0) == 2
    assert first_of(replica) == first_of(master)


def test_a_topic_that_no_table_has_is_made_known(group: Group) -> None:
    master, replica = group.master, group.replica
    replica.broker.topics.delete("T", 8)
    group.follower.begin_following(MASTER, 0, replica.steady_ms)
    replica.config_disk.hold()
    copy_log(master, replica)
    group.follower.begin_leading(2, replica.now_ms)
    replica.config_disk.release()
    assert replica.broker.topics.get("T") is not None


def test_the_rest_of_a_deletion_in_a_topics_next_life_is_known_to_a_new_master(
    make_world: Callable[..., Any],
) -> None:
    """The master's term began while the files of the former life were being removed (R20)."""
    group = Group(make_world)
    master, replica = group.master, group.replica
    group.round()
    put(master)
    end = master.broker.store.max_log_offset
    master.ask_fields(215, {"topic": "T"})
    put(master)
    # otherwise the log's proof would apply the deletion, too
    replica.broker.store.on_unapplied_deletions.clear()
    copy_log(master, replica)
    replica.disk.hold()
    group.follower._deletions["T"] = end
    group.follower.begin_leading(1, replica.now_ms)
    replica.broker.role._is_slave = False
    assert replica.broker.topics.get("T") is None
    replica.disk.release()
    assert replica.broker.store.max_queue_offset("T", 0) == 1
    assert replica.broker.topics.get("T") is not None
