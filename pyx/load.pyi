from collections.abc import Sequence
from typing import Any, Self

from turbopump.engine.types import Buffer

SEND: int
PULL: int
DONE: int
LATE: int
LOST: int
SYSTEM: int
CODE_UNANSWERED: int
CODE_LOST: int
CODE_MALFORMED: int
WINDOW_MAX: int
IN_SEND: int
IN_PULL: int
OUT_MIN: int
OUT_MAX: int

_Row = tuple[int, int, int, int, int, int, int, int]

class Load:
    """One run: made, given its connections, run once, read.

    A template is (position in texts, size, positions of opaque, born time, key, UNIQ_KEY serial and
    queue offset in the frame or 0, codec); csrc/load_frame.h says what they are. Raises ValueError
    for what would reach out of its memory.
    """

    @property
    def ended(self) -> int:
        """How it ended, -1 before."""

    def __new__(
        cls,
        texts: bytes,
        templates: Sequence[_Row],
        body: bytes,
        *,
        connections: int,
        queues: int = 0,
        rows: int = 0,
    ) -> Self: ...
    def set_batch(self, count: int, unique_at: int, stride: int) -> None:
        """The body is a batch of `count` elements; unique_at 0: without UNIQ_KEYs."""

    def set_corpus(
        self,
        data: Buffer,
        starts: Buffer,
        ends: Buffer,
        *,
        element: bytes = b"",
        unique_at: int = 0,
        per_send: int = 1,
    ) -> None:
        """Bodies to send by turns instead of the one; before the senders are added.

        Body n is data[starts[n]:ends[n]], of int64. With `per_send` over 1 they go as batches of
        `element`, a message without a body, with a UNIQ_KEY's serial at `unique_at` unless 0.
        """

    def set_limits(
        self,
        *,
        interval_ns: int = 0,
        warmup_ns: int = 0,
        duration_ns: int = 0,
        drain_ns: int = 0,
        silence_ns: int = 0,
        messages: int = 0,
        serial: int = 0,
        follow: bool = False,
        check_crc: bool = False,
        reconnect: bool = False,
    ) -> None:
        """interval_ns 0 is a closed loop; duration_ns and messages 0 are no limits.

        drain_ns: how long the last answers may take; silence_ns: how long there may be none.
        reconnect: lost connections wait for `hand_over`, for silence_ns if no other is left.
        """

    def add_sender(self, fd: int, window: int, first: int, count: int, begin: int = 0) -> None:
        """A connection that sends templates [first, first + count) by turns, from begin on."""

    def add_puller(self, fd: int, queues: Sequence[tuple[int, int, int]]) -> None:
        """A connection that pulls queues, each (template, next queue offset, end)."""

    def run(self, epoll_fd: int) -> int:
        """Run to the end without the GIL; DONE, LATE, LOST or SYSTEM. Once."""

    def stop(self) -> None:
        """Ask for the end; from any thread."""

    def is_away(self, number: int) -> bool:
        """Whether a connection waits for a new socket; they count from 0, as they were added."""

    def hand_over(self, number: int, fd: int) -> None:
        """Give a connection that is away a new socket; from one other thread.

        The old one may be closed now. ValueError for a connection that is not away.
        """

    def drop(self, number: int) -> None:
        """Drop a connection whose peer does not answer; from one other thread."""

    @property
    def away(self) -> int:
        """How many connections wait for a new socket."""

    def outages(self) -> list[tuple[int, int, int, int]]:
        """(when it began, when it was over or -1, longest time without an acknowledgement, all in
        ns from the start; failed sends) of each outage; see csrc/load_outage.h."""

    def progress(self) -> tuple[float, int, int, int]:
        """(seconds since the start, messages sent, messages read, errors) right now."""

    def rows(self) -> list[tuple[tuple[int, int, int, int], tuple[int, int, int, int]]]:
        """Whole seconds so far: (messages, p50, p99, max in ns) of sends, then of pulls."""

    def figures(self, kind: int) -> dict[str, Any]:
        """What was counted of SEND or PULL."""

    def latency(self, kind: int, share: float) -> int:
        """Nanoseconds that `share` of the requests did not exceed."""

    def latency_max(self, kind: int) -> int: ...
    def delivery(self, share: float) -> int:
        """Nanoseconds from born to read that `share` of the answers did not exceed."""

    @property
    def measured_ns(self) -> int: ...
    @property
    def lost_connections(self) -> int: ...
    @property
    def unread_queues(self) -> int:
        """Queues that failed before their end."""

    @property
    def unsent(self) -> int:
        """Requests that were due, and that no connection had room for."""

    @property
    def failure(self) -> int:
        """The errno of SYSTEM."""
