"""Data of a replica that its master never had: the master neither deletes nor lowers it, however
often the replica reads it."""

import pytest
from tests.unit.broker.ha.pairs import MASTER, Group

from turbopump.broker.ha.metadata.pulling import MetadataFollower
from turbopump.broker.traffic.role import Role
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.topics import DataVersion, TopicConfig


@pytest.mark.parametrize("restart", [False, True])
def test_an_offset_the_master_never_had_is_not_set_back_by_it(
    group: Group, restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offset came from the last master; the replica reads this master's twice in the same term
    (simulated groups)."""
    monkeypatch.setattr(Role, "is_master", False)  # its log may have less than its offsets
    master, world = group.master.broker, group.replica
    world.broker.offsets.versions.following = False
    group.commit(30, world)
    group.commit(4, world, "only-here")
    group.lead.begin_leading(9, 5)
    group.commit(12)
    for _ in range(2):
        group.follower.begin_following(MASTER, 9, world.steady_ms)
        group.round()
        assert world.broker.offsets.data_version == master.offsets.data_version
        assert (group.offset(), group.offset("only-here")) == (30, 4)
        if restart:
            world.broker.offsets.save()
            world.broker.store.close(world.now_ms)
            world.open()
            group.follower = MetadataFollower(world.broker, group.link)
        else:
            group.follower.stop()
    group.commit(40)
    group.follower.begin_following(MASTER, 9, world.steady_ms)
    group.round()
    assert group.offset() == 40
    group.commit(20)
    group.round()
    assert group.offset() == 20, "that one it has set back"


@pytest.mark.parametrize("restart", [False, True])
def test_tables_of_no_master_are_not_deleted_by_one(group: Group, restart: bool) -> None:
    """The topics were made at a replica, or at a master that died before they were copied. The
    present master has not deleted them, also if this replica reads it again in the same term
    (simulated groups)."""
    master, world = group.master.broker, group.replica
    world.broker.topics.put(TopicConfig("T", 7), 3)
    world.broker.groups.put(SubscriptionGroupConfig("G"), 3)
    group.lead.begin_leading(9, 5)
    group.follower.begin_following(MASTER, 9, world.steady_ms)
    group.round()
    world.broker.topics.put(TopicConfig("U"), 4)
    for name in ("V", "W"):
        master.topics.put(TopicConfig(name), 6)
        master.groups.put(SubscriptionGroupConfig(name), 6)
        if restart:
            world.broker.store.close(world.now_ms)
            world.open()
            group.follower = MetadataFollower(world.broker, group.link)
        else:
            group.follower.stop()
        group.follower.begin_following(MASTER, 9, world.steady_ms)
        group.round()
        assert world.broker.topics.data_version == master.topics.data_version
        assert {"T", "U", name} <= world.broker.topics.all_topics().keys()
        assert {"G", name} <= world.broker.groups.all_groups().keys()
    master.topics.delete("V", 8)
    group.round()
    assert "V" not in world.broker.topics.all_topics(), "that one it had"


def test_tables_of_the_next_masters_replica_are_not_deleted_by_it(group: Group) -> None:
    """The master of term 2 is a replica in term 5 by then, and has a group that the master of term
    5 never had; its table has the version of term 5 (`make sim SUITE=group SEED=8466`)."""
    master, mine = group.master.broker, group.replica.broker
    master.groups.put(SubscriptionGroupConfig("G"), 3)
    group.lead.begin_leading(5, 5)
    group.commit(30)
    group.follower.begin_following(MASTER, 2, group.replica.steady_ms)
    group.round()
    assert "G" in mine.groups.all_groups() and group.offset() == 30
    for table in (mine.topics, mine.groups, mine.offsets):
        assert table.data_version.state_version <= 2
    master.groups.delete("G", 6)
    group.follower.begin_following(MASTER, 5, group.replica.steady_ms)
    group.round()
    assert "G" in mine.groups.all_groups()
    assert mine.groups.data_version == master.groups.data_version


def test_a_replica_of_the_next_master_sets_back_and_deletes_nothing(group: Group) -> None:
    """A former master lost its log and its groups; a broker that still follows it as the master of
    term 2 keeps the tables from that term (`make sim SUITE=group SEED=135577`)."""
    master, mine = group.master.broker, group.replica.broker
    master.groups.put(SubscriptionGroupConfig("G"), 3)
    group.lead.begin_leading(2, 5)
    group.commit(30)
    group.follower.begin_following(MASTER, 2, group.replica.steady_ms)
    group.round()
    assert "G" in mine.groups.all_groups() and group.offset() == 30
    master.groups.delete("G", 7)
    for table in (master.topics, master.groups, master.offsets):
        table.versions.following = True
        table.data_version = DataVersion(9, 5, 8)
    for at in (29, 0):
        group.commit(at)
        group.round()
        assert "G" in mine.groups.all_groups() and group.offset() == 30


def test_a_log_that_was_cut_sets_nothing_back_elsewhere(group: Group) -> None:
    """The broker follows the next master, and has not read that master's tables yet."""
    group.lead.begin_leading(2, 5)
    group.commit(30)
    group.follower.begin_following(MASTER, 2, group.replica.steady_ms)
    group.round()
    group.lead.begin_following("10.0.0.9:1", 5, group.replica.steady_ms)
    assert group.lead.on_truncated(6) == 1
    assert group.master.broker.offsets.query("G", "T", 0) == 0
    group.round()
    assert group.offset() == 30
