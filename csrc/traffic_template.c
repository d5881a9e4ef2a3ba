#include "traffic_template.h"

#include "bytes.h"
#include "json_text.h"

enum {
    FRAME_HEAD = 8,
    BINARY_OPAQUE_AT = 5,
    BINARY_REMARK_AT = 13,
    NAME_END = 1,
    VALUE_END = 2,
    DIGITS_MAX = 18, /* of a number; it fits into 63 bits */
    ROCKETMQ = 1
};

/* The values of a header. */
enum kind {
    OPAQUE,           /* digits */
    QUEUE,            /* digits */
    BORN,             /* digits */
    BINARY_OPAQUE,    /* four bytes, and so the sizes of the next four */
    SIZED_QUEUE,      /* size and digits */
    SIZED_BORN,       /* size and digits */
    REST,             /* size of all fields, which end the header */
    SIZED_PROPERTIES, /* size of the properties, which begin here */
    PROPERTIES,       /* their beginning, without a size */
    PROPERTIES_END,
    KEY, /* the value of UNIQ_KEY, and so the next two */
    KEYS,
    TAGS,
    OTHER, /* the value of a property of the application */
    END
};

/* Properties with values that trf_scan_properties gives and trf_match does not. */
#define NOT_LEARNED (TRF_PGROUP | TRF_REAL_TOPIC | TRF_REAL_QID)

/* Learning: the values of a header in the order in which they lie there. */
struct value {
    const uint8_t *at, *end;
    const uint8_t *plain, *plain_end; /* of a property's value; of the properties' begin and end */
    uint8_t kind;
};

struct plan {
    const struct trf_request *request;
    struct value values[TRF_STEPS];
    unsigned count, others; /* number of values in all, and of the application's properties */
    int fits;               /* 0: no template can be made */
    const uint8_t *raw, *raw_end; /* the properties in the header */
};

/* A ROCKETMQ header has seven steps beside the values of properties. */
enum { OTHERS_MAX = TRF_STEPS - 7 - 3 };

static struct value *add_value(struct plan *plan, enum kind kind, const uint8_t *at,
                               const uint8_t *end)
{
    struct value *values = plan->values;
    unsigned place = plan->count;
    if (place == TRF_STEPS) {
        plan->fits = 0;
        return values;
    }
    for (; place > 0 && values[place - 1].at > at; place--) {
        values[place] = values[place - 1];
    }
    memset(&values[place], 0, sizeof values[place]);
    values[place].at = at;
    values[place].end = end;
    values[place].kind = (uint8_t)kind;
    plan->count++;
    return &values[place];
}

/* Note the field of a header if its value may differ. `sized`: bytes of its size before it. */
static void note_field(struct plan *plan, const uint8_t *name, size_t name_size,
                       const uint8_t *at, const uint8_t *end, size_t sized)
{
    int is_long = plan->request->code == TRF_SEND_MESSAGE, is_binary = sized > 0;
    if (is_long ? name_size == 7 && TRF_IS(name, "queueId") : name_size == 1 && *name == 'e') {
        add_value(plan, is_binary ? SIZED_QUEUE : QUEUE, at - sized, end);
    } else if (is_long ? name_size == 13 && TRF_IS(name, "bornTimestamp")
                       : name_size == 1 && *name == 'g') {
        add_value(plan, is_binary ? SIZED_BORN : BORN, at - sized, end);
    } else if (is_long ? name_size == 10 && TRF_IS(name, "properties")
                       : name_size == 1 && *name == 'i') {
        plan->raw = at;
        plan->raw_end = end;
    }
}

/* The end of a JSON string that begins at `at`, after its first quote. The decoder has read it
 * before. */
static const uint8_t *string_end(const uint8_t *at, const uint8_t *end)
{
    for (;;) {
        at = json_find_special(at, end);
        if (at == end || *at == '"') {
            return at;
        }
        at += end - at > 1 ? 2 : 1;
    }
}

