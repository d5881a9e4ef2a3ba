"""Requests and responses between simulated machines: frames as real nodes write them, over ha_net.

A machine serves one port and has one connection for each address that it calls, as net.transport
does: a request without a response expires after its timeout, all requests on a closed connection
fail at once, and a slow connection may deliver long after the timeout. Handlers see a real `Peer`.
A machine's clocks may be set, or run too fast.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from tests.sim.ha.net import Link, Network, Wire
from turbopump.controller.death_probe import Probed
from turbopump.engine.deferred import Deferred
from turbopump.net.transport.dispatcher import Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, Command, decode, encode

LENGTH = 4
REFUSED = "refused"
"""Reason that ha_net gives for a connection to a machine without a process."""
# Waiting for the first answer of an unused address.
NOBODY_MS = 10
# A request that arrives a second time does so within this: its sender asked again.
AGAIN_MS_MAX = 3000


class Clock:
    """The clocks of a machine: the steady clock and the wall clock."""

    def __init__(self, true_ms: Callable[[], int], start_ms: int) -> None:
        self._true_ms = true_ms
        self._start_ms = start_ms
        self._since_ms, self._local_ms = 0, 0.0
        self._rate = 1.0
        self.ahead_ms = 0
        """Amount by which the wall clock was set, in ms."""

    @property
    def now_ms(self) -> int:
        """Time of the monotonic clock, in ms."""
        return int(self._local_ms + (self._true_ms() - self._since_ms) * self._rate)

    @property
    def wall_ms(self) -> int:
        """Time of the wall clock, in ms."""
        return self._start_ms + self.now_ms + self.ahead_ms

    def drift(self, rate: float) -> None:
        """Let both clocks run too fast or too slowly."""
        self._local_ms, self._since_ms = float(self.now_ms), self._true_ms()
        self._rate = rate


@dataclass(slots=True)
class Trouble:
    """Trouble of requests and responses beside that of the network."""

    lose: frozenset[int] = frozenset()
    """Answers of these codes do not arrive, half of them (F30)."""
    repeat: bool = False
    """Some requests arrive twice (F32)."""


class Machine(Protocol):
    """Machine of a port. `run` runs its code, which may end its process."""

    name: str
    paused: bool
    clock: Clock

    @property
    def up(self) -> bool: ...
    def run(self, what: Callable[..., Any], *args: Any) -> Any: ...
    def answer(self, request: Command, peer: Peer) -> Response: ...


class Timer:
    """Something that is due; cancelled while `callback` is None."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the timer."""
        self.callback = None


@dataclass(slots=True)
class Pending:
    """A request that was sent."""

    later: Deferred[Command | str]
    timer: Timer


@dataclass(slots=True)
class Asking:
    """The connection to an address, and the calls that wait for an answer on it."""

    number: int
    is_open: bool = False
    waiting: list[bytes] = field(default_factory=list)
    """Frames of before it stood."""
    pending: dict[int, Pending] = field(default_factory=dict)


class PeerLink:
    """Interface of an accepted connection for a Peer."""

    def __init__(self, endpoint: "Endpoint", number: int) -> None:
        self._endpoint = endpoint
        self._number = number

    def send(self, command: Command) -> None:
        self._endpoint.write(self._number, command)

    def close(self) -> None:
        self._endpoint.drop(self._number)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._endpoint.call_later(delay_ms, callback)

    def after_answers(self, callback: Callable[[], None]) -> None:
        self._endpoint.wire.call_soon(callback)


