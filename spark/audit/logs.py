"""Joins the file scans of a store's log, and checks its epoch list and the bytes after its end.

Owns where a log ends, which bytes may follow its end, and whether epochs begin at records. It must
never read a file: it works on the summaries of `scan`.

Bytes after the end of a log must be zeros. A replica may also have a part of the next record there,
because a transfer can end anywhere. A store without a clean shutdown may have any bytes there until
its next start repairs it, but not after a truncation in the ledger: that wrote zeros (law 6, R11).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import LogOffset
from turbopump.pyx.record import FILLER_SIZE
from turbopump.spark.audit.ledger import Cut
from turbopump.spark.audit.queue_files import Queue
from turbopump.spark.audit.replicas import AuditedReplica, LogFile
from turbopump.spark.audit.scan import FileReport, FileTask, QueueRun, check_jump
from turbopump.spark.audit.units import NotCompared
from turbopump.spark.audit.verdicts import Finding, Tally


@dataclass(slots=True, frozen=True)
class TrailingBytes:
    """Bytes after the end of a log that are not zeros."""

    file: LogFile
    first: int
    """Log offset of the first such byte."""
    last: int
    """Log offset of the last such byte."""
    is_half: bool
    """Whether they may be the beginning of the next record."""


@dataclass(slots=True)
class AuditedLog:
    """A store's log, joined from the scans of its files."""

    replica: AuditedReplica
    queues: dict[Queue, int]
    """First queue offset that is still in the log, by queue."""
    queue_ends: dict[Queue, int]
    """Queue offset after the last message, by queue."""
    trailing: list[TrailingBytes]
    """Bytes after the end that are not zeros, by file."""
    unaligned_epoch_starts: tuple[int, ...]
    """Starts of epochs, as log offsets, at which no record begins."""
    count: int
    """Number of records."""


def task_of(replica: AuditedReplica, file: LogFile) -> FileTask:
    """Make the task that scans `file`, a log file of a store; see `scan.scan_file`."""
    starts = [entry.start for entry in replica.labels.epochs if file.base <= entry.start < file.end]
    return FileTask(
        replica.name,
        replica.root,
        file,
        replica.confirm,
        replica.is_stopped,
        tuple(sorted(set(starts))),
        replica.deleted,
        replica.batch_topics,
    )


def join_reports(
    replica: AuditedReplica, reports: Sequence[FileReport], records: Tally, places: Tally
) -> AuditedLog:
    """Join the reports of a store's files, given in the order of the files; damage goes to
    `records`, jumps in queue offsets and wrong units to `places`."""
    end, confirmed, is_full = replica.min, replica.min, True
    queues: dict[Queue, QueueRun] = {}
    first: dict[Queue, int] = {}
    behind: list[TrailingBytes] = []
    loose: list[int] = []
    count, is_damaged = 0, False
    not_compared = NotCompared()
    for report in reports:
        file = report.task.file
        sure = replica.confirm is None or file.base < replica.confirm
        if not is_full and not (report.count and sure):
            if report.count or report.trailing:
                at = file.base if report.count else report.trailing[0] if report.trailing else 0
                behind.append(
                    TrailingBytes(file, at, report.trailing[1] if report.trailing else at, False)
                )
            continue
        if not is_full:
            # Records continue in the next file, so the log does not end here.
            records.add_finding(
                Finding(
                    f"the records of this file end at {end}, and go on at {file.base}",
                    replica.name,
                    report.task.file.path,
                    0,
                    end,
                )
            )
            behind.clear()
        records.merge(report.records)
        places.merge(report.places)
        not_compared.merge(report.not_compared)
        is_damaged = is_damaged or bool(report.records.total)
        _join_queues(queues, first, report, places, is_damaged)
        loose += report.unaligned_epoch_starts
        count += report.count
        end, is_full = report.end, report.is_full
        confirmed = max(confirmed, report.confirmed) if sure else confirmed
        if not report.is_full and report.trailing:
            behind.append(_trailing_bytes(report))
    confirm = None if replica.confirm is None else min(confirmed, end)
    if replica.confirm is not None and end < replica.confirm:
        _report_too_short(replica, end, records)
        confirm = replica.confirm if replica.is_stopped else confirm
    records.count("records", count)
    records.count("stores")
    places.count("queues", len(queues))
    not_compared.record_reasons(replica.name, places)
    ends = {queue: run.next for queue, run in queues.items()}
    return AuditedLog(replica.with_scan(end, confirm), first, ends, behind, tuple(loose), count)


def _trailing_bytes(report: FileReport) -> TrailingBytes:
    """Return the bytes after the log's end in the file of a report, which has some."""
    assert report.trailing is not None, "there is something"
    first, last = report.trailing
    return TrailingBytes(
        report.task.file, first, last, last - report.end < max(report.half, FILLER_SIZE)
    )


def _report_too_short(replica: AuditedReplica, end: int, records: Tally) -> None:
    """Report a log that ends at `end`, before its confirmed end."""
    text = f"{replica.confirm} is confirmed, whole records end at {end}"
    if replica.is_stopped:
        file = replica.file_at(end)
        path, base = (file.path, file.base) if file else ("", 0)
        records.add_finding(Finding(text, replica.name, path, end - base, end))
    else:
        records.cannot_check(
            f"{replica.name}: {text}; it was not stopped in order, and may be open"
        )


