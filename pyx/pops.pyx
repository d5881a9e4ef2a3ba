# cython: auto_pickle=False
"""Plain pops: from a request to check points and slices of the log, without a Python object for
each message.

Owns the table of groups and topics whose pops are plain, and the offsets at which they pop next
while Python does not need them. It must never decide which pops are plain: the broker does
(broker/traffic/fast_path.py); nor keep an offset that Python holds, too.

    places_of -> pop, pop, pop ... -> take_popped: Python holds the offsets until places_of
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from turbopump.pyx.acks cimport Acks
from turbopump.pyx.c_lane cimport LANE_DONE, lane_core, nam_find, nam_text
from turbopump.pyx.c_pops cimport *
from turbopump.pyx.c_pulls cimport *
from turbopump.pyx.c_traffic cimport *
from turbopump.pyx.filter cimport Filter
from turbopump.pyx.pulls cimport Pulls

MAX_PLACES = 1 << 18
"""Greatest number of queues of all groups and topics popped natively, some 19 MB including the
readers' memory; the Python handler serves others."""

cdef enum:
    TRIES = 64                    # mappings that one pop may ask for, else Python serves it
    FIRST_ROWS = 16


cdef class PopTurns:
    """See the stub."""

    def __cinit__(self, draw_one not None):
        self.draw_one, self.draw = draw_one, -1

    def take(self) -> tuple[int, int]:
        """Return (number, draw) of the next pop."""
        cdef int32_t draw = self.peek()
        self.count()
        return self.number, draw

    cdef int32_t peek(self) except -1:
        """Return the draw of the next pop."""
        if self.draw < 0:
            self.draw = self.draw_one() % 100
        return self.draw

    cdef void count(self) noexcept:
        """Count the pop."""
        self.number += 1
        self.draw = -1


