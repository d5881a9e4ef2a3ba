/* Calls of RocketMQ's client service over HTTP/2, as fast as answered; and the minimal server.
 *
 *     grpc_load send PORT CONNECTIONS IN_FLIGHT SECONDS
 *     grpc_load receive PORT CONNECTIONS SECONDS
 *     grpc_load serve PORT
 *
 * The working folder has `settings`, the first message of each connection on its Telemetry stream,
 * and `request`, both with gRPC's prefix. `send` calls SendMessage; a number of the call replaces
 * sixteen zeros of the message's id. `receive` calls ReceiveMessage and then AckMessage for each
 * message, all at once, before it receives again; `ack` is that request without its entry. It ends
 * when no message is left or the time has passed. `serve` answers each call with the bytes in
 * `answer`, whatever the request: the cost of libnghttp2 and the kernel alone.
 *
 * Prints JSON: seconds, messages (sent, or acknowledged), refused, p50_us, p99_us, worst_us.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bytes.h"
#include "h2.h"
#include "load_hist.h"
#include "protobuf.h"

enum {
    CONNECTIONS_MAX = 256,
    CALLS_MAX = 1024, /* per connection */
    READ_MAX = 64 << 10,
    OUT_MAX = 256 << 10,
    REQUEST_MAX = 8 << 10,
    PREFIX = 5,
    ID_DIGITS = 16,
    TELEMETRY = 1,
    SEND = 2,
    RECEIVE = 3,
    ACK = 4
};

struct call {
    int kind; /* 0: free */
    int32_t stream_id;
    int64_t begun_ns;
    struct h2_outbox outbox;
    uint8_t *answer;
    size_t answer_size, answer_room;
    uint8_t request[REQUEST_MAX];
};

struct connection {
    struct h2_session session;
    struct call *calls;
    int fd, open_count, is_done, at_end;
};

static struct h2_library library;
static struct connection connections[CONNECTIONS_MAX];
static uint8_t room[H2_ROOM_LEAST], out[OUT_MAX], read_room[READ_MAX];
static uint8_t settings[REQUEST_MAX], request[REQUEST_MAX], ack[REQUEST_MAX];
static size_t settings_size, request_size, ack_size;
static size_t id_at;
static struct load_hist latencies;
static int64_t end_ns, done_count, refused, number;
static int mode, in_flight, connection_count, epoll_fd;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static size_t load(const char *path, uint8_t *bytes)
{
    FILE *file = fopen(path, "rb");
    size_t size;
    if (file == NULL) {
        fail(path);
    }
    size = fread(bytes, 1, REQUEST_MAX, file);
    fclose(file);
    return size;
}

static size_t pair(uint8_t *at, const char *name, const char *value)
{
    size_t name_size = strlen(name), value_size = strlen(value);
    at[0] = (uint8_t)name_size;
    at[1] = (uint8_t)value_size;
    at[2] = (uint8_t)(value_size >> 8);
    memcpy(at + 3, name, name_size);
    memcpy(at + 3 + name_size, value, value_size);
    return 3 + name_size + value_size;
}

/* The headers of RocketMQ's Java client; each request has its own id. */
static size_t headers_of(int kind, const struct connection *connection, uint8_t *at)
{
    static const char *const names[] = {"", "Telemetry", "SendMessage", "ReceiveMessage",
                                        "AckMessage"};
    char path[128], text[64];
    size_t size = pair(at, ":method", "POST");
    size += pair(at + size, ":scheme", "http");
    snprintf(path, sizeof path, "/apache.rocketmq.v2.MessagingService/%s", names[kind]);
    size += pair(at + size, ":path", path);
    size += pair(at + size, ":authority", "127.0.0.1");
    size += pair(at + size, "content-type", "application/grpc");
    size += pair(at + size, "te", "trailers");
    size += pair(at + size, "user-agent", "grpc-java-netty/1.50.0");
    snprintf(text, sizeof text, "bench@%d@0@1a2b3c", (int)(connection - connections));
    size += pair(at + size, "x-mq-client-id", text);
    size += pair(at + size, "x-mq-language", "JAVA");
    size += pair(at + size, "x-mq-protocol", "v2");
    size += pair(at + size, "x-mq-client-version", "5.0.7");
    size += pair(at + size, "x-mq-date-time", "20260101T000000Z");
    snprintf(text, sizeof text, "00000000-0000-4000-8000-%012lld", (long long)++number);
    size += pair(at + size, "x-mq-request-id", text);
    if (kind != TELEMETRY) {
        size += pair(at + size, "grpc-timeout", kind == RECEIVE ? "20S" : "3S");
    }
    return size;
}

