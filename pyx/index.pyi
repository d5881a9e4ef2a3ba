"""Files of the key index: from the hash of a key to log offsets of records."""

from typing import Self

from turbopump.pyx.region import Region

HEADER_SIZE: int
"""Bytes of an index file's header: 40."""

def java_hash(text: bytes) -> int:
    """Return Java's String.hashCode of UTF-8 text (over UTF-16 units), as signed int32.

    A malformed sequence counts as one U+FFFD, like in Python's errors="replace".
    """

def key_hash(key: bytes) -> int:
    """Return abs(java_hash(key)), 0 for Integer.MIN_VALUE (IndexFile.indexKeyHashMethod)."""

class IndexFile:
    """An index file of `slots` hash slots and `entries` entries in a region. Times are store times
    in epoch ms; a file without entries has the times and log offsets that `start_after` set, or
    0."""

    @property
    def slots(self) -> int:
        """Number of hash slots in the file."""

    @property
    def entries(self) -> int:
        """Number of entries that fit into the file, with the unused entry 0."""

    @property
    def begin_timestamp_ms(self) -> int:
        """Store time of the first entry's record."""

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the last entry's record."""

    @property
    def begin_log_offset(self) -> int:
        """Log offset at which the first entry's record begins."""

    @property
    def end_log_offset(self) -> int:
        """Log offset at which the last entry's record begins."""

    @property
    def slot_count(self) -> int:
        """Number of hash slots in use."""

    @property
    def count(self) -> int:
        """Number of the next entry; the first is 1, because entry 0 is never used."""

    @property
    def full(self) -> bool:
        """Whether `put` would add nothing."""

    def __new__(cls, region: Region, slots: int, entries: int) -> Self:
        """Open the file. Raises ValueError if the region is too small for the slots and entries."""

    def put(self, key: bytes, log_offset: int, store_timestamp_ms: int) -> bool:
        """Add an entry for `key` (`topic#key`) of the record at `log_offset`, in memory, not
        durable; False when the file is full, and nothing was written."""

    def start_after(self, end_log_offset: int, end_timestamp_ms: int) -> None:
        """Set begin and end in the header of a new file to the end of the previous file; the first
        `put` replaces them."""

    def search(self, key: bytes, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return at most `max_count` log offsets of entries with the hash of `key` (`topic#key`)
        and a store time in [begin_ms, end_ms] (epoch ms, to a second), newest first. Other keys may
        have the same hash, and a record may appear several times.

        Every link must lead to an older entry, so a damaged chain ends the walk.
        """