class Endpoint:
    """See the module. Lives as long as its machine; `start` begins the life of a process."""

    def __init__(self, network: Network, machine: Machine, port: int, trouble: Trouble) -> None:
        self.name = machine.name
        self.machine = machine
        self.address = f"{machine.name}:{port}"
        self.wire: Wire
        self.is_later = False
        """Whether its process is of a version to come."""
        self.on_lost: Callable[[str], None] = lambda address: None
        """Called when the connection to an address is gone."""
        self._network = network
        self._trouble = trouble
        self._opaques = itertools.count(1)
        self._numbers = itertools.count()
        self._asking: dict[str, Asking] = {}
        self._addresses: dict[int, str] = {}
        self._peers: dict[int, Peer] = {}
        self._probes: dict[int, Deferred[Probed]] = {}
        self._held: dict[int, bytearray] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._behind: list[tuple[int, Timer]] = []
        """Timers that begin after the current sync, with their delays."""
        network.hosts[self.address] = self

    @property
    def up(self) -> bool:
        return self.machine.up

    @property
    def paused(self) -> bool:
        return self.machine.paused

    def start(self) -> None:
        """A new process: it knows of no connection."""
        self.wire = Wire(self._network, self)
        for table in (self._asking, self._addresses, self._peers, self._probes, self._held):
            table.clear()
        self._timers.clear()
        self._behind.clear()

    def gone(self, *, power: bool) -> None:
        """The process is, or the whole machine."""
        self._network.gone(self, power=power)

    def moved(self, port: int) -> None:
        """The machine has another address: none answers at the old one."""
        self.address = f"{self.machine.name}:{port}"
        self._network.hosts[self.address] = self

    # Asking

    def call(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        """Send a request; resolves to the response, or to the reason why it is missing."""
        later: Deferred[Command | str] = Deferred()
        asking = self._reach(address)
        if asking is None:
            self.call_later(NOBODY_MS, partial(later.resolve, f"no node is at {address}"))
            return later
        request.opaque = next(self._opaques)
        timer = self.call_later(timeout_ms, partial(self._expire, address, request.opaque))
        asking.pending[request.opaque] = Pending(later, timer)
        self._put(asking, request)
        return later

    def notify(self, address: str, request: Command) -> None:
        """Tell, without an answer."""
        asking = self._reach(address)
        if asking is not None:
            request.opaque = next(self._opaques)
            request.flag |= ONEWAY_FLAG
            self._put(asking, request)

    def refuses(self, address: str) -> Deferred[bool]:
        """Whether there is surely no process."""
        return self.probe(address).map(lambda found: found is Probed.REFUSED)

    def probe(self, address: str) -> Deferred[Probed]:
        """Open a connection to an address; resolves to its fate."""
        later: Deferred[Probed] = Deferred()
        host = self._network.hosts.get(address)
        if host is None or getattr(host, "address", "") != address:
            # Another machine, or none: nothing answers there.
            self.call_later(NOBODY_MS, partial(later.resolve, Probed.NO_RESPONSE))
        else:
            self._probes[self.wire.connect(address)] = later
        return later

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Schedule a callback by the machine's own clock.

        If its code waits for a sync, the delay begins when the sync has returned, as for code that
        runs after it.
        """
        timer = Timer(callback)
        disk = getattr(self.machine, "disk", None)
        if disk is not None and disk.spent_ms:
            self._behind.append((delay_ms, timer))
        else:
            self._begin(delay_ms, timer)
        return timer

    def tick(self) -> None:
        """Run the timers that are due."""
        behind, self._behind = self._behind, []
        for delay_ms, timer in behind:
            self._begin(delay_ms, timer)
        now_ms = self.machine.clock.now_ms
        while self._timers and self._timers[0][0] <= now_ms and self.machine.up:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                callback()

    def _begin(self, delay_ms: int, timer: Timer) -> None:
        due_ms = self.machine.clock.now_ms + delay_ms
        heapq.heappush(self._timers, (due_ms, next(self._numbers), timer))

    def _reach(self, address: str) -> Asking | None:
        asking = self._asking.get(address)
        host = self._network.hosts.get(address)
        if asking is None and host is not None and getattr(host, "address", "") == address:
            asking = self._asking[address] = Asking(self.wire.connect(address))
            self._addresses[asking.number] = address
        return asking

    def _put(self, asking: Asking, request: Command) -> None:
        frame = self._framed(request)
        if asking.is_open:
            self.wire.send(asking.number, [frame])
        else:
            asking.waiting.append(frame)

    def _expire(self, address: str, opaque: int) -> None:
        asking = self._asking.get(address)
        pending = asking.pending.pop(opaque, None) if asking is not None else None
        if pending is not None:
            pending.later.resolve(f"no answer from {address}")

    # Events of the network

    def on_accept(self, link: Link) -> None:
        number = self.wire.add(link)
        address = f"{link.hosts[0].name}:{number}"
        host = b"\x7f\0\0\1" + number.to_bytes(4)
        self._peers[number] = Peer(address, host, PeerLink(self, number))

    def on_connected(self, link: Link) -> None:
        probe = self._probes.pop(link.number, None)
        if probe is not None:
            self.wire.close(link.number)
            self.machine.run(probe.resolve, Probed.ACCEPTED)
            return
        asking = self._asking[self._addresses[link.number]]
        asking.is_open = True
        frames, asking.waiting = asking.waiting, []
        self.wire.send(link.number, frames)

    def on_bytes(self, link: Link, data: bytes) -> None:
        held = self._held.setdefault(link.number, bytearray())
        held += data
        while len(held) >= LENGTH and self.machine.up:
            size = LENGTH + int.from_bytes(held[:LENGTH])
            if len(held) < size:
                return
            frame = bytes(held[:size])
            del held[:size]
            self.machine.run(self._on_frame, link.number, decode(frame))

    def on_closed(self, link: Link, reason: str) -> None:
        self.machine.run(self._on_closed, link.number, reason)

    def on_writable(self, link: Link) -> None:
        """No-op: responses are written without flow control."""

    def _on_closed(self, number: int, reason: str) -> None:
        self._held.pop(number, None)
        self.wire.close(number)
        probe = self._probes.pop(number, None)
        if probe is not None:
            probe.resolve(Probed.REFUSED if reason == REFUSED else Probed.NO_RESPONSE)
        peer = self._peers.pop(number, None)
        if peer is not None:
            peer.lost()
        address = self._addresses.pop(number, None)
        if address is not None:
            asking = self._asking.pop(address)
            for pending in asking.pending.values():
                pending.timer.cancel()
                pending.later.resolve(f"{address}: {reason}")
            self.on_lost(address)

    def drop(self, number: int) -> None:
        """Close a connection."""
        self._on_closed(number, "closed here")

    def write(self, number: int, command: Command) -> None:
        """Send on an accepted connection."""
        if number in self._peers:
            self.wire.send(number, [self._framed(command)])

    def _framed(self, command: Command) -> bytes:
        if self.is_later:
            command.version += 1
            command.fields["ofAVersionToCome"] = "1"
            # Bodies of pulls and pops are slices of the log.
            if not isinstance(command.body, list) and bytes(command.body[:1]) == b"{":
                command.body = b'{"ofAVersionToCome":{"a":[1,null]},' + bytes(command.body[1:])
                if command.body.endswith(b",}"):
                    command.body = b"{}"
        return b"".join(bytes(part) for part in encode(command))

    # Serving

    def _on_frame(self, number: int, command: Command) -> None:
        if command.flag & RESPONSE_FLAG:
            self._answered(number, command)
            return
        peer = self._peers.get(number)
        if peer is None:
            return
        rng = self._network.rng
        if self._trouble.repeat and rng.random() < 0.2:
            again = decode(b"".join(bytes(part) for part in encode(command)))
            late_ms = int(rng.random() * AGAIN_MS_MAX)
            self.call_later(late_ms, partial(self._serve, number, again, is_again=True))
        self._serve(number, command)

    def _serve(self, number: int, request: Command, *, is_again: bool = False) -> None:
        peer = self._peers.get(number)
        if peer is None:
            return
        code, opaque, oneway = request.code, request.opaque, request.is_oneway
        response = self.machine.answer(request, peer)

        def reply(command: Command | None) -> None:
            if command is None or oneway or is_again or number not in self._peers:
                return
            if code in self._trouble.lose and self._network.rng.random() < 0.5:
                if self._network.rng.random() < 0.5:
                    self.drop(number)
                return
            command.opaque = opaque
            command.flag |= RESPONSE_FLAG
            self.write(number, command)

        if isinstance(response, Deferred):
            response.then(reply)
        else:
            reply(response)

    def _answered(self, number: int, command: Command) -> None:
        asking = self._asking.get(self._addresses.get(number, ""))
        pending = asking.pending.pop(command.opaque, None) if asking is not None else None
        if pending is not None:
            pending.timer.cancel()
            pending.later.resolve(command)
