# cython: auto_pickle=False
"""HTTP/2 of one connection: bytes and answers in, events and bytes out, through csrc/h2.

Owns the session of libnghttp2 and the memory that it is lent: what is to be written of each answer.
It must never read or write a socket, nor know gRPC. Called by net/grpc, on the loop's thread.

No call of the library runs Python: what it found lies in one room when it returns, and is copied
out before an object is made of it. So the room is shared by all sessions. The library keeps the
address of an outbox from `answer` on until it says that the stream is closed; as long the session
keeps its owner.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

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

HEADERS = H2_BLOCK
DATA = H2_DATA
END = H2_END
CLOSED = H2_CLOSED
PONG = H2_PONG
AWAY = H2_AWAY

cdef enum:
    ROOM_SIZE = 128 << 10
    OUT_SIZE = 256 << 10

# Untouched pages take no memory.
cdef uint8_t ROOM[ROOM_SIZE]
cdef uint8_t OUT[OUT_SIZE]
cdef h2_library LIBRARY
cdef bint loaded = False


def library(file=None) -> str:
    """Load it; see the stub."""
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
    """Headers in one text; see the stub."""
    cdef list parts = []
    if len(headers) > H2_PAIRS_MAX:
        raise ValueError(f"{len(headers)} headers")
    for name, value in headers:
        if len(name) > 255 or len(value) > 65_535:
            raise ValueError(f"a header of {len(name)} and {len(value)} bytes")
        parts += [bytes((len(name), len(value) & 255, len(value) >> 8)), name, value]
    return b"".join(parts)


cdef class _Outbox:
    """What is to be written of one answer; the library knows its address."""

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
    cdef list block               # headers that were read of a block that is not complete

    def __cinit__(self, *args, **kwargs):
        memset(&self.session, 0, sizeof(h2_session))

    def __init__(self, streams, headers, stream_window, window, client=False):
        cdef h2_limits limits
        assert loaded, "the library is loaded first"
        assert self.session.session == NULL, "it begins once"
        limits.streams_max, limits.headers_max = streams, headers
        limits.stream_window, limits.window = stream_window, window
        limits.is_client = bool(client)
        self.outboxes, self.open, self.block = {}, set(), []
        self.session.room, self.session.room_size = ROOM, ROOM_SIZE
        if h2_open(&self.session, &LIBRARY, &limits) != 0:
            raise MemoryError

    def __dealloc__(self):
        h2_close(&self.session)

    @property
    def unsent(self) -> int:
        """Bytes that wait for the peer's window."""
        return self.session.unsent

    @property
    def is_over(self) -> bool:
        """Neither reads nor writes."""
        return not (
            LIBRARY.want_read(self.session.session) or LIBRARY.want_write(self.session.session)
        )

    def receive(self, data):
        """Take some; see the stub."""
        cdef Py_buffer view
        cdef ssize_t taken, more = 0
        cdef bint whole
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        taken = h2_receive(&self.session, <const uint8_t *>view.buf, <size_t>view.len)
        whole = taken == view.len
        PyBuffer_Release(&view)
        found = self.events() if taken >= 0 else None
        while whole and more == 0 and self.session.paused:
            more = h2_receive(&self.session, NULL, 0)
            found += self.events()
        if taken < 0 or more < 0:
            raise ValueError(f"HTTP/2 error {taken if taken < 0 else more}")
        return taken, found

    def take(self):
        """Some bytes to write; see the stub."""
        cdef ssize_t size = h2_send(&self.session, OUT, OUT_SIZE)
        if size < 0:
            raise ValueError(f"HTTP/2 error {size}")
        cdef bytes out = PyBytes_FromStringAndSize(<char *>OUT, size)
        return out, self.events()

    cdef list events(self):
        """What lies in the room, as objects."""
        cdef list found = []
        if self.session.room_used == 0:
            return found
        cdef bytes raw = PyBytes_FromStringAndSize(<char *>ROOM, <Py_ssize_t>self.session.room_used)
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
            elif head.kind == H2_CLOSED:
                self.closed(head.stream_id)
                found.append((CLOSED, head.stream_id, head.a))
            else:
                found.append((head.kind, head.stream_id, None))
        return found

    cdef int closed(self, int32_t stream_id) except -1:
        cdef _Outbox outbox = self.outboxes.pop(stream_id, None)
        self.open.discard(stream_id)
        if outbox is not None:
            self.session.unsent -= outbox.box.size - outbox.box.at
        return 0

    def answer(self, int32_t stream_id, bytes headers, body, bytes trailers) -> None:
        """Begin an answer; see the stub."""
        cdef _Outbox outbox = None
        if stream_id not in self.open:
            return
        if body is not None:
            outbox = _Outbox()
            outbox.add(body, trailers, False)
            self.session.unsent += <size_t>len(body)
            self.outboxes[stream_id] = outbox
        self.check(h2_answer(
            &self.session, stream_id, <const uint8_t *>PyBytes_AS_STRING(headers),
            <size_t>len(headers), NULL if outbox is None else &outbox.box,
        ))

    def request(self, bytes headers, bytes body, bint ends) -> int:
        """Ask; see the stub."""
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
        """Go on; see the stub."""
        cdef _Outbox outbox = self.outboxes.get(stream_id)
        if outbox is not None:
            outbox.add(body, trailers, ends)
            self.session.unsent += <size_t>len(body)
            self.check(h2_more(&self.session, stream_id, &outbox.box))

    def reset(self, int32_t stream_id, uint32_t error) -> None:
        """RST_STREAM."""
        self.check(LIBRARY.submit_reset(self.session.session, 0, stream_id, error))

    def ping(self) -> None:
        """PING."""
        self.check(LIBRARY.submit_ping(self.session.session, 0, NULL))

    def shutdown(self) -> None:
        """GOAWAY, for new streams."""
        self.check(LIBRARY.submit_shutdown(self.session.session))

    def terminate(self, uint32_t error) -> None:
        """GOAWAY, the last one."""
        self.check(LIBRARY.terminate(self.session.session, error))

    cdef int check(self, int code) except -1:
        if code != 0:
            raise ValueError(f"HTTP/2 error {code}")
        return 0
