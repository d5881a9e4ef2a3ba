"""AutoSwitch HA between brokers with real stores: the guarantees of a term and of a switch."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.broker.ha.network import Broker, Group

from turbopump.broker.ha.leader import Leader
from turbopump.broker.ha.options import HaOptions
from turbopump.broker.ha.ports import Agreed, DecisionUnknown, ProposalOutcome, ProposalRefused
from turbopump.engine.deferred import Deferred
from turbopump.engine.log.epochs import decode
from turbopump.engine.types import PutStatus
from turbopump.net.ha.frames import Ack, Handshake
from turbopump.net.ha.replica import State
from turbopump.net.ha.sync_state import Proposal

SAFE = HaOptions(
    enable_controller_mode=True,
    bind_address="ha",
    all_ack_in_sync_state_set=True,
    min_in_sync_replicas=1,
)
PAIR = frozenset({1, 2})


class Decider:
    """A controller that answers proposals as a test sets it: with a set, or not yet."""

    def __init__(self) -> None:
        self.asked: list[Proposal] = []
        self.waiting: list[Deferred[ProposalOutcome]] = []

    def propose(self, proposal: Proposal) -> Deferred[ProposalOutcome]:
        later: Deferred[ProposalOutcome] = Deferred()
        self.asked.append(proposal)
        self.waiting.append(later)
        return later

    def answer(self, response: ProposalOutcome) -> None:
        self.waiting.pop(0).resolve(response)

    def agree(self) -> None:
        proposal = self.asked[-1]
        self.answer(Agreed(proposal.members, proposal.set_epoch + 1))


def options(number: int, **changes: object) -> HaOptions:
    return replace(SAFE, own_id=number, ha_listen_port=9000 + number, **changes)  # type: ignore[arg-type]


def pair(
    group: Group, *, decider: Decider | None = None, **changes: object
) -> tuple[Broker, Broker]:
    """A master of epoch 1, and a replica that has caught up; both in the set."""
    master = group.add(1, options(1, **changes), decider)
    replica = group.add(2, options(2, **changes), decider)
    master.service.to_master(1, PAIR, 1)
    replica.service.to_replica(master.address, 1)
    group.settle(300)
    return master, replica


def switch(group: Group, old: Broker, new: Broker, epoch: int) -> None:
    new.service.to_master(epoch, PAIR, epoch)
    old.service.to_replica(new.address, epoch)
    group.settle(300)


def alike(one: Broker, other: Broker) -> None:
    assert one.log_bytes() == other.log_bytes()
    names = ("epochFileCheckpoint", "epochFileCheckpoint.bak")
    for name in names:
        texts = [Path(each.store.config.root, name).read_bytes() for each in (one, other)]
        assert len({decode(text)[0] for text in texts}) == 1


@pytest.mark.parametrize("sync_flush", [False, True])
@pytest.mark.parametrize("piece", [0, 7])
def test_a_send_is_answered_when_the_replica_has_it(
    group: Group, sync_flush: bool, piece: int
) -> None:
    master, replica = pair(group, sync_flush=sync_flush)
    group.network.piece = piece
    responses = [master.send(b"body %d" % number) for number in range(50)]
    assert not any(responses), "no replica has it yet"
    assert master.read() == []
    group.network.run()
    assert responses == [[PutStatus.PUT_OK]] * 50
    bodies = [b"body %d" % number for number in range(50)]
    assert master.read() == bodies
    assert replica.read() == bodies, "the replica learned at once how far readers may go"
    assert replica.log.confirm == master.log.confirm == master.log.end
    alike(master, replica)


def test_a_silent_replica_holds_the_senders_until_their_time_is_over(group: Group) -> None:
    master, replica = pair(group)
    replica.shell.cut()
    group.network.unreachable.add(master.address)
    group.network.run()
    responses = master.send()
    group.settle(2900)
    assert responses == []
    group.settle(300)
    assert responses == [PutStatus.FLUSH_SLAVE_TIMEOUT]
    assert master.read() == [], "not confirmed: it may still vanish"


def test_demotion_fails_waiting_sends_and_fences_pending_ones(group: Group) -> None:
    master, replica = pair(group)
    responses = master.send(b"lost")
    before = master.log.confirm
    assert master.shell.ends
    master.service.to_replica("", 2)
    assert not master.shell.ends, "cut before the log may be"
    assert responses == [PutStatus.SERVICE_NOT_AVAILABLE]
    group.network.run()
    assert master.log.confirm == before
    assert master.put().status is PutStatus.SERVICE_NOT_AVAILABLE
    replica.service.to_master(2, PAIR, 2)
    master.service.to_replica(replica.address, 2)
    group.settle(300)
    alike(master, replica)


def test_a_replica_that_becomes_the_master_leaves_the_old_one(group: Group) -> None:
    _master, replica = pair(group)
    assert replica.shell.ends
    replica.service.to_master(2, PAIR, 2)
    assert not replica.shell.ends


def test_a_new_master_may_lack_confirmed_bytes_unless_all_must_have_them(group: Group) -> None:
    master, replica = pair(group, all_ack_in_sync_state_set=False)
    group.network.unreachable.add(master.address)
    replica.shell.cut()
    group.network.run()
    assert master.send(b"alone") == [PutStatus.PUT_OK]
    group.settle(100)
    assert master.read() == [b"alone"]
    switch(group, master, replica, 2)
    assert master.read() == []
    alike(master, replica)


def test_a_log_that_cannot_be_read_costs_the_connection(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, replica = pair(group)

    def full(*_args: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(master.log, "view", full)
    responses = master.send()
    group.network.run()
    assert not master.shell.ends
    monkeypatch.undo()
    group.settle(1000)
    assert responses == [PutStatus.PUT_OK]
    alike(master, replica)


def test_bytes_only_the_old_master_had_are_cut(group: Group) -> None:
    master, replica = pair(group)
    master.send(b"both have it")
    group.network.run()
    group.network.unreachable.add(master.address)
    replica.shell.cut()
    group.network.run()
    responses = [master.send(b"this was not acknowledged") for _ in range(30)]
    group.settle(100)
    switch(group, master, replica, 2)
    assert responses == [[PutStatus.SERVICE_NOT_AVAILABLE]] * 30
    kept = replica.send(b"of epoch 2")
    group.settle(100)
    assert kept == [PutStatus.PUT_OK]
    alike(master, replica)
    assert master.read() == replica.read() == [b"both have it", b"of epoch 2"]
    assert master.service.status().counters.truncated_bytes > 0


def test_many_switches_under_load_keep_every_answered_send(group: Group) -> None:
    master, replica = pair(group)
    sent: list[tuple[bytes, list[PutStatus]]] = []
    for epoch in range(2, 32):
        for number in range(3):
            body = b"%d of epoch %d" % (number, epoch)
            sent.append((body, master.send(body)))
            if number == epoch % 3:
                group.network.run()
        switch(group, master, replica, epoch)
        master, replica = replica, master
    group.settle(200)
    alike(master, replica)
    read = master.read()
    assert len(read) == len(set(read))
    promised = [body for body, responses in sent if responses == [PutStatus.PUT_OK]]
    assert len(promised) >= 30
    assert set(promised) <= set(read)
    assert [entry.epoch for entry in master.log.epochs][:1] == [1]
    assert master.log.epochs.last_epoch == 31


def test_the_same_master_is_elected_again(group: Group) -> None:
    master, replica = pair(group)
    first = master.send(b"a")
    group.network.run()
    master.service.to_master(2, PAIR, 2)
    second = master.send(b"b")
    replica.service.to_replica(master.address, 2)
    group.settle(500)
    assert first == second == [PutStatus.PUT_OK]
    assert master.read() == [b"a", b"b"]
    alike(master, replica)


def test_an_acknowledgement_of_before_counts_for_nothing(group: Group) -> None:
    master, replica = pair(group)
    term = master.service.term
    assert term is not None
    old = list(term.links)
    master.service.to_master(2, PAIR, 2)
    responses = master.send()
    confirm = master.log.confirm
    for connection in old:
        master.service.on_bytes(connection, Ack(master.log.end).encode())
        term.on_bytes(connection, Ack(master.log.end).encode(), group.network.now_ms)
    term.on_tick(group.network.now_ms)
    assert not term.links
    assert responses == []
    assert master.log.confirm == confirm
    replica.service.to_replica(master.address, 2)
    group.settle(300)
    assert responses == [PutStatus.PUT_OK]


def test_a_replica_leaves_the_set_and_joins_again(group: Group) -> None:
    decider = Decider()
    master, replica = pair(group, decider=decider)
    replica.shell.cut()
    group.network.unreachable.add(master.address)
    group.network.run()
    assert decider.asked[-1].members == {1}
    waiting = master.send(b"while it is away")
    assert waiting == [], "until the controller agrees the replica counts"
    decider.agree()
    assert waiting == [PutStatus.PUT_OK]
    assert master.need() is not None
    group.network.unreachable.clear()
    group.settle(6000)
    assert decider.asked[-1].members == PAIR
    decider.answer(DecisionUnknown("nothing arrived"))
    group.network.unreachable.add(master.address)
    replica.shell.cut()
    group.network.run()
    unsure = master.send(b"the set may be either")
    group.settle(2000)
    assert unsure == [], "R01: the lost proposal may be the set by now"
    status = master.service.status()
    assert status.leader is not None
    assert status.leader.members == {1}
    assert status.counters.set_changes == 1


def test_a_refused_proposal_is_dead(group: Group) -> None:
    decider = Decider()
    master, replica = pair(group, decider=decider)
    replica.shell.cut()
    group.network.unreachable.add(master.address)
    group.network.run()
    decider.answer(ProposalRefused("not now"))
    count = len(decider.asked)
    group.settle(1500)
    assert len(decider.asked) == count + 1, "proposed again"


def test_too_few_replicas_are_told_before_anything_is_written(group: Group) -> None:
    decider = Decider()
    master = group.add(1, options(1, min_in_sync_replicas=2), decider)
    master.service.to_master(1, frozenset({1}), 1)
    assert master.need() is None


def test_a_connection_that_claims_to_be_the_master_is_closed(group: Group) -> None:
    master, _replica = pair(group)
    connection = master.shell._new().number
    master.service.on_accepted(connection)
    master.service.on_bytes(connection, Handshake(1).encode())
    assert connection not in master.shell.ends
    assert connection not in master.service.term.links  # type: ignore[union-attr]


def test_a_newer_connection_of_a_replica_takes_the_older_ones_place(group: Group) -> None:
    master, _replica = pair(group)
    (old,) = master.service.term.links  # type: ignore[union-attr]
    connection = master.shell._new().number
    master.service.on_accepted(connection)
    master.service.on_bytes(connection, Handshake(2).encode())
    assert list(master.service.term.links) == [connection]  # type: ignore[union-attr]
    assert old not in master.shell.ends


def test_a_slow_replica_delays_no_other(group: Group) -> None:
    trio = frozenset({1, 2, 3})
    relaxed = {"all_ack_in_sync_state_set": False, "in_sync_replicas": 2}
    master = group.add(1, options(1, **relaxed))
    fast, slow = group.add(2, options(2, **relaxed)), group.add(3, options(3, **relaxed))
    master.service.to_master(1, trio, 1)
    for one in (fast, slow):
        one.service.to_replica(master.address, 1)
    group.settle(300)
    links = master.service.term.links  # type: ignore[union-attr]
    (to_slow,) = [number for number, link in links.items() if link.broker_id == 3]
    master.shell.blocked.add(to_slow)
    responses = [master.send(b"the last one it takes")]
    group.network.run()
    responses += [master.send(b"x" * 1000) for _ in range(100)]
    group.network.run()
    assert responses == [[PutStatus.PUT_OK]] * 101
    assert fast.log.end == master.log.end
    assert slow.log.end < master.log.end
    master.shell.take_more()
    group.settle(300)
    assert slow.log.end == master.log.end


def test_flow_control_bounds_the_bytes_a_replica_is_sent_in_a_second(group: Group) -> None:
    limit = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": 5000}
    master, replica = pair(group, **limit)
    for _ in range(20):
        master.send(b"x" * 1000)
    begin = replica.log.end
    group.network.run()
    assert replica.log.end - begin <= 5000
    group.settle(1000)
    assert 5000 <= replica.log.end - begin <= 10_000
    group.settle(4000)
    assert replica.log.end == master.log.end


def test_an_operators_change_counts_from_then_on(group: Group) -> None:
    master, replica = pair(group)
    assert master.need() is not None
    limit = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": 5000}
    times = {"ha_max_time_slave_not_catchup_ms": 700, "ha_housekeeping_interval_ms": 900}
    changed = options(9, min_in_sync_replicas=3, slave_timeout_ms=50, **limit, **times)
    master.service.reconfigure(changed)
    replica.service.reconfigure(changed)
    assert master.need() is None
    assert (master.service.options.own_id, replica.service.options.own_id) == (1, 2)
    master.service.reconfigure(options(9, **limit, **times))
    assert master.need() is not None
    group.settle(1000)
    begin = replica.log.end
    for _ in range(20):
        master.send(b"x" * 1000)
    group.network.run()
    assert replica.log.end - begin <= 5000
    assert isinstance(master.service.term, Leader)
    assert master.service.term.sync.options.max_time_not_caught_up_ms == 700
    assert replica.service.follower is not None
    assert replica.service.follower.machine.options.housekeeping_interval_ms == 900


def test_status_tells_both_sides(group: Group) -> None:
    master, replica = pair(group)
    master.send()
    group.network.run()
    leader = master.service.status().leader
    assert leader is not None
    (one,) = leader.replicas
    assert (one.broker_id, one.acked, one.in_sync, one.behind_ms) == (2, master.log.end, True, 0)
    status = replica.service.status()
    assert status.leader is None
    assert status.follower is not None
    assert status.follower.state is State.TRANSFER
    assert status.follower.master_address == master.address
    assert status.epochs == master.log.epochs


def test_a_replica_whose_log_cannot_be_written_waits_and_says_why(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, replica = pair(group)
    assert replica.service.follower is not None

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replica.log, "append", full)
    responses = master.send()
    group.network.run()
    assert responses == []
    machine = replica.service.follower.machine
    assert machine.state is State.SUSPEND
    assert "No space" in machine.reason
    monkeypatch.undo()
    group.settle(6000)
    assert machine.state is State.TRANSFER
    alike(master, replica)


def test_under_sync_flush_a_replica_acknowledges_durable_bytes(group: Group) -> None:
    master, replica = pair(group, sync_flush=True)
    replica.disk.hold()
    responses = master.send()
    group.network.run()
    assert replica.log.end == master.log.end
    assert responses == []
    replica.disk.release()
    group.network.run()
    assert responses == [PutStatus.PUT_OK]


def test_under_sync_flush_a_masters_own_bytes_count_once_they_are_durable(group: Group) -> None:
    master, replica = pair(group, sync_flush=True)
    master.disk.hold()
    master.send()
    group.network.run()
    assert replica.log.flushed == replica.log.end == master.log.end
    assert master.log.confirm < master.log.end
    assert replica.read() == master.read() == []
    master.disk.release()
    group.network.run()
    assert replica.read() == master.read() == [b"body"]


def test_under_sync_flush_the_handshake_waits_for_the_disk(group: Group) -> None:
    """The first acknowledgement covers the whole log, which must be durable by then."""
    master, replica = pair(group, sync_flush=True)
    replica.disk.hold()
    responses = master.send()
    group.network.run()
    replica.shell.cut()
    group.settle(1000)
    assert responses == []
    assert replica.service.follower is not None
    assert replica.service.follower.machine.state is State.READY
    replica.disk.release()
    group.settle(1000)
    assert responses == [PutStatus.PUT_OK]


def test_a_replica_whose_disk_does_not_keep_up_reads_no_more(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, replica = pair(group)
    monkeypatch.setattr("turbopump.engine.log.group_commit.UNFLUSHED_MAX", 10_000)
    assert replica.service.follower is not None
    connection = replica.service.follower.connection
    replica.disk.hold()
    for _ in range(12):
        master.send(b"x" * 1000)
    group.network.run()
    assert replica.shell.paused == {connection}
    group.settle(300)
    assert replica.shell.paused == {connection}
    replica.disk.release()
    group.settle(300)
    assert replica.shell.paused == set()
    alike(master, replica)


def test_a_damaged_log_is_not_copied(group: Group) -> None:
    master, replica = pair(group)
    master.send(b"a" * 100)
    group.network.run()
    (path,) = Path(master.store.config.root, "commitlog").glob("0" * 20)
    with path.open("r+b") as file:
        file.seek(master.log.end - 50)
        file.write(b"b")
    master.store.check_log()
    assert master.log.damage is not None
    group.settle(300)
    assert not master.service.term.links  # type: ignore[union-attr]
    connection = master.shell._new().number
    master.service.on_accepted(connection)
    assert connection not in master.shell.ends, "nor later"
    assert replica.log.damage is None
