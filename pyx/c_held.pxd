"""csrc/lane_held.h, for the native path."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from turbopump.pyx.c_dispatch cimport dsp_table

cdef extern from "lane_held.h" nogil:
    struct held_owner:
        int32_t first
    struct held_row:
        uint64_t sequence
        int64_t queue_offset
        int64_t deadline_ms
        int64_t sub_version
        void *holder
        held_owner *owner
        uint8_t *texts
        uint32_t subscription_size
        int32_t type_size
        int32_t reader
        int32_t slot
        int32_t queue_id
        int32_t opaque
        int32_t sys_flag
        int32_t max_msg_nums
        int32_t size
    struct held_slot:
        int32_t first
        uint8_t removed
    struct held_table:
        held_row *rows
        int32_t *heap
        int32_t room
        int32_t used
        int32_t free
        held_slot *slots
        int32_t slot_room
        int64_t count
        int64_t size
        uint64_t finish_until
    void held_init(held_table *table)
    void held_set_slots(held_table *table, held_slot *slots, int32_t room)
    int32_t held_add(held_table *table, dsp_table *queues, const held_row *row,
                     held_owner *owner)
    void held_remove(held_table *table, dsp_table *queues, int32_t number)
    int32_t held_next(held_table *table, dsp_table *queues, int32_t *budget)
    int32_t held_due(const held_table *table, int64_t now_ms)
    void held_leave(held_table *table, int32_t slot)
    int32_t held_leaving(held_table *table, int32_t *budget)
    void held_finish(held_table *table)
    int32_t held_unfinished(held_table *table, int32_t *budget)
    bint held_has_leaving(const held_table *table)
    int32_t held_first(const held_table *table, int32_t slot)
