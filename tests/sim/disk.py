"""A simulated disk that implements the engine's `Files` protocol: a file system in memory, with an
image of the state that a crash would leave.

Contents. A store into a mapping is visible at once and durable after a sync; a power cut keeps any
subset of the 4 KiB pages that differ (of 512-byte sectors with `torn_pages`), and `writeback` makes
pages durable without a sync. Nothing is intercepted: kernels write freely, and memory is compared
with the disk's image. A file's length travels with its content: a replaced file may have its old
content, or any shorter part of the new content with holes of zeros in it; the length of a newly
created file is one change.

Names. Creating, renaming and removing is visible at once and durable after the folder was synced. A
power cut keeps any subset of the changes, each whole (a rename is one change); with `ordered` it
keeps a prefix of them, as a journal does. Folders are entries of their parents like files.

Trouble while running: a full disk, a sync that fails (its pages count as clean afterwards, but
never reached the disk, as on Linux), a read-only remount. Syncs may take time or hang: the disk
counts it in `spent_ms`, and the harness pauses the process for that long. After `cut_after`
operations the power is cut, or the process is killed, which keeps everything visible. Operations of
code that unwinds after that change nothing.
"""

import errno
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence

from tests.sim.nodes import PAGE, Folder, SimFile, bits
from turbopump.engine.types import Buffer
from turbopump.pyx.region import Region

Copy = dict[str, bytes]
"""The durable files of a disk."""
Change = tuple[tuple[Folder, str, Folder | SimFile | None], ...]


HANGING_MS = 10**9
"""Duration of a sync that does not return."""


