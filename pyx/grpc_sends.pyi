from collections.abc import Callable

from turbopump.pyx.lane import Lane

_Place = Callable[[bytes, bytes], tuple[Lane, int, bytes | None] | None]

class GrpcSends:
    """Serves plain calls of SendMessage of all sessions of a server; the others are for Python.

    `place` is called with the topic and the client id of a call, and returns the lane that is to
    store it, a queue of the topic and the packed host of the client (None: that of the
    connection), or None if the call is Python's. It raises nothing and stores nothing. `headers`
    and `trailers` are `pairs` of an answer."""

    def __init__(self, place: _Place, headers: bytes, trailers: bytes) -> None: ...
    @property
    def headers(self) -> bytes: ...
    @property
    def trailers(self) -> bytes: ...
    @property
    def send_count(self) -> int:
        """Calls served so far."""
