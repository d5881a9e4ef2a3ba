/* AckMessage of gRPC in the fast lane: from the single plain entry of a call to an acknowledgement
 * of remoting, and the answer.
 *
 * The reference is net/messaging/receipts.py: an entry that is read here is noted as the same
 * acknowledgement as the reference would make of it; for all others Python serves the call. A
 * receipt handle is pop's (lane_ack.h), followed by the record's log offset.
 *
 * Texts stay in the memory of the call. The caller owns all memory. */
#ifndef TURBOPUMP_GRPC_ACK_H
#define TURBOPUMP_GRPC_ACK_H

#include <stddef.h>
#include <stdint.h>

#include "grpc_call.h"
#include "traffic.h"

struct gra_entry {
    struct trf_ack ack; /* of a message of the topic itself */
    struct trf_text message_id, receipt_handle, broker_name;
    int64_t until_ms; /* when the message is redelivered */
};

/* Read the DATA of a call; 0 if it is not a single plain entry. */
int gra_read(const uint8_t *data, size_t size, struct gra_entry *entry);

/* Write the framed answer to a written acknowledgement, at most GRC_ANSWER_ROOM bytes; returns its
 * size. */
size_t gra_answer(const struct gra_entry *entry, uint8_t *out);

#endif
