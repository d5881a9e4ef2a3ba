"""The checkpoint file: the offsets up to which log, queues and index are known to be durable.

Owns the file's layout: RocketMQ's numbers at the start and ours after them. It must never sync or
decide which data is durable.

Layout, big endian, 4096 bytes (RocketMQ: store/StoreCheckpoint; byte 40 as 5.5.0 writes it):

    0 physicMsgTimestamp    8 logicsMsgTimestamp    16 indexMsgTimestamp    24 masterFlushedOffset
    32 confirmPhyOffset    40 start of the last record whose queue unit is durable
    2048 magic    2056 log offset up to which the log is durable    2064 the same of queues
    2072 the same of the index    2080 number of queues    2088 units in all queues
    2096 entries in index files between 2104 and 2072    2104 first byte of the log at that time
    2112 units that age removed, in all queues    2120 bytes 0-47 again    2168 CRC-32 of 2048-2167

Our numbers count only while bytes 0-47 equal their copy: a RocketMQ broker that used the store
meanwhile changed bytes 0-47 and left ours. Damage has the same effect; of two different numbers,
the smaller one was valid once. Eight bytes of 0xff at 2048 mean that our numbers were void and the
queues have not been counted since.
"""

import struct
from typing import NamedTuple

from turbopump.engine.disk.files import Files
from turbopump.engine.types import LogOffset
from turbopump.pyx.crc32 import crc32

FILE_NAME = "checkpoint"
"""Name of the file in the store's folder."""
SIZE = 4096
"""Bytes of the file."""
MAGIC = 0x5475_7262_6F70_0001
"""The eight bytes at 2048, with which our numbers begin."""
_OURS_AT = 2048
_VOID = b"\xff" * 8
_THEIRS = struct.Struct(">6q")
_OURS = struct.Struct(">9q")
_CRC = struct.Struct(">I")
_FILE = struct.Struct(f">{_THEIRS.size}s{_OURS_AT - _THEIRS.size}x{_OURS.size}s{_THEIRS.size}sI")
SAFETY_MS = 3000
"""Milliseconds that are subtracted from RocketMQ's timestamps, because records reach queues a
little later than the log."""


class DurableMarks(NamedTuple):
    """The part of a checkpoint that RocketMQ does not have: log offsets up to which log, queues and
    index are durable, and counts of queues, units and index entries at that time."""

    log: LogOffset
    """Log offset before which the log is durable."""
    queues: LogOffset
    """Log offset before which all records have durable queue units."""
    index: LogOffset  # type: ignore[assignment]  # a tuple's method of that name is not used
    """Log offset before which all records have durable index entries."""
    queue_count: int
    """Number of queues with units; -1: queues were deleted since they were counted."""
    unit_count: int
    """Number of units in all queues."""
    entry_count: int
    """Number of entries in index files before `index` that do not end before `log_min`."""
    log_min: LogOffset
    """Log offset of the log's first byte when the numbers were counted; if it moved since, the
    first units of queues may have expired, too."""
    first_units: int
    """Sum of the queue offsets at which the first files of all queues begin."""


class Checkpoint(NamedTuple):
    """The content of a store's checkpoint file; times are epoch ms."""

    log_timestamp_ms: int = 0
    """Store time of the last durable record."""
    queue_timestamp_ms: int = 0
    """Store time of the last record whose queue unit is durable."""
    index_timestamp_ms: int = 0
    """Store time of the last record whose index entries are durable."""
    master_flushed_offset: int = 0
    """RocketMQ's masterFlushedOffset, which is only kept."""
    confirm_offset: int = 0
    """Log offset before which readers may read a replica; 0: not replicated or unknown."""
    queue_log_offset: int = 0
    """Log offset of the last record whose queue unit is durable."""
    marks: DurableMarks | None = None
    """Our own numbers; None: missing or void."""
    damaged: bool = False
    """Whether our numbers are void, or the file is missing, so that the number of queues is
    unknown. (RocketMQ may have used the store since; a power cut during the writing looks the
    same.)"""

    @property
    def safe_timestamp_ms(self) -> int:
        """Store time in epoch ms up to which all records are durable in log and queues, by
        RocketMQ's numbers (StoreCheckpoint.getMinTimestamp); 0: unknown."""
        return max(0, min(self.log_timestamp_ms, self.queue_timestamp_ms) - SAFETY_MS)


UNKNOWN = Checkpoint(damaged=True)
"""The checkpoint of a missing, short or empty file."""


def encode(checkpoint: Checkpoint) -> bytes:
    """The 4096 bytes of the checkpoint file; `damaged` is written only without `marks`."""
    *numbers, marks, damaged = checkpoint
    theirs = _THEIRS.pack(*numbers)
    if marks is None:
        # A start that is killed before it counted the queues must not leave a file that looks like
        # RocketMQ's.
        ours = _VOID if damaged else b""
        return (theirs.ljust(_OURS_AT, b"\0") + ours).ljust(SIZE, b"\0")
    ours = _OURS.pack(MAGIC, *marks)
    return _FILE.pack(theirs, ours, theirs, crc32(ours + theirs)).ljust(SIZE, b"\0")


def decode(data: bytes) -> Checkpoint:
    """Parse the bytes of a checkpoint file; UNKNOWN for bytes that are too short or all zeros.
    Never raises: `damaged` is True if the numbers that only Turbopump writes are void."""
    if len(data) < _THEIRS.size or not any(data):
        return UNKNOWN
    theirs = _THEIRS.unpack_from(data)
    marks = None
    end = _OURS_AT + _OURS.size + _THEIRS.size
    covered = data[_OURS_AT:end]
    if len(data) >= end + _CRC.size and covered[:8] == MAGIC.to_bytes(8, "big"):
        (crc,) = _CRC.unpack_from(data, end)
        if crc == crc32(covered):
            _magic, log, queues, index, *counts = _OURS.unpack_from(covered)
            copy = _THEIRS.unpack_from(covered, _OURS.size)
            if theirs == copy:
                marks = DurableMarks(LogOffset(log), LogOffset(queues), LogOffset(index), *counts)
            else:
                theirs = tuple(map(min, theirs, copy))
    if min(theirs) < 0:
        theirs = tuple(max(0, number) for number in theirs)
    return Checkpoint._make((*theirs, marks, marks is None and any(covered)))


def load(files: Files, root: str) -> Checkpoint:
    """Read the checkpoint in a store's folder `root`; UNKNOWN if the file is missing or
    unreadable. Never raises."""
    path = f"{root}/{FILE_NAME}"
    try:
        return decode(files.read(path)) if files.exists(path) else UNKNOWN
    except OSError:
        return UNKNOWN


def save(files: Files, root: str, checkpoint: Checkpoint) -> None:
    """Overwrite the checkpoint in a store's folder `root`, durably on return, with a single page.
    Raises OSError."""
    path = f"{root}/{FILE_NAME}"
    is_new = not files.exists(path)
    files.write(path, encode(checkpoint), 0)
    files.sync(path)
    if is_new:
        files.sync_folder(root)
