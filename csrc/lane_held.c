#include "lane_held.h"

void held_init(struct held_table *table)
{
    table->rows = NULL;
    table->heap = NULL;
    table->slots = NULL;
    table->room = table->used = table->slot_room = 0;
    table->free = -1;
    table->count = table->size = 0;
    table->sequence = table->finish_until = 0;
    table->first_leaving = table->last_leaving = table->finish_at = -1;
}

void held_set_slots(struct held_table *table, struct held_slot *slots, int32_t room)
{
    table->slots = slots;
    for (; table->slot_room < room; table->slot_room++) {
        struct held_slot *slot = &slots[table->slot_room];
        slot->first = slot->last = slot->at = -1;
        slot->until = slot->leave_until = 0;
        slot->walked_to = 0;
        slot->next_leaving = -1;
        slot->leaves = slot->removed = 0;
    }
}

/* Whether the time of a row ends before that of the other. */
static int is_before(const struct held_row *one, const struct held_row *other)
{
    return one->deadline_ms != other->deadline_ms ? one->deadline_ms < other->deadline_ms
                                                  : one->sequence < other->sequence;
}

static void set_heap(struct held_table *table, int32_t at, int32_t number)
{
    table->heap[at] = number;
    table->rows[number].heap_at = at;
}

/* Move a row, which belongs at or above `at`, to its place. */
static void sift_up(struct held_table *table, int32_t at, int32_t number)
{
    while (at > 0) {
        int32_t above = (at - 1) / 2;
        if (!is_before(&table->rows[number], &table->rows[table->heap[above]])) {
            break;
        }
        set_heap(table, at, table->heap[above]);
        at = above;
    }
    set_heap(table, at, number);
}

/* The same for a row that belongs at or below `at`, in a heap of `count` rows. */
static void sift_down(struct held_table *table, int32_t at, int32_t number, int32_t count)
{
    for (;;) {
        int32_t below = 2 * at + 1;
        if (below >= count) {
            break;
        }
        if (below + 1 < count && is_before(&table->rows[table->heap[below + 1]],
                                           &table->rows[table->heap[below]])) {
            below++;
        }
        if (!is_before(&table->rows[table->heap[below]], &table->rows[number])) {
            break;
        }
        set_heap(table, at, table->heap[below]);
        at = below;
    }
    set_heap(table, at, number);
}

int32_t held_add(struct held_table *table, struct dsp_table *queues, const struct held_row *row,
                 struct held_owner *owner)
{
    struct held_slot *slot = &table->slots[row->slot];
    int32_t number = table->free;
    struct held_row *own;
    if (number >= 0) {
        table->free = table->rows[number].next;
    } else {
        number = table->used++;
    }
    own = &table->rows[number];
    *own = *row;
    own->sequence = ++table->sequence;
    own->owner = owner;
    own->next = -1;
    own->before = slot->last;
    if (slot->last < 0) {
        slot->first = number;
    } else {
        table->rows[slot->last].next = number;
    }
    slot->last = number;
    own->owner_before = -1;
    own->owner_next = owner->first - 1;
    if (owner->first > 0) {
        table->rows[owner->first - 1].owner_before = number;
    }
    owner->first = number + 1;
    sift_up(table, (int32_t)table->count, number);
    table->count++;
    table->size += own->size;
    queues->slots[row->slot].watched = 1;
    return number;
}

static void leave_heap(struct held_table *table, int32_t at)
{
    int32_t count = (int32_t)table->count - 1, moved = table->heap[count];
    if (at == count) {
        return;
    }
    if (at > 0 && is_before(&table->rows[moved], &table->rows[table->heap[(at - 1) / 2]])) {
        sift_up(table, at, moved);
    } else {
        sift_down(table, at, moved, count);
    }
}

