"""Native path for sends, ends of transactions and check points of pops."""

from collections.abc import Callable
from typing import Self

from turbopump.pyx.acks import Acks
from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.halves import HalfMarks
from turbopump.pyx.pending import PendingSends
from turbopump.pyx.pops import Pops
from turbopump.pyx.tail import Tail

SCRATCH_SIZE: int
"""Maximum bytes of the texts of a request's header; the Python handlers serve longer headers."""
TIME_MAX: int
"""Greatest pop time and invisible time in ms of a check point that is written natively."""
MAX_TOPICS: int
"""Maximum number of topics that `serve` takes; the Python handlers serve others."""

class Lane:
    """The native path of a broker: stores plain sends. Loop thread only.

    `dispatch(now_ms)`, with the time in epoch ms, must dispatch the appended records; it is called
    if the queue table cannot dispatch alone (with `is_sync`: if new bytes are to be made durable).
    `arrived()` is called if queues have grown while `watched`, and not again until
    `arrivals_taken`. `add_queue(topic, queue id)` must add the queue to the table and return True,
    or return False, and the Python handler serves the send. `clock` returns epoch ms; the default
    is the system's wall clock. Bodies have
    at most `max_body` bytes; the Python handler serves larger ones, as all requests that are not
    plain.
    """

    open: bool
    """Whether the lane serves requests; the broker sets it, False at first."""
    has_templates: bool
    """Whether connections decode sends by templates (pyx/send_template.pyx); True at first. Both
    ways have the same results."""
    grown: Callable[[], None] | None
    """Called after each read that made the log grow, because replicas copy it; None without
    replication. Set by the engine."""
    is_sync: bool
    """Whether answers and readers wait for the disk: SYNC_FLUSH; set by the broker."""
    watched: bool
    """Whether pulls wait for messages, so that `arrived` is called; set by the broker."""

    @property
    def pending(self) -> PendingSends:
        """Answers that wait for the disk or for replicas, and the number of copies they need."""

    def take_halves(self) -> list[tuple[bytes, int, int, int, int, int]]:
        """Return the half messages of each topic with changes since the last call: (topic, stored,
        committed, rolled back, summed age in seconds of the committed ones, time of the last change
        in epoch ms), in no order. All that ended here were younger than five seconds."""

    @property
    def kept_count(self) -> int:
        """Number of timers and half messages stored natively, which `send_count` includes."""

    @property
    def end_count(self) -> int:
        """Number of transaction ends served natively since the start."""

    @property
    def acks(self) -> Acks:
        """Native path of acknowledgements of popped messages."""

    @property
    def ack_count(self) -> int:
        """Number of acknowledgements served natively since the start."""

    @property
    def send_count(self) -> int:
        """Number of sends served natively since the start."""

    @property
    def matched_count(self) -> int:
        """Number of sends of `send_count` that were decoded by a template."""

    def __new__(
        cls,
        tail: Tail,
        queues: QueueTable,
        pending: PendingSends,
        max_body: int,
        *,
        dispatch: Callable[[int], None],
        arrived: Callable[[], None],
        add_queue: Callable[[bytes, int], bool],
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
        """Set the broker's values in records and answers: its own properties as text, MSG_REGION
        and TRACE_ON of answers, the packed store host, and the epoch ms from which sends are
        accepted. With too few replicas in sync, sends are refused with `refused_code` and the
        remark `refused`, and nothing is written."""

    def configure_kept(
        self,
        timers: bool,
        halves: bool,
        max_delay_ms: int,
        precision_ms: int,
        broker_name: bytes,
    ) -> None:
        """Choose whether timers, and whether half messages and ends of transactions are served; set
        the greatest delay and the precision of timers in ms, and the broker name in their recall
        handles. Raises ValueError for a precision below 1 or a delay out of range."""

    def serve_ends(self, halves: HalfMarks | None) -> None:
        """Serve ends of the transactions whose half messages have marks in `halves`: a commit sets
        mark 1, a rollback sets mark 2. None: leave all ends to the Python handler."""

    def serve_pops(self, pops: Pops) -> None:
        """Serve pops natively with this table, which replaces the table before it."""

    def serve(self, topic: bytes, queue_limit: int) -> None:
        """Serve plain sends to queue ids of this topic below `queue_limit`, until `forget`; a no-op
        for a new topic if the table has MAX_TOPICS topics."""

    def forget(self, topic: bytes) -> None:
        """Leave sends to this topic to the Python handler, until the next `serve`."""

    def forget_all(self) -> None:
        """Leave sends to every topic to the Python handler; see `forget`."""

    def take_totals(self) -> tuple[int, int]:
        """Return (messages stored, bytes of their records) since the last call."""

    def take_topics(self) -> dict[bytes, tuple[int, int]]:
        """Return topic to (messages stored, bytes of their records) since the last call, without
        topics that got no message."""

    def arrivals_taken(self) -> None:
        """Allow the next call of `arrived`."""

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
        """Write the check point of a pop, which hides the messages at `start` + each of `distances`
        for `invisible_ms` after `pop_time_ms` (epoch ms), and make it visible. False: nothing was
        written, and the Python path has to do it, always if answers wait for the disk or for
        replicas."""

    def put_send(
        self,
        topic: bytes,
        queue_id: int,
        properties: bytes,
        body: bytes,
        born_ms: int,
        born_host: bytes,
    ) -> tuple[int, int, bytes, bytes] | None:
        """Store a send that did not arrive in a frame of remoting, with the same checks and bytes,
        and make the message visible; `born_ms` is in epoch ms, `born_host` packed. Returns (queue
        offset, log offset, unique key, recall handle or b""). None: nothing was stored, and the
        Python handler has to store it; among these are all sends whose answers have to wait for the
        disk or for replicas."""

    def append_repeatedly(
        self, frame: bytes, born_host: bytes, rounds: int, dispatched: bool
    ) -> int:
        """Store the send in a frame natively `rounds` times, and return the number stored; for
        benchmarks. The topic must be served. `dispatched`: dispatch after each 32 records, as in
        a read; else do not dispatch."""
