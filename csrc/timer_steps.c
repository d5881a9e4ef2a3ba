#include "timer_steps.h"

#include <string.h>

#include "digits.h"
#include "queue_unit.h"
#include "record.h"
#include "traffic_properties.h"
#include "wire_constants.h" /* generated */

#define IS_TOPIC(at, size, literal) \
    ((size) == sizeof(literal) - 1 && memcmp((at), literal, sizeof(literal) - 1) == 0)
#define ENQUEUED "TIMER_ENQUEUE_MS\001"
#define DEQUEUED "TIMER_DEQUEUE_MS\001"

enum { VALUE_END = 2, QUEUE_DIGITS = 9, ODD_BITS = 0x40 | 0x80, SYS_COMMIT = 0x8 };

/* A waiting message: its record, its properties' values, and its due time in ms. */
struct waiting {
    struct rec_row row;
    struct tmr_facts facts;
    int64_t due_ms;
};

/* Read the record of a waiting message. TMR_RARE: no record of a waiting message lies there. */
static enum tmr_stop read_waiting(struct tmr_file log, int64_t log_offset, int64_t precision_ms,
                                  struct waiting *found)
{
    enum rec_reason reason;
    if (log_offset < log.base || log_offset - log.base >= (int64_t)log.end) {
        return TMR_AWAY;
    }
    if (rec_parse(log.memory, (size_t)(log_offset - log.base), log.end, REC_CHECK_BODY, &found->row,
                  &reason) != REC_OK ||
        found->row.physical_offset != log_offset ||
        !IS_TOPIC(log.memory + found->row.topic_at, (size_t)found->row.topic_size, TIMER_TOPIC)) {
        return TMR_RARE;
    }
    tmr_read_facts(log.memory + found->row.properties_at, (size_t)found->row.properties_size,
                   &found->facts);
    if (found->facts.out_ms < 0 || found->facts.out_ms >= TMR_FAR_MS ||
        found->facts.topic_size == 0 || found->row.store_timestamp_ms < 0 ||
        found->row.store_timestamp_ms >= TMR_FAR_MS || found->facts.delay_ms >= TMR_FAR_MS) {
        return TMR_RARE;
    }
    found->due_ms = tmr_due_ms(&found->facts, found->row.store_timestamp_ms, precision_ms);
    return TMR_ALL;
}

/* Count one more of a topic; 0 if there is no room for another run, or its name is too long. */
static int count_on(struct tmr_runs *runs, const uint8_t *topic, size_t topic_size, int64_t size)
{
    struct tmr_run *run = runs->count > 0 ? &runs->runs[runs->count - 1] : NULL;
    if (run == NULL || run->topic_size != topic_size ||
        memcmp(run->topic, topic, topic_size) != 0) {
        if (runs->count == TMR_RUNS || topic_size > TMR_TOPIC_MAX) {
            return 0;
        }
        run = &runs->runs[runs->count++];
        memcpy(run->topic, topic, topic_size);
        run->topic_size = topic_size;
        run->count = run->size = 0;
    }
    run->count++;
    run->size += size;
    return 1;
}

/* Put one message into the wheel. */
static enum tmr_stop take_in(struct tmr_intake *intake, struct cq_unit queued, struct tmr_file log,
                             size_t done)
{
    const struct tmr_wheel *wheel = intake->wheel;
    struct waiting waiting;
    struct tmr_unit unit;
    struct tmr_entry entry;
    int64_t tick, slot_ms, position = intake->position + (int64_t)done * TMR_UNIT;
    enum tmr_stop stop = read_waiting(log, queued.log_offset, wheel->precision_ms, &waiting);
    if (stop != TMR_ALL) {
        return stop;
    }
    tick = waiting.facts.out_ms / wheel->precision_ms;
    tick = tick > intake->cursor ? tick : intake->cursor;
    slot_ms = tick * wheel->precision_ms;
    if (waiting.row.size != queued.size || waiting.facts.is_delete || tick <= 0 ||
        waiting.facts.out_ms - intake->write_ms >= intake->window_ms ||
        tick - intake->ring_from >= wheel->slots || slot_ms - intake->write_ms > INT32_MAX ||
        slot_ms - intake->write_ms < -INT32_MAX ||
        (tick < intake->scanned && intake->heap_count == intake->heap_room) ||
        !count_on(&intake->runs, waiting.facts.topic, waiting.facts.topic_size, 0)) {
        return TMR_RARE;
    }
    unit.write_ms = intake->write_ms;
    unit.log_offset = queued.log_offset;
    unit.magic = TMR_DEFAULT;
    unit.delay_ms = (int32_t)(slot_ms - intake->write_ms);
    unit.size = queued.size;
    unit.topic_hash = waiting.facts.topic_hash;
    tmr_add(wheel, intake->units + done * TMR_UNIT, position, &unit);
    if (tick < intake->scanned) {
        memset(&entry, 0, sizeof entry);
        entry.due_ms = waiting.due_ms;
        entry.position = position;
        entry.log_offset = queued.log_offset;
        entry.write_ms = intake->write_ms;
        entry.tick = tick;
        entry.magic = TMR_DEFAULT;
        tmr_heap_push(intake->heap, intake->heap_count++, entry);
        intake->near_ticks[intake->near_count++] = tick;
    }
    return TMR_ALL;
}

