#define _GNU_SOURCE /* memmem */
#include "load_frame.h"

#include <string.h>

#include "bytes.h"
#include "record.h"

enum {
    BINARY_CODE_AT = LOAD_HEAD,
    BINARY_OPAQUE_AT = BINARY_CODE_AT + 2 + 1 + 2,
    BINARY_REMARK_AT = BINARY_OPAQUE_AT + 4 + 4,
    BINARY_FIXED = BINARY_REMARK_AT + 4 + 4 /* including the sizes of remark and fields */
};

static void put_digits(uint8_t *at, uint64_t value, size_t digits)
{
    while (digits > 0) {
        digits--;
        at[digits] = (uint8_t)('0' + value % 10);
        value /= 10;
    }
}

static void put_hex(uint8_t *at, uint64_t value, size_t digits)
{
    while (digits > 0) {
        digits--;
        at[digits] = (uint8_t)"0123456789ABCDEF"[value & 15];
        value >>= 4;
    }
}

void load_stamp_set(struct load_stamp *stamp, int64_t epoch_ms)
{
    if (stamp->ms != epoch_ms) {
        stamp->ms = epoch_ms;
        put_digits(stamp->digits, (uint64_t)epoch_ms, LOAD_BORN_DIGITS);
    }
}

void load_put_opaque(uint8_t *at, uint32_t codec, int32_t opaque)
{
    if (codec == LOAD_JSON) {
        put_digits(at, (uint64_t)opaque, LOAD_OPAQUE_DIGITS);
    } else {
        be_put_i32(at, opaque);
    }
}

static void put_head(uint8_t *out, const uint8_t *texts, const struct load_template *template,
                     uint32_t slot, const struct load_stamp *stamp, uint64_t *serial)
{
    memcpy(out, texts + template->at, template->size);
    load_put_opaque(out + template->opaque_at, template->codec, LOAD_OPAQUE_BASE + (int32_t)slot);
    if (template->born_at != 0) {
        memcpy(out + template->born_at, stamp->digits, LOAD_BORN_DIGITS);
    }
    if (template->keys_at != 0) {
        memcpy(out + template->keys_at, stamp->digits, LOAD_KEYS_DIGITS);
    }
    if (template->unique_at != 0) {
        put_hex(out + template->unique_at, (*serial)++, LOAD_UNIQUE_DIGITS);
    }
}

void load_put_due(uint8_t *frame, const struct load_due *due, uint64_t serial)
{
    uint64_t due_ms = (uint64_t)due->first_ms + serial % (uint64_t)due->spread_ms;
    put_digits(frame + due->at, due_ms, LOAD_BORN_DIGITS);
}

size_t load_put_send(uint8_t *out, const uint8_t *texts, const struct load_template *template,
                     const struct load_body *body, uint32_t slot, const struct load_stamp *stamp,
                     uint64_t *serial)
{
    put_head(out, texts, template, slot, stamp, serial);
    out += template->size;
    memcpy(out, body->bytes, body->size);
    if (body->unique_at != 0) {
        for (size_t i = 0; i < body->count; i++) {
            put_hex(out + body->unique_at + i * body->stride, (*serial)++, LOAD_UNIQUE_DIGITS);
        }
    }
    return template->size + body->size;
}

static void grow(uint8_t *length, size_t more)
{
    be_put_i32(length, be_i32(length) + (int32_t)more);
}

size_t load_put_pull(uint8_t *out, const uint8_t *texts, const struct load_template *template,
                     uint32_t slot, int64_t queue_offset)
{
    size_t digits = 1, at = template->offset_at, more;
    for (int64_t rest = queue_offset / 10; rest > 0; rest /= 10) {
        digits++;
    }
    more = digits - 1;
    memcpy(out, texts + template->at, at);
    memcpy(out + at + digits, texts + template->at + at + 1, template->size - at - 1);
    put_digits(out + at, (uint64_t)queue_offset, digits);
    /* net/wire writes the opaque of a JSON header after the fields. */
    load_put_opaque(out + template->opaque_at + (template->opaque_at > at ? more : 0),
                    template->codec, LOAD_OPAQUE_BASE + (int32_t)slot);
    grow(out, more);
    grow(out + 4, more);
    if (template->codec == LOAD_ROCKETMQ) {
        grow(out + BINARY_FIXED - 4, more); /* a request has no remark */
        grow(out + at - 4, more);
    }
    return template->size + more;
}

static uint64_t behind(const struct load_corpus *corpus, uint64_t number)
{
    return number + 1 < corpus->count ? number + 1 : 0;
}

