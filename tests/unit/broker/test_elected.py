"""Sends and pulls of a broker whose master is elected: without a role, and without a lease."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.lane.world import Driven, frame_of
from tests.unit.broker.conftest import World
from tests.unit.broker.replicas import Nowhere
from tests.unit.broker.traffic.test_fast_path import SEND, code
from tests.unit.broker.traffic.test_role import send

from turbopump.broker.ha.leader import Leader, LeaderOptions, MasterTermDeps
from turbopump.broker.ha.ports import StaticSet
from turbopump.broker.traffic.replies import REJECTED
from turbopump.net.ha.acks import AckRules, Mode
from turbopump.net.ha.sync_state import SyncOptions
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pull import (
    SUBSCRIPTION_FLAG,
    PullMessageRequest,
    PullMessageResponse,
)

ELECTED = "enableControllerMode=true\ncontrollerAddr=127.0.0.1:9878\n"
Make = Callable[..., World]


class Elected:
    """The part of broker/ha that an election drives, on a real log; replica 2 is in the set and
    silent."""

    def __init__(self, world: World, members: frozenset[int] = frozenset({1})) -> None:
        self.world = world
        self.lease = True
        self.members = members
        self.log = world.broker.store.as_replicated(world.now_ms)
        self.leader: Leader
        self._epochs = itertools.count(1)
        world.broker.role.has_lease = lambda: self.lease
        self.log.on_appended.append(lambda: self.leader.pump(world.steady_ms))
        world.ticks.append(self._tick)

    def lead(self) -> None:
        world, epoch = self.world, next(self._epochs)
        start = self.log.to_master(epoch, world.now_ms)
        self.leader = Leader(
            MasterTermDeps(
                log=self.log,
                rules=AckRules(Mode.CONTROLLER, all_ack_in_sync_state_set=True),
                options=LeaderOptions(),
                transport=Nowhere(),
                wall_ms=lambda: world.now_ms,
                now_ms=world.steady_ms,
                has_lease=lambda: self.lease,
            ),
            SyncOptions(1),
            StaticSet(),
            members=self.members,
            set_epoch=1,
            epoch_start=start,
        )
        world.broker.role.become_master(self.leader)
        self.leader.pump(world.steady_ms)

    def lapse(self) -> None:
        self.lease = False
        self.leader.on_lease_ended()

    def renew(self) -> None:
        self.lease = True
        self.leader.on_lease_granted()

    def _tick(self, now_ms: int) -> None:
        if hasattr(self, "leader"):
            self.leader.on_tick(now_ms)


def pull(world: World) -> int:
    header = PullMessageRequest("G", "TBW102", 0, 0, 32, SUBSCRIPTION_FLAG, 0, 0, 0, "*")
    return world.ask(RequestCode.PULL_MESSAGE, header).code


def test_nothing_is_served_before_the_role_is_known(make_world: Make) -> None:
    world = make_world(ELECTED)
    assert not world.broker.role.is_master
    response = send(world)
    assert (response.value.code, response.value.remark) == (ResponseCode.SYSTEM_BUSY, REJECTED)
    assert pull(world) == ResponseCode.NO_PERMISSION
    elected = Elected(world)
    elected.lead()
    assert send(world).value.code == ResponseCode.SUCCESS
    assert pull(world) == ResponseCode.PULL_NOT_FOUND


def test_a_replica_serves_readers_under_its_id(make_world: Make) -> None:
    world = make_world(ELECTED)
    Elected(world)
    world.broker.role.become_replica(3)
    assert world.broker.role.broker_id == 3
    assert send(world).value.code == ResponseCode.SYSTEM_BUSY
    assert pull(world) == ResponseCode.PULL_NOT_FOUND


def test_role_and_id_of_the_file_do_not_count(make_world: Make) -> None:
    world = make_world(f"{ELECTED}brokerRole=SLAVE\nbrokerId=7\n")
    Elected(world).lead()
    assert world.broker.role.broker_id == 0
    assert send(world).value.code == ResponseCode.SUCCESS


def test_without_a_lease_nothing_is_written(make_world: Make) -> None:
    world = make_world(ELECTED)
    elected = Elected(world)
    elected.lead()
    elected.lapse()
    end = world.broker.store.max_log_offset
    assert send(world).value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert world.broker.store.max_log_offset == end
    assert pull(world) == ResponseCode.PULL_NOT_FOUND, "confirmed messages may be read"
    elected.renew()
    assert send(world).value.code == ResponseCode.SUCCESS


def test_without_a_lease_no_reader_is_sent_back(make_world: Make) -> None:
    """A different broker may be master by now, and have the messages that the consumer has read."""
    world = make_world(ELECTED)
    elected = Elected(world)
    elected.lead()
    assert send(world).value.code == ResponseCode.SUCCESS

    def ahead() -> tuple[int, int]:
        header = PullMessageRequest("G", "TBW102", 0, 9, 32, SUBSCRIPTION_FLAG, 0, 0, 0, "*")
        response = world.ask(RequestCode.PULL_MESSAGE, header)
        return response.code, read_header(PullMessageResponse, response.fields).next_begin_offset

    sent_back = ahead()
    assert (sent_back[0], sent_back[1] < 9) == (ResponseCode.PULL_OFFSET_MOVED, True)
    elected.lapse()
    assert ahead() == (ResponseCode.PULL_NOT_FOUND, 9)
    elected.renew()
    assert ahead() == sent_back


def test_a_send_that_waits_when_the_lease_ends_gets_an_error(make_world: Make) -> None:
    world = make_world(ELECTED)
    elected = Elected(world, frozenset({1, 2}))
    elected.lead()
    response = send(world)
    assert not response.done
    elected.lapse()
    assert response.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.fixture
def driven(make_world: Make) -> Iterator[Driven]:
    """A connection to an elected master whose simple sends are native and wait for replica 2."""
    world = make_world(ELECTED)
    elected = Elected(world, frozenset({1, 2}))
    elected.lead()
    connection = Driven(world)
    connection.elected = elected  # type: ignore[attr-defined]
    plain(connection, 0)
    plain(connection, 1)
    assert connection.lane.send_count == 1
    yield connection
    connection.near.close()
    connection.far.close()


def plain(driven: Driven, opaque: int, **changes: Any) -> None:
    driven.feed(frame_of({**SEND, **changes}, opaque), 1 << 20)


def test_native_sends_end_with_the_lease_too(driven: Driven) -> None:
    elected: Elected = driven.elected  # type: ignore[attr-defined]
    plain(driven, 2)
    assert code(driven, 2) is None
    elected.lapse()
    assert code(driven, 2) == ResponseCode.SERVICE_NOT_AVAILABLE
    end = driven.world.broker.store.max_log_offset
    for opaque in (3, 4):
        plain(driven, opaque)
        assert code(driven, opaque) == ResponseCode.SERVICE_NOT_AVAILABLE
    assert driven.world.broker.store.max_log_offset == end


@pytest.mark.parametrize("again", [False, True])
def test_native_sends_end_with_the_term_too(driven: Driven, again: bool) -> None:
    """A different broker is elected during the lease, or the same one again with a later epoch."""
    elected: Elected = driven.elected  # type: ignore[attr-defined]
    plain(driven, 2)
    assert code(driven, 2) is None
    elected.leader.end_term()
    elected.log.to_replica(driven.world.now_ms)
    if again:
        elected.lead()
    else:
        driven.world.broker.role.become_replica(1)
    assert code(driven, 2) == ResponseCode.SERVICE_NOT_AVAILABLE


def test_an_acknowledgement_releases_no_native_send_without_a_lease(driven: Driven) -> None:
    elected: Elected = driven.elected  # type: ignore[attr-defined]
    plain(driven, 2)
    elected.lease = False
    elected.leader.on_set(frozenset({1}), 2, driven.world.steady_ms)
    assert code(driven, 2) is None, "all have it, but the answer may not be sent"
    end = driven.world.broker.store.max_log_offset
    plain(driven, 3)
    assert code(driven, 3) == ResponseCode.SYSTEM_ERROR, "as if replicas were missing"
    assert driven.world.broker.store.max_log_offset == end
    elected.renew()
    assert code(driven, 2) == 0
