/* When the messages of a queue were stored, known without a look at the log.
 *
 * A queue has up to QM_MARKS marks (queue offset, store time), oldest first, of messages that were
 * dispatched since the store was opened:
 *
 *     first message ---- gaps grow with age ---- 2 s ago -- 1 s ago - now
 *
 * A mark is made when QM_APART_MS have passed since the last one; the message before a silence gets
 * one, too, so that a time between two marks may be interpolated. When all are taken, that one goes
 * which leaves the smallest gap in proportion to its age: the oldest mark stays, and whatever the
 * time that is covered, the gap in which a message lies is a fraction of its age.
 *
 * The memory is the caller's. A queue that nothing arrives in costs nothing.
 */
#ifndef TURBOPUMP_QUEUE_MARKS_H
#define TURBOPUMP_QUEUE_MARKS_H

#include <stdint.h>

enum { QM_MARKS = 32, QM_APART_MS = 1000 };

struct qm_mark {
    int64_t queue_offset;
    int64_t store_ms;
};

/* What of a queue's marks is looked at for each message. */
struct qm_head {
    int64_t marked_ms; /* store time of the last mark, if count > 0 */
    int64_t stored_ms; /* store time of the last message, if count > 0 */
    int32_t count;
};

/* A message was stored; it is the queue's last one now. */
void qm_note(struct qm_head *head, struct qm_mark *marks, int64_t queue_offset, int64_t store_ms);

/* The queue ends at `end` now, by a cut or a jump. */
void qm_cut(struct qm_head *head, const struct qm_mark *marks, int64_t end);

/* When message `queue_offset` of a queue that ends at `end` was stored; `*known` is 0 where only
 * this is known: not later than the time given, or nothing if that is -1. */
int64_t qm_find(const struct qm_head *head, const struct qm_mark *marks, int64_t end,
                int64_t queue_offset, int *known);

#endif
