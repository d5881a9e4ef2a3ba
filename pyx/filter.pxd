"""csrc/filter.h, and the object that owns a program."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "filter.h" nogil:
    struct flt_program:
        pass
    enum flt_answer:
        FLT_FALSE
        FLT_TRUE
        FLT_NULL_ANSWER
        FLT_ERROR
    int64_t flt_cost(const flt_program *program)
    int flt_open(const uint8_t *bytes, size_t size, flt_program *program)
    flt_answer flt_evaluate(const flt_program *program, const uint8_t *properties, size_t size,
                            int64_t *work)
    enum:
        FLT_SPANS
    struct flt_span:
        const uint8_t *memory
        int64_t start
    struct flt_scan:
        const flt_program *program
        int64_t file_size
        int64_t log_end
        int64_t work
        int64_t lacking
        size_t recent
        size_t span_count
        flt_span spans[FLT_SPANS]
    int flt_choose(void *scan, const uint8_t *units, size_t left)
    int flt_matches(const flt_program *program, const uint8_t *record, size_t size, int64_t *work)


cdef class Filter:
    cdef flt_program core
    cdef void *memory             # the program, at a multiple of 16, never moved
    cdef readonly Py_ssize_t size


cdef class FilterScan:
    cdef flt_scan core
    cdef Filter filter            # owner of core.program
    cdef object log_of
    cdef list held                # the mappings of core.spans

    cdef void begin(self) noexcept
    cdef bint fetch(self) except -1
