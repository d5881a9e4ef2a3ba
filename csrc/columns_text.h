/* The text columns of a block: topic, hosts, properties. Internal to columns.c. */
#ifndef TURBOPUMP_COLUMNS_TEXT_H
#define TURBOPUMP_COLUMNS_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "columns.h"

/* Set bit `number` of a bitmap in Arrow's order. */
static inline void col_set_bit(uint8_t *bits, size_t number)
{
    bits[number / 8] |= (uint8_t)(1u << number % 8);
}

/* Fill the text columns of the rows after the batch's from scratch->picked[0:count), whose
 * room was taken; buf[0:end) may be read. */
void col_put_texts(const uint8_t *buf, size_t end, struct col_batch *batch,
                   struct col_scratch *scratch, size_t count);

/* Split properties text[0:size), at most COL_TEXT_MAX bytes of them, into pairs[0:COL_PAIRS_MAX);
 * returns the number of pairs. *high: whether any byte is above 0x7F. */
size_t col_split(const uint8_t *text, size_t size, struct col_pair *pairs, int *high);

#endif
