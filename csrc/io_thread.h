/* I/O threads: native threads that read and write sockets for the loop.
 *
 * A thread owns sockets: it waits for them, reads them, writes to them. It never needs the
 * interpreter, and knows nothing about the bytes. The loop's thread handles the bytes.
 *
 *     socket -> thread: recv -> `events` (ring) -> loop: protocol -> lane, handlers
 *     socket <- thread: send <- `commands` (ring) <- loop: answers
 *
 * Each side wakes the other through an eventfd, only if the other sleeps. The order of a
 * connection's bytes, of its end and of its commands is the order of the rings.
 *
 * Bounds: a thread reads a connection only while the loop keeps at most IO_WINDOW of its bytes
 * (IO_WINDOW_SHORT while the loop keeps many bytes of all), and only while its ring has room. Both
 * rings are bounded; commands that do not fit wait at the loop, which counts them as unsent.
 *
 * A connection's memory is shared. Each field has one writer, named below. The loop allocates it
 * (io_open), and the thread frees it at IO_FORGET, the loop's last command for it:
 *
 *     io_open -> IO_ADD ... IO_CLOSE or IO_ABORT, or a failing socket -> IO_CLOSED (the thread's
 *     last event; it does not touch the socket after it) -> the loop closes the socket -> IO_FORGET
 */
#ifndef TURBOPUMP_IO_THREAD_H
#define TURBOPUMP_IO_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "byte_ring.h"

#define IO_READ_MAX (128 << 10) /* bytes of a read */
#define IO_WRITE_MAX (256 << 10) /* payload of an IO_WRITE */
#define IO_WINDOW (256 << 10)
#define IO_WINDOW_SHORT 4096
#define IO_RING_ROOM (2 << 20)
#define IO_NO_NOTICE UINT64_MAX

/* Events. */
enum {
    IO_DATA = 1, /* payload: bytes of the socket */
    IO_EOF,      /* the peer closed its side */
    IO_PROGRESS, /* `sent` reached `notice_at` */
    IO_CLOSED,   /* `number`: errno of the failure, 0: as commanded */
};

/* Commands. */
enum {
    IO_ADD = 16,   /* begin to read */
    IO_WRITE,      /* payload: bytes to send */
    IO_WRITE_MORE, /* the same, sent with the connection's next bytes if these follow directly */
    IO_WRITE_FROM, /* the same, `number` bytes at `at`: valid until `sent` has passed them */
    IO_RESUME,     /* look at `paused` and `taken` again */
    IO_END_WRITES, /* close the writing side after the bytes before */
    IO_CLOSE,      /* end after the bytes before */
    IO_ABORT,      /* end now */
    IO_FORGET,
    IO_STOP,
};

/* A side that may sleep until the other side wakes it. */
struct io_waker {
    int descriptor; /* eventfd: readable when woken */
    _Atomic int32_t sleeps;
};

struct io_piece;

struct io_connection {
    /* Written by the loop. */
    void *owner; /* the loop's own */
    int descriptor;
    _Atomic int32_t paused;     /* do not read */
    _Atomic uint64_t taken;     /* bytes that the protocol got */
    _Atomic uint64_t notice_at; /* position of `sent` at which IO_PROGRESS is due, or IO_NO_NOTICE,
                                 * which the thread sets when it becomes due */
    /* Written by the thread. */
    _Alignas(RING_LINE) _Atomic uint64_t sent; /* bytes that the kernel took */
    _Atomic int32_t stalled;                   /* wants IO_RESUME when `taken` has grown */
    uint64_t received;                         /* bytes */
    struct io_piece *first, *last;             /* bytes that the socket did not take */
    struct io_connection *next_due, *next_owing;
    int32_t failed;                /* errno for IO_CLOSED */
    uint8_t is_due, is_owing;      /* on the thread's lists */
    uint8_t may_read, is_full;     /* state of the socket, from edges */
    uint8_t has_hung_up;           /* the peer ended: a short read is not the last */
    uint8_t has_ended;             /* IO_EOF was due: later edges do not repeat it */
    uint8_t owes;                  /* events that are due, as bits */
    uint8_t ends;                  /* command that waits for unsent bytes, as a bit */
    uint8_t is_closed, is_forgotten;
};

struct io_thread {
    pthread_t thread;
    int poll;
    struct io_waker waker, *loop;
    _Atomic int32_t keeps_many; /* by the loop: read little of each connection */
    struct byte_ring events, commands;
    struct io_connection *due, **due_end, *owing, **owing_end;
    struct io_connection *unsent; /* has pieces that were not tried yet */
    int has_no_room; /* in `events`, for a connection of the lists */
    int stops;
    int has_waiting; /* by the loop: commands wait there for room */
};

/* Make the waker of a side that sleeps; returns 0, or an errno. */
int io_waker_init(struct io_waker *waker);

/* Wake the side that sleeps, if it does. To be called after the bytes for it were published. */
void io_wake(struct io_waker *waker);

/* Start a thread that wakes `loop`; `thread` is aligned to RING_LINE. Returns 0, or an errno. */
int io_start(struct io_thread *thread, struct io_waker *loop);

/* End the thread and free its memory; it must have no connection. Waits for its end. */
void io_stop(struct io_thread *thread);

/* Memory for a connection of a non-blocking socket; NULL: there is none. IO_ADD is the caller's. */
struct io_connection *io_open(int descriptor, void *owner);

/* Loop: append a command without a payload; 0: there is no room now. */
int io_command(struct io_thread *thread, uint32_t kind, struct io_connection *connection);

/* Loop: begin an IO_WRITE or IO_WRITE_MORE of `size` bytes, at most IO_WRITE_MAX: the caller fills
 * the payload and calls ring_push. NULL: there is no room now. */
struct ring_record *io_write(struct io_thread *thread, uint32_t kind,
                             struct io_connection *connection, size_t size);

/* Loop: append IO_WRITE_FROM; 0: there is no room now. */
int io_write_from(struct io_thread *thread, struct io_connection *connection, const void *at,
                  size_t size);

/* Loop: ask for IO_PROGRESS when `sent` reaches `position`. Returns 1 if it has already: no event
 * need follow. */
int io_notice(struct io_connection *connection, uint64_t position);

/* Loop: count bytes as taken. Returns 1 if the thread waits for that: IO_RESUME is due. */
int io_take(struct io_connection *connection, uint64_t size);

/* Loop: `sent` of a connection. */
uint64_t io_sent(const struct io_connection *connection);

/* Loop: set `paused`. */
void io_pause(struct io_connection *connection, int paused);

/* Loop: set `keeps_many`. */
void io_keep_many(struct io_thread *thread, int keeps_many);

/* Loop: begin to sleep until a thread wakes it. Returns 1 if one of the `count` threads has events,
 * or room for commands that wait: the loop must look again. */
int io_loop_sleep(struct io_waker *loop, struct io_thread *threads, int count);

/* CPU time of the thread in ns. */
int64_t io_cpu_ns(const struct io_thread *thread);

#endif
