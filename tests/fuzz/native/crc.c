/* The CRC by carry-less multiplication, by tables and bit by bit. Input: where to cut, then the
 * bytes to sum. */
#include "crc32.h"

#include "fuzz.h"

static uint32_t bit_by_bit(const uint8_t *buf, size_t len)
{
    uint32_t state = ~0u;
    for (size_t at = 0; at < len; at++) {
        state ^= buf[at];
        for (int bit = 0; bit < 8; bit++) {
            state = state >> 1 ^ (state & 1 ? 0xEDB88320u : 0);
        }
    }
    return ~state;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    size_t cut = (size_t)take(&input, 2), len = input.left;
    uint8_t *buf = take_copy(&input, len);
    uint32_t wanted = bit_by_bit(buf, len);
    cut = cut < len ? cut : len;
    CHECK(crc32_update(0, buf, len) == wanted && crc32_update_table(0, buf, len) == wanted);
    CHECK(crc32_update(crc32_update(0, buf, cut), buf + cut, len - cut) == wanted);
    CHECK(crc32_masked(buf, len) == (wanted & CRC32_MASK));
    free(buf);
    return 0;
}
