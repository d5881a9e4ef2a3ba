/* The broker's steps over many timers at once: into the wheel, from a slot into the order of their
 * milliseconds, and to their consumers. No Python object is made for a message.
 *
 *     queue units -> tmr_take_in -> wheel and timer log
 *     slot        -> tmr_order   -> heap
 *     heap        -> tmr_deliver -> commit log, at its tail
 *
 * The reference is broker/scheduled/timers.py, message by message. A step stops before the first
 * message that is unusual (TMR_RARE), or whose record is in another file (TMR_AWAY), and its caller
 * handles this message, or finds that file. The caller owns all memory; the contents of records are
 * not trusted. */
#ifndef TURBOPUMP_TIMER_STEPS_H
#define TURBOPUMP_TIMER_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "dispatch.h"
#include "tail.h"
#include "timer.h"

enum tmr_stop { TMR_ALL = 0, TMR_RARE = 1, TMR_AWAY = 2 };
enum { TMR_RUNS = 64, TMR_TOPIC_MAX = 127 };
#define TMR_FAR_MS ((int64_t)1 << 53) /* later than the time of any message */

/* The readable part of a commit log file that begins at `base`. */
struct tmr_file {
    const uint8_t *memory;
    size_t end;
    int64_t base;
};

/* Consecutive messages of a single topic. */
struct tmr_run {
    uint8_t topic[TMR_TOPIC_MAX];
    size_t topic_size;
    int64_t count, size;
};
struct tmr_runs {
    size_t count;
    struct tmr_run runs[TMR_RUNS];
};

/* State of taking in. Slots before `cursor` were delivered, so timers for them go into the slot of
 * `cursor`; timers `window_ms` or more after `write_ms` are unusual; slots a round or more after
 * `ring_from` may hold units of another round; from slots before `scanned` units were moved to the
 * heap already, so further units of these slots go into the heap, too, as many as `heap_room`
 * allows. */
struct tmr_intake {
    const struct tmr_wheel *wheel;
    uint8_t *units;   /* of the timer log, with room for the new units */
    int64_t position; /* of the first new unit in the whole log */
    int64_t write_ms, window_ms, cursor, ring_from, scanned;
    struct tmr_entry *heap;
    size_t heap_count, heap_room;
    int64_t *near_ticks; /* ticks of the new entries of the heap, `count` of them */
    size_t near_count;
    struct tmr_runs runs;
};

/* Take in the messages of queue[0:count) units; returns the number taken in. */
size_t tmr_take_in(struct tmr_intake *intake, const uint8_t *queue, size_t count,
                   struct tmr_file log, enum tmr_stop *stop);

/* Push at most `count` units of a walk, beginning with number `done`, into the heap, which has room
 * for them; returns the number pushed. */
size_t tmr_order(const struct tmr_walk *walk, size_t done, size_t count,
                 const struct tmr_wheel *wheel, struct tmr_file log, struct tmr_entry *heap,
                 size_t *heap_count, enum tmr_stop *stop);

struct tmr_outlet {
    struct dsp_table *queues;
    struct log_tail *tail;
    uint8_t *texts; /* room for the properties of a record */
    size_t max_body;
    const int64_t *rare_ticks; /* ticks with recalls, whose units are unusual */
    size_t rare_count;
    int64_t *ticks; /* of the delivered messages, `count` of them */
    struct tmr_runs runs;
};

/* Append the messages of at most `count` entries of the heap that are due until `until_ms` to the
 * commit log, and remove these entries; returns their number. Both times are in epoch ms; the store
 * time is now_ms, or the log's latest one if that is later. */
size_t tmr_deliver(struct tmr_outlet *outlet, struct tmr_entry *heap, size_t *heap_count,
                   size_t count, int64_t precision_ms, struct tmr_file log, int64_t now_ms,
                   int64_t until_ms, enum tmr_stop *stop);

#endif
