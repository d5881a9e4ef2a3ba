"""A controller of a simulated group: Raft, its files, its driver and the state machine are the real
ones; only sockets, clock and disk are simulated.
"""

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.sim.disk import Copy, SimDisk
from tests.sim.group.checkers import AgreedState
from tests.sim.group.machines import GROUP, Process
from tests.sim.work import QueuedDisk, Stands
from turbopump.controller import handlers
from turbopump.controller.config import ControllerConfig
from turbopump.controller.core import ControllerCore
from turbopump.controller.driver import Driver, DriverDeps
from turbopump.controller.node import AGAIN_MS, raft_options
from turbopump.controller.raft.core import Raft
from turbopump.controller.raft.storage import RaftStorage
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import StoreError
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.command import Command

if TYPE_CHECKING:
    from tests.sim.group.suite import Run

ROOT = "/controller"
COUNT = 3
PORT = 9878
ENTRIES_SIZE = 8192
"""Size of a log file: pages of a simulated disk are compared one by one."""


@dataclass(slots=True, frozen=True)
class Timing:
    """Times that brokers and controllers must agree on; the rest is the default."""

    timeout_ms: int
    """Timeout of heartbeats in ms (controllerHeartBeatTimeoutMills)."""


def address_of(number: int) -> str:
    """Address of a controller."""
    return f"controller-{number}:{PORT}"


def addresses() -> dict[str, str]:
    """Addresses of all controllers, by the id of the quorum's member."""
    return {f"n{number}": address_of(number) for number in range(COUNT)}


class Watched:
    """State machine between the real driver and the journal, which checks its changes."""

    def __init__(self, controller: "Controller", core: Any) -> None:
        self._controller = controller
        self._core = core
        self._is_anew = False
        """Whether its tables were just loaded from a snapshot."""

    def on_applied(self, entry: Any) -> None:
        controller, journal = self._controller, self._controller.group.journal
        if self._is_anew:
            self._is_anew = False
            journal.stands(controller.name, entry.index - 1, controller.agreed_state())
        journal.applies(controller.name, entry.index, bytes(entry.body))
        self._core.on_applied(entry)
        journal.stands(controller.name, entry.index, controller.agreed_state())

    def on_leader(self, leads: bool) -> None:
        controller = self._controller
        if leads:
            controller.group.journal.leads(controller.name, controller.raft.term)
        self._core.on_leader(leads)

    def snapshot(self) -> bytes:
        return self._core.snapshot()

    def restore(self, data: bytes) -> None:
        self._core.restore(data)
        self._is_anew = True

    def append(self, body: bytes, now_ms: int) -> Any:
        return self._core.append(body, now_ms)


class WatchedStorage(RaftStorage):
    """Files of a member, whose durable term and vote are noted in the journal."""

    def __init__(self, controller: "Controller", folder: str) -> None:
        super().__init__(controller.disk, folder, ENTRIES_SIZE)
        self._controller = controller

    def save_term(self, term: int, vote: str | None) -> None:
        super().save_term(term, vote)
        self._controller.group.journal.saves(self._controller.name, term, vote)


