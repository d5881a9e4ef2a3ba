# cython: auto_pickle=False
"""Mapping: a file mapped whole, without a descriptor of its own.

Owns the mapping, which lasts as long as a view of it exists, and the making of a file to map. It
must never know the meaning of the bytes, nor open a file that exists. The caller may close its
descriptor right after. Python's mmap keeps a copy of the descriptor for each mapping, and a process
has few descriptors.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EINTR, errno

cdef extern from "sys/mman.h" nogil:
    void *mmap(void *address, size_t length, int protection, int flags, int descriptor, long at)
    int munmap(void *address, size_t length)
    int madvise(void *address, size_t length, int advice)
    enum:
        PROT_READ
        PROT_WRITE
        MAP_SHARED
    void *MAP_FAILED


cdef extern from "fcntl.h" nogil:
    int open(const char *path, int flags, int mode)
    int posix_fallocate(int descriptor, long at, long size)
    enum:
        O_RDWR
        O_CREAT
        O_EXCL
        O_CLOEXEC

cdef extern from "unistd.h" nogil:
    int ftruncate(int descriptor, long size)
    int close(int descriptor)
    int unlink(const char *path)

cdef enum:
    FILE_MODE = 0o644


def create_mapped(bytes path not None, Py_ssize_t size, Py_ssize_t reserved) -> Mapping:
    """Make a file and map it; see the stub."""
    cdef const char *name = path
    cdef int descriptor
    cdef int failed = 0
    if size <= 0 or not 0 <= reserved <= size:
        raise ValueError(f"{reserved} of {size} bytes cannot be reserved")
    with nogil:
        descriptor = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE)
        if descriptor < 0:
            failed = errno
        elif ftruncate(descriptor, size) != 0:
            failed = errno
        elif reserved > 0:
            failed = posix_fallocate(descriptor, 0, reserved)
            while failed == EINTR:
                failed = posix_fallocate(descriptor, 0, reserved)
    if descriptor < 0:
        raise OSError(failed, "open failed")
    try:
        if failed:
            raise OSError(failed, "the file cannot be made")
        return Mapping(descriptor, size, False)
    except BaseException:
        unlink(name)
        raise
    finally:
        close(descriptor)


cdef class Mapping:
    """Map the first `size` bytes of an open file, shared with it. Raises OSError."""

    cdef void *memory             # NULL after the unmapping
    cdef Py_ssize_t size
    cdef Py_ssize_t exports       # number of views that exist
    cdef bint readonly
    cdef bint closed

    def __cinit__(self, int descriptor, Py_ssize_t size, bint readonly):
        cdef int protection = PROT_READ if readonly else PROT_READ | PROT_WRITE
        cdef void *memory
        cdef int failed = 0
        if size <= 0:
            raise ValueError(f"{size} bytes cannot be mapped")
        with nogil:
            memory = mmap(NULL, <size_t>size, protection, MAP_SHARED, descriptor, 0)
            if memory == MAP_FAILED:
                failed = errno
        if failed:
            raise OSError(failed, "mmap failed")
        self.memory = memory
        self.size = size
        self.readonly = readonly

    def __dealloc__(self):
        if self.memory != NULL:
            munmap(self.memory, <size_t>self.size)

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.closed:
            raise ValueError("the mapping is closed")
        PyBuffer_FillInfo(view, self, self.memory, self.size, self.readonly, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1
        if self.closed and self.exports == 0:
            self.unmap()

    def madvise(self, int advice, Py_ssize_t start = 0) -> None:
        """Advise the kernel about the use of the bytes after `start`, which must be the start of a
        page."""
        cdef int failed
        if self.closed or not 0 <= start < self.size:
            raise ValueError("advice for what is not mapped")
        with nogil:
            failed = madvise(<char *>self.memory + start, <size_t>(self.size - start), advice)
            if failed:
                failed = errno
        if failed:
            raise OSError(failed, "madvise failed")

    def close(self) -> None:
        """Unmap the file, at once or with its last view; new views are refused."""
        self.closed = True
        if self.exports == 0:
            self.unmap()

    cdef void unmap(self) noexcept:
        cdef void *memory = self.memory
        self.memory = NULL
        if memory != NULL:
            with nogil:
                munmap(memory, <size_t>self.size)