static const uint8_t *walk_fields(struct plan *plan, const struct json_input *input,
                                  const uint8_t *at)
{
    int last = 0;
    at = json_expect(at, input->end, '{');
    if (at != NULL && at < input->end && *at == '}') {
        return at + 1;
    }
    while (at != NULL && !last) {
        const uint8_t *name, *end;
        size_t size;
        at = json_read_name(input, at, &name, &size);
        if (at == NULL || at == input->end || *at != '"') {
            return NULL;
        }
        end = string_end(at + 1, input->end);
        if (end == input->end) {
            return NULL;
        }
        note_field(plan, name, size, at + 1, end, 0);
        at = json_next_member(end + 1, input->end, &last);
    }
    return at;
}

/* The end of a value outside of extFields: a string, or text without separators. */
static const uint8_t *value_end(const uint8_t *at, const uint8_t *end)
{
    if (at < end && *at == '"') {
        at = string_end(at + 1, end);
        return at < end ? at + 1 : NULL;
    }
    while (at < end && *at != ',' && *at != '}' && *at > ' ') {
        at++;
    }
    return at;
}

static int walk_json(struct plan *plan, const uint8_t *at, const uint8_t *end)
{
    struct json_input input = {end, NULL};
    int last = 0;
    at = json_expect(at, end, '{');
    while (at != NULL && !last) {
        const uint8_t *name, *value;
        size_t size;
        value = at = json_read_name(&input, at, &name, &size);
        if (at == NULL) {
            return 0;
        }
        if (size == 9 && TRF_IS(name, "extFields")) {
            at = walk_fields(plan, &input, at);
        } else {
            at = value_end(at, end);
            if (at != NULL && size == 6 && TRF_IS(name, "opaque")) {
                add_value(plan, OPAQUE, value, at);
            }
        }
        at = at != NULL ? json_next_member(at, end, &last) : NULL;
    }
    return at != NULL;
}

static int walk_binary(struct plan *plan, const uint8_t *at, const uint8_t *end)
{
    add_value(plan, BINARY_OPAQUE, at + BINARY_OPAQUE_AT, at + BINARY_OPAQUE_AT + 4);
    at += BINARY_REMARK_AT + 4 + be_u32(at + BINARY_REMARK_AT);
    add_value(plan, REST, at, at + 4);
    at += 4;
    while (at < end) {
        size_t name_size = be_u16(at), size;
        const uint8_t *name = at + 2;
        at = name + name_size + 4;
        size = be_u32(at - 4);
        note_field(plan, name, name_size, at, at + size, 4);
        at += size;
    }
    return 1;
}

/* The bytes of the header that make the character at `plain`. */
static size_t raw_size(const uint8_t *raw, const uint8_t *plain, size_t *plain_size)
{
    *plain_size = 1;
    if (*raw != '\\') {
        return 1;
    }
    if (raw[1] != 'u') {
        return 2;
    }
    *plain_size = *plain < 0x80 ? 1 : *plain < 0xE0 ? 2 : 3;
    return 6;
}

/* Whether a value has only characters that every text writes as they are. */
static int is_simple(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *stop = json_find_special(at, end);
    for (; at < stop && *at < 0x80; at++) {
    }
    return at == end;
}

static enum kind kind_of(struct trf_text name)
{
    switch (trf_find_property(name.at, name.size)) {
    case 0: return OTHER;
    case TRF_UNIQ_KEY: return KEY;
    case TRF_KEYS: return KEYS;
    case TRF_TAGS: return TAGS;
    default: return END; /* its value decides something */
    }
}

/* Note the value of a property, which ends here, if it may differ. A value that is read for its
 * meaning must be found again by each match. */
