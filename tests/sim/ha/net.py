"""A virtual network of TCP connections: bytes keep their order inside one connection, and no other
guarantee is given.

Sent bytes are in two places: in the sender's kernel, which goes on delivering when the process
closes the connection or is killed, and before that in the process, as the buffers themselves: views
of a log that is truncated meanwhile show zeros. A connection delivers in pieces of any size. A
direction between two hosts may be blocked, a connection may stall; neither loses bytes, but a
connection may be reset at any time. A host without power does not respond, and its peers are
notified only when it is back.
"""

import random
from collections.abc import Callable
from typing import Protocol

Buffer = bytes | bytearray | memoryview

# From the first try to connect to its failure, when nothing answers.
CONNECT_TIMEOUT_MS = 3000
WINDOWS = (60, 300, 2000, 1 << 20)
PIECES = (1, 7, 12, 40, 500, 1 << 20)


class Host(Protocol):
    """An end of connections. `name` is its address; while it is `paused` it receives nothing."""

    name: str
    paused: bool

    @property
    def up(self) -> bool: ...
    def on_accept(self, link: "Link") -> None: ...
    def on_connected(self, link: "Link") -> None: ...
    def on_bytes(self, link: "Link", data: bytes) -> None: ...
    def on_closed(self, link: "Link", reason: str) -> None: ...
    def on_writable(self, link: "Link") -> None: ...


class Pipe:
    """A direction of a connection."""

    __slots__ = ("ended", "kernel", "stalled_until_ms", "waiting", "window")

    def __init__(self, window: int) -> None:
        self.kernel = bytearray()
        self.waiting: list[memoryview] = []
        self.window = window
        self.ended = False
        """Whether the sender closed it: the receiver is notified after the last byte."""
        self.stalled_until_ms = 0

    def take(self) -> None:
        """Move waiting bytes into the kernel while its window has room, with their
        present content.
        """
        waiting = self.waiting
        while waiting and (room := self.window - len(self.kernel)) > 0:
            first = waiting[0]
            self.kernel += first[:room]
            if len(first) <= room:
                waiting.pop(0)
            else:
                waiting[0] = first[room:]


