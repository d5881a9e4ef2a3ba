#ifndef TURBOPUMP_WALK_H
#define TURBOPUMP_WALK_H

/* The walk of recovery over a log file: it decides which records to trust.
 *
 * In addition to the checks of rec_parse (layout, body CRC) a record is taken only if
 *   - its stored log offset is its position: an older use of a file leaves well-formed records with
 *     other log offsets;
 *   - with WALK_SECTORS, no part of its topic or properties that fills its share of a sector (512
 *     bytes) is all zeros: a power cut may leave a page with some of its sectors written, the
 *     body's CRC does not cover the texts after it, and a preallocated file has zeros there. Valid
 *     texts have no zeros: a topic cannot, and properties are names and values with separators.
 * Bytes of another log arrive in pieces that end anywhere. A page may have been written with the
 * beginning of a piece only, so WALK_CUT_BYTES accepts no sector whose share of a text ends in
 * zero.
 *
 * RocketMQ checks neither. */

#include <stddef.h>
#include <stdint.h>

#include "record.h"

enum { WALK_SECTOR = 512 };

/* The damage that a record may have. */
enum walk_torn { WALK_WHOLE = 0, WALK_SECTORS = 1, WALK_CUT_BYTES = 2 };

enum walk_doubt { WALK_TRUSTED = 0, WALK_ELSEWHERE = 1, WALK_TORN = 2 };

struct walk_end {
    size_t at;                 /* position after the last record taken */
    size_t count;              /* records taken */
    int64_t store_timestamp_ms; /* of the last record taken, epoch ms, 0 without records */
    enum rec_reason reason;    /* why the bytes at `at` are no record */
    enum walk_doubt doubt;     /* or why the record at `at` is not taken */
};

/* Walk buf[at:end), whose first byte has the log offset log_base. REC_OK: the end was reached.
 * REC_BLANK, REC_SHORT: as rec_scan. REC_BAD: see reason or doubt. */
enum rec_status walk_records(const uint8_t *buf, size_t at, size_t end, int64_t log_base,
                             enum walk_torn torn, struct walk_end *stop);

/* Walk the records of buf[*at:end) by their lengths and magics alone: *at moves after the last
 * record that lies whole in the range. REC_SHORT: the range ends inside the next one. */
enum rec_status walk_lengths(const uint8_t *buf, size_t *at, size_t end);

/* Consecutive bytes that lie in several places. */
struct walk_piece {
    const uint8_t *at;
    size_t size;
};

/* Measure the records of bytes that are about to be written at the start of a record, where `room`
 * bytes of a file of file_size are left; the rest follows in the next file. *whole is the end of
 * the whole records, by lengths and magics alone. REC_OK: the end was reached. REC_SHORT: the bytes
 * end inside a record, or inside the filler of a file. REC_BAD: the bytes at the end of *whole
 * begin no record. */
enum rec_status walk_pieces(const struct walk_piece *pieces, size_t count, size_t room,
                            size_t file_size, size_t *whole);

/* The part of a queue that a reader requested. */
struct walk_part {
    const uint8_t *topic;
    size_t topic_size;
    int64_t queue_id;
    int64_t first, end; /* queue offsets [first, end) */
};

/* Whether buf[at:end) consists of whole records of that part in ascending order: a queue unit has
 * no checksum, and a unit damaged by a disk may point to another queue's message. The part's
 * `first` then moves after the last of them. Runs for every answer to a reader. */
int walk_is_part(const uint8_t *buf, size_t at, size_t end, int64_t log_base,
                 struct walk_part *part);

#endif
