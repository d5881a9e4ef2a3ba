#include "load_follow.h"

#include <string.h>

#include "bytes.h"
#include "digits.h"

enum { MESSAGE_ID = 32, HEX_OFFSET = 16 }; /* digits of a message id, and of its log offset */

/* Take the text before the next mark, or all of it, and skip the mark. */
static struct trf_text cut(struct trf_text *rest, char mark)
{
    struct trf_text part = *rest;
    const uint8_t *found = memchr(rest->at, mark, rest->size);
    uint32_t used = found == NULL ? rest->size : (uint32_t)(found - rest->at) + 1;
    part.size = found == NULL ? used : used - 1;
    rest->at += used;
    rest->size -= used;
    return part;
}

/* Write a request; returns its size, 0: there is too little room. */
static size_t put_request(uint8_t *out, size_t room, struct trf_text text,
                          const struct trf_text *values)
{
    size_t size = LOAD_HEAD;
    for (uint32_t i = 0; i < text.size; i++) {
        struct trf_text part = {text.at + i, 1};
        if (text.at[i] < LOAD_VALUES) {
            part = values[text.at[i]];
        }
        if (size > room || part.size > room - size) {
            return 0;
        }
        if (part.size > 0) {
            memcpy(out + size, part.at, part.size);
        }
        size += part.size;
    }
    be_put_i32(out, (int32_t)size - 4);
    be_put_i32(out + 4, (int32_t)size - LOAD_HEAD);
    return size;
}

static int find(const struct load_answer *answer, const char *name, struct trf_text *value)
{
    size_t size;
    value->at = load_text(answer, name, &size);
    value->size = value->at == NULL ? 0 : (uint32_t)size;
    return value->at != NULL;
}

static int put_end(const struct load_follow *follow, const struct load_answer *answer, uint8_t *out,
                   size_t room, size_t *size)
{
    struct trf_text values[LOAD_VALUES] = {{NULL, 0}}, id;
    uint8_t digits[DIGITS_ROOM];
    uint64_t log_offset = 0;
    if (!find(answer, "msgId", &id) || id.size != MESSAGE_ID ||
        !find(answer, "queueOffset", &values[LOAD_STATE_OFFSET]) ||
        !find(answer, "transactionId", &values[LOAD_TRANSACTION])) {
        return -1;
    }
    for (int i = MESSAGE_ID - HEX_OFFSET; i < MESSAGE_ID; i++) {
        uint8_t digit = id.at[i];
        log_offset = log_offset << 4 | (digit <= '9' ? digit & 15u : (digit & 15u) + 9u);
    }
    values[LOAD_LOG_OFFSET].at = digits;
    values[LOAD_LOG_OFFSET].size = (uint32_t)(digits_put(digits, log_offset) - digits);
    *size = put_request(out, room, follow->text, values);
    return *size > 0 ? 0 : -1;
}

/* Find the start offset of a queue in `retry queue start;retry queue start...`. */
static int find_start(struct trf_text starts, struct trf_text retry, struct trf_text queue,
                      struct trf_text *start)
{
    while (starts.size > 0) {
        struct trf_text part = cut(&starts, ';');
        struct trf_text its_retry = cut(&part, ' '), its_queue = cut(&part, ' ');
        if (its_retry.size == retry.size && memcmp(its_retry.at, retry.at, retry.size) == 0 &&
            its_queue.size == queue.size && memcmp(its_queue.at, queue.at, queue.size) == 0) {
            *start = part;
            return 1;
        }
    }
    return 0;
}

static int64_t put_acks(const struct load_follow *follow, const struct load_answer *answer,
                        uint8_t *out, size_t room, size_t *size)
{
    struct trf_text values[LOAD_VALUES] = {{NULL, 0}}, starts, offsets;
    int64_t count = 0;
    if (!find(answer, "startOffsetInfo", &starts) || !find(answer, "msgOffsetInfo", &offsets) ||
        !find(answer, "popTime", &values[LOAD_POP_TIME]) ||
        !find(answer, "invisibleTime", &values[LOAD_INVISIBLE]) ||
        !find(answer, "reviveQid", &values[LOAD_REVIVE])) {
        return -1;
    }
    while (offsets.size > 0) {
        struct trf_text part = cut(&offsets, ';');
        values[LOAD_RETRY] = cut(&part, ' ');
        values[LOAD_QUEUE] = cut(&part, ' ');
        if (!find_start(starts, values[LOAD_RETRY], values[LOAD_QUEUE], &values[LOAD_START])) {
            return -1;
        }
        for (; part.size > 0; count++) {
            size_t made;
            values[LOAD_OFFSET] = cut(&part, ',');
            if (follow->text.size == 0) {
                continue;
            }
            made = put_request(out + *size, room - *size, follow->text, values);
            if (made == 0) {
                return -1;
            }
            *size += made;
        }
    }
    return count;
}

int64_t load_follow(const struct load_follow *follow, const struct load_answer *answer,
                    uint8_t *out, size_t room, size_t *size)
{
    *size = 0;
    return follow->kind == LOAD_FOLLOW_END ? put_end(follow, answer, out, room, size)
                                           : put_acks(follow, answer, out, room, size);
}
