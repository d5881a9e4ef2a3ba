/* The fast lane of a broker: plain pulls from a decoded request to ranges of the log.
 *
 * The reference is broker/handlers/pull.py and Lookup.read. Only pulls that find messages are
 * served, and pulls at the end of their queue can be held (lane_held.h); all other results (an
 * offset beyond the queue, a damaged record) are LANE_NOT_HERE, with nothing changed.
 *
 *     trf_request -> reader (group, topic) -> cursor (queue) -> units -> runs of the log
 *
 * A reader is the result of the handler's checks, valid while their inputs do not change. A cursor
 * is the memory of the queue file that was read last. Python fills both, and provides the memory of
 * log files: the lane reports the missing one. */
#ifndef TURBOPUMP_LANE_PULL_H
#define TURBOPUMP_LANE_PULL_H

#include <stddef.h>
#include <stdint.h>

#include "dispatch.h"
#include "filter.h"
#include "names.h"
#include "tail.h"
#include "traffic.h"

enum {
    LANE_PULL_MAX = 256, /* messages of an answer; RocketMQ's limit is 32 */
    LANE_SPANS = 16,     /* log files whose memory is present */
    LANE_CARRIED = 4     /* PullSysFlag: the subscription is in the request */
};

enum lane_found_outcome {
    LANE_FOUND = 0,
    LANE_NOT_HERE = 1,   /* for the Python handler */
    LANE_NEEDS_UNITS = 2, /* the cursor has no memory for the queue offset */
    LANE_NEEDS_LOG = 3,  /* there is no span for lane_found.lacking */
    LANE_AT_END = 4,     /* the pull asks for the queue's next message: found has the offsets */
    LANE_PASSED = 5      /* no message up to the queue's end has such a tag, without a filter */
};

struct lane_cursor {
    const uint8_t *units; /* NULL: not filled */
    int64_t generation;   /* lane_reading.generation when it was filled */
    int64_t first;        /* queue offset of the first unit in memory */
    int64_t count;        /* units that fit into the memory */
    int64_t min_offset;
    int64_t pulled; /* end of the last pull, -1: Python knows it */
    int32_t slot;
};

struct lane_reader {
    uint8_t plain;   /* 0: nothing is served */
    uint8_t carried; /* by pulls that carry exactly this subscription */
    int32_t queue_limit;
    int32_t topic_sys_flag, group_sys_flag;
    int64_t near_id, far_id; /* brokers to read from next: near the end of the log, further back */
    int64_t sub_version;
    int64_t until_ms; /* epoch ms, when the handler checks again */
    struct trf_text subscription, expression_type;
    const int32_t *codes; /* ascending; NULL: every tag */
    size_t code_count;
    const struct flt_program *filter; /* NULL: every message with such tags */
    int32_t cursor_count; /* largest queue_limit so far: a topic may get fewer queues */
    struct lane_cursor *cursors;
    int64_t got_times, got_count, got_size; /* since they were last taken */
};

struct lane_span {
    const uint8_t *memory;
    int64_t start;
};

/* Limits of remoting.md 10.5: near the end of the log, and further back. */
struct lane_limits {
    int64_t near_bytes;
    int64_t near_count, near_size, far_count, far_size;
};

struct lane_reading {
    struct nam_table pairs; /* group and topic */
    struct lane_reader *rows;
    const struct log_tail *tail;
    const struct dsp_table *queues;
    const int64_t *generation; /* moves when queue offsets did not just grow */
    int64_t file_size;         /* of log files */
    struct lane_limits limits;
    struct lane_span spans[LANE_SPANS];
    size_t span_count;
};

struct lane_run {
    const uint8_t *at;
    size_t size;
    int64_t log_offset;
};

struct lane_found {
    struct lane_reader *reader;
    int64_t next_offset, min_offset, max_offset;
    int64_t broker_id; /* broker to read from next */
    size_t count; /* messages */
    size_t size;
    size_t run_count;
    int64_t lacking;
    struct lane_run runs[LANE_PULL_MAX];
};

/* Find the messages of a pull. Nothing is counted: see lane_got. `now_ms` is epoch ms. */
enum lane_found_outcome lane_find(const struct lane_reading *reading, const struct trf_pull *pull,
                                  int64_t now_ms, struct lane_found *found);

/* The same for the reader with this number. */
enum lane_found_outcome lane_find_again(const struct lane_reading *reading, int32_t number,
                                        const struct trf_pull *pull, int64_t now_ms,
                                        struct lane_found *found);

/* The same for a row after all checks: subscription, time and queue id are valid. */
enum lane_found_outcome lane_read(const struct lane_reading *reading, struct lane_reader *row,
                                  const struct trf_pull *pull, struct lane_found *found);

/* Count the messages found as delivered. */
void lane_got(const struct lane_found *found, const struct trf_pull *pull);

#endif
