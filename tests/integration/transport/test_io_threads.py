"""Sockets of I/O threads: bytes in order, back pressure, ends of both sides, a stop."""

import asyncio
import hashlib
import random
import socket
from typing import Any

import pytest
import uvloop

from turbopump.net.ports.listening import BY_CORES_MAX, listen, start_io_threads, stop_io_threads
from turbopump.pyx.io_threads import THREADS_MAX, IoThreads, ThreadedTransport

TIME_LIMIT = 60
FLOOD = 256 << 20
"""Bytes, more than kernels keep of a connection."""


class Recorder(asyncio.BufferedProtocol):
    """Records the bytes it receives, and echoes them if `echoes`."""

    def __init__(self, echoes: bool = False, room: int = 1 << 14) -> None:
        self.echoes = echoes
        self.room = memoryview(bytearray(room))
        self.received = hashlib.sha256()
        self.size = 0
        self.events: list[Any] = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport: ThreadedTransport = transport
        self.events.append("made")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.size += nbytes
        self.received.update(self.room[:nbytes])
        if self.echoes:
            self.transport.write(bytes(self.room[:nbytes]))

    def pause_writing(self) -> None:
        self.events.append("full")
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.events.append("free")
        self.transport.resume_reading()

    def eof_received(self) -> bool:
        self.events.append("end")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(error)


class World:
    """A port with I/O threads and the protocols of its connections."""

    def __init__(self, threads: IoThreads, echoes: bool) -> None:
        self.threads, self.echoes = threads, echoes
        self.protocols: list[Recorder] = []
        self.peers: list[asyncio.StreamWriter] = []

    def make(self) -> Recorder:
        self.protocols.append(Recorder(self.echoes))
        return self.protocols[-1]

    async def __aenter__(self) -> "World":
        self.listener = await listen(self.make, "127.0.0.1", 0, 128, self.threads)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.listener.close()
        stop_io_threads(self.threads)
        for writer in self.peers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Recorder]:
        before = len(self.protocols)
        reader, writer = await asyncio.open_connection(*self.listener.address)
        self.peers.append(writer)
        while len(self.protocols) == before or not self.protocols[-1].events:
            await asyncio.sleep(0.001)
        return reader, writer, self.protocols[before]


def run(work: Any, echoes: bool = True, count: int = 2) -> None:
    """Run `work(world)` on a loop with I/O threads."""

    async def main() -> None:
        threads = start_io_threads(count)
        assert threads is not None
        async with World(threads, echoes) as world:
            await work(world)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(asyncio.wait_for(main(), TIME_LIMIT))


def test_bytes_of_many_connections_keep_their_order() -> None:
    """Each of 40 connections gets back its own megabyte, sent in pieces of random sizes."""

    async def talk(world: World, number: int) -> None:
        draw = random.Random(number)
        reader, writer, protocol = await world.connect()
        data = draw.randbytes(1 << 20)

        async def send() -> None:
            at = 0
            while at < len(data):
                size = draw.choice([1, 7, 100, 4_000, 90_000, 400_000])
                writer.write(data[at : at + size])
                at += size
                await writer.drain()

        sending = asyncio.create_task(send())
        assert await reader.readexactly(len(data)) == data
        await sending
        writer.close()
        assert await protocol.ended is None
        assert protocol.events[-1] == "end"

    async def work(world: World) -> None:
        for part in range(0, 40, 10):
            await asyncio.gather(*(talk(world, part + number) for number in range(10)))
        assert sum(cpu_ns > 0 for cpu_ns in world.threads.cpu_ns) == 2

    run(work)


def test_a_peer_that_does_not_read_stops_its_reads_alone() -> None:
    async def work(world: World) -> None:
        _, slow, protocol = await world.connect()
        sending = asyncio.create_task(flood(slow))
        reader, writer, _ = await world.connect()
        before = -1
        while protocol.size != before or protocol.events[-1] != "full":
            before = protocol.size
            for _ in range(20):
                writer.write(b"alive")
                assert await reader.readexactly(5) == b"alive"
        assert protocol.size < FLOOD
        assert protocol.transport.get_write_buffer_size() > 0
        sending.cancel()
        slow.transport.abort()
        await protocol.ended

    async def flood(writer: asyncio.StreamWriter) -> None:
        for _ in range(FLOOD >> 20):
            writer.write(bytes(1 << 20))
            await writer.drain()

    run(work)


