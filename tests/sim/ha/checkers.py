"""Invariants of a group of brokers, whatever happened.

The checks are apart from the harness: logs are read from the simulated disks, and compared as bytes
with everything that the group has confirmed.

`History` holds every byte that some broker ever called confirmed. There is one history: no two
brokers confirm different bytes (R05), each master has all of it when its term begins (I3), it has
every message that all required replicas had when it was acknowledged (I1) and every message that
was read (I8), and no broker truncates it (I12).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.disk import SimDisk

if TYPE_CHECKING:
    from turbopump.engine.store import Store

DOOMED = "doomed"
"""The end of each name of a topic or a group that is deleted and made again, and of no other name.
Queue offsets of such a topic start again at 0, and records of its former lives are not read.
"""
Key = tuple[str, int, int]
"""Topic, queue, queue offset."""
BLANK = 0xCBD43194
MAGIC_AT, QUEUE_AT, QUEUE_OFFSET_AT, PHYSICAL_AT = 4, 12, 20, 28
STORED_AT = 56
BODY_SIZE_AT, BODY_AT = 84, 88
# Two records differ before the end of their store time: most in the CRC of the body, after size and
# magic. Op messages of two masters for one transaction have the same body, and differ in their
# times (seed 338 of the payments).
ALIKE_MAX = 64
READ_COUNT = 32


@dataclass(slots=True)
class LogFiles:
    """A broker's log as its disk has it."""

    disk: SimDisk
    folder: str
    file_size: int

    @property
    def first(self) -> int:
        """Offset of its first file; 0 if there are no files."""
        names = (path.rpartition("/")[2] for path in self.disk.paths(self.folder))
        return min((int(name) for name in names if name.isdecimal()), default=0)

    def read(self, start: int, stop: int, durable: bool = False) -> bytes:
        """The bytes [start, stop), as far as there are files."""
        parts = []
        while start < stop:
            base = start - start % self.file_size
            path = f"{self.folder}/{base:020d}"
            if durable:
                content = self.disk.durable(path)
            else:
                content = self.disk.visible(path)
            if content is None:
                break
            end = min(stop, base + self.file_size)
            parts.append(bytes(content[start - base : end - base]))
            start = end
        return b"".join(parts)


