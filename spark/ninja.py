"""Datasets of mmap-ninja written as a stream: numbers, ragged bytes and strings, batch after batch.

Owns the files as `mmap_ninja` 0.9 reads them (its from_lists and from_strings make the same bytes;
its from_generator reloads everything it has written after each batch, which neither time nor memory
of a whole topic allow). It must never hold more than the batch it is given. Called by export.py.

A folder of numbers is `data.ninja` (the array), `dtype.ninja`, `shape.ninja` (little-endian uint64
a dimension), `order.ninja` and `type.ninja`. Ragged adds `starts`, `ends`, `shapes` and
`flattened_shapes`, folders of int64, and `shapes_are_flat.ninja`; strings are UTF-8 between their
`starts` and `ends`. No file is empty, for nothing can map one: then it has a byte that no shape
counts.
"""

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

WRITE_BUFFER = 1 << 20  # of each data file: a batch's small columns go out in one write


class _Data:
    """One `data.ninja`, appended to."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._file = (folder / "data.ninja").open("wb", buffering=WRITE_BUFFER)
        self.size = 0

    def append(self, values: Array) -> None:
        self.size += self._file.write(np.ascontiguousarray(values).data.cast("B"))

    def finish(self) -> None:
        if not self.size:
            self._file.write(b"\0")
        self._file.close()

    def close(self) -> None:
        self._file.close()


class Numbers:
    """One number a row."""

    def __init__(self, folder: Path, dtype: str, *, width: int = 0) -> None:
        self._folder, self._dtype, self._width = folder, np.dtype(dtype), width
        self._data = _Data(folder)

    def append(self, values: Array) -> None:
        """More rows, of a type that fits without loss."""
        if len(values):
            self._data.append(values.astype(self._dtype, casting="safe", copy=False))

    def finish(self) -> None:
        """Complete the folder."""
        rows = self._data.size // self._dtype.itemsize
        self._data.finish()
        _describe(self._folder, self._dtype, (rows, self._width) if self._width else (rows,))

    def close(self) -> None:
        """Let go of the file, finished or not."""
        self._data.close()


class Ragged:
    """Bytes of any length a row: a RaggedMmap of uint8."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = _Data(folder)
        self._places = _Places(folder)
        self._lengths = Numbers(folder / "flattened_shapes", "int64")
        self._shapes = Numbers(folder / "shapes", "int64", width=1)

    def append(self, offsets: Offsets, data: Bytes) -> None:
        """More rows: row n is data[offsets[n]:offsets[n + 1]], as in an Arrow array."""
        lengths = np.diff(offsets)
        self._lengths.append(lengths)
        self._shapes.append(lengths)
        self._places.append(offsets, self._data.size)
        if len(data):
            self._data.append(data[offsets[0] : offsets[-1]])

    def finish(self) -> None:
        """Complete the folder."""
        for part in (self._places, self._lengths, self._shapes):
            part.finish()
        size = self._data.size
        self._data.finish()
        _describe(self._folder, np.dtype(np.uint8), (size,))
        (self._folder / "shapes_are_flat.ninja").write_bytes(struct.pack("<i", 1))
        (self._folder / "type.ninja").write_text("ragged")

    def close(self) -> None:
        """Let go of the files, finished or not."""
        for part in (self._data, self._places, self._lengths, self._shapes):
            part.close()


class Strings:
    """A text a row: a StringsMmap."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = _Data(folder)
        self._places = _Places(folder)

    def append(self, offsets: Offsets, data: Bytes) -> None:
        """More rows, as Ragged takes them; UTF-8."""
        self._places.append(offsets, self._data.size)
        if len(data):
            self._data.append(data[offsets[0] : offsets[-1]])

    def finish(self) -> None:
        """Complete the folder."""
        self._places.finish()
        self._data.finish()
        (self._folder / "type.ninja").write_text("string")

    def close(self) -> None:
        """Let go of the files, finished or not."""
        self._data.close()
        self._places.close()


class _Places:
    """The starts and the ends of what lies behind each other."""

    def __init__(self, folder: Path) -> None:
        self._starts = Numbers(folder / "starts", "int64")
        self._ends = Numbers(folder / "ends", "int64")

    def append(self, offsets: Offsets, base: int) -> None:
        moved = offsets + (base - offsets[0])
        self._starts.append(moved[:-1])
        self._ends.append(moved[1:])

    def finish(self) -> None:
        self._starts.finish()
        self._ends.finish()

    def close(self) -> None:
        self._starts.close()
        self._ends.close()


def _describe(folder: Path, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    (folder / "type.ninja").write_text("numpy")
    (folder / "dtype.ninja").write_text(dtype.name)
    (folder / "shape.ninja").write_bytes(struct.pack(f"<{len(shape)}Q", *shape))
    (folder / "order.ninja").write_text("C")
