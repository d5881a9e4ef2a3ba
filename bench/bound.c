/* The bounds with which a broker is compared: the minimal work on this machine, in one thread.

       bound respond FOLDER             answers the load generator, prints its port
       bound msync FILE SECONDS         repeatedly one dirty page and its msync
       bound copy FILE SIZE SECONDS     records of SIZE bytes into a warm mapping

   `respond` is a bare epoll loop: it finds frame boundaries, copies each request once into a warm
   mapping and answers with a fixed reply in which only the opaque changes. A pull is answered with
   bytes from a warm mapping, one writev for all pulls of a read. FOLDER has the replies, whole
   frames whose opaque is LOAD_OPAQUE_BASE: send, pull (its header; nextBeginOffset has 19 digits),
   and a file named CODE for each other request; `records` has the bodies of pulls, `group` bytes
   each. No checks, no table, no queue, no log. bench/bound.py compiles and runs it. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"
#include "load_frame.h"

enum {
    CONNECTIONS = 4096,
    IN_SIZE = 256 * 1024,
    FRAMES = 256,
    OTHERS = 16,
    EVENTS = 256,
    PAGE = 4096,
    PULL = 11,
    OFFSET_DIGITS = 19,
    PULL_COUNT = 32
};
static const size_t LOG_SIZE = 256u << 20, SYNC_SIZE = 64u << 20;

struct reply {
    int32_t code;
    size_t size;
    size_t opaque_at;
    size_t offset_at;
    uint8_t *bytes;
};

struct connection {
    uint8_t *in;
    size_t end;
    struct load_hint hint;
};

static struct reply send_reply, pull_reply, others[OTHERS];
static struct connection connections[CONNECTIONS];
static uint8_t *store, *records;
static size_t other_count, store_at, records_size, records_at, group_size;
static int64_t next_offset;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now_s(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static uint8_t *warm_mapping(const char *path, size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    uint8_t *map;
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)size) != 0)
        die(path);
    map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        die(path);
    for (size_t at = 0; at < size; at += PAGE)
        map[at] = 1;
    close(fd);
    return map;
}

static uint8_t *map_file(const char *name, size_t *size)
{
    struct stat about;
    int fd = open(name, O_RDONLY);
    uint8_t *map;
    if (fd < 0 || fstat(fd, &about) < 0)
        die(name);
    *size = (size_t)about.st_size;
    map = mmap(NULL, *size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (map == MAP_FAILED)
        die(name);
    close(fd);
    return map;
}

static uint8_t *read_file(const char *name, size_t *size)
{
    struct stat about;
    uint8_t *bytes;
    int fd = open(name, O_RDONLY);
    if (fd < 0 || fstat(fd, &about) < 0)
        die(name);
    *size = (size_t)about.st_size;
    bytes = malloc(*size + 1);
    if (bytes == NULL || read(fd, bytes, *size) != about.st_size)
        die(name);
    bytes[*size] = 0;
    close(fd);
    return bytes;
}

static void load_reply(struct reply *reply, const char *name)
{
    uint8_t *found;
    reply->bytes = read_file(name, &reply->size);
    reply->code = atoi(name);
    found = memmem(reply->bytes, reply->size, "\"opaque\":", 9);
    if (found == NULL)
        die(name);
    reply->opaque_at = (size_t)(found - reply->bytes) + 9;
    found = memmem(reply->bytes, reply->size, "\"nextBeginOffset\":\"", 19);
    reply->offset_at = found == NULL ? 0 : (size_t)(found - reply->bytes) + 19;
}

/* Ten columns, padded with blanks: any opaque fits, and the text stays JSON. */
static void put_opaque(uint8_t *at, int32_t opaque)
{
    if (opaque >= LOAD_OPAQUE_BASE) {
        load_put_opaque(at, LOAD_JSON, opaque);
        return;
    }
    for (int i = LOAD_OPAQUE_DIGITS - 1; i >= 0; i--) {
        at[i] = opaque > 0 || i == LOAD_OPAQUE_DIGITS - 1 ? (uint8_t)('0' + opaque % 10) : ' ';
        opaque /= 10;
    }
}

static size_t put_reply(uint8_t *out, const struct reply *reply, int32_t opaque)
{
    memcpy(out, reply->bytes, reply->size);
    put_opaque(out + reply->opaque_at, opaque);
    return reply->size;
}

static void write_all(int fd, struct iovec *parts, int count)
{
    while (count > 0) {
        ssize_t sent = writev(fd, parts, count);
        if (sent < 0 && errno == EAGAIN) {
            struct pollfd polled = {.fd = fd, .events = POLLOUT};
            poll(&polled, 1, -1);
            continue;
        }
        if (sent < 0)
            return;
        while (count > 0 && (size_t)sent >= parts->iov_len) {
            sent -= (ssize_t)parts->iov_len;
            parts++;
            count--;
        }
        if (count > 0) {
            parts->iov_base = (uint8_t *)parts->iov_base + sent;
            parts->iov_len -= (size_t)sent;
        }
    }
}

static const struct reply *reply_of(int32_t code)
{
    for (size_t i = 0; i < other_count; i++)
        if (others[i].code == code)
            return &others[i];
    return &send_reply;
}

static void keep(const uint8_t *frame, size_t size)
{
    if (store_at + size > LOG_SIZE)
        store_at = 0;
    memcpy(store + store_at, frame, size);
    store_at += size;
}

