"""The timers' checkpoint: delivered slots, and the part of the queue that is in the wheel.

Owns the file `config/timercheck` and its layout. It must never decide which progress is safe to
record. Its bytes are also the response to GET_TIMER_CHECK_POINT (60).

Layout, big endian, one page (RocketMQ: store/timer/TimerCheckpoint); our fields follow it:

    0 lastReadTimeMs    8 lastTimerLogFlushPos    16 lastTimerQueueOffset
    24 masterTimerQueueOffset    32 stateVersion    40 timestamp    48 counter
    2048 magic    2056 milliseconds of a slot    2064 CRC-32 of bytes 0-55
    2112 magic    2120 milliseconds of a slot    2128 cursor    2136 end of the log
    2144 queue offset    2152 number of floors   2156 slot and position of each (16 bytes)
         then CRC-32 of bytes 0-55 and of these

Our fields mean that the wheel is whole, as after a clean stop. A RocketMQ broker that used the
store since has changed its numbers and left ours, so ours no longer fit.

Tests: tests/golden_stores/test_timers.py, tests/unit/broker/scheduled/test_timer_escape.py
"""

import struct
from typing import Final, NamedTuple

from turbopump.engine.disk.files import Files, sync_above
from turbopump.engine.types import QueueOffset
from turbopump.pyx.crc32 import crc32

FILE_NAME: Final = "timercheck"
SIZE: Final = 4096
_NUMBERS: Final = struct.Struct(">7q")
_OLD_SIZE: Final = 32
"""Size of the numbers written by a broker before the version was added."""
_OURS_AT: Final = 2048
_OURS: Final = struct.Struct(">qqI")
_STEPPED_AT: Final = 2112
_STEPPED: Final = struct.Struct(">5qi")
_FLOOR: Final = struct.Struct(">2q")
_STEPPED_MAGIC: Final = 0x5475_7262_6F70_0003
FLOORS_MAX: Final = 64
_MAGIC: Final = 0x5475_7262_6F70_0002


class TimerCheckpoint(NamedTuple):
    """Content of the file. Timers whose queue offset is below `master_queue_offset` and whose slot
    is before `read_ms` were delivered; units before `log_position` belong to the messages before
    `queue_offset`."""

    read_ms: int = 0
    log_position: int = 0
    queue_offset: QueueOffset = QueueOffset(0)
    master_queue_offset: QueueOffset = QueueOffset(0)
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """The 56 bytes of RocketMQ's numbers."""
        return _NUMBERS.pack(*self)


def decode(data: bytes | bytearray | memoryview) -> TimerCheckpoint:
    """Parse the file's bytes or a response. Raises ValueError if they are not a checkpoint."""
    if len(data) < _OLD_SIZE:
        raise ValueError(f"{len(data)} bytes are not a checkpoint of timers")
    padded = bytes(data[: _NUMBERS.size]).ljust(_NUMBERS.size, b"\0")
    read_ms, position, queued, master, *version = _NUMBERS.unpack(padded)
    if min(read_ms, position, queued, master, *version) < 0:
        raise ValueError("a negative number in a checkpoint of timers")
    return TimerCheckpoint(read_ms, position, QueueOffset(queued), QueueOffset(master), *version)


def load(files: Files, root: str, precision_ms: int) -> tuple[TimerCheckpoint, bool]:
    """(the store's checkpoint, whether the wheel is whole); a checkpoint of zeros if the file is
    missing or damaged. Raises OSError."""
    path = f"{root}/config/{FILE_NAME}"
    if not files.exists(path):
        return TimerCheckpoint(), False
    data = files.read(path)
    try:
        found = decode(data)
    except ValueError:
        return TimerCheckpoint(), False
    return found, data[_OURS_AT : _OURS_AT + _OURS.size] == _mark(found, precision_ms)


def save(files: Files, root: str, checkpoint: TimerCheckpoint, whole_ms: int = 0) -> None:
    """Write the page and make it durable; with the precision in `whole_ms`, mark the wheel as
    whole. Raises OSError."""
    folder = f"{root}/config"
    path = f"{folder}/{FILE_NAME}"
    is_new = not files.exists(path)
    if is_new:
        files.make_folders(folder)
    ours = _mark(checkpoint, whole_ms) if whole_ms else b""
    page = (checkpoint.encode().ljust(_OURS_AT, b"\0") + ours).ljust(SIZE, b"\0")
    files.write(path, page, 0)
    files.sync(path)
    if is_new:
        sync_above(files, path)


def _mark(checkpoint: TimerCheckpoint, precision_ms: int) -> bytes:
    return _OURS.pack(_MAGIC, precision_ms, crc32(checkpoint.encode()))


class SteppedClock(NamedTuple):
    """Progress at a clean stop while the clock showed less than an earlier time: slots before
    `cursor` were delivered; in slots before `floors[n][0]`, units before position `floors[n][1]`
    were delivered, too. All messages before `queue_offset` have their unit before `log_end`."""

    cursor: int
    log_end: int
    queue_offset: QueueOffset
    floors: tuple[tuple[int, int], ...]


def save_stepped(
    files: Files, root: str, checkpoint: TimerCheckpoint, precision_ms: int, stepped: SteppedClock
) -> None:
    """Write the page with a stepped clock, and make it durable; `checkpoint` is the checkpoint for
    a RocketMQ broker and after a crash. Raises OSError."""
    save(files, root, checkpoint)
    path = f"{root}/config/{FILE_NAME}"
    files.write(path, _stepped(checkpoint, precision_ms, stepped), _STEPPED_AT)
    files.sync(path)


def load_stepped(
    files: Files, root: str, checkpoint: TimerCheckpoint, precision_ms: int
) -> SteppedClock | None:
    """The stepped clock of the file; None if it has none, or if the checkpoint or the precision
    changed since. Raises OSError."""
    path = f"{root}/config/{FILE_NAME}"
    data = files.read(path)[_STEPPED_AT:] if files.exists(path) else b""
    if len(data) < _STEPPED.size:
        return None
    magic, _precision, cursor, log_end, queue_offset, count = _STEPPED.unpack_from(data)
    if magic != _STEPPED_MAGIC or not 0 < count <= FLOORS_MAX:
        return None
    floors = tuple(_FLOOR.iter_unpack(data[_STEPPED.size : _STEPPED.size + count * _FLOOR.size]))
    found = SteppedClock(cursor, log_end, QueueOffset(queue_offset), floors)
    wanted = _stepped(checkpoint, precision_ms, found)
    return found if data[: len(wanted)] == wanted else None


def _stepped(checkpoint: TimerCheckpoint, precision_ms: int, stepped: SteppedClock) -> bytes:
    cursor, log_end, queue_offset, floors = stepped
    numbers = precision_ms, cursor, log_end, queue_offset, len(floors)
    body = _STEPPED.pack(_STEPPED_MAGIC, *numbers) + b"".join(_FLOOR.pack(*one) for one in floors)
    return body + crc32(checkpoint.encode() + body).to_bytes(4, "big")
