"""Random scripts of operations, played on a transport of an I/O thread and on one of uvloop: bytes,
their order and the callbacks must be the same. A seed decides a script."""

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from turbopump.net.ports.listening import start_io_threads, stop_io_threads
from turbopump.pyx.io_threads import IoThreads

SEEDS = range(32)
STEPS = 30
LIMIT_S = 30
ROOM = 5_000
"""Bytes of a protocol's buffer: a read of the thread fills it several times."""
SIZES = [0, 1, 100, 4_000, 70_000, 300_000]
UNREAD_MAX = 2 << 20


def stream(begin: int, size: int, salt: int) -> bytes:
    """`size` bytes of a stream without a period, from position `begin`."""
    pieces = range(begin // 8, (begin + size) // 8 + 1)
    data = b"".join(
        ((piece + 1) * 0x9E3779B97F4A7C15 + salt).to_bytes(16, "big")[8:] for piece in pieces
    )
    return data[begin % 8 :][:size]


class Side(asyncio.BufferedProtocol):
    """One of the two transports, its protocol and its peer. Checks each callback."""

    def __init__(self, own: socket.socket, peer: socket.socket, stays: bool) -> None:
        self.own, self.peer, self.stays = own, peer, stays
        self.room = bytearray(ROOM)
        self.got = self.peer_got = 0
        self.peer_has_end = self.has_end = self.is_lost = self.is_full = False
        self.hooks: list[Callable[[Side], None]] = []
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        assert self.transport is None
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        assert not self.is_lost
        assert not self.has_end
        assert not self.transport.is_closing()
        assert self.transport.is_reading()
        assert bytes(self.room[:nbytes]) == stream(self.got, nbytes, 0)
        self.got += nbytes
        if self.hooks:
            self.hooks.pop()(self)

    def eof_received(self) -> bool:
        assert not self.is_lost
        assert not self.has_end
        self.has_end = True
        return self.stays

    def pause_writing(self) -> None:
        assert not self.is_full
        assert not self.is_lost
        self.is_full = True

    def resume_writing(self) -> None:
        assert self.is_full
        assert not self.is_lost
        self.is_full = False

    def connection_lost(self, error: Exception | None) -> None:
        assert not self.is_lost
        assert error is None
        self.is_lost = True

    def read(self) -> None:
        """Let the peer read."""
        while not self.peer_has_end:
            try:
                data = self.peer.recv(1 << 16)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            self.peer_has_end = not data
            assert data == stream(self.peer_got, len(data), 1)
            self.peer_got += len(data)


def pause_and_resume(side: Side) -> None:
    side.transport.pause_reading()
    asyncio.get_running_loop().call_soon(side.transport.resume_reading)


def flicker(side: Side) -> None:
    side.transport.pause_reading()
    side.transport.resume_reading()


def take_again(side: Side) -> None:
    side.transport.set_protocol(side)


HOOKS = [pause_and_resume, flicker, take_again]
ENDINGS: list[Callable[[Side], None]] = [
    lambda side: side.transport.close(),
    lambda side: side.transport.abort(),
]


class Script:
    """A script, played on both sides in step; what must be the case after each step."""

    def __init__(self, sides: list[Side], draw: random.Random, stays: bool) -> None:
        self.sides, self.draw, self.stays = sides, draw, stays
        self.sent = self.written = 0
        self.reads, self.peer_reads = True, True
        self.peer_ended = self.writes_ended = self.closing = self.aborted = self.hooked = False

    def step(self) -> None:
        """Do one random operation on both sides."""
        name = self.draw.choice(
            ["send"] * 5
            + ["write"] * 4
            + ["writelines", "pause", "resume", "resume", "stop", "go", "go", "hook", "hook"]
            + self.draw.choice([[], [], ["end"], ["write_eof"], ["close"], ["abort"], ["ending"]])
        )
        getattr(self, name)()

    def send(self) -> None:
        size = self.draw.choice(SIZES)
        if self.peer_ended or (self.sent > 0 and not self.reads):
            return
        data = stream(self.sent, size, 0)
        # Both peers send the same bytes: as many as both sockets take.
        for side in self.sides:
            side.peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
        self.sent += len(data)
        for side in self.sides:
            at = 0
            while at < len(data) and not self.closing:
                try:
                    at += side.peer.send(data[at:])
                except BlockingIOError:
                    raise AssertionError("a socket that was empty is full") from None

    def parts(self, count: int) -> list[bytes]:
        made = []
        for _ in range(count):
            made.append(stream(self.written, self.draw.choice(SIZES), 1))
            self.written += len(made[-1])
        return made

    @property
    def may_write(self) -> bool:
        unread = self.written - min(side.peer_got for side in self.sides)
        return not self.closing and not self.writes_ended and unread < UNREAD_MAX

    def write(self) -> None:
        if self.may_write:
            (data,) = self.parts(1)
            for side in self.sides:
                side.transport.write(data)

    def writelines(self) -> None:
        if self.may_write:
            parts = self.parts(self.draw.randrange(1, 5))
            for side in self.sides:
                side.transport.writelines(parts)

    def pause(self) -> None:
        if not self.peer_ended:
            self.each("pause_reading")
            self.reads = False

    def resume(self) -> None:
        if not self.sides[0].has_end:  # uvloop would pass the end again
            self.each("resume_reading")
            self.reads = True

    def each(self, method: str) -> None:
        if not self.closing:
            for side in self.sides:
                getattr(side.transport, method)()

    def stop(self) -> None:
        self.peer_reads = False

    def go(self) -> None:
        self.peer_reads = True

    def hook(self) -> None:
        """Let the next callback for bytes do something to its own transport."""
        hook = self.draw.choice(HOOKS)
        if not self.hooked:
            for side in self.sides:
                side.hooks = [hook]

    def ending(self) -> None:
        """Let the next callback for bytes end its own transport."""
        hook = self.draw.choice(ENDINGS)
        if self.reads and not self.peer_ended and not self.closing:
            for side in self.sides:
                side.hooks = [hook]
                side.peer.send(stream(self.sent, 10, 0))
            self.sent += 10
            self.closing = self.hooked = True
            self.aborted = hook is ENDINGS[1]

    def end(self) -> None:
        self.peer_ended = True
        for side in self.sides:
            side.peer.shutdown(socket.SHUT_WR)

    def write_eof(self) -> None:
        if not self.closing and not self.writes_ended:
            self.each("write_eof")
            self.writes_ended = True

    def close(self) -> None:
        self.each("close")
        self.closing = True

    def abort(self) -> None:
        if not self.aborted:
            self.aborted = self.closing = True
            for side in self.sides:
                side.transport.abort()

    def holds(self, side: Side) -> bool:
        """Whether a side's state is the one that the script leads to."""
        if self.peer_reads:
            side.read()
        if self.closing:
            if not self.aborted and not self.peer_reads:
                return True  # the bytes before the end wait for the peer
            whole = self.aborted or side.peer_got == self.written
            return side.is_lost and (not self.peer_reads or (side.peer_has_end and whole))
        if self.reads:
            if side.got != self.sent or side.has_end != self.peer_ended:
                return False
            if side.has_end and not self.stays:
                self.closing = True
                return False
        if self.peer_reads:
            return side.peer_got == self.written and side.peer_has_end == self.writes_ended
        return True

    async def rest(self) -> None:
        """Wait until both sides are in the state that the script leads to."""
        while sum(self.holds(side) for side in self.sides) < len(self.sides):
            await asyncio.sleep(0)


async def play(threads: IoThreads, seed: int) -> None:
    draw = random.Random(seed)
    loop = asyncio.get_running_loop()
    stays = draw.random() < 0.5
    sides = []
    for number in range(2):
        own, peer = socket.socketpair()
        own.setblocking(False)
        peer.setblocking(False)
        side = Side(own, peer, stays)
        sides.append(side)
        if number:
            threads.open(own, None, side)
        else:
            await loop.connect_accepted_socket(lambda side=side: side, own)
    script = Script(sides, draw, stays)
    for _ in range(STEPS):
        script.step()
        await script.rest()
    script.go()
    if not script.closing:
        script.resume()
        await script.rest()
        script.close()
    await script.rest()
    assert all(side.is_lost for side in sides)
    for side in sides:
        side.peer.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_script_has_the_same_result_as_with_uvloop(seed: int) -> None:
    async def main() -> None:
        threads = start_io_threads(1)
        assert threads is not None
        try:
            async with asyncio.timeout(LIMIT_S):
                await play(threads, seed)
        finally:
            stop_io_threads(threads)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
