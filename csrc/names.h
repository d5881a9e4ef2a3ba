/* Texts to small numbers: 0, 1, 2 ... in the order they were added. The rows of a topic table, say,
 * lie in an array of the caller under the same number.
 *
 * A name is one text, or two (a group and its topic), which are kept with a 0 between them. Nothing
 * is removed but everything at once: the caller marks a row as void instead. All memory is the
 * caller's: keys, buckets (a power of two, at least twice the keys), and the texts. */
#ifndef TURBOPUMP_NAMES_H
#define TURBOPUMP_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct nam_key {
    const uint8_t *text;
    size_t size;
    uint32_t hash;
};

struct nam_table {
    struct nam_key *keys;
    int32_t *buckets; /* -1: empty; NULL: no name yet */
    size_t bucket_mask;
    int32_t count;
};

struct nam_text {
    const uint8_t *at;
    size_t size;
};

/* The number of a name, -1 if it has none. second.at == NULL: a name of one text. */
int32_t nam_find(const struct nam_table *table, struct nam_text first, struct nam_text second);

/* Number a name that has none; `text` stays the caller's (both texts with a 0 between, first_size
 * long the first). There must be room. */
int32_t nam_add(struct nam_table *table, const uint8_t *text, size_t first_size, size_t size);

/* Use these buckets from now on, for the keys there are. */
void nam_rehash(struct nam_table *table, int32_t *buckets, size_t bucket_count);

/* Forget every name; keys and buckets stay. */
void nam_clear(struct nam_table *table);

#endif
