/* Pops with any numbers from queues and a log that are damaged anywhere, and the check points of
 * popped messages. Input: mode, queues, messages, damage of the log and of the units (count, then
 * position and byte of each), then the pops: draw, queue, count, invisible, poll and born time. */
#include "lane_pop.h"

#include "bytes.h"
#include "fuzz.h"
#include "queue_unit.h"
#include "walk.h"

enum {
    MODE_RETRY = 1,  /* the group has a retry topic */
    MODE_WAITS = 2,  /* a pop waits with a message */
    MODE_FULL = 4,   /* the log file ends after its messages */
    MODE_NAMES = 8,  /* a pop has names from the input */
    QUEUES = 4,
    SLOTS = QUEUES + 2,
    UNITS = 64,
    LOG = 1 << 16,
    BUCKETS = 16,
    NOW = 1 << 30,
    POPS_MAX = 40
};
#define TOPIC "Popped"
#define GROUP "group"
#define RETRY "%RETRY%group+Popped"
static const uint8_t host[8] = {127, 0, 0, 1};
static const uint8_t pair[] = GROUP "\0" TOPIC;

struct world {
    unsigned mode;
    int32_t queues;
    struct log_tail tail;
    struct dsp_table table;
    uint8_t *units[QUEUES];
    struct lane_cursor cursors[QUEUES];
    struct lane_place places[QUEUES + 1];
    struct lane_reader reader;
    struct lane_popper popper;
    struct lane_popping popping;
    struct lane_reading reading;
    struct lane_topic rows[LANE_KEPT_ROWS];
    struct lane lane;
    struct nam_key key;
    int64_t generation;
};

static struct trf_text text_of(const char *text)
{
    return (struct trf_text){(const uint8_t *)text, (uint32_t)strlen(text)};
}

static void add_slot(struct world *world, int32_t number, const char *topic, int32_t queue_id)
{
    struct dsp_slot *slot = &world->table.slots[number];
    slot->topic = (const uint8_t *)topic;
    slot->topic_size = strlen(topic);
    slot->queue_id = queue_id;
    slot->hash = dsp_hash(slot->topic, slot->topic_size, queue_id);
    slot->plain = 1;
    dsp_enter(&world->table, number);
}

/* Append a message of a queue, and its unit. */
static void append(struct world *world, int32_t queue_id, unsigned body_size)
{
    struct dsp_slot *slot = &world->table.slots[queue_id];
    struct rec_fields fields = {
        .topic = (const uint8_t *)TOPIC, .topic_size = sizeof TOPIC - 1, .queue_id = queue_id};
    uint8_t body[256] = {1};
    enum rec_reason reason;
    size_t size;
    if (slot->max_offset == UNITS) {
        return;
    }
    fields.body = body;
    fields.body_size = body_size;
    fields.born_host = fields.store_host = host;
    fields.born_host_size = fields.store_host_size = sizeof host;
    fields.log_offset = world->tail.end;
    fields.queue_offset = slot->max_offset;
    fields.magic = REC_MAGIC_V1;
    CHECK(rec_encode(world->tail.memory, (size_t)world->tail.end, LOG, &fields, &size, &reason) ==
          REC_OK);
    cq_put(world->units[queue_id] + slot->max_offset * CQ_UNIT,
           (struct cq_unit){world->tail.end, (int32_t)size, 0});
    world->tail.end += (int64_t)size;
    slot->max_offset++;
}

static void damage(struct input *input, uint8_t *at, size_t size)
{
    for (size_t left = (size_t)take(input, 1) % 4; left > 0 && size > 0; left--) {
        size_t position = (size_t)take(input, 2) % size;
        at[position] ^= (uint8_t)take(input, 1);
    }
}

