#include "timer.h"

#include "bytes.h"
#include "hash_index.h"

enum {
    SLOT_TICK_AT = 0,
    SLOT_FIRST_AT = 8,
    SLOT_LAST_AT = 16,
    SLOT_NUM_AT = 24,
    SLOT_MAGIC_AT = 28,
    MAGIC_BITS = 0xF,
    NAME_END = 1,
    VALUE_END = 2,
    DIGITS_MAX = 19
};

int tmr_get(const uint8_t *at, int64_t position, struct tmr_unit *unit)
{
    unit->prev = be_i64(at + TMR_PREV_AT);
    unit->magic = be_i32(at + TMR_MAGIC_AT);
    unit->write_ms = be_i64(at + TMR_WRITE_MS_AT);
    unit->delay_ms = be_i32(at + TMR_DELAY_AT);
    unit->log_offset = be_i64(at + TMR_LOG_OFFSET_AT);
    unit->size = be_i32(at + TMR_RECORD_SIZE_AT);
    unit->topic_hash = be_i32(at + TMR_HASH_AT);
    return be_i32(at + TMR_SIZE_AT) == TMR_UNIT && (unit->magic | MAGIC_BITS) == MAGIC_BITS &&
           unit->prev >= TMR_NONE && unit->prev < position && unit->write_ms >= 0 &&
           unit->write_ms < INT64_MAX / 2 && unit->log_offset >= 0 && unit->size > 0;
}

void tmr_put(uint8_t *at, const struct tmr_unit *unit)
{
    be_put_i32(at + TMR_SIZE_AT, TMR_UNIT);
    be_put_i64(at + TMR_PREV_AT, unit->prev);
    be_put_i32(at + TMR_MAGIC_AT, unit->magic);
    be_put_i64(at + TMR_WRITE_MS_AT, unit->write_ms);
    be_put_i32(at + TMR_DELAY_AT, unit->delay_ms);
    be_put_i64(at + TMR_LOG_OFFSET_AT, unit->log_offset);
    be_put_i32(at + TMR_RECORD_SIZE_AT, unit->size);
    be_put_i32(at + TMR_HASH_AT, unit->topic_hash);
    be_put_i64(at + TMR_RESERVED_AT, 0);
}

void tmr_put_filler(uint8_t *at, int32_t left)
{
    be_put_i32(at, left);
    be_put_i64(at + 4, 0);
    be_put_i32(at + 12, TMR_BLANK_MAGIC);
}

static uint8_t *slot_at(const struct tmr_wheel *wheel, int64_t tick)
{
    return wheel->memory + (tick % wheel->slots) * TMR_SLOT;
}

struct tmr_slot tmr_slot_get(const struct tmr_wheel *wheel, int64_t tick)
{
    struct tmr_slot slot = {TMR_NONE, TMR_NONE, 0, 0};
    const uint8_t *at;
    if (tick <= 0) { /* a slot of zeros was never used */
        return slot;
    }
    at = slot_at(wheel, tick);
    if (be_i64(at + SLOT_TICK_AT) == tick) {
        slot.first = be_i64(at + SLOT_FIRST_AT);
        slot.last = be_i64(at + SLOT_LAST_AT);
        slot.num = be_i32(at + SLOT_NUM_AT);
        slot.magic = be_i32(at + SLOT_MAGIC_AT);
    }
    return slot;
}

void tmr_slot_put(const struct tmr_wheel *wheel, int64_t tick, struct tmr_slot slot)
{
    uint8_t *at = slot_at(wheel, tick);
    be_put_i64(at + SLOT_TICK_AT, tick);
    be_put_i64(at + SLOT_FIRST_AT, slot.first);
    be_put_i64(at + SLOT_LAST_AT, slot.last);
    be_put_i32(at + SLOT_NUM_AT, slot.num);
    be_put_i32(at + SLOT_MAGIC_AT, slot.magic);
}

int64_t tmr_tick(const struct tmr_wheel *wheel, const struct tmr_unit *unit)
{
    return (unit->write_ms + unit->delay_ms) / wheel->precision_ms;
}

