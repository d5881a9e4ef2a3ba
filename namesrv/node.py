"""A running name server: picks the clock, the files and the socket, and turns the core's wheel.

Owns start, the liveness scan, notices to brokers and stop. It must never answer a request itself.
Called by the CLI and by cluster.py.
"""

import asyncio
import logging
import os
import time
from collections import deque
from pathlib import Path

from turbopump.engine.config_files import ConfigFiles, replace_file
from turbopump.engine.files import Files, RealFiles
from turbopump.namesrv import handlers
from turbopump.namesrv.config import ConfigError, NamesrvConfig
from turbopump.namesrv.handlers import NameServer
from turbopump.namesrv.key_values import KeyValues, table_from_json, table_to_json
from turbopump.namesrv.routes import Notice, RouteTable
from turbopump.net.transport.client import Client
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.errors import RemotingError
from turbopump.net.transport.options import ServerOptions, TlsSettings
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.server import Server
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.headers.routes import NotifyMinBrokerIdChangeRequest
from turbopump.net.wire.hosts import join
from turbopump.net.wire.java_properties import updated_properties

log = logging.getLogger(__name__)

NOTICE_TIMEOUT_MS = 300  # RocketMQ's: a group's members also poll each other
NOTICES_WAITING_MAX = 16  # for one broker: only the newest lead counts in the end


def steady_ms() -> int:
    """Milliseconds of a clock that nobody sets. A name server measures only signs of life: a wall
    clock put forward an hour would make every broker silent at once."""
    return time.monotonic_ns() // 1_000_000


class NameServerNode:
    """One name server on the running loop.

    `config` is the node's own from now on: UPDATE_NAMESRV_CONFIG changes it.
    """

    def __init__(self, config: NamesrvConfig, files: Files | None = None) -> None:
        self._config = config
        self._files = files or RealFiles()
        self._server: Server | None = None
        self._client = Client(steady_ms)
        self._scanning: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._notices: dict[str, deque[Notice]] = {}
        self._routes = RouteTable()
        self._port = config.listen_port

    @property
    def address(self) -> str:
        """Where clients of this machine find it: `host:port`."""
        host = self._config.bind_address
        return join({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), self._port)

    def knows(self, name: str, address: str) -> bool:
        """Whether a broker is registered with this address."""
        return address in self._routes.member_group(name).values()

    def members(self, name: str) -> dict[int, str]:
        """The registered brokers of a group: address by id, 0 the master's."""
        return dict(self._routes.member_group(name))

    async def start(self) -> None:
        """Load the key values, listen, watch the brokers.

        Raises ConfigError: one sentence on what of the configuration cannot be used.
        """
        dispatcher = Dispatcher()
        self._state = NameServer(
            self._config,
            self._routes,
            self._load_key_values(),
            steady_ms(),
            self._notify,
            self._save_config,
        )
        handlers.register(dispatcher, self._state)
        options = ServerOptions(
            idle_timeout_ms=self._config.server_channel_max_idle_seconds * 1_000,
            tls=TlsSettings.from_properties(self._config.tls),
        )
        server = Server(dispatcher, options, steady_ms)
        host, port = self._config.bind_address, self._config.listen_port
        try:
            self._port = await server.start(host, port)
        except OSError as error:
            known = error.errno is not None and error.errno > 0  # a resolver's numbers are not
            what = os.strerror(error.errno or 0) if known else error.strerror or str(error)
            reason = f"the name server cannot listen on {join(host, port)}: {what}"
            raise ConfigError(reason) from None
        self._server = server
        self._scan()
        log.info("name server listens on %s", join(host, self._port))

    async def stop(self) -> None:
        """Finish what is in flight and close every connection; nothing after a failed start."""
        if self._scanning is not None:
            self._scanning.cancel()
        if self._server is not None:
            await self._server.stop()
        for task in list(self._sending):
            task.cancel()
        await self._client.close()

    def _scan(self) -> None:
        # Asked for first: whatever fails below, the scans go on.
        interval_s = self._config.scan_not_active_broker_interval_ms / 1_000
        self._scanning = asyncio.get_running_loop().call_later(interval_s, self._scan)
        for expired in self._routes.scan(steady_ms()):
            log.warning("broker %s of cluster %s is silent: unregistered", *reversed(expired.key))
            assert isinstance(expired.connection, Peer)
            expired.connection.close()
            self._state.tell(expired.notices)

    def _notify(self, notice: Notice) -> None:
        """One task an address: a broker must hear of leads in their order."""
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
        waiting = self._notices[address]
        try:
            while waiting:
                await self._send(address, waiting.popleft())
        finally:
            del self._notices[address]

    async def _send(self, address: str, notice: Notice) -> None:
        header = NotifyMinBrokerIdChangeRequest(
            notice.min_broker_id,
            notice.broker_name,
            notice.min_address,
            notice.offline_address,
            notice.ha_address,
        )
        request = new_request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header, oneway=True)
        try:
            await self._client.notify(address, request, NOTICE_TIMEOUT_MS)
        except RemotingError as error:
            log.warning("broker %s is not told of its group's new lead: %s", address, error)

    def _load_key_values(self) -> KeyValues:
        path = Path(self._config.kv_config_path).expanduser()
        store = ConfigFiles(self._files, str(path.parent))
        try:
            self._files.make_folders(str(path.parent))
            value = store.load(path.name)
            table = {} if value is None else table_from_json(value)
        except (OSError, BadBody) as error:
            raise ConfigError(f"kvConfigPath={path} cannot be used: {error}") from None
        return KeyValues(lambda changed: store.save(path.name, table_to_json(changed)), table)

    def _save_config(self, config: NamesrvConfig) -> None:
        """RocketMQ's way: the whole file is written anew, every key with its value. What it says of
        other keys stays: a controller of this process has its keys there."""
        if not config.config_store_path:
            return
        path = str(Path(config.config_store_path).expanduser())
        before = self._files.read(path) if self._files.exists(path) else b""
        changed = updated_properties(before.decode("utf-8", "replace"), config.values(secrets=True))
        replace_file(self._files, path, changed.encode())
