# cython: auto_pickle=False
"""Answers to sends that wait until their records are safe: on the disk, and with the replicas.

Owns the answers' bytes and their order, which is the log's. It must never decide what is safe: the
group commit says what is durable (engine/log/group_commit.py), the broker what the replicas have
(broker/traffic/fast_lane.py). Filled by the lane; an answer is given to its connection, many in one
write, as bytes of its own: a connection that gets one may add others, which moves the texts.

    texts    | answer | answer | answer | ...          in the order of their records
    ring     | end, need, connection, size | ...       an entry for each
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memmove, memset

from turbopump.pyx.c_traffic cimport *

cdef extern from "bytes.h" nogil:
    void be_put_i32(uint8_t *at, int32_t value)

NEED_MAX = HELD_NEEDS - 2
"""Copies that may be asked for; a group has three or five."""

cdef enum:
    FIRST_RING = 1024
    FIRST_TEXTS = 1 << 16
    HEAD = 8                      # lengths in front of a header
    CODE_SIZE = 9                 # of {"code":0
    CODE_ROOM = 16                # more than any code is longer


cdef class Holder:
    """A connection whose answers are held."""

    cdef int give(self, bytes answers, Py_ssize_t count) except -1:
        """Write them; nobody is there any more where the connection is closed."""
        raise NotImplementedError


cdef class Held:
    """See the stub."""

    def __cinit__(self):
        self.ring = <held_answer *>PyMem_Malloc(FIRST_RING * sizeof(held_answer))
        self.texts = <uint8_t *>PyMem_Malloc(FIRST_TEXTS)
        if self.ring == NULL or self.texts == NULL:
            raise MemoryError
        self.ring_room, self.room = FIRST_RING, FIRST_TEXTS
        for need in range(HELD_NEEDS):
            self.safe[need] = -1
        self.safe[0 + 1] = self.safe[1 + 1] = INT64_MAX
        self.flushed = INT64_MAX
        self.limit = 0
        self.statuses = {}
        self.region = b""

    def __dealloc__(self):
        while self.waiting:
            Py_DECREF(<object>self.ring[self.first].holder)
            self.first = (self.first + 1) & (self.ring_room - 1)
            self.waiting -= 1
        PyMem_Free(self.ring)
        PyMem_Free(self.texts)

    def configure(self, bytes region not None, bint trace_on, dict statuses not None) -> None:
        """What answers say; see the stub."""
        self.region, self.trace_on, self.statuses = region, trace_on, statuses

    @property
    def count(self) -> int:
        """Answers that wait."""
        return self.waiting

    def flushed_to(self, int64_t end) -> None:
        """All before that log offset is durable."""
        self.flushed = end
        self.sweep()

    def replicated_to(self, int32_t need, int64_t end) -> None:
        """So many copies reach that log offset."""
        if -1 <= need <= HELD_NEEDS - 2:
            self.safe[need + 1] = end
            self.sweep()

    def sweep(self) -> None:
        """Give the answers whose records are safe, side by side for the same connection at once."""
        cdef held_answer one
        cdef held_answer *next_one
        cdef size_t size, begin
        cdef Py_ssize_t count
        cdef bytes answers
        while self.waiting and self.is_safe(&self.ring[self.first]):
            begin = self.begin
            one = self.take()
            size, count = one.size, 1
            while self.waiting:
                next_one = &self.ring[self.first]
                if next_one.holder != one.holder or not self.is_safe(next_one):
                    break
                size += next_one.size
                count += 1
                Py_DECREF(<object>self.take().holder)
            holder = <Holder>one.holder
            Py_DECREF(<object>one.holder)
            answers = PyBytes_FromStringAndSize(<char *>self.texts + begin, <Py_ssize_t>size)
            holder.give(answers, count)

    def expire(self, int64_t steady_ms, late_replicas, late_disk) -> None:
        """Time has passed: whoever has waited long enough is told so."""
        cdef held_answer *one
        self.steady_ms = steady_ms
        while self.waiting:
            one = &self.ring[self.first]
            if one.end > self.safe_end(one.need):
                if steady_ms - one.since_ms < self.replica_wait_ms:
                    return
                self.tell(self.take(), late_replicas)
            elif one.end > self.flushed:
                if steady_ms - one.since_ms < self.disk_wait_ms:
                    return
                self.tell(self.take(), late_disk)
            else:
                self.sweep()

    def fail(self, status, int64_t after=-1) -> None:
        """Whoever waits for a record that ends behind `after` is told that status."""
        cdef held_answer one
        cdef list told = []
        # The last ones first, so that those that stay are where they were; each is out of the ring
        # before its connection hears of it.
        while self.waiting:
            one = self.ring[(self.first + self.waiting - 1) & (self.ring_room - 1)]
            if one.end <= after:
                break
            told.append((<Holder>one.holder, self.refusal(one, status, self.end - one.size)))
            Py_DECREF(<object>one.holder)
            self.waiting -= 1
            self.end -= one.size
        for holder, answer in reversed(told):
            (<Holder>holder).give(answer, 1)

    cdef bint is_safe(self, const held_answer *one):
        return one.end <= self.flushed and one.end <= self.safe_end(one.need)

    cdef int64_t safe_end(self, int32_t need):
        return self.safe[need + 1]

    cdef bint is_full(self):
        return <Py_ssize_t>self.waiting >= self.limit

    cdef int add(self, Holder holder, const trf_send_answer *answer, int64_t end,
                 int32_t need) except -1:
        """Hold an answer until its record is safe."""
        cdef held_answer *one
        self.grow(trf_send_reply_room(answer))
        one = &self.ring[(self.first + self.waiting) & (self.ring_room - 1)]
        one.size = trf_send_reply(self.texts + self.end, self.room - self.end, answer)
        one.end, one.need, one.opaque = end, need, answer.opaque
        one.since_ms = self.steady_ms
        one.holder = <void *>holder
        Py_INCREF(holder)
        self.end += one.size
        self.waiting += 1
        return 0

    cdef int grow(self, size_t size) except -1:
        """Room for one more, with so many bytes."""
        cdef size_t wanted, room = self.room
        cdef held_answer *ring
        cdef void *texts
        if not self.waiting:
            self.begin = self.end = 0
        wanted = self.end - self.begin + size
        if self.waiting == self.ring_room:
            ring = <held_answer *>PyMem_Malloc(2 * self.ring_room * sizeof(held_answer))
            if ring == NULL:
                raise MemoryError
            for number in range(self.waiting):
                ring[number] = self.ring[(self.first + number) & (self.ring_room - 1)]
            PyMem_Free(self.ring)
            self.ring, self.first = ring, 0
            self.ring_room *= 2
        if self.end + size <= self.room:
            return 0
        memmove(self.texts, self.texts + self.begin, self.end - self.begin)
        self.end -= self.begin
        self.begin = 0
        while room < 2 * wanted:
            room *= 2
        if room > self.room:
            texts = PyMem_Realloc(self.texts, room)
            if texts == NULL:
                raise MemoryError
            self.texts, self.room = <uint8_t *>texts, room
        return 0

    cdef held_answer take(self):
        """The first one, whose reference is the caller's now; its text stays until the next
        `add`."""
        cdef held_answer one = self.ring[self.first]
        self.first = (self.first + 1) & (self.ring_room - 1)
        self.waiting -= 1
        self.begin += one.size
        return one

    cdef int tell(self, held_answer one, object status) except -1:
        """Tell the one that was just taken that its record is not safe."""
        holder = <Holder>one.holder
        Py_DECREF(<object>one.holder)
        holder.give(self.refusal(one, status, self.begin - one.size), 1)
        return 0

    cdef bytes refusal(self, held_answer one, object status, size_t at):
        """The answer whose text is at `at`, made into one that says that status."""
        cdef trf_refusal refusal
        cdef bytes remark, answer, made
        cdef size_t size
        answer = PyBytes_FromStringAndSize(<char *>self.texts + at, <Py_ssize_t>one.size)
        code, remark = self.statuses[status]
        if remark is None:
            made = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>one.size + CODE_ROOM)
            size = with_code(<uint8_t *><char *>made, <const uint8_t *><const char *>answer,
                             one.size, code)
        else:
            memset(&refusal, 0, sizeof(trf_refusal))
            refusal.code, refusal.opaque = code, one.opaque
            refusal.remark = text_of(remark)
            refusal.region, refusal.trace_on = text_of(self.region), self.trace_on
            size = trf_refusal_room(&refusal)
            made = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
            size = trf_send_refusal(<uint8_t *><char *>made, size, &refusal)
        return made[:<Py_ssize_t>size]


cdef size_t with_code(uint8_t *out, const uint8_t *answer, size_t size, int32_t code):
    """A whole answer with another code than 0; the size."""
    cdef bytes text = b'{"code":' + str(code).encode()
    cdef size_t head = <size_t>len(text)
    memcpy(out + HEAD, <const char *>text, head)
    memcpy(out + HEAD + head, answer + HEAD + CODE_SIZE, size - HEAD - CODE_SIZE)
    size += head - CODE_SIZE
    be_put_i32(out, <int32_t>size - 4)
    be_put_i32(out + 4, <int32_t>size - HEAD)
    return size


cdef trf_text text_of(bytes text):
    cdef trf_text found
    found.at, found.size = <const uint8_t *><const char *>text, <unsigned int>len(text)
    return found
