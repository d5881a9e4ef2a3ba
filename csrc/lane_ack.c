#include "lane_ack.h"

#include <string.h>

#include "bytes.h"
#include "digits.h"

enum {
    NAME_END = 1,
    VALUE_END = 2,
    DIGITS_MOST = 18,
    QUEUE_DIGITS = 9,
    HANDLE_MAX = 1024,
    NAMES_MAX = 255,
    /* Room for names, and for numbers with their separators. */
    BODY_MAX = 3 * NAMES_MAX + (LANE_OFFSETS_MAX + 6) * (DIGITS_ROOM + 1) + 128
};

/* The words of a handle. */
struct handle {
    int64_t start, pop_time_ms, invisible_ms;
    int64_t revive_queue_id, queue_id, queue_offset;
    struct trf_text broker_name;
};

/* Find the next word, up to a blank or the end; *at is set after it. */
static struct trf_text next_word(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *stop = memchr(*at, ' ', (size_t)(end - *at));
    struct trf_text word = {*at, 0};
    stop = stop != NULL ? stop : end;
    word.size = (uint32_t)(stop - *at);
    *at = stop < end ? stop + 1 : end;
    return word;
}

static int next_number(const uint8_t **at, const uint8_t *end, size_t digits, int64_t *value)
{
    struct trf_text word = next_word(at, end);
    return digits_read(word.at, word.size, digits, value);
}

/* Whether net/wire/pop_handles.py accepts the broker name, and JSON needs no escapes for it. */
static int is_plain_name(struct trf_text name)
{
    if (name.size == 0 || name.size > NAMES_MAX) {
        return 0;
    }
    for (uint32_t i = 0; i < name.size; i++) {
        if (name.at[i] < '!' || name.at[i] > '~' || name.at[i] == '"' || name.at[i] == '\\') {
            return 0;
        }
    }
    return 1;
}

/* Read a handle of eight words, as clients build it; 0 for any other. */
static int read_handle(struct trf_text text, struct handle *out)
{
    const uint8_t *at = text.at, *end = at + text.size;
    struct trf_text kind;
    if (text.size == 0 || text.size > HANDLE_MAX || text.at[text.size - 1] == ' ' ||
        !next_number(&at, end, DIGITS_MOST, &out->start) ||
        !next_number(&at, end, DIGITS_MOST, &out->pop_time_ms) ||
        !next_number(&at, end, DIGITS_MOST, &out->invisible_ms) ||
        !next_number(&at, end, QUEUE_DIGITS, &out->revive_queue_id)) {
        return 0;
    }
    kind = next_word(&at, end);
    out->broker_name = next_word(&at, end);
    return kind.size == 1 && kind.at[0] >= '0' && kind.at[0] <= '2' &&
           is_plain_name(out->broker_name) &&
           next_number(&at, end, QUEUE_DIGITS, &out->queue_id) &&
           next_number(&at, end, DIGITS_MOST, &out->queue_offset) && at == end;
}

static int same(struct trf_text one, struct trf_text other)
{
    return one.size == other.size && memcmp(one.at, other.at, one.size) == 0;
}

/* Whether a text lies in the frame: a text with escapes lies in the scratch, which is reused. */
static int lies_in(struct trf_text text, const uint8_t *frame, size_t size)
{
    return text.at >= frame && text.at + text.size <= frame + size;
}

/* Read the handle, and find the check point of an acknowledgement among the waiting ones; -1: it is
 * not there. */
static int32_t find_joined(const struct lane_acks *acks, const struct trf_ack *ack,
                           const struct handle *handle)
{
    for (int32_t number = acks->joined_count - 1; number >= 0; number--) {
        const struct lane_joined *one = &acks->joined[number];
        if (one->start == handle->start && one->pop_time_ms == handle->pop_time_ms &&
            one->queue_id == ack->queue_id && one->revive_queue_id == handle->revive_queue_id &&
            same(one->broker_name, handle->broker_name) && same(one->topic, ack->topic) &&
            same(one->group, ack->consumer_group)) {
            return number;
        }
    }
    return -1;
}

int32_t lane_find_acker(const struct lane_acks *acks, const struct trf_ack *ack)
{
    struct nam_text group = {ack->consumer_group.at, ack->consumer_group.size};
    struct nam_text topic = {ack->topic.at, ack->topic.size};
    int32_t number = nam_find(&acks->pairs, group, topic);
    if (number < 0 || !acks->rows[number].plain || ack->queue_id < 0 ||
        ack->queue_id >= acks->rows[number].queue_limit) {
        return -1;
    }
    return number;
}