static void note_value(struct plan *plan, enum kind kind, const struct value *value)
{
    struct value *added;
    int fits = value->end - value->at == value->plain_end - value->plain &&
               is_simple(value->plain, value->plain_end);
    if (kind == END || (kind == OTHER && (!fits || plan->others == OTHERS_MAX))) {
        return; /* constant */
    }
    plan->fits &= fits;
    plan->others += kind == OTHER;
    added = add_value(plan, kind, value->at, value->end);
    added->plain = value->plain;
    added->plain_end = value->plain_end;
}

/* Find the values of properties that may differ. */
static void walk_properties(struct plan *plan)
{
    struct trf_text text = plan->request->send.properties, name = {text.at, 0};
    const uint8_t *at = text.at, *end = at + text.size;
    struct value value = {plan->raw, plan->raw, NULL, NULL, END};
    int is_json = plan->request->codec != ROCKETMQ;
    for (;;) {
        size_t plain_size = 1, size = 1;
        if ((at == end || *at == VALUE_END) && value.plain != NULL) {
            value.plain_end = at;
            note_value(plan, kind_of(name), &value);
            value.plain = NULL;
            name.at = at + 1;
        }
        if (at == end) {
            break;
        }
        size = is_json ? raw_size(value.end, at, &plain_size) : 1;
        if (*at == NAME_END && value.plain == NULL) {
            name.size = (uint32_t)(at - name.at);
            value.plain = at + 1;
            value.at = value.end + size;
        }
        at += plain_size;
        value.end += size;
    }
    plan->fits &= value.end == plan->raw_end;
}

static void note_properties(struct plan *plan)
{
    struct trf_text text = plan->request->send.properties;
    int is_binary = plan->request->codec == ROCKETMQ;
    struct value *edge;
    if (text.size == 0) {
        return;
    }
    edge = is_binary ? add_value(plan, SIZED_PROPERTIES, plan->raw - 4, plan->raw)
                     : add_value(plan, PROPERTIES, plan->raw, plan->raw);
    edge->plain = edge->plain_end = text.at;
    walk_properties(plan);
    edge = add_value(plan, PROPERTIES_END, plan->raw_end, plan->raw_end);
    edge->plain = edge->plain_end = text.at + text.size;
}

/* Let a text that lies in the constant bytes [at, end) of the frame point to their copy; 0 if it
 * lies elsewhere. */
static int move_text(struct trf_text *text, const uint8_t *at, const uint8_t *end,
                     const uint8_t *copy)
{
    if (text->at < at || text->at + text->size > end) {
        return 0;
    }
    text->at = copy + (text->at - at);
    return 1;
}

struct builder {
    struct trf_template *template;
    size_t used; /* of the constants */
};

static int put_constant(struct builder *builder, const uint8_t *at, const uint8_t *end,
                        uint16_t *place, uint16_t *size)
{
    size_t count = (size_t)(end - at);
    if (count > TRF_CONSTANTS - builder->used) {
        return 0;
    }
    memcpy(builder->template->constants + builder->used, at, count);
    *place = (uint16_t)builder->used;
    *size = (uint16_t)count;
    builder->used += count;
    return 1;
}

/* Make the steps of a plan. */
static int build(struct trf_template *template, const struct plan *plan, const uint8_t *at)
{
    struct builder builder = {template, 0};
    struct trf_send *send = &template->request.send;
    const uint8_t *plain = NULL;
    int moved = 0;
    for (unsigned number = 0; number < plan->count; number++) {
        const struct value *value = &plan->values[number];
        struct trf_step *step = &template->steps[number];
        memset(step, 0, sizeof *step);
        step->kind = value->kind;
        if (value->at < at || !put_constant(&builder, at, value->at, &step->at, &step->size)) {
            return 0;
        }
        moved += move_text(&send->topic, at, value->at, template->constants + step->at);
        moved += move_text(&send->producer_group, at, value->at, template->constants + step->at);
        moved += move_text(&send->default_topic, at, value->at, template->constants + step->at);
        if (plain != NULL && template->request.codec != ROCKETMQ &&
            !put_constant(&builder, plain, value->plain, &step->plain_at, &step->plain_size)) {
            return 0;
        }
        if (value->plain != NULL) {
            plain = value->kind == PROPERTIES_END ? NULL : value->plain_end;
        }
        at = value->end;
    }
    template->step_count = (uint16_t)plan->count;
    return moved == 3;
}

