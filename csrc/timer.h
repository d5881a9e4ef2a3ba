/* The timer wheel and the timer log of RocketMQ (store/timer: TimerWheel, Slot, TimerLog).
 *
 * A unit of the timer log, big endian; units of a slot are a chain that runs backwards:
 *
 *     0        4                 12       16                24       28                36
 *     +--------+-----------------+--------+-----------------+--------+-----------------+--------+
 *     | 52     | prevPos         | magic  | currWriteTimeMs | delay  | logOffset       | size   |
 *     +--------+-----------------+--------+-----------------+--------+-----------------+--------+
 *     40 hash of the real topic (int32)    44 reserved, 0 (int64)
 *
 * The slot's time is currWriteTimeMs + delay. A file that has no room for a unit and a filler ends
 * with the filler: int32 bytes left, int64 0, int32 0xCBD43194.
 *
 * A slot of the wheel, 32 bytes: tick (time / precision) 0, firstPos 8, lastPos 16, num 24 (int32),
 * magic 28 (int32). The slot of a tick is number tick mod slots, and belongs to the tick only if it
 * has this tick stored: a wheel that went round once leaves the slots of the former round as they
 * are.
 *
 * The caller checks positions inside a buffer; the bytes there are not trusted. */
#ifndef TURBOPUMP_TIMER_H
#define TURBOPUMP_TIMER_H

#include <stddef.h>
#include <stdint.h>

enum {
    TMR_SIZE_AT = 0,
    TMR_PREV_AT = TMR_SIZE_AT + 4,
    TMR_MAGIC_AT = TMR_PREV_AT + 8,
    TMR_WRITE_MS_AT = TMR_MAGIC_AT + 4,
    TMR_DELAY_AT = TMR_WRITE_MS_AT + 8,
    TMR_LOG_OFFSET_AT = TMR_DELAY_AT + 4,
    TMR_RECORD_SIZE_AT = TMR_LOG_OFFSET_AT + 8,
    TMR_HASH_AT = TMR_RECORD_SIZE_AT + 4,
    TMR_RESERVED_AT = TMR_HASH_AT + 4,
    TMR_UNIT = TMR_RESERVED_AT + 8,
    TMR_FILLER = 4 + 8 + 4,
    TMR_SLOT = 32,
    TMR_DEFAULT = 1,
    TMR_ROLL = 2,
    TMR_DELETE = 4
};
_Static_assert(TMR_UNIT == 52, "TimerLog.UNIT_SIZE");
#define TMR_BLANK_MAGIC ((int32_t)0xCBD43194)
#define TMR_NONE ((int64_t)-1)

struct tmr_unit {
    int64_t prev;       /* byte of the timer log of the slot's unit before, TMR_NONE: none */
    int64_t write_ms;   /* epoch ms */
    int64_t log_offset; /* of the message's record in the commit log */
    int32_t magic;
    int32_t delay_ms;
    int32_t size; /* of that record */
    int32_t topic_hash;
};
struct tmr_slot {
    int64_t first, last; /* bytes of the timer log of its units, TMR_NONE: empty */
    int32_t num, magic;  /* timers less recalls */
};
struct tmr_wheel {
    uint8_t *memory;
    int64_t slots;
    int64_t precision_ms;
};

/* Read a unit at `position` of the whole log: 1, or 0 for other bytes (zeros, a filler, damage). */
int tmr_get(const uint8_t *at, int64_t position, struct tmr_unit *unit);
/* Write the TMR_UNIT bytes of a unit. */
void tmr_put(uint8_t *at, const struct tmr_unit *unit);

/* Fill the rest of a file with its filler; `left` is TMR_FILLER or more. */
void tmr_put_filler(uint8_t *at, int32_t left);

/* The slot of a tick; a slot of another tick, or one never used, is empty: -1, -1, 0. */
struct tmr_slot tmr_slot_get(const struct tmr_wheel *wheel, int64_t tick);
/* Replace the slot of a tick, also one of another round. */
void tmr_slot_put(const struct tmr_wheel *wheel, int64_t tick, struct tmr_slot slot);

/* The tick of a unit. */
int64_t tmr_tick(const struct tmr_wheel *wheel, const struct tmr_unit *unit);

/* The first tick of [from, until) whose slot is not empty, else `until`. */
int64_t tmr_next_tick(const struct tmr_wheel *wheel, int64_t from, int64_t until);

/* Sum of num over the slots of [from, until). */
int64_t tmr_count(const struct tmr_wheel *wheel, int64_t from, int64_t until);

/* Write a unit at buf[at], which is byte `position` of the log, as the last of its slot; its `prev`
 * is filled in. */
