"""Native sends and acknowledgements of gRPC."""

from collections.abc import Callable

from turbopump.pyx.lane import Lane

_Place = Callable[[bytes, bytes], tuple[Lane, int, bytes | None] | None]
_MayAck = Callable[[bytes, bytes, bytes], Lane | None]

class GrpcLane:
    """Serves the plain calls of all sessions of a server; Python serves the others. Loop thread
    only.

    `place` is called with the topic and the client id of a SendMessage, and returns the lane that
    is to store the message, a queue of the topic and the packed host of the client (None: the
    connection's host), or None to leave the call to Python. `may_ack` is called with group, topic
    and client id of an AckMessage, and returns the lane, or None. Both raise nothing and store
    nothing. `headers` and `trailers` are the results of `pairs` for an answer."""

    def __init__(
        self, place: _Place, may_ack: _MayAck, headers: bytes, trailers: bytes
    ) -> None: ...
    @property
    def headers(self) -> bytes:
        """Packed headers of every answer."""

    @property
    def trailers(self) -> bytes:
        """Packed trailers of every answer."""

    @property
    def send_count(self) -> int:
        """Number of sends served natively since the start."""

    @property
    def ack_count(self) -> int:
        """Number of acknowledgements served natively since the start."""
