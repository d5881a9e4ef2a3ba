#define _GNU_SOURCE /* ppoll */
#include "load.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"
#include "load_end.h"
#include "wire_constants.h" /* generated */

enum {
    FRAMES = 256,        /* examined in one split */
    WAIT_MAX_MS = 100,   /* longest delay until `stop` is seen */
    WAIT_AWAY_MS = 5,    /* the same for a new socket of a lost connection */
    TIMER_SLACK_NS = 1   /* the open loop must wake up when a request is due */
};
static const int64_t SECOND_NS = 1000000000;

static int64_t clock_ns(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return (int64_t)at.tv_sec * SECOND_NS + at.tv_nsec;
}

static void see_clock(struct load *load)
{
    load->now_ns = clock_ns(CLOCK_MONOTONIC);
    load_stamp_set(&load->stamp, (load->now_ns + load->epoch_ns) / 1000000);
}

/* The next send begins after the pause: its latency must not contain the pause. */
static void pause_after_refusal(struct load *load)
{
    if (load->pause_us > 0) {
        usleep(load->pause_us);
        see_clock(load);
    }
}

static void account(struct load *load, uint32_t kind, int64_t started_ns, uint64_t messages,
                    uint64_t bytes)
{
    struct load_stats *stats = &load->stats[kind];
    stats->all_messages += messages;
    if (load->draining) {
        load->end_ns = load->now_ns;
    }
    if (load->now_ns >= load->begin_ns) {
        stats->requests++;
        stats->messages += messages;
        stats->bytes += bytes;
        if (started_ns >= load->begin_ns) {
            load_hist_record(stats->total, load->now_ns - started_ns);
            load_hist_record(stats->interval, load->now_ns - started_ns);
        }
    }
}

