/* The tokens of JSON in the header of a frame, for a reader that gives up on rare cases.
 *
 * A function takes the position of a token and returns its end, or NULL to give up: for bytes that
 * are not JSON, and for cases that are rare enough to be left to Python. Strings may have escapes,
 * except of surrogates; numbers are int32. UTF-8 is not checked: a malformed sequence never
 * includes an ASCII byte, so it cannot move the end of a string. Callers check the texts that
 * matter.
 *
 * Quotes, backslashes and control characters are found eight bytes at a time. In each word the
 * lowest mark is exact and higher marks may be borrowed from it; only the lowest is used. */
#ifndef TURBOPUMP_JSON_TEXT_H
#define TURBOPUMP_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bytes.h"

#define JSON_EACH(byte) (UINT64_C(0x0101010101010101) * (uint64_t)(byte))

/* The text being read. The next string with escapes goes to `scratch`. Such a string is never
 * longer than its source, so a scratch as large as the whole input holds all of them, including
 * stores of whole words. NULL: give up at an escape. */
struct json_input {
    const uint8_t *end;
    uint8_t *scratch;
};

/* Whether a string cannot contain the byte unescaped. */
static inline int json_is_special(uint8_t byte)
{
    return byte < 0x20 || byte == '"' || byte == '\\';
}

/* The top bit of each byte of a word that is special, exact up to the lowest one. */
static inline uint64_t json_marks(uint64_t word)
{
    uint64_t quote = word ^ JSON_EACH('"'), backslash = word ^ JSON_EACH('\\');
    uint64_t marks = (word - JSON_EACH(0x20)) & ~word;
    marks |= (quote - JSON_EACH(1)) & ~quote;
    marks |= (backslash - JSON_EACH(1)) & ~backslash;
    return marks & JSON_EACH(0x80);
}

/* Number of the byte in a word that the lowest mark is for; marks must not be 0. */
static inline size_t json_first(uint64_t marks) { return (size_t)__builtin_ctzll(marks) >> 3; }

/* The eight bytes at `at` as a word, the first one lowest. */
static inline uint64_t json_word(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* The first special byte of [at, end), or end. */
static inline const uint8_t *json_find_special(const uint8_t *at, const uint8_t *end)
{
    for (; end - at >= 8; at += 8) {
        uint64_t marks = json_marks(json_word(at));
        if (marks != 0) {
            return at + json_first(marks);
        }
    }
    while (at < end && !json_is_special(*at)) {
        at++;
    }
    return at;
}

/* The first byte of [at, end) that is one of two, or end. */
static inline const uint8_t *json_find_either(const uint8_t *at, const uint8_t *end, uint8_t one,
                                              uint8_t other)
{
    for (; end - at >= 8; at += 8) {
        uint64_t word = json_word(at);
        uint64_t first = word ^ JSON_EACH(one), second = word ^ JSON_EACH(other);
        uint64_t marks = (((first - JSON_EACH(1)) & ~first) | ((second - JSON_EACH(1)) & ~second)) &
                         JSON_EACH(0x80);
        if (marks != 0) {
            return at + json_first(marks);
        }
    }
    while (at < end && *at != one && *at != other) {
        at++;
    }
    return at;
}

/* The first byte of [at, end) that is no white space of JSON, or end. */
static inline const uint8_t *json_skip_space(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at <= ' ' && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) {
        at++;
    }
    return at;
}

/* The given character, and the space around it. */
static inline const uint8_t *json_expect(const uint8_t *at, const uint8_t *end, uint8_t wanted)
{
    at = json_skip_space(at, end);
    return at < end && *at == wanted ? json_skip_space(at + 1, end) : NULL;
}

/* The rest of a string whose bytes [begin, at) have no escapes. */
const uint8_t *json_read_escaped(struct json_input *input, const uint8_t *begin, const uint8_t *at,
                                 const uint8_t **text, size_t *size);

/* A string. With escapes its text is in the scratch. */
static inline const uint8_t *json_read_string(struct json_input *input, const uint8_t *at,
                                              const uint8_t **text, size_t *size)
{
    const uint8_t *begin, *stop;
    if (at == input->end || *at != '"') {
        return NULL;
    }
    begin = at + 1;
    stop = json_find_special(begin, input->end);
    if (stop == input->end || *stop < 0x20) {
        return NULL;
    }
    if (*stop == '\\') {
        return json_read_escaped(input, begin, stop, text, size);
    }
    *text = begin;
    *size = (size_t)(stop - begin);
    return stop + 1;
}

/* The name of a member, without escapes, and the colon. */
static inline const uint8_t *json_read_name(const struct json_input *input, const uint8_t *at,
                                            const uint8_t **name, size_t *size)
{
    const uint8_t *end = input->end, *stop;
    if (at == end || *at != '"') {
        return NULL;
    }
    stop = json_find_special(at + 1, end);
    if (stop == end || *stop != '"') {
        return NULL;
    }
    *name = at + 1;
    *size = (size_t)(stop - at - 1);
    return json_expect(stop + 1, end, ':');
}

/* Read the separator after a member: the comma and the space around it, or the closing brace with
 * *last set. */
static inline const uint8_t *json_next_member(const uint8_t *at, const uint8_t *end, int *last)
{
    at = json_skip_space(at, end);
    if (at == end || (*at != ',' && *at != '}')) {
        return NULL;
    }
    *last = *at == '}';
    return *last ? at + 1 : json_skip_space(at + 1, end);
}

/* An int32. A number with a fraction or an exponent ends before it, where no comma follows. */
const uint8_t *json_read_int32(const uint8_t *at, const uint8_t *end, int32_t *value);

/* A string, an int32, null, true or false whose value is not needed. */
const uint8_t *json_skip_value(struct json_input *input, const uint8_t *at);

/* Whether the bytes are UTF-8 as Python reads it: shortest forms only, and no surrogates. */
int json_is_utf8(const uint8_t *at, size_t size);

#endif
