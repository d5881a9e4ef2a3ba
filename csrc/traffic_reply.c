#include "traffic_reply.h"

#include "bytes.h"
#include "json_text.h"

enum {
    FRAME_HEAD = 8,
    HOST_MAX = 20,
    ESCAPED_MAX = 6, /* bytes that one byte of a text may become */
    NUMBER_MAX = 20
};

/* Each writer takes its start and returns its end; the room was checked before. */

#define LITERAL(out, text) put_bytes((out), (text), sizeof(text) - 1)

static inline uint8_t *put_bytes(uint8_t *out, const void *bytes, size_t size)
{
    memcpy(out, bytes, size);
    return out + size;
}

static const char hex[] = "0123456789ABCDEF";

/* Eight digits of four bytes: nibbles into bytes of a word, 7 more for digits of A and above. */
static inline uint8_t *put_hex_word(uint8_t *out, const uint8_t *bytes)
{
    uint64_t word = be_u32(bytes), letters;
    word = (word << 16 | word) & 0x0000FFFF0000FFFFull;
    word = (word << 8 | word) & 0x00FF00FF00FF00FFull;
    word = (word << 4 | word) & JSON_EACH(0x0F);
    letters = (word + JSON_EACH(6)) >> 4 & JSON_EACH(1);
    be_put_i64(out, (int64_t)(word + JSON_EACH('0') + letters * ('A' - '9' - 1)));
    return out + 8;
}

/* Write the digits of a multiple of four bytes, as hosts and log offsets are. */
static inline uint8_t *put_hex(uint8_t *out, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i += 4) {
        out = put_hex_word(out, bytes + i);
    }
    return out;
}

static inline uint8_t *put_number(uint8_t *out, int64_t value)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    uint8_t digits[NUMBER_MAX];
    size_t at = NUMBER_MAX;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    for (; left >= 10; left /= 100) {
        at -= 2;
        memcpy(digits + at, pairs + left % 100 * 2, 2);
    }
    if (left > 0 || at == NUMBER_MAX) {
        digits[--at] = (uint8_t)('0' + left);
    }
    if (value < 0) {
        *out++ = '-';
    }
    return put_bytes(out, digits + at, NUMBER_MAX - at);
}

/* A character that a JSON string cannot hold, as Python's json escapes it. */
static uint8_t *put_escape(uint8_t *out, uint8_t byte)
{
    static const char plain[] = "\"\\\b\f\n\r\t", meant[] = "\"\\bfnrt";
    const char *found = memchr(plain, byte, sizeof plain - 1);
    *out++ = '\\';
    if (found != NULL) {
        *out++ = (uint8_t)meant[found - plain];
        return out;
    }
    out = LITERAL(out, "u00");
    *out++ = (uint8_t)('0' + (byte >> 4));
    *out++ = (uint8_t)(hex[byte & 15] | 0x20); /* the digits' bit is set already */
    return out;
}

static uint8_t *put_text(uint8_t *out, struct trf_text text)
{
    const uint8_t *at = text.at, *end;
    if (text.size == 0) {
        return out;
    }
    for (end = at + text.size;;) {
        const uint8_t *stop = json_find_special(at, end);
        out = put_bytes(out, at, (size_t)(stop - at));
        if (stop == end) {
            return out;
        }
        out = put_escape(out, *stop);
        at = stop + 1;
    }
}

