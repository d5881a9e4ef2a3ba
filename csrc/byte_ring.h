/* A ring of records between two threads: the producer thread appends, the consumer thread removes,
 * in order, without a lock.
 *
 *     head                 tail
 *      v                    v
 *     | record | record ... | free ... |      positions only grow, modulo `room` in the memory
 *
 * A record is a header and its payload in one piece of memory: where the end of the memory is too
 * near, the rest of it becomes a record that the consumer skips. The consumer reads a record in
 * place; its memory is the producer's again after ring_pop. All memory is the ring's. */
#ifndef TURBOPUMP_BYTE_RING_H
#define TURBOPUMP_BYTE_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define RING_ALIGN 16
#define RING_LINE 64 /* the two sides write different cache lines */

/* What precedes a payload. `kind` and the fields after it are the producer's to set. */
struct ring_record {
    uint32_t size; /* of the payload, as given to ring_push */
    uint32_t kind; /* not RING_SKIP */
    void *owner;
    int64_t number;
    const void *at;
};

enum { RING_SKIP = 0 };

struct byte_ring {
    uint8_t *memory;
    uint64_t room; /* bytes, a power of two */
    _Alignas(RING_LINE) _Atomic uint64_t tail;
    uint64_t head_seen; /* the producer's last look at `head` */
    _Alignas(RING_LINE) _Atomic uint64_t head;
    uint64_t tail_seen; /* the consumer's last look at `tail` */
    _Alignas(RING_LINE) _Atomic int32_t is_short; /* the producer waits for room */
};

/* Make an empty ring of `room` bytes, a power of two of at least 4,096. The memory comes from the
 * kernel and costs nothing until it is used. Returns 0, or an errno. */
int ring_init(struct byte_ring *ring, size_t room);

void ring_free(struct byte_ring *ring);

/* The greatest payload that ring_begin finds room for in an empty ring. */
size_t ring_payload_max(const struct byte_ring *ring);

/* Producer: room for a record whose payload has up to `size` bytes, directly after its header;
 * NULL: there is none now. Nothing is visible to the consumer before ring_push. */
struct ring_record *ring_begin(struct byte_ring *ring, size_t size);

/* Producer: append the record that ring_begin returned, with `size` bytes of payload. */
void ring_push(struct byte_ring *ring, struct ring_record *record, size_t size);

/* Producer, after ring_begin found no room: ask to be woken when there is more. Returns whether
 * there may be room already, so that the producer must try again. */
int ring_wait_room(struct byte_ring *ring);

/* Consumer: the oldest record, NULL: the ring is empty. */
const struct ring_record *ring_peek(struct byte_ring *ring);

/* Consumer: remove the record that ring_peek returned. */
void ring_pop(struct byte_ring *ring, const struct ring_record *record);

/* Consumer: whether the producer asked to be woken since the last call. */
int ring_take_waiting(struct byte_ring *ring);

/* The payload of a record. */
static inline uint8_t *ring_payload(const struct ring_record *record)
{
    return (uint8_t *)(record + 1);
}

#endif
