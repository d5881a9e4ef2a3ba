"""Files mapped into memory."""

from typing import Self

def create_mapped(path: bytes, size: int, reserved: int) -> Mapping:
    """Create and map a sparse file of `size` zeros, the first `reserved` of which have blocks;
    without the GIL. Raises OSError, and then no file is left, unless it existed before; ValueError
    for sizes that do not fit."""

class Mapping:
    """A file mapped whole, without a descriptor of its own; a buffer of `size` bytes.

    The mapping lasts as long as a view of it exists.
    """

    def __new__(cls, descriptor: int, size: int, readonly: bool) -> Self:
        """Map the first `size` bytes of an open file. Raises OSError; ValueError for size 0."""

    def madvise(self, advice: int, start: int = 0) -> None:
        """Advise the kernel about the use of the bytes after `start`, which must be the start of a
        page. Raises OSError; ValueError outside the mapping."""

    def close(self) -> None:
        """Unmap the file, now or when its last view ends; new views raise ValueError."""
