/* The end of a transaction in the fast lane: END_TRANSACTION from a decoded request to the record
 * of the committed message.
 *
 * The reference is broker/handlers/transactions.py. Whether the half message is open is known by
 * its caller, which asks before and says after (pyx/lane.pyx). Here the request is held against the
 * queue of half messages and against the record, and the message is written: all of it is in the
 * file that is written, nothing asks for another time, and the target's queue is there. All else is
 * LANE_ELSEWHERE, with nothing changed. */
#ifndef TURBOPUMP_LANE_END_H
#define TURBOPUMP_LANE_END_H

#include "lane.h"

enum { LANE_YOUNG_MS = 5000 }; /* older half messages are for the handler, which counts by age */

/* Times in epoch ms. */
enum lane_outcome lane_end(struct lane *lane, const struct trf_end *end, int64_t now_ms);

#endif
