#include "frame.h"

#include "bytes.h"

enum frame_status frame_split(const uint8_t *buf, size_t at, size_t len, size_t max_frame,
                              struct frame_span *frames, size_t max_count,
                              struct frame_split *split)
{
    split->count = 0;
    split->consumed = at;
    split->needed = 0;
    while (split->count < max_count && len - at >= FRAME_LENGTH_SIZE) {
        int32_t length = be_i32(buf + at);
        size_t size;
        if (length < FRAME_MIN - FRAME_LENGTH_SIZE) {
            return FRAME_BAD;
        }
        size = (size_t)length + FRAME_LENGTH_SIZE;
        if (size > max_frame) {
            return FRAME_BAD;
        }
        if (size > len - at) {
            split->needed = size;
            break;
        }
        frames[split->count].position = at;
        frames[split->count].size = size;
        split->count++;
        at += size;
        split->consumed = at;
    }
    return FRAME_OK;
}
