# cython: auto_pickle=False
"""FrameMemory: the memory in which an incomplete frame grows until it is whole.

Owns the memory, for as long as a view of it exists. It must never know the meaning of the bytes,
nor the limit of all connections together.

A large frame gets its whole address range immediately, and the kernel provides a page when its
first byte arrives: nothing is copied or zeroed while the frame grows, a peer that announces much
and sends little costs little, and the pages go back to the kernel with the frame. Memory from the
allocator's heap would stay with the process.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport uint8_t

cdef extern from "sys/mman.h" nogil:
    void *mmap(void *address, size_t length, int protection, int flags, int descriptor, long at)
    int munmap(void *address, size_t length)
    int madvise(void *address, size_t length, int advice)
    enum:
        PROT_READ
        PROT_WRITE
        MAP_PRIVATE
        MAP_ANONYMOUS
        MAP_NORESERVE
        MADV_NOHUGEPAGE
    void *MAP_FAILED

MAPPED_OVER = 512 << 10
"""Size of a frame in bytes above which its memory is a mapping, once enough bytes have arrived."""
GRANULE = 64 << 10
"""Unit in bytes in which a mapping is counted: the bytes that have arrived, rounded up. A frame
with fewer bytes has no mapping yet, because the number of mappings of a process is limited."""
SIZE_MIN = 4096
GROWTH = 4
"""Factor by which memory from the heap may exceed the bytes that have arrived."""


def wanted(Py_ssize_t have, Py_ssize_t needed) -> int:
    """See the stub."""
    return FrameMemory.enough(have, needed)


cdef class FrameMemory:
    """See the stub."""

    def __cinit__(self, Py_ssize_t size):
        cdef void *memory
        if size <= 0:
            raise ValueError(f"memory of {size} bytes")
        self.mapped = size > MAPPED_OVER
        if self.mapped:
            memory = mmap(
                NULL, <size_t>size, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0,
            )
            if memory == MAP_FAILED:
                raise MemoryError
            # A huge page would cost 2 MiB for its first byte.
            madvise(memory, <size_t>size, MADV_NOHUGEPAGE)
        else:
            memory = PyMem_RawMalloc(<size_t>size)
            if memory == NULL:
                raise MemoryError
        self.memory = <uint8_t *>memory
        self.size = size

    def __dealloc__(self):
        if self.memory == NULL:
            return
        if self.mapped:
            munmap(self.memory, <size_t>self.size)
        else:
            PyMem_RawFree(self.memory)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.memory, self.size, False, flags)

    def view(self) -> memoryview:
        """See the stub."""
        return memoryview(self)

    @staticmethod
    cdef Py_ssize_t enough(Py_ssize_t have, Py_ssize_t needed):
        if needed > MAPPED_OVER and have >= GRANULE:
            return needed
        return max(SIZE_MIN, min(needed, GROWTH * have, MAPPED_OVER))

    cpdef Py_ssize_t cost(self, Py_ssize_t have):
        """See the stub."""
        if not self.mapped:
            return self.size
        return min(self.size, (have // GRANULE + 1) * GRANULE)
