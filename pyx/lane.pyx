# cython: auto_pickle=False
"""The fast lane of a broker: plain requests served without a Python object for each.

Owns the native topic table, the answers of the current read, and the moment of dispatch. It must
never decide which requests are plain: the broker does (broker/traffic/fast_path.py), and the Python
handlers serve all others.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memset

from turbopump.pyx.acks cimport Acks
from turbopump.pyx.c_dispatch cimport DSP_ARRIVED, DSP_WOKEN, dsp_has
from turbopump.pyx.c_lane cimport *
from turbopump.pyx.c_pulls cimport lane_found
from turbopump.pyx.c_traffic cimport *
from turbopump.pyx.dispatch cimport QueueTable
from turbopump.pyx.halves cimport HalfMarks
from turbopump.pyx.index cimport idx_topic_hash
from turbopump.pyx.pending cimport Holder, PendingSends
from turbopump.pyx.pops cimport Pops
from turbopump.pyx.tail cimport Tail, log_tail

cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *at)
    int CLOCK_REALTIME

SCRATCH_SIZE = 1 << 16
"""Size in bytes of the texts of a header; the Python handlers serve longer headers."""
TIME_MAX = 1 << 60
"""Greatest time in ms: the sum of two such times fits into 64 bits, too."""
MAX_TOPICS = 1 << 18
"""Greatest number of topics in the table, some 20 MB. A broker has at most 100,000; the names of
deleted topics stay, and the Python handlers serve topics without a row."""

cdef enum:
    FIRST_TOPICS = 64
    FIRST_OUT = 1 << 16
    BATCH_ELEMENT_MIN = 22        # bytes of the smallest element of a batch body
    READ_SENDS = 32               # of a read, in a benchmark
    COMMIT = 8                    # outcomes that an end of a transaction requests
    PULL_NOT_FOUND = 19
    COMMITTED = 1                 # marks of half messages (TransactionOutcome)
    ROLLED_BACK = 2


cdef class Lane:
    """The native path of a broker; see the stub."""

    def __cinit__(
        self, Tail tail not None, QueueTable queues not None, PendingSends pending not None,
        Py_ssize_t max_body, *, dispatch, arrived, add_queue, clock=None
    ):
        self.tail, self.queues = tail, queues
        self.dispatch, self.arrived, self.clock = dispatch, arrived, clock
        self.add_queue = add_queue
        self.names = []
        self.core.tail = &tail.tail
        self.core.queues = &queues.table
        tail.describe(queues, &queues.table.descriptors)
        self.core.max_body = <size_t>max_body
        self.core.texts = <uint8_t *>PyMem_Malloc(LANE_TEXT_ROOM)
        self.core.log_offsets = <int64_t *>PyMem_Malloc(
            (<size_t>max_body // BATCH_ELEMENT_MIN + 1) * sizeof(int64_t)
        )
        self.scratch = <uint8_t *>PyMem_Malloc(SCRATCH_SIZE)
        self.out = <uint8_t *>PyMem_Malloc(FIRST_OUT)
        self.out_room = FIRST_OUT
        if (self.core.texts == NULL or self.core.log_offsets == NULL or self.scratch == NULL
                or self.out == NULL):
            raise MemoryError
        self.pending, self.acks = pending, Acks(queues)
        self.halves = self.pops = None
        self.has_templates = True
        for topic in (TIMER_TOPIC, HALF_TOPIC):
            self.add_row(topic)
        self.configure(b"", b"", True, b"\x7f\0\0\1\0\0\0\0", 0, 0, b"")

    def __dealloc__(self):
        PyMem_Free(self.core.topics.keys)
        PyMem_Free(self.core.topics.buckets)
        PyMem_Free(self.core.rows)
        PyMem_Free(self.core.texts)
        PyMem_Free(self.core.log_offsets)
        PyMem_Free(self.scratch)
        PyMem_Free(self.out)

    def configure(
        self, bytes own_properties not None, bytes region not None, bint trace_on,
        bytes store_host not None, int64_t accept_from_ms, int refused_code, bytes refused not None
    ) -> None:
        """Set the broker's values in records and answers; see the stub."""
        self.own_properties, self.region, self.store_host = own_properties, region, store_host
        self.trace_on = trace_on
        self.refused_code, self.refused = refused_code, refused
        self.core.own_properties = text_of(own_properties)
        self.core.store_host = text_of(store_host)
        self.core.accept_from_ms = accept_from_ms

    def configure_kept(
        self, bint timers, bint halves, int64_t max_delay_ms, int64_t precision_ms,
        bytes broker_name not None
    ) -> None:
        """Choose which timers and half messages are served; see the stub."""
        if precision_ms <= 0 or max_delay_ms < 0 or max_delay_ms > 1 << 52:
            raise ValueError("not the times of timers")
        self.broker_name = broker_name
        self.core.kept.timers = timers and len(broker_name) <= LANE_NAME_MAX
        self.core.kept.halves = halves
        self.core.kept.max_delay_ms = max_delay_ms
        self.core.kept.precision_ms = precision_ms
        self.core.kept.broker_name = text_of(broker_name)

    def serve_ends(self, HalfMarks halves) -> None:
        """Set the half messages whose ends are served; see the stub."""
        self.halves = halves

    def serve_pops(self, Pops pops) -> None:
        """Set the table of pops to serve natively; see the stub."""
        self.pops = pops

    def serve(self, bytes topic not None, int32_t queue_limit) -> None:
        """Serve plain sends to this topic natively; see the stub."""
        cdef nam_text name, none
        cdef int32_t number
        name.at, name.size = <const uint8_t *><const char *>topic, <size_t>len(topic)
        none.at, none.size = NULL, 0
        number = nam_find(&self.core.topics, name, none)
        if number < 0:
            if self.core.topics.count == MAX_TOPICS:
                return
            number = self.add_row(topic)
        self.core.rows[number].queue_limit = queue_limit
        self.core.rows[number].plain = True

    def forget(self, bytes topic not None) -> None:
        """Leave sends to this topic to the Python handler, until the next `serve`."""
        cdef nam_text name, none
        cdef int32_t number
        name.at, name.size = <const uint8_t *><const char *>topic, <size_t>len(topic)
        none.at, none.size = NULL, 0
        number = nam_find(&self.core.topics, name, none)
        if number >= 0:
            self.core.rows[number].plain = False

    def forget_all(self) -> None:
        """Leave sends to every topic to the Python handler."""
        for number in range(self.core.topics.count):
            self.core.rows[number].plain = False

    def take_totals(self) -> tuple[int, int]:
        """Return (messages, bytes) stored since the last call."""
        cdef tuple totals = (self.core.counts.put_count, self.core.counts.put_size)
        self.core.counts.put_count = self.core.counts.put_size = 0
        return totals

    def take_topics(self) -> dict[bytes, tuple[int, int]]:
        """Return (messages, bytes) stored since the last call, by topic."""
        cdef dict counts = {}
        cdef lane_topic *row
        for number in range(self.core.topics.count):
            row = &self.core.rows[number]
            if row.put_count:
                counts[self.names[number]] = (row.put_count, row.put_size)
                row.put_count = row.put_size = 0
        return counts

    def take_halves(self) -> list[tuple[bytes, int, int, int, int, int]]:
        """Return the half messages of each topic since the last call; see the stub."""
        cdef list taken = []
        cdef lane_topic *row
        cdef int32_t number = self.core.first_noted
        self.core.first_noted = 0
        while number > 0:
            row = &self.core.rows[number - 1]
            figures = (self.names[number - 1], row.halves.prepared, row.halves.committed,
                       row.halves.rolled_back, row.halves.age_s, row.halves.at_ms)
            number, row.noted = row.next_noted, False
            memset(&row.halves, 0, sizeof(lane_halves))
            taken.append(figures)
        return taken

    @property
    def kept_count(self) -> int:
        """Number of timers and half messages stored natively, which `send_count` includes."""
        return self.core.counts.kept_count

    @property
    def end_count(self) -> int:
        """Number of transaction ends served natively since the start."""
        return self.core.counts.end_count

    @property
    def ack_count(self) -> int:
        """Number of acknowledgements served natively since the start."""
        return self.core.counts.ack_count

    @property
    def send_count(self) -> int:
        """Number of sends served natively since the start."""
        return self.core.counts.send_count

    def arrivals_taken(self) -> None:
        """Allow the next call of `arrived`, and call `woken` if it is due."""
        self.notified = False
        self.wake()

    cdef int wake(self) except -1:
        """Call `woken` if queues with held pulls have grown since its work was done."""
        if dsp_has(&self.queues.table, DSP_WOKEN) and not self.wakes and self.woken is not None:
            self.wakes = True
            self.woken()
        return 0

    cdef int64_t now(self) except? -1:
        cdef timespec at
        if self.now_ms == 0:
            if self.clock is not None:
                self.now_ms = self.clock()
            else:
                clock_gettime(CLOCK_REALTIME, &at)
                self.now_ms = at.tv_sec * 1000 + at.tv_nsec // 1000000
        return self.now_ms

    cdef lane_outcome append(self, const trf_send *send, const trf_properties *known,
                             trf_text body, trf_text born_host, lane_sent *sent) except *:
        """Store a send, and add the queue if it is the first of its queue."""
        cdef lane_outcome outcome = lane_send(&self.core, send, known, body, born_host, self.now(),
                                              sent)
        if outcome == LANE_NEW_QUEUE and self.add_queue(bytes_of(send.topic), send.queue_id):
            return lane_send(&self.core, send, known, body, born_host, self.now(), sent)
        return outcome

    cdef bint send(self, const trf_request *request, const trf_properties *known,
                   bytes born_host, Holder holder) except -1:
        """Serve a send; False: nothing was done, and the Python handler has to serve it. `known`:
        its properties, or NULL."""
        cdef lane_sent sent
        cdef trf_send_answer answer
        cdef PendingSends pending = self.pending
        cdef bint holds = self.is_sync or pending.copies not in (0, 1)
        cdef lane_outcome outcome
        if pending.withheld or (holds and pending.is_full()):
            return False
        self.core.not_enough = pending.not_enough
        outcome = self.append(&request.send, known, request.body, text_of(born_host), &sent)
        if outcome == LANE_NOT_ENOUGH:
            self.refuse(request)
            return True
        if outcome != LANE_DONE:
            return False
        self.matched_count += known != NULL
        if request.is_oneway:
            return True
        memset(&answer, 0, sizeof(trf_send_answer))
        answer.opaque = request.opaque
        answer.queue_id = request.send.queue_id
        answer.queue_offset = sent.queue_offset
        answer.log_offsets = self.core.log_offsets
        answer.count = sent.count
        answer.store_host = self.core.store_host.at
        answer.store_host_size = self.core.store_host.size
        answer.transaction_id = sent.unique_key
        answer.recall_handle = sent.handle
        answer.region = text_of(self.region)
        answer.trace_on = self.trace_on
        if holds and sent.waits:
            pending.add(holder, &answer, sent.end, pending.copies)
            holder.held_now += 1
            return True
        self.make_room(trf_send_reply_room(&answer))
        self.out_size += trf_send_reply(self.out + self.out_size, self.out_room - self.out_size,
                                        &answer)
        return True

    def append_repeatedly(
        self, bytes frame not None, bytes born_host not None, Py_ssize_t rounds, bint dispatched
    ) -> int:
        """Store the send in a frame `rounds` times without Python in between, and return the number
        stored; for benchmarks. `dispatched`: dispatch after each 32 records, as in a read; else do
        not dispatch."""
        cdef trf_request request
        cdef lane_sent sent
        cdef trf_text host = text_of(born_host)
        cdef Py_ssize_t stored = 0
        cdef Py_ssize_t round_
        if trf_decode(<const uint8_t *><const char *>frame, <size_t>len(frame), self.scratch,
                      <size_t>SCRATCH_SIZE, &request) != TRF_PLAIN or request.kind != TRF_SEND:
            return 0
        assert not self.busy
        self.busy = True
        try:
            for round_ in range(rounds):
                stored += lane_send(&self.core, &request.send, NULL, request.body, host,
                                    self.now(), &sent) == LANE_DONE
                if dispatched and round_ % READ_SENDS == READ_SENDS - 1:
                    self.settle()
        finally:
            self.now_ms = 0
            self.busy = False
        return stored

    cdef bint end(self, const trf_request *request) except -1:
        """Serve the end of a transaction; False: nothing was done, and the Python handler has to
        serve it, as it does for an end with an answer that is no commit, or whose answer has to
        wait for the disk or replicas."""
        cdef PendingSends pending = self.pending
        cdef HalfMarks halves
        cdef bint commits = request.end.commit_or_rollback == COMMIT
        cdef int64_t half = request.end.tran_state_table_offset
        cdef int64_t now_ms = self.now()
        if self.halves is None or pending.withheld or pending.not_enough:
            return False
        if not self.core.kept.halves:
            return False
        if not request.is_oneway and (not commits or self.waits()):
            return False
        if request.end.commit_log_offset >= self.core.tail.dispatched:
            self.settle()
        # The values found here are valid until `finish`, because no Python runs between the two.
        halves = self.halves
        if halves is None or not halves.may_end(half, request.end.commit_log_offset):
            return False
        if lane_end(&self.core, &request.end, now_ms) != LANE_DONE:
            return False
        halves.finish(half, COMMITTED if commits else ROLLED_BACK)
        if not request.is_oneway:
            self.make_room(TRF_REPLY_FIXED)
            self.out_size += trf_end_reply(self.out + self.out_size,
                                           self.out_room - self.out_size, request.opaque)
        return True

    cdef bint waits(self):
        """Whether an answer waits until its record is safe."""
        return self.is_sync or self.pending.copies not in (0, 1)

    cdef bint may_hide(self):
        """Whether check points and acknowledgements are written natively: only if their answers
        need not wait for the disk or replicas."""
        cdef PendingSends pending = self.pending
        return (self.core.kept.timers and not self.waits() and not pending.withheld
                and not pending.not_enough)

    cdef bint ack(self, const trf_request *request, const uint8_t *frame, size_t size) except -1:
        """Note an acknowledgement that lies at `frame`; False: the Python handler has to serve it,
        as it does if the answer has to wait for the disk or replicas."""
        return self.may_hide() and self.acks.add(&self.core, request, frame, size)

    def add_check_point(
        self, bytes topic not None, bytes group not None, int32_t queue_id, int64_t start,
        int64_t pop_time_ms, bytes broker_name not None, int64_t invisible_ms, tuple distances,
        bint is_suspended, int32_t revive_queue_id, int64_t now_ms
    ) -> bool:
        """Write a check point whose answer waits for neither disk nor replicas; see the stub."""
        cdef PendingSends pending = self.pending
        cdef lane_point point
        cdef int64_t distance
        if not self.open or self.waits() or pending.withheld or pending.not_enough:
            return False
        if not 0 < len(distances) <= LANE_OFFSETS_MAX or min(
            queue_id, start, pop_time_ms, invisible_ms, revive_queue_id
        ) < 0 or max(pop_time_ms, invisible_ms) >= TIME_MAX:
            return False
        point.topic, point.group = text_of(topic), text_of(group)
        point.broker_name = text_of(broker_name)
        point.queue_id, point.revive_queue_id = queue_id, revive_queue_id
        point.start, point.pop_time_ms, point.invisible_ms = start, pop_time_ms, invisible_ms
        point.is_suspended, point.count = is_suspended, 0
        for distance in distances:
            if distance < 0:
                return False
            point.distances[point.count] = distance
            point.count += 1
        if lane_write_point(&self.core, &self.acks.core, &point, now_ms) != LANE_DONE:
            return False
        self.settle()
        if not self.busy:
            self.now_ms = 0
        return True

    def put_send(
        self, bytes topic not None, int32_t queue_id, bytes properties not None,
        bytes body not None, int64_t born_ms, bytes born_host not None
    ):
        """Store a send whose answer waits for neither disk nor replicas; see the stub."""
        cdef trf_send send
        cdef lane_sent sent
        cdef tuple placed = None
        memset(&send, 0, sizeof(trf_send))
        send.topic, send.properties = text_of(topic), text_of(properties)
        send.queue_id, send.born_timestamp = queue_id, born_ms
        if self.put(&send, text_of(body), text_of(born_host), &sent):
            # Objects are made before any Python runs, because their bytes lie in the core.
            placed = (sent.queue_offset, self.core.log_offsets[0], bytes_of(sent.unique_key),
                      bytes_of(sent.handle))
        self.end_puts()
        return placed

    cdef bint put(self, const trf_send *send, trf_text body, trf_text born_host,
                  lane_sent *sent) except -1:
        """Store a send whose answer waits for neither disk nor replicas; False: nothing was done,
        and the Python handler has to serve it. The caller must call `end_puts` before it
        answers."""
        cdef PendingSends pending = self.pending
        if not self.open or self.busy or not body.size:
            return False
        if self.waits() or pending.withheld or pending.not_enough:
            return False
        self.core.not_enough = False
        return self.append(send, NULL, body, born_host, sent) == LANE_DONE

    cdef int end_puts(self) except -1:
        """Make the records stored by `put` visible."""
        if self.busy:
            return 0
        try:
            if self.open:
                self.settle()
        finally:
            self.now_ms = 0
        return 0

    cdef bint note_ack(self, const trf_request *request, const uint8_t *frame,
                       size_t size) except -1:
        """Note an acknowledgement outside of a read of remoting; see `ack`. The caller must call
        `write_acks` and `forget_acks` before it releases the bytes at `frame`, and before the next
        read."""
        return self.open and not self.busy and self.ack(request, frame, size)

    cdef int forget_acks(self) except -1:
        """Forget the noted acknowledgements."""
        if not self.busy:
            self.acks.core.joined_count = self.acks.core.acked_count = 0
        return 0

    cdef bint is_named(self, trf_text name):
        """Whether this is the broker's name."""
        cdef trf_text own = text_of(self.broker_name)
        return own.size > 0 and own.size == name.size and memcmp(own.at, name.at, own.size) == 0

    cdef int write_acks(self) except -1:
        """Write the acknowledgements of this read, and answer each with a written record; returns
        the number of check points left to the Python handler."""
        cdef Acks acks = self.acks
        cdef PendingSends pending = self.pending
        cdef const lane_acked *acked
        cdef int32_t number
        cdef int left
        if self.waits() or pending.withheld or pending.not_enough:
            return acks.core.joined_count
        left = acks.write(&self.core, self.now())
        for number in range(acks.core.acked_count):
            acked = &acks.core.acked[number]
            if not acked.is_oneway and acks.core.joined[acked.joined].is_written:
                self.make_room(TRF_REPLY_FIXED)
                self.out_size += trf_end_reply(self.out + self.out_size,
                                               self.out_room - self.out_size, acked.opaque)
        return left

    cdef int refuse(self, const trf_request *request) except -1:
        """Refuse a send because too few replicas are in sync."""
        cdef trf_refusal refusal
        if request.is_oneway:
            return 0
        refusal.code, refusal.opaque = self.refused_code, request.opaque
        refusal.remark, refusal.region = text_of(self.refused), text_of(self.region)
        refusal.trace_on = self.trace_on
        self.make_room(trf_refusal_room(&refusal))
        self.out_size += trf_send_refusal(self.out + self.out_size, self.out_room - self.out_size,
                                          &refusal)
        return 0

    cdef bint put_pulled(self, const lane_found *found, int32_t opaque, bint is_found) except -1:
        """Write the answer to a pull, up to the messages found; `is_found` False: it found none,
        because it asked for the next message of its queue. Returns False if nothing was
        written."""
        cdef trf_pull_answer answer
        cdef size_t size
        memset(&answer, 0, sizeof(trf_pull_answer))
        answer.opaque = opaque
        if is_found:
            answer.remark.at, answer.remark.size = <const uint8_t *>b"FOUND", 5
        else:
            answer.code = PULL_NOT_FOUND
            answer.remark.at, answer.remark.size = <const uint8_t *>b"OFFSET_OVERFLOW_ONE", 19
        answer.suggest_which_broker_id = found.broker_id
        answer.next_begin_offset = found.next_offset
        answer.min_offset, answer.max_offset = found.min_offset, found.max_offset
        answer.topic_sys_flag = found.reader.topic_sys_flag
        answer.group_sys_flag = found.reader.group_sys_flag
        answer.body_size = found.size
        self.make_room(trf_pull_reply_room(&answer))
        size = trf_pull_reply(self.out + self.out_size, self.out_room - self.out_size, &answer)
        self.out_size += size
        return size > 0

    cdef int make_room(self, size_t size) except -1:
        cdef size_t room = self.out_room
        cdef void *out
        while room - self.out_size < size:
            room *= 2
        if room > self.out_room:
            out = PyMem_Realloc(self.out, room)
            if out == NULL:
                raise MemoryError
            self.out, self.out_room = <uint8_t *>out, room
        return 0

    cdef int settle(self) except -1:
        """Make the appended records visible."""
        cdef log_tail *tail = self.core.tail
        cdef bint has_grown = tail.end != self.asked
        self.asked = tail.end
        if self.is_sync or (self.grown is not None and tail.refusals):
            # Records that are not durable are not readable yet, and a log that takes no sends may
            # be in the middle of a cut: the engine decides.
            if has_grown:
                self.dispatch(self.now())
        elif tail.dispatched < min(tail.end, tail.limit):
            if not self.queues.advance(tail):
                self.dispatch(self.now())
        if has_grown and self.grown is not None:
            self.grown()
        if self.watched and not self.notified and dsp_has(&self.queues.table, DSP_ARRIVED):
            self.notified = True
            self.arrived()
        if dsp_has(&self.queues.table, DSP_WOKEN):
            self.wake()
        return 0

    cdef int32_t add_row(self, bytes topic) except -1:
        """Add a row for a topic without one; nothing is served yet."""
        cdef int32_t number
        if self.core.topics.count == self.capacity:
            self.grow()
        self.names.append(topic)
        number = nam_add(&self.core.topics, <const uint8_t *><const char *>topic,
                         <size_t>len(topic), <size_t>len(topic))
        memset(&self.core.rows[number], 0, sizeof(lane_topic))
        self.core.rows[number].topic_hash = idx_topic_hash(
            <const uint8_t *><const char *>topic, <size_t>len(topic)
        )
        return number

    cdef int grow(self) except -1:
        cdef int32_t capacity = self.capacity * 2 if self.capacity else FIRST_TOPICS
        cdef void *keys
        cdef void *rows
        cdef void *buckets
        keys = PyMem_Realloc(self.core.topics.keys, <size_t>capacity * sizeof(nam_key))
        if keys == NULL:
            raise MemoryError
        self.core.topics.keys = <nam_key *>keys
        rows = PyMem_Realloc(self.core.rows, <size_t>capacity * sizeof(lane_topic))
        if rows == NULL:
            raise MemoryError
        self.core.rows = <lane_topic *>rows
        buckets = PyMem_Realloc(self.core.topics.buckets,
                                <size_t>capacity * 2 * sizeof(int32_t))
        if buckets == NULL:
            raise MemoryError
        self.capacity = capacity
        nam_rehash(&self.core.topics, <int32_t *>buckets, <size_t>capacity * 2)
        return 0
