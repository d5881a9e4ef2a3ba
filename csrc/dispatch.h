/* From log records to queue units and index entries, once per byte (RocketMQ: ReputMessageService,
 * CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex).
 *
 * A table of slots, one for each (topic, queue id), found through an open-addressing hash:
 *
 *     buckets (int32 slot or -1)      slots
 *     +----+----+----+----+--         +---------------------------------------------------------+
 *     | -1 |  3 | -1 |  0 |  ...  ->  | name, next units' memory, max offset, max log offset    |
 *     +----+----+----+----+--         +---------------------------------------------------------+
 *
 * All memory is the caller's: slots, their marks, buckets (a power of two, at least twice the slots
 * in use), the topics' bytes, and the mapped files. A slot keeps its number until it is removed.
 *
 * For one record, in this order:
 *   1. parse (no CRC: the caller vouches for the range), unless its appender described it
 *      (descriptors.h);
 *   2. unless prepared or rolled back: the unit. It is skipped if the record's queue offset is
 *      below the slot's max offset, or its end not above the slot's max log offset. So dispatching
 *      a range twice does no harm. Dispatch stops at a record with queue offset 0 that begins
 *      after the slot's last record: the topic was deleted in between, and the caller handles it;
 *   3. if there is an index and the record is not rolled back nor before the end of the index file:
 *      topic#UNIQ_KEY, topic#k for each k of KEYS, topic#T#TAGS (5.5.0). Entries that the file
 *      already has for this record are not repeated.
 * After a stop the caller removes its cause (adds the slot, attaches memory, sets the next index
 * file) and makes the same call again, which continues from there.
 */
#ifndef TURBOPUMP_DISPATCH_H
#define TURBOPUMP_DISPATCH_H

#include <stddef.h>
#include <stdint.h>

#include "descriptors.h"
#include "hash_index.h"
#include "queue_marks.h"

enum dsp_status {
    DSP_DONE = 0,      /* `position` reached `end` */
    DSP_BLANK = 1,     /* a filler: go on in the next file */
    DSP_BAD = 2,       /* not a record */
    DSP_SHORT = 3,     /* the range ends inside the record */
    DSP_UNKNOWN = 4,   /* no slot for the record's queue */
    DSP_NO_ROOM = 5,   /* the slot's memory does not hold the record's unit */
    DSP_NO_INDEX = 6,  /* the index file is full */
    DSP_GAP = 7,       /* the record's queue offset is beyond the slot's max offset */
    DSP_SPECIAL = 8,   /* the slot is not plain */
    DSP_ANEW = 9       /* queue offset 0 after the last record of a queue that has units */
};

/* Lists of slots, each in the order in which its slots were put. */
enum dsp_list {
    DSP_ARRIVED, /* slots that got units */
    DSP_WOKEN,   /* watched slots that got units, see lane_held.h */
    DSP_LISTS
};

/* First and last slot of a list, -1: the list is empty. */
struct dsp_ends {
    int32_t first, last;
};

struct dsp_slot {
    const uint8_t *topic; /* NULL: the slot is free */
    size_t topic_size;
    uint32_t hash;
    int32_t queue_id;
    uint8_t *units;             /* memory of the next units, NULL: none attached */
    int64_t first_queue_offset; /* of the unit at units[0] */
    int64_t limit;              /* bytes of units that may be written */
    int64_t max_offset;         /* queue offset of the next unit */
    int64_t max_log_offset;     /* end of the record of the last unit */
    int64_t next_offset;        /* queue offset of the next append */
    struct qm_head times;       /* of dsp_table.marks[slot number * QM_MARKS] */
    int32_t next[DSP_LISTS];    /* next slot of each list that has this slot, -1: none */
    uint32_t opened; /* equal to dsp_table.opened: the broker knows that its topic has the queue */
    uint8_t plain;
    uint8_t listed;  /* bit n: list n has this slot */
    uint8_t watched; /* pulls wait for its next unit, see lane_held.h */
};

