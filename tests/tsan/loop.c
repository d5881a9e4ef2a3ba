/* The loop's side of the I/O threads, as pyx/io_threads.pyx has it, and peers. Every byte is
 * compared with its place in the connection's stream. */
#define _GNU_SOURCE
#include "play.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

void check(struct loop *loop, int holds, const char *text)
{
    int number;
    if (holds) {
        return;
    }
    printf("FOUND: %s\n", text);
    for (number = 0; number < loop->count; number++) {
        struct played *one = &loop->played[number];
        printf("  %d: queued %lu sent to peer %lu, peer sent %lu got %lu, asked %lu, paused %d "
               "eof %d closing %d aborted %d lost %d peer %d\n",
               number, one->queued, one->peer_got, one->peer_sent, one->got, one->asked,
               one->is_paused, one->has_eof, one->is_closing, one->is_aborted, one->is_lost,
               one->peer);
    }
    fflush(stdout);
    _exit(3);
}

uint64_t draw(struct loop *loop, uint64_t below)
{
    loop->random ^= loop->random << 13;
    loop->random ^= loop->random >> 7;
    loop->random ^= loop->random << 17;
    return loop->random % below;
}

uint8_t stream_byte(const struct played *one, int to_peer, uint64_t position)
{
    uint64_t mixed = (position + 1) * 0x9e3779b97f4a7c15u + (uint64_t)(2 * one->number + to_peer);
    return (uint8_t)(mixed >> 32);
}

static void fill(const struct played *one, int to_peer, uint64_t position, uint8_t *at, size_t size)
{
    size_t number;
    for (number = 0; number < size; number++) {
        at[number] = stream_byte(one, to_peer, position + number);
    }
}

static void compare(struct played *one, int to_peer, uint64_t position, const uint8_t *at,
                    size_t size)
{
    size_t number;
    for (number = 0; number < size; number++) {
        if (at[number] != stream_byte(one, to_peer, position + number)) {
            check(one->loop, 0, to_peer ? "a peer got another byte" : "the loop got another byte");
        }
    }
}

/* Commands. */

static int try_command(struct played *one, uint32_t kind, struct lent *lent, uint64_t from,
                       size_t size)
{
    struct io_thread *thread = &one->loop->threads[one->thread];
    struct ring_record *record;
    if (lent != NULL) {
        return io_write_from(thread, one->io, lent->bytes, lent->size);
    }
    if (kind != IO_WRITE && kind != IO_WRITE_MORE) {
        return io_command(thread, kind, one->io);
    }
    record = io_write(thread, kind, one->io, size);
    if (record != NULL) {
        fill(one, 1, from, ring_payload(record), size);
        ring_push(&thread->commands, record, size);
    }
    return record != NULL;
}

static void send_waiting(struct loop *loop, int number)
{
    struct io_thread *thread = &loop->threads[number];
    struct waiting *first;
    while ((first = loop->waiting[number]) != NULL) {
        int is_void = first->one->is_lost && first->kind != IO_FORGET;
        if (!is_void
            && !try_command(first->one, first->kind, first->lent, first->from, first->size)) {
            break;
        }
        loop->waiting[number] = first->next;
        if (first->next == NULL) {
            loop->waiting_end[number] = &loop->waiting[number];
        }
        free(first);
    }
    thread->has_waiting = loop->waiting[number] != NULL;
    io_wake(&thread->waker);
}

static void append(struct played *one, uint32_t kind, struct lent *lent, uint64_t from, size_t size)
{
    struct loop *loop = one->loop;
    struct io_thread *thread = &loop->threads[one->thread];
    struct waiting *made;
    if (!thread->has_waiting && try_command(one, kind, lent, from, size)) {
        if (!loop->wakes_later) {
            io_wake(&thread->waker);
        }
        return;
    }
    made = malloc(sizeof *made);
    *made = (struct waiting){NULL, one, lent, kind, from, size};
    *loop->waiting_end[one->thread] = made;
    loop->waiting_end[one->thread] = &made->next;
    if (!thread->has_waiting) {
        thread->has_waiting = 1;
        while (thread->has_waiting && ring_wait_room(&thread->commands)) {
            send_waiting(loop, one->thread);
        }
    }
}