class Controller(Stands, Process):
    """A controller of the group (see the module)."""

    port = PORT
    tick_ms = 50

    def __init__(self, group: "Run", number: int) -> None:
        self.number = number
        self.id = f"n{number}"
        super().__init__(group, f"controller-{number}")
        self.disk = SimDisk(group.rng, lambda: self.clock.wall_ms)
        self.disk_chance = 1.0
        self.copies: list[Copy] = []
        """Copies of its disk at the start of its last lives."""
        self.driver: Driver | None = None
        self.raft: Any = None
        self.core: Any = None
        self.work: QueuedDisk
        self._lives = 0

    @property
    def is_leader(self) -> bool:
        """Whether it takes itself for the leader."""
        return self.up and self.driver is not None and self.driver.is_leader

    @property
    def applied_end(self) -> int:
        """Number of entries that it has applied."""
        return self.core.applied + 1

    @property
    def log_size(self) -> int:
        """Entries of the quorum's log that it keeps."""
        log = self.raft.member.log
        return log.end - log.base.index

    def begin(self) -> None:
        """Begin a life as controller/node.py does."""
        self.copies = [*self.copies[-2:], self.disk.copy()]
        self.disk.restart()
        self.driver = None
        self.work = self._new_work()
        self.parts = handlers.Controller(
            self._config(), lambda: self.clock.now_ms, lambda _: Deferred()
        )
        self.table = Dispatcher()
        handlers.register(self.table, self.parts)
        try:
            self._open()
        except (OSError, StoreError) as error:
            self._disk_failed(OSError(str(error)))  # its process ends, and is started again

    def _open(self) -> None:
        """Open its files, and restore its state from them. Raises OSError or StoreError."""
        group, now_ms = self.group, self.clock.now_ms
        self.work = self._new_work()
        config = self.parts.config
        self.storage = storage = WatchedStorage(self, config.folder)
        restored = storage.open()
        group.journal.restores(self.name, restored.term, restored.vote)
        rng = random.Random(group.rng.getrandbits(32))
        members = addresses()
        options = raft_options(config, members)
        keep = min(options.snapshot_keep, config.snapshot_threshold)
        self.raft = Raft(replace(options, snapshot_keep=keep), restored, rng, now_ms)
        self.driver = Driver(
            DriverDeps(
                raft=self.raft,
                storage=storage,
                disk=self.work,
                calls=self.endpoint.call,
                refuses=self.endpoint.refuses,
                now_ms=lambda: self.clock.now_ms,
                failed=self._disk_failed,
            )
        )
        self.core = ControllerCore(config, self.driver, self._notify, self.endpoint.probe)
        self.parts.driver, self.parts.core = self.driver, self.core
        self.driver.begin_member(Watched(self, self.core), now_ms)

    def run(self, what: Callable[..., Any], *args: Any) -> Any:
        """Run code on its loop, which waits for the syncs that the code makes."""
        found = super().run(what, *args)
        if self.up and self.disk.spent_ms:
            self.group.stands(self)
        return found

    def _new_work(self) -> QueuedDisk:
        """A controller has one disk thread."""
        return QueuedDisk(self.group.rng, self.disk, lambda: self.group.now_ms, threads=1)

    def _config(self) -> ControllerConfig:
        plan = self.group.plan
        return ControllerConfig(
            peers=";".join(f"{key}-{address}" for key, address in addresses().items()),
            self_id=self.id,
            store_path=ROOT,
            enable_elect_unclean_master=plan.unclean,
            snapshot_threshold=plan.snapshot_entries,
        )

    def _notify(self, address: str, notice: Command) -> None:
        self.endpoint.notify(address, notice)

    def _disk_failed(self, error: OSError) -> None:
        """Drop all state but the files, as controller/node.py does."""
        has_trouble = self.disk.failed_syncs > 0 or error.errno == errno.ENOSPC
        assert has_trouble or "no space" in str(error), f"{self.name}: {error}"
        self.driver = self.parts.driver = self.parts.core = None
        self.endpoint.call_later(AGAIN_MS, self._open_again)

    def _open_again(self) -> None:
        self.storage.close()
        try:
            self._open()
        except (OSError, StoreError) as error:
            self._disk_failed(OSError(str(error)))

    def lose_disk(self) -> None:
        """Everything is gone while it is down."""
        self.disk.wipe(ROOT)

    def restore_disk(self) -> None:
        """Restore the disk to the start of an earlier life, while the controller is down."""
        self.disk.put_back(self.copies[int(self.group.rng.random() * len(self.copies))])

    def answer(self, request: Command, peer: Peer) -> Response:
        return self.table.dispatch(request, peer, self.clock.now_ms)

    def on_tick(self, now_ms: int) -> None:
        self.parts.tick()

    def turn(self) -> bool:
        """The loop's turn ends; True if its disk has work."""
        super().turn()
        for _ in range(len(self.work.ready()) if self.up else 0):
            if self.up and self.group.rng.random() < self.disk_chance:
                self.run(self.work.step)
        return self.up and bool(self.work.ready())

    def died(self) -> None:
        self.ended(power=not self.disk.kill)

    def crash(self, *, power: bool) -> None:
        self.disk.kill = not power
        self.disk.end()
        super().crash(power=power)

    def ended(self, *, power: bool) -> None:
        self.group.ends += 1
        super().ended(power=power)
        self.stands_until_ms = self.disk.spent_ms = 0
        self.driver = None

    def agreed_state(self) -> AgreedState:
        """State of the group in its tables."""
        found = self.core.tables.groups.get(GROUP)
        if found is None:
            return None, 0, frozenset(), 0, frozenset()
        numbers = found.master_epoch, found.members, found.set_epoch
        return found.master_id, *numbers, found.eligible

    def state(self) -> str:
        """Description of its state for a finding."""
        if not self.up or self.driver is None:
            return f"{self.name}: {'its disk failed' if self.up else 'down'}"
        leads = "leads" if self.is_leader else f"follows {self.raft.leader_id}"
        agreed = self.agreed_state()
        return f"{self.name}: {leads} in term {self.raft.term}, {self.log_size} entries: {agreed}"