cdef class Pops:
    """See the stub."""

    def __cinit__(self, Pulls readers not None, Acks acks not None):
        self.readers, self.acks, self.turns = readers, acks, None
        self.places_of = self.left = None
        self.texts = []

    def __dealloc__(self):
        for number in range(self.row_count):
            PyMem_Free(self.core.rows[number].places)
        PyMem_Free(self.core.rows)

    def begin(self, PopTurns turns not None, places_of not None, left not None) -> None:
        """Start to serve; see the stub."""
        self.turns, self.places_of, self.left = turns, places_of, left

    def serve(
        self, bytes group not None, bytes topic not None, int32_t queue_limit, tuple retries, *,
        bytes expression, bytes expression_type, codes, Filter filter, int64_t until_ms,
        int64_t ended_ms
    ) -> None:
        """Serve pops of this group from this topic natively; see the stub."""
        cdef nam_text first, second
        cdef lane_popper *popper
        cdef lane_place *places
        cdef int32_t number, acker
        cdef int64_t total = queue_limit
        cdef list names = [name for name, _ in retries]
        cdef list counts = [<int32_t>count for _, count in retries]
        if len(retries) > <Py_ssize_t>LANE_RETRIES:
            raise ValueError("so many retry topics has no group")
        if queue_limit < 0 or min(counts, default=0) < 0:
            return
        for count in counts:
            total += count
        if not self.has_room(group, topic, total):
            return
        acker = self.acks.row_of(group, topic)
        self.row_at(self.readers.core.pairs.count)  # so that each reader has a row here
        self.readers.serve(
            group, topic, queue_limit, readers=(0, 0), topic_sys_flag=0, group_sys_flag=0,
            sub_version=0, subscription=expression, expression_type=expression_type, codes=codes,
            filter=filter, until_ms=until_ms)
        first.at, first.size = <const uint8_t *><const char *>group, <size_t>len(group)
        second.at, second.size = <const uint8_t *><const char *>topic, <size_t>len(topic)
        number = nam_find(&self.readers.core.pairs, first, second)
        if number < 0:
            return
        popper = self.row_at(number)
        if acker < 0 or popper.is_known or not self.readers.core.rows[number].plain:
            self.readers.core.rows[number].plain = False
            return
        self.acks.core.rows[acker].ended_ms = ended_ms
        places = <lane_place *>PyMem_Calloc(<size_t>total + 1, sizeof(lane_place))
        if places == NULL:
            self.readers.core.rows[number].plain = False
            raise MemoryError
        self.place_count += total - size_of(popper)
        PyMem_Free(popper.places)
        popper.places, popper.queue_count, popper.acker = places, queue_limit, acker
        popper.retry_count = 0
        self.texts[number] = names
        for at in range(len(names)):
            popper.retries[at].topic = text_of(names[at])
            popper.retries[at].queue_count = counts[at]
            popper.retry_count += 1

    def forget(self, bytes group not None) -> None:
        """Leave pops of this group to the Python handler, until the next `serve`."""
        self.readers.forget(group)

    def forget_all(self) -> None:
        """Leave pops of every group to the Python handler."""
        self.readers.forget_all()

    def take_popped(self) -> list[tuple[bytes, bytes, int, int, int, int]]:
        """Return the offsets at which groups pop next, and leave them to Python; see the stub."""
        cdef list taken = []
        cdef list moved = []
        cdef lane_popper *popper
        cdef lane_place *place
        cdef int32_t number = lane_take_popped(&self.core)
        while number >= 0:
            popper = &self.core.rows[number]
            for queue_id in range(popper.queue_count):
                place = &popper.places[queue_id]
                if place.moves:
                    moved.append((number, queue_id, place.next, place.moves))
            number = lane_take_popped(&self.core)
        for number, queue_id, queue_offset, moves in moved:
            group, topic = self.readers.names[number]
            taken.append((group, topic, queue_id, queue_offset, moves, self.popped_ms))
        return taken

    @property
    def is_known(self) -> bool:
        """Whether `take_popped` would return at least one row."""
        return self.core.first_known != 0

    cdef lane_popper *row_at(self, int32_t number) except NULL:
        """Return the row of a reader, a new one if it is missing."""
        cdef int32_t count = self.row_count
        cdef void *rows
        if number >= count:
            while count <= number:
                count = max(<int32_t>FIRST_ROWS, 2 * count)
            rows = PyMem_Realloc(self.core.rows, <size_t>count * sizeof(lane_popper))
            if rows == NULL:
                raise MemoryError
            self.core.rows = <lane_popper *>rows
            memset(&self.core.rows[self.row_count], 0,
                   <size_t>(count - self.row_count) * sizeof(lane_popper))
            self.texts += [None] * (count - self.row_count)
            self.row_count = count
        return &self.core.rows[number]

    cdef bint has_room(self, bytes group, bytes topic, int64_t total) except -1:
        """Whether a row may have `count` places; if not, an existing row stops serving."""
        cdef nam_text first, second
        cdef int32_t number
        cdef int64_t had = 0
        first.at, first.size = <const uint8_t *><const char *>group, <size_t>len(group)
        second.at, second.size = <const uint8_t *><const char *>topic, <size_t>len(topic)
        number = nam_find(&self.readers.core.pairs, first, second)
        if number >= 0:
            had = size_of(&self.core.rows[number])
        if self.place_count - had + total <= <int64_t>MAX_PLACES:
            return True
        if number >= 0:
            self.readers.core.rows[number].plain = False
        return False

    cdef bint ask(self, int32_t row) except -1:
        """Ask Python for the offsets at which the group pops next; False: the handler has to
        look."""
        cdef lane_popper *popper = &self.core.rows[row]
        cdef Py_ssize_t total = popper.queue_count
        cdef list counts = []
        cdef list found
        for at in range(popper.retry_count):
            counts.append(popper.retries[at].queue_count)
            total += popper.retries[at].queue_count
        names = self.texts[row]
        group, topic = self.readers.names[row]
        found = self.places_of(group, topic, popper.queue_count, list(zip(names, counts)))
        # The callback may have moved the rows, or replaced this one.
        popper = &self.core.rows[row]
        if found is None or popper.is_known or self.texts[row] is not names:
            return False
        if len(found) != total:
            raise ValueError("not a place for each queue")
        for at in range(total):
            popper.places[at].next, popper.places[at].moves = found[at], 0
        lane_known(&self.core, row)
        return True

    cdef bint find(self, const trf_request *request, int64_t now_ms) except -1:
        """Find the messages of a pop: they are in `got`, and in the readers' `found`; nothing is
        changed. False: the Python handler has to serve the pop."""
        cdef lane_found_outcome outcome = LANE_NOT_HERE
        cdef Pulls readers = self.readers
        cdef int32_t row, draw
        if self.turns is None or self.acks.core.revive_queues <= 0:
            return False
        for _ in range(TRIES):
            readers.tidy()
            row = lane_find_popper(&readers.core, &self.core, &request.pop, now_ms)
            if row < 0 or now_ms <= self.acks.core.rows[self.core.rows[row].acker].ended_ms:
                return False
            draw = self.turns.peek()
            if not self.core.rows[row].is_known and not self.ask(row):
                return False
            outcome = lane_find_popped(&readers.core, &self.core, row, &request.pop, draw,
                                       &readers.found, &self.got)
            if outcome == LANE_NEEDS_UNITS:
                if not readers.fetch_units(&self.got.pull, self.got.pull.queue_offset):
                    return False
            elif outcome == LANE_NEEDS_LOG:
                if not readers.fetch_log(readers.found.lacking):
                    return False
            else:
                break
        if outcome != LANE_FOUND:
            return False
        self.row = row
        readers.found.count = <size_t>self.got.count
        readers.found.size, readers.found.run_count = self.got.size, self.got.run_count
        memcpy(readers.found.runs, self.got.runs, self.got.run_count * sizeof(lane_run))
        return True

    cdef void fill(self, const trf_request *request, int64_t now_ms,
                   trf_pop_answer *answer) noexcept:
        """Fill in the answer to the messages found."""
        answer.opaque = request.opaque
        answer.revive_queue_id = <int32_t>((self.turns.number + 1) % self.acks.core.revive_queues)
        answer.pop_time_ms, answer.invisible_ms = now_ms, request.pop.invisible_time
        answer.rest, answer.body_size = self.got.rest, self.got.size
        lane_put_offsets(&self.got, self.starts, self.offsets, answer)

    cdef bint hide(self, lane_core *lane, const trf_request *request, int64_t now_ms):
        """Write the check points of the messages found, and count them; False: nothing was done,
        and the Python handler has to serve the pop."""
        cdef int32_t revive_queue_id
        revive_queue_id = <int32_t>((self.turns.number + 1) % self.acks.core.revive_queues)
        if lane_hide(lane, &self.acks.core, &self.core, self.row, &request.pop, revive_queue_id,
                     now_ms, &self.got) != LANE_DONE:
            return False
        self.turns.count()
        self.popped_ms = now_ms
        self.pop_count += 1
        self.readers.core.rows[self.row].got_times += self.got.part_count
        self.readers.core.rows[self.row].got_count += self.got.count
        self.readers.core.rows[self.row].got_size += <int64_t>self.got.size
        self.readers.found_count += self.got.part_count
        self.readers.transferred_count += self.got.count
        return True

    cdef int note(self, int64_t until_ms, bint watched) except -1:
        """Count the messages given as in flight; notify waiting pops of the messages left."""
        cdef int32_t part, acker
        cdef const lane_part *one
        acker = self.core.rows[self.row].acker
        for part in range(self.got.part_count):
            one = &self.got.parts[part]
            self.acks.popped(acker, until_ms, one.count, one.queue_id,
                             self.got.offsets[one.first])
        if watched and self.got.rest > 0:
            topic = self.readers.names[self.row][1]
            for part in range(self.got.part_count):
                self.left(topic, self.got.parts[part].queue_id)
        return 0


cdef int32_t size_of(const lane_popper *popper) noexcept:
    """Number of places of a row."""
    cdef int32_t size = popper.queue_count
    for at in range(popper.retry_count):
        size += popper.retries[at].queue_count
    return size
