#include "grpc_message.h"

#include <string.h>

#include "bytes.h"
#include "digits.h"
#include "protobuf.h"
#include "record.h"
#include "wire_constants.h" /* generated */

enum {
    TRANSACTION = 4, DELAY = 3, FIFO = 2, NORMAL = 1,
    MD5 = 2, IDENTITY = 1,
    COMPRESSED = 0x1, NEED_UNWRAP = 0x40, INNER_BATCH = 0x80, /* bits of sysFlag */
    DUE_DIGITS = 15, ADDRESS = 32, LENGTH_MAX = 5, NANOS_OF_MS = 1000000,
    /* Room for receipt handle, hosts, ids, times, and tags of fields, not for the record's own
     * texts. */
    OWN_MAX = 1024, PAIR_MIN = 4, PAIR_MORE = 12, NAME_ROOM = 32
};

/* The purposes of properties, by their names. */
enum purpose { USERS, HIDDEN, IS_TAG, IS_KEYS, IS_ID, IS_HOST, IS_DUE, IS_LEVEL, IS_HALF,
               IS_GROUP, IS_TRACE, IS_RARE, PURPOSES };
#define NAME(text, purpose) {text, sizeof(text) - 1, purpose}
#define HIDDEN_NAME(text) NAME(text, HIDDEN),
static const struct known {
    char name[NAME_ROOM]; /* an array: pointers would need relocation */
    uint32_t size;
    enum purpose purpose;
} KNOWN[] = {
    /* Those of each record, and those with a purpose; the search ends at the first. */
    NAME("UNIQ_KEY", IS_ID), NAME("MSG_REGION", HIDDEN), NAME("TRACE_ON", HIDDEN),
    NAME("CLUSTER", HIDDEN), NAME("TAGS", IS_TAG), NAME("KEYS", IS_KEYS), NAME("WAIT", HIDDEN),
    NAME("__BORNHOST", IS_HOST), NAME("BORN_TIMESTAMP", HIDDEN), NAME("__SHARDINGKEY", IS_GROUP),
    NAME("TRACE_CONTEXT", IS_TRACE), NAME("TIMER_DELIVER_MS", IS_DUE), NAME("DELAY", IS_LEVEL),
    NAME("TRAN_MSG", IS_HALF), NAME("DLQ_ORIGIN_TOPIC", IS_RARE),
    NAME("DLQ_ORIGIN_MESSAGE_ID", IS_RARE), NAME("POP_CK", IS_RARE),
    RESERVED_PROPERTIES(HIDDEN_NAME)
};

struct pair {
    struct trf_text name, value;
};

/* The properties of a record: its user's, and the broker's that the message repeats in a field. */
struct split {
    struct pair users[GRM_PAIRS];
    int user_count;
    struct trf_text of[PURPOSES]; /* at == NULL: missing */
};

static enum purpose purpose_of(struct trf_text name)
{
    size_t i, small = 0;
    for (i = 0; i < name.size; i++) {
        small |= name.at[i] >= 'a' && name.at[i] <= 'z';
    }
    if (small && name.at[0] != '_') {
        return USERS; /* names of system properties are in capitals, or begin with an underscore */
    }
    for (i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        if (KNOWN[i].size == name.size && memcmp(KNOWN[i].name, name.at, name.size) == 0) {
            return KNOWN[i].purpose;
        }
    }
    return USERS;
}

static int is_same(struct trf_text one, struct trf_text other)
{
    return one.size == other.size && (one.size == 0 || memcmp(one.at, other.at, one.size) == 0);
}

static int is_ascii(const uint8_t *at, size_t size)
{
    uint8_t all = 0;
    for (size_t i = 0; i < size; i++) {
        all |= at[i];
    }
    return all < 0x80;
}