/* Begin a call; the request lies in call->request. */
static void begin(struct connection *connection, struct call *call, int kind, size_t size)
{
    uint8_t pairs[1024];
    size_t pairs_size = headers_of(kind, connection, pairs);
    call->kind = kind;
    call->answer_size = 0;
    call->begun_ns = now_ns();
    memset(&call->outbox, 0, sizeof call->outbox);
    call->outbox.bytes = call->request;
    call->outbox.size = size;
    call->outbox.ends = kind != TELEMETRY;
    connection->session.unsent += size;
    call->stream_id = h2_request(&connection->session, pairs, pairs_size, &call->outbox);
    if (call->stream_id < 0) {
        fail("request");
    }
    connection->open_count += kind != TELEMETRY;
}

static struct call *free_call(struct connection *connection)
{
    for (int i = 0; i < CALLS_MAX; i++) {
        if (connection->calls[i].kind == 0) {
            return &connection->calls[i];
        }
    }
    fail("too many calls");
    return NULL;
}

static void ask(struct connection *connection)
{
    struct call *call = free_call(connection);
    if (now_ns() >= end_ns) {
        connection->is_done = 1;
        return;
    }
    memcpy(call->request, request, request_size);
    if (mode == SEND) {
        char digits[ID_DIGITS + 1];
        snprintf(digits, sizeof digits, "%016llx", (long long)number + 1);
        memcpy(call->request + id_at, digits, ID_DIGITS);
    }
    begin(connection, call, mode, request_size);
}

/* The length-delimited field with that number; at == NULL if missing. */
static struct trf_text field(struct trf_text message, uint64_t wanted)
{
    struct pb_parts parts = pb_parts_of(message);
    while (pb_next(&parts) > 0) {
        if (parts.kind == PB_TEXT && parts.number == wanted) {
            return parts.text;
        }
    }
    return (struct trf_text){NULL, 0};
}

/* Acknowledge a received message. */
static void settle(struct connection *connection, struct trf_text message)
{
    struct call *call = free_call(connection);
    uint8_t entry[1024];
    struct trf_text system = field(message, 3), id = {NULL, 0}, handle = {NULL, 0};
    size_t used;
    if (system.at != NULL) {
        id = field(system, 3);
        handle = field(system, 12);
    }
    if (id.at == NULL || handle.at == NULL || id.size + handle.size > sizeof entry - 16) {
        fail("no receipt");
    }
    used = (size_t)(pb_put_text(pb_put_text(entry, 0x0A, id), 0x12, handle) - entry);
    memcpy(call->request, ack, ack_size);
    used = (size_t)(pb_put_text(call->request + ack_size, 0x1A,
                                (struct trf_text){entry, (uint32_t)used}) - call->request);
    call->request[0] = 0;
    be_put_i32(call->request + 1, (int32_t)(used - PREFIX));
    begin(connection, call, ACK, used);
}

/* Whether an answer begins with the status OK. */
static int is_good(const struct call *call)
{
    static const uint8_t ok[] = {0x08, 0xA0, 0x9C, 0x01};
    return call->answer_size > PREFIX + 6 && call->answer[PREFIX] == 0x0A &&
           memcmp(call->answer + PREFIX + 2, ok, sizeof ok) == 0;
}

static void note(const struct call *call)
{
    load_hist_record(&latencies, now_ns() - call->begun_ns);
}

static void complain(const struct call *call)
{
    if (refused++ == 0) {
        fprintf(stderr, "refused: call %d, %zu bytes: ", call->kind, call->answer_size);
        fwrite(call->answer, 1, call->answer_size < 300 ? call->answer_size : 300, stderr);
        fputc('\n', stderr);
    }
}

static void received(struct connection *connection, struct call *call)
{
    const uint8_t *at = call->answer, *end = at + call->answer_size;
    if (!is_good(call)) {
        connection->is_done = 1; /* no message is left */
        return;
    }
    note(call);
    while (end - at > PREFIX) {
        size_t size = be_u32(at + 1);
        struct trf_text message;
        at += PREFIX;
        if (size > (size_t)(end - at)) {
            fail("a message is cut");
        }
        message = field((struct trf_text){at, (uint32_t)size}, 2);
        if (message.at != NULL) {
            settle(connection, message);
        }
        at += size;
    }
}

