#include "dispatch.h"

#include "bytes.h"
#include "queue_unit.h"
#include "record.h"
#include "wire_constants.h" /* generated */

#define KEY_SEPARATOR ' '
#define AHEAD 16 /* records whose index slots are prefetched while earlier records are put */
#define HASH_STEP 0x9E3779B97F4A7C15ull /* 2^64 / golden ratio: spreads low entropy upwards */

void dsp_init(struct dsp_table *table)
{
    memset(table, 0, sizeof *table);
    for (int which = 0; which < DSP_LISTS; which++) {
        table->lists[which].first = table->lists[which].last = -1;
    }
    table->last_log_offset = -1;
    table->opened = 1;
}

uint32_t dsp_hash(const uint8_t *topic, size_t topic_size, int32_t queue_id)
{
    uint64_t hash = (uint64_t)(uint32_t)queue_id * HASH_STEP + topic_size, word;
    for (; topic_size >= 8; topic += 8, topic_size -= 8) {
        memcpy(&word, topic, sizeof word);
        hash = (hash ^ word) * HASH_STEP;
        hash ^= hash >> 32;
    }
    if (topic_size > 0) {
        word = 0;
        memcpy(&word, topic, topic_size);
        hash = (hash ^ word) * HASH_STEP;
        hash ^= hash >> 32;
    }
    hash *= HASH_STEP;
    return (uint32_t)(hash >> 32);
}

static int is_slot_of(const struct dsp_slot *slot, uint32_t hash, const uint8_t *topic,
                      size_t topic_size, int32_t queue_id)
{
    return slot->hash == hash && slot->queue_id == queue_id && slot->topic_size == topic_size &&
           memcmp(slot->topic, topic, topic_size) == 0;
}

/* Few topics recur in many records: comparing a topic with the slot found last for its queue id
 * takes a fraction of the time of hashing the topic. */
static int is_recent(const struct dsp_table *table, int32_t slot, const uint8_t *topic,
                     size_t topic_size, int32_t queue_id)
{
    const struct dsp_slot *at;
    if (slot < 0) {
        return 0;
    }
    at = &table->slots[slot];
    return at->topic != NULL && at->queue_id == queue_id &&
           at->topic_size == topic_size && memcmp(at->topic, topic, topic_size) == 0;
}

int32_t dsp_find(struct dsp_table *table, const uint8_t *topic, size_t topic_size,
                 int32_t queue_id)
{
    int32_t *recent = &table->recent[(uint32_t)queue_id % DSP_RECENT], slot = *recent - 1;
    uint32_t hash;
    size_t bucket;
    if (table->buckets == NULL) {
        return -1;
    }
    if (is_recent(table, slot, topic, topic_size, queue_id)) {
        return slot;
    }
    hash = dsp_hash(topic, topic_size, queue_id);
    bucket = hash & table->bucket_mask;
    while ((slot = table->buckets[bucket]) >= 0) {
        if (is_slot_of(&table->slots[slot], hash, topic, topic_size, queue_id)) {
            *recent = slot + 1;
            return slot;
        }
        bucket = (bucket + 1) & table->bucket_mask;
    }
    return -1;
}

void dsp_enter(struct dsp_table *table, int32_t slot)
{
    size_t bucket = table->slots[slot].hash & table->bucket_mask;
    while (table->buckets[bucket] >= 0) {
        bucket = (bucket + 1) & table->bucket_mask;
    }
    table->buckets[bucket] = slot;
}

void dsp_rehash(struct dsp_table *table, int32_t *buckets, size_t count, int32_t slot_count)
{
    table->buckets = buckets;
    table->bucket_mask = count - 1;
    memset(buckets, 0xFF, count * sizeof *buckets); /* -1 everywhere */
    for (int32_t slot = 0; slot < slot_count; slot++) {
        if (table->slots[slot].topic != NULL) {
            dsp_enter(table, slot);
        }
    }
}

