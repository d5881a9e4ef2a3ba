/* Calls of gRPC in the fast lane: the contents of their headers, and helpers for all calls.
 *
 * The reference is net/grpc/connection.py and framing.py: a call with plain headers begins as it
 * does there. grpc_send.h and grpc_ack.h read the messages. The caller owns all memory, and texts
 * stay in the memory of the call. */
#ifndef TURBOPUMP_GRPC_CALL_H
#define TURBOPUMP_GRPC_CALL_H

#include <stddef.h>
#include <stdint.h>

#include "traffic_properties.h"

enum { GRC_OTHER = 0, GRC_SEND = 1, GRC_ACK = 2 };
enum {
    GRC_PREFIX = 5,
    GRC_NAME_MAX = 255, /* bytes of a message id, a client id, a host, a topic */
    GRC_ANSWER_ROOM = 4096
};

/* The message Status of a successful call. */
#define GRC_STATUS "\x08\xa0\x9c\x01\x12\x02OK" /* 20000, OK */
enum { GRC_STATUS_SIZE = sizeof GRC_STATUS - 1 };

/* The contents of a call's headers. The caller sets all bytes to zero first. */
struct grc_head {
    uint8_t seen;
    uint8_t is_other; /* not a plain call served natively */
    uint8_t rpc;      /* GRC_SEND, GRC_ACK */
    struct trf_text client_id;
};

/* Read one header. */
void grc_header(struct grc_head *head, struct trf_text name, struct trf_text value);

/* Whether the headers belong to a plain call. */
int grc_is_plain(const struct grc_head *head);

/* Find the single uncompressed message of a call; 0 without a message. */
int grc_message(const uint8_t *data, size_t size, struct trf_text *message);

/* Read the name of a Resource, which must be the first; 0 if it is not valid. A namespace is
 * ignored. */
int grc_name(struct trf_text text, struct trf_text *name);

/* Write the framed answer to a successful call, whose only entry is the message `entry` of at most
 * GRC_ANSWER_ROOM - 32 bytes; returns its size. */
size_t grc_answer(struct trf_text entry, uint8_t *out);

#endif
