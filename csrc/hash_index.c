#include "hash_index.h"

#include "bytes.h"

#define REPLACEMENT 0xFFFDu
#define MILLIS_PER_SECOND 1000

int idx_open(struct idx_file *file, uint8_t *buf, size_t len, int64_t slots, int64_t entries)
{
    if (slots < 1 || slots > INT32_MAX || entries < 1 || entries > INT32_MAX ||
        len < IDX_HEADER + (size_t)slots * IDX_SLOT + (size_t)entries * IDX_ENTRY) {
        return 0;
    }
    file->buf = buf;
    file->slots = (uint32_t)slots;
    file->entries = (uint32_t)entries;
    return 1;
}

static int is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

/* Decode the sequence at text[0:size), whose first byte is >= 0x80, into *code; its length. */
static size_t decode_sequence(const uint8_t *text, size_t size, uint32_t *code)
{
    uint8_t first = text[0];
    /* The second byte's range excludes overlong forms, surrogates and code points above
     * U+10FFFF. */
    uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    size_t need = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    uint32_t value = first & (0xFFu >> (need + 1));

    *code = REPLACEMENT;
    if (first < 0xC2 || first > 0xF4 || size < 2 || text[1] < low || text[1] > high) {
        return 1;
    }
    value = value << 6 | (text[1] & 0x3Fu);
    for (size_t i = 2; i < need; i++) {
        if (i == size || !is_continuation(text[i])) {
            return i;
        }
        value = value << 6 | (text[i] & 0x3Fu);
    }
    *code = value;
    return need;
}

uint32_t idx_java_hash(uint32_t hash, const uint8_t *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        uint32_t code, four;
        while (size - at >= 4) { /* four at a time: the chain of multiplications is the cost */
            memcpy(&four, text + at, sizeof four);
            if (four & 0x80808080u) {
                break;
            }
            hash = hash * 923521u + text[at] * 29791u + text[at + 1] * 961u + text[at + 2] * 31u +
                   text[at + 3];
            at += 4;
        }
        if (at == size) {
            break;
        }
        if (text[at] < 0x80) {
            hash = hash * 31u + text[at++];
            continue;
        }
        at += decode_sequence(text + at, size - at, &code);
        if (code > 0xFFFF) {
            hash = hash * 31u + (0xD800u + ((code - 0x10000u) >> 10));
            code = 0xDC00u + (code & 0x3FFu);
        }
        hash = hash * 31u + code;
    }
    return hash;
}

uint32_t idx_topic_hash(const uint8_t *topic, size_t size)
{
    return idx_java_hash(idx_java_hash(0, topic, size), (const uint8_t *)"#", 1);
}

uint32_t idx_count(const struct idx_file *file)
{
    int32_t count = be_i32(file->buf + IDX_COUNT_AT);
    return count < 1 ? 1 : (uint32_t)count;
}

int idx_is_full(const struct idx_file *file) { return idx_count(file) >= file->entries; }

int64_t idx_end_log_offset(const struct idx_file *file)
{
    return be_i64(file->buf + IDX_END_LOG_OFFSET_AT);
}

static uint8_t *slot_at(const struct idx_file *file, int32_t key_hash)
{
    return file->buf + IDX_HEADER + (size_t)((uint32_t)key_hash % file->slots) * IDX_SLOT;
}

void idx_expect(const struct idx_file *file, int32_t key_hash)
{
    __builtin_prefetch(slot_at(file, key_hash), 1);
}

static uint8_t *entry_at(const struct idx_file *file, uint32_t number)
{
    return file->buf + IDX_HEADER + (size_t)file->slots * IDX_SLOT + (size_t)number * IDX_ENTRY;
}

/* Number of entries written and within the file, whatever the header claims. */
static uint32_t written_end(const struct idx_file *file)
{
    uint32_t count = idx_count(file);
    return count < file->entries ? count : file->entries;
}

