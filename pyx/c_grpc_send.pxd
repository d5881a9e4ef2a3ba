"""csrc/grpc_send.h, for the native path."""

from libc.stdint cimport int64_t, uint8_t

from turbopump.pyx.c_traffic cimport trf_text

cdef extern from "grpc_send.h" nogil:
    enum:
        GRS_NAME_MAX
        GRS_PROPERTIES_ROOM
        GRS_ANSWER_ROOM
    struct grs_head:
        uint8_t seen
        uint8_t is_other
        trf_text client_id
    struct grs_message:
        trf_text topic
        trf_text body
        int64_t born_ms
    void grs_header(grs_head *head, trf_text name, trf_text value)
    int grs_is_plain(const grs_head *head)
    int grs_read(const uint8_t *data, size_t size, grs_message *message)
    size_t grs_properties(const grs_message *message, trf_text address, int64_t born_ms,
                          uint8_t *out)
    size_t grs_answer(const grs_message *message, trf_text transaction_id, int64_t queue_offset,
                      uint8_t *out)