int trf_learn(struct trf_template *template, const uint8_t *frame,
              const struct trf_request *request)
{
    const uint8_t *at = frame + FRAME_HEAD, *end = request->body.at;
    struct trf_properties properties;
    struct plan plan;
    template->step_count = 0;
    if (request->kind != TRF_SEND || end - at > TRF_HEADER_MAX ||
        !trf_scan_properties(request->send.properties, &properties) ||
        properties.names & NOT_LEARNED) {
        return 0;
    }
    memset(&plan, 0, sizeof plan);
    plan.request = request;
    plan.fits = 1;
    if (!(request->codec == ROCKETMQ ? walk_binary(&plan, at, end) : walk_json(&plan, at, end))) {
        return 0;
    }
    note_properties(&plan);
    add_value(&plan, END, end, end);
    if (!plan.fits) {
        return 0;
    }
    template->request = *request;
    if (request->send.properties.size == 0 && request->send.properties.at != NULL) {
        template->request.send.properties.at = template->constants;
    }
    template->names = properties.names;
    template->unended = properties.unended;
    template->waits = properties.waits;
    if (!build(template, &plan, at)) {
        template->step_count = 0;
        return 0;
    }
    return 1;
}

/* Matching. */

struct reader {
    const uint8_t *at, *end;
    uint8_t *plain;             /* end of the properties without escapes */
    const uint8_t *fields_end;  /* of ROCKETMQ properties; the header's end for JSON */
    struct trf_properties *properties;
};

/* Digits without leading zeros; NULL for any other text. */
static inline const uint8_t *read_digits(const uint8_t *at, const uint8_t *end, int64_t max,
                                         int64_t *value)
{
    const uint8_t *begin = at;
    int64_t number = 0;
    if (end - at > DIGITS_MAX) {
        end = at + DIGITS_MAX;
    }
    for (; at < end && (unsigned)*at - '0' < 10; at++) {
        number = number * 10 + (*at - '0');
    }
    *value = number;
    return at == begin || (*begin == '0' && at - begin > 1) || number > max ? NULL : at;
}

static inline const uint8_t *read_sized_digits(const uint8_t *at, const uint8_t *end, int64_t max,
                                               int64_t *value)
{
    uint32_t size;
    if (end - at < 4) {
        return NULL;
    }
    size = be_u32(at);
    at += 4;
    if (size > DIGITS_MAX || size > (size_t)(end - at)) {
        return NULL;
    }
    end = at + size;
    return read_digits(at, end, max, value) == end ? end : NULL;
}

/* Read the value of a property: at least one character, none of them special. */
static inline int read_value(struct reader *reader, enum kind kind, int is_json)
{
    const uint8_t *begin = reader->at, *at = begin, *end = reader->fields_end;
    struct trf_text text;
    for (; end - at >= 8; at += 8) {
        uint64_t word = json_word(at), marks = json_marks(word) | (word & JSON_EACH(0x80));
        if (marks != 0) {
            at += json_first(marks);
            break;
        }
    }
    while (at < end && !json_is_special(*at) && *at < 0x80) {
        at++;
    }
    if (at == begin) {
        return 0;
    }
    text.at = begin;
    text.size = (uint32_t)(at - begin);
    if (is_json) {
        text.at = reader->plain;
        memcpy(reader->plain, begin, text.size);
        reader->plain += text.size;
    }
    if (kind == KEY) {
        reader->properties->unique_key = text;
    } else if (kind == KEYS) {
        reader->properties->keys = text;
    } else if (kind == TAGS) {
        reader->properties->tags = text;
    }
    reader->at = at;
    return 1;
}

