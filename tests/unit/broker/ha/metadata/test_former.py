"""An acting replica may not have copied its master's last deletion: its commits and hand-outs then
belong to a former life of the topic or the group, and the returning master ignores them."""

from collections.abc import Callable

import pytest
from tests.unit.broker.ha.acting.test_acting_group import (
    ACTING,
    AS_SLAVE,
    MASTER,
    OTHER,
    SLAVE,
    Bench,
    make,  # noqa: F401 - a fixture
)
from tests.unit.broker.ha.acting.test_notes_taken import notes, pops, starts

from turbopump.broker.ha.metadata.former import LIVES
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.topics import TopicConfig

OF_TOPIC = (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
OF_GROUP = (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": "true"})


def remake(bench: Bench, code: int, fields: dict[str, str]) -> None:
    broker = bench.world.broker
    if code == OF_TOPIC[0]:
        bench.world.broker.store.deletions.delete("T", bench.world.now_ms)
        broker.offsets.remove_topic("T", bench.world.now_ms)
    else:
        assert bench.world.ask_fields(code, fields).code == 0
    broker.topics.put(TopicConfig("T", 1, 1), 2)
    broker.groups.put(SubscriptionGroupConfig("G"), 2)


@pytest.fixture
def pair(make: Callable[..., Bench]) -> tuple[Bench, Bench]:  # noqa: F811
    """A replica that acted, and its master, which has returned."""
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING, MASTER)
    slave.say(_1=SLAVE)
    assert slave.world.broker.role.is_acting
    assert slave.commit(8) == 0
    pops(slave, 3)
    slave.has_master, master.connections.hosts = True, ["10.0.0.2"]
    return slave, master


@pytest.mark.parametrize(("code", "fields"), [OF_TOPIC, OF_GROUP])
def test_a_replicas_former_life_does_not_count(
    pair: tuple[Bench, Bench], code: int, fields: dict[str, str]
) -> None:
    """Seed 1018 of the simulation `acting`: the master had offsets from before its deletion
    again."""
    _, master = pair
    remake(master, code, fields)
    master.world.pass_time(1_500)
    assert (master.online, master.offset(), starts(master)) == (1, -1, [])


def test_the_work_of_this_life_counts(pair: tuple[Bench, Bench]) -> None:
    slave, master = pair
    for bench in (slave, master):
        bench.world.broker.groups.delete("another", 5, with_offsets=True)
    master.world.pass_time(1_500)
    assert (master.online, master.offset(), starts(master)) == (1, 8, [3])
    assert any(LIVES in request.fields for _, request in master.names.asked)


def test_a_replica_that_does_not_say_is_believed(pair: tuple[Bench, Bench]) -> None:
    """A broker of an older version returns its offsets only."""
    _, master = pair
    remake(master, *OF_GROUP)
    response = master.names._answer

    def older(address: str, request: Command) -> Command | str:
        request.fields.pop(LIVES, None)
        return response(address, request)

    master.names._answer = older  # type: ignore[method-assign]
    master.world.pass_time(1_500)
    assert (master.online, master.offset()) == (1, 8)


@pytest.mark.parametrize("body", [b'{"deletionTimes":[]}', b'{"deletionTimes":{"deletedTimes":1}}'])
def test_deletions_that_are_none_keep_a_master_waiting(
    pair: tuple[Bench, Bench], body: bytes
) -> None:
    _, master = pair
    remake(master, *OF_GROUP)
    response = master.names._answer

    def lying(address: str, request: Command) -> Command | str:
        if LIVES in request.fields:
            return new_response(request, 0, body=body)
        return response(address, request)

    master.names._answer = lying  # type: ignore[method-assign]
    master.world.pass_time(3_000)
    assert master.online == 0


def test_another_replica_in_a_former_life_is_not_followed(
    make: Callable[..., Bench],  # noqa: F811
) -> None:
    """The other replica acted and left before it learned of a deletion that this replica knows."""
    other = make(AS_SLAVE.replace("brokerId=1", "brokerId=2"), OTHER)
    slave = make(AS_SLAVE, SLAVE)
    other.say(_2=OTHER)
    assert other.commit(8) == 0
    pops(other, 3)
    slave.world.broker.groups.delete("G", slave.world.now_ms, with_offsets=True)
    slave.world.broker.groups.put(SubscriptionGroupConfig("G"), 2)
    slave.say(_1=SLAVE, _2=OTHER)
    assert slave.world.broker.role.is_acting
    assert (slave.offset(), len(notes(slave))) == (-1, 0)
