#include "grpc_send.h"

#include <string.h>

#include "digits.h"
#include "protobuf.h"

enum { IDENTITY = 1, NORMAL = 1, NANOS = 1000000000, NANOS_OF_MS = 1000000 };
static const int64_t SECONDS_MAX = ((int64_t)1 << 53) / 1000 - 1;

/* Names of system properties are in capitals, or begin with an underscore. */
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
    struct pb_parts parts = pb_parts_of(text);
    struct grs_property *made = &message->properties[message->property_count];
    int found;
    if (message->property_count == GRS_PROPERTIES) {
        return 0;
    }
    memset(made, 0, sizeof *made);
    while ((found = pb_next(&parts)) > 0) {
        if (parts.kind != PB_TEXT || parts.number > 2 || !pb_is_printable(parts.text)) {
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
    struct pb_parts parts = pb_parts_of(text);
    uint64_t seconds = 0, nanos = 0;
    int found;
    while ((found = pb_next(&parts)) > 0) {
        if (parts.kind != PB_VARINT || parts.number > 2) {
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

/* Skip a digest, after checking its form. */
static int is_digest(struct trf_text text)
{
    struct pb_parts parts = pb_parts_of(text);
    int found;
    while ((found = pb_next(&parts)) > 0) {
        if (parts.kind != (parts.number == 1 ? PB_VARINT : PB_TEXT) || parts.number > 2 ||
            parts.value >> 31 != 0 || !pb_is_printable(parts.text)) {
            return 0;
        }
    }
    return found == 0;
}

static int is_tag(struct trf_text text)
{
    return pb_is_word(text, GRS_TEXTS_MAX) && memchr(text.at, '|', text.size) == NULL;
}

static int read_system_text(const struct pb_parts *parts, struct grs_message *message)
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
        return pb_is_word(text, GRS_TEXTS_MAX);
    case 3:
        message->message_id = text;
        return pb_is_word(text, GRC_NAME_MAX);
    case 4:
        return is_digest(text);
    case 7:
        return read_time(text, message);
    case 8:
        message->born_host = text;
        return pb_is_printable(text) && text.size <= GRC_NAME_MAX;
    case 18:
        message->trace_context = text;
        return pb_is_printable(text) && text.size <= GRS_TEXTS_MAX;
    default:
        return 0;
    }
}

static int is_plain_number(const struct pb_parts *parts)
{
    switch (parts->number) {
    case 5:
        return parts->value <= IDENTITY;
    case 6:
        return parts->value <= NORMAL;
    case 13:
    case 14:
    case 16:
        return parts->value >> 31 == 0; /* deliveries alone have the other fields */
    default:
        return 0;
    }
}

static int read_system(struct trf_text text, struct grs_message *message)
{
    struct pb_parts parts = pb_parts_of(text);
    int found;
    if (message->message_id.at != NULL) {
        return 0;
    }
    while ((found = pb_next(&parts)) > 0) {
        int is_read = parts.kind == PB_VARINT ? is_plain_number(&parts)
                                              : read_system_text(&parts, message);
        if (!is_read) {
            return 0;
        }
    }
    return found == 0 && message->message_id.at != NULL;
}

/* As much as fits into GRS_PROPERTIES_ROOM, and less than a producer may send. */
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
    struct trf_text request;
    struct pb_parts outer, parts;
    int found;
    if (!grc_message(data, size, &request)) {
        return 0;
    }
    outer = pb_parts_of(request);
    if (pb_next(&outer) <= 0 || outer.number != 1 || outer.kind != PB_TEXT ||
        outer.at != outer.end) {
        return 0;
    }
    memset(message, 0, offsetof(struct grs_message, keys));
    message->key_count = message->property_count = 0;
    message->born_ms = 0;
    parts = pb_parts_of(outer.text);
    while ((found = pb_next(&parts)) > 0) {
        int is_read = 0;
        if (parts.kind == PB_TEXT && parts.number == 1) {
            is_read = grc_name(parts.text, &message->topic);
        } else if (parts.kind == PB_TEXT && parts.number == 2) {
            is_read = read_property(parts.text, message);
        } else if (parts.kind == PB_TEXT && parts.number == 3) {
            is_read = read_system(parts.text, message);
        } else if (parts.kind == PB_TEXT && parts.number == 4) {
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

size_t grs_answer(const struct grs_message *message, struct trf_text transaction_id,
                  int64_t queue_offset, uint8_t *out)
{
    uint8_t entry[GRC_ANSWER_ROOM / 2], *end = entry;
    end = pb_put_text(end, 0x0a, (struct trf_text){(const uint8_t *)GRC_STATUS, GRC_STATUS_SIZE});
    end = pb_put_text(end, 0x12, message->message_id);
    end = pb_put_text(end, 0x1a, transaction_id);
    if (queue_offset > 0) {
        *end++ = 0x20;
        end = pb_put_varint(end, (uint64_t)queue_offset);
    }
    return grc_answer((struct trf_text){entry, (uint32_t)(end - entry)}, out);
}
