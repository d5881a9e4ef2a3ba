from turbopump.pyx.region import Region

HEADER_SIZE: int  # 40

def java_hash(text: bytes) -> int:
    """Java's String.hashCode of UTF-8 text (over UTF-16 units), as signed int32."""

def key_hash(key: bytes) -> int:
    """abs(java_hash), 0 for Integer.MIN_VALUE (IndexFile.indexKeyHashMethod)."""

class IndexFile:
    """One index file of `slots` hash slots and `entries` entries in a region."""

    slots: int
    entries: int
    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_log_offset: int
    end_log_offset: int
    slot_count: int
    count: int  # starts at 1; entry 0 is never used
    full: bool
    def __init__(self, region: Region, slots: int, entries: int) -> None: ...
    def put(self, key: bytes, log_offset: int, store_timestamp_ms: int) -> bool:
        """Add an entry; False when the file is full (nothing written)."""
    def start_after(self, end_log_offset: int, end_timestamp_ms: int) -> None:
        """Initialise the header of a new file from the end of the previous one."""
    def search(self, key: bytes, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """Log offsets of entries with the key's hash and a time in range, newest first.

        Walks at most `entries` links; a chain that is damaged ends the walk.
        """
