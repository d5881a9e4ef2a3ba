"""A broker of a simulated group with controllers: the replication suite's broker, but its role
comes from the real membership, and its sends obey the real rules of `broker/traffic/role.py`.
"""

import random
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.broker.due_times import LEVELS_MS
from tests.sim.group.calls import Clock, Endpoint
from tests.sim.group.machines import CALL_TIMEOUT_MS, CLUSTER, DEAD_MS, GROUP, NAMES_ADDRESS
from tests.sim.group.tables import Kept, Tables
from tests.sim.ha.broker import Broker, finish
from tests.sim.ha.checkers import History
from tests.sim.ha.net import Network
from tests.sim.ha.oracle import Role as Known
from tests.sim.ha.seed import store_config
from tests.sim.ha.settings import ROOT, Options, Sent, Settings
from tests.sim.work import QueuedDisk, Stands
from turbopump.broker.config.replication_config import BrokerRole
from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.control import previous_shutdown
from turbopump.broker.ha.control.membership import Membership
from turbopump.broker.ha.leader import Leader
from turbopump.broker.ha.service import HaService
from turbopump.broker.lifecycle.replication_setup import ReplicationSetup
from turbopump.broker.lifecycle.store_reopen import TRY_MS
from turbopump.broker.traffic.role import Role
from turbopump.engine.deferred import Deferred
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage, PutStatus, StoreHealth
from turbopump.net.transport.dispatcher import Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.registration.register import RegisterBrokerBody
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs

if TYPE_CHECKING:
    from tests.sim.group.suite import Plan, Run

PORT = 10911
REGISTER_MS = 2000
"""Interval of registrations at the name server."""
TRANSACTION_CODES = {RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION}
POP_CODES = {RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE}
CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}


def settings_of(plan: "Plan", rng: random.Random) -> Settings:
    """Common configuration of a seed's brokers."""
    store = store_config(rng, sync=plan.sync)
    batch = rng.choice((300, 4000))
    return Settings(
        store,
        Options(
            broker_role=BrokerRole.SYNC_MASTER,
            enable_controller_mode=True,
            sync_flush=plan.sync,
            ha_send_heartbeat_interval_ms=500,
            ha_housekeeping_interval_ms=2000,
            ha_transfer_batch_size=batch,
            ha_max_time_slave_not_catchup_ms=1500,
            ha_max_time_sends_wait_ms=500 if batch == 300 else 0,
            in_sync_replicas=rng.choice((1, 2)),
            all_ack_in_sync_state_set=True,
            may_lose=plan.unclean or (not plan.sync and "power" in plan.kinds),
        ),
    )


class Place:
    """A broker's view of its group, by its own clocks."""

    def __init__(self, group: "Run", clock: Clock) -> None:
        self.group = group
        self.clock = clock
        self.rng: random.Random = group.rng
        self.net: Network = group.net
        self.history: History = group.history
        self.retention = group.retention
        self.answered: Callable[[Broker, Sent], None] = group.answered
        self.confirmed: Callable[[Broker, int, int], None] = group.confirmed

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    @property
    def wall_ms(self) -> int:
        return self.clock.wall_ms

    @property
    def ends(self) -> int:
        return self.group.ends

    @ends.setter
    def ends(self, count: int) -> None:
        self.group.ends = count


