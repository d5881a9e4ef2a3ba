# cython: auto_pickle=False
"""A connection's bytes: into frames, plain requests into the lane, the rest to Python.

Owns reading (the shared area, and an own one while a frame is incomplete) and the write that ends
each read. It must never know a policy. The base class of net.transport.connection.Connection, which
reads through it once a connection is known to be plain TCP, and does everything else in Python.

    get_buffer -> kernel reads -> buffer_updated: frame, frame, ... -> one send(2)

Where a turn of the loop reads several connections their answers leave together at its end (Turn):
the peer is woken once, not for each of them, and what they appended is dispatched once.

A write goes to the socket by itself when the transport has nothing to write, else behind what it
has: the transport's write costs several times a send(2), and keeps the limits.
"""

from cpython.buffer cimport (
    PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy, memmove, memset

from turbopump.pyx.c_traffic cimport *
from turbopump.pyx.c_pulls cimport LANE_PULL_MAX
from turbopump.pyx.held cimport Holder
from turbopump.pyx.lane cimport Lane
from turbopump.pyx.pulls cimport Pulls

cdef extern from "bytes.h" nogil:
    int32_t be_i32(const uint8_t *at)

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

CARRY_MAX = 16 << 10
"""Bytes of an incomplete frame that are copied in front of the next read, so that it is a large
one; more of them stay where they are and the read goes behind them."""
OWN_SIZE_MIN = 4096
GROWTH = 4
"""An own area grows to this many times what has arrived: a peer that only announces a large frame
does not get the memory for it."""
FLUSH_OVER = 256 << 10
"""Answers that do not wait for the end of the read."""
TURN_OVER = 16 << 10
"""Answers of a read that do not wait for the end of the turn: the peer has enough to begin with."""

cdef enum:
    FRAME_MIN = 8
    SCRATCH = 1 << 16
    ALONE_MAX = 8                 # turns in a row with one read, until waiting is not worth it
    ALONE_READS = 32              # reads that are answered at once then, before it is tried again


cdef class Turn:
    """See the stub."""

    cdef Lane lane
    cdef object post
    cdef list reads               # connections whose answers wait
    cdef int alone, at_once

    def __cinit__(self, Lane lane not None, post):
        self.lane, self.post, self.reads = lane, post, []

    cdef bint may_wait(self):
        """Whether the answers of a read wait for the others."""
        if self.at_once:
            self.at_once -= 1
            return False
        return True

    cdef int add(self, FastConnection connection) except -1:
        self.reads.append(connection)
        if len(self.reads) == 1:
            self.post(self.end)
        return 0

    def end(self) -> None:
        """Dispatch what was appended, then write all that waits."""
        cdef list reads = self.reads
        cdef FastConnection connection
        self.reads = []
        if len(reads) > 1:
            self.alone = 0
        elif self.alone < ALONE_MAX:
            self.alone += 1
        else:
            self.at_once = ALONE_READS
        for connection in reads:
            connection.end_turn()


cdef class FastConnection(Holder):
    """See the stub."""

    cdef public double active_at, slow_since
    cdef public bint touched, in_read, blocked, queued
    cdef public int32_t met_version
    cdef Lane lane
    cdef bytes host
    cdef int descriptor
    cdef Pulls pulls              # None: pulls are for Python
    cdef Turn turn                # None: each read is answered at its end
    cdef bytes waiting            # answers that leave at the end of the turn, None: none do
    cdef bint fast
    cdef bint direct              # the next read goes into the own area
    cdef uint8_t met_language
    cdef size_t max_frame
    cdef object area, scratch
    cdef uint8_t *memory          # of scratch
    cdef bytearray own            # of an incomplete frame, None: none was needed yet
    cdef Py_ssize_t have          # bytes in it

    def __cinit__(self, *args, **kwargs):
        self.descriptor = -1
        self.met_version = -1

    def go_fast(
        self, Lane lane not None, Pulls pulls, int descriptor, bytes host not None, area,
        Py_ssize_t max_frame, Turn turn=None
    ) -> None:
        """From the next read on bytes are handled here."""
        cdef Py_buffer view
        self.turn = turn
        self.lane, self.pulls = lane, pulls
        self.descriptor, self.host = descriptor, host
        self.area, self.scratch = area, area.scratch
        self.max_frame = <size_t>max_frame
        PyObject_GetBuffer(self.scratch, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.memory = <uint8_t *>view.buf  # lives as long as the area, which does not change it
        PyBuffer_Release(&view)
        self.fast = True

    def end_fast(self) -> None:
        """The connection is closed, or about to be: nothing is read or written here any more."""
        if self.waiting is not None:
            self.end_turn()
        self.descriptor = -1
        if self.own is not None:
            self.area.give(len(self.own))
            self.own = None
        self.have = 0
        self.direct = False

    @property
    def is_fast(self) -> bool:
        """Whether bytes are handled here."""
        return self.fast

    def get_buffer(self, sizehint):
        """Where the next read goes."""
        if not self.fast:
            return self.slow_room()
        if self.have == 0:
            return self.scratch
        if self.direct:
            return memoryview(self.own)[self.have:]
        memcpy(self.memory, <char *>self.own, <size_t>self.have)
        return self.scratch[self.have:]

    def buffer_updated(self, Py_ssize_t nbytes):
        """Handle what was read, then write all answers at once."""
        if not self.fast:
            self.slow_read(nbytes)
            return
        self.touched = True
        self.have += nbytes
        self.handle(<uint8_t *><char *>self.own if self.direct else self.memory)

    def go_on(self) -> None:
        """The peer takes answers again: handle what was read before it stopped to."""
        if self.fast and self.have and self.direct and self.descriptor >= 0:
            self.handle(<uint8_t *><char *>self.own)

    cdef int give(self, const uint8_t *answers, size_t size, Py_ssize_t count) except -1:
        """Write answers that were held."""
        try:
            if self.settled(count):
                self.write(answers, size)
        except Exception as error:
            self.failed(error)
        return 0

    cdef int write(self, const uint8_t *answers, size_t size) except -1:
        """Write to the socket, and what it does not take to the transport."""
        cdef ssize_t sent = 0
        if self.descriptor < 0:
            return 0
        if self.queued and self.is_drained():
            self.queued = False
        if not self.queued:
            # Where it is full, or broken, the transport finds out which.
            sent = max(0, send(self.descriptor, answers, size, MSG_NOSIGNAL | MSG_DONTWAIT))
        if <size_t>sent < size:
            self.queued = True
            self.write_rest([
                PyBytes_FromStringAndSize(<char *>answers + sent, <Py_ssize_t>size - sent)
            ])
        return 0

    cdef int handle(self, uint8_t *memory) except -1:
        """Handle memory[0:have): whole frames now, what is left when more has come."""
        cdef Py_ssize_t end = self.have, at
        if self.waiting is not None:
            self.end_turn()
        try:
            at = self.frames(memory, end)
            self.finish_read()
            if at >= 0:
                self.keep(memory, at, end)
        except Exception as error:
            self.failed(error)
        finally:
            self.lane.now_ms = 0
            self.lane.out_size = 0
            if self.in_read:
                self.in_read = False
                self.end_read()
        return 0

    cdef Py_ssize_t frames(self, uint8_t *memory, Py_ssize_t end) except -2:
        """Serve whole frames; the position behind them, -1 if the connection was closed."""
        cdef Py_ssize_t at = 0
        cdef int32_t length
        while end - at >= 4 and not self.blocked:
            length = be_i32(memory + at)
            if length < FRAME_MIN - 4 or <size_t>length + 4 > self.max_frame:
                self.bad_length(view_of(memory + at, end - at))
                return -1
            if length + 4 > end - at:
                break
            if not self.serve(memory + at, <size_t>length + 4):
                self.finish()
                self.in_read = True
                if not self.frame(view_of(memory + at, length + 4)):
                    return -1
            at += length + 4
            if self.lane.out_size > <size_t>FLUSH_OVER:
                self.write_out()
        return at

    cdef bint serve(self, const uint8_t *frame, size_t size) except -1:
        """Serve a plain request; False: it is for Python."""
        cdef trf_request request
        cdef Lane lane = self.lane
        if not lane.open or trf_decode(frame, size, lane.scratch, SCRATCH, &request) != TRF_PLAIN:
            return False
        if request.kind == TRF_SEND:
            if not lane.send(&request, self.host, self):
                return False
        elif self.pulls is None or request.is_oneway or not self.pull(&request):
            return False
        if request.version != self.met_version or request.language != self.met_language:
            self.met_version, self.met_language = request.version, request.language
            self.met(request.version, request.language)
        return True

    cdef bint pull(self, const trf_request *request) except -1:
        """Serve a pull that finds messages; False: it is for Python."""
        cdef trf_pull_answer answer
        cdef Lane lane = self.lane
        cdef Pulls pulls = self.pulls
        cdef size_t size
        lane.settle()
        if not pulls.find(&request.pull, lane.now()):
            return False
        memset(&answer, 0, sizeof(trf_pull_answer))
        answer.opaque = request.opaque
        answer.remark.at, answer.remark.size = <const uint8_t *>b"FOUND", 5
        answer.suggest_which_broker_id = pulls.found.broker_id
        answer.next_begin_offset = pulls.found.next_offset
        answer.min_offset, answer.max_offset = pulls.found.min_offset, pulls.found.max_offset
        answer.topic_sys_flag = pulls.found.reader.topic_sys_flag
        answer.group_sys_flag = pulls.found.reader.group_sys_flag
        answer.body_size = pulls.found.size
        lane.make_room(trf_pull_reply_room(&answer))
        size = trf_pull_reply(lane.out + lane.out_size, lane.out_room - lane.out_size, &answer)
        if size == 0:
            return False
        lane.out_size += size
        pulls.done(&request.pull, lane.now())
        self.write_found()
        return True

    cdef int write_found(self) except -1:
        """Write the lane's answers and behind them what a pull found, from where it lies."""
        cdef Lane lane = self.lane
        cdef Pulls pulls = self.pulls
        cdef iovec pieces[LANE_PULL_MAX + 1]
        cdef msghdr message
        cdef ssize_t sent = 0
        cdef size_t out_size = lane.out_size
        if self.descriptor < 0:
            return 0
        if self.queued and self.is_drained():
            self.queued = False
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
            self.write_rest(rest)
        lane.out_size = 0
        return 0

    cdef int finish_read(self) except -1:
        """Answer a read: now, or at the end of the turn."""
        cdef Lane lane = self.lane
        if (self.turn is None or lane.out_size == 0 or lane.out_size > <size_t>TURN_OVER
                or self.held_now or not self.turn.may_wait()):
            return self.finish()
        self.waiting = PyBytes_FromStringAndSize(<char *>lane.out, <Py_ssize_t>lane.out_size)
        lane.out_size = 0
        return self.turn.add(self)

    cdef int end_turn(self) except -1:
        """Write what waits. It is called between reads: the lane has no other answers."""
        cdef bytes answers = self.waiting
        self.waiting = None
        if answers is None:
            return 0
        try:
            self.lane.settle()
            self.write(<const uint8_t *><const char *>answers, <size_t>len(answers))
        except Exception as error:
            self.failed(error)
        finally:
            self.lane.now_ms = 0
        return 0

    cdef int finish(self) except -1:
        cdef Py_ssize_t held = self.held_now
        self.held_now = 0
        if held:
            self.hold(held)
        self.lane.settle()
        if self.lane.out_size:
            self.write_out()
        return 0

    cdef int write_out(self) except -1:
        """Write the lane's answers: to the socket, what it does not take to the transport."""
        cdef Lane lane = self.lane
        self.write(lane.out, lane.out_size)
        lane.out_size = 0
        return 0

    cdef int keep(self, uint8_t *memory, Py_ssize_t at, Py_ssize_t end) except -1:
        """Keep memory[at:end) for later: an incomplete frame, or what a blocked peer asked."""
        cdef Py_ssize_t left = end - at
        cdef Py_ssize_t room = 0 if self.own is None else len(self.own)
        cdef Py_ssize_t wanted = left
        cdef bytearray before = self.own
        if self.descriptor < 0:
            return 0
        if at or not self.slow_since:
            self.slow_since = self.clock() if left and not self.blocked else 0.0
        self.have = left
        self.direct = self.blocked or left > CARRY_MAX
        if left == 0:
            self.direct = False
            if room > CARRY_MAX:
                self.area.give(room)
                self.own = None
            return 0
        if room < left + self.direct:
            if self.direct:
                wanted = left + 1
                if not self.blocked:
                    wanted = max(wanted, min(GROWTH * left, be_i32(memory + at) + 4))
            wanted = max(wanted, OWN_SIZE_MIN)
            self.area.take(wanted - room)
            self.own = bytearray(wanted)
        if before is not self.own or at or memory == self.memory:
            memmove(<char *>self.own, memory + at, <size_t>left)
        return 0


cdef object view_of(uint8_t *memory, Py_ssize_t size):
    return PyMemoryView_FromMemory(<char *>memory, size, PyBUF_READ)