class Wire:
    """Network interface of a host's process: its connections by number (broker.ha.ports)."""

    def __init__(self, network: "Network", host: Host) -> None:
        self._network = network
        self._host = host
        self._links: dict[int, Link] = {}
        self.due: list[Callable[[], None]] = []
        """Callbacks that `turn` runs."""

    async def listen(self, host: str, port: int) -> int:
        """Accept connections: hosts reach each other by name."""
        return port

    async def stop(self) -> None:
        """Close all connections."""
        for connection in list(self._links):
            self.close(connection)

    def address(self, connection: int) -> str:
        """The end a connection leads to."""
        link = self._links.get(connection)
        return "" if link is None else link.hosts[1 - link.side(self._host)].name

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Schedule a callback for the end of this turn of the loop."""
        self.due.append(callback)

    def turn(self) -> None:
        """Run the callbacks scheduled for the end of the turn."""
        due, self.due = self.due, []
        for callback in due:
            callback()

    def connect(self, address: str) -> int:
        link = self._network.connect(self._host, address)
        return self.add(link)

    def add(self, link: "Link") -> int:
        """A connection that another host asked for, too, has a number."""
        self._links[link.number] = link
        return link.number

    def send(self, connection: int, buffers: list[Buffer]) -> bool:
        link = self._links.get(connection)
        return link is None or self._network.send(self._host, link, buffers)

    def set_paused(self, connection: int, paused: bool) -> None:
        link = self._links.get(connection)
        if link is not None:
            self._network.set_paused(self._host, link, paused)

    def close(self, connection: int) -> None:
        link = self._links.pop(connection, None)
        if link is not None:
            self._network.close(self._host, link)


class Link:
    """A connection; side 0 opened it, side 1 accepted it."""

    __slots__ = (
        "asked_ms", "deaf", "hosts", "is_known", "is_silent", "number", "open", "pending", "pipes",
    )  # fmt: skip

    def __init__(self, number: int, hosts: tuple[Host, Host], window: int, now_ms: int) -> None:
        self.number = number
        self.hosts = hosts
        self.pending = True
        self.asked_ms = now_ms
        self.open = [True, False]
        self.deaf = [False, False]
        """Whether that side reads nothing for now, neither bytes nor the end."""
        self.is_known = True
        """Whether the network still has it."""
        self.is_silent = False
        """Whether one end lost its power: further bytes do not arrive."""
        self.pipes = (Pipe(window), Pipe(window))
        """Directions: `pipes[side]` holds the bytes that `side` sends."""

    def side(self, host: Host) -> int:
        """Which side a host is."""
        return 0 if self.hosts[0] is host else 1


class Network:
    """See the module. One step delivers one thing; `now_ms` is set by the owner of the clock."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_ms = 0
        self.links: list[Link] = []
        self.hosts: dict[str, Host] = {}
        self.blocked: set[tuple[str, str]] = set()
        """(from, to): nothing passes."""
        self.windows: tuple[int, ...] = WINDOWS
        self.pieces: tuple[int, ...] = PIECES
        self._number = 0
        self._stirred: dict[int, Link] = {}
        """Links by number: each link with anything under way, and some idle ones."""

    # Calls of hosts

    def connect(self, host: Host, address: str) -> Link:
        """`on_connected` or `on_closed` follows."""
        self._number += 1
        window = self.windows[int(self.rng.random() * len(self.windows))]
        link = Link(self._number, (host, self.hosts[address]), window, self.now_ms)
        self.links.append(link)
        self._stirred[link.number] = link
        return link

    def send(self, host: Host, link: Link, buffers: list[Buffer]) -> bool:
        """Whether the kernel took it all."""
        side = link.side(host)
        pipe = link.pipes[side]
        if not link.open[side] or pipe.ended:
            return True
        pipe.waiting += [memoryview(buffer) for buffer in buffers if len(buffer)]
        pipe.take()
        self._stir(link)
        return not pipe.waiting

    def set_paused(self, host: Host, link: Link, paused: bool) -> None:
        """Stop or continue reading from the link."""
        link.deaf[link.side(host)] = paused
        self._stir(link)

    def close(self, host: Host, link: Link) -> None:
        """Close one side: bytes in its kernel still arrive, later ones do not, and it receives
        nothing more.
        """
        side = link.side(host)
        link.open[side] = False
        link.pipes[side].waiting.clear()
        link.pipes[side].ended = True
        self._stir(link)
        if link.pending or not any(link.open):
            self._forget(link)

    def gone(self, host: Host, *, power: bool) -> None:
        """The process or the whole host is gone."""
        for link in [link for link in self.links if host in link.hosts]:
            side = link.side(host)
            link.open[side] = False
            pipe = link.pipes[side]
            pipe.waiting.clear()
            pipe.ended = True
            self._stir(link)
            if power:
                link.is_silent = True
            if link.pending and side == 0:
                self._forget(link)

    # Events

    def step(self) -> bool:
        """Deliver something to a host; False if there is nothing that could be."""
        ready = self._ready()
        if not ready:
            return False
        link, side = ready[int(self.rng.random() * len(ready))]
        self._move(link, side, self.pieces[int(self.rng.random() * len(self.pieces))])
        return True

    def drain(self, rounds_max: int) -> None:
        """Deliver everything, whole, with its consequences, for at most `rounds_max` rounds."""
        for _ in range(rounds_max):
            ready = self._ready()
            if not ready:
                return
            for link, side in ready:
                if link.is_known:
                    self._move(link, side, 1 << 30)

    def sweep(self, chance: float) -> bool:
        """Deliver each thing there is with that chance; False if there is nothing."""
        ready = self._ready()
        rng, pieces = self.rng, self.pieces
        for link, side in ready:
            if rng.random() < chance and link.is_known:
                self._move(link, side, pieces[int(rng.random() * len(pieces))])
        return bool(ready)

    def reset(self, link: Link) -> None:
        """Break the connection, and notify both sides if they can be notified."""
        self._forget(link)
        for side in (0, 1):
            self._tell(link, side, "reset")

    def stall(self, link: Link, for_ms: int) -> None:
        """Let one direction of a link deliver nothing for `for_ms`."""
        link.pipes[self.rng.randrange(2)].stalled_until_ms = self.now_ms + for_ms

    def heal(self) -> None:
        """End all trouble except for packets under way."""
        self.blocked.clear()
        for link in self.links:
            for pipe in link.pipes:
                pipe.stalled_until_ms = 0
        self.windows, self.pieces = WINDOWS[-1:], PIECES[-1:]

    # Inside

    def _ready(self) -> list[tuple[Link, int]]:
        """Pairs (link, sender's side) with bytes that may arrive now, by number.

        Most connections are mostly idle, and this function is called more often than any other.
        """
        ready: list[tuple[Link, int]] = []
        stirred = self._stirred
        if not stirred:
            return ready
        blocked, now_ms = self.blocked, self.now_ms
        for number in sorted(stirred):
            link = stirred[number]
            there, back = link.pipes
            if not (there.kernel or back.kernel or there.ended or back.ended or link.pending):
                del stirred[number]
                continue
            one, other = link.hosts
            if link.pending:
                if one.paused or other.paused:
                    continue
                ways = {(one.name, other.name), (other.name, one.name)}
                late = now_ms - link.asked_ms > CONNECT_TIMEOUT_MS
                if late or not (link.is_silent or blocked & ways):
                    ready.append((link, 0))
                continue
            for side, pipe, sender, receiver in ((0, there, one, other), (1, back, other, one)):
                if not (pipe.kernel or pipe.ended) or receiver.paused or link.deaf[1 - side]:
                    continue
                if link.is_silent:
                    # A host that is back does not know the connection, and resets it when bytes
                    # arrive.
                    if link.open[side] and pipe.kernel and receiver.up:
                        ready.append((link, side))
                    continue
                if not link.open[1 - side]:
                    continue
                way = (sender.name, receiver.name)
                if way not in blocked and pipe.stalled_until_ms <= now_ms:
                    ready.append((link, side))
        return ready

    def _move(self, link: Link, side: int, size: int) -> None:
        if link.pending:
            self._accept(link)
            return
        if link.deaf[1 - side]:
            return
        if link.is_silent:
            # The link may have become silent in this sweep, by the end of the host that has to
            # reset it.
            if link.open[side] and link.hosts[1 - side].up:
                self._forget(link)
                self._tell(link, side, "reset")
            return
        pipe = link.pipes[side]
        if not pipe.kernel:
            self._end(link, side)
            return
        data = bytes(pipe.kernel[:size])
        del pipe.kernel[:size]
        if pipe.waiting:
            pipe.take()
            if not pipe.waiting and link.open[side]:
                link.hosts[side].on_writable(link)
        if link.open[1 - side]:
            link.hosts[1 - side].on_bytes(link, data)

    def _accept(self, link: Link) -> None:
        server = link.hosts[1]
        late = self.now_ms - link.asked_ms > CONNECT_TIMEOUT_MS
        if late or not server.up:
            self._forget(link)
            self._tell(link, 0, "no answer" if late else "refused")
            return
        link.pending = False
        link.open[1] = True
        server.on_accept(link)
        if link.open[0]:
            link.hosts[0].on_connected(link)

    def _end(self, link: Link, side: int) -> None:
        """Deliver the end of the stream; the receiver closes its own direction, too."""
        other = 1 - side
        if not link.open[side]:
            self._forget(link)
        self._tell(link, other, "closed by the other side")
        link.pipes[other].ended = True
        self._stir(link)

    def _tell(self, link: Link, side: int, reason: str) -> None:
        if link.open[side]:
            link.open[side] = False
            if link.hosts[side].up:
                link.hosts[side].on_closed(link, reason)

    def _stir(self, link: Link) -> None:
        if link.is_known:
            self._stirred[link.number] = link

    def _forget(self, link: Link) -> None:
        if link.is_known:
            link.is_known = False
            self.links.remove(link)
            self._stirred.pop(link.number, None)