/* Answer the frames of a read; replies lie in `out`, bodies of pulls in the mapping. */
static void answer(int fd, struct connection *connection, const struct frame_span *frames,
                   size_t count)
{
    static uint8_t out[1 << 20];
    struct iovec parts[2 * FRAMES];
    size_t end = 0;
    int used = 0;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *frame = connection->in + frames[i].position;
        struct load_answer request;
        size_t begin = end;
        if (!load_read(frame, frames[i].size, &connection->hint, &request))
            continue;
        if (request.code == PULL) {
            int64_t rest = next_offset += PULL_COUNT;
            end += put_reply(out + end, &pull_reply, request.opaque);
            for (int digit = OFFSET_DIGITS; digit > 0; rest /= 10)
                out[begin + pull_reply.offset_at + (size_t)--digit] = (uint8_t)('0' + rest % 10);
            parts[used++] = (struct iovec){out + begin, end - begin};
            records_at = records_at + 2 * group_size > records_size ? 0 : records_at + group_size;
            parts[used++] = (struct iovec){records + records_at, group_size};
            continue;
        }
        keep(frame, frames[i].size);
        end += put_reply(out + end, reply_of(request.code), request.opaque);
        if (used > 0 &&
            (uint8_t *)parts[used - 1].iov_base + parts[used - 1].iov_len == out + begin)
            parts[used - 1].iov_len += end - begin;
        else
            parts[used++] = (struct iovec){out + begin, end - begin};
    }
    write_all(fd, parts, used);
}

static void serve(int fd)
{
    struct connection *connection = &connections[fd];
    struct frame_span frames[FRAMES];
    struct frame_split split = {.count = FRAMES};
    size_t at = 0;
    ssize_t got = recv(fd, connection->in + connection->end, IN_SIZE - connection->end, 0);
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN)
            close(fd);
        return;
    }
    connection->end += (size_t)got;
    while (split.count == FRAMES) {
        if (frame_split(connection->in, at, connection->end, IN_SIZE, frames, FRAMES, &split) !=
            FRAME_OK) {
            close(fd);
            return;
        }
        answer(fd, connection, frames, split.count);
        at = split.consumed;
    }
    connection->end -= at;
    memmove(connection->in, connection->in + at, connection->end);
}

static int listen_somewhere(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, size) < 0 || listen(fd, 1024) < 0 ||
        getsockname(fd, (struct sockaddr *)&here, &size) < 0)
        die("listen");
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);
    return fd;
}

static void take(int epoll, int listener)
{
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd < 0 || fd >= CONNECTIONS)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connections[fd].in == NULL)
        connections[fd].in = malloc(IN_SIZE);
    connections[fd].end = 0;
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/* Print the port first: the driver needs it for the replies, and then sends a line. */
static void respond(const char *folder)
{
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN};
    int epoll = epoll_create1(0), listener = listen_somewhere();
    char name[64];
    if (chdir(folder) < 0)
        die(folder);
    while (fgets(name, sizeof name, stdin) != NULL && name[0] != '\n') {
        name[strcspn(name, "\n")] = 0;
        if (other_count < OTHERS)
            load_reply(&others[other_count++], name);
    }
    load_reply(&send_reply, "send");
    load_reply(&pull_reply, "pull");
    records = map_file("records", &records_size);
    group_size = (size_t)atol((char *)read_file("group", &(size_t){0}));
    store = warm_mapping("log", LOG_SIZE);
    event.data.fd = listener;
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listener)
                take(epoll, listener);
            else
                serve(events[i].data.fd);
        }
    }
}

/* Append 128 bytes and sync their page, like a group commit with a single send. */
static void sync_pages(const char *path, double seconds)
{
    uint8_t *map = warm_mapping(path, SYNC_SIZE);
    double begin = now_s(), end = begin;
    size_t count = 0;
    msync(map, SYNC_SIZE, MS_SYNC);
    for (begin = now_s(); end - begin < seconds; end = now_s()) {
        size_t at = count * 128 % SYNC_SIZE;
        memset(map + at, (int)(count & 0xFF), 128);
        if (msync(map + at / PAGE * PAGE, PAGE, MS_SYNC) < 0)
            die(path);
        count++;
    }
    printf("{\"count\": %zu, \"seconds\": %.6f}\n", count, end - begin);
}

static void copy_records(const char *path, size_t size, double seconds)
{
    uint8_t *map = warm_mapping(path, LOG_SIZE), *record = malloc(size);
    double begin = now_s(), end = begin;
    size_t count = 0, at = 0;
    if (record == NULL || size == 0 || size > LOG_SIZE)
        die("record");
    memset(record, 'x', size);
    for (; end - begin < seconds; end = now_s()) {
        for (int i = 0; i < 1000; i++, count++, at += size) {
            if (at + size > LOG_SIZE)
                at = 0;
            memcpy(map + at, record, size);
        }
    }
    printf("{\"count\": %zu, \"seconds\": %.6f}\n", count, end - begin);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "respond") == 0)
        respond(argv[2]);
    else if (argc == 4 && strcmp(argv[1], "msync") == 0)
        sync_pages(argv[2], atof(argv[3]));
    else if (argc == 5 && strcmp(argv[1], "copy") == 0)
        copy_records(argv[2], (size_t)atol(argv[3]), atof(argv[4]));
    else {
        fputs("bound respond FOLDER | msync FILE SECONDS | copy FILE SIZE SECONDS\n", stderr);
        return 2;
    }
    return 0;
}
