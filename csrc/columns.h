/* Records of a log as columns, in the memory layout of Apache Arrow.
 *
 * The unit of work is a block of COL_BLOCK records: they are parsed, the filters pick some, and
 * then each requested column is filled from those in a loop of its own. A column whose
 * memory is NULL costs nothing.
 *
 *     int32, int64     values[row]; times are microseconds since 1970, clamped to years 1 to 9999
 *     bits             bit row % 8 of byte row / 8
 *     text n           data[offsets[n]:offsets[n + 1]), offsets[0] is 0; UTF-8 (see utf8.h)
 *     map of row n     entries [offsets[n], offsets[n + 1]) of names and values, each a text
 *
 * The caller allocates the memory, and sets the rooms. Fixed columns have room for `room`
 * rows, offsets for one more, bitmaps for (room + 7) / 8 bytes that are 0 at first, and data for
 * COL_SLACK bytes beyond its room, which may be written to.
 *
 * Why nothing is written beyond: a record is only taken if the worst that its lengths can become
 * fits into every room, and its lengths are read once. The bytes may change meanwhile (a
 * live broker cuts its log): then values are garbage, but nothing is written elsewhere.
 *
 * Properties are split as MessageDecoder.string2messageProperties does: at 0x02; a piece counts if
 * its first 0x01 has at least one byte on each side; a name's last value wins, at the place of its
 * first.
 */
#ifndef TURBOPUMP_COLUMNS_H
#define TURBOPUMP_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "record.h"
#include "utf8.h"

enum {
    COL_BLOCK = 128,   /* 24 KB of rows, and the records themselves stay in the second cache */
    COL_SLACK = 64,    /* short texts are copied as whole vectors */
    COL_HOST_MAX = 52, /* "[", 39 of an address, "]:", 10 digits */
    COL_PAIR_MIN = 4,  /* of a property in a text: name, 0x01, value, 0x02 (the last may lack it) */
    COL_PAIRS_MAX = (REC_MAX_PROPERTIES + 1) / COL_PAIR_MIN,
    COL_TEXT_MAX = UTF8_GROWTH * REC_MAX_PROPERTIES, /* of a record's properties, or topic */
    COL_NAME_SLOTS = 16384 /* more than twice COL_PAIRS_MAX */
};
_Static_assert(COL_NAME_SLOTS / 2 >= COL_PAIRS_MAX, "a hash table that is at most half full");

enum col_int32 {
    COL_QUEUE_ID,
    COL_SIZE,
    COL_FLAG,
    COL_SYS_FLAG,
    COL_RECONSUME_TIMES,
    COL_BODY_CRC,
    COL_BODY_SIZE,
    COL_INT32S
};
enum col_int64 { COL_QUEUE_OFFSET, COL_LOG_OFFSET, COL_PREPARED_TRANSACTION_OFFSET, COL_INT64S };
enum col_time { COL_BORN_TIME, COL_STORE_TIME, COL_TIMES };
enum col_host { COL_BORN_HOST, COL_STORE_HOST, COL_HOSTS };
enum col_named { COL_KEYS, COL_TAGS, COL_UNIQUE_KEY, COL_NAMED };

struct col_texts {
    int32_t *offsets; /* NULL: not requested */
    uint8_t *data;
    size_t room; /* at most INT32_MAX */
};

/* The destination of the records: rows [0, rows) are filled. */
struct col_batch {
    size_t room, rows; /* of rows */
    int32_t *int32s[COL_INT32S];
    int64_t *int64s[COL_INT64S];
    int64_t *times[COL_TIMES];
    struct col_texts hosts[COL_HOSTS];
    struct col_texts topic;
    struct col_texts body;
    struct col_texts named[COL_NAMED];
    uint8_t *named_valid[COL_NAMED];
    size_t named_nulls[COL_NAMED];
    int32_t *map; /* NULL: not requested */
    struct col_texts names, values;
    size_t entries_room, entries; /* of names and values: offsets have one more */
    int32_t *epoch;
    uint8_t *epoch_valid;
    size_t epoch_nulls;
    uint8_t *confirmed;
};

struct col_topic {
    const uint8_t *text;
    size_t size;
};

/* The filters on records. Limits are inclusive, except the end of the log offsets. */
struct col_wish {
    const struct col_topic *topics; /* ascending by size, then bytes; NULL: all */
    size_t topic_count;
    const int32_t *queue_ids; /* ascending; NULL: all */
    size_t queue_id_count;
    int64_t min_store_ms, max_store_ms;
    int64_t min_log_offset, end_log_offset;
    int check_body;
    int64_t confirmed_end;
    const int64_t *epoch_starts; /* ascending */
    const int32_t *epochs;
    size_t epoch_count;
};

struct col_pair {
    uint32_t name_at, name_size, value_at, value_size;
};

/* Memory for the work of a decode: uninitialised, used by one thread at a time. */
struct col_scratch {
    struct rec_row rows[COL_BLOCK];
    struct rec_row *picked[COL_BLOCK];
    struct col_pair pairs[COL_PAIRS_MAX];
    uint16_t slots[COL_NAME_SLOTS];
    uint8_t text[COL_TEXT_MAX];
};

struct col_end {
    size_t at;   /* position of the first byte not consumed */
    size_t seen; /* records examined */
    size_t skip; /* REC_BAD for its body alone: the record's size, else 0 */
    enum rec_reason reason;
    int elsewhere; /* REC_BAD: the record has another log offset stored */
};

/* Decode the records of buf[at:end), whose first byte has the log offset log_base, into the rows
 * after the batch's. REC_OK: the end (or end_log_offset) was reached, or the batch is full.
 * REC_NO_ROOM: not even one record fits into an empty batch. REC_BLANK, REC_SHORT: as rec_scan.
 * REC_BAD: no record lies at stop->at, its body fails its CRC, or its stored log offset differs. */
enum rec_status col_decode(const uint8_t *buf, size_t at, size_t end, int64_t log_base,
                           const struct col_wish *wish, struct col_batch *batch,
                           struct col_scratch *scratch, struct col_end *stop);

/* Write the text of a packed host, at most COL_HOST_MAX bytes; returns its size. */
size_t col_host_text(uint8_t *out, const uint8_t *host, size_t size);

#endif
