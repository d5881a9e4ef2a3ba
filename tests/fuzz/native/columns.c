/* Columns of any bytes: they equal the fields of the records, record by record, and no byte is
 * written beyond the rooms, which end with their memory. Input: mode, base of the log, five rooms,
 * then the log. */
#include "columns.h"

#include "bytes.h"
#include "crc32.h"
#include "fuzz.h"

enum { MODE_PLACE = 1, MODE_CHECK_BODY = 2, MODE_TOPIC = 4, MODE_QUEUE = 8, MODE_FEW = 16 };

struct rooms {
    size_t rows, body, text, entries;
};

/* Set each record's physical offset to its place: random input does not produce it. */
static void place(uint8_t *log, size_t end, int64_t base)
{
    struct rec_row row;
    enum rec_reason reason;
    for (size_t at = 0; rec_parse(log, at, end, REC_CHECK_NOTHING, &row, &reason) == REC_OK;) {
        be_put_i64(log + at + REC_PHYSICAL_OFFSET_AT, base + (int64_t)at);
        at += (size_t)row.size;
    }
}

static void make_texts(struct col_texts *texts, size_t count, size_t text_room)
{
    texts->offsets = malloc((count + 1) * sizeof *texts->offsets);
    texts->data = malloc(text_room + COL_SLACK);
    texts->room = text_room;
    CHECK(texts->offsets != NULL && texts->data != NULL);
    texts->offsets[0] = 0;
}

static void free_texts(struct col_texts *texts)
{
    free(texts->offsets);
    free(texts->data);
}

static void make_batch(struct col_batch *batch, const struct rooms *rooms, unsigned mode)
{
    memset(batch, 0, sizeof *batch);
    batch->room = rooms->rows;
    make_texts(&batch->body, rooms->rows, rooms->body);
    for (int n = 0; n < COL_NAMED; n++) {
        make_texts(&batch->named[n], rooms->rows, rooms->text);
        batch->named_valid[n] = room((rooms->rows + 7) / 8);
    }
    for (int n = 0; n < COL_INT64S; n++) {
        batch->int64s[n] = malloc(rooms->rows * sizeof *batch->int64s[n]);
    }
    if (mode & MODE_FEW) {
        return;
    }
    make_texts(&batch->topic, rooms->rows, rooms->text);
    for (int n = 0; n < COL_HOSTS; n++) {
        make_texts(&batch->hosts[n], rooms->rows, rooms->rows * COL_HOST_MAX);
        batch->times[n] = malloc(rooms->rows * sizeof *batch->times[n]);
    }
    for (int n = 0; n < COL_INT32S; n++) {
        batch->int32s[n] = malloc(rooms->rows * sizeof *batch->int32s[n]);
    }
    batch->map = malloc((rooms->rows + 1) * sizeof *batch->map);
    batch->map[0] = 0;
    make_texts(&batch->names, rooms->entries, rooms->text);
    make_texts(&batch->values, rooms->entries, rooms->text);
    batch->entries_room = rooms->entries;
    batch->epoch = malloc(rooms->rows * sizeof *batch->epoch);
    batch->epoch_valid = room((rooms->rows + 7) / 8);
    batch->confirmed = room((rooms->rows + 7) / 8);
}

static void free_batch(struct col_batch *batch)
{
    free_texts(&batch->body);
    free_texts(&batch->topic);
    free_texts(&batch->names);
    free_texts(&batch->values);
    for (int n = 0; n < COL_NAMED; n++) {
        free_texts(&batch->named[n]);
        free(batch->named_valid[n]);
    }
    for (int n = 0; n < COL_HOSTS; n++) {
        free_texts(&batch->hosts[n]);
        free(batch->times[n]);
    }
    for (int n = 0; n < COL_INT32S; n++) {
        free(batch->int32s[n]);
    }
    for (int n = 0; n < COL_INT64S; n++) {
        free(batch->int64s[n]);
    }
    free(batch->map);
    free(batch->epoch);
    free(batch->epoch_valid);
    free(batch->confirmed);
}

static void check_texts(const struct col_texts *texts, size_t count, int is_utf8)
{
    if (texts->offsets == NULL) {
        return;
    }
    CHECK(texts->offsets[0] == 0 && (size_t)texts->offsets[count] <= texts->room);
    for (size_t n = 0; n < count; n++) {
        const uint8_t *text = texts->data + texts->offsets[n];
        CHECK(texts->offsets[n] <= texts->offsets[n + 1]);
        CHECK(!is_utf8 || utf8_is_valid(text, (size_t)(texts->offsets[n + 1] - texts->offsets[n])));
    }
}

static void check_value(const struct col_texts *texts, const uint8_t *valid, size_t row,
                        const struct rec_text *wanted)
{
    size_t at = (size_t)texts->offsets[row], size = (size_t)texts->offsets[row + 1] - at;
    CHECK((valid[row / 8] >> row % 8 & 1) == (wanted->at != NULL));
    CHECK(size == wanted->size && (size == 0 || !memcmp(texts->data + at, wanted->at, size)));
}

