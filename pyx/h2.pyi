from typing import Final

from turbopump.pyx.grpc_lane import GrpcLane

HEADERS: Final = 2
DATA: Final = 3
END: Final = 4
CLOSED: Final = 5
PONG: Final = 6
AWAY: Final = 7

_Event = tuple[int, int, list[tuple[bytes, bytes]] | bytes | int | None]
"""(kind, stream id, what): HEADERS of the peer, None where they are too many; DATA and its bytes;
END, the peer has sent all; CLOSED and the error code; PONG and AWAY, of the connection."""

def library(file: str | None = None) -> str:
    """Load libnghttp2 (`file`: instead of the one that the system finds); the name of what was
    found. Raises OSError where it, or a function of it, is not there."""

def pairs(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Headers as answers and trailers take them; at most 16. Raises ValueError for too long
    ones."""

class H2Session:
    """One side of an HTTP/2 connection, without a socket: a server's, or with `client` a client's.
    `library` was called before.

    `streams` may be open at once, `headers` is the size of a peer's headers as SETTINGS counts it,
    `stream_window` and `window` what a peer may send ahead. Raises MemoryError."""

    def __init__(
        self, streams: int, headers: int, stream_window: int, window: int, client: bool = False
    ) -> None: ...
    @property
    def unsent(self) -> int:
        """Bytes of answers that the peer gave no window for yet."""

    @property
    def is_over(self) -> bool:
        """Nothing more is to be read or written: the connection is to be closed."""

    may_serve: bool
    """Whether plain calls are served natively now; False at first."""

    @property
    def has_served(self) -> bool:
        """Whether the last `receive` has served some natively: none of their events came."""

    def serve_plain(self, lane: GrpcLane, address: bytes, host: bytes) -> None:
        """Have plain calls of SendMessage and AckMessage served natively while `may_serve`. Up to
        32 KiB of the events of those that are not whole, 16 MiB of all sessions, are held until
        `receive` brings the rest, or until `let_go`, which is called at the end, too. `address` is
        `ip:port` of the peer, `host` the same packed."""

    def let_go(self) -> list[_Event]:
        """The events that were held, for what should not wait any longer for its rest."""

    def receive(self, data: memoryview | bytes) -> tuple[int, list[_Event]]:
        """Take some of `data`: (how many bytes, what they brought). To be called until all are
        taken. Raises ValueError where the connection cannot go on; `take` has the last words."""

    def take(self) -> tuple[bytes, list[_Event]]:
        """Up to 256 KiB to be written, b"" if there is nothing for now, and which streams are
        CLOSED by that. Raises ValueError where the connection cannot go on."""

    def answer(self, stream_id: int, headers: bytes, body: bytes | None, trailers: bytes) -> None:
        """Begin an answer with `pairs`; nothing happens to a stream that is closed. `body` None:
        trailers are in the headers, and all is said. With trailers the answer is complete, b"":
        more follows."""

    def request(self, headers: bytes, body: bytes, ends: bool) -> int:
        """Begin a request with `pairs`; the id of its stream. `ends`: the body is all. HEADERS of
        the answer come again where it has trailers. Raises ValueError where the connection is no
        longer to be used."""

    def more(self, stream_id: int, body: bytes, trailers: bytes, ends: bool = False) -> None:
        """Go on with an answer or a request; with trailers or `ends` it is complete."""

    def reset(self, stream_id: int, error: int) -> None:
        """End a stream at once (RST_STREAM)."""

    def ping(self) -> None:
        """Ask for a PONG."""

    def shutdown(self) -> None:
        """Say that there will be no new streams (GOAWAY); open ones go on."""

    def terminate(self, error: int) -> None:
        """Say that the connection ends (GOAWAY with the last stream)."""
