#include "lane.h"

#include <string.h>

#include "bytes.h"

#define NAME_SEPARATOR 0x01
#define PROPERTY_SEPARATOR 0x02

/* The kind of a message: LANE_PLAIN, or the queue of kept messages that it goes to. */
struct kept_as {
    enum lane_kind kind;
    int64_t slot_ms;
};

/* The number of a topic, -1 if it has none. Topics keep their numbers, and consecutive sends mostly
 * have the same topic: comparing it takes a fraction of the time of hashing it. */
static int32_t find_topic(struct lane *lane, struct trf_text topic)
{
    struct nam_text name = {topic.at, topic.size}, none = {NULL, 0};
    const struct nam_key *key = &lane->topics.keys[lane->recent];
    int32_t number;
    if (key->size == topic.size && memcmp(key->text, topic.at, topic.size) == 0) {
        return lane->recent;
    }
    number = nam_find(&lane->topics, name, none);
    if (number >= 0) {
        lane->recent = number;
    }
    return number;
}

/* The row of a send's topic, NULL if the handler has to look. */
static struct lane_topic *plain_topic(struct lane *lane, const struct trf_send *send,
                                      struct trf_text body)
{
    int32_t number = find_topic(lane, send->topic);
    struct lane_topic *row;
    if (number < 0) {
        return NULL;
    }
    row = &lane->rows[number];
    if (!row->plain || send->queue_id < 0 || send->queue_id >= row->queue_limit ||
        (send->sys_flag & LANE_INNER_BATCH_BITS) || body.size > lane->max_body) {
        return NULL;
    }
    return row;
}

/* The slot of the queue for a message, NULL if the queue has no slot yet (`is_new`) or if Python
 * writes its units. */
static struct dsp_slot *plain_slot(const struct lane *lane, struct trf_text topic,
                                   int32_t queue_id, int *is_new)
{
    int32_t number = dsp_find(lane->queues, topic.at, topic.size, queue_id);
    struct dsp_slot *slot;
    *is_new = number < 0;
    if (number < 0) {
        return NULL;
    }
    slot = &lane->queues->slots[number];
    return slot->plain ? slot : NULL;
}

/* The topics of kept messages. */
static struct trf_text kept_topic(enum lane_kind kind)
{
    static const struct trf_text timers = {(const uint8_t *)TIMER_TOPIC,
                                           sizeof TIMER_TOPIC - 1};
    static const struct trf_text halves = {(const uint8_t *)HALF_TOPIC,
                                           sizeof HALF_TOPIC - 1};
    return kind == LANE_TIMER ? timers : halves;
}

/* Write the stored properties: first the request's, then the broker's own. */
static int own_text(const struct lane *lane, struct trf_text came, int unended,
                    struct trf_text *stored)
{
    size_t size = came.size + (unended ? 1 : 0) + lane->own_properties.size;
    uint8_t *at = lane->texts;
    if (size > LANE_SENT_MAX) {
        return 0;
    }
    if (came.size > 0) {
        memcpy(at, came.at, came.size);
        at += came.size;
    }
    if (unended) {
        *at++ = PROPERTY_SEPARATOR;
    }
    memcpy(at, lane->own_properties.at, lane->own_properties.size);
    stored->at = lane->texts;
    stored->size = (uint32_t)size;
    return 1;
}

static void fill(struct rec_fields *fields, const struct lane *lane, const struct trf_send *send,
                 struct trf_text topic, struct trf_text born_host, int64_t queue_offset,
                 int64_t now_ms)
{
    const struct log_tail *tail = lane->tail;
    memset(fields, 0, sizeof *fields);
    fields->topic = topic.at;
    fields->topic_size = topic.size;
    fields->born_host = born_host.at;
    fields->born_host_size = born_host.size;
    fields->store_host = lane->store_host.at;
    fields->store_host_size = lane->store_host.size;
    fields->log_offset = tail->end;
    fields->queue_offset = queue_offset;
    fields->born_timestamp_ms = send->born_timestamp;
    fields->store_timestamp_ms =
        now_ms > tail->last_store_timestamp_ms ? now_ms : tail->last_store_timestamp_ms;
    fields->magic = REC_MAGIC_V1;
    fields->queue_id = send->queue_id;
    fields->flag = send->flag;
    fields->sys_flag = send->sys_flag;
    fields->reconsume_times = send->reconsume_times;
}

