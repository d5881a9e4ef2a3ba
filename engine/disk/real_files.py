"""The operating system's files (Linux), as an implementation of the `Files` protocol.

Owns all system calls on files: no other module opens one. It must never know a file's meaning.
"""

import contextlib
import ctypes
import errno
import fcntl
import logging
import mmap
import os
import resource
import shutil
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from turbopump.engine.disk.files import FileLock, MappedFile
from turbopump.engine.types import Buffer
from turbopump.pyx.mapping import Mapping, create_mapped
from turbopump.pyx.region import Region

# A quarter of the mappings that the kernel allows (65,530 by default) is left to libraries and
# threads. Each mapping costs 4 KB or more of page tables, so a small memory has a lower limit.
MAPPED_FILES_MAX = 1 << 18
"""Maximum of `mapping_limit`."""
MAPPED_FILES_MIN = 64
"""Minimum of `mapping_limit`."""
MAPPED_FILES_USUAL = 16_384
"""Number of mapped files that any memory is large enough for, and the limit if the kernel's is
unknown."""
MEMORY_OF_MAPPED_FILE = 128 << 10
"""Bytes of the machine's memory for each mapped file above MAPPED_FILES_USUAL."""
MAX_MAP_COUNT = "/proc/sys/vm/max_map_count"
"""File with the number of mappings that the kernel allows a process."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""File with an id that changes with each boot."""
PIECES_MAX = 1024
"""Maximum number of pieces that a system call writes (IOV_MAX)."""
SYNC_ONE_BY_ONE_MAX = 256
"""Maximum number of paths that `sync_all` syncs singly, some milliseconds each; for more paths, a
sync of the whole file system is faster, although other programs' dirty pages may slow it down."""
SLOW_SYNC_S = 1.0
"""Seconds from which a sync is logged for the operator: requests that wait for it stand still."""

logger = logging.getLogger(__name__)


