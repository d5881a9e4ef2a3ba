/* Queue units of any bytes: ends, search and selection, compared with plain loops. Input: start,
 * selection, then the units. */
#include "queue_unit.h"

#include "bytes.h"
#include "fuzz.h"

enum { MAX_CODES = 7 };

static int matches(const struct cq_wish *wish, int64_t tags_code)
{
    for (size_t n = 0; n < wish->code_count; n++) {
        if (wish->codes[n] == (int32_t)(uint32_t)(uint64_t)tags_code) {
            return 1;
        }
    }
    return wish->codes == NULL;
}

static void check_select(const uint8_t *buf, size_t at, size_t end, const struct cq_wish *wish)
{
    struct cq_unit *chosen = room(wish->max_count * sizeof *chosen);
    struct cq_choice choice;
    size_t looked = 0, count = 0;
    int64_t size = 0;

    cq_select(buf, at, end, wish, chosen, &choice);
    for (; at < end && end - at >= CQ_UNIT; at += CQ_UNIT, looked++) {
        struct cq_unit unit = cq_get(buf + at);
        if (looked >= wish->max_units || count >= wish->max_count || !cq_is_valid(unit)) {
            break;
        }
        if (cq_is_blank(unit) || !matches(wish, unit.tags_code)) {
            continue;
        }
        if (count > 0 && size + unit.size > wish->max_size) {
            break;
        }
        CHECK(count < choice.count && chosen[count].log_offset == unit.log_offset);
        CHECK(chosen[count].size == unit.size && chosen[count].tags_code == unit.tags_code);
        size += unit.size;
        count++;
    }
    CHECK(choice.count == count && choice.size == size && choice.next == at);
    free(chosen);
}

static void check_search(const uint8_t *buf, size_t at, size_t end, int64_t log_offset)
{
    int64_t log_end;
    size_t found = cq_lower_bound(buf, at, end, log_offset);
    size_t stop = cq_find_end(buf, at, end, &log_end);
    CHECK(found == end || (found >= at && (found - at) % CQ_UNIT == 0 && end - found >= CQ_UNIT));
    CHECK(found == end || be_i64(buf + found) >= log_offset);
    CHECK(stop == at || (stop <= end && (stop - at) % CQ_UNIT == 0));
    for (size_t before = at; before < stop; before += CQ_UNIT) {
        CHECK(cq_is_valid(cq_get(buf + before)));
    }
    CHECK(stop >= end || end - stop < CQ_UNIT || !cq_is_valid(cq_get(buf + stop)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    size_t at = (size_t)take(&input, 1), end;
    int64_t log_offset = (int64_t)take(&input, 8), log_end;
    int32_t *codes = room(MAX_CODES * sizeof *codes);
    struct cq_wish wish = {.code_count = (size_t)take(&input, 1) % (MAX_CODES + 1)};
    uint8_t *buf;

    for (size_t n = 0; n < wish.code_count; n++) {
        int32_t code = (int32_t)(uint32_t)take(&input, 4);
        size_t place = n;
        for (; place > 0 && codes[place - 1] > code; place--) {
            codes[place] = codes[place - 1];
        }
        codes[place] = code;
    }
    wish.codes = wish.code_count > 0 ? codes : NULL;
    wish.max_count = (size_t)take(&input, 1);
    wish.max_units = (size_t)take(&input, 1);
    wish.max_size = (int64_t)take(&input, 5);
    end = input.left;
    buf = take_copy(&input, end);
    check_select(buf, at, end, &wish);
    check_search(buf, at, end, log_offset);
    cq_fill_blank(buf, at, end);
    if (at < end) {
        CHECK(cq_find_end(buf, at, end, &log_end) == at + (end - at) / CQ_UNIT * CQ_UNIT);
        CHECK(log_end == -1);
    }
    free(codes);
    free(buf);
    return 0;
}
