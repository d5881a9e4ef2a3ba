#include "columns_text.h"

#include <string.h>

#include "bytes.h"

#define NAME_VALUE_SEPARATOR 0x01
#define PROPERTY_SEPARATOR 0x02
#define NO_MIDDLE SIZE_MAX
#define EACH_BYTE(value) (0x0101010101010101u * (value))

enum { WIDE = 32, FEW_PAIRS = 16 };

/* Copy a text that is often short: as whole vectors, if as many bytes may be read. The target
 * always has room for COL_SLACK more bytes. */
static void copy_text(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *readable_end)
{
    if (size <= WIDE && (size_t)(readable_end - from) >= WIDE) {
        memcpy(to, from, WIDE);
    } else if (size > 0) {
        memcpy(to, from, size);
    }
}

static void put_topics(struct col_texts *texts, const uint8_t *buf, size_t end, size_t first,
                       struct rec_row *const *picked, size_t count)
{
    int32_t at = texts->offsets[first];
    for (size_t n = 0; n < count; n++) {
        const uint8_t *topic = buf + picked[n]->topic_at;
        size_t size = (size_t)picked[n]->topic_size;
        if (utf8_is_valid(topic, size)) {
            copy_text(texts->data + at, topic, size, buf + end);
        } else {
            size = utf8_replace(texts->data + at, topic, size);
        }
        texts->offsets[first + n + 1] = at += (int32_t)size;
    }
}

static uint8_t *put_decimal(uint8_t *to, uint32_t value)
{
    uint8_t digits[10];
    size_t at = sizeof digits;
    do {
        digits[--at] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    memcpy(to, digits + at, sizeof digits - at);
    return to + (sizeof digits - at);
}

static uint8_t *put_octet(uint8_t *to, uint8_t value)
{
    if (value >= 100) {
        *to++ = (uint8_t)('0' + value / 100);
    }
    if (value >= 10) {
        *to++ = (uint8_t)('0' + value / 10 % 10);
    }
    *to++ = (uint8_t)('0' + value % 10);
    return to;
}

/* An IPv6 address as in RFC 5952: the first longest run of two or more zero groups is "::". */
static uint8_t *put_ipv6(uint8_t *to, const uint8_t *address)
{
    int run_at = -1, run = 1;
    for (int at = 0; at < 8; at++) {
        int length = 0;
        while (at + length < 8 && be_u16(address + 2 * (at + length)) == 0) {
            length++;
        }
        if (length > run) {
            run_at = at;
            run = length;
        }
        at += length;
    }
    for (int at = 0; at < 8; at++) {
        uint32_t group = be_u16(address + 2 * at);
        int shift = group > 0xFFF ? 12 : group > 0xFF ? 8 : group > 0xF ? 4 : 0;
        if (at == run_at) {
            *to++ = ':';
            at += run - 1;
            if (at == 7) {
                *to++ = ':';
            }
            continue;
        }
        if (at > 0) {
            *to++ = ':';
        }
        for (; shift >= 0; shift -= 4) {
            *to++ = (uint8_t)"0123456789abcdef"[group >> shift & 0xF];
        }
    }
    return to;
}

size_t col_host_text(uint8_t *out, const uint8_t *host, size_t size)
{
    uint8_t *to = out;
    if (size == REC_HOST_V4) {
        for (int n = 0; n < 4; n++) {
            to = put_octet(to, host[n]);
            *to++ = n < 3 ? '.' : ':';
        }
    } else {
        *to++ = '[';
        to = put_ipv6(to, host);
        *to++ = ']';
        *to++ = ':';
    }
    to = put_decimal(to, be_u32(host + size - 4));
    return (size_t)(to - out);
}

static int is_same_host(const uint8_t *a, const uint8_t *b, size_t size)
{
    return size == REC_HOST_V4 ? be_u64(a) == be_u64(b) : memcmp(a, b, size) == 0;
}

/* Consecutive records often have the same host: then its text is copied. */
static void put_hosts(struct col_texts *texts, const uint8_t *buf, size_t first, int is_store,
                      struct rec_row *const *picked, size_t count)
{
    uint8_t last[REC_HOST_V6], text[COL_SLACK];
    size_t last_size = 0, size = 0;
    int32_t at = texts->offsets[first];
    for (size_t n = 0; n < count; n++) {
        const struct rec_row *row = picked[n];
        const uint8_t *host = buf + (is_store ? row->store_host_at : row->born_host_at);
        size_t host_size = (size_t)(is_store ? row->store_host_size : row->born_host_size);
        if (host_size != last_size || !is_same_host(host, last, host_size)) {
            memcpy(last, host, host_size);
            last_size = host_size;
            size = col_host_text(text, last, host_size);
        }
        memcpy(texts->data + at, text, sizeof text);
        texts->offsets[first + n + 1] = at += (int32_t)size;
    }
}

/* Find the first 0x01 in the piece [begin, end) between two 0x02; 1 if the piece counts. */
static size_t take_piece(struct col_pair *pair, size_t begin, size_t middle, size_t end)
{
    if (middle == NO_MIDDLE || middle == begin || middle + 1 == end) {
        return 0;
    }
    *pair = (struct col_pair){(uint32_t)begin, (uint32_t)(middle - begin), (uint32_t)(middle + 1),
                              (uint32_t)(end - middle - 1)};
    return 1;
}

/* The 8 bytes of text[0:size) at `at`, zeros after its end. */
static uint64_t word_at(const uint8_t *text, size_t at, size_t size)
{
    uint64_t word = 0;
    if (size - at >= 8) {
        memcpy(&word, text + at, 8);
    } else if (size >= 8) {
        memcpy(&word, text + size - 8, 8);
        word >>= 8 * (8 - (size - at));
    } else {
        memcpy(&word, text + at, size - at);
    }
    return word;
}

size_t col_split(const uint8_t *text, size_t size, struct col_pair *pairs, int *high)
{
    size_t begin = 0, middle = NO_MIDDLE, count = 0;
    uint64_t all = 0;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = word_at(text, at, size);
        /* The high bit of each byte below 3: none of the additions carries into the next byte. */
        uint64_t hits = ~(((word & EACH_BYTE(0x7F)) + EACH_BYTE(0x7D)) | word) & EACH_BYTE(0x80);
        all |= word;
        for (; hits != 0; hits &= hits - 1) {
            unsigned bit = (unsigned)__builtin_ctzll(hits) - 7;
            size_t where = at + bit / 8;
            uint8_t value = (uint8_t)(word >> bit);
            if (value == NAME_VALUE_SEPARATOR && middle == NO_MIDDLE) {
                middle = where;
            } else if (value == PROPERTY_SEPARATOR) {
                if (count < COL_PAIRS_MAX) {
                    count += take_piece(&pairs[count], begin, middle, where);
                }
                begin = where + 1;
                middle = NO_MIDDLE;
            }
        }
    }
    if (begin < size && count < COL_PAIRS_MAX) {
        count += take_piece(&pairs[count], begin, middle, size);
    }
    *high = (all & EACH_BYTE(0x80)) != 0;
    return count;
}

