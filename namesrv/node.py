"""A running name server: picks the clock, the files and the socket, and drives the core.

Owns start, the liveness scan, notices to brokers and stop. It must never answer a request itself.

Tests: tests/integration/test_namesrv.py
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import DiskThreads
from turbopump.engine.disk.real_files import RealFiles
from turbopump.namesrv import handlers
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.handlers import NameServer
from turbopump.namesrv.key_values import KeyValues, table_from_json
from turbopump.namesrv.route_rows import Notice
from turbopump.namesrv.routes import RouteTable
from turbopump.net.config.config_file import save_changes
from turbopump.net.transport.client import Client
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.errors import RemotingError
from turbopump.net.transport.options import ServerOptions
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.server import Server
from turbopump.net.wire.bodies import BadBody, Steps
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.headers.routes import NotifyMinBrokerIdChangeRequest
from turbopump.net.wire.hosts import join, split_host_port
from turbopump.net.wire.java_properties import ConfigError, Property

logger = logging.getLogger(__name__)

NOTICE_TIMEOUT_MS = 300
"""Timeout of a notice (905) to a broker, in ms, as in RocketMQ: a group's members also poll each
other."""
STOP_S = 10.0
"""Maximum time in s for which a stop waits for the disk."""
PROBE_TIMEOUT_S = 3.0
"""Timeout in s of a connection that probes a broker's address."""
PROBES_MAX = 16
"""Maximum probes at a time of brokers whose id another broker claims; further probes are not
made."""
NOTICES_WAITING_MAX = 16
"""Maximum notices that wait for a broker; a newer notice displaces the oldest: only the newest
master counts in the end."""


def steady_ms() -> int:
    """The current time of the monotonic clock, in ms.

    A name server measures only signs of life: a wall clock that is put forward an hour would make
    all brokers silent at once.
    """
    return time.monotonic_ns() // 1_000_000


