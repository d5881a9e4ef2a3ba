from typing import Self

from turbopump.pyx.region import Region

class Syncer:
    """A thread that makes one range of a mapping durable at a time, without the interpreter.

    Raises OSError if the thread cannot be started.
    """

    @property
    def descriptor(self) -> int:
        """Descriptor that becomes readable when a sync has ended; -1 after `close`."""

    @property
    def busy(self) -> bool:
        """Whether a sync is running, or has ended and its result was not taken."""

    def __new__(cls) -> Self: ...
    def begin(self, region: Region, position: int, length: int) -> None:
        """Start to sync the pages of the range. Calling this while busy is a programming error."""

    def take(self) -> int | None:
        """Return the errno of the ended sync, 0 for success; None while it is running."""

    def wait(self) -> int:
        """Wait for the end of the sync, then return its errno, 0 for success."""

    def close(self) -> None:
        """End the thread, after a sync that is still running."""
