"""A replica drops offsets of a former life of a topic or a group."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.ha.pairs import Group, copy_log, put

from turbopump.engine.types import QueueOffset
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.topics import TopicConfig

OF_TOPIC = (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
OF_GROUP = (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": "true"})


@pytest.fixture
def group(make_world: Callable[..., Any]) -> Group:
    found = Group(make_world)
    make_again(found)
    return found


def make_again(group: Group) -> None:
    group.master.broker.topics.put(TopicConfig("T", 2, 2), 7)
    group.master.broker.groups.put(SubscriptionGroupConfig("G"), 7)


@pytest.mark.parametrize(("code", "fields"), [OF_TOPIC, OF_GROUP])
def test_a_topic_made_again_before_the_next_round_has_no_offsets(
    group: Group, code: int, fields: dict[str, str]
) -> None:
    """Seed 1006 of the simulation `acting`: the master had an offset of the first queue by then,
    and the replica kept that of the second queue."""
    for queue_id in (0, 1):
        group.master.broker.offsets.commit("G", "T", queue_id, QueueOffset(40), 5)
    group.round()
    assert group.master.ask_fields(code, fields).code == 0
    make_again(group)
    group.commit(2)
    group.round()
    offsets = group.replica.broker.offsets
    assert [offsets.query("G", "T", queue_id) for queue_id in (0, 1)] == [2, -1]


@pytest.mark.parametrize(("code", "fields"), [OF_TOPIC, OF_GROUP])
def test_offsets_committed_to_a_replica_end_with_the_life(
    group: Group, code: int, fields: dict[str, str]
) -> None:
    """The master never had the topic, so no table shows its deletion."""
    group.round()
    group.commit(40, group.replica)
    assert group.master.ask_fields(code, fields).code == 0
    make_again(group)
    group.round()
    assert group.offset() == -1


@pytest.mark.parametrize(("code", "fields"), [OF_TOPIC, OF_GROUP])
def test_the_same_offset_in_the_next_life_is_copied(
    group: Group, code: int, fields: dict[str, str]
) -> None:
    group.commit(2)
    group.round()
    assert group.master.ask_fields(code, fields).code == 0
    make_again(group)
    group.commit(2)
    group.round()
    assert group.offset() == 2


def test_a_topic_that_goes_twice_while_nothing_is_written_went_at_the_later_time(
    group: Group,
) -> None:
    """The simulation `acting` found that the replica kept the time of the first deletion."""
    put(group.master)
    copy_log(group.master, group.replica)
    for _ in range(2):
        group.master.ask_fields(*OF_TOPIC)
        group.round()
        make_again(group)
        group.master.now_ms += 1_000
    found = [world.broker.store.deletions for world in (group.master, group.replica)]
    assert found[0].former_life_ends() == found[1].former_life_ends()
    assert found[0].deletion_times() == found[1].deletion_times()
