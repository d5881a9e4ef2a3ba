/* Calls of the fast lane among the events of HTTP/2 sessions (h2.h): the positions of each call.
 *
 * A plain call is headers that grc_header accepts, DATA in at most H2_PIECES_MAX pieces, and an
 * end. The events of several streams may be interleaved; the events of a served call become
 * H2_SERVED, which a reader skips. The caller owns all memory. */
#ifndef TURBOPUMP_H2_CALLS_H
#define TURBOPUMP_H2_CALLS_H

#include <stddef.h>
#include <stdint.h>

#include "grpc_call.h"
#include "h2.h"

enum {
    H2_SERVED = 255,           /* a removed event; its `a` bytes follow */
    H2_CALLS_MAX = 64,         /* calls that have begun and not ended */
    H2_PIECES_MAX = 4,
    H2_MESSAGE_MAX = 32 << 10 /* of a call that is held for the next read */
};

/* A call that is plain as far as it was read. Positions are of its events. */
struct h2_call {
    int32_t stream_id;    /* 0: the entry is void */
    size_t begin, behind; /* positions of its headers */
    size_t data[H2_PIECES_MAX];
    size_t sizes[H2_PIECES_MAX];
    int pieces;
    struct grc_head header;
};

/* The caller sets all but `calls` to zero first. */
struct h2_calls {
    int first, behind; /* range of the entries in use */
    int32_t block_of;  /* the stream whose headers are being read */
    struct h2_call calls[H2_CALLS_MAX];
};

/* The call of a stream, NULL if the stream has no plain call. */
struct h2_call *h2_find_call(struct h2_calls *calls, int32_t stream_id);

/* Take the event at `here`: a header, or the end of headers. `behind` is the end of its bytes. */
void h2_note_headers(struct h2_calls *calls, const uint8_t *events, size_t here, size_t behind);

/* Take DATA of a call, of `size` bytes after the event at `here`. */
void h2_note_data(struct h2_call *call, size_t here, size_t size);

/* Bytes of the events of a call without its end. */
size_t h2_size_of_call(const struct h2_call *call);

/* Whether the next read can complete a plain call: the service refuses some beginnings immediately,
 * and these must not wait. */
int h2_may_be_whole(const uint8_t *events, const struct h2_call *call);

/* Void the events of a call except its end, and an event that `size` bytes follow. */
void h2_take_call_out(uint8_t *events, const struct h2_call *call);
void h2_take_out(uint8_t *event, size_t size);

/* Whether a stream is closed with an error. */
int h2_breaks_one(const uint8_t *events, size_t size);

#endif