/* Read one property; 0 for a repeated name. A property without a name or a value is ignored. */
static int take_pair(struct split *split, struct trf_text pair, struct trf_text *seen, int *count)
{
    const uint8_t *stop = memchr(pair.at, 1, pair.size);
    struct trf_text name = {pair.at, stop == NULL ? 0 : (uint32_t)(stop - pair.at)}, value;
    enum purpose purpose;
    if (name.size == 0 || name.size + 1 == pair.size) {
        return 1;
    }
    value.at = stop + 1;
    value.size = pair.size - name.size - 1;
    for (int i = 0; i < *count; i++) {
        if (is_same(seen[i], name)) {
            return 0;
        }
    }
    if (*count == GRM_PAIRS) {
        return 0;
    }
    seen[(*count)++] = name;
    purpose = purpose_of(name);
    if (purpose == USERS) {
        split->users[split->user_count].name = name;
        split->users[split->user_count++].value = value;
    } else {
        split->of[purpose] = value;
    }
    return purpose != IS_RARE;
}

static int split_properties(const uint8_t *at, size_t size, struct split *split)
{
    const uint8_t *end = at + size;
    struct trf_text seen[GRM_PAIRS];
    int count = 0;
    split->user_count = 0;
    memset(split->of, 0, sizeof split->of);
    while (at < end) {
        const uint8_t *stop = memchr(at, 2, (size_t)(end - at));
        struct trf_text pair = {at, (uint32_t)((stop == NULL ? end : stop) - at)};
        if (!take_pair(split, pair, seen, &count)) {
            return 0;
        }
        at = stop == NULL ? end : stop + 1;
    }
    return 1;
}

/* Begin a message of protobuf whose size is not known yet; returns the position of its bytes. */
static uint8_t *begin(uint8_t *out, uint8_t tag)
{
    *out = tag;
    return out + 1 + LENGTH_MAX;
}

/* End the message begun at `inner`: write its size and move its bytes next to it; returns its
 * end. */
static uint8_t *finish(uint8_t *inner, uint8_t *end, size_t more)
{
    size_t size = (size_t)(end - inner);
    uint8_t *at = pb_put_varint(inner - LENGTH_MAX, size + more);
    memmove(at, inner, size);
    return at + size;
}

static uint8_t *put_number(uint8_t *out, uint8_t tag, int64_t value)
{
    if (value != 0) {
        *out++ = tag;
        out = pb_put_varint(out, (uint64_t)value);
    }
    return out;
}

/* A number of an optional field, whose tag may have two bytes. */
static uint8_t *put_always(uint8_t *out, uint64_t tag, int64_t value)
{
    out = pb_put_varint(out, tag);
    return pb_put_varint(out, (uint64_t)value);
}

static uint8_t *put_time(uint8_t *out, uint8_t tag, int64_t at_ms)
{
    uint8_t *inner = begin(out, tag), *end = put_number(inner, 0x08, at_ms / 1000);
    return finish(inner, put_number(end, 0x10, at_ms % 1000 * NANOS_OF_MS), 0);
}

/* A text of a field whose tag may be of two bytes. */
static uint8_t *put_text(uint8_t *out, uint64_t tag, struct trf_text text)
{
    if (text.size == 0) {
        return out;
    }
    out = pb_put_varint(out, tag);
    out = pb_put_varint(out, text.size);
    memcpy(out, text.at, text.size);
    return out + text.size;
}

/* `ip:port` of a packed host of IPv4. */
static struct trf_text address_of(const uint8_t *host, uint8_t out[ADDRESS])
{
    uint8_t *at = out;
    for (int i = 0; i < 4; i++) {
        at = digits_put(at, host[i]);
        *at++ = i < 3 ? '.' : ':';
    }
    at = digits_put(at, (uint32_t)be_i32(host + 4));
    return (struct trf_text){out, (uint32_t)(at - out)};
}

static int is_blank(uint8_t byte)
{
    return byte == ' ' || (byte >= 0x09 && byte <= 0x0d) || (byte >= 0x1c && byte <= 0x1f);
}

