"""A simulated disk behind the engine's `Files` protocol.

The truth of mmap: a store into a mapping is visible at once and durable only after a flush; a
crash keeps any subset of the unflushed 4 KiB pages. Creations, renames and removals are visible at
once and durable only after the folder was synced; a crash keeps any subset of them, in any order.
A file's length travels with its content: an unsynced replacement may leave the old length, the new
one, or anything torn in between. Nothing is intercepted: kernels write freely, and a crash compares
memory with the disk's image page by page.

`fail_*` are switches for disk trouble while running (full disk, failing sync, read-only remount).
"""

import errno
import random
from collections.abc import Callable

from turbopump.pyx.region import Region

PAGE = 4096


class SimFile:
    """An inode: what memory shows and what the disk holds."""

    __slots__ = ("durable", "memory", "modified_ms", "torn_length")

    def __init__(self, size: int, modified_ms: int) -> None:
        self.memory = bytearray(size)
        self.durable = b""
        self.modified_ms = modified_ms
        self.torn_length = False

    def flush(self, start: int, end: int) -> None:
        """Make the pages that hold [start, end) durable, and the length."""
        if len(self.durable) != len(self.memory):
            padded = self.durable[: len(self.memory)].ljust(len(self.memory), b"\0")
        else:
            padded = self.durable
        first, last = start // PAGE * PAGE, min(len(self.memory), -(-end // PAGE) * PAGE)
        self.durable = padded[:first] + bytes(self.memory[first:last]) + padded[last:]

    def crash(self, rng: random.Random) -> None:
        """Keep any subset of the pages that differ, and either length."""
        if self.durable == self.memory:
            return
        length = len(self.memory)
        if len(self.durable) != length and rng.random() < 0.5:
            # Setting the length of a new file is one change; a written file grows with its pages.
            torn = rng.randrange(length + 1) if self.torn_length else 0
            length = rng.choice((len(self.durable), torn))
        image = bytearray(self.durable[:length].ljust(length, b"\0"))
        keep = rng.random()
        for at in range(0, length, PAGE):
            page = self.memory[at : min(at + PAGE, length)]
            if image[at : at + len(page)] != page and rng.random() < keep:
                image[at : at + len(page)] = page
        self.memory = image
        self.durable = bytes(image)


class SimMapped:
    """A mapping of a simulated file."""

    __slots__ = ("_disk", "_file", "path", "region", "size")

    def __init__(self, disk: "SimDisk", path: str, file: SimFile, readonly: bool) -> None:
        self.path = path
        self.size = len(file.memory)
        self._disk = disk
        self._file = file
        view = memoryview(file.memory)
        self.region = Region(view.toreadonly() if readonly else view)

    def reserve(self, start: int, end: int) -> None:
        assert 0 <= start <= end <= self.size, "reservation outside the file"
        self._disk.check_space()

    def sync(self, start: int, end: int) -> None:
        self._disk.check_sync()
        self._file.flush(start, end)

    def close(self) -> None:
        self.region.release()


