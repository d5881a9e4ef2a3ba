#include "traffic.h"

#include "bytes.h"
#include "json_text.h"
#include "traffic_readers.h"
#include "wire_constants.h" /* generated */

enum {
    FRAME_HEAD = 8,
    BINARY_FIXED = 17 /* before the remark */
};

enum member {
    SEEN_CODE = 1,
    SEEN_FLAG = 2,
    SEEN_OPAQUE = 4,
    SEEN_VERSION = 8,
    SEEN_LANGUAGE = 16,
    SEEN_FIELDS = 32
};

struct header {
    struct json_input input;
    unsigned members; /* of the JSON object, so far */
    struct trf_fields fields;
};

static inline enum field find_field(const uint8_t *name, size_t size)
{
    return size == 1 ? find_letter(*name) : find_name(name, size);
}

/* Note a field; 0 if it is repeated, because Python decides which of the two counts. */
static inline int add_field(struct header *header, enum field field, const uint8_t *text,
                            size_t size)
{
    uint64_t bit = (uint64_t)1 << field;
    if (field == UNKNOWN) {
        return 1;
    }
    if (header->fields.seen & bit) {
        return 0;
    }
    header->fields.seen |= bit;
    header->fields.texts[field].at = text;
    header->fields.texts[field].size = (uint32_t)size;
    return 1;
}

/* JSON */

/* Whether the text at `at` is `"?":"`: a single letter as name, as SEND_MESSAGE_V2 has for all
 * fields, and the quote of its value. Searching the end of such a name would take a quarter of the
 * time that a header takes. */
static inline int is_short_member(const uint8_t *at, const uint8_t *end)
{
    static const uint8_t wanted[8] = {'"', 0, '"', ':', '"'}, mask[8] = {255, 0, 255, 255, 255};
    return end - at >= 8 && (json_word(at) & json_word(mask)) == json_word(wanted) &&
           (unsigned)at[1] - 'a' < 26;
}

/* Read the object of extFields: texts only. */
static const uint8_t *read_fields(struct header *header, const uint8_t *at)
{
    struct json_input *input = &header->input;
    int last = 0;
    at = json_expect(at, input->end, '{');
    if (at != NULL && at < input->end && *at == '}') {
        return at + 1;
    }
    while (at != NULL && !last) {
        const uint8_t *name, *text;
        size_t name_size, size;
        if (is_short_member(at, input->end)) {
            name = at + 1;
            name_size = 1;
            at += 4;
        } else {
            at = json_read_name(input, at, &name, &name_size);
        }
        at = at != NULL ? json_read_string(input, at, &text, &size) : NULL;
        if (at == NULL || !add_field(header, find_field(name, name_size), text, size)) {
            return NULL;
        }
        at = json_next_member(at, input->end, &last);
    }
    return at;
}

static const uint8_t *read_language(struct header *header, const uint8_t *at, uint8_t *language)
{
    const uint8_t *name = NULL;
    size_t size = 0;
    at = json_read_string(&header->input, at, &name, &size);
    for (unsigned i = 0; at != NULL && i < TRF_LANGUAGES; i++) {
        if (languages[i].size == size && memcmp(languages[i].name, name, size) == 0) {
            *language = (uint8_t)i;
            return at;
        }
    }
    return NULL;
}

/* Whether this member is the first of its kind. */
static inline int is_first(struct header *header, enum member member)
{
    unsigned before = header->members;
    header->members |= member;
    return (before & member) == 0;
}

/* Read the value of a member of the object. */
static const uint8_t *read_member(struct header *header, const uint8_t *at, const uint8_t *name,
                                  size_t size, struct trf_request *out)
{
    const uint8_t *end = header->input.end;
    if (size == 4 && TRF_IS(name, "code")) {
        at = is_first(header, SEEN_CODE) ? json_read_int32(at, end, &out->code) : NULL;
        return at != NULL && is_traffic(out->code) ? at : NULL;
    }
    if (size == 4 && TRF_IS(name, "flag")) {
        return is_first(header, SEEN_FLAG) ? json_read_int32(at, end, &out->flag) : NULL;
    }
    if (size == 6 && TRF_IS(name, "opaque")) {
        return is_first(header, SEEN_OPAQUE) ? json_read_int32(at, end, &out->opaque) : NULL;
    }
    if (size == 7 && TRF_IS(name, "version")) {
        return is_first(header, SEEN_VERSION) ? json_read_int32(at, end, &out->version) : NULL;
    }
    if (size == 8 && TRF_IS(name, "language")) {
        return is_first(header, SEEN_LANGUAGE) ? read_language(header, at, &out->language) : NULL;
    }
    if (size == 9 && TRF_IS(name, "extFields")) {
        return is_first(header, SEEN_FIELDS) ? read_fields(header, at) : NULL;
    }
    return json_skip_value(&header->input, at);
}

