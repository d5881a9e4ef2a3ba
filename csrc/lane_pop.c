#include "lane_pop.h"

#include <string.h>

#include "bytes.h"
#include "digits.h"

enum {
    RECORD_SIZE_AT = 0,
    RECORD_QUEUE_OFFSET_AT = 20,
    RECORD_HEAD = 28,
    /* Upper limit in bytes of a check point's record. */
    POINT_ROOM = 4096
};

static int is_same(struct trf_text one, struct trf_text other)
{
    return one.size == other.size && (one.at == NULL) == (other.at == NULL) &&
           (one.size == 0 || memcmp(one.at, other.at, one.size) == 0);
}

/* Whether the pop's client still waits for it (checks.py, check_poll), with times whose sums do not
 * overflow. */
static int is_awaited(const struct trf_pop *pop, int64_t now_ms)
{
    const int64_t most = INT64_C(1) << 60;
    int64_t born_ms = pop->born_time != 0 ? pop->born_time : now_ms;
    return born_ms >= 0 && born_ms < most && pop->poll_time >= 0 && pop->poll_time < most &&
           now_ms - born_ms - pop->poll_time <= LANE_POP_LATE_MS;
}

int32_t lane_find_popper(const struct lane_reading *reading, const struct lane_popping *popping,
                         const struct trf_pop *pop, int64_t now_ms)
{
    struct nam_text group = {pop->consumer_group.at, pop->consumer_group.size};
    struct nam_text topic = {pop->topic.at, pop->topic.size};
    int32_t number = nam_find(&reading->pairs, group, topic);
    const struct lane_reader *reader;
    if (number < 0 || pop->order || pop->max_msg_nums < 1 || pop->max_msg_nums > LANE_POP_MAX ||
        pop->invisible_time < 1 || pop->invisible_time > LANE_INVISIBLE_MAX_MS ||
        !is_awaited(pop, now_ms)) {
        return -1;
    }
    reader = &reading->rows[number];
    if (!reader->plain || now_ms >= reader->until_ms || pop->queue_id < -1 ||
        pop->queue_id >= reader->queue_limit ||
        reader->queue_limit != popping->rows[number].queue_count ||
        !is_same(reader->subscription, pop->exp) ||
        !is_same(reader->expression_type, pop->exp_type)) {
        return -1;
    }
    return number;
}

void lane_known(struct lane_popping *popping, int32_t row)
{
    struct lane_popper *popper = &popping->rows[row];
    if (!popper->is_known) {
        popper->is_known = 1;
        popper->next_known = popping->first_known;
        popping->first_known = row + 1;
    }
}

int32_t lane_take_popped(struct lane_popping *popping)
{
    int32_t row = popping->first_known - 1;
    if (row >= 0) {
        popping->first_known = popping->rows[row].next_known;
        popping->rows[row].is_known = 0;
    }
    return row;
}

/* The queue offset after the last readable message of a queue, 0 if it has no readable message. */
static int64_t end_of(const struct lane_reading *reading, struct trf_text topic, int32_t queue_id)
{
    int32_t slot = dsp_find((struct dsp_table *)reading->queues, topic.at, topic.size, queue_id);
    return slot < 0 ? 0 : reading->queues->slots[slot].max_offset;
}

/* Whether the retry topic whose turn it is has, or may have, messages for the group. */
static int has_retries(const struct lane_reading *reading, const struct lane_popper *popper,
                       int32_t draw)
{
    const struct lane_place *places = popper->places + popper->queue_count;
    int32_t turn = popper->retry_count > 0 ? draw % popper->retry_count : 0;
    const struct lane_retry *retry = &popper->retries[turn];
    if (popper->retry_count == 0) {
        return 0;
    }
    for (int32_t number = 0; number < turn; number++) {
        places += popper->retries[number].queue_count;
    }
    for (int32_t queue_id = 0; queue_id < retry->queue_count; queue_id++) {
        if (places[queue_id].next != end_of(reading, retry->topic, queue_id)) {
            return 1;
        }
    }
    return 0;
}

/* Fill in the queue offsets of the records in runs, which are whole records. */
static int32_t put_queue_offsets(const struct lane_run *runs, size_t count, int64_t *out,
                                 int32_t most)
{
    int32_t found = 0;
    for (size_t number = 0; number < count; number++) {
        const uint8_t *at = runs[number].at, *end = at + runs[number].size;
        while (end - at >= RECORD_HEAD && found < most) {
            int32_t size = be_i32(at + RECORD_SIZE_AT);
            if (size < RECORD_HEAD || size > end - at) {
                return found;
            }
            out[found++] = be_i64(at + RECORD_QUEUE_OFFSET_AT);
            at += size;
        }
    }
    return found;
}

/* Add the messages found in a queue. */
static int add_part(const struct lane_found *found, const struct trf_pull *pull,
                    struct lane_popped *out)
{
    struct lane_part *part = &out->parts[out->part_count];
    int32_t most = LANE_POP_MAX - out->count;
    if (found->count > (size_t)most || found->run_count > LANE_POP_MAX - out->run_count ||
        put_queue_offsets(found->runs, found->run_count, out->offsets + out->count, most) !=
            (int32_t)found->count) {
        return 0;
    }
    part->queue_id = pull->queue_id;
    part->first = out->count;
    part->count = (int32_t)found->count;
    part->start = pull->queue_offset;
    /* Units examined after the last message are examined again: the check points of a group with a
     * filter leave no gap, at which a recovery would stop. */
    part->next = out->offsets[out->count + part->count - 1] + 1;
    if (part->next - part->start > LANE_POP_SPAN) {
        return 0; /* the handler receives fewer messages */
    }
    part->size = found->size;
    memcpy(out->runs + out->run_count, found->runs, found->run_count * sizeof *found->runs);
    out->run_count += found->run_count;
    out->count += part->count;
    out->size += found->size;
    out->part_count++;
    return 1;
}