class RealMappedFile:
    """A mapped file of the real disk, see MappedFile. Positions are bytes from the beginning of the
    file; the methods raise OSError."""

    __slots__ = ("_descriptor", "_map", "_syncs", "path", "region", "size")

    def __init__(self, path: str, made: Mapping, size: int, syncs: "_SyncCounter") -> None:
        self.path = path
        """The path with which it was opened or created."""
        self._syncs = syncs
        self.size = size
        """Bytes of the file."""
        self._descriptor = -1
        self._map = made
        self.region = Region(self._map)
        """The memory of the whole file; stores into it are not durable before `sync`."""

    def reserve(self, start: int, end: int) -> None:
        """Give the bytes [start, end) real blocks on the disk; their content stays."""
        assert 0 <= start <= end <= self.size, "reservation outside the file"
        if start == end:
            return
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            with _path_in_errors(self.path):
                os.posix_fallocate(descriptor, start, end - start)
        finally:
            os.close(descriptor)

    def write(self, position: int, pieces: Sequence[Buffer]) -> None:
        """Store the pieces one after the other at `position`, not yet durably; the mapping shows
        them at once. They must end inside the file."""
        rest = [view for piece in pieces if (view := memoryview(piece))]
        end = position + sum(map(len, rest))
        assert 0 <= position <= end <= self.size, "a write outside the file"
        with _path_in_errors(self.path):
            if self._descriptor < 0:
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            while rest:
                written = os.pwritev(self._descriptor, rest[:PIECES_MAX], position)
                position += written
                rest = _after_first(rest, written)

    def sync(self, start: int, end: int) -> None:
        """Block until the bytes [start, end) are durable."""
        with self._syncs.timed(self.path):
            self.region.sync(start, end - start)

    def data_ranges(self, start: int) -> list[tuple[int, int]]:
        """Ascending ranges (start, end) at `start` or later that are not holes of zeros; all from
        `start` on if the file system does not know its holes."""
        ranges: list[tuple[int, int]] = []
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            at = start
            while at < self.size:
                at = os.lseek(descriptor, at, os.SEEK_DATA)
                end = min(os.lseek(descriptor, at, os.SEEK_HOLE), self.size)
                ranges.append((at, end))
                at = end
        except OSError as error:
            if error.errno != errno.ENXIO:  # that is: only a hole follows
                return [(start, self.size)]
        finally:
            os.close(descriptor)
        return ranges

    def expect_random(self, start: int = 0) -> None:
        """Advise the kernel that pages from `start` on are used in random order."""
        # To the end of the last page: advice for a part would split the mapping, and the kernel
        # counts both halves.
        if (first := -(-start // mmap.PAGESIZE) * mmap.PAGESIZE) < self.size:
            self._map.madvise(mmap.MADV_RANDOM, first)

    def expect_scans(self) -> None:
        """Withdraw the advice of `expect_random` for the whole file, which is full."""
        self._map.madvise(mmap.MADV_NORMAL)
        self._close_descriptor()  # the file is full

    def mark_dirty(self, start: int, end: int) -> None:
        """Let the next `sync` write [start, end) even if the kernel takes these bytes for clean."""
        self.region.warm(start, end - start)

    def close(self) -> None:
        """Unmap without a sync; views that were handed out stay valid."""
        self._close_descriptor()
        self.region.release()
        self._map.close()

    def _close_descriptor(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _after_first(pieces: list[memoryview], size: int) -> list[memoryview]:
    """The pieces after their first `size` bytes."""
    for number, piece in enumerate(pieces):
        if size < len(piece):
            return [piece[size:], *pieces[number + 1 :]]
        size -= len(piece)
    return []


class RealFileLock:
    """An open file description lock, which also excludes a second store of this process."""

    def __init__(self, *descriptors: int) -> None:
        self._descriptors = descriptors

    def release(self) -> None:
        """Release the lock of file and folder; the file stays."""
        for descriptor in self._descriptors:
            os.close(descriptor)


class RealFiles:
    """The operating system's files (Linux), as a node uses them, see Files. All methods wait for
    the disk and raise OSError; changes of names are durable after `sync_folder`."""

    def __init__(self) -> None:
        self._syncs = _SyncCounter()

    def list_folder(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty if the path is missing or a file."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def list_files(self, path: str) -> list[tuple[str, int]]:
        """(name, size in bytes) of each file in a folder, by name; empty as for `list_folder`."""
        found = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        if entry.is_file():
                            found.append((entry.name, entry.stat().st_size))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found)

    def exists(self, path: str) -> bool:
        """Whether the path is a file or folder; False for a link without a target."""
        return os.path.exists(path)

    def is_folder(self, path: str) -> bool:
        """Whether the path is a folder, or a link to a folder."""
        return os.path.isdir(path)

    def file_size(self, path: str) -> int:
        """Bytes of an existing file."""
        return os.path.getsize(path)

    def make_folders(self, path: str) -> None:
        """Create the folder and its parents where they are missing."""
        try:
            os.mkdir(path)  # nearly always the parents exist
        except (FileNotFoundError, FileExistsError):
            os.makedirs(path, exist_ok=True)

    def create(self, path: str, size: int, reserved: int = 0) -> MappedFile:
        """Create and map a sparse file of `size` zeros with blocks for its first `reserved` bytes.
        Raises FileExistsError if it exists; after another error no file is left."""
        try:
            made = create_mapped(os.fsencode(path), size, reserved)
        except OSError as error:
            raise _with_limit_name(error, path) from None
        return RealMappedFile(path, made, size, self._syncs)

    def open(self, path: str, *, readonly: bool = False) -> MappedFile:
        """Map an existing file, which must not be empty."""
        flags = os.O_RDONLY if readonly else os.O_RDWR
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC)
        except OSError as error:
            raise _with_limit_name(error, path) from None
        try:
            size = os.fstat(descriptor).st_size
            if size == 0:
                raise OSError(errno.EINVAL, "an empty file cannot be mapped", path)
            made = Mapping(descriptor, size, readonly)
        except OSError as error:
            raise _with_limit_name(error, path) from None
        finally:
            os.close(descriptor)
        return RealMappedFile(path, made, size, self._syncs)

    def resize(self, path: str, size: int) -> None:
        """Cut the file to `size` bytes, or extend it with zeros, durably on return."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            with self._syncs.timed(path):
                os.ftruncate(descriptor, size)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: str) -> bytes:
        """The whole content of an existing file."""
        return Path(path).read_bytes()

    def read_tail(self, path: str, size_max: int) -> tuple[int, bytes]:
        """(position of the first returned byte, the last `size_max` bytes or fewer) of a file
        without the hole of zeros that may end it."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        end = 0
        try:
            while True:
                end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # that is: only a hole follows
                raise
            start = max(0, end - size_max)
            return start, os.pread(descriptor, end - start, start)
        finally:
            os.close(descriptor)

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        """Store the data in a file, which is created if missing: as its whole content, or from
        `position` on (0 or more), with the other bytes unchanged. Durable after `sync`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if position < 0 else 0)
        descriptor = os.open(path, flags, 0o644)
        try:
            at = max(position, 0)
            rest = memoryview(data)
            while rest:
                with _path_in_errors(path):
                    written = os.pwrite(descriptor, rest, at)
                at += written
                rest = rest[written:]
        finally:
            os.close(descriptor)

    def create_private(self, path: str) -> None:
        """Create or empty a file that only the user of this process may read and write."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_TRUNC
        descriptor = os.open(path, flags, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)

    def sync(self, path: str) -> None:
        """Block until all stores into the file are durable (fsync)."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            with self._syncs.timed(path):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_data(self, path: str) -> None:
        """Sync a file's content with fdatasync, for a file whose size is durable already."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            with self._syncs.timed(path):
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def sync_folder(self, path: str) -> None:
        """Block until creations, renames and removals of names in the folder are durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with self._syncs.timed(path):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_all(
        self,
        paths: Sequence[str],
        folders: Sequence[str],
        returned: Callable[[], None] = lambda: None,
    ) -> None:
        """Do `sync` of the files, then `sync_folder` of the folders, without missing paths, and
        call `returned` after each; over SYNC_ONE_BY_ONE_MAX paths in a single sync of their file
        system, without a call of `returned`."""
        everything = [*paths, *folders]
        if len(everything) > SYNC_ONE_BY_ONE_MAX and self._sync_file_system(everything):
            return
        for path in paths:
            try:
                self.sync(path)
                returned()
            except FileNotFoundError:
                continue
        for folder in folders:
            try:
                self.sync_folder(folder)
                returned()
            except FileNotFoundError:
                continue

    def _sync_file_system(self, paths: Sequence[str]) -> bool:
        """Sync with one syncfs; returns False if the paths lie on several file systems or syncfs is
        missing."""
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        devices: dict[int, str] = {}
        for path in paths:
            try:
                devices.setdefault(os.stat(path).st_dev, path)
            except FileNotFoundError:
                continue
        if syncfs is None or len(devices) != 1:
            return False
        path = next(iter(devices.values()))
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with self._syncs.timed(path):
                if syncfs(descriptor) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), path)
        finally:
            os.close(descriptor)
        return True

    def resolve(self, path: str) -> str:
        """The final target if the path is a symbolic link, else the path itself."""
        return os.path.realpath(path) if os.path.islink(path) else path

    def rename(self, source: str, target: str) -> None:
        """Rename a file, in place of an existing file `target`."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file or a link. Raises FileNotFoundError."""
        os.unlink(path)

    def remove_folder(self, path: str) -> None:
        """Remove a folder with its whole content; no error if it does not exist."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass

    def modified_ms(self, path: str) -> int:
        """Time of a file's last change, in epoch ms. Raises FileNotFoundError."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def used_ratio(self, path: str) -> float:
        """The used part (0.0 to 1.0) of the disk that holds the path, as df computes it."""
        status = os.statvfs(path)
        free = status.f_bavail
        used = status.f_blocks - status.f_bfree
        return used / (used + free) if used + free else 0.0

    def disk_space(self, path: str) -> tuple[int, int]:
        """(total, free) bytes of the disk that holds the path; blocks reserved for root are not
        free."""
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize

    def lock(self, path: str, content: bytes) -> FileLock:
        """Lock byte 0 of the file, which is created if missing, and its folder, and make `content`
        the file's content. Does not wait: raises BlockingIOError if either is locked, also by
        this process."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # struct flock: an exclusive lock of byte 0. Java's FileLock is a POSIX record lock,
            # with which the kernel lets this lock conflict.
            request = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
            if os.pread(descriptor, len(content) + 1, 0) != content:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, content, 0)
            folder = _lock_folder(os.path.dirname(path) or ".")
        except BaseException:
            os.close(descriptor)
            raise
        return RealFileLock(descriptor, *folder)

    def mapping_limit(self) -> int:
        """Maximum number of files to map at once, by the kernel's limit and the memory."""
        of_memory = max(MAPPED_FILES_USUAL, self.memory_size() // MEMORY_OF_MAPPED_FILE)
        of_kernel = MAPPED_FILES_USUAL
        if (mappings := _max_map_count()) is not None:
            of_kernel = mappings // 4 * 3
        return max(MAPPED_FILES_MIN, min(of_kernel, of_memory, MAPPED_FILES_MAX))

    def memory_size(self) -> int:
        """Bytes of RAM of the machine."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def syncs_returned(self) -> int:
        """Number of syncs by methods of this object and its mapped files that have succeeded."""
        return self._syncs.returned

    def process_id(self) -> int:
        """Id of this process."""
        return os.getpid()

    def boot_id(self) -> str:
        """An id that changes with each boot of the machine; "" if unknown."""
        try:
            return Path(BOOT_ID).read_text().strip()
        except OSError:
            return ""


def _lock_folder(path: str) -> list[int]:
    """A descriptor that locks a folder, independent of the files in it; an empty list if the file
    system cannot lock folders. Raises BlockingIOError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        os.close(descriptor)
        return []
    return [descriptor]


@contextmanager
def _path_in_errors(path: str) -> Iterator[None]:
    """Add the path to errors of calls that know only a descriptor."""
    try:
        yield
    except OSError as error:
        number = error.errno or errno.EIO
        raise OSError(number, os.strerror(number), path) from None


class _SyncCounter:
    """Number of successful syncs of a node: another node of the process may have a working disk."""

    def __init__(self) -> None:
        self.returned = 0

    @contextmanager
    def timed(self, path: str) -> Iterator[None]:
        """Time one sync, and count it when it returns."""
        begin = time.monotonic()
        with _path_in_errors(path):
            yield
        self.returned += 1
        took_s = time.monotonic() - begin
        if took_s > SLOW_SYNC_S:
            logger.warning("%s: its sync took %.1f s", path, took_s)


def _max_map_count() -> int | None:
    """Maximum number of mappings that the kernel allows a process; None if it cannot be read."""
    try:
        return int(Path(MAX_MAP_COUNT).read_text())
    except (OSError, ValueError):
        return None


def _with_limit_name(error: OSError, path: str) -> OSError:
    """The error, with the limit that was reached and its name."""
    if error.errno == errno.EMFILE:
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return OSError(
            errno.EMFILE, f"the process may not open more than {soft} files (ulimit -n)", path
        )
    if error.errno == errno.ENOMEM:
        text = f"no memory, or more than {_max_map_count()} mappings (vm.max_map_count)"
        return OSError(errno.ENOMEM, text, path)
    if error.filename is None:
        number = error.errno or errno.EIO
        return OSError(number, os.strerror(number), path)
    return error
