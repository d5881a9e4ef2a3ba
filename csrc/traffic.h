/* The requests that carry traffic, read without a Python object: SEND_MESSAGE, SEND_MESSAGE_V2,
 * SEND_BATCH_MESSAGE, PULL_MESSAGE, END_TRANSACTION, ACK_MESSAGE and POP_MESSAGE (10, 310, 320, 11,
 * 37, 200051, 200050), in both header encodings.
 *
 * The reference is net/wire: command.decode, then header.read_header with the class of the code. A
 * request is TRF_PLAIN only if each byte of its header was understood as the reference understands
 * it; then every member of struct trf_request equals its counterpart there. All rare or doubtful
 * requests are TRF_OTHER and go to the Python handler, which answers them. TRF_OTHER is therefore
 *   - every other code, and every response;
 *   - JSON: a repeated member, a value that is no text (no int32 for the four numbers), an escape
 *     in a name, a surrogate escape, a nested value, a language without a number, malformed UTF-8,
 *     text after the object;
 *   - ROCKETMQ: a repeated field, malformed UTF-8 in a text that is read, bytes after the fields;
 *   - a required field that is missing, a number out of its range, a send without a body.
 * White space, any order of members, unknown members and escaped texts are understood.
 *
 *     frame     length | codec, header length | header ................ | body ......
 *                                               ^ texts point into it     ^ trf_request.body
 *     scratch   texts of a JSON header that had escapes
 *
 * So texts live as long as both buffers. A missing text has at == NULL; an empty one has size 0 and
 * at != NULL (Python: None and ""). Texts are valid UTF-8 of any characters, 0 included.
 *
 * Not decided here: whether a topic exists, is plain, or begins with %RETRY%; whether a queue id is
 * in range (a send with one below 0 accepts any queue); whether limits hold. frame.h finds frames,
 * traffic_properties.h reads the properties of a send, traffic_reply.h writes answers. */
#ifndef TURBOPUMP_TRAFFIC_H
#define TURBOPUMP_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>

#include "traffic_properties.h"

enum trf_verdict {
    TRF_PLAIN = 0,
    TRF_OTHER = 1, /* for the Python handler */
    TRF_BAD = 2    /* no frame: Python's decode refuses it and the connection is closed */
};

enum trf_kind { TRF_SEND = 1, TRF_PULL = 2, TRF_END = 3, TRF_ACK = 4, TRF_POP = 5 };

enum {
    TRF_SEND_MESSAGE = 10,
    TRF_PULL_MESSAGE = 11,
    TRF_END_TRANSACTION = 37,
    TRF_SEND_MESSAGE_V2 = 310,
    TRF_SEND_BATCH_MESSAGE = 320,
    TRF_POP_MESSAGE = 200050,
    TRF_ACK_MESSAGE = 200051,
    TRF_LANGUAGES = 14 /* of LanguageCode, JAVA to NODE_JS: command.LANGUAGES */
};

/* SendMessageRequest. Optional numbers and flags that are missing are 0, because the handler treats
 * None as 0; for maxReconsumeTimes the difference matters. */
struct trf_send {
    struct trf_text producer_group, topic, default_topic, properties;
    int64_t born_timestamp_ms;
    int32_t default_topic_queue_nums, queue_id, sys_flag, flag;
    int32_t reconsume_times, max_reconsume_times;
    uint8_t has_max_reconsume_times, unit_mode, batch;
};

/* PullMessageRequest. */
struct trf_pull {
    struct trf_text consumer_group, topic, subscription, expression_type;
    int64_t queue_offset, commit_offset, suspend_timeout_ms, sub_version;
    int32_t queue_id, max_msg_nums, sys_flag;
    int32_t max_msg_bytes, request_source;
    uint8_t has_max_msg_bytes, has_request_source;
};

/* EndTransactionRequest. */
struct trf_end {
    struct trf_text producer_group, msg_id, transaction_id;
    int64_t queue_offset, log_offset;
    int32_t commit_or_rollback;
    uint8_t from_check;
};

/* AckMessageRequest. */
struct trf_ack {
    struct trf_text consumer_group, topic, extra_info;
    int64_t offset;
    int32_t queue_id;
};

/* PopMessageRequest. A flag that is missing is 0. */
struct trf_pop {
    struct trf_text consumer_group, topic, expression, expression_type, attempt_id;
    int64_t invisible_ms, poll_ms, born_ms;
    int32_t queue_id, max_msg_nums, init_mode;
    uint8_t order;
};

struct trf_request {
    int32_t code, opaque, flag, version;
    uint8_t kind;     /* enum trf_kind */
    uint8_t codec;    /* 0 JSON, 1 ROCKETMQ; answers are always JSON */
    uint8_t language; /* index into command.LANGUAGES */
    uint8_t is_oneway;
    union {
        struct trf_send send;
        struct trf_pull pull;
        struct trf_end end;
        struct trf_ack ack;
        struct trf_pop pop;
    };
    struct trf_text body; /* not empty for a send */
};

/* Read one whole frame, including its 4 length bytes. Escaped texts are written to `scratch`; with
 * less room than the header's size they make the request TRF_OTHER. Unless TRF_PLAIN, `out` is
 * undefined. */
enum trf_verdict trf_decode(const uint8_t *frame, size_t size, uint8_t *scratch,
                            size_t scratch_size, struct trf_request *out);

#endif
