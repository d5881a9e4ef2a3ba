"""Declarations of csrc/traffic.h, csrc/traffic_properties.h, csrc/traffic_reply.h, and of headers
that csrc/wire_tables.py generates."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef extern from "traffic_properties.h" nogil:
    enum:
        TRF_DELAY
        TRF_TIMER
        TRF_DELAY_SEC
        TRF_DELAY_MS
        TRF_DELIVER_MS
        TRF_REAL_TOPIC
        TRF_REAL_QID
        TRF_KEPT_ID
        TRF_RARE
        TRF_PGROUP
        TRF_TRAN_MSG
        TRF_INNER_NUM
        TRF_POP_CK
        TRF_OWN
        TRF_UNIQ_KEY
        TRF_WAIT
        TRF_KEYS
        TRF_TAGS
        TRF_LIGHT
        TRF_SPECIAL

    struct trf_text:
        const uint8_t *at
        uint32_t size

    struct trf_properties:
        uint32_t names
        uint8_t canonical
        uint8_t unended
        uint8_t waits
        uint8_t is_half
        trf_text unique_key
        trf_text keys
        trf_text tags
        trf_text timer
        trf_text real_topic
        trf_text real_queue
        trf_text producer_group

    bint trf_scan_properties(trf_text text, trf_properties *out)

cdef extern from "traffic.h" nogil:
    enum trf_verdict:
        TRF_PLAIN
        TRF_OTHER
        TRF_BAD

    # Generated from net/wire/headers: only what Cython reads or fills is declared here.
    enum:
        TRF_SEND
        TRF_PULL
        TRF_END
        TRF_ACK
        TRF_POP
        TRF_SEND_MESSAGE
        TRF_PULL_MESSAGE
        TRF_END_TRANSACTION
        TRF_SEND_MESSAGE_V2
        TRF_SEND_BATCH_MESSAGE
        TRF_ACK_MESSAGE
        TRF_POP_MESSAGE

    struct trf_send:
        trf_text topic
        trf_text properties
        int64_t born_timestamp
        int32_t queue_id

    struct trf_pull:
        trf_text consumer_group
        trf_text topic
        trf_text subscription
        trf_text expression_type
        int64_t queue_offset
        int64_t commit_offset
        int64_t suspend_timeout_millis
        int64_t sub_version
        int32_t queue_id
        int32_t max_msg_nums
        int32_t sys_flag

    struct trf_end:
        int64_t tran_state_table_offset
        int64_t commit_log_offset
        int32_t commit_or_rollback

    struct trf_ack:
        trf_text consumer_group
        trf_text topic
        int32_t queue_id

    struct trf_pop:
        trf_text consumer_group
        trf_text topic
        trf_text exp_type
        trf_text exp
        int64_t invisible_time
        int32_t queue_id
        int32_t max_msg_nums

    struct trf_request:
        int32_t code
        int32_t opaque
        int32_t flag
        int32_t version
        uint8_t kind
        uint8_t codec
        uint8_t language
        uint8_t is_oneway
        trf_send send
        trf_pull pull
        trf_end end
        trf_ack ack
        trf_pop pop
        trf_text body

    trf_verdict trf_decode(const uint8_t *frame, size_t size, uint8_t *scratch,
                           size_t scratch_size, trf_request *out)

cdef extern from "traffic_template.h" nogil:
    enum:
        TRF_HEADER_MAX
        TRF_TEMPLATE_MAX

    struct trf_template:
        trf_request request

    bint trf_learn(trf_template *template, const uint8_t *frame, const trf_request *request)
    bint trf_match(trf_template *template, const uint8_t *frame, size_t size, uint8_t *scratch,
                   trf_properties *properties)

cdef extern from "traffic_members.h" nogil:
    enum:
        TRF_TEXT
        TRF_INT64
        TRF_INT32
        TRF_FLAG
        TRF_MEMBERS

    struct trf_member:
        const char *name
        uint8_t kind
        uint8_t type
        size_t place
        size_t flag

    const trf_member trf_members[]

cdef extern from "traffic_reply.h" nogil:
    enum:
        TRF_REPLY_FIXED

    struct trf_send_answer:
        int32_t code
        int32_t opaque
        int32_t queue_id
        int64_t queue_offset
        const int64_t *log_offsets
        size_t count
        const uint8_t *store_host
        size_t store_host_size
        trf_text transaction_id
        trf_text batch_id
        trf_text recall_handle
        trf_text region
        uint8_t trace_on

    struct trf_pull_answer:
        int32_t code
        int32_t opaque
        trf_text remark
        int64_t suggest_which_broker_id
        int64_t next_begin_offset
        int64_t min_offset
        int64_t max_offset
        int32_t topic_sys_flag
        int32_t group_sys_flag
        size_t body_size

    struct trf_refusal:
        int32_t code
        int32_t opaque
        trf_text remark
        trf_text region
        uint8_t trace_on

    struct trf_pop_answer:
        int32_t opaque
        int32_t revive_queue_id
        int64_t pop_time_ms
        int64_t invisible_ms
        int64_t rest
        trf_text starts
        trf_text offsets
        size_t body_size

    size_t trf_pop_reply_room(const trf_pop_answer *answer)
    size_t trf_pop_reply(uint8_t *out, size_t room, const trf_pop_answer *answer)
    size_t trf_end_reply(uint8_t *out, size_t room, int32_t opaque)
    size_t trf_refusal_room(const trf_refusal *refusal)
    size_t trf_send_refusal(uint8_t *out, size_t room, const trf_refusal *refusal)
    size_t trf_send_reply_room(const trf_send_answer *answer)
    size_t trf_pull_reply_room(const trf_pull_answer *answer)
    size_t trf_send_reply(uint8_t *out, size_t room, const trf_send_answer *answer)
    size_t trf_pull_reply(uint8_t *out, size_t room, const trf_pull_answer *answer)


cdef inline trf_text text_of(bytes text):
    """Return a text over the bytes of an object, valid as long as the object lives; empty for
    None."""
    cdef trf_text found
    found.at, found.size = NULL, 0
    if text is not None:
        found.at, found.size = <const uint8_t *><const char *>text, <unsigned int>len(text)
    return found


cdef inline bytes bytes_of(trf_text text):
    """Return a copy as bytes."""
    return PyBytes_FromStringAndSize(<const char *>text.at, text.size) if text.size else b""
