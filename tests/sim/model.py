"""Model of the promises that a store makes to its clients: a list of messages per queue, and every
byte of the log.
"""

import struct
from dataclasses import dataclass, field

from tests.sim.disk import SimDisk
from turbopump.engine.config import StoreConfig
from turbopump.engine.types import PutStatus
from turbopump.pyx.index import java_hash

Name = tuple[str, int]
UNIT = struct.Struct(">qiq")
BLANK = 0xCBD43194
LENGTH_AND_MAGIC = struct.Struct(">iI")


@dataclass(slots=True, eq=False)
class Sent:
    """A message that was appended, or was about to be when the process ended."""

    name: Name
    number: int
    """Offset in its queue; -1 for a prepared (half) message, which has none."""
    body: bytes
    key: str = ""
    tag: str = ""
    start: int = 0
    end: int = 0
    unit: bytes = b""
    acked: bool = False
    answered: bool = False
    former: bool = False
    """True once the message's topic was deleted."""


@dataclass(slots=True)
class Model:
    """Expected content of a store.

    `log` holds every byte that was appended and can still be there, `sent` the messages in it. The
    store reported the bytes before `safe` as durable: they survive a power cut. The next start must
    find the bytes before `required`.
    """

    sync: bool
    file_size: int
    folder: str
    root: str
    log: bytearray = field(default_factory=bytearray)
    sent: list[Sent] = field(default_factory=list)
    queues: dict[Name, list[Sent]] = field(default_factory=dict)
    safe: int = 0
    required: int = 0
    min_log: int = 0
    expired: int = 0
    """Highest minimum offset that the log has had: bytes before it expired, but a crash may restore
    their files.
    """
    doubtful_topic: str = ""
    """Topic whose deletion was under way when the process ended."""
    cut_at: int = -1
    """Log offset of the truncation that was under way when the process ended; -1: none."""
    acked: int = 0
    ends: int = 0
    lives: int = 0

    @classmethod
    def of(cls, config: StoreConfig, sync: bool) -> "Model":
        size = config.mapped_file_size_commit_log
        return cls(sync, size, config.log_folder, config.root)

    def appended(self, disk: SimDisk, end: int, sent: list[Sent]) -> None:
        """The log goes up to `end` now, with these messages at its end (or the first of them)."""
        at = len(self.log)
        while at < end:
            base = at - at % self.file_size
            stop = min(end, base + self.file_size)
            self.log += disk.content(f"{self.folder}/{base:020d}")[at - base : stop - base]
            at = stop
        self._place(sent, end)

    def _place(self, sent: list[Sent], end: int) -> None:
        at = self.sent[-1].end if self.sent else 0
        for one in sent:
            size, magic = self._header(at)
            if magic == BLANK:
                at += self.file_size - at % self.file_size
                if at >= end:
                    return
                size, magic = self._header(at)
            if at >= end:
                return
            one.start, one.end = at, at + size
            one.unit = UNIT.pack(at, size, java_hash(one.tag.encode()) if one.tag else 0)
            at = one.end
            assert one.body in self.log[one.start : one.end], f"{one.name}: another body"
            self.sent.append(one)
            if one.number >= 0:
                queue = self.queues.setdefault(one.name, [])
                assert one.number == len(queue), (
                    f"{one.name}: offset {one.number} was given, {len(queue)} is the next"
                )
                queue.append(one)
        assert at == end, f"log {at}: bytes up to {end} belong to no message"

    def _header(self, at: int) -> tuple[int, int]:
        if at + 8 > len(self.log):
            return 0, 0
        size, magic = LENGTH_AND_MAGIC.unpack_from(self.log, at)
        return size, magic

    def answer(self, sent: list[Sent], status: PutStatus) -> None:
        """The sender gets its answer."""
        for one in sent:
            assert not one.answered, f"{one.name} {one.number}: answered twice"
            one.answered = True
            if status is PutStatus.PUT_OK:
                assert not self.sync or one.end <= self.safe, (
                    f"{one.name} {one.number}: acknowledged, but not durable"
                )
                one.acked = True
                self.acked += 1

    def flushed(self, disk: SimDisk, position: int) -> None:
        """Check that the disk holds everything before `position`, which the store reported as
        durable.
        """
        assert position <= len(self.log), f"flushed up to {position}, beyond the end of the log"
        at = max(self.safe, self.min_log)
        while at < position:
            base = at - at % self.file_size
            stop = min(position, base + self.file_size)
            durable = disk.durable(f"{self.folder}/{base:020d}")
            assert durable is not None, f"log file {base}: its name is not durable"
            assert durable[at - base : stop - base] == self.log[at:stop], (
                f"log {at} to {stop}: said to be durable, but the disk has something else"
            )
            at = stop
        self.safe = max(self.safe, position)

    def ended(self, power: bool, opened: bool) -> None:
        """Note the end of the process.

        After a power cut only durable bytes must survive. Before a store was `opened` in this
        process the log's contents are unknown, but not changed for the worse.
        """
        self.ends += 1
        if power:
            self.required = self.safe
        elif opened:
            self.required = len(self.log)

    def found(self, end: int) -> None:
        """Check the end of the log of a store that was just opened, and drop the messages
        after it.
        """
        assert end >= self.required or end == self.cut_at, (
            f"the log ends at {end}, but {self.required} must be there"
        )
        self.cut_at = -1
        self.cut(end)
        last = self.sent[-1].end if self.sent else 0
        next_file = last + -last % self.file_size
        assert end in (last, next_file), f"the log ends at {end}, inside of something"

    def cut(self, end: int) -> None:
        """Remove everything after `end` from the model."""
        while self.sent and self.sent[-1].end > end:
            lost = self.sent.pop()
            if lost.number >= 0 and not lost.former:
                assert self.queues[lost.name].pop() is lost
        del self.log[end:]
        self.safe = min(self.safe, end)

    def delete(self, topic: str) -> None:
        """Mark the messages of a topic as messages of a former life."""
        for name, queue in self.queues.items():
            if name[0] == topic:
                for one in queue:
                    one.former = True
                queue.clear()

    def begins(self, log_offset: int) -> None:
        """The log begins there now."""
        if log_offset == self.min_log:
            return
        assert log_offset % self.file_size == 0, f"the log begins at {log_offset}"
        self.min_log = log_offset
        self.expired = max(self.expired, log_offset)

    def first(self, name: Name, log_offset: int) -> int:
        """The queue offset of the first message that does not lie before a log offset."""
        queue = self.queues.get(name, [])
        low, high = 0, len(queue)
        while low < high:
            middle = (low + high) // 2
            if queue[middle].start < log_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def visible(self, name: Name, dispatched: int) -> int:
        """Number of messages of a queue that readers see.

        It may include the message at which dispatch waits for room in the index, because the unit
        of a record is written before its keys.
        """
        queue = self.queues.get(name, [])
        count = len(queue)
        while count and queue[count - 1].end > dispatched:
            count -= 1
        return count
