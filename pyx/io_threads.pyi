"""Transports whose sockets are read and written by native threads without the interpreter."""

from collections.abc import Callable
from typing import Any, Protocol

EVENTS_PER_TURN: int
"""Maximum number of events that a turn takes from all threads; a read counts once more for each
8 KiB."""
THREADS_MAX: int
"""Maximum number of threads of an IoThreads."""
COPIED_MAX: int
"""Maximum bytes of a buffer that is copied for the thread; a larger buffer is written from its own
memory."""
HIGH_WATER: int
"""Default of the high-water mark in bytes, as in asyncio."""
KEPT_MAX: int
"""Bytes that paused transports keep; above it the threads read little of each connection."""

_Buffer = bytes | bytearray | memoryview

class _Socket(Protocol):
    """A socket."""

    def fileno(self) -> int: ...

class _Protocol(Protocol):
    """An asyncio.BufferedProtocol."""

    def connection_made(self, transport: Any) -> None: ...
    def get_buffer(self, sizehint: int) -> Any: ...
    def buffer_updated(self, nbytes: int) -> None: ...

class IoThreads:
    """`count` threads, 1 to 64, that read and write sockets for a loop. Loop thread only.

    The loop calls `turn` when `descriptor` is readable; `post` has a callback called soon, after
    the loop has polled its own sockets; `report` receives the exceptions of protocols. Raises
    ValueError for another count, OSError if a thread cannot be started.
    """

    def __init__(
        self,
        count: int,
        post: Callable[[Callable[[], None]], object],
        report: Callable[[Exception], None],
    ) -> None: ...
    @property
    def descriptor(self) -> int:
        """Descriptor that becomes readable when `turn` has to run; -1 after `close`."""

    @property
    def cpu_ns(self) -> list[int]:
        """CPU time of each thread in ns; empty after `close`."""

    def open(self, socket: _Socket, peername: Any, protocol: _Protocol) -> ThreadedTransport:
        """Hand a connected, non-blocking socket to the thread with the fewest connections, and call
        `connection_made`. The transport closes the socket. `peername`: the address of the peer.
        Raises RuntimeError after `close`."""

    def turn(self) -> None:
        """Take up to EVENTS_PER_TURN events of the threads: bytes go to their protocols. Posts
        itself while events are left. An exception of a protocol is reported, and its transport
        aborted. No-op while a posted turn is due, and after `close`. Raises RuntimeError inside a
        callback of a protocol."""

    def continue_turn(self) -> None:
        """Take the turn that was posted."""

    def close(self) -> None:
        """Abort all transports, wait until their `connection_lost` was called, and end the threads.
        Blocks for some milliseconds. No-op if closed. Raises RuntimeError inside a callback of a
        protocol."""

class ThreadedTransport:
    """A transport whose socket a thread reads and writes, for an asyncio.BufferedProtocol.
    IoThreads.open makes it. Loop thread only. It has the methods of asyncio.Transport, and
    `take_unread`. A buffer to write must not change: a large buffer is written from its own
    memory."""

    def is_reading(self) -> bool:
        """Whether the protocol receives bytes."""

    def pause_reading(self) -> None:
        """Stop passing bytes to the protocol; no-op if it is stopped."""

    def resume_reading(self) -> None:
        """Pass bytes to the protocol again, kept bytes in a later turn; no-op unless stopped."""

    def deliver(self) -> None:
        """Pass the kept bytes to the protocol while it reads."""

    def take_unread(self) -> bytes:
        """Return and forget the bytes that were read while the protocol had paused reading."""

    def drop_kept(self) -> None:
        """Forget these bytes."""

    def write(self, data: _Buffer) -> None:
        """Write a buffer. No-op after `close`."""

    def writelines(self, buffers: list[_Buffer]) -> None:
        """Write buffers, in order, as `write` does."""

    def write_eof(self) -> None:
        """Close the writing side after the bytes written before."""

    def can_write_eof(self) -> bool:
        """Always True."""

    def get_write_buffer_size(self) -> int:
        """Bytes written that the kernel has not accepted yet."""

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the (low, high) marks of `set_write_buffer_limits`."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks in bytes at which the protocol's writes are paused and resumed. Raises
        ValueError."""

    def fail(self, error: Exception) -> None:
        """Report an exception of the protocol, and abort."""

    def close(self) -> None:
        """Write the unsent bytes, then close; the protocol receives no further bytes."""

    def abort(self) -> None:
        """Close now and drop all unsent bytes; `connection_lost` is called in a later turn."""

    def is_closing(self) -> bool:
        """Whether `close` or `abort` was called, or the connection is lost."""

    def get_protocol(self) -> Any:
        """The protocol that receives the bytes."""

    def set_protocol(self, protocol: Any) -> None:
        """Let `protocol` receive the bytes from now on."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the socket, its `sockname` or its `peername`."""
