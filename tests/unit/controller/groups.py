"""Brokers and a quorum for tests of the controller's parts; a test sets the live brokers."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from turbopump.controller import elections, registration
from turbopump.controller.config import ControllerConfig
from turbopump.controller.core import ControllerCore
from turbopump.controller.death_probe import Probed
from turbopump.controller.elections import Decision
from turbopump.controller.liveness import NO_EPOCHS, BrokerReport, Epochs
from turbopump.controller.state import Group, GroupTables
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import StoreHealth
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, decode, encode, new_request
from turbopump.net.wire.controller import SyncStateSet
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers import controller as headers
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

CLUSTER, NAME = "c", "b"


@dataclass
class Alive:
    """elections.Liveness for tests: brokers in `ids` sent a heartbeat just now, `stale` ones a
    while ago; `silent` ones count as alive without one; `cold` ones never sent this controller
    any."""

    ids: set[int] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    logs: dict[int, BrokerReport] = field(default_factory=dict)
    unfit: dict[int, StoreHealth] = field(default_factory=dict)
    sets: dict[int, int] = field(default_factory=dict)
    cold: set[int] = field(default_factory=set)
    away: list[BrokerReport] = field(default_factory=list)
    young: bool = False
    marked: dict[int, int] = field(default_factory=dict)
    fast: set[int] = field(default_factory=set)
    settled: bool = True

    def has_recent_heartbeat(self, group: Group, broker_id: int) -> bool:
        return broker_id in self.ids

    def is_active(self, group: Group, broker_id: int) -> bool:
        return broker_id in self.ids | self.stale

    def may_be_alive(self, group: Group, broker_id: int) -> bool:
        return broker_id in self.ids | self.stale | self.silent

    def newest_report(self, group: Group, broker_id: int) -> BrokerReport | None:
        return self.logs.get(broker_id) if broker_id in self.ids | self.stale else None

    def last_epochs(self, group: Group, broker_id: int) -> Epochs:
        report = self.logs.get(broker_id)
        if report is None or not report.leased:
            return NO_EPOCHS
        return report.epoch, self.sets.get(broker_id, -1)

    def may_tell(self, group: Group, broker_id: int) -> bool:
        return broker_id in self.cold

    def unregistered_reports(self, group: Group) -> list[BrokerReport]:
        return self.away

    def is_young(self) -> bool:
        return self.young

    def is_marked(self, group: Group, broker_id: int, life: int | None) -> bool:
        return life is not None and life == self.marked.get(broker_id)

    def reported_health(self, group: Group, broker_id: int) -> StoreHealth:
        return self.unfit.get(broker_id, StoreHealth.FIT)

    def reports_fast(self, group: Group, broker_id: int) -> bool:
        return broker_id in self.fast

    def is_settled(self, group: Group) -> bool:
        return self.settled

    def tell(
        self,
        broker_id: int,
        epoch: int,
        max_offset: int,
        priority: int = 2**31 - 1,
        *,
        leased: bool = False,
    ) -> None:
        self.logs[broker_id] = BrokerReport(
            0, 0, 10_000, epoch, max_offset, priority=priority, leased=leased
        )


class Leader:
    """Tables and the decisions on them, each applied at once."""

    def __init__(self) -> None:
        self.tables = GroupTables()
        self.live = Alive()
        self.unclean = False

    @property
    def group(self) -> Group:
        return self.tables.groups[NAME]

    @property
    def epochs(self) -> tuple[int, int]:
        return self.group.master_epoch, self.group.set_epoch

    def take(self, decision: Decision) -> Decision:
        for event in decision.events:
            self.tables.apply_event(event)
        return decision

    def join(self, broker_id: int) -> Decision:
        """Register a new broker in three steps."""
        asked = headers.GetNextBrokerIdRequest(CLUSTER, NAME)
        assert self.take(registration.next_id(self.tables, asked)).header.next_broker_id == (
            broker_id
        )
        code = f"a:{broker_id};7"
        apply = headers.ApplyBrokerIdRequest(CLUSTER, NAME, broker_id, code)
        assert self.take(registration.apply_id(self.tables, apply)).code == 0
        return self.register(broker_id)

    def register(self, broker_id: int, **extra: Any) -> Decision:
        header = headers.RegisterBrokerToControllerRequest(
            CLUSTER, NAME, broker_id, f"a:{broker_id}", **extra
        )
        return self.take(registration.register(self.tables, header, self.live))

    def elect(self, broker_id: int = -1, designate: bool = False) -> Decision:
        header = headers.ElectMasterRequest(NAME, CLUSTER, broker_id, designate)
        return self.take(
            elections.decide_election(self.tables, header, self.live, unclean=self.unclean)
        )

    def alter(
        self,
        members: set[int],
        epochs: tuple[int, int] | None = None,
        master: int | None = None,
        *,
        fence: bool | None = None,
    ) -> Decision:
        master_epoch, set_epoch = epochs or self.epochs
        master = self.group.master_id if master is None else master
        header = headers.AlterSyncStateSetRequest(NAME, master or 0, master_epoch, fence=fence)
        wanted = SyncStateSet(frozenset(members), set_epoch)
        return self.take(elections.decide_alter(self.tables, header, wanted, self.live))

    def clean(self, ids: str | None = None, living: bool = False, name: str = NAME) -> Decision:
        header = headers.CleanBrokerDataRequest(name, CLUSTER, ids, living)
        return self.take(registration.decide_clean(self.tables, header, self.live))

    def look(self) -> Decision | None:
        decision = elections.decide_without_request(
            self.tables, NAME, self.live, unclean=self.unclean
        )
        return None if decision is None else self.take(decision)


def set_up(alter: bool = True) -> Leader:
    """Setup S of controller.md 3.6: three brokers, 1 is master, all in sync."""
    leader = Leader()
    leader.live.ids = {1, 2, 3}
    for broker_id in (1, 2, 3):
        assert leader.join(broker_id).header.master_broker_id is None
    won = leader.elect(1)
    assert won.code == 0
    assert (won.header.master_broker_id, leader.epochs) == (1, (1, 1))
    for broker_id in (2, 3):
        decision = leader.elect(broker_id)
        assert decision.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        assert decision.header.master_broker_id == 1
    if alter:
        assert leader.alter({1, 2, 3}).header.new_sync_state_set_epoch == 2
    return leader


@dataclass(frozen=True)
class Done:
    index: int


@dataclass(frozen=True)
class Refused:
    reason: str


@dataclass(frozen=True)
class Entry:
    index: int
    term: int
    body: bytes


class Quorum:
    """A replicated log that commits when the test calls it."""

    def __init__(self) -> None:
        self.is_leader = False
        self.leader_id: str | None = None
        self.term = 1
        self.peers = {"n0": "h:1", "n1": "h:2"}
        self.sure = True
        self.entries: list[Entry] = []
        self.waiting: list[tuple[Entry, Deferred[object]]] = []
        self.refuse = ""

    def has_quorum(self, now_ms: int) -> bool:
        return self.is_leader and self.sure

    def append(self, body: bytes) -> Deferred[object]:
        later: Deferred[object] = Deferred()
        if self.refuse:
            later.resolve(Refused(self.refuse))
            return later
        entry = Entry(len(self.entries), 1, body)
        self.entries.append(entry)
        self.waiting.append((entry, later))
        return later


class Ports:
    """Results of connections to brokers; with `found` None the probes stay pending."""

    def __init__(self, found: Probed | None = Probed.REFUSED) -> None:
        self.found = found
        self.asked: list[str] = []
        self.waiting: list[Deferred[Probed]] = []

    def probe(self, address: str) -> Deferred[Probed]:
        self.asked.append(address)
        later: Deferred[Probed] = Deferred()
        if self.found is None:
            self.waiting.append(later)
        else:
            later.resolve(self.found)
        return later


class Node:
    """A core on top of that log; requests and responses pass through the wire format."""

    def __init__(self, **options: object) -> None:
        self.quorum = Quorum()
        self.sent: list[tuple[str, Command]] = []
        self.core = ControllerCore(
            ControllerConfig(group="g", **options),
            self.quorum,  # type: ignore[arg-type]
            lambda address, command: self.sent.append((address, over_the_wire(command))),
            self.probe,
        )
        self.ports = Ports()
        self.now_ms = 1_000_000
        self.auto = True

    def probe(self, address: str) -> Deferred[Probed]:
        return self.ports.probe(address)

    def lead(self, leads: bool = True) -> None:
        self.quorum.is_leader = leads
        self.quorum.leader_id = "n0" if leads else None
        self.core.on_leader(leads)

    def commit(self) -> None:
        """Commit all proposals, including the ones that they lead to."""
        while self.quorum.waiting:
            entry, later = self.quorum.waiting.pop(0)
            self.core.on_applied(entry)
            later.resolve(Done(entry.index))

    def ask(
        self, code: int, header: object = None, body: bytes = b"", connection: int = 0
    ) -> Deferred[Command]:
        request = over_the_wire(new_request(code, header, body))
        response = self.core.on_request(connection, request, self.now_ms)
        if isinstance(response, Generator):
            response = run_to_result(response)
        if self.auto:
            self.commit()
        return response.map(over_the_wire)

    def tick(self, after_ms: int = 0) -> None:
        """Advance the clock and tick twice: the second tick judges brokers after the input was
        read."""
        self.now_ms += after_ms
        self.core.on_tick(self.now_ms)
        self.core.on_tick(self.now_ms)
        if self.auto:
            self.commit()

    def close(self, connection: int) -> None:
        self.core.on_closed(connection, self.now_ms)
        if self.auto:
            self.commit()

    def beat(self, *values: Any, **named: Any) -> headers.BrokerHeartbeatResponse:
        """Send a heartbeat that is answered at once; see `beat_later`."""
        return answered(self.beat_later(*values, **named))

    def beat_later(
        self,
        broker_id: int,
        epoch: int = 1,
        max_offset: int = 100,
        connection: int | None = None,
        timeout_ms: int | None = None,
        *,
        leased: bool | None = None,
        unfit: str | None = None,
        standing: int | None = None,
        slow: bool | None = None,
    ) -> Deferred[Command]:
        """Send a heartbeat whose response may wait for a log entry."""
        header = BrokerHeartbeatRequest(
            CLUSTER,
            f"a:{broker_id}",
            NAME,
            broker_id,
            epoch,
            max_offset,
            max_offset,
            timeout_ms,
            leased=leased,
            unfit=unfit,
            standing=standing,
            slow=slow,
        )
        number = broker_id if connection is None else connection
        return self.ask(RequestCode.BROKER_HEARTBEAT, header, connection=number)

    def join(self, broker_id: int) -> None:
        """Register a broker in three steps and send its first heartbeat."""
        apply = headers.ApplyBrokerIdRequest(CLUSTER, NAME, broker_id, f"a:{broker_id};7")
        assert self.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply).value.code == 0
        assert self.register(broker_id).code == 0
        self.beat(broker_id, epoch=-1, max_offset=0)

    def register(self, broker_id: int, **extra: Any) -> Command:
        header = headers.RegisterBrokerToControllerRequest(
            CLUSTER, NAME, broker_id, f"a:{broker_id}", **extra
        )
        code = RequestCode.CONTROLLER_REGISTER_BROKER
        return self.ask(code, header, connection=broker_id).value

    def elect(self, broker_id: int) -> Command:
        header = headers.ElectMasterRequest(NAME, CLUSTER, broker_id)
        code = RequestCode.CONTROLLER_ELECT_MASTER
        return self.ask(code, header, connection=broker_id).value

    def alter(self, *members: int) -> Command:
        group = self.core.tables.groups[NAME]
        header = headers.AlterSyncStateSetRequest(NAME, group.master_id or 0, group.master_epoch)
        body = SyncStateSet(frozenset(members), group.set_epoch).encode()
        code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
        return self.ask(code, header, body, connection=group.master_id or 0).value

    @property
    def group(self) -> Group:
        return self.core.tables.groups[NAME]


def answered(later: Deferred[Command]) -> headers.BrokerHeartbeatResponse:
    """The header of a heartbeat's response."""
    assert later.value.code == 0
    return read_header(headers.BrokerHeartbeatResponse, later.value.fields)


def over_the_wire(command: Command) -> Command:
    return decode(b"".join(encode(command)))


def running(**options: object) -> Node:
    """A leader with three brokers in sync, 1 the master."""
    node = Node(**options)
    node.lead()
    node.tick()
    for broker_id in (1, 2, 3):
        node.join(broker_id)
    assert node.elect(1).code == 0
    assert node.alter(1, 2, 3).code == 0
    for broker_id in (1, 2, 3):
        node.beat(broker_id)
    node.sent.clear()
    return node
