#include "traffic.h"

#include "bytes.h"
#include "json_text.h"

enum {
    FRAME_HEAD = 8,
    BINARY_FIXED = 17, /* before the remark */
    DIGITS_MAX = 19,   /* of a number in a text; as many as fit into 64 bits */
    RESPONSE_FLAG = 1,
    ONEWAY_FLAG = 2,
    LANGUAGE_OTHER = 7
};

/* The known fields. The members of a send have the same order in both spellings. */
enum field {
    V2_FIRST = 0, /* a: single letters, up to m */
    V2_LAST = 12,
    V1_FIRST,
    PRODUCER_GROUP = 0, /* of a send, after the first field of its spelling */
    TOPIC,
    DEFAULT_TOPIC,
    DEFAULT_TOPIC_QUEUE_NUMS,
    QUEUE_ID,
    SYS_FLAG,
    BORN_TIMESTAMP,
    FLAG,
    PROPERTIES,
    RECONSUME_TIMES,
    UNIT_MODE,
    MAX_RECONSUME_TIMES,
    BATCH,
    CONSUMER_GROUP = V1_FIRST + BATCH + 1, /* of a pull, which shares three with V1 */
    QUEUE_OFFSET,
    MAX_MSG_NUMS,
    COMMIT_OFFSET,
    SUSPEND_TIMEOUT,
    SUB_VERSION,
    SUBSCRIPTION,
    EXPRESSION_TYPE,
    MAX_MSG_BYTES,
    REQUEST_SOURCE,
    STATE_OFFSET, /* of the end of a transaction, which shares the producer group with V1 */
    LOG_OFFSET,
    COMMIT_OR_ROLLBACK,
    FROM_CHECK,
    MSG_ID,
    TRANSACTION_ID,
    EXTRA_INFO, /* of an acknowledgement */
    ACK_OFFSET,
    INVISIBLE_TIME, /* of a pop, which shares the number of messages with a pull */
    POLL_TIME,
    BORN_TIME,
    INIT_MODE,
    EXP_TYPE,
    EXP,
    ORDER,
    ATTEMPT_ID,
    FIELDS,
    UNKNOWN = FIELDS
};

_Static_assert(FIELDS <= 64, "header.seen has a bit for each");

enum member {
    SEEN_CODE = 1,
    SEEN_FLAG = 2,
    SEEN_OPAQUE = 4,
    SEEN_VERSION = 8,
    SEEN_LANGUAGE = 16,
    SEEN_FIELDS = 32
};

struct header {
    struct json_input input;
    unsigned members; /* of the JSON object, so far */
    uint64_t seen;    /* a bit for each field so far */
    struct trf_text fields[FIELDS];
};

