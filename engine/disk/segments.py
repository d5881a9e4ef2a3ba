"""A row of equal-size mapped files that together are one long range of bytes.

Owns which files a row has, their names and their mappings; a pool limits the number of mappings of
a whole store. It must never know the meaning of the bytes.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise

from turbopump.engine.disk.files import Files, MappedFile
from turbopump.engine.types import StoreError
from turbopump.pyx.region import Region

NAME_DIGITS = 20
"""Number of decimal digits of a file's name."""
RESERVE_STEP = 64 << 10
"""Bytes for which `reserve_blocks` reserves blocks ahead, in files that are written little by
little."""
CLEAR_PIECE = 64 << 10
"""Bytes of a piece of `clear_tail`: pieces that are zeros already are not written."""


def file_name(start: int) -> str:
    """The name of the file that begins at byte `start` (RocketMQ: UtilAll.offset2FileName)."""
    return f"{start:0{NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Whether a name is that of a file of a `Segments` row: 20 decimal digits."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()


def file_size_in(files: Files, folder: str) -> int | None:
    """Bytes of each file of a folder's row; None if the folder has no files, or the files do not
    prove a size. Files that were cut short are ignored beside a longer file."""
    found = [
        (int(name), size) for name, size in files.list_files(folder) if is_file_name(name) and size
    ]
    size = max((size for _start, size in found), default=0)
    if not size or any(start % size for start, _size in found):
        return None
    starts = [start for start, _size in found]
    gaps = [after - before for before, after in pairwise(starts)]
    # A single file may have been cut short, but hardly to a power of two.
    is_certain = min(gaps) == size if gaps else size.bit_count() == 1
    return size if is_certain else None


def clear_tail(mapped: MappedFile, position: int, *, sync: bool = True) -> int:
    """Zero the bytes of a file from `position` to its end, and wait until they are durable
    (`sync=False`: the caller has to sync). Returns the size of the pieces that were written, 0 if
    all were zeros. Holes are not touched, so this needs no space. Raises OSError."""
    changed: list[tuple[int, int]] = []
    for start, end in mapped.data_ranges(position):
        for at in range(start, end, CLEAR_PIECE):
            length = min(CLEAR_PIECE, end - at)
            if not mapped.region.is_zero(at, length):
                mapped.region.zero(at, length)
                changed.append((at, at + length))
    if changed and sync:
        mapped.sync(changed[0][0], changed[-1][1])
    return sum(end - start for start, end in changed)


