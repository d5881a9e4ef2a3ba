"""A running controller: binds the cores to clock, loop, files, sockets and random numbers.

Owns start, the ticks, the notices to brokers and stop. It must never answer a request itself, nor
know the meaning of an entry or of a message of the quorum.

Tests: tests/integration/controller/test_nodes.py
"""

import asyncio
import errno
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path

from turbopump.controller import handlers
from turbopump.controller.config import ControllerConfig
from turbopump.controller.core import ControllerCore
from turbopump.controller.death_probe import Probed
from turbopump.controller.driver import Driver, DriverDeps
from turbopump.controller.handlers import Controller
from turbopump.controller.raft.core import Raft
from turbopump.controller.raft.options import RaftOptions
from turbopump.controller.raft.storage import RaftStorage
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import DiskThreads
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import StoreError
from turbopump.net.config.config_file import save_changes
from turbopump.net.transport.calls import Calls
from turbopump.net.transport.client import Client
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.errors import RemotingError
from turbopump.net.transport.options import RemotingOptions, ServerOptions
from turbopump.net.transport.server import Server
from turbopump.net.wire.command import Command
from turbopump.net.wire.hosts import join, split_host_port
from turbopump.net.wire.java_properties import ConfigError, Property

logger = logging.getLogger(__name__)

TICK_MS = 20
"""Interval of the ticks that drive elections, heartbeats of the quorum and scans of brokers
(DLedger: 10)."""
NOTICE_TIMEOUT_MS = 3_000
"""Timeout of a notice to a broker (RocketMQ: ControllerManager.notifyBrokerRoleChanged)."""
CONNECT_TIMEOUT_MS = 1_000
"""Timeout of a connection to a peer or a broker, for a machine that does not respond."""
STOP_S = 10.0
"""Seconds that a stop waits for the disk."""
AGAIN_MS = 1_000
"""Pause after a disk failure, before the files are opened again as by a new process."""


def steady_ms() -> int:
    """Return the monotonic clock in ms, which measures signs of life and leases.

    A wall clock set forward would make every broker silent, one set back would lengthen leases.
    """
    return time.monotonic_ns() // 1_000_000


