/* Parsing, scanning and walking of any bytes, and encoding: a parsed record is encoded to
 * the same bytes. Input: mode, start, base of the log, then the log. */
#include "record.h"

#include "bytes.h"
#include "crc32.h"
#include "fuzz.h"
#include "walk.h"

enum { MAX_ROWS = 64, MODE_MEND = 4, MODE_PLACE = 8, MODE_TORN = 16, CRC_DIGITS_AT = 9 };

static void check_part(const struct rec_row *row, int64_t at, int64_t size)
{
    CHECK(size >= 0 && at >= row->position && at + size <= row->position + row->size);
}

static void check_row(const struct rec_row *row, size_t at, size_t end)
{
    CHECK(row->position == (int64_t)at && row->size >= REC_MIN);
    CHECK((uint64_t)row->size <= end - at);
    check_part(row, row->born_host_at, row->born_host_size);
    check_part(row, row->store_host_at, row->store_host_size);
    check_part(row, row->body_at, row->body_size);
    check_part(row, row->topic_at, row->topic_size);
    check_part(row, row->properties_at, row->properties_size);
    CHECK(row->properties_at + row->properties_size == row->position + row->size);
}

/* Set each record's sums and, by the mode, its offset: random input does not produce them. */
static void mend(uint8_t *log, size_t at, size_t end, unsigned mode, int64_t base)
{
    struct rec_row row;
    enum rec_reason reason;
    while (rec_parse(log, at, end, REC_CHECK_NOTHING, &row, &reason) == REC_OK) {
        uint8_t *record = log + at;
        if (mode & MODE_PLACE) {
            be_put_i64(record + REC_PHYSICAL_OFFSET_AT, base + (int64_t)at);
        }
        size_t size = (size_t)row.size;
        uint32_t crc = crc32_masked(log + row.body_at, (size_t)row.body_size);
        be_put_i32(record + REC_BODY_CRC_AT, row.body_size > 0 ? (int32_t)crc : 0);
        if (row.properties_size >= REC_PROPERTY_CRC) {
            crc = crc32_masked(record, size - REC_PROPERTY_CRC);
            record += size - REC_PROPERTY_CRC;
            memcpy(record, "__CRC32#\1", CRC_DIGITS_AT);
            for (size_t digit = 0; digit < 10; digit++, crc /= 10) {
                record[CRC_DIGITS_AT + digit] = (uint8_t)('0' + crc % 10);
            }
            record[REC_PROPERTY_CRC - 1] = 2;
        }
        at += size;
    }
}

static struct rec_fields fields_of(const uint8_t *log, const struct rec_row *row)
{
    struct rec_fields fields = {
        .topic = log + row->topic_at,
        .topic_size = (size_t)row->topic_size,
        .body = log + row->body_at,
        .body_size = (size_t)row->body_size,
        .properties = log + row->properties_at,
        .properties_size = (size_t)row->properties_size,
        .born_host = log + row->born_host_at,
        .born_host_size = (size_t)row->born_host_size,
        .store_host = log + row->store_host_at,
        .store_host_size = (size_t)row->store_host_size,
        .log_offset = row->physical_offset,
        .queue_offset = row->queue_offset,
        .born_timestamp_ms = row->born_timestamp_ms,
        .store_timestamp_ms = row->store_timestamp_ms,
        .prepared_transaction_offset = row->prepared_transaction_offset,
        .magic = (int32_t)row->magic,
        .queue_id = (int32_t)row->queue_id,
        .flag = (int32_t)row->flag,
        .sys_flag = (int32_t)row->sys_flag,
        .reconsume_times = (int32_t)row->reconsume_times,
    };
    return fields;
}

