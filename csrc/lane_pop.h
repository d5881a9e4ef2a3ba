/* The fast lane of a broker: plain pops from a decoded request to check points in the log, and to
 * ranges of it.
 *
 * The reference is broker/handlers/pop/pops.py with broker/pop/popping.py. A pop is served only if
 * it finds messages of the topic itself immediately, and if the group's retry topics have no
 * messages for it; other cases are LANE_NOT_HERE, with nothing changed.
 *
 *     trf_pop -> row (group, topic) -> queue, queue ... -> parts of queues -> check points
 *
 * A row is the result of the handler's checks, under the number of the row that reads the same
 * group and topic (lane_pull.h). The group's next offsets are known either here or in Python, never
 * in both: they are asked for (lane_known), change here, and are given back (lane_take_popped)
 * before Python reads them. */
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

/* The offset at which a group pops a queue next. */
struct lane_place {
    int64_t next;  /* queue offset, -1: the group has none */
    int64_t moves; /* since the offset was asked for */
};

struct lane_popper {
    uint8_t is_known;    /* the places are known here, so not to Python */
    int32_t next_known;  /* row + 1 of the list of lane_popping.first_known */
    int32_t acker;       /* row of struct lane_acks, under which it is counted */
    int32_t queue_count; /* of the topic; its places come before the retry topics' */
    int32_t retry_count;
    struct lane_retry retries[LANE_RETRIES];
    struct lane_place *places;
};

struct lane_popping {
    struct lane_popper *rows;
    int32_t first_known; /* row + 1, 0: the list is empty */
};

/* Messages of a single queue: offsets[first .. first + count) of struct lane_popped. */
struct lane_part {
    int32_t queue_id, first, count;
    int64_t start, next;
    size_t size;
};

/* The result of a pop. */
struct lane_popped {
    struct trf_pull pull; /* the last pull, which lacks memory */
    int64_t rest;         /* messages left in the queues that were examined */
    int32_t count, part_count;
    struct lane_part parts[LANE_POP_MAX];
    int64_t offsets[LANE_POP_MAX];
    size_t size, run_count;
    struct lane_run runs[LANE_POP_MAX];
};

/* The row of a request, -1 if the handler has to look. `now_ms` is epoch ms. */
int32_t lane_find_popper(const struct lane_reading *reading, const struct lane_popping *popping,
                         const struct trf_pop *pop, int64_t now_ms);

/* Mark the row's places as filled: Python does not know them now. */
void lane_known(struct lane_popping *popping, int32_t row);

/* Return a row whose places were known, for Python to take, and forget its places; -1: there is no
 * such row. */
int32_t lane_take_popped(struct lane_popping *popping);

/* Find the messages of a pop, beginning with the queue that `draw` (0 to 99) selects. Nothing is
 * changed. LANE_NEEDS_UNITS, LANE_NEEDS_LOG: memory is missing for out->pull, found->lacking. */
enum lane_found_outcome lane_find_popped(const struct lane_reading *reading,
                                         const struct lane_popping *popping, int32_t row,
                                         const struct trf_pop *pop, int32_t draw,
                                         struct lane_found *found, struct lane_popped *out);

/* Hide the messages: write the check points, and move the places. LANE_ELSEWHERE: nothing was
 * changed. */
enum lane_outcome lane_hide(struct lane *lane, const struct lane_acks *acks,
                            struct lane_popping *popping, int32_t row, const struct trf_pop *pop,
                            int32_t revive_queue_id, int64_t now_ms, const struct lane_popped *got);

/* Write startOffsetInfo and msgOffsetInfo, each into LANE_TEXTS_MAX bytes. */
void lane_put_offsets(const struct lane_popped *got, uint8_t *starts, uint8_t *offsets,
                      struct trf_pop_answer *answer);

#endif
