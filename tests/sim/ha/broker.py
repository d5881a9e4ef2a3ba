"""A broker of a simulated group: a disk, and while it is up a process with the real store and the
real drivers of replication; its role and its clients are simulated.

After each of its events `look` (seen.py) compares its present state with the earlier one and with
the group's history. It must never reach the other brokers but through the network.
"""

import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.disk import PowerCut
from tests.sim.ha.carried import CarriedParts
from tests.sim.ha.checkers import show_some
from tests.sim.ha.net import Link, Wire
from tests.sim.ha.oracle import Role
from tests.sim.ha.seen import SeenBroker
from tests.sim.ha.settings import ROOT, Sent, Settings
from tests.sim.work import QueuedDisk
from tests.waiting import delete_expired, look_at_waiting
from turbopump.broker.config.replication_config import BrokerRole
from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.leader import Leader
from turbopump.broker.ha.ports import ProposalOutcome
from turbopump.broker.ha.service import HaService, Overtaken
from turbopump.engine.deferred import Deferred
from turbopump.engine.lifecycle.restart import MARK_FILE as RESTART
from turbopump.engine.log.epoch_file import BACKUP, EPOCH_FILE
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage, PutStatus, StoreError
from turbopump.net.ha.acks import ALL
from turbopump.net.ha.replica import State
from turbopump.net.ha.sync_state import Proposal
from turbopump.pyx.record import V1, record_size

if TYPE_CHECKING:
    from tests.sim.ha.suite import Run

WALK_SECTOR = 512
PROPERTIES = (b"KEYS\x01k\x02", b"KEYS\x01k\x02NOTE\x01\0")
"""Message properties; one ends in a zero, as does a record whose last bytes are missing."""


