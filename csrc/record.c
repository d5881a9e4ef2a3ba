#include "record.h"

#include "bytes.h"
#include "crc32.h"

#define NAME_VALUE_SEPARATOR 0x01
#define PROPERTY_SEPARATOR 0x02
#define CRC_NAME "__CRC32#"
#define CRC_DIGITS 10
_Static_assert(sizeof CRC_NAME - 1 + 1 + CRC_DIGITS + 1 == REC_PROPERTY_CRC, "name, 1, digits, 2");

const char *rec_reason_text(enum rec_reason reason)
{
    switch (reason) {
    case REC_FINE: return "nothing is wrong";
    case REC_IS_FILLER: return "a filler, not a record";
    case REC_IS_CUT: return "the range ends inside the record";
    case REC_IS_EMPTY: return "the space is empty (size and magic are 0)";
    case REC_BAD_MAGIC: return "the magic is neither V1, V2 nor BLANK";
    case REC_BAD_SIZE: return "the size is too small or too large for a record";
    case REC_BAD_BODY_SIZE: return "the body length is negative or does not fit the record";
    case REC_BAD_TOPIC_SIZE: return "the topic length is negative or does not fit the record";
    case REC_BAD_PROPERTIES_SIZE:
        return "the properties length is negative, above 32767 or does not fit the record";
    case REC_BAD_TOTAL: return "the lengths inside the record do not add up to its size";
    case REC_BAD_BODY_CRC: return "the body does not have the stored CRC";
    case REC_BAD_PROPERTY_CRC: return "the CRC property is missing or wrong";
    case REC_BAD_HOST: return "a host is neither 8 bytes (IPv4) nor 20 (IPv6)";
    case REC_BAD_VERSION: return "the version is neither V1 nor V2";
    case REC_BAD_BATCH: return "the batch body is empty, or the sizes of an element do not add up";
    }
    return "unknown";
}

static enum rec_status bad(enum rec_reason *reason, enum rec_reason why)
{
    *reason = why;
    return REC_BAD;
}

/* The masked CRC of buf[0:len) as the 20 bytes of the CRC property. */
static void put_property_crc(uint8_t *at, uint32_t crc)
{
    memcpy(at, CRC_NAME, sizeof CRC_NAME - 1);
    at += sizeof CRC_NAME - 1;
    *at++ = NAME_VALUE_SEPARATOR;
    for (int digit = 0; digit < CRC_DIGITS; digit++, crc /= 10) {
        *at++ = (uint8_t)('0' + crc % 10);
    }
    *at = PROPERTY_SEPARATOR;
}

static int property_crc_ok(const uint8_t *record, size_t size, size_t properties_size)
{
    uint8_t expected[REC_PROPERTY_CRC];
    if (properties_size < REC_PROPERTY_CRC) {
        return 0;
    }
    put_property_crc(expected, crc32_masked(record, size - REC_PROPERTY_CRC));
    return memcmp(record + size - REC_PROPERTY_CRC, expected, REC_PROPERTY_CRC) == 0;
}

/* The variable part: body, topic, properties. `used` is the length up to the body. */
static enum rec_status parse_tail(const uint8_t *record, size_t size, size_t used,
                                  struct rec_row *row, enum rec_reason *reason)
{
    size_t topic_length_size = row->magic == REC_MAGIC_V1 ? 1 : 2;
    int32_t body_size = be_i32(record + used - 4);
    int32_t topic_size;
    int16_t properties_size;

