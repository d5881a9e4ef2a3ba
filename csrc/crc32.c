#include "crc32.h"

#include <string.h>

/* Tables. Entry n of table k is the CRC of byte n followed by k zero bytes. A CRC is linear over
 * xor, so the compiler computes the other 248 entries from the eight entries of single bits. */
#define BITS_0(f, n) f(n, 0x77073096u, 0xEE0E612Cu, 0x076DC419u, 0x0EDB8832u, \
                     0x1DB71064u, 0x3B6E20C8u, 0x76DC4190u, 0xEDB88320u)
#define BITS_1(f, n) f(n, 0x191B3141u, 0x32366282u, 0x646CC504u, 0xC8D98A08u, \
                     0x4AC21251u, 0x958424A2u, 0xF0794F05u, 0x3B83984Bu)
#define BITS_2(f, n) f(n, 0x01C26A37u, 0x0384D46Eu, 0x0709A8DCu, 0x0E1351B8u, \
                     0x1C26A370u, 0x384D46E0u, 0x709A8DC0u, 0xE1351B80u)
#define BITS_3(f, n) f(n, 0xB8BC6765u, 0xAA09C88Bu, 0x8F629757u, 0xC5B428EFu, \
                     0x5019579Fu, 0xA032AF3Eu, 0x9B14583Du, 0xED59B63Bu)
#define BITS_4(f, n) f(n, 0x3D6029B0u, 0x7AC05360u, 0xF580A6C0u, 0x30704BC1u, \
                     0x60E09782u, 0xC1C12F04u, 0x58F35849u, 0xB1E6B092u)
#define BITS_5(f, n) f(n, 0xCB5CD3A5u, 0x4DC8A10Bu, 0x9B914216u, 0xEC53826Du, \
                     0x03D6029Bu, 0x07AC0536u, 0x0F580A6Cu, 0x1EB014D8u)
#define BITS_6(f, n) f(n, 0xA6770BB4u, 0x979F1129u, 0xF44F2413u, 0x33EF4E67u, \
                     0x67DE9CCEu, 0xCFBD399Cu, 0x440B7579u, 0x8816EAF2u)
#define BITS_7(f, n) f(n, 0xCCAA009Eu, 0x4225077Du, 0x844A0EFAu, 0xD3E51BB5u, \
                     0x7CBB312Bu, 0xF9766256u, 0x299DC2EDu, 0x533B85DAu)

#define PICK(n, bit, value) ((((n) >> (bit)) & 1u) * (value))
#define XOR_OF(n, a, b, c, d, e, f, g, h)                                                        \
    (PICK(n, 0, a) ^ PICK(n, 1, b) ^ PICK(n, 2, c) ^ PICK(n, 3, d) ^ PICK(n, 4, e) ^             \
     PICK(n, 5, f) ^ PICK(n, 6, g) ^ PICK(n, 7, h))
#define ENTRY(k, n) BITS_##k(XOR_OF, (n))
#define FOUR(k, n) ENTRY(k, n), ENTRY(k, (n) + 1u), ENTRY(k, (n) + 2u), ENTRY(k, (n) + 3u)
#define SIXTEEN(k, n) FOUR(k, n), FOUR(k, (n) + 4u), FOUR(k, (n) + 8u), FOUR(k, (n) + 12u)
#define HALF(k, n)                                                                               \
    SIXTEEN(k, n), SIXTEEN(k, (n) + 16u), SIXTEEN(k, (n) + 32u), SIXTEEN(k, (n) + 48u),          \
        SIXTEEN(k, (n) + 64u), SIXTEEN(k, (n) + 80u), SIXTEEN(k, (n) + 96u), SIXTEEN(k, (n) + 112u)
#define TABLE(k) {HALF(k, 0u), HALF(k, 128u)}

static const uint32_t tables[8][256] = {TABLE(0), TABLE(1), TABLE(2), TABLE(3),
                                        TABLE(4), TABLE(5), TABLE(6), TABLE(7)};

/* The register (not inverted) after buf[0:len). */
static uint32_t by_tables(uint32_t state, const uint8_t *buf, size_t len)
{
    for (; len >= 8; buf += 8, len -= 8) {
        uint32_t low, high;
        memcpy(&low, buf, sizeof low);
        memcpy(&high, buf + 4, sizeof high);
        low ^= state;
        state = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
                tables[4][low >> 24] ^ tables[3][high & 255] ^ tables[2][high >> 8 & 255] ^
                tables[1][high >> 16 & 255] ^ tables[0][high >> 24];
    }
    for (; len > 0; buf++, len--) {
        state = state >> 8 ^ tables[0][(state ^ *buf) & 255];
    }
    return state;
}

uint32_t crc32_update_table(uint32_t value, const uint8_t *buf, size_t len)
{
    return ~by_tables(~value, buf, len);
}

#if defined(__x86_64__)

#include <immintrin.h>

/* Folding: 128 bits of message in front of n further bits are replaced by 128 bits with the same
 * remainder, (low half * x^(n+32) mod P) xor (high half * x^(n-32) mod P), reflected and shifted by
 * one as the carry-less product of reflected numbers needs it. n = 512 for four lanes side by side,
 * n = 128 for one. The rest, 16 bytes with the remainder of the whole, goes through the tables like
 * any other bytes: no Barrett reduction is needed. */
#define X_544 0x154442BD4ll
#define X_480 0x1C6E41596ll
#define X_160 0x1751997D0ll
#define X_96 0x0CCAA009Ell

#define FOLDING __attribute__((target("pclmul,sse2")))
#define FOLD_MIN 32 /* below this the tables are as fast */

FOLDING static inline __m128i fold(__m128i x, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

FOLDING static inline __m128i load(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

FOLDING static uint32_t by_folding(uint32_t state, const uint8_t *buf, size_t len)
{
    const __m128i by_lane = _mm_set_epi64x(X_96, X_160);
    __m128i x = _mm_xor_si128(load(buf), _mm_cvtsi32_si128((int)state));
    uint8_t rest[16];

    if (len >= 64) {
        const __m128i by_four = _mm_set_epi64x(X_480, X_544);
        __m128i y = load(buf + 16), z = load(buf + 32), w = load(buf + 48);
        for (buf += 64, len -= 64; len >= 64; buf += 64, len -= 64) {
            x = fold(x, by_four, load(buf));
            y = fold(y, by_four, load(buf + 16));
            z = fold(z, by_four, load(buf + 32));
            w = fold(w, by_four, load(buf + 48));
        }
        x = fold(fold(fold(x, by_lane, y), by_lane, z), by_lane, w);
    } else {
        buf += 16;
        len -= 16;
    }
    for (; len >= 16; buf += 16, len -= 16) {
        x = fold(x, by_lane, load(buf));
    }
    _mm_storeu_si128((__m128i *)(void *)rest, x);
    return by_tables(by_tables(0, rest, sizeof rest), buf, len);
}

int crc32_is_pclmul(void) { return __builtin_cpu_supports("pclmul") != 0; }

uint32_t crc32_update(uint32_t value, const uint8_t *buf, size_t len)
{
    if (len >= FOLD_MIN && __builtin_cpu_supports("pclmul")) {
        return ~by_folding(~value, buf, len);
    }
    return crc32_update_table(value, buf, len);
}

#else

int crc32_is_pclmul(void) { return 0; }

uint32_t crc32_update(uint32_t value, const uint8_t *buf, size_t len)
{
    return crc32_update_table(value, buf, len);
}

#endif
