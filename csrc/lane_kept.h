/* Messages that the fast lane stores in another queue than their own, until a time or until their
 * producer commits them: timers, half messages (RocketMQ: HookUtils, TransactionalMessageBridge).
 *
 * The reference is broker/traffic/put_message.py (put, put_half): cases that are rare or refused
 * there are not served here. A kept message has further properties, after the broker's:
 *
 *     timer    TIMER_OUT_MS, REAL_TOPIC, REAL_QID      in queue 0 of rmq_sys_wheel_timer
 *     half     __transactionId__, REAL_TOPIC, REAL_QID    in queue 0 of RMQ_SYS_TRANS_HALF_TOPIC
*/
#ifndef TURBOPUMP_LANE_KEPT_H
#define TURBOPUMP_LANE_KEPT_H

#include <stdint.h>

#include "traffic.h"
#include "traffic_properties.h"
#include "wire_constants.h" /* generated */

enum lane_kind { LANE_PLAIN = 0, LANE_TIMER = 1, LANE_HALF = 2, LANE_OTHER = 3 };

/* Numbers of the rows of both topics. */
enum { LANE_TIMER_ROW = 0, LANE_HALF_ROW = 1, LANE_KEPT_ROWS = 2 };
enum { LANE_HANDLE_ROOM = 1088, LANE_NAME_MAX = 255 };

struct lane_kept {
    uint8_t timers; /* whether timers are served */
    uint8_t halves; /* whether half messages and their ends are served */
    int64_t max_delay_ms;
    int64_t precision_ms;
    struct trf_text broker_name; /* of recall handles; at most LANE_NAME_MAX bytes */
    uint8_t handle[LANE_HANDLE_ROOM];
};

/* The kind of a send that is canonical but not plain: LANE_TIMER with the time of its slot,
 * LANE_HALF, or LANE_OTHER for the handler. */
enum lane_kind lane_kind_of(const struct lane_kept *kept, const struct trf_send *send,
                            const struct trf_properties *properties, int64_t now_ms,
                            int64_t *slot_ms);

/* Write the last properties of a kept message into [at, end); returns their end, NULL without
 * room. */
uint8_t *lane_put_kept(uint8_t *at, const uint8_t *end, enum lane_kind kind,
                       const struct trf_send *send, struct trf_text unique_key, int64_t slot_ms);

/* Write the handle for the recall of a timer by its producer, into kept->handle: URL-safe Base64 of
 * `v1 topic brokerName time key` (RecallMessageHandle). Its texts come from lane_kind_of. */
struct trf_text lane_put_handle(struct lane_kept *kept, struct trf_text topic,
                                struct trf_text unique_key, int64_t slot_ms);

#endif