class NameServerNode:
    """A name server on the running loop; call `start` once, then `stop`.

    The node owns `config`: UPDATE_NAMESRV_CONFIG changes it. `files` None: the real files.
    """

    def __init__(self, config: NamesrvConfig, files: Files | None = None) -> None:
        self._config = config
        self._files = files or RealFiles()
        self._server: Server | None = None
        self._client = Client(steady_ms)
        self._scanning: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._notices: dict[str, deque[Notice]] = {}
        self._probed: set[str] = set()
        self._disk: DiskThreads | None = None
        self._routes = RouteTable()
        self._port = config.listen_port

    @property
    def address(self) -> str:
        """The `host:port` for clients on this machine; with listenPort 0 its port is known after
        `start`."""
        host = self._config.bind_address
        return join({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), self._port)

    def is_registered(self, name: str, address: str) -> bool:
        """Whether a broker of the group `name` is registered with this address, `host:port`."""
        return address in self._routes.member_group(name).values()

    def members(self, name: str) -> dict[int, str]:
        """Address of each registered broker of the group `name`, by broker id (0: the master); a
        copy, empty for an unknown group."""
        return dict(self._routes.member_group(name))

    async def start(self) -> None:
        """Load the key values, listen, and begin to scan for silent brokers.

        Raises ConfigError, StoreError or TlsError, a sentence about the unusable setting or file;
        nothing runs then.
        """
        try:
            await self._open()
        except BaseException:
            await self.stop()
            raise
        logger.info("name server listens on %s", join(self._config.bind_address, self._port))

    async def _open(self) -> None:
        """Load the key values, open the port and begin to scan. Raises as `start`."""
        dispatcher = Dispatcher()
        key_values = self._load_key_values()
        loop = asyncio.get_running_loop()
        self._disk = DiskThreads(loop.call_soon_threadsafe, threads=1)
        self._state = NameServer(
            self._config,
            self._routes,
            key_values,
            steady_ms(),
            self._queue_notice,
            self._save_config,
            self._begin_probe,
            self._run_steps,
        )
        handlers.register(dispatcher, self._state)
        options = ServerOptions(
            idle_timeout_ms=self._config.server_channel_max_idle_seconds * 1_000,
            tls=self._config.tls,
        )
        self._server = Server(dispatcher, options, steady_ms)
        host, port = self._config.bind_address, self._config.listen_port
        try:
            self._port = await self._server.start(host, port)
        except OSError as error:
            # the numbers of a resolver's errors are no errno
            known = error.errno is not None and error.errno > 0
            what = os.strerror(error.errno or 0) if known else error.strerror or str(error)
            reason = f"the name server cannot listen on {join(host, port)}: {what}"
            raise ConfigError(reason) from None
        self._unregister_silent()

    async def stop(self) -> None:
        """Finish pending requests, close every connection, and wait at most STOP_S for the disk;
        each even if an earlier one fails or this is cancelled. No effect on a name server that does
        not run."""
        if self._scanning is not None:
            self._scanning.cancel()
        async with AsyncExitStack() as parts:  # the last one is released first
            parts.push_async_callback(self._close_disk)
            parts.push_async_callback(self._client.close)
            parts.callback(self._cancel_sending)
            if self._server is not None:
                parts.push_async_callback(self._server.stop)

    def _cancel_sending(self) -> None:
        """Cancel the notices and probes under way."""
        for task in list(self._sending):
            task.cancel()

    async def _close_disk(self) -> None:
        """Stop the disk thread, or abandon it if a write does not end within STOP_S."""
        disk, self._disk = self._disk, None
        if disk is not None and not await disk.close_within(STOP_S):
            logger.error("the disk did not finish a write of the key values in time: abandoned")

    def _unregister_silent(self) -> None:
        """Unregister silent brokers, close their connections, and schedule the next scan."""
        # Scheduled first, so that an error below does not end the scans.
        interval_s = self._config.scan_not_active_broker_interval_ms / 1_000
        self._scanning = asyncio.get_running_loop().call_later(interval_s, self._unregister_silent)
        for expired in self._routes.unregister_silent(steady_ms()):
            logger.warning(
                "broker %s of cluster %s sent no heartbeat in time: unregistered",
                *reversed(expired.key),
            )
            assert isinstance(expired.connection, Peer)
            expired.connection.close()
            self._state.on_brokers_changed(expired.notices)

    def _queue_notice(self, notice: Notice) -> None:
        """Queue a notice for its targets.

        One task per address, so that a broker receives notices in order.
        """
        for address in notice.targets:
            waiting = self._notices.get(address)
            if waiting is not None:
                waiting.append(notice)
                continue
            self._notices[address] = deque([notice], NOTICES_WAITING_MAX)
            task = asyncio.get_running_loop().create_task(self._send_all(address))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_all(self, address: str) -> None:
        """Send the waiting notices of an address one after the other."""
        waiting = self._notices[address]
        try:
            while waiting:
                await self._send(address, waiting.popleft())
        finally:
            del self._notices[address]

    async def _send(self, address: str, notice: Notice) -> None:
        """Send a notice to an address; a failure is logged."""
        header = notice_header(notice)
        request = new_request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header, oneway=True)
        try:
            await self._client.notify(address, request, NOTICE_TIMEOUT_MS)
        except RemotingError as error:
            logger.warning(
                "broker %s was not notified of its group's new master: %s", address, error
            )

    def _begin_probe(self, address: str, refused: Callable[[int], None]) -> None:
        """Begin to connect to an address, at most PROBES_MAX at a time; see `_probe_address`."""
        if address not in self._probed and len(self._probed) < PROBES_MAX:
            self._probed.add(address)
            task = asyncio.get_running_loop().create_task(self._probe_address(address, refused))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _probe_address(self, address: str, refused: Callable[[int], None]) -> None:
        """Connect to an address; call `refused` if the connection is refused.

        A timeout is no proof: a firewall may block only this name server.
        """
        try:
            host, port = split_host_port(address)
            opening = asyncio.open_connection(host, port)
            _reader, writer = await asyncio.wait_for(opening, PROBE_TIMEOUT_S)
            writer.close()
        except TimeoutError:
            pass
        except (OSError, ValueError):
            refused(steady_ms())
        finally:
            self._probed.discard(address)

    def _load_key_values(self) -> KeyValues:
        """Read kvConfigPath; without a file there are no key values. Raises ConfigError."""
        path = Path(self._config.kv_config_path).expanduser()
        store = ConfigFiles(self._files, str(path.parent))
        try:
            self._files.make_folders(str(path.parent))
            value = store.load(path.name)
            table = {} if value is None else table_from_json(value)
        except (OSError, BadBody) as error:
            raise ConfigError(f"kvConfigPath={path} cannot be used: {error}") from None
        return KeyValues(
            lambda pieces: self._on_disk_thread(lambda: store.replace(path.name, pieces)), table
        )

    def _on_disk_thread(self, work: Callable[[], None]) -> Deferred[OSError | None]:
        """Run `work` on the disk thread; resolves with None or the error."""
        later: Deferred[OSError | None] = Deferred()
        assert self._disk is not None, "it is asked while it runs"
        self._disk.submit(work, later.resolve)
        return later

    def _run_steps(self, steps: Steps[None]) -> None:
        """Run steps on the loop, one per turn, until all are done."""

        def step() -> None:
            try:
                next(steps)
            except StopIteration:
                return
            loop.call_soon(step)

        loop = asyncio.get_running_loop()
        step()

    def _save_config(self, properties: list[Property]) -> Deferred[OSError | None]:
        """Write changed properties on the disk thread; resolves with None or the error."""
        return self._on_disk_thread(lambda: self._write_config(properties))

    def _write_config(self, changed: list[Property]) -> None:
        """Write changed properties back to the file. Runs on the disk thread."""
        if self._config.config_store_path:
            path = str(Path(self._config.config_store_path).expanduser())
            save_changes(self._files, path, changed)


def notice_header(notice: Notice) -> NotifyMinBrokerIdChangeRequest:
    """Build the header of 905 as RocketMQ's name server does, without the broker's name."""
    return NotifyMinBrokerIdChangeRequest(
        notice.min_broker_id,
        min_broker_addr=notice.min_address,
        offline_broker_addr=notice.offline_address,
        ha_broker_addr=notice.ha_address,
    )
