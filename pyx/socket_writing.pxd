"""The writing side of a connection, for the reading side, which extends it."""

from libc.stdint cimport uint8_t

from turbopump.pyx.c_held cimport held_owner
from turbopump.pyx.io_threads cimport ThreadedTransport
from turbopump.pyx.lane cimport Lane
from turbopump.pyx.pending cimport Holder
from turbopump.pyx.pulls cimport Pulls
from turbopump.pyx.tls cimport TlsRecords


cdef extern from "sys/uio.h" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "sys/socket.h" nogil:
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t sendmsg(int descriptor, const msghdr *message, int flags)
    ssize_t send(int descriptor, const void *bytes, size_t size, int flags)
    enum:
        MSG_NOSIGNAL
        MSG_DONTWAIT


cdef class SocketWriter(Holder):
    cdef public bint touched
    cdef public bint queued       # the transport has bytes to write
    cdef public bint sealing      # buffers wait for encryption: further writes must go after them
    cdef int descriptor
    cdef ThreadedTransport threaded  # None: this thread writes to the descriptor
    cdef TlsRecords tls           # the session, None: plain TCP
    cdef bint ended               # the connection ended: no reads, no writes
    cdef bint muted               # the peer disconnected: no writes
    cdef held_owner owner         # its held pulls

    cdef int write_waiting(self) except -1
    cdef int write_found(self, Lane lane, Pulls pulls) except -1
    cdef int write(self, const uint8_t *answers, size_t size) except -1
    cdef int write_own(self, bytes answers) except -1
    cdef int seal_one(self, bytes answers) except -1
    cdef int seal(self, list buffers) except -1
    cdef int put(self, bytes data) except -1
    cdef int give_thread(self, Lane lane, Pulls pulls) except -1
    cdef int push(self, const uint8_t *bytes_, size_t size) except -1
    cdef bint is_queued(self) except -1
