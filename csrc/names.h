/* Texts to small numbers: 0, 1, 2 ... in the order in which they were added. The rows of a topic
 * table, for example, lie in an array of the caller under the same number.
 *
 * A name is one text, or two (a group and its topic), which are stored with a 0 between them.
 * Single names are never removed, only all together: the caller marks a row as void instead. The
 * caller owns all memory: keys, buckets (a power of two, at least twice the keys), and the
 * texts. */
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
    int32_t *buckets; /* -1: empty; NULL: no names yet */
    size_t bucket_mask;
    int32_t count;
};

struct nam_text {
    const uint8_t *at;
    size_t size;
};

/* The number of a name, -1 if it has none. second.at == NULL: a single text. */
int32_t nam_find(const struct nam_table *table, struct nam_text first, struct nam_text second);

/* Add a name that has no number yet, and return its number; the caller keeps `text` (both texts
 * with a 0 between, the first of first_size bytes). There must be room. */
int32_t nam_add(struct nam_table *table, const uint8_t *text, size_t first_size, size_t size);

/* Replace the buckets, and enter the existing keys. */
void nam_rehash(struct nam_table *table, int32_t *buckets, size_t bucket_count);

/* Forget every name; keys and buckets stay. */
void nam_clear(struct nam_table *table);

#endif
