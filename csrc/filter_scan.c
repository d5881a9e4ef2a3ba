#include "filter.h"
#include "queue_unit.h"
#include "record.h"

enum {
    AHEAD = 6,        /* units whose records are prefetched */
    LINE = 64,
    RECORD_WORK = 16, /* a record that is in no cache */
    TAIL_LINES = 3    /* its properties are likely in these */
};

static const struct flt_span *span_of(struct flt_scan *scan, int64_t start)
{
    const struct flt_span *spans = scan->spans;
    if (scan->recent < scan->span_count && spans[scan->recent].start == start) {
        return &spans[scan->recent];
    }
    for (size_t number = 0; number < scan->span_count; number++) {
        if (spans[number].start == start) {
            scan->recent = number;
            return &spans[number];
        }
    }
    return NULL;
}

static int is_inside(const struct flt_scan *scan, struct cq_unit unit, int64_t start)
{
    return cq_is_valid(unit) && unit.log_offset <= scan->log_end - unit.size &&
           unit.log_offset - start <= scan->file_size - unit.size;
}

static void fetch(const struct flt_scan *scan, const struct flt_span *span, struct cq_unit unit)
{
    const uint8_t *record;
    if (unit.log_offset < span->start || !is_inside(scan, unit, span->start)) {
        return;
    }
    record = span->memory + (unit.log_offset - span->start);
    __builtin_prefetch(record);
    __builtin_prefetch(record + LINE);
    for (int line = 1; line <= TAIL_LINES && line * LINE < unit.size; line++) {
        __builtin_prefetch(record + unit.size - line * LINE);
    }
}

int flt_matches(const struct flt_program *program, const uint8_t *record, size_t size,
                int64_t *work)
{
    struct rec_row row;
    enum rec_reason reason;
    if (rec_parse(record, 0, size, REC_CHECK_NOTHING, &row, &reason) != REC_OK ||
        (size_t)row.size != size) {
        return 1;
    }
    return flt_evaluate(program, record + row.properties_at, (size_t)row.properties_size, work) ==
           FLT_TRUE;
}

int flt_choose(void *chooser, const uint8_t *units, size_t left)
{
    struct flt_scan *scan = chooser;
    struct cq_unit unit = cq_get(units);
    int64_t start = unit.log_offset - unit.log_offset % scan->file_size;
    const struct flt_span *span;
    if (scan->work > FLT_WORK_MAX) {
        return -1;
    }
    if (!is_inside(scan, unit, start)) {
        return 1;
    }
    span = span_of(scan, start);
    if (span == NULL) {
        scan->lacking = start;
        return -1;
    }
    if (span->memory == NULL) {
        return 1;
    }
    if (left > AHEAD) {
        fetch(scan, span, cq_get(units + AHEAD * CQ_UNIT));
    }
    scan->work += RECORD_WORK;
    return flt_matches(scan->program, span->memory + (unit.log_offset - start), (size_t)unit.size,
                       &scan->work);
}