class PowerCut(BaseException):
    """The process is gone in the middle of a disk operation; nothing may catch this on its way."""


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
        if end > start:
            file, wanted = self._file, bits(start, end)
            missing = file.blocks & wanted != wanted
            self._disk.operate(missing)
            if missing:
                file.blocks |= wanted

    def write(self, position: int, pieces: Sequence[Buffer]) -> None:
        data = b"".join(pieces)
        if self._disk.is_last:
            part = self._disk.rng.choice((len(data) // 2, len(data) - 2))
            self.region.write(position, data[: max(0, part)])
        self._disk.operate()
        self.region.write(position, data)

    def data_ranges(self, start: int) -> list[tuple[int, int]]:
        return [(start, self.size)]

    def expect_random(self, start: int = 0) -> None:
        """No-op: the simulated disk reads nothing ahead."""

    def expect_scans(self) -> None:
        """No-op: the simulated disk reads nothing ahead."""

    def mark_dirty(self, start: int, end: int) -> None:
        self._file.dirty(start, end)

    def sync(self, start: int, end: int) -> None:
        self._disk.check_sync(self._file, start, end)
        self._file.flush(start, end, self._disk.now_ms)

    def close(self) -> None:
        self.region.release()


class SimLock:
    """A held lock; a crash forgets it."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimDisk:
    """The files; see the module's text. Paths are absolute."""

    def __init__(self, rng: random.Random, now_ms: Callable[[], int]) -> None:
        self.rng = rng
        self.now_ms = now_ms
        self.full = False
        self.stays_full = False
        """Whether a new process finds no room either."""
        self.readonly = False
        self.fail_syncs = 0
        """Number of the next syncs that fail."""
        self.fail_sync_of_many = 0
        """Countdown of `sync_many` calls: in the call that reaches 0 a sync fails; 0: no sync
        fails."""
        self.failed_syncs = 0
        self.failing = False
        """Whether all syncs fail, until the disk is mended: a new process mends nothing."""
        self.sync_ms = 0
        """Duration of each sync; a restart keeps it, too."""
        self.hangs = False
        self._answers = 0
        """Whether no sync returns."""
        self.spent_ms = 0
        """Time that syncs took and that the harness has not waited for yet."""
        self.returns: list[tuple[int, Callable[[], None]]] | None = None
        """Callbacks for the return of each sync of a disk thread, with the time spent by then;

        None: syncs return at once.
        """
        self.used = 0.5
        self.torn_pages = False
        self.ordered = False
        self.cut_after: int | None = None
        """Number of operations before the end of the process; None: no end is planned."""
        self.kill = False
        """Whether the end is that of the process, not of the power."""
        self.on_end: Callable[[], None] = lambda: None
        """Called before the end takes effect."""
        self._dead = False
        self._boots = 1
        self._root = Folder()
        self._folders: dict[str, Folder] = {"": self._root, "/": self._root}
        self._files: dict[str, SimFile] = {}
        self._changes: list[Change] = []
        self._locks: set[str] = set()

    # Trouble

    @property
    def is_last(self) -> bool:
        """Whether the process ends at the next operation."""
        return self.cut_after == 0 and not self._dead

    def operate(self, needs_space: bool = False) -> None:
        """Every change of the disk passes here: PowerCut, or OSError as a full or read-only disk
        raises it."""
        if self._dead:
            raise PowerCut
        if self.cut_after is not None:
            self.cut_after -= 1
            if self.cut_after < 0:
                self.end()
                raise PowerCut
        if self.readonly:
            raise OSError(errno.EROFS, "read-only file system")
        if self.full and needs_space:
            raise OSError(errno.ENOSPC, "no space left on device")

    def check_sync(self, file: SimFile | None = None, start: int = 0, end: int = 0) -> None:
        """`operate` for a sync, which may fail as a bad device lets it fail."""
        self.operate()
        self.spent_ms += HANGING_MS if self.hangs else self.sync_ms
        if self.failing or self.fail_syncs > 0:
            self.fail_syncs -= not self.failing
            self.failed_syncs += 1
            if file is not None:
                file.lose(start, end)
            raise OSError(errno.EIO, "input/output error")

    def end(self) -> None:
        """The power goes or the process is killed, now. Nothing changes until `restart`."""
        self.on_end()
        self._dead = True
        if not self.kill:
            self._boots += 1
            self._lose_names()
        for file in self._files.values():
            if self.kill:
                file.memory = bytearray(file.memory)
            else:
                file.crash(self.rng, self.torn_pages)
        self._locks.clear()

    def restart(self) -> None:
        """Let the next process use the disk, without the previous trouble."""
        self._dead = self.kill = self.readonly = False
        self.full = self.stays_full
        self.cut_after = None
        self.fail_syncs = self.fail_sync_of_many = 0

    def writeback(self) -> None:
        """Write back as an operating system may: some pages of some file, or the first changes of
        names.
        """
        rng = self.rng
        if self._changes and rng.random() < 0.3:
            self._apply(self._changes[: rng.randrange(len(self._changes)) + 1])
        elif self._files:
            file = list(self._files.values())[rng.randrange(len(self._files))]
            for at in range(0, len(file.memory), PAGE):
                if rng.random() < 0.5:
                    file.flush(at, at + PAGE, self.now_ms)

    def forget_lost(self) -> None:
        """Drop pages whose sync failed: a new process reads the disk's content."""
        for file in self._files.values():
            file.forget_lost()

    def _lose_names(self) -> None:
        rng = self.rng
        changes = self._changes
        keep = rng.random()
        if self.ordered:
            self._apply(changes[: int(keep * (len(changes) + 1))])
        else:
            self._apply([change for change in changes if rng.random() < keep])
        self._changes = []
        self._folders, self._files = {"/": self._root}, {}
        self._rebuild("", self._root)

    def _rebuild(self, path: str, folder: Folder) -> None:
        self._folders[path] = folder
        folder.pending = 0
        folder.entries = dict(folder.durable)
        for name, node in folder.entries.items():
            if isinstance(node, Folder):
                self._rebuild(f"{path}/{name}", node)
            else:
                self._files[f"{path}/{name}"] = node

    def _change(self, *parts: tuple[Folder, str, Folder | SimFile | None]) -> None:
        """Change one name, or two in one step."""
        for folder, name, node in parts:
            if node is None:
                folder.entries.pop(name, None)
            else:
                folder.entries[name] = node
            folder.pending += 1
        self._changes.append(parts)

    def _apply(self, changes: list[Change]) -> None:
        """Make name changes durable."""
        for change in changes:
            for folder, name, node in change:
                folder.pending -= 1
                if node is None:
                    folder.durable.pop(name, None)
                else:
                    folder.durable[name] = node
        if len(changes) == len(self._changes):
            self._changes = []
        else:
            done = set(map(id, changes))
            self._changes = [change for change in self._changes if id(change) not in done]

    # For tests: inspection and damage

    def paths(self, below: str = "") -> list[str]:
        """Paths of all files below a folder, sorted."""
        found: list[str] = []
        below = below.removesuffix("/")
        if below in self._folders:
            self._gather(below, self._folders[below], found)
        return sorted(found)

    def _gather(self, path: str, folder: Folder, found: list[str]) -> None:
        for name, node in folder.entries.items():
            if isinstance(node, Folder):
                self._gather(f"{path}/{name}", node, found)
            else:
                found.append(f"{path}/{name}")

    def content(self, path: str) -> bytearray:
        """The memory of a file, to look at or to damage."""
        return self._file(path).memory

    def visible(self, path: str) -> bytearray | None:
        """Visible content of a file, also after the process ended; None if there is no
        such file.
        """
        file = self._files.get(path)
        return None if file is None else file.memory

    def durable(self, path: str) -> bytearray | None:
        """Content of a file that survives any crash; None if not even its name does."""
        folder: Folder = self._root
        *above, name = path.split("/")[1:]
        for part in above:
            node = folder.durable.get(part)
            if not isinstance(node, Folder):
                return None
            folder = node
        file = folder.durable.get(name)
        return file.durable if isinstance(file, SimFile) else None

    def durable_paths(self, folder: str) -> list[str]:
        """Paths of the files in a folder that a crash would surely leave there."""
        node: Folder | SimFile | None = self._root
        for part in folder.split("/")[1:]:
            node = node.durable.get(part) if isinstance(node, Folder) else None
        names = node.durable if isinstance(node, Folder) else {}
        return [f"{folder}/{name}" for name in sorted(names)]

    def digest(self) -> str:
        """A hash of all that is visible or durable: two plays of a seed must leave the same."""
        found = hashlib.sha256()
        for path in self.paths():
            file = self._files[path]
            found.update(b"%s %d %d " % (path.encode(), len(file.memory), len(file.durable)))
            found.update(file.memory + file.durable)
        return found.hexdigest()[:16]

    def settle(self) -> None:
        """Everything visible is durable: damage is done between two lives, and stays."""
        self._apply(self._changes)
        for file in self._files.values():
            file.settle()

    def copy(self) -> Copy:
        """Back up the durable content of all files."""
        found: Copy = {}
        for path in self.paths():
            content = self.durable(path)
            if content is not None:
                found[path] = bytes(content)
        return found

    def put_back(self, copy: Copy) -> None:
        """Restore a backup between two lives; there is enough space for it."""
        dead, self._dead, self.cut_after = self._dead, False, None
        full, self.full = self.full, False
        for path in self.paths():
            self.remove(path)
        for path, content in copy.items():
            self.make_folders(path.rpartition("/")[0])
            self.write(path, content)
        self.settle()
        self._dead, self.full = dead, full

    def wipe(self, folder: str) -> None:
        """A folder is lost between two lives, with all there is in it."""
        dead, self._dead, self.cut_after = self._dead, False, None
        self.remove_folder(folder)
        self.settle()
        self._dead = dead

    # Files

    def _file(self, path: str) -> SimFile:
        if self._dead:
            raise PowerCut
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return file

    def _place(self, path: str) -> tuple[Folder, str]:
        if self._dead:
            raise PowerCut
        above, _, name = path.rpartition("/")
        folder = self._folders.get(above)
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "no such folder", above)
        return folder, name

    def list_folder(self, path: str) -> list[str]:
        folder = self._folders.get(path)
        return [] if folder is None else sorted(folder.entries)

    def list_files(self, path: str) -> list[tuple[str, int]]:
        paths = [(name, f"{path}/{name}") for name in self.list_folder(path)]
        return [(name, len(self._files[at].memory)) for name, at in paths if at in self._files]

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def is_folder(self, path: str) -> bool:
        return path in self._folders

    def file_size(self, path: str) -> int:
        return len(self._file(path).memory)

    def make_folders(self, path: str) -> None:
        if path in self._folders:
            return
        above, _, name = path.rpartition("/")
        self.make_folders(above)
        self.operate(needs_space=True)
        folder = self._folders[path] = Folder()
        self._change((self._folders[above], name, folder))

    def create(self, path: str, size: int, reserved: int = 0) -> SimMapped:
        folder, name = self._place(path)
        self.operate(needs_space=True)
        if path in self._files:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        file = self._files[path] = SimFile(size, self.now_ms())
        self._change((folder, name, file))
        mapped = SimMapped(self, path, file, readonly=False)
        if reserved:
            try:
                mapped.reserve(0, reserved)
            except OSError:
                self.remove(path)
                raise
        return mapped

    def open(self, path: str, *, readonly: bool = False) -> SimMapped:
        file = self._file(path)
        if not file.memory:
            raise OSError(errno.EINVAL, "an empty file cannot be mapped", path)
        return SimMapped(self, path, file, readonly)

    def resize(self, path: str, size: int) -> None:
        file = self._file(path)
        self.operate(needs_space=size > len(file.memory))
        file.resize(size)

    def read(self, path: str) -> bytes:
        return bytes(self._file(path).memory)

    def read_tail(self, path: str, size_max: int) -> tuple[int, bytes]:
        memory = self._file(path).memory
        end = len(memory)
        while end and not any(memory[max(0, end - PAGE) : end]):
            end = max(0, end - PAGE)
        start = max(0, end - size_max)
        return start, bytes(memory[start:end])

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        file = self._files.get(path)
        if position >= 0 and file is not None and position + len(data) <= len(file.memory):
            self.operate()
            file.overwrite(data, position)
        elif position >= 0 and file is not None:
            if self.is_last:
                file.extend(data[: self.rng.randrange(len(data) + 1)], position)
            self.operate(needs_space=True)
            file.extend(data, position)
        else:
            folder, name = self._place(path)
            self.operate(needs_space=True)
            if file is None:
                file = self._files[path] = SimFile(0, 0)
                self._change((folder, name, file))
            file.replace(bytes(max(position, 0)) + data)
        file.modified_ms = self.now_ms()

    def create_private(self, path: str) -> None:
        self.write(path, b"")

    def sync(self, path: str) -> None:
        file = self._file(path)
        size = len(file.memory)
        self.check_sync(file, 0, size)
        file.flush(0, size, self.now_ms)

    def sync_data(self, path: str) -> None:
        self.sync(path)

    def sync_folder(self, path: str) -> None:
        folder = self._folders.get(path)
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        self.check_sync()
        if folder.pending:
            self._apply(
                [
                    change
                    for change in self._changes
                    if change[0][0] is folder or change[-1][0] is folder
                ]
            )

    def sync_all(
        self,
        paths: Sequence[str],
        folders: Sequence[str],
        returned: Callable[[], None] = lambda: None,
    ) -> None:
        if self.fail_sync_of_many > 0:
            self.fail_sync_of_many -= 1
            self.fail_syncs += self.fail_sync_of_many == 0
        for path in paths:
            if path in self._files:
                self.sync(path)
                self._tell(returned)
        for folder in folders:
            if folder in self._folders:
                self.sync_folder(folder)
                self._tell(returned)

    def _tell(self, returned: Callable[[], None]) -> None:
        if self.returns is None:
            returned()
        else:
            self.returns.append((self.spent_ms, returned))

    def syncs_returned(self) -> int:
        """A disk that works answers, however slow it is."""
        self._answers += not self.hangs
        return self._answers

    def resolve(self, path: str) -> str:
        return path  # there are no links

    def rename(self, source: str, target: str) -> None:
        file = self._file(source)
        old, old_name = self._place(source)
        new, new_name = self._place(target)
        self.operate()
        del self._files[source]
        self._files[target] = file
        self._change((old, old_name, None), (new, new_name, file))

    def remove(self, path: str) -> None:
        self._file(path)
        folder, name = self._place(path)
        self.operate()
        del self._files[path]
        self._change((folder, name, None))

    def remove_folder(self, path: str) -> None:
        if path not in self._folders:
            return
        for inside in self._below(path):
            self.remove(inside)
        for inside in sorted((name for name in self._folders if _is_in(name, path)), reverse=True):
            folder, name = self._place(inside)
            self.operate()
            del self._folders[inside]
            self._change((folder, name, None))

    def _below(self, path: str) -> Iterator[str]:
        yield from [name for name in self._files if _is_in(name, path)]

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def used_ratio(self, path: str) -> float:
        return self.used

    def disk_space(self, path: str) -> tuple[int, int]:
        return 1 << 40, int((1 - self.used) * (1 << 40))

    def lock(self, path: str, content: bytes) -> SimLock:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        file = self._files.get(path)
        if file is None or file.memory != content:
            self.write(path, content)
        self._locks.add(path)
        return SimLock(self._locks, path)

    def mapping_limit(self) -> int:
        return 24

    def memory_size(self) -> int:
        return 1 << 30

    def process_id(self) -> int:
        return 1

    def boot_id(self) -> str:
        return str(self._boots)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
