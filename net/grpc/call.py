"""One call, as a service sees it: what the client said of it, its messages, its answer.

Owns the life of a call: an answer is ended once, and nothing is said after it. It must never touch
a session or a socket: a Carrier does. Made by connection.py; given to the method that is called.
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
        """Whether the peer does not take what is written to it."""

    def say(self, call: "GrpcCall", body: bytes, end: tuple[GrpcCode, str] | None) -> None:
        """Write messages of an answer, and its end."""


class GrpcCall:
    """A call that was begun. `metadata` has names in small letters; one that is there twice has
    both values with a comma between. `deadline` is of the loop's clock, None: there is none.

    A method of streams sets `on_message`, and `on_end` for when the client has sent all;
    `on_over` runs once when the call is over, however it ended: answered, cancelled, out of time.
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
        """`ip:port` of the client."""
        return self._carrier.address

    @property
    def host(self) -> bytes:
        """The same packed, as records hold it."""
        return self._carrier.host

    @property
    def is_clogged(self) -> bool:
        """Whether the client does not take what was written to it: it is given nothing more that
        would be lost with the connection."""
        return self._carrier.is_clogged

    def text(self, name: bytes) -> str:
        """A value of the metadata, "" where there is none."""
        return self.metadata.get(name, b"").decode("ascii", "replace")

    def send(self, message: bytes) -> None:
        """One message more of the answer; nothing happens to a call that is over."""
        if not self.is_over:
            self._carrier.say(self, framed(message), None)

    def answer(self, *messages: bytes) -> None:
        """The messages that are left of the answer, and its end."""
        self.answer_framed(b"".join(map(framed, messages)))

    def answer_framed(self, messages: bytes) -> None:
        """As `answer`, of messages that are framed already."""
        if not self.is_over:
            self._carrier.say(self, messages, (GrpcCode.OK, ""))
            self.over()

    def fail(self, error: GrpcError) -> None:
        """End the call with a code."""
        if not self.is_over:
            self._carrier.say(self, b"", (error.code, error.text))
            self.over()

    def over(self) -> None:
        """The call has ended."""
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
"""Serves a call with its one message."""


def unary(serve: Unary) -> Method:
    """A method that is called with one message, not as soon as it came but when it is known to be
    the only one."""

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
