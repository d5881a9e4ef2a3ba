"""Machines of a group whose replicas act: name servers, brokers, and consumers that commit.

Brokers and name servers are made of the real parts, connected as in their processes. The invariants
are in `model.py`.
"""

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.disk_parts import saved_at_once
from tests.sim.acting.model import Where
from tests.sim.acting.routing import address_of
from tests.sim.broker.parts import ROOT, SimParts, open_store
from tests.sim.broker.remakes import Life
from tests.sim.disk import SimDisk
from tests.sim.group.machines import CALL_TIMEOUT_MS, Process
from tests.sim.ha.net import Link, Wire
from tests.sim.work import QueuedDisk
from turbopump.broker.config.config import BrokerConfig, load_config
from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.control.previous_shutdown import PreviousShutdown
from turbopump.broker.lifecycle.replication_setup import (
    ReplicationSetup,
    options_of,
)
from turbopump.broker.registration.registration import RETRY_MS, Registration, Work
from turbopump.engine.deferred import Deferred
from turbopump.engine.store import Store
from turbopump.namesrv import handlers
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.handlers import NameServer
from turbopump.namesrv.key_values import KeyValues
from turbopump.namesrv.route_rows import Notice
from turbopump.namesrv.routes import RouteTable
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.offsets import (
    GetMaxOffsetRequest,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from turbopump.net.wire.headers.routes import (
    NotifyMinBrokerIdChangeRequest,
)
from turbopump.net.wire.headers.send import SendMessageRequestV2

if TYPE_CHECKING:
    from tests.sim.acting.suite import Run

GROUP, TOPIC, READERS = "broker", "T", "g"
QUEUES = 2
BEAT_MS = 500
DEAD_MS = 3_000
REGISTER_MS = 5_000
SAVE_MS = 1_500
UNKNOWN_TO_OLD = {RequestCode.GET_BROKER_MEMBER_GROUP, RequestCode.BROKER_HEARTBEAT}
TEXT = (
    f"storePathRootDir={ROOT}\nbrokerName={GROUP}\nbrokerIP1=127.0.0.1\nnamesrvAddr=%s\n"
    "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=800\nmaxHashSlotNum=16\n"
    f"maxIndexNum=40\nenableSlaveActingMaster=true\nbrokerNotActiveTimeoutMillis={DEAD_MS}\n"
    f"brokerHeartbeatInterval={BEAT_MS}\nsyncBrokerMemberGroupPeriod=500\nhaListenPort=10912\n"
    "haSendHeartbeatInterval=500\nhaHousekeepingInterval=4000\nconsumerOffsetUpdateVersionStep=2\n"
    "mappedFileSizeTimerLog=65536\n"
)


class NameMachine(Process):
    """A name server, which stores nothing.

    An old one, as of RocketMQ 4, never answers unknown requests, and ignores unknown fields.
    """

    port = 9876

    def begin(self) -> None:
        acts = not self.group.has_old_names
        config = NamesrvConfig(support_acting_master=acts, notify_min_broker_id_changed=acts)
        self.routes = RouteTable()
        now_ms = self.clock.now_ms
        server = NameServer(
            config, self.routes, KeyValues(saved_at_once), now_ms, self._notify, saved_at_once
        )
        self._server = server
        self.table = Dispatcher()
        handlers.register(self.table, server)

    def answer(self, request: Command, peer: Peer) -> Response:
        if self.group.has_old_names:
            if request.code in UNKNOWN_TO_OLD:
                return Deferred()
            for name in ("enableActingMaster", "heartbeatTimeoutMillis"):
                request.fields.pop(name, None)
        response = self.table.dispatch(request, peer, self.clock.now_ms)
        return run_to_result(response) if isinstance(response, Generator) else response

    def on_tick(self, now_ms: int) -> None:
        for expired in self.routes.unregister_silent(now_ms):
            expired.connection.close()
            self._server.on_brokers_changed(expired.notices)

    def _notify(self, notice: Notice) -> None:
        header = NotifyMinBrokerIdChangeRequest(
            notice.min_broker_id, notice.broker_name, notice.min_address, notice.offline_address
        )
        for address in notice.targets:
            request = new_request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header)
            self.endpoint.notify(address, request)


