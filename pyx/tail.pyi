from typing import Self

from turbopump.pyx.region import Region

class Tail:
    """Positions of the log's end, in one place for the engine and the native path."""

    end: int  # log offset of the next record
    last_store_timestamp_ms: int
    dispatched: int  # queues and index are complete up to here

    @property
    def base(self) -> int:
        """Log offset of the open file's first byte."""

    def __new__(cls) -> Self: ...
    def open(self, base: int, region: Region | None) -> None:
        """The file that is written from now on; None: none is open.

        The buffer stays exported until another file is opened.
        """
