/* Fuzz target: the table of held pulls against a plain list of them.
 *
 * The input is a list of operations: hold, release, grow a queue, walk, expire, have rows leave or
 * be answered. After each of them the table has the rows of the list, in the order of holding for
 * each queue; a walk shows each row whose queue grew, once for each growth, the deadlines come in
 * their order, and only rows that were held at the call leave or are answered. */
#include "fuzz.h"

#include "lane_held.h"

enum { SLOTS = 4, OWNERS = 3, ROWS = 64 };

struct entry {
    int32_t number; /* in the table, -1: released */
    int32_t slot, owner;
    int64_t queue_offset, deadline_ms;
    uint64_t sequence;
    int due; /* its queue grew beyond its offset, and no walk has shown it since */
    int leaves, ends; /* it was held when the rows of its queue, or all, were to leave, or end */
};

struct world {
    struct held_table table;
    struct dsp_table queues;
    struct held_owner owners[OWNERS];
    struct entry entries[ROWS];
    int32_t used;
};

static void hold(struct world *world, struct input *input)
{
    struct held_row row = {.type_size = -1, .size = 10};
    struct entry *entry = &world->entries[world->used];
    if (world->used == ROWS) {
        return;
    }
    entry->slot = row.slot = (int32_t)(take(input, 1) % SLOTS);
    entry->owner = (int32_t)(take(input, 1) % OWNERS);
    entry->queue_offset = row.queue_offset = world->queues.slots[row.slot].max_offset;
    entry->deadline_ms = row.deadline_ms = (int64_t)take(input, 1);
    entry->due = entry->leaves = entry->ends = 0;
    entry->number = held_add(&world->table, &world->queues, &row, &world->owners[entry->owner]);
    entry->sequence = world->table.rows[entry->number].sequence;
    world->used++;
}

static void release(struct world *world, struct entry *entry)
{
    held_remove(&world->table, &world->queues, entry->number);
    entry->number = -1;
}

static struct entry *entry_of(struct world *world, int32_t number)
{
    for (int32_t at = 0; at < world->used; at++) {
        if (world->entries[at].number == number) {
            return &world->entries[at];
        }
    }
    return NULL;
}

static void grow(struct world *world, int32_t slot)
{
    world->queues.slots[slot].max_offset++;
    dsp_note_arrival(&world->queues, slot);
    while (dsp_take(&world->queues, DSP_ARRIVED) >= 0) {
    }
    for (int32_t at = 0; at < world->used; at++) {
        world->entries[at].due |= world->entries[at].slot == slot;
    }
}

/* Walk `budget` rows: each is answered, or goes on waiting at its queue's end. */
static void walk(struct world *world, int32_t budget, unsigned answers)
{
    for (;; answers = answers >> 1 | answers << 7) {
        int32_t before = budget, number = held_next(&world->table, &world->queues, &budget);
        struct entry *entry;
        CHECK(budget >= 0 && budget <= before);
        if (number < 0) {
            return;
        }
        entry = entry_of(world, number);
        CHECK(entry != NULL && entry->due);
        entry->due = 0;
        entry->queue_offset = world->queues.slots[entry->slot].max_offset;
        world->table.rows[number].queue_offset = entry->queue_offset;
        if (answers & 1) {
            release(world, entry);
        }
    }
}

static void expire(struct world *world, int64_t now_ms)
{
    int64_t last_ms = -1;
    uint64_t last = 0;
    for (int32_t number; (number = held_due(&world->table, now_ms)) >= 0;) {
        struct entry *entry = entry_of(world, number);
        CHECK(entry != NULL && entry->deadline_ms <= now_ms && entry->deadline_ms >= last_ms);
        CHECK(entry->deadline_ms > last_ms || entry->sequence > last);
        last_ms = entry->deadline_ms;
        last = entry->sequence;
        release(world, entry);
    }
}