static uint8_t *put_keys(uint8_t *out, struct trf_text keys)
{
    const uint8_t *at = keys.at, *end = keys.at + keys.size;
    while (at < end) {
        const uint8_t *first = at;
        while (at < end && !is_blank(*at)) {
            at++;
        }
        out = pb_put_text(out, 0x12, (struct trf_text){first, (uint32_t)(at - first)});
        at += at < end;
    }
    return out;
}

static uint8_t *put_handle(uint8_t *out, const struct grm_pop *pop, const struct rec_row *row)
{
    uint8_t *inner = begin(out, 0x62), *at = inner;
    const int64_t before[] = {pop->start, pop->pop_time_ms, pop->invisible_ms,
                              pop->revive_queue_id, 0};
    const int64_t behind[] = {pop->queue_id, row->queue_offset, row->physical_offset};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        at = digits_put(at, (uint64_t)before[i]);
        *at++ = ' ';
    }
    memcpy(at, pop->broker_name.at, pop->broker_name.size);
    at += pop->broker_name.size;
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        *at++ = ' ';
        at = digits_put(at, (uint64_t)behind[i]);
    }
    return finish(inner, at, 0);
}

static int is_true(struct trf_text text)
{
    return text.size == 4 && memcmp(text.at, "true", 4) == 0;
}

static int type_of(const struct split *split)
{
    struct trf_text level = split->of[IS_LEVEL];
    int has_level = level.size > 0 && !(level.size == 1 && level.at[0] == '0');
    if (is_true(split->of[IS_HALF])) {
        return TRANSACTION;
    }
    if (split->of[IS_DUE].size > 0 || has_level) {
        return DELAY;
    }
    return split->of[IS_GROUP].size > 0 ? FIFO : NORMAL;
}

static uint8_t *put_system(uint8_t *out, const struct grm_pop *pop, const uint8_t *record,
                           const struct rec_row *row, const struct split *split,
                           struct grm_message *made)
{
    uint8_t text[ADDRESS];
    struct trf_text born = split->of[IS_HOST];
    int64_t due_ms;
    out = pb_put_text(out, 0x0a, split->of[IS_TAG]);
    out = put_keys(out, split->of[IS_KEYS]);
    out = pb_put_text(out, 0x1a, split->of[IS_ID]);
    made->message_id.at = out - split->of[IS_ID].size;
    *out++ = 0x22; /* the digest: its type, and always 32 digits */
    *out++ = 4 + GRM_DIGEST;
    *out++ = 0x08;
    *out++ = MD5;
    *out++ = 0x12;
    *out++ = GRM_DIGEST;
    made->digest = out;
    out += GRM_DIGEST;
    out = put_number(out, 0x28, IDENTITY);
    out = put_number(out, 0x30, type_of(split));
    out = put_time(out, 0x3a, row->born_timestamp_ms);
    born = born.size > 0 ? born : address_of(record + row->born_host_at, text);
    out = pb_put_text(out, 0x42, born);
    out = put_time(out, 0x4a, row->store_timestamp_ms);
    out = pb_put_text(out, 0x52, address_of(record + row->store_host_at, text));
    if (digits_read(split->of[IS_DUE].at, split->of[IS_DUE].size, DUE_DIGITS, &due_ms)) {
        out = put_time(out, 0x5a, due_ms);
    }
    out = put_handle(out, pop, row);
    out = put_number(out, 0x68, row->queue_id);
    out = put_always(out, 0x70, row->queue_offset);
    out = put_always(out, 0x80, row->reconsume_times + 1);
    out = put_text(out, 0x8a, split->of[IS_GROUP]);
    return put_text(out, 0x92, split->of[IS_TRACE]);
}

static int is_wanted(const struct grm_pop *pop, struct trf_text tag)
{
    int found = pop->tag_count == 0;
    for (int32_t i = 0; !found && i < pop->tag_count; i++) {
        found = is_same(pop->tags[i], tag);
    }
    return found;
}

