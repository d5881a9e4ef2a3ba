"""Brokers that replicate, on real stores, without sockets, threads or a clock.

`Network` queues all work until a test runs it, in order, so that the test sets the times of events;
the test or the brokers close connections.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbopump.broker.ha.options import HaOptions
from turbopump.broker.ha.ports import Alterations
from turbopump.broker.ha.service import HaService
from turbopump.broker.ha.sockets import ConnectionEvents
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk, Job
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.replicated import Replicated
from turbopump.engine.store import Store
from turbopump.engine.types import Appended, Buffer, FlushMode, NewMessage, PutStatus

START_MS = 1_700_000_000_000
FILE_SIZE = 4 * 4096


@dataclass
class End:
    """An end of a connection."""

    shell: "MemoryShell"
    number: int
    other: "End | None" = None
    open: bool = True


class Network:
    """Delivers the sent bytes; `now_ms` is the clock of all brokers."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.listening: dict[str, MemoryShell] = {}
        self.todo: deque[Callable[[], None]] = deque()
        self.unreachable: set[str] = set()
        self.piece = 0
        """Bytes are delivered in pieces of that size; 0: as they were sent."""

    def run(self) -> None:
        """Run queued work until the queue is empty."""
        for _ in range(100_000):
            if not self.todo:
                return
            self.todo.popleft()()
        raise AssertionError("the network does not come to rest")


class MemoryShell:
    """Transport of a broker over the simulated network."""

    def __init__(self, network: Network, events: ConnectionEvents) -> None:
        self.network = network
        self.events = events
        self.ends: dict[int, End] = {}
        self.blocked: set[int] = set()
        """Connections whose peer does not read: sends are refused."""
        self.paused: set[int] = set()
        """Connections whose received bytes are not read."""
        self._address = ""
        self._numbers = 0

    async def listen(self, host: str, port: int) -> int:
        self._address = f"{host}:{port}"
        self.network.listening[self._address] = self
        return port

    async def stop(self) -> None:
        self.network.listening.pop(self._address, None)
        for number in list(self.ends):
            self.close(number)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.network.todo.append(callback)

    def address(self, connection: int) -> str:
        return f"peer-{connection}" if connection in self.ends else ""

    def connect(self, address: str) -> int:
        end = self._new()
        self.network.todo.append(lambda: self._connect(end, address))
        return end.number

    def send(self, connection: int, buffers: list[Buffer]) -> bool:
        end = self.ends.get(connection)
        data = b"".join(bytes(buffer) for buffer in buffers)
        piece = self.network.piece or len(data)
        for at in range(0, len(data), piece):
            part = data[at : at + piece]
            self.network.todo.append(lambda part=part: self._deliver(end, part))
        return connection not in self.blocked

    def set_paused(self, connection: int, paused: bool) -> None:
        (self.paused.add if paused else self.paused.discard)(connection)

    def close(self, connection: int) -> None:
        end = self.ends.pop(connection, None)
        if end is not None:
            end.open = False
            self.network.todo.append(lambda: self._closed(end.other, "reset"))

    def cut(self) -> None:
        """Break all connections; both sides are notified."""
        for end in list(self.ends.values()):
            other = end.other
            self.network.todo.append(lambda end=end: self._closed(end, "cut"))
            self.network.todo.append(lambda other=other: self._closed(other, "cut"))

    def take_more(self) -> None:
        """Unblock all connections, so that blocked bytes are written again."""
        blocked, self.blocked = self.blocked, set()
        for connection in blocked:
            self.events.on_writable(connection)

    def _new(self) -> End:
        self._numbers += 1
        end = self.ends[self._numbers] = End(self, self._numbers)
        return end

    def _connect(self, end: End, address: str) -> None:
        if not end.open:
            return
        server = self.network.listening.get(address)
        if server is None or address in self.network.unreachable:
            self._closed(end, "refused")
            return
        end.other = server._new()
        end.other.other = end
        server.events.on_accepted(end.other.number)
        self.events.on_connected(end.number)

    def _deliver(self, end: End | None, data: bytes) -> None:
        if end is not None and end.open and end.other is not None and end.other.open:
            end.other.shell.events.on_bytes(end.other.number, memoryview(data))

    def _closed(self, end: End | None, reason: str) -> None:
        if end is not None and end.open:
            end.open = False
            end.shell.ends.pop(end.number, None)
            end.shell.events.on_closed(end.number, reason)