class BrokerMachine(Process):
    """A machine with a disk, and while it is up the process of a broker with a whole store."""

    port = 10911

    def __init__(self, group: "Run", name: str) -> None:
        super().__init__(group, name)
        self.disk = SimDisk(group.rng, lambda: self.clock.wall_ms)
        self.context: BrokerContext | None = None
        self.work = QueuedDisk(group.rng)
        self.wire: Wire
        self.parts: SimParts

    def start(self) -> None:
        self.disk.restart()
        super().start()

    def open_store(self, config: BrokerConfig) -> Store:
        """Open the store of a new process."""
        clock = self.clock
        return open_store(config, self.disk, self.work, clock.wall_ms, clock.now_ms)

    def make_parts(self, config: BrokerConfig) -> SimParts:
        """The parts of a broker in a new process."""
        return SimParts(
            config,
            partial(self.open_store, config),
            self.disk,
            self.work,
            self.group.rng,
            wall_ms=lambda: self.clock.wall_ms,
            steady_ms=lambda: self.clock.now_ms,
            call_soon=self.wire.call_soon,
            call=self.endpoint.call,
            address=self.endpoint.address,
        )

    def ended(self, *, power: bool) -> None:
        self.disk.kill = not power
        self.disk.end()
        self.group.net.gone(self, power=power)
        super().ended(power=power)
        self.context = None

    def turn(self) -> bool:
        if self.up and self.wire.due:
            self.run(self.wire.turn)
        return super().turn()

    def answer(self, request: Command, peer: Peer) -> Response:
        return self.parts.dispatch(request, peer)


