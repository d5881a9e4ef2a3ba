/* Calls of gRPC in the fast lane: what their headers say, and what all of them have in common.
 *
 * The reference is net/grpc/connection.py and framing.py: a call whose headers are plain is begun
 * there as here. What a call is for is read by grpc_send.h and grpc_ack.h. All memory is the
 * caller's, and texts stay where the call has them. */
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

/* The message Status of a call that is done. */
#define GRC_STATUS "\x08\xa0\x9c\x01\x12\x02OK" /* 20000, OK */
enum { GRC_STATUS_SIZE = sizeof GRC_STATUS - 1 };

/* What the headers of a call say. Begin with zeros. */
struct grc_head {
    uint8_t seen;
    uint8_t is_other; /* than a plain call of what is served natively */
    uint8_t rpc;      /* GRC_SEND, GRC_ACK */
    struct trf_text client_id;
};

/* Take one header. */
void grc_header(struct grc_head *head, struct trf_text name, struct trf_text value);

/* Whether all headers were those of a plain call. */
int grc_is_plain(const struct grc_head *head);

/* The one message of a call, which is not compressed; 0 if it is none. */
int grc_message(const uint8_t *data, size_t size, struct trf_text *message);

/* The name of a Resource, which was not read before; 0 if it is none. A namespace is not looked at.
 */
int grc_name(struct trf_text text, struct trf_text *name);

/* Write the framed answer to a call that is done, whose only entry is the message `entry`, of
 * GRC_ANSWER_ROOM - 32 bytes or fewer; how many bytes. */
size_t grc_answer(struct trf_text entry, uint8_t *out);

#endif
