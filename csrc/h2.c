#include "h2.h"

#include <string.h>

enum {
    PAIR_COST = 32,              /* of each header, in addition to its bytes: RFC 9113, 6.5.2 */
    ERR_CALLBACK = -902,         /* the error that ends the connection */
    EVENT = sizeof(struct h2_event_head)
};

static void put(struct h2_session *session, const struct h2_event_head *head, const uint8_t *a,
                const uint8_t *b)
{
    uint8_t *at = session->room + session->room_used;
    memcpy(at, head, EVENT);
    at += EVENT;
    if (a != NULL) {
        memcpy(at, a, head->a);
        at += head->a;
    }
    if (b != NULL) {
        memcpy(at, b, head->b);
        at += head->b;
    }
    session->room_used = (size_t)(at - session->room);
}

static int fits(const struct h2_session *session, size_t size)
{
    return session->room_size - session->room_used >= EVENT + size;
}

/* Most events leave half of the room free; the session pauses so that the caller empties the room
 * before the next frame. */
static int pause_if_full(struct h2_session *session)
{
    session->paused = session->room_used > session->room_size / 2;
    return session->paused ? H2_ERR_PAUSE : 0;
}

static int begin_headers(void *library_session, const struct h2_frame *frame, void *user)
{
    struct h2_session *session = user;
    (void)library_session, (void)frame;
    session->block_size = 0;
    return 0;
}

static int header(void *library_session, const struct h2_frame *frame, const uint8_t *name,
                  size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                  void *user)
{
    struct h2_session *session = user;
    struct h2_event_head head = {.kind = H2_HEADER, .stream_id = frame->stream_id};
    (void)library_session, (void)flags;
    session->block_size += name_size + value_size + PAIR_COST;
    if (session->block_size > session->headers_max) {
        return 0; /* the BLOCK event reports it */
    }
    if (!fits(session, name_size + value_size)) {
        return ERR_CALLBACK;
    }
    head.a = (uint32_t)name_size;
    head.b = (uint32_t)value_size;
    put(session, &head, name, value);
    return pause_if_full(session);
}

static int data(void *library_session, uint8_t flags, int32_t stream_id, const uint8_t *bytes,
                size_t size, void *user)
{
    struct h2_session *session = user;
    struct h2_event_head head = {.kind = H2_DATA, .stream_id = stream_id, .a = (uint32_t)size};
    (void)library_session, (void)flags;
    if (!fits(session, size)) {
        return ERR_CALLBACK;
    }
    put(session, &head, bytes, NULL);
    return pause_if_full(session);
}

static int frame_recv(void *library_session, const struct h2_frame *frame, void *user)
{
    struct h2_session *session = user;
    struct h2_event_head head = {.stream_id = frame->stream_id};
    (void)library_session;
    if (!fits(session, EVENT)) {
        return ERR_CALLBACK;
    }
    if (frame->type == H2_FRAME_HEADERS) {
        head.kind = H2_BLOCK;
        head.flag = session->block_size > session->headers_max;
        put(session, &head, NULL, NULL);
    }
    if (frame->type <= H2_FRAME_HEADERS && (frame->flags & H2_FLAG_END_STREAM) != 0) {
        head.kind = H2_END;
        head.flag = 0;
        put(session, &head, NULL, NULL);
    } else if (frame->type == H2_FRAME_PING && (frame->flags & H2_FLAG_ACK) != 0) {
        head.kind = H2_PONG;
        put(session, &head, NULL, NULL);
    } else if (frame->type == H2_FRAME_GOAWAY) {
        head.kind = H2_AWAY;
        put(session, &head, NULL, NULL);
    }
    return 0;
}

static int stream_close(void *library_session, int32_t stream_id, uint32_t error, void *user)
{
    struct h2_session *session = user;
    struct h2_event_head head = {.kind = H2_CLOSED, .stream_id = stream_id, .a = error};
    (void)library_session;
    if (!fits(session, 0)) {
        return ERR_CALLBACK;
    }
    put(session, &head, NULL, NULL);
    return 0;
}

/* Read pairs as h2_answer takes them; returns their number, -1 for malformed pairs. */
static int pairs_of(const uint8_t *at, size_t size, struct h2_pair *pairs)
{
    const uint8_t *end = at + size;
    int count = 0;
    while (at < end) {
        size_t name_size, value_size;
        if (count == H2_PAIRS_MAX || end - at < 3) {
            return -1;
        }
        name_size = at[0];
        value_size = (size_t)at[1] | (size_t)at[2] << 8;
        at += 3;
        if ((size_t)(end - at) < name_size + value_size) {
            return -1;
        }
        pairs[count++] = (struct h2_pair){at, at + name_size, name_size, value_size, 0};
        at += name_size + value_size;
    }
    return count;
}

static ssize_t read_outbox(void *library_session, int32_t stream_id, uint8_t *room, size_t size,
                           uint32_t *flags, union h2_source *source, void *user)
{
    struct h2_session *session = user;
    struct h2_outbox *outbox = source->at;
    size_t left = outbox->size - outbox->at;
    if (left == 0 && !outbox->ends) {
        outbox->waits = 1;
        return H2_ERR_DEFERRED;
    }
    if (left > size) {
        left = size;
    }
    if (left > 0) {
        memcpy(room, outbox->bytes + outbox->at, left);
        outbox->at += left;
        session->unsent -= left;
    }
    if (outbox->at == outbox->size && outbox->ends) {
        struct h2_pair pairs[H2_PAIRS_MAX];
        int count = pairs_of(outbox->trailer, outbox->trailer_size, pairs);
        *flags |= H2_DATA_EOF;
        if (count > 0) {
            *flags |= H2_DATA_NO_END_STREAM;
            if (session->library->submit_trailer(library_session, stream_id, pairs,
                                                 (size_t)count) != 0) {
                return ERR_CALLBACK;
            }
        }
    }
    return (ssize_t)left;
}

