# cython: auto_pickle=False
"""The key index: one file of hash slots and chained entries.

Owns the view of a single file. It must never open, roll or choose a file. The dispatch kernel puts
the keys of new records.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from turbopump.pyx.region cimport Region

cdef extern from "bytes.h" nogil:
    int32_t be_i32(const uint8_t *at)
    int64_t be_i64(const uint8_t *at)
    void be_put_i64(uint8_t *at, int64_t value)

HEADER_SIZE = IDX_HEADER


def java_hash(bytes text not None) -> int:
    """Return Java's String.hashCode of UTF-8 text (over UTF-16 units), as signed int32."""
    return <int32_t>idx_java_hash(0, <const uint8_t *><const char *>text, <size_t>len(text))


def key_hash(bytes key not None) -> int:
    """Return abs(java_hash), 0 for Integer.MIN_VALUE (IndexFile.indexKeyHashMethod)."""
    return hash_of(key)


cdef int32_t hash_of(bytes key) noexcept:
    return idx_key_hash(
        idx_java_hash(0, <const uint8_t *><const char *>key, <size_t>len(key))
    )


cdef class IndexFile:
    """An index file of `slots` hash slots and `entries` entries in a region."""

    def __cinit__(self, Region region not None, int64_t slots, int64_t entries):
        self.region = region
        if not idx_open(&self.file, <uint8_t *>region.reading(0, region.size),
                        <size_t>region.size, slots, entries):
            raise ValueError(
                f"{slots} slots and {entries} entries do not fit a region of {region.size} bytes"
            )

    cdef idx_file *writing(self) except NULL:
        self.region.writing(0, 0)
        return &self.file

    cdef const idx_file *reading(self) except NULL:
        self.region.reading(0, 0)
        return &self.file

    @property
    def slots(self) -> int:
        """Number of hash slots in the file."""
        return self.file.slots

    @property
    def entries(self) -> int:
        """Number of entries that fit into the file, including the unused entry 0."""
        return self.file.entries

    @property
    def begin_timestamp_ms(self) -> int:
        """Store time of the first entry's record (or what start_after set)."""
        return be_i64(self.reading().buf + IDX_BEGIN_TIMESTAMP_AT)

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the last entry's record."""
        return be_i64(self.reading().buf + IDX_END_TIMESTAMP_AT)

    @property
    def begin_log_offset(self) -> int:
        """Log offset of the first entry's record."""
        return be_i64(self.reading().buf + IDX_BEGIN_LOG_OFFSET_AT)

    @property
    def end_log_offset(self) -> int:
        """Log offset of the last entry's record."""
        return be_i64(self.reading().buf + IDX_END_LOG_OFFSET_AT)

    @property
    def slot_count(self) -> int:
        """Number of hash slots in use."""
        return be_i32(self.reading().buf + IDX_SLOT_COUNT_AT)

    @property
    def count(self) -> int:
        """Number of the next entry; the first is 1, because entry 0 is never used."""
        return idx_count(self.reading())

    @property
    def full(self) -> bool:
        """Whether `put` would refuse."""
        return idx_is_full(self.reading()) != 0

    def put(self, bytes key not None, int64_t log_offset, int64_t store_timestamp_ms) -> bool:
        """Add an entry; False when the file is full (nothing written)."""
        return idx_put(self.writing(), hash_of(key), log_offset, store_timestamp_ms) != 0

    def start_after(self, int64_t end_log_offset, int64_t end_timestamp_ms) -> None:
        """Initialise the header of a new file from the end of the previous one."""
        cdef uint8_t *buf = self.writing().buf
        if end_log_offset > 0:
            be_put_i64(buf + IDX_BEGIN_LOG_OFFSET_AT, end_log_offset)
            be_put_i64(buf + IDX_END_LOG_OFFSET_AT, end_log_offset)
        if end_timestamp_ms > 0:
            be_put_i64(buf + IDX_BEGIN_TIMESTAMP_AT, end_timestamp_ms)
            be_put_i64(buf + IDX_END_TIMESTAMP_AT, end_timestamp_ms)

    def search(
        self, bytes key not None, Py_ssize_t max_count, int64_t begin_ms, int64_t end_ms
    ) -> list[int]:
        """Return the log offsets of entries with the key's hash and a time in range, newest first.

        Walks at most `entries` links; a damaged chain ends the walk.
        """
        cdef const idx_file *file = self.reading()
        cdef int32_t wanted = hash_of(key)
        cdef int64_t *found
        cdef size_t count
        cdef object held = self.region.buffer
        cdef Py_ssize_t room = max(0, min(max_count, <Py_ssize_t>idx_count(file)))
        if room == 0:
            return []
        found = <int64_t *>PyMem_Malloc(<size_t>room * sizeof(int64_t))
        if found == NULL:
            raise MemoryError
        try:
            with nogil:
                count = idx_search(file, wanted, begin_ms, end_ms, found, <size_t>room)
            return [found[i] for i in range(<Py_ssize_t>count)]
        finally:
            PyMem_Free(found)
