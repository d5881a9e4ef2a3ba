/* The end of a transaction in the fast lane: END_TRANSACTION from a decoded request to the record
 * of the committed message.
 *
 * The reference is broker/handlers/transactions.py. The caller (pyx/lane.pyx) knows whether the
 * half message is open: it checks before the call and marks the end after it. This file compares
 * the request with the queue of half messages and with the record, and writes the message, if all
 * of the record is in the current file, the message asks for no delivery time, and the target's
 * queue exists. Other cases are LANE_ELSEWHERE, with nothing changed. */
#ifndef TURBOPUMP_LANE_END_H
#define TURBOPUMP_LANE_END_H

#include "lane.h"

enum { LANE_YOUNG_MS = 5000 }; /* the handler ends older ones: it counts them by age */

/* End a transaction: write the message of a commit at the tail, and count the end; a rollback
 * writes no record. `now_ms` is in epoch ms. LANE_ELSEWHERE: nothing was changed. */
enum lane_outcome lane_end(struct lane *lane, const struct trf_end *end, int64_t now_ms);

#endif
