/* Plays I/O threads (csrc/io_thread.c) over socket pairs, by seeds.
 *
 *     play SEED SECONDS LIMIT_S
 *
 * Rounds of random operations, each followed by rest: then all bytes, ends and notices must have
 * arrived, within LIMIT_S without progress. Before it, `races`: single operations while the other
 * side goes to sleep. Prints `FOUND: ...` and returns 3 at the first fault. */
#define _GNU_SOURCE
#include "play.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IDLE_MS 60
#define IDLE_CPU_NS 15000000 /* of IDLE_MS */
#define QUEUED_MAX (256 << 10) /* unread bytes of a connection, either way */
#ifdef __SANITIZE_THREAD__
#define RACES 1000
#else
#define RACES 15000
#endif

static struct loop loop;
static double limit_s;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int is_writable(const struct played *one)
{
    return !one->is_lost && !one->is_closing && !one->is_aborted && !one->ends_writes
           && one->queued - one->peer_got < QUEUED_MAX;
}

static void act_loop(struct played *one)
{
    static const uint32_t kinds[] = {IO_WRITE, IO_WRITE, IO_WRITE_MORE, IO_WRITE_FROM};
    uint64_t size = draw(&loop, 3) ? 1 + draw(&loop, 300) : 1 + draw(&loop, IO_WRITE_MAX);
    uint64_t action = draw(&loop, 240);
    free_sent(one);
    if (action < 160) {
        if (is_writable(one)) {
            write_stream(one, kinds[draw(&loop, 4)], size);
        }
    } else if (action < 200) {
        pause_one(one, !one->is_paused);
    } else if (action < 224) {
        if (one->queued > 0) {
            ask_notice(one, one->queued - draw(&loop, one->queued < 4096 ? one->queued : 4096));
        }
    } else if (action < 232) {
        io_keep_many(&loop.threads[one->thread], (int)draw(&loop, 2));
    } else if (action == 232 && !one->ends_writes) {
        one->ends_writes = 1;
        command(one, IO_END_WRITES);
    } else if (action == 233 && !one->is_closing) {
        one->is_closing = 1;
        pause_one(one, 1);
        command(one, IO_CLOSE);
    } else if (action == 234) {
        one->is_aborted = 1;
        pause_one(one, 1);
        command(one, IO_ABORT);
    }
}

static void act_peer(struct played *one)
{
    uint64_t action = draw(&loop, 256);
    if (one->peer < 0) {
        return;
    }
    if (action < 120) {
        if (!one->peer_ended && one->peer_sent - one->got < QUEUED_MAX) {
            peer_send(one, draw(&loop, 4) ? 1 + draw(&loop, 200) : 8192);
        }
    } else if (action < 250) {
        if (one->peer_reads) {
            peer_read(one);
        }
    } else if (action == 250 && !one->peer_ended) {
        one->peer_ended = 1;
        shutdown(one->peer, SHUT_WR);
    } else if (action == 251) {
        one->peer_was_closed = 1;
        close(one->peer); /* a reset, if bytes are unread */
        one->peer = -1;
    }
}

/* Whether a connection is at rest: nothing is on its way. */
static int rests(struct played *one)
{
    if (one->is_lost) {
        return one->peer < 0 || !one->peer_reads;
    }
    if (one->is_closing || one->is_aborted) {
        return 0;
    }
    if (one->peer_was_closed) {
        return one->has_eof;
    }
    return one->got == one->peer_sent && one->peer_got == one->queued && one->asked == 0
           && one->has_eof == one->peer_ended && (!one->ends_writes || !one->peer_reads);
}

static void rest(const char *text)
{
    uint64_t before = loop.changes;
    double since = now_s();
    int number, busy = 1;
    for (number = 0; number < loop.count; number++) {
        struct played *one = &loop.played[number];
        if (!one->is_lost && one->is_paused && !one->is_closing && !one->is_aborted) {
            pause_one(one, 0);
        }
    }
    while (busy) {
        turn(&loop);
        busy = loop.is_due;
        for (number = 0; number < loop.count; number++) {
            struct played *one = &loop.played[number];
            while (one->peer >= 0 && one->peer_reads && peer_read(one)) {
            }
            busy |= !rests(one);
        }
        if (loop.changes != before) {
            before = loop.changes;
            since = now_s();
        }
        check(&loop, now_s() - since < limit_s, text);
        if (busy) {
            loop_wait(&loop, 50);
        }
    }
}

/* At rest, also with paused and closed connections, the threads use no processor. */
static void idle(void)
{
    int64_t before[THREADS_PLAYED];
    double end_s = now_s() + IDLE_MS / 1e3;
    int number;
    for (number = 0; number < loop.count; number++) {
        struct played *one = &loop.played[number];
        if (!one->is_lost && one->peer >= 0 && !one->peer_ended && number % 3 == 0) {
            pause_one(one, 1);
            peer_send(one, 8192);
        } else if (is_writable(one) && one->peer >= 0 && number % 3 == 1) {
            write_stream(one, IO_WRITE, IO_WRITE_MAX);
            write_stream(one, IO_WRITE, IO_WRITE_MAX);
        }
    }
    for (number = 0; number < 20; number++) {
        turn(&loop);
        usleep(500);
    }
    for (number = 0; number < THREADS_PLAYED; number++) {
        before[number] = io_cpu_ns(&loop.threads[number]);
    }
    while (now_s() < end_s) {
        turn(&loop);
        usleep(2000);
    }
    for (number = 0; number < THREADS_PLAYED; number++) {
        check(&loop, io_cpu_ns(&loop.threads[number]) - before[number] < IDLE_CPU_NS,
              "a thread is busy with nothing to do");
    }
}

