"""Nodes of a simulated disk: inodes with their visible and durable contents, and folders."""

import random
from collections.abc import Callable

PAGE = 4096
SECTOR = 512
ZEROS = bytes(PAGE)


class Folder:
    """A folder: its visible entries and its durable ones."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, Folder | SimFile] = {}
        self.durable: dict[str, Folder | SimFile] = {}
        self.pending = 0
        """Number of changes of its names that are not durable yet."""


class SimFile:
    """An inode: its content in memory and its content on the disk."""

    __slots__ = ("blocks", "durable", "lost", "memory", "modified_ms", "replaced")

    def __init__(self, size: int, modified_ms: int) -> None:
        self.memory = bytearray(size)
        self.durable = bytearray()
        self.modified_ms = modified_ms
        self.replaced = False
        """Whether the content was replaced since it was last durable."""
        self.blocks = 0
        """Bit mask of the pages that have a block; a store into any other page needs space."""
        self.lost: dict[int, bytes] = {}
        """Pages whose sync failed, with their contents then: the system counts a page as clean
        while it still has that content.
        """

    def resize(self, size: int) -> None:
        """Set the size, at once durable as the `Files` protocol requires; added bytes are
        a hole.
        """
        self.memory = self.memory[:size].ljust(size, b"\0")
        self.durable = self.durable[:size].ljust(size, b"\0")
        self.blocks &= bits(0, size)

    def overwrite(self, data: bytes, position: int) -> None:
        self.memory[position : position + len(data)] = data
        if self.lost:
            self.dirty(position, position + len(data))

    def extend(self, data: bytes, position: int) -> None:
        """Write at `position` and make the file longer; a gap before `position` is filled with
        zeros.
        """
        end = position + len(data)
        self.memory += bytes(max(0, end - len(self.memory)))
        self.overwrite(data, position)
        self.blocks |= bits(position, end)

    def replace(self, data: bytes) -> None:
        self.memory = bytearray(data)
        self.replaced = True
        self.lost.clear()
        self.blocks = bits(0, len(data))

    def flush(self, start: int, end: int, now_ms: Callable[[], int]) -> None:
        """Make the pages that hold [start, end) durable, and the length."""
        memory, durable = self.memory, self.durable
        size = len(memory)
        if len(durable) != size or self.replaced:
            if self.replaced:
                durable = self.durable = bytearray()
                self.replaced = False
            durable[size:] = b""
            durable += bytes(size - len(durable))
        first, last = start & -PAGE, (end + PAGE - 1) & -PAGE
        if not self.lost:
            # All of a small file nearly always: compared and copied as a whole.
            if first == 0 and last >= size:
                if memory != durable:
                    self.modified_ms = now_ms()
                    self._check_blocks(0, size)
                    durable[:] = memory
                return
            last = min(size, last)
            data = memory[first:last]
            if data != durable[first:last]:
                self.modified_ms = now_ms()
                self._check_blocks(first, last)
                durable[first:last] = data
            return
        last = min(size, last)
        self.modified_ms = now_ms()
        self._check_blocks(first, last)
        for at in range(first, last, PAGE):
            stop = min(at + PAGE, size)
            if self.lost.get(at) != memory[at:stop]:
                self.lost.pop(at, None)
                durable[at:stop] = memory[at:stop]

    def lose(self, start: int, end: int) -> None:
        """A sync of [start, end) failed: the system will not write these pages again."""
        for at in range(start & -PAGE, min(end, len(self.memory)), PAGE):
            page = bytes(self.memory[at : at + PAGE])
            if page != self.durable[at : at + PAGE]:
                self.lost[at] = page

    def dirty(self, start: int, end: int) -> None:
        """The pages were stored into without a change: the system will write them."""
        for at in range(start & -PAGE, end, PAGE):
            self.lost.pop(at, None)

    def forget_lost(self) -> None:
        for at, page in self.lost.items():
            if self.memory[at : at + len(page)] == page:
                old = self.durable[at : at + len(page)]
                self.memory[at : at + len(page)] = old.ljust(len(page), b"\0")
        self.lost.clear()

    def settle(self) -> None:
        self.durable = bytearray(self.memory)
        self.replaced = False
        self.lost.clear()

    def crash(self, rng: random.Random, torn_pages: bool) -> None:
        """Keep any subset of the pages that differ, and some length."""
        old, memory = self.durable, self.memory
        if old == memory:
            self.memory = bytearray(old)
            self.replaced = False
            self.lost.clear()
            return
        length = len(memory)
        if self.replaced:
            if rng.random() < 0.3:
                length = -1
            else:
                old = bytearray()
                length = rng.choice((0, length, rng.randrange(length + 1)))
        elif len(old) != length and rng.random() < 0.5:
            length = -1
        if length < 0:
            image = bytearray(old)
        else:
            image = bytearray(old[:length].ljust(length, b"\0"))
            self._keep_some(image, rng, SECTOR if torn_pages else PAGE)
        self.memory = image
        self.durable = bytearray(image)
        self.replaced = False
        self.lost.clear()

    def _keep_some(self, image: bytearray, rng: random.Random, step: int) -> None:
        keep = rng.random()
        for at in range(0, len(image), step):
            stop = min(at + step, len(image))
            piece = self.memory[at:stop]
            if image[at:stop] != piece:
                self._check_blocks(at & -PAGE, stop)
                if rng.random() < keep and not self._is_lost(at & -PAGE):
                    image[at:stop] = piece

    def _is_lost(self, at: int) -> bool:
        page = self.lost.get(at)
        return page is not None and self.memory[at : at + len(page)] == page

    def _check_blocks(self, start: int, end: int) -> None:
        missing = bits(start, end) & ~self.blocks
        if not missing:
            return
        for at in range(start, end, PAGE):
            page = self.memory[at : min(at + PAGE, end)]
            assert not missing & bits(at, at + len(page)) or page == ZEROS[: len(page)], (
                f"stored into byte {at} of a file without a block there: fatal on a full disk"
            )


def bits(start: int, end: int) -> int:
    """A bit for each page that holds a byte of [start, end)."""
    return (1 << -(-end // PAGE)) - (1 << start // PAGE)