/* Close the hole at `hole`: move back the later slots that a search would not find across it. */
static void close_hole(struct dsp_table *table, size_t hole)
{
    size_t mask = table->bucket_mask, bucket = hole;
    for (;;) {
        size_t home;
        int32_t slot;
        bucket = (bucket + 1) & mask;
        slot = table->buckets[bucket];
        if (slot < 0) {
            break;
        }
        home = table->slots[slot].hash & mask;
        if (((bucket - home) & mask) >= ((bucket - hole) & mask)) {
            table->buckets[hole] = slot;
            hole = bucket;
        }
    }
    table->buckets[hole] = -1;
}

void dsp_remove(struct dsp_table *table, int32_t slot)
{
    size_t bucket = table->slots[slot].hash & table->bucket_mask;
    while (table->buckets[bucket] != slot) {
        bucket = (bucket + 1) & table->bucket_mask;
    }
    close_hole(table, bucket);
    dsp_drop(table, DSP_ARRIVED, slot);
    dsp_drop(table, DSP_WOKEN, slot);
    memset(&table->slots[slot], 0, sizeof table->slots[slot]);
}

/* The record that is dispatched now, described by its appender or parsed. */
struct at_hand {
    const struct des_record *described; /* NULL: the record was parsed */
    size_t position;
    int64_t log_offset;
    int64_t size;
    int64_t queue_offset;
    int64_t store_timestamp_ms;
    /* Of a parsed record: */
    int64_t transaction; /* the bits of REC_SYS_TRANSACTION */
    int32_t queue_id;
    const uint8_t *topic;
    size_t topic_size;
    struct rec_properties properties;
    uint32_t topic_hash; /* Java hash of "topic#", the prefix of every key */
    uint32_t uniq_hash;  /* hash of the first key, if there is a UNIQ_KEY */
};

/* The level of a DELAY property, as Integer.parseInt reads it; -1 if it is not a number. More than
 * nine digits exceed every possible level. */
static int64_t parse_level(struct rec_text text)
{
    int64_t level = 0;
    size_t at = text.size > 0 && text.at[0] == '+';
    if (at == text.size) {
        return -1;
    }
    for (; at < text.size; at++) {
        if (text.at[at] < '0' || text.at[at] > '9') {
            return -1;
        }
        level = level > INT32_MAX ? level : level * 10 + (text.at[at] - '0');
    }
    return level;
}

/* Java hash of the tags, sign extended; for the delay topic the delivery time. */
static int64_t tags_code_of(const struct dsp_table *table, const struct at_hand *hand)
{
    const struct rec_text tags = hand->properties.tags;
    if (hand->described != NULL) {
        return hand->described->tags_code;
    }
    if (hand->properties.delay.at != NULL && table->delay_count > 0 &&
        hand->topic_size == sizeof SCHEDULE_TOPIC - 1 &&
        memcmp(hand->topic, SCHEDULE_TOPIC, sizeof SCHEDULE_TOPIC - 1) == 0) {
        int64_t level = parse_level(hand->properties.delay);
        if (level > 0) {
            size_t index = (uint64_t)level > table->delay_count ? table->delay_count - 1
                                                                : (size_t)level - 1;
            return (int64_t)((uint64_t)hand->store_timestamp_ms +
                             (uint64_t)table->delays_ms[index]);
        }
    }
    return tags.at == NULL ? 0 : (int32_t)idx_java_hash(0, tags.at, tags.size);
}