void tmr_add(const struct tmr_wheel *wheel, uint8_t *buf, int64_t position, struct tmr_unit *unit);

/* The first tick of [from, until) whose place in the wheel is free, else `until`: the place is
 * the tick's own, or was never used, or belongs to a slot that was delivered. Slots before `cursor`
 * were delivered; slots before `high` were delivered except units at `floor` or after it. */
int64_t tmr_free_tick(const struct tmr_wheel *wheel, int64_t from, int64_t until, int64_t cursor,
                      int64_t high, int64_t floor);

/* Enter the units of buf[at:end), a part of a single file whose first byte is byte `base` of the
 * log, into the slots of their times; units before `from_ms` are left out. Each unit's `prev` is
 * set to the last unit of its slot, because the slots of the writer may have had another length;
 * `changed` is set to 1 if that changed a byte, `crowded` if units of two rounds came into one
 * place of the wheel, or a unit lies more than a round after `from_ms`: then the wheel cannot be
 * used. Returns the position of the first bytes that are no unit. */
size_t tmr_replay(const struct tmr_wheel *wheel, uint8_t *buf, size_t at, size_t end, int64_t base,
                  int64_t from_ms, int *changed, int *crowded);

/* The end of the units of buf[at:end), without a wheel. */
size_t tmr_find_end(const uint8_t *buf, size_t at, size_t end, int64_t base);

/* Take the units of buf[at:end), the last ones of the log, out of their slots, the last one first:
 * the opposite of adding. The units stay. */
void tmr_undo(const struct tmr_wheel *wheel, const uint8_t *buf, size_t at, size_t end,
              int64_t base);

/* A unit on its way to delivery. */
struct tmr_entry {
    int64_t due_ms;     /* epoch ms, and so write_ms */
    int64_t position;   /* byte of the timer log */
    int64_t log_offset; /* of the message's record in the commit log */
    int64_t write_ms;
    int64_t tick; /* of its slot */
    int32_t size;
    int32_t magic;
};

/* A walk along a slot's chain, from its newest unit to the oldest. Entries go into ring[0:room),
 * which in the end holds the oldest units; positions of recalls that are not to be rolled go into
 * recalls[0:recall_room). The counts include all units passed. */
struct tmr_walk {
    struct tmr_entry *ring;
    int64_t *recalls;
    size_t room, count, recall_room, recall_count;
    int64_t tick;
    int64_t position; /* of the next unit, TMR_NONE at the end of the chain */
};

/* Continue through buf, a file whose first byte is byte `base`, while the chain stays in it and at
 * or above `floor`. Returns 0 if the chain is broken. */
int tmr_follow(const struct tmr_wheel *wheel, const uint8_t *buf, size_t size, int64_t base,
               int64_t floor, struct tmr_walk *walk);

/* A heap of entries, the first due (then the first written) on top; the caller owns the memory,
 * which has room for one more entry than `count`. */
void tmr_heap_push(struct tmr_entry *heap, size_t count, struct tmr_entry entry);

/* Keep only the entries of keep[0:keep_count), which ascends; returns the number left. */
size_t tmr_heap_keep(struct tmr_entry *heap, size_t count, const int64_t *keep, size_t keep_count);
/* Remove and return the first of `count` entries, at least one. */
struct tmr_entry tmr_heap_pop(struct tmr_entry *heap, size_t count);

/* The values in the properties of a timer message; a missing or malformed number, or one beyond an
 * int64, is TMR_NONE. */
struct tmr_facts {
    int64_t out_ms;     /* TIMER_OUT_MS */
    int64_t delay_ms;   /* TIMER_DELAY_SEC * 1000, or else TIMER_DELAY_MS */
    int64_t deliver_ms; /* TIMER_DELIVER_MS */
    int64_t rolled_ms;  /* TIMER_ENQUEUE_MS of a rolled message: start of its delay */
    int is_rolled;      /* TIMER_ROLL_TIMES is there */
    int32_t topic_hash; /* Java's of REAL_TOPIC, 0 without */
    int is_delete;      /* TIMER_DEL_UNIQKEY is there */
    const uint8_t *topic;
    size_t topic_size; /* 0: there is no REAL_TOPIC */
};
void tmr_read_facts(const uint8_t *properties, size_t size, struct tmr_facts *facts);

/* The epoch millisecond at which a message with these facts is due. Its exact time counts where it
 * is possible with its TIMER_OUT_MS, otherwise the end of its slot. Its writer's slots may have
 * been wider than these: TIMER_OUT_MS is a multiple of their width, up to TMR_WIDEST_MS. */
enum { TMR_WIDEST_MS = 10000 };
int64_t tmr_due_ms(const struct tmr_facts *facts, int64_t stored_ms, int64_t precision_ms);

#endif
