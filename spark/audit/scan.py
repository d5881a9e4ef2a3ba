"""Scans one file of a log, record by record, and reports a summary and its faults.

Owns the walk, and a summary whose size does not depend on the file's. It must never look at another
file of the log: tasks scan files in parallel, and `logs` joins the reports.

The walk goes from record to record, as recovery does: lengths, body CRC and the record's own log
offset must agree. Below the confirmed end, bytes that are no record are damage, and the walk
continues at the next record; above it, they end the log.

Tests: tests/unit/spark/audit/test_logs.py
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from turbopump.engine.disk.files import MappedFile
from turbopump.engine.log.damage import find_record
from turbopump.engine.queues.batch_queue import inner_count
from turbopump.engine.queues.dispatcher import parse_properties
from turbopump.pyx import record as kernel
from turbopump.pyx.region import Region
from turbopump.spark.audit.queue_files import Queue, QueueFiles
from turbopump.spark.audit.replicas import LogFile, map_file
from turbopump.spark.audit.units import NotCompared, UnitCheck
from turbopump.spark.audit.verdicts import Finding, Tally

ROWS = 4096
"""Records whose boundaries one call finds: about 800 KB."""
ZERO_PIECE = 1 << 20
"""Bytes that are compared with zeros at once, at most."""
PREPARED, ROLLBACK, TRANSACTION_BITS = 0x4, 0xC, 0xC
"""Values of sys_flag's bits TRANSACTION_BITS for half messages and rollbacks, which take no queue
offset (RocketMQ: MessageSysFlag)."""
INNER_BATCH = 0x80
"""Bit of sys_flag of a record that holds several messages."""

Row = list[int]
"""A record's numbers, by the column indexes of pyx.record."""


@dataclass(slots=True, frozen=True)
class FileTask:
    """A file to scan, and the facts about its store that the scan needs."""

    store: str
    """Name of the store in findings."""
    root: str
    """Path of the store."""
    file: LogFile
    confirm: int | None
    """The store's confirmed end; None: the whole log is confirmed."""
    is_stopped: bool
    """Whether the store was shut down cleanly."""
    starts: tuple[int, ...]
    """Starts of epochs in this file, as log offsets, ascending."""
    deleted: dict[str, int]
    """End of the log at a topic's last deletion, by topic."""
    batch_topics: frozenset[str]
    """Topics whose records hold several messages."""


@dataclass(slots=True)
class QueueRun:
    """A queue's messages in one file, in the log's order."""

    first: int
    """Queue offset of the first message."""
    next: int
    """Queue offset after the last message."""
    first_log: int
    """Log offset of the first message."""
    last_log: int
    """Log offset of the last message."""
    faults: int = 0
    """Damaged places before its last message; missing messages may have lain there."""


@dataclass(slots=True)
class FileReport:
    """Result of scanning a file; its size does not depend on the file's."""

    task: FileTask
    end: int = 0
    """Log offset after the last whole record or filler."""
    is_full: bool = False
    """Whether the file ends with its filler, so that the log continues in the next file."""
    confirmed: int = 0
    """The greatest record end that is confirmed, as a log offset."""
    count: int = 0
    """Number of records."""
    faults: int = 0
    """Number of damaged places."""
    queues: dict[Queue, QueueRun] = field(default_factory=dict)
    records: Tally = field(default_factory=lambda: Tally("records"))
    places: Tally = field(default_factory=lambda: Tally("queue-offsets"))
    not_compared: NotCompared = field(default_factory=NotCompared)
    """Records whose queue units cannot be judged."""
    unaligned_epoch_starts: tuple[int, ...] = ()
    """Starts of epochs at which no record begins."""
    trailing: tuple[int, int] | None = None
    """The first and the last byte after `end` that are not zero, as log offsets."""
    half: int = 0
    """Size that the incomplete record at `end` claims; 0 if none begins there."""


