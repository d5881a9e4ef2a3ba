/* Big-endian loads and stores at any alignment, and a touch that changes nothing.
 *
 * Every number RocketMQ puts on disk or on the wire is big endian (Java's ByteBuffer default).
 * The helpers know no bounds: the caller has checked the range first.
 */
#ifndef TURBOPUMP_BYTES_H
#define TURBOPUMP_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the loads below swap: this is written for little-endian machines"
#endif

/* Loads: be_u16 to be_i64 return the unsigned or signed number at `at`. */
static inline uint16_t be_u16(const uint8_t *at)
{
    uint16_t raw;
    memcpy(&raw, at, sizeof raw);
    return __builtin_bswap16(raw);
}

static inline uint32_t be_u32(const uint8_t *at)
{
    uint32_t raw;
    memcpy(&raw, at, sizeof raw);
    return __builtin_bswap32(raw);
}

static inline uint64_t be_u64(const uint8_t *at)
{
    uint64_t raw;
    memcpy(&raw, at, sizeof raw);
    return __builtin_bswap64(raw);
}

static inline int16_t be_i16(const uint8_t *at) { return (int16_t)be_u16(at); }
static inline int32_t be_i32(const uint8_t *at) { return (int32_t)be_u32(at); }
static inline int64_t be_i64(const uint8_t *at) { return (int64_t)be_u64(at); }

/* Stores: be_put_i16 to be_put_i64 write a signed number at `at`. */
static inline void be_put_i16(uint8_t *at, int16_t value)
{
    uint16_t raw = __builtin_bswap16((uint16_t)value);
    memcpy(at, &raw, sizeof raw);
}

static inline void be_put_i32(uint8_t *at, int32_t value)
{
    uint32_t raw = __builtin_bswap32((uint32_t)value);
    memcpy(at, &raw, sizeof raw);
}

static inline void be_put_i64(uint8_t *at, int64_t value)
{
    uint64_t raw = __builtin_bswap64((uint64_t)value);
    memcpy(at, &raw, sizeof raw);
}

/* Whether buf[0:len) is all zeros: the first byte is zero, and every byte equals the previous
 * one. */
static inline int bytes_all_zero(const uint8_t *buf, size_t len)
{
    return len == 0 || (buf[0] == 0 && memcmp(buf, buf + 1, len - 1) == 0);
}

/* Make one page writable in the page table. Compare-and-swap of a byte with itself, because
 * another thread may be appending to the very same page: load-then-store would undo its write. */
static inline void bytes_touch(uint8_t *page)
{
    volatile uint8_t *at = page;
    uint8_t seen = *at;
    __atomic_compare_exchange_n(at, &seen, seen, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

#endif