/* Write the record's unit unless the queue already has it. */
static enum dsp_status put_unit(struct dsp_table *table, int32_t number,
                                const struct at_hand *hand)
{
    struct dsp_slot *slot = &table->slots[number];
    int64_t queue_offset = hand->queue_offset;
    int64_t log_end = hand->log_offset + hand->size;
    struct cq_unit unit;
    int64_t index;

    if (!slot->plain) {
        return DSP_SPECIAL;
    }
    if (queue_offset < slot->max_offset || log_end <= slot->max_log_offset) {
        int is_anew = queue_offset == 0 && hand->log_offset >= slot->max_log_offset;
        return is_anew ? DSP_ANEW : DSP_DONE;
    }
    if (queue_offset > slot->max_offset) {
        return DSP_GAP;
    }
    index = queue_offset - slot->first_queue_offset;
    if (slot->units == NULL || index < 0 || index >= slot->limit / CQ_UNIT) {
        return DSP_NO_ROOM;
    }
    unit.log_offset = hand->log_offset;
    unit.size = (int32_t)hand->size;
    unit.tags_code = tags_code_of(table, hand);
    cq_put(slot->units + index * CQ_UNIT, unit);
    slot->max_offset = queue_offset + 1;
    slot->max_log_offset = log_end;
    qm_note(&slot->times, table->marks + (size_t)number * QM_MARKS, queue_offset,
            hand->store_timestamp_ms);
    if (slot->next_offset < slot->max_offset) {
        slot->next_offset = slot->max_offset;
    }
    dsp_note_arrival(table, number);
    return DSP_DONE;
}

/* The keys of a record, counted while they are put, because a full file can interrupt them. */
struct key_run {
    const struct idx_file *file;
    const struct at_hand *hand;
    uint32_t skip; /* keys that the index already has */
    uint32_t seen;
};

static int put_key(struct key_run *run, uint32_t java_hash)
{
    const struct at_hand *hand = run->hand;
    if (run->seen >= run->skip && !idx_put(run->file, idx_key_hash(java_hash), hand->log_offset,
                                           hand->store_timestamp_ms)) {
        return 0;
    }
    run->seen++;
    return 1;
}

static int put_text_key(struct key_run *run, struct rec_text text)
{
    return put_key(run, idx_java_hash(run->hand->topic_hash, text.at, text.size));
}

static int put_words(struct key_run *run, struct rec_text text)
{
    const uint8_t *at = text.at, *end = text.at + text.size;
    while (at < end) {
        const uint8_t *stop = memchr(at, KEY_SEPARATOR, (size_t)(end - at));
        struct rec_text word;
        stop = stop ? stop : end;
        word.at = at;
        word.size = (size_t)(stop - at);
        if (word.size > 0 && !put_text_key(run, word)) {
            return 0;
        }
        at = stop + 1;
    }
    return 1;
}

static int put_keys(struct key_run *run)
{
    const struct rec_properties *properties = &run->hand->properties;
    const struct des_record *described = run->hand->described;
    if (described != NULL) {
        for (uint32_t i = 0; i < described->key_count; i++) {
            if (!put_key(run, described->keys[i])) {
                return 0;
            }
        }
        return 1;
    }
    if (properties->uniq_key.at != NULL && !put_key(run, run->hand->uniq_hash)) {
        return 0;
    }
    if (properties->keys.at != NULL && !put_words(run, properties->keys)) {
        return 0;
    }
    if (properties->tags.at != NULL) {
        uint32_t hash = idx_java_hash(run->hand->topic_hash, (const uint8_t *)"T#", 2);
        return put_key(run, idx_java_hash(hash, properties->tags.at, properties->tags.size));
    }
    return 1;
}

static enum dsp_status put_index(struct dsp_table *table, const struct at_hand *hand)
{
    struct key_run run = {table->index, hand, 0, 0};
    int64_t end = idx_end_log_offset(table->index);
    int all_put;

    if (hand->transaction == REC_SYS_ROLLBACK || hand->log_offset < end) {
        return DSP_DONE;
    }
    if (hand->log_offset == end) {
        /* Interrupted, or dispatched again: RocketMQ may enter the record's keys twice; here they
         * are counted. The file counts its own keys, the table the keys in the former file. */
        run.skip = idx_tail_of(table->index, end);
        if (table->last_log_offset == end && run.skip < table->last_keys) {
            run.skip = table->last_keys;
        }
    }
    all_put = put_keys(&run);
    if (run.seen > 0) {
        table->last_log_offset = hand->log_offset;
        table->last_keys = run.seen;
    }
    return all_put ? DSP_DONE : DSP_NO_INDEX;
}

static int is_same_topic(const struct at_hand *one, const struct at_hand *other)
{
    return one->topic_size == other->topic_size &&
           memcmp(one->topic, other->topic, other->topic_size) == 0;
}

