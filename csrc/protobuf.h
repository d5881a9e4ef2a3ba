/* Messages of protobuf, field by field, for the few messages that are read and written natively.
 *
 * A reader accepts fields of two kinds, non-negative numbers and texts; a message with any other
 * field is left to Python's library. The text bounds all reads; nothing is copied. */
#ifndef TURBOPUMP_PROTOBUF_H
#define TURBOPUMP_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "traffic_properties.h"

enum { PB_VARINT = 0, PB_TEXT = 2 };

/* The rest of a message of protobuf, and the field read last. */
struct pb_parts {
    const uint8_t *at, *end;
    uint64_t number, value; /* `value` of a PB_VARINT */
    int kind;
    struct trf_text text;
};

/* Read a non-negative number; 0 if it is cut off or negative. */
static inline int pb_varint(struct pb_parts *parts, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 63 && parts->at < parts->end; shift += 7) {
        uint8_t byte = *parts->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return 1;
        }
    }
    return 0; /* cut off, or negative (ten bytes) */
}

/* Read the next field into `number`, `kind` and `value` or `text`: 1; 0 at the end, -1 for a field
 * of another kind or malformed bytes. */
static inline int pb_next(struct pb_parts *parts)
{
    uint64_t tag, size;
    if (parts->at == parts->end) {
        return 0;
    }
    if (!pb_varint(parts, &tag) || tag >> 3 == 0 || tag >> 32 != 0) {
        return -1;
    }
    parts->number = tag >> 3;
    parts->kind = (int)(tag & 7);
    parts->text.at = NULL;
    parts->text.size = 0;
    if (parts->kind == PB_VARINT) {
        return pb_varint(parts, &parts->value) ? 1 : -1;
    }
    if (parts->kind != PB_TEXT || !pb_varint(parts, &size) ||
        size > (uint64_t)(parts->end - parts->at)) {
        return -1;
    }
    parts->text.at = parts->at;
    parts->text.size = (uint32_t)size; /* of a read */
    parts->at += size;
    return 1;
}

/* Begin to read a message. */
static inline struct pb_parts pb_parts_of(struct trf_text text)
{
    return (struct pb_parts){.at = text.at, .end = text.at + text.size};
}

/* Whether the text is printable ASCII. */
static inline int pb_is_printable(struct trf_text text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (text.at[i] < 0x20 || text.at[i] > 0x7e) {
            return 0;
        }
    }
    return 1;
}

/* Whether the text is printable ASCII, not only spaces, and at most `most` bytes. */
static inline int pb_is_word(struct trf_text text, size_t most)
{
    size_t spaces = 0;
    while (spaces < text.size && text.at[spaces] == ' ') {
        spaces++;
    }
    return spaces < text.size && text.size <= most && pb_is_printable(text);
}

/* Write a number, at most 10 bytes; returns its end. */
static inline uint8_t *pb_put_varint(uint8_t *out, uint64_t value)
{
    while (value > 0x7f) {
        *out++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *out++ = (uint8_t)value;
    return out;
}

/* Write a text field with its one-byte tag, nothing for an empty text; returns its end. */
static inline uint8_t *pb_put_text(uint8_t *out, uint8_t tag, struct trf_text text)
{
    if (text.size > 0) {
        *out++ = tag;
        out = pb_put_varint(out, text.size);
        memcpy(out, text.at, text.size);
        out += text.size;
    }
    return out;
}

#endif
