/* Held pulls of the fast lane: plain pulls that wait for the next message of their queue.
 *
 * The reference is broker/tables/long_polling.py. A row has what an attempt needs, and is linked
 * three times:
 *
 *     slot of dsp_table -> its rows, in the order in which they were held
 *     connection        -> its rows, which leave with it
 *     heap              -> the row whose time ends first, then the row that was held first
 *
 * While a slot has rows it is watched: dispatch puts it on the list of woken slots when it grows.
 * held_next walks the rows of these slots, a limited number in each call, so that one message for
 * thousands of pulls does not stop the loop. The walk of a slot that is not finished continues
 * after the other slots. Rows that were held after a walk began are left out of it: their queue was
 * read after it began.
 *
 * All memory is the caller's, the texts of rows included. Row numbers are reused. */
#ifndef TURBOPUMP_LANE_HELD_H
#define TURBOPUMP_LANE_HELD_H

#include <stddef.h>
#include <stdint.h>

#include "dispatch.h"

/* The first row of a connection, plus one; 0: it has none. */
struct held_owner {
    int32_t first;
};

struct held_row {
    uint64_t sequence; /* order of holding, from 1; 0: the row is free */
    int64_t queue_offset, deadline_ms, sub_version;
    void *holder;             /* the connection */
    struct held_owner *owner; /* in the connection */
    uint8_t *texts; /* subscription and expression type, NULL: the pull carries neither */
    uint32_t subscription_size;
    int32_t type_size; /* -1: no expression type */
    int32_t reader;    /* number of the reader's row */
    int32_t slot, queue_id, opaque, sys_flag, max_msg_nums;
    int32_t size;                     /* bytes that count for the row */
    int32_t next, before;             /* rows of the slot, -1: none */
    int32_t owner_next, owner_before; /* rows of the connection, -1: none */
    int32_t heap_at;
};

/* The rows of a slot, and where the walk over them stands. */
struct held_slot {
    int32_t first, last; /* -1: none */
    int32_t at;          /* next row of the walk, -1: no walk */
    uint64_t until;      /* the walk ends after this sequence number */
    int64_t walked_to;   /* the slot's max offset when the walk began */
};

struct held_table {
    struct held_row *rows;
    int32_t *heap; /* row numbers */
    int32_t room;  /* of rows and heap */
    int32_t used;  /* rows that were ever in use */
    int32_t free;  /* list of free rows by `next`, -1: none */
    struct held_slot *slots; /* by number of dsp_slot */
    int32_t slot_room;
    int64_t count, size; /* rows, and their bytes */
    uint64_t sequence;   /* of the row that was held last */
};

void held_init(struct held_table *table);

/* Set more memory, whose first parts are as before. */
void held_set_slots(struct held_table *table, struct held_slot *slots, int32_t room);

/* Hold a copy of `row` for the owner, and watch its slot; returns its number. There must be room
 * for a row and for its slot. */
int32_t held_add(struct held_table *table, struct dsp_table *queues, const struct held_row *row,
                 struct held_owner *owner);

/* Release a row; the slot of its last row is not watched any more. */
void held_remove(struct held_table *table, struct dsp_table *queues, int32_t number);

/* The next row whose queue has grown beyond its offset, -1: none, or `budget` rows were looked at.
 * The walk goes on after this row. `budget` is reduced by the rows that were looked at. */
int32_t held_next(struct held_table *table, struct dsp_table *queues, int32_t *budget);

/* The first row whose time ends at or before `now_ms`, -1: none. */
int32_t held_due(const struct held_table *table, int64_t now_ms);

/* The first row of a slot, -1: none. */
int32_t held_first(const struct held_table *table, int32_t slot);

#endif
