/* Frames of the remoting protocol in a stream of bytes (RocketMQ: NettyDecoder).
 *
 *     0        4    5            8
 *     +--------+----+------------+------ - - ------+------ - - ------+
 *     | length | cod| headerLen  | header          | body            |
 *     +--------+----+------------+------ - - ------+------ - - ------+
 *
 * `length` counts the bytes after it. Only the length is checked here; the codec reads header and
 * body. Positions and sizes include the 4 length bytes. */
#ifndef TURBOPUMP_FRAME_H
#define TURBOPUMP_FRAME_H

#include <stddef.h>
#include <stdint.h>

enum {
    FRAME_LENGTH_SIZE = 4,
    FRAME_MIN = FRAME_LENGTH_SIZE + 4 /* every frame has codec and header length */
};

enum frame_status { FRAME_OK = 0, FRAME_BAD = 1 };

struct frame_span {
    size_t position;
    size_t size;
};

struct frame_split {
    size_t count;    /* frames written to the caller's array */
    size_t consumed; /* bytes of whole frames */
    size_t needed;   /* size of the incomplete frame after them, 0 while unknown */
};

/* Find the whole frames of buf[at:len). FRAME_OK with count == max_count: there may be more, call
 * again from `consumed`. FRAME_BAD: the length at `consumed` is negative, below 4, or makes a frame
 * larger than max_frame. */
enum frame_status frame_split(const uint8_t *buf, size_t at, size_t len, size_t max_frame,
                              struct frame_span *frames, size_t max_count,
                              struct frame_split *split);

#endif
