from typing import Self

MAPPED_OVER: int
GRANULE: int
SIZE_MIN: int
GROWTH: int

def wanted(have: int, needed: int) -> int:
    """The memory to allocate, in bytes, for a frame that is to have `needed` bytes, `have` of
    which have arrived; more than `have` unless that is all."""

class FrameMemory:
    """Memory of `size` bytes, uninitialised."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def mapped(self) -> bool:
        """Whether it is a mapping of its own: then pages that were not written cost nothing."""

    def __new__(cls, size: int) -> Self:
        """Raises MemoryError; ValueError for no bytes."""

    def __len__(self) -> int: ...
    def cost(self, have: int) -> int:
        """What it takes of the process's memory while only its first `have` bytes were written."""
    def view(self) -> memoryview:
        """The bytes, for as long as the view lives."""
