from typing import Self

from turbopump.pyx.region import Region

UNLIMITED: int

class Tail:
    """The end of the commit log, in one place for the engine and the native path.

    Positions are log offsets, times epoch milliseconds.
    """

    end: int
    """Where the next record goes."""
    last_store_timestamp_ms: int
    """Of the last record."""
    dispatched: int
    """Queues and index are complete up to here."""
    dispatched_timestamp_ms: int
    """Store time of the last record dispatched."""

    limit: int
    """Records that end behind this are not dispatched; UNLIMITED without replicas."""

    @property
    def base(self) -> int:
        """Log offset of the open file's first byte."""

    @property
    def refusals(self) -> int:
        """Why the native path may not append, a bit for each reason; 0: it may."""

    def __new__(cls) -> Self: ...
    def refuse(self, reason: int, on: bool) -> None:
        """Set or clear the bits of `reason`."""

    def open(self, base: int, region: Region | None) -> None:
        """The file that is written from now on; None: none is open.

        The buffer stays exported until another file is opened.
        """