static void closed(struct connection *connection, struct call *call)
{
    int kind = call->kind;
    if (kind == TELEMETRY) {
        fail("the Telemetry stream ended");
    }
    connection->open_count--;
    if (kind == RECEIVE) {
        received(connection, call);
    } else {
        if (!is_good(call)) {
            complain(call);
        }
        done_count++;
        if (kind == SEND) {
            note(call);
        }
    }
    call->kind = 0;
    if (mode == SEND || connection->open_count == 0) {
        if (!connection->is_done) {
            ask(connection);
        }
    }
}

static struct call *call_of(struct connection *connection, int32_t stream_id)
{
    for (int i = 0; i < CALLS_MAX; i++) {
        if (connection->calls[i].kind != 0 && connection->calls[i].stream_id == stream_id) {
            return &connection->calls[i];
        }
    }
    return NULL;
}

static void on_data(struct connection *connection, struct call *call, const uint8_t *bytes,
                    size_t size)
{
    if (call->kind == TELEMETRY) {
        if (call->answer_size++ == 0) { /* the client is known now */
            for (int i = 0; i < in_flight; i++) {
                ask(connection);
            }
        }
        return;
    }
    if (call->answer_size + size > call->answer_room) {
        call->answer_room = 2 * (call->answer_size + size);
        call->answer = realloc(call->answer, call->answer_room);
        if (call->answer == NULL) {
            fail("memory");
        }
    }
    memcpy(call->answer + call->answer_size, bytes, size);
    call->answer_size += size;
}

/* The server answers each call when its request is complete. */
static uint8_t serve_pairs[128], serve_trailer[64];
static size_t serve_pairs_size, serve_trailer_size;

static void serve_call(struct connection *connection, int32_t stream_id, int ends)
{
    struct call *call = &connection->calls[(stream_id >> 1) % CALLS_MAX];
    memset(&call->outbox, 0, sizeof call->outbox);
    call->outbox.bytes = request;
    call->outbox.size = request_size;
    call->outbox.trailer = serve_trailer;
    call->outbox.trailer_size = serve_trailer_size;
    call->outbox.ends = ends;
    connection->session.unsent += request_size;
    if (h2_answer(&connection->session, stream_id, serve_pairs, serve_pairs_size,
                  &call->outbox) != 0) {
        fail("answer");
    }
}

static void on_events(struct connection *connection)
{
    const uint8_t *at = room, *end = room + connection->session.room_used;
    static uint8_t events[H2_ROOM_LEAST]; /* the next requests would overwrite them */
    size_t size = (size_t)(end - at);
    memcpy(events, room, size);
    connection->session.room_used = 0;
    for (at = events, end = events + size; at < end;) {
        struct h2_event_head head;
        struct call *call;
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        if (mode == 0) {
            if (head.kind == H2_END || (head.kind == H2_DATA && head.stream_id == 1)) {
                serve_call(connection, head.stream_id, head.kind == H2_END); /* 1: Telemetry */
            }
        } else if ((head.kind == H2_DATA || head.kind == H2_CLOSED) &&
                   (call = call_of(connection, head.stream_id)) != NULL) {
            if (head.kind == H2_DATA) {
                on_data(connection, call, at, head.a);
            } else {
                closed(connection, call);
            }
        }
        at += head.kind == H2_CLOSED ? 0 : head.a + head.b;
    }
}

/* Write all pending bytes; a server's peers read all the time, as ours do. */
static void flush(struct connection *connection)
{
    ssize_t size;
    while ((size = h2_send(&connection->session, out, OUT_MAX)) > 0) {
        const uint8_t *at = out;
        on_events(connection);
        while (size > 0) {
            ssize_t sent = send(connection->fd, at, (size_t)size, MSG_NOSIGNAL);
            if (sent < 0) {
                fail("send");
            }
            at += sent;
            size -= sent;
        }
    }
    if (size < 0) {
        fail("h2_send");
    }
}

/* Read from a connection; 0 if it ended. */
static int hear(struct connection *connection)
{
    ssize_t got = recv(connection->fd, read_room, READ_MAX, 0);
    const uint8_t *at = read_room;
    if (got <= 0) {
        return 0;
    }
    while (got > 0) {
        ssize_t taken = h2_receive(&connection->session, at, (size_t)got);
        if (taken < 0) {
            fail("h2_receive");
        }
        on_events(connection);
        at += taken;
        got -= taken;
    }
    flush(connection);
    return 1;
}