size_t tmr_take_in(struct tmr_intake *intake, const uint8_t *queue, size_t count,
                   struct tmr_file log, enum tmr_stop *stop)
{
    size_t done = 0;
    *stop = TMR_ALL;
    for (; done < count; done++) {
        struct cq_unit unit = cq_get(queue + done * CQ_UNIT);
        *stop = cq_is_valid(unit) && !cq_is_blank(unit) ? take_in(intake, unit, log, done)
                                                        : TMR_RARE;
        if (*stop != TMR_ALL) {
            break;
        }
    }
    return done;
}

size_t tmr_order(const struct tmr_walk *walk, size_t done, size_t count,
                 const struct tmr_wheel *wheel, struct tmr_file log, struct tmr_entry *heap,
                 size_t *heap_count, enum tmr_stop *stop)
{
    size_t begin = done;
    *stop = TMR_ALL;
    for (; done - begin < count; done++) {
        struct tmr_entry entry = walk->ring[(walk->count - 1 - done) % walk->room];
        struct waiting waiting;
        entry.tick = walk->tick;
        entry.due_ms = walk->tick * wheel->precision_ms;
        if (!(entry.magic & TMR_ROLL)) {
            *stop = read_waiting(log, entry.log_offset, wheel->precision_ms, &waiting);
            if (*stop != TMR_ALL) {
                break;
            }
            entry.due_ms = waiting.due_ms;
        }
        tmr_heap_push(heap, (*heap_count)++, entry);
    }
    return done - begin;
}

static int is_rare_tick(const struct tmr_outlet *outlet, int64_t tick)
{
    for (size_t i = 0; i < outlet->rare_count; i++) {
        if (outlet->rare_ticks[i] == tick) {
            return 1;
        }
    }
    return 0;
}

/* Write the properties for consumers: the stored ones, and the time at which the wheel received the
 * message. */
static size_t put_text(uint8_t *at, const uint8_t *came, size_t size, int64_t write_ms,
                       int64_t now_ms)
{
    uint8_t *begin = at;
    if (size + sizeof ENQUEUED + sizeof DEQUEUED + 2 * DIGITS_ROOM > REC_MAX_PROPERTIES) {
        return 0;
    }
    memcpy(at, came, size);
    at += size;
    memcpy(at, ENQUEUED, sizeof ENQUEUED - 1);
    at = digits_put(at + sizeof ENQUEUED - 1, (uint64_t)write_ms);
    *at++ = VALUE_END;
    memcpy(at, DEQUEUED, sizeof DEQUEUED - 1);
    at = digits_put(at + sizeof DEQUEUED - 1, (uint64_t)now_ms);
    *at++ = VALUE_END;
    return (size_t)(at - begin);
}

/* The target queue of a message; NULL if Python writes its units, or if the broker has not checked
 * since the last change of topics that the topic has this queue. */
static struct dsp_slot *target(struct dsp_table *queues, const struct trf_properties *properties,
                               int32_t *queue_id)
{
    struct trf_text topic = properties->real_topic, queue = properties->real_queue;
    int64_t number;
    int32_t slot;
    if (topic.size > TMR_TOPIC_MAX || IS_TOPIC(topic.at, topic.size, TIMER_TOPIC) ||
        IS_TOPIC(topic.at, topic.size, HALF_TOPIC) ||
        IS_TOPIC(topic.at, topic.size, SCHEDULE_TOPIC) || /* its store times need not ascend */
        !digits_read(queue.at, queue.size, QUEUE_DIGITS, &number)) {
        return NULL;
    }
    *queue_id = (int32_t)number;
    slot = dsp_find(queues, topic.at, topic.size, *queue_id);
    return slot >= 0 && queues->slots[slot].plain && queues->slots[slot].opened == queues->opened
               ? &queues->slots[slot]
               : NULL;
}

