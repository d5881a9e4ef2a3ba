"""csrc/columns.h, for the binding that owns the columns' memory."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.c_record cimport rec_reason, rec_status

cdef extern from "columns.h" nogil:
    enum:
        COL_SLACK
        COL_HOST_MAX
        COL_PAIRS_MAX
        COL_TEXT_MAX
        COL_INT32S
        COL_INT64S
        COL_TIMES
        COL_HOSTS
        COL_NAMED
    enum col_int32:
        COL_QUEUE_ID
        COL_SIZE
        COL_FLAG
        COL_SYS_FLAG
        COL_RECONSUME_TIMES
        COL_BODY_CRC
        COL_BODY_SIZE
    enum col_int64:
        COL_QUEUE_OFFSET
        COL_LOG_OFFSET
        COL_PREPARED_TRANSACTION_OFFSET
    enum col_time:
        COL_BORN_TIME
        COL_STORE_TIME
    enum col_host:
        COL_BORN_HOST
        COL_STORE_HOST
    enum col_named:
        COL_KEYS
        COL_TAGS
        COL_UNIQUE_KEY
    struct col_texts:
        int32_t *offsets
        uint8_t *data
        size_t room
    struct col_batch:
        size_t room
        size_t rows
        int32_t *int32s[7]
        int64_t *int64s[3]
        int64_t *times[2]
        col_texts hosts[2]
        col_texts topic
        col_texts body
        col_texts named[3]
        uint8_t *named_valid[3]
        size_t named_nulls[3]
        int32_t *map
        col_texts names
        col_texts values
        size_t entries_room
        size_t entries
        int32_t *epoch
        uint8_t *epoch_valid
        size_t epoch_nulls
        uint8_t *confirmed
    struct col_topic:
        const uint8_t *text
        size_t size
    struct col_wish:
        const col_topic *topics
        size_t topic_count
        const int32_t *queue_ids
        size_t queue_id_count
        int64_t min_store_ms
        int64_t max_store_ms
        int64_t min_log_offset
        int64_t end_log_offset
        int check_body
        int64_t confirmed_end
        const int64_t *epoch_starts
        const int32_t *epochs
        size_t epoch_count
    struct col_scratch:
        pass
    struct col_end:
        size_t at
        size_t seen
        size_t skip
        rec_reason reason
        int elsewhere
    rec_status col_decode(const uint8_t *buf, size_t at, size_t end, int64_t log_base,
                          const col_wish *wish, col_batch *batch, col_scratch *scratch,
                          col_end *stop)
