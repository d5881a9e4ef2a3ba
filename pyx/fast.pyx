# cython: auto_pickle=False
"""A connection's bytes: into frames, plain requests into the lane, the rest to Python.

Owns reading (the shared area, and an area of the connection while a frame is incomplete) and the
write that ends each read. It must never know a policy. The base class of
net.transport.connection.Connection, which reads through this class once the connection is known to
be plain TCP, or its TLS handshake has ended; everything else is in Python.

    get_buffer -> kernel reads -> buffer_updated: frame, frame, ... -> one send(2)

With TLS the kernel reads into the shared area, and the session decrypts these bytes into the same
areas that would hold plain bytes; all further steps are the same. Answers are encrypted last, right
before the send(2).

If a turn of the loop reads several connections, their answers are written together at its end
(Turn): the peer wakes up once instead of once for each connection, and the records that they
appended are dispatched once.

Nearly every call here may run Python, which may end this connection (a peer that does not read is
disconnected when its own answers are written) or any other. Therefore a connection that ends while
its bytes are handled only becomes `ended`: its memory is freed when the handling returns. A lane
handles one read at a time: a read that comes in between waits for the next turn of the loop.
docs/internals/fast-lane.md, "Native code that calls Python", lists these rules.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memmove

from turbopump.pyx.c_lane cimport lane_acked, lane_acks_full
from turbopump.pyx.c_traffic cimport *
from turbopump.pyx.c_pulls cimport LANE_AT_END, LANE_FOUND, lane_found_outcome
from turbopump.pyx.frame_memory cimport FrameMemory
from turbopump.pyx.held cimport HeldRows
from turbopump.pyx.io_threads cimport ThreadedTransport
from turbopump.pyx.lane cimport Lane
from turbopump.pyx.pops cimport Pops
from turbopump.pyx.pulls cimport Pulls
from turbopump.pyx.send_template cimport SendTemplate
from turbopump.pyx.socket_writing cimport SocketWriter
from turbopump.pyx.tls cimport TlsRecords

cdef extern from "bytes.h" nogil:
    int32_t be_i32(const uint8_t *at)

CARRY_MAX = 16 << 10
"""Greatest size in bytes of an incomplete frame that is copied before the next read, which can then
fill the whole area; a larger one stays in place, and the read continues after it."""
READ_COUNTED_OVER = 16 << 10
"""Size in bytes above which a read counts against the limit of a turn of the loop."""
FLUSH_OVER = 256 << 10
"""Size in bytes of answers that are written before the end of the read."""
TURN_OVER = 16 << 10
"""Size in bytes of a read's answers that are written before the end of the turn: the peer has
enough to begin with."""
TURN_REQUESTS = 8
"""Requests of a connection that Python handles before other connections have their turn."""
TURN_BYTES = 1 << 20
"""Bytes of messages that pulls of a connection receive before other connections have their turn."""
GIVEN_NOTED_OVER = 16 << 10
"""Bytes that pulls of a connection receive before they count against the turn's limit for all."""

cdef enum:
    FRAME_MIN = 8
    SCRATCH = 1 << 16
    ALONE_MAX = 8                 # turns in a row with one read, until answers stop waiting
    ALONE_READS = 32              # reads then answered immediately, before the next try


cdef class Turn:
    """See the stub."""

    cdef Lane lane
    cdef object post
    cdef list reads               # connections whose answers wait
    cdef int alone, at_once

    def __cinit__(self, Lane lane not None, post):
        self.lane, self.post, self.reads = lane, post, []

    cdef bint may_wait(self):
        """Whether the answers of a read wait for the answers of other connections."""
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
        """Dispatch the appended records, then write all waiting answers."""
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


