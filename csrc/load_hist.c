#include "load_hist.h"

#include <string.h>

int64_t load_hist_upper(size_t index)
{
    size_t shift = index < 2 * LOAD_HIST_HALF ? 0 : index / LOAD_HIST_HALF - 1;
    uint64_t base = (uint64_t)(index - shift * LOAD_HIST_HALF);
    return (int64_t)(((base + 1) << shift) - 1);
}

int64_t load_hist_at(const struct load_hist *hist, double share)
{
    double wanted = share * (double)hist->total;
    uint64_t rank = (uint64_t)wanted, seen = 0;
    if (hist->total == 0) {
        return 0;
    }
    rank += (double)rank < wanted;
    rank = rank == 0 ? 1 : rank > hist->total ? hist->total : rank;
    for (size_t i = 0; i < LOAD_HIST_COUNTS; i++) {
        seen += hist->counts[i];
        if (seen >= rank) {
            int64_t upper = load_hist_upper(i);
            return upper < hist->max && i + 1 < LOAD_HIST_COUNTS ? upper : hist->max;
        }
    }
    return hist->max;
}

void load_hist_clear(struct load_hist *hist) { memset(hist, 0, sizeof *hist); }
