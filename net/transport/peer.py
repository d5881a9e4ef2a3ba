"""The other side of a connection, as handlers see it.

Owns the requests sent to it and their correlation by opaque, and data that handlers attach to it.
It must never touch a socket: a Link does.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol

from turbopump.engine.deferred import Deferred
from turbopump.net.wire.command import ONEWAY_FLAG, Command

logger = logging.getLogger(__name__)

_OPAQUE_MASK = 0x7FFFFFFF


class Timer(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the call; no-op if it has run."""


class Link(Protocol):
    """The methods of a connection that a Peer needs."""

    def send(self, command: Command) -> None:
        """Write a request; it is encoded at once."""

    def close(self) -> None:
        """Write out the unsent bytes, then close."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_ms`."""

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` once the answers to all requests that were read are written."""


class Peer:
    """A connected client or server; compared and hashed by identity.

    `address` is `ip:port`, `host` the same packed as records hold it; `version` and `language` come
    from its newest request.
    """

    __slots__ = (
        "_callbacks",
        "_context",
        "_link",
        "_next_opaque",
        "_pending",
        "address",
        "closed",
        "host",
        "language",
        "version",
    )

    def __init__(self, address: str, host: bytes, link: Link) -> None:
        self.address = address
        self.host = host
        self.closed = False
        self.version = 0
        self.language = ""
        self._link = link
        self._next_opaque = 0
        # Created on first use: most of ten thousand peers never need them.
        self._pending: dict[int, tuple[Deferred[Command | None], Timer]] | None = None
        self._callbacks: list[Callable[[], None]] | None = None
        self._context: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Peer({self.address})"

    @property
    def context(self) -> dict[str, Any]:
        """Data that handlers keep about this peer."""
        if self._context is None:
            self._context = {}
        return self._context

    @property
    def waiting_calls(self) -> int:
        """Number of calls without an answer yet."""
        return len(self._pending) if self._pending else 0

    def call(self, command: Command, timeout_ms: int) -> Deferred[Command | None]:
        """Send a request; the answer comes later, None if it timed out or the peer closed."""
        if self.closed:
            return Deferred.resolved(None)
        answer: Deferred[Command | None] = Deferred()
        command.opaque = self._opaque()
        opaque = command.opaque
        self._link.send(command)
        timer = self._link.call_later(timeout_ms, lambda: self._expire(opaque))
        if self._pending is None:
            self._pending = {}
        self._pending[opaque] = (answer, timer)
        return answer

    def notify(self, command: Command) -> None:
        """Send a one-way request; no-op if the peer closed."""
        if not self.closed:
            command.opaque = self._opaque()
            command.flag |= ONEWAY_FLAG
            self._link.send(command)

    def close(self) -> None:
        """Close the connection once all written bytes are sent."""
        if not self.closed:
            self._link.close()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Run `callback` when the connection is lost; at once if it is lost already."""
        if self.closed:
            callback()
            return
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` once the answers to all requests that were read from this peer are
        written.

        For notices that must not overtake an answer (a heartbeat before its 40).
        """
        self._link.after_answers(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_ms`; the peer may be gone by then."""
        return self._link.call_later(delay_ms, callback)

    def answered(self, response: Command) -> None:
        """Pass a response to its call; a response without a pending call is dropped."""
        waiting = self._pending.pop(response.opaque, None) if self._pending else None
        if waiting is None:
            logger.debug("%s answered %d, for which no call waits", self.address, response.opaque)
            return
        answer, timer = waiting
        timer.cancel()
        answer.resolve(response)

    def leave(self, link: Link) -> None:
        """Replace the ended connection by `link`: without references to each other both are freed
        at once, however long a handler keeps one of them."""
        assert self.closed, "a connection ends before its peer is lost"
        self._link = link

    def lost(self) -> None:
        """Note the loss of the connection: waiting calls get None,
        then the on_close callbacks run."""
        self.closed = True
        pending, self._pending = self._pending, None
        callbacks, self._callbacks = self._callbacks, None
        for answer, timer in (pending or {}).values():
            timer.cancel()
            _guarded(lambda answer=answer: answer.resolve(None))  # type: ignore[misc]
        for callback in callbacks or ():
            _guarded(callback)

    def _opaque(self) -> int:
        self._next_opaque = (self._next_opaque + 1) & _OPAQUE_MASK
        return self._next_opaque

    def _expire(self, opaque: int) -> None:
        waiting = self._pending.pop(opaque, None) if self._pending else None
        if waiting is not None:
            waiting[0].resolve(None)


def _guarded(callback: Callable[[], None]) -> None:
    """Run a callback; its failure must not keep the others from being run."""
    try:
        callback()
    except Exception:
        logger.exception("a callback of a lost connection failed")
