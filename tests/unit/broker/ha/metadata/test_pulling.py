"""A replica's tables follow its master's: merged, never rolled back, fenced by the term."""

import errno
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import offset_json
from tests.unit.broker.ha.pairs import DELAY, MASTER, Group, Link, copy_log, put

from turbopump.broker.ha.metadata import pulling as metadata_module
from turbopump.broker.ha.metadata.pulling import MetadataFollower
from turbopump.broker.traffic.role import Role
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.topics import DataVersion, TopicConfig


def test_everything_is_copied_at_once_and_durably(group: Group) -> None:
    master, replica = group.master.broker, group.replica.broker
    topic = TopicConfig("T", 3, 4, 6, attributes={"message.type": "FIFO"}, order=True)
    master.topics.put(topic, 7)
    master.groups.put(SubscriptionGroupConfig("G", retry_max_times=3), 8)
    master.groups.set_forbidden("G", "T", 4, 9)
    group.commit(12)
    master.offsets.commit_pull("G", "T", 0, QueueOffset(14))
    group.round(0)
    assert group.link.codes == [21, 201, 43, 45, 60, 61, 402]
    assert set(group.link.addresses) == {MASTER}
    assert replica.topics.all_topics() == master.topics.all_topics()
    assert replica.topics.data_version == master.topics.data_version
    assert replica.groups.to_json() == master.groups.to_json()
    assert offset_json(replica.offsets) == offset_json(master.offsets)
    assert group.follower.error == ""
    assert group.follower.synced_ms == group.replica.steady_ms
    assert group.replica.files.load("topics.json")["topicConfigTable"]["T"] == topic.to_json()


def test_it_counts_only_once_it_is_durable(group: Group) -> None:
    group.master.broker.topics.put(TopicConfig("T"), 7)
    group.replica.config_disk.hold()
    group.round(0)
    assert group.replica.broker.topics.get("T") is not None
    assert group.follower.synced_ms < 0
    group.replica.config_disk.release()
    assert group.follower.synced_ms == group.replica.steady_ms


def test_changes_and_deletions_are_followed(group: Group) -> None:
    master, replica = group.master.broker, group.replica.broker
    master.topics.put_all([TopicConfig("T", 1), TopicConfig("U", 2)], 7)
    master.groups.put_all([SubscriptionGroupConfig("G"), SubscriptionGroupConfig("H")], 8)
    master.groups.set_forbidden("H", "T", 4, 9)
    group.commit(5)
    group.commit(6, group="H")
    group.round()
    group.master.ask_fields(215, {"topic": "T"})
    master.topics.put(TopicConfig("U", 9), 11)
    master.groups.delete("H", 12)
    master.offsets.remove_group("H")
    group.round()
    assert replica.topics.get("T") is None
    assert replica.topics.get("U").read_queue_nums == 9
    assert replica.groups.to_json() == master.groups.to_json()
    assert group.offset() == -1
    assert group.offset("H") == -1


def test_the_times_of_deletions_are_followed(group: Group) -> None:
    master, replica = group.master.broker, group.replica.broker
    master.topics.put(TopicConfig("T"), 7)
    put(group.master)
    copy_log(group.master, group.replica)
    group.round()
    group.master.ask_fields(215, {"topic": "T"})
    group.master.ask_fields(207, {"groupName": "G", "cleanOffset": "true"})
    group.round()
    for pair in (("T", "g"), ("U", "G")):
        assert 0 < master.pop.lives.ended_ms(*pair) == replica.pop.lives.ended_ms(*pair)


def test_equal_tables_change_nothing(group: Group) -> None:
    group.round()
    version = group.replica.broker.topics.data_version
    notified: list[list[str]] = []
    group.replica.broker.topics.on_change = notified.append
    saver = group.replica.broker.saver
    changes = saver._numbered
    group.round()
    assert group.replica.broker.topics.data_version == version
    assert notified == []
    assert saver._numbered == changes


# Nothing goes back


def test_an_empty_master_wipes_nothing(group: Group) -> None:
    """R21: all topics and groups would be deleted after a failover."""
    replica = group.replica.broker
    replica.topics.put(TopicConfig("T", 7), 3)
    replica.groups.put(SubscriptionGroupConfig("G"), 3)
    group.commit(50, group.replica)
    group.round()
    group.round()
    assert replica.topics.get("T") == TopicConfig("T", 7)
    assert replica.groups.get("G") is not None
    assert group.offset() == 50


