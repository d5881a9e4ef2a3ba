#include "filter_number.h"

#include <stdlib.h>
#include <string.h>

enum {
    DIGITS_KEPT = 800, /* halfway between two doubles there are up to 767 that count */
    EXPONENT_MAX = 1000000000,
    EXACT_DIGITS = 15, /* of a number below 2^53 */
    EXACT_POWER = 22   /* 10^22 is the last power of ten that is a double */
};

/* The zeros of the scripts in Unicode's first plane that have digits; the other nine digits follow
 * each zero. Java 17 reads all of them as digits of an Integer. */
static const uint16_t ZEROS[] = {
    0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6,
    0x0C66, 0x0CE6, 0x0D66, 0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0,
    0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620,
    0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10};

/* The value of the digit beyond ASCII at [at, end), -1 for other characters; *size gets its
 * bytes. */
static int digit_at(const uint8_t *at, const uint8_t *end, size_t *size)
{
    uint32_t code = 0;
    if (end - at >= 2 && (at[0] & 0xE0) == 0xC0 && (at[1] & 0xC0) == 0x80) {
        code = (at[0] & 0x1Fu) << 6 | (at[1] & 0x3Fu);
        *size = 2;
    } else if (end - at >= 3 && (at[0] & 0xF0) == 0xE0 && (at[1] & 0xC0) == 0x80 &&
               (at[2] & 0xC0) == 0x80) {
        code = (at[0] & 0x0Fu) << 12 | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
        *size = 3;
    }
    if (code < (*size == 2 ? 0x80u : 0x800u)) {
        return -1; /* no shortest form */
    }
    for (size_t i = 0; i < sizeof ZEROS / sizeof ZEROS[0]; i++) {
        if (code - ZEROS[i] < 10) {
            return (int)(code - ZEROS[i]);
        }
    }
    return -1;
}

int num_whole(const uint8_t *at, size_t size, int64_t low, int64_t high, int64_t *value)
{
    const uint8_t *end = at + size;
    int negative = size > 0 && *at == '-';
    uint64_t limit = negative ? 0 - (uint64_t)low : (uint64_t)high, sum = 0;
    if (size > 0 && (*at == '-' || *at == '+')) {
        at++;
    }
    if (at == end) {
        return 0;
    }
    while (at < end) {
        size_t length = 1;
        int digit = *at >= '0' && *at <= '9' ? *at - '0' : digit_at(at, end, &length);
        if (digit < 0 || sum > (limit - (uint64_t)digit) / 10) {
            return 0;
        }
        sum = sum * 10 + (uint64_t)digit;
        at += length;
    }
    *value = (int64_t)(negative ? 0 - sum : sum);
    return 1;
}

struct reading {
    const uint8_t *at, *end;
    char digits[DIGITS_KEPT + 32]; /* the significant ones, as strtod receives them */
    size_t count;
    int is_any;       /* a digit was found, if only a zero */
    int64_t exponent; /* of the last digit kept */
};

