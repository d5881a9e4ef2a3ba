"""Bytes of another log on their way into this one.

Owns the received part of an incomplete record, and the way bytes get into a file so that a killed
process leaves no part of a record that looks whole. It must never decide where a log is cut, nor
keep more than one record.

A transfer ends anywhere. If an incomplete record were written, zeros would follow it, and no CRC
distinguishes that from a text that ends in zeros. So an incomplete record waits here, in memory.
After a restart the sender sends it again.

Tests: tests/unit/engine/replicated/test_crash.py, tests/unit/engine/test_replicated.py
"""

from turbopump.engine.disk.files import MappedFile
from turbopump.engine.types import Buffer
from turbopump.pyx import record as kernel
from turbopump.pyx.walk import whole_size

HELD_MAX = 8 << 20
"""Maximum bytes of an incomplete record that wait in memory: twice the largest message that
RocketMQ takes by default. The received part of a larger record is written, and recovery then checks
its texts for zeros. The limit is less than the bytes a master sends unacknowledged (32 MiB),
because under SYNC_FLUSH the bytes that wait here are not acknowledged."""
WRITE_MIN = 16 << 10
"""Writes of at least this number of bytes go to the file, not through its mapping: a page that is
overwritten whole needs no zeroing first, which is most of the cost of a store into a new page."""
HEAD_SIZE = 8
"""Bytes of a record's total size and magic: without them no record begins. One store instruction of
the processor."""


class ReceivedBytes:
    """Bytes received from another log that are not written to this log yet."""

    def __init__(self) -> None:
        self.is_aligned = True
        """Whether the log consists of whole records. Set to False by `take_writable` for bytes that
        are no record, or a record over HELD_MAX: all later bytes are then written as they come."""
        self.blocked = False
        """Whether bytes wait for the next file, after `put_back_unwritten`."""
        self._held = b""

    @property
    def size(self) -> int:
        """Number of bytes that wait for the rest of their record, or for a file."""
        return len(self._held)

    def drop_waiting(self, *, is_aligned: bool) -> None:
        """Drop the waiting bytes, which the sender repeats if they are needed. `is_aligned`: the
        log ends at the end of a record."""
        self._held, self.blocked = b"", False
        self.is_aligned = is_aligned

    def put_back_unwritten(self, pieces: list[memoryview]) -> None:
        """Put pieces of the last `take_writable`, for which there is no file yet, before the bytes
        that already wait; the next `take_writable` returns them again. [] clears `blocked`."""
        self._held, self.blocked = b"".join([*pieces, self._held]), bool(pieces)

    def take_writable(self, pieces: list[Buffer], room: int, file_size: int) -> list[memoryview]:
        """Take the bytes to write now from the waiting bytes followed by `pieces`: whole records,
        or all bytes if not `is_aligned`. The rest waits here. The log's current file of `file_size`
        bytes has `room` bytes left."""
        if self._held:
            pieces = [self._held, *pieces]
            self._held = b""
        views = [view for piece in pieces if (view := memoryview(piece))]
        if not self.is_aligned:
            return views
        status, size = whole_size(views, room, file_size)
        if status == kernel.OK:
            return views
        whole, rest = split_at(views, size)
        if status != kernel.SHORT or sum(map(len, rest)) > HELD_MAX:
            self.is_aligned = False
            return views
        self._held = b"".join(rest)
        return whole


def write(mapped: MappedFile, position: int, pieces: list[memoryview], size: int) -> None:
    """Write `pieces`, `size` bytes in all, at byte `position` of a file that has zeros there; not
    durable yet. The first HEAD_SIZE bytes are written last, in one store: a process killed before
    leaves zeros there, where no record begins and each walk ends."""
    head, rest = split_at(pieces, min(HEAD_SIZE, size))
    at = position + HEAD_SIZE
    if size >= WRITE_MIN:
        mapped.write(at, rest)
    else:
        for piece in rest:
            mapped.region.write(at, piece)
            at += len(piece)
    mapped.region.write(position, b"".join(head))


def split_at(pieces: list[memoryview], size: int) -> tuple[list[memoryview], list[memoryview]]:
    """Split consecutive pieces without a copy: (views of the first `size` bytes, views of the
    rest). The pieces must have at least `size` bytes."""
    for number, piece in enumerate(pieces):
        if size < len(piece):
            head = [piece[:size]] if size else []
            return [*pieces[:number], *head], [piece[size:], *pieces[number + 1 :]]
        size -= len(piece)
    assert size == 0, "not as many bytes"
    return pieces, []