def test_unsaved_tables_of_a_killed_master_are_not_deleted(
    group: Group, make_world: Callable[..., Any]
) -> None:
    """Seed 189 of the simulation `acting`: the killed master was back before the next round, with
    the same version and without the offsets."""
    group.commit(50)
    group.round()
    again = make_world("brokerName=b\n", folder="again")
    again.broker.offsets.data_version = group.master.broker.offsets.data_version
    group.follower.link_changed()
    group.link.target = again
    group.round()
    assert group.offset() == 50


def test_an_empty_master_of_a_newer_term_wipes_nothing(group: Group) -> None:
    replica = group.replica.broker
    replica.topics.put(TopicConfig("T", 7), 3)
    group.lead.begin_leading(9, 5)
    group.follower.begin_following(MASTER, 9, group.replica.steady_ms)
    group.round()
    group.round()
    assert replica.topics.get("T") == TopicConfig("T", 7)
    assert replica.topics.data_version == group.master.broker.topics.data_version


def test_a_master_that_lost_its_files_wipes_nothing(
    group: Group, make_world: Callable[..., Any]
) -> None:
    """The loss comes in the middle of a term, at the same address."""
    group.master.broker.topics.put(TopicConfig("T"), 7)
    group.master.broker.groups.put(SubscriptionGroupConfig("G"), 7)
    group.commit(50)
    group.round()
    empty = make_world("brokerName=b\n", folder="empty")
    empty.broker.offsets.data_version = DataVersion(0, 0, 99)
    group.link.target = empty
    group.round()
    assert group.replica.broker.topics.get("T") is not None
    assert group.replica.broker.groups.get("G") is not None
    assert group.offset() == 50


def test_of_two_versions_the_newer_wins(group: Group) -> None:
    master, replica = group.master.broker, group.replica.broker
    for number in range(3):
        replica.topics.versions.following = False
        replica.topics.put_all([TopicConfig("T", number), TopicConfig("M", 1)], 3)
    master.topics.put_all([TopicConfig("T", 9), TopicConfig("N", 1)], 3)
    group.round()
    assert replica.topics.get("T").read_queue_nums == 2
    assert replica.topics.get("N") is not None, "what only the master has comes anyway"
    for number in range(3):
        master.topics.put(TopicConfig("T", 20 + number), 4)
    group.round()
    assert replica.topics.get("T").read_queue_nums == 22
    assert replica.topics.get("M") is not None


def test_a_replica_counts_nothing_of_its_own(group: Group) -> None:
    """R22: otherwise a slave would never have its master's version again."""
    group.master.broker.topics.put(TopicConfig("T"), 7)
    group.round()
    replica = group.replica.broker
    for name in ("made_here", "there", "too"):
        replica.groups.find_or_create(name, 3)
        replica.topics.create_internal(f"%RETRY%{name}", 1, 6, 3)
    group.master.broker.topics.put(TopicConfig("U"), 7)
    group.master.broker.groups.put(SubscriptionGroupConfig("G"), 7)
    group.round()
    assert replica.topics.data_version == group.master.broker.topics.data_version
    assert replica.groups.data_version == group.master.broker.groups.data_version
    assert replica.groups.get("made_here") is not None


def test_a_topic_deleted_while_the_replica_was_away_goes(group: Group) -> None:
    master = group.master
    master.broker.topics.put(TopicConfig("T"), 7)
    put(master)
    group.round()
    master.ask_fields(215, {"topic": "T"})
    for _ in range(2):
        put(group.replica, {"b": "V"})
    group.follower.stop()
    group.follower.begin_following(MASTER, 0, group.replica.steady_ms)
    group.round()
    assert group.replica.broker.topics.get("T") is None


def test_in_one_term_a_missing_topic_was_deleted(group: Group) -> None:
    """Also after a restart of the replica, and without a deletion list (a RocketMQ master)."""
    master, replica = group.master.broker, group.replica.broker
    group.lead.begin_leading(3, 5)
    master.topics.put(TopicConfig("T"), 7)
    group.commit(50)
    group.follower.begin_following(MASTER, 3, group.replica.steady_ms)
    group.round()
    master.topics.delete("T", 8)
    master.offsets.remove_topic("T")
    again = MetadataFollower(replica, group.link)
    again.begin_following(MASTER, 3, group.replica.steady_ms)
    again.tick(group.replica.now_ms, group.replica.steady_ms)
    assert replica.topics.get("T") is None
    assert group.offset() == -1
    assert replica.topics.get("SELF_TEST_TOPIC") is not None


