"""Transports whose sockets belong to I/O threads, for connections that write natively."""

from libc.stdint cimport uint8_t, uint64_t

from turbopump.pyx.c_io cimport io_connection, io_thread, io_waker


cdef enum:
    BYTES_OF_EVENT = 8 << 10      # a larger read counts as several events of a turn


cdef class _Fifo:
    cdef list items
    cdef Py_ssize_t begin         # the items before it were removed

    cdef Py_ssize_t size(self)
    cdef int add(self, object item) except -1
    cdef object first(self)
    cdef int replace_first(self, object item) except -1
    cdef int drop_first(self) except -1
    cdef int clear(self) except -1


cdef class IoThreads:
    cdef io_thread *threads
    cdef io_waker waker
    cdef bint turning             # a turn handles events: no other may begin
    cdef bint posted              # a turn is due
    cdef bint ending              # `close` was called
    cdef int count, first         # `first`: the thread whose events the next turn takes first
    cdef object post, report
    cdef list waiting             # for each thread, a _Fifo of commands without room
    cdef list open_counts         # for each thread, its open transports
    cdef set transports           # all open transports
    cdef Py_ssize_t kept_size     # bytes that paused transports keep

    cdef int take_turn(self) except -1
    cdef int take_shares(self, int share) except -1
    cdef bint is_busy(self)
    cdef int take_events(self, io_thread *thread, int events) except -1
    cdef int send_waiting(self, int number) except -1
    cdef int command(self, ThreadedTransport transport, int kind) except -1
    cdef int wait(self, ThreadedTransport transport, int kind, object data) except -1
    cdef int count_kept(self, Py_ssize_t size) except -1
    cdef int remove(self, ThreadedTransport transport) except -1
    cdef void end_threads(self) noexcept


# Handles bytes of a transport's protocol natively; returns their number, 0: use buffer_updated.
ctypedef size_t (*native_read)(object protocol, const uint8_t *at, size_t size) except? 0


cdef class ThreadedTransport:
    cdef IoThreads threads
    cdef io_thread *thread
    cdef io_connection *connection  # not to be used when `lost`
    cdef int number               # of the thread
    cdef native_read read         # of the protocol, NULL: it has none
    cdef object protocol, get_room, on_read, socket, peername
    cdef uint64_t queued          # bytes that were ever written
    cdef Py_ssize_t high, low
    cdef bint blocked, paused, closing, aborted, lost, delivers
    cdef _Fifo kept                # bytes that were read while paused; None: the peer's end
    cdef _Fifo held                # (position after the bytes, their buffer)

    cdef Py_ssize_t unsent(self)
    cdef int put(self, const uint8_t *at, size_t size, int kind=*) except -1
    cdef int put_object(self, object data, int kind=*) except -1
    cdef int put_done(self) except -1
    cdef int ask_progress(self) except -1
    cdef int on_data(self, const uint8_t *at, size_t size) except -1
    cdef size_t feed(self, const uint8_t *at, size_t size) except? 0
    cdef int on_end(self) except -1
    cdef int on_progress(self) except -1
    cdef int on_closed(self, int failed) except -1
