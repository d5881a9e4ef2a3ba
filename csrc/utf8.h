/* Any bytes to valid UTF-8.
 *
 * Bytes that are not UTF-8 become U+FFFD, one for each longest beginning of a sequence (Unicode
 * 3.9, "maximal subparts"), as with Python's errors="replace" and in Java's String. ASCII bytes are
 * never replaced, so a text may be split at ASCII separators before or after. */
#ifndef TURBOPUMP_UTF8_H
#define TURBOPUMP_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { UTF8_GROWTH = 3 }; /* a malformed byte becomes three */

/* Whether text[0:size) is UTF-8: no overlong form, no surrogate, nothing above U+10FFFF. */
int utf8_is_valid(const uint8_t *text, size_t size);

/* Write text[0:size) to out[0:UTF8_GROWTH * size) as UTF-8; returns the number of bytes written. */
size_t utf8_replace(uint8_t *out, const uint8_t *text, size_t size);

#endif
