#include "lane_end.h"

#include <string.h>

#include "bytes.h"
#include "digits.h"
#include "queue_unit.h"

enum { SYS_COMMIT = 0x8, SYS_ROLLBACK = 0xC, QUEUE_DIGITS = 9 };

#define IS_TEXT(at, size, literal) \
    ((size) == sizeof(literal) - 1 && memcmp((at), literal, sizeof(literal) - 1) == 0)

static int same(struct trf_text one, struct trf_text other)
{
    return one.at != NULL && other.at != NULL && one.size == other.size &&
           memcmp(one.at, other.at, one.size) == 0;
}

/* Whether the queue of half messages has this record at this queue offset: the bytes at a log
 * offset may be anything, such as the body of another message. */
static int is_in_queue(const struct lane *lane, const struct rec_row *row, int64_t log_offset)
{
    int32_t number = dsp_find(lane->queues, (const uint8_t *)HALF_TOPIC,
                              sizeof HALF_TOPIC - 1, 0);
    const struct dsp_slot *slot;
    struct cq_unit unit;
    int64_t at;
    if (number < 0) {
        return 0;
    }
    slot = &lane->queues->slots[number];
    if (slot->units == NULL || row->queue_offset >= slot->max_offset ||
        row->queue_offset < slot->first_queue_offset) {
        return 0;
    }
    at = (row->queue_offset - slot->first_queue_offset) * CQ_UNIT;
    if (at > slot->limit - CQ_UNIT) {
        return 0;
    }
    unit = cq_get(slot->units + at);
    return unit.log_offset == log_offset && unit.size == row->size;
}

/* Read the half message of a request, with its properties; 0 if the handler has to look. */
static int find_half(const struct lane *lane, const struct trf_end *end, int64_t now_ms,
                     struct rec_row *row, struct trf_properties *properties)
{
    const struct log_tail *tail = lane->tail;
    struct trf_text text;
    enum rec_reason reason;
    uint32_t needed = TRF_REAL_TOPIC | TRF_REAL_QID | TRF_PGROUP | TRF_UNIQ_KEY;
    if (end->commit_log_offset < tail->base || end->commit_log_offset >= tail->dispatched ||
        rec_parse(tail->memory, (size_t)(end->commit_log_offset - tail->base),
                  (size_t)(tail->end - tail->base), REC_CHECK_BODY, row, &reason) != REC_OK ||
        !row->crc_ok || row->physical_offset != end->commit_log_offset ||
        row->queue_offset != end->tran_state_table_offset || row->queue_id != 0 ||
        !IS_TEXT(tail->memory + row->topic_at, (size_t)row->topic_size, HALF_TOPIC) ||
        row->sys_flag & (LANE_TRANSACTION_BITS | LANE_INNER_BATCH_BITS) ||
        now_ms < row->born_timestamp_ms || now_ms - row->born_timestamp_ms >= LANE_YOUNG_MS) {
        return 0;
    }
    text.at = tail->memory + row->properties_at;
    text.size = (uint32_t)row->properties_size;
    trf_scan_properties(text, properties);
    return properties->canonical && (properties->names & needed) == needed &&
           !(properties->names & (TRF_RARE | TRF_TIMER | TRF_DELAY | TRF_LIGHT | TRF_INNER_NUM)) &&
           !properties->unended && properties->unique_key.size > 0 &&
           same(properties->producer_group, end->producer_group) &&
           (same(properties->unique_key, end->msg_id) ||
            same(properties->unique_key, end->transaction_id)) &&
           is_in_queue(lane, row, end->commit_log_offset);
}

/* The beginning of the pair with this value. */
static const uint8_t *begin_of(struct trf_text value, size_t name_size)
{
    return value.at - 1 - name_size;
}

/* Write the properties of the committed message: the half message's, without its target. */
static struct trf_text committed(const struct lane *lane, const struct rec_row *row,
                                 const struct trf_properties *properties)
{
    const uint8_t *begin = lane->tail->memory + row->properties_at;
    const uint8_t *end = begin + row->properties_size;
    const uint8_t *topic = begin_of(properties->real_topic, sizeof "REAL_TOPIC" - 1);
    const uint8_t *topic_end = properties->real_topic.at + properties->real_topic.size + 1;
    const uint8_t *queue = begin_of(properties->real_queue, sizeof "REAL_QID" - 1);
    const uint8_t *queue_end = properties->real_queue.at + properties->real_queue.size + 1;
    const uint8_t *cuts[4] = {topic, topic_end, queue, queue_end};
    struct trf_text left;
    uint8_t *out = lane->texts;
    if (queue < topic) {
        cuts[0] = queue;
        cuts[1] = queue_end;
        cuts[2] = topic;
        cuts[3] = topic_end;
    }
    memcpy(out, begin, (size_t)(cuts[0] - begin));
    out += cuts[0] - begin;
    memcpy(out, cuts[1], (size_t)(cuts[2] - cuts[1]));
    out += cuts[2] - cuts[1];
    memcpy(out, cuts[3], (size_t)(end - cuts[3]));
    out += end - cuts[3];
    left.at = lane->texts;
    left.size = (uint32_t)(out - lane->texts);
    return left;
}

