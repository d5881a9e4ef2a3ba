/* Numbers as Java reads them from a text: Integer.valueOf, Long.valueOf, Double.valueOf, compareTo.
 *
 * The properties of a message are texts, and RocketMQ uses these methods to convert a text to the
 * type of the other operand; a text that is no number is an error, not a null. Texts are UTF-8 of
 * any bytes. The code depends on no locale and has no memory of its own: strtod receives neither a
 * point nor more than some 800 digits. */
#ifndef TURBOPUMP_FILTER_NUMBER_H
#define TURBOPUMP_FILTER_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/* A whole number within [low, high]: an optional sign and digits of any script, nothing else.
 * Returns 0 if Java throws a NumberFormatException. */
int num_whole(const uint8_t *at, size_t size, int64_t low, int64_t high, int64_t *value);

/* A double: decimal or hexadecimal, NaN, Infinity, a suffix f or d, with space and control
 * characters around it. Returns 0 if Java throws. */
int num_real(const uint8_t *at, size_t size, double *value);

/* Double.compareTo: -0.0 is less than 0.0, and NaN is equal to itself and above all others. */
int num_compare_real(double left, double right);

#endif
