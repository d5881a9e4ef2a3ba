#define _GNU_SOURCE
#include "byte_ring.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>

/* Bytes that a record takes in the ring. */
static uint64_t cost(size_t size)
{
    uint64_t whole = sizeof(struct ring_record) + size;
    return (whole + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
}

int ring_init(struct byte_ring *ring, size_t room)
{
    void *memory;
    assert(room >= 4096 && (room & (room - 1)) == 0);
    memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
    if (memory == MAP_FAILED) {
        return errno;
    }
    ring->memory = memory;
    ring->room = room;
    ring->head_seen = ring->tail_seen = 0;
    atomic_init(&ring->head, 0);
    atomic_init(&ring->tail, 0);
    atomic_init(&ring->is_short, 0);
    return 0;
}

void ring_free(struct byte_ring *ring)
{
    munmap(ring->memory, ring->room);
    ring->memory = NULL;
}

size_t ring_payload_max(const struct byte_ring *ring)
{
    /* Half: before a large record the rest of the memory may have to be skipped. */
    return ring->room / 2 - sizeof(struct ring_record);
}

static struct ring_record *at_position(const struct byte_ring *ring, uint64_t position)
{
    return (struct ring_record *)(ring->memory + (position & (ring->room - 1)));
}

struct ring_record *ring_begin(struct byte_ring *ring, size_t size)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t needed = cost(size), to_end = ring->room - (tail & (ring->room - 1));
    uint64_t skipped = needed > to_end ? to_end : 0;
    struct ring_record *skip;
    assert(size <= ring_payload_max(ring));
    if (ring->room - (tail - ring->head_seen) < skipped + needed) {
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (ring->room - (tail - ring->head_seen) < skipped + needed) {
            return NULL;
        }
    }
    if (skipped) {
        /* RING_ALIGN is at most the size of a header: what is left always holds size and kind. */
        skip = at_position(ring, tail);
        skip->size = (uint32_t)skipped;
        skip->kind = RING_SKIP;
        tail += skipped;
        atomic_store_explicit(&ring->tail, tail, memory_order_release);
    }
    return at_position(ring, tail);
}

void ring_push(struct byte_ring *ring, struct ring_record *record, size_t size)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    assert(record == at_position(ring, tail) && record->kind != RING_SKIP);
    record->size = (uint32_t)size;
    atomic_store_explicit(&ring->tail, tail + cost(size), memory_order_release);
}

int ring_wait_room(struct byte_ring *ring)
{
    uint64_t head;
    atomic_store(&ring->is_short, 1);
    head = atomic_load(&ring->head);
    return head != ring->head_seen;
}

const struct ring_record *ring_peek(struct byte_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    const struct ring_record *record;
    for (;;) {
        if (head == ring->tail_seen) {
            ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
            if (head == ring->tail_seen) {
                return NULL;
            }
        }
        record = at_position(ring, head);
        if (record->kind != RING_SKIP) {
            return record;
        }
        head += record->size;
        atomic_store_explicit(&ring->head, head, memory_order_release);
    }
}

void ring_pop(struct byte_ring *ring, const struct ring_record *record)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    assert(record == at_position(ring, head));
    /* Sequentially consistent, as ring_wait_room: either the producer finds the room, or the
     * consumer finds `is_short`. */
    atomic_store(&ring->head, head + cost(record->size));
}

int ring_take_waiting(struct byte_ring *ring)
{
    return atomic_load(&ring->is_short) && atomic_exchange(&ring->is_short, 0);
}
