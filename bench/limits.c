/* The limits with which our benchmarks are compared: the minimal work of any engine.

   Each function does one job of the engine over the same bytes, without checks, tables or
   bookkeeping. bench/conftest.py calls them through ctypes; they are never part of the product. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t load32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

/* Copy a record `count` times, one after another, into a warm mapping. */
size_t limit_append(uint8_t *map, const uint8_t *record, size_t size, size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(map + at, record, size);
        at += size;
    }
    return at;
}

/* Walk the records of map[0:end) and add up all their 64-bit words: every byte read once. */
uint64_t limit_scan(const uint8_t *map, size_t end)
{
    uint64_t sum = 0;
    for (size_t at = 0; at + 4 <= end;) {
        size_t size = load32(map + at);
        if (size == 0 || size > end - at)
            break;
        size_t i = 0;
        for (; i + 8 <= size; i += 8) {
            uint64_t word;
            memcpy(&word, map + at + i, 8);
            sum += word;
        }
        for (; i < size; i++)
            sum += map[at + i];
        at += size;
    }
    return sum;
}

/* Walk the records and write one 20-byte unit each: position, size and a constant code. */
size_t limit_dispatch(const uint8_t *map, size_t end, uint8_t *units)
{
    size_t count = 0;
    for (size_t at = 0; at + 4 <= end;) {
        size_t size = load32(map + at);
        if (size == 0 || size > end - at)
            break;
        uint64_t position = __builtin_bswap64((uint64_t)at);
        uint32_t length = __builtin_bswap32((uint32_t)size);
        memcpy(units + count * 20, &position, 8);
        memcpy(units + count * 20 + 8, &length, 4);
        memset(units + count * 20 + 12, 0, 8);
        count++;
        at += size;
    }
    return count;
}

/* Look at each byte once, `rounds` times, as a reader that goes byte by byte must: the meaning
   of a byte depends on those before it. */
uint64_t limit_bytes(const uint8_t *bytes, size_t size, size_t rounds)
{
    uint64_t state = 0;
    for (size_t round = 0; round < rounds; round++)
        for (size_t i = 0; i < size; i++)
            state = (state ^ bytes[i]) + (state << 1);
    return state;
}

/* Walk the records (V1, IPv4) and find those whose property `price` is "7": each looks for its name
   at the beginning of a pair, byte by byte, and at nothing else. */
size_t limit_filter(const uint8_t *map, size_t end)
{
    size_t found = 0;
    for (size_t at = 0; at + 91 <= end;) {
        size_t size = load32(map + at);
        if (size == 0 || size > end - at)
            break;
        const uint8_t *text = map + at + 84;
        text += 4 + load32(text);
        text += 1 + text[0] + 2;
        const uint8_t *stop = map + at + size;
        while (text < stop) {
            const uint8_t *value = memchr(text, 1, (size_t)(stop - text));
            if (value == NULL)
                break;
            const uint8_t *next = memchr(value, 2, (size_t)(stop - value));
            next = next == NULL ? stop : next;
            if (value - text == 5 && memcmp(text, "price", 5) == 0)
                found += next - value == 2 && value[1] == '7';
            text = next + 1;
        }
        at += size;
    }
    return found;
}
