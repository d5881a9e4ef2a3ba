#include "lane.h"

#include <string.h>

#include "json_text.h"

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

/* Fill in what dispatch asks about a record, except its keys. */
static void describe(const struct lane *lane, struct des_record *record,
                     const struct rec_fields *fields, const struct dsp_slot *slot, size_t size)
{
    record->log_offset = fields->log_offset;
    record->queue_offset = fields->queue_offset;
    record->store_timestamp_ms = fields->store_timestamp_ms;
    record->size = (int32_t)size;
    record->slot = (int32_t)(slot - lane->queues->slots);
}

/* Note the keys of a record at a place of the ring; 0 if the record has too many. */
static int describe_keys(const struct lane *lane, struct des_record *record,
                         const struct lane_topic *topic, const struct rec_properties *found)
{
    int enough = des_set_keys(record, topic->topic_hash, found->uniq_key, found->keys,
                              found->tags);
    if (lane->queues->index == NULL) {
        record->key_count = DES_NO_KEYS; /* an index may be set before the dispatch */
    }
    return enough;
}

static struct rec_text as_text(struct trf_text text)
{
    struct rec_text same = {text.at, text.size};
    return same;
}

/* Describe the record of a single message for dispatch, if there is room. */
static void describe_one(const struct lane *lane, const struct lane_topic *topic,
                         const struct trf_properties *properties, const struct rec_fields *fields,
                         const struct dsp_slot *slot, size_t size)
{
    struct des_ring *ring = lane->tail->descriptors;
    struct rec_properties found;
    if (ring == NULL || des_room(ring) == 0) {
        return;
    }
    found.uniq_key = as_text(properties->unique_key);
    found.keys = as_text(properties->keys);
    found.tags = as_text(properties->tags);
    if (describe_keys(lane, des_at(ring, 0), topic, &found)) {
        describe(lane, des_at(ring, 0), fields, slot, size);
        des_add(ring, 1);
    }
}

/* Read the properties of an element of a batch as rec_find_properties does; 0 if the element may
 * ask for something that batches do not support (a time, a transaction, light queues), or for too
 * much room. The handler reads the properties again and refuses it. */
static int read_element(const struct rec_fields *element, struct rec_properties *found)
{
    const uint32_t special = TRF_DELAY | TRF_TIMER | TRF_TRAN_MSG | TRF_LIGHT | TRF_RARE;
    const uint8_t *at = element->properties, *end = at + element->properties_size;
    memset(found, 0, sizeof *found);
    if (element->properties_size > LANE_SENT_MAX) {
        return 0;
    }
    while (at < end) {
        const uint8_t *middle = json_find_either(at, end, NAME_SEPARATOR, PROPERTY_SEPARATOR);
        const uint8_t *stop = middle;
        if (middle < end && *middle == NAME_SEPARATOR) {
            struct rec_text value;
            uint32_t name = trf_find_property(at, (size_t)(middle - at));
            stop = json_find_either(middle + 1, end, PROPERTY_SEPARATOR, PROPERTY_SEPARATOR);
            value.at = middle + 1;
            value.size = (size_t)(stop - value.at);
            if (name & special) {
                return 0;
            }
            if (value.size == 0) {
                name = 0; /* a pair without a value is not one */
            }
            if (name == TRF_UNIQ_KEY) {
                found->uniq_key = value;
            } else if (name == TRF_KEYS) {
                found->keys = value;
            } else if (name == TRF_TAGS) {
                found->tags = value;
            }
        }
        at = stop + 1;
    }
    return 1;
}

/* The records that a batch becomes. */
struct batch_plan {
    size_t count;
    size_t size;      /* of all records */
    uint32_t described; /* records whose keys are in the ring: the first ones */
};

/* Read and measure all elements of a batch, and change nothing but free places of the ring; 0 if
 * an element is not plain. */
static int plan_batch(const struct lane *lane, const struct lane_topic *topic,
                      struct trf_text batch, const struct rec_fields *common,
                      struct batch_plan *plan)
{
    const struct des_ring *ring = lane->tail->descriptors;
    struct rec_fields element = *common;
    struct rec_properties found;
    size_t at = 0, size;
    enum rec_reason reason;
    uint32_t room = ring == NULL ? 0 : des_room(ring);
    memset(plan, 0, sizeof *plan);
    for (; at < batch.size; plan->count++) {
        if (plan->count == REC_BATCH_COUNT_MAX ||
            !rec_next_element(batch.at, batch.size, &at, &element) ||
            !read_element(&element, &found) ||
            rec_measure(&element, &size, &reason) != REC_OK) {
            return 0;
        }
        if (plan->count == plan->described && plan->described < room) {
            struct des_record *record = des_at(ring, plan->described);
            plan->described += (uint32_t)describe_keys(lane, record, topic, &found);
        }
        plan->size += size;
    }
    return plan->count > 0;
}

/* Write the records of a batch; 0 if they do not fit or are refused. */
static size_t put_batch(struct lane *lane, const struct lane_topic *topic, struct trf_text body,
                        const struct rec_fields *common, const struct dsp_slot *slot,
                        size_t *count)
{
    const struct log_tail *tail = lane->tail;
    struct rec_fields fields = *common;
    struct batch_plan plan;
    size_t at = (size_t)(tail->end - tail->base), read = 0, size;
    enum rec_reason reason;
    if ((common->sys_flag & LANE_TRANSACTION_BITS) ||
        !plan_batch(lane, topic, body, common, &plan) || at > tail->size ||
        plan.size + REC_FILLER > tail->size - at) {
        return 0;
    }
    for (size_t number = 0; number < plan.count; number++) {
        rec_next_element(body.at, body.size, &read, &fields);
        rec_encode(tail->memory, at, tail->size, &fields, &size, &reason);
        lane->log_offsets[number] = fields.log_offset;
        if (number < plan.described) {
            describe(lane, des_at(tail->descriptors, (uint32_t)number), &fields, slot, size);
        }
        at += size;
        fields.log_offset += (int64_t)size;
        fields.queue_offset++;
    }
    if (plan.described > 0) {
        des_add(tail->descriptors, plan.described);
    }
    *count = plan.count;
    return plan.size;
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
        size = put_batch(lane, topic, body, &fields, slot, &sent->count);
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
    if (!send->batch && as.kind == LANE_PLAIN) {
        describe_one(lane, topic, &properties, &fields, slot, size);
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
