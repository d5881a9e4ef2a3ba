/* Pops, and an acknowledgement of each message by a separate request.
 *
 *     pop_load PORT CONNECTIONS POP ACK BORN_AT SECONDS BROKER
 *
 * POP is a file with a whole frame, in which 13 digits of the born time are written in place.
 * ACK is the text of an acknowledgement, a format of its opaque, queue id, handle, offset twice; an
 * empty file: nothing is acknowledged. Each connection pops, acknowledges all messages in one
 * write, and pops again once these are answered; it ends when no message is left, or the time
 * has passed.
 *
 * Prints JSON: seconds, popped messages, refusals, latencies of pops in us.
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

enum {
    CONNECTIONS_MAX = 256,
    IN_MAX = 1 << 18,
    OUT_MAX = 1 << 16,
    HANDLE_MAX = 512,
    TEXT_MAX = 4096,
    BUCKETS = 1 << 20,
    NOTHING_FIRST = 209, /* PULL_NOT_FOUND is 19, ended polls 209 and 210 */
    NOTHING_LAST = 210,
    NOT_FOUND = 19
};

struct connection {
    int fd;
    int awaited; /* answers to acknowledgements; 0: an answer to a pop */
    int64_t begun_us;
    size_t have;
    char in[IN_MAX];
};

static struct connection connections[CONNECTIONS_MAX];
static uint32_t latencies[BUCKETS]; /* by us, the last one for all above */
static char pop[TEXT_MAX], ack[TEXT_MAX], out[OUT_MAX];
static size_t pop_size, ack_size;
static long born_at;
static const char *broker;
static int64_t end_us, popped, pops, refused;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t clock_us(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return (int64_t)at.tv_sec * 1000000 + at.tv_nsec / 1000;
}

static size_t load(const char *path, char *text)
{
    FILE *file = fopen(path, "rb");
    size_t size;
    if (file == NULL) {
        fail(path);
    }
    size = fread(text, 1, TEXT_MAX - 1, file);
    text[size] = 0;
    fclose(file);
    return size;
}

static void write_all(int fd, const char *bytes, size_t size)
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

static int send_pop(struct connection *connection)
{
    char digits[32];
    if (clock_us(CLOCK_MONOTONIC) >= end_us) {
        return 0;
    }
    snprintf(digits, sizeof digits, "%013lld", (long long)clock_us(CLOCK_REALTIME) / 1000);
    memcpy(pop + born_at, digits, 13);
    connection->begun_us = clock_us(CLOCK_MONOTONIC);
    connection->awaited = 0;
    write_all(connection->fd, pop, pop_size);
    return 1;
}

/* The value of a member of extFields, up to its quote. */
static void value_of(const char *header, const char *name, char *value, size_t room)
{
    char wanted[64];
    const char *at, *stop;
    snprintf(wanted, sizeof wanted, "\"%s\":\"", name);
    at = strstr(header, wanted);
    stop = at != NULL ? strchr(at + strlen(wanted), '"') : NULL;
    if (stop == NULL || (size_t)(stop - at) >= room) {
        fail(name);
    }
    at += strlen(wanted);
    memcpy(value, at, (size_t)(stop - at));
    value[stop - at] = 0;
}

static size_t put_ack(char *at, const char *queue, const char *handle, const char *offset)
{
    static uint32_t opaque;
    int size = snprintf(at + 8, TEXT_MAX, ack, ++opaque, queue, handle, offset, offset);
    uint32_t words[2] = {htonl((uint32_t)size + 4), htonl((uint32_t)size)};
    memcpy(at, words, 8);
    return (size_t)size + 8;
}

/* Acknowledge the messages in a pop's answer; return their number. */
static int send_acks(struct connection *connection, const char *header)
{
    char starts[TEXT_MAX], offsets[TEXT_MAX], time[32], invisible[32], revive[32];
    char *next_part, *rest = offsets, handle[HANDLE_MAX];
    size_t size = 0;
    int count = 0;
    value_of(header, "startOffsetInfo", starts, sizeof starts);
    value_of(header, "msgOffsetInfo", offsets, sizeof offsets);
    value_of(header, "popTime", time, sizeof time);
    value_of(header, "invisibleTime", invisible, sizeof invisible);
    value_of(header, "reviveQid", revive, sizeof revive);
    while ((next_part = strsep(&rest, ";")) != NULL && *next_part) {
        char *kind = strsep(&next_part, " "), *queue = strsep(&next_part, " "), *offset, *start;
        char place[64];
        snprintf(place, sizeof place, "%s %s ", kind, queue);
        start = strstr(starts, place);
        if (start == NULL) {
            fail("startOffsetInfo");
        }
        snprintf(handle, sizeof handle, "%lld %s %s %s %s %s %s",
                 atoll(start + strlen(place)), time, invisible, revive, kind, broker, queue);
        while ((offset = strsep(&next_part, ",")) != NULL) {
            count++;
            if (ack_size > 0) {
                size += put_ack(out + size, queue, handle, offset);
            }
        }
    }
    write_all(connection->fd, out, size);
    return count;
}

