"""Several brokers on one loop, and the port at which brokers are added and removed.

Owns start and stop of each, so that no broker takes another down. It must never know a broker's
work: each is a whole node with its own store, disks, ports and tables.

    its file -> broker_config -> Members.reason_to_refuse -> BrokerNode.start -> serving ->
    BrokerNode.stop

Tests: tests/unit/broker/container/test_members.py, tests/integration/broker/test_container.py
"""

import asyncio
import contextvars
import logging
import stat
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.container.config import (
    FILE_MAX,
    AddRefused,
    ContainerConfig,
    broker_config,
)
from turbopump.broker.container.handlers import BrokerOutcome, ContainerRequests
from turbopump.broker.container.local_master import LocalMaster
from turbopump.broker.container.members import (
    ContainerMember,
    InnerBroker,
    LifeStage,
    Members,
    claims_of,
    own_claims,
)
from turbopump.broker.escape.topic_masters import Neighbour
from turbopump.broker.lifecycle.asyncio_util import resolve_future
from turbopump.broker.node import BrokerNode
from turbopump.broker.registration.addresses import (
    VIP_DISTANCE,
    StartError,
    listen_error_text,
    local_ip,
)
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import DiskThreads
from turbopump.engine.disk.real_files import MAPPED_FILES_MIN, RealFiles
from turbopump.engine.types import StoreError
from turbopump.net.config.config_file import save_changes
from turbopump.net.transport.dispatcher import Dispatcher, one_line
from turbopump.net.transport.options import ServerOptions
from turbopump.net.transport.server import Server
from turbopump.net.transport.tls import TlsError
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.hosts import join
from turbopump.net.wire.java_properties import PropertiesError, Property
from turbopump.net.wire.topics import DataVersion

T = TypeVar("T")
Make = Callable[[BrokerConfig, Callable[[], Sequence[Neighbour]]], InnerBroker]
"""Makes a broker from a configuration and a function that returns the container's masters."""

logger = logging.getLogger(__name__)

STOP_S: Final = 10.0
"""Seconds that a stop waits for the disk of the configuration files."""
MAPPING_SHARES_MIN: Final = 4
"""Minimum number of equal shares into which the process's file mappings are divided: more brokers
may be added later."""
KNOWN_FAILURES: Final = (StartError, StoreError, PropertiesError, TlsError, OSError)
"""Errors of a start whose text is a sentence for the operator."""

BROKER: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("broker", default="")
"""Name of the container's broker that the loop works for, shown in log lines."""


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """Event of a broker, as reported to the container's user: it serves (with its address), failed
    to start (with the reason) or has stopped."""

    kind: str
    """Kind of the event: "ready", "failed" or "removed"."""
    name: str
    """Broker name cluster_name_id as in RocketMQ; for a broker that did not start, the path of its
    file."""
    text: str
    """Address `host:port` of a broker that is ready; reason of a failure; for a removed broker, the
    problem of its stop, or ""."""


@dataclass(frozen=True, slots=True)
class _Start:
    """The start of a broker in progress: the task to cancel, and an event that is set once the
    start has ended."""

    task: asyncio.Task[None]
    over: asyncio.Event