    if (body_size < 0 || (size_t)body_size > size - used) {
        return bad(reason, REC_BAD_BODY_SIZE);
    }
    row->body_at = (int64_t)used;
    row->body_size = body_size;
    used += (size_t)body_size;
    if (size - used < topic_length_size) {
        return bad(reason, REC_BAD_TOTAL);
    }
    topic_size = topic_length_size == 1 ? (int8_t)record[used] : be_i16(record + used);
    used += topic_length_size;
    if (topic_size < 0 || (size_t)topic_size > size - used) {
        return bad(reason, REC_BAD_TOPIC_SIZE);
    }
    row->topic_at = (int64_t)used;
    row->topic_size = topic_size;
    used += (size_t)topic_size;
    if (size - used < 2) {
        return bad(reason, REC_BAD_TOTAL);
    }
    properties_size = be_i16(record + used);
    used += 2;
    if (properties_size < 0 || (size_t)properties_size > size - used) {
        return bad(reason, REC_BAD_PROPERTIES_SIZE);
    }
    row->properties_at = (int64_t)used;
    row->properties_size = properties_size;
    return used + (size_t)properties_size == size ? REC_OK : bad(reason, REC_BAD_TOTAL);
}

static void make_absolute(struct rec_row *row, int64_t position)
{
    row->position = position;
    row->born_host_at += position;
    row->store_host_at += position;
    row->body_at += position;
    row->topic_at += position;
    row->properties_at += position;
}

static enum rec_status check_sums(const uint8_t *record, int checks, struct rec_row *row,
                                  enum rec_reason *reason)
{
    const uint8_t *body = record + (row->body_at - row->position);
    row->crc_ok = 1;
    if ((checks & REC_CHECK_BODY) && row->body_size > 0 &&
        crc32_masked(body, (size_t)row->body_size) != (uint32_t)(int32_t)row->body_crc) {
        row->crc_ok = 0;
        return bad(reason, REC_BAD_BODY_CRC);
    }
    if ((checks & REC_CHECK_PROPERTY) &&
        !property_crc_ok(record, (size_t)row->size, (size_t)row->properties_size)) {
        return bad(reason, REC_BAD_PROPERTY_CRC);
    }
    return REC_OK;
}

enum rec_status rec_parse(const uint8_t *buf, size_t at, size_t end, int checks,
                          struct rec_row *row, enum rec_reason *reason)
{
    const uint8_t *record = buf + at;
    size_t born, store, size;
    enum rec_status status;

    *reason = REC_FINE;
    if (at > end || end - at < REC_MAGIC_AT + 4) {
        *reason = REC_IS_CUT;
        return REC_SHORT;
    }
    row->size = be_i32(record + REC_SIZE_AT);
    row->magic = be_i32(record + REC_MAGIC_AT);
    if (row->magic == REC_BLANK_MAGIC) {
        *reason = REC_IS_FILLER;
        return REC_BLANK;
    }
    if (row->magic != REC_MAGIC_V1 && row->magic != REC_MAGIC_V2) {
        return bad(reason, row->magic == 0 && row->size == 0 ? REC_IS_EMPTY : REC_BAD_MAGIC);
    }
    if (row->size < REC_MIN) {
        return bad(reason, REC_BAD_SIZE);
    }
    size = (size_t)row->size;
    if (size > end - at) {
        *reason = REC_IS_CUT;
        return REC_SHORT;
    }
    row->body_crc = be_i32(record + REC_BODY_CRC_AT);
    row->queue_id = be_i32(record + REC_QUEUE_ID_AT);
    row->flag = be_i32(record + REC_FLAG_AT);
    row->queue_offset = be_i64(record + REC_QUEUE_OFFSET_AT);
    row->physical_offset = be_i64(record + REC_PHYSICAL_OFFSET_AT);
    row->sys_flag = be_i32(record + REC_SYS_FLAG_AT);
    row->born_timestamp_ms = be_i64(record + REC_BORN_TIMESTAMP_AT);
    born = row->sys_flag & REC_SYS_BORN_V6 ? REC_HOST_V6 : REC_HOST_V4;
    store = row->sys_flag & REC_SYS_STORE_V6 ? REC_HOST_V6 : REC_HOST_V4;
    if (size < REC_FIXED + born + store) {
        return bad(reason, REC_BAD_SIZE);
    }
    row->born_host_at = REC_BORN_HOST_AT;
    row->born_host_size = (int64_t)born;
    record += REC_BORN_HOST_AT + born;
    row->store_timestamp_ms = be_i64(record);
    row->store_host_at = REC_BORN_HOST_AT + (int64_t)born + 8;
    row->store_host_size = (int64_t)store;
    record += 8 + store;
    row->reconsume_times = be_i32(record);
    row->prepared_transaction_offset = be_i64(record + 4);
    record = buf + at;
    status = parse_tail(record, size, REC_FIXED + born + store, row, reason);
    if (status != REC_OK) {
        return status;
    }
    make_absolute(row, (int64_t)at);
    return check_sums(record, checks, row, reason);
}

