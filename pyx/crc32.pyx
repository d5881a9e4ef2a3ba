"""CRC-32 for callers that have bytes and no region.

Owns nothing. It must never hold state. The engine sums its own files with it; records are summed
inside the record kernel.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "crc32.h" nogil:
    uint32_t crc32_update(uint32_t value, const uint8_t *buf, size_t len)
    int crc32_is_pclmul()
    const uint32_t CRC32_MASK

cdef enum:
    WITHOUT_GIL = 4096            # below this size giving up the GIL costs more than it saves


cdef uint32_t crc_of(uint32_t value, object data) except? 0:
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < WITHOUT_GIL:
            return crc32_update(value, <const uint8_t *>view.buf, <size_t>view.len)
        with nogil:
            value = crc32_update(value, <const uint8_t *>view.buf, <size_t>view.len)
        return value
    finally:
        PyBuffer_Release(&view)


def crc32(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Return the CRC-32 (IEEE 802.3, as zlib.crc32); SIMD if the CPU has it, else a table."""
    return crc_of(value, data)


def masked_crc32(data: bytes | bytearray | memoryview) -> int:
    """Return CRC-32 & 0x7FFFFFFF, as RocketMQ stores it (UtilAll.crc32)."""
    return crc_of(0, data) & CRC32_MASK


def kernel_name() -> str:
    """Return the implementation that this CPU runs: "pclmul" or "table"."""
    return "pclmul" if crc32_is_pclmul() else "table"
