"""Log to queues and index, once per byte, natively; the same code on masters and replicas."""

from typing import Self

from turbopump.pyx.index import IndexFile
from turbopump.pyx.region import Region

# Why dispatch stopped.
DONE: int  # position reached end
BLANK_FOUND: int  # a filler: go on in the next file
BAD_RECORD: int
SHORT: int
UNKNOWN_QUEUE: int  # topic and queue_id of the record at position have no slot: add, call again
NEEDS_ROOM: int  # the slot's region ends (or it has none) before the record's unit: attach, again
NEEDS_INDEX: int  # the index file is full: set_index(next), call again (resumes inside the record)
QUEUE_GAP: int  # record's queue offset is beyond the slot's max offset: the caller decides
SPECIAL: int  # the slot is not plain: the caller dispatches this record, then goes on after it
BEGINS_ANEW: int  # the queue has units, and the record counts from 0 again: as SPECIAL

class Stop:
    @property
    def status(self) -> int: ...
    @property
    def position(self) -> int:
        """Of the record that stopped it, or the end."""

    @property
    def slot(self) -> int:
        """The slot concerned, or -1."""

    @property
    def size(self) -> int:
        """Of the record that stopped it; 0 if none did, or if it is no record."""

    @property
    def queue_offset(self) -> int:
        """Of the record that stopped it, or -1."""

    @property
    def store_timestamp_ms(self) -> int:
        """Of the last record dispatched, 0 if none."""

    @property
    def count(self) -> int:
        """Records dispatched by this call."""

class QueueTable:
    """All queues of a store: (topic, queue id) -> slot with its write pointer and counters.

    Writes units straight into the mapped queue files attached to the slots. Unit n of a queue lies
    at (n - first_queue_offset) * 20 of the attached region, below `limit` (bytes). A record whose
    queue offset is below the slot's max_offset, or whose end is not above its max_log_offset, gets
    no unit, and the index gets no key twice: dispatching a range again does no harm.
    """

    ready: bool
    """Whether the native path may dispatch by itself: the index is set as it should be."""

    @property
    def count(self) -> int:
        """Queues in the table."""

    def __new__(cls) -> Self: ...
    def find(self, topic: bytes, queue_id: int) -> int:
        """The slot, or -1."""

    def add(self, topic: bytes, queue_id: int, plain: bool = True) -> int:
        """The slot of the queue, a new one (or a removed one's) if it has none.

        Records of a queue that is not plain stop the dispatch with SPECIAL.
        """

    def remove(self, slot: int) -> None:
        """Forget the queue; its region is detached. IndexError for a slot without a queue."""

    def name(self, slot: int) -> tuple[bytes, int]:
        """(topic, queue id)."""

    def attach(self, slot: int, region: Region | None, first_queue_offset: int, limit: int) -> None:
        """Where the next units go; None detaches (the file was closed).

        The buffer stays exported until another region or None is attached, or the queue removed.
        """

    def is_plain(self, slot: int) -> bool:
        """Whether the records of the queue are dispatched natively."""

    def open_slot(self, slot: int) -> None:
        """Messages that waited for the queue may be put into it natively: its topic has it."""

    def close_slots(self) -> None:
        """Undo all `open_slot`: topics have changed."""

    def changed(self) -> None:
        """Queues begin elsewhere now: remembered positions are void."""

    def max_offset(self, slot: int) -> int:
        """Units dispatched: the queue offset of the next unit."""

    def max_log_offset(self, slot: int) -> int:
        """End (offset + size) of the last unit's record; records below it are skipped."""

    def set_progress(self, slot: int, max_offset: int, max_log_offset: int) -> None:
        """Set both, as recovery and truncation find them; next_offset stays."""

    def note_stored(self, slot: int, store_timestamp_ms: int) -> None:
        """Note the arrival and the store time of the last message of a queue that is not plain;
        `dispatch` does both for plain queues.

        Called after `set_progress`, which made room for it.
        """

    def stored_ms(self, slot: int, queue_offset: int) -> tuple[int, bool]:
        """(when a message of a queue was stored, whether that is known), without the log.

        Known of messages that were dispatched by this table: within a second of the last ones, and
        within a fraction of their age of older ones (csrc/queue_marks.h). Of earlier ones: not
        later than the time given, or (-1, False) if not even that is known.
        """

    def next_offset(self, slot: int) -> int:
        """The queue offset the next append gets (RocketMQ: topicQueueTable).

        Dispatch raises it to max_offset where it is lower, so that it follows on a replica.
        """

    def set_next_offset(self, slot: int, queue_offset: int) -> None: ...
    def set_delay_levels(self, delays_ms: list[int]) -> None:
        """For SCHEDULE_TOPIC_XXXX the tags code is the delivery time (store.md 6.3)."""

    def set_index(self, index: IndexFile | None) -> None:
        """The file that keys go to; None: no index is kept."""

    def dispatch(
        self, log: Region, log_base: int, position: int, end: int, *, queues: bool = True
    ) -> Stop:
        """Dispatch the records of log[position:end); log offset = log_base + position.

        queues=False puts the keys alone: of a record whose units the caller wrote (SPECIAL), or to
        rebuild an index. No other call may be made while one runs on another thread.
        """

    def count_on(self, log: Region, log_base: int, position: int, end: int) -> Stop:
        """Raise `next_offset` behind the records of log[position:end), and nothing else. Behind a
        record with queue offset 0 it is 1: the topic was deleted before it.

        For appends that begin before all of the log is dispatched. Stops as `dispatch` does: at
        UNKNOWN_QUEUE, SPECIAL, BLANK_FOUND, BAD_RECORD and SHORT.
        """

    def take_arrivals(self) -> list[int]:
        """Slots that got units since the last call, each once, in the order of their first."""
