"""A proxy on a running loop: a gRPC port, and connections to name servers and brokers.

Owns the order of start and stop, the clocks and the timer. It must never handle a message. A proxy
keeps no state that it cannot query again, so any number of proxies can serve one cluster.

Tests: tests/integration/grpc/test_proxy_names.py, tests/unit/cli/test_nodes.py
"""

import asyncio
import logging
import os
import socket
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from turbopump.net.client.credentials import signer_of
from turbopump.net.grpc.health import Health
from turbopump.net.grpc.messages import SERVICE, service_files
from turbopump.net.grpc.options import GrpcOptions
from turbopump.net.grpc.reflection import HEALTH, Reflection
from turbopump.net.grpc.server import GrpcServer, why_no_grpc
from turbopump.net.messaging.messaging import Messaging
from turbopump.net.ports.listening import start_io_threads, stop_io_threads
from turbopump.net.transport.calls import Calls
from turbopump.net.transport.client import Client
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.options import RemotingOptions
from turbopump.net.wire.hosts import join
from turbopump.net.wire.java_properties import ConfigError
from turbopump.proxy.backend import ProxyRequestBackend
from turbopump.proxy.broker_calls import BrokerCalls
from turbopump.proxy.cluster_map import ClusterMap
from turbopump.proxy.config import ProxyConfig
from turbopump.proxy.endpoints import ClientEndpoints
from turbopump.proxy.members import ClusterMembers
from turbopump.proxy.names import FollowedNames
from turbopump.pyx.io_threads import IoThreads

logger = logging.getLogger(__name__)

TICK_S: Final = 0.5
"""Seconds between two ticks: queries, heartbeats, health."""
LEAVE_S: Final = 1.0
"""Seconds for brokers to receive the unregistrations of a proxy that stops."""