cdef class FastConnection(SocketWriter):
    """See the stub."""

    cdef public double active_at, slow_since
    cdef public bint in_read, blocked
    cdef public bint rests        # bytes of a read wait for this connection's turn
    cdef public int turn_left     # requests that Python may handle in this turn
    cdef size_t given             # bytes that pulls received in this turn
    cdef size_t noted             # bytes of `given` that count against the turn's limit for all
    cdef public int32_t met_version
    cdef Lane lane
    cdef bytes host
    cdef Pulls pulls              # None: Python serves pulls
    cdef HeldRows rows            # None: Python holds pulls
    cdef Turn turn                # None: each read is answered at its end
    cdef bytes waiting            # answers to write at the end of the turn, or None
    cdef bint fast
    cdef bint busy                # bytes are being handled: the own area must stay
    cdef bint direct              # the next read goes into the own area
    cdef uint8_t met_language
    cdef size_t max_frame
    cdef object area, scratch
    cdef uint8_t *memory          # address of the area's `scratch`
    cdef FrameMemory own          # memory of an incomplete frame, None: not needed yet
    cdef Py_ssize_t cost          # bytes of `own` that the area counts
    cdef Py_ssize_t have          # bytes in `own`
    cdef SendTemplate template    # None: no send was served yet
    cdef Py_ssize_t sealed        # bytes that the session has not decrypted yet

    def __cinit__(self, *args, **kwargs):
        self.met_version = -1

    def go_fast(
        self, Lane lane not None, Pulls pulls, int descriptor, bytes host not None, area,
        Py_ssize_t max_frame, Turn turn=None, TlsRecords tls=None, ThreadedTransport threaded=None
    ) -> None:
        """Handle bytes natively, beginning with the next read."""
        cdef Py_buffer view
        self.threaded = threaded
        self.turn, self.tls = turn, tls
        self.lane, self.pulls = lane, pulls
        self.rows = None if pulls is None else pulls.keeper
        self.descriptor, self.host = descriptor, host
        self.area, self.scratch = area, area.scratch
        self.max_frame = <size_t>max_frame
        PyObject_GetBuffer(self.scratch, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.memory = <uint8_t *>view.buf  # stays valid as long as the area, which never changes it
        PyBuffer_Release(&view)
        if tls is not None:
            tls.use(self.scratch)
        elif threaded is not None:
            threaded.read = read_plain
        self.fast = True

    def end_fast(self) -> None:
        """Stop reading and writing here: the connection is closed, or about to be."""
        if self.waiting is not None:
            self.end_turn()
        self.ended = True
        self.descriptor = -1
        if self.owner.first:
            self.rows.drop(self)
        if not self.busy:
            self.free()

    cdef int free(self) except -1:
        """Release the own area."""
        cdef FrameMemory own = self.own
        self.own, self.have, self.cost, self.direct = None, 0, 0, False
        self.template = None
        if own is not None:
            self.area.hold(self, 0)
        if self.sealed:
            self.sealed = 0
            self.hold_sealed(0)
        return 0

    @property
    def is_fast(self) -> bool:
        """Whether bytes are handled natively."""
        return self.fast

    def get_buffer(self, sizehint):
        """Return the memory that the next read fills."""
        if not self.fast:
            return self.slow_room()
        room = self.area.room
        return room if self.tls is not None else self.behind(room)

    cdef object behind(self, room):
        """Return the memory for the next bytes of frames: `room`, or the rest of the incomplete
        frame's memory."""
        cdef Py_ssize_t end
        if self.have == 0:
            return room
        if self.direct:
            # The last byte is spare, so that a whole frame that has to wait need not move for one
            # more byte.
            end = max(self.have + 1, min(self.own.size - 1, self.have + len(room)))
            return memoryview(self.own)[self.have:end]
        memcpy(self.memory, self.own.memory, <size_t>self.have)
        return room[self.have:]

    def buffer_updated(self, Py_ssize_t nbytes):
        """Handle all bytes read, then write all answers at once."""
        self.on_bytes(nbytes)

    cdef int on_bytes(self, Py_ssize_t nbytes) except -1:
        """Handle the bytes in the memory of `get_buffer`."""
        if not self.fast:
            self.slow_read(nbytes)
            return 0
        if self.ended:
            return 0
        self.touched = True
        self.turn_left, self.given, self.noted = TURN_REQUESTS, 0, 0
        if self.tls is None:
            self.have += nbytes
            self.handle()
        else:
            self.tls.put_in(self.memory, nbytes)
            self.decrypt()
        if nbytes > <Py_ssize_t>READ_COUNTED_OVER and not self.ended:
            self.took(nbytes)
        return 0

    cdef size_t read_part(self, const uint8_t *at, size_t size) except? 0:
        """Handle bytes that an I/O thread read; returns their number, 0: `get_buffer` has to give
        the memory."""
        cdef size_t part
        if self.ended or self.direct or not self.fast:
            return 0
        part = min(size, <size_t>(len(self.scratch) - self.have))
        if self.have:
            memcpy(self.memory, self.own.memory, <size_t>self.have)
        memcpy(self.memory + self.have, at, part)
        self.on_bytes(<Py_ssize_t>part)
        return part

    def go_on(self) -> None:
        """Handle the bytes that waited until the peer read its answers."""
        if not self.fast or self.ended:
            return
        if self.lane.busy:
            self.later(self.go_on)
            return
        self.turn_left, self.given, self.noted = TURN_REQUESTS, 0, 0
        if self.have and self.direct:
            self.handle()
        if self.tls is not None:
            self.decrypt()

    cdef int decrypt(self) except -1:
        """Handle encrypted bytes, while the peer reads its answers and this connection has its
        turn."""
        cdef Py_ssize_t size = 1, wanted
        try:
            while size > 0 and not self.ended and not self.blocked and not self.rests:
                room = self.behind(self.scratch)
                wanted = len(room)
                size = self.tls.decrypt(room, wanted)
                if size > 0:
                    self.have += size
                    self.handle()
                    if size < wanted and not self.tls.over:
                        break  # the session has no further bytes
            if self.ended:
                return 0
            if size < 0 and not self.blocked and not self.rests:
                self.close()
            else:
                if self.waiting is None:
                    self.put(self.tls.own_words())  # the session sends new keys
                if self.sealed != self.tls.left and not self.ended:
                    self.sealed = self.tls.left
                    self.hold_sealed(self.sealed)
        except Exception as error:
            self.failed(error)
        return 0

    cdef int handle(self) except -1:
        """Handle the bytes read: serve whole frames now, and keep the rest for the next read.

        The memory stays until this returns, even if the connection ends.
        """
        cdef uint8_t *memory = self.own.memory if self.direct else self.memory
        cdef Py_ssize_t end = self.have, at
        assert not self.lane.busy, "two reads of a lane at the same time"
        self.busy = self.lane.busy = True
        try:
            if self.waiting is not None:
                self.end_turn()
            at = self.frames(memory, end)
            self.write_acks()
            self.finish_read()
            if at >= 0 and not self.ended:
                self.keep(memory, at, end)
        except Exception as error:
            self.failed(error)
        finally:
            self.lane.now_ms = 0
            self.lane.out_size = 0
            self.lane.acks.core.joined_count = self.lane.acks.core.acked_count = 0
            self.busy = self.lane.busy = False
            if self.ended:
                self.free()
            if self.in_read:
                self.in_read = False
                self.end_read()
        return 0

    cdef Py_ssize_t frames(self, uint8_t *memory, Py_ssize_t end) except -2:
        """Serve whole frames; returns the position after them, -1 if the connection was closed."""
        cdef Py_ssize_t at = 0
        cdef int32_t length
        while end - at >= 4 and not self.blocked and not self.rests and not self.ended:
            length = be_i32(memory + at)
            if length < FRAME_MIN - 4 or <size_t>length + 4 > self.max_frame:
                self.bad_length(self.view(at, end))
                return -1
            if length + 4 > end - at:
                break
            if not self.serve(memory + at, <size_t>length + 4):
                self.write_acks()
                self.finish()
                self.in_read = True
                if self.ended:
                    return -1
                if not self.begins():
                    break
                if not self.frame(self.view(at, at + length + 4)):
                    return -1
            elif self.given - self.noted > <size_t>GIVEN_NOTED_OVER:
                self.note_given()
            at += length + 4
            if self.lane.out_size > <size_t>FLUSH_OVER:
                self.write_out()
        return at

    cdef int note_given(self) except -1:
        """End this connection's turn if its pulls, or all together, received enough."""
        cdef size_t more = self.given - self.noted
        self.noted = self.given
        if not self.gives(more) or self.given > <size_t>TURN_BYTES:
            self.turn_left = 0
            self.give_way()
        return 0

    cdef object view(self, Py_ssize_t at, Py_ssize_t end):
        """Return a view of a part of the read for Python; the view keeps the memory alive."""
        return (memoryview(self.own) if self.direct else self.scratch)[at:end]

    cdef bint serve(self, const uint8_t *frame, size_t size) except -1:
        """Serve a plain request; False: Python has to serve it."""
        cdef trf_request decoded
        cdef const trf_request *request = &decoded
        cdef const trf_properties *known = NULL
        cdef Lane lane = self.lane
        cdef SendTemplate template = self.template if lane.has_templates else None
        if not lane.open:
            return False
        if template is not None and template.match(frame, size, lane.scratch):
            request, known = &template.core.request, &template.properties
        elif trf_decode(frame, size, lane.scratch, SCRATCH, &decoded) != TRF_PLAIN:
            return False
        if request.kind == TRF_ACK:
            if not self.ack(request, frame, size):
                return False
        elif request.kind == TRF_SEND:
            if not lane.send(request, known, self.host, self):
                return False
            if known == NULL:
                self.template = self.template or SendTemplate()
                self.template.learn(frame, request)
        elif request.kind == TRF_END:
            if not lane.end(request):
                return False
        elif self.pulls is None or request.is_oneway:
            return False
        elif not (self.pop(request) if request.kind == TRF_POP else self.pull(request)):
            return False
        if request.version != self.met_version or request.language != self.met_language:
            self.met_version, self.met_language = request.version, request.language
            self.met(request.version, request.language)
        return True

    cdef bint ack(self, const trf_request *request, const uint8_t *frame, size_t size) except -1:
        """Note an acknowledgement; False: Python has to serve it."""
        if lane_acks_full(&self.lane.acks.core, request):
            self.write_acks()
        return self.lane.ack(request, frame, size)

    cdef int write_acks(self) except -1:
        """Write the noted acknowledgements. Acknowledgements that the lane leaves go to Python, as
        if they were read now: the memory of the read stays until the handling returns."""
        cdef Lane lane = self.lane
        cdef uint8_t *memory = self.own.memory if self.direct else self.memory
        cdef const lane_acked *acked
        cdef Py_ssize_t at
        cdef int32_t number
        cdef list left = None
        if lane.acks.core.acked_count == 0:
            return 0
        if lane.write_acks():
            left = []
            for number in range(lane.acks.core.acked_count):
                acked = &lane.acks.core.acked[number]
                if not lane.acks.core.joined[acked.joined].is_written:
                    at = acked.frame - memory
                    left.append(self.view(at, at + <Py_ssize_t>acked.size))
        lane.acks.core.joined_count = lane.acks.core.acked_count = 0
        if left is not None:
            self.finish()
            self.in_read = True
            for frame in left:
                if self.ended or not self.frame(frame):
                    break
        return 0

    cdef bint pull(self, const trf_request *request) except -1:
        """Serve a pull that finds messages, or can be held; False: Python has to serve it, or it
        waits for the next turn."""
        cdef Lane lane = self.lane
        cdef Pulls pulls = self.pulls
        cdef lane_found_outcome outcome
        cdef int64_t now_ms
        if self.given == 0 and not self.gives(0):
            self.give_way()  # all connections together received enough before this pull was read
            return False
        now_ms = lane.now()
        lane.settle()
        self.is_queued()
        if self.ended:
            return True
        # No call of Python from here to the write: the messages found lie in mappings that such a
        # call could release.
        outcome = pulls.find(&request.pull, now_ms)
        if outcome == LANE_AT_END:
            return self.wait(request, now_ms)
        if outcome != LANE_FOUND or not lane.put_pulled(&pulls.found, request.opaque, True):
            return False
        reader = pulls.reader()
        pulls.count(&request.pull)
        self.given += pulls.found.size
        self.write_found(lane, pulls)
        pulls.note(reader, &request.pull, now_ms)
        return True

    cdef bint wait(self, const trf_request *request, int64_t now_ms) except -1:
        """Hold a pull for the next message of its queue; False: Python has to serve it."""
        if self.rows is None or self.muted or not self.rows.add(self, request, now_ms):
            return False
        self.held_now += 1
        return True

    cdef bint pop(self, const trf_request *request) except -1:
        """Serve a pop that finds messages; False: Python has to serve it, or it waits for the next
        turn."""
        cdef trf_pop_answer answer
        cdef Lane lane = self.lane
        cdef Pops pops = lane.pops
        cdef size_t size
        cdef int64_t now_ms
        if pops is None or not lane.may_hide():
            return False
        if self.given == 0 and not self.gives(0):
            self.give_way()
            return False
        self.write_acks()  # they arrived before the pop
        now_ms = lane.now()
        lane.settle()
        self.is_queued()
        if self.ended:
            return True
        # No call of Python from here to the write, as for a pull.
        if not pops.find(request, now_ms):
            return False
        pops.fill(request, now_ms, &answer)
        lane.make_room(trf_pop_reply_room(&answer))
        size = trf_pop_reply(lane.out + lane.out_size, lane.out_room - lane.out_size, &answer)
        if size == 0 or not pops.hide(&lane.core, request, now_ms):
            return False
        lane.out_size += size
        self.given += pops.readers.found.size
        self.write_found(lane, pops.readers)
        pops.note(now_ms + request.pop.invisible_time, lane.watched)
        return True

    cdef int finish_read(self) except -1:
        """Answer a read: now, or at the end of the turn."""
        cdef Lane lane = self.lane
        if (self.turn is None or lane.out_size == 0 or lane.out_size > <size_t>TURN_OVER
                or self.held_now or not self.turn.may_wait()):
            return self.finish()
        self.waiting = PyBytes_FromStringAndSize(<char *>lane.out, <Py_ssize_t>lane.out_size)
        lane.out_size = 0
        if self.tls is not None and not self.sealing and not self.ended:
            # The session is in the processor's cache now. It keeps the order of the bytes that it
            # encrypts, so bytes encrypted before the end of the turn must be written after these.
            self.tls.seal(self.waiting)
            self.waiting = b""
        return self.turn.add(self)

    cdef int write_waiting(self) except -1:
        return self.end_turn()

    cdef int end_turn(self) except -1:
        """Write the waiting answers. Runs only between reads, so the lane has no other answers."""
        cdef bytes answers = self.waiting
        self.waiting = None
        if answers is None:
            return 0
        try:
            self.lane.settle()
            if self.tls is None or answers:
                self.write_own(answers)
            else:
                self.put(self.tls.own_words())
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
        """Write the lane's answers to the socket, and the bytes that it does not take to the
        transport."""
        cdef Lane lane = self.lane
        self.write(lane.out, lane.out_size)
        lane.out_size = 0
        return 0

    cdef int keep(self, uint8_t *memory, Py_ssize_t at, Py_ssize_t end) except -1:
        """Keep memory[at:end) for later: an incomplete frame, or the requests of a blocked peer."""
        cdef Py_ssize_t left = end - at
        cdef Py_ssize_t wanted = left
        cdef FrameMemory before = self.own
        if at or not self.slow_since:
            self.slow_since = self.clock() if left and not self.blocked and not self.rests else 0.0
        self.have = left
        self.direct = self.blocked or self.rests or left > CARRY_MAX
        if left == 0:
            self.direct = False
            if before is not None:
                self.own, self.cost = None, 0
                self.area.hold(self, 0)
            return 0
        # A mapping serves one frame: its pages would not be counted for the next frame.
        if before is None or before.size < left + self.direct or (before.mapped and at):
            if self.direct:
                wanted = left + 1
                if not self.blocked and not self.rests:
                    wanted = max(wanted, be_i32(memory + at) + 5)
            self.own = FrameMemory(FrameMemory.enough(left, wanted))
        wanted = self.own.cost(left)
        if wanted != self.cost or at:
            self.area.hold(self, wanted, at > 0)
            self.cost = wanted
        if before is not self.own or at or memory == self.memory:
            memmove(self.own.memory, memory + at, <size_t>left)
        return 0


cdef size_t read_plain(object connection, const uint8_t *at, size_t size) except? 0:
    return (<FastConnection>connection).read_part(at, size)
