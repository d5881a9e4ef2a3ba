"""Frame boundaries in a stream of bytes.

Owns nothing; the caller keeps the stream. It must never read a header.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t

cdef extern from "frame.h" nogil:
    enum frame_status:
        FRAME_OK
        FRAME_BAD
    struct frame_span:
        size_t position
        size_t size
    struct frame_split_result "frame_split":
        size_t count
        size_t consumed
        size_t needed
    frame_status frame_split(const uint8_t *buf, size_t at, size_t len, size_t max_frame,
                             frame_span *frames, size_t max_count, frame_split_result *split)

cdef enum:
    FRAMES_A_ROUND = 64           # on the stack; a read with more frames takes another round


def find_frames(
    data: bytes | bytearray | memoryview, Py_ssize_t length, Py_ssize_t max_frame
) -> tuple[list[tuple[int, int]], int, int]:
    """Find the frames in data[:length): ([(position, size incl. the 4 length bytes)], consumed,
    needed). `needed` is the size of the incomplete frame that follows, 0 if unknown yet. Raises
    ValueError for a length that is negative, below 4, or a frame above max_frame."""
    cdef Py_buffer view
    cdef frame_span frames[FRAMES_A_ROUND]
    cdef frame_split_result split
    cdef frame_status status
    cdef size_t at = 0
    cdef list found = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if length < 0 or length > view.len or max_frame < 0:
            raise IndexError(f"{length} bytes of {view.len}")
        while True:
            status = frame_split(<const uint8_t *>view.buf, at, <size_t>length,
                                 <size_t>max_frame, frames, FRAMES_A_ROUND, &split)
            for i in range(<Py_ssize_t>split.count):
                found.append((frames[i].position, frames[i].size))
            at = split.consumed
            if status != FRAME_OK:
                raise ValueError(f"the frame at {at} has a length that no frame has")
            if split.count < FRAMES_A_ROUND:
                return found, at, split.needed
    finally:
        PyBuffer_Release(&view)
