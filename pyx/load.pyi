"""The load generator's run: connections that send or pull, measured natively."""

from collections.abc import Sequence
from typing import Any, Self

from turbopump.engine.types import Buffer

SEND: int
"""Kind of request: sends."""
PULL: int
"""Kind of request: pulls."""
FOLLOW_END: int
"""Kind of requests that follow: the oneway end of a transaction after each half message."""
FOLLOW_ACKS: int
"""Kind of requests that follow: an acknowledgement of each popped message."""
DONE: int
"""Status: all is sent and answered, all is read, or the time ended."""
LATE: int
"""Status: requests were not answered within drain_ns or silence_ns."""
LOST: int
"""Status: no connection is left, and no new one came for silence_ns."""
SYSTEM: int
"""Status: epoll failed, see `Load.failure`."""
CODE_UNANSWERED: int
"""Error code of requests without an answer at the end of the run."""
CODE_LOST: int
"""Error code of requests whose connection was lost."""
CODE_MALFORMED: int
"""Error code of requests whose answer could not be read."""
WINDOW_MAX: int
"""Maximum number of requests in flight of a connection."""
IN_SEND: int
"""Bytes of the read buffer of a connection that sends."""
IN_PULL: int
"""Bytes of the read buffer of a connection that pulls."""
OUT_MIN: int
"""Least bytes of the write buffer of a connection that sends."""
FOLLOW_MAX: int
"""Bytes of the text of a request that follows, at most."""
OUT_MAX: int
"""Bytes of a write buffer above which a larger window is written in pieces."""

_Row = tuple[int, int, int, int, int, int, int, int]

