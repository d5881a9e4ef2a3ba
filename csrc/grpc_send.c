#include "grpc_send.h"

#include <string.h>

#include "bytes.h"
#include "digits.h"

enum { PREFIX = 5, VARINT = 0, TEXT = 2 };
enum { SEEN_METHOD = 1, SEEN_PATH = 2, SEEN_CONTENT = 4, SEEN_CLIENT = 8, SEEN_NEEDED = 15,
       SEEN_TIMEOUT = 16, SEEN_ENCODING = 32 };
enum { IDENTITY = 1, NORMAL = 1, NANOS = 1000000000, NANOS_OF_MS = 1000000 };
static const int64_t SECONDS_MAX = ((int64_t)1 << 53) / 1000 - 1;

static int is(struct trf_text text, const char *word)
{
    size_t size = strlen(word);
    return text.size == size && memcmp(text.at, word, size) == 0;
}

static int begins(struct trf_text text, const char *word)
{
    size_t size = strlen(word);
    return text.size >= size && memcmp(text.at, word, size) == 0;
}

/* All of it printable ASCII. */
static int is_printable(struct trf_text text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (text.at[i] < 0x20 || text.at[i] > 0x7e) {
            return 0;
        }
    }
    return 1;
}

/* Printable, and something else than spaces. */
static int is_word(struct trf_text text, size_t most)
{
    size_t spaces = 0;
    while (spaces < text.size && text.at[spaces] == ' ') {
        spaces++;
    }
    return spaces < text.size && text.size <= most && is_printable(text);
}

static int is_timeout(struct trf_text text)
{
    int64_t number;
    return text.size > 1 && memchr("HMSmun", text.at[text.size - 1], 6) != NULL &&
           digits_read(text.at, text.size - 1, 8, &number);
}

void grs_header(struct grs_head *head, struct trf_text name, struct trf_text value)
{
    int bit = 0, fits = 1;
    if (is(name, ":method")) {
        bit = SEEN_METHOD;
        fits = is(value, "POST");
    } else if (is(name, ":path")) {
        bit = SEEN_PATH;
        fits = is(value, "/apache.rocketmq.v2.MessagingService/SendMessage");
    } else if (is(name, "content-type")) {
        bit = SEEN_CONTENT;
        fits = begins(value, "application/grpc");
    } else if (is(name, "x-mq-client-id")) {
        bit = SEEN_CLIENT;
        fits = is_word(value, GRS_NAME_MAX);
        head->client_id = value;
    } else if (is(name, "grpc-timeout")) {
        bit = SEEN_TIMEOUT;
        fits = is_timeout(value);
    } else if (is(name, "grpc-encoding")) {
        bit = SEEN_ENCODING;
        fits = is(value, "identity");
    }
    head->is_other |= !fits || (head->seen & bit) != 0;
    head->seen |= (uint8_t)bit;
}

int grs_is_plain(const struct grs_head *head)
{
    return !head->is_other && (head->seen & SEEN_NEEDED) == SEEN_NEEDED;
}

/* What is left of a message of protobuf, and the field that was read of it. */
struct parts {
    const uint8_t *at, *end;
    uint64_t number, value; /* `value` of a VARINT */
    int kind;
    struct trf_text text;
};

static int varint(struct parts *parts, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 63 && parts->at < parts->end; shift += 7) {
        uint8_t byte = *parts->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return 1;
        }
    }
    return 0; /* cut off, or of ten bytes: negative */
}

/* The next field; 0: there is none, -1: it is none that is read here. */
static int next(struct parts *parts)
{
    uint64_t tag, size;
    if (parts->at == parts->end) {
        return 0;
    }
    if (!varint(parts, &tag) || tag >> 3 == 0 || tag >> 32 != 0) {
        return -1;
    }
    parts->number = tag >> 3;
    parts->kind = (int)(tag & 7);
    parts->text.at = NULL;
    parts->text.size = 0;
    if (parts->kind == VARINT) {
        return varint(parts, &parts->value) ? 1 : -1;
    }
    if (parts->kind != TEXT || !varint(parts, &size) ||
        size > (uint64_t)(parts->end - parts->at)) {
        return -1;
    }
    parts->text.at = parts->at;
    parts->text.size = (uint32_t)size; /* of a read */
    parts->at += size;
    return 1;
}

static struct parts parts_of(struct trf_text text)
{
    return (struct parts){.at = text.at, .end = text.at + text.size};
}

static int read_topic(struct trf_text text, struct grs_message *message)
{
    struct parts parts = parts_of(text);
    int found;
    if (message->topic.at != NULL) {
        return 0;
    }
    while ((found = next(&parts)) > 0) {
        if (parts.kind != TEXT || parts.number > 2 || !is_printable(parts.text)) {
            return 0;
        }
        if (parts.number == 2) {
            message->topic = parts.text;
        }
    }
    return found == 0 && is_word(message->topic, GRS_NAME_MAX);
}

