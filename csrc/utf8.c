#include "utf8.h"

#include <string.h>

#define HIGH_BITS 0x8080808080808080u

/* Position of the first byte above 0x7F of text[at:size), or size. */
static size_t skip_ascii(const uint8_t *text, size_t at, size_t size)
{
    while (size - at >= 8) {
        uint64_t word;
        memcpy(&word, text + at, 8);
        if (word & HIGH_BITS) {
            return at + (size_t)__builtin_ctzll(word & HIGH_BITS) / 8;
        }
        at += 8;
    }
    while (at < size && text[at] < 0x80) {
        at++;
    }
    return at;
}

/* Number of bytes of the sequence at text[0:size), whose first byte is above 0x7F; *whole: whether
 * it is a whole sequence, else these bytes are the longest beginning of a sequence, or a byte that
 * begins no sequence. */
static size_t sequence(const uint8_t *text, size_t size, int *whole)
{
    uint8_t first = text[0], low = 0x80, high = 0xBF;
    size_t length, at;

    *whole = 0;
    if (first < 0xC2 || first > 0xF4) {
        return 1;
    }
    length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (first == 0xE0) {
        low = 0xA0; /* smaller bytes would be overlong */
    } else if (first == 0xED) {
        high = 0x9F; /* greater bytes would be surrogates */
    } else if (first == 0xF0) {
        low = 0x90;
    } else if (first == 0xF4) {
        high = 0x8F; /* greater bytes would be above U+10FFFF */
    }
    for (at = 1; at < length; at++, low = 0x80, high = 0xBF) {
        if (at == size || text[at] < low || text[at] > high) {
            return at;
        }
    }
    *whole = 1;
    return length;
}

int utf8_is_valid(const uint8_t *text, size_t size)
{
    size_t at = skip_ascii(text, 0, size);
    while (at < size) {
        int whole;
        at += sequence(text + at, size - at, &whole);
        if (!whole) {
            return 0;
        }
        at = skip_ascii(text, at, size);
    }
    return 1;
}

size_t utf8_replace(uint8_t *out, const uint8_t *text, size_t size)
{
    size_t at = 0, written = 0;
    while (at < size) {
        size_t begin = at, length;
        int whole;
        at = skip_ascii(text, at, size);
        memcpy(out + written, text + begin, at - begin);
        written += at - begin;
        if (at == size) {
            break;
        }
        length = sequence(text + at, size - at, &whole);
        if (whole) {
            memcpy(out + written, text + at, length);
            written += length;
        } else {
            memcpy(out + written, "\xEF\xBF\xBD", UTF8_GROWTH);
            written += UTF8_GROWTH;
        }
        at += length;
    }
    return written;
}
