/* Sends of messages that are delivered later: timers, and half messages with their ends.
 *
 *     later_load PORT CONNECTIONS MESSAGES SEND UNIQUE_AT QUEUE_AT BORN_AT DUE_AT DUE_MS SPREAD_MS
 *                [END OFFSET_AT STATE_AT ID_AT]
 *
 * SEND and END are files with whole frames, whose numbers have a fixed width and are written in
 * place: 12 hex digits of the UNIQ_KEY, one digit of the queue, 13 digits of the born time and of
 * TIMER_DELIVER_MS (0: none), 19 of a log offset and of a queue offset, 12 hex digits of a
 * transaction's id. Each connection sends the next message when the last one was answered; the end
 * of a transaction is oneway, as clients send it, and is sent with the next message. Message n is
 * due at DUE_MS + n mod SPREAD_MS.
 *
 * Prints JSON: seconds, accepted messages, refusals, latencies in us.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_MAX = 65536, CONNECTIONS_MAX = 1024, QUEUES = 8, BUCKETS = 1 << 20, PAUSE_US = 1000 };

struct frame {
    uint8_t *bytes;
    size_t size;
};

struct connection {
    int fd;
    int64_t number; /* of the unanswered message */
    int64_t begun_us;
    size_t have;
    uint8_t in[ANSWER_MAX];
};

static struct connection connections[CONNECTIONS_MAX];
static uint32_t latencies[BUCKETS]; /* by us, the last one for all above */
static struct frame sends, ends;
static long unique_at, queue_at, born_at, due_at, offset_at, state_at, id_at;
static int64_t due_ms, spread_ms, next_number, limit, taken, refused;
static uint8_t out[1 << 17];

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_us(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000 + at.tv_nsec / 1000;
}

static int64_t wall_ms(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static struct frame load(const char *path)
{
    struct frame frame = {malloc(1 << 16), 0};
    FILE *file = fopen(path, "rb");
    if (file == NULL || frame.bytes == NULL) {
        fail(path);
    }
    frame.size = fread(frame.bytes, 1, 1 << 16, file);
    fclose(file);
    return frame;
}

static void put(uint8_t *at, int width, uint64_t value, unsigned base)
{
    while (width-- > 0) {
        at[width] = (uint8_t)"0123456789ABCDEF"[value % base];
        value /= base;
    }
}

/* The digits after a name in an answer. */
static int64_t number_behind(const char *answer, const char *name)
{
    const char *at = strstr(answer, name);
    return at == NULL ? -1 : strtoll(at + strlen(name), NULL, 10);
}

static size_t put_send(uint8_t *at, int64_t number)
{
    memcpy(at, sends.bytes, sends.size);
    put(at + unique_at, 12, (uint64_t)number, 16);
    put(at + queue_at, 1, (uint64_t)number % QUEUES, 10);
    put(at + born_at, 13, (uint64_t)wall_ms(), 10);
    if (due_at > 0) {
        put(at + due_at, 13, (uint64_t)(due_ms + number % spread_ms), 10);
    }
    return sends.size;
}

static size_t put_end(uint8_t *at, const char *answer, int64_t number)
{
    char digits[17] = {0};
    const char *id = strstr(answer, "\"msgId\":\"");
    if (id == NULL || strlen(id) < 9 + 32) {
        fail("an answer without msgId");
    }
    memcpy(digits, id + 9 + 16, 16);
    memcpy(at, ends.bytes, ends.size);
    put(at + offset_at, 19, strtoull(digits, NULL, 16), 10);
    put(at + state_at, 19, (uint64_t)number_behind(answer, "\"queueOffset\":\""), 10);
    put(at + id_at, 12, (uint64_t)number, 16);
    return ends.size;
}

static void write_all(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t done = send(fd, bytes, size, MSG_NOSIGNAL);
        if (done < 0) {
            fail("send");
        }
        bytes += done;
        size -= (size_t)done;
    }
}

