#include "load_end.h"

#include "load.h"

void load_close_row(struct load *load)
{
    struct load_row *row = &load->rows[load->row_count];
    for (int kind = 0; kind < LOAD_KINDS; kind++) {
        struct load_stats *stats = &load->stats[kind];
        if (stats->interval == NULL) {
            continue;
        }
        row->messages[kind] = stats->messages - load->row_messages[kind];
        row->p50_ns[kind] = load_hist_at(stats->interval, 0.5);
        row->p99_ns[kind] = load_hist_at(stats->interval, 0.99);
        row->max_ns[kind] = stats->interval->max;
        load->row_messages[kind] = stats->messages;
        load_hist_clear(stats->interval);
    }
    __atomic_store_n(&load->row_count, load->row_count + 1, __ATOMIC_RELEASE);
}

static int is_over(const struct load *load)
{
    const struct load_stats *sends = &load->stats[LOAD_SEND]; /* total is NULL: nothing is sent */
    if (__atomic_load_n(&load->stop, __ATOMIC_RELAXED) ||
        (load->duration_ns > 0 && load->now_ns >= load->begin_ns + load->duration_ns)) {
        return 1;
    }
    if (sends->total != NULL) {
        return (load->dry > 0 && load->dry >= load->alive[LOAD_SEND]) ||
               (load->limit > 0 && sends->all_requests * load->messages_per_send >= load->limit);
    }
    return load->open_queues == 0 ||
           (load->limit > 0 && load->stats[LOAD_PULL].all_messages >= load->limit);
}

/* Whether nothing is pending: every send is answered, and read by each following queue. */
static int is_settled(const struct load *load)
{
    const struct load_stats *sends = &load->stats[LOAD_SEND], *pulls = &load->stats[LOAD_PULL];
    return sends->in_flight == 0 &&
           (sends->total == NULL || pulls->total == NULL || load->alive[LOAD_PULL] == 0 ||
            pulls->all_messages >= sends->all_messages);
}

int load_judge(struct load *load)
{
    if (load->failure != 0) {
        return LOAD_SYSTEM;
    }
    if ((load->alive[LOAD_SEND] + load->alive[LOAD_PULL] == 0 ||
         (load->stats[LOAD_SEND].total != NULL && load->alive[LOAD_SEND] == 0)) &&
        (load->away == 0 || load->now_ns - load->heard_ns > load->silence_ns)) {
        return LOAD_LOST;
    }
    if (load->stats[LOAD_SEND].in_flight + load->stats[LOAD_PULL].in_flight > 0 &&
        load->now_ns - load->heard_ns > load->silence_ns) {
        return LOAD_LATE;
    }
    if (!load->draining && is_over(load)) {
        load->draining = 1;
        load->end_ns = load->now_ns;
        load->drain_until_ns = load->now_ns + load->drain_ns;
    }
    if (load->draining && is_settled(load)) {
        return LOAD_DONE;
    }
    return load->draining && load->now_ns >= load->drain_until_ns ? LOAD_LATE : -1;
}