static void lose(struct load *load, struct load_connection *connection, int32_t code)
{
    if (connection->lost) {
        return;
    }
    connection->lost = load->reconnect && code != LOAD_CODE_MALFORMED ? LOAD_AWAY : LOAD_GONE;
    epoll_ctl(load->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    load->alive[connection->kind]--;
    load->lost_connections++;
    load->stats[connection->kind].in_flight -= connection->in_flight;
    load_count_error(&load->stats[connection->kind], code, connection->in_flight, NULL);
    load_failed(load, connection, connection->in_flight);
    connection->in_flight = 0;
    connection->out_at = connection->out_end = 0;
    if (connection->lost == LOAD_AWAY) {
        memset(connection->started_ns, 0, connection->window * sizeof *connection->started_ns);
        load->away++;
    } else if (connection->kind == LOAD_PULL) {
        for (uint32_t i = 0; i < connection->target_count; i++) {
            struct load_queue *queue = &load->queues[connection->first_target + i];
            load->open_queues -= queue->state == LOAD_QUEUE_OPEN;
            queue->state = LOAD_QUEUE_FAILED;
        }
    }
}

static void watch(struct load *load, struct load_connection *connection, int how, uint32_t writable)
{
    struct epoll_event event = {.events = EPOLLIN | (writable ? (uint32_t)EPOLLOUT : 0u)};
    event.data.u32 = (uint32_t)(connection - load->connections);
    connection->waits_writable = writable;
    if (epoll_ctl(load->epoll_fd, how, connection->fd, &event) < 0) {
        load->failure = errno;
    }
}

static void flush(struct load *load, struct load_connection *connection)
{
    while (!connection->lost && connection->out_at < connection->out_end) {
        ssize_t sent = send(connection->fd, connection->out + connection->out_at,
                            connection->out_end - connection->out_at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0 && errno == EAGAIN) {
            break;
        }
        if (sent < 0) {
            lose(load, connection, LOAD_CODE_LOST);
            return;
        }
        connection->out_at += (size_t)sent;
    }
    if (connection->out_at == connection->out_end) {
        connection->out_at = connection->out_end = 0;
    }
    if (!connection->lost && (connection->out_end > 0) != (connection->waits_writable != 0)) {
        watch(load, connection, EPOLL_CTL_MOD, connection->out_end > 0);
    }
}

static int has_room(const struct load *load, const struct load_connection *connection)
{
    size_t need = connection->request_max;
    if (connection->sizes != NULL) {
        need += load_replay_size(&load->corpus);
    }
    return connection->out_size - connection->out_end >= need;
}

static int may_send(const struct load *load)
{
    const struct load_stats *stats = &load->stats[LOAD_SEND];
    return !load->draining &&
           (load->limit == 0 || stats->all_requests * load->messages_per_send < load->limit);
}

static void start_request(struct load *load, struct load_connection *connection, uint32_t slot,
                          int64_t started_ns, size_t size)
{
    if (load->stats[LOAD_SEND].in_flight + load->stats[LOAD_PULL].in_flight == 0) {
        load->heard_ns = load->now_ns;
    }
    connection->out_end += size;
    connection->started_ns[slot] = started_ns;
    connection->in_flight++;
    load->stats[connection->kind].in_flight++;
    load->stats[connection->kind].all_requests++;
}

static void put_send(struct load *load, struct load_connection *connection, int64_t started_ns)
{
    uint32_t slot = connection->free[--connection->free_count];
    uint32_t target = connection->first_target + connection->next_target;
    const struct load_template *template = &load->templates[target];
    uint8_t *out = connection->out + connection->out_end;
    uint64_t serial = load->serial;
    size_t size;
    if (connection->sizes != NULL) {
        size = load_put_replay(out, load->texts, template, &load->corpus, slot, &load->stamp,
                               &load->serial);
        connection->sizes[slot] = (uint32_t)(size - template->size);
    } else {
        size = load_put_send(out, load->texts, template, &load->body, slot, &load->stamp,
                             &load->serial);
    }
    if (load->due.at != 0) {
        load_put_due(out, &load->due, serial);
    }
    connection->next_target++;
    if (connection->next_target == connection->target_count) {
        connection->next_target = 0;
    }
    start_request(load, connection, slot, started_ns, size);
}

/* Keep the window of a sending connection full. */
static void fill(struct load *load, struct load_connection *connection)
{
    while (connection->free_count > 0 && has_room(load, connection) && may_send(load)) {
        put_send(load, connection, load->now_ns);
    }
}

/* Send the next pull of a queue. The buffer has room for one pull of each queue: unsent bytes move
 * to its front if there is no room after them. */
static void put_pull(struct load *load, struct load_connection *connection, uint32_t slot)
{
    struct load_queue *queue = &load->queues[connection->first_target + slot];
    size_t size;
    if (queue->state != LOAD_QUEUE_OPEN || connection->started_ns[slot] != 0) {
        return;
    }
    if (!has_room(load, connection)) {
        connection->out_end -= connection->out_at;
        memmove(connection->out, connection->out + connection->out_at, connection->out_end);
        connection->out_at = 0;
    }
    size = load_put_pull(connection->out + connection->out_end, load->texts,
                         &load->templates[queue->template], slot, queue->next);
    start_request(load, connection, slot, load->now_ns, size);
}

static void end_queue(struct load *load, struct load_queue *queue, enum load_queue_state state)
{
    if (queue->state == LOAD_QUEUE_OPEN) {
        queue->state = state;
        load->open_queues--;
    }
}

/* Write the requests that follow a good answer; returns its number of messages, -1: it is
 * malformed. */
static int64_t follow(struct load *load, struct load_connection *connection,
                      const struct load_answer *answer)
{
    size_t size;
    int64_t count = load_follow(&load->follow_up, answer, connection->out + connection->out_end,
                                connection->out_size - connection->out_end, &size);
    if (count < 0) {
        lose(load, connection, LOAD_CODE_MALFORMED);
        return -1;
    }
    connection->out_end += size;
    if (load->follow_up.kind == LOAD_FOLLOW_END) {
        return load->messages_per_send;
    }
    connection->awaited = size > 0 ? (uint32_t)count : 0;
    connection->in_flight += connection->awaited;
    load->stats[LOAD_SEND].in_flight += connection->awaited;
    return count;
}

static void take_sent(struct load *load, struct load_connection *connection, uint32_t slot,
                      int64_t started_ns, const struct load_answer *answer)
{
    int64_t messages = load->messages_per_send;
    if (answer->code == ANSWER_SUCCESS) {
        if (load->follow_up.kind != LOAD_FOLLOW_NOTHING &&
            (messages = follow(load, connection, answer)) < 0) {
            return;
        }
        load_acked(load, connection);
        account(load, LOAD_SEND, started_ns, (uint64_t)messages,
                connection->sizes != NULL ? connection->sizes[slot] : load->body.size);
    } else if (load->follow_up.kind == LOAD_FOLLOW_ACKS &&
               (answer->code == ANSWER_PULL_NOT_FOUND || answer->code == ANSWER_POLLING_FULL ||
                answer->code == ANSWER_POLLING_TIMEOUT)) {
        load->dry++;
        return;
    } else {
        load_count_error(&load->stats[LOAD_SEND], answer->code, 1, answer);
        load_failed(load, connection, 1);
        pause_after_refusal(load);
    }
    if (connection->awaited == 0) {
        connection->free[connection->free_count++] = slot;
    }
}

/* Take the answer to an acknowledgement; after the last one the connection pops again. */
static void take_acked(struct load *load, struct load_connection *connection,
                       const struct load_answer *answer)
{
    load->heard_ns = load->now_ns;
    load->end_ns = load->draining ? load->now_ns : load->end_ns;
    load->stats[LOAD_SEND].in_flight--;
    connection->in_flight--;
    if (answer->code != ANSWER_SUCCESS) {
        load_count_error(&load->stats[LOAD_SEND], answer->code, 1, answer);
    }
    if (--connection->awaited == 0) {
        connection->free[connection->free_count++] = 0;
    }
}

static void take_records(struct load *load, struct load_queue *queue, int64_t started_ns,
                         const struct load_answer *answer)
{
    int64_t born_ms = 0;
    int64_t count = load_count_records(answer->body, answer->body_size, load->check_crc, &born_ms);
    if (count < 0) {
        load_count_error(&load->stats[LOAD_PULL], LOAD_CODE_MALFORMED, 1, NULL);
        end_queue(load, queue, LOAD_QUEUE_FAILED);
        return;
    }
    account(load, LOAD_PULL, started_ns, (uint64_t)count, answer->body_size);
    if (load->follow && load->now_ns >= load->begin_ns) {
        load_hist_record(load->delivery, load->now_ns + load->epoch_ns - born_ms * 1000000);
    }
}

static void take_pulled(struct load *load, struct load_queue *queue, int64_t started_ns,
                        const struct load_answer *answer)
{
    int64_t next = queue->next;
    int found = load_number(answer, "nextBeginOffset", &next);
    int moved = next != queue->next;
    switch (answer->code) {
    case ANSWER_SUCCESS:
        take_records(load, queue, started_ns, answer);
        found = found && moved;
        break;
    case ANSWER_PULL_NOT_FOUND:
        if (!load->follow) {
            end_queue(load, queue, LOAD_QUEUE_ENDED);
        }
        break;
    case ANSWER_PULL_RETRY_IMMEDIATELY:
    case ANSWER_PULL_OFFSET_MOVED: /* a new master may not show all messages yet that the old one
                                    * did */
        found = found && (moved || (load->reconnect && load->lost_connections > 0));
        break;
    default:
        load_count_error(&load->stats[LOAD_PULL], answer->code, 1, answer);
        found = answer->code == ANSWER_SYSTEM_BUSY; /* ask for the same offset again */
    }
    if (!found || next < 0) { /* asking again would have the same result forever */
        end_queue(load, queue, LOAD_QUEUE_FAILED);
        return;
    }
    queue->next = next;
    if (!load->follow && next >= queue->end) {
        end_queue(load, queue, LOAD_QUEUE_ENDED);
    }
}

static int pulls_go_on(const struct load *load)
{
    return !load->draining || load->alive[LOAD_SEND] > 0;
}

static void take_answer(struct load *load, struct load_connection *connection,
                        const struct load_answer *answer)
{
    int64_t slot = (int64_t)answer->opaque - LOAD_OPAQUE_BASE, started_ns;
    if (slot == connection->window && connection->awaited > 0) {
        take_acked(load, connection, answer);
        return;
    }
    if (slot < 0 || slot >= connection->window || connection->started_ns[slot] == 0) {
        load->strays++;
        return;
    }
    load->heard_ns = load->now_ns;
    started_ns = connection->started_ns[slot];
    connection->started_ns[slot] = 0;
    connection->in_flight--;
    load->stats[connection->kind].in_flight--;
    if (connection->kind == LOAD_SEND) {
        take_sent(load, connection, (uint32_t)slot, started_ns, answer);
    } else if (load_is_moved(load, LOAD_PULL, answer->code)) {
        load_count_error(&load->stats[LOAD_PULL], answer->code, 1, answer);
    }
    if (load_is_moved(load, connection->kind, answer->code)) {
        lose(load, connection, LOAD_CODE_LOST);
    }
    if (connection->kind == LOAD_SEND || connection->lost) {
        return;
    }
    take_pulled(load, &load->queues[connection->first_target + slot], started_ns, answer);
    if (pulls_go_on(load)) {
        put_pull(load, connection, (uint32_t)slot);
    }
}

/* Handle all whole answers in the buffer; the rest moves to its front. */
static void take_answers(struct load *load, struct load_connection *connection)
{
    struct frame_span frames[FRAMES];
    struct frame_split split = {.count = FRAMES};
    size_t at = 0;
    while (split.count == FRAMES) {
        if (frame_split(connection->in, at, connection->in_end, connection->in_size, frames, FRAMES,
                        &split) != FRAME_OK) {
            lose(load, connection, LOAD_CODE_MALFORMED);
            return;
        }
        for (size_t i = 0; i < split.count; i++) {
            struct load_answer answer;
            if (!load_read(connection->in + frames[i].position, frames[i].size, &connection->hint,
                           &answer)) {
                lose(load, connection, LOAD_CODE_MALFORMED);
                return;
            }
            take_answer(load, connection, &answer);
        }
        at = split.consumed;
    }
    connection->in_end -= at;
    if (at > 0 && connection->in_end > 0) {
        memmove(connection->in, connection->in + at, connection->in_end);
    }
}

static void read_some(struct load *load, struct load_connection *connection)
{
    size_t room = connection->in_size - connection->in_end;
    ssize_t got = recv(connection->fd, connection->in + connection->in_end,
                       room < LOAD_READ_SIZE ? room : LOAD_READ_SIZE, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got <= 0) {
        lose(load, connection, LOAD_CODE_LOST);
        return;
    }
    see_clock(load);
    connection->in_end += (size_t)got;
    take_answers(load, connection);
}

static void serve(struct load *load, struct load_connection *connection, uint32_t events)
{
    if (connection->lost) {
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        read_some(load, connection);
    }
    if (connection->lost) {
        return;
    }
    if (connection->kind == LOAD_SEND && load->interval_ns == 0) {
        fill(load, connection);
    }
    flush(load, connection);
}

/* The next connection with room in its window and its buffer; NULL: all are full. */
static struct load_connection *next_with_room(struct load *load)
{
    for (uint32_t i = 0; i < load->connection_count; i++) {
        struct load_connection *connection = &load->connections[load->next_connection];
        load->next_connection++;
        if (load->next_connection == load->connection_count) {
            load->next_connection = 0;
        }
        if (connection->kind == LOAD_SEND && !connection->lost && connection->free_count > 0 &&
            has_room(load, connection)) {
            return connection;
        }
    }
    return NULL;
}

static int64_t due_ns(const struct load *load)
{
    return load->start_ns + (int64_t)load->issued * load->interval_ns;
}

/* Send the requests that are due by the schedule, each with its due time. */
static void send_due(struct load *load)
{
    while (may_send(load) && due_ns(load) <= load->now_ns) {
        struct load_connection *connection = next_with_room(load);
        if (connection == NULL) {
            break;
        }
        put_send(load, connection, due_ns(load));
        load->issued++;
        if (!connection->touched) {
            connection->touched = 1;
            load->touched[load->touched_count++] = (uint32_t)(connection - load->connections);
        }
    }
    while (load->touched_count > 0) {
        struct load_connection *connection =
            &load->connections[load->touched[--load->touched_count]];
        connection->touched = 0;
        flush(load, connection);
    }
}

static void first_requests(struct load *load, struct load_connection *connection)
{
    if (connection->kind == LOAD_PULL) {
        for (uint32_t slot = 0; pulls_go_on(load) && slot < connection->target_count; slot++) {
            put_pull(load, connection, slot);
        }
    } else if (load->interval_ns == 0) {
        fill(load, connection);
    }
    flush(load, connection);
}

static void begin(struct load *load)
{
    load->epoch_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
    see_clock(load);
    load->start_ns = load->now_ns;
    load->begin_ns = load->start_ns + load->warmup_ns;
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    for (uint32_t i = 0; i < load->queue_count; i++) {
        load->open_queues += load->queues[i].state == LOAD_QUEUE_OPEN;
    }
    for (uint32_t i = 0; i < load->connection_count; i++) {
        load->alive[load->connections[i].kind]++;
        watch(load, &load->connections[i], EPOLL_CTL_ADD, 0);
    }
    for (uint32_t i = 0; i < load->connection_count; i++) {
        first_requests(load, &load->connections[i]);
    }
}

/* Close dropped connections as lost, and continue lost ones that got a new socket. */
static void take_over(struct load *load)
{
    for (uint32_t i = 0; i < load->connection_count; i++) {
        struct load_connection *connection = &load->connections[i];
        int handed = __atomic_load_n(&connection->handed, __ATOMIC_ACQUIRE);
        if (__atomic_exchange_n(&connection->dropped, 0, __ATOMIC_RELAXED)) {
            lose(load, connection, LOAD_CODE_LOST);
        }
        if (!connection->lost || handed == 0) {
            continue;
        }
        load_renew(connection);
        connection->fd = handed - 1;
        connection->lost = 0;
        load->away--;
        load->alive[connection->kind]++;
        watch(load, connection, EPOLL_CTL_ADD, 0);
        __atomic_store_n(&connection->handed, 0, __ATOMIC_RELEASE);
        first_requests(load, connection);
    }
}

static int wait_max_ms(const struct load *load)
{
    return load->away > 0 ? WAIT_AWAY_MS : WAIT_MAX_MS;
}

/* Wait for events, at most until the next request is due. */
static int wait(struct load *load, struct epoll_event *events)
{
    int64_t left_ns;
    if (load->interval_ns == 0 || !may_send(load)) {
        return epoll_wait(load->epoll_fd, events, LOAD_EVENTS, wait_max_ms(load));
    }
    left_ns = due_ns(load) - clock_ns(CLOCK_MONOTONIC);
    /* Due requests that are still unsent have no room, and only an answer makes room. */
    if (due_ns(load) <= load->now_ns || left_ns > wait_max_ms(load) * (SECOND_NS / 1000)) {
        left_ns = wait_max_ms(load) * (SECOND_NS / 1000);
    }
    if (left_ns > 0) {
        struct pollfd polled = {.fd = load->epoll_fd, .events = POLLIN};
        struct timespec timeout = {.tv_sec = 0, .tv_nsec = left_ns};
        ppoll(&polled, 1, &timeout, NULL);
    }
    return epoll_wait(load->epoll_fd, events, LOAD_EVENTS, 0);
}

static void turn(struct load *load)
{
    struct epoll_event events[LOAD_EVENTS];
    int count = wait(load, events);
    if (count < 0 && errno != EINTR) {
        load->failure = errno;
        return;
    }
    see_clock(load);
    for (int i = 0; i < count; i++) {
        serve(load, &load->connections[events[i].data.u32], events[i].events);
    }
    if (__atomic_exchange_n(&load->drops, 0, __ATOMIC_ACQUIRE) || load->away > 0) {
        take_over(load);
    }
    if (load->interval_ns > 0) {
        send_due(load);
    }
    while (!load->draining && load->row_count < load->row_max &&
           load->now_ns >= load->begin_ns + (int64_t)(load->row_count + 1) * SECOND_NS) {
        load_close_row(load);
    }
}

enum load_end load_run(struct load *load)
{
    int end;
    begin(load);
    while ((end = load_judge(load)) < 0) {
        turn(load);
    }
    if (load->end_ns == 0) {
        load->end_ns = load->now_ns;
    }
    if (load->stats[LOAD_SEND].in_flight > 0) {
        load_count_error(&load->stats[LOAD_SEND], LOAD_CODE_UNANSWERED,
                         load->stats[LOAD_SEND].in_flight, NULL);
    }
    return (enum load_end)end;
}
