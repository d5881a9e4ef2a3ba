/* The cost of a failover for a load: connections that are lost and replaced, and the outages.
 *
 *     last answer    first failure            first answer of a connection that had failed
 *          |--------------|-----------------------------|
 *          |<----------------- gap -------------------->|
 *                         |<--------- resumed --------->|
 *
 * An outage begins with a send that fails and ends with the first send that is acknowledged on a
 * connection that had failed, replaced or not. Failures within LOAD_OUTAGE_JOIN_NS of its end
 * belong to it. The gap is the longest time without any acknowledgement meanwhile.
 *
 * Only with load.reconnect: without it a lost connection stays lost, and no outage is counted. The
 * errors themselves are counted here, too. */
#ifndef TURBOPUMP_LOAD_OUTAGE_H
#define TURBOPUMP_LOAD_OUTAGE_H

#include <stdint.h>

enum { LOAD_OUTAGES = 16 }; /* further ones are counted in the last */

struct load;
struct load_answer;
struct load_connection;
struct load_stats;

struct load_outage {
    int64_t began_ns;
    int64_t resumed_ns; /* 0: not yet */
    int64_t gap_ns;
    uint64_t failed; /* sends */
};

/* Count failed requests, with the code of an answer or an error code of load.h. The text of the
 * first is kept. */
void load_count_error(struct load_stats *stats, int32_t code, uint64_t count,
                      const struct load_answer *answer);

/* Count failed sends of a connection: they were refused, or lost with the connection. */
void load_failed(struct load *load, struct load_connection *connection, uint64_t count);

/* Note that a send was acknowledged. */
void load_acked(struct load *load, struct load_connection *connection);

/* Whether an answer means that another broker has to be asked. */
int load_is_moved(const struct load *load, uint32_t kind, int32_t code);

/* Drop a connection, from another thread: its address does not answer, others may. */
void load_drop(struct load *load, uint32_t number);

/* Give a lost connection a new socket, from another thread; 0 if it has one already. */
int load_hand_over(struct load *load, uint32_t number, int fd);

/* Reset a connection with a new socket: nothing in flight, nothing read. */
void load_renew(struct load_connection *connection);

#endif
