/* SendMessage of gRPC in the fast lane: the one plain message of a call, to what a send of remoting
 * is made of, and the answer.
 *
 * The reference is net/messaging/sending.py and drafts.py: what is read here ends in the same
 * record and the same answer, or is not read at all, and Python serves the call. So there is no
 * error here: whatever is rare (other encodings, message groups, times, texts that are not
 * printable ASCII, a field twice) is no plain message.
 *
 *     DATA -> grs_message -> properties -> lane_send (lane.h) -> answer
 *
 * Texts stay where the call has them. All memory is the caller's. */
#ifndef TURBOPUMP_GRPC_SEND_H
#define TURBOPUMP_GRPC_SEND_H

#include <stddef.h>
#include <stdint.h>

#include "grpc_call.h"
#include "traffic.h"

enum {
    GRS_KEYS = 16,
    GRS_PROPERTIES = 16,
    GRS_TEXTS_MAX = 4096, /* of all properties of the message that its producer chose */
    GRS_PROPERTIES_ROOM = 8192
};

struct grs_property {
    struct trf_text name, value;
};

struct grs_message {
    struct trf_text topic, body, message_id, tag, trace_context, born_host; /* at == NULL: none */
    struct trf_text keys[GRS_KEYS];
    struct grs_property properties[GRS_PROPERTIES];
    int key_count, property_count;
    int64_t born_ms; /* 0: the producer does not say */
};

/* Read the DATA of a call; 0 if it is not one plain message. */
int grs_read(const uint8_t *data, size_t size, struct grs_message *message);

/* Write the properties text of a message, at most GRS_PROPERTIES_ROOM bytes; how many. `address` is
 * `ip:port` of the producer, at most GRC_NAME_MAX bytes. */
size_t grs_properties(const struct grs_message *message, struct trf_text address, int64_t born_ms,
                      uint8_t *out);

/* Write the framed answer to a send that is stored, at most GRC_ANSWER_ROOM bytes; how many. The
 * transaction id is as long as GRC_NAME_MAX at most. */
size_t grs_answer(const struct grs_message *message, struct trf_text transaction_id,
                  int64_t queue_offset, uint8_t *out);

#endif
