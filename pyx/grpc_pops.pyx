# cython: auto_pickle=False
"""Plain receives of gRPC: from a pop of the fast lane to the framed messages of the answer, without
an object for each.

Owns the memory that the messages are written to. It must never decide which pops are plain beyond
the records: the rows of pyx/pops.pyx do, as for remoting; nor which messages a client may
receive.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from turbopump.pyx.c_grpc cimport *
from turbopump.pyx.c_pops cimport LANE_POP_MAX, lane_part
from turbopump.pyx.c_traffic cimport bytes_of, text_of, trf_pop_answer, trf_request, trf_text
from turbopump.pyx.lane cimport Lane
from turbopump.pyx.pops cimport Pops

cdef enum:
    SIZE_MAX = 1 << 20            # of a pop's records, which the loop's thread copies
    KEPT_ROOM = 1 << 18           # bytes of memory kept for the next pop
    TAGS_MAX = 16


cdef class GrpcPops:
    """See the stub."""

    cdef object md5               # function that returns a digest of bytes
    cdef uint8_t *out
    cdef size_t room, size
    cdef int32_t count
    cdef grm_message made[LANE_POP_MAX]
    cdef readonly long long message_count

    def __init__(self, md5 not None):
        self.md5 = md5

    def __dealloc__(self):
        PyMem_Free(self.out)

    def take(
        self, Lane lane not None, bytes group not None, bytes topic not None, int32_t count,
        int64_t invisible_ms, *, bytes expression, bytes expression_type, tuple tags not None,
        int32_t attempts_max, bint with_rows
    ):
        """Pop messages and write them as responses; see the stub."""
        cdef trf_request request
        cdef trf_text wanted[TAGS_MAX]
        cdef grm_pop pop
        cdef Pops pops = lane.pops
        cdef list rows = None
        cdef int number
        if pops is None or not lane.open or lane.busy or len(tags) > TAGS_MAX:
            return None
        if not lane.may_hide():
            return None
        memset(&request, 0, sizeof(trf_request))
        request.pop.consumer_group, request.pop.topic = text_of(group), text_of(topic)
        request.pop.invisible_time, request.pop.max_msg_nums = invisible_ms, count
        request.pop.queue_id = -1
        if expression is not None:
            request.pop.exp = text_of(expression)
        if expression_type is not None:
            request.pop.exp_type = text_of(expression_type)
        for number in range(len(tags)):
            wanted[number] = text_of(tags[number])
        memset(&pop, 0, sizeof(grm_pop))
        pop.tags, pop.tag_count, pop.attempts_max = wanted, <int32_t>len(tags), attempts_max
        try:
            if not self.hide(lane, pops, &request, &pop):
                return None
            # The records are not read after this line, only the numbers of the pops.
            framed = self.written()
            if with_rows:
                rows = self.rows()
            pops.note(pop.pop_time_ms + invisible_ms, lane.watched)
            self.shrink()
        finally:
            lane.end_puts()
        return framed, pop.pop_time_ms, pop.revive_queue_id, rows

    cdef bint hide(self, Lane lane, Pops pops, const trf_request *request, grm_pop *pop) except -1:
        """Write the messages found, and hide them; False: nothing was done, and the Python handler
        has to serve the pop."""
        cdef int64_t now_ms = lane.now()
        cdef trf_pop_answer answer
        lane.settle()
        # No call of Python until the messages are written: they lie in mappings that such a call
        # could release.
        if not pops.find(request, now_ms) or pops.got.size > SIZE_MAX:
            return False
        pops.fill(request, now_ms, &answer)
        pop.pop_time_ms, pop.invisible_ms = now_ms, answer.invisible_ms
        pop.revive_queue_id, pop.broker_name = answer.revive_queue_id, text_of(lane.broker_name)
        return self.write(pops, pop) and pops.hide(&lane.core, request, now_ms)

    cdef bint write(self, Pops pops, grm_pop *pop) except -1:
        """Write the framed messages; False: Python has to write one of them."""
        cdef size_t run, at, size, written
        cdef int32_t part = 0
        cdef const lane_part *one
        cdef const uint8_t *record
        self.size, self.count = 0, 0
        self.make_room(pops)
        for run in range(pops.got.run_count):
            at = 0
            while at < pops.got.runs[run].size:
                record = pops.got.runs[run].at + at
                size = grm_record_size(record, pops.got.runs[run].size - at)
                if size == 0 or self.count >= pops.got.count:
                    return False
                while self.count >= pops.got.parts[part].first + pops.got.parts[part].count:
                    part += 1
                one = &pops.got.parts[part]
                pop.start, pop.queue_id = one.start, one.queue_id
                written = grm_write(pop, record, size, pops.got.offsets[self.count],
                                    self.out + self.size, &self.made[self.count])
                if written == 0:
                    return False
                self.size += written
                self.count += 1
                at += size
        return self.count == pops.got.count

    cdef int make_room(self, Pops pops) except -1:
        """Make room for all messages found."""
        cdef size_t room = 0
        cdef void *out
        room = grm_room(pops.got.size, <size_t>pops.got.count)
        if room > self.room:
            out = PyMem_Realloc(self.out, room)
            if out == NULL:
                raise MemoryError
            self.out, self.room = <uint8_t *>out, room
        return 0

    cdef list rows(self):
        """Return the row of each message, see the stub of `take`."""
        cdef list rows = []
        cdef int32_t number
        cdef const grm_message *one
        for number in range(self.count):
            one = &self.made[number]
            rows.append((bytes_of(one.message_id), one.start, one.queue_id, one.queue_offset,
                         one.log_offset))
        return rows

    cdef bytes written(self):
        """Return the framed messages, after adding the digest of each."""
        cdef bytes framed, body, digest
        cdef int32_t number
        cdef grm_message *one
        for number in range(self.count):
            one = &self.made[number]
            body = PyBytes_FromStringAndSize(<char *>one.body, <Py_ssize_t>one.body_size)
            digest = self.md5(body)
            if len(digest) != 16:
                raise ValueError("a digest of MD5 has 16 bytes")
            grm_digest(one, <const uint8_t *>PyBytes_AS_STRING(digest))
        self.message_count += self.count
        framed = PyBytes_FromStringAndSize(<char *>self.out, <Py_ssize_t>self.size)
        return framed

    cdef void shrink(self) noexcept:
        """Free the memory if it is larger than KEPT_ROOM."""
        if self.room > KEPT_ROOM:
            PyMem_Free(self.out)
            self.out, self.room = NULL, 0
