/* The commit log record of RocketMQ: encode, decode, scan (CommitLog, MessageExtEncoder).
 *
 *     0        4        8        12       16       20                28                36
 *     +--------+--------+--------+--------+--------+-----------------+-----------------+--------+
 *     | size   | magic  | bodyCRC| queueId| flag   | queueOffset     | physicalOffset  | sysFlag|
 *     +--------+--------+--------+--------+--------+-----------------+-----------------+--------+
 *     40                48                48+b              56+b              56+b+s
 *     +-----------------+-----------------+-----------------+-----------------+--------+
 *     | bornTimestamp   | bornHost (b)    | storeTimestamp  | storeHost (s)   | recons.|
 *     +-----------------+-----------------+-----------------+-----------------+--------+
 *     60+b+s            68+b+s   72+b+s
 *     +-----------------+--------+------ - - ----+-------+----- - - ---+-------+------ - - ------+
 *     | preparedOffset  | bodyLen| body          | tLen  | topic       | pLen  | properties      |
 *     +-----------------+--------+------ - - ----+-------+----- - - ---+-------+------ - - ------+
 *                                                 1 (V1) or 2 (V2)       2
 *
 * b and s are 8 (IPv4) or 20 (IPv6): address and int32 port; sysFlag has the kind. All numbers are
 * big endian and signed as Java's. The size counts the whole record, itself included.
 *
 * bodyCRC is CRC-32 & 0x7FFFFFFF of the stored body, 0 if the body is empty. With
 * enabledAppendPropCRC the last 20 bytes of the properties are `__CRC32#` 0x01, ten digits (least
 * significant first) and 0x02: CRC-32 & 0x7FFFFFFF of the record without these 20 bytes.
 *
 * A file that has no room for the next record ends with a filler of 8 bytes, int32 bytes left and
 * int32 REC_BLANK_MAGIC; it is written as soon as record + 8 does not fit, so every full file has
 * one and no record ends at the end of a file.
 *
 * Checks: rec_parse checks the magic, every length against the range before it reads, and that the
 * computed length equals the size field. The body CRC (of a body not empty) and the property CRC
 * are checked on request. physicalOffset is not compared with the position here: RocketMQ does not,
 * and a caller that needs this has both. Encoding refuses fields that would make a record that
 * parsing refuses; the caller checks limits of policy (maxMessageSize).
 */
#ifndef TURBOPUMP_RECORD_H
#define TURBOPUMP_RECORD_H

#include <stddef.h>
#include <stdint.h>

enum {
    REC_SIZE_AT = 0,
    REC_MAGIC_AT = REC_SIZE_AT + 4,
    REC_BODY_CRC_AT = REC_MAGIC_AT + 4,
    REC_QUEUE_ID_AT = REC_BODY_CRC_AT + 4,
    REC_FLAG_AT = REC_QUEUE_ID_AT + 4,
    REC_QUEUE_OFFSET_AT = REC_FLAG_AT + 4,
    REC_PHYSICAL_OFFSET_AT = REC_QUEUE_OFFSET_AT + 8,
    REC_SYS_FLAG_AT = REC_PHYSICAL_OFFSET_AT + 8,
    REC_BORN_TIMESTAMP_AT = REC_SYS_FLAG_AT + 4,
    REC_BORN_HOST_AT = REC_BORN_TIMESTAMP_AT + 8,
    REC_HOST_V4 = 4 + 4,
    REC_HOST_V6 = 16 + 4,
    /* Then store time, store host, reconsume times, prepared offset, body length. */
    REC_FIXED = REC_BORN_HOST_AT + 8 + 4 + 8 + 4, /* without the hosts */
    REC_MIN = REC_FIXED + 2 * REC_HOST_V4 + 1 + 2,
    REC_FILLER = 8,
    REC_PROPERTY_CRC = 20,
    REC_MAX_PROPERTIES = INT16_MAX,
    REC_MAX_TOPIC_V1 = INT8_MAX,
    REC_MAX_TOPIC_V2 = INT16_MAX,
    REC_BATCH_FIXED = 4 + 4 + 4 + 4 + 4, /* size, magic, CRC, flag, body length of an element */
    REC_BATCH_MIN = REC_BATCH_FIXED + 2  /* and the length of its properties */
};
_Static_assert(REC_QUEUE_OFFSET_AT == 20, "clients read the queue offset here");
_Static_assert(REC_PHYSICAL_OFFSET_AT == 28, "clients read the log offset here");
_Static_assert(REC_SYS_FLAG_AT == 36 && REC_BORN_HOST_AT == 48, "store.md section 3");
_Static_assert(REC_MIN == 91, "an empty V1 record with IPv4 hosts");

