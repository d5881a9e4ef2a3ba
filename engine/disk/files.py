"""The engine's access to disks: the `Files` protocol.

Owns the promises of mapping, creation, preallocation, atomic replacement and the lock of a folder.
It must never know a file's meaning, nor touch a file: real_files.py does, and a simulated disk that
implements the same protocol. All paths are absolute or relative texts with "/" between the parts.
Every method raises OSError.

Tests: tests/unit/engine/disk/test_real_files.py, tests/unit/sim/test_disk.py
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from turbopump.engine.types import Buffer
from turbopump.pyx.region import Region


class MappedFile(Protocol):
    """A file mapped whole, for reading and (unless opened read-only) writing. Positions are bytes
    from the beginning of the file."""

    path: str
    """The path with which it was opened."""
    size: int
    """Bytes of the file, which do not change."""
    region: Region
    """The memory of the whole file; stores into it are not durable before `sync`."""

    def reserve(self, start: int, end: int) -> None:
        """Give the bytes [start, end) real blocks on the disk, so that storing into them cannot
        fail; their content stays."""

    def write(self, position: int, pieces: Sequence[Buffer]) -> None:
        """Store the pieces one after the other at `position`, with the result of stores through
        `region`; not durable before `sync`. Suits whole pages: pages that are not in memory need
        not be zeroed first. A process killed meanwhile may have written any part."""

    def sync(self, start: int, end: int) -> None:
        """Block until the bytes [start, end) are durable."""

    def mark_dirty(self, start: int, end: int) -> None:
        """Let the next sync write [start, end) even if the system takes these bytes for clean, as
        it does after a failed sync. For a file just opened."""

    def expect_random(self, start: int = 0) -> None:
        """Advise that the file is used at random places from `start`: a missing page is loaded
        alone and written alone. Otherwise the kernel zeroes megabytes of a file around the first
        store, in pages joined to blocks that a sync then writes as a whole."""

    def expect_scans(self) -> None:
        """Withdraw the advice of `expect_random`: the pages after a page are likely to be read
        next. For a file that is full."""

    def data_ranges(self, start: int) -> list[tuple[int, int]]:
        """Ascending ranges (start, end) at `start` or later that may hold other bytes than zeros:
        all but the holes of a sparse file, which reading through the mapping would fill with
        blocks."""

    def close(self) -> None:
        """Unmap without a sync; views that were handed out stay valid as long as they are
        referenced."""


class FileLock(Protocol):
    """A lock on a file and its folder, held by this process until `release`."""

    def release(self) -> None:
        """Release the lock, so that another process can take it."""


class Files(Protocol):
    """A file system as the engine needs it. All methods wait for the disk; changes of names and
    contents are durable only after the sync that the method's text names."""

    def list_folder(self, path: str) -> list[str]:
        """Names of the files and folders in a folder, sorted; empty if the folder does not exist or
        is a file."""

    def list_files(self, path: str) -> list[tuple[str, int]]:
        """(name, size in bytes) of each file in a folder, sorted by name, without its folders;
        empty if the folder does not exist or is a file."""

    def exists(self, path: str) -> bool:
        """Whether the path is a file or folder; False for a link without a target."""
        ...

    def is_folder(self, path: str) -> bool:
        """Whether the path is a folder, or a link to a folder."""
        ...

    def file_size(self, path: str) -> int:
        """Bytes of an existing file."""
        ...

    def make_folders(self, path: str) -> None:
        """Create the folder and its parents where they are missing; durable after `sync_folder` of
        each parent."""

    def create(self, path: str, size: int, reserved: int = 0) -> MappedFile:
        """Create and map a sparse file of `size` zeros in an existing folder, the first `reserved`
        of which have blocks as after `MappedFile.reserve`; durable after `sync` and `sync_folder`.
        Raises FileExistsError if it exists; after another error no file is left."""

    def open(self, path: str, *, readonly: bool = False) -> MappedFile:
        """Map an existing file. Raises OSError for an empty file, too."""
        ...

    def resize(self, path: str, size: int) -> None:
        """Cut the file to `size` bytes, or extend it with zeros, durably on return."""

    def read(self, path: str) -> bytes:
        """The whole content of an existing file."""
        ...

    def read_tail(self, path: str, size_max: int) -> tuple[int, bytes]:
        """(position of the first returned byte, last bytes of a file): at most `size_max` bytes,
        before the hole of zeros that may end the file. For reading many files: none is mapped."""

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        """Store the data in a file, which is created if missing: as its whole content, or from
        `position` on (0 or more), with the other bytes unchanged. Durable after `sync`."""

    def create_private(self, path: str) -> None:
        """Create an empty file, or empty an existing one, that only the user of this process may
        read and write (mode 0600). Durable after `sync`."""

    def sync(self, path: str) -> None:
        """Block until all stores into the file, mapped ones included, are durable; the name of a
        new file is not, see `sync_folder`."""

    def sync_data(self, path: str) -> None:
        """Sync the content of a file whose size and place on the disk are durable already."""

    def sync_folder(self, path: str) -> None:
        """Block until creations, renames and removals of names in the folder are durable."""

    def sync_all(
        self, paths: Sequence[str], folders: Sequence[str], returned: Callable[[], None] = ...
    ) -> None:
        """Do `sync` of the files `paths`, then `sync_folder` of `folders`; paths removed meanwhile
        are skipped. Calls `returned` on the same thread after each sync; for many paths all syncs
        may be one, without a call."""

    def resolve(self, path: str) -> str:
        """The path, or the target if it is a symbolic link: a file renamed to the path itself would
        replace the link."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file, in place of an existing file `target`; durable after `sync_folder`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; durable after `sync_folder`. Raises FileNotFoundError."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all files and folders in it; no error if it does not exist. Durable
        after `sync_folder` of its parent."""

    def modified_ms(self, path: str) -> int:
        """Time of a file's last change, in epoch ms. Raises FileNotFoundError."""
        ...

    def used_ratio(self, path: str) -> float:
        """The used part (0.0 to 1.0) of the disk that holds the existing path; blocks that the
        system reserves for itself count neither as used nor as free."""

    def disk_space(self, path: str) -> tuple[int, int]:
        """(total, free) bytes of the disk that holds the existing path."""

    def lock(self, path: str, content: bytes) -> FileLock:
        """Lock byte 0 of the file, which is created if missing, and its folder, and make `content`
        the file's content. Does not wait: raises BlockingIOError if another process, or another
        lock of this process, holds either: the file may have been removed since it was opened."""

    def mapping_limit(self) -> int:
        """Maximum number of files that may be mapped at once."""

    def memory_size(self) -> int:
        """Bytes of RAM of the machine."""

    def syncs_returned(self) -> int:
        """Number of syncs through this object that have succeeded, to see whether its disk still
        works."""

    def process_id(self) -> int:
        """Id of the process that uses the files."""

    def boot_id(self) -> str:
        """An id that changes with each boot of the machine: after a change, unsynced data is lost.
        "" if the system does not provide it."""


def sync_parent_folders(files: Files, path: str) -> None:
    """Do `sync_folder` of each folder above a path, up to the first part of the path: a synced file
    is only as durable as these names.

    Folders that may not be read are skipped: nothing was made in them. Raises OSError.
    """
    while (above := _parent_folder(path)) != path:
        try:
            files.sync_folder(above or ".")
        except PermissionError:
            pass
        path = above


def _parent_folder(path: str) -> str:
    """The folder of a path: "/" for itself, "" for a name alone."""
    above, slash, _name = path.rpartition("/")
    return above or slash
