/* Requests that follow a good answer on its connection: the end of a transaction, or the
 * acknowledgements of popped messages.
 *
 *     LOAD_FOLLOW_END    a oneway request after each send; no answer
 *     LOAD_FOLLOW_ACKS   a request for each message of a pop; each is answered, and the next pop
 *                        waits for all of these answers
 *
 * A request is the text of a JSON header in which the bytes 1, 2 ... stand for values of the answer
 * (enum load_value). The caller owns all memory. */
#ifndef TURBOPUMP_LOAD_FOLLOW_H
#define TURBOPUMP_LOAD_FOLLOW_H

#include <stddef.h>
#include <stdint.h>

#include "load_frame.h"
#include "traffic_properties.h"

enum load_follow_kind { LOAD_FOLLOW_NOTHING = 0, LOAD_FOLLOW_END = 1, LOAD_FOLLOW_ACKS = 2 };

enum load_value {
    /* LOAD_FOLLOW_END */
    LOAD_LOG_OFFSET = 1,
    LOAD_STATE_OFFSET, /* queue offset of the half message */
    LOAD_TRANSACTION,
    /* LOAD_FOLLOW_ACKS */
    LOAD_OFFSET = 1, /* queue offset of the message */
    LOAD_QUEUE,
    LOAD_START,
    LOAD_RETRY,
    LOAD_POP_TIME,
    LOAD_INVISIBLE,
    LOAD_REVIVE,
    LOAD_VALUES
};

struct load_follow {
    uint32_t kind;
    struct trf_text text; /* empty: popped messages are counted and not acknowledged */
};

/* Write the requests that follow an answer into `out`, and their size. Returns the number of popped
 * messages, 0 for a send; -1: a value is missing or malformed, or `room` bytes are too few. */
int64_t load_follow(const struct load_follow *follow, const struct load_answer *answer,
                    uint8_t *out, size_t room, size_t *size);

#endif