int lane_acks_full(const struct lane_acks *acks, const struct trf_request *request)
{
    struct handle handle;
    int32_t number;
    if (acks->joined_count == LANE_JOINED_MAX || acks->acked_count == LANE_ACKED_MAX) {
        return 1;
    }
    if (acks->joined_count == 0 || !read_handle(request->ack.extra_info, &handle)) {
        return 0;
    }
    number = find_joined(acks, &request->ack, &handle);
    return number >= 0 && (acks->joined[number].count == LANE_OFFSETS_MAX ||
                           acks->joined[number].invisible_ms != handle.invisible_ms);
}

size_t lane_changed_slot(int32_t queue_id, int64_t start, int64_t pop_time_ms, int64_t offset)
{
    uint64_t hash = (uint64_t)queue_id;
    hash = (hash ^ (uint64_t)start) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ (hash >> 29) ^ (uint64_t)pop_time_ms) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ (hash >> 29) ^ (uint64_t)offset) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 40) % LANE_CHANGED;
}

/* Whether the handle may be a replaced one, which only the handler can decide. */
static int may_be_changed(const struct lane_acks *acks, const struct trf_ack *ack,
                          const struct handle *handle)
{
    return acks->changed[lane_changed_slot(ack->queue_id, handle->start, handle->pop_time_ms,
                                           ack->offset)] > 0;
}

/* Whether the queue has a message at that offset. */
static int is_there(const struct lane *lane, const struct trf_ack *ack, int64_t low)
{
    int32_t number = dsp_find(lane->queues, ack->topic.at, ack->topic.size, ack->queue_id);
    return number >= 0 && ack->offset >= 0 && ack->offset >= low &&
           ack->offset < lane->queues->slots[number].max_offset;
}

static void add_offset(struct lane_joined *joined, int64_t offset)
{
    for (int32_t i = joined->count - 1; i >= 0; i--) {
        if (joined->offsets[i] == offset) {
            return;
        }
    }
    joined->offsets[joined->count++] = offset;
}

enum lane_outcome lane_add_ack(const struct lane *lane, struct lane_acks *acks, int32_t row,
                               const struct trf_request *request, int64_t low,
                               const uint8_t *frame, size_t size)
{
    const struct trf_ack *ack = &request->ack;
    struct lane_joined *joined;
    struct lane_acked *acked;
    struct handle handle;
    int32_t number;
    if (!lies_in(ack->consumer_group, frame, size) || !lies_in(ack->topic, frame, size) ||
        !lies_in(ack->extra_info, frame, size) || !read_handle(ack->extra_info, &handle) ||
        handle.revive_queue_id >= acks->revive_queues ||
        handle.pop_time_ms <= acks->rows[row].ended_ms || !is_there(lane, ack, low) ||
        may_be_changed(acks, ack, &handle)) {
        return LANE_ELSEWHERE;
    }
    number = find_joined(acks, ack, &handle);
    if (number < 0) {
        number = acks->joined_count++;
        joined = &acks->joined[number];
        joined->row = row;
        joined->queue_id = ack->queue_id;
        joined->revive_queue_id = (int32_t)handle.revive_queue_id;
        joined->count = joined->requests = 0;
        joined->is_written = 0;
        joined->start = handle.start;
        joined->pop_time_ms = handle.pop_time_ms;
        joined->invisible_ms = handle.invisible_ms;
        joined->group = ack->consumer_group;
        joined->topic = ack->topic;
        joined->broker_name = handle.broker_name;
    }
    joined = &acks->joined[number];
    add_offset(joined, ack->offset);
    joined->requests++;
    acked = &acks->acked[acks->acked_count++];
    acked->frame = frame;
    acked->size = size;
    acked->joined = number;
    acked->opaque = request->opaque;
    acked->is_oneway = request->is_oneway;
    return LANE_DONE;
}

static uint8_t *put(uint8_t *at, const void *text, size_t size)
{
    memcpy(at, text, size);
    return at + size;
}

#define PUT(at, literal) put((at), literal, sizeof(literal) - 1)

static uint8_t *put_text(uint8_t *at, struct trf_text text) { return put(at, text.at, text.size); }

/* Write the record's body: net/wire/pop_records.py, Acknowledgement.body. */
static size_t put_body(uint8_t *out, const struct lane_joined *joined)
{
    uint8_t *at = PUT(out, "{\"ao\":");
    if (joined->count > 1) {
        at = PUT(at, "-1,\"aol\":[");
        for (int32_t i = 0; i < joined->count; i++) {
            at = digits_put(at, (uint64_t)joined->offsets[i]);
            *at++ = i + 1 < joined->count ? ',' : ']';
        }
    } else {
        at = digits_put(at, (uint64_t)joined->offsets[0]);
    }
    at = PUT(at, ",\"bn\":\"");
    at = put_text(at, joined->broker_name);
    at = PUT(at, "\",\"c\":\"");
    at = put_text(at, joined->group);
    at = PUT(at, "\",\"pt\":");
    at = digits_put(at, (uint64_t)joined->pop_time_ms);
    at = PUT(at, ",\"q\":");
    at = digits_put(at, (uint64_t)joined->queue_id);
    at = PUT(at, ",\"so\":");
    at = digits_put(at, (uint64_t)joined->start);
    at = PUT(at, ",\"t\":\"");
    at = put_text(at, joined->topic);
    at = PUT(at, "\"}");
    return (size_t)(at - out);
}