static enum field find_long_field(const uint8_t *name, size_t size)
{
    switch (size) {
    case 5:
        return TRF_IS(name, "topic")   ? V1_FIRST + TOPIC
               : TRF_IS(name, "batch") ? V1_FIRST + BATCH
               : TRF_IS(name, "msgId") ? MSG_ID
               : TRF_IS(name, "order") ? ORDER
                                       : UNKNOWN;
    case 6:
        return TRF_IS(name, "offset") ? ACK_OFFSET : UNKNOWN;
    case 7:
        return TRF_IS(name, "queueId")   ? V1_FIRST + QUEUE_ID
               : TRF_IS(name, "sysFlag") ? V1_FIRST + SYS_FLAG
               : TRF_IS(name, "expType") ? EXP_TYPE
                                     : UNKNOWN;
    case 8:
        return TRF_IS(name, "unitMode")   ? V1_FIRST + UNIT_MODE
               : TRF_IS(name, "pollTime") ? POLL_TIME
               : TRF_IS(name, "bornTime") ? BORN_TIME
               : TRF_IS(name, "initMode") ? INIT_MODE
                                          : UNKNOWN;
    case 9:
        return TRF_IS(name, "extraInfo")   ? EXTRA_INFO
               : TRF_IS(name, "attemptId") ? ATTEMPT_ID
                                           : UNKNOWN;
    case 10:
        return TRF_IS(name, "properties")   ? V1_FIRST + PROPERTIES
               : TRF_IS(name, "maxMsgNums") ? MAX_MSG_NUMS
               : TRF_IS(name, "subVersion") ? SUB_VERSION
                                        : UNKNOWN;
    case 11:
        return TRF_IS(name, "queueOffset")   ? QUEUE_OFFSET
               : TRF_IS(name, "maxMsgBytes") ? MAX_MSG_BYTES
                                         : UNKNOWN;
    case 12:
        return TRF_IS(name, "defaultTopic")   ? V1_FIRST + DEFAULT_TOPIC
               : TRF_IS(name, "commitOffset") ? COMMIT_OFFSET
               : TRF_IS(name, "subscription") ? SUBSCRIPTION
                                          : UNKNOWN;
    case 13:
        return TRF_IS(name, "producerGroup")   ? V1_FIRST + PRODUCER_GROUP
               : TRF_IS(name, "bornTimestamp") ? V1_FIRST + BORN_TIMESTAMP
               : TRF_IS(name, "consumerGroup") ? CONSUMER_GROUP
               : TRF_IS(name, "requestSource") ? REQUEST_SOURCE
               : TRF_IS(name, "invisibleTime") ? INVISIBLE_TIME
               : TRF_IS(name, "transactionId") ? TRANSACTION_ID
                                           : UNKNOWN;
    case 14:
        return TRF_IS(name, "reconsumeTimes")   ? V1_FIRST + RECONSUME_TIMES
               : TRF_IS(name, "expressionType") ? EXPRESSION_TYPE
                                            : UNKNOWN;
    case 15:
        return TRF_IS(name, "commitLogOffset") ? LOG_OFFSET : UNKNOWN;
    case 16:
        return TRF_IS(name, "commitOrRollback") ? COMMIT_OR_ROLLBACK : UNKNOWN;
    case 17:
        return TRF_IS(name, "maxReconsumeTimes") ? V1_FIRST + MAX_RECONSUME_TIMES : UNKNOWN;
    case 20:
        return TRF_IS(name, "suspendTimeoutMillis")   ? SUSPEND_TIMEOUT
               : TRF_IS(name, "tranStateTableOffset") ? STATE_OFFSET
               : TRF_IS(name, "fromTransactionCheck") ? FROM_CHECK
                                                      : UNKNOWN;
    case 21:
        return TRF_IS(name, "defaultTopicQueueNums") ? V1_FIRST + DEFAULT_TOPIC_QUEUE_NUMS
                                                     : UNKNOWN;
    default:
        return UNKNOWN;
    }
}

static inline enum field find_field(const uint8_t *name, size_t size)
{
    if (size == 1) {
        unsigned letter = (unsigned)*name - 'a';
        return letter <= V2_LAST ? letter : UNKNOWN;
    }
    if (size == 3) {
        return TRF_IS(name, "exp") ? EXP : UNKNOWN;
    }
    if (size == 4) {
        return TRF_IS(name, "flag") ? V1_FIRST + FLAG : UNKNOWN;
    }
    return find_long_field(name, size);
}

/* Note a field; 0 if it is repeated, because Python decides which of the two counts. */
static inline int add_field(struct header *header, enum field field, const uint8_t *text,
                            size_t size)
{
    uint64_t bit = (uint64_t)1 << field;
    if (field == UNKNOWN) {
        return 1;
    }
    if (header->seen & bit) {
        return 0;
    }
    header->seen |= bit;
    header->fields[field].at = text;
    header->fields[field].size = (uint32_t)size;
    return 1;
}

#define LANGUAGE(name) {name, sizeof(name) - 1}

