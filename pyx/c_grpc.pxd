"""csrc/grpc_call.h, grpc_send.h and grpc_ack.h, for the native path."""

from libc.stdint cimport int64_t, uint8_t

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
