/* The properties of a send: `name 0x01 value 0x02 ...`, and whether they make it more than a plain
 * message.
 *
 * The reference is properties.decode_properties and encode_properties, and the use of properties
 * in handlers/send.py and traffic/put_message.py. A text is canonical if decoding and encoding it
 * again gives its bytes, except for a last 0x02 that old clients leave out. Python handles texts
 * that are not canonical: with repeated names, a pair without a name or a value, too many pairs,
 * or more bytes than a record holds. */
#ifndef TURBOPUMP_TRAFFIC_PROPERTIES_H
#define TURBOPUMP_TRAFFIC_PROPERTIES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct trf_text {
    const uint8_t *at;
    uint32_t size;
};

/* A bit for each name found. */
enum {
    TRF_DELAY = 1 << 0,
    TRF_DELAY_SEC = 1 << 1, /* TIMER_DELAY_SEC, and so the next two */
    TRF_TRAN_MSG = 1 << 2,
    TRF_INNER_NUM = 1 << 3,
    TRF_POP_CK = 1 << 4,
    TRF_OWN = 1 << 5, /* MSG_REGION, TRACE_ON or CLUSTER: the broker would replace it */
    TRF_UNIQ_KEY = 1 << 6,
    TRF_WAIT = 1 << 7,
    TRF_KEYS = 1 << 8,
    TRF_TAGS = 1 << 9,
    TRF_LIGHT = 1 << 10, /* INNER_MULTI_DISPATCH: more queues than its own */
    TRF_DELAY_MS = 1 << 11,
    TRF_DELIVER_MS = 1 << 12,
    TRF_TIMER = TRF_DELAY_SEC | TRF_DELAY_MS | TRF_DELIVER_MS,
    /* Properties that a broker adds to a message that it keeps for a time or a transaction. */
    TRF_REAL_TOPIC = 1 << 13,
    TRF_REAL_QID = 1 << 14,
    TRF_KEPT_ID = 1 << 15, /* TIMER_OUT_MS or __transactionId__ */
    TRF_RARE = 1 << 16,    /* properties that make a kept message unusual */
    TRF_KEPT = TRF_REAL_TOPIC | TRF_REAL_QID | TRF_KEPT_ID | TRF_RARE,
    TRF_PGROUP = 1 << 17,
    /* With none of these the message is stored unchanged, with the broker's own properties at the
     * end. */
    TRF_SPECIAL = TRF_DELAY | TRF_TIMER | TRF_TRAN_MSG | TRF_INNER_NUM | TRF_POP_CK | TRF_OWN |
                  TRF_LIGHT
};

struct trf_properties {
    uint32_t names;
    uint8_t canonical;
    uint8_t unended; /* the last 0x02 is missing */
    uint8_t waits;   /* WAIT is missing or true: the answer waits for durability */
    uint8_t is_half; /* TRAN_MSG is true */
    struct trf_text unique_key, keys, tags; /* at == NULL: missing */
    /* Valid only if `names` has their bits. */
    struct trf_text timer; /* the value that counts, of all those present */
    struct trf_text real_topic, real_queue, producer_group;
};

/* The bit of a name, 0 if no handler looks for it. */
uint32_t trf_find_property(const uint8_t *name, size_t size);

/* Read the properties of a trf_request; text.at may be NULL with size 0. Returns whether the
 * message is plain as far as its properties decide: canonical, and without a name of TRF_SPECIAL.
 * Then the handler stores: the text, 0x02 if unended, MSG_REGION, TRACE_ON, CLUSTER, and UNIQ_KEY
 * if it is missing, each `name 0x01 value 0x02`. The properties of a batch are not stored. If it
 * returns 0 and `canonical` is not set, only `names` is valid, up to the end of reading. */
int trf_scan_properties(struct trf_text text, struct trf_properties *out);

#define TRF_IS(name, literal) (memcmp((name), (literal), sizeof(literal) - 1) == 0)

/* Java's Boolean.parseBoolean: any text but "true" (in any case) is false. */
static inline int trf_is_true(struct trf_text text)
{
    static const char wanted[] = "true";
    int same = text.size == sizeof wanted - 1;
    for (size_t i = 0; same && i < sizeof wanted - 1; i++) {
        same = (text.at[i] | 0x20) == wanted[i];
    }
    return same;
}

#endif