/* Mark the present rows of a slot, or with -1 of all slots, to leave, or to be answered. */
static void mark(struct world *world, int32_t slot)
{
    for (int32_t at = 0; at < world->used; at++) {
        struct entry *entry = &world->entries[at];
        entry->leaves |= entry->slot == slot;
        entry->ends |= slot < 0;
    }
    if (slot < 0) {
        held_finish(&world->table);
    } else {
        held_leave(&world->table, slot);
    }
}

/* Release rows that leave, then rows that are answered, `budget` looks at most. */
static void hand_over(struct world *world, int32_t budget)
{
    int32_t number;
    while ((number = held_leaving(&world->table, &budget)) >= 0) {
        struct entry *entry = entry_of(world, number);
        CHECK(entry != NULL && entry->leaves);
        release(world, entry);
    }
    while ((number = held_unfinished(&world->table, &budget)) >= 0) {
        struct entry *entry = entry_of(world, number);
        CHECK(entry != NULL && entry->ends);
        release(world, entry);
    }
    CHECK(budget >= 0);
}

static void check(const struct world *world)
{
    int64_t count = 0, owned = 0;
    for (int32_t at = 0; at < world->used; at++) {
        count += world->entries[at].number >= 0;
    }
    CHECK(world->table.count == count && world->table.size == 10 * count);
    for (int32_t owner = 0; owner < OWNERS; owner++) {
        for (int32_t at = world->owners[owner].first - 1; at >= 0; owned++) {
            CHECK(world->table.rows[at].owner == &world->owners[owner]);
            at = world->table.rows[at].owner_next;
        }
    }
    CHECK(owned == count);
    for (int32_t slot = 0; slot < SLOTS; slot++) {
        int32_t at = held_first(&world->table, slot);
        uint64_t last = 0;
        CHECK(world->queues.slots[slot].watched == (at >= 0));
        for (; at >= 0; at = world->table.rows[at].next) {
            CHECK(world->table.rows[at].slot == slot && world->table.rows[at].sequence > last);
            last = world->table.rows[at].sequence;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct world world = {.used = 0};
    held_init(&world.table);
    dsp_init(&world.queues);
    world.queues.slots = room(SLOTS * sizeof *world.queues.slots);
    world.table.rows = room(ROWS * sizeof *world.table.rows);
    world.table.heap = room(ROWS * sizeof *world.table.heap);
    world.table.room = ROWS;
    held_set_slots(&world.table, room(SLOTS * sizeof *world.table.slots), SLOTS);
    while (input.left > 0) {
        unsigned step = (unsigned)take(&input, 1), value = step >> 3;
        switch (step & 7) {
        case 0:
            expire(&world, (int64_t)take(&input, 1));
            break;
        case 1:
            if (world.used > 0 && world.entries[value % (unsigned)world.used].number >= 0) {
                release(&world, &world.entries[value % (unsigned)world.used]);
            }
            break;
        case 2:
        case 3:
            grow(&world, (int32_t)(value % SLOTS));
            break;
        case 4:
            walk(&world, (int32_t)value, (unsigned)take(&input, 1));
            break;
        case 5:
            mark(&world, (int32_t)(value % (SLOTS + 1)) - 1);
            hand_over(&world, (int32_t)take(&input, 1));
            break;
        default:
            hold(&world, &input);
        }
        check(&world);
    }
    while (world.queues.lists[DSP_WOKEN].first >= 0) {
        walk(&world, ROWS, 0);
    }
    for (int32_t at = 0; at < world.used; at++) {
        CHECK(world.entries[at].number < 0 || !world.entries[at].due); /* no arrival is lost */
    }
    while (held_has_leaving(&world.table)) {
        hand_over(&world, ROWS);
    }
    for (int32_t at = 0; at < world.used; at++) {
        CHECK(world.entries[at].number < 0
              || !(world.entries[at].leaves || world.entries[at].ends));
    }
    expire(&world, INT64_MAX);
    check(&world);
    free(world.queues.slots);
    free(world.table.rows);
    free(world.table.heap);
    free(world.table.slots);
    return 0;
}
