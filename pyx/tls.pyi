from typing import Any, Protocol

class _Incoming(Protocol):
    """Keeps what is written until the session reads it (ssl.MemoryBIO)."""

    @property
    def pending(self) -> int: ...
    def write(self, data: Any, /) -> int: ...

class _Outgoing(Protocol):
    """Keeps what the session writes (ssl.MemoryBIO)."""

    @property
    def pending(self) -> int: ...
    def read(self, size: int = ..., /) -> bytes: ...

class TlsRecords:
    """What is decrypted and encrypted of a connection; every method may raise ssl.SSLError.

    The subclass has is_end(error, have) -> bool: whether nothing follows a read that failed, False:
    more must come first. It may raise the error, or leave it in `failure` where `have` bytes were
    decrypted before.
    """

    over: bool
    """The peer closed the session, or what came cannot be decrypted: see `read_into`."""
    failure: Exception | None

    def __init__(self, session: Any, incoming: _Incoming, outgoing: _Outgoing) -> None:
        """`session` is an ssl.SSLObject between the two buffers."""

    def feed(self, data: Any) -> None:
        """Bytes from the peer; they are copied."""

    @property
    def pending(self) -> int:
        """Bytes from the peer that were not read yet."""

    def read_into(self, room: memoryview) -> int:
        """Decrypted bytes into `room`, all that there are if they fit; 0 when more must come first,
        -1 at the peer's end. An error comes behind what was decrypted before it."""

    def sealed(self, data: bytes | memoryview) -> bytes:
        """Encrypt what is to be sent: bytes for the peer, with all that has to go before them."""

    def outgoing(self) -> bytes:
        """Bytes for the peer that the session has of its own: its handshake, its closing alert,
        new keys."""