void held_remove(struct held_table *table, struct dsp_table *queues, int32_t number)
{
    struct held_row *row = &table->rows[number];
    struct held_slot *slot = &table->slots[row->slot];
    if (slot->at == number) {
        slot->at = row->next;
    }
    if (row->before < 0) {
        slot->first = row->next;
    } else {
        table->rows[row->before].next = row->next;
    }
    if (row->next < 0) {
        slot->last = row->before;
    } else {
        table->rows[row->next].before = row->before;
    }
    if (slot->first < 0) {
        queues->slots[row->slot].watched = 0;
    }
    if (row->owner_before < 0) {
        row->owner->first = row->owner_next + 1;
    } else {
        table->rows[row->owner_before].owner_next = row->owner_next;
    }
    if (row->owner_next >= 0) {
        table->rows[row->owner_next].owner_before = row->owner_before;
    }
    leave_heap(table, row->heap_at);
    table->count--;
    table->size -= row->size;
    row->sequence = 0;
    row->next = table->free;
    table->free = number;
}

/* The next row of a walk over a slot, -1: the walk is over, or `budget` is used up. */
static int32_t walk(struct held_table *table, struct held_slot *slot, int64_t max_offset,
                    int32_t *budget)
{
    while (slot->at >= 0 && *budget > 0) {
        int32_t number = slot->at;
        const struct held_row *row = &table->rows[number];
        if (row->sequence > slot->until) {
            slot->at = -1;
            break;
        }
        slot->at = row->next;
        --*budget;
        if (row->queue_offset < max_offset) {
            return number;
        }
    }
    return -1;
}

int32_t held_next(struct held_table *table, struct dsp_table *queues, int32_t *budget)
{
    while (*budget > 0 && dsp_has(queues, DSP_WOKEN)) {
        int32_t number = queues->lists[DSP_WOKEN].first, found;
        struct held_slot *slot;
        if (number >= table->slot_room || table->slots[number].first < 0) {
            dsp_take(queues, DSP_WOKEN);
            --*budget;
            continue;
        }
        slot = &table->slots[number];
        if (slot->at < 0) {
            slot->at = slot->first;
            slot->until = table->sequence;
            slot->walked_to = queues->slots[number].max_offset;
        }
        found = walk(table, slot, queues->slots[number].max_offset, budget);
        if (found < 0 || slot->at < 0 || *budget == 0) {
            dsp_take(queues, DSP_WOKEN);
            if (slot->at >= 0 || queues->slots[number].max_offset != slot->walked_to) {
                dsp_put(queues, DSP_WOKEN, number); /* after the others */
            }
        }
        if (found >= 0) {
            return found;
        }
    }
    return -1;
}

int32_t held_due(const struct held_table *table, int64_t now_ms)
{
    return table->count > 0 && table->rows[table->heap[0]].deadline_ms <= now_ms ? table->heap[0]
                                                                                 : -1;
}

void held_leave(struct held_table *table, int32_t slot)
{
    struct held_slot *own;
    if (held_first(table, slot) < 0) {
        return;
    }
    own = &table->slots[slot];
    own->leave_until = table->sequence;
    if (own->leaves) {
        return;
    }
    own->leaves = 1;
    own->next_leaving = -1;
    if (table->last_leaving < 0) {
        table->first_leaving = slot;
    } else {
        table->slots[table->last_leaving].next_leaving = slot;
    }
    table->last_leaving = slot;
}

int32_t held_leaving(struct held_table *table, int32_t *budget)
{
    while (*budget > 0 && table->first_leaving >= 0) {
        struct held_slot *slot = &table->slots[table->first_leaving];
        --*budget;
        if (slot->first >= 0 && table->rows[slot->first].sequence <= slot->leave_until) {
            return slot->first;
        }
        slot->leaves = 0;
        table->first_leaving = slot->next_leaving;
        if (table->first_leaving < 0) {
            table->last_leaving = -1;
        }
    }
    return -1;
}

void held_finish(struct held_table *table)
{
    table->finish_until = table->sequence;
    table->finish_at = 0;
}

int32_t held_unfinished(struct held_table *table, int32_t *budget)
{
    while (*budget > 0 && table->finish_at >= 0) {
        int32_t number = table->finish_at++;
        if (number >= table->used) {
            table->finish_at = -1;
            break;
        }
        --*budget;
        if (table->rows[number].sequence > 0
            && table->rows[number].sequence <= table->finish_until) {
            return number;
        }
    }
    return -1;
}

int held_has_leaving(const struct held_table *table)
{
    return table->first_leaving >= 0 || table->finish_at >= 0;
}

int32_t held_first(const struct held_table *table, int32_t slot)
{
    return slot >= 0 && slot < table->slot_room ? table->slots[slot].first : -1;
}
