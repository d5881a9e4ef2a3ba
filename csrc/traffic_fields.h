/* The fields of a request's header as texts, and the readers of their values; internal to traffic.c
 * and to the generated traffic_readers.h. A reader returns 0 for a BadHeader, or in doubt. */
#ifndef TURBOPUMP_TRAFFIC_FIELDS_H
#define TURBOPUMP_TRAFFIC_FIELDS_H

#include <stdint.h>

#include "json_text.h"
#include "traffic.h"

enum { TRF_DIGITS_MAX = 19 /* of a number in a text; as many as fit into 64 bits */ };

struct trf_fields {
    uint64_t seen; /* a bit for each field so far */
    struct trf_text texts[TRF_FIELDS];
};

_Static_assert(TRF_FIELDS <= 64, "trf_fields.seen has a bit for each");

/* Whether a field is there and not empty. */
static inline int is_present(const struct trf_fields *fields, unsigned field)
{
    return fields->seen >> field & 1 && fields->texts[field].size > 0;
}

/* Read a text, at == NULL if it is missing; 0 if it is required and missing, or not UTF-8. */
static inline int read_text(const struct trf_fields *fields, unsigned field, int required,
                            struct trf_text *text)
{
    if (!(fields->seen >> field & 1)) {
        text->at = NULL;
        text->size = 0;
        return !required;
    }
    *text = fields->texts[field];
    return json_is_utf8(text->at, text->size);
}

/* Read a decimal int64 with an optional sign, of at least one byte; 0 for any other text. */
static inline int parse_number(struct trf_text text, int64_t *value)
{
    int negative = *text.at == '-';
    size_t at = negative || *text.at == '+';
    uint64_t number = 0;
    if (at == text.size || text.size - at > TRF_DIGITS_MAX) {
        return 0;
    }
    for (; at < text.size; at++) {
        unsigned digit = (unsigned)text.at[at] - '0';
        if (digit > 9) {
            return 0;
        }
        number = number * 10 + digit;
    }
    if (number > (uint64_t)INT64_MAX + (uint64_t)negative) {
        return 0;
    }
    *value = negative ? (int64_t)(0 - number) : (int64_t)number;
    return 1;
}

/* Read a required number; 0 if it is missing, empty or out of range. */
static inline int read_int64(const struct trf_fields *fields, unsigned field, int64_t *value)
{
    return is_present(fields, field) && parse_number(fields->texts[field], value);
}

/* The same for an int32. */
static inline int read_int32(const struct trf_fields *fields, unsigned field, int32_t *value)
{
    int64_t number;
    if (!read_int64(fields, field, &number) || number != (int32_t)number) {
        return 0;
    }
    *value = (int32_t)number;
    return 1;
}

/* Read an optional number; *value and *there are 0 if it is missing or empty. Returns 0 only for a
 * text that is no int32. */
static inline int read_optional(const struct trf_fields *fields, unsigned field, int32_t *value,
                                uint8_t *there)
{
    *value = 0;
    *there = (uint8_t)is_present(fields, field);
    return !*there || read_int32(fields, field, value);
}

/* Read an optional flag; *value is 0 if it is missing, or any text but "true". Returns 1. */
static inline int read_flag(const struct trf_fields *fields, unsigned field, uint8_t *value)
{
    *value = is_present(fields, field) && trf_is_true(fields->texts[field]);
    return 1;
}

#endif