/* Write the body of a check point: CheckPoint.body of the same module. */
static size_t put_point_body(uint8_t *out, const struct lane_point *point)
{
    uint8_t *at = PUT(out, "{\"bm\":0,\"bn\":\"");
    at = put_text(at, point->broker_name);
    at = PUT(at, "\",\"c\":\"");
    at = put_text(at, point->group);
    at = PUT(at, "\",\"d\":[");
    for (int32_t i = 0; i < point->count; i++) {
        at = digits_put(at, (uint64_t)point->distances[i]);
        *at++ = i + 1 < point->count ? ',' : ']';
    }
    at = PUT(at, ",\"it\":");
    at = digits_put(at, (uint64_t)point->invisible_ms);
    at = PUT(at, ",\"n\":");
    at = digits_put(at, (uint64_t)point->count);
    at = PUT(at, ",\"pt\":");
    at = digits_put(at, (uint64_t)point->pop_time_ms);
    at = PUT(at, ",\"q\":");
    at = digits_put(at, (uint64_t)point->queue_id);
    at = PUT(at, ",\"reviveTime\":");
    at = digits_put(at, (uint64_t)(point->pop_time_ms + point->invisible_ms));
    at = PUT(at, ",\"ro\":0,\"so\":");
    at = digits_put(at, (uint64_t)point->start);
    at = point->is_suspended ? PUT(at, ",\"sp\":true,\"t\":\"") : PUT(at, ",\"sp\":false,\"t\":\"");
    at = put_text(at, point->topic);
    at = PUT(at, "\"}");
    return (size_t)(at - out);
}

/* A record of the revive topic that waits among the timers. `number`: the number after the queue id
 * in UNIQ_KEY, -1 for a batch of acknowledgements. */
struct revive_record {
    struct trf_text group, topic, broker_name;
    int32_t queue_id, revive_queue_id;
    int64_t number, pop_time_ms, due_ms;
    const char *kind, *tag; /* the end of UNIQ_KEY, and TAGS */
    const uint8_t *body;
    size_t body_size;
};

static uint8_t *put_string(uint8_t *at, const char *text) { return put(at, text, strlen(text)); }

#define PUT_NAME(at, literal) PUT(at, literal "\001")

/* Write the record's properties: first broker/pop/revive_log.py's, then a timer's. */
static struct trf_text put_properties(const struct lane *lane, const struct lane_acks *acks,
                                      const struct revive_record *record)
{
    int64_t precision_ms = lane->kept.precision_ms;
    struct trf_text text = {lane->texts, 0};
    uint8_t *at = PUT_NAME(lane->texts, "UNIQ_KEY");
    at = put_text(at, record->topic);
    *at++ = '@';
    at = digits_put(at, (uint64_t)record->queue_id);
    *at++ = '@';
    at = record->number < 0 ? PUT(at, "-1") : digits_put(at, (uint64_t)record->number);
    *at++ = '@';
    at = put_text(at, record->group);
    *at++ = '@';
    at = digits_put(at, (uint64_t)record->pop_time_ms);
    *at++ = '@';
    at = put_text(at, record->broker_name);
    *at++ = '@';
    at = put_string(at, record->kind);
    *at++ = VALUE_END;
    at = PUT_NAME(at, "TAGS");
    at = put_string(at, record->tag);
    *at++ = VALUE_END;
    at = PUT_NAME(at, "TIMER_DELIVER_MS");
    at = digits_put(at, (uint64_t)record->due_ms);
    *at++ = VALUE_END;
    at = PUT_NAME(at, "TIMER_OUT_MS");
    at = digits_put(at, (uint64_t)((record->due_ms - 1) / precision_ms * precision_ms));
    *at++ = VALUE_END;
    at = PUT_NAME(at, "REAL_TOPIC");
    at = put_text(at, acks->revive_topic);
    *at++ = VALUE_END;
    at = PUT_NAME(at, "REAL_QID");
    at = digits_put(at, (uint64_t)record->revive_queue_id);
    *at++ = VALUE_END;
    text.size = (uint32_t)(at - lane->texts);
    return text;
}

