/* Descriptors: all that dispatch needs to know of a record, noted by its appender, so that dispatch
 * does not parse the record again.
 *
 *     appends ->  | log offset, slot, queue offset, size, tags code, key hashes, store time | ...
 *     dispatch <- the descriptor whose log offset is the record's; other records are parsed
 *
 * A ring of bounded size, in the order of the log. A descriptor may be missing at any time (the
 * ring is full, the record has more keys, Python or a master appended it): then the record is
 * parsed, with the same result. A descriptor must never differ from its record. Its log offset is
 * its name, so a caller that cuts the log or frees a queue's slot must call des_forget:
 * another record may get the same log offset, and another queue the same slot.
 *
 * Only plain messages are described: without a transaction, and without a delay level, whose tags
 * code is a time. All memory is the caller's. */
#ifndef TURBOPUMP_DESCRIPTORS_H
#define TURBOPUMP_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

#include "record.h"

enum {
    DES_COUNT = 1024, /* descriptors of a ring, a power of two */
    DES_KEYS = 5,     /* keys of a descriptor: a record with more is parsed */
    DES_NO_KEYS = 255 /* key_count of a descriptor that was made while no keys were indexed */
};

struct des_record {
    int64_t log_offset;
    int64_t queue_offset;
    int64_t store_timestamp_ms;
    int64_t tags_code;
    int32_t size; /* of the record */
    int32_t slot; /* of its queue in the dispatch table */
    uint32_t key_count;
    uint32_t keys[DES_KEYS]; /* Java hashes of its keys, in the order of their index entries */
};
_Static_assert(sizeof(struct des_record) <= 64, "a descriptor is a cache line");

struct des_ring {
    struct des_record *records; /* DES_COUNT of them; NULL: nothing is described */
    uint32_t first, end;        /* places modulo DES_COUNT; equal: the ring is empty */
    int64_t taken_count;        /* descriptors that dispatch has used, for tests and figures */
};

/* Free places of the ring. */
static inline uint32_t des_room(const struct des_ring *ring)
{
    return ring->records == NULL ? 0 : DES_COUNT - (ring->end - ring->first);
}

/* Place `ahead` after the last descriptor. The caller checks des_room, fills the place, and then
 * counts it by des_add. */
static inline struct des_record *des_at(const struct des_ring *ring, uint32_t ahead)
{
    return &ring->records[(ring->end + ahead) & (DES_COUNT - 1)];
}

/* Take up `count` filled places, with greater log offsets than the descriptors before them. */
static inline void des_add(struct des_ring *ring, uint32_t count) { ring->end += count; }

/* Set tags code, key count and keys of a record, from its properties (at == NULL: missing);
 * `topic_hash` is the Java hash of "topic#". Returns 0 if the record has too many keys. */
int des_set_keys(struct des_record *record, uint32_t topic_hash, struct rec_text unique_key,
                 struct rec_text keys, struct rec_text tags);

/* Drop the descriptors of records before this log offset, and return the record's own; NULL if the
 * record is not described. The descriptor is valid until the next des_add or des_forget. */
const struct des_record *des_take(struct des_ring *ring, int64_t log_offset);

/* Drop all descriptors. */
void des_forget(struct des_ring *ring);

#endif