class RecordWalk:
    """Iterates, once, over the records of a file as rows (columns of pyx.record); see the module.

    `sure_end` is the confirmed end as a log offset; None: the whole log is confirmed.
    """

    def __init__(self, region: Region, file: LogFile, sure_end: int | None) -> None:
        self.region = region
        self.file = file
        self.position = 0
        """Position after the last record or skipped damage."""
        self.is_full = False
        """Whether the walk ended at the file's filler."""
        self.faults: list[tuple[int, str]] = []
        """(position, reason) of each damaged place that was skipped."""
        self._sure_end = sure_end

    def __iter__(self) -> Iterator[Row]:
        region, size, base = self.region, self.file.size, self.file.base
        while True:
            found = kernel.scan(region, self.position, size, ROWS)
            rows: list[Row] = found.rows.tolist() if found.count else []  # type: ignore[assignment]
            for row in rows:
                if row[kernel.PHYSICAL_OFFSET] != base + row[kernel.POSITION]:
                    reason = f"its own log offset is {row[kernel.PHYSICAL_OFFSET]}"
                    if not self._skip_misplaced(row[kernel.POSITION], reason):
                        self.position = row[kernel.POSITION]
                        return
                self.position = row[kernel.POSITION] + row[kernel.SIZE]
                yield row
            self.position = found.position
            if found.status == kernel.BLANK_FOUND:
                self.is_full = True
                return
            if found.status == kernel.OK and found.position < size:
                continue
            if not self._skip_damage(found.reason or "the file ends inside of it"):
                return

    def _skip_misplaced(self, position: int, reason: str) -> bool:
        """Skip a record whose own log offset is another one, if it is confirmed; return whether
        the walk continues."""
        if self._sure_end is not None and self.file.base + position >= self._sure_end:
            return False
        self.faults.append((position, reason))
        return True

    def _skip_damage(self, reason: str) -> bool:
        """Continue at the next record after a place without a record; False if no record
        follows."""
        region, position, size = self.region, self.position, self.file.size
        left = size - position
        if left < kernel.FILLER_SIZE:
            return False
        if self._sure_end is None and region.is_zero(position, kernel.FILLER_SIZE):
            return False
        if self._sure_end is not None and self.file.base + position >= self._sure_end:
            return False
        following = self._end_by_length(position)
        if following is None:
            following = find_record(region, position + 1, size, self.file.base)
        if following is None and (
            self._sure_end is None or region.is_zero(position, kernel.FILLER_SIZE)
        ):
            return False
        self.faults.append((position, reason))
        if following is None:
            return False
        self.position = following
        return True

    def _end_by_length(self, position: int) -> int | None:
        """Return the position after a record with a wrong body and a right length; None for any
        other damage."""
        region, size = self.region, self.file.size
        try:
            behind = position + kernel.decode(region, position, size, self.file.base).size
            kernel.decode(region, behind, size, self.file.base)
        except ValueError:
            if filler_follows(region, position, size):
                return position + region.get_i32(position)
            return None
        return behind


def filler_follows(region: Region, position: int, size: int) -> bool:
    """Whether the file's filler follows the record at `position`, whose size is `size`."""
    behind = position + region.get_i32(position)
    if not position < behind <= size - kernel.FILLER_SIZE:
        return False
    return region.get_i32(behind) == size - behind and region.get_i32(behind + 4) == kernel.BLANK


def topic_of(row: Row, region: Region) -> str:
    """Return the topic of a record, with U+FFFD for bytes that are not UTF-8."""
    return region.read(row[kernel.TOPIC_AT], row[kernel.TOPIC_SIZE]).decode(errors="replace")


def queue_offsets_of(row: Row, region: Region, is_batch: bool) -> int:
    """Return the number of queue offsets of a record: several for a batch, 0 for a half message."""
    kind = row[kernel.SYS_FLAG] & TRANSACTION_BITS
    if kind in (PREPARED, ROLLBACK):
        return 0
    if not (is_batch or row[kernel.SYS_FLAG] & INNER_BATCH):
        return 1
    text = region.read(row[kernel.PROPERTIES_AT], row[kernel.PROPERTIES_SIZE])
    return inner_count(parse_properties(text))


def scan_file(task: FileTask) -> FileReport:
    """Scan a log file and its queue units, and report on it; damage is a finding, not an error.
    Raises OSError."""
    report = FileReport(task, end=task.file.base, confirmed=task.file.base)
    with map_file(task.file.path) as opened, QueueFiles(task.root) as queues:
        walk = RecordWalk(opened.region, task.file, task.confirm)
        _walk_records(report, walk, queues)
        report.end = task.file.base + walk.position
        report.is_full = walk.is_full
        if walk.is_full:
            report.end = task.file.end
        for position, reason in walk.faults:
            report.records.add_finding(
                Finding(
                    f"no whole record: {reason}",
                    task.store,
                    task.file.path,
                    position,
                    task.file.base + position,
                )
            )
        if not walk.is_full:
            _check_trailing(report, opened, walk.position)
    return report


