"""csrc/dispatch.h, for its binding."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from turbopump.pyx.index cimport idx_file
from turbopump.pyx.tail cimport des_ring

cdef extern from "queue_marks.h" nogil:
    int QM_MARKS
    struct qm_mark:
        int64_t queue_offset
        int64_t store_ms
    struct qm_head:
        int32_t count
    void qm_note(qm_head *head, qm_mark *marks, int64_t queue_offset, int64_t store_ms)
    void qm_cut(qm_head *head, const qm_mark *marks, int64_t end)
    int64_t qm_find(const qm_head *head, const qm_mark *marks, int64_t end, int64_t queue_offset,
                    int *known)

cdef extern from "dispatch.h" nogil:
    enum dsp_status:
        DSP_DONE
        DSP_BLANK
        DSP_BAD
        DSP_SHORT
        DSP_UNKNOWN
        DSP_NO_ROOM
        DSP_NO_INDEX
        DSP_GAP
        DSP_SPECIAL
        DSP_ANEW
    enum dsp_work:
        DSP_INDEX_ONLY
        DSP_QUEUES
    enum dsp_list:
        DSP_ARRIVED
        DSP_WOKEN
    struct dsp_slot:
        const uint8_t *topic
        size_t topic_size
        uint32_t hash
        int32_t queue_id
        uint8_t *units
        int64_t first_queue_offset
        int64_t limit
        int64_t max_offset
        int64_t max_log_offset
        int64_t next_offset
        qm_head times
        uint32_t opened
        uint8_t plain
        uint8_t watched
    struct dsp_table:
        dsp_slot *slots
        qm_mark *marks
        int32_t *buckets
        size_t bucket_mask
        const int64_t *delays_ms
        size_t delay_count
        const idx_file *index
        uint32_t opened
        int64_t last_log_offset
        des_ring descriptors
    struct dsp_stop:
        dsp_status status
        size_t position
        int32_t slot
        int64_t size
        int64_t queue_offset
        int64_t store_timestamp_ms
        size_t count
    void dsp_init(dsp_table *table)
    uint32_t dsp_hash(const uint8_t *topic, size_t topic_size, int32_t queue_id)
    int32_t dsp_find(dsp_table *table, const uint8_t *topic, size_t topic_size,
                     int32_t queue_id)
    void dsp_enter(dsp_table *table, int32_t slot)
    void dsp_remove(dsp_table *table, int32_t slot)
    void dsp_rehash(dsp_table *table, int32_t *buckets, size_t count, int32_t slot_count)
    void dsp_note_arrival(dsp_table *table, int32_t slot)
    bint dsp_has(const dsp_table *table, dsp_list which)
    void dsp_put(dsp_table *table, dsp_list which, int32_t slot)
    int32_t dsp_take(dsp_table *table, dsp_list which)
    void dsp_range(dsp_table *table, dsp_work work, const uint8_t *log, int64_t log_base,
                   size_t position, size_t end, dsp_stop *stop)
    void dsp_count_on(dsp_table *table, const uint8_t *log, int64_t log_base, size_t position,
                      size_t end, dsp_stop *stop)