def _join_queues(
    queues: dict[Queue, QueueRun],
    first: dict[Queue, int],
    report: FileReport,
    places: Tally,
    is_damaged: bool,
) -> None:
    """Continue the queues of the previous files with this report; jumps of queue offsets go to
    `places`."""
    for (topic, queue_id), run in report.queues.items():
        before = queues.get((topic, queue_id))
        if before is None:
            queues[topic, queue_id] = run
            first[topic, queue_id] = run.first
            continue
        if run.first != before.next:
            check_jump(
                report.task, places, (topic, queue_id), before, run.first, run.first_log, is_damaged
            )
        begins_anew = report.task.deleted.get(topic, 0)
        if run.last_log >= begins_anew > before.last_log:
            first[topic, queue_id] = run.first
        queues[topic, queue_id] = run


# Epochs


def check_labels(logs: Sequence[AuditedLog], epochs: Tally) -> None:
    """Check each epoch list by itself: unique, ascending, each epoch beginning at a record before
    the log's end; violations go to `epochs`."""
    for log in logs:
        replica = log.replica
        if not replica.replicated:
            continue
        epochs.add_findings(replica.labels.findings)
        if not replica.labels.known:
            what = "has no epoch list" if not replica.labels.findings else "has no whole epoch list"
            epochs.cannot_check(f"{replica.name} {what}")
            continue
        epochs.count("epochs", len(replica.labels.epochs))
        epochs.count("stores")
        by_start = {entry.start: entry.epoch for entry in replica.labels.epochs}
        for start in log.unaligned_epoch_starts:
            file = replica.file_at(start)
            assert file is not None, "it was scanned"
            epochs.add_finding(
                Finding(
                    "an epoch begins inside of a record",
                    replica.name,
                    file.path,
                    start - file.base,
                    start,
                    epoch=by_start[LogOffset(start)],
                )
            )
        for entry in replica.labels.epochs:
            if entry.start <= replica.end:
                continue
            if replica.is_stopped:
                epochs.add_finding(
                    Finding(
                        f"an epoch begins after the log's end, {replica.end}",
                        replica.name,
                        log_offset=entry.start,
                        epoch=entry.epoch,
                    )
                )
            else:
                epochs.cannot_check(
                    f"{replica.name}: epoch {entry.epoch} begins after the log's end; it was not "
                    "stopped in order, and its next start removes such an entry"
                )


def check_same_labels(logs: Sequence[AuditedLog], leader: AuditedLog, epochs: Tally) -> None:
    """Check that each epoch begins at the same log offset in all stores that have it; violations
    go to `epochs`."""
    starts: dict[int, tuple[int, str]] = {}
    for log in (leader, *(one for one in logs if one is not leader)):
        for entry in log.replica.labels.epochs:
            start, store = starts.setdefault(entry.epoch, (entry.start, log.replica.name))
            if start != entry.start:
                epochs.add_finding(
                    Finding(
                        f"the epoch begins at {start} in {store}, here at {entry.start}",
                        log.replica.name,
                        log_offset=entry.start,
                        epoch=entry.epoch,
                    )
                )


def check_same_bytes_same_labels(
    replica: AuditedReplica, leader: AuditedReplica, point: int, epochs: Tally
) -> None:
    """Check that below the consistent point, the log offset `point`, both epoch lists give each
    byte the same epoch; the first difference goes to `epochs`."""
    own, theirs = replica.epochs, leader.epochs
    if not own.entries or not theirs.entries:
        return
    first = max(own.entries[0].start, theirs.entries[0].start, replica.min, leader.min)
    starts = {e.start for e in (*own, *theirs) if first < e.start < point}
    for at in sorted({first, *starts} if first < point else ()):
        mine, others = epoch_at(own, at), epoch_at(theirs, at)
        if mine != others:
            epochs.add_finding(
                Finding(
                    f"the byte is of epoch {mine} here, of epoch {others} in {leader.name}",
                    replica.name,
                    log_offset=at,
                    epoch=mine,
                )
            )
            return


def epoch_at(epochs: Epochs, log_offset: int) -> int | None:
    """Return the epoch of the byte at `log_offset`; None before the first epoch."""
    number = epochs.index_at(LogOffset(log_offset))
    return None if number is None else epochs.entries[number].epoch


# After the end


def check_tails(logs: Sequence[AuditedLog], cuts: Sequence[Cut], truncation: Tally) -> None:
    """Check that the bytes after a log's end, or after a truncation (`cuts`), are zeros; results go
    to `truncation`."""
    for log in logs:
        replica = log.replica
        truncation.count("tails")
        if len(log.trailing) == 1 and log.trailing[0].is_half and replica.replicated:
            continue
        for behind in log.trailing:
            cut = next(
                (
                    one
                    for one in cuts
                    if names_store(one.store, replica) and one.to <= behind.first < one.start
                ),
                None,
            )
            if replica.is_stopped or cut is not None:
                why = f", and it was cut at {cut.to}" if cut else ""
                truncation.add_finding(
                    Finding(
                        f"bytes up to {behind.last} are not zeros, the log ends at "
                        f"{replica.end}{why}",
                        replica.name,
                        behind.file.path,
                        behind.first - behind.file.base,
                        behind.first,
                    )
                )
            else:
                truncation.cannot_check(
                    f"{replica.name}: bytes at {behind.first} are not zeros, the log ends at "
                    f"{replica.end}; it was not stopped in order, and may be open"
                )


def names_store(name: str, replica: AuditedReplica) -> bool:
    """Whether `name`, from a ledger, means this store: it is the store's name, its path or its
    folder's name."""
    return name in (replica.name, replica.root, replica.root.rpartition("/")[2])
