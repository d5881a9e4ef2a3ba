#include "json_text.h"

static inline int hex_digit(uint8_t byte)
{
    unsigned digit = (unsigned)byte - '0', letter = ((unsigned)byte | 0x20) - 'a';
    return digit < 10 ? (int)digit : letter < 6 ? (int)letter + 10 : -1;
}

/* The character of `\uXXXX`, from the u; -1 if it is malformed or a surrogate. */
static int32_t read_code(const uint8_t *at, const uint8_t *end)
{
    int32_t code = 0;
    if (end - at < 5) {
        return -1;
    }
    for (int i = 1; i <= 4; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0) {
            return -1;
        }
        code = code << 4 | digit;
    }
    return code >= 0xD800 && code <= 0xDFFF ? -1 : code;
}

/* Decode one escape, after its backslash; its character goes to *to, which is advanced. */
static const uint8_t *unescape(const uint8_t *at, const uint8_t *end, uint8_t **to)
{
    static const char plain[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    uint8_t *out = *to;
    int32_t code;
    if (end - at >= 5 && memcmp(at, "u000", 4) == 0 && (unsigned)at[4] - '0' < 10) {
        *out = (uint8_t)(at[4] - '0'); /* the separators of properties, which every send has */
        *to = out + 1;
        return at + 5;
    }
    if (at == end) {
        return NULL;
    }
    if (*at != 'u') {
        const char *found = memchr(plain, *at, sizeof plain - 1);
        if (found == NULL) {
            return NULL;
        }
        *out = (uint8_t)meant[found - plain];
        *to = out + 1;
        return at + 1;
    }
    code = read_code(at, end);
    if (code < 0) {
        return NULL;
    }
    if (code < 0x80) {
        *out++ = (uint8_t)code;
    } else if (code < 0x800) {
        *out++ = (uint8_t)(0xC0 | code >> 6);
        *out++ = (uint8_t)(0x80 | (code & 0x3F));
    } else {
        *out++ = (uint8_t)(0xE0 | code >> 12);
        *out++ = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        *out++ = (uint8_t)(0x80 | (code & 0x3F));
    }
    *to = out;
    return at + 5;
}

const uint8_t *json_read_escaped(struct json_input *input, const uint8_t *begin, const uint8_t *at,
                                 const uint8_t **text, size_t *size)
{
    const uint8_t *end = input->end;
    uint8_t *out = input->scratch;
    if (out == NULL) {
        return NULL;
    }
    memcpy(out, begin, (size_t)(at - begin));
    out += at - begin;
    while (at != NULL) {
        if (end - at >= 8) {
            uint64_t word = json_word(at), marks = json_marks(word);
            size_t run = marks == 0 ? 8 : json_first(marks);
            memcpy(out, &word, sizeof word);
            at += run;
            out += run;
            if (marks == 0) {
                continue;
            }
        } else {
            while (at < end && !json_is_special(*at)) {
                *out++ = *at++;
            }
        }
        if (at == end || *at < 0x20) {
            return NULL;
        }
        if (*at == '"') {
            *text = input->scratch;
            *size = (size_t)(out - input->scratch);
            input->scratch = out;
            return at + 1;
        }
        at = unescape(at + 1, end, &out);
    }
    return NULL;
}

const uint8_t *json_read_int32(const uint8_t *at, const uint8_t *end, int32_t *value)
{
    const uint8_t *begin;
    int negative = at < end && *at == '-';
    int64_t number = 0;
    begin = at += negative;
    for (; at < end && at - begin <= 10 && (unsigned)*at - '0' < 10; at++) {
        number = number * 10 + (*at - '0');
    }
    number = negative ? -number : number;
    if (at == begin || (*begin == '0' && at - begin > 1) || number != (int32_t)number) {
        return NULL;
    }
    *value = (int32_t)number;
    return at;
}

const uint8_t *json_skip_value(struct json_input *input, const uint8_t *at)
{
    static const char *const words[] = {"null", "true", "false"};
    const uint8_t *text;
    size_t size;
    int32_t number;
    if (at < input->end && *at == '"') {
        return json_read_string(input, at, &text, &size);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size = strlen(words[i]);
        if ((size_t)(input->end - at) >= size && memcmp(at, words[i], size) == 0) {
            return at + size;
        }
    }
    return json_read_int32(at, input->end, &number);
}

/* Number of bytes of the character whose first byte, 0x80 or more, is at `at`; 0 if malformed. */
static size_t character_size(const uint8_t *at, size_t left)
{
    size_t size = at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
    if (at[0] < 0xC2 || at[0] > 0xF4 || left < size) {
        return 0;
    }
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) ||
        (at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F)) {
        return 0; /* overlong, a surrogate, or beyond the last character */
    }
    return size;
}

int json_is_utf8(const uint8_t *at, size_t size)
{
    while (size > 0) {
        size_t step = 1;
        if (size >= 8 && (json_word(at) & JSON_EACH(0x80)) == 0) {
            step = 8;
        } else if (*at >= 0x80) {
            step = character_size(at, size);
            if (step == 0) {
                return 0;
            }
        }
        at += step;
        size -= step;
    }
    return 1;
}
