/* The plain frames of a master's stream, at the replica that copies its log (net/ha/frames.py).
 *
 * Plain is a whole frame that continues the log in the epoch of its last byte, and ends before the
 * next epoch begins; a heartbeat is one, too. The caller handles all other frames: handshakes, new
 * epochs, the first bytes of a log, frames that are cut by the end of a read, malformed ones.
 *
 *     default HA   0 log offset (8)   8 body size (4)   12 body
 *     AutoSwitch   0 state 2 (4)   4 body size (4)   8 log offset (8)   16 epoch (4)
 *                  20 epoch's start (8)   28 confirmOffset (8)   36 body
 */
#ifndef TURBOPUMP_HA_COPY_H
#define TURBOPUMP_HA_COPY_H

#include <stddef.h>
#include <stdint.h>

#include "tail.h"
#include "walk.h"

enum ha_protocol { HA_DEFAULT = 0, HA_SWITCHING = 1 };

enum {
    HA_BODY_MAX = (4 << 20) - 36, /* of a frame */
    HA_BODIES = 128,              /* that one call takes */
    HA_WRITE_MAX = 16 << 10       /* larger writes are cheaper by pwritev */
};

/* The state of a connection, and the bodies that the last ha_take took. */
struct ha_copy {
    enum ha_protocol protocol;
    int32_t epoch;       /* of the log's last byte; AutoSwitch, as the next two */
    int64_t epoch_start;
    int64_t stop;        /* log offset at which the next epoch begins; INT64_MAX: unknown */
    int64_t log_end;     /* with the bodies taken */
    int64_t confirm;     /* confirmOffset, at most log_end */
    int64_t first;       /* log offset of the first body */
    size_t size;         /* of all bodies */
    size_t count;
    struct walk_piece bodies[HA_BODIES]; /* in the bytes that were read */
};

/* Take the plain frames at the beginning of in[0:size), at most HA_BODIES with a body. Returns the
 * bytes of these frames; the bodies stay where they are. */
size_t ha_take(struct ha_copy *copy, const uint8_t *in, size_t size);

/* Append the bodies to the log. 0: nothing was written, because the bodies are not whole records
 * that continue the open file and leave room in it, or are at least HA_WRITE_MAX bytes. The first
 * 8 bytes are stored last: a process that is killed before leaves zeros there, which begin no
 * record. */
int ha_write(const struct ha_copy *copy, struct log_tail *tail);

#endif
