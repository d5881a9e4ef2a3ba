#include "load_outage.h"

#include <string.h>

#include "load.h"
#include "wire_constants.h" /* generated */

static const int64_t LOAD_OUTAGE_JOIN_NS = 1000000000;

void load_count_error(struct load_stats *stats, int32_t code, uint64_t count,
                      const struct load_answer *answer)
{
    uint32_t i = 0;
    while (i < stats->code_count && stats->codes[i].code != code && i + 1 < LOAD_CODES) {
        i++;
    }
    if (i == stats->code_count) {
        stats->codes[i].code = code;
        if (answer != NULL) {
            stats->codes[i].remark_size =
                (uint32_t)load_remark(answer, stats->codes[i].remark, LOAD_REMARK);
        }
        stats->code_count++;
    }
    stats->codes[i].count += count;
}

void load_failed(struct load *load, struct load_connection *connection, uint64_t count)
{
    struct load_outage *last = NULL;
    if (!load->reconnect || connection->kind != LOAD_SEND) {
        return;
    }
    connection->failed = 1;
    if (load->outage_count > 0) {
        last = &load->outages[load->outage_count - 1];
    }
    if (last != NULL && last->resumed_ns != 0 && load->outage_count < LOAD_OUTAGES &&
        load->now_ns - last->resumed_ns > LOAD_OUTAGE_JOIN_NS) {
        last = NULL;
    }
    if (last == NULL) {
        last = &load->outages[load->outage_count++];
        memset(last, 0, sizeof *last);
        last->began_ns = load->now_ns;
    }
    last->resumed_ns = 0;
    last->failed += count;
}

void load_acked(struct load *load, struct load_connection *connection)
{
    int64_t gap_ns = load->now_ns - (load->acked_ns != 0 ? load->acked_ns : load->start_ns);
    load->acked_ns = load->now_ns;
    if (load->outage_count > 0 && load->outages[load->outage_count - 1].resumed_ns == 0) {
        struct load_outage *outage = &load->outages[load->outage_count - 1];
        if (gap_ns > outage->gap_ns) {
            outage->gap_ns = gap_ns;
        }
        if (connection->failed) {
            outage->resumed_ns = load->now_ns;
        }
    }
    connection->failed = 0;
}

int load_is_moved(const struct load *load, uint32_t kind, int32_t code)
{
    /* Not before the first acknowledgement: until then a refusal may be permanent. */
    return load->reconnect && load->stats[kind].all_messages > 0 &&
           (code == ANSWER_SERVICE_NOT_AVAILABLE || code == ANSWER_NO_PERMISSION);
}

void load_drop(struct load *load, uint32_t number)
{
    __atomic_store_n(&load->connections[number].dropped, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&load->drops, 1, __ATOMIC_RELEASE);
}

int load_hand_over(struct load *load, uint32_t number, int fd)
{
    struct load_connection *connection = &load->connections[number];
    if (__atomic_load_n(&connection->handed, __ATOMIC_ACQUIRE) != 0) {
        return 0;
    }
    __atomic_store_n(&connection->handed, fd + 1, __ATOMIC_RELEASE);
    return 1;
}

void load_renew(struct load_connection *connection)
{
    connection->in_end = connection->out_at = connection->out_end = 0;
    connection->in_flight = connection->awaited = 0;
    connection->waits_writable = 0;
    memset(connection->started_ns, 0, connection->window * sizeof *connection->started_ns);
    if (connection->kind == LOAD_SEND) {
        for (uint32_t slot = 0; slot < connection->window; slot++) {
            connection->free[slot] = connection->window - 1 - slot;
        }
        connection->free_count = connection->window;
    }
}
