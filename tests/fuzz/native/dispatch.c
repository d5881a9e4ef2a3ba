/* Dispatch of any log into queues and an index file of any bytes, with the calls of the engine: it
 * handles each stop, and a second run over the same range changes nothing. Input: mode, slots and
 * entries of the index, base of the log, size of the index file's bytes, these, then the log. */
#include "dispatch.h"

#include "bytes.h"
#include "fuzz.h"
#include "queue_unit.h"
#include "record.h"

enum {
    MODE_INDEX = 1,
    MODE_SPECIAL = 2, /* every other queue is not plain */
    MODE_REMOVE = 4,  /* a queue is removed whenever the table is full */
    MAX_SLOTS = 8,
    BUCKETS = 16,
    UNITS = 3, /* in a piece of a queue */
    MAX_FILES = 4096,
    INDEX_ENTRIES = 4
};

struct world {
    struct dsp_table table;
    struct idx_file index;
    uint8_t *log;
    size_t end;
    int64_t base;
    unsigned mode;
    size_t index_files;
    size_t index_size;
};

static void open_index(struct world *world, uint8_t *image, size_t len, int64_t slots,
                       int64_t entries)
{
    world->index_size = IDX_HEADER + (size_t)slots * IDX_SLOT + (size_t)entries * IDX_ENTRY;
    CHECK(len >= world->index_size && idx_open(&world->index, image, len, slots, entries));
    world->table.index = &world->index;
}

static void next_index(struct world *world)
{
    size_t len = IDX_HEADER + IDX_SLOT * 2 + IDX_ENTRY * INDEX_ENTRIES;
    uint8_t *image = room(len);
    be_put_i64(image + IDX_END_LOG_OFFSET_AT, idx_end_log_offset(&world->index));
    free(world->index.buf);
    open_index(world, image, len, 2, INDEX_ENTRIES);
    CHECK(++world->index_files < MAX_FILES);
}

/* Each queue is found under its name, and under no other slot. */
static void check_table(const struct world *world)
{
    for (int32_t number = 0; number < MAX_SLOTS; number++) {
        const struct dsp_slot *slot = &world->table.slots[number];
        if (slot->topic != NULL) {
            CHECK(dsp_find(&world->table, slot->topic, slot->topic_size, slot->queue_id) == number);
        }
    }
}

/* Remove a queue from the table and free its memory. */
static void remove_queue(struct world *world, int32_t number)
{
    struct dsp_slot *slot = &world->table.slots[number];
    const uint8_t *topic = slot->topic;
    free(slot->units);
    dsp_remove(&world->table, number);
    free((void *)topic);
    check_table(world);
}

/* Add the queue of the record at `position`; 0 if there are too many. */
static int add_queue(struct world *world, size_t position)
{
    struct rec_row row;
    enum rec_reason reason;
    struct dsp_slot *slot;
    int32_t number = 0;
    uint8_t *topic;

    while (number < MAX_SLOTS && world->table.slots[number].topic != NULL) {
        number++;
    }
    if (number == MAX_SLOTS) {
        if (!(world->mode & MODE_REMOVE)) {
            return 0;
        }
        number = (int32_t)(position % MAX_SLOTS);
        remove_queue(world, number);
    }
    slot = &world->table.slots[number];
    CHECK(rec_parse(world->log, position, world->end, REC_CHECK_NOTHING, &row, &reason) == REC_OK);
    topic = room((size_t)row.topic_size);
    memcpy(topic, world->log + row.topic_at, (size_t)row.topic_size);
    slot->topic = topic;
    slot->topic_size = (size_t)row.topic_size;
    slot->queue_id = (int32_t)row.queue_id;
    slot->hash = dsp_hash(topic, slot->topic_size, slot->queue_id);
    slot->plain = !(world->mode & MODE_SPECIAL) || number % 2 == 0;
    dsp_enter(&world->table, number);
    check_table(world);
    return 1;
}

static void attach(struct dsp_slot *slot, int64_t queue_offset)
{
    CHECK(queue_offset >= 0);
    free(slot->units);
    slot->units = room(UNITS * CQ_UNIT);
    slot->first_queue_offset = queue_offset / UNITS * UNITS;
    slot->limit = UNITS * CQ_UNIT;
}

