/* Non-negative decimal numbers, as they stand in the texts of properties. */
#ifndef TURBOPUMP_DIGITS_H
#define TURBOPUMP_DIGITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { DIGITS_ROOM = 20 };

/* Write a number; returns its end. At most DIGITS_ROOM bytes. */
static inline uint8_t *digits_put(uint8_t *out, uint64_t value)
{
    uint8_t digits[DIGITS_ROOM];
    size_t at = DIGITS_ROOM;
    do {
        digits[--at] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    memcpy(out, digits + at, DIGITS_ROOM - at);
    return out + (DIGITS_ROOM - at);
}

/* Read a text of digits only, at most `most` (18 or fewer) of them; 0 for any other text. */
static inline int digits_read(const uint8_t *text, size_t size, size_t most, int64_t *value)
{
    *value = 0;
    if (size == 0 || size > most) {
        return 0;
    }
    for (size_t i = 0; i < size; i++) {
        unsigned digit = (unsigned)text[i] - '0';
        if (digit > 9) {
            return 0;
        }
        *value = *value * 10 + digit;
    }
    return 1;
}

#endif
