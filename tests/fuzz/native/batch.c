/* Batch bodies: either all elements become records that a scan accepts, or no byte is written.
 * Input: mode, topic size, then the batch. */
#include "record.h"

#include "bytes.h"
#include "fuzz.h"

enum {
    MODE_V1 = 1,
    MODE_PROPERTY_CRC = 2,
    MODE_BORN_V6 = 4,
    MODE_STORE_V6 = 8,
    MODE_LONG_TOPIC = 16,
    FEW = 64,   /* bytes of a batch whose records have topics of 32 KB */
    BEFORE = 3, /* bytes before the records, which must not change */
    QUEUE_OFFSET = 7,
    MAX_ADDED = REC_FIXED + 2 * REC_HOST_V6 + 4 + 1 + REC_PROPERTY_CRC
};

/* Check that each element equals the content of its record. */
static void check_records(const uint8_t *log, size_t at, size_t end, const uint8_t *batch,
                          size_t len, size_t count, int checks)
{
    size_t read = 0, n = 0;
    for (; read < len; n++) {
        struct rec_row row;
        enum rec_reason reason;
        size_t body_size = (size_t)be_i32(batch + read + 16);
        size_t properties_at = read + REC_BATCH_FIXED + body_size + 2;
        size_t properties_size = (size_t)be_i16(batch + properties_at - 2);
        CHECK(rec_parse(log, at, end, checks, &row, &reason) == REC_OK);
        CHECK(row.queue_offset == (int64_t)(QUEUE_OFFSET + n));
        CHECK(row.physical_offset == (int64_t)at - BEFORE);
        CHECK(row.flag == be_i32(batch + read + 12) && (size_t)row.body_size == body_size);
        CHECK(memcmp(log + row.body_at, batch + read + REC_BATCH_FIXED, body_size) == 0);
        CHECK((size_t)row.properties_size >= properties_size);
        CHECK(memcmp(log + row.properties_at, batch + properties_at, properties_size) == 0);
        at += (size_t)row.size;
        read = properties_at + properties_size;
    }
    CHECK(n == count && at == end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t host[REC_HOST_V6] = {127, 0, 0, 1, 0, 0, 0x2A, 0x9F};
    struct input input = {data, size};
    unsigned mode = (unsigned)take(&input, 1);
    size_t topic_size = (size_t)take(&input, 1) + (mode & MODE_LONG_TOPIC ? REC_MAX_TOPIC_V2 : 0);
    size_t len = mode & MODE_LONG_TOPIC && input.left > FEW ? FEW : input.left;
    size_t count = 0, second = 0, total = 0;
    size_t large = BEFORE + len + (len / REC_BATCH_MIN + 1) * (MAX_ADDED + topic_size) + REC_FILLER;
    uint8_t *batch = take_copy(&input, len), *topic = room(topic_size), *log = room(large), *exact;
    int checks = REC_CHECK_BODY | (mode & MODE_PROPERTY_CRC ? REC_CHECK_PROPERTY : 0);
    struct rec_fields common = {
        .topic = topic,
        .topic_size = topic_size,
        .born_host = host,
        .born_host_size = mode & MODE_BORN_V6 ? REC_HOST_V6 : REC_HOST_V4,
        .store_host = host,
        .store_host_size = mode & MODE_STORE_V6 ? REC_HOST_V6 : REC_HOST_V4,
        .queue_offset = QUEUE_OFFSET,
        .magic = mode & MODE_V1 ? REC_MAGIC_V1 : REC_MAGIC_V2,
        .sys_flag = -1,
        .property_crc = mode & MODE_PROPERTY_CRC,
    };
    enum rec_reason reason;
    enum rec_status status =
        rec_encode_batch(log, BEFORE, large, batch, len, &common, &count, &reason);

    CHECK(status == REC_OK || status == REC_BAD);
    if (status == REC_BAD) {
        CHECK(reason != REC_FINE && is_zero(log, large));
    } else {
        CHECK(is_zero(log, BEFORE) && is_zero(log + large - REC_FILLER, REC_FILLER));
        for (size_t n = 0; n < count; n++) {
            total += (size_t)be_i32(log + BEFORE + total);
        }
        check_records(log, BEFORE, BEFORE + total, batch, len, count, checks);
        exact = room(BEFORE + total + REC_FILLER);
        status = rec_encode_batch(exact, BEFORE, BEFORE + total + REC_FILLER - 1, batch, len,
                                  &common, &second, &reason);
        CHECK(status == REC_NO_ROOM && is_zero(exact, BEFORE + total + REC_FILLER));
        status = rec_encode_batch(exact, BEFORE, BEFORE + total + REC_FILLER, batch, len, &common,
                                  &second, &reason);
        CHECK(status == REC_OK && second == count && memcmp(exact, log, BEFORE + total) == 0);
        CHECK(rec_encode_filler(exact, BEFORE + total, BEFORE + total + REC_FILLER) == REC_OK);
        free(exact);
    }
    free(log);
    free(topic);
    free(batch);
    return 0;
}
