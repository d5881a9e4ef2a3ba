"""Memory for frames that have arrived in part."""

from typing import Self

MAPPED_OVER: int
"""Bytes of a frame above which its memory is a mapping, once GRANULE bytes have arrived."""
GRANULE: int
"""Unit in bytes in which a mapping is counted: the bytes that have arrived, rounded up."""
SIZE_MIN: int
"""Least bytes of memory from the heap for a frame."""
GROWTH: int
"""Factor by which memory from the heap may exceed the bytes that have arrived."""

def wanted(have: int, needed: int) -> int:
    """Return the bytes of memory to allocate for a frame of `needed` bytes, `have` of which have
    arrived: more than `have`, unless the frame is whole."""

class FrameMemory:
    """Uninitialised memory of `size` bytes for one frame."""

    @property
    def size(self) -> int:
        """Size of the memory in bytes."""

    @property
    def mapped(self) -> bool:
        """Whether the memory is its own mapping: then pages not yet written cost nothing."""

    def __new__(cls, size: int) -> Self:
        """Allocate the memory. Raises MemoryError; ValueError for a size below 1."""

    def __len__(self) -> int:
        """Size of the memory in bytes."""

    def cost(self, have: int) -> int:
        """Return the bytes of the process's memory in use while only the first `have` bytes were
        written."""

    def view(self) -> memoryview:
        """Return a writable view of all bytes; the view keeps the memory alive."""
