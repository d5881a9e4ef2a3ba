#include "lane_pull.h"

#include <string.h>

#include "bytes.h"
#include "queue_unit.h"
#include "walk.h"

enum {
    FILTER_UNITS = 16000 / CQ_UNIT, /* units that one pull examines, at least */
    FILTER_UNITS_NEAR = 1 << 14     /* with a filter of properties, near the end of the log */
};
_Static_assert(LANE_SPANS + 1 <= FLT_SPANS, "the tail's file, and those at hand");

static int is_same(struct trf_text one, struct trf_text other)
{
    return one.size == other.size && (one.at == NULL) == (other.at == NULL) &&
           (one.size == 0 || memcmp(one.at, other.at, one.size) == 0);
}

/* The row of a number, NULL unless its checks hold for this pull. */
static struct lane_reader *checked(const struct lane_reading *reading, int32_t number,
                                   const struct trf_pull *pull, int64_t now_ms)
{
    struct lane_reader *row = &reading->rows[number];
    if (!row->plain || now_ms >= row->until_ms || pull->queue_id < 0 ||
        pull->queue_id >= row->queue_limit ||
        row->carried != ((pull->sys_flag & LANE_CARRIED) != 0)) {
        return NULL;
    }
    if (row->carried) {
        return row->sub_version == pull->sub_version &&
                       is_same(row->subscription, pull->subscription) &&
                       is_same(row->expression_type, pull->expression_type)
                   ? row
                   : NULL;
    }
    return row->sub_version < pull->sub_version ? NULL : row;
}

static const uint8_t *span_of(const struct lane_reading *reading, int64_t start)
{
    if (reading->tail->memory != NULL && reading->tail->base == start) {
        return reading->tail->memory;
    }
    for (size_t number = 0; number < reading->span_count; number++) {
        if (reading->spans[number].start == start) {
            return reading->spans[number].memory;
        }
    }
    return NULL;
}

/* Add a unit's record to the runs: adjacent records become one run. */
static enum lane_found_outcome add(const struct lane_reading *reading, struct cq_unit unit,
                                   struct lane_found *found)
{
    int64_t start = unit.log_offset - unit.log_offset % reading->file_size;
    struct lane_run *last = found->run_count > 0 ? &found->runs[found->run_count - 1] : NULL;
    const uint8_t *memory;
    if (unit.log_offset > reading->tail->end - unit.size ||
        unit.log_offset - start + unit.size > reading->file_size) {
        return LANE_NOT_HERE;
    }
    if (last != NULL && last->log_offset + (int64_t)last->size == unit.log_offset &&
        unit.log_offset != start) {
        last->size += (size_t)unit.size;
        return LANE_FOUND;
    }
    memory = span_of(reading, start);
    if (memory == NULL) {
        found->lacking = start;
        return LANE_NEEDS_LOG;
    }
    found->runs[found->run_count].at = memory + (unit.log_offset - start);
    found->runs[found->run_count].log_offset = unit.log_offset;
    found->runs[found->run_count].size = (size_t)unit.size;
    found->run_count++;
    return LANE_FOUND;
}

/* Whether all runs are whole records of this part of the queue, in order: a damaged record or
 * another message must never be served, and Python repairs units damaged by a disk. */
static int are_whole(const struct trf_pull *pull, const struct lane_found *found)
{
    struct walk_part part = {pull->topic.at, pull->topic.size, pull->queue_id, pull->queue_offset,
                             found->next_offset};
    for (size_t number = 0; number < found->run_count; number++) {
        const struct lane_run *run = &found->runs[number];
        if (!walk_is_part(run->at, 0, run->size, run->log_offset, &part)) {
            return 0;
        }
    }
    return 1;
}

static enum lane_found_outcome collect(const struct lane_reading *reading,
                                       const struct trf_pull *pull, const struct cq_unit *units,
                                       size_t count, struct lane_found *found)
{
    found->run_count = 0;
    found->count = count;
    for (size_t number = 0; number < count; number++) {
        enum lane_found_outcome outcome = add(reading, units[number], found);
        if (outcome != LANE_FOUND) {
            return outcome;
        }
    }
    return are_whole(pull, found) ? LANE_FOUND : LANE_NOT_HERE;
}

/* Let a filter of properties choose among the units. */
static void filter_units(const struct lane_reading *reading, const struct lane_reader *row,
                         struct cq_wish *wish, struct flt_scan *scan, int is_near)
{
    scan->program = row->filter;
    scan->file_size = reading->file_size;
    scan->log_end = reading->tail->end;
    scan->work = 0;
    scan->lacking = -1;
    scan->recent = scan->span_count = 0;
    if (reading->tail->memory != NULL) {
        scan->spans[scan->span_count].memory = reading->tail->memory;
        scan->spans[scan->span_count++].start = reading->tail->base;
    }
    for (size_t number = 0; number < reading->span_count; number++) {
        if (reading->spans[number].memory != NULL) {
            scan->spans[scan->span_count].memory = reading->spans[number].memory;
            scan->spans[scan->span_count++].start = reading->spans[number].start;
        }
    }
    if (is_near && wish->max_units < FILTER_UNITS_NEAR) {
        wish->max_units = FILTER_UNITS_NEAR;
    }
    wish->matches = flt_choose;
    wish->chooser = scan;
}

