"""csrc/lane_pop.h, for the native path."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.c_lane cimport lane_acks, lane_core, lane_outcome
from turbopump.pyx.c_pulls cimport lane_found, lane_found_outcome, lane_reading, lane_run
from turbopump.pyx.c_traffic cimport trf_pop, trf_pop_answer, trf_pull, trf_text

cdef extern from "lane_pop.h" nogil:
    enum:
        LANE_POP_MAX
        LANE_RETRIES
        LANE_TEXTS_MAX
    struct lane_retry:
        trf_text topic
        int32_t queue_count
    struct lane_place:
        int64_t next
        int64_t moves
    struct lane_popper:
        uint8_t is_known
        int32_t acker
        int32_t queue_count
        int32_t retry_count
        lane_retry retries[LANE_RETRIES]
        lane_place *places
    struct lane_popping:
        lane_popper *rows
        int32_t first_known
    struct lane_part:
        int32_t queue_id
        int32_t first
        int32_t count
        int64_t start
        int64_t next
        size_t size
    struct lane_popped:
        trf_pull pull
        int64_t rest
        int32_t count
        int32_t part_count
        lane_part parts[LANE_POP_MAX]
        int64_t offsets[LANE_POP_MAX]
        size_t size
        size_t run_count
        lane_run runs[LANE_POP_MAX]
    int32_t lane_find_popper(const lane_reading *reading, const lane_popping *popping,
                             const trf_pop *pop, int64_t now_ms)
    void lane_known(lane_popping *popping, int32_t row)
    int32_t lane_take_popped(lane_popping *popping)
    lane_found_outcome lane_find_popped(const lane_reading *reading, const lane_popping *popping,
                                        int32_t row, const trf_pop *pop, int32_t draw,
                                        lane_found *found, lane_popped *out)
    lane_outcome lane_hide(lane_core *lane, const lane_acks *acks, lane_popping *popping,
                           int32_t row, const trf_pop *pop, int32_t revive_queue_id,
                           int64_t now_ms, const lane_popped *got)
    void lane_put_offsets(const lane_popped *got, uint8_t *starts, uint8_t *offsets,
                          trf_pop_answer *answer)