int64_t tmr_next_tick(const struct tmr_wheel *wheel, int64_t from, int64_t until)
{
    int64_t round_end, later = until;
    from = from < 1 ? 1 : from; /* the difference below must not overflow */
    if (from >= until) {
        return until;
    }
    round_end = until - from > wheel->slots ? from + wheel->slots : until;
    for (; from < round_end; from++) {
        const uint8_t *at = slot_at(wheel, from);
        int64_t tick = be_i64(at + SLOT_TICK_AT);
        if (be_i64(at + SLOT_LAST_AT) < 0 || tick < from) {
            continue;
        }
        if (tick == from) {
            return from;
        }
        later = tick < later ? tick : later; /* a tick of another round */
    }
    return later;
}

int64_t tmr_count(const struct tmr_wheel *wheel, int64_t from, int64_t until)
{
    int64_t sum = 0;
    for (; from < until; from++) {
        sum += tmr_slot_get(wheel, from).num;
    }
    return sum;
}

int64_t tmr_free_tick(const struct tmr_wheel *wheel, int64_t from, int64_t until, int64_t cursor,
                      int64_t high, int64_t floor)
{
    for (; from < until; from++) {
        const uint8_t *at = slot_at(wheel, from);
        int64_t tick = be_i64(at + SLOT_TICK_AT), last = be_i64(at + SLOT_LAST_AT);
        if (tick <= 0 || tick == from || last < 0 || tick < cursor ||
            (tick < high && last < floor)) {
            break;
        }
    }
    return from;
}

static int32_t weight(const struct tmr_unit *unit) { return unit->magic & TMR_DELETE ? -1 : 1; }

/* Numbers of a damaged wheel must not overflow. */
static int32_t plus(int32_t num, int32_t by) { return (int32_t)((uint32_t)num + (uint32_t)by); }

static void enter(const struct tmr_wheel *wheel, int64_t position, const struct tmr_unit *unit,
                  struct tmr_slot slot)
{
    if (slot.first < 0) {
        slot.first = position;
    }
    slot.last = position;
    slot.num = plus(slot.num, weight(unit));
    tmr_slot_put(wheel, tmr_tick(wheel, unit), slot);
}

void tmr_add(const struct tmr_wheel *wheel, uint8_t *buf, int64_t position, struct tmr_unit *unit)
{
    struct tmr_slot slot = tmr_slot_get(wheel, tmr_tick(wheel, unit));
    unit->prev = slot.last < position ? slot.last : TMR_NONE;
    tmr_put(buf, unit);
    enter(wheel, position, unit, slot);
}

size_t tmr_replay(const struct tmr_wheel *wheel, uint8_t *buf, size_t at, size_t end, int64_t base,
                  int64_t from_ms, int *changed, int *crowded)
{
    struct tmr_unit unit;
    *changed = *crowded = 0;
    for (; at < end && end - at >= TMR_UNIT; at += TMR_UNIT) {
        int64_t position = base + (int64_t)at, tick;
        if (!tmr_get(buf + at, position, &unit)) {
            break;
        }
        tick = tmr_tick(wheel, &unit);
        if (tick > 0 && unit.write_ms + unit.delay_ms >= from_ms) {
            struct tmr_slot slot = tmr_slot_get(wheel, tick);
            if (tmr_free_tick(wheel, tick, tick + 1, 0, 0, 0) != tick ||
                (from_ms > 0 && tick - from_ms / wheel->precision_ms >= wheel->slots)) {
                *crowded = 1;
            }
            if (unit.prev != slot.last) {
                unit.prev = slot.last;
                be_put_i64(buf + at + TMR_PREV_AT, unit.prev);
                *changed = 1;
            }
            enter(wheel, position, &unit, slot);
        }
    }
    return at;
}

size_t tmr_find_end(const uint8_t *buf, size_t at, size_t end, int64_t base)
{
    struct tmr_unit unit;
    while (at < end && end - at >= TMR_UNIT && tmr_get(buf + at, base + (int64_t)at, &unit)) {
        at += TMR_UNIT;
    }
    return at;
}

