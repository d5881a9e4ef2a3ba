"""csrc/names.h and csrc/lane.h, for the native path."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from turbopump.pyx.c_dispatch cimport dsp_table
from turbopump.pyx.c_traffic cimport trf_end, trf_send, trf_text
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
    const char *LANE_TIMER_TOPIC
    const char *LANE_HALF_TOPIC
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
    lane_outcome lane_send(lane_core *lane, const trf_send *send, trf_text body,
                           trf_text born_host, int64_t now_ms, lane_sent *sent)

cdef extern from "lane_end.h" nogil:
    lane_outcome lane_end(lane_core *lane, const trf_end *end, int64_t now_ms)