# Offsets


def test_a_commit_never_goes_back_but_a_reset_does(group: Group) -> None:
    group.commit(100, group.replica)
    group.commit(90)
    group.round()
    assert group.offset() == 100, "the master's is older"
    group.commit(110)
    group.round()
    assert group.offset() == 110
    group.commit(20)
    group.round()
    assert group.offset() == 20, "it was set back"
    group.commit(30, group.replica)
    group.round()
    assert group.offset() == 30, "the master has sent nothing new"


def test_an_unobserved_reset_is_noticed(group: Group) -> None:
    group.commit(100)
    group.round()
    group.commit(20)
    group.commit(25)
    group.follower.begin_following("10.0.0.9:1", 0, group.replica.steady_ms)
    group.follower.begin_following(MASTER, 0, group.replica.steady_ms)
    group.round()
    assert group.offset() == 25


def test_a_reset_is_known_after_restarts_of_both(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Role, "is_master", False)  # their logs have less than their offsets
    group.commit(100)
    group.round()
    group.commit(20)
    for world in (group.master, group.replica):
        world.close()
        world.open()
    assert group.offset() == 100
    again = MetadataFollower(group.replica.broker, group.link)
    again.begin_following(MASTER, 0, group.replica.steady_ms)
    again.tick(group.replica.now_ms, group.replica.steady_ms)
    assert group.offset() == 20
    number = offset_json(group.replica.broker.offsets)["loweredTable"]["T@G"]["0"]
    assert group.replica.broker.offsets.last_reset_ms("G", "T", 0) == number > 0


def test_without_counts_a_drop_of_the_same_master_is_a_reset(group: Group) -> None:
    """The master is RocketMQ's."""
    reported = {"T@G": {"0": 100}}

    def java(request: Command) -> Command | str:
        if request.code != 43:
            return Link(group.master).answer(request)
        body = {"dataVersion": {"counter": 1}, "offsetTable": reported}
        return new_response(request, 0, body=json.dumps(body).encode())

    group.link.target = java
    group.commit(120, group.replica)
    group.round()
    assert group.offset() == 120
    reported["T@G"] = {"0": 130}
    group.round()
    assert group.offset() == 130
    reported["T@G"] = {"0": 90}
    group.round()
    assert group.offset() == 90


def test_a_new_master_forgets_state_its_log_lacks(group: Group) -> None:
    """R14: an offset beyond the log's end would skip later messages; the other replicas follow."""
    master, replica = group.master, group.replica
    for _ in range(3):
        put(master)
    group.commit(5)
    group.commit(2, group="H")
    group.commit(7, topic="unknown")
    group.commit(5, replica)
    group.lead.begin_leading(4, 9)
    offsets = master.broker.offsets
    assert [offsets.query("G", "T", 0), offsets.query("H", "T", 0)] == [3, 2]
    assert offsets.query("G", "unknown", 0) == 0
    assert master.files.load("consumerOffset.json")["offsetTable"]["T@G"] == {"0": 3}
    group.follower.begin_following(MASTER, 4, replica.steady_ms)
    group.round()
    assert group.offset() == 3


def test_messages_hidden_from_readers_count_as_held(make_world: Callable[..., Any]) -> None:
    world = make_world()
    world.broker.offsets.commit("G", "T", 0, QueueOffset(5), 5)
    MetadataFollower(world.broker, Link(None), lambda topic, queue_id: 4).begin_leading(0, 9)
    assert world.broker.offsets.query("G", "T", 0) == 4


def test_a_cut_sets_offsets_back_until_the_master_says(group: Group) -> None:
    group.commit(5)
    group.round()
    assert group.follower.on_truncated(9) == 1
    assert group.offset() == 0
    group.round()
    assert group.offset() == 5


# Delay levels


