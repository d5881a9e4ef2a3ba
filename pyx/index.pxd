"""The index file, for the dispatch kernel: it puts keys without Python between them."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from turbopump.pyx.region cimport Region

cdef extern from "hash_index.h" nogil:
    enum:
        IDX_HEADER
        IDX_BEGIN_TIMESTAMP_AT
        IDX_END_TIMESTAMP_AT
        IDX_BEGIN_LOG_OFFSET_AT
        IDX_END_LOG_OFFSET_AT
        IDX_SLOT_COUNT_AT
        IDX_COUNT_AT
    struct idx_file:
        uint8_t *buf
        uint32_t slots
        uint32_t entries
    int idx_open(idx_file *file, uint8_t *buf, size_t len, int64_t slots, int64_t entries)
    uint32_t idx_java_hash(uint32_t hash, const uint8_t *text, size_t size)
    uint32_t idx_topic_hash(const uint8_t *topic, size_t size)
    int32_t idx_key_hash(uint32_t java_hash)
    uint32_t idx_count(const idx_file *file)
    int idx_is_full(const idx_file *file)
    int idx_put(const idx_file *file, int32_t key_hash, int64_t log_offset,
                int64_t store_timestamp_ms)
    size_t idx_search(const idx_file *file, int32_t key_hash, int64_t begin_ms, int64_t end_ms,
                      int64_t *found, size_t max_count)


cdef class IndexFile:
    cdef Region region
    cdef idx_file file

    # The file for writing; ValueError after the region's release, TypeError if it is read-only.
    cdef idx_file *writing(self) except NULL
    cdef const idx_file *reading(self) except NULL