static const struct {
    const char *name;
    size_t size;
} languages[TRF_LANGUAGES] = {
    LANGUAGE("JAVA"),   LANGUAGE("CPP"),  LANGUAGE("DOTNET"), LANGUAGE("PYTHON"),
    LANGUAGE("DELPHI"), LANGUAGE("ERLANG"), LANGUAGE("RUBY"), LANGUAGE("OTHER"),
    LANGUAGE("HTTP"),   LANGUAGE("GO"),   LANGUAGE("PHP"),    LANGUAGE("OMS"),
    LANGUAGE("RUST"),   LANGUAGE("NODE_JS"),
};

/* JSON */

/* Whether the text at `at` is `"?":"`: a single letter as name, as SEND_MESSAGE_V2 has for all
 * fields, and the quote of its value. Searching the end of such a name would take a quarter of the
 * time that a header takes. */
static inline int is_short_member(const uint8_t *at, const uint8_t *end)
{
    static const uint8_t wanted[8] = {'"', 0, '"', ':', '"'}, mask[8] = {255, 0, 255, 255, 255};
    return end - at >= 8 && (json_word(at) & json_word(mask)) == json_word(wanted) &&
           (unsigned)at[1] - 'a' < 26;
}

/* Read the object of extFields: texts only. */
static const uint8_t *read_fields(struct header *header, const uint8_t *at)
{
    struct json_input *input = &header->input;
    int last = 0;
    at = json_expect(at, input->end, '{');
    if (at != NULL && at < input->end && *at == '}') {
        return at + 1;
    }
    while (at != NULL && !last) {
        const uint8_t *name, *text;
        size_t name_size, size;
        if (is_short_member(at, input->end)) {
            name = at + 1;
            name_size = 1;
            at += 4;
        } else {
            at = json_read_name(input, at, &name, &name_size);
        }
        at = at != NULL ? json_read_string(input, at, &text, &size) : NULL;
        if (at == NULL || !add_field(header, find_field(name, name_size), text, size)) {
            return NULL;
        }
        at = json_next_member(at, input->end, &last);
    }
    return at;
}

static inline int is_traffic(int32_t code)
{
    return code == TRF_SEND_MESSAGE_V2 || code == TRF_PULL_MESSAGE || code == TRF_SEND_MESSAGE ||
           code == TRF_SEND_BATCH_MESSAGE || code == TRF_END_TRANSACTION ||
           code == TRF_ACK_MESSAGE || code == TRF_POP_MESSAGE;
}

static const uint8_t *read_language(struct header *header, const uint8_t *at, uint8_t *language)
{
    const uint8_t *name = NULL;
    size_t size = 0;
    at = json_read_string(&header->input, at, &name, &size);
    for (unsigned i = 0; at != NULL && i < TRF_LANGUAGES; i++) {
        if (languages[i].size == size && memcmp(languages[i].name, name, size) == 0) {
            *language = (uint8_t)i;
            return at;
        }
    }
    return NULL;
}

/* Whether this member is the first of its kind. */
static inline int is_first(struct header *header, enum member member)
{
    unsigned before = header->members;
    header->members |= member;
    return (before & member) == 0;
}

/* Read the value of a member of the object. */
static const uint8_t *read_member(struct header *header, const uint8_t *at, const uint8_t *name,
                                  size_t size, struct trf_request *out)
{
    const uint8_t *end = header->input.end;
    if (size == 4 && TRF_IS(name, "code")) {
        at = is_first(header, SEEN_CODE) ? json_read_int32(at, end, &out->code) : NULL;
        return at != NULL && is_traffic(out->code) ? at : NULL;
    }
    if (size == 4 && TRF_IS(name, "flag")) {
        return is_first(header, SEEN_FLAG) ? json_read_int32(at, end, &out->flag) : NULL;
    }
    if (size == 6 && TRF_IS(name, "opaque")) {
        return is_first(header, SEEN_OPAQUE) ? json_read_int32(at, end, &out->opaque) : NULL;
    }
    if (size == 7 && TRF_IS(name, "version")) {
        return is_first(header, SEEN_VERSION) ? json_read_int32(at, end, &out->version) : NULL;
    }
    if (size == 8 && TRF_IS(name, "language")) {
        return is_first(header, SEEN_LANGUAGE) ? read_language(header, at, &out->language) : NULL;
    }
    if (size == 9 && TRF_IS(name, "extFields")) {
        return is_first(header, SEEN_FIELDS) ? read_fields(header, at) : NULL;
    }
    return json_skip_value(&header->input, at);
}