def test_delay_progress_waits_for_the_deliveries(group: Group) -> None:
    """A replica with a delivery offset beyond its log would never deliver the rest."""
    master, replica = group.master, group.replica
    for _ in range(3):
        put(master, DELAY)
    master.pass_time(3_000)
    group.round()
    master.pass_time(12_000)
    group.round()
    assert 28 in group.link.codes
    delay = replica.broker.delay
    assert delay.copy_progress() == {}
    while replica.broker.store.max_log_offset < master.broker.store.max_log_offset:
        put(replica)
    replica.broker.role.become_replica(1)
    delay.step(replica.now_ms)
    assert delay.copy_progress() == master.broker.delay.copy_progress() == {1: 3}


def test_progress_without_safe_deliveries_is_not_kept(make_world: Callable[..., Any]) -> None:
    """The master becomes a replica: its last deliveries may be cut."""
    world = make_world()
    put(world, DELAY)
    world.disk.hold()
    world.pass_time(2_000)
    assert world.broker.delay.copy_progress() == {1: 1}
    follower = MetadataFollower(world.broker, Link(None))
    follower.begin_following(MASTER, 2, world.steady_ms)
    assert world.broker.delay.copy_progress() == {}
    world.disk.release()


# Topics that come back


def test_the_next_life_of_a_deleted_topic_is_read_whole(group: Group) -> None:
    """The replica's log is ahead of its tables: records of the next life came first."""
    master, replica = group.master, group.replica
    group.round()
    for number in range(6):
        if number == 4:
            master.ask_fields(215, {"topic": "T"})
        put(master)
    # otherwise the log's proof would apply the deletion, too
    replica.broker.store.on_unapplied_deletions.clear()
    copy_log(master, replica)
    assert replica.broker.store.max_queue_offset("T", 0) == 4
    group.round()
    for store in (master.broker.store, replica.broker.store):
        assert store.max_queue_offset("T", 0) == 2
        first = store.record_of(store.units("T", 0, 0, 1)[0])
        assert first is not None
        assert first.queue_offset == 0
    assert (
        replica.broker.store.deletions.former_life_ends()
        == master.broker.store.deletions.former_life_ends()
    )
    replica.close()
    replica.open()
    assert replica.broker.store.max_queue_offset("T", 0) == 2


def test_a_deletion_waits_for_the_log(group: Group) -> None:
    master, replica = group.master, group.replica
    group.round()
    for _ in range(3):
        put(master)
    master.ask_fields(215, {"topic": "T"})
    group.round()
    assert replica.broker.store.deletions.former_life_ends() == {}
    copy_log(master, replica)
    assert replica.broker.store.max_queue_offset("T", 0) == 3
    group.follower.tick(replica.now_ms, replica.steady_ms)
    assert replica.broker.store.topics() == []


