"""Log to queues and index, once per byte, natively; the same code on masters and replicas."""

from typing import Self

from turbopump.pyx.index import IndexFile
from turbopump.pyx.region import Region
from turbopump.pyx.tail import Tail

# Values of Stop.status.
DONE: int
"""Status: the end of the range was reached."""
BLANK_FOUND: int
"""Status: a filler is at the position; continue in the next file."""
BAD_RECORD: int
"""Status: the bytes at the position are no record, or a damaged one."""
SHORT: int
"""Status: the range ends inside the record at the position."""
UNKNOWN_QUEUE: int
"""Status: topic and queue id of the record have no slot: `add` one, and call again."""
NEEDS_ROOM: int
"""Status: the slot has no region with room for the record's unit: `attach` one, and call again."""
NEEDS_INDEX: int
"""Status: the index file is full: `set_index` the next one, and call again; the call continues
inside the record."""
QUEUE_GAP: int
"""Status: the record's queue offset is beyond the slot's max offset; the caller decides."""
SPECIAL: int
"""Status: the slot is not plain: the caller dispatches this record, and continues after it."""
BEGINS_ANEW: int
"""Status: the queue has units, but the record has queue offset 0; handled as SPECIAL."""

class Stop:
    """Result of `dispatch` and `count_on`: where the call stopped, and why."""

    @property
    def status(self) -> int:
        """Reason for the stop: DONE, SPECIAL and so on."""

    @property
    def position(self) -> int:
        """Position in the region of the record that stopped the call, or the end."""

    @property
    def slot(self) -> int:
        """Slot of that record's queue; -1 if no record stopped the call, or its queue has no
        slot."""

    @property
    def size(self) -> int:
        """Bytes of that record; 0 if no record stopped the call, or its bytes are no record."""

    @property
    def queue_offset(self) -> int:
        """Queue offset of that record; -1 if no record stopped the call."""

    @property
    def store_timestamp_ms(self) -> int:
        """Store time in epoch ms of the last record dispatched; 0 if no record was dispatched."""

    @property
    def count(self) -> int:
        """Number of records that this call dispatched."""

class QueueTable:
    """All queues of a store: (topic, queue id) -> slot with its write pointer and counters. Methods
    raise IndexError for a slot without a queue.

    Writes units straight into the mapped queue files attached to the slots. Unit n of a queue lies
    at (n - first_queue_offset) * 20 of the attached region, below `limit` (bytes). A record whose
    queue offset is below the slot's max_offset, or whose end is not above its max_log_offset, gets
    no unit, and the index gets no key twice: dispatching a range again does no harm.
    """

    ready: bool
    """Whether the native path may dispatch without Python: the right index file is set."""

    @property
    def count(self) -> int:
        """Number of queues in the table."""

    def __new__(cls) -> Self: ...
    def find(self, topic: bytes, queue_id: int) -> int:
        """The slot of the queue; -1 if it has no slot."""

    def describe(self, on: bool) -> None:
        """Accept descriptors of the records that the fast lane appends (csrc/descriptors.h), as
        from the beginning, or drop all and parse every record, with the same results."""

    @property
    def described_count(self) -> int:
        """Number of records that were dispatched by their descriptors."""

    def add(self, topic: bytes, queue_id: int, plain: bool = True) -> int:
        """Return the slot of the queue, which is added if it has no slot, and set whether the queue
        is `plain`: records of other queues stop the dispatch with SPECIAL. Raises MemoryError for
        too many queues."""

    def remove(self, slot: int) -> None:
        """Remove the queue and detach its region; `add` may use the slot for another queue."""

    def name(self, slot: int) -> tuple[bytes, int]:
        """(topic, queue id) of the slot."""

    def attach(self, slot: int, region: Region | None, first_queue_offset: int, limit: int) -> None:
        """Set the queue file for the next units, the queue offset of its first unit, and the byte
        before which units may be written; None detaches the region (the file was closed).

        The buffer stays exported until another region or None is attached, or the queue removed.
        """

    def is_plain(self, slot: int) -> bool:
        """Whether the records of the queue are dispatched natively, as `add` set it."""

    def open_slot(self, slot: int) -> None:
        """Allow native deliveries of timers to the queue, until `close_slots`: the caller has
        checked that its topic has the queue."""

    def close_slots(self) -> None:
        """Undo all `open_slot` calls, because topics have changed."""

    def changed(self) -> None:
        """Make pulls and pops release the mappings and first offsets that they remember, because
        files or first offsets of queues have changed."""

    def max_offset(self, slot: int) -> int:
        """Queue offset after the last dispatched unit."""

    def max_log_offset(self, slot: int) -> int:
        """Log offset of the end of the last unit's record; records that end at it or before it get
        no unit."""

    def set_progress(self, slot: int, max_offset: int, max_log_offset: int) -> None:
        """Set both offsets after a recovery or truncation; `next_offset` stays, units and files
        too."""

    def note_stored(self, slot: int, store_timestamp_ms: int) -> None:
        """Note the arrival and the store time (epoch ms) of the last message of a queue that is not
        plain; `dispatch` does both for plain queues.

        The caller has made room for the message with `set_progress`.
        """

    def stored_ms(self, slot: int, queue_offset: int) -> tuple[int, bool]:
        """(store time of a message in epoch ms, whether it is accurate); does not read the log.

        It is accurate for messages that this table dispatched: to a second for the last ones, to a
        fraction of their age for older ones (csrc/queue_marks.h). For earlier messages it is the
        latest possible time, or (-1, False) without any information.
        """

    def next_offset(self, slot: int) -> int:
        """Queue offset of the next append (RocketMQ: topicQueueTable).

        Dispatch raises it to `max_offset` if it is lower, so that it advances on a replica.
        """

    def set_next_offset(self, slot: int, queue_offset: int) -> None:
        """Set `next_offset`, also to a lower value."""

    def set_delay_levels(self, delays_ms: list[int]) -> None:
        """Set the delays in ms of levels 1, 2 and so on: dispatch computes from them the tags codes
        of SCHEDULE_TOPIC_XXXX, delivery times (store.md 6.3)."""

    def set_index(self, index: IndexFile | None) -> None:
        """Set the index file for keys; None: keys are not indexed."""

    def dispatch(
        self, log: Region, log_base: int, position: int, end: int, *, queues: bool = True
    ) -> Stop:
        """Write the units and index entries of the records in [position, end) of a log file, whose
        first byte has log offset `log_base`, until one of them needs the caller (Stop.status).

        queues=False puts only keys: of a record whose units the caller wrote (SPECIAL), or to
        rebuild an index. No other call is allowed while a dispatch runs on another thread.
        """

    def advance_log(self, tail: Tail) -> bool:
        """Dispatch the records of the open log file up to `tail.limit`, as `dispatch` does, and
        move `tail.dispatched`. False if some are left: one of them needs the caller, others lie in
        an earlier file, or there are so many that the call would hold the GIL for long."""

    def count_on(self, log: Region, log_base: int, position: int, end: int) -> Stop:
        """Raise `next_offset` above the queue offsets of the records of log[position:end), and
        change nothing else. After a record with queue offset 0 it is 1: the topic was deleted
        before the record.

        For appends that begin before the whole log is dispatched. Stops as `dispatch` does: at
        UNKNOWN_QUEUE, SPECIAL, BLANK_FOUND, BAD_RECORD and SHORT.
        """

    def take_arrivals(self) -> list[int]:
        """Return the slots that got units since the last call, in the order of their first unit."""