/* Read the value of a step in the frame; 0 gives up. */
static inline int read_step(struct reader *reader, struct trf_request *request, enum kind kind,
                            uint8_t *scratch)
{
    int is_json = request->codec != ROCKETMQ;
    struct trf_text *text = &request->send.properties;
    const uint8_t *at = reader->at, *end = reader->end;
    int64_t number = 0;
    switch (kind) {
    case OPAQUE:
        reader->at = read_digits(at, end, INT32_MAX, &number);
        request->opaque = (int32_t)number;
        return reader->at != NULL;
    case QUEUE:
    case SIZED_QUEUE:
        reader->at = is_json ? read_digits(at, end, INT32_MAX, &number)
                             : read_sized_digits(at, end, INT32_MAX, &number);
        request->send.queue_id = (int32_t)number;
        return reader->at != NULL;
    case BORN:
    case SIZED_BORN:
        reader->at = is_json ? read_digits(at, end, INT64_MAX, &request->send.born_timestamp)
                             : read_sized_digits(at, end, INT64_MAX, &request->send.born_timestamp);
        return reader->at != NULL;
    case BINARY_OPAQUE:
        request->opaque = end - at >= 4 ? be_i32(at) : 0;
        reader->at = at + 4;
        return end - at >= 4;
    case REST:
        reader->at = at + 4;
        return end - at >= 4 && be_u32(at) == (size_t)(end - at - 4);
    case SIZED_PROPERTIES:
        reader->at = at + 4;
        if (end - at < 4 || be_u32(at) > (size_t)(end - at - 4)) {
            return 0;
        }
        text->at = at + 4;
        text->size = be_u32(at);
        reader->fields_end = text->at + text->size;
        return 1;
    case PROPERTIES: text->at = scratch; return 1;
    case PROPERTIES_END:
        if (!is_json) {
            return at == reader->fields_end;
        }
        text->size = (uint32_t)(reader->plain - scratch);
        return 1;
    case KEY:
    case KEYS:
    case TAGS:
    case OTHER: return read_value(reader, kind, is_json);
    case END: return at == end;
    }
    return 0;
}

int trf_match(struct trf_template *template, const uint8_t *frame, size_t size, uint8_t *scratch,
              struct trf_properties *properties)
{
    struct trf_request *request = &template->request;
    struct reader reader;
    size_t header_size;
    if (template->step_count == 0 || size < FRAME_HEAD || frame[4] != request->codec) {
        return 0;
    }
    header_size = be_u32(frame + 4) & 0xFFFFFF;
    if (header_size > TRF_HEADER_MAX || header_size >= size - FRAME_HEAD || size > UINT32_MAX) {
        return 0;
    }
    reader.at = frame + FRAME_HEAD;
    reader.end = reader.fields_end = reader.at + header_size;
    reader.plain = scratch;
    reader.properties = properties;
    memset(properties, 0, sizeof *properties);
    for (unsigned number = 0; number < template->step_count; number++) {
        const struct trf_step *step = &template->steps[number];
        const uint8_t *constants = template->constants;
        if ((size_t)(reader.end - reader.at) < step->size ||
            memcmp(reader.at, constants + step->at, step->size) != 0) {
            return 0;
        }
        reader.at += step->size;
        if (step->plain_size > 0) {
            memcpy(reader.plain, constants + step->plain_at, step->plain_size);
            reader.plain += step->plain_size;
        }
        if (!read_step(&reader, request, (enum kind)step->kind, scratch)) {
            return 0;
        }
    }
    request->body.at = reader.end;
    request->body.size = (uint32_t)(size - FRAME_HEAD - header_size);
    properties->names = template->names;
    properties->canonical = 1;
    properties->unended = template->unended;
    properties->waits = template->waits;
    return 1;
}
