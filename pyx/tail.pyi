"""The end of the commit log, shared by the engine and the native path."""

from typing import Self

from turbopump.pyx.region import Region

UNLIMITED: int
"""Value of Tail.limit without replicas, above every log offset."""

class Tail:
    """The end of the commit log, in one place for the engine and the native path. Loop thread only;
    setting a member writes nothing and moves nothing else. Times are in epoch ms.
    """

    end: int
    """Log offset of the next record."""
    last_store_timestamp_ms: int
    """Latest store time of all records."""
    dispatched: int
    """Log offset before which every record has its queue unit and index entries."""
    dispatched_timestamp_ms: int
    """Store time of the last record dispatched."""

    limit: int
    """Log offset before which the native path may dispatch records, the confirmOffset of a group;
    UNLIMITED without replicas."""

    @property
    def base(self) -> int:
        """Log offset of the open file's first byte."""

    @property
    def refusals(self) -> int:
        """Reasons why the native path may not append, bits of engine.log.commit_log (CLOSED and
        others); 0: it may."""

    def __new__(cls) -> Self: ...
    def refuse(self, reason: int, on: bool) -> None:
        """Set the bits of `reason` in `refusals` if `on`, else clear them."""

    def open(self, base: int, region: Region | None) -> None:
        """Set the mapped file that receives the next records, and `base`, the log offset of its
        first byte; None: no file is open, and the native path appends nothing.

        The buffer stays exported until the next call.
        """