class SimLock:
    """A held lock; a crash forgets it."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class SimDisk:
    """A file system in memory with an image of what a crash would leave."""

    def __init__(self, rng: random.Random, now_ms: Callable[[], int]) -> None:
        self._rng = rng
        self._now_ms = now_ms
        self._visible: dict[str, SimFile] = {}
        self._durable: dict[str, SimFile] = {}
        self._folders: set[str] = {"/"}
        self._locks: set[str] = set()
        self.full = False
        self.fail_sync = False
        self.readonly = False
        self.used = 0.5
        self.syncs = 0

    def check_space(self) -> None:
        """Raise as a full or read-only disk would."""
        if self.readonly:
            raise OSError(errno.EROFS, "read-only file system")
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")

    def check_sync(self) -> None:
        """Raise as a failing device would; the pages stay unflushed."""
        self.syncs += 1
        if self.fail_sync:
            raise OSError(errno.EIO, "input/output error")

    def crash(self) -> None:
        """The power goes: every unsynced change survives or not, by the seed."""
        rng = self._rng
        names = sorted(set(self._visible) | set(self._durable))
        keep = rng.random()
        after: dict[str, SimFile] = {}
        for name in names:
            old, new = self._durable.get(name), self._visible.get(name)
            chosen = new if old is not new and rng.random() < keep else old
            if chosen is not None:
                after[name] = chosen
        for file in dict.fromkeys(after.values()):
            file.crash(rng)
        self._durable = dict(after)
        self._visible = after
        self._locks.clear()

    def files(self) -> dict[str, SimFile]:
        """Everything visible, by path."""
        return self._visible

    def _file(self, path: str) -> SimFile:
        file = self._visible.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return file

    def list_folder(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        names = {
            name[len(prefix) :].split("/", 1)[0]
            for name in (*self._visible, *self._folders)
            if name.startswith(prefix) and name != prefix
        }
        return sorted(name for name in names if name)

    def exists(self, path: str) -> bool:
        return path in self._visible or self.is_folder(path)

    def is_folder(self, path: str) -> bool:
        return path.rstrip("/") in self._folders or bool(self.list_folder(path))

    def file_size(self, path: str) -> int:
        return len(self._file(path).memory)

    def make_folders(self, path: str) -> None:
        while path and path not in self._folders:
            self.check_space()
            self._folders.add(path)
            path = parent(path)

    def create(self, path: str, size: int) -> SimMapped:
        self.check_space()
        if path in self._visible:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        file = self._visible[path] = SimFile(size, self._now_ms())
        return SimMapped(self, path, file, readonly=False)

    def open(self, path: str, *, readonly: bool = False) -> SimMapped:
        file = self._file(path)
        if not file.memory:
            raise OSError(errno.EINVAL, "an empty file cannot be mapped", path)
        return SimMapped(self, path, file, readonly)

    def resize(self, path: str, size: int) -> None:
        self.check_space()
        file = self._file(path)
        file.memory = file.memory[:size].ljust(size, b"\0")
        file.durable = file.durable[:size].ljust(size, b"\0")

    def read(self, path: str) -> bytes:
        return bytes(self._file(path).memory)

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        self.check_space()
        file = self._visible.get(path)
        if file is None:
            file = self._visible[path] = SimFile(0, self._now_ms())
        if position < 0:
            file.memory = bytearray(data)
        else:
            end = position + len(data)
            if len(file.memory) < end:
                file.memory = file.memory.ljust(end, b"\0")
            file.memory[position:end] = data
        file.modified_ms = self._now_ms()
        file.torn_length = True

    def sync(self, path: str) -> None:
        self.check_sync()
        file = self._file(path)
        file.flush(0, len(file.memory))

    def sync_folder(self, path: str) -> None:
        self.check_sync()
        folder = path.rstrip("/") or "/"
        for name in set(self._visible) | set(self._durable):
            if parent(name) == folder:
                file = self._visible.get(name)
                if file is None:
                    del self._durable[name]
                else:
                    self._durable[name] = file

    def rename(self, source: str, target: str) -> None:
        self.check_space()
        self._visible[target] = self._file(source)
        del self._visible[source]

    def remove(self, path: str) -> None:
        self._file(path)
        del self._visible[path]

    def remove_folder(self, path: str) -> None:
        prefix = path.rstrip("/") + "/"
        for name in [name for name in self._visible if name.startswith(prefix)]:
            del self._visible[name]
        self._folders = {
            name for name in self._folders if name != path and not name.startswith(prefix)
        }

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def used_ratio(self, path: str) -> float:
        return self.used

    def disk_space(self, path: str) -> tuple[int, int]:
        return 1 << 40, int((1 - self.used) * (1 << 40))

    def lock(self, path: str, content: bytes) -> SimLock:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        if self._visible.get(path) is None or self.read(path) != content:
            self.write(path, content)
        self._locks.add(path)
        return SimLock(self._locks, path)

    def mapping_limit(self) -> int:
        return 64

    def memory_size(self) -> int:
        return 1 << 30