void command(struct played *one, uint32_t kind)
{
    append(one, kind, NULL, 0, 0);
}

void write_stream(struct played *one, uint32_t kind, size_t size)
{
    uint64_t from = one->queued;
    one->queued += size;
    if (kind == IO_WRITE_FROM) {
        struct lent *lent = malloc(sizeof *lent + size);
        lent->next = NULL;
        lent->size = size;
        lent->end = one->queued;
        fill(one, 1, from, lent->bytes, size);
        *one->lent_end = lent;
        one->lent_end = &lent->next;
        append(one, kind, lent, from, size);
    } else {
        append(one, kind, NULL, from, size);
    }
}

void pause_one(struct played *one, int paused)
{
    one->is_paused = paused;
    io_pause(one->io, paused);
    if (!paused) {
        if (io_take(one->io, one->untaken)) {
            command(one, IO_RESUME);
        }
        one->untaken = 0;
        command(one, IO_RESUME);
    }
}

void ask_notice(struct played *one, uint64_t position)
{
    one->asked = position;
    if (io_notice(one->io, position)) {
        one->asked = 0;
    }
}

/* Overwrite and free memory whose bytes were sent, as its owner may. */
static void free_lent(struct played *one, uint64_t sent)
{
    while (one->lent != NULL && one->lent->end <= sent) {
        struct lent *lent = one->lent;
        one->lent = lent->next;
        if (one->lent == NULL) {
            one->lent_end = &one->lent;
        }
        memset(lent->bytes, 0xee, lent->size);
        free(lent);
    }
}

void free_sent(struct played *one)
{
    if (!one->is_lost && !one->is_aborted) {
        free_lent(one, io_sent(one->io));
    }
}

/* Events. */

static void on_closed(struct played *one, int failed)
{
    struct loop *loop = one->loop;
    check(loop, !one->is_lost, "a connection was closed twice");
    check(loop, failed ? one->peer_was_closed : one->is_closing || one->is_aborted,
          "a connection was closed without a reason");
    if (!failed && !one->is_aborted) {
        check(loop, io_sent(one->io) == one->queued, "a close left bytes unsent");
    }
    one->is_lost = 1;
    close(one->descriptor);
    free_lent(one, UINT64_MAX);
    command(one, IO_FORGET);
}

static void on_event(const struct ring_record *record)
{
    struct played *one = record->owner;
    struct loop *loop = one->loop;
    loop->changes++;
    check(loop, !one->is_lost, "an event followed the end of its connection");
    if (record->kind == IO_DATA) {
        check(loop, !one->has_eof, "bytes followed the peer's end");
        check(loop, one->got + record->size <= one->peer_sent, "more bytes than were sent");
        compare(one, 0, one->got, ring_payload(record), record->size);
        one->got += record->size;
        one->untaken += record->size;
        if (!one->is_paused) {
            int is_due = io_take(one->io, one->untaken);
            one->untaken = 0;
            if (is_due) {
                command(one, IO_RESUME);
            }
        }
    } else if (record->kind == IO_EOF) {
        check(loop, !one->has_eof, "the peer's end came twice");
        check(loop, one->peer_ended || one->peer_was_closed, "an end that the peer did not send");
        check(loop, one->peer_was_closed || one->got == one->peer_sent, "an end before its bytes");
        one->has_eof = 1;
    } else if (record->kind == IO_PROGRESS) {
        uint64_t sent = io_sent(one->io);
        check(loop, sent <= one->queued, "more was sent than written");
        free_lent(one, sent);
        one->asked = sent >= one->asked ? 0 : one->asked;
    } else {
        check(loop, record->kind == IO_CLOSED, "an unknown event");
        on_closed(one, (int)record->number);
    }
}

