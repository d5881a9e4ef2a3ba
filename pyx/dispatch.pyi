"""Log to queues and index, once per byte, natively. The same code on masters, replicas, recovery."""

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

class Stop:
    status: int
    position: int  # of the record that stopped it, or the end
    slot: int  # the slot concerned, or -1
    size: int  # size of the record that stopped it, or 0
    queue_offset: int
    store_timestamp_ms: int  # of the last record dispatched, 0 if none
    count: int  # records dispatched by this call

class QueueTable:
    """All queues of a store: (topic, queue id) -> slot with its write pointer and counters.

    Writes units straight into the mapped queue files attached to the slots. Unit n of a queue lies
    at (n - first_queue_offset) * 20 of the attached region, below `limit`.
    """

    count: int
    def __init__(self) -> None: ...
    def find(self, topic: bytes, queue_id: int) -> int:
        """The slot, or -1."""
    def add(self, topic: bytes, queue_id: int, plain: bool = True) -> int: ...
    def remove(self, slot: int) -> None: ...
    def name(self, slot: int) -> tuple[bytes, int]: ...
    def attach(self, slot: int, region: Region | None, first_queue_offset: int, limit: int) -> None:
        """Where the next units go; None detaches (the file was closed)."""
    def max_offset(self, slot: int) -> int:
        """Units dispatched: the queue offset of the next unit."""
    def max_log_offset(self, slot: int) -> int:
        """End (offset + size) of the last unit's record; records below it are skipped."""
    def set_progress(self, slot: int, max_offset: int, max_log_offset: int) -> None: ...
    def next_offset(self, slot: int) -> int:
        """The queue offset the next append gets (RocketMQ: topicQueueTable)."""
    def set_next_offset(self, slot: int, queue_offset: int) -> None: ...
    def set_delay_levels(self, delays_ms: list[int]) -> None:
        """For SCHEDULE_TOPIC_XXXX the tags code is the delivery time (store.md 6.3)."""
    def set_index(self, index: IndexFile | None) -> None: ...
    def dispatch(self, log: Region, log_base: int, position: int, end: int) -> Stop:
        """Dispatch the records of log[position:end); log offset = log_base + position."""
    def take_arrivals(self) -> list[int]:
        """Slots that got units since the last call, each once."""
