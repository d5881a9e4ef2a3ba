/* SendMessage of gRPC in the fast lane: from the single plain message of a call to the parts of a
 * send of remoting, and the answer.
 *
 * The reference is net/messaging/sending.py and message_conversion.py: a message read here ends in
 * the same record and the same answer as there; for all others Python serves the call. So there are
 * no errors here: in rare cases (other encodings, message groups, times, texts that are not
 * printable ASCII, repeated fields) the message is not plain.
 *
 *     DATA -> grs_message -> properties -> lane_send (lane.h) -> answer
 *
 * Texts stay in the memory of the call. The caller owns all memory. */
#ifndef TURBOPUMP_GRPC_SEND_H
#define TURBOPUMP_GRPC_SEND_H

#include <stddef.h>
#include <stdint.h>

#include "grpc_call.h"
#include "traffic.h"

enum {
    GRS_KEYS = 16,
    GRS_PROPERTIES = 16,
    GRS_TEXTS_MAX = 4096, /* of all user properties of the message */
    GRS_PROPERTIES_ROOM = 8192
};

struct grs_property {
    struct trf_text name, value;
};

struct grs_message {
    struct trf_text topic, body, message_id, tag, trace_context, born_host; /* at == NULL:
                                                                             * missing */
    struct trf_text keys[GRS_KEYS];
    struct grs_property properties[GRS_PROPERTIES];
    int key_count, property_count;
    int64_t born_ms; /* 0: the producer sets no time */
};

/* Read the DATA of a call; 0 if it is not a single plain message. */
int grs_read(const uint8_t *data, size_t size, struct grs_message *message);

/* Write the properties text of a message, at most GRS_PROPERTIES_ROOM bytes; returns its size.
 * `address` is `ip:port` of the producer, at most GRC_NAME_MAX bytes. */
size_t grs_properties(const struct grs_message *message, struct trf_text address, int64_t born_ms,
                      uint8_t *out);

/* Write the framed answer to a stored send, at most GRC_ANSWER_ROOM bytes; returns its size. The
 * transaction id has at most GRC_NAME_MAX bytes. */
size_t grs_answer(const struct grs_message *message, struct trf_text transaction_id,
                  int64_t queue_offset, uint8_t *out);

#endif
