from typing import Self

class Region:
    """A buffer acquired once; kernels take it and work on its memory without Python per access.

    Positions are bytes inside the buffer. Every method checks its bounds and raises IndexError;
    writing to a read-only region raises TypeError. Views keep the memory alive after `release`.
    """

    @property
    def size(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    def __new__(cls, buffer: object) -> Self:
        """Any contiguous buffer: bytes, bytearray, mmap, array. TypeError for anything else."""

    def release(self) -> None:
        """Give the buffer back; any later use raises ValueError.

        While a view lives, the region is attached to a queue table or a call on another thread is
        in it, the buffer itself stays exported.
        """

    def read(self, position: int, length: int) -> bytes:
        """A copy of the range."""

    def view(self, position: int, length: int) -> memoryview:
        """Zero-copy, read-only; keeps the underlying buffer alive on its own."""

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None: ...
    def zero(self, position: int, length: int) -> None: ...
    def is_zero(self, position: int, length: int) -> bool: ...
    def get_i16(self, position: int) -> int: ...
    def get_i32(self, position: int) -> int: ...
    def get_i64(self, position: int) -> int: ...
    def put_i32(self, position: int, value: int) -> None:
        """OverflowError beyond an int32."""

    def put_i64(self, position: int, value: int) -> None:
        """OverflowError beyond an int64."""

    def sync(self, position: int, length: int) -> None:
        """msync(MS_SYNC) of the pages that hold the range, without the GIL. Raises OSError."""

    def warm(self, position: int, length: int) -> None:
        """Make each page of the range present and writable without changing it, without the GIL.

        Appending to the same pages meanwhile is safe. Raises OSError where the kernel says that a
        page cannot be had (a sparse file on a full disk), instead of dying of it.
        """

    def advise(self, position: int, length: int, advice: int) -> None:
        """madvise of the pages inside the range. Raises OSError."""