static int read_json(struct header *header, const uint8_t *at, struct trf_request *out)
{
    const uint8_t *end = header->input.end;
    int last = 0;
    at = json_expect(at, end, '{');
    while (at != NULL && !last) {
        const uint8_t *name;
        size_t size;
        at = json_read_name(&header->input, at, &name, &size);
        at = at != NULL ? read_member(header, at, name, size, out) : NULL;
        at = at != NULL ? json_next_member(at, end, &last) : NULL;
    }
    return at != NULL && json_skip_space(at, end) == end && header->members & SEEN_CODE;
}

/* ROCKETMQ */

/* Read a text after its length of `width` bytes. */
static inline const uint8_t *read_sized(const uint8_t *at, const uint8_t *end, size_t width,
                                        struct trf_text *text)
{
    int64_t size;
    if ((size_t)(end - at) < width) {
        return NULL;
    }
    size = width == 2 ? be_i16(at) : be_i32(at);
    at += width;
    if (size < 0 || size > end - at) {
        return NULL;
    }
    text->at = at;
    text->size = (uint32_t)size;
    return at + size;
}

static int read_binary(struct header *header, const uint8_t *at, struct trf_request *out)
{
    const uint8_t *end = header->input.end;
    struct trf_text name, text;
    if (end - at < BINARY_FIXED) {
        return 0;
    }
    out->code = be_i16(at);
    out->language = at[2] < TRF_LANGUAGES ? at[2] : TRF_LANGUAGE_OTHER;
    out->version = be_i16(at + 3);
    out->opaque = be_i32(at + 5);
    out->flag = be_i32(at + 9);
    if (!is_traffic(out->code)) {
        return 0;
    }
    at = read_sized(at + 13, end, 4, &text); /* the remark */
    at = at != NULL ? read_sized(at, end, 4, &text) : NULL;
    if (at != end) {
        return 0;
    }
    at = text.at;
    while (at < end) {
        at = read_sized(at, end, 2, &name);
        at = at != NULL ? read_sized(at, end, 4, &text) : NULL;
        if (at == NULL ||
            !add_field(header, find_field(name.at, name.size), text.at, text.size)) {
            return 0;
        }
    }
    return 1;
}

enum trf_verdict trf_decode(const uint8_t *frame, size_t size, uint8_t *scratch,
                            size_t scratch_size, struct trf_request *out)
{
    struct header header;
    size_t header_size;
    int fine;
    if (size < FRAME_HEAD || size > UINT32_MAX) {
        return TRF_BAD;
    }
    header_size = be_u32(frame + 4) & 0xFFFFFF;
    if (header_size > size - FRAME_HEAD || frame[4] > 1) {
        return TRF_BAD;
    }
    header.input.end = frame + FRAME_HEAD + header_size;
    header.input.scratch = scratch_size >= header_size ? scratch : NULL;
    header.members = 0;
    header.fields.seen = 0;
    out->codec = frame[4];
    out->opaque = out->flag = out->version = 0;
    out->language = TRF_LANGUAGE_OTHER;
    fine = frame[4] == 0 ? read_json(&header, frame + FRAME_HEAD, out)
                         : read_binary(&header, frame + FRAME_HEAD, out);
    if (!fine || out->flag & RESPONSE_FLAG) {
        return TRF_OTHER;
    }
    out->is_oneway = (out->flag & ONEWAY_FLAG) != 0;
    out->body.at = header.input.end;
    out->body.size = (uint32_t)(size - FRAME_HEAD - header_size);
    fine = read_header(&header.fields, out) && (out->kind != TRF_SEND || out->body.size > 0);
    return fine ? TRF_PLAIN : TRF_OTHER;
}