class MappingPool:
    """Mapped files by path. A new mapping above `limit` closes the least recently used mapping that
    may be closed; if all refuse, the limit is exceeded."""

    def __init__(self, files: Files, limit: int) -> None:
        assert limit > 0, "a pool of no mappings"
        self.files = files
        """Opens the files."""
        self.limit = limit
        """Number of mappings above which others are closed."""
        self._mapped: OrderedDict[str, tuple[MappedFile, Callable[[], bool] | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._mapped)

    def get(self, path: str, may_close: Callable[[], bool] | None = None) -> MappedFile:
        """The mapping of an existing file, which is mapped now if the pool does not have it.
        `may_close` is asked before the mapping is closed for another, and returns False to keep it;
        None: it may be closed. Raises OSError."""
        entry = self._mapped.get(path)
        if entry is not None:
            mapped, known = entry
            if known is None and may_close is not None:
                # First mapped by a reader without `may_close`, as recovery is.
                self._mapped[path] = (mapped, may_close)
            self._mapped.move_to_end(path)
            return mapped
        mapped = self.files.open(path)
        self.put(mapped, may_close)
        return mapped

    def put(self, mapped: MappedFile, may_close: Callable[[], bool] | None = None) -> None:
        """Add a mapping that was just made, with `may_close` as for `get`; the pool closes it. A
        path that is mapped already is a programmer error."""
        assert mapped.path not in self._mapped, "mapped twice"
        self._close_down_to_limit()
        self._mapped[mapped.path] = (mapped, may_close)

    def close_removed(self, path: str) -> None:
        """Close the mapping of a file that is being removed, without asking; no-op if the file is
        not mapped. The file stays."""
        entry = self._mapped.pop(path, None)
        if entry is not None:
            entry[0].close()

    def close(self) -> None:
        """Close every mapping, without a call of `may_close` and without a sync."""
        for mapped, _may_close in self._mapped.values():
            mapped.close()
        self._mapped.clear()

    def _close_down_to_limit(self) -> None:
        """Close least recently used mappings until there are fewer than `limit`, or all others
        refuse."""
        # Files that may not be closed now (unflushed log files) go to the young end; each is tried
        # once, so the loop ends even when all refuse, and then the limit is exceeded for
        # durability's sake.
        if len(self._mapped) < self.limit:
            return
        for _ in range(len(self._mapped)):
            if len(self._mapped) < self.limit:
                return
            path, (mapped, may_close) = next(iter(self._mapped.items()))
            if may_close is not None and not may_close():
                self._mapped.move_to_end(path)
                continue
            del self._mapped[path]
            mapped.close()


class Segments:
    """The files of a folder: `count` files of `file_size` bytes, contiguous from byte `first`.
    Bytes are counted over the whole row, from the first byte that it ever had."""

    __slots__ = ("count", "file_size", "first", "folder", "pool", "reserved")

    def __init__(self, pool: MappingPool, folder: str, file_size: int) -> None:
        self.pool = pool
        """The mappings of the files, maybe shared with other rows."""
        self.folder = folder
        """Path of the folder."""
        self.file_size = file_size
        """Bytes of each file."""
        self.first = 0
        """First byte of the first file; without files the place of a first file."""
        self.count = 0
        """Number of files."""
        self.reserved = 0
        """Byte of the row before which `reserve_blocks` has reserved blocks of the last file."""

    @property
    def end(self) -> int:
        """The byte after the last file; `first` if there are no files."""
        return self.first + self.count * self.file_size

    @property
    def last_file_start(self) -> int:
        """First byte of the last file. Calling without files is a programmer error."""
        assert self.count > 0, "no files"
        return self.end - self.file_size

    def file_starts(self) -> range:
        """First byte of each file, ascending."""
        return range(self.first, self.end, self.file_size)

    def start_of(self, at: int) -> int:
        """First byte of the file that holds byte `at`, whether the file exists or not."""
        return at - at % self.file_size

    def contains(self, at: int) -> bool:
        """Whether byte `at` lies in an existing file."""
        return self.first <= at < self.first + self.count * self.file_size

    def path(self, start: int) -> str:
        """The path of the file that starts at byte `start`, whether the file exists or not."""
        return f"{self.folder}/{start:0{NAME_DIGITS}d}"

    def load(self, is_cut_short: Callable[[str], bool] = lambda _path: False) -> list[int]:
        """Set `first` and `count` by the files in the folder. Returns the starts of files after a
        hole in the row, ascending, which are not added. Waits for the disk.

        An empty file (a crash while it was created) counts as missing and is removed; so is a file
        below the configured size if `is_cut_short` confirms that the file, not the configuration,
        is wrong. Raises StoreError for other files of a wrong size.
        """
        files = self.pool.files
        found = []
        for name, size in files.list_files(self.folder):
            if not is_file_name(name):
                continue
            path = f"{self.folder}/{name}"
            if size == 0:
                files.remove(path)
                continue
            if size < self.file_size and int(name) % self.file_size == 0 and is_cut_short(path):
                files.remove(path)
                continue
            if size != self.file_size or int(name) % self.file_size:
                raise StoreError(
                    f"{path} has {size} bytes, but the store is configured for files of "
                    f"{self.file_size}"
                )
            found.append(int(name))
        self.first = found[0] if found else 0
        self.count = 0
        for start in found:
            if start != self.end:
                break
            self.count += 1
        return found[self.count :]

    def mapped_file(self, start: int, may_close: Callable[[], bool] | None = None) -> MappedFile:
        """The mapping of the existing file that starts at byte `start`; `may_close` as for
        `MappingPool.get`. Raises OSError."""
        assert self.first <= start < self.first + self.count * self.file_size, "no such file"
        return self.pool.get(f"{self.folder}/{start:0{NAME_DIGITS}d}", may_close)

    def file_region(self, start: int) -> Region:
        """The memory of the existing file that starts at byte `start`. Raises OSError."""
        return self.mapped_file(start).region

    def adopt_file(
        self, start: int, mapped: MappedFile, may_close: Callable[[], bool] | None = None
    ) -> None:
        """Add a file that was just created and mapped at the end of the row, or as its first file;
        a hole is a programmer error."""
        if self.count == 0:
            self.first = start
        assert start == self.end, "a hole in the row"
        self.count += 1
        self.pool.put(mapped, may_close)

    def create(
        self, start: int, may_close: Callable[[], bool] | None = None, reserved: int = 0
    ) -> MappedFile:
        """Create the next file, which begins at byte `start`, sparse but for its first `reserved`
        bytes, and add it; its name is not yet durable. Raises OSError."""
        mapped = self.pool.files.create(self.path(start), self.file_size, reserved)
        self.adopt_file(start, mapped, may_close)
        return mapped

    def reserve_blocks(self, at: int, size: int) -> None:
        """Give the `size` bytes from byte `at` on blocks before they are written, with RESERVE_STEP
        bytes more; no-op for reserved bytes. All lie in the last file. Raises OSError (disk full),
        and can then be called again."""
        start = self.start_of(at)
        if at + size > self.reserved or at < self.reserved - RESERVE_STEP:
            position = at - start
            end = min(self.file_size, position + size + RESERVE_STEP)
            self.mapped_file(start).reserve(position, end)
            self.reserved = start + end

    def forget_first(self) -> str:
        """Take the first file out of the row and close its mapping; returns its path for the caller
        to remove."""
        assert self.count > 0, "no files"
        path = self.path(self.first)
        self.pool.close_removed(path)
        self.first += self.file_size
        self.count -= 1
        return path

    def forget_last(self) -> str:
        """Take the last file out of the row and close its mapping; returns its path for the caller
        to remove. A row without files begins at 0."""
        path = self.path(self.last_file_start)
        self.pool.close_removed(path)
        self.count -= 1
        if self.count == 0:
            self.first = 0  # an empty row must not look as if age had removed its files
        self.reserved = 0  # the file may be made again, and is sparse then
        return path
