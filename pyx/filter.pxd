"""csrc/filter.h, and the object that owns a program."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "filter.h" nogil:
    struct flt_program:
        size_t op_count
    enum flt_answer:
        FLT_FALSE
        FLT_TRUE
        FLT_NULL_ANSWER
        FLT_ERROR
    int flt_open(const uint8_t *bytes, size_t size, flt_program *program)
    flt_answer flt_evaluate(const flt_program *program, const uint8_t *properties, size_t size,
                            int64_t *work)
    int flt_matches(const flt_program *program, const uint8_t *record, size_t size, int64_t *work)


cdef class Filter:
    cdef flt_program core
    cdef void *memory             # the program: at a multiple of 16, never moved
    cdef readonly Py_ssize_t size
