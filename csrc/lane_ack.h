/* Records of the revive topic in the fast lane: check points, and ACK_MESSAGE, from decoded
 * requests to one record for all acknowledgements of a check point in a read.
 *
 * The reference is broker/handlers/pop/acks.py with broker/pop/ack_batcher.py and revive_log.py. An
 * acknowledgement is noted (lane_add_ack), and written with the others of its check point at the
 * end of the read, or before Python serves a request of the read (lane_write_ack): a record that
 * waits among the timers until its check point is due. Other cases are LANE_ELSEWHERE, with nothing
 * changed: ordered pops, check points that are due already, doubtful handles.
 *
 *     handle    startOffset popTime invisibleTime reviveQid retryFlag brokerName queueId [offset]
 *
 * Texts stay in the request's memory until the record is written. A check point (lane_write_point)
 * is written for a pop that a handler serves. */
#ifndef TURBOPUMP_LANE_ACK_H
#define TURBOPUMP_LANE_ACK_H

#include "lane.h"

enum {
    LANE_JOINED_MAX = 32, /* check points of a read whose acknowledgements wait to be written */
    LANE_ACKED_MAX = 256, /* requests for these check points */
    LANE_OFFSETS_MAX = 32, /* messages of a record */
    LANE_LOWS = 8, /* queues of a row whose first offset is remembered */
    LANE_CHANGED = 1 << 13 /* counters of replaced handles, by the handles' hash */
};

/* The first queue offset of a queue. */
struct lane_low {
    int32_t queue_id;
    int64_t generation; /* of the queue table when `low` was asked for; -1: never */
    int64_t low;
};

/* The result of the checks of a group and a topic. */
struct lane_acker {
    uint8_t plain;
    int32_t queue_limit;
    int64_t ended_ms; /* pops up to then belong to a removed topic or group of the same name */
    struct lane_low lows[LANE_LOWS];
};

/* The acknowledgements of a single check point. Times in epoch ms. */
struct lane_joined {
    int32_t row, queue_id, revive_queue_id;
    int32_t count;    /* of offsets */
    int32_t requests; /* number of acknowledgements, including repeated ones */
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
    int32_t changed[LANE_CHANGED]; /* by lane_changed_slot; Python serves handles of a slot above
                                    * 0 */
};

/* The counter of a handle that was replaced when the message's invisible time was changed. */
size_t lane_changed_slot(int32_t queue_id, int64_t start, int64_t pop_time_ms, int64_t offset);

enum { LANE_POINT_LEAD_MS = 1000 }; /* how much earlier than its acknowledgements it is due */

/* The messages that one pop received from a queue: their `distances` from `start`. Times in epoch
 * ms. */
struct lane_point {
    struct trf_text group, topic, broker_name;
    int32_t queue_id, revive_queue_id;
    int64_t start, pop_time_ms, invisible_ms;
    int32_t count;
    uint8_t is_suspended;
    int64_t distances[LANE_OFFSETS_MAX];
};

/* The row of a request, -1 if the handler has to look. */
int32_t lane_find_acker(const struct lane_acks *acks, const struct trf_ack *ack);

/* Note a request that lies at `frame`, of that row, whose queue begins at `low`. There must be room
 * for it, see lane_acks_full. */
enum lane_outcome lane_add_ack(const struct lane *lane, struct lane_acks *acks, int32_t row,
                               const struct trf_request *request, int64_t low,
                               const uint8_t *frame, size_t size);

/* Whether the noted acknowledgements must be written before a further request is noted: there is no
 * room, or its check point has a full record or one with another time. */
int lane_acks_full(const struct lane_acks *acks, const struct trf_request *request);

/* Write the record of joined[number]. */
enum lane_outcome lane_write_ack(struct lane *lane, struct lane_acks *acks, int32_t number,
                                 int64_t now_ms);

/* Write a check point, whose numbers must not be negative; LANE_ELSEWHERE: nothing was changed. */
enum lane_outcome lane_write_point(struct lane *lane, const struct lane_acks *acks,
                                   const struct lane_point *point, int64_t now_ms);

#endif