#define REC_MAGIC_V1 ((int32_t)0xDAA320A7)
#define REC_MAGIC_V2 ((int32_t)0xDAA320AB)
#define REC_BLANK_MAGIC ((int32_t)0xCBD43194)

#define REC_SYS_BORN_V6 0x10
#define REC_SYS_STORE_V6 0x20
#define REC_SYS_TRANSACTION 0x0C
#define REC_SYS_PREPARED 0x04
#define REC_SYS_ROLLBACK 0x0C

enum rec_status { REC_OK = 0, REC_BLANK = 1, REC_BAD = 2, REC_SHORT = 3, REC_NO_ROOM = 4 };

/* Reasons why there is no valid record, or why the fields to encode or a batch body were
 * refused. */
enum rec_reason {
    REC_FINE = 0,
    REC_IS_FILLER,
    REC_IS_CUT,
    REC_IS_EMPTY,
    REC_BAD_MAGIC,
    REC_BAD_SIZE,
    REC_BAD_BODY_SIZE,
    REC_BAD_TOPIC_SIZE,
    REC_BAD_PROPERTIES_SIZE,
    REC_BAD_TOTAL,
    REC_BAD_BODY_CRC,
    REC_BAD_PROPERTY_CRC,
    REC_BAD_HOST,
    REC_BAD_VERSION,
    REC_BAD_BATCH
};

/* One sentence without a full stop; never NULL. */
const char *rec_reason_text(enum rec_reason reason);

/* One parsed record. The *_at are positions in the buffer that was given, not in the record. */
struct rec_row {
    int64_t position;
    int64_t size;
    int64_t magic;
    int64_t body_crc;
    int64_t queue_id;
    int64_t flag;
    int64_t queue_offset;
    int64_t physical_offset;
    int64_t sys_flag;
    int64_t born_timestamp_ms;
    int64_t born_host_at;
    int64_t born_host_size;
    int64_t store_timestamp_ms;
    int64_t store_host_at;
    int64_t store_host_size;
    int64_t reconsume_times;
    int64_t prepared_transaction_offset;
    int64_t body_at;
    int64_t body_size;
    int64_t topic_at;
    int64_t topic_size;
    int64_t properties_at;
    int64_t properties_size;
    int64_t crc_ok; /* of the body; 1 if the body is empty or the CRC was not requested */
};
enum { REC_ROW_WIDTH = 24 };
_Static_assert(sizeof(struct rec_row) == REC_ROW_WIDTH * sizeof(int64_t), "rows are int64 columns");

/* Checks beyond the layout. */
enum rec_check { REC_CHECK_NOTHING = 0, REC_CHECK_BODY = 1, REC_CHECK_PROPERTY = 2 };

/* Parse the record at buf[at:end). REC_OK fills *row. REC_BLANK: a filler. REC_SHORT: the range
 * ends inside the record. REC_BAD: no record. *reason explains any result but REC_OK; after
 * REC_BAD_BODY_CRC and REC_BAD_PROPERTY_CRC the row is filled all the same. */
enum rec_status rec_parse(const uint8_t *buf, size_t at, size_t end, int checks,
                          struct rec_row *row, enum rec_reason *reason);

