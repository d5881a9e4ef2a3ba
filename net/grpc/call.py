"""A server's call, as a service sees it: the client's metadata, its messages, the answer.

Owns the life of a call: an answer ends once, and nothing is sent after it. It must never touch a
session or a socket: a Carrier does.

    begun -> message ... -> end of the client's half -> answered or failed -> over
      a cancellation, the deadline or a lost connection ends it from any state

Tests: tests/unit/net/grpc/test_connection.py
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from turbopump.net.grpc.framing import MessageReader, framed
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.transport.peer import Timer


class Carrier(Protocol):
    """The connection of a call."""

    address: str
    host: bytes

    @property
    def is_clogged(self) -> bool:
        """Whether the peer does not read the bytes written to it."""

    def say(self, call: "GrpcCall", body: bytes, end: tuple[GrpcCode, str] | None) -> None:
        """Write messages of an answer, and its end."""


class GrpcCall:
    """A call that has begun. `metadata` has names in small letters; values of a repeated name are
    joined by commas. `deadline` is of the loop's clock; None: the call has no deadline.

    A method with streams sets `on_message`, and `on_end` for the end of the client's half.
    `on_over` runs once when the call ends, for any reason: answered, cancelled, out of time.
    """

    __slots__ = (
        "_carrier",
        "deadline",
        "has_begun",
        "has_heard",
        "is_over",
        "metadata",
        "on_end",
        "on_message",
        "on_over",
        "path",
        "reader",
        "since",
        "stream_id",
        "timer",
    )

    def __init__(
        self, carrier: Carrier, stream_id: int, path: str, metadata: Mapping[bytes, bytes]
    ) -> None:
        self._carrier = carrier
        self.stream_id = stream_id
        self.path = path
        self.metadata = metadata
        self.deadline: float | None = None
        self.timer: Timer | None = None
        self.since = 0.0
        self.reader: MessageReader | None = None
        self.has_begun = self.has_heard = False
        self.is_over = False
        self.on_message: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_over: Callable[[], object] | None = None

    @property
    def address(self) -> str:
        """The client's address as `ip:port`."""
        return self._carrier.address

    @property
    def host(self) -> bytes:
        """The client's address packed, as records hold it."""
        return self._carrier.host

    @property
    def is_clogged(self) -> bool:
        """Whether the client does not read the bytes written to it: nothing more should be sent
        that would be lost with the connection."""
        return self._carrier.is_clogged

    def text(self, name: bytes) -> str:
        """A value of the metadata, "" if it is missing."""
        return self.metadata.get(name, b"").decode("ascii", "replace")

    def send(self, message: bytes) -> None:
        """Send a further message of the answer; no-op for a call that has ended."""
        if not self.is_over:
            self._carrier.say(self, framed(message), None)

    def answer(self, *messages: bytes) -> None:
        """Send the remaining messages of the answer, and its end."""
        self.answer_framed(b"".join(map(framed, messages)))

    def answer_framed(self, messages: bytes) -> None:
        """Send the rest of an answer whose messages are framed already, and its end."""
        if not self.is_over:
            self._carrier.say(self, messages, (GrpcCode.OK, ""))
            self.over()

    def fail(self, error: GrpcError) -> None:
        """End the call with an error code."""
        if not self.is_over:
            self._carrier.say(self, b"", (error.code, error.text))
            self.over()

    def over(self) -> None:
        """Note that the call has ended, and run `on_over`."""
        if self.is_over:
            return
        self.is_over = True
        if self.timer is not None:
            self.timer.cancel()
        ended, self.on_over = self.on_over, None
        self.on_message = self.on_end = self.reader = None
        if ended is not None:
            ended()


Method = Callable[[GrpcCall], None]
"""Begins to serve a call whose headers were read."""
Unary = Callable[[GrpcCall, bytes], None]
"""Serves a unary call with its message."""


def unary(serve: Unary) -> Method:
    """A method with a single message. `serve` is not called when the message arrives, but when the
    client's half has ended, so that there is no second message."""

    def begin(call: GrpcCall) -> None:
        given: list[bytes] = []

        def message(one: bytes) -> None:
            if given:
                call.fail(GrpcError(GrpcCode.INTERNAL, "more than one message of a unary call"))
            given.append(one)

        def end() -> None:
            if given:
                serve(call, given[0])
            else:
                call.fail(GrpcError(GrpcCode.INTERNAL, "no message of a unary call"))

        call.on_message, call.on_end = message, end

    return begin
