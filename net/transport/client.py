"""Calls to servers by address: a connection for each, opened when first needed.

Owns the pool, the connect timeout and the meaning of GO_AWAY. It must never choose a server.

Tests: tests/integration/transport/test_transport_calls.py
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from turbopump.net.transport.connection import Connection
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.errors import (
    CallTimeout,
    ConnectError,
    ConnectionClosed,
    RemotingError,
    TooManyCalls,
)
from turbopump.net.transport.hub import Hub, Swept
from turbopump.net.transport.options import RemotingOptions
from turbopump.net.transport.tls import TlsError, TlsSession, client_context
from turbopump.net.transport.tls_context import TlsContext
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, WireError
from turbopump.net.wire.hosts import split_host_port

DOUBTED_MAX: Final = 2
"""Maximum number of connections to an address that `reconnect_next` replaced and that are kept open
until a newer connection receives an answer."""
PERHAPS_TLS: Final = "; perhaps it takes TLS connections only"
"""Hint in the error about a server that closed a plain connection and never sent a byte."""
PERHAPS_PLAIN: Final = "; perhaps it does not serve TLS"
"""Hint in the error about a TLS handshake that failed without a reason from this side: servers
close connections of the other kind."""
SELF_CONNECTS_MAX: Final = 3
"""Maximum number of consecutive connections to oneself, each with a chance of 1 in 10,000, before
connecting fails."""


class Client:
    """Calls servers by `host:port`; requests of servers on the same connections go to `handlers`
    (default: all are answered REQUEST_CODE_NOT_SUPPORTED).

    A lost connection is opened again by the next call. Loop thread only. `handler_clock_ms` is the
    clock whose value `handlers` receive, in ms; all time-outs are measured by the loop's clock.
    """

    def __init__(
        self,
        handler_clock_ms: Callable[[], int],
        handlers: Dispatcher | None = None,
        options: RemotingOptions | None = None,
    ) -> None:
        self._handler_clock_ms = handler_clock_ms
        self._handlers = handlers or Dispatcher()
        self._options = options or RemotingOptions()
        tls = self._options.tls
        self._context = None if tls is None else TlsContext(tls, partial(client_context, tls))
        self._hub: _ClientHub | None = None
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._doubted: dict[str, list[Connection]] = {}
        self._heard: set[str] = set()
        self._watchers: dict[str, list[Callable[[], None]]] = {}
        self._closed = False

    async def call(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Send a request to `host:port` and wait up to `timeout_ms` for its answer, which may have
        any code.

        The time includes connecting and waiting for room to write. If the server answers GO_AWAY,
        the request is sent once again on a new connection, within the same time; a second GO_AWAY
        is returned. Sets `command.opaque`, and signs the request if the options have `sign`. Raises
        ConnectError, CallTimeout, ConnectionClosed or TooManyCalls, and RemotingError itself for a
        request that does not fit into a frame.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        if self._options.sign is not None:
            self._options.sign(command)
        response = await self._call_once(address, command, deadline)
        if response.code == ResponseCode.GO_AWAY:
            leaving = self._connections.pop(address, None)
            if leaving is not None:
                leaving.close()
                self._run_lost_callbacks(address)
            response = await self._call_once(address, command, deadline)
        return response

    async def notify(self, address: str, command: Command, timeout_ms: int = 3_000) -> None:
        """Send a one-way request to `host:port`: connect and wait for room within `timeout_ms`,
        hand it to the connection and return. Its arrival is not known. Sets `command.opaque` and
        ONEWAY_FLAG, and signs the request if the options have `sign`. Raises ConnectError,
        CallTimeout, ConnectionClosed, or RemotingError if it does not fit into a frame."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        if self._options.sign is not None:
            self._options.sign(command)
        connection = await self._writable_connection(address, deadline)
        try:
            connection.peer.notify(command)
        except WireError as error:
            raise RemotingError(str(error)) from None

    async def connect(self, address: str, timeout_ms: int) -> None:
        """Open the connection to `host:port` within `timeout_ms`; returns at once if it is open.
        Raises ConnectError or ConnectionClosed."""
        connection = self._connections.get(address)
        if connection is None or not connection.is_ready:
            deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
            await self._connect(address, deadline)

    def on_lost(self, address: str, callback: Callable[[], None]) -> None:
        """Run `callback` each time that the connection to `host:port` is lost, or is replaced after
        GO_AWAY or after `reconnect_next`: the server may then have forgotten the client's
        registrations. It does not run for the end of this client. Callbacks cannot be removed and
        run in the order of their addition."""
        self._watchers.setdefault(address, []).append(callback)

    def reconnect_next(self, address: str) -> None:
        """Make the next call to `host:port` open another connection; no-op without a connection.

        After a network partition, TCP waits as long as the partition lasted before it tries again.
        The old connection keeps its pending calls, and is closed when a newer one receives its
        first answer: a server that was only slow must not take its end for the end of this client.
        Of more than DOUBTED_MAX old connections, the oldest is aborted.
        """
        connection = self._connections.pop(address, None)
        if connection is not None:
            doubted = self._doubted.setdefault(address, [])
            doubted.append(connection)
            if len(doubted) > DOUBTED_MAX:
                doubted.pop(0).abort()

    async def close(self) -> None:
        """Close every connection within `close_timeout_ms`; pending calls, and all later calls,
        raise ConnectionClosed."""
        self._closed = True
        opening = list(self._connecting.values())
        for task in opening:
            task.cancel()
        try:
            # A connection that opens at this moment belongs to the hub once its task has ended.
            await asyncio.gather(*opening, return_exceptions=True)
        finally:
            if self._hub is not None:
                await self._hub.close(self._options.close_timeout_ms)
        self._connections.clear()

    async def _call_once(self, address: str, command: Command, deadline: float) -> Command:
        """Call once, until `deadline` (seconds of the loop's clock). Raises as `call` does."""
        connection = await self._writable_connection(address, deadline)
        peer = connection.peer
        if peer.waiting_calls >= self._options.max_in_flight:
            raise TooManyCalls(f"{peer.waiting_calls} calls to {address} wait for their answers")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Command | None] = loop.create_future()
        left_ms = max(1, round((deadline - loop.time()) * 1000))
        try:
            response = peer.call(command, left_ms)
        except WireError as error:
            raise RemotingError(str(error)) from None
        response.then(lambda value: None if future.done() else future.set_result(value))
        result = await future
        if result is not None:
            self._heard.add(address)
            if self._connections.get(address) is connection:
                self._close_doubted(address)
            return result
        if peer.closed:
            unheard = address not in self._heard and self._options.tls is None
            hint = PERHAPS_TLS if unheard and not self._closed else ""
            raise ConnectionClosed(f"{address} closed the connection before it answered{hint}")
        raise CallTimeout(f"{address} did not answer request {command.code} in time")

    def _close_doubted(self, address: str) -> None:
        """Close the doubted connections to an address, because another connection was answered."""
        doubted = self._doubted.pop(address, ())
        for connection in doubted:
            connection.close()
        if doubted:
            self._run_lost_callbacks(address)

    def _run_lost_callbacks(self, address: str) -> None:
        """Run the callbacks of an address: a connection was replaced, and the server may have
        forgotten the client's registrations."""
        if not self._closed:
            for callback in self._watchers.get(address, ()):
                callback()

    async def _writable_connection(self, address: str, deadline: float) -> Connection:
        """Return a connection whose unsent bytes are below the high-water mark; waits until
        `deadline` (seconds of the loop's clock)."""
        connection = self._connections.get(address)
        if connection is None or not connection.is_ready:
            connection = await self._connect(address, deadline)
        if not connection.writable:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            connection.when_writable(lambda: None if room.done() else room.set_result(None))
            try:
                async with asyncio.timeout_at(deadline):
                    await room
            except TimeoutError:
                raise CallTimeout(f"{address} does not read the bytes sent to it") from None
        return connection

    async def _connect(self, address: str, deadline: float) -> Connection:
        """Return a new connection, or the connection that another caller opens now. Raises
        ConnectError, ConnectionClosed."""
        if self._closed:
            raise ConnectionClosed("the client is closed")
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(address))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._on_opened(address, done))
        try:
            async with asyncio.timeout_at(deadline):
                # Other callers wait for the same connection: one caller's cancellation must not
                # cancel it.
                return await asyncio.shield(task)
        except TimeoutError:
            raise ConnectError(f"{address} cannot be reached: timed out") from None
        except asyncio.CancelledError:
            if task.cancelled():
                raise ConnectionClosed("the client is closed") from None
            raise

    def _on_opened(self, address: str, task: asyncio.Task[Connection]) -> None:
        """Store the connection of a successful attempt to connect."""
        del self._connecting[address]
        if not task.cancelled() and task.exception() is None:
            known = self._connections.items()
            kept = {at: one for at, one in known if one.is_ready or at in self._watchers}
            self._connections = kept
            connection = self._connections[address] = task.result()
            if address in self._watchers:
                connection.peer.on_close(partial(self._on_lost, address, connection))

    def _on_lost(self, address: str, connection: Connection) -> None:
        """Forget a lost connection unless it was replaced, and run the callbacks of `on_lost`."""
        if self._connections.get(address) is connection:
            del self._connections[address]
            self._run_lost_callbacks(address)

    async def _open(self, address: str) -> Connection:
        """Open a connection, with TLS if configured; raises ConnectError."""
        loop = asyncio.get_running_loop()
        if self._hub is None:
            self._hub = _ClientHub(self._handlers, self._options, self._handler_clock_ms, loop)
            self._hub.start_sweeping()
        hub = self._hub
        try:
            host, port = split_host_port(address)
            context = None if self._context is None else await self._context.newest_context()
            session = None if context is None else TlsSession(context, server_side=False)
            async with asyncio.timeout(self._options.connect_timeout_ms / 1000):
                connection = await _connect(loop, hub, session, host, port)
                await hub.wait_until_ready(connection)
        except TimeoutError:
            raise ConnectError(f"{address} cannot be reached: timed out") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConnectError(f"{address} cannot be reached: {reason}") from None
        except (ValueError, TlsError) as error:
            raise ConnectError(f"{address} cannot be reached: {error}") from None
        return connection


