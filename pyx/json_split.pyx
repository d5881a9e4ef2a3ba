"""Positions at which a long JSON text can be cut, so that it is read in pieces.

Owns nothing; the caller keeps the text. It must never read a value.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t

cdef extern from "json_split.h" nogil:
    enum json_split_kind:
        JSON_SPLIT_CLOSED
        JSON_SPLIT_COMMA
        JSON_SPLIT_LARGE
        JSON_SPLIT_ENDS
    struct json_split:
        json_split_kind kind
        size_t end, containers, commas
    void json_split_next(const uint8_t *text, size_t size, size_t at, size_t room,
                         json_split *split)

CLOSED, COMMA, LARGE, ENDS = range(4)


def next_piece(text: bytes, Py_ssize_t at, Py_ssize_t room) -> tuple[int, int, int, int]:
    """See the stub."""
    cdef Py_buffer view
    cdef json_split split
    PyObject_GetBuffer(text, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= view.len or room < 0:
            raise IndexError(f"{at} of {view.len} bytes")
        json_split_next(<const uint8_t *>view.buf, <size_t>view.len, <size_t>at, <size_t>room,
                        &split)
    finally:
        PyBuffer_Release(&view)
    return split.kind, split.end, split.containers, split.commas