/* Take a parsed record in hand. */
static void hold_parsed(struct at_hand *hand, const uint8_t *log, const struct rec_row *row)
{
    hand->described = NULL;
    hand->size = row->size;
    hand->queue_offset = row->queue_offset;
    hand->store_timestamp_ms = row->store_timestamp_ms;
    hand->transaction = row->sys_flag & REC_SYS_TRANSACTION;
    hand->queue_id = (int32_t)row->queue_id;
    hand->topic = log + row->topic_at;
    hand->topic_size = (size_t)row->topic_size;
    rec_find_properties(log + row->properties_at, (size_t)row->properties_size, &hand->properties);
}

/* Take the record at hand->log_offset in hand, if its appender described it with all that is
 * needed now; 0 if the record has to be parsed. Appenders describe no record of a transaction. */
static int hold_described(struct dsp_table *table, struct at_hand *hand, size_t room)
{
    const struct des_record *found = des_take(&table->descriptors, hand->log_offset);
    if (found == NULL || (size_t)found->size > room ||
        (table->index != NULL && found->key_count == DES_NO_KEYS)) {
        return 0;
    }
    hand->described = found;
    hand->size = found->size;
    hand->queue_offset = found->queue_offset;
    hand->store_timestamp_ms = found->store_timestamp_ms;
    hand->transaction = 0;
    return 1;
}

/* Take the record at hand->position in hand. */
static enum dsp_status hold(struct dsp_table *table, enum dsp_work work, const uint8_t *log,
                            size_t end, struct at_hand *hand)
{
    struct rec_row row;
    enum rec_reason reason;
    enum rec_status parsed;
    if (work == DSP_QUEUES && hold_described(table, hand, end - hand->position)) {
        return DSP_DONE;
    }
    parsed = rec_parse(log, hand->position, end, REC_CHECK_NOTHING, &row, &reason);
    if (parsed == REC_OK) {
        hold_parsed(hand, log, &row);
    }
    return (enum dsp_status)parsed;
}

/* The first half of a described record's work: write its unit and expect its keys. */
static enum dsp_status dispatch_described(struct dsp_table *table, const struct at_hand *hand,
                                          int32_t *slot)
{
    const struct des_record *described = hand->described;
    enum dsp_status status = put_unit(table, described->slot, hand);
    *slot = described->slot;
    for (uint32_t i = 0; status == DSP_DONE && table->index != NULL && i < described->key_count;
         i++) {
        idx_expect(table->index, idx_key_hash(described->keys[i]));
    }
    return status;
}

/* The first half of a parsed record's work: write its unit and prepare its keys. `before` is the
 * record before it, NULL if that is not available. */
static enum dsp_status dispatch_parsed(struct dsp_table *table, enum dsp_work work,
                                       const struct at_hand *before, struct at_hand *hand,
                                       int32_t *slot)
{
    enum dsp_status status;
    if (work == DSP_QUEUES && hand->transaction != REC_SYS_PREPARED &&
        hand->transaction != REC_SYS_ROLLBACK) {
        *slot = dsp_find(table, hand->topic, hand->topic_size, hand->queue_id);
        status = *slot < 0 ? DSP_UNKNOWN : put_unit(table, *slot, hand);
        if (status != DSP_DONE) {
            return status;
        }
    }
    if (table->index != NULL) {
        const struct rec_text key = hand->properties.uniq_key;
        if (before != NULL && before->described == NULL && is_same_topic(before, hand)) {
            hand->topic_hash = before->topic_hash;
        } else {
            hand->topic_hash = idx_topic_hash(hand->topic, hand->topic_size);
        }
        if (key.at != NULL) {
            hand->uniq_hash = idx_java_hash(hand->topic_hash, key.at, key.size);
            idx_expect(table->index, idx_key_hash(hand->uniq_hash));
        }
    }
    return DSP_DONE;
}

/* The second half of the work, for waiting records in their order. Returns 0 if the index file was
 * full: then the stop is at the record that lacks keys, and the next call repeats later records. */