enum rec_status rec_scan(const uint8_t *buf, size_t *at, size_t end, int checks,
                         struct rec_row *rows, size_t max_rows, size_t *count,
                         enum rec_reason *reason)
{
    struct rec_row only;
    *reason = REC_FINE;
    for (*count = 0; *at < end && *count < max_rows; (*count)++) {
        struct rec_row *row = rows ? &rows[*count] : &only;
        enum rec_status status = rec_parse(buf, *at, end, checks, row, reason);
        if (status != REC_OK) {
            return status;
        }
        *at += (size_t)row->size;
    }
    return REC_OK;
}

/* RocketMQ separates its CRC property from a text that does not end with a separator. */
static size_t separator_size(const struct rec_fields *fields)
{
    return fields->property_crc && fields->properties_size > 0 &&
           fields->properties[fields->properties_size - 1] != PROPERTY_SEPARATOR;
}

enum rec_status rec_measure(const struct rec_fields *fields, size_t *size, enum rec_reason *reason)
{
    int is_v1 = fields->magic == REC_MAGIC_V1;
    size_t crc_size = fields->property_crc ? REC_PROPERTY_CRC : 0;
    size_t total;

    *reason = REC_FINE;
    if (!is_v1 && fields->magic != REC_MAGIC_V2) {
        return bad(reason, REC_BAD_VERSION);
    }
    if ((fields->born_host_size != REC_HOST_V4 && fields->born_host_size != REC_HOST_V6) ||
        (fields->store_host_size != REC_HOST_V4 && fields->store_host_size != REC_HOST_V6)) {
        return bad(reason, REC_BAD_HOST);
    }
    if (fields->topic_size > (is_v1 ? (size_t)REC_MAX_TOPIC_V1 : (size_t)REC_MAX_TOPIC_V2)) {
        return bad(reason, REC_BAD_TOPIC_SIZE);
    }
    if (fields->properties_size > REC_MAX_PROPERTIES ||
        fields->properties_size + separator_size(fields) + crc_size > REC_MAX_PROPERTIES) {
        return bad(reason, REC_BAD_PROPERTIES_SIZE);
    }
    total = REC_FIXED + fields->born_host_size + fields->store_host_size + (is_v1 ? 1 : 2) +
            fields->topic_size + 2 + fields->properties_size + separator_size(fields) + crc_size;
    if (fields->body_size > (size_t)INT32_MAX - total) {
        return bad(reason, REC_BAD_BODY_SIZE);
    }
    *size = total + fields->body_size;
    return REC_OK;
}

static uint8_t *put_bytes(uint8_t *at, const uint8_t *from, size_t size)
{
    if (size > 0) {
        memcpy(at, from, size);
    }
    return at + size;
}

