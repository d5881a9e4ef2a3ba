/* One file of the key index (RocketMQ: store/index/IndexFile, IndexHeader).
 *
 *     0                 8                 16                24                32       36      40
 *     +-----------------+-----------------+-----------------+-----------------+--------+--------+
 *     | beginTimestamp  | endTimestamp    | beginLogOffset  | endLogOffset    | slots  | count  |
 *     +-----------------+-----------------+-----------------+-----------------+--------+--------+
 *     40: `slots` times int32, the number of the newest entry of the slot's chain, 0 = none
 *     40 + slots * 4: `entries` times
 *     0        4                 12       16       20
 *     +--------+-----------------+--------+--------+
 *     | keyHash| logOffset       | seconds| previous      seconds since beginTimestamp
 *     +--------+-----------------+--------+--------+      previous entry of the chain, 0 = end
 *
 * `count` is the number of the next entry; it starts at 1 because entry 0 is never used (0 on disk
 * is a file without entries). `slots` in the header counts slots in use. keyHash is abs of Java's
 * String.hashCode, 0 for its minimum; the slot is keyHash mod slots.
 *
 * idx_open checks that the region can hold the file; after that every entry and slot number read
 * from the file is checked before it is followed, so a damaged file gives wrong answers at worst.
 */
#ifndef TURBOPUMP_HASH_INDEX_H
#define TURBOPUMP_HASH_INDEX_H

#include <stddef.h>
#include <stdint.h>

enum {
    IDX_BEGIN_TIMESTAMP_AT = 0,
    IDX_END_TIMESTAMP_AT = IDX_BEGIN_TIMESTAMP_AT + 8,
    IDX_BEGIN_LOG_OFFSET_AT = IDX_END_TIMESTAMP_AT + 8,
    IDX_END_LOG_OFFSET_AT = IDX_BEGIN_LOG_OFFSET_AT + 8,
    IDX_SLOT_COUNT_AT = IDX_END_LOG_OFFSET_AT + 8,
    IDX_COUNT_AT = IDX_SLOT_COUNT_AT + 4,
    IDX_HEADER = IDX_COUNT_AT + 4,
    IDX_SLOT = 4,
    IDX_ENTRY_HASH_AT = 0,
    IDX_ENTRY_LOG_OFFSET_AT = IDX_ENTRY_HASH_AT + 4,
    IDX_ENTRY_SECONDS_AT = IDX_ENTRY_LOG_OFFSET_AT + 8,
    IDX_ENTRY_PREVIOUS_AT = IDX_ENTRY_SECONDS_AT + 4,
    IDX_ENTRY = IDX_ENTRY_PREVIOUS_AT + 4
};
_Static_assert(IDX_HEADER == 40, "INDEX_HEADER_SIZE");
_Static_assert(IDX_ENTRY == 20, "indexSize");

struct idx_file {
    uint8_t *buf;
    uint32_t slots;
    uint32_t entries;
};

/* Whether a file with these slots and entries fits into buf[0:len); fills *file if so. */
int idx_open(struct idx_file *file, uint8_t *buf, size_t len, int64_t slots, int64_t entries);

/* Java's String.hashCode over the UTF-16 units of UTF-8 text, continued from `hash` (start with 0).
 * Each malformed sequence counts as one U+FFFD, at the place where decoders put it (maximal
 * subpart). */
uint32_t idx_java_hash(uint32_t hash, const uint8_t *text, size_t size);

/* Java hash of "topic#", with which each key of a record begins. */
uint32_t idx_topic_hash(const uint8_t *topic, size_t size);

/* abs as IndexFile.indexKeyHashMethod: 0 for the smallest int. */
static inline int32_t idx_key_hash(uint32_t java_hash)
{
    int32_t hash = (int32_t)java_hash;
    return hash >= 0 ? hash : hash == INT32_MIN ? 0 : -hash;
}

/* Number of the next entry, at least 1. */
uint32_t idx_count(const struct idx_file *file);
/* Whether idx_put would add nothing. */
int idx_is_full(const struct idx_file *file);
/* Log offset at which the record of the last entry begins, as the header has it. */
int64_t idx_end_log_offset(const struct idx_file *file);

/* Number of entries at the end of the file that belong to this log offset. */
uint32_t idx_tail_of(const struct idx_file *file, int64_t log_offset);

/* Prefetch the slot of a key that will be put: slots lie at random. */
void idx_expect(const struct idx_file *file, int32_t key_hash);

/* Add an entry; 0 if the file is full, and nothing is written. */
int idx_put(const struct idx_file *file, int32_t key_hash, int64_t log_offset,
            int64_t store_timestamp_ms);

/* Put the log offsets of entries with this hash and a store time in [begin_ms, end_ms] (epoch ms,
 * to a second), newest first, into found[0:max_count); returns their number. */
size_t idx_search(const struct idx_file *file, int32_t key_hash, int64_t begin_ms, int64_t end_ms,
                  int64_t *found, size_t max_count);

#endif
