/* Programs of any bytes for any properties: they are refused, or run to their end inside their
 * bounds; and texts as numbers, twice with the same result. Input: the head's numbers, sizes,
 * program, properties. */
#include "filter.h"

#include "filter_number.h"
#include "fuzz.h"

enum { OPS = 40, ENTRIES = 12 };

static void check_numbers(const uint8_t *at, size_t size)
{
    int64_t whole, again;
    double real, other;
    if (num_whole(at, size, INT32_MIN, INT32_MAX, &whole)) {
        CHECK(whole >= INT32_MIN && whole <= INT32_MAX);
        CHECK(num_whole(at, size, INT64_MIN, INT64_MAX, &again) && again == whole);
    }
    if (num_real(at, size, &real)) {
        CHECK(num_real(at, size, &other) && num_compare_real(real, other) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    uint32_t head[FLT_HEAD / 4] = {FLT_MAGIC};
    struct flt_program program;
    size_t properties_size, whole;
    uint8_t *bytes, *properties;
    int64_t work = 0;

    head[1] = (uint32_t)take(&input, 1) % ENTRIES;
    head[2] = (uint32_t)take(&input, 1);
    head[3] = (uint32_t)take(&input, 1) % OPS;
    head[4] = (uint32_t)take(&input, 1) % ENTRIES;
    head[5] = (uint32_t)take(&input, 1);
    properties_size = (size_t)take(&input, 1);
    whole = FLT_HEAD + head[3] * FLT_OP + head[4] * FLT_ENTRY + head[5];
    bytes = take_copy(&input, whole);
    memmove(bytes + FLT_HEAD, bytes, whole - FLT_HEAD);
    memcpy(bytes, head, sizeof head);
    properties = take_copy(&input, properties_size);
    if (flt_open(bytes, whole, &program)) {
        enum flt_answer answer = flt_evaluate(&program, properties, properties_size, &work);
        CHECK(answer <= FLT_ERROR && work <= (int64_t)(OPS * 40 + 1024));
        CHECK(flt_evaluate(&program, properties, properties_size, &work) == answer);
    }
    check_numbers(properties, properties_size);
    free(bytes);
    free(properties);
    return 0;
}