static size_t body_size(const struct load_corpus *corpus, uint64_t number)
{
    return (size_t)(corpus->ends[number] - corpus->starts[number]);
}

size_t load_replay_size(const struct load_corpus *corpus)
{
    uint64_t number = corpus->next;
    size_t size = 0;
    for (uint32_t i = 0; i < corpus->per_send; i++) {
        size += corpus->element_size + body_size(corpus, number);
        number = behind(corpus, number);
    }
    return size;
}

/* Write one message of a batch; returns its size. */
static size_t put_element(uint8_t *out, const struct load_corpus *corpus, const uint8_t *body,
                          size_t size, uint64_t *serial)
{
    memcpy(out, corpus->element, LOAD_ELEMENT_HEAD);
    grow(out, size);
    grow(out + LOAD_ELEMENT_HEAD - 4, size);
    memcpy(out + LOAD_ELEMENT_HEAD, body, size);
    memcpy(out + LOAD_ELEMENT_HEAD + size, corpus->element + LOAD_ELEMENT_HEAD,
           corpus->element_size - LOAD_ELEMENT_HEAD);
    if (corpus->unique_at != 0) {
        put_hex(out + corpus->unique_at + size, (*serial)++, LOAD_UNIQUE_DIGITS);
    }
    return corpus->element_size + size;
}

size_t load_put_replay(uint8_t *out, const uint8_t *texts, const struct load_template *template,
                       struct load_corpus *corpus, uint32_t slot, const struct load_stamp *stamp,
                       uint64_t *serial)
{
    size_t total = 0;
    uint8_t *at = out + template->size;
    put_head(out, texts, template, slot, stamp, serial);
    for (uint32_t i = 0; i < corpus->per_send; i++) {
        const uint8_t *body = corpus->bytes + corpus->starts[corpus->next];
        size_t size = body_size(corpus, corpus->next);
        if (corpus->element_size != 0) {
            size = put_element(at + total, corpus, body, size, serial);
        } else {
            memcpy(at + total, body, size);
        }
        total += size;
        corpus->next = behind(corpus, corpus->next);
    }
    grow(out, total);
    return template->size + total;
}

/* The number after `name` (with its quotes) and a colon; NULL if the name is not found before
 * `end`. */
static const uint8_t *find_member(const uint8_t *at, const uint8_t *end, const char *name)
{
    size_t size = strlen(name);
    at = memmem(at, (size_t)(end - at), name, size);
    if (at == NULL) {
        return NULL;
    }
    at += size;
    while (at < end && (*at == ':' || *at == ' ')) {
        at++;
    }
    return at;
}

/* Read a decimal number; 0 if there is no digit. */
static int read_number(const uint8_t *at, const uint8_t *end, int64_t *value)
{
    uint64_t number = 0;
    const uint8_t *digits;
    int negative = at < end && *at == '-';
    at += negative;
    digits = at;
    while (at < end && *at >= '0' && *at <= '9' && at - digits < LOAD_OFFSET_DIGITS_MAX) {
        number = number * 10 + (uint64_t)(*at - '0');
        at++;
    }
    *value = negative ? -(int64_t)number : (int64_t)number;
    return at > digits;
}

static int read_json(struct load_hint *hint, struct load_answer *answer)
{
    static const char opaque_name[] = "\"opaque\":", code_name[] = "{\"code\":";
    const uint8_t *begin = answer->header, *end = begin + answer->header_size, *at = NULL;
    int64_t opaque, code;
    if (hint->opaque >= sizeof opaque_name && hint->opaque <= answer->header_size) {
        at = end - hint->opaque;
        at = memcmp(at, opaque_name, sizeof opaque_name - 1) == 0 ? at + sizeof opaque_name - 1
                                                                  : NULL;
    }
    if (at == NULL) {
        at = find_member(begin, end, "\"opaque\"");
        if (at == NULL) {
            return 0;
        }
        hint->opaque = (size_t)(end - at) + sizeof opaque_name - 1;
    }
    if (!read_number(at, end, &opaque)) {
        return 0;
    }
    if (answer->header_size > sizeof code_name &&
        memcmp(begin, code_name, sizeof code_name - 1) == 0) {
        at = begin + sizeof code_name - 1;
    } else {
        at = find_member(begin, end, "\"code\"");
    }
    if (at == NULL || !read_number(at, end, &code)) {
        return 0;
    }
    answer->opaque = (int32_t)opaque;
    answer->code = (int32_t)code;
    return 1;
}

