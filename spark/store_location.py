"""Access to a store's files: in a folder of this machine, or in a file system of pyarrow.

Owns the difference between the two, and no knowledge of the files' contents. It must never write.

A location with a scheme (s3://, gs://, hdfs://) is opened by pyarrow's file systems, with the
credentials that these find for themselves. Any other location, and file://, is a path of this
machine.
"""

import re
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from turbopump.engine.snapshot.log_table import LogBytes
from turbopump.pyx.region import Region

STEP_BYTES = 8 << 20
"""Bytes per read of a remote file: transferring them takes about 100 times the latency of a
request to an object store, and they need little of a worker's memory."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class _Pieces:
    """A file that is read in pieces; see LogBytes."""

    def __init__(self, path: str, file: pa.NativeFile) -> None:
        self.size: int = file.size()
        self.step = STEP_BYTES
        self._path = path
        self._file = file

    def region(self, start: int, end: int) -> Region:
        """Return the bytes [start, end) of the file; raises OSError if they cannot be read."""
        data = self._file.read_at(end - start, start)
        if len(data) != end - start:
            raise OSError(f"{self._path}: bytes from {start + len(data)} to {end} cannot be read")
        return Region(data)

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """A file system of pyarrow as the engine's LogOpener."""

    system: fs.FileSystem

    def list_files(self, folder: str) -> list[tuple[str, int]]:
        """Return (name, size in bytes) of the files directly in a folder, sorted by name; [] for a
        missing folder."""
        found = self.system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return sorted((info.base_name, info.size) for info in found if info.is_file)

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises FileNotFoundError."""
        with self._open(path) as file:
            return bytes(file.read())

    def open(self, path: str) -> LogBytes:
        """Open a file for reads of STEP_BYTES; the caller closes it. Raises FileNotFoundError."""
        return _Pieces(path, self._open(path))

    def _open(self, path: str) -> pa.NativeFile:
        """Open a file of the file system; raises FileNotFoundError."""
        if not self.system.get_file_info(path).is_file:  # their own errors differ
            raise FileNotFoundError(path)
        return self.system.open_input_file(path)


def split_location(location: str) -> tuple[str, StoreFolder | None]:
    """Return (path, file system) of a location; the file system is None for this machine's.

    Nothing is opened yet. Raises OSError or ValueError (pyarrow's) for a URI that it cannot use.
    """
    if not _SCHEME.match(location):
        return location, None
    system, path = fs.FileSystem.from_uri(location.rstrip("/"))
    return path, None if isinstance(system, fs.LocalFileSystem) else StoreFolder(system)
