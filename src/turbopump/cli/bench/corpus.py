"""Bodies to send again: from an mmap-ninja dataset or from Parquet, with one interface.

Owns the reading of both. It must never hold a corpus in memory: a dataset is mapped in place, and
Parquet's bodies are first unpacked into a temporary file. csrc/load.c sends them.
"""

import mmap
import os
import struct
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import IO, Any

from turbopump.cli.errors import UserError

BATCH_ROWS = 1024  # rows of Parquet read at once: a batch of the largest bodies stays below 4 GiB
COLUMN = "body"
"""Name of the column of bodies."""
BYTE_TYPES = {"uint8", "int8", "bytes8", "S1"}
"""Names of numpy's types of a dataset's bytes."""


@dataclass(frozen=True)
class Corpus:
    """Bodies of a dataset, mapped: body n is data[starts[n]:ends[n]]; `starts` and `ends` are of
    int64. There is at least one body."""

    path: Path
    data: memoryview
    starts: memoryview
    ends: memoryview
    size_max: int
    """Bytes of the largest body."""

    def __len__(self) -> int:
        return len(self.starts)


def open_corpus(path: Path) -> Corpus:
    """Open a dataset of `turbopump analyze export`, any RaggedMmap of bytes, or a Parquet file or
    folder with a column `body`. Raises UserError, OSError."""
    if sys.byteorder != "little":
        raise UserError("datasets are little-endian, and this machine is not")
    for folder in (path / COLUMN, path):
        if (folder / "type.ninja").is_file():
            return _checked_corpus(path, *_map_dataset(folder))
    files = _parquet_files(path)
    if not files:
        raise UserError(f"{path} is neither an mmap-ninja dataset nor Parquet")
    return _checked_corpus(path, *_map_bodies(files))


def _checked_corpus(path: Path, data: memoryview, starts: memoryview, ends: memoryview) -> Corpus:
    """A corpus of the dataset at `path`; raises UserError if it has no body, or a body reaches out
    of `data`."""
    if not len(starts) or len(starts) != len(ends):
        raise UserError(f"{path} has no bodies")
    if min(starts) < 0 or min(map(sub, ends, starts)) < 0 or max(ends) > len(data):
        raise UserError(f"{path} is damaged: a body reaches out of its data")
    return Corpus(path, data, starts, ends, max(map(sub, ends, starts)))


def _map_dataset(folder: Path) -> tuple[memoryview, memoryview, memoryview]:
    """Map a RaggedMmap of bytes: (data, starts, ends) of its bodies. Raises UserError."""
    try:
        from mmap_ninja import RaggedMmap
    except ImportError:
        raise UserError("--replay of a dataset needs mmap-ninja: pip install mmap-ninja") from None
    kind = (folder / "type.ninja").read_text()
    if kind != "ragged":
        raise UserError(f"{folder} holds a column of {kind}s, not bodies")
    try:
        opened = RaggedMmap(folder)
    except (OSError, ValueError, TypeError, struct.error) as error:
        raise UserError(f"{folder} is damaged or cut short: {error}") from None
    columns = opened.memmap, opened.starts, opened.ends
    if any(one is None or one.ndim != 1 for one in columns):
        raise UserError(f"{folder} is no list of bodies")
    data, starts, ends = columns
    if data.dtype.name not in BYTE_TYPES or {starts.dtype.name, ends.dtype.name} != {"int64"}:
        raise UserError(f"{folder} is a RaggedMmap of {data.dtype.name}, not of bytes")
    with (folder / "data.ninja").open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
    return memoryview(data).cast("B"), memoryview(starts), memoryview(ends)


def _map_file(file: IO[bytes]) -> memoryview:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mapped.madvise(mmap.MADV_WILLNEED)
    return memoryview(mapped)


def _parquet_files(path: Path) -> list[Path]:
    """The Parquet files at `path`, a file or folder, sorted; [] if there are none."""
    if path.is_dir():
        found = path.rglob("*.parquet")
        return sorted(file for file in found if not file.name.startswith((".", "_")))
    return [path] if path.suffix == ".parquet" and path.is_file() else []


def _map_bodies(files: list[Path]) -> tuple[memoryview, memoryview, memoryview]:
    """Copy the bodies of Parquet files into a temporary file, and map it: (data, starts, ends)."""
    places = array("q", [0])
    with tempfile.TemporaryFile(prefix="turbopump-replay-") as data, tempfile.TemporaryFile() as at:
        end = 0
        for bodies in _read_parquet(files):
            for body in bodies:
                end += data.write(body)
                places.append(end)
            at.write(places[:-1])
            places = places[-1:]
        at.write(places)
        if not end:
            return memoryview(b""), memoryview(b"").cast("q"), memoryview(b"").cast("q")
        data.flush()
        at.flush()
        offsets = _map_file(at).cast("q")
        return _map_file(data), offsets[:-1], offsets[1:]


def _bytes_types(types: Any) -> tuple[Callable[[Any], bool], ...]:
    """Arrow's tests for column types that consist of bytes."""
    return (
        *(types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
        *(types.is_string, types.is_large_string),
    )


def _read_parquet(files: list[Path]) -> Iterator[list[Any]]:
    """Yield the bodies of Parquet files, in batches, without nulls. Raises UserError for a file
    without a column of bytes named `body`."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError("--replay of Parquet needs pyarrow: pip install 'pyarrow>=18'") from None
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                if COLUMN not in file.schema_arrow.names:
                    raise UserError(f"{path} has no column {COLUMN}")
                kind = file.schema_arrow.field(COLUMN).type
                if not any(is_kind(kind) for is_kind in _bytes_types(pa.types)):
                    raise UserError(f"{path} has a column {COLUMN} of {kind}, not of bytes")
                for batch in file.iter_batches(BATCH_ROWS, columns=[COLUMN]):
                    yield [
                        memoryview(value.as_buffer()) for value in batch.column(0) if value.is_valid
                    ]
        except pa.ArrowInvalid as error:
            raise UserError(f"{path} is no Parquet: {error}") from None
