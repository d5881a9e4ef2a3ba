from typing import Self

from turbopump.pyx.region import Region

class Syncer:
    """A thread that makes one range of a mapping durable at a time, without the interpreter.

    Raises OSError if there can be no such thread.
    """

    @property
    def descriptor(self) -> int:
        """Readable when a sync has ended; -1 once closed."""

    @property
    def busy(self) -> bool:
        """Whether a sync is under way, or ended and was not taken."""

    def __new__(cls) -> Self: ...
    def begin(self, region: Region, position: int, length: int) -> None:
        """Sync the pages that hold the range; a programmer error while busy."""

    def take(self) -> int | None:
        """The errno of the sync that has ended, 0 for success; None: it has not."""

    def wait(self) -> int:
        """As `take`, once it has ended."""

    def close(self) -> None:
        """End the thread, behind a sync that is under way."""