class SharedProcessFiles(RealFiles):
    """Files of a broker that shares its process with others: the number of mapped files is limited
    per process."""

    def __init__(self, brokers: Callable[[], int]) -> None:
        """`brokers` returns the number of brokers at the time the store is opened."""
        super().__init__()
        self._brokers = brokers

    def mapping_limit(self) -> int:
        """Maximum number of files that this broker may have mapped, its share of the process's;
        beyond it files are unmapped, and mapped again when they are read."""
        parts = max(MAPPING_SHARES_MIN, self._brokers())
        return max(MAPPED_FILES_MIN, super().mapping_limit() // parts)


class ContainerNode:
    """A container on the running loop; loop thread only. `make` makes its brokers, by default
    BrokerNodes; `on_event` is called with their events, on the loop."""

    def __init__(
        self,
        config: ContainerConfig,
        *,
        files: Files | None = None,
        make: Make | None = None,
        on_event: Callable[[BrokerEvent], None] = lambda _event: None,
    ) -> None:
        self._config = config
        self._files: Files = files or RealFiles()
        self._make, self._on_event = make or self._make_broker, on_event
        self._members = Members([])
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading: set[asyncio.Future[Any]] = set()
        """Configuration files that are being read."""
        self._starts: dict[ContainerMember, _Start] = {}
        self._disk: DiskThreads | None = None
        self._server: Server
        self._stopping = False
        self._address = ""
        self.unclean: list[str] = []
        """Sentences with name and reason about brokers that did not stop in order; set by `stop`,
        empty if all did."""

    @property
    def address(self) -> str:
        """Address `host:port` for requests that add and remove brokers; "" before `start`."""
        return self._address

    @property
    def members(self) -> Members:
        """The brokers of the container, also while they start or stop; for reading. Replaced by
        `start`."""
        return self._members

    async def start(self) -> None:
        """Listen, and begin to start the brokers of brokerConfigPaths, all at once, without waiting
        for them: each serves as soon as its own store is open, and `on_event` reports it. Raises
        StartError; then nothing runs."""
        config, table = self._config, Dispatcher()
        requests = ContainerRequests(
            config, self.add, self.remove, self._save, DataVersion(timestamp=_now_ms())
        )
        requests.register(table)
        options = ServerOptions(
            idle_timeout_ms=config.server_channel_max_idle_seconds * 1_000, tls=config.tls
        )
        self._server = Server(table, options, _now_ms)
        try:
            await self._open_ports()
            logger.info("container listens at %s", self._address)
            for path in config.broker_config_paths:
                self.add(path)
        except BaseException:
            await self.stop()
            raise

    async def _open_ports(self) -> None:
        """Open the ports and start the disk's thread. Raises StartError."""
        config = self._config
        host, vip = config.bind_address, config.vip_port_enable
        vip = vip and config.listen_port > VIP_DISTANCE
        try:
            port = await self._server.start(host, config.listen_port)
            if vip:
                await self._server.start(host, port - VIP_DISTANCE)
        except (OSError, TlsError) as error:
            raise StartError(listen_error_text(host, config.listen_port, error)) from None
        self._disk = DiskThreads(asyncio.get_running_loop().call_soon_threadsafe, threads=1)
        self._members = Members(own_claims(host, port, vip))
        self._address = join(config.broker_container_ip or local_ip(), port)

    async def stop(self) -> None:
        """Stop all brokers, replicas before masters, and close the port; returns when all have
        stopped, and sets `unclean`. No broker waits for another broker's disk; the time of each
        stop is bounded (broker/lifecycle/shutdown.py)."""
        self._stopping = True
        try:
            replicas = [one for one in self._members if not one.is_master]
            reasons = await asyncio.gather(*map(self._stop_member, replicas))
            reasons += await asyncio.gather(*map(self._stop_member, self._members))
            self.unclean = [reason for reason in reasons if reason]
            for reading in self._reading:
                reading.cancel()
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            try:
                await self._server.stop()
            finally:
                if self._disk is not None and not await self._disk.close_within(STOP_S):
                    logger.error("the disk with the configuration files did not answer in time")

    def add(self, path: str) -> Deferred[BrokerOutcome]:
        """Begin to start the broker whose configuration file is at `path`. Resolves once: SUCCESS
        when it serves, or SYSTEM_ERROR with the reason why it does not; `on_event` is called
        before."""
        return self._run(self._add(path))

    def remove(self, cluster: str, name: str, broker_id: int) -> Deferred[BrokerOutcome]:
        """Begin to stop the broker with this cluster, brokerName and id like a process; a start in
        progress is cancelled. Resolves when it has stopped: SUCCESS, BROKER_NOT_EXIST without such
        a broker, or SYSTEM_ERROR with the reason if it did not stop in order."""
        return self._run(self._remove(cluster, name, broker_id))

    def _make_broker(
        self, config: BrokerConfig, neighbours: Callable[[], Sequence[Neighbour]]
    ) -> BrokerNode:
        """Make a BrokerNode that shares the process's limit of mapped files with the other
        brokers."""
        files = SharedProcessFiles(lambda: len(list(self._members)))
        return BrokerNode(config, files=files, neighbours=neighbours)

    def _running_masters(self) -> list[Neighbour]:
        """Return the brokers of the container that are masters now, in the order in which they were
        added."""
        call_later = asyncio.get_running_loop().call_later
        return [
            LocalMaster(one.node, _now_ms, call_later) for one in self._members if one.is_master
        ]

    def _run(self, work: Coroutine[Any, Any, BrokerOutcome]) -> Deferred[BrokerOutcome]:
        """Run a coroutine as a task; resolves to its outcome, or to SYSTEM_ERROR if it raises or is
        cancelled."""
        later: Deferred[BrokerOutcome] = Deferred()

        async def run() -> None:
            try:
                outcome = await work
            except asyncio.CancelledError:
                later.resolve(BrokerOutcome(ResponseCode.SYSTEM_ERROR, "the container is stopped"))
                raise
            except Exception as error:
                logger.exception("adding or removing a broker failed")
                outcome = BrokerOutcome(ResponseCode.SYSTEM_ERROR, one_line(error))
            later.resolve(outcome)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return later

    async def _add(self, path: str) -> BrokerOutcome:
        """Start the broker whose file is at `path`, log and report the result by `on_event`, and
        return the outcome."""
        try:
            name, address = await self._start_from_file(path)
        except AddRefused as error:
            reason = str(error)
        else:
            logger.info("broker %s serves at %s", name, address)
            self._on_event(BrokerEvent("ready", name, address))
            return BrokerOutcome()
        logger.error("the broker of %s was not added: %s", path, reason)
        self._on_event(BrokerEvent("failed", path, reason))
        return BrokerOutcome(ResponseCode.SYSTEM_ERROR, reason)

    async def _start_from_file(self, path: str) -> tuple[str, str]:
        """Read the configuration file at `path`, add its broker as a member and start it; return
        the broker's (name, address) once it serves. Raises AddRefused."""
        try:
            config, warnings, folders = await self._run_on_thread(partial(self._read_file, path))
        except OSError as error:
            why = error.strerror or str(error)
            raise AddRefused(f"addBroker properties empty: {path}: {why}") from None
        except PropertiesError as error:
            raise AddRefused(f"{path}: {error}") from None
        for warning in warnings:
            logger.warning("%s: %s", path, warning)
        claims = claims_of(config, folders)
        refusal = (
            "the container stops"
            if self._stopping
            else self._members.reason_to_refuse(config, claims)
        )
        if refusal:
            raise AddRefused(refusal)
        member = ContainerMember(config, self._make(config, self._running_masters), claims)
        self._members.add(member)
        await self._start_member(member)
        return member.name, member.node.address

    async def _start_member(self, member: ContainerMember) -> None:
        """Start a member and wait until it serves. Raises AddRefused if it fails; then nothing of
        it runs, and it is no member."""
        starting = _named_task(member.name, member.node.start())
        start = self._starts[member] = _Start(starting, asyncio.Event())
        try:
            await asyncio.wait([starting])
            reason = _why_not_started(starting, member)
        finally:
            del self._starts[member]
            start.over.set()
        if reason:
            self._members.remove_member(member)
            raise AddRefused(reason)
        member.state = LifeStage.SERVING

    async def _remove(self, cluster: str, name: str, broker_id: int) -> BrokerOutcome:
        """Stop the broker with this cluster, brokerName and id, and return the outcome."""
        member = self._members.find(cluster, name, broker_id)
        if member is None:
            return BrokerOutcome(ResponseCode.BROKER_NOT_EXIST, "Broker not exist")
        reason = await self._stop_member(member)
        if reason:
            return BrokerOutcome(ResponseCode.SYSTEM_ERROR, reason)
        return BrokerOutcome()

    async def _stop_member(self, member: ContainerMember) -> str:
        """Stop a member that starts or serves, and remove it; return why it did not stop in order,
        "" if it did or another call stops it."""
        start = self._starts.get(member)
        if start is not None:
            start.task.cancel()
            await start.over.wait()
        if member.state is not LifeStage.SERVING:
            return ""
        name, reason = member.name, ""
        member.state = LifeStage.STOPPING
        try:
            await _named_task(name, member.node.stop())
        except Exception as error:
            logger.exception("broker %s did not stop in order", name)
            reason = f"{name} did not stop in order: {one_line(error)}"
        self._members.remove_member(member)
        self._on_event(BrokerEvent("removed", name, reason))
        return reason

    def _read_file(self, path: str) -> tuple[BrokerConfig, list[str], list[str]]:
        """Read the configuration file of a broker; return (configuration, warnings, absolute paths
        of its folders without links). Blocks, for the disk's thread. Raises OSError, AddRefused,
        PropertiesError."""
        text = _text_of(path)
        config, warnings = broker_config(text, path, self._config)
        store = config.store
        folders = [store.root, store.log_folder]
        return config, warnings, [str(Path(folder).expanduser().resolve()) for folder in folders]

    async def _run_on_thread(self, work: Callable[[], T]) -> T:
        """Return the result of `work` on the disk's thread; raises the exception of `work`."""
        done: asyncio.Future[tuple[T | None, Exception | None]]
        done = asyncio.get_running_loop().create_future()

        def attempt() -> tuple[T | None, Exception | None]:
            try:
                return work(), None
            except (OSError, AddRefused, PropertiesError) as error:
                return None, error

        def ended(result: "tuple[T | None, Exception | None] | OSError") -> None:
            resolve_future(done, (None, result) if isinstance(result, OSError) else result)

        assert self._disk is not None, "the container is running"
        self._reading.add(done)
        done.add_done_callback(self._reading.discard)
        self._disk.submit(attempt, ended)
        value, error = await done
        if error is not None:
            raise error
        assert value is not None
        return value

    def _save(self, changed: list[Property]) -> Deferred[OSError | None]:
        """Write changed properties to the container's own file; resolves to None, or the OSError.
        Then the brokers get changed name servers."""
        saved: Deferred[OSError | None] = Deferred()
        # Called after the container itself has the change.
        loop = asyncio.get_running_loop()

        def share(_error: OSError | None) -> None:
            loop.call_soon(self._share_name_servers)

        saved.then(share)
        if not self._config.path or not changed:
            saved.resolve(None)
            return saved
        assert self._disk is not None, "the container is running"
        work = partial(save_changes, self._files, self._config.path, changed)
        self._disk.submit(work, saved.resolve)
        return saved

    def _share_name_servers(self) -> None:
        """Give all brokers, even running brokers, the container's namesrvAddr."""
        shared = self._config.name_server_properties
        for member in self._members if shared else ():
            in_force = member.config.values_as_text()
            if any(in_force[item.key] != item.value for item in shared):
                member.config.update_keys(shared)
                if member.state is LifeStage.SERVING:
                    member.node.context.save_config(())


def _named_task(broker: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run `work` as a task whose log lines, and the log lines of its connections and timers, show
    the broker's name."""
    context = contextvars.copy_context()
    context.run(BROKER.set, broker)
    return asyncio.get_running_loop().create_task(work, context=context)


def _why_not_started(task: asyncio.Task[None], member: ContainerMember) -> str:
    """Return why a start that has ended failed, as a sentence; "" if the broker serves."""
    if task.cancelled():
        return f"{member.name} was removed while it started"
    error = task.exception()
    if error is None:
        return ""
    if isinstance(error, KNOWN_FAILURES):
        return f"start broker failed: {error}"
    logger.error("broker %s did not start", member.name, exc_info=error)
    return f"start broker failed: {one_line(error)}"


def _now_ms() -> int:
    """Epoch ms of the system's clock."""
    return time.time_ns() // 1_000_000


def _text_of(path: str) -> str:
    """The text of a configuration file that a peer names. Only regular files are read: reading a
    device, or a file of /proc, which has no size, may never end. Raises OSError."""
    at = Path(path).expanduser()
    status = at.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "it is no file")
    if status.st_size == 0:
        return ""
    with at.open("rb") as file:
        data = file.read(FILE_MAX + 1)
    if len(data) > FILE_MAX:
        raise OSError(0, f"it has more than {FILE_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise OSError(0, "it is not UTF-8 text") from None
