/* The load generator: one thread, one epoll set, connections that send or pull.
 *
 * The caller makes everything: memory, connected non-blocking sockets, templates (load_frame.h) and
 * the limits. load_run then works until the run ends; meanwhile another thread may read the
 * counters, set `stop` and hand over sockets, nothing else.
 *
 * Closed loop (interval_ns 0): each connection keeps its window full. Open loop: request n is due
 * at begin + n * interval_ns, goes to the next connection with room, and its latency counts from
 * its due time: waiting for room is waiting (no coordinated omission).
 *
 * A pulling connection has one pull in flight for each of its queues. Without `follow` a queue ends
 * at its `end`, or when the broker reports the end of the queue.
 *
 * With `follow_up` requests follow good answers (load_follow.h). A connection whose pop finds no
 * message sends nothing more; the run ends with the last such connection.
 *
 * With `reconnect` a lost connection may get another socket from another thread, see load_outage.h:
 * its requests in flight are counted as failed, and it continues.
 *
 * This unit is the shell of the load generator, and the only unit of csrc that does I/O and reads a
 * clock. It is never linked into the broker. */
#ifndef TURBOPUMP_LOAD_H
#define TURBOPUMP_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "load_follow.h"
#include "load_frame.h"
#include "load_hist.h"
#include "load_outage.h"

enum {
    LOAD_WINDOW_MAX = 65535,     /* requests in flight: the bound of RocketMQ's own client */
    LOAD_CODES = 16,             /* error codes counted separately; further codes count as the
                                  * last */
    LOAD_REMARK = 200,           /* bytes of an error's text that are kept */
    LOAD_READ_SIZE = 256 * 1024, /* of a recv: the buffer stays in the cache */
    LOAD_EVENTS = 256
};

enum load_kind { LOAD_SEND = 0, LOAD_PULL = 1, LOAD_KINDS = 2 };

enum { LOAD_AWAY = 1, LOAD_GONE = 2 };

enum load_end {
    LOAD_DONE = 0,   /* all is sent and answered, all is read, or the time ended */
    LOAD_LATE = 1,   /* requests were not answered within drain_ns or silence_ns */
    LOAD_LOST = 2,   /* no connection is left, and no new one came for silence_ns */
    LOAD_SYSTEM = 3  /* epoll failed: see load.failure */
};

/* Error codes that no answer has. */
enum { LOAD_CODE_UNANSWERED = -1, LOAD_CODE_LOST = -2, LOAD_CODE_MALFORMED = -3 };

struct load_code {
    int32_t code;
    uint32_t remark_size;
    uint64_t count;
    uint8_t remark[LOAD_REMARK]; /* of the first one */
};

struct load_stats {
    uint64_t all_requests;  /* sent, from the start */
    uint64_t all_messages;  /* acknowledged or read, from the start */
    uint64_t requests;      /* answered well after the warm-up, and so the next two */
    uint64_t messages;
    uint64_t bytes;         /* of bodies: sent by the user, or brought by a pull */
    uint64_t in_flight;
    uint32_t code_count;
    struct load_code codes[LOAD_CODES];
    struct load_hist *total;    /* ns, after the warm-up */
    struct load_hist *interval; /* of the running second */
};

struct load_row {
    uint64_t messages[LOAD_KINDS];
    int64_t p50_ns[LOAD_KINDS];
    int64_t p99_ns[LOAD_KINDS];
    int64_t max_ns[LOAD_KINDS];
};

enum load_queue_state { LOAD_QUEUE_OPEN = 0, LOAD_QUEUE_ENDED = 1, LOAD_QUEUE_FAILED = 2 };

struct load_queue {
    int64_t next; /* next queue offset */
    int64_t end;
    uint32_t template;
    uint32_t state;
};

struct load_connection {
    int fd;
    uint32_t kind;
    uint32_t window;
    uint32_t first_target; /* templates to send by turns, or queues to pull */
    uint32_t target_count;
    uint32_t next_target;
    uint32_t in_flight;
    uint32_t awaited; /* of in_flight: acknowledgements of the last pop */
    uint32_t free_count;
    uint32_t *free;      /* window slots; unused in a pulling connection: slot = queue */
    int64_t *started_ns; /* per slot, 0: not in flight */
    uint8_t *in;
    size_t in_end;
    size_t in_size;
    uint8_t *out;
    size_t out_at;
    size_t out_end;
    size_t out_size;
    size_t request_max; /* room that one request needs, without a body of the corpus */
    uint32_t *sizes;    /* per slot of the corpus' bodies; NULL without a corpus */
    uint32_t lost; /* LOAD_AWAY: it may get another socket */
    uint32_t failed; /* since its last acknowledgement */
    int dropped;     /* to be dropped; another thread writes this and the next member */
    int handed;      /* the next socket + 1, 0: no socket */
    uint32_t waits_writable;
    uint32_t touched; /* has unsent bytes of this turn */
    struct load_hint hint;
};

struct load {
    /* The settings of a run. */
    const uint8_t *texts;
    const struct load_template *templates;
    struct load_body body;
    struct load_corpus corpus; /* instead of the body, if it has any */
    struct load_due due;
    struct load_follow follow_up;
    struct load_connection *connections;
    struct load_queue *queues;
    uint32_t *touched; /* connection_count numbers */
    struct load_row *rows;
    size_t row_max;
    uint32_t connection_count;
    uint32_t queue_count;
    uint32_t messages_per_send;
    int epoll_fd;
    int follow;
    int check_crc;
    int reconnect; /* lost connections get new sockets */
    int64_t interval_ns; /* per request, 0: closed loop */
    int64_t warmup_ns;
    int64_t duration_ns; /* after the warm-up, 0: no limit */
    int64_t drain_ns;    /* longest wait for answers at the end */
    int64_t silence_ns;  /* longest time without any answer */
    uint32_t pause_us;   /* of the whole load after a refused send */
    uint64_t limit;      /* messages from the start, 0: none */
    uint64_t serial;     /* of the next UNIQ_KEY */

    /* The state of a run; other threads write `stop`. */
    int stop;
    int drops; /* some connection is `dropped` */
    int failure; /* error number of the system */
    uint32_t draining;
    uint32_t touched_count;
    uint32_t next_connection;
    uint32_t alive[LOAD_KINDS];
    uint32_t lost_connections;
    uint32_t away; /* lost connections that may get a new socket */
    uint32_t outage_count;
    struct load_outage outages[LOAD_OUTAGES];
    uint32_t open_queues;
    uint32_t dry; /* connections whose pop found nothing */
    uint64_t issued; /* requests of the open loop */
    uint64_t strays; /* answers without a request */
    size_t row_count;
    uint64_t row_messages[LOAD_KINDS]; /* messages when the row began */
    int64_t now_ns;
    int64_t heard_ns; /* time of the last answer, or of the first request after it */
    int64_t acked_ns; /* time of the last acknowledged send */
    int64_t start_ns;
    int64_t begin_ns; /* of the measurement */
    int64_t end_ns;   /* of the measurement, after its end */
    int64_t epoch_ns; /* wall clock less the monotonic one */
    int64_t drain_until_ns;
    struct load_stamp stamp;
    struct load_stats stats[LOAD_KINDS];
    struct load_hist *delivery; /* from born to read, ns (the stamp has milliseconds) */
};

/* Run the load to its end, and return the status; blocks. Called once. */
enum load_end load_run(struct load *load);

#endif