class GroupBroker(Stands, Broker):
    """See the module. Its number is that of its machine; its id its controllers give it."""

    tick_ms = 100
    delay_levels_ms = LEVELS_MS

    def __init__(self, group: "Run", number: int) -> None:
        self.clock = Clock(lambda: group.now_ms, group.start_ms)
        self.run_of = group
        self.place = Place(group, self.clock)
        super().__init__(self.place, number, group.settings, learner=False, last_file=False)
        self.endpoint = Endpoint(group.net, self, PORT, group.trouble)
        self.ha_address = f"{self.name}:{PORT + 1}"
        group.net.hosts[self.ha_address] = self
        self.due_ms = 0
        self.disk_chance = 1.0
        self.part: Role
        """Role that sends see."""
        self.replicating: ReplicationSetup | None = None
        self.member: Membership | None = None
        self.tables: Tables | None = None
        self.kept = Kept()
        """Durable state of its tables."""
        self.counted: tuple[frozenset[int], int] = (frozenset(), 0)
        """SyncStateSet that it considered in force when it last was master, and the set's epoch.
        """
        self._confirmed_before = previous_shutdown.NOTHING
        """Offset that an earlier life in the same process had confirmed."""
        self.tries_again = True
        """Whether it opens a store that failed again by itself; a story may do that instead."""
        self._trying = self._opens_anew = False
        self._stops = self._may_stop = self._starts_again = False
        self._behind: Callable[[], None] | None = None
        """Callback for the end of the clean stop."""
        self._try_ms = 0
        self._ran = False
        """Whether any of its code ran since it was looked at."""
        self._id = 0
        self._registered_ms = 0
        self._versions = 0

    # Its life

    @property
    def controller_id(self) -> int:
        """0 while none was ever given to it."""
        if self.member is not None and self.member.own_id is not None:
            self._id = self.member.own_id
        return self._id

    def _start(self) -> None:
        self.disk.restart()
        self.endpoint.start()
        self._life = previous_shutdown.read_previous_shutdown(
            self.disk, self.settings.store, self._confirmed_before
        )
        self._confirmed_before, self._trying, self._opens_anew = (
            previous_shutdown.NOTHING,
            False,
            False,
        )
        super()._start()
        self.tables.begin()
        self.context.ha_address = self.ha_address
        self.member.start(self.endpoint.address, self.ha_address)

    def _new_work(self) -> QueuedDisk:
        return QueuedDisk(self._rng, self.disk, lambda: self.run_of.now_ms)

    def _replicate(self, store: Store) -> HaService:
        """The parts of a real broker, put together as its process does it."""
        clock = self.clock
        self.tables = tables = Tables(self, store)
        self.context = context = tables.context
        self.part = context.role
        self.replicating = replicating = ReplicationSetup(
            context,
            files=self.disk,
            disk=self.work,
            now_ms=lambda: clock.wall_ms,
            calls=tables,
            life=self._life,
            options=self.options,
            shell=lambda events: self.wire,
        )
        service, self.replicated = replicating.service, store.as_replicated(clock.wall_ms)
        service.on_role.insert(0, self._role_changes)
        service.on_role.append(tables.look)
        self.part.on_change.append(self.register)
        self.member = replicating.membership
        self._renew = service.on_lease_granted
        service.on_lease_granted = self._renewed  # type: ignore[method-assign]
        self.replicated.on_cut.append(tables.cut)
        return service

    def _leave(self) -> None:
        finish(self.replicating.stop())

    def _gone(self) -> None:
        power = not self.disk.kill
        super()._gone()
        self.stands_until_ms = self.disk.spent_ms = 0
        if power and not self.settings.is_sync:
            self.run_of.journal.doubtful.add(self.number)
        self.endpoint.gone(power=power)
        self.replicating = self.member = self.tables = self.context = None
        self._stops = self._may_stop = self._starts_again = False
        behind, self._behind = self._behind, None
        if behind is not None:
            behind()

    @property
    def may_be_late(self) -> bool:
        """Whether sends may wait for its disk for longer than the limit after which it leaves the
        set.
        """
        return self.disk.sync_ms > 0 and self.settings.ha.ha_max_time_sends_wait_ms > 0

    def parts(self) -> BrokerContext | None:
        return self.context

    def move(self) -> None:
        """Change the broker's address."""
        port = int(self.endpoint.address.partition(":")[2]) + 10
        self.endpoint.moved(port)
        self.ha_address = f"{self.name}:{port + 1}"
        self.run_of.net.hosts[self.ha_address] = self

    def lose_disk(self) -> None:
        """Everything is gone while it is down: it will have another id."""
        self.disk.wipe(ROOT)
        self.run_of.journal.doubtful.add(self.number)
        self.kept, self.epochs_damaged, self._id = Kept(), False, 0
        self._kept = 0  # of its log

    def stop(self, behind: Callable[[], None] | None = None) -> None:
        """Stop as broker/node.py does: another broker is elected first, and this broker serves
        until then. `behind` is called after the end of the process, however it ended.
        """
        assert self.up and self.replicating is not None, "it is not up"
        if self._stops:
            return
        self._stops, self._behind = True, behind

        def led(_: None) -> None:
            self._may_stop = True

        self.run(lambda: self.replicating.hand_over().then(led))
        self._end_in_order()

    def start_again(self) -> None:
        """An operator starts it, and found it up: once it has stopped, if it is about to."""
        self._starts_again = self._stops

    def _end_in_order(self) -> None:
        """End the process in the loop's turn after its lead ended."""
        if self.up and self._may_stop:
            starts_again = self._starts_again
            super().stop()
            if starts_again:
                self.run_of.start(self)

    def turn(self) -> bool:
        """The loop's turn ends; True if its disk has work."""
        self._end_in_order()
        if self.wire.due:
            self.run(self.wire.turn)
        if self.up and self.endpoint.wire.due:
            self.run(self.endpoint.wire.turn)
        for _ in range(len(self.work.ready()) if self.up else 0):
            if self.up and self._rng.random() < self.disk_chance:
                self.run(self.work.step)
        if self._ran:
            self._ran = False
            self.look()
        return self.up and bool(self.work.ready())

    def run(self, what: Callable[..., Any], *args: Any) -> Any:
        """Run code of the broker's process; its reports change only by this."""
        self._ran = True
        found = super().run(what, *args)
        if self.disk.spent_ms:
            self.run_of.stands(self)
        return found

    def tick(self) -> None:
        """Advance the time. A failed store is opened again: broker/lifecycle/store_reopen.py."""
        super().tick()
        if self.up and self._opens_anew:
            self._confirmed_before = self.store.confirm_log_offset
            self.crash(power=False)
            self.run_of.start(self)

    def _try_again(self) -> None:
        store, now_ms = self.store, self.clock.now_ms
        is_failed = store.health is StoreHealth.FAILED and store.damage is None
        if not (is_failed and self.tries_again) or self._trying or now_ms < self._try_ms:
            return
        if self._stops:
            return  # node.py ends the reopening first

        def tried(result: OSError | None) -> None:
            if self.store is store:
                self._trying, self._opens_anew = False, result is None

        self._try_ms = now_ms + TRY_MS
        self._trying = store.try_again(tried)

    def _tick(self) -> None:
        super()._tick()
        if self.up:
            self._try_again()
        self.endpoint.tick()
        if self.up:
            self._counts_on()
            self.tables.tick()
        if self.up and self.clock.now_ms - self._registered_ms >= REGISTER_MS:
            self.register()

    def _tick_replication(self) -> None:
        self.replicating.tick()

    def _counts_on(self) -> None:
        """Check that the set which the master considers in force is the agreed set (R02)."""
        term = self.service.term
        if isinstance(term, Leader):
            self.counted = (term.sync.members, term.sync.set_epoch)
            self.run_of.journal.same_set(self, *self.counted)

    # Its role

    def _role_changes(self) -> None:
        """Check the beginning of a term before any other part of the broker is notified."""
        service = self.service
        assert service is not None, "it is up"
        if service.term is None:
            return
        journal, epoch, log = self.run_of.journal, service.epoch, self.replicated
        self.role = Known(self.number, epoch, frozenset(), 0)
        self.look()
        if epoch in journal.lossy:
            self._history.forget(self.log, log.min, log.end, epoch)
            journal.doubtful.discard(self.number)
        due = journal.due(self, epoch)
        assert due is None or not self.member.has_lease(), f"a lease of {epoch}, which is over"
        self._reigns(epoch, due)
        journal.reigns_now(self, epoch)

    def _renewed(self) -> None:
        """Renew the lease: the master has all bytes that had to be there when its term
        began (I3).
        """
        service, log = self.service, self.replicated
        if service is not None and service.term is not None:
            due = self.run_of.journal.due(self, service.epoch)
            self._history.begins(self.number, self.log, log.min, log.end, due)
        self._renew()

    # The name server

    def register(self) -> None:
        """Register under the id of its role, once the role is known."""
        self._registered_ms = self.clock.now_ms
        if not self.part.is_known:
            return
        self._versions += 1
        epoch = self.service.epoch
        version = DataVersion(self._versions, epoch, self.clock.wall_ms)
        topics = {name: TopicConfig(name, 2, 2) for name in ("A", "Longer-topic")}
        body = RegisterBrokerBody(TopicConfigs(version, topics)).encode()
        fields = {
            "brokerName": GROUP,
            "brokerAddr": self.endpoint.address,
            "clusterName": CLUSTER,
            "brokerId": str(self.part.broker_id),
            "haServerAddr": self.ha_address,
            "enableActingMaster": str(self.run_of.acts).lower(),
        }
        if self.run_of.acts:
            fields["heartbeatTimeoutMillis"] = str(DEAD_MS)
        request = new_request(RequestCode.REGISTER_BROKER, None, body, fields=fields)
        self.endpoint.call(NAMES_ADDRESS, request, CALL_TIMEOUT_MS)

    # Its clients

    def answer(self, request: Command, peer: Peer) -> Response:
        """Requests of all peers."""
        if request.code == RequestCode.SEND_MESSAGE:
            return self._serve_send(request)
        if request.code in TRANSACTION_CODES:
            return self._serve_payer(request, peer)
        if request.code in POP_CODES:
            return self.write(lambda: _at_once(self.tables.answer(request, peer)))
        return self.tables.answer(request, peer)

    def _serve_payer(self, request: Command, peer: Peer) -> Response:
        self.context.producers.register(peer, str(peer), "payers", self.clock.now_ms)
        return self.write(partial(self.tables.answer, request, peer))

    def write(self, work: Callable[[], Any]) -> Any:
        """Run work that may append without `_put`: only the master may, under its lease (I11)."""
        end = self.store.max_log_offset
        done = work()
        if self.up and self.store.max_log_offset > end:
            assert self.member.has_lease(), f"{self.name} appends without a lease"
            self._history.writes(self.number, self.service.epoch)
            self.look()
            self.run_of.broker_wrote(self, end)
        return done

    def _follow_counts(self) -> None:
        """No-op: the real tables copy the counts."""

    def _stop(self) -> None:
        if self.tables is not None:
            self.tables.close()
        super()._stop()

    def _closed(self) -> None:
        self.run_of.broker_stopped(self)

    def _serve_send(self, request: Command) -> Response:
        fields = request.fields
        put = self._put(fields["topic"], int(fields["queueId"]), bytes(request.body))
        if isinstance(put, PutStatus):
            return new_response(request, CODES.get(put, ResponseCode.SYSTEM_ERROR), put.value)
        return put[1].map(
            lambda status: new_response(
                request, CODES.get(status, ResponseCode.SYSTEM_ERROR), status.value
            )
        )

    def _send(self, topic: str, queue_id: int, body: bytes) -> Sent | None:
        put = self._put(topic, queue_id, body)
        return None if isinstance(put, PutStatus) else put[0]

    def _put(
        self, topic: str, queue_id: int, body: bytes
    ) -> PutStatus | tuple[Sent, Deferred[PutStatus]]:
        store, service, part = self.store, self.service, self.part
        assert store is not None and service is not None, "it is up"
        message = NewMessage(topic, queue_id, body, b"KEYS\x01k\x02")
        if not service.is_master:
            self._refuses(store, message)
        permit = part.admit_append()
        if isinstance(permit, PutStatus):
            return permit
        self.tables.make_topic(topic)
        appended = store.append(message, self.clock.wall_ms)
        if appended.status is not PutStatus.PUT_OK:
            return appended.status
        self._history.writes(self.number, service.epoch)
        self.look()
        sent = Sent(
            service.epoch,
            permit.copies,
            appended.log_offsets[0],
            appended.end,
            body,
            topic,
            queue_id,
            appended.queue_offset,
        )
        self.run_of.journal.took(self, sent)
        safe = part.when_safe(appended, permit)

        def on_status(status: PutStatus) -> None:
            sent.status.append(status)
            self._answer(sent)

        safe.then(on_status)
        return sent, safe

    def state(self) -> str:
        """Description of its state for a finding."""
        if not self.up:
            return f"{self.name}: down"
        log, follower = self.replicated, self.service.follower
        machine = follower.machine if follower is not None else None
        return (
            f"{self.name} {self.controller_id}: [{log.min}, {log.end}) confirm {log.confirm} "
            f"flushed {log.flushed} epochs {log.epochs.entries} "
            f"{'master' if self.is_master else machine and (machine.state.name, machine.reason)} "
            f"{self.member.stage.value} in epoch {self.member.epoch}: "
            f"{self.member.reason_without_role}, lease {self.member.has_lease()}"
        )


def _at_once(response: Any) -> Response:
    """The answer of steps, without others between them."""
    while isinstance(response, Generator):
        try:
            next(response)
        except StopIteration as ended:
            response = ended.value
    found: Response = response
    return found
