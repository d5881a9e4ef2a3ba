/* The load generator's work on frames: patch requests, read the few facts it needs of an answer.
 *
 * A request is a template, a whole frame that net/wire encoded, without its body. Only these parts
 * change from request to request, each in place and of fixed width, except the queue offset:
 *
 *     opaque      ten digits in a JSON header, an int32 in a ROCKETMQ one
 *     born        13 digits, epoch milliseconds of the send
 *     keys        10 digits, its seconds (RocketMQ's benchmark uses them as key)
 *     unique      12 hex digits at the end of the UNIQ_KEY
 *     offset      decimal digits of a pull's queue offset; the lengths around them follow
 *
 * A position of 0 means that the template lacks the part (the first bytes of a frame are its
 * length). The body, the same for all templates, is copied after it; a batch has UNIQ_KEYs in its
 * body.
 *
 * Or the bodies come in turn from a corpus, with different sizes: then the template's length does
 * not include a body, and grows. A batch of them is made of an element without a body:
 *
 *     total size 4 | magic 4 | crc 4 | flag 4 | body size 4 | (body) | properties size 2, they
 *
 * Answers are read without a JSON parser: `"opaque":` and `"code":` cannot stand inside a JSON
 * text, where each quote has a backslash, and no extField has these names. The position of the
 * previous answer's is tried first. */
#ifndef TURBOPUMP_LOAD_FRAME_H
#define TURBOPUMP_LOAD_FRAME_H

#include <stddef.h>
#include <stdint.h>

enum {
    LOAD_OPAQUE_BASE = 1000000000, /* ten digits, so that all opaques have the same length */
    LOAD_OPAQUE_DIGITS = 10,
    LOAD_BORN_DIGITS = 13,
    LOAD_KEYS_DIGITS = 10,
    LOAD_UNIQUE_DIGITS = 12,
    LOAD_OFFSET_DIGITS_MAX = 19,
    LOAD_HEAD = 8, /* length, codec and header length */
    LOAD_ELEMENT_HEAD = 20 /* of a batch's message, up to its body */
};

enum load_codec { LOAD_JSON = 0, LOAD_ROCKETMQ = 1 };

struct load_template {
    uint32_t at; /* of the frame in the texts */
    uint32_t size;
    uint32_t opaque_at; /* these are positions in the frame */
    uint32_t born_at;
    uint32_t keys_at;
    uint32_t unique_at;
    uint32_t offset_at; /* the template has the digit "0" here */
    uint32_t codec;
};

struct load_body {
    const uint8_t *bytes;
    size_t size;
    size_t unique_at; /* in the first element of a batch, 0: without UNIQ_KEYs */
    size_t stride;    /* from element to element */
    size_t count;
};

/* Bodies to send in turn; body n is bytes[starts[n], ends[n]). */
struct load_corpus {
    const uint8_t *bytes;
    const int64_t *starts;
    const int64_t *ends;
    uint64_t count; /* 0: no corpus */
    uint64_t next;
    const uint8_t *element; /* of a batch, without its body */
    size_t element_size;    /* 0: a request is one message */
    size_t unique_at;       /* in the element, 0: without; after the body */
    uint32_t per_send;      /* messages of a request */
};

/* Times to deliver at, 13 digits in each template: a first time, and how many ms follow it in turn
 * with the serial of the UNIQ_KEY. */
struct load_due {
    uint32_t at; /* 0: the templates have no such time */
    int64_t first_ms;
    int64_t spread_ms;
};

/* Write the time to deliver of the message with this serial. */
void load_put_due(uint8_t *frame, const struct load_due *due, uint64_t serial);

/* The time of a request, as texts for the frame. */
struct load_stamp {
    int64_t ms;
    uint8_t digits[LOAD_BORN_DIGITS];
};
/* Set the time of a request, and its digits. */
void load_stamp_set(struct load_stamp *stamp, int64_t epoch_ms);

/* Write the frame at `out` and return its size. The room is template size + body size, plus
 * LOAD_OFFSET_DIGITS_MAX for a pull. *serial is the end of the next UNIQ_KEY. */
size_t load_put_send(uint8_t *out, const uint8_t *texts, const struct load_template *template,
                     const struct load_body *body, uint32_t slot, const struct load_stamp *stamp,
                     uint64_t *serial);
/* Write the frame of a pull that begins at queue_offset; returns its size. */
size_t load_put_pull(uint8_t *out, const uint8_t *texts, const struct load_template *template,
                     uint32_t slot, int64_t queue_offset);

/* Return the size of the next request's body, and write this request: the room is template size +
 * body size. The corpus continues after the bodies sent, and begins again at its end. */
size_t load_replay_size(const struct load_corpus *corpus);
size_t load_put_replay(uint8_t *out, const uint8_t *texts, const struct load_template *template,
                       struct load_corpus *corpus, uint32_t slot, const struct load_stamp *stamp,
                       uint64_t *serial);

struct load_answer {
    int32_t code;
    int32_t opaque;
    uint32_t codec;
    const uint8_t *header;
    size_t header_size;
    const uint8_t *body;
    size_t body_size;
};

/* The position of the opaque, from the end of the header. */
struct load_hint {
    size_t opaque;
};

/* Read a whole frame of at least FRAME_MIN bytes; 0 if it has no code or no opaque. */
int load_read(const uint8_t *frame, size_t size, struct load_hint *hint,
              struct load_answer *answer);

/* Write an opaque into a frame whose opaque has LOAD_OPAQUE_DIGITS digits, or is binary. */
void load_put_opaque(uint8_t *at, uint32_t codec, int32_t opaque);

/* The text of an extField, with JSON escapes as they stand; NULL if it is missing. */
const uint8_t *load_text(const struct load_answer *answer, const char *name, size_t *size);

/* Read the number of an extField into *value; 0 if it is missing or no number. */
int load_number(const struct load_answer *answer, const char *name, int64_t *value);

/* The remark as it stands in the header (JSON escapes are kept); its size, at most `room`. */
size_t load_remark(const struct load_answer *answer, uint8_t *text, size_t room);

/* Count the records of a pull's body, checking magic and sizes, and the CRCs if asked. `born_ms` is
 * the born timestamp of the last record. -1: the body is no sequence of records. */
int64_t load_count_records(const uint8_t *body, size_t size, int check_crc, int64_t *born_ms);

#endif