class Broker(SeenBroker):
    """See the module. Everything that runs its code goes through `run`, which knows its end."""

    delay_levels_ms: Sequence[int] = ()
    """Delays of messageDelayLevel in ms, if the seed has delayed messages."""

    def __init__(
        self, group: "Run", number: int, settings: Settings, *, learner: bool, last_file: bool
    ) -> None:
        super().__init__(group, number, settings)
        self.name = f"broker-{number}"
        self.paused = False
        """Whether its process is suspended."""
        self.learner = learner
        self.options = replace(
            settings.ha, own_id=number, async_learner=learner, sync_from_last_file=last_file
        )
        if not self.options.has_elections and number > 1:
            self.options = replace(
                self.options, broker_role=BrokerRole.SLAVE, ha_master_address="broker-1"
            )
        self.carried: CarriedParts | None = None
        """Handlers of the other kinds of messages of a seed, while the broker is up."""
        self.ahead_ms = 0
        """Difference of its wall clock to the group's, in ms."""
        self._counts: Any = None
        self.service: HaService | None = None
        self.wire: Wire
        self.work: QueuedDisk
        self.role = Role(0, -1, frozenset(), 0)
        """The last one it took."""
        self.is_lossy = False
        """Whether its last life may have lost bytes that it had acknowledged."""
        self.lives = 0
        self._rng: random.Random = group.rng
        self._failed_before = 0
        self._kept = 0
        """End of its log when it was killed."""

    # Its life

    @property
    def up(self) -> bool:
        return self.store is not None

    @property
    def wall_ms(self) -> int:
        """Time of its wall clock, in ms."""
        return self._group.wall_ms + self.ahead_ms

    @property
    def disk_failed(self) -> bool:
        """Whether a sync failed since it was started."""
        return self.disk.failed_syncs > self._failed_before

    @property
    def is_master(self) -> bool:
        """Whether it takes itself for the master."""
        return self.service is not None and self.service.is_master

    @property
    def follows(self) -> bool:
        """Whether bytes of a master arrive."""
        follower = self.service.follower if self.service is not None else None
        return follower is not None and follower.machine.state is State.TRANSFER

    def run(self, what: Callable[..., Any], *args: Any) -> Any:
        """Run its code; it may die of that."""
        try:
            return what(*args)
        except PowerCut:
            self._gone()
            return None

    def start(self) -> bool:
        """A process on its disk. False if it died while it started."""
        self.run(self._start)
        return self.up

    def _new_work(self) -> QueuedDisk:
        return QueuedDisk(self._rng, self.disk)

    def _start(self) -> None:
        group, settings = self._group, self.settings
        self.disk.restart()
        self._failed_before = self.disk.failed_syncs
        self.work = self._new_work()
        self.wire = Wire(group.net, self)
        store = Store.open(
            self.disk,
            settings.store,
            self.work,
            self.wall_ms,
            steady_ms=group.now_ms,
            delay_levels_ms=self.delay_levels_ms,
        )
        service = self._replicate(store)
        self.store = store
        self.lives += 1
        self.role = Role(0, -1, frozenset(), 0)
        self._check_started()
        finish(service.start())
        self.service = service
        self.look()

    def _replicate(self, store: Store) -> HaService:
        """Create its replication service, not started."""
        group, plain = self._group, not self.options.has_elections
        self.replicated = store.as_replicated(self.wall_ms, plain=plain)
        service = HaService(
            self.options,
            self.replicated,
            self.disk,
            self.work,
            lambda: self.wall_ms,
            lambda: group.now_ms,
            alterations=self,
            shell=lambda events: self.wire,
        )
        if group.carried is not None:
            self.carried = CarriedParts(self, group, store)
            self.carried.context.ha = service
            service.on_role.append(partial(self.carried.role_changed, service))
        self.replicated.on_appended.append(service.on_log_grown)
        return service

    def _check_started(self) -> None:
        """Check that a start lost only bytes that were not durable, and that its confirm offset is
        not higher than before.
        """
        log = self.replicated
        if self.settings.safe:
            # It did not report all that it confirmed: see `_is_of_before`.
            sure = max(self._told, self._confirm, len(self._history.log))
            assert log.confirm <= sure, (
                f"broker {self.number} starts with {log.confirm} confirmed, it was {sure}"
            )
        at, gone = self._cut
        if at == self._end and gone and log.end > at:
            assert self.log.read(at, at + len(gone)) != gone, (
                f"broker {self.number}: what it cut at {at} is there again"
            )
        kept, self._kept = self._kept, 0
        assert log.end >= kept, f"broker {self.number}: a kill took {log.end} to {kept}"
        self._base, self._end, self._confirm, self._told = log.min, log.min, 0, 0
        self._bytes.clear()
        self._bounds = [log.min]
        self.look()

    def crash(self, *, power: bool) -> None:
        """The process is killed, which keeps all it had written, or the power goes."""
        self._kept = 0 if power or self.service is None else self.replicated.end
        if self.disk.exists(f"{ROOT}/{RESTART}"):
            self._kept = 0  # its disk failed while the log was given up: the next start ends that
        self.disk.kill = not power
        self.disk.end()
        self._gone()

    def stop(self) -> None:
        """Stop cleanly. If its disk cannot do the last writes it ends like a kill: the process
        reports that, and its abort file stays.
        """
        try:
            self.run(self._stop)
        except (OSError, StoreError):
            assert self.disk.failing or self.disk.fail_syncs or self.disk.full, "its disk works"
            self.crash(power=False)

    def _stop(self) -> None:
        store = self.store
        assert store is not None, "it is not up"
        if self.service is not None:
            self._leave()
        store.close(self.wall_ms)
        self._closed()
        self.work.close()
        self.look()
        self.disk.kill = True
        self.disk.end()
        self._gone()

    def _closed(self) -> None:
        """Save the rest of the state after the store was closed."""
        if self.carried is not None:
            self.carried.close()

    def _leave(self) -> None:
        """The end of its part in replication."""
        assert self.service is not None, "it has one"
        if self.carried is not None:
            self.carried.metadata.shut_down()
        finish(self.service.stop())

    def _gone(self) -> None:
        power = not self.disk.kill
        self._group.net.gone(self, power=power)
        self._group.ends += 1
        if power and not self.settings.is_sync:
            self.is_lossy = True
        self.store = self.replicated = self.service = self._counts = self.carried = None
        self.paused = False

    def damage_epochs(self) -> None:
        """Make both copies of the epoch list unreadable while the broker is down (S1)."""
        for path in (f"{ROOT}/{EPOCH_FILE}", f"{ROOT}/{EPOCH_FILE}{BACKUP}"):
            content = self.disk.visible(path)
            if content is not None:
                content[:] = b"?" * len(content)
                self.epochs_damaged = True
        self.disk.settle()

    # Its role

    def take(self, role: Role) -> None:
        """The controller's word reached it."""
        coming = role.epoch > self.role.epoch and role.master == self.number
        self.run(self._take, role)
        if coming and self.up and self._rng.random() < 0.7:
            self.do_work(all_of_it=True)  # a fast disk: its term begins at once

    def _take(self, role: Role) -> None:
        service = self.service
        assert service is not None, "it is up"
        if role.epoch > self.role.epoch:
            self.role = role
            if role.master == self.number:
                self._to_master(service, role)
            else:
                service.to_replica(f"broker-{role.master}", role.epoch)
        elif role.epoch == self.role.epoch and isinstance(service.term, Leader):
            self.role = role
            service.term.on_set(role.members, role.set_epoch, self._group.now_ms)
        self.look()

    def _to_master(self, service: HaService, role: Role) -> None:
        self.look()

        def on_error(error: StoreError | OSError | None) -> None:
            if error is None:
                self._reigns(role.epoch)
            elif not isinstance(error, Overtaken):
                assert self.epochs_damaged or self.disk_failed, f"no term: {error}"

        service.to_master(role.epoch, role.members, role.set_epoch).then(on_error)

    def _reigns(self, epoch: int, due: int | None = None) -> None:
        """Begin its term as master, with every confirmed byte in its log and its epoch on the disk.

        `due`: see History.begins.
        """
        self.look()
        log = self.replicated
        start = log.epochs.entries[-1].start
        assert log.epochs.last_epoch == epoch, f"epoch {epoch} is not written down"
        assert start == log.end, "a term that does not begin at the end of the log"
        if self.settings.safe:
            self._history.begins(self.number, self.log, log.min, start, due)

    def propose(self, proposal: Proposal) -> Deferred[ProposalOutcome]:
        """Propose a change of the SyncStateSet to the controller."""
        return self._group.proposals.ask(self, self.role.epoch, proposal)

    # Its connections

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
        if self.service is not None:
            self.run(getattr(self.service, what), *args)
            self.look()

    # Periodic work

    def tick(self) -> None:
        self.run(self._tick)
        self.look()

    def _tick(self) -> None:
        group = self._group
        assert self.store is not None and self.service is not None, "it is up"
        self.store.tick(self.wall_ms, group.now_ms)
        self._tick_replication()
        if self.carried is not None:
            self.carried.tick()

    def _tick_replication(self) -> None:
        assert self.service is not None, "it is up"
        self.service.tick()
        self._follow_counts()

    def _follow_counts(self) -> None:
        """Take over the master's queue offsets of idle queues, as a replica's tables do once its
        log has a new beginning.
        """
        log = self.replicated
        if (
            self.carried is not None
            or log is None
            or not log.needs_queue_counts
            or not self.follows
        ):
            return
        assert self.service is not None and self.service.follower is not None, "it follows"
        master = self._group.net.hosts.get(self.service.follower.machine.address)
        is_due = self._counts is None or self._counts.done
        if is_due and isinstance(master, Broker) and master.is_master and master.replicated:
            self._counts = log.save_queue_counts(master.replicated.idle_queue_counts())

    def turn(self) -> None:
        """End the loop's turn: run the callbacks that were scheduled for it."""
        self.run(self.wire.turn)
        self.look()

    def do_work(self, *, all_of_it: bool = False) -> None:
        self.run(self.work.close if all_of_it else self.work.step)
        self.look()

    def parts(self) -> BrokerContext | None:
        """The broker's other parts, None while it has only a store."""
        return None if self.carried is None else self.carried.context

    def expire(self, later_ms: int) -> None:
        """Remove old files, except files in which a look just now found waiting messages."""
        if self.store is not None:
            context = self.parts()
            if context is not None:
                look_at_waiting(context.waiting)
            self.run(delete_expired, self.store, self.wall_ms + later_ms)
            self.look()

    # Its clients

    def send(self, topic: str, queue_id: int, body: bytes) -> Sent | None:
        """Append a message if this broker accepts it; return the sender's pending result."""
        sent: Sent | None = self.run(self._send, topic, queue_id, body)
        return sent

    def _properties(self, topic: str, body: bytes) -> bytes:
        found = PROPERTIES[len(self._bounds) % 2]
        size = record_size(len(topic), len(body), len(found), 8, 8, V1)
        # Of a last byte in a sector of its own it is unknown whether it came (pyx.walk: SECTORS).
        return found if (self.replicated.end + size) % WALK_SECTOR != 1 else PROPERTIES[0]

    def _send(self, topic: str, queue_id: int, body: bytes) -> Sent | None:
        group, service, store = self._group, self.service, self.store
        assert store is not None and service is not None, "it is up"
        message = NewMessage(topic, queue_id, body, self._properties(topic, body))
        if not service.is_master:
            self._refuses(store, message)
            return None
        assert service.term is not None, "it is a master"
        need = service.term.copies_needed()
        if need is None:
            return None
        appended = store.append(message, self.wall_ms)
        if appended.status is not PutStatus.PUT_OK:
            return None
        self._history.writes(self.number, self.role.epoch)
        self.look()
        start = appended.log_offsets[0]
        sent = Sent(
            self.role.epoch,
            need,
            start,
            appended.end,
            body,
            topic,
            queue_id,
            appended.queue_offset,
        )

        def answer(status: PutStatus) -> None:
            sent.status.append(status)
            self._answer(sent)

        store.pending.steady_ms = group.now_ms  # here more time passes between two ticks
        store.when_safe(appended, need).then(answer)
        if self._rng.random() < 0.7:
            self.wire.turn()
        return sent

    def wrote(self) -> None:
        """Note that this broker, as the master of its epoch, wrote a message of another kind to its
        log.
        """
        self._history.writes(self.number, self.role.epoch)
        self.look()

    @property
    def tells_of_now(self) -> bool:
        """Whether its results are of the history after an election that may lose."""
        return not self._is_of_before

    def _refuses(self, store: Store, message: NewMessage) -> None:
        """A replica's store takes nothing of a sender."""
        end = store.max_log_offset
        refused = store.append(message, self.wall_ms).status
        assert refused is PutStatus.SERVICE_NOT_AVAILABLE, f"a replica answered {refused.name}"
        assert store.max_log_offset == end, "refused, but written"

    def _answer(self, sent: Sent) -> None:
        """The sender gets its answer."""
        if not sent.acked:
            return
        self._group.answered(self, sent)
        if sent.need != ALL:
            return
        self._tell(sent.end, "acknowledged")
        if not self._is_of_before:
            key = (sent.topic, sent.queue_id, sent.queue_offset)
            self._history.acknowledge(key, sent.start, sent.body)

    def read(self, topic: str, queue_id: int) -> None:
        """A pull from anywhere in a queue."""
        store = self.store
        assert store is not None, "it is up"
        low, high = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
        if high > low:
            at = low + int(self._rng.random() * (high - low))
            show_some(store, topic, queue_id, at, self.show)

    def show(self, key: tuple[str, int, int], record: bytes) -> None:
        """A reader gets a record."""
        if self.settings.safe and not self._is_of_before:
            self._history.show(self.number, key, record)


def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that has to end without a wait."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")