enum lane_found_outcome lane_find_popped(const struct lane_reading *reading,
                                         const struct lane_popping *popping, int32_t row,
                                         const struct trf_pop *pop, int32_t draw,
                                         struct lane_found *found, struct lane_popped *out)
{
    struct lane_reader *reader = &reading->rows[row];
    const struct lane_popper *popper = &popping->rows[row];
    int32_t count = pop->queue_id < 0 ? popper->queue_count : 1;
    out->rest = 0;
    out->count = out->part_count = 0;
    out->size = out->run_count = 0;
    if (has_retries(reading, popper, draw)) {
        return LANE_NOT_HERE;
    }
    memset(&out->pull, 0, sizeof out->pull);
    out->pull.topic = pop->topic;
    for (int32_t number = 0; number < count; number++) {
        int32_t queue_id = pop->queue_id < 0 ? (draw + number) % count : pop->queue_id;
        int64_t end = end_of(reading, pop->topic, queue_id), next = popper->places[queue_id].next;
        enum lane_found_outcome outcome;
        if (next < 0 || next > end) {
            return LANE_NOT_HERE;
        }
        if (next == end || out->count == pop->max_msg_nums) {
            out->rest += end - next;
            continue;
        }
        out->pull.queue_id = queue_id;
        out->pull.queue_offset = next;
        out->pull.max_msg_nums = pop->max_msg_nums - out->count;
        outcome = lane_read(reading, reader, &out->pull, found);
        if (outcome != LANE_FOUND) {
            return outcome;
        }
        if (!add_part(found, &out->pull, out)) {
            return LANE_NOT_HERE;
        }
        out->rest += found->max_offset - found->next_offset;
    }
    return out->count > 0 ? LANE_FOUND : LANE_NOT_HERE;
}

/* Whether the records of all check points fit into the current log file: a pop is done completely
 * or not at all. */
static int has_room(const struct log_tail *tail, int32_t parts)
{
    int64_t left = tail->base + (int64_t)tail->size - tail->end;
    return tail->memory != NULL && left >= (int64_t)parts * POINT_ROOM;
}

enum lane_outcome lane_hide(struct lane *lane, const struct lane_acks *acks,
                            struct lane_popping *popping, int32_t row, const struct trf_pop *pop,
                            int32_t revive_queue_id, int64_t now_ms, const struct lane_popped *got)
{
    struct lane_place *places = popping->rows[row].places;
    struct lane_point point;
    if (!has_room(lane->tail, got->part_count)) {
        return LANE_ELSEWHERE;
    }
    point.group = pop->consumer_group;
    point.topic = pop->topic;
    point.broker_name = lane->kept.broker_name;
    point.revive_queue_id = revive_queue_id;
    point.pop_time_ms = now_ms;
    point.invisible_ms = pop->invisible_time;
    point.is_suspended = 0;
    for (int32_t number = 0; number < got->part_count; number++) {
        const struct lane_part *part = &got->parts[number];
        enum lane_outcome outcome;
        point.queue_id = part->queue_id;
        point.start = part->start;
        point.count = part->count;
        for (int32_t each = 0; each < part->count; each++) {
            point.distances[each] = got->offsets[part->first + each] - part->start;
        }
        outcome = lane_write_point(lane, acks, &point, now_ms);
        /* Names, times and room are the first part's. */
        if (outcome != LANE_DONE) {
            return outcome;
        }
        places[part->queue_id].next = part->next;
        places[part->queue_id].moves++;
    }
    return LANE_DONE;
}

/* The flag of the topic itself, and the queue. */
static uint8_t *put_queue(uint8_t *at, const uint8_t *begin, int32_t queue_id)
{
    if (at != begin) {
        *at++ = ';';
    }
    *at++ = '0';
    *at++ = ' ';
    at = digits_put(at, (uint64_t)queue_id);
    *at++ = ' ';
    return at;
}

void lane_put_offsets(const struct lane_popped *got, uint8_t *starts, uint8_t *offsets,
                      struct trf_pop_answer *answer)
{
    uint8_t *start = starts, *at = offsets;
    for (int32_t number = 0; number < got->part_count; number++) {
        const struct lane_part *part = &got->parts[number];
        start = put_queue(start, starts, part->queue_id);
        start = digits_put(start, (uint64_t)part->start);
        at = put_queue(at, offsets, part->queue_id);
        for (int32_t each = 0; each < part->count; each++) {
            at = digits_put(at, (uint64_t)got->offsets[part->first + each]);
            *at++ = ',';
        }
        at--; /* remove the separator after the last part */
    }
    answer->starts.at = starts;
    answer->starts.size = (uint32_t)(start - starts);
    answer->offsets.at = offsets;
    answer->offsets.size = (uint32_t)(at - offsets);
}
