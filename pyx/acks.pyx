# cython: auto_pickle=False
"""Plain acknowledgements of popped messages: many requests, one record for each check point.

Owns the table of groups and topics whose acknowledgements are plain, the acknowledgements of the
current read, and the counts of messages popped and acknowledged natively, until Python takes them.
It must never keep an acknowledgement beyond the read, nor decide which are plain: the broker does
(broker/traffic/fast_path.py).

    add, add, add ... -> write: a record for each check point -> the answers, in the order they came
"""

from cpython.mem cimport PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from turbopump.pyx.c_lane cimport *
from turbopump.pyx.c_traffic cimport *
from turbopump.pyx.dispatch cimport QueueTable
from turbopump.pyx.name_rows cimport row_room

MAX_ACKERS = 1 << 14
"""Greatest number of pairs of group and topic served natively; the Python handler serves others."""

cdef enum:
    TOPIC_MAX = 127
    SECOND = 1000


cdef class Acks:
    """See the stub."""

    def __cinit__(self, QueueTable queues not None):
        self.queues, self.names, self.texts = queues, [], []
        self.low_of = self.counted = None

    def __dealloc__(self):
        PyMem_Free(self.core.pairs.keys)
        PyMem_Free(self.core.pairs.buckets)
        PyMem_Free(self.core.rows)

    def begin(self, low_of not None, counted not None) -> None:
        """Start to serve; see the stub."""
        self.low_of, self.counted = low_of, counted

    def configure(self, bytes revive_topic not None, int32_t revive_queues) -> None:
        """Set the destination of records; see the stub."""
        if len(revive_topic) > TOPIC_MAX:
            revive_queues = 0
        self.revive_topic = revive_topic
        self.core.revive_queues = revive_queues
        self.core.revive_topic.at = <const uint8_t *><const char *>revive_topic
        self.core.revive_topic.size = <unsigned int>len(revive_topic)

    def serve(
        self, bytes group not None, bytes topic not None, int32_t queue_limit, int64_t ended_ms
    ) -> None:
        """Serve acknowledgements of this group and topic natively; see the stub."""
        cdef int32_t number = self.row_of(group, topic)
        if number >= 0:
            self.core.rows[number].queue_limit = queue_limit
            self.core.rows[number].ended_ms = ended_ms
            self.core.rows[number].plain = True

    def forget(self, bytes topic not None) -> None:
        """Leave acknowledgements of this topic to the Python handler, until the next `serve`."""
        for number in range(self.core.pairs.count):
            if self.core.rows[number].plain and self.names[number][1] == topic:
                self.core.rows[number].plain = False

    def forget_all(self) -> None:
        """Leave acknowledgements of every topic to the Python handler."""
        for number in range(self.core.pairs.count):
            self.core.rows[number].plain = False

    def mark_changed(
        self, int32_t queue_id, int64_t start, int64_t pop_time_ms, int64_t offset, int32_t by
    ) -> None:
        """Count replaced receipt handles; see the stub."""
        self.core.changed[lane_changed_slot(queue_id, start, pop_time_ms, offset)] += by

    def tell(self) -> None:
        """Report all counts to `counted`."""
        cdef flying one
        while self.noted_count:
            self.noted_count -= 1
            one = self.noted[self.noted_count]
            group, topic = self.names[one.row]
            self.counted(group, topic, one.second * SECOND, one.floor, one.change, one.acked,
                         one.first_queue_id, one.first)

    cdef bint add(self, const lane_core *lane, const trf_request *request, const uint8_t *frame,
                  size_t size) except -1:
        """Note a request; False: the Python handler has to serve it."""
        cdef int32_t row
        cdef int64_t low
        if self.low_of is None or not lane.kept.timers:
            return False
        row = lane_find_acker(&self.core, &request.ack)
        if row < 0:
            return False
        low = self.low(row, request.ack.queue_id)
        return lane_add_ack(lane, &self.core, row, request, low, frame, size) == LANE_DONE

    cdef int write(self, lane_core *lane, int64_t now_ms) except -1:
        """Write a record for each check point; returns the number of check points not written."""
        cdef lane_joined *joined
        cdef int32_t number
        cdef int left = 0
        for number in range(self.core.joined_count):
            if lane_write_ack(lane, &self.core, number, now_ms) != LANE_DONE:
                left += 1
                continue
            joined = &self.core.joined[number]
            self.count(joined.row, joined.pop_time_ms + joined.invisible_ms, joined.requests)
        return left

    cdef int64_t low(self, int32_t row, int32_t queue_id) except? -1:
        """Return the first queue offset of a queue."""
        cdef lane_low *known = &self.core.rows[row].lows[queue_id % LANE_LOWS]
        cdef int64_t generation = self.queues.generation
        cdef int64_t low
        if known.generation == generation and known.queue_id == queue_id:
            return known.low
        low = self.low_of(self.names[row][1], queue_id)
        # The callback may have moved the rows.
        known = &self.core.rows[row].lows[queue_id % LANE_LOWS]
        known.queue_id, known.generation, known.low = queue_id, generation, low
        return low

    cdef int count(self, int32_t row, int64_t until_ms, int64_t requests) except -1:
        """Count acknowledged messages."""
        cdef flying *one = self.flying_of(row, until_ms // SECOND)
        one.floor = max(<int64_t>0, one.floor - requests)
        one.change -= requests
        one.acked += requests
        return 0

    cdef int popped(self, int32_t row, int64_t until_ms, int64_t messages, int32_t queue_id,
                    int64_t first) except -1:
        """Count the messages popped of a queue, the first of them at `first`."""
        cdef flying *one = self.flying_of(row, until_ms // SECOND)
        one.floor += messages
        one.change += messages
        if one.first_queue_id < 0:
            one.first_queue_id, one.first = queue_id, first
        return 0

    cdef flying *flying_of(self, int32_t row, int64_t second) except NULL:
        """Return the counts of a row and a second; if there is no room, report all counts first."""
        cdef flying *one
        cdef int32_t number = self.noted_last
        if number < self.noted_count:
            one = &self.noted[number]
            if one.row == row and one.second == second:
                return one
        for number in range(self.noted_count):
            one = &self.noted[number]
            if one.row == row and one.second == second:
                self.noted_last = number
                return one
        if self.noted_count == FLYING_MAX:
            self.tell()
        self.noted_last = self.noted_count
        one = &self.noted[self.noted_count]
        self.noted_count += 1
        memset(one, 0, sizeof(flying))
        one.row, one.second, one.first_queue_id = row, second, -1
        return one

    cdef int32_t row_of(self, bytes group, bytes topic) except -2:
        """Return the row of a group and a topic, a new one if it is missing; -1: the table is
        full."""
        cdef bytes text = group + b"\0" + topic
        cdef nam_text first, second
        cdef lane_acker *row
        cdef int32_t number
        if b"\0" in group:
            return -1
        first.at, first.size = <const uint8_t *><const char *>group, <size_t>len(group)
        second.at, second.size = <const uint8_t *><const char *>topic, <size_t>len(topic)
        number = nam_find(&self.core.pairs, first, second)
        if number >= 0 or self.core.pairs.count == MAX_ACKERS:
            return number
        self.core.rows = <lane_acker *>row_room(
            &self.core.pairs, self.core.rows, sizeof(lane_acker))
        self.names.append((group, topic))
        self.texts.append(text)
        number = nam_add(&self.core.pairs, <const uint8_t *><const char *>text, first.size,
                         <size_t>len(text))
        row = &self.core.rows[number]
        memset(row, 0, sizeof(lane_acker))
        for at in range(LANE_LOWS):
            row.lows[at].generation = -1
        return number