static int read_json(struct header *header, const uint8_t *at, struct trf_request *out)
{
    const uint8_t *end = header->input.end;
    int last = 0;
    at = json_expect(at, end, '{');
    while (at != NULL && !last) {
        const uint8_t *name;
        size_t size;
        at = json_read_name(&header->input, at, &name, &size);
        at = at != NULL ? read_member(header, at, name, size, out) : NULL;
        at = at != NULL ? json_next_member(at, end, &last) : NULL;
    }
    return at != NULL && json_skip_space(at, end) == end && header->members & SEEN_CODE;
}

/* ROCKETMQ */

/* Read a text after its length of `width` bytes. */
static inline const uint8_t *read_sized(const uint8_t *at, const uint8_t *end, size_t width,
                                        struct trf_text *text)
{
    int64_t size;
    if ((size_t)(end - at) < width) {
        return NULL;
    }
    size = width == 2 ? be_i16(at) : be_i32(at);
    at += width;
    if (size < 0 || size > end - at) {
        return NULL;
    }
    text->at = at;
    text->size = (uint32_t)size;
    return at + size;
}

static int read_binary(struct header *header, const uint8_t *at, struct trf_request *out)
{
    const uint8_t *end = header->input.end;
    struct trf_text name, text;
    if (end - at < BINARY_FIXED) {
        return 0;
    }
    out->code = be_i16(at);
    out->language = at[2] < TRF_LANGUAGES ? at[2] : LANGUAGE_OTHER;
    out->version = be_i16(at + 3);
    out->opaque = be_i32(at + 5);
    out->flag = be_i32(at + 9);
    if (!is_traffic(out->code)) {
        return 0;
    }
    at = read_sized(at + 13, end, 4, &text); /* the remark */
    at = at != NULL ? read_sized(at, end, 4, &text) : NULL;
    if (at != end) {
        return 0;
    }
    at = text.at;
    while (at < end) {
        at = read_sized(at, end, 2, &name);
        at = at != NULL ? read_sized(at, end, 4, &text) : NULL;
        if (at == NULL ||
            !add_field(header, find_field(name.at, name.size), text.at, text.size)) {
            return 0;
        }
    }
    return 1;
}

/* Members of the header classes. A reader returns 0 for a BadHeader, or in doubt. */

static inline int has(const struct header *header, unsigned field)
{
    return header->seen >> field & 1 && header->fields[field].size > 0;
}

static inline int read_text(const struct header *header, unsigned field, int required,
                            struct trf_text *text)
{
    if (!(header->seen >> field & 1)) {
        text->at = NULL;
        text->size = 0;
        return !required;
    }
    *text = header->fields[field];
    return json_is_utf8(text->at, text->size);
}

/* Read a required number. */
static int parse_number(const struct header *header, unsigned field, int64_t *value)
{
    struct trf_text text = header->fields[field];
    int negative = *text.at == '-';
    size_t at = negative || *text.at == '+';
    uint64_t number = 0;
    if (at == text.size || text.size - at > DIGITS_MAX) {
        return 0;
    }
    for (; at < text.size; at++) {
        unsigned digit = (unsigned)text.at[at] - '0';
        if (digit > 9) {
            return 0;
        }
        number = number * 10 + digit;
    }
    if (number > (uint64_t)INT64_MAX + (uint64_t)negative) {
        return 0;
    }
    *value = negative ? (int64_t)(0 - number) : (int64_t)number;
    return 1;
}

static inline int read_int64_field(const struct header *header, unsigned field, int64_t *value)
{
    return has(header, field) && parse_number(header, field, value);
}

