#include "h2_calls.h"

#include <string.h>

#include "bytes.h"

enum { EVENT = sizeof(struct h2_event_head) };

struct h2_call *h2_find_call(struct h2_calls *calls, int32_t stream_id)
{
    while (calls->first < calls->behind && calls->calls[calls->first].stream_id == 0) {
        calls->first++;
    }
    for (int number = calls->first; number < calls->behind; number++) {
        if (calls->calls[number].stream_id == stream_id) {
            return &calls->calls[number];
        }
    }
    return NULL;
}

static void note_header(struct h2_calls *calls, const struct h2_event_head *head,
                        const uint8_t *text, size_t here)
{
    struct trf_text name = {text, head->a}, value = {text + head->a, head->b};
    struct h2_call *call;
    if (calls->block_of != head->stream_id) {
        calls->block_of = 0;
        call = h2_find_call(calls, head->stream_id);
        if (call != NULL) {
            call->stream_id = 0; /* trailers of a client */
            return;
        }
        if (calls->first == calls->behind) {
            calls->first = calls->behind = 0;
        }
        if (calls->behind == H2_CALLS_MAX) {
            return;
        }
        calls->block_of = head->stream_id;
        call = &calls->calls[calls->behind];
        memset(call, 0, sizeof *call);
        call->begin = here;
    }
    grc_header(&calls->calls[calls->behind].header, name, value);
}

static void note_block(struct h2_calls *calls, const struct h2_event_head *head, size_t behind)
{
    struct h2_call *call;
    if (calls->block_of != 0 && calls->block_of == head->stream_id) {
        call = &calls->calls[calls->behind];
        if (head->flag == 0 && grc_is_plain(&call->header)) {
            call->stream_id = head->stream_id;
            call->behind = behind;
            calls->behind++;
        }
    }
    calls->block_of = 0;
}

void h2_note_headers(struct h2_calls *calls, const uint8_t *events, size_t here, size_t behind)
{
    struct h2_event_head head;
    memcpy(&head, events + here, EVENT);
    if (head.kind == H2_HEADER) {
        note_header(calls, &head, events + here + EVENT, here);
    } else {
        note_block(calls, &head, behind);
    }
}

void h2_note_data(struct h2_call *call, size_t here, size_t size)
{
    if (call->pieces == H2_PIECES_MAX) {
        call->stream_id = 0;
        return;
    }
    call->data[call->pieces] = here;
    call->sizes[call->pieces] = size;
    call->pieces++;
}

size_t h2_size_of_call(const struct h2_call *call)
{
    size_t size = call->behind - call->begin;
    for (int at = 0; at < call->pieces; at++) {
        size += EVENT + call->sizes[at];
    }
    return size;
}

int h2_may_be_whole(const uint8_t *events, const struct h2_call *call)
{
    uint8_t prefix[GRC_PREFIX] = {0};
    size_t known = 0, total = 0, size;
    for (int at = 0; at < call->pieces; at++) {
        size = call->sizes[at] < GRC_PREFIX - known ? call->sizes[at] : GRC_PREFIX - known;
        memcpy(prefix + known, events + call->data[at] + EVENT, size);
        known += size;
        total += call->sizes[at];
    }
    if (prefix[0] != 0) {
        return 0;
    }
    size = be_u32(prefix + 1);
    return known < GRC_PREFIX || (size <= H2_MESSAGE_MAX && total <= GRC_PREFIX + size);
}

void h2_take_out(uint8_t *event, size_t size)
{
    struct h2_event_head head = {.kind = H2_SERVED, .a = (uint32_t)size};
    memcpy(event, &head, EVENT);
}

void h2_take_call_out(uint8_t *events, const struct h2_call *call)
{
    h2_take_out(events + call->begin, call->behind - call->begin - EVENT);
    for (int at = 0; at < call->pieces; at++) {
        h2_take_out(events + call->data[at], call->sizes[at]);
    }
}

int h2_breaks_one(const uint8_t *events, size_t size)
{
    struct h2_event_head head;
    for (size_t at = 0; at < size;) {
        memcpy(&head, events + at, EVENT);
        at += EVENT;
        if (head.kind == H2_CLOSED && head.a != 0) {
            return 1;
        }
        if (head.kind == H2_DATA || head.kind == H2_HEADER) {
            at += (size_t)head.a + head.b;
        }
    }
    return 0;
}
