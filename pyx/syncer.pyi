"""Threads that sync mapped files."""

from typing import Self

from turbopump.pyx.region import Region

class Syncer:
    """A thread that makes one range of a mapping durable at a time, without the interpreter.

    Raises OSError if the thread cannot be started.
    """

    @property
    def descriptor(self) -> int:
        """Descriptor (eventfd) that becomes readable when a sync has ended, until the next `take`,
        which reads it; `wait` does not. -1 after `close`."""

    @property
    def busy(self) -> bool:
        """Whether a sync is running, or has ended and its result was not taken."""

    def __new__(cls) -> Self: ...
    def begin(self, region: Region, position: int, length: int) -> None:
        """Start to sync the pages of [position, position + length) of a mapped file, and return.
        Raises IndexError outside the region; calling this while busy is a programming error."""

    def take(self) -> int | None:
        """Take the result of the ended sync: its errno, 0 for success; None while it is running, or
        without a sync. Does not block."""

    def wait(self) -> int:
        """Block until the sync has ended, then take its result: its errno, 0 for success. Calling
        this without a sync is a programming error."""

    def close(self) -> None:
        """End the thread; blocks until a running sync has ended. A second call does nothing;
        calling this during `wait` is a programming error."""
