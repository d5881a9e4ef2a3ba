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
"""Bytes above which answers are written before the read or callback ends: back pressure counts only
bytes that the transport has."""

JOIN_MAX: Final = 64 << 10
"""Answers of a read are joined up to this size: one write is
cheaper than a vector of small ones."""


def write_plain(transport: asyncio.Transport, out: list[Buffer]) -> None:
    """Write buffers without encryption."""
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
        """Number of bytes that wait."""

    def add(self, buffers: list[Buffer]) -> None:
        """Add buffers after the waiting bytes."""
        size = sum(map(len, buffers))
        if len(buffers) > 1 and size <= JOIN_MAX:
            buffers = [b"".join(buffers)]
        self._parts.extend(map(memoryview, buffers))
        self.size += size

    def write(
        self, transport: asyncio.Transport, tls: TlsSession, wanted: Callable[[], bool]
    ) -> None:
        """Write a few records at a time, while more are wanted; raises ssl.SSLError."""
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
    """The writing methods of a connection."""

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

    @property
    def unsent(self) -> int:
        """Bytes written that the peer has not read."""
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + self._sealing.size

    @property
    def writable(self) -> bool:
        """Whether the unsent bytes are below the high-water mark."""
        return not self.blocked

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Run `callback` once unsent bytes fall below the low-water mark, or the peer is lost."""
        self._room_waiters.append(callback)

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` once the bytes to be written now are passed to the transport."""
        self._answered.append(callback)
        self._flush_soon()

    def is_drained(self) -> bool:
        """Whether the transport has nothing to write."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def write_rest(self, buffers: list[Buffer]) -> None:
        """Write after the transport's own unsent bytes."""
        if self._transport is not None and not self._transport.is_closing():
            write_plain(self._transport, buffers)
            self._check_unread()

    def _put(self, buffers: list[Buffer]) -> None:
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
        if not self.in_read and not self._flushing:
            self._flushing = True
            self._hub.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._write_out()
        if self._answered:
            callbacks, self._answered = self._answered, []
            for callback in callbacks:
                self._run(callback)

    def _write_out(self) -> None:
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
        """Encrypt and write `buffers` after the waiting bytes."""
        self._sealing.add(buffers)
        self._check_unread()

    def _seal(self) -> None:
        """Encrypt waiting bytes while the peer reads; then end a closing connection."""
        if self._tls is not None and self._sealing.size and self._transport is not None:
            try:
                self._sealing.write(self._transport, self._tls, lambda: not self.blocked)
            except ssl.SSLError as error:
                self._hub.complain(f"{self.peer.address} closed: {one_line(error)}")
                self.abort()
            ended = self.sealing and self._closing and not self._sealing.size
            self.sealing = self._sealing.size > 0
            if ended:
                self._say_goodbye()

    def _say_goodbye(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if self._tls is not None and self._tls.established:
                self._tls.end()
                transport.write(self._tls.outgoing())
            transport.close()

    def _forget_unsent(self) -> None:
        self._out.clear()
        self._sealing.clear()
        self.sealing = False

    def _check_unread(self) -> None:
        self.queued = True
        unsent = self.unsent
        if unsent > self._hub.options.write_max:
            self._hub.complain(f"{self.peer.address} closed: it does not read its answers")
            self.abort()
        elif unsent > UNSENT_NOTED_OVER:
            self._hub.note_unsent(self, unsent)

    def _run(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            logger.exception("a callback after an answer to %s failed", self.peer.address)

    def _wake_writers(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            self._run(waiter)
