"""Writes datasets of mmap-ninja as a stream: numbers, ragged bytes and strings, batch by batch.

Owns how columns of Arrow batches become arrays of `mmap_ninja`, which makes and extends every array
here (`from_ndarray`, `extend_dir`) and whose readers open the result. This module must never hold
more than the current batch and one buffer per column.

Two classes of mmap_ninja are not used but composed of their arrays here: RaggedMmap and StringsMmap
take a Python list of rows, and each extension reloads and renumbers all existing rows, which a
whole topic allows neither in time nor in memory. Bodies and texts are written straight to their
file, because `extend_dir` copies them twice (3.5 us of CPU per body of 1 KB instead of 0.45). The
files equal mmap_ninja's to the byte (test_ninja.py of the unit tests).

A folder of numbers is an array with its type and shape beside it. Ragged adds `starts`, `ends`,
`shapes` and `flattened_shapes`, folders of int64, and `shapes_are_flat.ninja`; strings are UTF-8
between their `starts` and `ends`.
"""

import struct
from pathlib import Path

import mmap_ninja.numpy as arrays
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
"""An array of numbers of any type."""
Bytes = npt.NDArray[np.uint8]
"""Bytes of rows, one row after another."""
Offsets = npt.NDArray[np.int64]
"""Positions of rows in Bytes: one more than there are rows, as in Arrow."""

WRITE_BUFFER = 1 << 20
"""Bytes of a column that are buffered before the array is extended, which costs 0.1 ms."""


class Numbers:
    """A column with one number per row, in a new folder; `width` > 0: an array of that many columns
    instead. Its methods raise OSError."""

    def __init__(self, folder: Path, dtype: str, *, width: int = 0) -> None:
        folder.mkdir(parents=True)
        self._folder, self._dtype, self._width = folder, np.dtype(dtype), width
        self._held = np.empty(WRITE_BUFFER // self._dtype.itemsize, self._dtype)
        self._held_rows = 0
        self._has_begun = False
        self.rows = 0

    def append(self, values: Array) -> None:
        """Add rows, of a type that converts without loss (else TypeError); they may stay in memory
        until `finish`."""
        if not len(values):
            return
        rows = values.astype(self._dtype, casting="safe", copy=False)
        self.rows += len(rows)
        if self._held_rows + len(rows) > len(self._held):
            self._write_buffered()
        if len(rows) > len(self._held):
            self._write_rows(rows)
        else:
            self._held[self._held_rows : self._held_rows + len(rows)] = rows
            self._held_rows += len(rows)

    def finish(self) -> None:
        """Write the buffered rows; nothing may be added afterwards."""
        if self._held_rows or not self._has_begun:
            self._write_buffered()

    def close(self) -> None:
        """Discard the buffered rows; without effect after `finish`."""
        self._held_rows = 0

    def _write_buffered(self) -> None:
        """Write the buffered rows."""
        self._write_rows(self._held[: self._held_rows])
        self._held_rows = 0

    def _write_rows(self, rows: Array) -> None:
        """Write rows to the folder's array, which the first rows make."""
        shaped = rows.reshape(-1, self._width) if self._width else rows
        if self._has_begun:
            arrays.extend_dir(self._folder, shaped)
        elif len(shaped) or not self.rows:
            arrays.from_ndarray(self._folder, shaped)
            self._has_begun = True


class _Data:
    """A file `data.ninja` of bytes, written by appending."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "data.ninja").open("wb", buffering=WRITE_BUFFER)
        self.size = 0

    def append(self, offsets: Offsets, data: Bytes) -> None:
        """Append data[offsets[0]:offsets[-1]]."""
        if len(data):
            self.size += self._file.write(data[offsets[0] : offsets[-1]].data)

    def finish(self) -> None:
        """Complete the file.

        An empty file could not be mapped, so it gets one byte, which no row counts.
        """
        if not self.size:
            self._file.write(b"\0")
        self._file.close()

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()


class Ragged:
    """A column with bytes of any length per row, in a new folder: a RaggedMmap of uint8. Its
    methods raise OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        arrays.from_ndarray(folder, np.empty(0, np.uint8))
        self._data = _Data(folder)
        self._places = _Places(folder)
        self._lengths = Numbers(folder / "flattened_shapes", "int64")
        self._shapes = Numbers(folder / "shapes", "int64", width=1)

    def append(self, offsets: Offsets, data: Bytes) -> None:
        """Add rows: row n is data[offsets[n]:offsets[n + 1]], as in an Arrow array."""
        lengths = np.diff(offsets)
        self._lengths.append(lengths)
        self._shapes.append(lengths)
        self._places.append(offsets, self._data.size)
        self._data.append(offsets, data)

    def finish(self) -> None:
        """Write all buffers and the folder's small files; nothing may be added afterwards."""
        for part in (self._data, self._places, self._lengths, self._shapes):
            part.finish()
        (self._folder / "shape.ninja").write_bytes(struct.pack("<Q", self._data.size))
        (self._folder / "shapes_are_flat.ninja").write_bytes(struct.pack("<i", 1))
        (self._folder / "type.ninja").write_text("ragged")

    def close(self) -> None:
        """Close the files, finished or not."""
        for part in (self._data, self._places, self._lengths, self._shapes):
            part.close()


class Strings:
    """A column with a text per row, in a new folder: a StringsMmap. Its methods raise OSError."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._data = _Data(folder)
        self._places = _Places(folder)

    def append(self, offsets: Offsets, data: Bytes) -> None:
        """Add rows of UTF-8 text: row n is data[offsets[n]:offsets[n + 1]]."""
        self._places.append(offsets, self._data.size)
        self._data.append(offsets, data)

    def finish(self) -> None:
        """Write all buffers and the folder's small files; nothing may be added afterwards."""
        self._places.finish()
        self._data.finish()
        (self._folder / "type.ninja").write_text("string")

    def close(self) -> None:
        """Close the files, finished or not."""
        self._data.close()
        self._places.close()


class _Places:
    """The starts and the ends of rows that are stored one after another."""

    def __init__(self, folder: Path) -> None:
        self._starts = Numbers(folder / "starts", "int64")
        self._ends = Numbers(folder / "ends", "int64")

    def append(self, offsets: Offsets, base: int) -> None:
        """Add the places of rows: row n is [offsets[n], offsets[n + 1]), moved so that the first
        begins at `base`."""
        moved = offsets + (base - offsets[0])
        self._starts.append(moved[:-1])
        self._ends.append(moved[1:])

    def finish(self) -> None:
        """Write the buffered places; nothing may be added afterwards."""
        self._starts.finish()
        self._ends.finish()

    def close(self) -> None:
        """Discard the buffered places; without effect after `finish`."""
        self._starts.close()
        self._ends.close()