void tmr_undo(const struct tmr_wheel *wheel, const uint8_t *buf, size_t at, size_t end,
              int64_t base)
{
    struct tmr_unit unit;
    if (end > at) {
        end -= (end - at) % TMR_UNIT; /* a file ends with its filler */
    }
    while (end > at && end - at >= TMR_UNIT) {
        int64_t position, tick;
        struct tmr_slot slot;
        end -= TMR_UNIT;
        position = base + (int64_t)end;
        if (!tmr_get(buf + end, position, &unit) || (tick = tmr_tick(wheel, &unit)) <= 0) {
            continue;
        }
        slot = tmr_slot_get(wheel, tick);
        if (slot.last != position) {
            continue; /* the slot belongs to another round now */
        }
        slot.last = unit.prev;
        slot.num = plus(slot.num, -weight(&unit));
        if (unit.prev < 0) {
            slot.first = TMR_NONE;
            slot.num = 0;
        }
        tmr_slot_put(wheel, tick, slot);
    }
}

static void keep(struct tmr_walk *walk, const struct tmr_unit *unit)
{
    struct tmr_entry *entry;
    if ((unit->magic & (TMR_DELETE | TMR_ROLL)) == TMR_DELETE) {
        if (walk->recall_count < walk->recall_room) {
            walk->recalls[walk->recall_count] = walk->position;
        }
        walk->recall_count++;
        return;
    }
    entry = &walk->ring[walk->count++ % walk->room];
    entry->due_ms = 0;
    entry->position = walk->position;
    entry->log_offset = unit->log_offset;
    entry->write_ms = unit->write_ms;
    entry->tick = walk->tick;
    entry->size = unit->size;
    entry->magic = unit->magic;
}

int tmr_follow(const struct tmr_wheel *wheel, const uint8_t *buf, size_t size, int64_t base,
               int64_t floor, struct tmr_walk *walk)
{
    while (walk->position >= base && walk->position >= floor) {
        uint64_t at = (uint64_t)walk->position - (uint64_t)base; /* may exceed 63 bits */
        struct tmr_unit unit;
        if (size < TMR_UNIT || at > size - TMR_UNIT || !tmr_get(buf + at, walk->position, &unit) ||
            tmr_tick(wheel, &unit) != walk->tick) {
            return 0;
        }
        keep(walk, &unit);
        walk->position = unit.prev;
    }
    if (walk->position < floor) {
        walk->position = TMR_NONE;
    }
    return 1;
}

static int is_before(const struct tmr_entry *left, const struct tmr_entry *right)
{
    return left->due_ms != right->due_ms ? left->due_ms < right->due_ms
                                         : left->position < right->position;
}

void tmr_heap_push(struct tmr_entry *heap, size_t count, struct tmr_entry entry)
{
    while (count > 0) {
        size_t above = (count - 1) / 2;
        if (!is_before(&entry, &heap[above])) {
            break;
        }
        heap[count] = heap[above];
        count = above;
    }
    heap[count] = entry;
}

size_t tmr_heap_keep(struct tmr_entry *heap, size_t count, const int64_t *keep, size_t keep_count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct tmr_entry entry = heap[i];
        size_t low = 0, high = keep_count;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (keep[middle] < entry.tick) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if (low < keep_count && keep[low] == entry.tick) {
            tmr_heap_push(heap, kept++, entry);
        }
    }
    return kept;
}

struct tmr_entry tmr_heap_pop(struct tmr_entry *heap, size_t count)
{
    struct tmr_entry top = heap[0], last = heap[count - 1];
    size_t at = 0, below;
    count--;
    while ((below = 2 * at + 1) < count) {
        if (below + 1 < count && is_before(&heap[below + 1], &heap[below])) {
            below++;
        }
        if (!is_before(&heap[below], &last)) {
            break;
        }
        heap[at] = heap[below];
        at = below;
    }
    if (count > 0) {
        heap[at] = last;
    }
    return top;
}

