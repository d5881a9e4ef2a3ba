# cython: auto_pickle=False
"""Recovery's walk over a log file: the part whose records can be trusted.

Owns nothing; the caller owns files and offsets. It must never decide the fate of the rest.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint8_t

from turbopump.pyx.c_record cimport REC_BAD, rec_reason, rec_reason_text, rec_status
from turbopump.pyx.region cimport Region

cdef extern from "walk.h" nogil:
    enum walk_torn:
        WALK_WHOLE
        WALK_SECTORS
        WALK_CUT_BYTES
    enum walk_doubt:
        WALK_TRUSTED
        WALK_ELSEWHERE
        WALK_TORN
    struct walk_end:
        size_t at
        size_t count
        int64_t store_timestamp_ms
        rec_reason reason
        walk_doubt doubt
    rec_status walk_records(const uint8_t *buf, size_t at, size_t end, int64_t log_base,
                            walk_torn torn, walk_end *stop)
    struct walk_part:
        const uint8_t *topic
        size_t topic_size
        int64_t queue_id
        int64_t first
        int64_t end
    rec_status walk_lengths(const uint8_t *buf, size_t *at, size_t end)
    struct walk_piece:
        const uint8_t *at
        size_t size
    rec_status walk_pieces(const walk_piece *pieces, size_t count, size_t room, size_t file_size,
                           size_t *whole)
    int walk_is_part(const uint8_t *buf, size_t at, size_t end, int64_t log_base,
                     walk_part *part)

WHOLE = <int>WALK_WHOLE
SECTORS = <int>WALK_SECTORS
CUT_BYTES = <int>WALK_CUT_BYTES
DOUBTS = {
    WALK_ELSEWHERE: "a record says it lies elsewhere",
    WALK_TORN: "a part of the record's topic or properties is missing",
}


cdef class Walk:
    """Result of a walk: the position and reason of its end."""

    cdef readonly int status
    cdef readonly Py_ssize_t position, count
    cdef readonly int64_t store_timestamp_ms
    cdef readonly str reason


def walk(Region region not None, Py_ssize_t position, Py_ssize_t end, int64_t log_base,
         int torn=<int>WALK_WHOLE) -> Walk:
    """Walk the records of [position, end) that can be trusted, without the GIL."""
    cdef Walk result = Walk.__new__(Walk)
    cdef object held = region.buffer  # outlives a release without the GIL
    cdef const uint8_t *memory
    cdef walk_end stop
    region.reading(position, end - position)
    memory = region.memory
    with nogil:
        result.status = walk_records(
            memory, <size_t>position, <size_t>end, log_base, <walk_torn>torn, &stop
        )
    result.position = <Py_ssize_t>stop.at
    result.count = <Py_ssize_t>stop.count
    result.store_timestamp_ms = stop.store_timestamp_ms
    result.reason = ""
    if result.status == REC_BAD:
        doubt = DOUBTS.get(stop.doubt)
        result.reason = doubt or rec_reason_text(stop.reason).decode("ascii")
    return result


def whole_end(Region region not None, Py_ssize_t position, Py_ssize_t end) -> tuple[int, int]:
    """Find the end of the whole records by their lengths; see the stub."""
    cdef size_t at = <size_t>position
    cdef rec_status status
    region.reading(position, end - position)
    status = walk_lengths(region.memory, &at, <size_t>end)
    return <int>status, <Py_ssize_t>at


def whole_size(list pieces not None, Py_ssize_t room, Py_ssize_t file_size) -> tuple[int, int]:
    """Measure the whole records in pieces that are not written yet; see the stub."""
    cdef tuple fixed = tuple(pieces)
    cdef Py_ssize_t count = len(fixed), held = 0
    cdef size_t each = sizeof(walk_piece) + sizeof(Py_buffer)
    cdef walk_piece *at = <walk_piece *>PyMem_Malloc(count * each)
    cdef Py_buffer *buffers = <Py_buffer *>(at + count)
    cdef size_t whole = 0
    cdef rec_status status
    if at == NULL:
        raise MemoryError
    try:
        if not 0 < room <= file_size:
            raise ValueError(f"{room} bytes are left of a file of {file_size}")
        for piece in fixed:
            PyObject_GetBuffer(piece, &buffers[held], PyBUF_SIMPLE)
            at[held].at = <const uint8_t *>buffers[held].buf
            at[held].size = <size_t>buffers[held].len
            held += 1
        status = walk_pieces(at, <size_t>count, <size_t>room, <size_t>file_size, &whole)
    finally:
        while held > 0:
            held -= 1
            PyBuffer_Release(&buffers[held])
        PyMem_Free(at)
    return <int>status, <Py_ssize_t>whole


def part_end(Region region not None, Py_ssize_t position, Py_ssize_t end, int64_t log_base,
             bytes topic not None, int64_t queue_id, int64_t first, int64_t stop) -> int:
    """Check the records to be served to a reader; see the stub."""
    cdef walk_part part
    region.reading(position, end - position)
    part.topic = <const uint8_t *><char *>topic
    part.topic_size = <size_t>len(topic)
    part.queue_id = queue_id
    part.first = first
    part.end = stop
    if not walk_is_part(region.memory, <size_t>position, <size_t>end, log_base, &part):
        return -1
    return part.first