class Load:
    """A run of the load generator. The caller adds the connections, runs it once and reads the
    results.

    `texts` holds all frames of requests without their bodies; `connections`, `queues` and `rows`
    are the maximum numbers of connections, queues to pull and seconds that are kept for `rows()`.
    A template is (position in texts, size, positions of opaque, born time, key, UNIQ_KEY serial
    and queue offset in the frame or 0, codec); csrc/load_frame.h explains these. Raises ValueError
    for positions outside the memory given.
    """

    @property
    def ended(self) -> int:
        """Status with which the run ended (DONE, LATE, LOST or SYSTEM), -1 before."""

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
        """Declare that the body is a batch of `count` elements, `stride` bytes apart, with a
        UNIQ_KEY at `unique_at`; 0: without UNIQ_KEYs."""

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
        """Replace the body by a corpus whose bodies are sent in turn; call this before add_sender.

        Body n is data[starts[n]:ends[n]], positions of int64. With `per_send` over 1 bodies are
        sent as batches of `element`, a message without a body, with a UNIQ_KEY's serial at
        `unique_at` unless that is 0.
        """

    def set_due(self, at: int, first_ms: int, spread_ms: int) -> None:
        """Declare that each template has 13 digits at `at`, the message's time to deliver: the
        message with serial n (see set_limits) is due at first_ms + n mod spread_ms, in epoch ms."""

    def set_follow(self, kind: int, text: bytes) -> None:
        """Let requests of `kind` follow each good answer of a sender; call this before add_sender.

        `text` is a JSON header without frame. Its bytes 1, 2 ... are replaced by values of the
        answer. FOLLOW_END: log offset, queue offset, transaction id. FOLLOW_ACKS, for templates of
        a pop and windows of 1: queue offset, queue id, start offset, number of the retry topic, pop
        time, invisible time, revive queue; its opaque is OPAQUE_BASE + 1; with an empty text
        nothing is acknowledged. Then a request's messages are the popped ones, and the run ends
        when no connection finds messages.
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
        pause_us: int = 0,
    ) -> None:
        """Set the pace and the limits of the run: a request is due every interval_ns, 0 is a closed
        loop; duration_ns counts from the end of the warm-up, `messages` from the start, 0 is no
        limit.

        drain_ns: the longest wait for the last answers; silence_ns: the longest time without any
        answer. serial: of the first UNIQ_KEY. follow: queues do not end, pulls wait for messages
        and deliveries are measured. check_crc: of the bodies read. reconnect: lost connections wait
        for `hand_over`, for silence_ns if all are lost. pause_us: the whole load sleeps after each
        refused send.
        """

    def add_sender(self, fd: int, window: int, first: int, count: int, begin: int = 0) -> None:
        """Add a connection, a connected non-blocking socket `fd` which the caller keeps open, that
        sends templates [first, first + count) in turn, beginning with number first + begin, with at
        most `window` requests in flight. Raises ValueError for wrong numbers, and without room."""

    def add_puller(self, fd: int, queues: Sequence[tuple[int, int, int]]) -> None:
        """Add a connection, as for `add_sender`, that pulls queues, each (template, queue offset to
        begin at, queue offset to end at), with one request in flight for each."""

    def run(self, epoll_fd: int) -> int:
        """Run to the end on this thread, without the GIL, and return DONE, LATE, LOST or SYSTEM.
        `epoll_fd` is an empty epoll set of the caller. A second call raises ValueError."""

    def stop(self) -> None:
        """Let the run end soon, and return; any thread may call this."""

    def is_away(self, number: int) -> bool:
        """Whether a connection waits for a new socket. Connections are numbered from 0 in the order
        in which they were added."""

    def hand_over(self, number: int, fd: int) -> None:
        """Give a lost connection a new socket; one other thread may call this during the run.

        The old socket may be closed afterwards. Raises ValueError for a connection that is not
        lost.
        """

    def drop(self, number: int) -> None:
        """Let the run treat a connection whose peer does not answer as lost, soon; one other thread
        may call this during the run."""

    @property
    def away(self) -> int:
        """Number of connections that wait for a new socket."""

    def outages(self) -> list[tuple[int, int, int, int]]:
        """Return (begin, end or -1 if it lasts, longest time without an acknowledgement, failed
        sends) of each outage, oldest first, times in ns and begin and end since the start; see
        csrc/load_outage.h."""

    def progress(self) -> tuple[float, int, int, int]:
        """Return the current (seconds since the start, messages acknowledged, messages read, failed
        requests); any thread may call this."""

    def rows(self) -> list[tuple[tuple[int, int, int, int], tuple[int, int, int, int]]]:
        """Return, for each whole second after the warm-up until now, oldest first, (number of
        messages, median, 99th percentile and maximum of the latencies in ns) of sends, then of
        pulls."""

    def counters(self, kind: int) -> dict[str, Any]:
        """Return the counters of SEND or PULL after the run: requests answered, messages and bytes
        of bodies, all after the warm-up; all_requests and all_messages since the start; errors, a
        list of (code, count, remark of the first)."""

    def latency(self, kind: int, share: float) -> int:
        """Return the latency in ns that `share` (0 to 1) of the SEND or PULL requests after the
        warm-up did not exceed; 0 without requests."""

    def latency_max(self, kind: int) -> int:
        """Return the greatest latency of SEND or PULL in ns; 0 without requests."""

    def delivery(self, share: float) -> int:
        """Return the time in ns from the send of an answer's last message until it was read that
        `share` (0 to 1) of the pulls after the warm-up did not exceed; 0 without `follow`."""

    @property
    def measured_ns(self) -> int:
        """Length of the measurement in ns, without the warm-up and the wait for the last answers; 0
        before its end."""

    @property
    def lost_connections(self) -> int:
        """Number of times that a connection was lost."""

    @property
    def unread_queues(self) -> int:
        """Number of queues whose pulls failed before their end."""

    @property
    def unsent(self) -> int:
        """Number of requests of the open loop that were due before the end of the run, but found no
        connection with room; 0 for a run with a limit of messages."""

    @property
    def failure(self) -> int:
        """Value of errno if the run ended with SYSTEM, else 0."""
