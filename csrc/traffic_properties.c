#include "traffic_properties.h"

#include "json_text.h"

enum {
    NAME_END = 1,
    VALUE_END = 2,
    SIZE_MAX_READ = INT16_MAX, /* a record cannot hold more */
    PAIRS_MAX = 64 /* limits the time of searching a name among the earlier ones */
};

uint32_t trf_find_property(const uint8_t *name, size_t size)
{
    switch (size) {
    case 4:
        return TRF_IS(name, "KEYS")   ? TRF_KEYS
               : TRF_IS(name, "TAGS") ? TRF_TAGS
               : TRF_IS(name, "WAIT") ? TRF_WAIT
                                      : 0;
    case 5:
        return TRF_IS(name, "DELAY") ? TRF_DELAY : 0;
    case 6:
        return TRF_IS(name, "POP_CK") ? TRF_POP_CK : TRF_IS(name, "PGROUP") ? TRF_PGROUP : 0;
    case 7:
        return TRF_IS(name, "CLUSTER") ? TRF_OWN : 0;
    case 8:
        return TRF_IS(name, "UNIQ_KEY")   ? TRF_UNIQ_KEY
               : TRF_IS(name, "TRAN_MSG") ? TRF_TRAN_MSG
               : TRF_IS(name, "REAL_QID") ? TRF_REAL_QID
               : TRF_IS(name, "__CRC32#") ? TRF_RARE
               : TRF_IS(name, "TRACE_ON") ? TRF_OWN
                                      : 0;
    case 9:
        return TRF_IS(name, "INNER_NUM") ? TRF_INNER_NUM : 0;
    case 10:
        return TRF_IS(name, "MSG_REGION")   ? TRF_OWN
               : TRF_IS(name, "REAL_TOPIC") ? TRF_REAL_TOPIC
                                            : 0;
    case 12:
        return TRF_IS(name, "TIMER_OUT_MS") ? TRF_KEPT_ID : 0;
    case 14:
        return TRF_IS(name, "TIMER_DELAY_MS") ? TRF_DELAY_MS : 0;
    case 15:
        return TRF_IS(name, "TIMER_DELAY_SEC") ? TRF_DELAY_SEC : 0;
    case 16:
        return TRF_IS(name, "TIMER_DELIVER_MS")                                     ? TRF_DELIVER_MS
               : TRF_IS(name, "TIMER_ENQUEUE_MS") || TRF_IS(name, "TIMER_DEQUEUE_MS") ||
                         TRF_IS(name, "TIMER_ROLL_TIMES")
                   ? TRF_RARE
                   : 0;
    case 17:
        return TRF_IS(name, "__transactionId__")   ? TRF_KEPT_ID
               : TRF_IS(name, "TIMER_DEL_UNIQKEY") ? TRF_RARE
                                                   : 0;
    case 20:
        return TRF_IS(name, "INNER_MULTI_DISPATCH") ? TRF_LIGHT : 0;
    case 30:
        return TRF_IS(name, "CHECK_IMMUNITY_TIME_IN_SECONDS") ? TRF_RARE : 0;
    default:
        return 0;
    }
}

/* The first of these names that a message has determines its due time. */
static const uint32_t before_timer[3] = {0, TRF_DELAY_SEC, TRF_DELAY_SEC | TRF_DELAY_MS};

static void note_kept(uint32_t found, struct trf_text value, struct trf_properties *out)
{
    unsigned place = found == TRF_DELAY_SEC ? 0 : found == TRF_DELAY_MS ? 1 : 2;
    if (found == TRF_REAL_TOPIC) {
        out->real_topic = value;
    } else if (found == TRF_REAL_QID) {
        out->real_queue = value;
    } else if (found == TRF_PGROUP) {
        out->producer_group = value;
    } else if (found == TRF_TRAN_MSG) {
        out->is_half = (uint8_t)trf_is_true(value);
    } else if (found & TRF_TIMER && !(out->names & before_timer[place])) {
        out->timer = value;
    }
}

static int is_among(struct trf_text name, const struct trf_text *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (names[i].size == name.size && memcmp(names[i].at, name.at, name.size) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Note the handlers' interest in a pair. */
static void note_property(uint32_t found, struct trf_text value, struct trf_properties *out)
{
    out->names |= found;
    if (found == TRF_UNIQ_KEY) {
        out->unique_key = value;
    } else if (found == TRF_KEYS) {
        out->keys = value;
    } else if (found == TRF_TAGS) {
        out->tags = value;
    } else if (found == TRF_WAIT) {
        out->waits = (uint8_t)trf_is_true(value);
    } else if (found != 0) {
        note_kept(found, value, out);
    }
}

/* Read one pair, from its name; returns the next pair's position, NULL if decoding would drop this
 * pair. */
static const uint8_t *read_pair(const uint8_t *at, const uint8_t *end, struct trf_text *name,
                                struct trf_text *value, uint8_t *unended)
{
    const uint8_t *stop = json_find_either(at, end, NAME_END, VALUE_END), *last;
    if (stop == at || stop == end || *stop == VALUE_END) {
        return NULL;
    }
    last = json_find_either(stop + 1, end, VALUE_END, VALUE_END);
    name->at = at;
    name->size = (uint32_t)(stop - at);
    value->at = stop + 1;
    value->size = (uint32_t)(last - value->at);
    *unended = last == end;
    return value->size > 0 ? last + !*unended : NULL;
}

int trf_scan_properties(struct trf_text text, struct trf_properties *out)
{
    static const struct trf_text none = {NULL, 0};
    struct trf_text names[PAIRS_MAX], value;
    const uint8_t *at = text.at, *end = text.size > 0 ? at + text.size : at;
    uint64_t kinds = 0;
    out->names = 0;
    out->canonical = out->unended = 0;
    out->waits = 1;
    out->unique_key = out->keys = out->tags = none;
    if (text.size > SIZE_MAX_READ) {
        return 0;
    }
    for (size_t count = 0; at < end; count++) {
        struct trf_text name;
        uint64_t kind;
        at = count < PAIRS_MAX ? read_pair(at, end, &name, &value, &out->unended) : NULL;
        if (at == NULL) {
            return 0;
        }
        kind = (uint64_t)1 << ((name.size + 7u * name.at[0] + name.at[name.size - 1]) & 63);
        if (kinds & kind && is_among(name, names, count)) {
            return 0;
        }
        kinds |= kind;
        names[count] = name;
        note_property(trf_find_property(name.at, name.size), value, out);
    }
    out->canonical = 1;
    return (out->names & TRF_SPECIAL) == 0;
}