enum lane_found_outcome lane_find(const struct lane_reading *reading, const struct trf_pull *pull,
                                  int64_t now_ms, struct lane_found *found)
{
    struct nam_text group = {pull->consumer_group.at, pull->consumer_group.size};
    struct nam_text topic = {pull->topic.at, pull->topic.size};
    int32_t number = nam_find(&reading->pairs, group, topic);
    return number < 0 ? LANE_NOT_HERE : lane_find_again(reading, number, pull, now_ms, found);
}

enum lane_found_outcome lane_find_again(const struct lane_reading *reading, int32_t number,
                                        const struct trf_pull *pull, int64_t now_ms,
                                        struct lane_found *found)
{
    struct lane_reader *row = checked(reading, number, pull, now_ms);
    found->reader = row;
    return row == NULL ? LANE_NOT_HERE : lane_read(reading, row, pull, found);
}

/* Set the limits of the queue; whether the pull asks for the queue's next message. */
static int is_at_end(const struct lane_reading *reading, const struct lane_reader *row,
                     const struct lane_cursor *cursor, int64_t offset, struct lane_found *found)
{
    found->min_offset = cursor->min_offset;
    found->max_offset = reading->queues->slots[cursor->slot].max_offset;
    found->next_offset = offset;
    found->broker_id = row->near_id;
    found->count = found->size = found->run_count = 0;
    return offset == found->max_offset && offset > found->min_offset;
}

static void wish_for(const struct lane_reading *reading, const struct lane_reader *row,
                     int is_near, int64_t asked, struct cq_wish *wish)
{
    wish->matches = NULL;
    wish->codes = row->codes;
    wish->code_count = row->code_count;
    wish->max_count = (size_t)(is_near ? reading->limits.near_count : reading->limits.far_count);
    wish->max_size = is_near ? reading->limits.near_size : reading->limits.far_size;
    wish->max_units = (size_t)(asked > FILTER_UNITS ? asked : FILTER_UNITS);
    if ((int64_t)wish->max_count > asked) {
        wish->max_count = (size_t)asked;
    }
}

enum lane_found_outcome lane_read(const struct lane_reading *reading, struct lane_reader *row,
                                  const struct trf_pull *pull, struct lane_found *found)
{
    int64_t offset = pull->queue_offset, asked = pull->max_msg_nums < 1 ? 1 : pull->max_msg_nums;
    const struct lane_cursor *cursor;
    struct cq_unit units[LANE_PULL_MAX];
    struct cq_choice choice;
    struct cq_wish wish;
    struct flt_scan scan;
    size_t at, end;
    int64_t last;
    int is_near;

    found->reader = row;
    cursor = &row->cursors[pull->queue_id];
    if (cursor->units == NULL || cursor->generation != *reading->generation) {
        return LANE_NEEDS_UNITS;
    }
    if (is_at_end(reading, row, cursor, offset, found)) {
        return LANE_AT_END;
    }
    if (offset < cursor->first || offset - cursor->first >= cursor->count) {
        return LANE_NEEDS_UNITS;
    }
    if (offset < found->min_offset || offset >= found->max_offset) {
        return LANE_NOT_HERE;
    }
    at = (size_t)(offset - cursor->first) * CQ_UNIT;
    end = (size_t)(found->max_offset - cursor->first < cursor->count
                       ? found->max_offset - cursor->first
                       : cursor->count) *
          CQ_UNIT;
    if (!cq_is_valid(cq_get(cursor->units + at))) {
        return LANE_NOT_HERE;
    }
    is_near = reading->tail->end - cq_get(cursor->units + at).log_offset <=
              reading->limits.near_bytes;
    wish_for(reading, row, is_near, asked, &wish);
    if (wish.max_count == 0 || wish.max_count > LANE_PULL_MAX) {
        return LANE_NOT_HERE;
    }
    scan.lacking = -1;
    if (row->filter != NULL) {
        filter_units(reading, row, &wish, &scan, is_near);
    }
    cq_select(cursor->units, at, end, &wish, units, &choice);
    if (scan.lacking >= 0) {
        found->lacking = scan.lacking;
        return LANE_NEEDS_LOG;
    }
    if (choice.count == 0 && row->filter != NULL) {
        row->plain = 0; /* matches are rare, and the handler would examine the same units again */
    }
    if (choice.count == 0 && row->filter == NULL && choice.next == end &&
        found->max_offset - cursor->first <= cursor->count) {
        found->next_offset = found->max_offset;
        return LANE_PASSED;
    }
    if (choice.count == 0 ||
        (choice.next < end && !cq_is_valid(cq_get(cursor->units + choice.next)))) {
        return LANE_NOT_HERE; /* no messages, or an invalid unit before the queue's end */
    }
    found->next_offset = cursor->first + (int64_t)(choice.next / CQ_UNIT);
    found->size = (size_t)choice.size;
    last = cq_get(cursor->units + choice.next - CQ_UNIT).log_offset;
    found->broker_id =
        reading->tail->end - last > reading->limits.near_bytes ? row->far_id : row->near_id;
    return collect(reading, pull, units, choice.count, found);
}

void lane_got(const struct lane_found *found, const struct trf_pull *pull)
{
    struct lane_reader *row = found->reader;
    row->got_times++;
    row->got_count += (int64_t)found->count;
    row->got_size += (int64_t)found->size;
    row->cursors[pull->queue_id].pulled = found->next_offset;
}
