/* What a broker does with many timers at once: into the wheel, from a slot into the order of their
 * milliseconds, and to their consumers. No Python object is made for a message.
 *
 *     queue units -> tmr_take_in -> wheel and timer log
 *     slot        -> tmr_order   -> heap
 *     heap        -> tmr_deliver -> commit log, at its tail
 *
 * The reference is broker/scheduled/timers.py, message by message. A step stops before the first
 * message that is more than usual (TMR_RARE), or whose record is in another file (TMR_AWAY), and
 * its caller does that one, or finds that file. All memory is the caller's; of what records say,
 * nothing is believed. */
#ifndef TURBOPUMP_TIMER_STEPS_H
#define TURBOPUMP_TIMER_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "dispatch.h"
#include "tail.h"
#include "timer.h"

enum tmr_stop { TMR_ALL = 0, TMR_RARE = 1, TMR_AWAY = 2 };
enum { TMR_RUNS = 64, TMR_TOPIC_MAX = 127 };
#define TMR_FAR_MS ((int64_t)1 << 53) /* no time of a message is behind this */

/* A file of the commit log, from `base` on, as far as it may be read. */
struct tmr_file {
    const uint8_t *memory;
    size_t end;
    int64_t base;
};

/* Messages of one topic, one behind the other. */
struct tmr_run {
    uint8_t topic[TMR_TOPIC_MAX];
    size_t topic_size;
    int64_t count, size;
};
struct tmr_runs {
    size_t count;
    struct tmr_run runs[TMR_RUNS];
};

/* Into the wheel. Slots before `cursor` are over, those a round behind `ring_from` may hold units
 * of another round; those from `scanned` on nothing was taken out
 * of, what belongs before that comes into the heap, too: as many entries as `heap_room` allows. */
struct tmr_intake {
    const struct tmr_wheel *wheel;
    uint8_t *units;   /* of the timer log, room for the units that are to be taken in */
    int64_t position; /* of the first of them in the whole log */
    int64_t write_ms, window_ms, cursor, ring_from, scanned;
    struct tmr_entry *heap;
    size_t heap_count, heap_room;
    int64_t *near_ticks; /* of those that came into the heap, `count` of them */
    size_t near_count;
    struct tmr_runs runs;
};

/* Take in the messages of queue[0:count) units; how many were. */
size_t tmr_take_in(struct tmr_intake *intake, const uint8_t *queue, size_t count,
                   struct tmr_file log, enum tmr_stop *stop);

/* Push the units of a walk from number `done` on, at most `count`, into the heap, which has room
 * for them; how many were. */
size_t tmr_order(const struct tmr_walk *walk, size_t done, size_t count,
                 const struct tmr_wheel *wheel, struct tmr_file log, struct tmr_entry *heap,
                 size_t *heap_count, enum tmr_stop *stop);

struct tmr_outlet {
    struct dsp_table *queues;
    struct log_tail *tail;
    uint8_t *texts; /* room for the properties of a record */
    size_t max_body;
    const int64_t *rare_ticks; /* whose units are not usual: something of them was recalled */
    size_t rare_count;
    int64_t *ticks; /* of those that were delivered, `count` of them */
    struct tmr_runs runs;
};

/* Deliver the entries of the heap that are due until `until_ms`, at most `count`; returns how
 * many. */
size_t tmr_deliver(struct tmr_outlet *outlet, struct tmr_entry *heap, size_t *heap_count,
                   size_t count, int64_t precision_ms, struct tmr_file log, int64_t now_ms,
                   int64_t until_ms, enum tmr_stop *stop);

#endif
