"""Everything the engine does to a disk: the `Files` protocol.

Owns what mapping, creation, preallocation, atomic replacement and the lock of a folder promise. It
must never know what a file means, nor touch one: real_files.py does, and a simulated disk that
implements the same protocol. All paths are absolute or relative texts with "/" between the parts.
Every method raises OSError.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from turbopump.engine.types import Buffer
from turbopump.pyx.region import Region


class MappedFile(Protocol):
    """A file mapped whole, for reading and (unless opened read-only) writing."""

    path: str
    size: int
    region: Region

    def reserve(self, start: int, end: int) -> None:
        """Give the bytes [start, end) real blocks, so that storing into them cannot fail."""

    def write(self, position: int, pieces: Sequence[Buffer]) -> None:
        """Store them one behind the other, as through `region`, where whole pages are overwritten:
        what is not in memory need not be made of zeros first. A process that is killed meanwhile
        leaves any part of them."""

    def sync(self, start: int, end: int) -> None:
        """Return when the bytes [start, end) are durable."""

    def touch(self, start: int, end: int) -> None:
        """Have the next sync write [start, end) even if the system takes these bytes for clean, as
        it does after a sync that failed. For a file just opened."""

    def expect_random(self, start: int = 0) -> None:
        """Say that from `start` on the file is used here and there: a page that is not in memory
        comes alone, and is written alone. Otherwise the kernel fills megabytes of a file with zeros
        around the first store, in pages joined to blocks that a sync then writes as a whole."""

    def expect_scans(self) -> None:
        """Take that back: what is behind a page is likely to be read next."""

    def data(self, start: int) -> list[tuple[int, int]]:
        """Ranges (start, end) from `start` on that may hold something else than zeros: all but the
        holes of a sparse file, which a look through the mapping would fill with blocks."""

    def close(self) -> None:
        """Unmap; views that were handed out stay valid as long as they are referenced."""


class FileLock(Protocol):
    """A held lock on a file."""

    def release(self) -> None:
        """Let another process have it."""


class Files(Protocol):
    """A file system as the engine needs it."""

    def list_folder(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty if there is no such folder or it is a file."""

    def list_files(self, path: str) -> list[tuple[str, int]]:
        """Names and sizes of the files in a folder, sorted, without its folders; empty if there is
        no such folder or it is a file."""

    def exists(self, path: str) -> bool: ...
    def is_folder(self, path: str) -> bool: ...
    def file_size(self, path: str) -> int: ...
    def make_folders(self, path: str) -> None:
        """Create the folder and its parents; durable only after `sync_folder` of each parent."""

    def create(self, path: str, size: int) -> MappedFile:
        """A new sparse file of zeros; FileExistsError if there is one."""

    def open(self, path: str, *, readonly: bool = False) -> MappedFile: ...
    def resize(self, path: str, size: int) -> None:
        """Cut or extend with zeros, durably."""

    def read(self, path: str) -> bytes: ...
    def tail(self, path: str, size_max: int) -> tuple[int, bytes]:
        """The last bytes of a file, at most `size_max`, up to the hole of zeros that may end it,
        and the position of the first of them. For a look at many files: none is mapped."""

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        """Replace the content, or with a position overwrite from there. Not yet durable."""

    def sync(self, path: str) -> None:
        """Return when all stores into the file, mapped ones included, are durable."""

    def sync_data(self, path: str) -> None:
        """As `sync`, of a file whose size and place on the disk are durable already."""

    def sync_folder(self, path: str) -> None:
        """Return when creations, renames and removals in the folder are durable."""

    def sync_all(
        self, paths: Sequence[str], folders: Sequence[str], returned: Callable[[], None] = ...
    ) -> None:
        """`sync` and `sync_folder` of many at once; what is gone meanwhile is passed over. Calls
        `returned` behind each sync."""

    def resolve(self, path: str) -> str:
        """The path, or where it leads to if it is a symbolic link: what would be renamed to the
        path would take the link's place."""

    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_folder(self, path: str) -> None:
        """Remove a folder and all in it; no error if there is none."""

    def modified_ms(self, path: str) -> int: ...
    def used_ratio(self, path: str) -> float:
        """The used part (0.0 to 1.0) of the disk that holds the path."""

    def disk_space(self, path: str) -> tuple[int, int]:
        """(all, free) bytes of the disk that holds the path."""

    def lock(self, path: str, content: bytes) -> FileLock:
        """Lock byte 0 of the file and its folder, and write the content; BlockingIOError if
        another process has either: the file may have been removed since it was opened."""

    def mapping_limit(self) -> int:
        """How many files may be mapped at once."""

    def memory_size(self) -> int:
        """Bytes of RAM of the machine."""

    def syncs_returned(self) -> int:
        """How many syncs of this node returned so far: whether its disk answers."""

    def process_id(self) -> int:
        """Of the process that uses the files."""

    def boot_id(self) -> str:
        """Another one after each boot of the machine: what was not synced before is gone. "" where
        the system does not say."""


def sync_above(files: Files, path: str) -> None:
    """Make the names on the way to a path durable: a synced file is only as durable as they are.

    Folders that may not be read are passed over: nothing was made in them. Raises OSError.
    """
    while (above := _above(path)) != path:
        try:
            files.sync_folder(above or ".")
        except PermissionError:
            pass
        path = above


def _above(path: str) -> str:
    """The folder of a path: "/" of itself, "" of a name alone."""
    above, slash, _name = path.rpartition("/")
    return above or slash