def _walk_records(report: FileReport, walk: RecordWalk, queues: QueueFiles) -> None:
    """Walk over the records of a file, and add them and their queue units to the report."""
    task, region, base = report.task, walk.region, walk.file.base
    units = UnitCheck(
        task.store,
        base,
        task.confirm,
        task.is_stopped,
        region,
        queues,
        report.places,
        report.not_compared,
    )
    topics: dict[bytes, tuple[str, bool]] = {}
    starts = [start - base for start in task.starts]
    loose: list[int] = []
    confirm = task.confirm
    for row in walk:
        report.faults = len(walk.faults)
        at, size = row[kernel.POSITION], row[kernel.SIZE]
        report.count += 1
        while starts and starts[0] <= at:
            if starts[0] != at:
                loose.append(base + starts[0])
            del starts[0]
        if confirm is None or base + at + size <= confirm:
            report.confirmed = base + at + size
        raw = region.read(row[kernel.TOPIC_AT], row[kernel.TOPIC_SIZE])
        known = topics.get(raw)
        if known is None:
            topic = raw.decode(errors="replace")
            known = topics[raw] = topic, topic in task.batch_topics
        topic, is_batch = known
        width = queue_offsets_of(row, region, is_batch)
        if width:
            _count_message(report, row, topic, width)
            if base + at >= task.deleted.get(topic, 0):
                if is_batch:
                    report.not_compared.batches += 1
                else:
                    units.compare_record(row, topic)
    end = walk.position
    # The next epoch may begin where the filler lies; `logs` checks epochs after the log's end.
    loose += [base + start for start in starts if start < end or (walk.is_full and start > end)]
    report.unaligned_epoch_starts = tuple(loose)
    if walk.is_full and (confirm is None or confirm >= task.file.end):
        report.confirmed = task.file.end


def _count_message(report: FileReport, row: Row, topic: str, width: int) -> None:
    """Check that a message follows its predecessor in its queue, and extend the queue's run by
    its `width` queue offsets."""
    task = report.task
    queue_id, found = row[kernel.QUEUE_ID], row[kernel.QUEUE_OFFSET]
    log_offset = task.file.base + row[kernel.POSITION]
    run = report.queues.get((topic, queue_id))
    if run is None:
        report.queues[topic, queue_id] = QueueRun(
            found, found + width, log_offset, log_offset, report.faults
        )
        return
    if found != run.next:
        is_damaged = run.faults != report.faults
        if not check_jump(
            task, report.places, (topic, queue_id), run, found, log_offset, is_damaged
        ):
            run.next = 0  # the topic was deleted before this message
    run.next = max(run.next, found + width)
    run.last_log, run.faults = log_offset, report.faults


def check_jump(
    task: FileTask,
    places: Tally,
    queue: Queue,
    run: QueueRun,
    found: int,
    log_offset: int,
    is_damaged: bool,
) -> bool:
    """Judge a jump from `run.next` to the queue offset `found` of the message at `log_offset`;
    return False if the topic was deleted in between, which excuses it, else True. `is_damaged`:
    the log is damaged between the two, so missing messages are undecided. Results go to
    `places`."""
    topic, queue_id = queue
    begins_anew = task.deleted.get(topic, 0)
    if run.last_log < begins_anew and (log_offset >= begins_anew or found == 0):
        return False
    if is_damaged and found > run.next:
        places.cannot_check(
            f"{task.store}: {topic} queue {queue_id} from {run.next} to {found - 1}: they may have "
            "lain where the log is damaged"
        )
        return True
    if found < run.next:
        what = f"queue offset {found} was given before: {run.next} would follow"
    else:
        last = found - 1
        missing = f"offset {run.next} is" if last == run.next else f"{run.next} to {last} are"
        what = f"queue {missing} missing before {found}"
    places.add_finding(
        Finding(
            what,
            task.store,
            task.file.path,
            log_offset - task.file.base,
            log_offset,
            topic,
            queue_id,
            found,
        )
    )
    return True


def _check_trailing(report: FileReport, opened: MappedFile, position: int) -> None:
    """Report non-zero bytes after the last record."""
    base, size = report.task.file.base, report.task.file.size
    region = opened.region
    ranges = [
        (max(start, position), end) for start, end in opened.data_ranges(position) if end > position
    ]
    first = next((at for one in ranges if (at := _first_nonzero(region, *one)) is not None), None)
    if first is None:
        return
    last = next(at for one in reversed(ranges) if (at := _last_nonzero(region, *one)) is not None)
    report.trailing = base + first, base + last
    if size - position >= kernel.FILLER_SIZE:
        magic = region.get_i32(position + 4)
        size_read = region.get_i32(position)
        if magic in (kernel.V1, kernel.V2) and 0 < size_read <= size - position:
            report.half = size_read
        elif magic == kernel.BLANK and size_read == size - position:
            report.half = kernel.FILLER_SIZE


def _first_nonzero(region: Region, start: int, end: int) -> int | None:
    """Return the position in [start, end) of the first byte that is not zero; None if all are."""
    piece = end - start
    while start < end:
        piece = min(piece, ZERO_PIECE, end - start)
        if region.is_zero(start, piece):
            start += piece
        elif piece == 1:
            return start
        else:
            piece = (piece + 1) // 2
    return None


def _last_nonzero(region: Region, start: int, end: int) -> int | None:
    """Return the position in [start, end) of the last byte that is not zero; None if all are."""
    piece = end - start
    while start < end:
        piece = min(piece, ZERO_PIECE, end - start)
        if region.is_zero(end - piece, piece):
            end -= piece
        elif piece == 1:
            return end - 1
        else:
            piece = (piece + 1) // 2
    return None