static int is_same_name(const uint8_t *text, const struct col_pair *a, const struct col_pair *b)
{
    /* Names have at least one byte; most differ in it. */
    return a->name_size == b->name_size && text[a->name_at] == text[b->name_at] &&
           memcmp(text + a->name_at, text + b->name_at, a->name_size) == 0;
}

static size_t slot_of(const uint8_t *name, size_t size)
{
    uint32_t hash = 2166136261u;
    for (size_t n = 0; n < size; n++) {
        hash = (hash ^ name[n]) * 16777619u;
    }
    return (hash ^ hash >> 15) % COL_NAME_SLOTS;
}

/* Find the pair of that name among pairs[0:kept); else put pairs[kept] there and return `kept`.
 * With many pairs, slots by name hold each pair's number plus one. */
static size_t find_name(const uint8_t *text, const struct col_pair *pairs, size_t kept,
                        const struct col_pair *pair, uint16_t *slots)
{
    size_t slot, n;
    if (slots == NULL) {
        for (n = 0; n < kept && !is_same_name(text, &pairs[n], pair); n++) {
        }
        return n;
    }
    slot = slot_of(text + pair->name_at, pair->name_size);
    for (; slots[slot] != 0; slot = (slot + 1) % COL_NAME_SLOTS) {
        n = slots[slot] - 1u;
        if (is_same_name(text, &pairs[n], pair)) {
            return n;
        }
    }
    slots[slot] = (uint16_t)(kept + 1);
    return kept;
}

