#include "descriptors.h"

#include <string.h>

#include "hash_index.h"

#define KEY_SEPARATOR ' '

static int add_key(struct des_record *record, uint32_t hash)
{
    if (record->key_count == DES_KEYS) {
        return 0;
    }
    record->keys[record->key_count++] = hash;
    return 1;
}

static int add_words(struct des_record *record, uint32_t topic_hash, struct rec_text text)
{
    const uint8_t *at = text.at, *end = text.at + text.size;
    while (at < end) {
        const uint8_t *stop = memchr(at, KEY_SEPARATOR, (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        if (stop > at && !add_key(record, idx_java_hash(topic_hash, at, (size_t)(stop - at)))) {
            return 0;
        }
        at = stop + 1;
    }
    return 1;
}

int des_set_keys(struct des_record *record, uint32_t topic_hash, struct rec_text unique_key,
                 struct rec_text keys, struct rec_text tags)
{
    uint32_t hash;
    record->key_count = 0;
    record->tags_code = tags.at == NULL ? 0 : (int32_t)idx_java_hash(0, tags.at, tags.size);
    if (unique_key.at != NULL) {
        add_key(record, idx_java_hash(topic_hash, unique_key.at, unique_key.size));
    }
    if (keys.at != NULL && !add_words(record, topic_hash, keys)) {
        return 0;
    }
    if (tags.at == NULL) {
        return 1;
    }
    hash = idx_java_hash(topic_hash, (const uint8_t *)"T#", 2);
    return add_key(record, idx_java_hash(hash, tags.at, tags.size));
}

const struct des_record *des_take(struct des_ring *ring, int64_t log_offset)
{
    while (ring->first != ring->end) {
        const struct des_record *record = &ring->records[ring->first & (DES_COUNT - 1)];
        if (record->log_offset > log_offset) {
            return NULL;
        }
        if (++ring->first == ring->end) {
            ring->first = ring->end = 0; /* the first places are in the processor's cache */
        }
        if (record->log_offset == log_offset) {
            ring->taken_count++;
            return record;
        }
    }
    return NULL;
}

void des_forget(struct des_ring *ring) { ring->first = ring->end = 0; }
