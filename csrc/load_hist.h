/* A histogram of latencies: HdrHistogram's layout with 3 significant digits, in nanoseconds.
 *
 *     value          0 .. 2047     2048 .. 4095    4096 .. 8191   ...
 *     one count is   1 ns wide     2 ns            4 ns           ...
 *     counts         2048          1024            1024           ...
 *
 * Every value lies in a count that is at most a thousandth of it wide. Beyond LOAD_HIST_MAX values
 * are counted as LOAD_HIST_MAX; `max` stays exact.
 */
#ifndef TURBOPUMP_LOAD_HIST_H
#define TURBOPUMP_LOAD_HIST_H

#include <stddef.h>
#include <stdint.h>

enum {
    LOAD_HIST_SUB_BITS = 11, /* 2048 counts resolve 1 in 1000 over a doubling */
    LOAD_HIST_VALUE_BITS = 40, /* 18 minutes in ns: longer than any request lives */
    LOAD_HIST_HALF = 1 << (LOAD_HIST_SUB_BITS - 1),
    LOAD_HIST_COUNTS = (LOAD_HIST_VALUE_BITS - LOAD_HIST_SUB_BITS + 2) * LOAD_HIST_HALF
};
#define LOAD_HIST_MAX ((INT64_C(1) << LOAD_HIST_VALUE_BITS) - 1)

struct load_hist {
    uint64_t counts[LOAD_HIST_COUNTS];
    uint64_t total;
    int64_t max;
};

/* The number of the count that holds a value in ns. */
static inline size_t load_hist_index(int64_t value)
{
    uint64_t of = value < 0 ? 0 : value > LOAD_HIST_MAX ? LOAD_HIST_MAX : (uint64_t)value;
    int bits = 64 - __builtin_clzll(of | (2 * LOAD_HIST_HALF - 1));
    int shift = bits - LOAD_HIST_SUB_BITS;
    return (size_t)shift * LOAD_HIST_HALF + (size_t)(of >> shift);
}

/* The largest value in a count. */
int64_t load_hist_upper(size_t index);

/* Count one value in ns; `max` and `total` follow. */
static inline void load_hist_record(struct load_hist *hist, int64_t value)
{
    hist->counts[load_hist_index(value)]++;
    hist->total++;
    if (value > hist->max) {
        hist->max = value;
    }
}

/* The value that `share` (0 to 1) of all recorded values do not exceed: the upper end of its count,
 * as in HdrHistogram, never more than max. 0 if nothing was recorded. */
int64_t load_hist_at(const struct load_hist *hist, double share);

/* Forget all values. */
void load_hist_clear(struct load_hist *hist);

#endif
