/* The loop's side of I/O threads, see io_thread.h. */
#define _GNU_SOURCE
#include "io_thread.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct io_connection *io_open(int descriptor, void *owner)
{
    struct io_connection *connection = aligned_alloc(RING_LINE, sizeof *connection);
    if (connection != NULL) {
        memset(connection, 0, sizeof *connection);
        connection->descriptor = descriptor;
        connection->owner = owner;
        atomic_init(&connection->notice_at, IO_NO_NOTICE);
    }
    return connection;
}

int io_command(struct io_thread *thread, uint32_t kind, struct io_connection *connection)
{
    struct ring_record *record = ring_begin(&thread->commands, 0);
    if (record == NULL) {
        return 0;
    }
    record->kind = kind;
    record->owner = connection;
    ring_push(&thread->commands, record, 0);
    return 1;
}

struct ring_record *io_write(struct io_thread *thread, uint32_t kind,
                             struct io_connection *connection, size_t size)
{
    struct ring_record *record = ring_begin(&thread->commands, size);
    if (record != NULL) {
        record->kind = kind;
        record->owner = connection;
    }
    return record;
}

int io_write_from(struct io_thread *thread, struct io_connection *connection, const void *at,
                  size_t size)
{
    struct ring_record *record = ring_begin(&thread->commands, 0);
    if (record == NULL) {
        return 0;
    }
    record->kind = IO_WRITE_FROM;
    record->owner = connection;
    record->at = at;
    record->number = (int64_t)size;
    ring_push(&thread->commands, record, 0);
    return 1;
}

int io_notice(struct io_connection *connection, uint64_t position)
{
    atomic_store(&connection->notice_at, position);
    return atomic_load(&connection->sent) >= position;
}

int io_take(struct io_connection *connection, uint64_t size)
{
    uint64_t taken = atomic_load_explicit(&connection->taken, memory_order_relaxed) + size;
    atomic_store(&connection->taken, taken);
    return atomic_load(&connection->stalled) && atomic_exchange(&connection->stalled, 0);
}

uint64_t io_sent(const struct io_connection *connection)
{
    return atomic_load_explicit(&connection->sent, memory_order_acquire);
}

void io_pause(struct io_connection *connection, int paused)
{
    atomic_store_explicit(&connection->paused, paused, memory_order_relaxed);
}

void io_keep_many(struct io_thread *thread, int keeps_many)
{
    atomic_store_explicit(&thread->keeps_many, keeps_many, memory_order_relaxed);
}

int io_loop_sleep(struct io_waker *loop, struct io_thread *threads, int count)
{
    int number;
    atomic_store_explicit(&loop->sleeps, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    for (number = 0; number < count; number++) {
        struct io_thread *thread = &threads[number];
        if (ring_peek(&thread->events) != NULL
            || (thread->has_waiting && ring_wait_room(&thread->commands))) {
            atomic_store_explicit(&loop->sleeps, 0, memory_order_relaxed);
            return 1;
        }
    }
    return 0;
}

int64_t io_cpu_ns(const struct io_thread *thread)
{
    struct timespec spent;
    clockid_t clock;
    if (pthread_getcpuclockid(thread->thread, &clock) != 0 || clock_gettime(clock, &spent) != 0) {
        return 0;
    }
    return (int64_t)spent.tv_sec * 1000000000 + spent.tv_nsec;
}
