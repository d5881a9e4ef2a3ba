"""TLS records of a connection, through an ssl.SSLObject."""

from typing import Any, Protocol

class _Incoming(Protocol):
    """A buffer of bytes from the peer, which the session reads (ssl.MemoryBIO)."""

    @property
    def pending(self) -> int:
        """Number of bytes that the session has not read yet."""

    def write(self, data: Any, /) -> int:
        """Append a copy of `data`, and return its bytes."""

class _Outgoing(Protocol):
    """A buffer of bytes for the peer, which the session writes (ssl.MemoryBIO)."""

    @property
    def pending(self) -> int:
        """Number of bytes that were not read yet."""

    def read(self, size: int = ..., /) -> bytes:
        """Remove and return at most `size` bytes, by default all."""

class TlsRecords:
    """Decryption and encryption of a connection's bytes; every method may raise ssl.SSLError.

    The subclass has is_end(error, have) -> bool: whether the stream ended, after a read that
    failed; False: more bytes must arrive first. is_end may raise the error, or store it in
    `failure` if `have` bytes were decrypted before it.
    """

    over: bool
    """Whether the peer closed the session, or its bytes cannot be decrypted; see `read_into`."""
    failure: Exception | None
    """Error that follows bytes already decrypted; the next `read_into` raises it. None: no
    error."""

    def __init__(self, session: Any, incoming: _Incoming, outgoing: _Outgoing) -> None:
        """Wrap `session`, an ssl.SSLObject that uses the two buffers."""

    def feed(self, data: Any) -> None:
        """Add a copy of encrypted bytes from the peer; `read_into` decrypts them."""

    @property
    def pending(self) -> int:
        """Number of bytes from the peer that were not decrypted yet."""

    def read_into(self, room: memoryview) -> int:
        """Decrypt into `room`, as many bytes as fit, and return their number; 0 if more bytes must
        arrive first, -1 at the end of the peer's stream. An error is reported by the call after the
        bytes that precede it."""

    def sealed(self, data: bytes | memoryview) -> bytes:
        """Encrypt `data`, and return the bytes for the peer, after the session's own bytes."""

    def outgoing(self) -> bytes:
        """Remove and return the session's own bytes for the peer: handshake, closing alert, new
        keys; b"" if it has no such bytes."""
