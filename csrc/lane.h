/* The fast lane of a broker: plain sends from a decoded request to a record in the log.
 *
 * The reference is broker/handlers/send.py and Store.append: a send stored here has the same bytes
 * and the same answer as there, or nothing is done (LANE_ELSEWHERE, nothing changed, and the Python
 * handler serves the request). The policy is in Python, too: it decides which topics are plain.
 *
 *     trf_request -> topic row -> properties -> queue slot -> record at the tail -> lane_sent
 *                                                                      \-> descriptor for dispatch
 *
 * Timers and half messages are stored in the same way, in a queue of their own (lane_kept.h).
 *
 * Not in this file: finding frames (frame.h), decoding (traffic.h), answers (traffic_reply.h),
 * dispatch (dispatch.h). The caller owns all memory. */
#ifndef TURBOPUMP_LANE_H
#define TURBOPUMP_LANE_H

#include <stddef.h>
#include <stdint.h>

#include "dispatch.h"
#include "lane_kept.h"
#include "names.h"
#include "record.h"
#include "tail.h"
#include "traffic.h"
#include "traffic_properties.h"

/* LANE_NEW_QUEUE: the topic has the queue, and the dispatch table does not yet. */
enum lane_outcome {
    LANE_DONE = 0,
    LANE_ELSEWHERE = 1,
    LANE_NOT_ENOUGH = 2,
    LANE_NEW_QUEUE = 3
};

/* MessageSysFlag: bits that make a send not plain. */
enum { LANE_TRANSACTION_BITS = 0x4 | 0x8, LANE_INNER_BATCH_BITS = 0x40 | 0x80 };

/* Counters of a topic since they were last taken. Ends count half messages younger than
 * LANE_YOUNG_MS. */
struct lane_halves {
    int64_t prepared, committed, rolled_back;
    int64_t age_s; /* of the committed ones, summed up */
    int64_t at_ms; /* time of the last change */
};

struct lane_topic {
    int32_t queue_limit; /* queue ids below it are valid */
    uint8_t plain;       /* 0: nothing is served */
    uint32_t topic_hash; /* idx_topic_hash of the topic */
    int64_t put_count;   /* messages since the counts were last taken */
    int64_t put_size;    /* bytes of their records */
    struct lane_halves halves;
    int32_t next_noted; /* row + 1 of the list of lane.first_noted */
    uint8_t noted;
};

/* Counters since they were last taken. */
struct lane_counts {
    int64_t put_count; /* messages */
    int64_t put_size;
    int64_t send_count;   /* requests served */
    int64_t kept_count;   /* of send_count, timers and half messages */
    int64_t end_count;    /* transactions ended */
    int64_t ack_count;    /* acknowledgements */
};

struct lane {
    struct nam_table topics;
    struct lane_topic *rows; /* under the topics' numbers; first the two rows of kept messages */
    int32_t first_noted;     /* row + 1 of the rows with halves that are not all 0, 0: none */
    int32_t recent;          /* row of the last send's topic */
    struct lane_kept kept;
    struct log_tail *tail;
    struct dsp_table *queues;
    struct trf_text own_properties; /* MSG_REGION, TRACE_ON, CLUSTER: as they are stored */
    struct trf_text store_host;     /* packed */
    size_t max_body;
    uint8_t not_enough;     /* too few in-sync replicas: sends that wait for them are refused */
    int64_t accept_from_ms; /* startAcceptSendRequestTimeStamp: sends before it are refused */
    uint8_t *texts;       /* room for a properties text: LANE_TEXT_ROOM */
    int64_t *log_offsets; /* room for every element that a body of max_body can hold */
    struct lane_counts counts;
};
/* A message leaves room for the properties that brokers add later: for its delivery, retries and
 * checks (LATER_MAX of broker/traffic/room.py). */
enum { LANE_LATER_MAX = 1024, LANE_SENT_MAX = REC_MAX_PROPERTIES - LANE_LATER_MAX };
enum { LANE_TEXT_ROOM = REC_MAX_PROPERTIES };

struct lane_sent {
    int64_t queue_offset; /* of the first record */
    int64_t end;          /* must be durable before the answer, if the send waits */
    size_t count;         /* records; their log offsets are in lane.log_offsets */
    struct trf_text unique_key;
    struct trf_text handle; /* of a timer, for its recall; at == NULL: none */
    uint8_t waits;
};

/* Note that the row's halves have changed. */
static inline void lane_note_halves(struct lane *lane, struct lane_topic *topic, int64_t now_ms)
{
    topic->halves.at_ms = now_ms;
    if (!topic->noted) {
        topic->noted = 1;
        topic->next_noted = lane->first_noted;
        lane->first_noted = (int32_t)(topic - lane->rows) + 1;
    }
}

/* Store a send, in its queue or in a queue of kept messages. If the result is not LANE_DONE,
 * nothing was changed; after LANE_NEW_QUEUE the caller may add the queue and call again. Times in
 * epoch ms. `known`: its properties, if they were found plain already; else NULL. */
enum lane_outcome lane_send(struct lane *lane, const struct trf_send *send,
                            const struct trf_properties *known, struct trf_text body,
                            struct trf_text born_host, int64_t now_ms, struct lane_sent *sent);

#endif
