from collections.abc import Callable
from typing import Self

from turbopump.pyx.acks import Acks
from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.halves import HalfMarks
from turbopump.pyx.pending import PendingSends
from turbopump.pyx.pops import Pops
from turbopump.pyx.tail import Tail

SCRATCH_SIZE: int
TIME_MAX: int
MAX_TOPICS: int

class Lane:
    """What a broker serves natively: plain sends. Loop thread only.

    `dispatch(now_ms)` is called where the queue table cannot dispatch alone (with `is_sync`: when
    there is something new to be made durable), `arrived()` when
    queues have grown while `watched`, once until `arrivals_taken`. `clock` gives epoch
    milliseconds; without one it is the system's wall clock.
    """

    open: bool
    """Whether anything is served; closed at first."""
    tells: bool
    """`dispatch` is called whenever the log has grown: replicas copy it."""
    is_sync: bool
    """Answers wait for the disk, and readers do: SYNC_FLUSH."""
    watched: bool
    """Whether pulls wait for messages."""

    @property
    def pending(self) -> PendingSends:
        """Where answers wait for the disk or for replicas, and how many of these they need."""

    def take_halves(self) -> list[tuple[bytes, int, int, int, int, int]]:
        """(topic, half messages, commits, rollbacks, seconds of age of the committed ones, when
        that changed) since the last call, of topics that had any; what was ended was younger than
        five seconds."""

    @property
    def kept_count(self) -> int:
        """Of these, timers and half messages."""

    @property
    def end_count(self) -> int:
        """Ends of transactions served natively since the start."""

    @property
    def acks(self) -> Acks:
        """Which acknowledgements of popped messages are served."""

    @property
    def ack_count(self) -> int:
        """Acknowledgements served natively since the start."""

    @property
    def send_count(self) -> int:
        """Sends served natively since the start."""

    def __new__(
        cls,
        tail: Tail,
        queues: QueueTable,
        pending: PendingSends,
        max_body: int,
        *,
        dispatch: Callable[[int], None],
        arrived: Callable[[], None],
        clock: Callable[[], int] | None = None,
    ) -> Self: ...
    def configure(
        self,
        own_properties: bytes,
        region: bytes,
        trace_on: bool,
        store_host: bytes,
        accept_from_ms: int,
        refused_code: int,
        refused: bytes,
    ) -> None:
        """What the broker puts into records and answers: its own properties as text, MSG_REGION and
        TRACE_ON of answers, the packed store host, when it begins to accept sends, and the code and
        remark where too few replicas are in sync: nothing is written then."""

    def configure_kept(
        self,
        timers: bool,
        halves: bool,
        max_delay_ms: int,
        precision_ms: int,
        broker_name: bytes,
    ) -> None:
        """Whether timers, and whether half messages and ends of transactions are served; the limit
        and precision of timers, and the name in their recall handles."""

    def serve_ends(self, halves: HalfMarks | None) -> None:
        """Serve ends of these half messages from now on: committed ones are marked 1, and those
        that were rolled back 2. None: of none."""

    def serve_pops(self, pops: Pops) -> None:
        """Serve these pops from now on."""

    def serve(self, topic: bytes, queue_limit: int) -> None:
        """Sends to this topic are plain, to queue ids below the limit."""

    def forget(self, topic: bytes) -> None:
        """Sends to this topic are for the Python handler, until it is served again."""

    def forget_all(self) -> None:
        """As `forget` for every topic."""

    def take_totals(self) -> tuple[int, int]:
        """What was put since the last call: messages, bytes."""

    def take_topics(self) -> dict[bytes, tuple[int, int]]:
        """(messages, bytes) put since the last call, by topic."""

    def arrivals_taken(self) -> None:
        """`arrived` may be called again."""

    def add_check_point(
        self,
        topic: bytes,
        group: bytes,
        queue_id: int,
        start: int,
        pop_time_ms: int,
        broker_name: bytes,
        invisible_ms: int,
        distances: tuple[int, ...],
        is_suspended: bool,
        revive_queue_id: int,
        now_ms: int,
    ) -> bool:
        """Write the check point of what a pop gave out, and be as sure of it as of a send that was
        answered. False: nothing was done, it is for the Python path."""

    def put_send(
        self,
        topic: bytes,
        queue_id: int,
        properties: bytes,
        body: bytes,
        born_ms: int,
        born_host: bytes,
    ) -> tuple[int, int, bytes, bytes] | None:
        """Store a send that came by another way than a frame, with the checks and the bytes of one
        that came in a frame, and make it visible: queue offset, log offset, unique key, recall
        handle (empty: none). None: nothing was done, it is for the Python handler, as everything
        is whose answer would have to wait for a disk or for replicas."""

    def append_repeatedly(
        self, frame: bytes, born_host: bytes, rounds: int, dispatched: bool
    ) -> int:
        """How often the send in a frame is stored of so many times, natively; for benchmarks. The
        topic is served. `dispatched`: 32 at a time, as a read's are, or none of them here."""