@dataclass(slots=True)
class History:
    """The confirmed history of a group (see the module)."""

    log: bytearray = field(default_factory=bytearray)
    read: dict[Key, bytes] = field(default_factory=dict)
    """Records that readers were shown."""
    acked: dict[Key, tuple[int, bytes]] = field(default_factory=dict)
    """Log offset and body of each message that was acknowledged, which all required replicas had by
    then.
    """
    writers: dict[int, int] = field(default_factory=dict)
    """Writer of each epoch."""
    anew_in_epoch: int = 0
    """Epoch of the election that may lose data with which this history began; a broker with no
    later epoch still reports the history before it.
    """

    def tell(self, who: int, log: LogFiles, start: int, stop: int, why: str) -> None:
        """Check the bytes from `start` to `stop` that a broker now reports as safe, and add them to
        the history.
        """
        if stop <= start:
            return
        known = len(self.log)
        assert start <= known, f"broker {who}: {why} from {start} on, known is {known}"
        data = log.read(start, stop)
        assert len(data) == stop - start, f"broker {who}: {why} up to {stop}, but has it not"
        old = self.log[start:stop]
        at = common(data, old)
        assert at == len(old), f"broker {who}: {why} byte {start + at}, which had another value"
        self.log += data[len(old) :]

    def begins(
        self, who: int, log: LogFiles, minimum: int, end: int, due: int | None = None
    ) -> None:
        """Check that a new master has all confirmed bytes (I3), or the part up to `due` if its term
        has ended already.
        """
        due = len(self.log) if due is None else min(due, len(self.log))
        assert end >= due, f"broker {who} leads with a log up to {end}, confirmed is {due}"
        at = minimum + common(log.read(minimum, due), self.log[minimum:due])
        assert at >= due, f"broker {who} leads with another byte {at} than was confirmed"

    def writes(self, who: int, epoch: int) -> None:
        """A broker wrote as the master of an epoch (I4, I11)."""
        writer = self.writers.setdefault(epoch, who)
        assert writer == who, f"brokers {writer} and {who} both write in epoch {epoch}"

    def cuts(self, who: int, log_end: int, confirm: int, gone: bytes, file_size: int) -> None:
        """A broker cut its log at `log_end`, and `gone` with it: nothing it had confirmed, no
        record that is in the history (I12, R10). Fillers are all the same."""
        assert log_end >= confirm, f"broker {who} cut at {log_end}, confirmed was {confirm}"
        start = log_end
        if int.from_bytes(gone[MAGIC_AT : MAGIC_AT + 4]) == BLANK:
            start += file_size - log_end % file_size
        same = common(gone[start - log_end :], self.log[start:])
        assert same < ALIKE_MAX, f"broker {who} cut {same} bytes at {log_end} that were confirmed"

    def show(self, who: int, key: Key, record: bytes) -> None:
        """A reader got a record (I8, I9)."""
        seen = self.read.setdefault(key, record)
        assert seen == record, f"broker {who}: {key} was read as another message before"

    def acknowledge(self, key: Key, start: int, body: bytes) -> None:
        """A sender got the answer that all required replicas have its message. A queue gives each
        offset once, but in another life of its topic."""
        before = self.acked.get(key)
        assert before in (None, (start, body)) or key[0].endswith(DOOMED), (
            f"{key} was acknowledged at log offset {start}, and as another message before"
        )
        self.acked[key] = (start, body)

    def forget(self, log: LogFiles, minimum: int, end: int, epoch: int) -> None:
        """Drop from the history all bytes that the master of an election that may lose does not
        have.
        """
        self.anew_in_epoch = epoch
        stop = minimum + common(log.read(minimum, end), self.log[minimum:])
        if stop >= len(self.log):
            return
        del self.log[stop:]
        for known in (self.read, self.acked):
            known.clear()


def common(left: bytes, right: bytes | bytearray) -> int:
    """Length of the common prefix of two buffers."""
    size = min(len(left), len(right))
    if left[:size] == right[:size]:
        return size
    return next(at for at in range(size) if left[at] != right[at])


@dataclass(slots=True, frozen=True)
class Parsed:
    """A record of a log."""

    key: Key
    start: int
    record: bytes

    @property
    def body(self) -> bytes:
        return self.record[BODY_AT : self._body_end]

    @property
    def stored_ms(self) -> int:
        """Store time by the clock of the broker that wrote the record."""
        return int.from_bytes(self.record[STORED_AT : STORED_AT + 8])

    @property
    def properties(self) -> bytes:
        """Properties in their stored form."""
        at = self._body_end + 1 + self.record[self._body_end]
        size = int.from_bytes(self.record[at : at + 2])
        return self.record[at + 2 : at + 2 + size]

    @property
    def _body_end(self) -> int:
        return BODY_AT + int.from_bytes(self.record[BODY_SIZE_AT:BODY_AT])


def parse(record: bytes, start: int) -> Parsed:
    """Parse one record of version 1."""
    queue_id = int.from_bytes(record[QUEUE_AT : QUEUE_AT + 4])
    queue_offset = int.from_bytes(record[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8])
    physical = int.from_bytes(record[PHYSICAL_AT : PHYSICAL_AT + 8])
    assert physical == start, f"log {start}: a record that says it lies at {physical}"
    at = BODY_AT + int.from_bytes(record[BODY_SIZE_AT:BODY_AT])
    topic = record[at + 1 : at + 1 + record[at]].decode()
    return Parsed((topic, queue_id, queue_offset), start, record)


def records(data: bytes, start: int, file_size: int) -> list[Parsed]:
    """Parse the bytes of a log from offset `start`, which have to be whole records."""
    found = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        magic = int.from_bytes(data[at + 4 : at + 8])
        if magic == BLANK:
            at += file_size - (start + at) % file_size
            continue
        assert 0 < size <= len(data) - at, f"log {start + at}: inside of a record, or none"
        found.append(parse(data[at : at + size], start + at))
        at += size
    return found