int load_read(const uint8_t *frame, size_t size, struct load_hint *hint,
              struct load_answer *answer)
{
    size_t header_size = be_u32(frame + 4) & 0xFFFFFF;
    if (size < LOAD_HEAD || header_size > size - LOAD_HEAD) {
        return 0;
    }
    answer->codec = frame[4];
    answer->header = frame + LOAD_HEAD;
    answer->header_size = header_size;
    answer->body = answer->header + header_size;
    answer->body_size = size - LOAD_HEAD - header_size;
    if (answer->codec == LOAD_JSON) {
        return read_json(hint, answer);
    }
    if (answer->codec != LOAD_ROCKETMQ || header_size < BINARY_FIXED - LOAD_HEAD) {
        return 0;
    }
    answer->code = be_i16(frame + BINARY_CODE_AT);
    answer->opaque = be_i32(frame + BINARY_OPAQUE_AT);
    return 1;
}

/* The value of an extField of a binary header; NULL if it is missing. */
static const uint8_t *find_binary(const struct load_answer *answer, const char *name, size_t *size)
{
    const uint8_t *base = answer->header - LOAD_HEAD, *end = answer->header + answer->header_size;
    const uint8_t *at = base + BINARY_REMARK_AT;
    size_t remark = be_u32(at), name_size = strlen(name);
    if (remark > (size_t)(end - at) - 8) {
        return NULL;
    }
    at += 4 + remark + 4;
    while (end - at >= 2) {
        size_t key = be_u16(at);
        const uint8_t *text = at + 2;
        if ((size_t)(end - text) < key + 4) {
            return NULL;
        }
        *size = be_u32(text + key);
        at = text + key + 4;
        if (*size > (size_t)(end - at)) {
            return NULL;
        }
        if (key == name_size && memcmp(text, name, key) == 0) {
            return at;
        }
        at += *size;
    }
    return NULL;
}

const uint8_t *load_text(const struct load_answer *answer, const char *name, size_t *size)
{
    const uint8_t *end = answer->header + answer->header_size, *at = answer->header;
    size_t name_size = strlen(name);
    if (answer->codec == LOAD_ROCKETMQ) {
        return find_binary(answer, name, size);
    }
    while ((at = memmem(at, (size_t)(end - at), name, name_size)) != NULL) {
        int named = at > answer->header && at[-1] == '"' && end - at > (ptrdiff_t)name_size + 3;
        at += name_size;
        if (named && at[0] == '"' && at[1] == ':') {
            const uint8_t *begin = at + 2 + (at[2] == '"');
            const uint8_t *quote = at[2] == '"' ? memchr(begin, '"', (size_t)(end - begin)) : end;
            *size = quote == NULL ? 0 : (size_t)(quote - begin);
            return quote == NULL ? NULL : begin;
        }
    }
    return NULL;
}

int load_number(const struct load_answer *answer, const char *name, int64_t *value)
{
    size_t size;
    const uint8_t *at = load_text(answer, name, &size);
    return at != NULL && read_number(at, at + size, value);
}

size_t load_remark(const struct load_answer *answer, uint8_t *text, size_t room)
{
    const uint8_t *end = answer->header + answer->header_size, *at;
    size_t size = 0;
    if (answer->codec == LOAD_ROCKETMQ) {
        at = answer->header - LOAD_HEAD + BINARY_REMARK_AT;
        size = be_u32(at);
        at += 4;
        size = size < (size_t)(end - at) ? size : (size_t)(end - at);
    } else {
        at = find_member(answer->header, end, "\"remark\"");
        if (at == NULL || at >= end || *at != '"') {
            return 0;
        }
        at++;
        while (at + size < end && at[size] != '"') {
            size += at[size] == '\\' && at + size + 1 < end ? 2 : 1;
        }
    }
    size = size < room ? size : room;
    memcpy(text, at, size);
    return size;
}

int64_t load_count_records(const uint8_t *body, size_t size, int check_crc, int64_t *born_ms)
{
    int64_t count = 0;
    for (size_t at = 0; at < size; count++) {
        int32_t magic, length;
        if (size - at < REC_MIN) {
            return -1;
        }
        length = be_i32(body + at);
        magic = be_i32(body + at + REC_MAGIC_AT);
        if (length < REC_MIN || (size_t)length > size - at ||
            (magic != REC_MAGIC_V1 && magic != REC_MAGIC_V2)) {
            return -1;
        }
        if (check_crc) {
            struct rec_row row;
            enum rec_reason reason;
            if (rec_parse(body, at, at + (size_t)length, REC_CHECK_BODY, &row, &reason) != REC_OK) {
                return -1;
            }
        }
        *born_ms = be_i64(body + at + REC_BORN_TIMESTAMP_AT);
        at += (size_t)length;
    }
    return count;
}