/* Java's Long.parseLong of non-negative numbers, TMR_NONE for all other texts. */
static int64_t number(const uint8_t *at, size_t size)
{
    uint64_t value = 0;
    if (size > 0 && *at == '+') {
        at++;
        size--;
    }
    if (size == 0 || size > DIGITS_MAX) {
        return TMR_NONE;
    }
    for (size_t i = 0; i < size; i++) {
        if (at[i] < '0' || at[i] > '9') {
            return TMR_NONE;
        }
        value = value * 10 + (uint64_t)(at[i] - '0');
    }
    return value <= INT64_MAX ? (int64_t)value : TMR_NONE;
}

#define IS(literal) (name_size == sizeof(literal) - 1 && memcmp(name, literal, name_size) == 0)

void tmr_read_facts(const uint8_t *properties, size_t size, struct tmr_facts *facts)
{
    const uint8_t *at = properties, *end = properties + size;
    int64_t seconds = TMR_NONE, ms = TMR_NONE;
    facts->out_ms = facts->delay_ms = facts->deliver_ms = facts->rolled_ms = TMR_NONE;
    facts->topic_hash = facts->is_delete = facts->is_rolled = 0;
    facts->topic = NULL;
    facts->topic_size = 0;
    while (at < end) {
        const uint8_t *stop = memchr(at, VALUE_END, (size_t)(end - at)), *name = at, *value;
        size_t name_size, value_size;
        stop = stop == NULL ? end : stop;
        at = stop + 1;
        value = memchr(name, NAME_END, (size_t)(stop - name));
        if (value == NULL || value == name || ++value == stop) {
            continue;
        }
        name_size = (size_t)(value - 1 - name);
        value_size = (size_t)(stop - value);
        if (IS("TIMER_OUT_MS")) {
            facts->out_ms = number(value, value_size);
        } else if (IS("TIMER_DELAY_SEC")) {
            seconds = number(value, value_size);
        } else if (IS("TIMER_DELAY_MS")) {
            ms = number(value, value_size);
        } else if (IS("TIMER_DELIVER_MS")) {
            facts->deliver_ms = number(value, value_size);
        } else if (IS("TIMER_ENQUEUE_MS")) {
            facts->rolled_ms = number(value, value_size);
        } else if (IS("TIMER_ROLL_TIMES")) {
            facts->is_rolled = 1;
        } else if (IS("TIMER_DEL_UNIQKEY")) {
            facts->is_delete = 1;
        } else if (IS("REAL_TOPIC")) {
            facts->topic = value;
            facts->topic_size = value_size;
            facts->topic_hash = (int32_t)idx_java_hash(0, value, value_size);
        }
    }
    facts->delay_ms = seconds < 0 ? ms : seconds <= INT64_MAX / 1000 ? seconds * 1000 : INT64_MAX;
}

/* Whether a writer whose slots have this width writes this TIMER_OUT_MS for a time that is
 * `after_ms` later: TIMER_OUT_MS is a multiple of the width. */
static int is_in_slot(int64_t out_ms, int64_t after_ms, int64_t precision_ms)
{
    if (after_ms <= precision_ms) {
        return 1;
    }
    for (int64_t width_ms = after_ms; width_ms <= TMR_WIDEST_MS; width_ms++) {
        if (out_ms % width_ms == 0) {
            return 1;
        }
    }
    return 0;
}

int64_t tmr_due_ms(const struct tmr_facts *facts, int64_t stored_ms, int64_t precision_ms)
{
    int64_t begin_ms = facts->is_rolled ? facts->rolled_ms : stored_ms;
    int64_t exact_ms = facts->deliver_ms;
    if (facts->delay_ms >= 0) {
        exact_ms = begin_ms >= 0 && begin_ms <= INT64_MAX - facts->delay_ms
                       ? begin_ms + facts->delay_ms
                       : TMR_NONE;
    }
    return facts->out_ms >= 0 && exact_ms > facts->out_ms &&
                   is_in_slot(facts->out_ms, exact_ms - facts->out_ms, precision_ms)
               ? exact_ms
               : facts->out_ms + precision_ms;
}
