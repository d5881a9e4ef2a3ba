#include "ha_copy.h"

#include <string.h>

#include "bytes.h"

enum { DEFAULT_HEAD = 12, SWITCHING_HEAD = 36, TRANSFER = 2, LAST_STORED = 8 };

struct frame {
    int64_t log_offset;
    int64_t confirm;
    size_t head, body;
};

/* Read the head of a frame; 0 if it is not plain, or not whole. */
static int read_frame(const struct ha_copy *copy, const uint8_t *in, size_t size,
                      struct frame *frame)
{
    int32_t body;
    if (copy->protocol == HA_DEFAULT) {
        if (size < DEFAULT_HEAD) {
            return 0;
        }
        frame->head = DEFAULT_HEAD;
        frame->log_offset = be_i64(in);
        frame->confirm = 0;
        body = be_i32(in + 8);
    } else {
        if (size < SWITCHING_HEAD || be_i32(in) != TRANSFER || be_i32(in + 16) != copy->epoch ||
            be_i64(in + 20) != copy->epoch_start) {
            return 0;
        }
        frame->head = SWITCHING_HEAD;
        frame->log_offset = be_i64(in + 8);
        frame->confirm = be_i64(in + 28);
        body = be_i32(in + 4);
    }
    if (body < 0 || body > HA_BODY_MAX || (size_t)body > size - frame->head) {
        return 0;
    }
    frame->body = (size_t)body;
    return frame->log_offset == copy->log_end && frame->log_offset < copy->stop - body;
}

size_t ha_take(struct ha_copy *copy, const uint8_t *in, size_t size)
{
    struct frame frame;
    size_t at = 0;
    copy->first = copy->log_end;
    copy->size = copy->count = 0;
    while (copy->count < HA_BODIES && read_frame(copy, in + at, size - at, &frame)) {
        if (frame.body > 0) {
            copy->bodies[copy->count++] = (struct walk_piece){in + at + frame.head, frame.body};
            copy->size += frame.body;
            copy->log_end += (int64_t)frame.body;
        }
        if (frame.confirm > copy->log_end) {
            frame.confirm = copy->log_end;
        }
        if (frame.confirm > copy->confirm) {
            copy->confirm = frame.confirm;
        }
        at += frame.head + frame.body;
    }
    return at;
}

int ha_write(const struct ha_copy *copy, struct log_tail *tail)
{
    uint8_t head[LAST_STORED];
    uint8_t *at, *begin;
    size_t position, whole, headed = 0;
    if (tail->memory == NULL || copy->count == 0 || copy->first != tail->end ||
        copy->size >= HA_WRITE_MAX || tail->end < tail->base) {
        return 0;
    }
    position = (size_t)(tail->end - tail->base);
    if (position >= tail->size || copy->size >= tail->size - position) {
        return 0;
    }
    if (walk_pieces(copy->bodies, copy->count, tail->size - position, tail->size, &whole) !=
        REC_OK) {
        return 0;
    }
    begin = tail->memory + position;
    at = begin + LAST_STORED;
    for (size_t number = 0; number < copy->count; number++) {
        const uint8_t *from = copy->bodies[number].at;
        size_t size = copy->bodies[number].size;
        size_t here = LAST_STORED - headed < size ? LAST_STORED - headed : size;
        memcpy(head + headed, from, here);
        headed += here;
        memcpy(at, from + here, size - here);
        at += size - here;
    }
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(begin, head, LAST_STORED);
    tail->end += (int64_t)copy->size;
    return 1;
}