/* Keep one pair for each name: at the place of the first, with the value of the last. */
static size_t drop_repeated(const uint8_t *text, struct col_pair *pairs, size_t count,
                            uint16_t *slots)
{
    size_t kept = 0;
    if (count <= FEW_PAIRS) {
        slots = NULL;
    } else {
        memset(slots, 0, COL_NAME_SLOTS * sizeof *slots);
    }
    for (size_t n = 0; n < count; n++) {
        struct col_pair pair = pairs[n];
        size_t same = find_name(text, pairs, kept, &pair, slots);
        if (same < kept) {
            pairs[same].value_at = pair.value_at;
            pairs[same].value_size = pair.value_size;
        } else {
            pairs[kept++] = pair;
        }
    }
    return kept;
}

static const struct {
    char name[8];
    size_t size;
} NAMES[COL_NAMED] = {
    [COL_KEYS] = {"KEYS", 4}, [COL_TAGS] = {"TAGS", 4}, [COL_UNIQUE_KEY] = {"UNIQ_KEY", 8},
};

/* The value of a name, or null; the last value counts. */
static void put_named(struct col_batch *batch, int named, size_t row, const uint8_t *text,
                      const uint8_t *text_end, const struct col_pair *pairs, size_t count)
{
    struct col_texts *texts = &batch->named[named];
    int32_t at = texts->offsets[row];
    const struct col_pair *found = NULL;
    for (size_t n = 0; n < count; n++) {
        if (pairs[n].name_size == NAMES[named].size &&
            text[pairs[n].name_at] == (uint8_t)NAMES[named].name[0] &&
            memcmp(text + pairs[n].name_at, NAMES[named].name, NAMES[named].size) == 0) {
            found = &pairs[n];
        }
    }
    if (found != NULL) {
        copy_text(texts->data + at, text + found->value_at, found->value_size, text_end);
        at += (int32_t)found->value_size;
        col_set_bit(batch->named_valid[named], row);
    } else {
        batch->named_nulls[named]++;
    }
    texts->offsets[row + 1] = at;
}

static void put_map(struct col_batch *batch, size_t row, const uint8_t *text,
                    const uint8_t *text_end, const struct col_pair *pairs, size_t count)
{
    struct col_texts *names = &batch->names, *values = &batch->values;
    size_t entry = batch->entries;
    int32_t name_at = names->offsets[entry], value_at = values->offsets[entry];
    for (size_t n = 0; n < count; n++) {
        const struct col_pair *pair = &pairs[n];
        copy_text(names->data + name_at, text + pair->name_at, pair->name_size, text_end);
        copy_text(values->data + value_at, text + pair->value_at, pair->value_size, text_end);
        names->offsets[entry + n + 1] = name_at += (int32_t)pair->name_size;
        values->offsets[entry + n + 1] = value_at += (int32_t)pair->value_size;
    }
    batch->entries += count;
    batch->map[row + 1] = (int32_t)batch->entries;
}

static void put_properties(const uint8_t *buf, size_t end, struct col_batch *batch,
                           struct col_scratch *scratch, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        const uint8_t *text = buf + scratch->picked[n]->properties_at, *text_end = buf + end;
        size_t size = (size_t)scratch->picked[n]->properties_size, row = batch->rows + n;
        int high;
        size_t pairs = col_split(text, size, scratch->pairs, &high);
        if (high && !utf8_is_valid(text, size)) {
            size = utf8_replace(scratch->text, text, size);
            text = scratch->text;
            text_end = scratch->text + sizeof scratch->text;
            pairs = col_split(text, size, scratch->pairs, &high);
        }
        for (int named = 0; named < COL_NAMED; named++) {
            if (batch->named[named].offsets != NULL) {
                put_named(batch, named, row, text, text_end, scratch->pairs, pairs);
            }
        }
        if (batch->map != NULL) {
            pairs = drop_repeated(text, scratch->pairs, pairs, scratch->slots);
            put_map(batch, row, text, text_end, scratch->pairs, pairs);
        }
    }
}

void col_put_texts(const uint8_t *buf, size_t end, struct col_batch *batch,
                   struct col_scratch *scratch, size_t count)
{
    int named = batch->map != NULL;
    if (batch->topic.offsets != NULL) {
        put_topics(&batch->topic, buf, end, batch->rows, scratch->picked, count);
    }
    for (int n = 0; n < COL_HOSTS; n++) {
        if (batch->hosts[n].offsets != NULL) {
            put_hosts(&batch->hosts[n], buf, batch->rows, n == COL_STORE_HOST, scratch->picked,
                      count);
        }
    }
    for (int n = 0; n < COL_NAMED; n++) {
        named |= batch->named[n].offsets != NULL;
    }
    if (named) {
        put_properties(buf, end, batch, scratch, count);
    }
}