static uint8_t *put_head(uint8_t *record, const struct rec_fields *fields, size_t size)
{
    uint8_t *at = record;
    int32_t sys_flag = fields->sys_flag & ~(REC_SYS_BORN_V6 | REC_SYS_STORE_V6);
    uint32_t crc = fields->body_size ? crc32_masked(fields->body, fields->body_size) : 0;

    sys_flag |= fields->born_host_size == REC_HOST_V6 ? REC_SYS_BORN_V6 : 0;
    sys_flag |= fields->store_host_size == REC_HOST_V6 ? REC_SYS_STORE_V6 : 0;
    be_put_i32(at + REC_SIZE_AT, (int32_t)size);
    be_put_i32(at + REC_MAGIC_AT, fields->magic);
    be_put_i32(at + REC_BODY_CRC_AT, (int32_t)crc);
    be_put_i32(at + REC_QUEUE_ID_AT, fields->queue_id);
    be_put_i32(at + REC_FLAG_AT, fields->flag);
    be_put_i64(at + REC_QUEUE_OFFSET_AT, fields->queue_offset);
    be_put_i64(at + REC_PHYSICAL_OFFSET_AT, fields->log_offset);
    be_put_i32(at + REC_SYS_FLAG_AT, sys_flag);
    be_put_i64(at + REC_BORN_TIMESTAMP_AT, fields->born_timestamp_ms);
    at = put_bytes(at + REC_BORN_HOST_AT, fields->born_host, fields->born_host_size);
    be_put_i64(at, fields->store_timestamp_ms);
    at = put_bytes(at + 8, fields->store_host, fields->store_host_size);
    be_put_i32(at, fields->reconsume_times);
    be_put_i64(at + 4, fields->prepared_transaction_offset);
    be_put_i32(at + 12, (int32_t)fields->body_size);
    return at + 16;
}

/* The size was checked before, so this fits. */
static void encode(uint8_t *record, const struct rec_fields *fields, size_t size)
{
    size_t separator = separator_size(fields);
    size_t crc_size = fields->property_crc ? REC_PROPERTY_CRC : 0;
    uint8_t *at = put_head(record, fields, size);

    at = put_bytes(at, fields->body, fields->body_size);
    if (fields->magic == REC_MAGIC_V1) {
        *at++ = (uint8_t)fields->topic_size;
    } else {
        be_put_i16(at, (int16_t)fields->topic_size);
        at += 2;
    }
    at = put_bytes(at, fields->topic, fields->topic_size);
    be_put_i16(at, (int16_t)(fields->properties_size + separator + crc_size));
    at = put_bytes(at + 2, fields->properties, fields->properties_size);
    if (separator) {
        *at++ = PROPERTY_SEPARATOR;
    }
    if (crc_size) {
        put_property_crc(at, crc32_masked(record, size - REC_PROPERTY_CRC));
    }
}

enum rec_status rec_encode(uint8_t *buf, size_t at, size_t limit, const struct rec_fields *fields,
                           size_t *size, enum rec_reason *reason)
{
    enum rec_status status = rec_measure(fields, size, reason);
    if (status != REC_OK) {
        return status;
    }
    if (at > limit || *size + REC_FILLER > limit - at) {
        return REC_NO_ROOM;
    }
    encode(buf + at, fields, *size);
    return REC_OK;
}

/* Read the element at batch[*at:len) into fields and move *at after it; 0 if it does not fit, or
 * its sizes contradict each other. */
int rec_next_element(const uint8_t *batch, size_t len, size_t *at, struct rec_fields *fields)
{
    const uint8_t *element = batch + *at;
    size_t left = len - *at;
    int32_t body_size;
    int16_t properties_size;

    if (left < REC_BATCH_MIN) {
        return 0;
    }
    fields->flag = be_i32(element + 12);
    body_size = be_i32(element + 16);
    left -= REC_BATCH_MIN;
    if (body_size < 0 || (size_t)body_size > left) {
        return 0;
    }
    fields->body = element + REC_BATCH_FIXED;
    fields->body_size = (size_t)body_size;
    left -= (size_t)body_size;
    properties_size = be_i16(fields->body + body_size);
    if (properties_size < 0 || (size_t)properties_size > left) {
        return 0;
    }
    fields->properties = fields->body + body_size + 2;
    fields->properties_size = (size_t)properties_size;
    left -= (size_t)properties_size;
    if (be_i32(element) < 0 || (size_t)be_i32(element) != len - left - *at) {
        return 0;
    }
    *at = len - left;
    return 1;
}

