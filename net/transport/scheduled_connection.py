"""A connection that takes turns with the others of its server.

Owns the state of waiting for a turn, the request that is handled in steps, and the unread bytes of
a peer that is gone. It must never write to a socket, nor read from a peer that is connected. The
base class of Connection, which has the rest.

Tests: tests/integration/transport/test_transport_last_words.py
"""

import asyncio
from functools import partial
from typing import Final

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.dispatcher import Response
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.hub import Hub
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.socket_drain import SocketDrain
from turbopump.net.wire.command import Command, WireError
from turbopump.pyx.fast import TURN_REQUESTS, FastConnection
from turbopump.pyx.io_threads import ThreadedTransport

_TURN: Final = 4
_STEPS: Final = 8
READ: Final = 16
"""A reason not to read, besides Connection's own, as a bit: other connections are read first."""

DRAIN_COST: Final = 64 * 1024
"""Bytes that count for a connection without a peer, besides the peer's unread bytes, until all of
them are handled: with TLS some 45 KB were measured. No limit of connections holds here: its peer
may have opened the next one already."""


class _Holder:
    """A holder of memory for a connection, in addition to its incomplete frame."""

    __slots__ = ("abort", "peer")

    def __init__(self, connection: "ScheduledConnection") -> None:
        self.peer = connection.peer
        self.abort = connection.abort


class _Work(_Holder):
    """A request that is handled in steps; it holds its body."""

    __slots__ = ("steps",)

    def __init__(self, connection: "ScheduledConnection", steps: Steps[Response]) -> None:
        super().__init__(connection)
        self.steps = steps