static int settle(struct dsp_table *table, const struct at_hand *hands, size_t count,
                  struct dsp_stop *stop)
{
    for (size_t i = 0; i < count; i++) {
        if (table->index != NULL && put_index(table, &hands[i]) != DSP_DONE) {
            stop->status = DSP_NO_INDEX;
            stop->slot = -1;
            stop->position = hands[i].position;
            stop->size = hands[i].size;
            stop->queue_offset = hands[i].queue_offset;
            return 0;
        }
        stop->store_timestamp_ms = hands[i].store_timestamp_ms;
        stop->count++;
    }
    return 1;
}

void dsp_range(struct dsp_table *table, enum dsp_work work, const uint8_t *log, int64_t log_base,
               size_t position, size_t end, struct dsp_stop *stop)
{
    struct at_hand hands[AHEAD];
    size_t waiting = 0;

    memset(stop, 0, sizeof *stop);
    stop->queue_offset = stop->slot = -1;
    for (; position < end; position += (size_t)hands[waiting++].size) {
        struct at_hand *hand;
        if (waiting == AHEAD) {
            if (!settle(table, hands, waiting, stop)) {
                return;
            }
            waiting = 0;
        }
        hand = &hands[waiting];
        hand->position = position;
        hand->log_offset = log_base + (int64_t)position;
        stop->status = hold(table, work, log, end, hand);
        if (stop->status != DSP_DONE) {
            break;
        }
        stop->status =
            hand->described != NULL
                ? dispatch_described(table, hand, &stop->slot)
                : dispatch_parsed(table, work, waiting > 0 ? hand - 1 : NULL, hand, &stop->slot);
        if (stop->status != DSP_DONE) {
            stop->size = hand->size;
            stop->queue_offset = hand->queue_offset;
            break;
        }
        stop->slot = -1;
    }
    stop->position = position;
    settle(table, hands, waiting, stop);
}

static enum dsp_status count_record(struct dsp_table *table, const uint8_t *log, int64_t log_base,
                                    const struct rec_row *row, int32_t *number)
{
    int64_t transaction = row->sys_flag & REC_SYS_TRANSACTION;
    struct dsp_slot *slot;
    if (transaction == REC_SYS_PREPARED || transaction == REC_SYS_ROLLBACK) {
        return DSP_DONE;
    }
    *number = dsp_find(table, log + row->topic_at, (size_t)row->topic_size,
                       (int32_t)row->queue_id);
    if (*number < 0) {
        return DSP_UNKNOWN;
    }
    slot = &table->slots[*number];
    if (!slot->plain) {
        return DSP_SPECIAL;
    }
    if (log_base + row->position + row->size > slot->max_log_offset &&
        (slot->next_offset <= row->queue_offset || row->queue_offset == 0)) {
        slot->next_offset = row->queue_offset + 1;
    }
    return DSP_DONE;
}

void dsp_count_on(struct dsp_table *table, const uint8_t *log, int64_t log_base, size_t position,
                  size_t end, struct dsp_stop *stop)
{
    memset(stop, 0, sizeof *stop);
    stop->queue_offset = stop->slot = -1;
    while (position < end && stop->status == DSP_DONE) {
        struct rec_row row;
        enum rec_reason reason;
        enum rec_status parsed = rec_parse(log, position, end, REC_CHECK_NOTHING, &row, &reason);
        if (parsed != REC_OK) {
            stop->status = (enum dsp_status)parsed;
            break;
        }
        stop->status = count_record(table, log, log_base, &row, &stop->slot);
        if (stop->status != DSP_DONE) {
            stop->size = row.size;
            stop->queue_offset = row.queue_offset;
            break;
        }
        stop->slot = -1;
        stop->store_timestamp_ms = row.store_timestamp_ms;
        stop->count++;
        position += (size_t)row.size;
    }
    stop->position = position;
}

_Static_assert((int)DSP_BLANK == (int)REC_BLANK && (int)DSP_BAD == (int)REC_BAD &&
                   (int)DSP_SHORT == (int)REC_SHORT,
               "a parse that fails is the stop");