static void fill(struct rec_fields *fields, struct tmr_file log, const struct rec_row *row)
{
    memset(fields, 0, sizeof *fields);
    fields->body = log.memory + row->body_at;
    fields->body_size = (size_t)row->body_size;
    fields->born_host = log.memory + row->born_host_at;
    fields->born_host_size = (size_t)row->born_host_size;
    fields->store_host = log.memory + row->store_host_at;
    fields->store_host_size = (size_t)row->store_host_size;
    fields->born_timestamp_ms = row->born_timestamp_ms;
    fields->prepared_transaction_offset = row->prepared_transaction_offset;
    fields->magic = REC_MAGIC_V1;
    fields->flag = (int32_t)row->flag;
    fields->sys_flag = (int32_t)row->sys_flag;
    fields->reconsume_times = (int32_t)row->reconsume_times;
}

/* Write one message at the tail. */
static enum tmr_stop deliver(struct tmr_outlet *outlet, const struct tmr_entry *due,
                             int64_t precision_ms, struct tmr_file log, int64_t now_ms)
{
    struct log_tail *tail = outlet->tail;
    struct trf_properties properties;
    struct rec_fields fields;
    struct waiting waiting;
    struct dsp_slot *slot;
    struct trf_text text;
    enum rec_reason reason;
    size_t size;
    enum tmr_stop stop = read_waiting(log, due->log_offset, precision_ms, &waiting);
    const struct rec_row *row = &waiting.row;
    const uint32_t needed = TRF_REAL_TOPIC | TRF_REAL_QID;
    if (stop != TMR_ALL) {
        return stop;
    }
    text.at = log.memory + row->properties_at;
    text.size = (uint32_t)row->properties_size;
    trf_scan_properties(text, &properties);
    if (!properties.canonical || properties.unended || properties.names & TRF_RARE ||
        (properties.names & needed) != needed || row->sys_flag & ODD_BITS ||
        (row->sys_flag & REC_SYS_TRANSACTION) % SYS_COMMIT || due->write_ms < 0 ||
        (row->sys_flag & REC_SYS_TRANSACTION) > SYS_COMMIT ||
        (size_t)row->body_size > outlet->max_body) {
        return TMR_RARE;
    }
    fill(&fields, log, row);
    slot = target(outlet->queues, &properties, &fields.queue_id);
    size = put_text(outlet->texts, text.at, text.size, due->write_ms, now_ms);
    if (slot == NULL || size == 0) {
        return TMR_RARE;
    }
    fields.topic = properties.real_topic.at;
    fields.topic_size = properties.real_topic.size;
    fields.properties = outlet->texts;
    fields.properties_size = size;
    fields.log_offset = tail->end;
    fields.queue_offset = slot->next_offset;
    fields.store_timestamp_ms =
        now_ms > tail->last_store_timestamp_ms ? now_ms : tail->last_store_timestamp_ms;
    if (rec_measure(&fields, &size, &reason) != REC_OK ||
        !count_on(&outlet->runs, fields.topic, fields.topic_size, (int64_t)size)) {
        return TMR_RARE;
    }
    if (rec_encode(tail->memory, (size_t)(tail->end - tail->base), tail->size, &fields, &size,
                   &reason) != REC_OK) {
        outlet->runs.runs[outlet->runs.count - 1].count--;
        outlet->runs.runs[outlet->runs.count - 1].size -= (int64_t)size;
        return TMR_RARE;
    }
    tail->end += (int64_t)size;
    tail->last_store_timestamp_ms = fields.store_timestamp_ms;
    slot->next_offset++;
    return TMR_ALL;
}

size_t tmr_deliver(struct tmr_outlet *outlet, struct tmr_entry *heap, size_t *heap_count,
                   size_t count, int64_t precision_ms, struct tmr_file log, int64_t now_ms,
                   int64_t until_ms, enum tmr_stop *stop)
{
    size_t done = 0;
    *stop = TMR_ALL;
    while (done < count && *heap_count > 0 && heap[0].due_ms <= until_ms) {
        struct tmr_entry due = heap[0];
        if (outlet->tail->refusals != 0 || outlet->tail->memory == NULL ||
            due.magic != TMR_DEFAULT || is_rare_tick(outlet, due.tick)) {
            *stop = TMR_RARE;
            break;
        }
        *stop = deliver(outlet, &due, precision_ms, log, now_ms);
        if (*stop != TMR_ALL) {
            break;
        }
        tmr_heap_pop(heap, *heap_count);
        (*heap_count)--;
        outlet->ticks[done++] = due.tick;
    }
    return done;
}