/* Handle an answer and send the next message; 0 if this connection is done. */
static int go_on(struct connection *connection, const char *answer)
{
    size_t size = 0;
    if (answer != NULL && number_behind(answer, "\"code\":") == 0) {
        int64_t took_us = now_us() - connection->begun_us;
        latencies[took_us < BUCKETS ? took_us : BUCKETS - 1]++;
        taken++;
        if (ends.size > 0) {
            size = put_end(out, answer, connection->number);
        }
    } else if (answer != NULL) {
        if (refused++ == 0) {
            fprintf(stderr, "refused: %.300s\n", answer);
        }
        usleep(PAUSE_US);
    }
    if (next_number >= limit) {
        write_all(connection->fd, out, size);
        return 0;
    }
    connection->number = next_number++;
    size += put_send(out + size, connection->number);
    connection->begun_us = now_us();
    write_all(connection->fd, out, size);
    return 1;
}

/* Handle the bytes read from a connection; 0 if it is done. */
static int take(struct connection *connection)
{
    ssize_t got = recv(connection->fd, connection->in + connection->have,
                       ANSWER_MAX - 1 - connection->have, 0);
    if (got <= 0) {
        fail("recv");
    }
    connection->have += (size_t)got;
    while (connection->have >= 8) {
        uint32_t length;
        size_t size;
        int more;
        memcpy(&length, connection->in, 4);
        size = 4 + (size_t)ntohl(length);
        if (connection->have < size) {
            break;
        }
        /* The header is text; the next frame follows, whose first byte is 0. */
        uint8_t behind = connection->in[size];
        connection->in[size] = 0;
        more = go_on(connection, (const char *)connection->in + 8);
        connection->in[size] = behind;
        connection->have -= size;
        memmove(connection->in, connection->in + size, connection->have);
        if (!more) {
            return 0;
        }
    }
    return 1;
}

static int connected(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        fail("connect");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int64_t percentile(double part)
{
    int64_t wanted = (int64_t)((double)taken * part), seen = 0;
    for (int64_t us = 0; us < BUCKETS; us++) {
        seen += latencies[us];
        if (seen > wanted) {
            return us;
        }
    }
    return BUCKETS;
}

int main(int count, char **arguments)
{
    struct epoll_event events[CONNECTIONS_MAX];
    int epoll_fd = epoll_create1(0), open_count = 0, number;
    int64_t begin_us;
    if (count != 11 && count != 15) {
        fprintf(stderr, "see the source\n");
        return 2;
    }
    number = atoi(arguments[2]);
    limit = atoll(arguments[3]);
    sends = load(arguments[4]);
    unique_at = atol(arguments[5]);
    queue_at = atol(arguments[6]);
    born_at = atol(arguments[7]);
    due_at = atol(arguments[8]);
    due_ms = atoll(arguments[9]);
    spread_ms = atoll(arguments[10]);
    if (count == 15) {
        ends = load(arguments[11]);
        offset_at = atol(arguments[12]);
        state_at = atol(arguments[13]);
        id_at = atol(arguments[14]);
    }
    for (int i = 0; i < number && i < CONNECTIONS_MAX; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        connections[i].fd = connected(atoi(arguments[1]));
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, connections[i].fd, &event);
    }
    begin_us = now_us();
    for (int i = 0; i < number && i < CONNECTIONS_MAX; i++) {
        open_count += go_on(&connections[i], NULL);
    }
    while (open_count > 0) {
        int ready = epoll_wait(epoll_fd, events, CONNECTIONS_MAX, 10000);
        if (ready <= 0) {
            errno = ETIMEDOUT;
            fail("no answer for ten seconds");
        }
        for (int i = 0; i < ready; i++) {
            open_count -= !take(events[i].data.ptr);
        }
    }
    printf("{\"seconds\": %.6f, \"taken\": %lld, \"refused\": %lld, \"p50_us\": %lld,"
           " \"p99_us\": %lld}\n",
           (double)(now_us() - begin_us) / 1e6, (long long)taken, (long long)refused,
           (long long)percentile(0.5), (long long)percentile(0.99));
    return 0;
}