void turn(struct loop *loop)
{
    eventfd_t times;
    int number, left;
    if (eventfd_read(loop->waker.descriptor, &times) != 0 && !loop->is_due) {
        return;
    }
    for (number = 0; number < THREADS_PLAYED; number++) {
        struct io_thread *thread = &loop->threads[number];
        const struct ring_record *record;
        if (thread->has_waiting) {
            send_waiting(loop, number);
        }
        for (left = 16; left > 0 && (record = ring_peek(&thread->events)) != NULL; left--) {
            on_event(record);
            ring_pop(&thread->events, record);
        }
        if (ring_take_waiting(&thread->events)) {
            io_wake(&thread->waker);
        }
    }
    loop->is_due = io_loop_sleep(&loop->waker, loop->threads, THREADS_PLAYED);
}

void loop_wait(struct loop *loop, int ms)
{
    struct pollfd polled[CONNECTIONS_MAX + 1];
    int number, count = 0;
    polled[count++] = (struct pollfd){loop->waker.descriptor, POLLIN, 0};
    for (number = 0; number < loop->count; number++) {
        struct played *one = &loop->played[number];
        if (one->peer >= 0 && one->peer_reads) {
            polled[count++] = (struct pollfd){one->peer, POLLIN, 0};
        }
    }
    poll(polled, (nfds_t)count, loop->is_due ? 0 : ms);
}

/* Peers. */

int peer_send(struct played *one, size_t size)
{
    uint8_t bytes[8192];
    ssize_t sent;
    size = size < sizeof bytes ? size : sizeof bytes;
    fill(one, 0, one->peer_sent, bytes, size);
    sent = send(one->peer, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
        one->peer_sent += (uint64_t)sent;
        one->loop->changes++;
    }
    return sent > 0;
}

int peer_read(struct played *one)
{
    uint8_t bytes[8192];
    ssize_t size = recv(one->peer, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size > 0) {
        check(one->loop, one->peer_got + (uint64_t)size <= one->queued, "bytes never written");
        compare(one, 1, one->peer_got, bytes, (size_t)size);
        one->peer_got += (uint64_t)size;
        one->loop->changes++;
        return 1;
    }
    if (size == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
        check(one->loop,
              one->is_aborted || one->peer_got == one->queued
                  || (size < 0 && errno == ECONNRESET && one->peer_sent > one->got),
              "a peer's stream ended before its bytes");
        check(one->loop, one->is_closing || one->is_aborted || one->ends_writes,
              "a peer's stream ended without a reason");
        one->peer_reads = 0;
        one->loop->changes++;
    }
    return 0;
}

/* The whole. */

void loop_start(struct loop *loop, int connections)
{
    int number, ends[2], small = 4096;
    loop->count = 0;
    loop->is_due = 1;
    check(loop, io_waker_init(&loop->waker) == 0, "no waker");
    for (number = 0; number < THREADS_PLAYED; number++) {
        loop->waiting[number] = NULL;
        loop->waiting_end[number] = &loop->waiting[number];
        check(loop, io_start(&loop->threads[number], &loop->waker) == 0, "no thread");
    }
    for (number = 0; number < connections; number++) {
        struct played *one = &loop->played[number];
        check(loop, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "no sockets");
        setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
        memset(one, 0, sizeof *one);
        one->loop = loop;
        one->number = number;
        one->thread = number % THREADS_PLAYED;
        one->descriptor = ends[0];
        one->peer = ends[1];
        one->peer_reads = 1;
        one->lent_end = &one->lent;
        one->io = io_open(ends[0], one);
        loop->count++;
        command(one, IO_ADD);
    }
}

void loop_stop(struct loop *loop)
{
    int number;
    for (number = 0; number < THREADS_PLAYED; number++) {
        check(loop, loop->waiting[number] == NULL, "commands wait at a stop");
        io_stop(&loop->threads[number]);
    }
    for (number = 0; number < loop->count; number++) {
        if (loop->played[number].peer >= 0) {
            close(loop->played[number].peer);
        }
    }
    close(loop->waker.descriptor);
}