static inline int read_int32_field(const struct header *header, unsigned field, int32_t *value)
{
    int64_t number;
    if (!read_int64_field(header, field, &number) || number != (int32_t)number) {
        return 0;
    }
    *value = (int32_t)number;
    return 1;
}

/* Read an optional number; 0 and *there unset if it is missing or empty. */
static inline int read_optional(const struct header *header, unsigned field, int32_t *value,
                                uint8_t *there)
{
    *value = 0;
    *there = (uint8_t)has(header, field);
    return !*there || read_int32_field(header, field, value);
}

static inline uint8_t read_flag(const struct header *header, unsigned field)
{
    return has(header, field) && trf_is_true(header->fields[field]);
}

static int read_send(const struct header *header, unsigned first, struct trf_send *send)
{
    uint8_t ignored;
    send->unit_mode = read_flag(header, first + UNIT_MODE);
    send->batch = read_flag(header, first + BATCH);
    return read_text(header, first + PRODUCER_GROUP, 1, &send->producer_group) &&
           read_text(header, first + TOPIC, 1, &send->topic) &&
           read_text(header, first + DEFAULT_TOPIC, 1, &send->default_topic) &&
           read_int32_field(header, first + DEFAULT_TOPIC_QUEUE_NUMS,
                            &send->default_topic_queue_nums) &&
           read_int32_field(header, first + QUEUE_ID, &send->queue_id) &&
           read_int32_field(header, first + SYS_FLAG, &send->sys_flag) &&
           read_int64_field(header, first + BORN_TIMESTAMP, &send->born_timestamp_ms) &&
           read_int32_field(header, first + FLAG, &send->flag) &&
           read_text(header, first + PROPERTIES, 0, &send->properties) &&
           read_optional(header, first + RECONSUME_TIMES, &send->reconsume_times, &ignored) &&
           read_optional(header, first + MAX_RECONSUME_TIMES, &send->max_reconsume_times,
                         &send->has_max_reconsume_times);
}

static int read_pull(const struct header *header, struct trf_pull *pull)
{
    return read_text(header, CONSUMER_GROUP, 1, &pull->consumer_group) &&
           read_text(header, V1_FIRST + TOPIC, 1, &pull->topic) &&
           read_int32_field(header, V1_FIRST + QUEUE_ID, &pull->queue_id) &&
           read_int64_field(header, QUEUE_OFFSET, &pull->queue_offset) &&
           read_int32_field(header, MAX_MSG_NUMS, &pull->max_msg_nums) &&
           read_int32_field(header, V1_FIRST + SYS_FLAG, &pull->sys_flag) &&
           read_int64_field(header, COMMIT_OFFSET, &pull->commit_offset) &&
           read_int64_field(header, SUSPEND_TIMEOUT, &pull->suspend_timeout_ms) &&
           read_int64_field(header, SUB_VERSION, &pull->sub_version) &&
           read_text(header, SUBSCRIPTION, 0, &pull->subscription) &&
           read_text(header, EXPRESSION_TYPE, 0, &pull->expression_type) &&
           read_optional(header, MAX_MSG_BYTES, &pull->max_msg_bytes, &pull->has_max_msg_bytes) &&
           read_optional(header, REQUEST_SOURCE, &pull->request_source,
                         &pull->has_request_source);
}

static int read_end(const struct header *header, struct trf_end *end)
{
    end->from_check = read_flag(header, FROM_CHECK);
    return read_text(header, V1_FIRST + PRODUCER_GROUP, 1, &end->producer_group) &&
           read_int64_field(header, STATE_OFFSET, &end->queue_offset) &&
           read_int64_field(header, LOG_OFFSET, &end->log_offset) &&
           read_int32_field(header, COMMIT_OR_ROLLBACK, &end->commit_or_rollback) &&
           read_text(header, MSG_ID, 1, &end->msg_id) &&
           read_text(header, TRANSACTION_ID, 0, &end->transaction_id);
}