@dataclass
class Broker:
    """A store and its replication."""

    network: Network
    root: Path
    number: int
    options: HaOptions
    alterations: Alterations | None = None
    disk: "HeldDisk" = field(default_factory=lambda: HeldDisk())
    store: Store = field(init=False)
    log: Replicated = field(init=False)
    service: HaService = field(init=False)
    shell: MemoryShell = field(init=False)

    def __post_init__(self) -> None:
        mode = FlushMode.SYNC_FLUSH if self.options.sync_flush else FlushMode.ASYNC_FLUSH
        config = StoreConfig(
            root=str(self.root / str(self.number)),
            mapped_file_size_commit_log=FILE_SIZE,
            mapped_file_size_consume_queue=20 * 100,
            max_hash_slot_num=100,
            max_index_num=400,
            flush_disk_type=mode,
        )
        self.store = Store.open(RealFiles(), config, self.disk, self.network.now_ms)
        self.log = self.store.as_replicated(
            self.network.now_ms, plain=not self.options.has_elections
        )
        self.service = HaService(
            self.options,
            self.log,
            RealFiles(),
            self.disk,
            lambda: self.network.now_ms,
            lambda: self.network.now_ms,
            alterations=self.alterations,
            shell=self._shell,
        )

    def _shell(self, events: ConnectionEvents) -> MemoryShell:
        self.shell = MemoryShell(self.network, events)
        return self.shell

    @property
    def address(self) -> str:
        return f"{self.options.bind_address}:{self.options.ha_listen_port}"

    def start(self) -> "Broker":
        step(self.service.start())
        return self

    def stop(self) -> None:
        step(self.service.stop())
        self.store.close(self.network.now_ms)

    def put(self, body: bytes = b"body", queue_id: int = 0) -> Appended:
        message = NewMessage("topic", queue_id, body, b"KEYS\x01k\x02")
        return self.store.append(message, self.network.now_ms)

    def need(self) -> int | None:
        """Number of copies that a message appended now needs."""
        term = self.service.term
        return 1 if term is None else term.copies_needed()

    def send(self, body: bytes = b"body", queue_id: int = 0) -> list[PutStatus]:
        """Append like the send path; the returned list receives the sender's status."""
        responses: list[PutStatus] = []
        need = self.need()
        assert need is not None, "not enough replicas"
        appended = self.put(body, queue_id)
        if appended.status is not PutStatus.PUT_OK:
            return [appended.status]
        self.store.when_safe(appended, need).then(responses.append)
        self.service.on_log_grown()
        return responses

    def tick(self) -> None:
        self.store.tick(self.network.now_ms)
        self.service.tick()

    def log_bytes(self) -> bytes:
        log = self.log
        at, parts = log.min, []
        while at < log.end:
            size = min(log.end - at, log.file_size - at % log.file_size)
            parts += [bytes(view) for view in log.view(at, size)]
            at += size  # type: ignore[assignment]
        return b"".join(parts)

    def read(self, queue_id: int = 0) -> list[bytes]:
        """Bodies that a consumer reads."""
        bodies: list[bytes] = []
        at = 0
        while self.store.max_queue_offset("topic", queue_id) > at:
            for unit in self.store.units("topic", queue_id, at, 32):
                record = self.store.record_of(unit)
                assert record is not None
                bodies.append(bytes(record.body))
                at += 1
        return bodies


class HeldDisk(InlineDisk):
    """A disk that works at once or, between `hold` and `release`, when a caller waits for it; log
    files are made at once or, with `holds_files`, by `make_files`."""

    def __init__(self) -> None:
        self._held: list[_HeldJob] | None = None
        self.holds_files = False
        self._files: list[_HeldJob] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> Job:
        makes_file = getattr(getattr(work, "func", None), "__name__", "") == "_create"
        if not self.holds_files if makes_file else self._held is None:
            return super().submit(work, done)
        job = _HeldJob(work, done)
        if makes_file:
            self._files.append(job)
        else:
            assert self._held is not None
            self._held.append(job)
        return job

    def make_files(self) -> None:
        """Make the pending log files, and later ones at once."""
        self.holds_files = False
        files, self._files = self._files, []
        for job in files:
            job.wait_and_report()

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for job in held:
            job.wait_and_report()


class _HeldJob:
    def __init__(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._parts: tuple[Callable[[], Any], Callable[[Any], None]] | None = (work, done)

    def wait_and_report(self) -> None:
        parts, self._parts = self._parts, None
        if parts is not None:
            InlineDisk().submit(*parts)


def step(coroutine: object) -> None:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)  # type: ignore[attr-defined]
    except StopIteration:
        return
    raise AssertionError("it waits for something")


class Group:
    """Brokers 1, 2, ... on a common network."""

    def __init__(self, root: Path) -> None:
        self.network = Network()
        self.root = root
        self.brokers: dict[int, Broker] = {}

    def add(
        self, number: int, options: HaOptions, alterations: Alterations | None = None
    ) -> Broker:
        self.brokers[number] = Broker(self.network, self.root, number, options, alterations)
        return self.brokers[number].start()

    def settle(self, pass_ms: int = 0) -> None:
        """Advance the clock in ticks of 100 ms, and run all work that follows."""
        self.network.run()
        for _ in range(max(1, pass_ms // 100)):
            self.network.now_ms += 100
            for broker in self.brokers.values():
                broker.tick()
            self.network.run()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.stop()
        self.network.run()