/* Names that are the system's are in capitals, or begin with an underscore. */
static int is_producers(struct trf_text name)
{
    int is_small = 0;
    for (size_t i = 0; i < name.size; i++) {
        is_small |= name.at[i] >= 'a' && name.at[i] <= 'z';
    }
    return is_small && name.at[0] != '_';
}

static int read_property(struct trf_text text, struct grs_message *message)
{
    struct parts parts = parts_of(text);
    struct grs_property *made = &message->properties[message->property_count];
    int found;
    if (message->property_count == GRS_PROPERTIES) {
        return 0;
    }
    memset(made, 0, sizeof *made);
    while ((found = next(&parts)) > 0) {
        if (parts.kind != TEXT || parts.number > 2 || !is_printable(parts.text)) {
            return 0;
        }
        *(parts.number == 1 ? &made->name : &made->value) = parts.text;
    }
    if (found < 0 || !is_producers(made->name)) {
        return 0;
    }
    for (int i = 0; i < message->property_count; i++) {
        struct trf_text *other = &message->properties[i].name;
        if (other->size == made->name.size &&
            memcmp(other->at, made->name.at, made->name.size) == 0) {
            return 0;
        }
    }
    message->property_count++;
    return 1;
}

/* A time in seconds and nanoseconds. */
static int read_time(struct trf_text text, struct grs_message *message)
{
    struct parts parts = parts_of(text);
    uint64_t seconds = 0, nanos = 0;
    int found;
    while ((found = next(&parts)) > 0) {
        if (parts.kind != VARINT || parts.number > 2) {
            return 0;
        }
        *(parts.number == 1 ? &seconds : &nanos) = parts.value;
    }
    if (found < 0 || message->born_ms != 0 || seconds > (uint64_t)SECONDS_MAX || nanos >= NANOS) {
        return 0;
    }
    message->born_ms = (int64_t)seconds * 1000 + (int64_t)nanos / NANOS_OF_MS;
    return 1;
}

/* A digest is not looked at, but it is one. */
static int is_digest(struct trf_text text)
{
    struct parts parts = parts_of(text);
    int found;
    while ((found = next(&parts)) > 0) {
        if (parts.kind != (parts.number == 1 ? VARINT : TEXT) || parts.number > 2 ||
            parts.value >> 31 != 0 || !is_printable(parts.text)) {
            return 0;
        }
    }
    return found == 0;
}

static int is_tag(struct trf_text text)
{
    return is_word(text, GRS_TEXTS_MAX) && memchr(text.at, '|', text.size) == NULL;
}

static int read_system_text(const struct parts *parts, struct grs_message *message)
{
    struct trf_text text = parts->text;
    switch (parts->number) {
    case 1:
        message->tag = text;
        return is_tag(text);
    case 2:
        if (message->key_count == GRS_KEYS) {
            return 0;
        }
        message->keys[message->key_count++] = text;
        return is_word(text, GRS_TEXTS_MAX);
    case 3:
        message->message_id = text;
        return is_word(text, GRS_NAME_MAX);
    case 4:
        return is_digest(text);
    case 7:
        return read_time(text, message);
    case 8:
        message->born_host = text;
        return is_printable(text) && text.size <= GRS_NAME_MAX;
    case 18:
        message->trace_context = text;
        return is_printable(text) && text.size <= GRS_TEXTS_MAX;
    default:
        return 0;
    }
}

static int is_plain_number(const struct parts *parts)
{
    switch (parts->number) {
    case 5:
        return parts->value <= IDENTITY;
    case 6:
        return parts->value <= NORMAL;
    case 13:
    case 14:
    case 16:
        return parts->value >> 31 == 0; /* what only a delivery says */
    default:
        return 0;
    }
}

static int read_system(struct trf_text text, struct grs_message *message)
{
    struct parts parts = parts_of(text);
    int found;
    if (message->message_id.at != NULL) {
        return 0;
    }
    while ((found = next(&parts)) > 0) {
        if (parts.kind == VARINT ? !is_plain_number(&parts) : !read_system_text(&parts, message)) {
            return 0;
        }
    }
    return found == 0 && message->message_id.at != NULL;
}

/* As much as a properties text of GRS_PROPERTIES_ROOM has room for, and less than may be sent. */
static int is_small(const struct grs_message *message)
{
    size_t size = message->tag.size + message->trace_context.size;
    for (int i = 0; i < message->key_count; i++) {
        size += message->keys[i].size;
    }
    for (int i = 0; i < message->property_count; i++) {
        size += message->properties[i].name.size + message->properties[i].value.size;
    }
    return size <= GRS_TEXTS_MAX;
}

