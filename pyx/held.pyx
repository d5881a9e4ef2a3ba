# cython: auto_pickle=False
"""Held pulls: a pull that waits for the next message of its queue is a row, not an object.

Owns the rows, and the moments of their attempts. It must never make a decision that the handler of
pulls (broker/handlers/pull.py) could make otherwise: an attempt that neither finds messages nor
leaves the pull waiting is the handler's, which gets everything it needs to continue the pull.

    FastConnection.pull, nothing found -> add      ... dispatch lists the slot, `wake` is posted
    wake   -> held_next -> lane_find_again -> answer into the connection | the pull stays | handler
    tick   -> held_due  -> lane_find_again -> answer without messages    | handler
    leave, finish_all -> held_leaving, held_unfinished in `hand_over_some` -> handler

Nothing is pointed to across a call of Python, except by a copy of the row; after each such call the
row's sequence number shows whether the row is still there.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from turbopump.pyx.c_dispatch cimport DSP_WOKEN, dsp_has, dsp_put, dsp_take
from turbopump.pyx.c_held cimport *
from turbopump.pyx.c_pulls cimport *
from turbopump.pyx.c_traffic cimport *
from turbopump.pyx.dispatch cimport QueueTable
from turbopump.pyx.lane cimport Lane
from turbopump.pyx.pulls cimport Pulls
from turbopump.pyx.socket_writing cimport SocketWriter

WAKES_MAX = 1000
"""Greatest number of rows that one call of `wake` or `expire` looks at; the rest follow after other
requests."""
HAND_OVER_ROWS = 10
"""Number of rows of WAKES_MAX that a pull given to the handler counts for: its attempt there takes
as long."""
WAKE_BYTES = 4 << 20
"""Bytes of messages written by one call of `wake`, beyond which the rest follow later."""
HOLD, ATTEMPT, FINISH = 0, 1, 2
"""The handler holds a pull that it gets, attempts it now, or answers it now."""

cdef enum:
    SUSPEND = 2                   # PullSysFlag: the pull may be held
    CARRIED = 4                   # PullSysFlag: the subscription is in the request
    FIRST_ROOM = 64
    PULL_NOT_FOUND = 19
    GIVEN_NOTED_OVER = 16 << 10   # as in fast.pyx
    ASCII_TEXT = 60               # bytes of a text besides its characters, as in names.kept_size
    WIDE_TEXT = 80


cdef class HeldRows:
    """See the stub."""

    def __cinit__(
        self, Lane lane not None, Pulls pulls not None, *, post, steady_ms
    ):
        held_init(&self.core)
        self.lane, self.pulls, self.queues = lane, pulls, pulls.queues
        self.post, self.steady_ms = post, steady_ms
        self.longest_ms, self.fixed_ms = 0, -1
        lane.woken = self.wake_soon
        pulls.queues.leaves = self.leave_slot
        pulls.keeper = self

    def __dealloc__(self):
        cdef int32_t number
        for number in range(self.core.used):
            if self.core.rows[number].sequence:
                PyMem_Free(self.core.rows[number].texts)
                Py_DECREF(<object>self.core.rows[number].holder)
        PyMem_Free(self.core.rows)
        PyMem_Free(self.core.heap)
        PyMem_Free(self.core.slots)

    def configure(self, int64_t longest_ms, fixed_ms) -> None:
        """Set how long pulls are held; see the stub."""
        self.longest_ms = longest_ms
        self.fixed_ms = -1 if fixed_ms is None else fixed_ms

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.core.count

    @property
    def size(self) -> int:
        """Estimated bytes of all rows."""
        return self.core.size

    def wake_soon(self) -> None:
        """Have `wake` called; the lane calls this once for any number of arrivals."""
        self.post(self.wake)

    def wake(self) -> None:
        """Attempt the pulls of queues that have grown; see the stub."""
        cdef Lane lane = self.lane
        cdef int32_t budget = WAKES_MAX, number
        cdef int64_t given = 0
        lane.wakes, self.ran = False, True
        if not lane.busy:
            lane.busy = True
            try:
                while given < <int64_t>WAKE_BYTES:
                    number = held_next(&self.core, &self.queues.table, &budget)
                    if number < 0:
                        break
                    self.pulls.found.size = 0
                    self.attempt(number, False, &budget)
                    given += <int64_t>self.pulls.found.size
                if given >= <int64_t>WAKE_BYTES and dsp_has(&self.queues.table, DSP_WOKEN):
                    # Other queues are next.
                    dsp_put(&self.queues.table, DSP_WOKEN,
                            dsp_take(&self.queues.table, DSP_WOKEN))
            finally:
                lane.busy = False
                lane.now_ms, lane.out_size = 0, 0
        if dsp_has(&self.queues.table, DSP_WOKEN) and not lane.wakes:
            lane.wakes = True
            self.post(self.wake)

    def tick(self, int64_t steady_ms) -> None:
        """Answer the pulls whose time ended at or before `steady_ms`; see the stub."""
        self.until_ms = steady_ms
        if not self.ran:
            # The loop drops posted calls while another thread uses the store.
            self.lane.wakes = self.expires = self.hands = False
        self.ran = False
        self.lane.wake()
        if not self.expires:
            self.expire()
        self.hand_over_soon()

    def expire(self) -> None:
        """Answer pulls whose time ended at or before the last tick; the rest follow later."""
        cdef Lane lane = self.lane
        cdef int32_t budget = WAKES_MAX, number
        self.expires, self.ran = False, True
        if not lane.busy:
            lane.busy = True
            try:
                while budget > 0:
                    budget -= 1
                    number = held_due(&self.core, self.until_ms)
                    if number < 0:
                        break
                    self.attempt(number, True, &budget)
            finally:
                lane.busy = False
                lane.now_ms, lane.out_size = 0, 0
        if held_due(&self.core, self.until_ms) >= 0:
            self.expires = True
            self.post(self.expire)

    def leave(self, bytes topic not None, int32_t queue_id) -> None:
        """Have the handler attempt all present pulls of a queue; see the stub."""
        held_leave(&self.core, self.queues.find(topic, queue_id))
        self.hand_over_soon()

    def leave_slot(self, int32_t slot) -> bool:
        """Have the handler hold all pulls of a slot whose queue is removed; see the stub."""
        if held_first(&self.core, slot) < 0:
            return False
        held_leave(&self.core, slot)
        self.core.slots[slot].removed = True
        self.hand_over_soon()
        return True

    def finish_all(self) -> None:
        """Have the handler answer all present pulls; see the stub."""
        held_finish(&self.core)
        self.hand_over_soon()

    @property
    def has_leaving(self) -> bool:
        """Whether pulls are still to be given to the handler."""
        return held_has_leaving(&self.core)

    def hand_over_some(self) -> None:
        """Give some of the pulls that leave to the handler; see the stub."""
        cdef int32_t budget = WAKES_MAX, number
        self.hands, self.ran = False, True
        try:
            while budget > 0:
                number = held_leaving(&self.core, &budget)
                if number < 0:
                    number = held_unfinished(&self.core, &budget)
                if number < 0:
                    break
                budget -= HAND_OVER_ROWS
                self.give_over(number, self.way_of(number))
        finally:
            self.hand_over_soon()

    cdef int hand_over_soon(self) except -1:
        """Have `hand_over_some` called if pulls leave, unless it is called already."""
        if held_has_leaving(&self.core) and not self.hands:
            self.hands = True
            self.post(self.hand_over_some)
        return 0

    cdef int way_of(self, int32_t number) except -1:
        """How the handler continues a pull that leaves."""
        cdef held_row row = self.core.rows[number]
        cdef int32_t slot
        if not self.core.slots[row.slot].removed:
            return ATTEMPT
        # The pull waits for the next message of the queue; if the queue was created again, it may
        # have messages by now.
        slot = self.queues.find(self.pulls.names[row.reader][1], row.queue_id)
        if slot >= 0 and self.queues.table.slots[slot].max_offset > row.queue_offset:
            return ATTEMPT
        return HOLD

    cdef bint add(self, SocketWriter connection, const trf_request *request,
                  int64_t now_ms) except -1:
        """Hold the pull that the readers found at the end of its queue; False: nothing was done."""
        cdef const trf_pull *pull = &request.pull
        cdef lane_reader *reader = self.pulls.found.reader
        cdef int64_t wait_ms, deadline_ms
        cdef int32_t slot = reader.cursors[pull.queue_id].slot
        cdef held_row row
        cdef tuple names = self.pulls.reader()
        wait_ms = self.fixed_ms
        if wait_ms < 0:
            wait_ms = min(pull.suspend_timeout_millis, self.longest_ms)
        if not pull.sys_flag & SUSPEND or wait_ms <= 0 or reader.filter != NULL:
            return False
        memset(&row, 0, sizeof(held_row))
        row.reader = <int32_t>(reader - self.pulls.core.rows)
        row.slot, row.queue_id, row.queue_offset = slot, pull.queue_id, pull.queue_offset
        row.opaque, row.sys_flag = request.opaque, pull.sys_flag
        row.max_msg_nums, row.sub_version = pull.max_msg_nums, pull.sub_version
        row.type_size = -1
        row.size = <int32_t>self.row_size + kept_size(pull)
        if (self.core.count + self.others_count >= self.count_max
                or self.core.size + self.others_size + row.size > self.size_max):
            return False
        self.room(slot)
        if pull.sys_flag & CARRIED and not copy_texts(&row, pull):
            raise MemoryError
        reader.cursors[pull.queue_id].pulled = pull.queue_offset
        self.pulls.missed_count += 1
        # `found` and `reader` are not used after this line: the clock is Python's.
        deadline_ms = self.steady_ms()
        row.deadline_ms = deadline_ms + wait_ms
        row.holder = <void *>connection
        Py_INCREF(connection)
        held_add(&self.core, &self.queues.table, &row, &connection.owner)
        self.held_count += 1
        self.pulls.note(names, pull, now_ms)
        return True

    cdef int room(self, int32_t slot) except -1:
        """Make room for a row, and for a slot."""
        cdef int32_t room
        cdef void *memory
        if slot >= self.core.slot_room:
            room = max(FIRST_ROOM, 2 * slot)
            memory = PyMem_Realloc(self.core.slots, <size_t>room * sizeof(held_slot))
            if memory == NULL:
                raise MemoryError
            held_set_slots(&self.core, <held_slot *>memory, room)
        if self.core.free >= 0 or self.core.used < self.core.room:
            return 0
        room = max(FIRST_ROOM, 2 * self.core.room)
        memory = PyMem_Realloc(self.core.rows, <size_t>room * sizeof(held_row))
        if memory == NULL:
            raise MemoryError
        self.core.rows = <held_row *>memory
        memory = PyMem_Realloc(self.core.heap, <size_t>room * sizeof(int32_t))
        if memory == NULL:
            raise MemoryError
        self.core.heap, self.core.room = <int32_t *>memory, room
        return 0

    cdef held_row release(self, int32_t number):
        """Remove a row and return it; the caller releases its texts and its holder."""
        cdef held_row row = self.core.rows[number]
        held_remove(&self.core, &self.queues.table, number)
        if self.core.slots[row.slot].removed and self.core.slots[row.slot].first < 0:
            self.core.slots[row.slot].removed = False
            self.queues.free.append(row.slot)
        return row

    cdef int drop(self, SocketWriter connection) except -1:
        """Remove the rows of a connection that ends."""
        cdef held_row row
        while connection.owner.first:
            row = self.release(connection.owner.first - 1)
            PyMem_Free(row.texts)
            Py_DECREF(connection)
        return 0

    cdef int attempt(self, int32_t number, bint final, int32_t *budget) except -1:
        """Read again for a pull: answer it, or leave it waiting, which `final` forbids. `budget` is
        reduced if the pull is given to the handler."""
        cdef held_row row = self.core.rows[number]
        cdef SocketWriter connection = <SocketWriter>row.holder
        cdef lane_found_outcome outcome = LANE_NOT_HERE
        cdef trf_pull pull
        final = final or row.sequence <= self.core.finish_until
        try:
            connection.write_waiting()
            connection.is_queued()
            if self.core.rows[number].sequence != row.sequence:
                return 0
            row.queue_offset = self.core.rows[number].queue_offset
            if self.pulls.core.rows[row.reader].filter == NULL:
                fill(&pull, &row, self.pulls.names[row.reader])
                outcome = self.pulls.find_again(row.reader, &pull, self.lane.now())
        except Exception:
            outcome = LANE_NOT_HERE  # the handler meets the same error, and answers it
        if self.core.rows[number].sequence != row.sequence:
            return 0
        # No call of Python from here to the write: the messages found lie in mappings that such a
        # call could release.
        if outcome == LANE_FOUND or (outcome == LANE_AT_END and final):
            self.answer(number, outcome == LANE_FOUND)
        elif outcome == LANE_PASSED and not final:
            self.pulls.missed_count += 1
            self.core.rows[number].queue_offset = self.pulls.found.next_offset
            self.pulls.found.reader.cursors[row.queue_id].pulled = self.pulls.found.next_offset
            self.pulls.found.size = 0
        elif outcome != LANE_AT_END:
            self.pulls.found.size = 0
            budget[0] = max(0, budget[0] - HAND_OVER_ROWS)
            self.give_over(number, FINISH if final else ATTEMPT)
        return 0

    cdef int answer(self, int32_t number, bint found) except -1:
        """Answer a pull with the messages found, or without messages, and remove its row."""
        cdef Lane lane = self.lane
        cdef Pulls pulls = self.pulls
        cdef size_t size = pulls.found.size
        cdef held_row row = self.release(number)
        cdef SocketWriter connection = <SocketWriter>row.holder
        cdef trf_pull pull
        Py_DECREF(connection)
        PyMem_Free(row.texts)
        memset(&pull, 0, sizeof(trf_pull))
        pull.queue_id = row.queue_id
        try:
            lane.put_pulled(&pulls.found, row.opaque, found)
            if found:
                pulls.count(&pull)
                self.wake_count += 1
            else:
                pulls.missed_count += 1
                pulls.found.reader.cursors[row.queue_id].pulled = pulls.found.next_offset
            connection.touched = True
            connection.write_found(lane, pulls)
            connection.settled(1)
            if size > <size_t>GIVEN_NOTED_OVER:
                connection.gives(size)
        except Exception as error:
            connection.failed(error)
        finally:
            lane.out_size = 0
        return 0

    cdef int give_over(self, int32_t number, int how) except -1:
        """Give a pull to the handler, which answers it if `finish_all` wanted it answered."""
        cdef held_row row = self.release(number)
        cdef SocketWriter connection = <SocketWriter>row.holder
        cdef bytes subscription = None
        cdef bytes expression_type = None
        Py_DECREF(connection)
        if row.texts != NULL:
            subscription = PyBytes_FromStringAndSize(<char *>row.texts, row.subscription_size)
            if row.type_size >= 0:
                expression_type = PyBytes_FromStringAndSize(
                    <char *>row.texts + row.subscription_size, row.type_size)
            PyMem_Free(row.texts)
        self.hand_over(connection, (
            row.opaque, *self.pulls.names[row.reader], row.queue_id, row.queue_offset,
            row.max_msg_nums, row.sys_flag, row.sub_version, subscription, expression_type,
            row.deadline_ms, FINISH if row.sequence <= self.core.finish_until else how
        ))
        return 0


cdef int32_t text_size(trf_text text) noexcept:
    """The bytes that count for a text in Python, as in names.kept_size."""
    cdef size_t at, characters = 0
    for at in range(text.size):
        characters += text.at[at] & 0xC0 != 0x80
    if characters == text.size:
        return <int32_t>(ASCII_TEXT + text.size)
    return <int32_t>(WIDE_TEXT + 4 * characters)


cdef int32_t kept_size(const trf_pull *pull) noexcept:
    """The bytes of the texts that a held pull keeps."""
    if not pull.sys_flag & CARRIED:
        return 2 * ASCII_TEXT
    return text_size(pull.subscription) + text_size(pull.expression_type)


cdef bint copy_texts(held_row *row, const trf_pull *pull) noexcept:
    """Copy the subscription that a pull carries; False: no memory."""
    cdef size_t size = pull.subscription.size + pull.expression_type.size
    row.texts = <uint8_t *>PyMem_Malloc(size + 1)
    if row.texts == NULL:
        return False
    row.subscription_size = pull.subscription.size
    memcpy(row.texts, pull.subscription.at, pull.subscription.size)
    if pull.expression_type.at != NULL:
        row.type_size = <int32_t>pull.expression_type.size
        memcpy(row.texts + pull.subscription.size, pull.expression_type.at,
               pull.expression_type.size)
    return True


cdef void fill(trf_pull *pull, const held_row *row, tuple names):
    """Set the pull of a row; its texts belong to the row, and to `names`, (group, topic)."""
    memset(pull, 0, sizeof(trf_pull))
    pull.topic = text_of(names[1])
    pull.queue_id, pull.queue_offset = row.queue_id, row.queue_offset
    pull.max_msg_nums, pull.sys_flag = row.max_msg_nums, row.sys_flag
    pull.sub_version = row.sub_version
    if row.texts != NULL:
        pull.subscription.at, pull.subscription.size = row.texts, row.subscription_size
        if row.type_size >= 0:
            pull.expression_type.at = row.texts + row.subscription_size
            pull.expression_type.size = row.type_size