static void check_way_back(const uint8_t *log, const struct rec_row *row, int checks)
{
    struct rec_fields fields = fields_of(log, row);
    size_t size = (size_t)row->size, found = 0;
    uint8_t *copy = room(size + REC_FILLER);
    enum rec_reason reason;
    CHECK(rec_encode(copy, 0, size + REC_FILLER - 1, &fields, &found, &reason) == REC_NO_ROOM);
    CHECK(is_zero(copy, size + REC_FILLER));
    CHECK(rec_encode(copy, 0, size + REC_FILLER, &fields, &found, &reason) == REC_OK);
    CHECK(found == size && is_zero(copy + size, REC_FILLER));
    if (!(checks & REC_CHECK_BODY) || row->body_size == 0) {
        memcpy(copy + REC_BODY_CRC_AT, log + row->position + REC_BODY_CRC_AT, 4);
    }
    CHECK(memcmp(copy, log + row->position, size) == 0);
    free(copy);
}

static void check_properties(const uint8_t *text, size_t size)
{
    struct rec_properties found;
    const struct rec_text *all = &found.keys;
    uint8_t *copy = malloc(size);
    if (size > 0) {
        memcpy(copy, text, size);
    }
    rec_find_properties(copy, size, &found);
    for (int n = 0; n < 4; n++) {
        CHECK(all[n].at == NULL || (all[n].size > 0 && all[n].at > copy &&
                                    all[n].size <= (size_t)(copy + size - all[n].at)));
    }
    free(copy);
}

/* Recovery accepts the same records as a scan with CRCs, up to the first doubtful record. */
static void check_walk(const uint8_t *log, size_t at, size_t end, int64_t base, int torn)
{
    struct walk_end walked;
    enum rec_status status = walk_records(log, at, end, base, torn, &walked), scanned;
    enum rec_reason reason;
    struct rec_row row;
    size_t count, stop = at;
    scanned = rec_scan(log, &stop, end, REC_CHECK_BODY, NULL, walked.count, &count, &reason);
    CHECK(scanned == REC_OK && count == walked.count && stop == walked.at);
    CHECK((status == REC_OK) == (walked.at >= end));
    if (status == REC_OK) {
        return;
    }
    scanned = rec_parse(log, walked.at, end, REC_CHECK_BODY, &row, &reason);
    if (walked.doubt == WALK_TRUSTED) {
        CHECK(scanned == status && reason == walked.reason);
    } else {
        CHECK(scanned == REC_OK && status == REC_BAD && (walked.doubt != WALK_TORN || torn));
        CHECK((walked.doubt == WALK_ELSEWHERE) == (row.physical_offset != base + row.position));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    unsigned mode = (unsigned)take(&input, 1);
    size_t start = (size_t)take(&input, 1), at = start, counted = start, count, all = 0;
    int64_t base = (int64_t)take(&input, 7);
    size_t end = input.left;
    uint8_t *log = take_copy(&input, end);
    int checks = (int)(mode & 3);
    struct rec_row *rows = room(MAX_ROWS * sizeof *rows), row;
    enum rec_reason reason, other;
    enum rec_status status = rec_parse(log, at, end, checks, &row, &other);

    if (mode & MODE_MEND && start < end) {
        mend(log, start, end, mode, base);
        status = rec_parse(log, at, end, checks, &row, &other);
    }
    CHECK(rec_reason_text(other) != NULL);
    for (enum rec_status scanned = REC_OK; scanned == REC_OK && at < end;) {
        size_t before = at;
        scanned = rec_scan(log, &at, end, checks, rows, MAX_ROWS, &count, &reason);
        CHECK(before != start || count > 0 || (scanned == status && reason == other));
        for (size_t n = 0; n < count; n++) {
            check_row(&rows[n], before, end);
            check_way_back(log, &rows[n], checks);
            check_properties(log + rows[n].properties_at, (size_t)rows[n].properties_size);
            before += (size_t)rows[n].size;
        }
        CHECK(before == at);
        all += count;
        status = scanned;
    }
    CHECK(start >= end ||
          rec_scan(log, &counted, end, checks, NULL, SIZE_MAX, &count, &reason) == status);
    CHECK(start >= end || (counted == at && count == all));
    check_properties(log, end);
    check_walk(log, start, end, base, (mode & MODE_TORN) != 0);
    free(rows);
    free(log);
    return 0;
}
