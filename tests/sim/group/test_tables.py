"""Groups with controllers: past failures of tables, one by one (R20 to R25), and the bugs that
these stories must find.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.sim.group.broker import GroupBroker
from tests.sim.group.stories import Story
from tests.sim.planting import Patch, Plant
from turbopump.broker.ha.metadata import pulling as metadata
from turbopump.broker.tables.offsets import Offsets, OffsetTable
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.types import QueueOffset

WHERE = ("A", "one", 0)
ROUND_MS = 4000
"""Time in which a replica has requested all tables once."""


def whole() -> Story:
    """A group without a clerk of its own, and with messages of both topics."""
    story = Story.whole(timeout_ms=1000)
    story.clerk.active = False
    story.writes()
    story.until(lambda: WHERE[::2] in story.clerk.safe, 5000, "no message of that queue")
    return story


def report(story: Story, what: str, ask: Callable[[], None]) -> None:
    """The clerk asks the master, and gets success."""
    clerk = story.clerk
    story.until(lambda: not clerk.is_busy, 5000, "the clerk is busy")
    clerk.ask_of(story.master.endpoint.address)
    count = len(clerk.done)
    ask()
    story.until(lambda: len(clerk.done) > count, 5000, what)


def dies(story: Story) -> GroupBroker:
    """Kill the master; return it when another broker leads and takes messages."""
    old, epoch = story.master, story.journal.role.epoch
    old.crash(power=False)
    story.elected(epoch)
    story.writes()
    assert story.master is not old
    return old


def topics(broker: GroupBroker) -> dict[str, object]:
    """Topics of a broker."""
    assert broker.tables is not None
    return broker.tables.context.topics.all_topics()


def offset(broker: GroupBroker) -> int:
    """Committed offset of the stories' group."""
    assert broker.tables is not None
    return broker.tables.offsets().get(WHERE, -1)


def test_r20_r24_a_topic_with_a_message_before_its_master_dies() -> None:
    """A new master learns of a topic from the log, without a round of tables."""
    story = whole()
    story.go(ROUND_MS)
    story.master.send("new-topic", 0, b"%08d" % 99_999_999)
    known = story.replicas
    story.until(lambda: story.master.replicated.confirm == story.master.replicated.end, 3000, "-")
    assert all("new-topic" not in topics(one) for one in known)
    dies(story)
    assert "new-topic" in topics(story.master)
    story.end()


def test_r21_a_new_master_without_tables_wipes_nothing() -> None:
    """A new master that lost its files removes no tables from the others."""
    story = whole()
    clerk = story.clerk
    report(story, "group", lambda: clerk.group_of("one"))
    report(story, "topic", lambda: clerk.topic_of("two", 3))
    report(story, "offset", lambda: clerk.commit("one", "A", 0, clerk.safe["A", 0]))
    story.go(2 * ROUND_MS)
    empty, other = story.replicas
    empty.crash(power=False)
    empty.disk.wipe("/store/config")
    empty.kept.names, empty.kept.offsets = frozenset(), {}
    old, epoch = story.master, story.journal.role.epoch
    story.alone(2)
    at = offset(other)
    story.start(empty)
    story.alone(3)
    story.admin.elect(empty.controller_id)
    story.elected(epoch)
    story.go(3 * ROUND_MS)
    for one in (old, other):
        assert "two" in topics(one) and offset(one) >= at > 0
    story.end()


def test_r22_a_replica_has_its_masters_version_and_attributes() -> None:
    """Whatever the replica adds by itself."""
    story = whole()
    clerk = story.clerk
    for queues in (3, 4, 2, 4):
        report(story, "topic", lambda queues=queues: clerk.topic_of("two", queues))
        for replica in story.replicas:
            replica.tables.context.groups.find_or_create(
                f"made-here-{queues}", replica.clock.wall_ms
            )
    story.go(2 * ROUND_MS)
    master = story.master.tables.context
    for replica in story.replicas:
        found = replica.tables.context
        assert found.topics.data_version == master.topics.data_version
        assert found.groups.data_version == master.groups.data_version
        assert found.topics.get("two") == master.topics.get("two")
        assert found.topics.get("two").attributes == {"message.type": "FIFO"}
    story.end()


@pytest.mark.parametrize("power", [False, True])
def test_r23_two_switches_and_everybody_dies(power: bool) -> None:
    """All acknowledged and copied tables are there when the first broker starts alone."""
    story = whole()
    clerk = story.clerk
    report(story, "topic", lambda: clerk.topic_of("two", 4))
    report(story, "group", lambda: clerk.group_of("three"))
    story.go(2 * ROUND_MS)
    first = story.master
    for _ in range(2):
        old = dies(story)
        story.start(old)
        story.until(story.is_whole, 30_000, "not whole")
    for broker in story.brokers:
        broker.crash(power=power)
    story.start(first)
    story.go(2000)
    assert {"topic two", "group three"} <= first.tables.names()
    story.end()


