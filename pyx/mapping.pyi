from typing import Self

class Mapping:
    """A file mapped whole, without a descriptor of its own; a buffer of `size` bytes.

    It lasts as long as a view of it exists.
    """

    def __new__(cls, descriptor: int, size: int, readonly: bool) -> Self:
        """The first `size` bytes of an open file. Raises OSError; ValueError for no bytes."""

    def madvise(self, advice: int, start: int = 0) -> None:
        """Advise the kernel how the bytes from `start` on, where a page begins, are used. Raises
        OSError; ValueError for what is not mapped."""

    def close(self) -> None:
        """Unmap it, at once or with the last view of it; there are no new ones."""