class ScheduledConnection(FastConnection):
    """The turns of a connection. `rests` is True while bytes that were read have to wait. Loop
    thread only."""

    __slots__ = ("_drain", "_drain_holder", "_hub", "_sealed", "_work")

    peer: Peer

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._hub = hub
        self._sealed: _Holder | None = None
        self._drain_holder: _Holder | None = None
        self._drain: SocketDrain | None = None
        self._work: _Work | None = None

    def hold_sealed(self, size: int) -> None:
        """Set the number of bytes that were read and are not decrypted yet to `size`; they count in
        the hub's memory for incomplete frames. Raises WireError if its limits are exceeded."""
        if size and self._sealed is None:
            self._sealed = _Holder(self)
        if self._sealed is not None:
            self._hub.area.hold(self._sealed, size)

    def took(self, size: int) -> None:
        """Count a handled read of `size` bytes in the turn that all of a server's connections
        share. This connection stops reading until a later turn if the turn's bytes are used up, or
        if the turn reads several paused connections. No-op at a client, or once the peer is
        gone."""
        hub = self._hub
        if not hub.is_server or self._drain is not None or hub.turns.count_read(size):
            return
        if not self.rests and not self.is_closing:
            self.pause(READ)
            hub.turns.read_later(self)

    def read_on(self) -> None:
        """Read again in this turn; called by FairScheduler after `read_later`."""
        self.resume(READ)

    def begins(self) -> bool:
        """Count a frame that is to be handled in this turn and return True. False: the turn has
        no room, and the frame waits; a server's connection continues in its next turn, or when
        its peer reads. Always True at a client: it handles the answers to its calls as they
        arrive."""
        if self.rests:
            return False
        if not self._hub.is_server:
            return True
        if self.blocked:
            return False
        if self.turn_left > 0 and self._hub.turns.begin_request():
            self.turn_left -= 1
            return True
        self.give_way()
        return False

    def gives(self, size: int) -> bool:
        """Count `size` bytes written to the peer in this turn of the loop; returns whether more
        bytes may be written in it."""
        return self._hub.turns.count_written(size)

    def give_way(self) -> None:
        """Stop reading and handling until this connection has its turn."""
        self.rests = True
        self.pause(_TURN)
        fresh = self.turn_left == TURN_REQUESTS and self._drain is None
        self._hub.turns.continue_later(self, fresh=fresh)

    def continue_turn(self) -> None:
        """Handle the waiting frames, as many as fit into this turn, then read again unless frames
        are left."""
        self.rests = False
        self.go_on_if_free()

    def go_on_if_free(self) -> None:
        """Handle waiting frames, as many as fit into this turn, then read again; no-op while the
        connection has to wait for its turn, closes, or, at a server, does not read its answers."""
        if self.rests or self.is_closing:
            return
        if not (self.blocked and self._hub.is_server):
            if self.is_fast:
                self.go_on()
            else:
                self.go_on_slowly()
        if self._drain is not None:
            self._read_drain(self._drain)
        elif not self.rests:
            self.resume(_TURN)

    def begin_work(self, request: Command, steps: Steps[Response]) -> None:
        """Have the rest of a request handled in steps by the hub, and answer it with their result.
        The connection's later requests wait until then; it is not read."""
        work = self._work = _Work(self, steps)
        self.rests = True
        self.pause(_STEPS)
        self.hold(1)
        self._hub.area.hold(work, len(request.body) + 1)
        later: Deferred[Response] = self._hub.turns.run_steps(self.peer.host[:-4], steps)
        later.then(partial(self._worked, work, request))

    def give_up_work(self) -> None:
        """Stop the request that is handled in steps, because the peer is gone: its generator is
        closed."""
        if self._work is not None:
            self._hub.area.hold(self._work, 0)
            self._work.steps.close()

    def drain_socket(self, transport: asyncio.Transport) -> bool:
        """Handle the bytes that a peer which is gone had sent and that `transport` did not pass on,
        in turns with other connections' requests. Returns at once; answers are dropped, and the
        connection ends after the last byte. False, and logged: the bytes cannot be read, nothing
        was begun.

        A client that leaves closes without waiting for answers, and the loop stops reading at the
        first write that fails: the Go client's last commits, not marked one-way, would be lost.
        """
        try:
            holder = _Holder(self)
            self._hub.area.hold(holder, DRAIN_COST)
            self._drain_holder = holder
            unread = b""
            if isinstance(transport, ThreadedTransport):
                unread = transport.take_unread()
            self._drain = SocketDrain(transport.get_extra_info("socket").fileno(), unread)
        except (OSError, WireError) as error:
            self._hub.log_problem(f"the last bytes of {self.peer.address} are not read: {error}")
            self.end_drain()
            return False
        self.mute()
        self.blocked = False
        self.continue_drain()
        return True

    def continue_drain(self) -> None:
        """Read on in the next turn from a peer that is gone; no-op without such a peer, or while a
        request is handled in steps."""
        if self._drain is not None and not self.rests and not self.is_closing:
            self.give_way()

    def end_drain(self) -> None:
        """Close the duplicate descriptor, and drop bytes that were not read; no-op without a
        duplicate."""
        if self._drain_holder is not None:
            self._hub.area.hold(self._drain_holder, 0)
            self._drain_holder = None
        if self._drain is not None:
            self._drain.close()
            self._drain = None

    def _read_drain(self, drain: SocketDrain) -> None:
        """Handle another read of a peer that is gone; further reads follow in later turns."""
        if not self.rests and not self.is_closing and not self.is_full:
            size = drain.read_into(self.get_buffer(-1))
            if size:
                self.buffer_updated(size)
                self._hub.turns.count_written(size)
            else:
                self.abort()
            self.continue_drain()

    def _worked(self, work: _Work, request: Command, response: Response) -> None:
        """Write the answer of a request that was handled in steps, and continue with later
        requests."""
        self._work, self.rests = None, False
        self._hub.area.hold(work, 0)
        if self.settled(1):
            self.take(request, response)
        if not self.is_closing:
            self.resume(_STEPS)
            self.go_on_if_free()

    # Methods of the subclass.

    @property
    def is_closing(self) -> bool:
        """Whether the connection closes or is closed: no further frame is handled."""
        raise NotImplementedError

    @property
    def is_full(self) -> bool:
        """Whether reading is paused because too many requests are unanswered: from `max_in_flight`
        unanswered requests until half of them are answered."""
        raise NotImplementedError

    def close(self) -> None:
        """Write out the unsent bytes, then close; no further request is handled. Returns at
        once."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close and drop all unsent bytes. The connection leaves its hub in a later turn of the
        loop."""
        raise NotImplementedError

    def go_on_slowly(self) -> None:
        """Handle the frames that wait, in Python. Never raises: malformed bytes close the
        connection."""
        raise NotImplementedError

    def hold(self, count: int) -> None:
        """Count `count` requests whose responses will be sent later; from `max_in_flight` of
        them reading pauses."""
        raise NotImplementedError

    def settled(self, count: int) -> bool:
        """Count the responses of `count` requests that `hold` counted as ready. Returns True if
        they may be written, False if the peer is gone or the connection closes."""
        raise NotImplementedError

    def take(self, request: Command, response: Response) -> None:
        """Write the answer to a request: now, once a Deferred resolves, or never (None, or a
        one-way request)."""
        raise NotImplementedError

    def pause(self, reason: int) -> None:
        """Add `reason`, a bit, to the reasons not to read, and stop reading."""
        raise NotImplementedError

    def resume(self, reason: int) -> None:
        """Remove `reason`, a bit, from the reasons not to read; read again if no reason is left."""
        raise NotImplementedError