def test_r25_an_old_master_returns_with_old_offsets() -> None:
    """An old master that leads again with old offsets does not set back the newer offsets of other
    brokers, which count when one of them leads.
    """
    story = whole()
    clerk = story.clerk
    report(story, "group", lambda: clerk.group_of("one"))
    report(story, "offset", lambda: clerk.commit("one", "A", 0, clerk.safe["A", 0]))
    story.go(2 * ROUND_MS)
    old = dies(story)
    before = offset(story.master)
    story.until(lambda: clerk.safe["A", 0] > before, 10_000, "no message of the queue")
    report(story, "offset", lambda: clerk.commit("one", "A", 0, clerk.safe["A", 0]))
    at = offset(story.master)
    assert at > before > 0
    story.go(2 * ROUND_MS)
    between = story.master
    story.start(old)
    vars(old.replicating.metadata)["tick"] = lambda now_ms, steady_ms: None
    story.until(story.is_whole, 30_000, "not whole")
    epoch = story.journal.role.epoch
    story.admin.elect(old.controller_id)
    story.elected(epoch)
    story.writes()
    assert story.master is old and offset(old) == before
    del vars(old.replicating.metadata)["tick"]
    story.go(2 * ROUND_MS)
    assert offset(between) == at
    epoch = story.journal.role.epoch
    story.admin.elect(between.controller_id)
    story.elected(epoch)
    story.writes()
    story.go(2 * ROUND_MS)
    assert all(offset(one) == at for one in story.brokers)
    story.end()


def test_a_replica_without_news_follows_its_last_master() -> None:
    """A former master that restarts its log sets back its own offsets, not the offsets of a replica
    that has no news of the election (group seed 135577).
    """
    story = whole()
    clerk = story.clerk
    report(story, "group", lambda: clerk.group_of("one"))
    story.go(2 * ROUND_MS)
    old, (deaf, other) = story.master, story.replicas
    vars(other.replicating.metadata)["tick"] = lambda now_ms, steady_ms: None
    report(story, "offset", lambda: clerk.commit("one", "A", 0, clerk.safe["A", 0]))
    story.go(2 * ROUND_MS)
    at, epoch = offset(deaf), story.journal.role.epoch
    assert at > 0 > offset(other)
    story.apart([deaf], story.rest(deaf, old))
    story.admin.elect(other.controller_id)
    story.elected(epoch)
    story.writes()
    story.go(ROUND_MS)
    old.crash(power=False)
    old.damage_epochs()
    story.start(old)
    story.until(lambda: offset(old) < at, 10_000, "its log is as it was")
    story.go(2 * ROUND_MS)
    assert deaf.service.epoch == epoch and offset(deaf) == at
    story.net.blocked.clear()
    story.end()


# Planted


def topics_of_the_log_are_not_made(patch: Patch) -> None:
    """R20: a new master knows the topics of its tables only."""
    patch.setattr(TopicTable, "create_from_store", lambda *args, **options: None)


def an_empty_table_counts(patch: Patch) -> None:
    """R21: a replica deletes all entries that its master lacks."""
    follower = metadata.MetadataFollower
    patch.setattr(
        follower, "_known_before", lambda self, now, theirs, table, version, mine: set(mine)
    )


def replicas_count_for_themselves(patch: Patch) -> None:
    """R22: a replica counts its additions as a new version."""
    patch.setattr(
        metadata.VersionRules,
        "next_version",
        lambda self, version, now_ms: version.next_version(now_ms, version.state_version),
    )


def tables_are_not_saved(patch: Patch) -> None:
    """R23: tables that a replica copies stay in memory."""
    patch.setattr(TopicTable, "_save", lambda self, put, gone, changed_members: 0)


def the_masters_offsets_are_right(patch: Patch) -> None:
    """R25: an offset of the present master takes the place of any other."""

    def adopt(
        self: OffsetTable, theirs: Offsets, before: Offsets | None, report: bool
    ) -> Iterator[None]:
        for (topic, group), queues in theirs.committed.items():
            for queue_id, at in queues.items():
                self.commit(group, topic, queue_id, QueueOffset(at), 0)
                yield

    patch.setattr(OffsetTable, "adopt_offsets", adopt)


BUGS: dict[Plant, Callable[[], None]] = {
    topics_of_the_log_are_not_made: test_r20_r24_a_topic_with_a_message_before_its_master_dies,
    an_empty_table_counts: test_r21_a_new_master_without_tables_wipes_nothing,
    replicas_count_for_themselves: test_r22_a_replica_has_its_masters_version_and_attributes,
    tables_are_not_saved: lambda: test_r23_two_switches_and_everybody_dies(False),
    the_masters_offsets_are_right: test_r25_an_old_master_returns_with_old_offsets,
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_story_finds(bug: Plant, plant: Callable[[Plant], None]) -> None:
    plant(bug)
    with pytest.raises(AssertionError):
        BUGS[bug]()
