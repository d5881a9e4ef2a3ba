"""The ends of records in a log that was copied as bytes.

Owns the walk by lengths alone: a transfer ends anywhere, but readers, queues and cuts need whole
records. It must never change a byte nor judge a record's content.

Tests: tests/unit/engine/replicated/test_crash.py
"""

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.checkpoint import Checkpoint
from turbopump.engine.disk.files import Files
from turbopump.engine.log import epoch_lines
from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.log.epoch_file import BACKUP, MARK_FILE, PLAIN_MARK_FILE, WHOLE_MARK_FILE
from turbopump.engine.types import LogOffset
from turbopump.pyx import record as kernel
from turbopump.pyx.walk import whole_end


def whole_before(log: CommitLog, start: LogOffset, until: LogOffset) -> tuple[LogOffset, int]:
    """Return (log offset of the end of the last whole record or filler in [start, until), status of
    pyx.record). A record begins at `start`; only lengths and magics are checked.

    Status: OK if that end is `until`, SHORT if the next record or filler reaches beyond `until`,
    BAD_RECORD if no record begins there.
    """
    at: int = start
    while at < until:
        base, region, position, end = log.part_in_one_file(LogOffset(at), until)
        status, position = whole_end(region, position, end)
        at = base + position
        if status == kernel.BLANK_FOUND:
            if until < base + log.file_size:
                return LogOffset(at), kernel.SHORT
            at = base + log.file_size
        elif status == kernel.SHORT and end == log.file_size:
            return LogOffset(at), kernel.BAD_RECORD  # a record never reaches into the next file
        elif status != kernel.OK:
            return LogOffset(at), status
    return LogOffset(at), kernel.OK


def was_replicated(files: Files, config: StoreConfig) -> bool:
    """Whether a store was ever a member of a group with epochs, by its epoch files and MARK_FILE;
    copies of default HA do not count. Reads the disk."""
    epochs = config.epoch_path
    paths = (epochs, epochs + BACKUP, f"{config.root}/{MARK_FILE}")
    lines = epochs + epoch_lines.SUFFIX  # empty from the first opening until the first change
    return any(map(files.exists, paths)) or (files.exists(lines) and files.file_size(lines) > 0)


def may_end_inside(files: Files, config: StoreConfig, saved: Checkpoint) -> bool:
    """Whether the log of a store that is being opened, with checkpoint `saved`, may end inside a
    record, because it was copied in transfers that end anywhere. Turbopump writes whole records and
    marks that; RocketMQ does neither (nor leaves our marks in a checkpoint). Reads the disk."""
    root = config.root
    is_copy = was_replicated(files, config) or files.exists(f"{root}/{PLAIN_MARK_FILE}")
    is_whole = saved.marks is not None and files.exists(f"{root}/{WHOLE_MARK_FILE}")
    return is_copy and not is_whole


def confirmed_end(
    files: Files, log: CommitLog, start: LogOffset, end: LogOffset, saved: Checkpoint
) -> LogOffset | None:
    """Log offset before which the records of a reopened log that ends at `end` may be served; None:
    all of them, because the store was never in a group with epochs.

    Bytes after the confirmOffset of the checkpoint `saved` may be missing in the log of the next
    master. `start` is a record boundary; RocketMQ's confirmOffset may lie inside a record, so the
    result is the last boundary at or before it.
    """
    if not was_replicated(files, log.config):
        return None
    if saved.marks is None and log.segments.contains(saved.confirm_offset):
        start = LogOffset(max(start, log.segments.start_of(saved.confirm_offset)))
    wanted = LogOffset(min(end, saved.confirm_offset))
    return whole_before(log, start, wanted)[0] if wanted > start else LogOffset(min(start, end))
