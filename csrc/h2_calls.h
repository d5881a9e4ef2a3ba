/* Calls of the fast lane among the events of HTTP/2 sessions (h2.h): where each of them lies.
 *
 * A plain call is headers that grc_header takes, DATA in at most H2_PIECES_MAX pieces, and an end.
 * The events of many streams may lie in one another; those of a call that was served become
 * H2_SERVED ones, over which a reader goes. All memory is the caller's. */
#ifndef TURBOPUMP_H2_CALLS_H
#define TURBOPUMP_H2_CALLS_H

#include <stddef.h>
#include <stdint.h>

#include "grpc_call.h"
#include "h2.h"

enum {
    H2_SERVED = 255,           /* what was an event; `a` bytes follow that belong to it */
    H2_CALLS_MAX = 64,         /* calls that have begun and not ended */
    H2_PIECES_MAX = 4,
    H2_MESSAGE_MAX = 32 << 10 /* of a call that is waited for */
};

/* A call of which all that was read is plain so far. Positions are those of its events. */
struct h2_call {
    int32_t stream_id;    /* 0: none any more */
    size_t begin, behind; /* of its headers */
    size_t data[H2_PIECES_MAX];
    size_t sizes[H2_PIECES_MAX];
    int pieces;
    struct grc_head said;
};

/* Begin with zeros in all but `calls`. */
struct h2_calls {
    int first, behind; /* of those that may be there still */
    int32_t block_of;  /* the stream whose headers are being read */
    struct h2_call calls[H2_CALLS_MAX];
};

/* The call of a stream, NULL if it is none, or none that is plain. */
struct h2_call *h2_find_call(struct h2_calls *calls, int32_t stream_id);

/* Take the event at `here`: a header, or the end of headers; its bytes end at `behind`. */
void h2_note_headers(struct h2_calls *calls, const uint8_t *events, size_t here, size_t behind);

/* Take DATA of a call, of `size` bytes behind the event at `here`. */
void h2_note_data(struct h2_call *call, size_t here, size_t size);

/* Bytes of the events of a call without its end. */
size_t h2_size_of_call(const struct h2_call *call);

/* Whether the next read can make a whole plain call of it: the service refuses some beginnings at
 * once, and what it would refuse does not wait. */
int h2_may_be_whole(const uint8_t *events, const struct h2_call *call);

/* Nothing is left of the events of a call but its end, and of an event that `size` bytes follow. */
void h2_take_call_out(uint8_t *events, const struct h2_call *call);
void h2_take_out(uint8_t *event, size_t size);

/* Whether a stream is closed with an error. */
int h2_breaks_one(const uint8_t *events, size_t size);

#endif
