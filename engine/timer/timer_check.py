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

from turbopump.engine.disk.files import Files, sync_parent_folders
from turbopump.engine.types import QueueOffset
from turbopump.pyx.crc32 import crc32

FILE_NAME: Final = "timercheck"
"""Name of the file in the folder config of the store."""
SIZE: Final = 4096
"""Bytes of the file."""
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
"""Maximum number of floors of a SteppedClock."""
_MAGIC: Final = 0x5475_7262_6F70_0002


class TimerCheckpoint(NamedTuple):
    """Content of the file. Timers whose queue offset is below `master_queue_offset` and whose slot
    is before `read_ms` were delivered; units before `log_position` belong to the messages before
    `queue_offset`."""

    read_ms: int = 0
    """Epoch ms."""
    log_position: int = 0
    """Byte of the timer log."""
    queue_offset: QueueOffset = QueueOffset(0)
    """Queue offset in TIMER_TOPIC."""
    master_queue_offset: QueueOffset = QueueOffset(0)
    """Queue offset in TIMER_TOPIC."""
    state_version: int = 0
    """First of the three numbers of RocketMQ's DataVersion; 0 in a file of an older broker."""
    timestamp_ms: int = 0
    """The second, in epoch ms."""
    counter: int = 0
    """The third, which grows with each change."""

    def encode(self) -> bytes:
        """RocketMQ's numbers as 56 bytes: the beginning of the file, and the response body."""
        return _NUMBERS.pack(*self)


def decode(data: bytes | bytearray | memoryview) -> TimerCheckpoint:
    """Parse the file's bytes or a response body; bytes after the first 56 are ignored. Raises
    ValueError if they are not a checkpoint."""
    if len(data) < _OLD_SIZE:
        raise ValueError(f"{len(data)} bytes are not a checkpoint of timers")
    padded = bytes(data[: _NUMBERS.size]).ljust(_NUMBERS.size, b"\0")
    read_ms, position, queued, master, *version = _NUMBERS.unpack(padded)
    if min(read_ms, position, queued, master, *version) < 0:
        raise ValueError("a negative number in a checkpoint of timers")
    return TimerCheckpoint(read_ms, position, QueueOffset(queued), QueueOffset(master), *version)


def load(files: Files, root: str, precision_ms: int) -> tuple[TimerCheckpoint, bool]:
    """(the checkpoint of the store in the folder `root`, whether the wheel is whole: it was saved
    so with this precision, and no broker has changed the file since); a checkpoint of zeros and
    False if the file is missing or damaged. Raises OSError."""
    path = f"{root}/config/{FILE_NAME}"
    if not files.exists(path):
        return TimerCheckpoint(), False
    data = files.read(path)
    try:
        found = decode(data)
    except ValueError:
        return TimerCheckpoint(), False
    return found, data[_OURS_AT : _OURS_AT + _OURS.size] == _whole_mark(found, precision_ms)


def save(files: Files, root: str, checkpoint: TimerCheckpoint, whole_ms: int = 0) -> None:
    """Write the file of the store in the folder `root`, durably on return. `whole_ms`: the
    precision in ms marks the wheel as whole, 0 removes that mark; a stepped clock is removed.
    Raises OSError."""
    folder = f"{root}/config"
    path = f"{folder}/{FILE_NAME}"
    is_new = not files.exists(path)
    if is_new:
        files.make_folders(folder)
    ours = _whole_mark(checkpoint, whole_ms) if whole_ms else b""
    page = (checkpoint.encode().ljust(_OURS_AT, b"\0") + ours).ljust(SIZE, b"\0")
    files.write(path, page, 0)
    files.sync(path)
    if is_new:
        sync_parent_folders(files, path)


def _whole_mark(checkpoint: TimerCheckpoint, precision_ms: int) -> bytes:
    """The bytes that mark the wheel as whole with this checkpoint and precision."""
    return _OURS.pack(_MAGIC, precision_ms, crc32(checkpoint.encode()))


class SteppedClock(NamedTuple):
    """Progress at a clean stop while the clock showed less than an earlier time. A tick is epoch ms
    divided by the precision."""

    cursor: int
    """Tick before which all slots were delivered."""
    log_end: int
    """Position of the timer log before which all messages before `queue_offset` have their
    unit."""
    queue_offset: QueueOffset
    """Queue offset in TIMER_TOPIC."""
    floors: tuple[tuple[int, int], ...]
    """(tick, position): in slots before the tick, units before the position were delivered, too."""


def save_stepped(
    files: Files, root: str, checkpoint: TimerCheckpoint, precision_ms: int, stepped: SteppedClock
) -> None:
    """Write the file with a stepped clock, durably on return; `checkpoint` is the checkpoint for a
    RocketMQ broker and after a crash. Raises OSError."""
    save(files, root, checkpoint)
    path = f"{root}/config/{FILE_NAME}"
    files.write(path, _stepped_bytes(checkpoint, precision_ms, stepped), _STEPPED_AT)
    files.sync(path)


def load_stepped(
    files: Files, root: str, checkpoint: TimerCheckpoint, precision_ms: int
) -> SteppedClock | None:
    """The stepped clock of the file of the store in the folder `root`; None if it has none, or if
    it was not written with this checkpoint and precision. Raises OSError."""
    path = f"{root}/config/{FILE_NAME}"
    data = files.read(path)[_STEPPED_AT:] if files.exists(path) else b""
    if len(data) < _STEPPED.size:
        return None
    magic, _precision, cursor, log_end, queue_offset, count = _STEPPED.unpack_from(data)
    if magic != _STEPPED_MAGIC or not 0 < count <= FLOORS_MAX:
        return None
    floors = tuple(_FLOOR.iter_unpack(data[_STEPPED.size : _STEPPED.size + count * _FLOOR.size]))
    found = SteppedClock(cursor, log_end, QueueOffset(queue_offset), floors)
    wanted = _stepped_bytes(checkpoint, precision_ms, found)
    return found if data[: len(wanted)] == wanted else None


def _stepped_bytes(checkpoint: TimerCheckpoint, precision_ms: int, stepped: SteppedClock) -> bytes:
    """The bytes of a stepped clock, with a checksum over them and the checkpoint."""
    cursor, log_end, queue_offset, floors = stepped
    numbers = precision_ms, cursor, log_end, queue_offset, len(floors)
    body = _STEPPED.pack(_STEPPED_MAGIC, *numbers) + b"".join(_FLOOR.pack(*one) for one in floors)
    return body + crc32(checkpoint.encode() + body).to_bytes(4, "big")
