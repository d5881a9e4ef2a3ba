/* Search, tail and put on an index file of any bytes. Input: slots and entries (2 bytes each),
 * number of calls, the calls (kind, hash, log offset, two times), then the file. */
#include "hash_index.h"

#include "bytes.h"
#include "fuzz.h"

enum { MAX_CALLS = 31, MAX_FOUND = 8, MAX_SIZE = 1024, CALL_SIZE = 23 };

/* Check that each found entry is in the file, newest first. */
static void check_found(const struct idx_file *file, int32_t key_hash, const int64_t *found,
                        size_t count)
{
    uint32_t number = file->entries;
    for (size_t n = 0; n < count; n++) {
        const uint8_t *entry;
        do {
            CHECK(number > 1);
            number--;
            entry = file->buf + IDX_HEADER + (size_t)file->slots * IDX_SLOT +
                    (size_t)number * IDX_ENTRY;
        } while (be_i64(entry + IDX_ENTRY_LOG_OFFSET_AT) != found[n] ||
                 be_i32(entry + IDX_ENTRY_HASH_AT) != key_hash);
    }
}

static void call(const struct idx_file *file, struct input *input)
{
    unsigned kind = (unsigned)take(input, 1);
    int32_t hash = idx_key_hash((uint32_t)take(input, 4));
    int64_t log_offset = (int64_t)take(input, 8);
    int64_t begin_ms = (int64_t)take(input, 6), end_ms = begin_ms + (int64_t)take(input, 4);
    uint32_t count = idx_count(file);
    int64_t *found = room(MAX_FOUND * sizeof *found);

    switch (kind & 3) {
    case 0:
        check_found(file, hash, found,
                    idx_search(file, hash, begin_ms, end_ms, found, (kind >> 2) % (MAX_FOUND + 1)));
        break;
    case 1:
        check_found(file, hash, found,
                    idx_search(file, hash, INT64_MIN, INT64_MAX, found, MAX_FOUND));
        break;
    case 2:
        CHECK(idx_tail_of(file, log_offset) < file->entries);
        break;
    default:
        CHECK(idx_put(file, hash, log_offset, begin_ms) == (count < file->entries));
        if (count < file->entries) {
            CHECK(idx_count(file) == count + 1 && idx_end_log_offset(file) == log_offset);
            CHECK(idx_tail_of(file, log_offset) >= 1);
            CHECK(idx_search(file, hash, INT64_MIN, INT64_MAX, found, 1) == 1);
            CHECK(found[0] == log_offset);
        }
    }
    CHECK(idx_is_full(file) == (idx_count(file) >= file->entries));
    free(found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size}, calls;
    int64_t slots = (int64_t)take(&input, 2) % MAX_SIZE + 1;
    int64_t entries = (int64_t)take(&input, 2) % MAX_SIZE + 1;
    size_t call_count = (size_t)take(&input, 1) & MAX_CALLS, calls_size = call_count * CALL_SIZE;
    size_t len = IDX_HEADER + (size_t)slots * IDX_SLOT + (size_t)entries * IDX_ENTRY;
    uint8_t *buf, *text;
    struct idx_file file;
    uint32_t hash;

    calls.at = input.at;
    calls.left = calls_size < input.left ? calls_size : input.left;
    input.at += calls.left;
    input.left -= calls.left;
    text = malloc(input.left);
    if (input.left > 0) {
        memcpy(text, input.at, input.left);
    }
    hash = idx_java_hash(0, text, input.left);
    CHECK(idx_java_hash(0, text, input.left) == hash && idx_key_hash(hash) >= 0);
    free(text);
    buf = take_copy(&input, len);
    CHECK(!idx_open(&file, buf, len - 1, slots, entries));
    CHECK(idx_open(&file, buf, len, slots, entries));
    for (size_t n = 0; n < call_count; n++) {
        call(&file, &calls);
    }
    free(buf);
    return 0;
}