/* Handle an answer; 0 if this connection is done. */
static int go_on(struct connection *connection, const char *header)
{
    const char *at = strstr(header, "\"code\":");
    int code = at != NULL ? atoi(at + 7) : -1, count;
    if (connection->awaited > 0) {
        refused += code != 0;
        return --connection->awaited > 0 || send_pop(connection);
    }
    if (code == NOT_FOUND || (code >= NOTHING_FIRST && code <= NOTHING_LAST)) {
        return 0;
    }
    if (code != 0) {
        if (refused++ == 0) {
            fprintf(stderr, "refused: %.300s\n", header);
        }
        return send_pop(connection);
    }
    int64_t took_us = clock_us(CLOCK_MONOTONIC) - connection->begun_us;
    latencies[took_us < BUCKETS ? took_us : BUCKETS - 1]++;
    count = send_acks(connection, header);
    pops++;
    popped += count;
    connection->awaited = ack_size > 0 ? count : 0;
    return connection->awaited > 0 || send_pop(connection);
}

/* Handle the bytes read from a connection; 0 if it is done. */
static int take(struct connection *connection)
{
    size_t at = 0;
    int more = 1;
    ssize_t got = recv(connection->fd, connection->in + connection->have,
                       IN_MAX - 1 - connection->have, 0);
    if (got <= 0) {
        fail("recv");
    }
    connection->have += (size_t)got;
    while (more && connection->have - at >= 8) {
        uint32_t length, header;
        char *frame = connection->in + at, behind;
        memcpy(&length, frame, 4);
        memcpy(&header, frame + 4, 4);
        length = ntohl(length);
        header = ntohl(header) & 0xFFFFFF;
        if (connection->have - at < 4 + (size_t)length) {
            break;
        }
        behind = frame[8 + header];
        frame[8 + header] = 0;
        more = go_on(connection, frame + 8);
        frame[8 + header] = behind;
        at += 4 + (size_t)length;
    }
    connection->have -= at;
    memmove(connection->in, connection->in + at, connection->have);
    return more;
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
    int64_t wanted = (int64_t)((double)pops * part), seen = 0;
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
    if (count != 8) {
        fprintf(stderr, "see the source\n");
        return 2;
    }
    number = atoi(arguments[2]);
    pop_size = load(arguments[3], pop);
    ack_size = load(arguments[4], ack);
    born_at = atol(arguments[5]);
    broker = arguments[7];
    for (int i = 0; i < number && i < CONNECTIONS_MAX; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        connections[i].fd = connected(atoi(arguments[1]));
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, connections[i].fd, &event);
    }
    begin_us = clock_us(CLOCK_MONOTONIC);
    end_us = begin_us + (int64_t)(atof(arguments[6]) * 1e6);
    for (int i = 0; i < number && i < CONNECTIONS_MAX; i++) {
        open_count += send_pop(&connections[i]);
    }
    while (open_count > 0) {
        int ready = epoll_wait(epoll_fd, events, CONNECTIONS_MAX, 20000);
        if (ready <= 0) {
            errno = ETIMEDOUT;
            fail("no answer for twenty seconds");
        }
        for (int i = 0; i < ready; i++) {
            open_count -= !take(events[i].data.ptr);
        }
    }
    printf("{\"seconds\": %.6f, \"messages\": %lld, \"refused\": %lld, \"p50_us\": %lld,"
           " \"p99_us\": %lld}\n",
           (double)(clock_us(CLOCK_MONOTONIC) - begin_us) / 1e6, (long long)popped,
           (long long)refused, (long long)percentile(0.5), (long long)percentile(0.99));
    return 0;
}
