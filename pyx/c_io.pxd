"""I/O threads of csrc/io_thread.h, and their rings."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from "byte_ring.h" nogil:
    enum:
        RING_LINE
    struct byte_ring:
        pass
    struct ring_record:
        uint32_t size
        uint32_t kind
        void *owner
        int64_t number
    void ring_push(byte_ring *ring, ring_record *record, size_t size)
    int ring_wait_room(byte_ring *ring)
    const ring_record *ring_peek(byte_ring *ring)
    void ring_pop(byte_ring *ring, const ring_record *record)
    int ring_take_waiting(byte_ring *ring)
    uint8_t *ring_payload(const ring_record *record)

cdef extern from "io_thread.h" nogil:
    enum:
        IO_WRITE_MAX
        IO_DATA
        IO_EOF
        IO_PROGRESS
        IO_CLOSED
        IO_ADD
        IO_WRITE
        IO_WRITE_MORE
        IO_WRITE_FROM
        IO_RESUME
        IO_END_WRITES
        IO_CLOSE
        IO_ABORT
        IO_FORGET
    const uint64_t IO_NO_NOTICE
    struct io_waker:
        int descriptor
    struct io_connection:
        pass
    struct io_thread:
        io_waker waker
        byte_ring events
        byte_ring commands
        int has_waiting
    int io_waker_init(io_waker *waker)
    void io_wake(io_waker *waker)
    int io_start(io_thread *thread, io_waker *loop)
    void io_stop(io_thread *thread)
    io_connection *io_open(int descriptor, void *owner)
    int io_command(io_thread *thread, uint32_t kind, io_connection *connection)
    ring_record *io_write(io_thread *thread, uint32_t kind, io_connection *connection, size_t size)
    int io_write_from(io_thread *thread, io_connection *connection, const void *at, size_t size)
    int io_notice(io_connection *connection, uint64_t position)
    int io_take(io_connection *connection, uint64_t size)
    uint64_t io_sent(const io_connection *connection)
    void io_pause(io_connection *connection, int paused)
    void io_keep_many(io_thread *thread, int keeps_many)
    int io_loop_sleep(io_waker *loop, io_thread *threads, int count)
    int64_t io_cpu_ns(const io_thread *thread)

cdef extern from "sys/eventfd.h" nogil:
    int eventfd_read(int descriptor, uint64_t *value)

cdef extern from "unistd.h" nogil:
    int close(int descriptor)

cdef extern from "stdlib.h" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
    int poll(pollfd *descriptors, unsigned long count, int timeout_ms)
    enum:
        POLLIN


cdef inline int send_copy(io_thread *thread, io_connection *connection, bytes data) except -1:
    """Send IO_WRITE; 0: there is no room."""
    cdef size_t size = <size_t>len(data)
    cdef ring_record *record = io_write(thread, IO_WRITE, connection, size)
    if record == NULL:
        return 0
    memcpy(ring_payload(record), <const char *>data, size)
    ring_push(&thread.commands, record, size)
    return 1


cdef inline int send_from(io_thread *thread, io_connection *connection, object data) except -1:
    """Send IO_WRITE_FROM for a buffer that the transport holds; 0: there is no room."""
    cdef Py_buffer view
    cdef int sent
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    sent = io_write_from(thread, connection, view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return sent