/* Whether this file may write the record's message. */
static int is_plain(const struct grm_pop *pop, const uint8_t *record, size_t size,
                    int64_t queue_offset, struct rec_row *row, struct split *split)
{
    enum rec_reason reason;
    return rec_parse(record, 0, size, REC_CHECK_BODY, row, &reason) == REC_OK &&
           row->size == (int64_t)size && row->queue_id == pop->queue_id &&
           row->queue_offset == queue_offset && row->born_host_size == REC_HOST_V4 &&
           row->store_host_size == REC_HOST_V4 && row->physical_offset >= 0 &&
           (row->sys_flag & (COMPRESSED | NEED_UNWRAP | INNER_BATCH)) == 0 &&
           row->born_timestamp_ms >= 0 && row->store_timestamp_ms >= 0 &&
           row->reconsume_times >= 0 && row->reconsume_times < pop->attempts_max &&
           is_ascii(record + row->topic_at, (size_t)row->topic_size) &&
           is_ascii(record + row->properties_at, (size_t)row->properties_size) &&
           split_properties(record + row->properties_at, (size_t)row->properties_size, split) &&
           split->of[IS_ID].size > 0 && is_wanted(pop, split->of[IS_TAG]);
}

size_t grm_room(size_t size, size_t count)
{
    return size + size / PAIR_MIN * PAIR_MORE + count * OWN_MAX;
}

size_t grm_record_size(const uint8_t *record, size_t left)
{
    int32_t size = left < sizeof size ? 0 : be_i32(record);
    return size > 0 && (size_t)size <= left ? (size_t)size : 0;
}

size_t grm_write(const struct grm_pop *pop, const uint8_t *record, size_t size,
                 int64_t queue_offset, uint8_t *out, struct grm_message *made)
{
    struct rec_row row;
    struct split split;
    uint8_t body_head[1 + LENGTH_MAX], *message, *inner, *at;
    size_t digest_to_end, id_to_end, head_size = 0, total;
    if (!is_plain(pop, record, size, queue_offset, &row, &split)) {
        return 0;
    }
    message = begin(out + GRC_PREFIX, 0x12);
    inner = begin(message, 0x0a); /* the topic is a Resource */
    at = put_text(inner, 0x12, (struct trf_text){record + row.topic_at, (uint32_t)row.topic_size});
    at = finish(inner, at, 0);
    for (int i = 0; i < split.user_count; i++) {
        inner = begin(at, 0x12);
        at = pb_put_text(inner, 0x0a, split.users[i].name);
        at = finish(inner, pb_put_text(at, 0x12, split.users[i].value), 0);
    }
    inner = begin(at, 0x1a);
    at = put_system(inner, pop, record, &row, &split, made);
    digest_to_end = (size_t)(at - made->digest); /* distance from the end, which moving the bytes
                                                  * keeps */
    id_to_end = (size_t)(at - made->message_id.at);
    at = finish(inner, at, 0);
    if (row.body_size > 0) {
        body_head[0] = 0x22;
        head_size = (size_t)(pb_put_varint(body_head + 1, (uint64_t)row.body_size) - body_head);
    }
    at = finish(message, at, head_size + (size_t)row.body_size);
    made->digest = at - digest_to_end;
    made->message_id.at = at - id_to_end;
    made->message_id.size = split.of[IS_ID].size;
    memcpy(at, body_head, head_size);
    made->body = at + head_size;
    made->body_size = (size_t)row.body_size;
    memcpy(made->body, record + row.body_at, made->body_size);
    made->start = pop->start;
    made->queue_id = pop->queue_id;
    made->queue_offset = row.queue_offset;
    made->log_offset = row.physical_offset;
    total = (size_t)(made->body + made->body_size - out);
    out[0] = 0; /* not compressed */
    be_put_i32(out + 1, (int32_t)(total - GRC_PREFIX));
    return total;
}

void grm_digest(const struct grm_message *made, const uint8_t *md5)
{
    static const char digits[] = "0123456789ABCDEF";
    for (int i = 0; i < GRM_DIGEST / 2; i++) {
        made->digest[2 * i] = (uint8_t)digits[md5[i] >> 4];
        made->digest[2 * i + 1] = (uint8_t)digits[md5[i] & 0x0f];
    }
}
