#include "walk.h"

#include <string.h>

#include "bytes.h"

static int is_zero(const uint8_t *at, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (at[i] != 0) {
            return 0;
        }
    }
    return 1;
}

/* Whether the part of buf[at:at+len) in one sector is all zeros, or ends in a zero. */
static int is_torn(const uint8_t *buf, int64_t at, int64_t len, enum walk_torn torn)
{
    int64_t end = at + len;
    while (at < end) {
        int64_t stop = (at / WALK_SECTOR + 1) * WALK_SECTOR;
        stop = stop < end ? stop : end;
        if (torn == WALK_CUT_BYTES ? buf[stop - 1] == 0 : is_zero(buf + at, (size_t)(stop - at))) {
            return 1;
        }
        at = stop;
    }
    return 0;
}

static enum walk_doubt doubt_of(const uint8_t *buf, const struct rec_row *row, int64_t log_base,
                                enum walk_torn torn)
{
    if (row->physical_offset != log_base + row->position) {
        return WALK_ELSEWHERE;
    }
    if (torn != WALK_WHOLE && (is_torn(buf, row->topic_at, row->topic_size, torn) ||
                               is_torn(buf, row->properties_at, row->properties_size, torn))) {
        return WALK_TORN;
    }
    return WALK_TRUSTED;
}

enum rec_status walk_records(const uint8_t *buf, size_t at, size_t end, int64_t log_base,
                             enum walk_torn torn, struct walk_end *stop)
{
    *stop = (struct walk_end){.at = at, .reason = REC_FINE, .doubt = WALK_TRUSTED};
    while (stop->at < end) {
        struct rec_row row;
        enum rec_status status = rec_parse(buf, stop->at, end, REC_CHECK_BODY, &row, &stop->reason);
        if (status != REC_OK) {
            return status;
        }
        stop->doubt = doubt_of(buf, &row, log_base, torn);
        if (stop->doubt != WALK_TRUSTED) {
            return REC_BAD;
        }
        stop->at += (size_t)row.size;
        stop->count++;
        stop->store_timestamp_ms = row.store_timestamp_ms;
    }
    return REC_OK;
}

enum { AHEAD = 4, PROPERTIES_LIKELY = 64 };

enum rec_status walk_lengths(const uint8_t *buf, size_t *at, size_t end)
{
    while (*at < end) {
        const uint8_t *record = buf + *at;
        int32_t size, magic;
        if (end - *at < REC_MAGIC_AT + 4) {
            return REC_SHORT;
        }
        size = be_i32(record + REC_SIZE_AT);
        magic = be_i32(record + REC_MAGIC_AT);
        if (magic == REC_BLANK_MAGIC) {
            return REC_BLANK;
        }
        if ((magic != REC_MAGIC_V1 && magic != REC_MAGIC_V2) || size < REC_MIN) {
            return REC_BAD;
        }
        if ((size_t)size > end - *at) {
            return REC_SHORT;
        }
        /* Consecutive records are often alike: the next ones are prefetched by this one's size, and
         * for dispatch the last bytes, which are the properties'. */
        if ((size_t)size * AHEAD < end - *at) {
            __builtin_prefetch(record + (size_t)size * AHEAD);
        }
        __builtin_prefetch(record + size - PROPERTIES_LIKELY);
        *at += (size_t)size;
    }
    return REC_OK;
}

/* Copy the next bytes up to `size`, which may lie in several pieces; 0 if there are too few. */
static int peek(const struct walk_piece *pieces, size_t count, size_t at, uint8_t *to, size_t size)
{
    for (; size > 0 && count > 0; pieces++, count--, at = 0) {
        size_t here = pieces->size - at;
        here = here < size ? here : size;
        memcpy(to, pieces->at + at, here);
        to += here;
        size -= here;
    }
    return size == 0;
}

enum rec_status walk_pieces(const struct walk_piece *pieces, size_t count, size_t room,
                            size_t file_size, size_t *whole)
{
    size_t at = 0; /* position in the first of the pieces left */
    *whole = 0;
    for (;;) {
        uint8_t head[REC_MAGIC_AT + 4];
        int32_t length, magic;
        size_t size;
        while (count > 0 && at == pieces->size) {
            pieces++;
            count--;
            at = 0;
        }
        if (count == 0) {
            return REC_OK;
        }
        if (room < sizeof head) {
            return REC_BAD;
        }
        if (!peek(pieces, count, at, head, sizeof head)) {
            return REC_SHORT;
        }
        length = be_i32(head + REC_SIZE_AT);
        magic = be_i32(head + REC_MAGIC_AT);
        if (magic == REC_BLANK_MAGIC) {
            size = room;
        } else if ((magic != REC_MAGIC_V1 && magic != REC_MAGIC_V2) || length < REC_MIN ||
                   (size_t)length > room) {
            return REC_BAD;
        } else {
            size = (size_t)length;
        }
        room = size == room ? file_size : room - size;
        *whole += size;
        for (size_t left = size; left > 0;) {
            size_t here = pieces->size - at;
            if (here > left) {
                at += left;
                break;
            }
            left -= here;
            pieces++;
            count--;
            at = 0;
            if (left > 0 && count == 0) {
                *whole -= size;
                return REC_SHORT;
            }
        }
        if (count > 0 && size * AHEAD < pieces->size - at) {
            __builtin_prefetch(pieces->at + at + size * AHEAD);
        }
    }
}

int walk_is_part(const uint8_t *buf, size_t at, size_t end, int64_t log_base,
                 struct walk_part *part)
{
    int64_t next = part->first;
    while (at < end) {
        struct rec_row row;
        enum rec_reason reason;
        if (rec_parse(buf, at, end, REC_CHECK_BODY, &row, &reason) != REC_OK ||
            doubt_of(buf, &row, log_base, WALK_WHOLE) != WALK_TRUSTED) {
            return 0;
        }
        if (row.queue_id != part->queue_id || row.queue_offset < next ||
            row.queue_offset >= part->end || row.topic_size != (int64_t)part->topic_size ||
            memcmp(buf + row.topic_at, part->topic, part->topic_size) != 0) {
            return 0;
        }
        next = row.queue_offset + 1;
        at += (size_t)row.size;
    }
    part->first = next;
    return 1;
}
