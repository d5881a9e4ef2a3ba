from typing import Self

from turbopump.pyx.region import Region

HEADER_SIZE: int  # 40

def java_hash(text: bytes) -> int:
    """Return Java's String.hashCode of UTF-8 text (over UTF-16 units), as signed int32.

    A malformed sequence counts as one U+FFFD, like in Python's errors="replace".
    """

def key_hash(key: bytes) -> int:
    """Return abs(java_hash), 0 for Integer.MIN_VALUE (IndexFile.indexKeyHashMethod)."""

class IndexFile:
    """An index file of `slots` hash slots and `entries` entries in a region."""

    @property
    def slots(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def begin_timestamp_ms(self) -> int: ...
    @property
    def end_timestamp_ms(self) -> int: ...
    @property
    def begin_log_offset(self) -> int: ...
    @property
    def end_log_offset(self) -> int: ...
    @property
    def slot_count(self) -> int:
        """Number of hash slots in use."""

    @property
    def count(self) -> int:
        """Number of the next entry; the first is 1, because entry 0 is never used."""

    @property
    def full(self) -> bool: ...
    def __new__(cls, region: Region, slots: int, entries: int) -> Self:
        """Open the file. Raises ValueError if the region is too small for the slots and entries."""

    def put(self, key: bytes, log_offset: int, store_timestamp_ms: int) -> bool:
        """Add an entry; False when the file is full (nothing written)."""

    def start_after(self, end_log_offset: int, end_timestamp_ms: int) -> None:
        """Initialise the header of a new file from the end of the previous one."""

    def search(self, key: bytes, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return the log offsets of entries with the key's hash and a time in range, newest first.

        Every link must lead to an older entry, so a damaged chain ends the walk.
        """
