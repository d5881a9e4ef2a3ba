#include "queue_marks.h"

#include <string.h>

/* Choose the mark whose removal leaves the smallest gap, measured as the ratio of the ages at its
 * ends. The first and the last mark are never chosen. */
static int32_t least_missed(const struct qm_mark *marks, int64_t now_ms)
{
    int32_t chosen = 1;
    double least = 0;
    for (int32_t i = 1; i < QM_MARKS - 1; i++) {
        double older = (double)(now_ms - marks[i - 1].store_ms) + QM_APART_MS;
        double younger = (double)(now_ms - marks[i + 1].store_ms) + QM_APART_MS;
        double ratio = older / younger;
        if (i == 1 || ratio < least) {
            least = ratio;
            chosen = i;
        }
    }
    return chosen;
}

static void add(struct qm_head *head, struct qm_mark *marks, int64_t queue_offset, int64_t store_ms)
{
    if (head->count == QM_MARKS) {
        int32_t gone = least_missed(marks, store_ms);
        memmove(&marks[gone], &marks[gone + 1],
                (size_t)(QM_MARKS - gone - 1) * sizeof(struct qm_mark));
        head->count--;
    }
    marks[head->count].queue_offset = queue_offset;
    marks[head->count].store_ms = store_ms;
    head->count++;
    head->marked_ms = store_ms;
}

void qm_note(struct qm_head *head, struct qm_mark *marks, int64_t queue_offset, int64_t store_ms)
{
    int64_t since_ms = store_ms - head->marked_ms;
    if (head->count > 0 && since_ms < QM_APART_MS && since_ms > -QM_APART_MS) {
        if (store_ms > head->stored_ms) {
            head->stored_ms = store_ms;
        }
        return;
    }
    if (head->count > 0 && since_ms < 0) {
        head->count = 0; /* the clock was put back: the marks are of another time */
    }
    if (head->count > 0 && store_ms - head->stored_ms >= QM_APART_MS &&
        marks[head->count - 1].queue_offset < queue_offset - 1) {
        add(head, marks, queue_offset - 1, head->stored_ms);
    }
    add(head, marks, queue_offset, store_ms);
    head->stored_ms = store_ms;
}

void qm_cut(struct qm_head *head, const struct qm_mark *marks, int64_t end)
{
    int32_t before = head->count;
    while (head->count > 0 && marks[head->count - 1].queue_offset >= end) {
        head->count--;
    }
    if (head->count > 0 && head->count < before) {
        head->marked_ms = head->stored_ms = marks[head->count - 1].store_ms;
    }
}

int64_t qm_find(const struct qm_head *head, const struct qm_mark *marks, int64_t end,
                int64_t queue_offset, int *known)
{
    int32_t low = 0, high = head->count;
    struct qm_mark from, to;
    *known = 0;
    if (head->count == 0 || queue_offset < marks[0].queue_offset) {
        return head->count == 0 ? -1 : marks[0].store_ms;
    }
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (marks[middle].queue_offset <= queue_offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *known = 1;
    from = marks[low];
    if (low + 1 < head->count) {
        to = marks[low + 1];
    } else {
        to.queue_offset = end - 1;
        to.store_ms = head->stored_ms;
    }
    if (to.queue_offset <= from.queue_offset || to.store_ms <= from.store_ms) {
        return from.store_ms;
    }
    if (queue_offset >= to.queue_offset) {
        return to.store_ms;
    }
    return from.store_ms + (int64_t)((double)(to.store_ms - from.store_ms) *
                                     (double)(queue_offset - from.queue_offset) /
                                     (double)(to.queue_offset - from.queue_offset));
}
