# cython: auto_pickle=False
"""A connection's answers: into the socket, encrypted if the peer speaks TLS.

Owns the order of written bytes. It must never read, nor hold bytes back: the transport writes the
bytes that the socket does not take. The base class of FastConnection (pyx/fast.pyx).

    answers -> (TLS session) -> send(2), and the bytes that the socket does not take -> transport

A write goes directly to the socket if the transport has nothing to write, else through the
transport, whose write costs several times a send(2), and keeps the limits. Each call of Python may
end the connection, so `ended` is checked after it.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from turbopump.pyx.c_pulls cimport LANE_PULL_MAX
from turbopump.pyx.lane cimport Lane
from turbopump.pyx.pending cimport Holder
from turbopump.pyx.pulls cimport Pulls

SEALED_MAX = 64 << 10
"""Bytes encrypted before they are sent: four records."""
JOINED_MAX = 64 << 10
"""Bytes of messages found, and their answer, that are copied for an I/O thread; more bytes stay in
the log's mapping."""
UNSENT_UNCHECKED = 16 << 10
"""Unsent bytes of an I/O thread up to which the connection's limits are not checked: a smaller
number is not counted."""


cdef class SocketWriter(Holder):
    """See the stub."""

    def __cinit__(self, *args, **kwargs):
        self.descriptor = -1

    def mute(self) -> None:
        """Stop writing because the peer disconnected; its requests are still handled. The
        descriptor is forgotten, because it may become another connection's."""
        self.muted = True
        self.descriptor = -1

    cdef int give(self, bytes answers, Py_ssize_t count) except -1:
        """Write answers that were held."""
        try:
            if self.settled(count):
                self.write_own(answers)
        except Exception as error:
            self.failed(error)
        return 0

    cdef int write_waiting(self) except -1:
        """Write the answers that wait for the end of the turn."""
        return 0

    cdef int write_found(self, Lane lane, Pulls pulls) except -1:
        """Write the lane's answers, then the messages found, directly from their mappings."""
        cdef iovec pieces[LANE_PULL_MAX + 1]
        cdef msghdr message
        cdef ssize_t sent = 0
        cdef size_t out_size = lane.out_size
        cdef list rest
        if self.ended or self.muted:
            lane.out_size = 0
            return 0
        if self.tls is not None:
            rest = [PyBytes_FromStringAndSize(<char *>lane.out, <Py_ssize_t>out_size)]
            rest += pulls.slices(0)
            lane.out_size = 0
            return self.seal(rest)
        if self.threaded is not None:
            return self.give_thread(lane, pulls)
        if not self.queued:
            pieces[0].iov_base, pieces[0].iov_len = lane.out, out_size
            for number in range(pulls.found.run_count):
                pieces[number + 1].iov_base = <void *>pulls.found.runs[number].at
                pieces[number + 1].iov_len = pulls.found.runs[number].size
            memset(&message, 0, sizeof(msghdr))
            message.msg_iov, message.msg_iovlen = pieces, pulls.found.run_count + 1
            sent = max(0, sendmsg(self.descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT))
        if <size_t>sent < out_size + pulls.found.size:
            self.queued = True
            rest = []
            if <size_t>sent < out_size:
                rest.append(PyBytes_FromStringAndSize(<char *>lane.out + sent,
                                                      <Py_ssize_t>out_size - sent))
                rest += pulls.slices(0)
            else:
                rest += pulls.slices(<size_t>sent - out_size)
            lane.out_size = 0
            self.write_rest(rest)
        lane.out_size = 0
        return 0

    cdef int give_thread(self, Lane lane, Pulls pulls) except -1:
        """Pass the lane's answers and the messages found to the I/O thread; many bytes stay where
        they are until they are sent."""
        cdef size_t out_size = lane.out_size, size = out_size + pulls.found.size
        cdef list rest
        cdef bytes joined
        cdef char *at
        if size > JOINED_MAX:
            rest = [PyBytes_FromStringAndSize(<char *>lane.out, <Py_ssize_t>out_size)]
            rest += pulls.slices(0)
            lane.out_size = 0
            self.write_rest(rest)
            return 0
        joined = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
        at = joined
        memcpy(at, lane.out, out_size)
        at += out_size
        for number in range(pulls.found.run_count):
            memcpy(at, pulls.found.runs[number].at, pulls.found.runs[number].size)
            at += pulls.found.runs[number].size
        lane.out_size = 0
        return self.put(joined)

    cdef int write(self, const uint8_t *answers, size_t size) except -1:
        """Write to the socket, and the rest to the transport. The bytes may be the lane's answers:
        nothing called here changes them, except `frames` of the read that the lane handles."""
        if self.ended or self.muted:
            return 0
        if self.tls is not None:
            return self.seal_one(PyBytes_FromStringAndSize(<char *>answers, <Py_ssize_t>size))
        return self.push(answers, size)

    cdef int write_own(self, bytes answers) except -1:
        """Write a bytes object; it is not copied before encryption."""
        if self.tls is None or self.ended or self.muted:
            return self.write(<const uint8_t *><const char *>answers, <size_t>len(answers))
        return self.seal_one(answers)

    cdef int seal_one(self, bytes answers) except -1:
        if self.sealing or len(answers) > <Py_ssize_t>SEALED_MAX:
            return self.seal([answers])
        return self.put(self.tls.encrypt(answers))

    cdef int seal(self, list buffers) except -1:
        """Encrypt and write the bytes, some records at a time."""
        cdef Py_ssize_t at
        if self.sealing:
            self.seal_later(buffers)
            return 0
        for buffer in buffers:
            view = buffer if len(buffer) <= SEALED_MAX else memoryview(buffer)
            for at in range(0, len(buffer), SEALED_MAX):
                if self.ended:
                    return 0
                part = view if len(buffer) <= SEALED_MAX else view[at:at + SEALED_MAX]
                self.put(self.tls.encrypt(part))
        return 0

    cdef int put(self, bytes data) except -1:
        """Write plain bytes."""
        if data and not self.ended and not self.muted:
            self.push(<const uint8_t *><const char *>data, <size_t>len(data))
        return 0

    cdef int push(self, const uint8_t *bytes_, size_t size) except -1:
        cdef ssize_t sent = 0
        if self.threaded is not None:
            if self.threaded.unsent() <= UNSENT_UNCHECKED:
                return self.threaded.put(bytes_, size)
            self.write_rest([PyBytes_FromStringAndSize(<char *>bytes_, <Py_ssize_t>size)])
            return 0
        if not self.is_queued():
            # If the socket is full or broken, the transport finds out which.
            sent = max(0, send(self.descriptor, bytes_, size, MSG_NOSIGNAL | MSG_DONTWAIT))
        if <size_t>sent < size:
            self.queued = True
            self.write_rest([
                PyBytes_FromStringAndSize(<char *>bytes_ + sent, <Py_ssize_t>size - sent)
            ])
        return 0

    cdef bint is_queued(self) except -1:
        """Whether the transport has bytes to write, so that further writes must go after them."""
        if self.queued and self.is_drained():
            self.queued = False
        return self.queued
