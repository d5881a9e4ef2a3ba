/* The store times of a queue's messages, without a look at the log.
 *
 * A queue has up to QM_MARKS marks (queue offset, store time), oldest first, of messages that were
 * dispatched since the store was opened:
 *
 *     first message ---- gaps grow with age ---- 2 s ago -- 1 s ago - now
 *
 * A mark is made when QM_APART_MS have passed since the last one; the message before a silence gets
 * one, too, so that a time between two marks may be interpolated. If all are in use, the mark is
 * dropped that leaves the smallest gap in proportion to its age: the oldest mark stays, and for any
 * covered time the gap around a message is a fraction of its age.
 *
 * The caller owns the memory. A queue without arrivals costs nothing. */
#ifndef TURBOPUMP_QUEUE_MARKS_H
#define TURBOPUMP_QUEUE_MARKS_H

#include <stdint.h>

enum { QM_MARKS = 32, QM_APART_MS = 1000 };

struct qm_mark {
    int64_t queue_offset;
    int64_t store_ms; /* epoch ms, as all times here */
};

/* The part of a queue's marks that is read for each message. */
struct qm_head {
    int64_t marked_ms; /* store time of the last mark, if count > 0 */
    int64_t stored_ms; /* store time of the last message, if count > 0 */
    int32_t count;
};

/* Note that a message was stored, now the queue's last. */
void qm_note(struct qm_head *head, struct qm_mark *marks, int64_t queue_offset, int64_t store_ms);

/* Note that the queue ends at `end` now, after a cut or a jump. */
void qm_cut(struct qm_head *head, const struct qm_mark *marks, int64_t end);

/* The store time of message `queue_offset` of a queue that ends at `end`. If `*known` is 0, the
 * message was stored no later than the returned time, or at an unknown time if that is -1. */
int64_t qm_find(const struct qm_head *head, const struct qm_mark *marks, int64_t end,
                int64_t queue_offset, int *known);

#endif
