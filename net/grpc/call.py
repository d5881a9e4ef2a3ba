"""A server's call, as a service sees it: the client's metadata, its messages, the answer.

Owns the life of a call: an answer ends once, and nothing is sent after it. It must never touch a
session or a socket: a Carrier does.

    begun -> message ... -> end of the client's half -> answered or failed -> over
      a cancellation, the deadline or a lost connection ends it from any state

Tests: tests/unit/net/grpc/test_connection.py
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from turbopump.net.grpc.framing import MessageReader, frame_message
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.transport.peer import Timer


class Carrier(Protocol):
    """The connection that carries a call, as the call uses it. Loop thread only."""

    address: str
    """The client's `ip:port`."""
    host: bytes
    """The client's address packed: 4 or 16 bytes of IP and 4 of port, big-endian."""

    @property
    def is_clogged(self) -> bool:
        """Whether the client does not read its answers: the socket's buffer is full, over 1 MiB is
        unsent, or the connection closes."""

    def write_answer(self, call: "GrpcCall", body: bytes, end: tuple[GrpcCode, str] | None) -> None:
        """Write `body`, framed messages of an answer, now or in the next turn of the loop, then the
        end (code and text) unless `end` is None: more messages may follow. No-op for a lost
        connection."""


class GrpcCall:
    """A call that has begun. Loop thread only.

    The method may set callbacks: `on_message` receives each message, `on_end` runs at the end of
    the client's half, both until the call ends. `on_closed` runs once when the call ends, for any
    reason: answered, failed, cancelled, out of time, connection lost.
    """

    __slots__ = (
        "_carrier",
        "deadline",
        "has_begun",
        "has_ended",
        "has_received",
        "metadata",
        "on_closed",
        "on_end",
        "on_message",
        "path",
        "reader",
        "stream_id",
        "timer",
    )

    def __init__(
        self, carrier: Carrier, stream_id: int, path: str, metadata: Mapping[bytes, bytes]
    ) -> None:
        self._carrier = carrier
        self.stream_id = stream_id
        """The id of the HTTP/2 stream."""
        self.path = path
        """`/package.Service/Method`."""
        self.metadata = metadata
        """The client's headers: names in small letters; values of a repeated name joined by
        commas."""
        self.deadline: float | None = None
        """Seconds of the loop's clock at which the call fails with DEADLINE_EXCEEDED, once the
        client's half has ended; None: never."""
        self.timer: Timer | None = None
        """The timer of the deadline, set at the end of the client's half."""
        self.reader: MessageReader | None = None
        """The reader of the client's bytes; None for an ended call."""
        self.has_begun = self.has_received = False
        """`has_begun`: headers of the answer were written; `has_received`: a message was
        received."""
        self.has_ended = False
        """Whether the call has ended: nothing can be sent, no callback runs."""
        self.on_message: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_closed: Callable[[], object] | None = None

    @property
    def address(self) -> str:
        """The client's address as `ip:port`."""
        return self._carrier.address

    @property
    def packed_host(self) -> bytes:
        """The client's address packed: 4 or 16 bytes of IP and 4 of port, big-endian."""
        return self._carrier.host

    @property
    def is_clogged(self) -> bool:
        """Whether the client does not read its answers (the socket's buffer is full, over 1 MiB is
        unsent, or the connection closes): nothing more should be sent that would be lost with the
        connection."""
        return self._carrier.is_clogged

    def text(self, name: bytes) -> str:
        """The metadata value of `name`, in small letters, as ASCII; other bytes become U+FFFD.
        Empty if it is missing."""
        return self.metadata.get(name, b"").decode("ascii", "replace")

    def send(self, message: bytes) -> None:
        """Send a further message of the answer; no-op if the call has ended."""
        if not self.has_ended:
            self._carrier.write_answer(self, frame_message(message), None)

    def answer_with(self, *messages: bytes) -> None:
        """Send `messages`, the last of the answer, and its end with OK; then run `on_closed`. No-op
        if the call has ended."""
        self.answer_framed(b"".join(map(frame_message, messages)))

    def answer_framed(self, messages: bytes) -> None:
        """Same as `response`, for messages that are framed and joined already."""
        if not self.has_ended:
            self._carrier.write_answer(self, messages, (GrpcCode.OK, ""))
            self.end_silently()

    def fail(self, error: GrpcError) -> None:
        """End the call with the error's code and text, then run `on_closed`; no-op if the call has
        ended."""
        if not self.has_ended:
            self._carrier.write_answer(self, b"", (error.code, error.text))
            self.end_silently()

    def end_silently(self) -> None:
        """End the call without sending anything: stop its timer, remove its callbacks and run
        `on_closed`; no-op if it has ended. For the connection, after a cancellation or loss."""
        if self.has_ended:
            return
        self.has_ended = True
        if self.timer is not None:
            self.timer.cancel()
        ended, self.on_closed = self.on_closed, None
        self.on_message = self.on_end = self.reader = None
        if ended is not None:
            ended()


Method = Callable[[GrpcCall], None]
"""Begins to serve a call whose headers were read: sets its callbacks. A GrpcError that it raises
ends the call."""
Unary = Callable[[GrpcCall, bytes], None]
"""Serves a unary call with its message, now or later. A GrpcError that it raises ends the call."""


def unary_method(serve: Unary) -> Method:
    """The Method of a unary call. `serve` is called at the end of the client's half, so that there
    is no second message. A call without or with several messages fails with INTERNAL."""

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
