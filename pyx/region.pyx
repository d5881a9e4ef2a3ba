# cython: auto_pickle=False
"""Region: a buffer acquired once, so that a kernel call costs no buffer protocol.

Owns the export of the buffer and the checks of every range. It must never know a format. The engine
reads single fields and calls the operating system through it; every other kernel cimports it.
"""

from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EINVAL, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy, memmove, memset

cdef extern from "sys/mman.h" nogil:
    int msync(void *address, size_t length, int flags)
    int madvise(void *address, size_t length, int advice)
    enum:
        MS_SYNC

cdef extern from "unistd.h" nogil:
    long sysconf(int name)
    enum:
        _SC_PAGESIZE

cdef extern from "bytes.h" nogil:
    int16_t be_i16(const uint8_t *at)
    int32_t be_i32(const uint8_t *at)
    int64_t be_i64(const uint8_t *at)
    void be_put_i32(uint8_t *at, int32_t value)
    void be_put_i64(uint8_t *at, int64_t value)
    int bytes_all_zero(const uint8_t *buf, size_t len)
    void bytes_touch(uint8_t *page)

cdef enum:
    MADV_POPULATE_WRITE = 23      # Linux 5.14; older C libraries do not name it
    WITHOUT_GIL = 65536           # below this size giving up the GIL costs more than it saves

cdef uintptr_t PAGE = <uintptr_t>sysconf(_SC_PAGESIZE)
cdef uint8_t NOTHING = 0          # the address of an empty buffer


cdef class Region:
    """A buffer acquired once; positions are bytes inside it."""

    def __cinit__(self, object buffer):
        cdef object flat = PyMemoryView_FromObject(buffer)
        if flat.itemsize != 1 or flat.ndim != 1:
            flat = flat.cast("B")
        self.buffer = flat
        self.frozen = flat.toreadonly()
        self.size = PyMemoryView_GET_BUFFER(flat).len
        self.readonly = PyMemoryView_GET_BUFFER(flat).readonly != 0
        self.memory = <uint8_t *>PyMemoryView_GET_BUFFER(flat).buf
        if self.size == 0:
            self.memory = &NOTHING

    cdef const uint8_t *reading(self, Py_ssize_t position, Py_ssize_t length) except NULL:
        if position < 0 or length < 0 or position > self.size or length > self.size - position:
            raise IndexError(f"{length} bytes at {position} of a region of {self.size}")
        if self.memory == NULL:
            raise ValueError("the region was released")
        return self.memory + position

    cdef uint8_t *writing(self, Py_ssize_t position, Py_ssize_t length) except NULL:
        cdef const uint8_t *at = self.reading(position, length)
        if self.readonly:
            raise TypeError("the region is read-only")
        return <uint8_t *>at

    def release(self) -> None:
        """Release the buffer; any later use raises ValueError.

        The buffer stays exported while a view of it lives, while the region is attached to a queue
        table, and while another thread is in a call with it.
        """
        self.memory = NULL
        self.buffer = self.frozen = None

    def read(self, Py_ssize_t position, Py_ssize_t length) -> bytes:
        """Return a copy of the range."""
        return PyBytes_FromStringAndSize(<const char *>self.reading(position, length), length)

    def view(self, Py_ssize_t position, Py_ssize_t length) -> memoryview:
        """Return a read-only view without a copy; the view keeps the buffer alive."""
        self.reading(position, length)
        return self.frozen[position:position + length]

    def write(self, Py_ssize_t position, object data) -> None:
        """Copy `data` to position."""
        cdef Py_buffer source
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            # memmove: the source may be a view of this very region.
            memmove(self.writing(position, source.len), source.buf, <size_t>source.len)
        finally:
            PyBuffer_Release(&source)

    def zero(self, Py_ssize_t position, Py_ssize_t length) -> None:
        """Overwrite the range with zeros."""
        cdef uint8_t *at = self.writing(position, length)
        cdef object held = self.buffer
        if length < WITHOUT_GIL:
            memset(at, 0, <size_t>length)
            return
        with nogil:
            memset(at, 0, <size_t>length)

    def is_zero(self, Py_ssize_t position, Py_ssize_t length) -> bool:
        """Whether every byte of the range is zero."""
        cdef const uint8_t *at = self.reading(position, length)
        cdef bint zero
        cdef object held = self.buffer
        if length < WITHOUT_GIL:
            return bytes_all_zero(at, <size_t>length) != 0
        with nogil:
            zero = bytes_all_zero(at, <size_t>length)
        return zero

    def get_i16(self, Py_ssize_t position) -> int:
        """Read the signed 16-bit number at position."""
        return be_i16(self.reading(position, 2))

    def get_i32(self, Py_ssize_t position) -> int:
        """Read the signed 32-bit number at position."""
        return be_i32(self.reading(position, 4))

    def get_i64(self, Py_ssize_t position) -> int:
        """Read the signed 64-bit number at position."""
        return be_i64(self.reading(position, 8))

    def put_i32(self, Py_ssize_t position, int32_t value) -> None:
        """Write a signed 32-bit number. Raises OverflowError for a larger value."""
        be_put_i32(self.writing(position, 4), value)

    def put_i64(self, Py_ssize_t position, int64_t value) -> None:
        """Write a signed 64-bit number. Raises OverflowError for a larger value."""
        be_put_i64(self.writing(position, 8), value)

    def sync(self, Py_ssize_t position, Py_ssize_t length) -> None:
        """Sync the pages of the range (msync with MS_SYNC), without the GIL. Raises OSError."""
        cdef uintptr_t first = <uintptr_t>self.reading(position, length)
        cdef uintptr_t start = first - first % PAGE
        cdef int failed
        cdef object held = self.buffer
        if length == 0:
            return
        with nogil:
            failed = msync(<void *>start, first + <size_t>length - start, MS_SYNC)
            if failed:
                failed = errno
        if failed:
            raise OSError(failed, "msync failed")

    def warm(self, Py_ssize_t position, Py_ssize_t length) -> None:
        """Make each page of the range present and writable without changing it, without the GIL.

        Raises OSError if the kernel cannot provide a page (a full disk).
        """
        cdef uintptr_t first = <uintptr_t>self.writing(position, length)
        cdef uintptr_t start = first - first % PAGE
        cdef uintptr_t end = first + <uintptr_t>length
        cdef uintptr_t page
        cdef int failed
        cdef object held = self.buffer
        if length == 0:
            return
        with nogil:
            failed = madvise(<void *>start, end - start, MADV_POPULATE_WRITE)
            if failed:
                failed = errno
            if failed == EINVAL:  # a kernel before 5.14: touch the pages one by one
                failed = 0
                page = first
                while page < end:
                    bytes_touch(<uint8_t *>page)
                    page = page - page % PAGE + PAGE
        if failed:
            raise OSError(failed, "the pages cannot be made writable")

    def advise(self, Py_ssize_t position, Py_ssize_t length, int advice) -> None:
        """Advise the kernel about the pages inside the range (madvise). Raises OSError."""
        cdef uintptr_t first = <uintptr_t>self.reading(position, length)
        cdef uintptr_t start = (first + PAGE - 1) // PAGE * PAGE
        cdef uintptr_t end = (first + <uintptr_t>length) // PAGE * PAGE
        cdef int failed
        cdef object held = self.buffer
        if end <= start:
            return
        with nogil:
            failed = madvise(<void *>start, end - start, advice)
            if failed:
                failed = errno
        if failed:
            raise OSError(failed, "madvise failed")
