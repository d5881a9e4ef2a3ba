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
    """A scheduled call that can be cancelled. Loop thread only."""

    def cancel(self) -> None:
        """Prevent the call; no-op if it has run or was cancelled."""


class Link(Protocol):
    """The methods of a connection that a Peer needs. Loop thread only."""

    def send(self, command: Command) -> None:
        """Encode a request at once, and write it now or soon; dropped without an error if the
        connection has ended. Raises WireError if it does not fit into a frame."""

    def close(self) -> None:
        """Write out the unsent bytes, then close; returns at once."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the loop after `delay_ms`, unless the returned timer is cancelled
        first. It also runs after the end of the connection."""

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` once, after the answers that wait now were passed to the transport; never
        within this call."""


class Peer:
    """A connected client or server; compared and hashed by identity. Loop thread only.

    Requests to a peer get the opaques 1, 2, ...
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
        """`ip:port`."""
        self.host = host
        """The address packed as records hold it: 4 or 16 bytes of IP and 4 of port, big-endian."""
        self.closed = False
        """Whether `lost` was called: the connection has ended, or ends right after."""
        self.version = 0
        """The MQVersion number of its newest request, 0 before the first request."""
        self.language = ""
        """The name of the language of its newest request, such as JAVA; empty before the first
        request."""
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
        """Data that handlers keep about this peer by their own keys; the same dict for each call,
        also after the peer is lost."""
        if self._context is None:
            self._context = {}
        return self._context

    @property
    def waiting_calls(self) -> int:
        """Number of calls to the peer whose answer has not arrived yet."""
        return len(self._pending) if self._pending else 0

    def call(self, command: Command, timeout_ms: int) -> Deferred[Command | None]:
        """Send a request and return at once. The Deferred resolves to the answer of any code, or to
        None after `timeout_ms` or when the peer is lost. Sets `command.opaque`. Raises WireError if
        the request does not fit into a frame."""
        if self.closed:
            return Deferred.resolved(None)
        response: Deferred[Command | None] = Deferred()
        command.opaque = self._opaque()
        opaque = command.opaque
        self._link.send(command)
        timer = self._link.call_later(timeout_ms, lambda: self._expire_call(opaque))
        if self._pending is None:
            self._pending = {}
        self._pending[opaque] = (response, timer)
        return response

    def notify(self, command: Command) -> None:
        """Send a one-way request; no-op if the peer is lost. Sets `command.opaque` and ONEWAY_FLAG.
        Raises WireError if it does not fit into a frame."""
        if not self.closed:
            command.opaque = self._opaque()
            command.flag |= ONEWAY_FLAG
            self._link.send(command)

    def close(self) -> None:
        """Close the connection once all written bytes are sent; returns at once. No-op if the peer
        is lost."""
        if not self.closed:
            self._link.close()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Run `callback` once when the connection is lost, in the order of these calls; now if it
        is lost already. The callback's exceptions are logged."""
        if self.closed:
            callback()
            return
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` once, after the answers that wait now were passed to the transport: at the
        end of the read in progress, or in the next turn of the loop.

        Use it for a request to the peer that must not overtake an answer, such as
        NOTIFY_CONSUMER_IDS_CHANGED after a heartbeat.
        """
        self._link.after_answers(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the loop after `delay_ms`, unless the returned timer is cancelled
        first. The peer may be lost by then."""
        return self._link.call_later(delay_ms, callback)

    def answered(self, response: Command) -> None:
        """Resolve the call whose request has the response's opaque, now; a response without a
        pending call is dropped."""
        waiting = self._pending.pop(response.opaque, None) if self._pending else None
        if waiting is None:
            logger.debug("%s answered %d, for which no call waits", self.address, response.opaque)
            return
        call, timer = waiting
        timer.cancel()
        call.resolve(response)

    def replace_link(self, link: Link) -> None:
        """Replace the ended connection by `link`; to be called after `lost`. Without references to
        each other both are freed at once, however long a handler keeps one of them."""
        assert self.closed, "a connection ends before its peer is lost"
        self._link = link

    def lost(self) -> None:
        """Set `closed`, resolve pending calls with None, then run the callbacks of `on_close`.
        Their exceptions are logged."""
        self.closed = True
        pending, self._pending = self._pending, None
        callbacks, self._callbacks = self._callbacks, None
        for response, timer in (pending or {}).values():
            timer.cancel()
            _run_guarded(lambda response=response: response.resolve(None))  # type: ignore[misc]
        for callback in callbacks or ():
            _run_guarded(callback)

    def _opaque(self) -> int:
        """Return the next opaque for a request to the peer."""
        self._next_opaque = (self._next_opaque + 1) & _OPAQUE_MASK
        return self._next_opaque

    def _expire_call(self, opaque: int) -> None:
        """Resolve a pending call with None: its time is up."""
        waiting = self._pending.pop(opaque, None) if self._pending else None
        if waiting is not None:
            waiting[0].resolve(None)


def _run_guarded(callback: Callable[[], None]) -> None:
    """Run a callback; its failure must not keep the others from being run."""
    try:
        callback()
    except Exception:
        logger.exception("a callback of a lost connection failed")
