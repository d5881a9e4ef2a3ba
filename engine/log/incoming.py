"""Bytes of another log on their way into this one.

Owns what came of a record that is not whole yet, and how bytes get into a file so that a killed
process leaves no part of a record that looks like one. It must never decide where a log is cut, nor
keep more than a record. Called by `replicated` and the commit log.

A transfer ends anywhere. A record whose end lacks would be written with zeros behind it, and no
CRC tells that from a text which ends in zeros: so what is not whole waits here, in memory. Who
sent it sends it again after a restart.
"""

from turbopump.engine.disk.files import MappedFile
from turbopump.engine.types import Buffer
from turbopump.pyx import record as kernel
from turbopump.pyx.walk import whole_size

# The largest message RocketMQ takes by default, twice. Of a larger record what came is written, and
# after a crash its texts are looked at for zeros. Less than a master sends unacknowledged (32 MiB):
# under SYNC_FLUSH what waits here is not acknowledged.
HELD_MAX = 8 << 20
# Bytes from here on are written to the file, not through its mapping: a page that is overwritten
# whole needs no zeros first, which is most of what a store into a new one costs.
WRITE_MIN = 16 << 10
# Total size and magic: without them there is no record. One store of the processor.
HEAD_SIZE = 8


class Incoming:
    """What was taken and not yet written."""

    def __init__(self) -> None:
        self.sure = True
        """Whether the log so far is whole records; if not, all that comes is written."""
        self.blocked = False
        """Whether there is no file yet for what waits."""
        self._held = b""

    @property
    def size(self) -> int:
        """Bytes that wait for the rest of their record, or for a file."""
        return len(self._held)

    def forget(self, *, sure: bool) -> None:
        """What waits comes again, or never; `sure`: where the log ends a record ends."""
        self._held, self.blocked = b"", False
        self.sure = sure

    def put_back(self, pieces: list[memoryview]) -> None:
        """There is no file yet for what was taken last: it waits, before the rest of what came."""
        self._held, self.blocked = b"".join([*pieces, self._held]), bool(pieces)

    def take(self, pieces: list[Buffer], room: int, file_size: int) -> list[memoryview]:
        """What can be written now, of what waited and of `pieces` behind it: whole records, or all
        there is once not `sure`. `room` bytes are left of a file of `file_size`."""
        if self._held:
            pieces = [self._held, *pieces]
            self._held = b""
        views = [view for piece in pieces if (view := memoryview(piece))]
        if not self.sure:
            return views
        status, size = whole_size(views, room, file_size)
        if status == kernel.OK:
            return views
        whole, rest = split_at(views, size)
        if status != kernel.SHORT or sum(map(len, rest)) > HELD_MAX:
            self.sure = False
            return views
        self._held = b"".join(rest)
        return whole


def write(mapped: MappedFile, position: int, pieces: list[memoryview], size: int) -> None:
    """Write records, or any bytes, to where zeros are. The first bytes come last, at once: a
    process killed before leaves zeros there, which begin no record and end each walk."""
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
    """The first `size` bytes of pieces that follow each other, and the rest."""
    for number, piece in enumerate(pieces):
        if size < len(piece):
            head = [piece[:size]] if size else []
            return [*pieces[:number], *head], [piece[size:], *pieces[number + 1 :]]
        size -= len(piece)
    assert size == 0, "not as many bytes"
    return pieces, []
