#include "columns.h"

#include <stddef.h>
#include <string.h>

#include "bytes.h"
#include "columns_text.h"
#include "crc32.h"

/* Years 1 to 9999, the range of Python's and Spark's timestamps. */
#define TIME_MIN_MS (-62135596800000)
#define TIME_MAX_MS 253402300799999

static const size_t INT32_FIELDS[COL_INT32S] = {
    [COL_QUEUE_ID] = offsetof(struct rec_row, queue_id),
    [COL_SIZE] = offsetof(struct rec_row, size),
    [COL_FLAG] = offsetof(struct rec_row, flag),
    [COL_SYS_FLAG] = offsetof(struct rec_row, sys_flag),
    [COL_RECONSUME_TIMES] = offsetof(struct rec_row, reconsume_times),
    [COL_BODY_CRC] = offsetof(struct rec_row, body_crc),
    [COL_BODY_SIZE] = offsetof(struct rec_row, body_size),
};
static const size_t INT64_FIELDS[COL_INT64S] = {
    [COL_QUEUE_OFFSET] = offsetof(struct rec_row, queue_offset),
    [COL_LOG_OFFSET] = offsetof(struct rec_row, physical_offset), /* compared with the position
                                                                   * before */
    [COL_PREPARED_TRANSACTION_OFFSET] = offsetof(struct rec_row, prepared_transaction_offset),
};
static const size_t TIME_FIELDS[COL_TIMES] = {
    [COL_BORN_TIME] = offsetof(struct rec_row, born_timestamp_ms),
    [COL_STORE_TIME] = offsetof(struct rec_row, store_timestamp_ms),
};

static int64_t field(const struct rec_row *row, size_t field_at)
{
    int64_t value;
    memcpy(&value, (const uint8_t *)row + field_at, sizeof value);
    return value;
}

static int is_wanted_topic(const uint8_t *topic, size_t size, const struct col_wish *wish)
{
    size_t low = 0, high = wish->topic_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct col_topic *one = &wish->topics[middle];
        int order = size != one->size ? (size < one->size ? -1 : 1)
                                      : (size > 0 ? memcmp(topic, one->text, size) : 0);
        if (order == 0) {
            return 1;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return 0;
}

static int is_wanted_queue(int32_t queue_id, const struct col_wish *wish)
{
    size_t low = 0, high = wish->queue_id_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (wish->queue_ids[middle] == queue_id) {
            return 1;
        }
        if (queue_id < wish->queue_ids[middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return 0;
}

static int is_wanted(const uint8_t *buf, const struct rec_row *row, const struct col_wish *wish)
{
    return row->store_timestamp_ms >= wish->min_store_ms &&
           row->store_timestamp_ms <= wish->max_store_ms &&
           row->physical_offset >= wish->min_log_offset &&
           (wish->queue_ids == NULL || is_wanted_queue((int32_t)row->queue_id, wish)) &&
           (wish->topics == NULL ||
            is_wanted_topic(buf + row->topic_at, (size_t)row->topic_size, wish));
}

/* The room that is left while a block is picked: in each memory, the bytes that the worst case
 * leaves. */
struct rooms {
    size_t rows, body, topic, hosts[COL_HOSTS], properties, entries;
};

static size_t left(const struct col_texts *texts, size_t rows)
{
    return texts->offsets != NULL ? texts->room - (size_t)texts->offsets[rows] : SIZE_MAX;
}

static size_t less(size_t a, size_t b) { return a < b ? a : b; }

static struct rooms rooms_of(const struct col_batch *batch)
{
    struct rooms rooms = {
        .rows = batch->room - batch->rows,
        .body = left(&batch->body, batch->rows),
        .topic = left(&batch->topic, batch->rows),
        .properties = SIZE_MAX,
        .entries = SIZE_MAX,
    };
    for (int n = 0; n < COL_HOSTS; n++) {
        rooms.hosts[n] = left(&batch->hosts[n], batch->rows);
    }
    for (int n = 0; n < COL_NAMED; n++) {
        rooms.properties = less(rooms.properties, left(&batch->named[n], batch->rows));
    }
    if (batch->map != NULL) {
        rooms.properties = less(rooms.properties, left(&batch->names, batch->entries));
        rooms.properties = less(rooms.properties, left(&batch->values, batch->entries));
        rooms.entries = batch->entries_room - batch->entries;
    }
    return rooms;
}

/* Take the room of a record's worst case; 0 if it does not fit, and nothing is taken. */
static int take_room(struct rooms *rooms, const struct rec_row *row)
{
    size_t body = (size_t)row->body_size;
    size_t topic = UTF8_GROWTH * (size_t)row->topic_size;
    size_t properties = UTF8_GROWTH * (size_t)row->properties_size;
    size_t entries = ((size_t)row->properties_size + 1) / COL_PAIR_MIN;
    if (rooms->rows < 1 || rooms->body < body || rooms->topic < topic ||
        rooms->hosts[0] < COL_HOST_MAX || rooms->hosts[1] < COL_HOST_MAX ||
        rooms->properties < properties || rooms->entries < entries) {
        return 0;
    }
    rooms->rows -= 1;
    /* Columns that are not requested have SIZE_MAX, which no block exhausts. */
    rooms->body -= body;
    rooms->topic -= topic;
    rooms->hosts[0] -= COL_HOST_MAX;
    rooms->hosts[1] -= COL_HOST_MAX;
    rooms->properties -= properties;
    rooms->entries -= entries;
    return 1;
}

static void put_bytes(struct col_texts *texts, const uint8_t *buf, size_t first,
                      struct rec_row *const *picked, size_t count)
{
    int32_t end = texts->offsets[first];
    for (size_t n = 0; n < count; n++) {
        size_t size = (size_t)picked[n]->body_size;
        memcpy(texts->data + end, buf + picked[n]->body_at, size);
        texts->offsets[first + n + 1] = end += (int32_t)size;
    }
}

static void put_int32s(int32_t *to, size_t field_at, struct rec_row *const *picked, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        to[n] = (int32_t)field(picked[n], field_at);
    }
}

static void put_int64s(int64_t *to, size_t field_at, struct rec_row *const *picked, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        to[n] = field(picked[n], field_at);
    }
}

static void put_times(int64_t *to, size_t field_at, struct rec_row *const *picked, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        int64_t ms = field(picked[n], field_at);
        ms = ms < TIME_MIN_MS ? TIME_MIN_MS : ms > TIME_MAX_MS ? TIME_MAX_MS : ms;
        to[n] = ms * 1000;
    }
}

