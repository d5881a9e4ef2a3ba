from typing import Self

from turbopump.pyx.region import Region

UNLIMITED: int

class Tail:
    """The end of the commit log, in one place for the engine and the native path.

    Positions are log offsets, times epoch milliseconds.
    """

    end: int
    """Log offset of the next record."""
    last_store_timestamp_ms: int
    """Store time of the last record."""
    dispatched: int
    """Log offset up to which queues and index are complete."""
    dispatched_timestamp_ms: int
    """Store time of the last record dispatched."""

    limit: int
    """Log offset up to which records are dispatched; UNLIMITED without replicas."""

    @property
    def base(self) -> int:
        """Log offset of the open file's first byte."""

    @property
    def refusals(self) -> int:
        """Reasons why the native path may not append, one bit for each; 0: it may."""

    def __new__(cls) -> Self: ...
    def refuse(self, reason: int, on: bool) -> None:
        """Set or clear the bits of `reason`."""

    def open(self, base: int, region: Region | None) -> None:
        """Set the file that receives the next records; None: no file is open.

        The buffer stays exported until the next call.
        """