static int hex_of(uint8_t byte)
{
    if (byte >= '0' && byte <= '9') {
        return byte - '0';
    }
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* Read digits. Leading zeros and digits after DIGITS_KEPT are not kept. Each digit moves the
 * exponent by `place`: 1, or 4 bits. */
static void take_digits(struct reading *in, int is_hex, int is_fraction, int place)
{
    for (; in->at < in->end; in->at++) {
        uint8_t byte = *in->at;
        if (is_hex ? hex_of(byte) < 0 : byte < '0' || byte > '9') {
            return;
        }
        in->is_any = 1;
        if (in->count < DIGITS_KEPT) {
            if (byte != '0' || in->count > 0) {
                in->digits[in->count++] = (char)byte;
            }
            in->exponent -= is_fraction ? place : 0;
        } else {
            /* Any further digit that is not zero decides the rounding of a number halfway. */
            if (byte != '0') {
                in->digits[DIGITS_KEPT - 1] = '1';
            }
            in->exponent += is_fraction ? 0 : place;
        }
    }
}

static void take_number(struct reading *in, int is_hex)
{
    int place = is_hex ? 4 : 1;
    take_digits(in, is_hex, 0, place);
    if (in->at < in->end && *in->at == '.') {
        in->at++;
        take_digits(in, is_hex, 1, place);
    }
}

/* Read the exponent after its letter; 0 without digits. */
static int take_exponent(struct reading *in)
{
    int negative = 0, is_any = 0;
    int64_t sum = 0;
    if (in->at < in->end && (*in->at == '+' || *in->at == '-')) {
        negative = *in->at++ == '-';
    }
    for (; in->at < in->end && *in->at >= '0' && *in->at <= '9'; in->at++) {
        is_any = 1;
        if (sum < EXPONENT_MAX) {
            sum = sum * 10 + (*in->at - '0');
        }
    }
    in->exponent += negative ? -sum : sum;
    return is_any;
}

static double powered(const struct reading *in)
{
    static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    int64_t whole = 0;
    for (size_t i = 0; i < in->count; i++) {
        whole = whole * 10 + (in->digits[i] - '0');
    }
    return in->exponent < 0 ? (double)whole / POWERS[-in->exponent]
                            : (double)whole * POWERS[in->exponent];
}

static void put_exponent(struct reading *in, char letter)
{
    int64_t left = in->exponent;
    char reversed[24];
    size_t count = 0, at = in->count;
    in->digits[at++] = letter;
    if (left < 0) {
        in->digits[at++] = '-';
        left = -left;
    }
    left = left < EXPONENT_MAX ? left : EXPONENT_MAX;
    do {
        reversed[count++] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    while (count > 0) {
        in->digits[at++] = reversed[--count];
    }
    in->digits[at] = 0;
}

static double magnitude(struct reading *in, int is_hex)
{
    if (in->count == 0) {
        return 0.0;
    }
    if (!is_hex && in->count <= EXACT_DIGITS && in->exponent >= -EXACT_POWER &&
        in->exponent <= EXACT_POWER) {
        return powered(in); /* one operation on exact numbers rounds correctly */
    }
    put_exponent(in, is_hex ? 'p' : 'e');
    if (is_hex) {
        char text[DIGITS_KEPT + 34] = "0x";
        memcpy(text + 2, in->digits, sizeof in->digits);
        return strtod(text, NULL);
    }
    return strtod(in->digits, NULL);
}

static int is_word(const uint8_t *at, const uint8_t *end, const char *word)
{
    size_t size = strlen(word);
    return (size_t)(end - at) == size && memcmp(at, word, size) == 0;
}

int num_real(const uint8_t *at, size_t size, double *value)
{
    struct reading in;
    int negative = 0, is_hex;
    in.at = at;
    in.end = at + size;
    in.count = 0;
    in.is_any = 0;
    in.exponent = 0;
    while (in.at < in.end && *in.at <= ' ') {
        in.at++;
    }
    while (in.at < in.end && in.end[-1] <= ' ') {
        in.end--;
    }
    if (in.at < in.end && (*in.at == '-' || *in.at == '+')) {
        negative = *in.at++ == '-';
    }
    if (is_word(in.at, in.end, "NaN")) {
        *value = __builtin_nan("");
        return 1;
    }
    if (is_word(in.at, in.end, "Infinity")) {
        *value = negative ? -__builtin_inf() : __builtin_inf();
        return 1;
    }
    is_hex = in.end - in.at > 2 && in.at[0] == '0' && (in.at[1] | 0x20) == 'x';
    in.at += is_hex ? 2 : 0;
    take_number(&in, is_hex);
    if (!in.is_any) {
        return 0;
    }
    if (in.at < in.end && (*in.at | 0x20) == (is_hex ? 'p' : 'e')) {
        in.at++;
        if (!take_exponent(&in)) {
            return 0;
        }
    } else if (is_hex) {
        return 0;
    }
    if (in.at < in.end && ((*in.at | 0x20) == 'f' || (*in.at | 0x20) == 'd')) {
        in.at++;
    }
    if (in.at != in.end) {
        return 0;
    }
    *value = magnitude(&in, is_hex);
    *value = negative ? -*value : *value;
    return 1;
}

int num_compare_real(double left, double right)
{
    uint64_t one, other;
    if (left < right) {
        return -1;
    }
    if (left > right) {
        return 1;
    }
    if (left != left || right != right) {
        return (left != left) - (right != right);
    }
    memcpy(&one, &left, sizeof one);
    memcpy(&other, &right, sizeof other);
    return (int)(other >> 63) - (int)(one >> 63);
}