enum { DSP_RECENT = 16 };

struct dsp_table {
    struct dsp_slot *slots;
    struct qm_mark *marks; /* QM_MARKS of each slot */
    int32_t *buckets;
    size_t bucket_mask; /* bucket count - 1 */
    const int64_t *delays_ms; /* delays of levels 1 .. delay_count, for SCHEDULE_TOPIC_XXXX */
    size_t delay_count;
    const struct idx_file *index; /* NULL: keys are not indexed */
    struct dsp_ends lists[DSP_LISTS];
    /* The record whose keys were put last, and the number of these keys. A full file may have
     * interrupted the record, and the next file does not contain its first keys. */
    int64_t last_log_offset; /* -1: none */
    uint32_t last_keys;
    uint32_t opened; /* never 0; another number closes all slots */
    struct des_ring descriptors; /* of records that are not dispatched yet */
    int32_t recent[DSP_RECENT]; /* slot + 1 that was found last for a queue id, 0: none */
};

/* Whether dsp_range writes units, too, or only index entries. */
enum dsp_work { DSP_INDEX_ONLY = 0, DSP_QUEUES = 1 };

struct dsp_stop {
    enum dsp_status status;
    size_t position;            /* position of the record that stopped it, or the end */
    int32_t slot;               /* slot of that record, or -1 */
    int64_t size;               /* size of that record, or 0 */
    int64_t queue_offset;       /* queue offset of that record, or -1 */
    int64_t store_timestamp_ms; /* store time of the last record dispatched, epoch ms, or 0 */
    size_t count;               /* records dispatched */
};

/* An empty table without memory: no slots, no buckets, no index. */
void dsp_init(struct dsp_table *table);

/* The hash of a queue's name, for dsp_slot.hash. */
uint32_t dsp_hash(const uint8_t *topic, size_t topic_size, int32_t queue_id);

/* The slot of a queue, or -1. */
int32_t dsp_find(struct dsp_table *table, const uint8_t *topic, size_t topic_size,
                 int32_t queue_id);

/* Enter slots[slot], whose name and hash are set and whose queue is not yet there. */
void dsp_enter(struct dsp_table *table, int32_t slot);

/* Take slots[slot] out of the hash and all lists, and mark it free. */
void dsp_remove(struct dsp_table *table, int32_t slot);

/* Replace the hash by buckets[0:count), and enter the slots 0 .. slot_count - 1 that are in use. */
void dsp_rehash(struct dsp_table *table, int32_t *buckets, size_t count, int32_t slot_count);

/* Whether a list has a slot. */
static inline int dsp_has(const struct dsp_table *table, enum dsp_list which)
{
    return table->lists[which].first >= 0;
}

/* Append a slot to a list, unless the list has it already. */
void dsp_put(struct dsp_table *table, enum dsp_list which, int32_t slot);

/* Remove and return the first slot of a list; -1 if the list is empty. */
int32_t dsp_take(struct dsp_table *table, enum dsp_list which);

/* Remove a slot from a list, if the list has it: walks the list up to the slot. */
void dsp_drop(struct dsp_table *table, enum dsp_list which, int32_t slot);

/* Put slots[slot], which got units, on the list of arrivals, and if it is watched on the list of
 * woken slots. */
void dsp_note_arrival(struct dsp_table *table, int32_t slot);

/* Dispatch the records of log[position:end); log offset = log_base + position. */
void dsp_range(struct dsp_table *table, enum dsp_work work, const uint8_t *log, int64_t log_base,
               size_t position, size_t end, struct dsp_stop *stop);

/* Raise the slots' next_offset above the queue offsets of the records of log[position:end), and
 * change nothing else: for appends that begin before all records are dispatched. If a record has
 * queue offset 0, because its topic was deleted before it, next_offset is 1 after it. */
void dsp_count_on(struct dsp_table *table, const uint8_t *log, int64_t log_base, size_t position,
                  size_t end, struct dsp_stop *stop);

#endif
