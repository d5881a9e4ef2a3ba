"""csrc/lane_pull.h, for the native path."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.c_dispatch cimport dsp_table
from turbopump.pyx.c_lane cimport nam_table
from turbopump.pyx.filter cimport flt_program
from turbopump.pyx.c_traffic cimport trf_pull, trf_text
from turbopump.pyx.tail cimport log_tail

cdef extern from "lane_pull.h" nogil:
    enum:
        LANE_PULL_MAX
        LANE_SPANS
    enum lane_found_outcome:
        LANE_FOUND
        LANE_NOT_HERE
        LANE_NEEDS_UNITS
        LANE_NEEDS_LOG
        LANE_AT_END
        LANE_PASSED
    struct lane_cursor:
        const uint8_t *units
        int64_t generation
        int64_t first
        int64_t count
        int64_t min_offset
        int64_t pulled
        int32_t slot
    struct lane_reader:
        uint8_t plain
        uint8_t carried
        int32_t queue_limit
        int32_t cursor_count
        int32_t topic_sys_flag
        int32_t group_sys_flag
        int64_t near_id
        int64_t far_id
        int64_t sub_version
        int64_t until_ms
        trf_text subscription
        trf_text expression_type
        const int32_t *codes
        size_t code_count
        const flt_program *filter
        lane_cursor *cursors
        int64_t got_times
        int64_t got_count
        int64_t got_size
    struct lane_span:
        const uint8_t *memory
        int64_t start
    struct lane_limits:
        int64_t near_bytes
        int64_t near_count
        int64_t near_size
        int64_t far_count
        int64_t far_size
    struct lane_reading:
        nam_table pairs
        lane_reader *rows
        const log_tail *tail
        const dsp_table *queues
        const int64_t *generation
        int64_t file_size
        lane_limits limits
        lane_span spans[LANE_SPANS]
        size_t span_count
    struct lane_run:
        const uint8_t *at
        size_t size
        int64_t log_offset
    struct lane_found:
        lane_reader *reader
        int64_t next_offset
        int64_t min_offset
        int64_t max_offset
        int64_t broker_id
        size_t count
        size_t size
        size_t run_count
        int64_t lacking
        lane_run runs[LANE_PULL_MAX]
    lane_found_outcome lane_find(const lane_reading *reading, const trf_pull *pull,
                                 int64_t now_ms, lane_found *found)
    lane_found_outcome lane_find_again(const lane_reading *reading, int32_t number,
                                       const trf_pull *pull, int64_t now_ms, lane_found *found)
    void lane_got(const lane_found *found, const trf_pull *pull)