/* Write the record of a single message; 0 if it does not fit or is refused. */
static size_t put_one(struct lane *lane, const struct trf_properties *properties,
                      const struct trf_send *send, const struct kept_as *as,
                      struct rec_fields *fields)
{
    struct trf_text came = send->properties;
    const struct log_tail *tail = lane->tail;
    struct trf_text stored;
    enum rec_reason reason;
    size_t size;
    if (!own_text(lane, came, properties->unended && came.size > 0, &stored)) {
        return 0;
    }
    if (as->kind != LANE_PLAIN) {
        const uint8_t *end =
            lane_put_kept(lane->texts + stored.size, lane->texts + LANE_SENT_MAX, as->kind, send,
                          properties->unique_key, as->slot_ms);
        if (end == NULL) {
            return 0;
        }
        stored.size = (uint32_t)(end - lane->texts);
    }
    fields->properties = stored.at;
    fields->properties_size = stored.size;
    /* A client cannot set the bits of committed or half messages. */
    fields->sys_flag &= ~LANE_TRANSACTION_BITS;
    if (rec_encode(tail->memory, (size_t)(tail->end - tail->base), tail->size, fields, &size,
                   &reason) != REC_OK) {
        return 0;
    }
    lane->log_offsets[0] = tail->end;
    return size;
}

/* Whether a property that batches do not support (for a time, a transaction or light queues) may
 * have the name that ends before `end`, with at least `size` bytes. */
static int is_special_name(const uint8_t *end, size_t size)
{
#define ENDS(literal)                                                                             \
    (size >= sizeof(literal) - 1 && TRF_IS(end - (sizeof(literal) - 1), literal))
    switch (end[-1]) {
    case 'C': return ENDS("TIMER_DELAY_SEC");
    case 'G': return ENDS("TRAN_MSG");
    case 'H': return ENDS("INNER_MULTI_DISPATCH");
    case 'S': return ENDS("TIMER_DELAY_MS") || ENDS("TIMER_DELIVER_MS");
    case 'Y': return ENDS("DELAY") || ENDS("TIMER_DEL_UNIQKEY");
    default: return 0;
    }
#undef ENDS
}

/* Whether an element of a batch may ask for something that batches do not support, or for too much
 * room. The handler, which reads the element's properties, refuses it. */
static int may_be_special(const struct rec_fields *element)
{
    const uint8_t *begin = element->properties, *end = begin + element->properties_size;
    if (element->properties_size > LANE_SENT_MAX) {
        return 1;
    }
    /* A call of memchr for each name would be slow where separators are dense. */
    for (const uint8_t *at = begin; at < end; at++) {
        if (*at == NAME_SEPARATOR && at > begin && is_special_name(at, (size_t)(at - begin))) {
            return 1;
        }
    }
    return 0;
}

/* Whether all elements of a batch are plain. */
static int is_plain_batch(struct trf_text batch)
{
    struct rec_fields element;
    size_t at = 0;
    memset(&element, 0, sizeof element);
    while (at < batch.size) {
        if (!rec_next_element(batch.at, batch.size, &at, &element) || may_be_special(&element)) {
            return 0;
        }
    }
    return 1;
}

/* Write the records of a batch; 0 if they do not fit or are refused. */
static size_t put_batch(struct lane *lane, struct trf_text body, const struct rec_fields *fields,
                        size_t *count)
{
    const struct log_tail *tail = lane->tail;
    size_t at = (size_t)(tail->end - tail->base), start = at;
    enum rec_reason reason;
    if ((fields->sys_flag & LANE_TRANSACTION_BITS) || !is_plain_batch(body) ||
        rec_encode_batch(tail->memory, at, tail->size, body.at, body.size, fields, count,
                         &reason) != REC_OK) {
        return 0;
    }
    for (size_t number = 0; number < *count; number++) {
        lane->log_offsets[number] = tail->base + (int64_t)at;
        at += be_u32(tail->memory + at + REC_SIZE_AT);
    }
    return at - start;
}