int grs_read(const uint8_t *data, size_t size, struct grs_message *message)
{
    struct parts outer, parts;
    int found;
    if (size < PREFIX || data[0] != 0 || be_u32(data + 1) != size - PREFIX) {
        return 0;
    }
    outer = (struct parts){.at = data + PREFIX, .end = data + size};
    if (next(&outer) <= 0 || outer.number != 1 || outer.kind != TEXT || outer.at != outer.end) {
        return 0;
    }
    memset(message, 0, offsetof(struct grs_message, keys));
    message->key_count = message->property_count = 0;
    message->born_ms = 0;
    parts = parts_of(outer.text);
    while ((found = next(&parts)) > 0) {
        int is_read = 0;
        if (parts.kind == TEXT && parts.number == 1) {
            is_read = read_topic(parts.text, message);
        } else if (parts.kind == TEXT && parts.number == 2) {
            is_read = read_property(parts.text, message);
        } else if (parts.kind == TEXT && parts.number == 3) {
            is_read = read_system(parts.text, message);
        } else if (parts.kind == TEXT && parts.number == 4) {
            is_read = message->body.at == NULL;
            message->body = parts.text;
        }
        if (!is_read) {
            return 0;
        }
    }
    return found == 0 && message->topic.at != NULL && message->message_id.at != NULL &&
           message->body.size > 0 && is_small(message);
}

static uint8_t *put(uint8_t *out, const void *bytes, size_t size)
{
    memcpy(out, bytes, size);
    return out + size;
}

static uint8_t *put_property(uint8_t *out, const char *name, struct trf_text value)
{
    out = put(out, name, strlen(name));
    *out++ = 1;
    out = put(out, value.at, value.size);
    *out++ = 2;
    return out;
}

static uint8_t *put_keys(uint8_t *out, const struct grs_message *message)
{
    out = put(out, "KEYS\1", 5);
    for (int i = 0; i < message->key_count; i++) {
        if (i > 0) {
            *out++ = ' ';
        }
        out = put(out, message->keys[i].at, message->keys[i].size);
    }
    *out++ = 2;
    return out;
}

size_t grs_properties(const struct grs_message *message, struct trf_text address, int64_t born_ms,
                      uint8_t *out)
{
    uint8_t *begin = out;
    for (int i = 0; i < message->property_count; i++) {
        out = put(out, message->properties[i].name.at, message->properties[i].name.size);
        *out++ = 1;
        if (message->properties[i].value.size > 0) {
            out = put(out, message->properties[i].value.at, message->properties[i].value.size);
        }
        *out++ = 2;
    }
    if (message->tag.at != NULL) {
        out = put_property(out, "TAGS", message->tag);
    }
    if (message->key_count > 0) {
        out = put_keys(out, message);
    }
    out = put_property(out, "UNIQ_KEY", message->message_id);
    out = put(out, "WAIT\1true\2", 10);
    out = put_property(out, "PGROUP", message->topic);
    if (message->trace_context.size > 0) {
        out = put_property(out, "TRACE_CONTEXT", message->trace_context);
    }
    out = put_property(out, "__BORNHOST", message->born_host.size > 0 ? message->born_host
                                                                        : address);
    out = put(out, "BORN_TIMESTAMP\1", 15);
    out = digits_put(out, (uint64_t)born_ms);
    *out++ = 2;
    return (size_t)(out - begin);
}

static uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    while (value > 0x7f) {
        *out++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *out++ = (uint8_t)value;
    return out;
}

static uint8_t *put_text(uint8_t *out, uint8_t tag, struct trf_text text)
{
    if (text.size > 0) {
        *out++ = tag;
        out = put_varint(out, text.size);
        out = put(out, text.at, text.size);
    }
    return out;
}

size_t grs_answer(const struct grs_message *message, struct trf_text transaction_id,
                  int64_t queue_offset, uint8_t *out)
{
    static const uint8_t STATUS[] = "\x0a\x08\x08\xa0\x9c\x01\x12\x02OK"; /* 20000, OK */
    enum { STATUS_SIZE = sizeof STATUS - 1 };
    uint8_t entry[GRS_ANSWER_ROOM / 2], *end = put(entry, STATUS, STATUS_SIZE);
    uint8_t *at = out + PREFIX;
    end = put_text(end, 0x12, message->message_id);
    end = put_text(end, 0x1a, transaction_id);
    if (queue_offset > 0) {
        *end++ = 0x20;
        end = put_varint(end, (uint64_t)queue_offset);
    }
    at = put(at, STATUS, STATUS_SIZE);
    at = put_text(at, 0x12, (struct trf_text){entry, (uint32_t)(end - entry)});
    out[0] = 0;
    be_put_i32(out + 1, (int32_t)(at - out - PREFIX));
    return (size_t)(at - out);
}
