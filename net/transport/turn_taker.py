"""A connection that takes turns with the others of its server.

Owns what of a connection waits for its turn, or for a request that is handled in steps, and what a
peer that is gone had sent before. It must never write to a socket, nor read one that has a peer.
The base class of Connection, which has the rest.
"""

from functools import partial
from typing import Final

from turbopump.engine.later import Later
from turbopump.net.transport.dispatcher import Answer
from turbopump.net.transport.hub import Hub
from turbopump.net.transport.last_words import LastWords
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.turns import Steps
from turbopump.net.wire.command import Command, WireError
from turbopump.pyx.fast import TURN_REQUESTS, FastConnection

_TURN: Final = 4
_STEPS: Final = 8
READ: Final = 16
"""Reasons not to read, beside those of Connection. READ: others are read first."""

GONE_COST: Final = 64 * 1024
"""Bytes that a connection without a peer counts as until all that its peer said is handled, beside
that: with TLS some 45 KB were measured. No limit of connections holds here: its peer may have made
the next one already."""


class _Holder:
    """What else than its incomplete frame a connection has in memory."""

    __slots__ = ("abort", "peer")

    def __init__(self, connection: "TurnTaker") -> None:
        self.peer = connection.peer
        self.abort = connection.abort


class _Work(_Holder):
    """A request that is handled in steps; it holds its body."""

    __slots__ = ("steps",)

    def __init__(self, connection: "TurnTaker", steps: Steps[Answer]) -> None:
        super().__init__(connection)
        self.steps = steps


class TurnTaker(FastConnection):
    """The turns of a connection. `rests` while what was read has to wait."""

    __slots__ = ("_gone", "_hub", "_sealed", "_words", "_work")

    peer: Peer

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._hub = hub
        self._sealed: _Holder | None = None
        self._gone: _Holder | None = None
        self._words: LastWords | None = None
        self._work: _Work | None = None

    def hold_sealed(self, size: int) -> None:
        """So many bytes were read that are not decrypted yet."""
        if size and self._sealed is None:
            self._sealed = _Holder(self)
        if self._sealed is not None:
            self._hub.area.hold(self._sealed, size)

    def took(self, size: int) -> None:
        """A read brought so many bytes, and is handled: it may be others' turn to be read."""
        hub = self._hub
        if not hub.is_server or self._words is not None or hub.turns.takes(size):
            return
        if not self.rests and not self.is_over:
            self.pause(READ)
            hub.turns.read_later(self)

    def read_on(self) -> None:
        """It is this connection's turn to be read."""
        self.resume(READ)

    def begins(self) -> bool:
        """Whether one more frame may be handled in this turn; if not, it waits for the next.

        A client handles what it asked for as it comes.
        """
        if self.rests:
            return False
        if not self._hub.is_server:
            return True
        if self.blocked:
            return False
        if self.turn_left > 0 and self._hub.turns.begin():
            self.turn_left -= 1
            return True
        self.give_way()
        return False

    def gives(self, size: int) -> bool:
        """The peer was given so many bytes; whether there may be more in this turn."""
        return self._hub.turns.gives(size)

    def give_way(self) -> None:
        """Let others have their turn; nothing is read meanwhile."""
        self.rests = True
        self.pause(_TURN)
        fresh = self.turn_left == TURN_REQUESTS and self._words is None
        self._hub.turns.rest(self, fresh=fresh)

    def continue_turn(self) -> None:
        """It is this connection's turn: handle the next of what was read."""
        self.rests = False
        self.go_on_if_free()

    def go_on_if_free(self) -> None:
        """Handle the next of what was read, unless it has to wait for something else."""
        if self.rests or self.is_over:
            return
        if not (self.blocked and self._hub.is_server):
            if self.is_fast:
                self.go_on()
            else:
                self.go_on_slowly()
        if self._words is not None:
            self._hear(self._words)
        elif not self.rests:
            self.resume(_TURN)

    def begin_work(self, request: Command, steps: Steps[Answer]) -> None:
        """Have a request handled in steps. The connection's next ones wait until it is done."""
        work = self._work = _Work(self, steps)
        self.rests = True
        self.pause(_STEPS)
        self.hold(1)
        self._hub.area.hold(work, len(request.body) + 1)
        later: Later[Answer] = self._hub.turns.work(self.peer.host[:-4], steps)
        later.then(partial(self._worked, work, request))

    def give_up_work(self) -> None:
        """The peer is gone: what is handled in steps ends after the step before."""
        if self._work is not None:
            self._hub.area.hold(self._work, 0)
            self._work.steps.close()

    def hear_last_words(self, descriptor: int) -> bool:
        """The peer is gone: what lies unread is handled in turns with the others' requests, the
        answers go nowhere; then the connection ends. False if it cannot be read.

        A client that leaves closes without waiting for answers, and the loop stops reading at the
        first write that fails: the Go client's last commits, not marked one-way, would be lost.
        """
        try:
            gone = _Holder(self)
            self._hub.area.hold(gone, GONE_COST)
            self._gone = gone
            self._words = LastWords(descriptor)
        except (OSError, WireError) as error:
            self._hub.complain(f"what {self.peer.address} said last is not read: {error}")
            self.end_last_words()
            return False
        self.mute()
        self.blocked = False
        self.hear_on()
        return True

    def hear_on(self) -> None:
        """Go on with what a peer that is gone had sent, in the next turn."""
        if self._words is not None and not self.rests and not self.is_over:
            self.give_way()

    def end_last_words(self) -> None:
        """What the peer said last is handled, or is not to be."""
        if self._gone is not None:
            self._hub.area.hold(self._gone, 0)
            self._gone = None
        if self._words is not None:
            self._words.close()
            self._words = None

    def _hear(self, words: LastWords) -> None:
        """Handle one read more of a peer that is gone; the rest when it is its turn again."""
        if not self.rests and not self.is_over and not self.is_full:
            size = words.read_into(self.get_buffer(-1))
            if size:
                self.buffer_updated(size)
                self._hub.turns.gives(size)
            else:
                self.abort()
            self.hear_on()

    def _worked(self, work: _Work, request: Command, answer: Answer) -> None:
        self._work, self.rests = None, False
        self._hub.area.hold(work, 0)
        if self.settled(1):
            self.take(request, answer)
        if not self.is_over:
            self.resume(_STEPS)
            self.go_on_if_free()

    # What the subclass has.

    @property
    def is_over(self) -> bool:
        """Whether nothing is handled any more."""
        raise NotImplementedError

    @property
    def is_full(self) -> bool:
        """Whether too many answers are waited for."""
        raise NotImplementedError

    def close(self) -> None:
        """Close once everything is written."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close at once."""
        raise NotImplementedError

    def go_on_slowly(self) -> None:
        """Handle what the receiver keeps."""
        raise NotImplementedError

    def hold(self, count: int) -> None:
        """So many answers come later."""
        raise NotImplementedError

    def settled(self, count: int) -> bool:
        """So many answers come now; whether they may be written."""
        raise NotImplementedError

    def take(self, request: Command, answer: Answer) -> None:
        """Answer a request, now or later."""
        raise NotImplementedError

    def pause(self, reason: int) -> None:
        """Read no more until each reason is gone."""
        raise NotImplementedError

    def resume(self, reason: int) -> None:
        """A reason not to read is gone."""
        raise NotImplementedError
