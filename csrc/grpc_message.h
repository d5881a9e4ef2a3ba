/* ReceiveMessage of gRPC in the fast lane: a record of the log to the framed ReceiveMessageResponse
 * that gives it to a consumer.
 *
 * The reference is net/messaging/delivery.py and receiving.py: what is written here says the same,
 * field by field, or nothing is written, and Python makes the message. So whatever is rare (bodies
 * that are compressed or changed, inner batches, hosts of IPv6, texts that are not ASCII, a name
 * twice, messages that were dead letters or have a handle already) is not read here.
 *
 * The digest of the body is left open: 32 digits at `digest`, for a caller that has MD5. All memory
 * is the caller's. */
#ifndef TURBOPUMP_GRPC_MESSAGE_H
#define TURBOPUMP_GRPC_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "grpc_call.h"

enum { GRM_DIGEST = 32, GRM_PAIRS = 64 };

/* What is the same for all messages of a queue that one pop gets. */
struct grm_pop {
    int64_t start; /* queue offset that names the check point */
    int64_t pop_time_ms, invisible_ms;
    int32_t queue_id, revive_queue_id;
    int32_t attempts_max; /* deliveries, until it is a dead letter */
    struct trf_text broker_name; /* at most GRC_NAME_MAX bytes */
    const struct trf_text *tags; /* one of them is wanted */
    int32_t tag_count;           /* 0: all messages are */
};

/* A message that was written; pointers are into `out`. */
struct grm_message {
    uint8_t *digest, *body;
    size_t body_size;
    struct trf_text message_id;
    int64_t start, queue_offset, log_offset;
    int32_t queue_id;
};

/* Bytes that framed responses to so many records of that size together take at most. */
size_t grm_room(size_t size, size_t count);

/* The size of the next record in so many bytes, 0 if that is not to be read. */
size_t grm_record_size(const uint8_t *record, size_t left);

/* Write the framed response with the record's message; how many bytes, 0: it is Python's.
 * `queue_offset` is the one that the record must have. */
size_t grm_write(const struct grm_pop *pop, const uint8_t *record, size_t size,
                 int64_t queue_offset, uint8_t *out, struct grm_message *made);

/* Write the digest of 16 bytes, as clients compare it. */
void grm_digest(const struct grm_message *made, const uint8_t *md5);

#endif
