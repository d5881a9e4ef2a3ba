#ifndef TURBOPUMP_WALK_H
#define TURBOPUMP_WALK_H

/* The walk of recovery over a log file: which records to trust.
 *
 * Beyond what rec_parse checks (layout, body CRC) a record is taken only if
 *   - it says that it lies where it lies: bytes of an older life of a file are well-formed records
 *     at another log offset;
 *   - with WALK_SECTORS, no part of its topic or properties that fills its share of a sector (512
 *     bytes) is all zeros: a power cut may leave a page with some of its sectors written, the
 *     body's CRC says nothing of the texts behind it, and a preallocated file shows zeros there.
 *     No text has them: a topic cannot, and properties are names and values with their separators.
 * Bytes of another log arrive in pieces that end anywhere. A page may have been written with the
 * beginning of a piece only, so WALK_CUT_BYTES takes no sector whose share of a text ends in zero.
 *
 * RocketMQ checks neither. Called by engine/log/scan.py through pyx/walk.pyx. */

#include <stddef.h>
#include <stdint.h>

#include "record.h"

enum { WALK_SECTOR = 512 };

/* What may be missing of a record. */
enum walk_torn { WALK_WHOLE = 0, WALK_SECTORS = 1, WALK_CUT_BYTES = 2 };

enum walk_doubt { WALK_TRUSTED = 0, WALK_ELSEWHERE = 1, WALK_TORN = 2 };

struct walk_end {
    size_t at;                 /* behind the last record taken */
    size_t count;              /* records taken */
    int64_t store_timestamp_ms; /* of the last one, 0 if none */
    enum rec_reason reason;    /* why the bytes at `at` are no record */
    enum walk_doubt doubt;     /* or why the record at `at` is not taken */
};

/* Walk buf[at:end), whose first byte has the log offset log_base. REC_OK: the end was reached.
 * REC_BLANK, REC_SHORT: as rec_scan. REC_BAD: reason or doubt says why. */
enum rec_status walk_records(const uint8_t *buf, size_t at, size_t end, int64_t log_base,
                             enum walk_torn torn, struct walk_end *stop);

/* Over the records of buf[*at:end) by their lengths and magics alone: *at is moved behind the last
 * that lies whole in the range. REC_SHORT: the range ends inside the next one. */
enum rec_status walk_lengths(const uint8_t *buf, size_t *at, size_t end);

/* Bytes in several places, one behind the other. */
struct walk_piece {
    const uint8_t *at;
    size_t size;
};

/* Over the records of bytes that are about to be written where a record begins and `room` bytes are
 * left of a file of file_size, the next of which follow: *whole is up to where they are whole, by
 * lengths and magics alone. REC_OK: to the end. REC_SHORT: a record, or the filler of a file, has
 * begun. REC_BAD: no record begins there. Called by engine/replicated.py through pyx/walk.pyx. */
enum rec_status walk_pieces(const struct walk_piece *pieces, size_t count, size_t room,
                            size_t file_size, size_t *whole);

/* The part of a queue that a reader requested. */
struct walk_part {
    const uint8_t *topic;
    size_t topic_size;
    int64_t queue_id;
    int64_t first, end; /* queue offsets [first, end) */
};

/* Whether buf[at:end) is whole records of that part in ascending order, and nothing else: a queue
 * unit has no checksum, and one that a disk damaged may point to another queue's message. The
 * part then begins behind the last of them. Called for every answer to a reader. */
int walk_is_part(const uint8_t *buf, size_t at, size_t end, int64_t log_base,
                 struct walk_part *part);

#endif