def test_large_buffers_are_written_from_their_own_memory_and_released() -> None:
    async def work(world: World) -> None:
        reader, _, protocol = await world.connect()
        parts = [random.Random(number).randbytes(300_000) for number in range(20)]
        views = [memoryview(bytearray(part)) for part in parts]
        owners = [view.obj for view in views]
        protocol.transport.writelines([b"head", *views])
        del views
        assert await reader.readexactly(4) == b"head"
        for part in parts:
            assert await reader.readexactly(len(part)) == part
        while protocol.transport.get_write_buffer_size():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        for owner in owners:
            while True:
                try:
                    owner.append(1)  # a bytearray with exports cannot grow
                    break
                except BufferError:
                    await asyncio.sleep(0.001)

    run(work)


def test_close_writes_everything_and_abort_nothing_more() -> None:
    async def work(world: World) -> None:
        reader, _, protocol = await world.connect()
        protocol.transport.write(bytes(3 << 20))
        protocol.transport.close()
        protocol.transport.write(b"dropped")
        assert len(await reader.read()) == 3 << 20
        assert await protocol.ended is None
        reader, _, protocol = await world.connect()
        protocol.transport.write(bytes(64 << 20))
        protocol.transport.abort()
        assert protocol.transport.get_write_buffer_size() == 0
        assert await protocol.ended is None
        try:
            assert len(await reader.read()) < 64 << 20
        except ConnectionResetError:
            pass

    run(work)


def test_a_reset_is_reported_as_an_error() -> None:
    async def work(world: World) -> None:
        _, writer, protocol = await world.connect()
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()
        assert isinstance(await protocol.ended, ConnectionResetError)

    run(work)


def test_a_failing_protocol_is_aborted_and_the_others_live(caplog: Any) -> None:
    async def work(world: World) -> None:
        reader, writer, protocol = await world.connect()

        def fail(nbytes: int) -> None:
            raise RuntimeError("broken")

        protocol.buffer_updated = fail  # type: ignore[method-assign]
        protocol.transport.set_protocol(protocol)
        writer.write(b"x")
        await protocol.ended
        assert await reader.read() == b""
        reader, writer, protocol = await world.connect()
        writer.write(b"alive")
        assert await reader.readexactly(5) == b"alive"

    run(work)
    assert "broken" in caplog.text


def test_a_stop_ends_open_connections() -> None:
    protocols: list[Recorder] = []

    async def work(world: World) -> None:
        for _ in range(5):
            _, writer, protocol = await world.connect()
            writer.write(bytes(1 << 16))
            protocols.append(protocol)

    run(work, echoes=False)
    assert all(protocol.ended.done() for protocol in protocols)


def test_bytes_read_before_a_pause_are_delivered_after_it() -> None:
    async def work(world: World) -> None:
        _, writer, protocol = await world.connect()
        protocol.transport.pause_reading()
        writer.write(bytes(300_000))
        writer.write_eof()
        _, other, _ = await world.connect()
        other.write(b"alive")
        await asyncio.sleep(0.05)
        assert protocol.size == 0
        assert "end" not in protocol.events
        protocol.transport.resume_reading()
        await protocol.ended
        assert protocol.size == 300_000
        assert protocol.events[-1] == "end"

    run(work, echoes=False)


@pytest.mark.parametrize("count", [-2, 0, THREADS_MAX + 1])
def test_impossible_numbers_of_threads_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} I/O threads"):
        IoThreads(count, lambda callback: None, lambda error: None)


def test_the_number_depends_on_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {1: 0, 2: 0, 3: 1, 8: 4, 64: BY_CORES_MAX}

    async def main() -> None:
        for cores, count in counts.items():
            monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)))
            threads = start_io_threads(-1)
            assert (0 if threads is None else len(threads.cpu_ns)) == count
            if threads is not None:
                stop_io_threads(threads)

    asyncio.run(main())
