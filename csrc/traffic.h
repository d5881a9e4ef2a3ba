/* The requests that carry traffic, read without a Python object: SEND_MESSAGE, SEND_MESSAGE_V2,
 * SEND_BATCH_MESSAGE, PULL_MESSAGE, END_TRANSACTION, ACK_MESSAGE and POP_MESSAGE (10, 310, 320, 11,
 * 37, 200051, 200050), in both header encodings.
 *
 * The reference is net/wire: command.decode, then header.read_header with the class of the code. A
 * request is TRF_PLAIN only if each byte of its header was understood as the reference understands
 * it; then every member of struct trf_request equals its counterpart there. All rare or doubtful
 * requests are TRF_OTHER and go to the Python handler, which answers them. TRF_OTHER is therefore
 *   - every other code, and every response;
 *   - JSON: a repeated member, a value that is no text (no int32 for the four numbers), an escape
 *     in a name, a surrogate escape, a nested value, a language without a number, malformed UTF-8,
 *     text after the object;
 *   - ROCKETMQ: a repeated field, malformed UTF-8 in a known text, bytes after the fields;
 *   - a required field that is missing, a number out of its range, a send without a body.
 * White space, any order of members, unknown members and escaped texts are understood.
 *
 *     frame     length | codec, header length | header ................ | body ......
 *                                               ^ texts point into it     ^ trf_request.body
 *     scratch   texts of a JSON header that had escapes
 *
 * So texts live as long as both buffers. A missing text has at == NULL; an empty one has size 0 and
 * at != NULL (Python: None and ""). Texts are valid UTF-8 of any characters, 0 included. Optional
 * numbers and flags that are missing are 0, because handlers treat None as 0; for a number has_NAME
 * has the difference.
 *
 * csrc/wire_tables.py lists the codes, and makes struct trf_send, its siblings and their readers
 * from the classes in net/wire/headers.
 *
 * Not decided here: whether a topic exists, is plain, or begins with %RETRY%; whether a queue id is
 * in range (a send with one below 0 accepts any queue); whether limits hold. frame.h finds frames,
 * traffic_properties.h reads the properties of a send, traffic_reply.h writes answers. */
#ifndef TURBOPUMP_TRAFFIC_H
#define TURBOPUMP_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>

#include "traffic_properties.h"

#include "traffic_headers.h" /* generated: codes, enum trf_kind, struct trf_send and the others */

enum trf_verdict {
    TRF_PLAIN = 0,
    TRF_OTHER = 1, /* for the Python handler */
    TRF_BAD = 2    /* no frame: Python's decode refuses it and the connection is closed */
};

struct trf_request {
    int32_t code, opaque, flag, version;
    uint8_t kind;     /* enum trf_kind */
    uint8_t codec;    /* 0 JSON, 1 ROCKETMQ; answers are always JSON */
    uint8_t language; /* index into command.LANGUAGES */
    uint8_t is_oneway;
    union {
        struct trf_send send;
        struct trf_pull pull;
        struct trf_end end;
        struct trf_ack ack;
        struct trf_pop pop;
    };
    struct trf_text body; /* not empty for a send */
};

/* Read one whole frame, including its 4 length bytes. Escaped texts are written to `scratch`; with
 * less room than the header's size they make the request TRF_OTHER. Unless TRF_PLAIN, `out` is
 * undefined. */
enum trf_verdict trf_decode(const uint8_t *frame, size_t size, uint8_t *scratch,
                            size_t scratch_size, struct trf_request *out);

#endif
