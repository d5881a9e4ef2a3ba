"""Buffers that native code works on without Python for each access."""

from typing import Self

class Region:
    """A buffer acquired once; native code works on its memory without Python for each access.

    Positions are bytes inside the buffer. Every method checks its bounds and raises IndexError;
    writing to a read-only region raises TypeError. Views keep the memory alive after `release`.
    """

    @property
    def size(self) -> int:
        """Bytes of the buffer."""

    @property
    def readonly(self) -> bool:
        """Whether the buffer must not be written to."""

    def __new__(cls, buffer: object) -> Self:
        """Acquire a contiguous buffer: bytes, bytearray, mmap, array. Raises TypeError for other
        objects."""

    def release(self) -> None:
        """Release the buffer; any later use raises ValueError.

        The buffer stays exported while a view of it lives, while the region is attached to a queue
        table, and while another thread is in a call with it.
        """

    def read(self, position: int, length: int) -> bytes:
        """Return a copy of the bytes [position, position + length)."""

    def view(self, position: int, length: int) -> memoryview:
        """Return a read-only view of the bytes [position, position + length) without a copy; the
        view keeps the underlying buffer alive."""

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Copy `data` to `position`; `data` may be a view of this region."""

    def zero(self, position: int, length: int) -> None:
        """Overwrite `length` bytes with zeros."""

    def is_zero(self, position: int, length: int) -> bool:
        """Whether all `length` bytes are zeros."""

    def get_i16(self, position: int) -> int:
        """Read a signed big-endian int16."""

    def get_i32(self, position: int) -> int:
        """Read a signed big-endian int32."""

    def get_i64(self, position: int) -> int:
        """Read a signed big-endian int64."""

    def put_i32(self, position: int, value: int) -> None:
        """Write a signed big-endian int32. Raises OverflowError for a larger value."""

    def put_i64(self, position: int, value: int) -> None:
        """Write a signed big-endian int64. Raises OverflowError for a larger value."""

    def sync(self, position: int, length: int) -> None:
        """Sync the pages of the range (msync with MS_SYNC) without the GIL; blocks for the disk.
        Raises OSError."""

    def warm(self, position: int, length: int) -> None:
        """Make each page of the range present and writable without changing it, without the GIL.

        Appending to the same pages meanwhile is safe. Raises OSError if the kernel cannot provide a
        page (a sparse file on a full disk); a plain write would kill the process.
        """

    def advise(self, position: int, length: int, advice: int) -> None:
        """Advise the kernel about the pages that lie whole in the range; `advice` is a MADV_ number
        of the mmap module. Raises OSError."""
