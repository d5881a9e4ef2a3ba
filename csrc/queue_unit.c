#include "queue_unit.h"

#include "bytes.h"

void cq_put(uint8_t *at, struct cq_unit unit)
{
    be_put_i64(at + CQ_LOG_OFFSET_AT, unit.log_offset);
    be_put_i32(at + CQ_SIZE_AT, unit.size);
    be_put_i64(at + CQ_TAGS_CODE_AT, unit.tags_code);
}

struct cq_unit cq_get(const uint8_t *at)
{
    struct cq_unit unit = {be_i64(at + CQ_LOG_OFFSET_AT), be_i32(at + CQ_SIZE_AT),
                           be_i64(at + CQ_TAGS_CODE_AT)};
    return unit;
}

void cq_fill_blank(uint8_t *buf, size_t at, size_t end)
{
    const struct cq_unit blank = {0, CQ_BLANK_SIZE, 0};
    for (; at < end && end - at >= CQ_UNIT; at += CQ_UNIT) {
        cq_put(buf + at, blank);
    }
}

size_t cq_find_end(const uint8_t *buf, size_t at, size_t end, int64_t *log_end)
{
    *log_end = -1;
    for (; at < end && end - at >= CQ_UNIT; at += CQ_UNIT) {
        struct cq_unit unit = cq_get(buf + at);
        if (!cq_is_valid(unit)) {
            break;
        }
        if (!cq_is_blank(unit)) {
            /* Unsigned: a damaged offset near 2^63 must not overflow. */
            *log_end = (int64_t)((uint64_t)unit.log_offset + (uint64_t)unit.size);
        }
    }
    return at;
}

size_t cq_lower_bound(const uint8_t *buf, size_t at, size_t end, int64_t log_offset)
{
    size_t low = 0, high = at < end ? (end - at) / CQ_UNIT : 0;
    size_t count = high;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (be_i64(buf + at + middle * CQ_UNIT + CQ_LOG_OFFSET_AT) < log_offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == count ? end : at + low * CQ_UNIT;
}

static int has_code(const struct cq_wish *wish, int64_t tags_code)
{
    size_t low = 0, high = wish->code_count;
    int32_t code = (int32_t)(uint32_t)(uint64_t)tags_code;
    if (wish->codes == NULL) {
        return 1;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (wish->codes[middle] == code) {
            return 1;
        }
        if (wish->codes[middle] < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return 0;
}

void cq_select(const uint8_t *buf, size_t at, size_t end, const struct cq_wish *wish,
               struct cq_unit *chosen, struct cq_choice *choice)
{
    size_t looked = 0;
    choice->count = 0;
    choice->size = 0;
    for (; at < end && end - at >= CQ_UNIT; at += CQ_UNIT, looked++) {
        struct cq_unit unit = cq_get(buf + at);
        if (looked == wish->max_units || choice->count == wish->max_count || !cq_is_valid(unit)) {
            break;
        }
        if (cq_is_blank(unit) || !has_code(wish, unit.tags_code)) {
            continue;
        }
        if (wish->matches != NULL) {
            int matches = wish->matches(wish->chooser, buf + at, (end - at) / CQ_UNIT);
            if (matches < 0) {
                break;
            }
            if (!matches) {
                continue;
            }
        }
        if (choice->count > 0 && choice->size + unit.size > wish->max_size) {
            break;
        }
        chosen[choice->count++] = unit;
        choice->size += unit.size;
    }
    choice->next = at;
}
