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
 * The rows that leave to the handler, of a slot or of all slots, are fixed by the call of
 * held_leave or held_finish: rows with a sequence number up to the last one then. held_leaving and
 * held_unfinished return them one after the other, any number at a time.
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
    uint64_t leave_until; /* rows up to this sequence number leave, if the slot leaves */
    int32_t next_leaving; /* next slot with rows that leave, -1: none */
    uint8_t leaves;       /* the list of leaving slots has this slot */
    uint8_t removed;      /* the queue was removed; its last row frees the slot */
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
    int32_t first_leaving, last_leaving; /* slots with rows that leave, -1: none */
    uint64_t finish_until; /* rows up to this sequence number are to be answered */
    int32_t finish_at;     /* number of the next row to look at for that, -1: all were looked at */
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

/* Have the present rows of a slot leave: held_leaving returns them. */
void held_leave(struct held_table *table, int32_t slot);

/* The next row that leaves, in the order of holding in its slot, -1: none, or `budget` is used up.
 * The caller removes it before the next call. `budget` is reduced by rows and slots. */
int32_t held_leaving(struct held_table *table, int32_t *budget);

/* Have all present rows answered: held_unfinished returns them. */
void held_finish(struct held_table *table);

/* The next row to be answered, -1: none, or `budget` rows were looked at. The caller removes it.
 * `budget` is reduced by the rows that were looked at. */
int32_t held_unfinished(struct held_table *table, int32_t *budget);

/* Whether held_leaving or held_unfinished may return a row. */
int held_has_leaving(const struct held_table *table);

/* The first row of a slot, -1: none. */
int32_t held_first(const struct held_table *table, int32_t slot);

#endif