static void spin(uint64_t most)
{
    volatile uint64_t left = draw(&loop, most);
    while (left > 0) {
        left--;
    }
}

/* Let the peer read all bytes, without sleeping. */
static void read_busily(struct played *one)
{
    double since = now_s();
    while (one->peer_got < one->queued) {
        int times = 1000;
        while (times-- > 0 && one->peer_got < one->queued) {
            peer_read(one);
        }
        check(&loop, now_s() - since < limit_s, "a wake-up of the thread was lost");
    }
}

/* Single operations in the moments in which the other side goes to sleep: the peer has a byte a
 * moment before its thread does. */
static void races(int count)
{
    struct played *one = &loop.played[0];
    while (count-- > 0) {
        uint64_t kind = draw(&loop, 8), left;
        if (kind < 3) {
            for (left = 20; left > 0; left--) {
                write_stream(one, IO_WRITE, 1);
                read_busily(one);
                spin(400);
            }
        } else if (kind < 5) {
            write_stream(one, IO_WRITE, 1);
            read_busily(one);
            write_stream(one, IO_WRITE, 1);
            spin(draw(&loop, 2) ? 4000 : 20000);
            ask_notice(one, one->queued);
        } else if (kind < 7) {
            peer_send(one, 1 + draw(&loop, 3));
            spin(draw(&loop, 2) ? 8000 : 40000);
            loop.is_due = 1;
            turn(&loop);
        } else {
            for (left = draw(&loop, 40); left > 0; left--) {
                peer_send(one, 1 + draw(&loop, 4000));
                spin(2000);
                loop.is_due |= draw(&loop, 2) == 0;
                turn(&loop);
            }
        }
        rest("a wake-up or a notice was lost");
    }
}

/* More than a ring holds: up, while some connections end, or down to the peers. */
static void crowd(void)
{
    int number, up = (int)draw(&loop, 2);
    for (number = 0; number < loop.count; number++) {
        struct played *one = &loop.played[number];
        if (up && one->peer >= 0 && !one->peer_ended && !one->is_lost) {
            peer_send(one, 8192);
            peer_send(one, 8192);
        }
    }
    usleep(500);
    loop.wakes_later = 1;
    for (number = 0; number < loop.count; number++) {
        if (!up && is_writable(&loop.played[number])) {
            write_stream(&loop.played[number], IO_WRITE, IO_WRITE_MAX);
            write_stream(&loop.played[number], IO_WRITE, IO_WRITE_MAX);
        }
    }
    loop.wakes_later = 0;
    for (number = 0; number < THREADS_PLAYED; number++) {
        io_wake(&loop.threads[number].waker);
    }
    for (number = 0; number < loop.count; number++) {
        struct played *one = &loop.played[number];
        if (up && !one->is_lost && !one->is_aborted && draw(&loop, 6) == 0) {
            one->is_aborted = 1;
            command(one, IO_ABORT);
        }
    }
    usleep(500);
}

static void play_round(void)
{
    int number, steps;
    loop_start(&loop, 1 + (int)draw(&loop, CONNECTIONS_MAX));
    for (number = 0; number < 4; number++) {
        steps = 40 * loop.count;
        while (steps-- > 0) {
            struct played *one = &loop.played[draw(&loop, (uint64_t)loop.count)];
            if (draw(&loop, 2)) {
                act_peer(one);
            } else if (!one->is_lost && !one->is_aborted && !one->is_closing) {
                act_loop(one);
            } else if (!one->is_lost && !one->is_aborted && draw(&loop, 8) == 0) {
                one->is_aborted = 1; /* after a close */
                command(one, IO_ABORT);
            }
            if (draw(&loop, 4) == 0) {
                turn(&loop);
            }
        }
        if (number % 2) {
            crowd();
        }
        rest("bytes, an end or a notice did not arrive");
    }
    if (draw(&loop, 4) == 0) {
        idle();
    }
    for (number = 0; number < loop.count; number++) {
        struct played *one = &loop.played[number];
        if (!one->is_lost) {
            if (draw(&loop, 2)) {
                one->is_aborted = 1;
                command(one, IO_ABORT);
            } else {
                one->is_closing = 1;
                pause_one(one, 1);
                command(one, IO_CLOSE);
            }
        }
    }
    rest("a connection did not end");
    for (number = 0; number < THREADS_PLAYED; number++) {
        while (loop.threads[number].has_waiting) {
            loop_wait(&loop, 10);
            turn(&loop);
        }
    }
    loop_stop(&loop);
}

int main(int count, char **arguments)
{
    uint64_t seed = strtoull(count > 1 ? arguments[1] : "1", NULL, 10);
    double end_s = now_s() + strtod(count > 2 ? arguments[2] : "5", NULL);
    int rounds = 0;
    limit_s = strtod(count > 3 ? arguments[3] : "10", NULL);
    loop.random = seed * 0x9e3779b97f4a7c15u + 1;
    do {
        loop_start(&loop, 1);
        races(RACES);
        loop.played[0].is_aborted = 1;
        command(&loop.played[0], IO_ABORT);
        rest("the connection did not end");
        loop_stop(&loop);
        play_round();
        play_round();
        rounds += 2;
    } while (now_s() < end_s);
    printf("seed %lu: %d rounds\n", seed, rounds);
    return 0;
}