static void fill(struct rec_fields *fields, const struct lane *lane, const struct dsp_slot *slot,
                 int64_t now_ms)
{
    const struct log_tail *tail = lane->tail;
    memset(fields, 0, sizeof *fields);
    fields->topic = (const uint8_t *)TIMER_TOPIC;
    fields->topic_size = sizeof TIMER_TOPIC - 1;
    fields->born_host = fields->store_host = lane->store_host.at;
    fields->born_host_size = fields->store_host_size = lane->store_host.size;
    fields->log_offset = tail->end;
    fields->queue_offset = slot->next_offset;
    fields->born_timestamp_ms = now_ms;
    fields->store_timestamp_ms =
        now_ms > tail->last_store_timestamp_ms ? now_ms : tail->last_store_timestamp_ms;
    fields->magic = REC_MAGIC_V1;
}

/* Write a record at the end of the log. */
static enum lane_outcome append(struct lane *lane, const struct lane_acks *acks,
                                const struct revive_record *record, int64_t now_ms)
{
    struct log_tail *tail = lane->tail;
    struct trf_text properties;
    struct rec_fields fields;
    struct dsp_slot *slot;
    enum rec_reason reason;
    size_t size;
    int32_t found = dsp_find(lane->queues, (const uint8_t *)TIMER_TOPIC,
                             sizeof TIMER_TOPIC - 1, 0);
    if (found < 0 || !lane->queues->slots[found].plain || !lane->kept.timers ||
        tail->refusals != 0 || tail->memory == NULL || record->due_ms <= now_ms ||
        record->due_ms - now_ms > lane->kept.max_delay_ms) {
        return LANE_ELSEWHERE;
    }
    slot = &lane->queues->slots[found];
    properties = put_properties(lane, acks, record);
    fill(&fields, lane, slot, now_ms);
    fields.body = record->body;
    fields.body_size = record->body_size;
    fields.properties = properties.at;
    fields.properties_size = properties.size;
    if (rec_encode(tail->memory, (size_t)(tail->end - tail->base), tail->size, &fields, &size,
                   &reason) != REC_OK) {
        return LANE_ELSEWHERE;
    }
    tail->end += (int64_t)size;
    tail->last_store_timestamp_ms = fields.store_timestamp_ms;
    slot->next_offset++;
    lane->rows[LANE_TIMER_ROW].put_count++;
    lane->rows[LANE_TIMER_ROW].put_size += (int64_t)size;
    lane->counts.put_count++;
    lane->counts.put_size += (int64_t)size;
    return LANE_DONE;
}

enum lane_outcome lane_write_ack(struct lane *lane, struct lane_acks *acks, int32_t number,
                                 int64_t now_ms)
{
    struct lane_joined *joined = &acks->joined[number];
    int is_batch = joined->count > 1;
    struct revive_record record = {joined->group,
                                   joined->topic,
                                   joined->broker_name,
                                   joined->queue_id,
                                   joined->revive_queue_id,
                                   is_batch ? -1 : joined->offsets[0],
                                   joined->pop_time_ms,
                                   joined->pop_time_ms + joined->invisible_ms,
                                   "ack",
                                   is_batch ? "bAck" : "ack",
                                   NULL,
                                   0};
    uint8_t body[BODY_MAX];
    if (joined->topic.size > NAMES_MAX || joined->group.size > NAMES_MAX) {
        return LANE_ELSEWHERE;
    }
    record.body = body;
    record.body_size = put_body(body, joined);
    if (append(lane, acks, &record, now_ms) != LANE_DONE) {
        return LANE_ELSEWHERE;
    }
    lane->counts.ack_count += joined->requests;
    joined->is_written = 1;
    return LANE_DONE;
}

enum lane_outcome lane_write_point(struct lane *lane, const struct lane_acks *acks,
                                   const struct lane_point *point, int64_t now_ms)
{
    struct revive_record record = {point->group,
                                   point->topic,
                                   point->broker_name,
                                   point->queue_id,
                                   point->revive_queue_id,
                                   point->start,
                                   point->pop_time_ms,
                                   point->pop_time_ms + point->invisible_ms - LANE_POINT_LEAD_MS,
                                   "ck",
                                   "ck",
                                   NULL,
                                   0};
    uint8_t body[BODY_MAX];
    if (!is_plain_name(point->topic) || !is_plain_name(point->group) ||
        !is_plain_name(point->broker_name) || point->revive_queue_id >= acks->revive_queues ||
        point->count <= 0 || point->count > LANE_OFFSETS_MAX) {
        return LANE_ELSEWHERE;
    }
    record.body = body;
    record.body_size = put_point_body(body, point);
    return append(lane, acks, &record, now_ms);
}