/* Handle a stop; returns 0 if the run has ended. */
static int answer(struct world *world, const struct dsp_stop *stop, size_t *position)
{
    struct dsp_slot *slot = stop->slot < 0 ? NULL : &world->table.slots[stop->slot];
    struct dsp_stop keys;
    switch (stop->status) {
    case DSP_UNKNOWN:
        return add_queue(world, stop->position);
    case DSP_NO_ROOM:
        CHECK(slot != NULL && slot->max_offset == stop->queue_offset);
        attach(slot, stop->queue_offset);
        return 1;
    case DSP_NO_INDEX:
        next_index(world);
        return 1;
    case DSP_GAP:
        CHECK(slot != NULL && stop->queue_offset > slot->max_offset);
        if (stop->queue_offset == INT64_MAX) {
            return 0; /* no unit can follow it: the engine treats such a record as damaged */
        }
        slot->max_offset = stop->queue_offset;
        return 1;
    case DSP_SPECIAL:
    case DSP_ANEW:
        CHECK(slot != NULL && stop->size > 0);
        CHECK(stop->status == DSP_ANEW ? slot->plain && stop->queue_offset == 0 : !slot->plain);
        *position = stop->position + (size_t)stop->size;
        do {
            dsp_range(&world->table, DSP_INDEX_ONLY, world->log, world->base, stop->position,
                      *position, &keys);
            if (keys.status == DSP_NO_INDEX) {
                next_index(world);
            }
        } while (keys.status == DSP_NO_INDEX);
        CHECK(keys.status == DSP_DONE && keys.position == *position);
        return 1;
    default:
        return 0;
    }
}

/* Dispatch from 0 as far as possible; returns the end. */
static size_t run(struct world *world)
{
    size_t position = 0, stops = 0;
    struct dsp_stop stop;
    do {
        CHECK(stops++ < world->end + MAX_FILES);
        dsp_range(&world->table, DSP_QUEUES, world->log, world->base, position, world->end, &stop);
        CHECK(stop.position >= position && stop.position <= world->end);
        position = stop.position;
    } while (answer(world, &stop, &position));
    return position;
}

static void check_second_run(struct world *world, size_t end)
{
    uint32_t count = world->table.index == NULL ? 0 : idx_count(&world->index);
    size_t files = world->index_files, position = 0;
    struct dsp_stop stop;
    while (dsp_take(&world->table, DSP_ARRIVED) >= 0) {
    }
    for (;;) {
        dsp_range(&world->table, DSP_QUEUES, world->log, world->base, position, end, &stop);
        if (stop.status != DSP_SPECIAL && stop.status != DSP_ANEW) {
            break;
        }
        position = stop.position;
        CHECK(answer(world, &stop, &position));
    }
    CHECK(stop.status == DSP_DONE && stop.position == end);
    CHECK(dsp_take(&world->table, DSP_ARRIVED) < 0);
    CHECK(world->table.index == NULL || idx_count(&world->index) == count);
    CHECK(world->index_files == files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t delays_ms[] = {1000, 5000, 10000};
    struct input input = {data, size};
    struct world world = {.mode = (unsigned)take(&input, 1)};
    int64_t slots = (int64_t)take(&input, 1) + 1, entries = (int64_t)take(&input, 1) + 2;
    size_t image_size, len, end;

    world.base = (int64_t)take(&input, 7);
    image_size = (size_t)take(&input, 2);
    dsp_init(&world.table);
    world.table.slots = room(MAX_SLOTS * sizeof *world.table.slots);
    world.table.marks = room(MAX_SLOTS * QM_MARKS * sizeof *world.table.marks);
    world.table.delays_ms = delays_ms;
    world.table.delay_count = sizeof delays_ms / sizeof *delays_ms;
    dsp_rehash(&world.table, room(BUCKETS * sizeof(int32_t)), BUCKETS, 0);
    if (world.mode & MODE_INDEX) {
        struct input image = {input.at, image_size < input.left ? image_size : input.left};
        input.at += image.left;
        input.left -= image.left;
        len = IDX_HEADER + (size_t)slots * IDX_SLOT + (size_t)entries * IDX_ENTRY;
        open_index(&world, take_copy(&image, len), len, slots, entries);
    }
    world.end = input.left;
    world.log = take_copy(&input, world.end);
    end = run(&world);
    if (!(world.mode & MODE_REMOVE)) {
        check_second_run(&world, end);
    }
    for (int32_t number = 0; number < MAX_SLOTS; number++) {
        if (world.table.slots[number].topic != NULL) {
            remove_queue(&world, number);
        }
    }
    for (int which = 0; which < DSP_LISTS; which++) {
        CHECK(world.table.lists[which].first == -1 && world.table.lists[which].last == -1);
    }
    free(world.index.buf);
    free(world.table.buckets);
    free(world.table.slots);
    free(world.table.marks);
    free(world.log);
    return 0;
}
