/* The header of a connection's last send, as a template for its next ones.
 *
 * A producer's headers are alike but for few values: opaque, queue id, born time, and the values of
 * some properties (UNIQ_KEY, KEYS, TAGS, and four of the application). trf_learn divides a header
 * that trf_decode has read into constant bytes and these values; trf_match compares the bytes,
 * reads the values, and so decodes a header in a fraction of the time.
 *
 *     {"code":310,"extFields":{...,"e":"   3   ","g":"  1700000000000  ",...,"opaque":  7  ,...}
 *     constant ......................... queue, constant born, ................... opaque, constant
 *
 * A template has only bytes: its results are a function of the frame, equal to the results of
 * trf_decode and trf_scan_properties for this frame. Nothing that a broker decides (topics,
 * permissions, roles, configuration) is remembered, so no change of these can make a template
 * wrong: lane_send checks them for each message, with a template as without.
 *
 * trf_match gives up on everything that is not written as most clients write it: numbers with a
 * sign or leading zeros, values with an escape or a character beyond ASCII, longer headers. The
 * caller then decodes the frame, which is always possible. */
#ifndef TURBOPUMP_TRAFFIC_TEMPLATE_H
#define TURBOPUMP_TRAFFIC_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "traffic.h"
#include "traffic_properties.h"

enum {
    TRF_HEADER_MAX = 4096, /* longer headers are not matched */
    TRF_STEPS = 14,
    TRF_CONSTANTS = 680,
    TRF_TEMPLATE_MAX = 1024 /* bytes of a template */
};

/* Constant bytes, and the value after them. */
struct trf_step {
    uint16_t at, size;             /* in `constants`, as they are in the header */
    uint16_t plain_at, plain_size; /* the same within the properties of JSON, without escapes */
    uint8_t kind;                  /* of the value */
};

struct trf_template {
    struct trf_request request; /* the match's, valid until the next call; its texts are in the
                                   template, in the frame, or in the scratch of trf_match */
    uint32_t names;             /* of trf_properties, as the next two */
    uint8_t unended, waits;
    uint16_t step_count; /* 0: nothing is known */
    struct trf_step steps[TRF_STEPS];
    uint8_t constants[TRF_CONSTANTS];
};

_Static_assert(sizeof(struct trf_template) <= TRF_TEMPLATE_MAX, "memory of a connection");

/* Learn the header of a send that trf_decode has read with verdict TRF_PLAIN; `request` and the
 * memory of its texts are unchanged since. Returns 0, and the template then matches nothing, if
 * the header is too long or its properties are not plain. */
int trf_learn(struct trf_template *template, const uint8_t *frame,
              const struct trf_request *request);

/* Read one whole frame whose header has the constant bytes of the template; 0 for any other frame.
 * Sets template->request and `properties` as trf_decode and trf_scan_properties do. `scratch` has
 * room for TRF_HEADER_MAX bytes. */
int trf_match(struct trf_template *template, const uint8_t *frame, size_t size, uint8_t *scratch,
              struct trf_properties *properties);

#endif
