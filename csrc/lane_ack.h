/* Records of the revive topic in the fast lane: check points, and ACK_MESSAGE from decoded
 * requests to one record for all of a check point that came together.
 *
 * The reference is broker/handlers/pop/acks.py with broker/pop/joined_acks.py and revive_log.py. An
 * acknowledgement is noted (lane_add_ack), and written with the others of its check point at the
 * end of the read, or before a request of it that Python serves (lane_write_ack): a record that
 * waits among the timers until its check point is due. All else is LANE_ELSEWHERE, with nothing
 * changed: ordered pops, what is due already, a handle that is doubtful.
 *
 *     handle    startOffset popTime invisibleTime reviveQid retryFlag brokerName queueId [offset]
 *
 * Texts stay where the request has them until it is written. A check point (lane_write_point) is
 * written for a pop, which a handler serves. */
#ifndef TURBOPUMP_LANE_ACK_H
#define TURBOPUMP_LANE_ACK_H

#include "lane.h"

enum {
    LANE_JOINED_MAX = 32, /* check points of a read whose acknowledgements wait to be written */
    LANE_ACKED_MAX = 256, /* requests of these */
    LANE_OFFSETS_MAX = 32, /* messages of a record */
    LANE_LOWS = 8, /* queues of a row whose first offset is remembered */
    LANE_CHANGED = 1 << 13 /* counts of handles that were replaced, by their hash */
};

/* Where a queue begins. */
struct lane_low {
    int32_t queue_id;
    int64_t generation; /* of the queue table, when `low` was asked for; -1: never */
    int64_t low;
};

/* What the checks of a group and a topic came to. */
struct lane_acker {
    uint8_t plain;
    int32_t queue_limit;
    int64_t ended_ms; /* pops up to then were of a former life of the topic or the group */
    struct lane_low lows[LANE_LOWS];
};

/* Acknowledgements of one check point. Times in epoch ms. */
struct lane_joined {
    int32_t row, queue_id, revive_queue_id;
    int32_t count;    /* of offsets */
    int32_t requests; /* of these, repeated ones too */
    uint8_t is_written;
    int64_t start, pop_time_ms, invisible_ms;
    struct trf_text group, topic, broker_name;
    int64_t offsets[LANE_OFFSETS_MAX];
};

/* A request that waits for its record. */
struct lane_acked {
    const uint8_t *frame;
    size_t size;
    int32_t joined;
    int32_t opaque;
    uint8_t is_oneway;
};

struct lane_acks {
    struct nam_table pairs; /* group and topic */
    struct lane_acker *rows;
    int32_t revive_queues;
    struct trf_text revive_topic;
    int32_t joined_count, acked_count;
    struct lane_joined joined[LANE_JOINED_MAX];
    struct lane_acked acked[LANE_ACKED_MAX];
    int32_t changed[LANE_CHANGED]; /* by lane_changed_slot; those of a slot above 0 are Python's */
};

/* Where a handle is counted that a change of its message's time replaced. */
size_t lane_changed_slot(int32_t queue_id, int64_t start, int64_t pop_time_ms, int64_t offset);

enum { LANE_POINT_LEAD_MS = 1000 }; /* how much sooner than its acknowledgements it is due */

/* What one pop gave out of a queue: messages `distances` behind `start`. Times in epoch ms. */
struct lane_point {
    struct trf_text group, topic, broker_name;
    int32_t queue_id, revive_queue_id;
    int64_t start, pop_time_ms, invisible_ms;
    int32_t count;
    uint8_t is_suspended;
    int64_t distances[LANE_OFFSETS_MAX];
};

/* The row of a request, -1 where the handler has to look. */
int32_t lane_find_acker(const struct lane_acks *acks, const struct trf_ack *ack);

/* Note a request that lies at `frame`, of that row, whose queue begins at `low`. There must be room
 * for one more, see lane_acks_full. */
enum lane_outcome lane_add_ack(const struct lane *lane, struct lane_acks *acks, int32_t row,
                               const struct trf_request *request, int64_t low,
                               const uint8_t *frame, size_t size);

/* Whether what waits has to be written before a request can be noted: there is no room, or it is of
 * a check point whose record is full or has another time. */
int lane_acks_full(const struct lane_acks *acks, const struct trf_request *request);

/* Write the record of joined[number]. */
enum lane_outcome lane_write_ack(struct lane *lane, struct lane_acks *acks, int32_t number,
                                 int64_t now_ms);

/* Write a check point, of numbers that are not negative; LANE_ELSEWHERE: nothing was changed. */
enum lane_outcome lane_write_point(struct lane *lane, const struct lane_acks *acks,
                                   const struct lane_point *point, int64_t now_ms);

#endif