/* Parse consecutive records of buf[*at:end) into rows[0:max_rows), or only count them if rows is
 * NULL. Moves *at after the last valid record. REC_OK: end reached, or max_rows parsed. */
enum rec_status rec_scan(const uint8_t *buf, size_t *at, size_t end, int checks,
                         struct rec_row *rows, size_t max_rows, size_t *count,
                         enum rec_reason *reason);

/* A record to encode. */
struct rec_fields {
    const uint8_t *topic;
    size_t topic_size;
    const uint8_t *body;
    size_t body_size;
    const uint8_t *properties;
    size_t properties_size;
    const uint8_t *born_host;
    size_t born_host_size;
    const uint8_t *store_host;
    size_t store_host_size;
    int64_t log_offset;
    int64_t queue_offset;
    int64_t born_timestamp_ms;
    int64_t store_timestamp_ms;
    int64_t prepared_transaction_offset;
    int32_t magic; /* REC_MAGIC_V1 or REC_MAGIC_V2 */
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag; /* its IPv6 bits are set from the host sizes */
    int32_t reconsume_times;
    int property_crc; /* append the CRC property */
};

/* Read the element of a batch body at *at into body, flag and properties of *fields, without a
 * copy, and move *at after it; 0 if it is malformed. */
int rec_next_element(const uint8_t *batch, size_t len, size_t *at, struct rec_fields *fields);

/* Compute the bytes of the record that these fields make: REC_OK, or REC_BAD for fields that no
 * record can hold. */
enum rec_status rec_measure(const struct rec_fields *fields, size_t *size, enum rec_reason *reason);

/* Encode at buf[at:limit), and set *size to the record's bytes; the record and a filler must fit,
 * else REC_NO_ROOM and no byte is written. REC_BAD: the fields are refused and no byte is
 * written. */
enum rec_status rec_encode(uint8_t *buf, size_t at, size_t limit, const struct rec_fields *fields,
                           size_t *size, enum rec_reason *reason);

/* A batch body is elements of: int32 size, int32 magic, int32 CRC (all three ignored, as RocketMQ
 * ignores them), int32 flag, int32 body length, body, int16 properties length, properties.
 *
 * Encode the elements as consecutive records: all of them or none. `common` provides all fields but
 * body, properties and flag; queue offsets and log offsets count up from its own. *count is the
 * number of records. REC_BAD for a malformed or empty batch. */
enum rec_status rec_encode_batch(uint8_t *buf, size_t at, size_t limit, const uint8_t *batch,
                                 size_t len, const struct rec_fields *common, size_t *count,
                                 enum rec_reason *reason);

/* Greatest number of elements of a batch, as many as fit into 4 MiB with 128 bytes each. Making
 * their records, units and ids without a pause takes some 30 ms. */
#define REC_BATCH_COUNT_MAX 32768

/* Count the elements of a batch body and sum their bodies and properties; REC_BAD as for encoding,
 * also for too many elements. */
enum rec_status rec_count_batch(const uint8_t *batch, size_t len, size_t *count, size_t *payload,
                                enum rec_reason *reason);

/* Write the filler; REC_NO_ROOM if fewer than REC_FILLER bytes are left. */
enum rec_status rec_encode_filler(uint8_t *buf, size_t at, size_t limit);

/* The properties that dispatch reads; a NULL value is absent. */
struct rec_text {
    const uint8_t *at;
    size_t size;
};
struct rec_properties {
    struct rec_text keys;     /* KEYS */
    struct rec_text tags;     /* TAGS */
    struct rec_text uniq_key; /* UNIQ_KEY */
    struct rec_text delay;    /* DELAY */
};

/* Find these in a properties text (MessageDecoder.string2messageProperties): split at 0x02; a piece
 * counts if its first 0x01 has at least one byte on each side; later duplicates win. */
void rec_find_properties(const uint8_t *text, size_t size, struct rec_properties *found);

#endif