class Member(BrokerMachine):
    """A broker: its machine, and while it is up a process. `number` is its id: 0 of the master."""

    def __init__(self, group: "Run", number: int) -> None:
        self.number = number
        super().__init__(group, f"broker-{number}")
        self.ha_address = f"{self.name}:10912"
        group.net.hosts[self.ha_address] = self
        role = f"brokerRole=SLAVE\nbrokerId={number}\n" if number else "brokerRole=ASYNC_MASTER\n"
        self.text = TEXT % ";".join(one.endpoint.address for one in group.names) + role
        self.text += f"totalReplicas={group.total}\n"
        self.text += "lockInStrictMode=true\n" if group.is_strict else ""
        self.log_end = 0
        """End of its log at the last look."""

    # Its life

    def begin(self) -> None:
        config, _ = load_config(self.text)
        self.work, self.wire = QueuedDisk(self.group.rng, self.disk), Wire(self.group.net, self)
        steady_ms = self.clock.now_ms
        self.parts = self.make_parts(config)
        self.context = self.parts.context
        self.group.knows(self, TOPIC, READERS, QUEUES)
        self._paused: list[Deferred[None]] = []
        self._saved_ms = steady_ms
        self._registered_ms = self._beat_ms = -REGISTER_MS
        self.replicating = ReplicationSetup(
            self.context,
            files=self.disk,
            disk=self.work,
            now_ms=lambda: self.clock.wall_ms,
            calls=self,
            life=PreviousShutdown(),
            options=options_of(config),
            shell=lambda events: self.wire,
        )
        _run(self.replicating.start())
        self.registration = Registration(
            config, self.parts.topics, self.endpoint.address, lambda: self.context.role.broker_id
        )
        self.replicating.register(self.registration)
        self.registration.ha_address = self.context.ha_address = self.ha_address
        self.context.role.on_change.append(self._role_changed)
        self.endpoint.on_lost = self._lost
        self.log_end = self.context.store.max_log_offset
        self.group.model.begins(self)

    def ended(self, *, power: bool) -> None:
        super().ended(power=power)
        self.group.model.ended(self)

    # Requests to other nodes, for its replication

    def __call__(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        return self.endpoint.call(address, request, timeout_ms)

    def next_turn(self) -> Deferred[None]:
        """Wait until the next tick."""
        later: Deferred[None] = Deferred()
        self._paused.append(later)
        return later

    async def stop(self) -> None:
        """No-op: the machine ends pending requests."""

    # Periodic work

    def on_tick(self, now_ms: int) -> None:
        assert self.context is not None, "it is up"
        context = self.context
        paused, self._paused = self._paused, []
        for later in paused:
            later.resolve(None)
        context.store.tick(self.clock.wall_ms, now_ms)
        for _ in range(3):
            self.work.step()
        self.replicating.tick()
        context.delay.step(self.clock.wall_ms)
        look_ms = self.replicating.master_search_ms
        if now_ms - self._registered_ms >= min(REGISTER_MS, look_ms or REGISTER_MS):
            self._register()
        if now_ms - self._beat_ms >= BEAT_MS and context.role.is_known:
            self._beat_ms = now_ms
            for one in self.group.names:
                address = one.endpoint.address
                is_old = self.replicating.acting.members.is_old(address)
                beat = self.registration.heartbeat_request(old=is_old)
                self.endpoint.notify(address, beat)
        if now_ms - self._saved_ms >= SAVE_MS and not self.parts.is_saving_offsets:
            self._saved_ms = now_ms
            self.parts.save_offsets()
        self.look()

    def look(self) -> None:
        """Compare its state with the earlier one."""
        if self.context is not None:
            self.group.model.look(self)

    def _role_changed(self) -> None:
        if self.context is not None and self.context.role.is_master:
            self.group.model.serves(self)
        self._register()

    def _register(self) -> None:
        context = self.context
        if context is None or not context.role.is_known:
            return
        self._registered_ms = self.clock.now_ms
        _count, make = self.registration.begin_request(Work(True, []))
        for one in self.group.names:
            later = self.endpoint.call(one.endpoint.address, make(), CALL_TIMEOUT_MS)
            later.then(partial(self._registered, context))

    def _registered(self, context: BrokerContext, response: Command | str) -> None:
        if self.context is not context:
            return
        if isinstance(response, Command):
            self.registration.apply_response(response, self.clock.wall_ms)
        else:
            self._registered_ms = self.clock.now_ms - REGISTER_MS + RETRY_MS

    def _lost(self, address: str) -> None:
        if self.context is not None and address.endswith(":9876"):
            self._registered_ms = self.clock.now_ms - REGISTER_MS + 200
            self.replicating.on_registration_lost()

    # Its connections of replication

    def on_accept(self, link: Link) -> None:
        self._hear("on_accepted", self.wire.add(link))

    def on_connected(self, link: Link) -> None:
        self._hear("on_connected", link.number)

    def on_bytes(self, link: Link, data: bytes) -> None:
        self._hear("on_bytes", link.number, data)

    def on_closed(self, link: Link, reason: str) -> None:
        self._hear("on_closed", link.number, reason)

    def on_writable(self, link: Link) -> None:
        self._hear("on_writable", link.number)

    def _hear(self, what: str, *args: Any) -> None:
        if self.context is not None:
            self.run(getattr(self.replicating.service, what), *args)
            self.look()

    # Its clients

    def answer(self, request: Command, peer: Peer) -> Response:
        response = super().answer(request, peer)
        self.look()
        return response


class Reader(Process):
    """A consumer that has one queue: it asks where its group is and commits, at the broker that has
    the id 0, and sends a message now and then, so that there is something to read."""

    def begin(self) -> None:
        self.is_busy, self._next_ms, self.address = False, 0, ""
        self.queue_id = int(self.name[-1])
        self.position = 0
        """Offset up to which it has read; it never commits less in one life of the topic and its
        group.
        """
        self._life: Life = (0, 0)

    def on_tick(self, now_ms: int) -> None:
        if self.is_busy or now_ms < self._next_ms or self.group.waits:
            return
        rng = self.group.rng
        if self.group.is_calm and rng.random() < 0.04:
            self._next_ms = now_ms + 12_000
            return
        self.is_busy = True
        if not self.address or rng.random() < 0.2:
            names = self.group.names[int(rng.random() * len(self.group.names))]
            self._ask(names.endpoint.address, self.group.route(), self._routed)
            return
        queue_id = self.queue_id
        if rng.random() < 0.3:
            topic = TOPIC if rng.random() < 0.9 else f"new-{int(rng.random() * 100)}"
            header = SendMessageRequestV2(
                "PG", topic, "TBW102", 4, queue_id, 0, 1, 0, properties=""
            )
            body = b"%d" % now_ms
            self._ask(self.address, new_request(310, header, body), self._done)
            return
        request = new_request(
            RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest(READERS, TOPIC, queue_id)
        )
        bound = self.group.model.bound(self.address, queue_id)
        self._ask(self.address, request, partial(self._found, self.address, queue_id, bound))

    def _ask(self, address: str, request: Command, then: Any) -> None:
        self.endpoint.call(address, request, CALL_TIMEOUT_MS).then(then)

    def _routed(self, response: Command | str) -> None:
        self.address = address_of(response)
        self._done(response)

    def _found(
        self,
        address: str,
        queue_id: int,
        bound: tuple[tuple[int, int], int],
        response: Command | str,
    ) -> None:
        if isinstance(response, str) or response.code not in (0, ResponseCode.QUERY_NOT_FOUND):
            self._done(response)
            return
        at = int(response.fields["offset"]) if response.code == 0 else -1
        self.group.model.answered(address, queue_id, bound, at)
        request = new_request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest(TOPIC, queue_id))
        self._ask(address, request, partial(self._reaches, address, queue_id, at))

    def _reaches(self, address: str, queue_id: int, at: int, response: Command | str) -> None:
        if isinstance(response, str) or response.code != ResponseCode.SUCCESS:
            self._done(response)
            return
        end = int(response.fields["offset"])
        life = self.group.model.life_at(address)
        if life != self._life:
            self._life, self.position = life, 0
        to = max(at, self.position, min(at + int(self.group.rng.random() * 4), end))
        self.position = to
        self.group.model.asks(life, queue_id, to)
        request = new_request(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            UpdateConsumerOffsetRequest(READERS, TOPIC, queue_id, to),
        )
        self._ask(address, request, partial(self._committed, address, (queue_id, to)))

    def _committed(self, address: str, what: Where, response: Command | str) -> None:
        if isinstance(response, Command) and response.code == ResponseCode.SUCCESS:
            self.group.model.committed(address, *what)
        self._done(response)

    def _done(self, response: Command | str) -> None:
        if isinstance(response, str) or response.code != ResponseCode.SUCCESS:
            self.address = ""
        self.is_busy = False
        self._next_ms = self.clock.now_ms + int(self.group.rng.random() * 300)


def _run(work: Any) -> None:
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")