/* The kind of a send: plain in nearly all cases. */
static struct kept_as kind_of(const struct lane *lane, const struct trf_send *send,
                              const struct trf_properties *known,
                              struct trf_properties *properties, int64_t now_ms)
{
    struct kept_as as = {LANE_PLAIN, 0};
    if (known != NULL) {
        *properties = *known;
    } else if (!trf_scan_properties(send->properties, properties)) {
        as.kind = properties->canonical
                      ? lane_kind_of(&lane->kept, send, properties, now_ms, &as.slot_ms)
                      : LANE_OTHER;
    }
    return as;
}

/* Count a stored send. */
static void count_send(struct lane *lane, struct lane_topic *topic, enum lane_kind kind,
                       size_t count, size_t size, int64_t now_ms)
{
    struct lane_topic *stored = topic;
    if (kind != LANE_PLAIN) {
        stored = &lane->rows[kind == LANE_TIMER ? LANE_TIMER_ROW : LANE_HALF_ROW];
        lane->counts.kept_count++;
        if (kind == LANE_HALF) {
            topic->halves.prepared++;
            lane_note_halves(lane, topic, now_ms);
        }
    }
    stored->put_count += (int64_t)count;
    stored->put_size += (int64_t)size;
    lane->counts.put_count += (int64_t)count;
    lane->counts.put_size += (int64_t)size;
    lane->counts.send_count++;
}

enum lane_outcome lane_send(struct lane *lane, const struct trf_send *send,
                            const struct trf_properties *known, struct trf_text body,
                            struct trf_text born_host, int64_t now_ms, struct lane_sent *sent)
{
    struct log_tail *tail = lane->tail;
    struct lane_topic *topic = plain_topic(lane, send, body);
    struct trf_properties properties;
    struct trf_text target = send->topic;
    struct rec_fields fields;
    struct dsp_slot *slot;
    struct kept_as as;
    size_t size;
    int is_new;

    if (topic == NULL || tail->refusals != 0 || tail->memory == NULL ||
        now_ms < lane->accept_from_ms) {
        return LANE_ELSEWHERE;
    }
    as = kind_of(lane, send, known, &properties, now_ms);
    /* A delay counts from the store time, unless the log is ahead of the clock. */
    if (as.kind == LANE_OTHER ||
        (as.kind == LANE_TIMER && now_ms < tail->last_store_timestamp_ms)) {
        return LANE_ELSEWHERE;
    }
    target = as.kind == LANE_PLAIN ? send->topic : kept_topic(as.kind);
    slot = plain_slot(lane, target, as.kind == LANE_PLAIN ? send->queue_id : 0, &is_new);
    if (slot == NULL && !(is_new && as.kind == LANE_PLAIN)) {
        return LANE_ELSEWHERE;
    }
    sent->unique_key = properties.unique_key;
    sent->waits = send->batch || properties.waits;
    if (!send->batch && properties.unique_key.at == NULL) {
        return LANE_ELSEWHERE; /* the handler makes one, even for a refusal */
    }
    if (lane->not_enough && sent->waits) {
        int illegal = send->batch && (send->sys_flag & LANE_TRANSACTION_BITS);
        return illegal ? LANE_ELSEWHERE : LANE_NOT_ENOUGH;
    }
    if (slot == NULL) {
        return LANE_NEW_QUEUE;
    }
    sent->queue_offset = slot->next_offset;
    fill(&fields, lane, send, target, born_host, slot->next_offset, now_ms);
    if (send->batch) {
        size = put_batch(lane, body, &fields, &sent->count);
    } else {
        fields.queue_id = as.kind == LANE_PLAIN ? send->queue_id : 0;
        fields.body = body.at;
        fields.body_size = body.size;
        sent->count = 1;
        size = put_one(lane, &properties, send, &as, &fields);
    }
    if (size == 0) {
        return LANE_ELSEWHERE;
    }
    tail->end += (int64_t)size;
    tail->last_store_timestamp_ms = fields.store_timestamp_ms;
    slot->next_offset += (int64_t)sent->count;
    sent->end = tail->end;
    sent->handle.at = NULL;
    sent->handle.size = 0;
    if (as.kind == LANE_TIMER) {
        sent->handle = lane_put_handle(&lane->kept, send->topic, sent->unique_key, as.slot_ms);
    }
    count_send(lane, topic, as.kind, sent->count, size, now_ms);
    return LANE_DONE;
}