async def _connect(
    loop: asyncio.AbstractEventLoop, hub: Hub, session: TlsSession | None, host: str, port: int
) -> Connection:
    """Connect to another process; raises OSError.

    If no process listens at a port of the ephemeral range, the system may choose that port for this
    end: the connection is then to itself, and would answer its own requests.
    """
    for _ in range(SELF_CONNECTS_MAX):
        connection = Connection(hub, session)
        transport = await _connect_to(loop, hub, connection, host, port)
        ends = [transport.get_extra_info(end) for end in ("sockname", "peername")]
        if ends[0] is None or ends[0] != ends[1]:
            return connection
        connection.abort()
    raise OSError("nothing listens there, the port is our own")


async def _connect_to(
    loop: asyncio.AbstractEventLoop, hub: Hub, connection: Connection, host: str, port: int
) -> asyncio.Transport:
    """Connect `connection`; raises OSError, and then the hub does not have it."""
    try:
        return (await loop.create_connection(lambda: connection, host, port))[0]
    except BaseException:
        # uvloop closes the transport of a cancelled connect without `connection_lost`, for which
        # the hub's close would wait.
        hub.remove(connection)
        raise


class _ClientHub(Hub):
    """The connections of a client; callers can wait until a TLS handshake has finished."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        options: RemotingOptions,
        handler_clock_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(dispatcher, options, handler_clock_ms, loop)
        self._waiting: dict[Swept, asyncio.Future[None]] = {}
        self._complaint = ""

    async def wait_until_ready(self, connection: Connection) -> None:
        """Return once requests can be sent; raises OSError if the handshake fails."""
        if connection.is_ready:
            return
        if connection in self.connections:
            future = self._waiting[connection] = self.loop.create_future()
            try:
                await future
            except asyncio.CancelledError:
                connection.abort()
                raise
            finally:
                del self._waiting[connection]
        if not connection.is_ready:
            connection.abort()
            raise OSError(f"the TLS handshake failed{self._reason_of_failure(connection)}")

    def log_problem(self, text: str) -> None:
        """Log the problem, and keep it as the possible reason of a failed handshake."""
        self._complaint = text
        super().log_problem(text)

    def _reason_of_failure(self, connection: Connection) -> str:
        """Return the reason of a failed handshake if this side closed; a server that closes
        gives no reason."""
        named, _, reason = self._complaint.partition(" closed: ")
        if named != connection.peer.address or not reason:
            return PERHAPS_PLAIN
        # `[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)`: the answer is not TLS
        return f": {reason}{PERHAPS_PLAIN if 'WRONG_VERSION_NUMBER' in reason else ''}"

    def ready(self, connection: Swept) -> None:
        """Note that the TLS handshake of a connection has finished."""
        self._end_wait(connection)

    def remove(self, connection: Swept) -> None:
        """Remove a connection that has ended."""
        super().remove(connection)
        self._end_wait(connection)

    def _end_wait(self, connection: Swept) -> None:
        """End the wait of `wait_until_ready` for this connection."""
        future = self._waiting.get(connection)
        if future is not None and not future.done():
            future.set_result(None)
