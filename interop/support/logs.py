"""A broker's commit log in its files, of either kind of broker."""

import mmap
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

BLANK = 0xCBD43194
RECORDS = (0xDAA320A7, 0xDAA320AB)
PIECE = 16 << 20


def log_end(store: Path, file_size: int) -> int:
    """Return the log offset after the last whole record, found by walking from record to record."""
    end = 0
    for number, file in enumerate(files(store)):
        assert int(file.name) == number * file_size, f"{file} is not where a log goes on"
        end, is_full = _walk(file, int(file.name))
        if not is_full:
            break
    return end


def files(store: Path) -> list[Path]:
    """Return the log's files in order."""
    folder = store / "commitlog"
    return sorted(folder.iterdir()) if folder.exists() else []


def _walk(file: Path, begin: int) -> tuple[int, bool]:
    """Return the end of a file's records, and whether the log continues in the next file."""
    file_size, at = file.stat().st_size, 0
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as data:
        while at + 8 <= file_size:
            size, magic = struct.unpack_from(">II", data, at)
            if magic == BLANK:
                return begin + file_size, True
            if magic not in RECORDS or at + size > file_size:
                break
            at += size
    return begin + at, at == file_size


def difference(one: Path, other: Path, end: int) -> int | None:
    """Return the first log offset below `end` at which two logs differ."""
    at = 0
    for mine, theirs in zip(_pieces(one, end), _pieces(other, end), strict=True):
        if mine != theirs:
            return at + next(
                n for n, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1]
            )
        at += len(mine)
    assert at == end, f"the logs are there up to {at} only, of {end}"
    return None


def _pieces(store: Path, end: int) -> Iterator[bytes]:
    left = end
    with ExitStack() as stack:
        for file in files(store):
            opened = stack.enter_context(file.open("rb"))
            while left and (piece := opened.read(min(PIECE, left))):
                left -= len(piece)
                yield piece