class ProxyNode:
    """A proxy on the running loop; started once and stopped once."""

    def __init__(self, config: ProxyConfig) -> None:
        self._config = config
        self._port = config.grpc_server_port
        self._server: GrpcServer | None = None
        self._threads: IoThreads | None = None
        self._client: Client | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watched: set[str] = set()
        self._followed_ms: int | None = None
        """Time of the last check of the file and DNS."""
        self._runs = False

    @property
    def address(self) -> str:
        """The `host:port` for clients on this machine; the port is known after `start`."""
        return join(self._host, self._port)

    @property
    def _host(self) -> str:
        """Host at which clients on this machine connect."""
        host = self._config.local_serve_addr or self._config.bind_address
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)

    async def start(self) -> None:
        """Open the port, and start to query the cluster; does not wait for it. Raises ConfigError,
        one sentence; nothing runs then."""
        config = self._config
        if not config.namesrv_addr:
            raise ConfigError("namesrvAddr is missing: a proxy finds brokers by name servers")
        reason = why_no_grpc()
        if reason is not None:
            raise ConfigError(reason)
        try:
            self._threads = start_io_threads(config.io_threads)
        except OSError as error:
            raise ConfigError(f"the proxy's I/O threads do not start: {error}") from None
        self._make_parts()
        assert self._server is not None, "it was built"
        host, port = config.bind_address, config.grpc_server_port
        try:
            await self._names.resolve_names()
            try:
                self._port = await self._server.start(host, port)
            except OSError as error:
                what = error.strerror or str(error)
                text = f"the proxy cannot listen on {join(host, port)}: {what}"
                raise ConfigError(text) from None
            self._runs = True
            self._messaging.start()
            self._tick()
        except BaseException:
            await self.stop()
            raise
        logger.info("the proxy listens on %s", join(host, self._port))
        if config.inner_credentials is not None:
            logger.warning(
                "the proxy does not authenticate its clients: each peer that reaches %s has the"
                " rights of the user %s, which signs the proxy's requests"
                " (innerClientAuthenticationCredentials)",
                join(host, self._port),
                config.inner_credentials.access_key,
            )

    async def stop(self) -> None:
        """End pending calls (GOAWAY), unregister at the brokers, close every connection; takes up
        to `shutdown_seconds` and LEAVE_S. Every part ends even if an earlier one fails or this is
        cancelled; then it can be called again."""
        self._runs = False
        if self._timer is not None:
            self._timer.cancel()
        if self._server is None or self._client is None:
            return
        async with AsyncExitStack() as parts:  # the last one is released first
            parts.callback(self._stop_threads)
            parts.push_async_callback(self._client.close)
            parts.push_async_callback(self._under_way.stop)
            parts.push_async_callback(self._unregister)
            parts.push_async_callback(self._server.stop)
            self._names.stop()
            self._messaging.stop()
            self._health.send_changes()
        self._client = None

    def _stop_threads(self) -> None:
        """End the I/O threads, if there are any."""
        threads, self._threads = self._threads, None
        if threads is not None:
            stop_io_threads(threads)

    async def _unregister(self) -> None:
        """Unregister at the brokers; waits up to LEAVE_S."""
        self._members.unregister_all()
        until = self._loop.time() + LEAVE_S
        while self._calls.held and self._loop.time() < until:
            await asyncio.sleep(0.01)

    def _make_parts(self) -> None:
        """Make the parts of the proxy and connect them."""
        config, table = self._config, Dispatcher()
        self._loop = asyncio.get_running_loop()
        sign = signer_of(config.inner_credentials)
        self._client = Client(_now_ms, table, RemotingOptions(tls=config.client_tls, sign=sign))
        self._under_way = Calls(self._client, renews=True)
        self._known = ClusterMap(
            config, self._under_way, self._steady_ms, run_soon=self._loop.call_soon
        )
        self._names = FollowedNames(config, self._known.name_servers_changed)
        self._calls = BrokerCalls(self._known, self._under_way)
        client_id = f"{socket.gethostname()}@{os.getpid()}#{time.time_ns()}"
        self._members = ClusterMembers(self._known, self._calls, client_id, self._steady_ms)
        self._members.register(table)
        backend = ProxyRequestBackend(
            config,
            self._known,
            self._calls,
            self._members,
            call_soon=self._loop.call_soon,
            call_later=lambda delay_ms, work: self._loop.call_later(delay_ms / 1_000, work),
            now_ms=_now_ms,
            steady_ms=self._steady_ms,
        )
        self._messaging = Messaging(backend, lambda request: self._endpoints(request))
        self._health = Health(
            (SERVICE,), lambda: self._runs and bool(self._known.master_addresses())
        )
        methods = self._health.methods | self._messaging.methods
        names = [path.rpartition("/")[2] for path in self._messaging.methods]
        reflection = Reflection((SERVICE, HEALTH), partial(service_files, names))
        options = GrpcOptions(stop_grace_ms=config.shutdown_seconds * 1_000)
        self._server = GrpcServer(
            methods | reflection.methods, options, config.tls, threads=self._threads
        )

    @property
    def _endpoints(self) -> ClientEndpoints:
        """The endpoints of this proxy in routes."""
        return ClientEndpoints(self._host, self._port, echoes_port=self._config.echoes_port)

    def _tick(self) -> None:
        """Schedule the next tick; read the name servers, query the cluster and send
        heartbeats that are due."""
        self._timer = self._loop.call_later(TICK_S, self._tick)
        assert self._client is not None, "it runs"
        now_ms, every_ms = self._steady_ms(), self._config.fetch_namesrv_addr_interval_ms
        if self._followed_ms is None or now_ms - self._followed_ms >= every_ms:
            self._followed_ms = now_ms
            self._names.begin_round()
        self._known.tick()
        for address in set(self._known.master_addresses().values()) - self._watched:
            # When a connection is lost, the broker removes the proxy's groups.
            self._watched.add(address)
            self._client.on_lost(address, partial(self._members.note_lost, address))
        self._members.tick()
        self._health.send_changes()

    def _steady_ms(self) -> int:
        """The loop's monotonic clock in ms."""
        return round(self._loop.time() * 1_000)


def _now_ms() -> int:
    """The wall clock in epoch ms."""
    return time.time_ns() // 1_000_000
