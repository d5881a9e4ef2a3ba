"""A gRPC server without a socket: a loop with a stopped clock, and a transport that keeps its
output."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.wire.h2_frames import BEGIN

from turbopump.net.grpc.call import GrpcCall, unary_method
from turbopump.net.grpc.connection import GrpcConnection
from turbopump.net.grpc.hub import GrpcHub
from turbopump.net.grpc.options import GrpcOptions
from turbopump.net.grpc.server import why_no_grpc


class StillLoop:
    """The part of a loop that a hub uses; `run` runs one turn, `wait` advances the clock."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.due: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self.timers: list[tuple[float, Callable[..., object], tuple[object, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *given: object) -> None:
        self.due.append((callback, given))

    def call_later(self, delay: float, callback: Callable[..., object], *given: object) -> Any:
        entry = (self.now + delay, callback, given)
        self.timers.append(entry)

        class Handle:
            def cancel(_self) -> None:
                if entry in self.timers:
                    self.timers.remove(entry)

        return Handle()

    def run(self) -> None:
        due, self.due = self.due, []
        for callback, given in due:
            callback(*given)

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.timers and min(self.timers, key=lambda one: one[0])[0] <= until:
            entry = min(self.timers, key=lambda one: one[0])
            self.timers.remove(entry)
            self.now = entry[0]
            entry[1](*entry[2])
            self.run()
        self.now = until
        self.run()


class Wire:
    """A transport that keeps written bytes; `full` makes it pause the writer after each write."""

    def __init__(self, connection: GrpcConnection) -> None:
        self.connection = connection
        self.out = b""
        self.writes = 0
        self.full = False
        self.reads = True
        self.closed = ""

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return "127.0.0.1", 4_000

    def set_write_buffer_limits(self) -> None:
        """Do nothing: the loop's limits do not matter here."""

    def set_protocol(self, connection: GrpcConnection) -> None:
        self.connection = connection

    def is_closing(self) -> bool:
        return self.closed in ("close", "abort")

    def write(self, data: bytes) -> None:
        self.out += data
        self.writes += 1
        if self.full:
            self.connection.pause_writing()

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write_eof(self) -> None:
        self.closed = self.closed or "eof"

    def close(self) -> None:
        self.closed = "close" if self.closed != "abort" else "abort"

    def abort(self) -> None:
        self.closed = "abort"


class Bench:
    """Connections of a hub whose service echoes, keeps or streams messages."""

    def __init__(self, **changes: int) -> None:
        self.loop = StillLoop()
        self.kept: list[GrpcCall] = []
        self.over: list[int] = []
        methods = {
            "/S/Echo": unary_method(lambda call, message: call.answer_with(message)),
            "/S/Keep": unary_method(self._keep),
            "/S/Large": unary_method(lambda call, message: call.answer_with(bytes(int(message)))),
        }
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.hub = GrpcHub(methods, GrpcOptions(**changes), loop)

    def _keep(self, call: GrpcCall, _message: bytes) -> None:
        self.kept.append(call)
        call.on_closed = lambda: self.over.append(call.stream_id)

    def connect(self, data: bytes = BEGIN) -> tuple[GrpcConnection, Wire]:
        one = GrpcConnection(self.hub)
        wire = Wire(one)
        one.connection_made(cast(asyncio.Transport, wire))
        if not wire.closed:
            hear(one, data)
        wire.out, wire.writes = b"", 0
        return one, wire


def hear(connection: GrpcConnection, data: bytes) -> None:
    """Deliver a peer's bytes in reads of the usual maximum size."""
    room = connection.get_buffer(0)
    while data:
        part = data[: len(room)]
        room[: len(part)] = part
        connection.buffer_updated(len(part))
        data = data[len(part) :]


@pytest.fixture
def bench() -> Callable[..., Bench]:
    if why_no_grpc() is not None:
        pytest.skip("libnghttp2 is not installed")
    return Bench
