/* Common parts of the native fuzz targets: a reader of the input's control bytes, copies of exact
 * size (so that the sanitizers find access beyond them), and checks that end the run.
 *
 * A target is a file with LLVMFuzzerTestOneInput. The first bytes of its input control it; the
 * kernel gets the rest.
 */
#ifndef TURBOPUMP_FUZZ_H
#define TURBOPUMP_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(holds)                                                                             \
    do {                                                                                         \
        if (!(holds)) {                                                                          \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds);           \
            abort();                                                                             \
        }                                                                                        \
    } while (0)

struct input {
    const uint8_t *at;
    size_t left;
};

/* The next bytes as a little-endian number; bytes that are missing are 0. */
static inline uint64_t take(struct input *input, size_t width)
{
    uint64_t value = 0;
    for (size_t i = 0; i < width && input->left > 0; i++, input->at++, input->left--) {
        value |= (uint64_t)*input->at << (8 * i);
    }
    return value;
}

static inline void *room(size_t size)
{
    void *memory = calloc(1, size > 0 ? size : 1);
    CHECK(memory != NULL);
    return memory;
}

/* A copy of exactly `size` bytes; bytes that the input lacks are 0. */
static inline uint8_t *take_copy(struct input *input, size_t size)
{
    uint8_t *copy = malloc(size);
    size_t have = size < input->left ? size : input->left;
    CHECK(copy != NULL || size == 0);
    if (size > 0) {
        memset(copy, 0, size);
        memcpy(copy, input->at, have);
    }
    input->at += have;
    input->left -= have;
    return copy;
}

static inline int is_zero(const uint8_t *at, size_t size)
{
    return size == 0 || (at[0] == 0 && memcmp(at, at + 1, size - 1) == 0);
}

#endif
