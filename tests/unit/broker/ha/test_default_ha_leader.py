"""Default HA between brokers with real stores."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.broker.ha.network import FILE_SIZE, Broker, Group

from turbopump.broker.config.replication_config import BrokerRole
from turbopump.broker.ha.default_ha_leader import DefaultHaLeader
from turbopump.broker.ha.options import HaOptions
from turbopump.engine.types import PutStatus
from turbopump.net.ha.replica import State

MASTER = HaOptions(
    broker_role=BrokerRole.SYNC_MASTER, bind_address="ha", ha_listen_port=9001, in_sync_replicas=2
)
SLAVE = HaOptions(broker_role=BrokerRole.SLAVE, bind_address="ha", ha_listen_port=9002)


def pair(group: Group, **changes: object) -> tuple[Broker, Broker]:
    """A master, and a slave that received the master's address from a name server."""
    master = group.add(1, replace(MASTER, **changes))  # type: ignore[arg-type]
    own = {**changes, "broker_role": BrokerRole.SLAVE}
    slave = group.add(2, replace(SLAVE, **own))  # type: ignore[arg-type]
    slave.service.set_master_address(master.address)
    group.settle(300)
    return master, slave


@pytest.mark.parametrize("sync_flush", [False, True])
@pytest.mark.parametrize("piece", [0, 7])
def test_a_slave_follows_and_acknowledges(group: Group, sync_flush: bool, piece: int) -> None:
    master, slave = pair(group, sync_flush=sync_flush)
    group.network.piece = piece
    bodies = [b"body %d" % number for number in range(200)]
    responses = [master.send(body) for body in bodies]
    assert not any(responses), "no replica has it yet"
    assert master.read() == bodies, "default HA has no confirmOffset"
    group.network.run()
    assert responses == [[PutStatus.PUT_OK]] * 200
    assert slave.read() == bodies
    assert slave.log_bytes() == master.log_bytes()
    assert slave.put().status is PutStatus.SERVICE_NOT_AVAILABLE
    assert not Path(slave.store.config.root, "epochFileCheckpoint").exists()


def test_under_sync_flush_a_slave_acknowledges_durable_bytes(group: Group) -> None:
    master, slave = pair(group, sync_flush=True)
    slave.disk.hold()
    responses = master.send()
    group.network.run()
    assert slave.log.end == master.log.end
    assert responses == []
    slave.disk.release()
    group.network.run()
    assert responses == [PutStatus.PUT_OK]


@pytest.mark.parametrize("sync_flush", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_a_slave_waits_for_its_next_log_file_without_standing_still(
    group: Group, sync_flush: bool, cut: bool
) -> None:
    """Bytes without a file yet are not acknowledged, and later events wait for them."""
    master, slave = pair(group, sync_flush=sync_flush)
    slave.disk.holds_files = True
    bodies: list[bytes] = []
    responses = []
    while master.log.end < 4 * FILE_SIZE:
        bodies.append(b"body %d " % len(bodies) + bytes(500))
        responses.append(master.send(bodies[-1]))
        group.network.run()
    assert slave.log.is_blocked
    slave_end = slave.log.end
    assert slave_end % FILE_SIZE == 0
    reached = sum(1 for one in responses if one == [PutStatus.PUT_OK])
    assert 0 < reached < len(bodies), "bytes without a file are not acknowledged"
    group.settle(500)
    assert slave.log.end == slave_end
    if cut:
        slave.shell.cut()
        group.settle(6000)
        assert slave.log.end == slave_end
    slave.disk.make_files()
    group.settle(6000)
    assert slave.log_bytes() == master.log_bytes()
    assert not slave.log.is_blocked
    if not cut:
        assert responses == [[PutStatus.PUT_OK]] * len(bodies)
    assert slave.read() == bodies


def test_an_asynchronous_master_waits_for_no_replica(group: Group) -> None:
    master, _slave = pair(group, broker_role=BrokerRole.ASYNC_MASTER)
    assert master.need() == 1
    assert master.send() == [PutStatus.PUT_OK]


def test_without_its_slave_a_synchronous_master_answers_late(group: Group) -> None:
    master, slave = pair(group)
    group.network.unreachable.add(master.address)
    slave.shell.cut()
    group.network.run()
    responses = master.send()
    group.settle(3100)
    assert responses == [PutStatus.FLUSH_SLAVE_TIMEOUT]
    group.network.unreachable.clear()
    group.settle(6000)
    assert slave.read() == master.read() == [b"body"]
    assert slave.service.status().counters.reconnects == 1


def test_an_operators_change_counts_from_then_on(group: Group) -> None:
    master, slave = pair(group)
    assert master.need() == 2
    changes = {"in_sync_replicas": 3, "ha_max_gap_not_in_sync": 1, "ha_housekeeping_interval_ms": 9}
    master.service.reconfigure(replace(MASTER, **changes))  # type: ignore[arg-type]
    slave.service.reconfigure(replace(SLAVE, **changes))  # type: ignore[arg-type]
    assert master.need() == 3
    assert isinstance(master.service.term, DefaultHaLeader)
    assert master.service.term.group.gap_max == 1
    assert slave.service.follower is not None
    assert slave.service.follower.machine.options.housekeeping_interval_ms == 9


def test_a_restarted_pair_goes_on(group: Group, tmp_path: Path) -> None:
    master, slave = pair(group)
    master.send(b"a")
    group.network.run()
    slave.stop()
    master.send(b"b")
    group.network.run()
    master.stop()
    group.network.run()
    group.brokers.clear()
    master, slave = pair(group)
    master.send(b"c")
    group.settle(500)
    assert slave.read() == master.read() == [b"a", b"b", b"c"]
    assert slave.log_bytes() == master.log_bytes()


def test_status_tells_both_sides(group: Group) -> None:
    master, slave = pair(group)
    master.send()
    group.network.run()
    status = master.service.status()
    assert status.epochs is None
    assert status.confirm == status.log_end
    assert status.leader is not None
    (one,) = status.leader.replicas
    assert (one.broker_id, one.acked, one.in_sync) == (None, master.log.end, True)
    follower = slave.service.status().follower
    assert follower is not None
    assert follower.state is State.TRANSFER
    assert follower.last_read_ms == group.network.now_ms


def test_for_how_long_a_slave_is_behind(group: Group) -> None:
    master, _slave = pair(group)

    def behind_ms() -> int:
        leader = master.service.status().leader
        assert leader is not None
        (one,) = leader.replicas
        return one.behind_ms

    master.send()
    group.settle(1_000)
    assert behind_ms() == 0
    master.send()
    group.network.now_ms += 300
    assert behind_ms() == 300
    group.network.run()
    assert behind_ms() == 0


def test_the_oldest_connection_without_a_report_makes_room(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent connections would keep replicas out."""
    monkeypatch.setattr("turbopump.broker.ha.leader.CONNECTIONS_MAX", 3)
    master, _slave = pair(group)
    term = master.service.term
    assert term is not None
    (known,) = term.links
    for connection in (1001, 1002, 1003):
        term.on_connected(connection, group.network.now_ms)
    assert list(term.links) == [known, 1002, 1003]