uint32_t idx_tail_of(const struct idx_file *file, int64_t log_offset)
{
    uint32_t end = written_end(file), number = end;
    while (number > 1 &&
           be_i64(entry_at(file, number - 1) + IDX_ENTRY_LOG_OFFSET_AT) == log_offset) {
        number--;
    }
    return end - number;
}

/* Seconds since the begin of the file, limited to [0, INT32_MAX]. */
static int32_t seconds_since(int64_t begin_ms, int64_t time_ms)
{
    int64_t seconds;
    if (begin_ms <= 0 || time_ms <= begin_ms) {
        return 0;
    }
    seconds = (time_ms - begin_ms) / MILLIS_PER_SECOND;
    return seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

int idx_put(const struct idx_file *file, int32_t key_hash, int64_t log_offset,
            int64_t store_timestamp_ms)
{
    uint8_t *buf = file->buf, *slot = slot_at(file, key_hash), *entry;
    uint32_t count = idx_count(file);
    int32_t previous = be_i32(slot);

    if (count >= file->entries) {
        return 0;
    }
    if (previous <= 0 || (uint32_t)previous >= count) {
        previous = 0;
    }
    entry = entry_at(file, count);
    be_put_i32(entry + IDX_ENTRY_HASH_AT, key_hash);
    be_put_i64(entry + IDX_ENTRY_LOG_OFFSET_AT, log_offset);
    be_put_i32(entry + IDX_ENTRY_SECONDS_AT,
               seconds_since(be_i64(buf + IDX_BEGIN_TIMESTAMP_AT), store_timestamp_ms));
    be_put_i32(entry + IDX_ENTRY_PREVIOUS_AT, previous);
    be_put_i32(slot, (int32_t)count);
    if (count == 1) {
        be_put_i64(buf + IDX_BEGIN_LOG_OFFSET_AT, log_offset);
        be_put_i64(buf + IDX_BEGIN_TIMESTAMP_AT, store_timestamp_ms);
    }
    if (previous == 0) {
        be_put_i32(buf + IDX_SLOT_COUNT_AT,
                   (int32_t)(be_u32(buf + IDX_SLOT_COUNT_AT) + 1u));
    }
    be_put_i32(buf + IDX_COUNT_AT, (int32_t)(count + 1));
    be_put_i64(buf + IDX_END_LOG_OFFSET_AT, log_offset);
    be_put_i64(buf + IDX_END_TIMESTAMP_AT, store_timestamp_ms);
    return 1;
}

size_t idx_search(const struct idx_file *file, int32_t key_hash, int64_t begin_ms, int64_t end_ms,
                  int64_t *found, size_t max_count)
{
    int64_t begin_of_file_ms = be_i64(file->buf + IDX_BEGIN_TIMESTAMP_AT);
    uint32_t bound = written_end(file);
    int32_t number = be_i32(slot_at(file, key_hash));
    size_t count = 0;

    /* Each link must lead to an older entry: this ends damaged chains and circles. */
    while (count < max_count && number > 0 && (uint32_t)number < bound) {
        const uint8_t *entry = entry_at(file, (uint32_t)number);
        int32_t seconds = be_i32(entry + IDX_ENTRY_SECONDS_AT);
        int64_t time_ms;
        if (seconds < 0) {
            break;
        }
        /* Unsigned: a damaged begin time must not overflow. */
        time_ms = (int64_t)((uint64_t)begin_of_file_ms + (uint64_t)seconds * MILLIS_PER_SECOND);
        if (time_ms >= begin_ms && time_ms <= end_ms &&
            be_i32(entry + IDX_ENTRY_HASH_AT) == key_hash) {
            found[count++] = be_i64(entry + IDX_ENTRY_LOG_OFFSET_AT);
        }
        if (time_ms < begin_ms) {
            break;
        }
        bound = (uint32_t)number;
        number = be_i32(entry + IDX_ENTRY_PREVIOUS_AT);
    }
    return count;
}