def test_a_deletion_that_failed_is_tried_again(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old files are in the way of the topic's next life, and the master reports a deletion
    once."""
    master, replica = group.master, group.replica
    group.round()
    put(master)
    copy_log(master, replica)
    master.ask_fields(215, {"topic": "T"})
    tries = []

    def broken(_files: object, path: str) -> None:
        tries.append(path)
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(RealFiles, "remove_folder", broken)
        group.round()
        for _ in range(20):
            group.round(100)
    assert len(tries) == 1, "not before a while"
    folder = Path(replica.config.store.root, "consumequeue", "T")
    assert folder.exists()
    group.round(10_000)
    assert not folder.exists()
    assert replica.broker.store.deletions.in_progress == set()


def test_a_deletion_inside_of_a_record_is_refused(group: Group) -> None:
    master, replica = group.master, group.replica
    put(master)
    copy_log(master, replica)
    group.follower._deletions["T"] = master.broker.store.max_log_offset - 1
    group.round()
    assert replica.broker.store.max_queue_offset("T", 0) == 1
    assert replica.broker.store.damage is None


@pytest.mark.parametrize(("code", "fields"), [(215, {"topic": "T"}), (316, {})])
def test_an_operator_deletes_nothing_of_a_replica(
    group: Group, code: int, fields: dict[str, str]
) -> None:
    """mqadmin sends the request to all brokers; the log may hold the topic's next life already."""
    put(group.master)
    copy_log(group.master, group.replica)
    group.replica.broker.role.become_replica(1)
    assert group.replica.ask_fields(code, fields).code == 0
    assert group.replica.broker.store.max_queue_offset("T", 0) == 1
    assert group.replica.broker.store.deletions.former_life_ends() == {}


# Roles


def test_a_new_master_knows_the_topics_of_its_log(group: Group) -> None:
    """R20: a topic made since the last round would be lost."""
    put(group.master)
    group.master.broker.topics.delete("T", 5)
    group.master.close()
    group.master.open()
    MetadataFollower(group.master.broker, Link(None)).begin_leading(1, 6)
    assert group.master.broker.topics.get("T") is not None


def test_a_term_is_a_newer_version_of_all_tables(group: Group) -> None:
    broker = group.master.broker
    saved = group.lead.begin_leading(3, 6)
    assert saved.done
    assert saved.value is None
    for table in (broker.topics, broker.groups, broker.offsets, broker.delay.durable):
        assert table.data_version.state_version == 3
    version = broker.topics.data_version
    group.lead.begin_leading(3, 7)
    assert broker.topics.data_version == version
    broker.topics.put(TopicConfig("X"), 8)
    assert broker.topics.data_version.state_version == 3


def test_without_epochs_a_term_is_no_change(group: Group) -> None:
    version = group.master.broker.topics.data_version
    group.lead.begin_leading(-1, 6)
    assert group.master.broker.topics.data_version == version


@pytest.mark.parametrize("change", ["stop", "lead", "another", "same master again"])
def test_an_answer_of_another_term_is_dropped(group: Group, change: str) -> None:
    group.master.broker.topics.put(TopicConfig("T"), 7)
    group.link.held = []
    group.round()
    if change == "stop":
        group.follower.stop()
    elif change == "lead":
        group.follower.begin_leading(2, 8)
    elif change == "another":
        group.follower.begin_following("10.0.0.9:1", 0, group.replica.steady_ms)
    else:
        group.follower.begin_following(MASTER, 2, group.replica.steady_ms)
    asked = len(group.link.asked)
    group.link.release()
    assert group.replica.broker.topics.get("T") is None
    assert len(group.link.asked) == asked, "nothing more is asked"


def test_the_same_master_again_is_no_other_term(group: Group) -> None:
    group.link.held = []
    group.round()
    group.follower.begin_following(MASTER, 0, group.replica.steady_ms)
    group.master.broker.topics.put(TopicConfig("T"), 7)
    group.link.release()
    assert group.link.codes == [21, 201, 43, 45, 60, 61, 402]


@pytest.mark.parametrize("address", ["", "127.0.0.1:10911"])
def test_no_broker_is_asked_while_no_other_is_the_master(group: Group, address: str) -> None:
    group.follower.begin_following(address, 0, group.replica.steady_ms)
    group.round()
    assert group.link.asked == []
    assert group.follower.master_address == ""


# Rhythm


def test_rounds_come_every_few_seconds(group: Group) -> None:
    group.round(0)
    asked = len(group.link.asked)
    group.round(metadata_module.PERIOD_MS - 1)
    assert len(group.link.asked) == asked
    group.round(1)
    assert len(group.link.asked) == 2 * asked
    group.round(1)
    assert len(group.link.asked) == 2 * asked


def test_a_round_during_which_the_link_changed_is_asked_again(group: Group) -> None:
    group.commit(50)
    group.link.held = []
    group.round(0)
    group.follower.link_changed()
    group.link.release()
    assert group.offset() == -1, "another process may have answered"
    group.round(0)
    assert group.link.codes.count(21) == 2
    assert group.offset() == 50


def test_failures_are_tried_again_more_and_more_rarely(group: Group) -> None:
    group.link.target = None
    times = []
    for _ in range(1_000):
        before = len(group.link.asked)
        group.round(100)
        if len(group.link.asked) > before:
            times.append(group.replica.now_ms)
    waits = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert waits[:6] == [500, 1_000, 2_000, 4_000, 8_000, 10_000]
    assert group.follower.error == "no such broker"
    group.link.target = group.master
    group.round()
    assert group.follower.error == ""


def test_one_part_that_fails_does_not_hold_up_the_others(group: Group) -> None:
    group.master.broker.groups.put(SubscriptionGroupConfig("G"), 3)

    def broken(request: Command) -> Command | str:
        if request.code in (21, 43, 45, 402):
            return new_response(request, 3, "not here")
        return Link(group.master).answer(request)

    group.link.target = broken
    group.round()
    assert group.replica.broker.groups.get("G") is not None
    assert group.follower.error.startswith("topics: answered with code 3: not here; offsets: ")
    assert group.follower.synced_ms < 0
