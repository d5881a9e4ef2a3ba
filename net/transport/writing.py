"""The writing side of a connection: plain or encrypted, in writes of an efficient size.

Owns the bytes to write, the bytes that are not encrypted yet, and callbacks for their end. It must
never know the content of a buffer. The base class of Connection, for answers made in Python; native
answers go to the socket directly (pyx/fast.pyx).

Tests: tests/integration/transport/test_transport_unread.py, tests/unit/net/transport/test_tls.py
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final

from turbopump.engine.types import Buffer
from turbopump.net.transport.dispatcher import one_line
from turbopump.net.transport.hub import UNSENT_NOTED_OVER, Hub
from turbopump.net.transport.scheduled_connection import ScheduledConnection
from turbopump.net.transport.tls import TlsSession
from turbopump.pyx.fast import GIVEN_NOTED_OVER
from turbopump.pyx.socket_writing import SEALED_MAX

logger = logging.getLogger(__name__)

FLUSH_OVER: Final = 256 << 10
"""Bytes of waiting answers above which they are written before the read or callback ends: back
pressure counts only bytes that the transport has."""

JOIN_MAX: Final = 64 << 10
"""Bytes up to which the answers of a read are joined into a single write, which is cheaper than a
vector of small buffers."""


def write_plain(transport: asyncio.Transport, out: list[Buffer]) -> None:
    """Pass all buffers, in order, to the transport without encryption; it sends them now or
    later."""
    if len(out) == 1:
        transport.write(out[0])
    elif sum(map(len, out)) <= JOIN_MAX:
        transport.write(b"".join(out))
    else:
        transport.writelines(out)


class Sealing:
    """Bytes that wait for encryption, in the order of writing.

    They are encrypted as the peer reads: encrypting a whole large answer takes the loop some 20 ms,
    and a peer that does not read would have its own copy of data that many share.
    """

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: deque[memoryview] = deque()
        self.size = 0
        """Number of bytes that wait for encryption."""

    def add(self, buffers: list[Buffer]) -> None:
        """Append buffers, in order, after the waiting bytes. Buffers are not copied, unless several
        small ones are joined: the caller must not change them."""
        size = sum(map(len, buffers))
        if len(buffers) > 1 and size <= JOIN_MAX:
            buffers = [b"".join(buffers)]
        self._parts.extend(map(memoryview, buffers))
        self.size += size

    def write(
        self, transport: asyncio.Transport, tls: TlsSession, wanted: Callable[[], bool]
    ) -> None:
        """Encrypt up to SEALED_MAX waiting bytes at a time and pass them to `transport`, until
        no bytes wait or `wanted()`, whether the transport accepts more, is False. Raises
        ssl.SSLError."""
        while self._parts and wanted():
            part = self._parts.popleft()
            if len(part) > SEALED_MAX:
                self._parts.appendleft(part[SEALED_MAX:])
                part = part[:SEALED_MAX]
            self.size -= len(part)
            transport.write(tls.sealed(part))

    def clear(self) -> None:
        """Drop the bytes that wait."""
        self._parts.clear()
        self.size = 0


class WritingSide(ScheduledConnection):
    """The writing methods of a connection. Loop thread only."""

    __slots__ = (
        "_answered",
        "_closing",
        "_flushing",
        "_out",
        "_out_size",
        "_room_waiters",
        "_sealing",
        "_tls",
        "_transport",
        "blocked_since",
        "closing_at",
    )

    def __init__(self, hub: Hub, tls: TlsSession | None) -> None:
        super().__init__(hub)
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] = []
        self._out_size = 0
        self._sealing = Sealing()
        self._answered: list[Callable[[], None]] = []
        self._room_waiters: list[Callable[[], None]] = []
        self._flushing = False
        self._closing = False
        self.blocked_since = self.closing_at = 0.0
        """`blocked_since`: seconds of the loop's clock since which the unsent bytes have been above
        the high-water mark; `closing_at`: when `close` was called. 0.0: they are not, it was
        not."""

    @property
    def unsent(self) -> int:
        """Bytes in the transport's buffer or waiting for encryption; bytes that the kernel has do
        not count. 0 without a transport."""
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + self._sealing.size

    @property
    def writable(self) -> bool:
        """Whether the unsent bytes do not block the connection: False from the high-water mark
        until they fall below the low-water mark."""
        return not self.blocked

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Run `callback` once, when unsent bytes fall below the low-water mark or the connection is
        lost; to be called only while the connection is not `writable`."""
        self._room_waiters.append(callback)

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` once, after the answers that wait now were passed to the transport: at the
        end of the read in progress, or in the next turn of the loop."""
        self._answered.append(callback)
        self._flush_soon()

    def is_drained(self) -> bool:
        """Whether there is a transport and its buffer is empty."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def write_rest(self, buffers: list[Buffer]) -> None:
        """Write plain buffers after the transport's own unsent bytes; no-op if it is closing.
        Aborts the connection if more than `write_max` bytes are unsent then."""
        if self._transport is not None and not self._transport.is_closing():
            write_plain(self._transport, buffers)
            self._check_unread()

    def _put(self, buffers: list[Buffer]) -> None:
        """Add buffers to the bytes to write, at once if many wait, else with the next flush."""
        if not self._closing and self._transport is not None:
            self._out += buffers
            size = sum(map(len, buffers))
            self._out_size += size
            if size > GIVEN_NOTED_OVER:
                self.gives(size)
            if self._out_size > FLUSH_OVER:
                self._write_out()
            else:
                self._flush_soon()

    def _flush_soon(self) -> None:
        """Have the waiting bytes written in the next turn of the loop, unless a read in progress
        does it."""
        if not self.in_read and not self._flushing:
            self._flushing = True
            self._hub.loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write the waiting bytes, then run the callbacks of `after_answers`."""
        self._flushing = False
        self._write_out()
        if self._answered:
            callbacks, self._answered = self._answered, []
            for callback in callbacks:
                self._run(callback)

    def _write_out(self) -> None:
        """Pass the waiting bytes to the transport, or with TLS to the bytes to encrypt."""
        if not self._out or self._transport is None or self._transport.is_closing():
            return
        if self._tls is not None and not self._tls.established:
            return
        out, self._out, self._out_size = self._out, [], 0
        if self._tls is None:
            write_plain(self._transport, out)
        else:
            self._sealing.add(out)
            self._seal()
        self.active_at = self._hub.clock()
        self._check_unread()

    def seal_later(self, buffers: list[Buffer]) -> None:
        """Add `buffers` to the bytes that wait for encryption; they are written as the peer reads.
        Aborts the connection if more than `write_max` bytes are unsent then."""
        self._sealing.add(buffers)
        self._check_unread()

    def _seal(self) -> None:
        """Encrypt waiting bytes while the peer reads; then end a closing connection."""
        if self._tls is not None and self._sealing.size and self._transport is not None:
            try:
                self._sealing.write(self._transport, self._tls, lambda: not self.blocked)
            except ssl.SSLError as error:
                self._hub.log_problem(f"{self.peer.address} closed: {one_line(error)}")
                self.abort()
            ended = self.sealing and self._closing and not self._sealing.size
            self.sealing = self._sealing.size > 0
            if ended:
                self._close_transport()

    def _close_transport(self) -> None:
        """Write TLS's closing alert, and close the transport after its unsent bytes."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if self._tls is not None and self._tls.established:
                self._tls.end()
                transport.write(self._tls.outgoing())
            transport.close()

    def _forget_unsent(self) -> None:
        """Drop all bytes that wait to be written or encrypted."""
        self._out.clear()
        self._sealing.clear()
        self.sealing = False

    def _check_unread(self) -> None:
        """Abort the connection if more than `write_max` bytes are unsent, else note a large
        number in the hub."""
        self.queued = True
        unsent = self.unsent
        if unsent > self._hub.options.write_max:
            self._hub.log_problem(f"{self.peer.address} closed: it does not read its answers")
            self.abort()
        elif unsent > UNSENT_NOTED_OVER:
            self._hub.note_unsent(self, unsent)

    def _run(self, callback: Callable[[], None]) -> None:
        """Run a callback; its exception is logged."""
        try:
            callback()
        except Exception:
            logger.exception("a callback after an answer to %s failed", self.peer.address)

    def _wake_writers(self) -> None:
        """Run and remove the callbacks of `when_writable`."""
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            self._run(waiter)
