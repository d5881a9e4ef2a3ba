from collections.abc import Callable

from turbopump.pyx.lane import Lane

_Place = Callable[[bytes, bytes], tuple[Lane, int, bytes | None] | None]
_MayAck = Callable[[bytes, bytes, bytes], Lane | None]

class GrpcLane:
    """Serves plain calls of all sessions of a server; the others are for Python.

    `place` is called with the topic and the client id of a SendMessage, and returns the lane that
    is to store it, a queue of the topic and the packed host of the client (None: that of the
    connection), or None if the call is Python's. `may_ack` is called with group, topic and client
    id of an AckMessage, and returns the lane, or None. Both raise nothing and store nothing.
    `headers` and `trailers` are `pairs` of an answer."""

    def __init__(
        self, place: _Place, may_ack: _MayAck, headers: bytes, trailers: bytes
    ) -> None: ...
    @property
    def headers(self) -> bytes: ...
    @property
    def trailers(self) -> bytes: ...
    @property
    def send_count(self) -> int:
        """Sends served so far."""

    @property
    def ack_count(self) -> int:
        """Acknowledgements served so far."""
