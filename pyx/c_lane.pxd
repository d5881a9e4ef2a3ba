"""csrc/names.h and csrc/lane.h, for the native path."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from turbopump.pyx.c_dispatch cimport dsp_table
from turbopump.pyx.c_traffic cimport (
    trf_ack, trf_end, trf_properties, trf_request, trf_send, trf_text
)
from turbopump.pyx.tail cimport log_tail

cdef extern from "names.h" nogil:
    struct nam_key:
        const uint8_t *text
        size_t size
        uint32_t hash
    struct nam_table:
        nam_key *keys
        int32_t *buckets
        size_t bucket_mask
        int32_t count
    struct nam_text:
        const uint8_t *at
        size_t size
    int32_t nam_find(const nam_table *table, nam_text first, nam_text second)
    int32_t nam_add(nam_table *table, const uint8_t *text, size_t first_size, size_t size)
    void nam_rehash(nam_table *table, int32_t *buckets, size_t bucket_count)
    void nam_clear(nam_table *table)

cdef extern from "lane_kept.h" nogil:
    enum:
        LANE_TIMER_ROW
        LANE_HALF_ROW
        LANE_NAME_MAX
    const char *TIMER_TOPIC
    const char *HALF_TOPIC
    struct lane_kept:
        uint8_t timers
        uint8_t halves
        int64_t max_delay_ms
        int64_t precision_ms
        trf_text broker_name

cdef extern from "lane.h" nogil:
    enum lane_outcome:
        LANE_DONE
        LANE_ELSEWHERE
        LANE_NOT_ENOUGH
        LANE_NEW_QUEUE
    enum:
        LANE_TEXT_ROOM
    struct lane_halves:
        int64_t prepared
        int64_t committed
        int64_t rolled_back
        int64_t age_s
        int64_t at_ms
    struct lane_topic:
        int32_t queue_limit
        uint8_t plain
        uint32_t topic_hash
        int64_t put_count
        int64_t put_size
        lane_halves halves
        int32_t next_noted
        uint8_t noted
    struct lane_counts:
        int64_t put_count
        int64_t put_size
        int64_t send_count
        int64_t kept_count
        int64_t end_count
        int64_t ack_count
    struct lane_core "lane":
        nam_table topics
        lane_topic *rows
        int32_t first_noted
        lane_kept kept
        log_tail *tail
        dsp_table *queues
        trf_text own_properties
        trf_text store_host
        size_t max_body
        uint8_t not_enough
        int64_t accept_from_ms
        uint8_t *texts
        int64_t *log_offsets
        lane_counts counts
    struct lane_sent:
        int64_t queue_offset
        int64_t end
        size_t count
        trf_text unique_key
        trf_text handle
        uint8_t waits
    lane_outcome lane_send(lane_core *lane, const trf_send *send,
                           const trf_properties *known, trf_text body, trf_text born_host,
                           int64_t now_ms, lane_sent *sent)

cdef extern from "lane_end.h" nogil:
    lane_outcome lane_end(lane_core *lane, const trf_end *end, int64_t now_ms)

cdef extern from "lane_ack.h" nogil:
    enum:
        LANE_LOWS
        LANE_OFFSETS_MAX
    struct lane_low "lane_low":
        int32_t queue_id
        int64_t generation
        int64_t low
    struct lane_acker:
        uint8_t plain
        int32_t queue_limit
        int64_t ended_ms
        lane_low lows[LANE_LOWS]
    struct lane_joined:
        int32_t row
        int32_t requests
        uint8_t is_written
        int64_t pop_time_ms
        int64_t invisible_ms
    struct lane_acked:
        const uint8_t *frame
        size_t size
        int32_t joined
        int32_t opaque
        uint8_t is_oneway
    struct lane_acks:
        nam_table pairs
        lane_acker *rows
        int32_t revive_queues
        trf_text revive_topic
        int32_t joined_count
        int32_t acked_count
        lane_joined *joined
        lane_acked *acked
        int32_t *changed
    struct lane_point:
        trf_text group
        trf_text topic
        trf_text broker_name
        int32_t queue_id
        int32_t revive_queue_id
        int64_t start
        int64_t pop_time_ms
        int64_t invisible_ms
        int32_t count
        uint8_t is_suspended
        int64_t distances[LANE_OFFSETS_MAX]
    size_t lane_changed_slot(int32_t queue_id, int64_t start, int64_t pop_time_ms, int64_t offset)
    int32_t lane_find_acker(const lane_acks *acks, const trf_ack *ack)
    int lane_acks_full(const lane_acks *acks, const trf_request *request)
    lane_outcome lane_add_ack(const lane_core *lane, lane_acks *acks, int32_t row,
                              const trf_request *request, int64_t low, const uint8_t *frame,
                              size_t size)
    lane_outcome lane_write_point(lane_core *lane, const lane_acks *acks, const lane_point *point,
                                  int64_t now_ms)
    lane_outcome lane_write_ack(lane_core *lane, lane_acks *acks, int32_t number, int64_t now_ms)
