"""csrc/grpc_call.h, grpc_send.h, grpc_ack.h and grpc_message.h, for the native path."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.c_traffic cimport trf_ack, trf_text

cdef extern from "grpc_call.h" nogil:
    enum:
        GRC_ACK
        GRC_NAME_MAX
        GRC_ANSWER_ROOM
    struct grc_head:
        uint8_t seen
        uint8_t is_other
        uint8_t rpc
        trf_text client_id

cdef extern from "grpc_send.h" nogil:
    enum:
        GRS_PROPERTIES_ROOM
    struct grs_message:
        trf_text topic
        trf_text body
        int64_t born_ms
    int grs_read(const uint8_t *data, size_t size, grs_message *message)
    size_t grs_properties(const grs_message *message, trf_text address, int64_t born_ms,
                          uint8_t *out)
    size_t grs_answer(const grs_message *message, trf_text transaction_id, int64_t queue_offset,
                      uint8_t *out)

cdef extern from "grpc_ack.h" nogil:
    struct gra_entry:
        trf_ack ack
        trf_text broker_name
        int64_t until_ms
    int gra_read(const uint8_t *data, size_t size, gra_entry *entry)
    size_t gra_answer(const gra_entry *entry, uint8_t *out)

cdef extern from "grpc_message.h" nogil:
    struct grm_pop:
        int64_t start
        int64_t pop_time_ms
        int64_t invisible_ms
        int32_t queue_id
        int32_t revive_queue_id
        int32_t attempts_max
        trf_text broker_name
        const trf_text *tags
        int32_t tag_count
    struct grm_message:
        uint8_t *body
        size_t body_size
        trf_text message_id
        int64_t start
        int64_t queue_offset
        int64_t log_offset
        int32_t queue_id
    size_t grm_room(size_t size, size_t count)
    size_t grm_record_size(const uint8_t *record, size_t left)
    size_t grm_write(const grm_pop *pop, const uint8_t *record, size_t size,
                     int64_t queue_offset, uint8_t *out, grm_message *made)
    void grm_digest(const grm_message *made, const uint8_t *md5)
