/* Frame boundaries: the same whether the bytes arrive at once or in pieces. Input: largest frame (2
 * bytes), spans per call, size of a piece, then the stream. */
#include "frame.h"

#include "bytes.h"
#include "fuzz.h"

/* Find the end of the whole valid frames, and whether a bad length follows. */
static size_t walk(const uint8_t *stream, size_t len, size_t max_frame, size_t *frames, int *bad)
{
    size_t at = 0;
    *frames = 0;
    *bad = 0;
    while (len - at >= FRAME_LENGTH_SIZE) {
        int64_t size = (int64_t)be_i32(stream + at) + FRAME_LENGTH_SIZE;
        if (size < FRAME_MIN || (uint64_t)size > max_frame) {
            *bad = 1;
            break;
        }
        if ((uint64_t)size > len - at) {
            break;
        }
        at += (size_t)size;
        *frames += 1;
    }
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    size_t max_frame = (size_t)take(&input, 2), max_count = (size_t)take(&input, 1) + 1;
    size_t piece = (size_t)take(&input, 1) + 1, len = input.left, arrived = 0, at = 0, found = 0;
    uint8_t *stream = take_copy(&input, len);
    struct frame_span *spans = room(max_count * sizeof *spans);
    struct frame_split split = {0, 0, 0};
    enum frame_status status = FRAME_OK;
    size_t frames, end;
    int bad;

    while (status == FRAME_OK && arrived < len) {
        uint8_t *seen;
        arrived = piece < len - arrived ? arrived + piece : len;
        seen = malloc(arrived);
        memcpy(seen, stream, arrived);
        do {
            status = frame_split(seen, at, arrived, max_frame, spans, max_count, &split);
            CHECK(split.count <= max_count && split.consumed >= at && split.consumed <= arrived);
            for (size_t n = 0; n < split.count; n++) {
                CHECK(spans[n].position == at && spans[n].size >= FRAME_MIN);
                at += spans[n].size;
            }
            CHECK(at == split.consumed);
            CHECK(split.needed == 0 || (split.needed > arrived - at && split.needed <= max_frame));
            found += split.count;
        } while (status == FRAME_OK && split.count == max_count);
        free(seen);
    }
    end = walk(stream, len, max_frame, &frames, &bad);
    CHECK(at == end && found == frames && bad == (status == FRAME_BAD));
    free(spans);
    free(stream);
    return 0;
}
