/* A loop in C, its connections and their peers, to play I/O threads with; see play.c. */
#ifndef TURBOPUMP_TSAN_PLAY_H
#define TURBOPUMP_TSAN_PLAY_H

#include "io_thread.h"

#define CONNECTIONS_MAX 32
#define THREADS_PLAYED 2

/* Memory of IO_WRITE_FROM: freed when the bytes before `end` are sent. */
struct lent {
    struct lent *next;
    uint64_t end;
    size_t size;
    uint8_t bytes[];
};

/* A command that waits for room. */
struct waiting {
    struct waiting *next;
    struct played *one;
    struct lent *lent; /* of IO_WRITE_FROM */
    uint32_t kind;
    uint64_t from; /* of IO_WRITE: position and number of the bytes */
    size_t size;
};

struct loop;

/* A connection: the loop's side, and its peer. */
struct played {
    struct loop *loop;
    struct io_connection *io;
    int number, thread, descriptor;
    uint64_t queued, got, untaken, asked; /* `asked`: position of the notice, 0: none */
    int is_paused, has_eof, ends_writes, is_closing, is_aborted, is_lost;
    struct lent *lent, **lent_end;
    int peer; /* -1: closed */
    uint64_t peer_sent, peer_got;
    int peer_ended, peer_reads, peer_was_closed;
};

struct loop {
    struct io_waker waker;
    struct io_thread threads[THREADS_PLAYED];
    struct waiting *waiting[THREADS_PLAYED], **waiting_end[THREADS_PLAYED];
    struct played played[CONNECTIONS_MAX];
    int count, is_due;
    int wakes_later; /* commands do not wake: the thread is woken after the last */
    uint64_t changes; /* grows with everything that happens */
    uint64_t random;
};

/* Report and end the process if `holds` is 0. */
void check(struct loop *loop, int holds, const char *text);

uint64_t draw(struct loop *loop, uint64_t below);

/* Byte `position` of a connection's stream, from the peer or to it. */
uint8_t stream_byte(const struct played *one, int to_peer, uint64_t position);

void loop_start(struct loop *loop, int connections);

/* Stop the threads; all connections must be lost. */
void loop_stop(struct loop *loop);

void command(struct played *one, uint32_t kind);
void write_stream(struct played *one, uint32_t kind, size_t size);
void pause_one(struct played *one, int paused);
void ask_notice(struct played *one, uint64_t position);

/* Overwrite and free the memory of IO_WRITE_FROM whose bytes were sent. */
void free_sent(struct played *one);

/* Take events if the loop is due or was woken, then begin to sleep. */
void turn(struct loop *loop);

/* Wait up to `ms` for a thread or for a peer's socket. */
void loop_wait(struct loop *loop, int ms);

/* Peers: send up to `size` bytes, or read the bytes there; return whether bytes were moved. */
int peer_send(struct played *one, size_t size);
int peer_read(struct played *one);

#endif