static void open_world(struct world *world, struct input *input)
{
    int32_t messages;
    world->mode = (unsigned)take(input, 1);
    world->queues = (int32_t)take(input, 1) % QUEUES + 1;
    messages = (int32_t)take(input, 1) % (UNITS * 2);
    dsp_init(&world->table);
    world->table.slots = room(SLOTS * sizeof *world->table.slots);
    world->table.marks = room(SLOTS * QM_MARKS * sizeof *world->table.marks);
    dsp_rehash(&world->table, room(BUCKETS * sizeof(int32_t)), BUCKETS, 0);
    world->tail.memory = room(LOG);
    world->tail.size = LOG;
    for (int32_t number = 0; number < QUEUES; number++) {
        world->units[number] = room(UNITS * CQ_UNIT);
        add_slot(world, number, TOPIC, number);
        world->cursors[number] = (struct lane_cursor){
            .units = world->units[number], .count = UNITS, .pulled = -1, .slot = number};
    }
    add_slot(world, QUEUES, TIMER_TOPIC, 0);
    add_slot(world, QUEUES + 1, RETRY, 0);
    world->table.slots[QUEUES + 1].max_offset = (world->mode & MODE_WAITS) != 0;
    for (int32_t number = 0; number < messages; number++) {
        append(world, number % world->queues, (unsigned)number);
    }
    damage(input, world->tail.memory, (size_t)world->tail.end);
    for (int32_t number = 0; number < QUEUES; number++) {
        damage(input, world->units[number], UNITS * CQ_UNIT);
    }
    if (world->mode & MODE_FULL) {
        world->tail.size = (size_t)world->tail.end;
    }
}

static void tie(struct world *world)
{
    struct lane_reading *reading = &world->reading;
    world->reader = (struct lane_reader){
        .plain = 1, .queue_limit = world->queues, .until_ms = INT64_MAX, .cursors = world->cursors};
    world->popper.queue_count = world->queues;
    world->popper.places = world->places;
    if (world->mode & MODE_RETRY) {
        world->popper.retry_count = 1;
        world->popper.retries[0] = (struct lane_retry){text_of(RETRY), 1};
    }
    world->popping.rows = &world->popper;
    reading->pairs.keys = &world->key;
    nam_rehash(&reading->pairs, room(BUCKETS * sizeof(int32_t)), BUCKETS);
    nam_add(&reading->pairs, pair, sizeof GROUP - 1, sizeof pair - 1);
    reading->rows = &world->reader;
    reading->tail = &world->tail;
    reading->queues = &world->table;
    reading->generation = &world->generation;
    reading->file_size = LOG;
    reading->limits = (struct lane_limits){LOG, 32, 1 << 18, 32, 1 << 18};
    world->lane.rows = world->rows;
    world->lane.tail = &world->tail;
    world->lane.queues = &world->table;
    world->lane.store_host = (struct trf_text){host, sizeof host};
    world->lane.texts = room(LANE_TEXT_ROOM);
    world->lane.kept.timers = 1;
    world->lane.kept.max_delay_ms = INT64_C(1) << 40;
    world->lane.kept.precision_ms = 1000;
    world->lane.kept.broker_name = text_of("broker-a");
}

/* Check that found messages are in the log, in the order of their queues, within the limit. */
static void check_found(const struct world *world, const struct trf_pop *pop,
                        const struct lane_popped *got)
{
    size_t size = 0;
    int32_t count = 0;
    CHECK(got->count > 0 && got->count <= pop->max_msg_nums && got->rest >= 0);
    for (size_t number = 0; number < got->run_count; number++) {
        const struct lane_run *run = &got->runs[number];
        CHECK(run->at >= world->tail.memory && run->size <= LOG);
        CHECK(run->at + run->size <= world->tail.memory + world->tail.end);
        size += run->size;
    }
    CHECK(size == got->size);
    for (int32_t number = 0; number < got->part_count; number++) {
        const struct lane_part *part = &got->parts[number];
        int64_t before = part->start - 1;
        CHECK(part->first == count && part->count > 0);
        CHECK(part->start == world->places[part->queue_id].next);
        for (int32_t each = 0; each < part->count; each++) {
            CHECK(got->offsets[part->first + each] > before);
            before = got->offsets[part->first + each];
        }
        CHECK(before < part->next && part->next <= world->table.slots[part->queue_id].max_offset);
        count += part->count;
    }
    CHECK(count == got->count);
}

