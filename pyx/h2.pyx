# cython: auto_pickle=False
"""HTTP/2 of a connection: bytes and answers in, events and bytes out, through csrc/h2.

Owns the session of libnghttp2 and the memory lent to it: the unsent bytes of each answer. It must
never read or write a socket, nor know gRPC. Loop thread only.

No call of the library runs Python: its events lie in one room when it returns, and are copied out
before an object is made of them. So all sessions share the room. The library keeps the address of
an outbox from `answer` until it reports that the stream is closed; until then the session keeps the
outbox's owner.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from turbopump.pyx.c_grpc cimport GRC_ACK, grc_head
from turbopump.pyx.grpc_lane cimport GRL_FULL, GRL_NOTED, GrpcLane

cdef extern from "h2_library.h" nogil:
    struct h2_library:
        int (*want_read)(void *session)
        int (*want_write)(void *session)
        int (*submit_reset)(void *session, uint8_t flags, int32_t stream_id, uint32_t error)
        int (*submit_ping)(void *session, uint8_t flags, const uint8_t *opaque)
        int (*submit_shutdown)(void *session)
        int (*terminate)(void *session, uint32_t error)
    int h2_library_load(h2_library *library, const char *file)

cdef extern from "h2.h" nogil:
    enum:
        H2_HEADER
        H2_BLOCK
        H2_DATA
        H2_END
        H2_CLOSED
        H2_PONG
        H2_AWAY
        H2_PAIRS_MAX
    struct h2_event_head:
        uint8_t kind
        uint8_t flag
        int32_t stream_id
        uint32_t a
        uint32_t b
    struct h2_limits:
        uint32_t streams_max
        uint32_t headers_max
        uint32_t stream_window
        int32_t window
        int is_client
    struct h2_outbox:
        const uint8_t *bytes
        size_t size
        size_t at
        const uint8_t *trailer
        size_t trailer_size
        int ends
        int waits
    struct h2_session:
        void *session
        uint8_t *room
        size_t room_size
        size_t room_used
        size_t unsent
        int paused
    int h2_open(h2_session *session, const h2_library *library, const h2_limits *limits)
    void h2_close(h2_session *session)
    ssize_t h2_receive(h2_session *session, const uint8_t *bytes, size_t size)
    ssize_t h2_send(h2_session *session, uint8_t *out, size_t size)
    int h2_answer(h2_session *session, int32_t stream_id, const uint8_t *pairs, size_t size,
                  h2_outbox *outbox)
    int32_t h2_request(h2_session *session, const uint8_t *pairs, size_t size, h2_outbox *outbox)
    int h2_more(h2_session *session, int32_t stream_id, h2_outbox *outbox)

cdef extern from "h2_calls.h" nogil:
    enum:
        H2_SERVED
        H2_PIECES_MAX
    struct plain_call "h2_call":
        int32_t stream_id
        size_t begin
        size_t behind
        size_t data[H2_PIECES_MAX]
        size_t sizes[H2_PIECES_MAX]
        int pieces
        grc_head header
    struct plain_calls "h2_calls":
        int first
        int behind
        int32_t block_of
        plain_call *calls
    plain_call *h2_find_call(plain_calls *calls, int32_t stream_id)
    void h2_note_headers(plain_calls *calls, const uint8_t *events, size_t here, size_t behind)
    void h2_note_data(plain_call *call, size_t here, size_t size)
    size_t h2_size_of_call(const plain_call *call)
    int h2_may_be_whole(const uint8_t *events, const plain_call *call)
    void h2_take_call_out(uint8_t *events, const plain_call *call)
    void h2_take_out(uint8_t *event, size_t size)
    int h2_breaks_one(const uint8_t *events, size_t size)

HEADERS = H2_BLOCK
DATA = H2_DATA
END = H2_END
CLOSED = H2_CLOSED
PONG = H2_PONG
AWAY = H2_AWAY

cdef enum:
    ROOM_SIZE = 128 << 10
    OUT_SIZE = 256 << 10
    NOTED_MAX = 64                # greatest number of acknowledgements written together
    HELD_MAX = 32 << 10           # greatest number of bytes of held events between two reads
    HELD_ALL_MAX = 16 << 20       # the same, of all sessions

cdef struct noted_ack:
    # A call that is an acknowledgement and was noted.
    plain_call call
    size_t end_at                 # position of its END event
    const uint8_t *data
    size_t size

cdef struct noted_acks:
    noted_ack all[NOTED_MAX]
    int count

# Untouched pages take no memory.
cdef uint8_t ROOM[ROOM_SIZE]
cdef uint8_t OUT[OUT_SIZE]
cdef h2_library LIBRARY
cdef bint loaded = False


cdef bytes data_of(const uint8_t *text, const plain_call *call):
    """Join the pieces."""
    cdef list parts = []
    cdef int at
    for at in range(call.pieces):
        parts.append(PyBytes_FromStringAndSize(
            <const char *>text + call.data[at] + sizeof(h2_event_head), <Py_ssize_t>call.sizes[at]
        ))
    return b"".join(parts)


cdef int add_events(list parts, const uint8_t *text, const plain_call *call) except -1:
    """Return copies of the events, in their order."""
    cdef const char *events = <const char *>text
    cdef Py_ssize_t size
    cdef int at
    size = <Py_ssize_t>(call.behind - call.begin)
    parts.append(PyBytes_FromStringAndSize(events + call.begin, size))
    for at in range(call.pieces):
        size = <Py_ssize_t>(sizeof(h2_event_head) + call.sizes[at])
        parts.append(PyBytes_FromStringAndSize(events + call.data[at], size))
    return 0


def library(file=None) -> str:
    """Load the library; see the stub."""
    global loaded
    cdef bytes name = b"" if file is None else file.encode()
    cdef const char *path = NULL if file is None else PyBytes_AS_STRING(name)
    cdef h2_library found
    if loaded and file is None:
        return "libnghttp2.so.14"
    if not h2_library_load(&found, path):
        raise OSError(f"{file or 'libnghttp2.so.14'} cannot be loaded")
    if file is None:
        memcpy(&LIBRARY, &found, sizeof(h2_library))
        loaded = True
    return file or "libnghttp2.so.14"


def pairs(headers) -> bytes:
    """Pack headers into one text; see the stub."""
    cdef list parts = []
    if len(headers) > H2_PAIRS_MAX:
        raise ValueError(f"{len(headers)} headers")
    for name, value in headers:
        if len(name) > 255 or len(value) > 65_535:
            raise ValueError(f"a header of {len(name)} and {len(value)} bytes")
        parts += [bytes((len(name), len(value) & 255, len(value) >> 8)), name, value]
    return b"".join(parts)


cdef class _Outbox:
    """Unsent bytes of an answer; the library knows the address."""

    cdef h2_outbox box
    cdef bytes held
    cdef bytes trailers

    def __cinit__(self):
        memset(&self.box, 0, sizeof(h2_outbox))

    cdef int add(self, bytes body, bytes end, bint ends) except -1:
        cdef size_t left = self.box.size - self.box.at
        if left:
            body = PyBytes_FromStringAndSize(<char *>self.box.bytes + self.box.at, left) + body
        self.held = body
        self.box.bytes = <const uint8_t *>PyBytes_AS_STRING(body)
        self.box.size, self.box.at = <size_t>len(body), 0
        if end or ends:
            self.trailers = end
            self.box.trailer = <const uint8_t *>PyBytes_AS_STRING(end)
            self.box.trailer_size = <size_t>len(end)
            self.box.ends = True
        return 0


cdef class H2Session:
    """See the stub."""

    cdef h2_session session
    cdef dict outboxes            # stream id -> its outbox, until the stream is closed
    cdef set open                 # streams that may be answered
    cdef list block               # headers read so far of an incomplete block
    cdef GrpcLane lane            # serves plain calls, None: all go to Python
    cdef bytes address, host      # packed host of the peer, as sends store it
    cdef bytes held               # events of calls that the next read may complete, or None
    cdef dict answered            # stream id -> answer to a call that this read has served
    cdef readonly bint has_served
    cdef public bint may_serve

    def __cinit__(self, *args, **kwargs):
        memset(&self.session, 0, sizeof(h2_session))

    def __init__(self, streams, headers, stream_window, window, client=False):
        cdef h2_limits limits
        assert loaded, "the library is loaded first"
        assert self.session.session == NULL, "it begins once"
        limits.streams_max, limits.headers_max = streams, headers
        limits.stream_window, limits.window = stream_window, window
        limits.is_client = bool(client)
        self.outboxes, self.open, self.block, self.answered = {}, set(), [], {}
        self.session.room, self.session.room_size = ROOM, ROOM_SIZE
        if h2_open(&self.session, &LIBRARY, &limits) != 0:
            raise MemoryError

    def __dealloc__(self):
        h2_close(&self.session)

    @property
    def unsent(self) -> int:
        """Number of bytes that wait for the peer's window."""
        return self.session.unsent

    @property
    def is_finished(self) -> bool:
        """Whether the session neither reads nor writes."""
        return not (
            LIBRARY.want_read(self.session.session) or LIBRARY.want_write(self.session.session)
        )

    def receive(self, data):
        """Consume some bytes; see the stub."""
        cdef Py_buffer view
        cdef ssize_t taken, more = 0
        cdef bint whole
        cdef bint serves = self.lane is not None and self.may_serve
        self.has_served = False
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        taken = h2_receive(&self.session, <const uint8_t *>view.buf, <size_t>view.len)
        whole = taken == view.len
        PyBuffer_Release(&view)
        try:
            found = self.events(serves) if taken >= 0 else None
            while whole and more == 0 and self.session.paused:
                more = h2_receive(&self.session, NULL, 0)
                found += self.events(serves)
        finally:
            if serves:
                self.lane.settle()
        if self.answered:
            self.begin_answers()
        if taken < 0 or more < 0:
            raise ValueError(f"HTTP/2 error {taken if taken < 0 else more}")
        return taken, found

    def take(self):
        """Return some bytes to write; see the stub."""
        cdef ssize_t size = h2_send(&self.session, OUT, OUT_SIZE)
        if size < 0:
            raise ValueError(f"HTTP/2 error {size}")
        cdef bytes out = PyBytes_FromStringAndSize(<char *>OUT, size)
        cdef bytes raw = self.lying()
        if self.held is not None and h2_breaks_one(
            <const uint8_t *>PyBytes_AS_STRING(raw), <size_t>len(raw)
        ):
            return out, self.events(False)  # the closed stream may be one whose events are held
        return out, self.objects(raw)

    def serve_plain(self, GrpcLane lane not None, bytes address not None, bytes host not None):
        """Serve plain calls natively; see the stub."""
        self.lane, self.address, self.host = lane, address, host

    cdef list events(self, bint serves):
        """Return the events of a read as objects, without the plain calls if these are to be
        served."""
        cdef bytes raw = self.take_held() + self.lying()
        if serves and raw:
            self.serve_whole(raw)
        return self.objects(raw)

    cdef bytes lying(self):
        """Return a copy of the events in the room."""
        return PyBytes_FromStringAndSize(<char *>ROOM, <Py_ssize_t>self.session.room_used)

    def let_go(self) -> list:
        """Return the held events; see the stub."""
        return self.objects(self.take_held())

    cdef list objects(self, bytes raw):
        """Return events as objects."""
        cdef list found = []
        cdef const char *text = PyBytes_AS_STRING(raw)
        cdef Py_ssize_t at = 0, end = len(raw), middle
        cdef h2_event_head head
        while at < end:
            memcpy(&head, text + at, sizeof(h2_event_head))
            at += <Py_ssize_t>sizeof(h2_event_head)
            middle = at + head.a
            if head.kind == H2_HEADER:
                self.block.append((raw[at:middle], raw[middle:middle + head.b]))
                at = middle + head.b
            elif head.kind == H2_BLOCK:
                found.append((HEADERS, head.stream_id, None if head.flag else self.block))
                self.block = []
                self.open.add(head.stream_id)
            elif head.kind == H2_DATA:
                found.append((DATA, head.stream_id, raw[at:middle]))
                at = middle
            elif head.kind == H2_SERVED:
                at = middle
            elif head.kind == H2_CLOSED:
                self.closed(head.stream_id)
                found.append((CLOSED, head.stream_id, head.a))
            else:
                found.append((head.kind, head.stream_id, None))
        return found

    cdef int serve_whole(self, bytes raw) except -1:
        """Serve the plain calls that lie whole in `raw`, which must have no other user; their
        events become H2_SERVED. The events of several streams may be interleaved."""
        cdef uint8_t *text = <uint8_t *>PyBytes_AS_STRING(raw)
        cdef size_t at = 0, end = <size_t>len(raw), here
        cdef h2_event_head head
        cdef plain_calls calls
        cdef noted_acks noted
        cdef plain_call *call
        cdef list joined = []         # DATA that was joined from several pieces
        calls.first = calls.behind = calls.block_of = noted.count = 0
        while at < end:
            here = at
            memcpy(&head, text + at, sizeof(h2_event_head))
            at += sizeof(h2_event_head)
            if head.kind == H2_HEADER or head.kind == H2_BLOCK:
                at += <size_t>head.a + head.b
                h2_note_headers(&calls, text, here, at)
                continue
            call = h2_find_call(&calls, head.stream_id)
            if head.kind == H2_DATA:
                at += head.a
                if call != NULL:
                    h2_note_data(call, here, head.a)
            elif call != NULL:
                if head.kind == H2_END and call.pieces > 0:
                    self.serve_call(text, &noted, call, here, joined)
                call.stream_id = 0
        self.write_acks(text, &noted)
        self.hold(text, &calls)
        return 0

    cdef int serve_call(self, uint8_t *text, noted_acks *noted, plain_call *call, size_t end_at,
                        list joined) except -1:
        """Serve a whole call, or note it if it is an acknowledgement."""
        cdef uint8_t *data = text + call.data[0] + sizeof(h2_event_head)
        cdef size_t size = call.sizes[0]
        cdef noted_ack *one
        cdef int found
        if call.pieces > 1:
            whole = data_of(text, call)
            joined.append(whole)
            data, size = <uint8_t *>PyBytes_AS_STRING(whole), <size_t>len(whole)
        if call.header.rpc != GRC_ACK:
            answer = self.lane.send(data, size, &call.header, self.address, self.host)
            if answer is not None:
                self.answer_with(text, call, end_at, answer)
            return 0
        found = GRL_FULL if noted.count == NOTED_MAX else self.lane.note_ack(
            data, size, &call.header)
        if found == GRL_FULL:
            self.write_acks(text, noted)
            found = self.lane.note_ack(data, size, &call.header)
        if found == GRL_NOTED:
            one = &noted.all[noted.count]
            noted.count += 1
            one.call, one.end_at, one.data, one.size = call[0], end_at, data, size
        return 0

    cdef int write_acks(self, uint8_t *text, noted_acks *noted) except -1:
        """Write the noted acknowledgements; any that cannot be written stay as events."""
        cdef noted_ack *one
        cdef int number
        if noted.count == 0:
            return 0
        self.lane.write_acks()
        for number in range(noted.count):
            one = &noted.all[number]
            answer = self.lane.acked(number, one.data, one.size)
            if answer is not None:
                self.answer_with(text, &one.call, one.end_at, answer)
        noted.count = 0
        self.lane.forget_acks()
        return 0

    cdef int answer_with(self, uint8_t *text, const plain_call *call, size_t end_at,
                         bytes answer) except -1:
        """Mark the events of a served call, of which only the answer is left."""
        self.answered[call.stream_id] = answer
        h2_take_call_out(text, call)
        h2_take_out(text + end_at, 0)
        return 0

    cdef int hold(self, uint8_t *text, plain_calls *calls) except -1:
        """Hold the events of calls that may become whole with the next read, because every read of
        64 KiB ends within a call."""
        cdef size_t size, room = min(<size_t>HELD_MAX, HELD_ALL_MAX - self.lane.held)
        cdef list parts = []
        cdef plain_call *call
        cdef int number
        for number in range(calls.first, calls.behind):
            call = &calls.calls[number]
            size = h2_size_of_call(call)
            if call.stream_id != 0 and size <= room and h2_may_be_whole(text, call):
                room -= size
                add_events(parts, text, call)
                h2_take_call_out(text, call)
        if parts:
            self.held = b"".join(parts)
            self.lane.held += <size_t>len(self.held)
        return 0

    cdef bytes take_held(self):
        cdef bytes held = self.held
        if held is None:
            return b""
        self.held = None
        self.lane.held -= <size_t>len(held)
        return held

    cdef int begin_answers(self) except -1:
        """Send the answers to served calls, whose records are visible."""
        cdef GrpcLane lane = self.lane
        cdef dict answered = self.answered
        self.answered, self.has_served = {}, True
        for stream_id, body in answered.items():
            self.begin(stream_id, lane.headers, body, lane.trailers)
        return 0

    cdef int closed(self, int32_t stream_id) except -1:
        cdef _Outbox outbox = self.outboxes.pop(stream_id, None)
        if self.answered:
            self.answered.pop(stream_id, None)
        self.open.discard(stream_id)
        if outbox is not None:
            self.session.unsent -= outbox.box.size - outbox.box.at
        return 0

    def answer(self, int32_t stream_id, bytes headers, body, bytes trailers) -> None:
        """Begin an answer; see the stub."""
        if stream_id in self.open:
            self.begin(stream_id, headers, body, trailers)

    cdef int begin(self, int32_t stream_id, bytes headers, bytes body, bytes trailers) except -1:
        cdef _Outbox outbox = None
        if body is not None:
            outbox = _Outbox()
            outbox.add(body, trailers, False)
            self.session.unsent += <size_t>len(body)
            self.outboxes[stream_id] = outbox
        self.check(h2_answer(
            &self.session, stream_id, <const uint8_t *>PyBytes_AS_STRING(headers),
            <size_t>len(headers), NULL if outbox is None else &outbox.box,
        ))
        return 0

    def request(self, bytes headers, bytes body, bint ends) -> int:
        """Begin a request; see the stub."""
        cdef _Outbox outbox = _Outbox()
        outbox.add(body, b"", ends)
        cdef int32_t stream_id = h2_request(
            &self.session, <const uint8_t *>PyBytes_AS_STRING(headers), <size_t>len(headers),
            &outbox.box,
        )
        if stream_id < 0:
            raise ValueError(f"HTTP/2 error {stream_id}")
        self.session.unsent += <size_t>len(body)
        self.outboxes[stream_id] = outbox
        return stream_id

    def more(self, int32_t stream_id, bytes body, bytes trailers, bint ends=False) -> None:
        """Continue an answer or a request; see the stub."""
        cdef _Outbox outbox = self.outboxes.get(stream_id)
        if outbox is not None:
            outbox.add(body, trailers, ends)
            self.session.unsent += <size_t>len(body)
            self.check(h2_more(&self.session, stream_id, &outbox.box))

    def reset(self, int32_t stream_id, uint32_t error) -> None:
        """Send RST_STREAM."""
        self.check(LIBRARY.submit_reset(self.session.session, 0, stream_id, error))

    def ping(self) -> None:
        """Send PING."""
        self.check(LIBRARY.submit_ping(self.session.session, 0, NULL))

    def shutdown(self) -> None:
        """Send GOAWAY for new streams."""
        self.check(LIBRARY.submit_shutdown(self.session.session))

    def terminate(self, uint32_t error) -> None:
        """Send GOAWAY with the last stream."""
        self.check(LIBRARY.terminate(self.session.session, error))

    cdef int check(self, int code) except -1:
        if code != 0:
            raise ValueError(f"HTTP/2 error {code}")
        return 0
