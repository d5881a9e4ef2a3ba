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
SIZE = 4096
MAGIC = 0x5475_7262_6F70_0001
_OURS_AT = 2048
_VOID = b"\xff" * 8
_THEIRS = struct.Struct(">6q")
_OURS = struct.Struct(">9q")
_CRC = struct.Struct(">I")
_FILE = struct.Struct(f">{_THEIRS.size}s{_OURS_AT - _THEIRS.size}x{_OURS.size}s{_THEIRS.size}sI")
# RocketMQ goes back by this time before its timestamps, because records reach queues a little
# later.
SAFETY_MS = 3000


class DurableMarks(NamedTuple):
    """Our own numbers: all data before these log offsets is durable."""

    log: LogOffset
    queues: LogOffset
    index: LogOffset  # type: ignore[assignment]  # a tuple's method of that name is not used
    queue_count: int
    """Number of queues with units; -1: queues were deleted since they were counted."""
    unit_count: int
    entry_count: int
    """Number of entries in index files before `index` that do not end before `log_min`."""
    log_min: LogOffset
    """Beginning of the log; if it moved, the first units of queues may have expired, too."""
    first_units: int
    """Sum of the queue offsets at which the first files of all queues begin."""


class Checkpoint(NamedTuple):
    """The content of the file."""

    log_timestamp_ms: int = 0
    queue_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    queue_log_offset: int = 0
    marks: DurableMarks | None = None
    damaged: bool = False
    """Whether our numbers are void, or the file is missing, so that the number of queues is
    unknown. (RocketMQ may have used the store since; a power cut during the writing looks the
    same.)"""

    @property
    def safe_timestamp_ms(self) -> int:
        """Time up to which stored records are in log and queues
        (StoreCheckpoint.getMinTimestamp)."""
        return max(0, min(self.log_timestamp_ms, self.queue_timestamp_ms) - SAFETY_MS)


UNKNOWN = Checkpoint(damaged=True)
"""The checkpoint of a missing, short or empty file."""


def encode(checkpoint: Checkpoint) -> bytes:
    """The 4096 bytes of the file."""
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
    """Read the file's bytes; a short or empty file gives UNKNOWN."""
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
    """The checkpoint of a store; UNKNOWN if the file is missing or unreadable."""
    path = f"{root}/{FILE_NAME}"
    try:
        return decode(files.read(path)) if files.exists(path) else UNKNOWN
    except OSError:
        return UNKNOWN


def save(files: Files, root: str, checkpoint: Checkpoint) -> None:
    """Overwrite the file and make it durable; its numbers lie in one page. Raises OSError."""
    path = f"{root}/{FILE_NAME}"
    is_new = not files.exists(path)
    files.write(path, encode(checkpoint), 0)
    files.sync(path)
    if is_new:
        files.sync_folder(root)