static void open_connection(struct connection *connection, int fd, int is_client)
{
    const struct h2_limits limits = {1000, 16 << 10, 1 << 20, 16 << 20, is_client};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connection->fd = fd;
    connection->calls = calloc(CALLS_MAX, sizeof *connection->calls);
    connection->session.room = room;
    connection->session.room_size = sizeof room;
    if (connection->calls == NULL || h2_open(&connection->session, &library, &limits) != 0) {
        fail("h2_open");
    }
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int socket_at(int port, struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "127.0.0.1", &address->sin_addr);
    return fd;
}

static void serve(int port)
{
    struct epoll_event events[CONNECTIONS_MAX], event = {.events = EPOLLIN, .data.ptr = NULL};
    struct sockaddr_in address;
    int fd = socket_at(port, &address), on = 1, count = 0;
    request_size = load("answer", request);
    serve_pairs_size = pair(serve_pairs, ":status", "200");
    serve_pairs_size += pair(serve_pairs + serve_pairs_size, "content-type", "application/grpc");
    serve_trailer_size = pair(serve_trailer, "grpc-status", "0");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 512) != 0) {
        fail("listen");
    }
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
    for (;;) {
        int ready = epoll_wait(epoll_fd, events, CONNECTIONS_MAX, -1);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection == NULL) {
                connection = &connections[count++ % CONNECTIONS_MAX];
                open_connection(connection, accept(fd, NULL, NULL), 0);
                flush(connection);
            } else if (!hear(connection)) {
                h2_close(&connection->session);
                close(connection->fd);
                free(connection->calls);
                memset(connection, 0, sizeof *connection);
            }
        }
    }
}

static int is_over(void)
{
    for (int i = 0; i < connection_count; i++) {
        if (!connections[i].is_done || connections[i].open_count > 0) {
            return 0;
        }
    }
    return 1;
}

static void run(int port, double seconds)
{
    struct epoll_event events[CONNECTIONS_MAX];
    struct sockaddr_in address;
    int64_t begin_ns = now_ns();
    end_ns = begin_ns + (int64_t)(seconds * 1e9);
    for (int i = 0; i < connection_count; i++) {
        int fd = socket_at(port, &address);
        struct call *call;
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
            fail("connect");
        }
        open_connection(&connections[i], fd, 1);
        call = free_call(&connections[i]);
        memcpy(call->request, settings, settings_size);
        begin(&connections[i], call, TELEMETRY, settings_size);
        flush(&connections[i]);
    }
    while (!is_over()) {
        int ready = epoll_wait(epoll_fd, events, CONNECTIONS_MAX, 20000);
        if (ready <= 0) {
            errno = ETIMEDOUT;
            fail("no answer for twenty seconds");
        }
        for (int i = 0; i < ready; i++) {
            if (!hear(events[i].data.ptr)) {
                fail("a connection was closed");
            }
        }
    }
    printf("{\"seconds\": %.6f, \"messages\": %lld, \"refused\": %lld, \"p50_us\": %.3f,"
           " \"p99_us\": %.3f, \"worst_us\": %.3f}\n",
           (double)(now_ns() - begin_ns) / 1e9, (long long)done_count, (long long)refused,
           (double)load_hist_at(&latencies, 0.5) / 1e3,
           (double)load_hist_at(&latencies, 0.99) / 1e3, (double)latencies.max / 1e3);
}

int main(int count, char **arguments)
{
    static const uint8_t zeros[] = "0000000000000000";
    const uint8_t *found;
    int is_send = count == 6 && strcmp(arguments[1], "send") == 0;
    int is_receive = count == 5 && strcmp(arguments[1], "receive") == 0;
    epoll_fd = epoll_create1(0);
    if (!h2_library_load(&library, NULL)) {
        fail("libnghttp2.so.14");
    }
    if (count == 3 && strcmp(arguments[1], "serve") == 0) {
        serve(atoi(arguments[2]));
    }
    if (!is_send && !is_receive) {
        fprintf(stderr, "see the source\n");
        return 2;
    }
    mode = is_send ? SEND : RECEIVE;
    connection_count = atoi(arguments[3]);
    in_flight = is_send ? atoi(arguments[4]) : 1;
    settings_size = load("settings", settings);
    request_size = load("request", request);
    if (is_send) {
        found = memmem(request, request_size, zeros, ID_DIGITS);
        if (found == NULL) {
            fail("no message id");
        }
        id_at = (size_t)(found - request);
    } else {
        ack_size = load("ack", ack);
    }
    run(atoi(arguments[2]), atof(arguments[is_send ? 5 : 4]));
    return 0;
}
