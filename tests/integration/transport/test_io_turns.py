"""Turns of I/O threads without a loop: ends, callbacks that fail, stops."""

import gc
import select
import socket
from collections.abc import Callable, Iterator

import pytest

from turbopump.pyx.io_threads import EVENTS_PER_TURN, IoThreads, ThreadedTransport

LIMIT_S = 30.0
CONNECTIONS = EVENTS_PER_TURN + 44
"""Connections with two events each: more than two turns take."""


class Stop(BaseException):
    """An exception that no transport catches, as KeyboardInterrupt."""


class Peer:
    """A protocol that notes its callbacks; `hook` is called in each with its name."""

    def __init__(self) -> None:
        self.room = bytearray(1 << 16)
        self.received = b""
        self.calls: list[str] = []
        self.hook: Callable[[str], object] = lambda name: None
        self.stays_open = True

    def note(self, name: str) -> None:
        self.calls.append(name)
        self.hook(name)

    def connection_made(self, transport: ThreadedTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.received += bytes(self.room[:nbytes])
        self.note("data")

    def eof_received(self) -> bool:
        self.note("end")
        return self.stays_open

    def pause_writing(self) -> None:
        self.note("full")

    def resume_writing(self) -> None:
        self.note("free")

    def connection_lost(self, error: Exception | None) -> None:
        self.note("lost")


class Hand:
    """I/O threads whose turns the test takes."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []
        self.errors: list[Exception] = []
        self.threads = IoThreads(1, self.posted.append, self.errors.append)
        self.others: list[socket.socket] = []

    def connect(self) -> tuple[Peer, socket.socket]:
        """A connection: its protocol and the other side's socket."""
        own, other = socket.socketpair()
        own.setblocking(False)
        self.others.append(other)
        peer = Peer()
        self.threads.open(own, None, peer)
        return peer, other

    def turn(self) -> None:
        """Take the posted turns, or else wait for a thread and take one."""
        due = self.posted[:]
        self.posted.clear()
        for callback in due:
            callback()
        if not due:
            select.select([self.threads.descriptor], [], [], LIMIT_S)
            self.threads.turn()

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.turn()

    def settle(self) -> None:
        """Take turns until nothing has happened for a moment."""
        while self.posted or select.select([self.threads.descriptor], [], [], 0.05)[0]:
            self.turn()


@pytest.fixture
def hand() -> Iterator[Hand]:
    made = Hand()
    yield made
    made.threads.close()
    for other in made.others:
        other.close()


def test_the_end_of_a_half_closed_connection_is_passed_once(hand: Hand) -> None:
    peer, other = hand.connect()
    other.shutdown(socket.SHUT_WR)
    hand.until(lambda: peer.calls == ["end"])
    for _ in range(5):  # each time the socket takes bytes again, the kernel reports the end, too
        peer.transport.write(bytes(2 << 20))
        left = 2 << 20
        while left:
            left -= len(other.recv(1 << 16))
        hand.settle()
    assert peer.calls.count("end") == 1
    peer.transport.write_eof()
    hand.settle()
    assert peer.calls.count("end") == 1
    assert "lost" not in peer.calls


def test_a_thread_that_wakes_the_loop_in_a_turn_adds_no_turn(hand: Hand) -> None:
    peers = [hand.connect() for _ in range(CONNECTIONS)]
    hand.settle()
    for _, other in peers:
        other.send(b"x")
        other.shutdown(socket.SHUT_WR)
    hand.until(lambda: bool(hand.posted))
    hand.threads.turn()
    assert len(hand.posted) == 1
    hand.until(lambda: all(peer.received == b"x" for peer, _ in peers))


@pytest.mark.parametrize("name", ["data", "end", "lost"])
def test_no_event_is_handled_twice_after_an_interrupt(hand: Hand, name: str) -> None:
    peer, other = hand.connect()

    def interrupt(called: str) -> None:
        if called == name:
            peer.hook = lambda _: None
            raise Stop

    peer.hook, peer.stays_open = interrupt, False
    other.send(b"data")
    other.shutdown(socket.SHUT_WR)
    with pytest.raises(Stop):
        hand.until(lambda: "lost" in peer.calls)
    second, other = hand.connect()
    other.send(b"alive")
    hand.until(lambda: second.received == b"alive")
    hand.threads.close()
    assert peer.received == b"data"
    assert peer.calls.count(name) == 1
    assert peer.calls.count("lost") == 1


@pytest.mark.parametrize("name", ["data", "end", "lost"])
@pytest.mark.parametrize("action", ["turn", "close"])
def test_a_callback_cannot_take_a_turn_or_close_the_threads(
    hand: Hand, name: str, action: str
) -> None:
    peer, other = hand.connect()
    peer.stays_open = False
    peer.hook = lambda called: getattr(hand.threads, action)() if called == name else None
    other.send(b"data")
    hand.until(lambda: bool(peer.received))
    other.close()
    hand.until(lambda: "lost" in peer.calls)
    if action == "close":
        assert "closes the I/O threads" in str(hand.errors[0])
    second, other = hand.connect()
    other.send(b"alive")
    hand.until(lambda: second.received == b"alive")


def test_closed_threads_refuse_connections(hand: Hand) -> None:
    hand.threads.close()
    assert hand.threads.cpu_ns == []
    own, other = socket.socketpair()
    with own, other, pytest.raises(RuntimeError, match="closed"):
        hand.threads.open(own, None, Peer())


def test_threads_with_open_connections_are_not_garbage() -> None:
    hand = Hand()
    peer, other = hand.connect()
    peer.transport.write(memoryview(bytearray(b"x" * (4 << 20))))
    del hand, peer
    gc.collect()
    other.settimeout(LIMIT_S)
    left = 4 << 20
    while left:
        part = other.recv(1 << 16)
        assert part == b"x" * len(part)
        assert part
        left -= len(part)
    other.close()
