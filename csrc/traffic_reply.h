/* The answers to plain sends, pulls and pops, byte for byte as net/wire encodes the answers of the
 * handlers broker/handlers/send.py, pull.py and pop/pops.py.
 *
 *     length | 0, header length | {"code":0,"extFields":{...},"flag":1,...,"version":513} | body
 *
 * A text is written as a JSON string; its bytes must be valid UTF-8, as the texts of a trf_request
 * are. */
#ifndef TURBOPUMP_TRAFFIC_REPLY_H
#define TURBOPUMP_TRAFFIC_REPLY_H

#include <stddef.h>
#include <stdint.h>

#include "traffic_properties.h"
#include "wire_constants.h" /* generated */

enum {
    TRF_REPLY_FIXED = 512 /* no answer has more bytes besides its texts, ids and body */
};

struct trf_send_answer {
    int32_t code; /* 0; 10, 11, 12: stored, but less safe than requested */
    int32_t opaque;
    int32_t queue_id;
    int64_t queue_offset;       /* of the first record */
    const int64_t *log_offsets; /* of each record: the ids are made of them */
    size_t count;
    const uint8_t *store_host; /* packed: 8 or 20 bytes */
    size_t store_host_size;
    struct trf_text transaction_id; /* the UNIQ_KEY; at == NULL: none */
    struct trf_text batch_id;       /* of an inner batch; at == NULL: none */
    struct trf_text recall_handle;  /* of a timer; at == NULL: none */
    struct trf_text region;         /* MSG_REGION */
    uint8_t trace_on;
};

struct trf_pull_answer {
    int32_t code; /* 0; 19, 20, 21 */
    int32_t opaque;
    struct trf_text remark; /* the status' name, as ReadStatus has it */
    int64_t suggest_which_broker_id;
    int64_t next_begin_offset, min_offset, max_offset;
    int32_t topic_sys_flag, group_sys_flag;
    size_t body_size; /* of the body that follows; the frame's length counts it */
};

/* A pop that found messages. Both texts are of digits, blanks, commas and semicolons. */
struct trf_pop_answer {
    int32_t opaque;
    int32_t revive_queue_id;
    int64_t pop_time_ms, invisible_ms, rest;
    struct trf_text starts, offsets; /* startOffsetInfo and msgOffsetInfo */
    size_t body_size;
};

/* Write the whole answer to the end of a transaction; its size, or 0 if `room` is less than
 * TRF_REPLY_FIXED. */
size_t trf_end_reply(uint8_t *out, size_t room, int32_t opaque);

/* A refused send. */
struct trf_refusal {
    int32_t code;
    int32_t opaque;
    struct trf_text remark;
    struct trf_text region; /* MSG_REGION */
    uint8_t trace_on;
};

/* The room that a writer asks for, never less than the answer's size. */
size_t trf_send_reply_room(const struct trf_send_answer *answer);
size_t trf_pull_reply_room(const struct trf_pull_answer *answer);
size_t trf_refusal_room(const struct trf_refusal *refusal);
size_t trf_pop_reply_room(const struct trf_pop_answer *answer);

/* Write a whole answer; its size, or 0 if `room` is less than it asks for or no frame holds it. */
size_t trf_send_reply(uint8_t *out, size_t room, const struct trf_send_answer *answer);

/* Write the whole answer to a refused send; its size, or 0 as above. */
size_t trf_send_refusal(uint8_t *out, size_t room, const struct trf_refusal *refusal);

/* Write an answer up to its body; the size of that part, or 0 as above. */
size_t trf_pull_reply(uint8_t *out, size_t room, const struct trf_pull_answer *answer);
size_t trf_pop_reply(uint8_t *out, size_t room, const struct trf_pop_answer *answer);

#endif