/* Count the elements and sum the sizes of their records. */
static enum rec_status measure_batch(const uint8_t *batch, size_t len,
                                     const struct rec_fields *common, size_t *count,
                                     size_t *total, enum rec_reason *reason)
{
    struct rec_fields fields = *common;
    size_t at = 0, size;

    *reason = REC_FINE;
    *count = *total = 0;
    while (at < len) {
        if (!rec_next_element(batch, len, &at, &fields)) {
            return bad(reason, REC_BAD_BATCH);
        }
        if (rec_measure(&fields, &size, reason) != REC_OK) {
            return REC_BAD;
        }
        *total += size;
        *count += 1;
        if (*count > REC_BATCH_COUNT_MAX) {
            return bad(reason, REC_BAD_BATCH);
        }
    }
    return *count > 0 ? REC_OK : bad(reason, REC_BAD_BATCH);
}

enum rec_status rec_count_batch(const uint8_t *batch, size_t len, size_t *count, size_t *payload,
                                enum rec_reason *reason)
{
    struct rec_fields fields = {0};
    size_t at = 0;

    *reason = REC_FINE;
    *count = *payload = 0;
    while (at < len) {
        if (*count == REC_BATCH_COUNT_MAX || !rec_next_element(batch, len, &at, &fields)) {
            return bad(reason, REC_BAD_BATCH);
        }
        *payload += fields.body_size + fields.properties_size;
        *count += 1;
    }
    return *count > 0 ? REC_OK : bad(reason, REC_BAD_BATCH);
}

enum rec_status rec_encode_batch(uint8_t *buf, size_t at, size_t limit, const uint8_t *batch,
                                 size_t len, const struct rec_fields *common, size_t *count,
                                 enum rec_reason *reason)
{
    struct rec_fields fields = *common;
    size_t total, size = 0, read = 0;
    enum rec_status status = measure_batch(batch, len, common, count, &total, reason);

    if (status != REC_OK) {
        return status;
    }
    if (at > limit || total + REC_FILLER > limit - at) {
        return REC_NO_ROOM;
    }
    for (size_t i = 0; i < *count; i++) {
        rec_next_element(batch, len, &read, &fields);
        rec_measure(&fields, &size, reason);
        encode(buf + at, &fields, size);
        at += size;
        fields.log_offset += (int64_t)size;
        fields.queue_offset += 1;
    }
    return REC_OK;
}

enum rec_status rec_encode_filler(uint8_t *buf, size_t at, size_t limit)
{
    if (at > limit || limit - at < REC_FILLER || limit - at > INT32_MAX) {
        return REC_NO_ROOM;
    }
    be_put_i32(buf + at, (int32_t)(limit - at));
    be_put_i32(buf + at + 4, REC_BLANK_MAGIC);
    return REC_OK;
}

static int is_name(const uint8_t *at, size_t size, const char *name, size_t name_size)
{
    return size == name_size && memcmp(at, name, name_size) == 0;
}

#define IS_NAME(at, size, name) is_name(at, size, name, sizeof name - 1)

static void take_property(const uint8_t *name, size_t size, struct rec_text value,
                          struct rec_properties *found)
{
    if (IS_NAME(name, size, "UNIQ_KEY")) {
        found->uniq_key = value;
    } else if (IS_NAME(name, size, "KEYS")) {
        found->keys = value;
    } else if (IS_NAME(name, size, "TAGS")) {
        found->tags = value;
    } else if (IS_NAME(name, size, "DELAY")) {
        found->delay = value;
    }
}

void rec_find_properties(const uint8_t *text, size_t size, struct rec_properties *found)
{
    const uint8_t *at = text, *end = text + size;

    memset(found, 0, sizeof *found);
    while (at < end) {
        size_t left = (size_t)(end - at);
        const uint8_t *stop = memchr(at, PROPERTY_SEPARATOR, left);
        const uint8_t *middle;
        if (stop == NULL) {
            stop = end;
        }
        middle = memchr(at, NAME_VALUE_SEPARATOR, (size_t)(stop - at));
        if (middle != NULL && middle > at && middle + 1 < stop) {
            struct rec_text value = {middle + 1, (size_t)(stop - middle - 1)};
            take_property(at, (size_t)(middle - at), value, found);
        }
        at = stop + 1;
    }
}
