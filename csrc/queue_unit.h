/* The unit of a consume queue (RocketMQ: store/ConsumeQueue): where message n of a queue lies.
 *
 *     0                 8        12                20
 *     +-----------------+--------+-----------------+
 *     | logOffset       | size   | tagsCode        |
 *     +-----------------+--------+-----------------+
 *
 * Unit n lies at byte n * 20 of the queue. A unit is valid if logOffset >= 0 and size > 0; zeros
 * are not written yet. (0, 0x7FFFFFFF, 0) is a blank: it fills the queue's first file up to the
 * first queue offset that was ever used in it. tagsCode is the sign-extended Java hash of the tags,
 * a delivery time in the delay topic, or an address in the queue extension.
 *
 * Positions and ends are bytes inside the buffer, and the caller has checked that the range lies in
 * it. A range that is no multiple of 20 long is read up to its last whole unit.
 */
#ifndef TURBOPUMP_QUEUE_UNIT_H
#define TURBOPUMP_QUEUE_UNIT_H

#include <stddef.h>
#include <stdint.h>

enum {
    CQ_LOG_OFFSET_AT = 0,
    CQ_SIZE_AT = CQ_LOG_OFFSET_AT + 8,
    CQ_TAGS_CODE_AT = CQ_SIZE_AT + 4,
    CQ_UNIT = CQ_TAGS_CODE_AT + 8,
    CQ_BLANK_SIZE = INT32_MAX
};
_Static_assert(CQ_UNIT == 20, "CQ_STORE_UNIT_SIZE");

struct cq_unit {
    int64_t log_offset;
    int32_t size;
    int64_t tags_code;
};

/* Write and read the CQ_UNIT bytes of a unit; nothing is checked. */
void cq_put(uint8_t *at, struct cq_unit unit);
struct cq_unit cq_get(const uint8_t *at);

static inline int cq_is_valid(struct cq_unit unit) { return unit.log_offset >= 0 && unit.size > 0; }

static inline int cq_is_blank(struct cq_unit unit)
{
    return unit.log_offset == 0 && unit.size == CQ_BLANK_SIZE && unit.tags_code == 0;
}

/* Fill buf[at:end) with blanks. */
void cq_fill_blank(uint8_t *buf, size_t at, size_t end);

/* Walk the valid units from `at`: returns the position after the last one; *log_end is the end (log
 * offset + size) of the last that is not blank, -1 without such a unit. */
size_t cq_find_end(const uint8_t *buf, size_t at, size_t end, int64_t *log_end);

/* Position of the first unit whose log offset is >= log_offset, else `end`. The units must be valid
 * and in order, as they are in a recovered queue. */
size_t cq_lower_bound(const uint8_t *buf, size_t at, size_t end, int64_t log_offset);

/* The limits and filters of a pull's choice. */
struct cq_wish {
    const int32_t *codes; /* ascending; NULL: every tag */
    size_t code_count;
    size_t max_count; /* units to choose */
    size_t max_units; /* units to examine */
    int64_t max_size; /* sum of sizes; the first unit chosen may exceed it */
    /* Whether to choose units[0] of `left`, whose tags match: 1, 0, or -1 to stop before it. NULL:
     * choose each. */
    int (*matches)(void *chooser, const uint8_t *units, size_t left);
    void *chooser;
};
struct cq_choice {
    size_t next;  /* position after the last unit passed or chosen */
    size_t count; /* chosen, written to the caller's array */
    int64_t size; /* of all chosen */
};

/* Choose units of buf[at:end) into chosen[0:wish->max_count). A unit that would exceed max_size is
 * not passed: `next` is its position. Stops at the first unit that is not valid. */
void cq_select(const uint8_t *buf, size_t at, size_t end, const struct cq_wish *wish,
               struct cq_unit *chosen, struct cq_choice *choice);

#endif