def check_zeros(who: int, log: LogFiles, log_end: int) -> None:
    """Check that no byte after the log's end is on the disk after a truncation (R11)."""
    behind = log.read(log_end, log_end + -log_end % log.file_size, durable=True)
    assert not any(behind), f"broker {who}: bytes that were cut at {log_end} are on the disk"


def check_queues(found: list[Parsed]) -> None:
    """Check that queue offsets are contiguous: no duplicates (R08), no gaps (I9).

    Queue offsets of a topic that is created again restart at 0.
    """
    following: dict[tuple[str, int], int] = {}
    for one in found:
        topic, queue_id, number = one.key
        wanted = following.setdefault((topic, queue_id), number)
        if number == 0 and topic.endswith(DOOMED):
            wanted = 0
        assert number == wanted, f"log {one.start}: {topic} {queue_id} {number}, not {wanted}"
        following[topic, queue_id] = number + 1


def check_reads(store: "Store", show: Callable[[Key, bytes], None]) -> int:
    """Read all messages that a store shows; return the number of those whose topics stay."""
    count = 0
    for topic in store.topics():
        is_doomed = topic.endswith(DOOMED)
        for queue_id in store.queue_ids(topic):
            at = store.min_queue_offset(topic, queue_id)
            end = store.max_queue_offset(topic, queue_id)
            while at < end:
                following = show_some(store, topic, queue_id, at, _ignore if is_doomed else show)
                assert following > at, f"{topic} {queue_id} {at}: cannot be read"
                count += 0 if is_doomed else following - at
                at = following
    return count


def _ignore(_key: Key, _record: bytes) -> None:
    """A key of a topic that is made again names other records in each life."""


def show_some(
    store: "Store", topic: str, queue_id: int, at: int, show: Callable[[Key, bytes], None]
) -> int:
    """Pull once; return the offset of the next pull."""
    result = store.read(topic, queue_id, at, READ_COUNT)
    data = b"".join(result.slices)
    while data:
        size = int.from_bytes(data[:MAGIC_AT])
        record, data = data[:size], data[size:]
        physical = int.from_bytes(record[PHYSICAL_AT : PHYSICAL_AT + 8])
        key = parse(record, physical).key
        assert key == (topic, queue_id, at), f"{topic} {queue_id} {at}: got {key}"
        show(key, record)
        at += 1
    return at


def check_same(logs: dict[int, tuple[LogFiles, int, int]], history: History) -> list[Parsed]:
    """Check at the end that all logs are equal where they overlap, and hold the history.

    `logs` are (files, min, end). Returns the records that all logs have.
    """
    ends = {end for _log, _min, end in logs.values()}
    assert len(ends) == 1, f"logs end at {sorted(ends)}"
    end = ends.pop()
    first = max(minimum for _log, minimum, _end in logs.values())
    contents = {who: log.read(first, end) for who, (log, _min, _end) in logs.items()}
    who, content = next(iter(contents.items()))
    for other, data in contents.items():
        at = common(data, content)
        assert at == len(content) == len(data), f"brokers {who} and {other} differ at {first + at}"
    at = common(content, history.log[first:])
    assert first + at >= len(history.log), f"byte {first + at} is not what was confirmed"
    file_size = next(iter(logs.values()))[0].file_size
    found = records(content, first, file_size)
    check_queues(found)
    there = {one.key: one for one in found}
    for key, (start, body) in history.acked.items():
        if start >= first:
            assert key in there, f"{key} was acknowledged and is gone"
            assert there[key].body == body, f"{key} was acknowledged and is another message"
    for key, record in history.read.items():
        if int.from_bytes(record[PHYSICAL_AT : PHYSICAL_AT + 8]) >= first:
            assert key in there, f"{key} was read and is gone"
            assert there[key].record == record, f"{key} was read and is another message"
    return found
