"""HTTP/2 connections through libnghttp2, without I/O."""

from typing import Final

from turbopump.pyx.grpc_lane import GrpcLane

HEADERS: Final = 2
"""Kind of an event: the peer's headers or trailers of a stream."""
DATA: Final = 3
"""Kind of an event: bytes of a stream's message."""
END: Final = 4
"""Kind of an event: the peer has sent its whole message in a stream."""
CLOSED: Final = 5
"""Kind of an event: a stream is closed; the value is its error code."""
PONG: Final = 6
"""Kind of an event: the peer answered a PING."""
AWAY: Final = 7
"""Kind of an event: the peer accepts no new streams (GOAWAY)."""

_Event = tuple[int, int, list[tuple[bytes, bytes]] | bytes | int | None]
"""(kind, stream id, value). Values: HEADERS: the peer's headers, None if they are too large; DATA:
its bytes; CLOSED: the error code, 0 without an error; other kinds: None. PONG and AWAY concern the
connection."""

def library(file: str | None = None) -> str:
    """Load the system's libnghttp2 for all sessions, and return its file name; a second call does
    nothing. With `file` only check that this file is such a library. Raises OSError if the library,
    or a function of it, is missing."""

def pairs(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Pack at most 16 (name, value) pairs for `answer`, `request` or `more`. Raises ValueError for
    more pairs, or longer ones than the packed form can hold."""

class H2Session:
    """A side of an HTTP/2 connection, without a socket: a server's, or with `client` a client's.
    `library` must be called before.

    `streams` is the number of streams that the peer may have open at once (no effect in a client:
    a server begins no stream), `headers` the largest size of a peer's headers as SETTINGS counts
    it, `stream_window` and `window` the bytes that a peer may send ahead in a stream and in the
    connection. Raises MemoryError. Methods that queue bytes for `take` raise ValueError if the
    connection cannot go on."""

    def __init__(
        self, streams: int, headers: int, stream_window: int, window: int, client: bool = False
    ) -> None: ...
    @property
    def unsent(self) -> int:
        """Number of bytes of bodies that `take` has not returned yet, because the peer's window is
        full or `take` was not called."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is to be read or written, and the connection should be closed."""

    may_serve: bool
    """Whether plain calls are served natively now; the owner sets it, False at first."""

    @property
    def has_served(self) -> bool:
        """Whether the last `receive` served calls natively, which produce no events."""

    def serve_plain(self, lane: GrpcLane, address: bytes, host: bytes) -> None:
        """Serve plain calls of SendMessage and AckMessage natively while `may_serve`. The events of
        calls that are not whole, up to 32 KiB of a session and 16 MiB of all, are held until
        `receive` brings the rest, or until `let_go`, which the owner also calls at the end.
        `address` is `ip:port` of the peer, `host` the same packed."""

    def let_go(self) -> list[_Event]:
        """Return the held events of incomplete calls, so that Python handles these calls."""

    def receive(self, data: memoryview | bytes) -> tuple[int, list[_Event]]:
        """Consume some bytes of `data` and return (their number, their events). The caller repeats
        this until all bytes are consumed. Raises ValueError if the connection cannot go on; then
        `take` returns the last bytes to write."""

    def take(self) -> tuple[bytes, list[_Event]]:
        """Return up to 256 KiB to write, b"" if there is nothing now, and the CLOSED events of the
        streams that they complete. Raises ValueError if the connection cannot go on."""

    def answer(self, stream_id: int, headers: bytes, body: bytes | None, trailers: bytes) -> None:
        """Begin an answer with headers from `pairs`; a closed stream is ignored. `body` None: the
        headers contain the trailers, and the answer is complete. Trailers that are not b"" also
        complete the answer; after b"" more follows."""

    def request(self, headers: bytes, body: bytes, ends: bool) -> int:
        """Begin a request with headers from `pairs` and return the id of its stream. `ends`: the
        request ends with `body`. An answer with trailers brings a second HEADERS event. Raises
        ValueError if the connection accepts no new requests."""

    def more(self, stream_id: int, body: bytes, trailers: bytes, ends: bool = False) -> None:
        """Append `body` to an answer or a request; trailers from `pairs` (b"": no trailers) or
        `ends` complete it."""

    def reset(self, stream_id: int, error: int) -> None:
        """Abort a stream with an HTTP/2 error code (RST_STREAM); `take` returns the bytes."""

    def ping(self) -> None:
        """Queue a PING for `take`; the peer answers it with a PONG event."""

    def shutdown(self) -> None:
        """Queue for `take` the announcement that no new streams are accepted (GOAWAY); open streams
        continue."""

    def terminate(self, error: int) -> None:
        """Queue for `take` the announcement that the connection ends with an HTTP/2 error code
        (GOAWAY with the last stream)."""
