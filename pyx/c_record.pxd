"""csrc/record.h, for the bindings that parse or encode records."""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "record.h" nogil:
    enum:
        REC_MIN
        REC_FILLER
        REC_MAX_PROPERTIES
        REC_ROW_WIDTH
        REC_HOST_V4
        REC_HOST_V6
    int REC_MAGIC_V1
    int REC_MAGIC_V2
    int REC_BLANK_MAGIC
    enum rec_status:
        REC_OK
        REC_BLANK
        REC_BAD
        REC_SHORT
        REC_NO_ROOM
    enum rec_reason:
        REC_FINE
        REC_BAD_BODY_CRC
    enum rec_check:
        REC_CHECK_NOTHING
        REC_CHECK_BODY
        REC_CHECK_PROPERTY
    const char *rec_reason_text(rec_reason reason)
    struct rec_row:
        int64_t position
        int64_t size
        int64_t magic
        int64_t body_crc
        int64_t queue_id
        int64_t flag
        int64_t queue_offset
        int64_t physical_offset
        int64_t sys_flag
        int64_t born_timestamp_ms
        int64_t born_host_at
        int64_t born_host_size
        int64_t store_timestamp_ms
        int64_t store_host_at
        int64_t store_host_size
        int64_t reconsume_times
        int64_t prepared_transaction_offset
        int64_t body_at
        int64_t body_size
        int64_t topic_at
        int64_t topic_size
        int64_t properties_at
        int64_t properties_size
        int64_t crc_ok
    struct rec_fields:
        const uint8_t *topic
        size_t topic_size
        const uint8_t *body
        size_t body_size
        const uint8_t *properties
        size_t properties_size
        const uint8_t *born_host
        size_t born_host_size
        const uint8_t *store_host
        size_t store_host_size
        int64_t log_offset
        int64_t queue_offset
        int64_t born_timestamp_ms
        int64_t store_timestamp_ms
        int64_t prepared_transaction_offset
        int32_t magic
        int32_t queue_id
        int32_t flag
        int32_t sys_flag
        int32_t reconsume_times
        int property_crc
    rec_status rec_parse(const uint8_t *buf, size_t at, size_t end, int checks, rec_row *row,
                         rec_reason *reason)
    rec_status rec_scan(const uint8_t *buf, size_t *at, size_t end, int checks, rec_row *rows,
                        size_t max_rows, size_t *count, rec_reason *reason)
    rec_status rec_measure(const rec_fields *fields, size_t *size, rec_reason *reason)
    rec_status rec_encode(uint8_t *buf, size_t at, size_t limit, const rec_fields *fields,
                          size_t *size, rec_reason *reason)
    rec_status rec_encode_batch(uint8_t *buf, size_t at, size_t limit, const uint8_t *batch,
                                size_t len, const rec_fields *common, size_t *count,
                                rec_reason *reason)
    rec_status rec_count_batch(const uint8_t *batch, size_t len, size_t *count, size_t *payload,
                               rec_reason *reason)
    rec_status rec_encode_filler(uint8_t *buf, size_t at, size_t limit)
