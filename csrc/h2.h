/* One HTTP/2 connection of a server, or of a client: bytes in, events out; answers or requests in,
 * bytes out. No I/O.
 *
 * The protocol itself (frames, HPACK, flow control, states of streams) is libnghttp2's. Its
 * results are written as events into a room of the caller, which reads them after the call: no
 * callback runs anything but this unit. An event is
 *
 *     | kind 1 | flag 1 | 2 | stream id 4 | a 4 | b 4 | a + b bytes |       native byte order
 *
 *     HEADER   a name, b value                   BLOCK   the headers are complete; flag: too many
 *     DATA     a bytes                           END     the peer has sent all of the stream
 *     CLOSED   a: error code, no bytes           PONG, AWAY   of the connection
 *
 * All memory is the caller's: the room, `struct h2_outbox` of each stream that is answered (from
 * `h2_answer` until CLOSED of it), and its bytes. The session of the library is freed by
 * `h2_close`. */
#ifndef TURBOPUMP_H2_H
#define TURBOPUMP_H2_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "h2_library.h"

enum h2_event {
    H2_HEADER = 1,
    H2_BLOCK = 2,
    H2_DATA = 3,
    H2_END = 4,
    H2_CLOSED = 5,
    H2_PONG = 6,
    H2_AWAY = 7
};

struct h2_event_head {
    uint8_t kind;
    uint8_t flag;
    uint16_t unused;
    int32_t stream_id;
    uint32_t a;
    uint32_t b;
};

enum {
    H2_PAIRS_MAX = 16,         /* of an answer */
    H2_SLICE = 16 << 10,       /* greatest number of bytes that one call takes */
    H2_ROOM_LEAST = 128 << 10, /* half of the room takes all events of a slice */
    H2_PREFACE = 24,
    H2_CONTINUATIONS_MAX = 8   /* frames that continue a block of headers */
};

struct h2_limits {
    uint32_t streams_max;  /* open at once */
    uint32_t headers_max;  /* bytes of a request's names and values, and 32 for each pair */
    uint32_t stream_window; /* bytes that a peer may send ahead of a stream */
    int32_t window;        /* and of all of a connection */
    int is_client;         /* it sends requests; else it answers them */
};

/* DATA that waits to be written to one stream, then its trailers. */
struct h2_outbox {
    const uint8_t *bytes;
    size_t size;
    size_t at;             /* written up to this byte */
    const uint8_t *trailer; /* pairs, see h2_answer; the stream ends after them */
    size_t trailer_size;
    int ends;
    int waits; /* the library waits for h2_more */
};

struct h2_session {
    const struct h2_library *library;
    void *session;
    uint8_t *room;
    size_t room_size;
    size_t room_used;
    size_t unsent;      /* bytes in outboxes; h2_send subtracts the bytes that it wrote */
    uint32_t headers_max;
    int paused;         /* the handling of a frame is not complete */
    size_t block_size;  /* of the current headers, as limits count them */
    /* Positions of frames, including frames that the library ignores. */
    uint8_t head[9];
    uint32_t head_used;
    uint32_t skip;      /* bytes until the next frame; at first the client's preface */
    uint32_t continuations;
};

/* Begin a session: 0, or an error code of the library. The room has at least H2_ROOM_LEAST
 * bytes. */
int h2_open(struct h2_session *session, const struct h2_library *library,
            const struct h2_limits *limits);
/* Free the library's session; no function may be called after it. */
void h2_close(struct h2_session *session);

/* Take bytes of the peer, until all are taken or the room is half full: returns the number taken,
 * or a negative code if the connection cannot go on. Events lie in room[:room_used]. If all bytes
 * are taken and the session is paused, the caller calls again without bytes: the last frame is not
 * completely handled yet, and the peer may wait for the effect. */
ssize_t h2_receive(struct h2_session *session, const uint8_t *bytes, size_t size);

/* Bytes to write: as many whole frames as fit into `out` (a little more than H2_SLICE, and more
 * than a frame), 0: nothing to write now; negative: the connection cannot go on. */
ssize_t h2_send(struct h2_session *session, uint8_t *out, size_t size);

/* Answer a stream. Pairs: | name size 1 | value size 2 | name | value | ..., H2_PAIRS_MAX at most.
 * `outbox` NULL: the headers are the whole answer. 0, or an error code. */
int h2_answer(struct h2_session *session, int32_t stream_id, const uint8_t *pairs, size_t size,
              struct h2_outbox *outbox);

/* Begin a request of a client, its body in the outbox; returns the stream's id, or a negative code.
 * The events of the answer are the same as of a request at a server; with trailers BLOCK
 * comes twice. */
int32_t h2_request(struct h2_session *session, const uint8_t *pairs, size_t size,
                   struct h2_outbox *outbox);

/* Let the library continue with the outbox, which has more bytes or whose end is known: 0, or an
 * error code. */
int h2_more(struct h2_session *session, int32_t stream_id, struct h2_outbox *outbox);

#endif
