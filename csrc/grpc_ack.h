/* AckMessage of gRPC in the fast lane: the one plain entry of a call, to an acknowledgement of
 * remoting, and the answer.
 *
 * The reference is net/messaging/handles.py: what is read here is noted as the request of remoting
 * that it makes of it would be, or is not read at all, and Python serves the call. A receipt handle
 * is pop's (lane_ack.h) with the record's log offset behind it.
 *
 * Texts stay where the call has them. All memory is the caller's. */
#ifndef TURBOPUMP_GRPC_ACK_H
#define TURBOPUMP_GRPC_ACK_H

#include <stddef.h>
#include <stdint.h>

#include "grpc_call.h"
#include "traffic.h"

struct gra_entry {
    struct trf_ack ack; /* of a message of the topic itself */
    struct trf_text message_id, receipt_handle, broker_name;
    int64_t until_ms; /* when the message comes again */
};

/* Read the DATA of a call; 0 if it is not one plain entry. */
int gra_read(const uint8_t *data, size_t size, struct gra_entry *entry);

/* Write the framed answer to an acknowledgement that is written, at most GRC_ANSWER_ROOM bytes; how
 * many. */
size_t gra_answer(const struct gra_entry *entry, uint8_t *out);

#endif
