#include "names.h"

#include <string.h>

#define HASH_STEP 0x9E3779B97F4A7C15ull /* 2^64 / golden ratio: spreads low entropy upwards */

static uint64_t mix(uint64_t hash, const uint8_t *text, size_t size)
{
    uint64_t word;
    for (; size >= sizeof word; text += sizeof word, size -= sizeof word) {
        memcpy(&word, text, sizeof word);
        hash = (hash ^ word) * HASH_STEP;
        hash ^= hash >> 32;
    }
    if (size > 0) {
        word = 0;
        memcpy(&word, text, size);
        hash = (hash ^ word) * HASH_STEP;
        hash ^= hash >> 32;
    }
    return hash;
}

static uint32_t hash_of(struct nam_text first, struct nam_text second)
{
    uint64_t hash = mix(first.size * HASH_STEP + second.size, first.at, first.size);
    hash = mix(hash, second.at, second.size) * HASH_STEP;
    return (uint32_t)(hash >> 32);
}

static int is_named(const struct nam_key *key, uint32_t hash, struct nam_text first,
                    struct nam_text second)
{
    size_t size = first.size + (second.at == NULL ? 0 : 1 + second.size);
    if (key->hash != hash || key->size != size || memcmp(key->text, first.at, first.size) != 0) {
        return 0;
    }
    return second.at == NULL ||
           (key->text[first.size] == 0 &&
            memcmp(key->text + first.size + 1, second.at, second.size) == 0);
}

int32_t nam_find(const struct nam_table *table, struct nam_text first, struct nam_text second)
{
    uint32_t hash = hash_of(first, second);
    size_t bucket = hash & table->bucket_mask;
    int32_t number;
    if (table->buckets == NULL) {
        return -1;
    }
    while ((number = table->buckets[bucket]) >= 0) {
        if (is_named(&table->keys[number], hash, first, second)) {
            return number;
        }
        bucket = (bucket + 1) & table->bucket_mask;
    }
    return -1;
}

static void enter(struct nam_table *table, int32_t number)
{
    size_t bucket = table->keys[number].hash & table->bucket_mask;
    while (table->buckets[bucket] >= 0) {
        bucket = (bucket + 1) & table->bucket_mask;
    }
    table->buckets[bucket] = number;
}

int32_t nam_add(struct nam_table *table, const uint8_t *text, size_t first_size, size_t size)
{
    struct nam_text first = {text, first_size}, second = {NULL, 0};
    struct nam_key *key = &table->keys[table->count];
    if (size > first_size) {
        second.at = text + first_size + 1;
        second.size = size - first_size - 1;
    }
    key->text = text;
    key->size = size;
    key->hash = hash_of(first, second);
    enter(table, table->count);
    return table->count++;
}

void nam_rehash(struct nam_table *table, int32_t *buckets, size_t bucket_count)
{
    table->buckets = buckets;
    table->bucket_mask = bucket_count - 1;
    memset(buckets, 0xFF, bucket_count * sizeof *buckets); /* -1 everywhere */
    for (int32_t number = 0; number < table->count; number++) {
        enter(table, number);
    }
}

void nam_clear(struct nam_table *table)
{
    if (table->buckets != NULL) {
        memset(table->buckets, 0xFF, (table->bucket_mask + 1) * sizeof *table->buckets);
    }
    table->count = 0;
}
