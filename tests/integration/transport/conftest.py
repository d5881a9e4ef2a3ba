"""Servers and raw peers on the loopback interface, on both kinds of loop and with I/O threads."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from turbopump.engine.deferred import Deferred
from turbopump.net.ports.listening import start_io_threads, stop_io_threads
from turbopump.net.transport.client import Client
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.options import RemotingOptions, ServerOptions
from turbopump.net.transport.server import Server
from turbopump.net.wire.command import Command, decode, encode, new_request, new_response

ECHO, HOLD, FAIL = 10, 11, 12
TIME_LIMIT = 60
IO_THREADS = ContextVar("number of I/O threads of servers", default=0)


@dataclass
class Served:
    """A running server: 10 echoes, 11 holds its request in `held`, 12 fails."""

    server: Server
    address: str
    table: Dispatcher
    seen: list[Command] = field(default_factory=list)
    held: list[tuple[Command, Deferred[Command | None]]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def hub(self) -> Any:
        return self.server._hub

    def release(self, body: bytes = b"") -> None:
        """Answer everything that is held."""
        held, self.held = self.held, []
        for request, later in held:
            later.resolve(new_response(request, 0, body=body))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition becomes true."""
        while not condition():
            await asyncio.sleep(0.005)

    def clock_by_hand(self) -> list[float]:
        """Let the server's connections grow older by `clock[0] += seconds` alone."""
        clock = [1_000.0]
        self.hub.clock = lambda: clock[0]
        return clock

    async def swept(self) -> None:
        """Wait until all connections were checked once with the present time."""
        before = self.hub._sweeper
        await self.until(lambda: self.hub._sweeper is not before)

    async def alive(self) -> None:
        """A client of its own is served."""
        client = Client(lambda: 0)
        response = await client.call(self.address, new_request(ECHO, body=b"alive"), 5000)
        assert response.body == b"alive"
        await client.close()


class Raw:
    """A peer that sends any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *parts: bytes | Command) -> None:
        for part in parts:
            data = b"".join(encode(part)) if isinstance(part, Command) else part
            self.writer.write(data)

    async def answer(self) -> Command:
        head = await self.reader.readexactly(4)
        return decode(head + await self.reader.readexactly(int.from_bytes(head, "big")))

    async def closed(self) -> bytes:
        """Remaining bytes until the other side closes."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(options: ServerOptions | None = None) -> AsyncIterator[Served]:
    table = Dispatcher()
    threads = start_io_threads(IO_THREADS.get())
    server = Server(table, options, lambda: 5, threads=threads)
    served = Served(server, "", table)

    def echo(request: Command, *_: Any) -> Command:
        served.seen.append(request)
        return new_response(request, 0, body=request.body, fields=request.fields)

    def hold(request: Command, *_: Any) -> Deferred[Command | None]:
        later: Deferred[Command | None] = Deferred()
        served.held.append((request, later))
        return later

    def fail(*_: Any) -> Command:
        raise RuntimeError("broken")

    table.add(ECHO, echo)
    table.add(HOLD, hold)
    table.add(FAIL, fail)
    served.address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    try:
        yield served
    finally:
        await server.stop()
        if threads is not None:
            stop_io_threads(threads)


@contextlib.asynccontextmanager
async def connecting(
    handlers: Dispatcher | None = None, options: RemotingOptions | None = None
) -> AsyncIterator[Client]:
    client = Client(lambda: 7, handlers, options)
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def talking(port: int, **settings: Any) -> AsyncIterator[Raw]:
    raw = Raw(*await asyncio.open_connection("127.0.0.1", port, **settings))
    try:
        yield raw
    finally:
        await raw.close()


@contextlib.asynccontextmanager
async def listening(
    handle: Callable[[Raw], Coroutine[Any, Any, None]] | None = None, **settings: Any
) -> AsyncIterator[str]:
    """A server that is not ours, silent unless it gets a handler; yields its address."""
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if handle is not None:
            await handle(Raw(reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, **settings)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        for writer in writers:
            writer.transport.abort()
        server.close()
        await server.wait_closed()


@pytest.fixture(params=["uvloop", "asyncio", "threads"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a test's coroutine on a loop of its own; with `threads`, servers have I/O threads."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def runner(coroutine: Coroutine[Any, Any, None]) -> None:
        IO_THREADS.set(2 if request.param == "threads" else 0)
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(asyncio.wait_for(coroutine, TIME_LIMIT))

    return runner


@pytest.fixture
def serve() -> Callable[..., Any]:
    """`async with serve(options) as served`."""
    return serving


@pytest.fixture
def connect() -> Callable[..., Any]:
    """`async with connect(handlers, options) as client`."""
    return connecting


@pytest.fixture
def talk() -> Callable[..., Any]:
    """`async with talk(port) as raw`."""
    return talking


@pytest.fixture
def listen() -> Callable[..., Any]:
    """`async with listen(handle) as address`."""
    return listening


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "integration/transport" in str(item.path):
            item.add_marker(pytest.mark.integration)
