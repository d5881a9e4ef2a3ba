/* The fast lane of a broker: plain pops from a decoded request to check points in the log, and to
 * ranges of it.
 *
 * The reference is broker/handlers/pop/pops.py with broker/pop/popping.py. Only pops that find
 * messages of the topic itself are served, at once, by a group whose retry topics have none for it;
 * all else is LANE_NOT_HERE, with nothing changed.
 *
 *     trf_pop -> row (group, topic) -> queue, queue ... -> parts of queues -> check points
 *
 * A row is what the handler's checks came to, under the number of the row that reads the same group
 * and topic (lane_pull.h). Where the group pops next is known here or in Python, never in both: it
 * is asked for (lane_known), moves here, and is given back (lane_take_popped) before Python looks.
 */
#ifndef TURBOPUMP_LANE_POP_H
#define TURBOPUMP_LANE_POP_H

#include "lane.h"
#include "lane_ack.h"
#include "lane_pull.h"
#include "traffic_reply.h"

enum {
    LANE_POP_MAX = 32,       /* messages of a pop (PopMessageRequestHeader) */
    LANE_POP_SPAN = 1024,    /* popping.py, SPAN_MAX */
    LANE_RETRIES = 2,        /* retry topics of a group and topic: V1, V2 */
    LANE_POP_LATE_MS = 500,  /* checks.py, POLL_LATE_MS */
    LANE_TEXTS_MAX = 4096    /* each text of an answer: 32 parts of three numbers */
};
#define LANE_INVISIBLE_MAX_MS (INT64_C(12) * 3600000 + 60000) /* pops.py, INVISIBLE_MAX_MS */

struct lane_retry {
    struct trf_text topic;
    int32_t queue_count;
};

/* Where a group pops a queue next. */
struct lane_place {
    int64_t next;  /* queue offset, -1: the group has none */
    int64_t moves; /* since it was asked for */
};

struct lane_popper {
    uint8_t is_known;    /* the places are: Python does not have them */
    int32_t next_known;  /* row + 1 of the list of lane_popping.first_known */
    int32_t acker;       /* row of struct lane_acks, under which it is counted */
    int32_t queue_count; /* of the topic; its places come first, then those of the retry topics */
    int32_t retry_count;
    struct lane_retry retries[LANE_RETRIES];
    struct lane_place *places;
};

struct lane_popping {
    struct lane_popper *rows;
    int32_t first_known; /* row + 1, 0: none */
};

/* Messages of one queue: offsets[first .. first + count) of struct lane_popped. */
struct lane_part {
    int32_t queue_id, first, count;
    int64_t start, next;
    size_t size;
};

/* What a pop gets. */
struct lane_popped {
    struct trf_pull pull; /* what was looked at last, which lacks memory */
    int64_t rest;         /* messages that are left in the queues that were looked at */
    int32_t count, part_count;
    struct lane_part parts[LANE_POP_MAX];
    int64_t offsets[LANE_POP_MAX];
    size_t size, run_count;
    struct lane_run runs[LANE_POP_MAX];
};

/* The row of a request, -1 where the handler has to look. `now_ms` is epoch ms. */
int32_t lane_find_popper(const struct lane_reading *reading, const struct lane_popping *popping,
                         const struct trf_pop *pop, int64_t now_ms);

/* The row's places are filled: Python does not know them any more. */
void lane_known(struct lane_popping *popping, int32_t row);

/* A row whose places were known, for Python to take; it is known here no more. -1: none. */
int32_t lane_take_popped(struct lane_popping *popping);

/* What the pop gets, from the queue on that `draw` (0 to 99) begins with. Nothing is changed.
 * LANE_NEEDS_UNITS, LANE_NEEDS_LOG: memory is missing for out->pull, found->lacking. */
enum lane_found_outcome lane_find_popped(const struct lane_reading *reading,
                                         const struct lane_popping *popping, int32_t row,
                                         const struct trf_pop *pop, int32_t draw,
                                         struct lane_found *found, struct lane_popped *out);

/* Hide it: write the check points, and move the places. LANE_ELSEWHERE: nothing was changed. */
enum lane_outcome lane_hide(struct lane *lane, const struct lane_acks *acks,
                            struct lane_popping *popping, int32_t row, const struct trf_pop *pop,
                            int32_t revive_queue_id, int64_t now_ms, const struct lane_popped *got);

/* startOffsetInfo and msgOffsetInfo, each into LANE_TEXTS_MAX bytes. */
void lane_put_offsets(const struct lane_popped *got, uint8_t *starts, uint8_t *offsets,
                      struct trf_pop_answer *answer);

#endif
