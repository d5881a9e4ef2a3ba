/* ReceiveMessage of gRPC in the fast lane: from a record of the log to the framed
 * ReceiveMessageResponse that delivers it to a consumer.
 *
 * The reference is net/messaging/delivery.py and receiving.py: a response written here equals
 * theirs, field by field, or nothing is written, and Python makes the response. So this file
 * refuses rare cases (bodies that are compressed or changed, inner batches, hosts of IPv6, texts
 * that are not ASCII, repeated names, messages that were dead letters or have a handle already).
 *
 * The digest of the body is left open: 32 digits at `digest`, for a caller that has MD5. The caller
 * owns all memory. */
#ifndef TURBOPUMP_GRPC_MESSAGE_H
#define TURBOPUMP_GRPC_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "grpc_call.h"

enum { GRM_DIGEST = 32, GRM_PAIRS = 64 };

/* The values shared by all messages that one pop receives from a queue. */
struct grm_pop {
    int64_t start; /* queue offset that names the check point */
    int64_t pop_time_ms, invisible_ms;
    int32_t queue_id, revive_queue_id;
    int32_t attempts_max; /* deliveries, until it is a dead letter */
    struct trf_text broker_name; /* at most GRC_NAME_MAX bytes */
    const struct trf_text *tags; /* accepted tags */
    int32_t tag_count;           /* 0: all are accepted */
};

/* A written message; pointers are into `out`. */
struct grm_message {
    uint8_t *digest, *body;
    size_t body_size;
    struct trf_text message_id;
    int64_t start, queue_offset, log_offset;
    int32_t queue_id;
};

/* The greatest number of bytes of framed responses to `count` records of `size` bytes together. */
size_t grm_room(size_t size, size_t count);

/* The size of the next record in these bytes, 0 if it cannot be read. */
size_t grm_record_size(const uint8_t *record, size_t left);

/* Write the framed response with the record's message; returns its size, 0: Python has to make it.
 * `queue_offset` must be the record's. */
size_t grm_write(const struct grm_pop *pop, const uint8_t *record, size_t size,
                 int64_t queue_offset, uint8_t *out, struct grm_message *made);

/* Write the digest of 16 bytes in the form that clients compare. */
void grm_digest(const struct grm_message *made, const uint8_t *md5);

#endif
