/* Bytes that should be UTF-8, made so.
 *
 * What is no UTF-8 becomes U+FFFD, one for each longest beginning of a sequence that could have
 * been one (Unicode 3.9, "maximal subparts"): what Python's errors="replace" and Java's String make
 * of it. ASCII is never part of what is replaced, so a text may be split at ASCII separators before
 * or after.
 */
#ifndef TURBOPUMP_UTF8_H
#define TURBOPUMP_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { UTF8_GROWTH = 3 }; /* a wrong byte becomes three */

/* Whether text[0:size) is UTF-8: no overlong form, no surrogate, nothing above U+10FFFF. */
int utf8_is_valid(const uint8_t *text, size_t size);

/* Write text[0:size) to out[0:UTF8_GROWTH * size) as UTF-8; returns how many bytes that took. */
size_t utf8_replace(uint8_t *out, const uint8_t *text, size_t size);

#endif
