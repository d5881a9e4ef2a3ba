# cython: auto_pickle=False
"""The only list of sends that wait until their records are safe: on the disk, and with the
replicas.

Owns their order, which is the log's, the offsets up to which the log is safe, and the bytes of
native answers. It must never find out by itself which records are safe: the group commit
(engine/log/group_commit.py) reports the durable part of the log, and the term as master
(broker/ha/leader.py) reports the replicas' progress and the number of copies that a send needs. The
lane adds native answers, the store adds callbacks for the handlers. Answers for one connection are
given as one bytes object, many in one write: they are copied because answering may add others,
which moves the texts.

    texts    | answer | answer |   | answer | ...      in the order of their records
    ring     | end, need, holder, size | ...           an entry for each; a handler's has size 0
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memmove, memset

from turbopump.pyx.c_traffic cimport *

cdef extern from "bytes.h" nogil:
    void be_put_i32(uint8_t *at, int32_t value)

NEED_MAX = NEEDS - 2
"""Greatest number of copies that may be asked for; a group has three or five members."""
PENDING_MAX = 1_000_000
"""Greatest number of waiting sends: at 1 KB each, as many as a replica that is 1 GB late leaves."""

cdef enum:
    FIRST_RING = 1024
    FIRST_TEXTS = 1 << 16
    HEAD = 8                      # lengths in front of a header
    CODE_SIZE = 9                 # of {"code":0
    CODE_ROOM = 16                # more than the longest code has


cdef class Holder:
    """A connection whose answers are held."""

    cdef int give(self, bytes answers, Py_ssize_t count) except -1:
        """Write answers, or drop them if the connection is closed."""
        raise NotImplementedError


cdef class PendingSends:
    """See the stub."""

    def __cinit__(self, ok, late_replicas, late_disk):
        self.ok, self.late_replicas, self.late_disk = ok, late_replicas, late_disk
        self.ring = <pending_send *>PyMem_Malloc(FIRST_RING * sizeof(pending_send))
        self.texts = <uint8_t *>PyMem_Malloc(FIRST_TEXTS)
        if self.ring == NULL or self.texts == NULL:
            raise MemoryError
        self.ring_room, self.room = FIRST_RING, FIRST_TEXTS
        for need in range(NEEDS):
            self.safe[need] = -1
        self.safe[0 + 1] = self.safe[1 + 1] = INT64_MAX
        self.flushed = INT64_MAX
        self.copies = 1
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
        """Set the fields of native answers; see the stub."""
        self.region, self.trace_on, self.statuses = region, trace_on, statuses

    @property
    def count(self) -> int:
        """Number of waiting sends."""
        return self.waiting

    def wait(self, int64_t end, int32_t need, callback not None) -> None:
        """Call `callback` with the status once the record is safe; see the stub."""
        cdef const pending_send *last
        if not -1 <= need <= NEEDS - 2:
            raise ValueError(f"{need} copies")
        if end <= self.flushed and end <= self.safe_of(need):
            callback(self.ok)
        elif <Py_ssize_t>self.waiting >= <Py_ssize_t>PENDING_MAX:
            callback(self.late_replicas if end > self.safe_of(need) else self.late_disk)
        else:
            self.grow(0)
            if self.waiting:
                # Records appended together are reported in any order, and their sends are answered
                # together.
                last = &self.ring[(self.first + self.waiting - 1) & (self.ring_room - 1)]
                end = max(end, last.end)
            self.enter(<void *>callback, end, need).size = 0

    def flushed_to(self, int64_t end) -> None:
        """Note that the log is durable up to `end`, and answer the sends that are safe now."""
        self.flushed = end
        self.sweep()

    def ask_for(self, copies) -> None:
        """Set the number of copies that new sends need; see the stub."""
        cdef int32_t wanted = 1 if copies is None else copies
        if not -1 <= wanted <= NEEDS - 2:
            raise ValueError(f"{wanted} copies")
        self.copies, self.not_enough, self.withheld = wanted, copies is None, False

    def replicated_to(self, int32_t need, int64_t end) -> None:
        """Note that `need` copies reach the log offset `end`; see the stub."""
        if not -1 <= need <= NEEDS - 2:
            raise ValueError(f"{need} copies")
        if need not in (0, 1) and self.safe[need + 1] != end:
            self.safe[need + 1] = end
            self.sweep()

    def safe_end(self, int32_t need) -> int:
        """Return the log offset that `need` copies reach; -1 if unknown."""
        if not -1 <= need <= NEEDS - 2:
            raise ValueError(f"{need} copies")
        return self.safe_of(need)

    def withhold(self, status) -> None:
        """Forget the progress of all replicas; see the stub."""
        for need in range(NEEDS):
            if need not in (0 + 1, 1 + 1):
                self.safe[need] = -1
        self.withheld = True
        self.fail(status)

    def sweep(self) -> None:
        """Answer the safe sends; consecutive native answers of one connection are written
        together."""
        cdef pending_send one
        cdef pending_send *next_one
        cdef size_t size, begin
        cdef Py_ssize_t count
        cdef bytes answers
        while self.waiting and self.is_safe(&self.ring[self.first]):
            begin = self.begin
            one = self.take()
            if not one.size:
                self.tell(one, self.ok)
                continue
            size, count = one.size, 1
            while self.waiting:
                next_one = &self.ring[self.first]
                if next_one.holder != one.holder or not next_one.size:
                    break
                if not self.is_safe(next_one):
                    break
                size += next_one.size
                count += 1
                Py_DECREF(<object>self.take().holder)
            holder = <Holder>one.holder
            Py_DECREF(<object>one.holder)
            answers = PyBytes_FromStringAndSize(<char *>self.texts + begin, <Py_ssize_t>size)
            holder.give(answers, count)

    def expire(self, int64_t steady_ms) -> None:
        """Advance the clock and answer late sends; see the stub."""
        cdef pending_send *one
        self.steady_ms = steady_ms
        while self.waiting:
            one = &self.ring[self.first]
            if one.end > self.safe_of(one.need):
                if steady_ms - one.since_ms < self.replica_wait_ms:
                    return
                self.tell(self.take(), self.late_replicas)
            elif one.end > self.flushed:
                if steady_ms - one.since_ms < self.disk_wait_ms:
                    return
                self.tell(self.take(), self.late_disk)
            else:
                self.sweep()

    def withdraw(self, status, int64_t after) -> list:
        """Remove and return the sends whose records end after `after`; see the stub."""
        cdef pending_send one
        cdef list withdrawn = []
        # From the last one to the first, so that the remaining entries stay in place; each entry is
        # removed before its holder is called.
        while self.waiting:
            one = self.ring[(self.first + self.waiting - 1) & (self.ring_room - 1)]
            if one.end <= after:
                break
            answer = self.refusal(one, status, self.end - one.size) if one.size else None
            withdrawn.append((<object>one.holder, answer, status))
            Py_DECREF(<object>one.holder)
            self.waiting -= 1
            self.end -= one.size
        withdrawn.reverse()
        return withdrawn

    def answer(self, list withdrawn not None) -> None:
        """Answer withdrawn sends with their status."""
        for holder, answer, status in withdrawn:
            if answer is None:
                holder(status)
            else:
                (<Holder?>holder).give(answer, 1)

    def fail(self, status, int64_t after=-1) -> None:
        """Answer the sends whose records end after `after` with this status."""
        self.answer(self.withdraw(status, after))

    cdef bint is_safe(self, const pending_send *one):
        return one.end <= self.flushed and one.end <= self.safe_of(one.need)

    cdef int64_t safe_of(self, int32_t need):
        return self.safe[need + 1]

    cdef bint is_full(self):
        return <Py_ssize_t>self.waiting >= self.limit

    cdef int add(self, Holder holder, const trf_send_answer *answer, int64_t end,
                 int32_t need) except -1:
        """Hold an answer until its record is safe."""
        cdef pending_send *one
        self.grow(trf_send_reply_room(answer))
        one = self.enter(<void *>holder, end, need)
        one.size = trf_send_reply(self.texts + self.end, self.room - self.end, answer)
        one.opaque = answer.opaque
        self.end += one.size
        return 0

    cdef pending_send *enter(self, void *holder, int64_t end, int32_t need):
        """Add an entry after the last one; there is room, and the caller sets its size."""
        cdef pending_send *one
        one = &self.ring[(self.first + self.waiting) & (self.ring_room - 1)]
        one.end, one.need, one.since_ms, one.holder = end, need, self.steady_ms, holder
        Py_INCREF(<object>holder)
        self.waiting += 1
        return one

    cdef int grow(self, size_t size) except -1:
        """Make room for one more entry, with a text of `size` bytes."""
        cdef size_t wanted, room = self.room
        cdef pending_send *ring
        cdef void *texts
        if not self.waiting:
            self.begin = self.end = 0
        wanted = self.end - self.begin + size
        if self.waiting == self.ring_room:
            ring = <pending_send *>PyMem_Malloc(2 * self.ring_room * sizeof(pending_send))
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

    cdef pending_send take(self):
        """Remove the first entry, whose reference now belongs to the caller; its text stays until
        the next `add`."""
        cdef pending_send one = self.ring[self.first]
        self.first = (self.first + 1) & (self.ring_room - 1)
        self.waiting -= 1
        self.begin += one.size
        return one

    cdef int tell(self, pending_send one, object status) except -1:
        """Call the holder of an entry that was just taken; a native answer becomes a refusal with
        `status`."""
        holder = <object>one.holder
        Py_DECREF(<object>one.holder)
        if one.size:
            (<Holder?>holder).give(self.refusal(one, status, self.begin - one.size), 1)
        else:
            holder(status)
        return 0

    cdef bytes refusal(self, pending_send one, object status, size_t at):
        """Change the answer at `at` into one with this status."""
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
    """Write a whole answer with another code than 0; returns its size."""
    cdef bytes text = b'{"code":' + str(code).encode()
    cdef size_t head = <size_t>len(text)
    memcpy(out + HEAD, <const char *>text, head)
    memcpy(out + HEAD + head, answer + HEAD + CODE_SIZE, size - HEAD - CODE_SIZE)
    size += head - CODE_SIZE
    be_put_i32(out, <int32_t>size - 4)
    be_put_i32(out + 4, <int32_t>size - HEAD)
    return size