/* Write the members after extFields, up to a possible remark. */
static inline uint8_t *put_opaque(uint8_t *out, int32_t opaque)
{
    out = LITERAL(out, "},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":");
    return put_number(out, opaque);
}

/* Write the end of the header, and the lengths before it; 0 if no frame can be that long. */
static size_t put_end(uint8_t *out, uint8_t *frame, size_t body_size)
{
    size_t size;
    out = LITERAL(out, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    out = put_number(out, WIRE_VERSION);
    *out++ = '}';
    size = (size_t)(out - frame);
    if (size > FRAME_MAX || body_size > FRAME_MAX - size) {
        return 0;
    }
    be_put_i32(frame, (int32_t)(size + body_size - 4));
    be_put_i32(frame + 4, (int32_t)(size - FRAME_HEAD)); /* codec 0: JSON */
    return size;
}

size_t trf_send_reply_room(const struct trf_send_answer *answer)
{
    size_t texts = (size_t)answer->transaction_id.size + answer->batch_id.size +
                   answer->recall_handle.size + answer->region.size;
    return TRF_REPLY_FIXED + answer->count * (2 * (answer->store_host_size + 8) + 1) +
           texts * ESCAPED_MAX;
}

size_t trf_pull_reply_room(const struct trf_pull_answer *answer)
{
    return TRF_REPLY_FIXED + (size_t)answer->remark.size * ESCAPED_MAX;
}

/* The ids of the records: each is the host's bytes and the log offset's. */
static uint8_t *put_ids(uint8_t *out, const struct trf_send_answer *answer)
{
    uint8_t host[2 * HOST_MAX];
    size_t host_size = (size_t)(put_hex(host, answer->store_host, answer->store_host_size) - host);
    for (size_t i = 0; i < answer->count; i++) {
        uint8_t log_offset[8];
        be_put_i64(log_offset, answer->log_offsets[i]);
        if (i > 0) {
            *out++ = ',';
        }
        out = put_bytes(out, host, host_size);
        out = put_hex(out, log_offset, sizeof log_offset);
    }
    return out;
}

size_t trf_send_reply(uint8_t *frame, size_t room, const struct trf_send_answer *answer)
{
    uint8_t *out = frame + FRAME_HEAD;
    if (answer->count > FRAME_MAX / 16 || answer->store_host_size > HOST_MAX ||
        answer->store_host_size % 4 != 0 ||
        room < trf_send_reply_room(answer)) {
        return 0;
    }
    out = LITERAL(out, "{\"code\":");
    out = put_number(out, answer->code);
    out = LITERAL(out, ",\"extFields\":{\"msgId\":\"");
    out = put_ids(out, answer);
    out = LITERAL(out, "\",\"queueId\":\"");
    out = put_number(out, answer->queue_id);
    out = LITERAL(out, "\",\"queueOffset\":\"");
    out = put_number(out, answer->queue_offset);
    if (answer->transaction_id.at != NULL) {
        out = LITERAL(out, "\",\"transactionId\":\"");
        out = put_text(out, answer->transaction_id);
    }
    if (answer->batch_id.at != NULL) {
        out = LITERAL(out, "\",\"batchUniqId\":\"");
        out = put_text(out, answer->batch_id);
    }
    if (answer->recall_handle.at != NULL) {
        out = LITERAL(out, "\",\"recallHandle\":\"");
        out = put_text(out, answer->recall_handle);
    }
    out = LITERAL(out, "\",\"MSG_REGION\":\"");
    out = put_text(out, answer->region);
    out = LITERAL(out, "\",\"TRACE_ON\":\"");
    out = answer->trace_on ? LITERAL(out, "true\"") : LITERAL(out, "false\"");
    return put_end(put_opaque(out, answer->opaque), frame, 0);
}

size_t trf_end_reply(uint8_t *frame, size_t room, int32_t opaque)
{
    uint8_t *out = frame + FRAME_HEAD;
    if (room < TRF_REPLY_FIXED) {
        return 0;
    }
    out = LITERAL(out, "{\"code\":0,\"flag\":1,\"language\":\"PYTHON\",\"opaque\":");
    return put_end(put_number(out, opaque), frame, 0);
}

size_t trf_refusal_room(const struct trf_refusal *refusal)
{
    return TRF_REPLY_FIXED + ((size_t)refusal->remark.size + refusal->region.size) * ESCAPED_MAX;
}

/* MSG_REGION and TRACE_ON, which every answer to a send has. */
static uint8_t *put_own(uint8_t *out, struct trf_text region, int trace_on)
{
    out = LITERAL(out, "\"MSG_REGION\":\"");
    out = put_text(out, region);
    out = LITERAL(out, "\",\"TRACE_ON\":\"");
    return trace_on ? LITERAL(out, "true\"") : LITERAL(out, "false\"");
}

size_t trf_send_refusal(uint8_t *frame, size_t room, const struct trf_refusal *refusal)
{
    uint8_t *out = frame + FRAME_HEAD;
    if (room < trf_refusal_room(refusal)) {
        return 0;
    }
    out = LITERAL(out, "{\"code\":");
    out = put_number(out, refusal->code);
    out = LITERAL(out, ",\"extFields\":{");
    out = put_own(out, refusal->region, refusal->trace_on);
    out = put_opaque(out, refusal->opaque);
    out = LITERAL(out, ",\"remark\":\"");
    out = put_text(out, refusal->remark);
    *out++ = '"';
    return put_end(out, frame, 0);
}

size_t trf_pull_reply(uint8_t *frame, size_t room, const struct trf_pull_answer *answer)
{
    uint8_t *out = frame + FRAME_HEAD;
    if (room < trf_pull_reply_room(answer)) {
        return 0;
    }
    out = LITERAL(out, "{\"code\":");
    out = put_number(out, answer->code);
    out = LITERAL(out, ",\"extFields\":{\"suggestWhichBrokerId\":\"");
    out = put_number(out, answer->suggest_which_broker_id);
    out = LITERAL(out, "\",\"nextBeginOffset\":\"");
    out = put_number(out, answer->next_begin_offset);
    out = LITERAL(out, "\",\"minOffset\":\"");
    out = put_number(out, answer->min_offset);
    out = LITERAL(out, "\",\"maxOffset\":\"");
    out = put_number(out, answer->max_offset);
    out = LITERAL(out, "\",\"topicSysFlag\":\"");
    out = put_number(out, answer->topic_sys_flag);
    out = LITERAL(out, "\",\"groupSysFlag\":\"");
    out = put_number(out, answer->group_sys_flag);
    *out++ = '"';
    out = put_opaque(out, answer->opaque);
    out = LITERAL(out, ",\"remark\":\"");
    out = put_text(out, answer->remark);
    *out++ = '"';
    return put_end(out, frame, answer->body_size);
}

size_t trf_pop_reply_room(const struct trf_pop_answer *answer)
{
    return TRF_REPLY_FIXED + ((size_t)answer->starts.size + answer->offsets.size) * ESCAPED_MAX;
}

size_t trf_pop_reply(uint8_t *frame, size_t room, const struct trf_pop_answer *answer)
{
    uint8_t *out = frame + FRAME_HEAD;
    if (room < trf_pop_reply_room(answer)) {
        return 0;
    }
    out = LITERAL(out, "{\"code\":0,\"extFields\":{\"popTime\":\"");
    out = put_number(out, answer->pop_time_ms);
    out = LITERAL(out, "\",\"invisibleTime\":\"");
    out = put_number(out, answer->invisible_ms);
    out = LITERAL(out, "\",\"reviveQid\":\"");
    out = put_number(out, answer->revive_queue_id);
    out = LITERAL(out, "\",\"restNum\":\"");
    out = put_number(out, answer->rest);
    out = LITERAL(out, "\",\"startOffsetInfo\":\"");
    out = put_text(out, answer->starts);
    out = LITERAL(out, "\",\"msgOffsetInfo\":\"");
    out = put_text(out, answer->offsets);
    *out++ = '"';
    out = put_opaque(out, answer->opaque);
    out = LITERAL(out, ",\"remark\":\"FOUND\"");
    return put_end(out, frame, answer->body_size);
}
