#define _GNU_SOURCE
#include "io_thread.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define POLL_MAX 64       /* sockets reported by a poll */
#define COMMANDS_MAX 1024 /* commands between two polls */
#define IOV_MAX_OWN 32
#define WRITE_TURN (1 << 20) /* bytes sent to a connection before the others have their turn */

enum { OWES_EOF = 1, OWES_PROGRESS = 2, OWES_CLOSED = 4 };
enum { ENDS_WRITES = 1, ENDS_ALL = 2 };

/* Bytes that a socket did not take. */
struct io_piece {
    struct io_piece *next;
    const uint8_t *at;
    size_t left;
    uint8_t own[]; /* a copy of the bytes of IO_WRITE */
};

int io_waker_init(struct io_waker *waker)
{
    atomic_init(&waker->sleeps, 1);
    waker->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return waker->descriptor < 0 ? errno : 0;
}

void io_wake(struct io_waker *waker)
{
    /* With the fence of the sleeping side: it finds the published bytes, or this finds `sleeps`. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&waker->sleeps, memory_order_relaxed)
        && atomic_exchange(&waker->sleeps, 0)) {
        eventfd_write(waker->descriptor, 1);
    }
}

/* Lists of connections. */

static void add_due(struct io_thread *thread, struct io_connection *connection)
{
    if (!connection->is_due) {
        connection->is_due = 1;
        connection->next_due = NULL;
        *thread->due_end = connection;
        thread->due_end = &connection->next_due;
    }
}

static void owe(struct io_thread *thread, struct io_connection *connection, uint8_t events)
{
    connection->owes |= events;
    if (!connection->is_owing) {
        connection->is_owing = 1;
        connection->next_owing = NULL;
        *thread->owing_end = connection;
        thread->owing_end = &connection->next_owing;
    }
}

/* The end of a connection. */

static void drop_pieces(struct io_connection *connection)
{
    while (connection->first != NULL) {
        struct io_piece *piece = connection->first;
        connection->first = piece->next;
        free(piece);
    }
    connection->last = NULL;
}

static void end(struct io_thread *thread, struct io_connection *connection, int failed)
{
    if (connection->is_closed) {
        return;
    }
    connection->is_closed = 1;
    connection->failed = failed;
    epoll_ctl(thread->poll, EPOLL_CTL_DEL, connection->descriptor, NULL);
    drop_pieces(connection);
    owe(thread, connection, OWES_CLOSED);
}

/* Writing. */

static void count_sent(struct io_thread *thread, struct io_connection *connection, size_t size)
{
    uint64_t sent = atomic_load_explicit(&connection->sent, memory_order_relaxed) + size;
    uint64_t notice_at;
    /* Sequentially consistent, as io_notice: one of the two sides sees the other's store. */
    atomic_store(&connection->sent, sent);
    notice_at = atomic_load(&connection->notice_at);
    if (sent >= notice_at
        && atomic_compare_exchange_strong(&connection->notice_at, &notice_at, IO_NO_NOTICE)) {
        owe(thread, connection, OWES_PROGRESS);
    }
}

/* Account for a send of `size` bytes that returned `result`; returns whether bytes were sent. */
static int was_sent(struct io_thread *thread, struct io_connection *connection, ssize_t result)
{
    if (result > 0) {
        count_sent(thread, connection, (size_t)result);
        return 1;
    }
    if (result == 0 || errno == EAGAIN || errno == EWOULDBLOCK) {
        connection->is_full = 1;
    } else if (errno != EINTR) {
        end(thread, connection, errno);
    }
    return 0;
}

static void remove_sent(struct io_connection *connection, size_t size)
{
    while (size > 0) {
        struct io_piece *piece = connection->first;
        if (size < piece->left) {
            piece->at += size;
            piece->left -= size;
            return;
        }
        size -= piece->left;
        connection->first = piece->next;
        free(piece);
    }
    if (connection->first == NULL) {
        connection->last = NULL;
    }
}

static void end_if_written(struct io_thread *thread, struct io_connection *connection)
{
    uint8_t ends = connection->ends;
    if (connection->first != NULL || ends == 0 || connection->is_closed) {
        return;
    }
    connection->ends = 0;
    if (ends & ENDS_ALL) {
        end(thread, connection, 0);
    } else {
        shutdown(connection->descriptor, SHUT_WR);
    }
}

/* Send the waiting pieces until the socket is full; after WRITE_TURN the rest is due later. */
static void send_pieces(struct io_thread *thread, struct io_connection *connection)
{
    size_t total = 0;
    while (connection->first != NULL && !connection->is_full && !connection->is_closed) {
        struct iovec parts[IOV_MAX_OWN];
        struct msghdr message;
        struct io_piece *piece = connection->first;
        ssize_t result;
        size_t count = 0;
        if (total > WRITE_TURN) {
            add_due(thread, connection);
            return;
        }
        for (; piece != NULL && count < IOV_MAX_OWN; piece = piece->next, count++) {
            parts[count].iov_base = (void *)piece->at;
            parts[count].iov_len = piece->left;
        }
        memset(&message, 0, sizeof message);
        message.msg_iov = parts;
        message.msg_iovlen = count;
        result = sendmsg(connection->descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (was_sent(thread, connection, result)) {
            remove_sent(connection, (size_t)result);
            total += (size_t)result;
        }
    }
    end_if_written(thread, connection);
}

/* Append bytes that the socket did not take: a copy, or from where they are. */
static void add_piece(struct io_thread *thread, struct io_connection *connection,
                      const uint8_t *at, size_t size, int copies)
{
    struct io_piece *piece = malloc(sizeof *piece + (copies ? size : 0));
    if (piece == NULL) {
        end(thread, connection, ENOMEM);
        return;
    }
    piece->next = NULL;
    piece->at = at;
    piece->left = size;
    if (copies) {
        memcpy(piece->own, at, size);
        piece->at = piece->own;
    }
    if (connection->first == NULL) {
        connection->first = piece;
    } else {
        connection->last->next = piece;
    }
    connection->last = piece;
}

static void write_bytes(struct io_thread *thread, struct io_connection *connection,
                        const struct ring_record *record)
{
    const uint8_t *at = ring_payload(record);
    size_t size = record->size;
    if (record->kind == IO_WRITE && connection->first == NULL && !connection->is_full) {
        ssize_t result = send(connection->descriptor, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (was_sent(thread, connection, result)) {
            at += result;
            size -= (size_t)result;
        }
        if (size == 0 || connection->is_closed) {
            return;
        }
    }
    if (record->kind == IO_WRITE_FROM) {
        add_piece(thread, connection, record->at, (size_t)record->number, 0);
    } else {
        add_piece(thread, connection, at, size, 1);
    }
    if (record->kind == IO_WRITE) {
        send_pieces(thread, connection);
    } else {
        thread->unsent = connection; /* sent with the next bytes, see take_commands */
    }
}

/* Reading. */

/* Whether the loop keeps too many bytes of the connection; then it sends IO_RESUME later. */
static int is_stalled(struct io_connection *connection, uint64_t window)
{
    uint64_t taken = atomic_load_explicit(&connection->taken, memory_order_relaxed);
    if (connection->received - taken < window) {
        return 0;
    }
    /* Sequentially consistent, as io_take. */
    atomic_store(&connection->stalled, 1);
    if (connection->received - atomic_load(&connection->taken) >= window) {
        return 1;
    }
    atomic_store(&connection->stalled, 0);
    return 0;
}

/* Read once into the ring of events. Returns whether the connection stays due. */
static int read_once(struct io_thread *thread, struct io_connection *connection)
{
    int little = atomic_load_explicit(&thread->keeps_many, memory_order_relaxed);
    size_t room = little ? IO_WINDOW_SHORT : IO_READ_MAX;
    struct ring_record *record;
    ssize_t size;
    if (connection->is_closed || !connection->may_read
        || atomic_load_explicit(&connection->paused, memory_order_relaxed)
        || is_stalled(connection, little ? IO_WINDOW_SHORT : IO_WINDOW)) {
        return 0;
    }
    record = ring_begin(&thread->events, room);
    if (record == NULL) {
        thread->has_no_room = 1;
        return 1;
    }
    size = recv(connection->descriptor, ring_payload(record), room, MSG_DONTWAIT);
    if (size > 0) {
        record->kind = IO_DATA;
        record->owner = connection->owner;
        connection->received += (uint64_t)size;
        ring_push(&thread->events, record, (size_t)size);
        io_wake(thread->loop);
        connection->may_read = (size_t)size == room || connection->has_hung_up;
    } else if (size == 0) {
        connection->may_read = 0;
        if (!connection->has_ended) {
            connection->has_ended = 1;
            owe(thread, connection, OWES_EOF);
        }
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        connection->may_read = 0;
    } else if (errno != EINTR) {
        end(thread, connection, errno);
    }
    return connection->may_read;
}

/* Give each connection of the list one read, and its further writes. */
static void serve_due(struct io_thread *thread)
{
    struct io_connection *connection = thread->due;
    thread->due = NULL;
    thread->due_end = &thread->due;
    while (connection != NULL) {
        struct io_connection *next = connection->next_due;
        int stays = 0;
        connection->is_due = 0;
        if (connection->is_forgotten) {
            free(connection);
        } else {
            send_pieces(thread, connection);
            stays = thread->has_no_room ? connection->may_read : read_once(thread, connection);
        }
        if (stays) {
            add_due(thread, connection);
        }
        connection = next;
    }
}

/* Append the events that are due; stops at the first without room. */
static void push_owed(struct io_thread *thread)
{
    static const uint32_t kinds[] = {IO_EOF, IO_PROGRESS, IO_CLOSED};
    int pushed = 0;
    while (thread->owing != NULL) {
        struct io_connection *connection = thread->owing;
        size_t number;
        for (number = 0; number < sizeof kinds / sizeof *kinds; number++) {
            struct ring_record *record;
            if (!(connection->owes & (1 << number))) {
                continue;
            }
            record = ring_begin(&thread->events, 0);
            if (record == NULL) {
                thread->has_no_room = 1;
                break;
            }
            record->kind = kinds[number];
            record->owner = connection->owner;
            record->number = connection->failed;
            connection->owes &= (uint8_t)~(1 << number);
            ring_push(&thread->events, record, 0);
            pushed = 1;
        }
        if (connection->owes) {
            break;
        }
        connection->is_owing = 0;
        thread->owing = connection->next_owing;
        if (thread->owing == NULL) {
            thread->owing_end = &thread->owing;
        }
    }
    if (pushed) {
        io_wake(thread->loop);
    }
}

/* The thread. */

static void on_socket(struct io_thread *thread, const struct epoll_event *event)
{
    struct io_connection *connection = event->data.ptr;
    uint32_t bits = event->events;
    eventfd_t times;
    if (connection == NULL) {
        eventfd_read(thread->waker.descriptor, &times);
        return;
    }
    if (connection->is_closed) {
        return;
    }
    if (bits & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        connection->has_hung_up = 1;
    }
    if (bits & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        connection->may_read = 1;
        add_due(thread, connection);
    }
    if (connection->is_full && bits & (EPOLLOUT | EPOLLHUP | EPOLLERR)) {
        connection->is_full = 0;
        send_pieces(thread, connection);
    }
}

static void add(struct io_thread *thread, struct io_connection *connection)
{
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.ptr = connection;
    if (epoll_ctl(thread->poll, EPOLL_CTL_ADD, connection->descriptor, &event) != 0) {
        end(thread, connection, errno);
    }
}

static void forget(struct io_thread *thread, struct io_connection *connection)
{
    assert(connection->is_closed && !connection->is_owing);
    if (thread->unsent == connection) {
        thread->unsent = NULL;
    }
    if (connection->is_due) {
        connection->is_forgotten = 1;
    } else {
        free(connection);
    }
}

static void take_command(struct io_thread *thread, const struct ring_record *record)
{
    struct io_connection *connection = record->owner;
    if (record->kind == IO_STOP) {
        thread->stops = 1;
    } else if (record->kind == IO_FORGET) {
        forget(thread, connection);
    } else if (connection->is_closed) {
        return;
    } else if (record->kind == IO_ADD) {
        add(thread, connection);
    } else if (record->kind == IO_RESUME) {
        if (connection->may_read) {
            add_due(thread, connection);
        }
    } else if (record->kind == IO_ABORT) {
        end(thread, connection, 0);
    } else if (record->kind == IO_CLOSE || record->kind == IO_END_WRITES) {
        connection->ends |= record->kind == IO_CLOSE ? ENDS_ALL : ENDS_WRITES;
        end_if_written(thread, connection);
    } else {
        write_bytes(thread, connection, record);
    }
}

/* Send the pieces of the connection whose commands were taken last. */
static void send_unsent(struct io_thread *thread)
{
    if (thread->unsent != NULL) {
        send_pieces(thread, thread->unsent);
        thread->unsent = NULL;
    }
}

static void take_commands(struct io_thread *thread)
{
    const struct ring_record *record;
    int left = COMMANDS_MAX;
    while (left-- > 0 && (record = ring_peek(&thread->commands)) != NULL) {
        if (thread->unsent != NULL && thread->unsent != record->owner) {
            send_unsent(thread);
        }
        take_command(thread, record);
        ring_pop(&thread->commands, record);
    }
    send_unsent(thread);
    if (ring_take_waiting(&thread->commands)) {
        io_wake(thread->loop);
    }
}

/* Whether nothing is left to do before a socket or the loop calls. Sets `sleeps`. */
static int may_sleep(struct io_thread *thread)
{
    if (thread->due != NULL && !thread->has_no_room) {
        return 0;
    }
    atomic_store_explicit(&thread->waker.sleeps, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return ring_peek(&thread->commands) == NULL
           && !(thread->has_no_room && ring_wait_room(&thread->events));
}

static void *run(void *argument)
{
    struct io_thread *thread = argument;
    struct epoll_event events[POLL_MAX];
    while (!thread->stops) {
        int number, count = epoll_wait(thread->poll, events, POLL_MAX, may_sleep(thread) ? -1 : 0);
        atomic_store_explicit(&thread->waker.sleeps, 0, memory_order_relaxed);
        thread->has_no_room = 0;
        for (number = 0; number < count; number++) {
            on_socket(thread, &events[number]);
        }
        take_commands(thread);
        serve_due(thread);
        push_owed(thread);
    }
    return NULL;
}

static int start(struct io_thread *thread)
{
    struct epoll_event event;
    sigset_t every, before;
    int failed;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    if (epoll_ctl(thread->poll, EPOLL_CTL_ADD, thread->waker.descriptor, &event) != 0) {
        return errno;
    }
    /* Signals are for the thread that runs Python; the new one inherits the mask. */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    failed = pthread_create(&thread->thread, NULL, run, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static void release(struct io_thread *thread)
{
    if (thread->poll >= 0) {
        close(thread->poll);
    }
    if (thread->waker.descriptor >= 0) {
        close(thread->waker.descriptor);
    }
    if (thread->events.memory != NULL) {
        ring_free(&thread->events);
    }
    if (thread->commands.memory != NULL) {
        ring_free(&thread->commands);
    }
}

int io_start(struct io_thread *thread, struct io_waker *loop)
{
    int failed;
    assert((uintptr_t)thread % RING_LINE == 0);
    memset(thread, 0, sizeof *thread);
    thread->loop = loop;
    thread->due_end = &thread->due;
    thread->owing_end = &thread->owing;
    thread->poll = epoll_create1(EPOLL_CLOEXEC);
    failed = thread->poll < 0 ? errno : 0;
    failed = io_waker_init(&thread->waker) ?: failed;
    failed = failed ?: ring_init(&thread->events, IO_RING_ROOM);
    failed = failed ?: ring_init(&thread->commands, IO_RING_ROOM);
    failed = failed ?: start(thread);
    if (failed) {
        release(thread);
    }
    return failed;
}

void io_stop(struct io_thread *thread)
{
    while (!io_command(thread, IO_STOP, NULL)) {
        sched_yield();
    }
    io_wake(&thread->waker);
    pthread_join(thread->thread, NULL);
    release(thread);
}