static void check_answer(const struct lane_popped *got)
{
    uint8_t *starts = room(LANE_TEXTS_MAX), *offsets = room(LANE_TEXTS_MAX), *out;
    struct trf_pop_answer answer = {.opaque = 7, .body_size = got->size};
    size_t size;
    lane_put_offsets(got, starts, offsets, &answer);
    CHECK(answer.starts.size <= LANE_TEXTS_MAX && answer.offsets.size <= LANE_TEXTS_MAX);
    CHECK(answer.offsets.size > 0 && answer.offsets.at[answer.offsets.size - 1] != ',');
    out = room(trf_pop_reply_room(&answer));
    size = trf_pop_reply(out, trf_pop_reply_room(&answer), &answer);
    CHECK(size > 8 && be_u32(out) == size + got->size - 4 && out[size - 1] == '}');
    CHECK(trf_pop_reply(out, trf_pop_reply_room(&answer) - 1, &answer) == 0);
    free(out);
    free(offsets);
    free(starts);
}

/* Run a pop; returns 0 if the handler has to answer it. */
static int pop_once(struct world *world, struct input *input)
{
    static const char revive[] = "rmq_sys_REVIVE_LOG_c";
    struct lane_acks acks = {.revive_queues = 8, .revive_topic = text_of(revive)};
    int32_t draw = (int32_t)take(input, 1) % 100, row;
    struct trf_pop pop = {.consumer_group = text_of(GROUP), .topic = text_of(TOPIC)};
    struct lane_found *found = room(sizeof *found);
    struct lane_popped *got = room(sizeof *got);
    int64_t end = world->tail.end;
    int done = 0;
    pop.queue_id = (int8_t)take(input, 1);
    pop.max_msg_nums = (int8_t)take(input, 1);
    pop.invisible_time = (int64_t)take(input, 8);
    pop.poll_time = (int64_t)take(input, 8);
    pop.born_time = (int64_t)take(input, 8);
    if (world->mode & MODE_NAMES) {
        pop.topic = (struct trf_text){input->at, (uint32_t)(input->left % 16)};
    }
    row = lane_find_popper(&world->reading, &world->popping, &pop, NOW);
    if (row >= 0) {
        lane_known(&world->popping, row);
        if (lane_find_popped(&world->reading, &world->popping, row, &pop, draw, found, got) ==
            LANE_FOUND) {
            CHECK(!(world->mode & MODE_WAITS) || !(world->mode & MODE_RETRY));
            check_found(world, &pop, got);
            check_answer(got);
            done = lane_hide(&world->lane, &acks, &world->popping, row, &pop, 3, NOW, got) ==
                   LANE_DONE;
            CHECK(done ? world->tail.end > end : world->tail.end == end);
            CHECK(world->tail.end <= (int64_t)world->tail.size);
            for (int32_t number = 0; done && number < got->part_count; number++) {
                const struct lane_part *part = &got->parts[number];
                CHECK(world->places[part->queue_id].next == part->next);
            }
        }
        CHECK(lane_take_popped(&world->popping) == row && lane_take_popped(&world->popping) == -1);
    }
    free(got);
    free(found);
    return done;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct world *world = room(sizeof *world);
    int pops = 0;
    open_world(world, &input);
    tie(world);
    while (input.left > 0 && pops++ < POPS_MAX) {
        pop_once(world, &input);
    }
    for (int32_t number = 0; number < QUEUES; number++) {
        free(world->units[number]);
    }
    free(world->lane.texts);
    free(world->reading.pairs.buckets);
    free(world->tail.memory);
    free(world->table.buckets);
    free(world->table.marks);
    free(world->table.slots);
    free(world);
    return 0;
}