static int read_ack(const struct header *header, struct trf_ack *ack)
{
    return read_text(header, CONSUMER_GROUP, 1, &ack->consumer_group) &&
           read_text(header, V1_FIRST + TOPIC, 1, &ack->topic) &&
           read_int32_field(header, V1_FIRST + QUEUE_ID, &ack->queue_id) &&
           read_text(header, EXTRA_INFO, 1, &ack->extra_info) &&
           read_int64_field(header, ACK_OFFSET, &ack->offset);
}

static int read_pop(const struct header *header, struct trf_pop *pop)
{
    pop->order = read_flag(header, ORDER);
    return read_text(header, CONSUMER_GROUP, 1, &pop->consumer_group) &&
           read_text(header, V1_FIRST + TOPIC, 1, &pop->topic) &&
           read_int32_field(header, V1_FIRST + QUEUE_ID, &pop->queue_id) &&
           read_int32_field(header, MAX_MSG_NUMS, &pop->max_msg_nums) &&
           read_int64_field(header, INVISIBLE_TIME, &pop->invisible_ms) &&
           read_int64_field(header, POLL_TIME, &pop->poll_ms) &&
           read_int64_field(header, BORN_TIME, &pop->born_ms) &&
           read_int32_field(header, INIT_MODE, &pop->init_mode) &&
           read_text(header, EXP_TYPE, 0, &pop->expression_type) &&
           read_text(header, EXP, 0, &pop->expression) &&
           read_text(header, ATTEMPT_ID, 0, &pop->attempt_id);
}

enum trf_verdict trf_decode(const uint8_t *frame, size_t size, uint8_t *scratch,
                            size_t scratch_size, struct trf_request *out)
{
    struct header header;
    size_t header_size;
    int fine;
    if (size < FRAME_HEAD || size > UINT32_MAX) {
        return TRF_BAD;
    }
    header_size = be_u32(frame + 4) & 0xFFFFFF;
    if (header_size > size - FRAME_HEAD || frame[4] > 1) {
        return TRF_BAD;
    }
    header.input.end = frame + FRAME_HEAD + header_size;
    header.input.scratch = scratch_size >= header_size ? scratch : NULL;
    header.members = 0;
    header.seen = 0;
    out->codec = frame[4];
    out->opaque = out->flag = out->version = 0;
    out->language = LANGUAGE_OTHER;
    fine = frame[4] == 0 ? read_json(&header, frame + FRAME_HEAD, out)
                         : read_binary(&header, frame + FRAME_HEAD, out);
    if (!fine || out->flag & RESPONSE_FLAG) {
        return TRF_OTHER;
    }
    out->is_oneway = (out->flag & ONEWAY_FLAG) != 0;
    out->body.at = header.input.end;
    out->body.size = (uint32_t)(size - FRAME_HEAD - header_size);
    if (out->code == TRF_PULL_MESSAGE) {
        out->kind = TRF_PULL;
        return read_pull(&header, &out->pull) ? TRF_PLAIN : TRF_OTHER;
    }
    if (out->code == TRF_END_TRANSACTION) {
        out->kind = TRF_END;
        return read_end(&header, &out->end) ? TRF_PLAIN : TRF_OTHER;
    }
    if (out->code == TRF_ACK_MESSAGE) {
        out->kind = TRF_ACK;
        return read_ack(&header, &out->ack) ? TRF_PLAIN : TRF_OTHER;
    }
    if (out->code == TRF_POP_MESSAGE) {
        out->kind = TRF_POP;
        return read_pop(&header, &out->pop) ? TRF_PLAIN : TRF_OTHER;
    }
    out->kind = TRF_SEND;
    return out->body.size > 0 &&
                   read_send(&header, out->code == TRF_SEND_MESSAGE ? V1_FIRST : V2_FIRST,
                             &out->send)
               ? TRF_PLAIN
               : TRF_OTHER;
}