/* Write the message for consumers; returns its size, 0 if it does not fit. */
static size_t put_committed(const struct lane *lane, const struct rec_row *row,
                            const struct trf_properties *properties, int32_t queue_id,
                            const struct dsp_slot *slot, int64_t now_ms)
{
    struct log_tail *tail = lane->tail;
    struct trf_text text = committed(lane, row, properties);
    struct rec_fields fields;
    enum rec_reason reason;
    size_t size;
    memset(&fields, 0, sizeof fields);
    fields.topic = properties->real_topic.at;
    fields.topic_size = properties->real_topic.size;
    fields.body = tail->memory + row->body_at;
    fields.body_size = (size_t)row->body_size;
    fields.properties = text.at;
    fields.properties_size = text.size;
    fields.born_host = tail->memory + row->born_host_at;
    fields.born_host_size = (size_t)row->born_host_size;
    fields.store_host = tail->memory + row->store_host_at;
    fields.store_host_size = (size_t)row->store_host_size;
    fields.log_offset = tail->end;
    fields.queue_offset = slot->next_offset;
    fields.born_timestamp_ms = row->born_timestamp_ms;
    fields.store_timestamp_ms =
        now_ms > tail->last_store_timestamp_ms ? now_ms : tail->last_store_timestamp_ms;
    fields.prepared_transaction_offset = row->physical_offset;
    fields.magic = REC_MAGIC_V1;
    fields.queue_id = queue_id;
    fields.flag = (int32_t)row->flag;
    fields.sys_flag = ((int32_t)row->sys_flag & ~LANE_TRANSACTION_BITS) | SYS_COMMIT;
    fields.reconsume_times = (int32_t)row->reconsume_times;
    if (rec_encode(tail->memory, (size_t)(tail->end - tail->base), tail->size, &fields, &size,
                   &reason) != REC_OK) {
        return 0;
    }
    tail->last_store_timestamp_ms = fields.store_timestamp_ms;
    return size;
}

enum lane_outcome lane_end(struct lane *lane, const struct trf_end *end, int64_t now_ms)
{
    struct log_tail *tail = lane->tail;
    struct trf_properties properties;
    struct nam_text name, none = {NULL, 0};
    struct lane_topic *topic;
    struct dsp_slot *slot;
    struct rec_row row;
    int64_t queue_id;
    int32_t number;
    size_t size;
    if (!lane->kept.halves || tail->refusals != 0 || tail->memory == NULL ||
        (end->commit_or_rollback != SYS_COMMIT && end->commit_or_rollback != SYS_ROLLBACK) ||
        !find_half(lane, end, now_ms, &row, &properties) ||
        (size_t)row.body_size > lane->max_body ||
        !digits_read(properties.real_queue.at, properties.real_queue.size, QUEUE_DIGITS,
                     &queue_id)) {
        return LANE_ELSEWHERE;
    }
    name.at = properties.real_topic.at;
    name.size = properties.real_topic.size;
    number = nam_find(&lane->topics, name, none);
    if (number < 0 || !lane->rows[number].plain) {
        return LANE_ELSEWHERE;
    }
    topic = &lane->rows[number];
    if (queue_id >= topic->queue_limit) {
        return LANE_ELSEWHERE; /* the topic had more queues when the message was sent */
    }
    if (end->commit_or_rollback == SYS_COMMIT) {
        number = dsp_find(lane->queues, name.at, name.size, (int32_t)queue_id);
        if (number < 0 || !lane->queues->slots[number].plain) {
            return LANE_ELSEWHERE;
        }
        slot = &lane->queues->slots[number];
        size = put_committed(lane, &row, &properties, (int32_t)queue_id, slot, now_ms);
        if (size == 0) {
            return LANE_ELSEWHERE;
        }
        tail->end += (int64_t)size;
        slot->next_offset++;
        topic->put_count++;
        topic->put_size += (int64_t)size;
        lane->counts.put_count++;
        lane->counts.put_size += (int64_t)size;
        topic->halves.committed++;
        topic->halves.age_s += (now_ms - row.born_timestamp_ms) / 1000;
    } else {
        topic->halves.rolled_back++;
    }
    lane_note_halves(lane, topic, now_ms);
    lane->counts.end_count++;
    return LANE_DONE;
}
