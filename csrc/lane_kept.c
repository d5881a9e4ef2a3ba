#include "lane_kept.h"

#include <string.h>

#include "digits.h"

enum {
    NAME_END = 1,
    VALUE_END = 2,
    TIME_DIGITS = 15, /* of a time or delay: the sum of two does not overflow */
    HANDLE_RAW = 3 + LANE_NAME_MAX + 1 + LANE_NAME_MAX + 1 + DIGITS_ROOM + 1 + LANE_NAME_MAX
};
_Static_assert((HANDLE_RAW + 2) / 3 * 4 <= LANE_HANDLE_ROOM, "a handle has room");

/* The time that a timer asks for; 0 leaves it to the handler. */
static int read_due(const struct trf_properties *properties, int64_t now_ms, int64_t *due_ms)
{
    struct trf_text text = properties->timer;
    if (!digits_read(text.at, text.size, TIME_DIGITS, due_ms)) {
        return 0;
    }
    if (properties->names & TRF_DELAY_SEC) {
        *due_ms *= 1000;
    }
    if (properties->names & (TRF_DELAY_SEC | TRF_DELAY_MS)) {
        *due_ms += now_ms;
    }
    return 1;
}

enum lane_kind lane_kind_of(const struct lane_kept *kept, const struct trf_send *send,
                            const struct trf_properties *properties, int64_t now_ms,
                            int64_t *slot_ms)
{
    uint32_t special = properties->names & TRF_SPECIAL;
    int64_t due_ms;
    *slot_ms = 0;
    if (send->batch || properties->names & TRF_KEPT ||
        properties->unique_key.size == 0 || properties->unique_key.size > LANE_NAME_MAX ||
        send->topic.size > LANE_NAME_MAX) {
        return LANE_OTHER;
    }
    if (special == TRF_TRAN_MSG) {
        return kept->halves && properties->is_half && send->reconsume_times == 0 ? LANE_HALF
                                                                                 : LANE_OTHER;
    }
    if (!kept->timers || special & ~(uint32_t)TRF_TIMER ||
        !read_due(properties, now_ms, &due_ms) || due_ms <= now_ms ||
        due_ms - now_ms > kept->max_delay_ms) {
        return LANE_OTHER;
    }
    *slot_ms = (due_ms - 1) / kept->precision_ms * kept->precision_ms;
    return LANE_TIMER;
}

static uint8_t *put_text(uint8_t *at, const void *text, size_t size)
{
    memcpy(at, text, size);
    return at + size;
}

#define PUT_NAME(at, literal) put_text((at), literal "\001", sizeof(literal))

uint8_t *lane_put_kept(uint8_t *at, const uint8_t *end, enum lane_kind kind,
                       const struct trf_send *send, struct trf_text unique_key, int64_t slot_ms)
{
    size_t most = sizeof "__transactionId__" + sizeof "REAL_TOPIC" + sizeof "REAL_QID" + 3 +
                  2 * DIGITS_ROOM + unique_key.size + send->topic.size;
    if ((size_t)(end - at) < most) {
        return NULL;
    }
    if (kind == LANE_TIMER) {
        at = PUT_NAME(at, "TIMER_OUT_MS");
        at = digits_put(at, (uint64_t)slot_ms);
    } else {
        at = PUT_NAME(at, "__transactionId__");
        at = put_text(at, unique_key.at, unique_key.size);
    }
    *at++ = VALUE_END;
    at = PUT_NAME(at, "REAL_TOPIC");
    at = put_text(at, send->topic.at, send->topic.size);
    *at++ = VALUE_END;
    at = PUT_NAME(at, "REAL_QID");
    at = digits_put(at, (uint64_t)send->queue_id);
    *at++ = VALUE_END;
    return at;
}

static size_t put_base64(uint8_t *out, const uint8_t *raw, size_t size)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t *begin = out;
    for (size_t at = 0; at < size; at += 3) {
        size_t left = size - at;
        uint32_t word = (uint32_t)raw[at] << 16 | (left > 1 ? (uint32_t)raw[at + 1] << 8 : 0) |
                        (left > 2 ? raw[at + 2] : 0);
        *out++ = (uint8_t)letters[word >> 18];
        *out++ = (uint8_t)letters[word >> 12 & 63];
        *out++ = left > 1 ? (uint8_t)letters[word >> 6 & 63] : '=';
        *out++ = left > 2 ? (uint8_t)letters[word & 63] : '=';
    }
    return (size_t)(out - begin);
}

struct trf_text lane_put_handle(struct lane_kept *kept, struct trf_text topic,
                                struct trf_text unique_key, int64_t slot_ms)
{
    uint8_t raw[HANDLE_RAW], *at = put_text(raw, "v1 ", 3);
    struct trf_text handle;
    at = put_text(at, topic.at, topic.size);
    *at++ = ' ';
    at = put_text(at, kept->broker_name.at, kept->broker_name.size);
    *at++ = ' ';
    at = digits_put(at, (uint64_t)slot_ms + 1);
    *at++ = ' ';
    at = put_text(at, unique_key.at, unique_key.size);
    handle.at = kept->handle;
    handle.size = (uint32_t)put_base64(kept->handle, raw, (size_t)(at - raw));
    return handle;
}