int h2_open(struct h2_session *session, const struct h2_library *library,
            const struct h2_limits *limits)
{
    const struct h2_setting settings[] = {
        /* A client accepts no pushed streams; a server opens no streams, and announces how many it
         * accepts. */
        {limits->is_client ? H2_SETTINGS_ENABLE_PUSH : H2_SETTINGS_MAX_CONCURRENT_STREAMS,
         limits->is_client ? 0 : limits->streams_max},
        {H2_SETTINGS_INITIAL_WINDOW_SIZE, limits->stream_window},
        {H2_SETTINGS_MAX_HEADER_LIST_SIZE, limits->headers_max},
    };
    void *callbacks = NULL;
    int failed = library->callbacks_new(&callbacks);
    if (failed != 0) {
        return failed;
    }
    session->library = library;
    session->headers_max = limits->headers_max;
    session->skip = limits->is_client ? 0 : H2_PREFACE;
    session->head_used = session->continuations = 0;
    session->paused = 0;
    session->unsent = session->room_used = session->block_size = 0;
    library->on_begin_headers(callbacks, begin_headers);
    library->on_header(callbacks, header);
    library->on_frame_recv(callbacks, frame_recv);
    library->on_data_chunk(callbacks, data);
    library->on_stream_close(callbacks, stream_close);
    failed = (limits->is_client ? library->client_new : library->server_new)(&session->session,
                                                                             callbacks, session);
    library->callbacks_del(callbacks);
    if (failed != 0) {
        session->session = NULL;
        return failed;
    }
    failed = library->submit_settings(session->session, 0, settings,
                                      sizeof settings / sizeof settings[0]);
    if (failed == 0) {
        failed = library->set_window(session->session, 0, 0, limits->window);
    }
    return failed;
}

void h2_close(struct h2_session *session)
{
    void *library_session = session->session;
    session->session = NULL;
    if (library_session != NULL) {
        /* The library does not call stream_close for the streams that are open. */
        session->library->session_del(library_session);
    }
}

/* Walk from frame to frame; 0 for a block of headers with too many frames: only recent versions of
 * the library limit them, and each of these frames costs its sender nothing. */
static int follow(struct h2_session *session, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        size_t part;
        if (session->skip > 0) {
            part = size < session->skip ? size : session->skip;
            session->skip -= (uint32_t)part;
        } else {
            part = sizeof session->head - session->head_used;
            part = size < part ? size : part;
            memcpy(session->head + session->head_used, bytes, part);
            session->head_used += (uint32_t)part;
            if (session->head_used == sizeof session->head) {
                const uint8_t *head = session->head;
                session->head_used = 0;
                session->skip = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
                session->continuations =
                    head[3] == H2_FRAME_CONTINUATION ? session->continuations + 1 : 0;
                if (session->continuations > H2_CONTINUATIONS_MAX) {
                    return 0;
                }
            }
        }
        bytes += part;
        size -= part;
    }
    return 1;
}

ssize_t h2_receive(struct h2_session *session, const uint8_t *bytes, size_t size)
{
    size_t taken = 0;
    session->room_used = 0;
    while ((taken < size || session->paused) && session->room_used <= session->room_size / 2) {
        size_t slice = size - taken < H2_SLICE ? size - taken : H2_SLICE;
        int was_paused = session->paused;
        ssize_t got;
        session->paused = 0;
        got = session->library->mem_recv(session->session, bytes + taken, slice);
        if (got < 0) {
            return got;
        }
        if (!follow(session, bytes + taken, (size_t)got)) {
            return ERR_CALLBACK;
        }
        if (got == 0 && !was_paused) {
            break;
        }
        taken += (size_t)got;
    }
    return (ssize_t)taken;
}

ssize_t h2_send(struct h2_session *session, uint8_t *out, size_t size)
{
    size_t used = 0;
    session->room_used = 0;
    while (size - used >= 2 * H2_SLICE && session->room_used <= session->room_size / 2) {
        const uint8_t *bytes;
        ssize_t got = session->library->mem_send(session->session, &bytes);
        if (got < 0) {
            return got;
        }
        if (got == 0) {
            break;
        }
        if ((size_t)got > size - used) {
            return ERR_CALLBACK;
        }
        memcpy(out + used, bytes, (size_t)got);
        used += (size_t)got;
    }
    return (ssize_t)used;
}

int h2_answer(struct h2_session *session, int32_t stream_id, const uint8_t *pairs, size_t size,
              struct h2_outbox *outbox)
{
    struct h2_pair found[H2_PAIRS_MAX];
    struct h2_provider provider = {.source.at = outbox, .read = read_outbox};
    int count = pairs_of(pairs, size, found);
    if (count <= 0) {
        return ERR_CALLBACK;
    }
    return session->library->submit_response(session->session, stream_id, found, (size_t)count,
                                             outbox != NULL ? &provider : NULL);
}

int32_t h2_request(struct h2_session *session, const uint8_t *pairs, size_t size,
                   struct h2_outbox *outbox)
{
    struct h2_pair found[H2_PAIRS_MAX];
    struct h2_provider provider = {.source.at = outbox, .read = read_outbox};
    int count = pairs_of(pairs, size, found);
    if (count <= 0) {
        return ERR_CALLBACK;
    }
    return session->library->submit_request(session->session, NULL, found, (size_t)count, &provider,
                                            NULL);
}

int h2_more(struct h2_session *session, int32_t stream_id, struct h2_outbox *outbox)
{
    if (!outbox->waits) {
        return 0;
    }
    outbox->waits = 0;
    return session->library->resume_data(session->session, stream_id);
}