class ControllerNode:
    """A controller on the running loop.

    `config` belongs to the node: UPDATE_CONTROLLER_CONFIG and `listen` change it. `files` defaults
    to the real ones, `seed` makes its random waits repeatable, `now_ms` is its monotonic clock in
    ms (default `steady_ms`). A node is started once and stopped once.
    """

    def __init__(
        self,
        config: ControllerConfig,
        files: Files | None = None,
        seed: int | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._config = config
        self._files = files or RealFiles()
        self._random = random.Random(seed)
        self._now_ms = now_ms or steady_ms
        client_tls = config.client_tls
        options = RemotingOptions(connect_timeout_ms=CONNECT_TIMEOUT_MS, tls=client_tls)
        self._client = Client(self._now_ms, options=options)
        self._calls = Calls(self._client)
        self._notices: dict[str, Command] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: Server | None = None
        self._port = 0
        self._timer: asyncio.TimerHandle | None = None
        self._disk: DiskThreads | None = None
        self._storage: RaftStorage | None = None
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop
        self._parts = Controller(config, self._now_ms, self._save_config)

    @property
    def address(self) -> str:
        """`host:port` under which peers and brokers know this controller; known after `listen`."""
        return self._members()[self._config.self_id]

    @property
    def is_leader(self) -> bool:
        """Whether this controller leads the quorum and has applied all earlier leaders' entries."""
        return self._parts.driver is not None and self._parts.driver.is_leader

    async def listen(self) -> int:
        """Open the port and return its number; requests are refused until `start`.

        `start` calls it if needed; call it before if others must know the port. Raises ConfigError
        if the address cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        dispatcher = Dispatcher()
        handlers.register(dispatcher, self._parts)
        options = ServerOptions(
            idle_timeout_ms=self._config.server_channel_max_idle_seconds * 1_000,
            tls=self._config.tls,
        )
        server = Server(dispatcher, options, self._now_ms)
        host, port = self._config.listen_at
        self._config.bind_address = host
        try:
            self._port = await server.start(host, port)
        except OSError as error:
            known = error.errno is not None and error.errno > 0  # a resolver's numbers are not
            what = os.strerror(error.errno or 0) if known else error.strerror or str(error)
            reason = f"the controller cannot listen on {join(host, port)}: {what}"
            if error.errno == errno.EADDRNOTAVAIL:
                reason += " (set bindAddress if its peers know it by another address)"
            raise ConfigError(reason) from None
        self._server = server
        return self._port

    async def start(self) -> None:
        """Open the files and take part in the quorum; does not wait for a leader.

        Raises ConfigError, StoreError or TlsError; nothing runs then.
        """
        try:
            if self._server is None:
                await self.listen()
            self._folder = str(Path(self._config.folder).expanduser())
            self._disk = DiskThreads(self._loop.call_soon_threadsafe, threads=1)
            self._make_member()
            self._tick()
        except BaseException:
            await self.stop()
            raise
        logger.info("controller %s listens on %s", self._config.self_id, self.address)

    async def stop(self) -> None:
        """Leave the quorum and close every connection, so that the peers elect another leader at
        once; then wait up to STOP_S for the disk, and close the files."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._parts.driver is not None:
                self._parts.driver.drop_actions()
        finally:
            await self._stop_serving()
        self._server = self._disk = None

    async def _stop_serving(self) -> None:
        """Close the port, the connections and the files, each even if an earlier one fails or this
        is cancelled."""
        async with AsyncExitStack() as parts:  # the last one is released first
            parts.push_async_callback(self._close_files)
            parts.push_async_callback(self._client.close)
            parts.callback(self._cancel_tasks)
            parts.push_async_callback(self._calls.stop)
            if self._server is not None:
                parts.push_async_callback(self._server.stop)

    def _cancel_tasks(self) -> None:
        """Cancel the notices and probes under way."""
        for task in list(self._tasks):
            task.cancel()

    async def _close_files(self) -> None:
        """Close the quorum's files, or, if a sync does not return within STOP_S, leave
        them open."""
        if self._disk is None or await self._disk.close_within(STOP_S):
            self._close_storage()
        else:
            logger.error(
                "controller %s: a sync did not return within the time of a stop",
                self._config.self_id,
            )

    def _members(self) -> dict[str, str]:
        """`host:port` of all members by id; of a single member with the port it listens at."""
        members = self._config.members
        if not self._config.peers:
            host = split_host_port(members[self._config.self_id])[0]
            members = {self._config.self_id: join(host, self._port)}
        return members

    def _make_member(self) -> None:
        """Make a member of the quorum from the files. Raises StoreError."""
        assert self._disk is not None
        now_ms = self._now_ms()
        self._storage = storage = RaftStorage(self._files, self._folder)
        try:
            restored = storage.open()
        except OSError as error:
            raise StoreError(f"{self._folder} cannot be used: {error}") from None
        raft = Raft(raft_options(self._config, self._members()), restored, self._random, now_ms)
        driver = Driver(
            DriverDeps(
                raft=raft,
                storage=storage,
                disk=self._disk,
                calls=self._calls,
                refuses=self._probe_refused,
                now_ms=self._now_ms,
                failed=self._on_disk_failed,
            )
        )
        core = ControllerCore(self._config, driver, self._send_notice, self._probe_host)
        self._parts.driver, self._parts.core = driver, core
        driver.begin_member(core, now_ms)

    def _close_storage(self) -> None:
        """Close the quorum's files, if they are open."""
        storage, self._storage = self._storage, None
        if storage is not None:
            storage.close()

    def _tick(self) -> None:
        """Advance the time of the cores, and schedule the next tick."""
        # Scheduled first, so that the ticks continue whatever fails below.
        self._timer = self._loop.call_later(TICK_MS / 1_000, self._tick)
        self._parts.tick()

    def _on_disk_failed(self, error: OSError) -> None:
        """Forget all state except the files, like a killed process that is started again."""
        logger.error(
            "controller %s reopens its files after a disk failure: %s", self._config.self_id, error
        )
        self._parts.driver = self._parts.core = None
        if self._timer is not None:
            self._timer.cancel()
        if not self._stopped:
            self._timer = self._loop.call_later(AGAIN_MS / 1_000, self._restart_member)

    def _restart_member(self) -> None:
        """Make the member again from the files after a disk failure, or wait for another
        attempt."""
        self._close_storage()
        try:
            self._make_member()
        except StoreError as error:
            self._on_disk_failed(OSError(str(error)))
            return
        self._tick()

    def _probe_refused(self, address: str) -> Deferred[bool]:
        """Connect to an address; resolves with whether its host refused the connection."""
        return self._probe_host(address).map(lambda found: found is Probed.REFUSED)

    def _probe_host(self, address: str) -> Deferred[Probed]:
        """Connect to a broker's address; resolves with whether its host accepted, refused
        or did not answer."""
        later: Deferred[Probed] = Deferred()
        self._start_task(self._connect_and_resolve(address, later))
        return later

    async def _connect_and_resolve(self, address: str, later: Deferred[Probed]) -> None:
        """Connect to an address, for at most CONNECT_TIMEOUT_MS, and resolve `later` with
        the outcome."""
        found = Probed.NO_RESPONSE
        try:
            host, port = split_host_port(address)
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1_000):
                transport, _ = await self._loop.create_connection(asyncio.Protocol, host, port)
            transport.close()
            found = Probed.ACCEPTED
        except ConnectionRefusedError:
            found = Probed.REFUSED
        except (OSError, ValueError):  # TimeoutError, too; or the text is no address
            pass
        later.resolve(found)

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine as a task that `_cancel_tasks` cancels."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send_notice(self, address: str, notice: Command) -> None:
        """Send a broker its role.

        Each address has one task, which sends only the newest waiting notice: brokers ignore older
        epochs.
        """
        is_sending = address in self._notices
        self._notices[address] = notice
        if not is_sending and not self._stopped:
            self._start_task(self._send_notices(address))

    async def _send_notices(self, address: str) -> None:
        """Send the waiting notice of a broker's address, and newer ones that arrive meanwhile; a
        failure is logged."""
        sent: Command | None = None
        try:
            while (notice := self._notices[address]) is not sent:
                sent = notice
                try:
                    await self._client.notify(address, notice, NOTICE_TIMEOUT_MS)
                except RemotingError as error:
                    logger.warning(
                        "broker %s was not notified of its group's master: %s", address, error
                    )
        finally:
            del self._notices[address]

    def _save_config(self, changed: list[Property]) -> Deferred[OSError | None]:
        """Write changed properties on a disk thread; resolves with None or the error."""
        if self._disk is None:
            return Deferred.resolved(None)
        saved: Deferred[OSError | None] = Deferred()
        self._disk.submit(lambda: self._write_config(changed), saved.resolve)
        return saved

    def _write_config(self, changed: list[Property]) -> None:
        """Write changed properties into the configuration file; runs on a disk thread."""
        if self._config.config_store_path:
            path = str(Path(self._config.config_store_path).expanduser())
            save_changes(self._files, path, changed)


def raft_options(config: ControllerConfig, members: dict[str, str]) -> RaftOptions:
    """Convert the configuration to the quorum's options; `members` is `host:port` by id."""
    return RaftOptions(
        self_id=config.self_id,
        peers=members,
        group=config.group,
        heart_beat_time_interval_ms=config.heartbeat_interval_ms,
        max_heart_beat_leak=config.heartbeat_leak_max,
        min_vote_interval_ms=config.vote_interval_ms_min,
        max_vote_interval_ms=config.vote_interval_ms_max,
        vote_wait_ms=config.heartbeat_interval_ms,
        preferred_leader_ids=tuple(filter(None, config.preferred_leader_ids.split(";"))),
        snapshot_threshold=config.snapshot_threshold,
    )