static void check_row(const uint8_t *log, const struct rec_row *row, const struct col_batch *batch,
                      size_t n)
{
    struct rec_properties found;
    const uint8_t *text = log + row->properties_at;
    int32_t body_at = batch->body.offsets[n];
    CHECK(batch->int64s[COL_LOG_OFFSET][n] == row->physical_offset);
    CHECK(batch->int64s[COL_QUEUE_OFFSET][n] == row->queue_offset);
    CHECK(batch->body.offsets[n + 1] - body_at == row->body_size);
    CHECK(!memcmp(batch->body.data + body_at, log + row->body_at, (size_t)row->body_size));
    if (utf8_is_valid(text, (size_t)row->properties_size)) {
        rec_find_properties(text, (size_t)row->properties_size, &found);
        check_value(&batch->named[COL_KEYS], batch->named_valid[COL_KEYS], n, &found.keys);
        check_value(&batch->named[COL_TAGS], batch->named_valid[COL_TAGS], n, &found.tags);
        check_value(&batch->named[COL_UNIQUE_KEY], batch->named_valid[COL_UNIQUE_KEY], n,
                    &found.uniq_key);
    }
    if (batch->map != NULL) {
        CHECK(batch->int32s[COL_SIZE][n] == row->size && batch->map[n] <= batch->map[n + 1]);
        for (int32_t entry = batch->map[n]; entry < batch->map[n + 1]; entry++) {
            CHECK(batch->names.offsets[entry] < batch->names.offsets[entry + 1]);
            CHECK(batch->values.offsets[entry] < batch->values.offsets[entry + 1]);
        }
    }
}

static void check_batch(const struct col_batch *batch)
{
    CHECK(batch->rows <= batch->room && batch->entries <= batch->entries_room);
    check_texts(&batch->topic, batch->rows, 1);
    check_texts(&batch->body, batch->rows, 0);
    check_texts(&batch->names, batch->entries, 1);
    check_texts(&batch->values, batch->entries, 1);
    for (int n = 0; n < COL_HOSTS; n++) {
        check_texts(&batch->hosts[n], batch->rows, 1);
    }
    for (int n = 0; n < COL_NAMED; n++) {
        check_texts(&batch->named[n], batch->rows, 1);
    }
}

/* Whether a record passes the filters of the mode, which are made from the first record. */
static int passes(const uint8_t *log, const struct rec_row *row, const struct col_wish *wish)
{
    return (wish->topics == NULL ||
            ((size_t)row->topic_size == wish->topics->size &&
             !memcmp(log + row->topic_at, wish->topics->text, wish->topics->size))) &&
           (wish->queue_ids == NULL || row->queue_id == *wish->queue_ids);
}

static void decode_all(const uint8_t *log, size_t end, int64_t base, const struct col_wish *wish,
                       const struct rooms *rooms, unsigned mode)
{
    static struct col_scratch scratch; /* content from an earlier input must have no effect */
    struct rec_row row;
    enum rec_reason reason;
    enum rec_status status = REC_OK;
    size_t at = 0, checked = 0;
    while (status == REC_OK && at < end) {
        struct col_batch batch;
        struct col_end stop;
        size_t n = 0, seen = 0;
        make_batch(&batch, rooms, mode);
        status = col_decode(log, at, end, base, wish, &batch, &scratch, &stop);
        check_batch(&batch);
        for (; checked < stop.at; checked += (size_t)row.size, seen++) {
            CHECK(rec_parse(log, checked, end, REC_CHECK_NOTHING, &row, &reason) == REC_OK);
            if (passes(log, &row, wish)) {
                CHECK(n < batch.rows);
                check_row(log, &row, &batch, n++);
            }
        }
        CHECK(checked == stop.at && n == batch.rows && seen == stop.seen);
        CHECK(status != REC_NO_ROOM || batch.rows == 0);
        CHECK(status != REC_OK || stop.at > at);
        CHECK(stop.skip == 0 || (status == REC_BAD && stop.skip <= end - stop.at));
        at = stop.at;
        free_batch(&batch);
    }
    if (status != REC_OK && status != REC_NO_ROOM) {
        enum rec_status parsed = rec_parse(log, at, end, REC_CHECK_BODY, &row, &reason);
        CHECK(parsed == status || (status == REC_BAD && row.physical_offset != base + (int64_t)at));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    unsigned mode = (unsigned)take(&input, 1);
    int64_t base = (int64_t)take(&input, 7);
    struct rooms rooms = {
        .rows = 1 + (size_t)take(&input, 1),
        .body = (size_t)take(&input, 2),
        .text = (size_t)take(&input, 2),
        .entries = (size_t)take(&input, 1),
    };
    size_t end = input.left;
    uint8_t *log = take_copy(&input, end), *out = room(end * UTF8_GROWTH);
    int64_t starts[] = {base + 200, base + 200, base + 900};
    int32_t epochs[] = {1, 2, 7}, queue_id;
    struct col_topic topic;
    struct rec_row first;
    enum rec_reason reason;
    struct col_wish wish = {
        .min_store_ms = INT64_MIN, .max_store_ms = INT64_MAX, .end_log_offset = INT64_MAX,
        .check_body = (mode & MODE_CHECK_BODY) != 0, .confirmed_end = base + 1000,
        .epoch_starts = starts, .epochs = epochs, .epoch_count = 3,
    };
    if (mode & MODE_PLACE) {
        place(log, end, base);
    }
    CHECK(utf8_is_valid(out, utf8_replace(out, log, end)));
    if (rec_parse(log, 0, end, REC_CHECK_NOTHING, &first, &reason) == REC_OK) {
        topic = (struct col_topic){log + first.topic_at, (size_t)first.topic_size};
        queue_id = (int32_t)first.queue_id;
        wish.topics = mode & MODE_TOPIC ? &topic : NULL;
        wish.queue_ids = mode & MODE_QUEUE ? &queue_id : NULL;
        wish.topic_count = wish.queue_id_count = 1;
    }
    decode_all(log, end, base, &wish, &rooms, mode);
    free(out);
    free(log);
    return 0;
}
