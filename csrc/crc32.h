/* CRC-32 of IEEE 802.3, as in zlib and java.util.zip.CRC32 (reflected, 0xEDB88320).
 *
 * RocketMQ stores it masked to 31 bits (UtilAll.crc32), so that it is a positive Java int; the mask
 * is `crc32_masked`. The code uses carry-less multiplication if the CPU has it, else eight
 * tables. */
#ifndef TURBOPUMP_CRC32_H
#define TURBOPUMP_CRC32_H

#include <stddef.h>
#include <stdint.h>

#define CRC32_MASK 0x7FFFFFFFu

/* Continue a CRC: `value` is the CRC of the bytes before buf[0:len), 0 at the start. */
uint32_t crc32_update(uint32_t value, const uint8_t *buf, size_t len);

/* The same by tables alone: for CPUs without carry-less multiplication, and for comparison. */
uint32_t crc32_update_table(uint32_t value, const uint8_t *buf, size_t len);

/* Whether crc32_update uses carry-less multiplication on this CPU. */
int crc32_is_pclmul(void);

/* The CRC-32 of buf[0:len) as RocketMQ stores it. */
static inline uint32_t crc32_masked(const uint8_t *buf, size_t len)
{
    return crc32_update(0, buf, len) & CRC32_MASK;
}

#endif