static void put_epochs(struct col_batch *batch, const struct col_wish *wish,
                       struct rec_row *const *picked, size_t count)
{
    size_t low = 0, high = wish->epoch_count, number;
    while (low < high) { /* the first entry that starts after the first record */
        size_t middle = low + (high - low) / 2;
        if (wish->epoch_starts[middle] <= picked[0]->physical_offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    number = low;
    for (size_t n = 0; n < count; n++) {
        size_t row = batch->rows + n;
        while (number < wish->epoch_count &&
               wish->epoch_starts[number] <= picked[n]->physical_offset) {
            number++;
        }
        batch->epoch[row] = number > 0 ? wish->epochs[number - 1] : 0;
        if (number > 0) {
            col_set_bit(batch->epoch_valid, row);
        } else {
            batch->epoch_nulls++;
        }
    }
}

/* Fill the rows after the batch's from picked[0:count), whose room was taken. */
static void put_block(const uint8_t *buf, size_t end, const struct col_wish *wish,
                      struct col_batch *batch, struct col_scratch *scratch, size_t count)
{
    struct rec_row *const *picked = scratch->picked;
    size_t first = batch->rows;
    for (int n = 0; n < COL_INT32S; n++) {
        if (batch->int32s[n] != NULL) {
            put_int32s(batch->int32s[n] + first, INT32_FIELDS[n], picked, count);
        }
    }
    for (int n = 0; n < COL_INT64S; n++) {
        if (batch->int64s[n] != NULL) {
            put_int64s(batch->int64s[n] + first, INT64_FIELDS[n], picked, count);
        }
    }
    for (int n = 0; n < COL_TIMES; n++) {
        if (batch->times[n] != NULL) {
            put_times(batch->times[n] + first, TIME_FIELDS[n], picked, count);
        }
    }
    if (batch->epoch != NULL) {
        put_epochs(batch, wish, picked, count);
    }
    if (batch->confirmed != NULL) {
        for (size_t n = 0; n < count; n++) {
            if (picked[n]->physical_offset <= wish->confirmed_end - picked[n]->size) {
                col_set_bit(batch->confirmed, first + n);
            }
        }
    }
    col_put_texts(buf, end, batch, scratch, count);
    if (batch->body.offsets != NULL) {
        put_bytes(&batch->body, buf, first, picked, count);
    }
    batch->rows += count;
}

/* Pick the parsed rows that pass the filters and have room. If one ends the block, describe it in
 * *stop and return the reason: REC_OK for the end of the range, REC_NO_ROOM for a full batch. */
static enum rec_status pick(const uint8_t *buf, int64_t log_base, const struct col_wish *wish,
                            struct rooms *rooms, struct col_scratch *scratch, size_t parsed,
                            size_t *count, struct col_end *stop)
{
    for (size_t n = 0; n < parsed; n++) {
        struct rec_row *row = &scratch->rows[n];
        stop->at = (size_t)row->position;
        if (row->physical_offset != log_base + row->position) {
            stop->elsewhere = 1;
            return REC_BAD;
        }
        if (row->physical_offset >= wish->end_log_offset) {
            return REC_OK;
        }
        if (is_wanted(buf, row, wish)) {
            if (wish->check_body && row->body_size > 0 &&
                crc32_masked(buf + row->body_at, (size_t)row->body_size) !=
                    (uint32_t)(int32_t)row->body_crc) {
                stop->skip = (size_t)row->size;
                stop->reason = REC_BAD_BODY_CRC;
                return REC_BAD;
            }
            if (!take_room(rooms, row)) {
                return REC_NO_ROOM;
            }
            scratch->picked[(*count)++] = row;
        }
        stop->seen++;
        stop->at += (size_t)row->size;
    }
    return REC_BLANK; /* none of the rows ends the block */
}

enum rec_status col_decode(const uint8_t *buf, size_t at, size_t end, int64_t log_base,
                           const struct col_wish *wish, struct col_batch *batch,
                           struct col_scratch *scratch, struct col_end *stop)
{
    *stop = (struct col_end){.at = at, .reason = REC_FINE};
    while (stop->at < end && batch->rows < batch->room) {
        size_t next = stop->at, parsed, count = 0;
        enum rec_reason reason;
        enum rec_status scanned = rec_scan(buf, &next, end, REC_CHECK_NOTHING, scratch->rows,
                                           COL_BLOCK, &parsed, &reason);
        struct rooms rooms = rooms_of(batch);
        enum rec_status ended =
            pick(buf, log_base, wish, &rooms, scratch, parsed, &count, stop);
        if (count > 0) {
            put_block(buf, end, wish, batch, scratch, count);
        }
        if (ended == REC_NO_ROOM) {
            return batch->rows > 0 ? REC_OK : REC_NO_ROOM;
        }
        if (ended != REC_BLANK) {
            return ended;
        }
        if (scanned != REC_OK) {
            stop->reason = reason;
            return scanned;
        }
    }
    return REC_OK;
}
