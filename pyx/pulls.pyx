# cython: auto_pickle=False
"""Plain pulls: from a request to slices of the log, without a Python object for each message.

Owns the readers (the results of the checks of a group and a topic), the mappings that their queues
are read from, and the counts of messages delivered. It must never decide which pulls are plain: the
broker does (fast_path.py).
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from turbopump.pyx.c_lane cimport nam_add, nam_clear, nam_find, nam_text
from turbopump.pyx.c_pulls cimport *
from turbopump.pyx.c_traffic cimport *
from turbopump.pyx.dispatch cimport QueueTable
from turbopump.pyx.filter cimport Filter
from turbopump.pyx.name_rows cimport row_room
from turbopump.pyx.region cimport Region
from turbopump.pyx.tail cimport Tail

MAX_READERS = 1 << 14
"""Greatest number of pairs of group and topic read natively; the Python handler serves others."""
MAX_QUEUES = 1024
"""Greatest number of queues of a topic read natively: a reader needs 56 bytes for each."""
MAX_HELD = 4096
"""Greatest number of mappings of queue files that readers keep; with more, all are released."""


cdef class Pulls:
    """See the stub."""

    def __cinit__(
        self, Tail tail not None, QueueTable queues not None, int64_t file_size, tuple limits, *,
        units_of, log_of, commit
    ):
        self.tail, self.queues = tail, queues
        self.units_of, self.log_of, self.commit = units_of, log_of, commit
        self.names, self.texts, self.spans, self.held = [], [], [None] * LANE_SPANS, {}
        self.core.tail, self.core.queues = &tail.tail, &queues.table
        self.core.generation = &queues.generation
        self.core.file_size = file_size
        (self.core.limits.near_bytes, self.core.limits.near_count, self.core.limits.near_size,
         self.core.limits.far_count, self.core.limits.far_size) = limits
        self.seen = -1

    def __dealloc__(self):
        for number in range(self.core.pairs.count):
            free_row(&self.core.rows[number])
        PyMem_Free(self.core.pairs.keys)
        PyMem_Free(self.core.pairs.buckets)
        PyMem_Free(self.core.rows)

    def serve(
        self, bytes group not None, bytes topic not None, int32_t queue_limit, *,
        tuple readers, int32_t topic_sys_flag, int32_t group_sys_flag, int64_t sub_version,
        bytes subscription,
        bytes expression_type, codes, Filter filter, int64_t until_ms
    ) -> None:
        """Serve pulls of this group from this topic natively; see the stub."""
        cdef bytes text = group + b"\0" + topic
        cdef nam_text first, second
        cdef lane_reader *row
        cdef int32_t *taken
        cdef int32_t number
        cdef list wanted = None
        if not 0 <= queue_limit <= MAX_QUEUES or b"\0" in group:
            return
        if codes is not None:
            # The low 32 bits, as a hash code of Java: a peer may send the unsigned form.
            wanted = sorted([<int32_t>(<int64_t>code) for code in codes])
        first.at, first.size = <const uint8_t *><const char *>group, <size_t>len(group)
        second.at, second.size = <const uint8_t *><const char *>topic, <size_t>len(topic)
        number = nam_find(&self.core.pairs, first, second)
        if number < 0:
            if self.core.pairs.count == MAX_READERS:
                return
            self.core.rows = <lane_reader *>row_room(
                &self.core.pairs, self.core.rows, sizeof(lane_reader))
            self.names.append((group, topic))
            self.texts.append(None)
            number = self.core.pairs.count
            memset(&self.core.rows[number], 0, sizeof(lane_reader))
            nam_add(&self.core.pairs, <const uint8_t *><const char *>text, first.size,
                    <size_t>len(text))
        else:
            text = self.texts[number][0]
        # No call of Python after this line: `row` stays in place.
        row = &self.core.rows[number]
        row.plain = False
        if row.cursors == NULL or row.cursor_count < queue_limit:
            resize(row, queue_limit)
        PyMem_Free(<void *>row.codes)
        row.codes, row.code_count = NULL, 0
        if wanted is not None:
            taken = <int32_t *>PyMem_Malloc((<size_t>len(wanted) + 1) * sizeof(int32_t))
            if taken == NULL:
                raise MemoryError
            for code in wanted:
                taken[row.code_count] = code
                row.code_count += 1
            row.codes = taken
        self.texts[number] = (text, subscription, expression_type, filter)
        row.filter = NULL if filter is None else &filter.core
        row.carried = subscription is not None
        row.subscription = text_of(subscription)
        row.expression_type = text_of(expression_type)
        row.near_id, row.far_id = readers
        row.topic_sys_flag, row.group_sys_flag = topic_sys_flag, group_sys_flag
        row.sub_version, row.until_ms = sub_version, until_ms
        row.queue_limit = queue_limit
        row.plain = True

    def forget(self, bytes group not None) -> None:
        """Leave pulls of this group to the Python handler, until the next `serve`."""
        for number in range(self.core.pairs.count):
            if self.core.rows[number].plain and self.names[number][0] == group:
                self.core.rows[number].plain = False

    def forget_all(self) -> None:
        """Leave pulls of every group to the Python handler."""
        for number in range(self.core.pairs.count):
            self.core.rows[number].plain = False

    def take_got(self) -> list[tuple[bytes, bytes, int, int, int]]:
        """Return (group, topic, pulls, messages, bytes) of each reader since the last call."""
        cdef list got = []
        cdef lane_reader *row
        cdef int64_t times, count, size
        for number in range(self.core.pairs.count):
            row = &self.core.rows[number]
            times, count, size = row.got_times, row.got_count, row.got_size
            if times:
                row.got_times = row.got_count = row.got_size = 0
                got.append((*self.names[number], times, count, size))
        return got

    def take_pulled(self) -> list[tuple[bytes, bytes, int, int]]:
        """Return the ends of pulls since the last call; see the stub."""
        cdef list pulled = []
        cdef lane_cursor *cursor
        cdef int64_t queue_offset
        for number in range(self.core.pairs.count):
            for queue_id in range(self.core.rows[number].cursor_count):
                cursor = &self.core.rows[number].cursors[queue_id]
                queue_offset = cursor.pulled
                if queue_offset >= 0:
                    cursor.pulled = -1
                    pulled.append((*self.names[number], queue_id, queue_offset))
        return pulled

    def drop_pulled(self, bytes group not None, bytes topic not None, int32_t queue_id) -> None:
        """Forget the end of the last native pull of a queue."""
        cdef nam_text first, second
        cdef int32_t number
        first.at, first.size = <const uint8_t *><const char *>group, <size_t>len(group)
        second.at, second.size = <const uint8_t *><const char *>topic, <size_t>len(topic)
        number = nam_find(&self.core.pairs, first, second)
        if number >= 0 and 0 <= queue_id < self.core.rows[number].cursor_count:
            self.core.rows[number].cursors[queue_id].pulled = -1

    def tidy(self) -> None:
        """Release mappings of older generations."""
        if self.seen != self.queues.generation:
            self.refresh()

    def let_go(self) -> None:
        """Release all mappings."""
        for number in range(self.core.pairs.count):
            for queue_id in range(self.core.rows[number].cursor_count):
                self.core.rows[number].cursors[queue_id].units = NULL
        self.held.clear()
        self.core.span_count = 0
        self.next_span = 0
        self.spans = [None] * LANE_SPANS

    cdef lane_found_outcome find(self, const trf_pull *pull, int64_t now_ms) except *:
        """Find the messages of a pull, in `found`."""
        cdef lane_found_outcome outcome = LANE_NOT_HERE
        self.tidy()
        for _ in range(LANE_SPANS):
            outcome = lane_find(&self.core, pull, now_ms, &self.found)
            if not self.fetch(outcome, pull):
                return outcome
        return LANE_NOT_HERE

    cdef lane_found_outcome find_again(self, int32_t number, const trf_pull *pull,
                                       int64_t now_ms) except *:
        """Find the messages of a pull of the reader with this number, in `found`."""
        cdef lane_found_outcome outcome = LANE_NOT_HERE
        self.tidy()
        for _ in range(LANE_SPANS):
            outcome = lane_find_again(&self.core, number, pull, now_ms, &self.found)
            if not self.fetch(outcome, pull):
                return outcome
        return LANE_NOT_HERE

    cdef bint fetch(self, lane_found_outcome outcome, const trf_pull *pull) except -1:
        """Get the mapping that a read lacked; False: it lacked none, or there is none."""
        if outcome == LANE_NEEDS_UNITS:
            # The end of a queue may be the end of its file.
            return (self.fetch_units(pull, pull.queue_offset)
                    or self.fetch_units(pull, pull.queue_offset - 1))
        return outcome == LANE_NEEDS_LOG and self.fetch_log(self.found.lacking)

    cdef int refresh(self) except -1:
        """Release the mappings, because offsets did not just grow."""
        self.let_go()
        self.seen = self.queues.generation
        return 0

    cdef int fetch_units(self, const trf_pull *pull, int64_t queue_offset) except -1:
        """Fill the cursor of a queue; 0: the queue has no unit `queue_offset`."""
        cdef int32_t row = <int32_t>(self.found.reader - self.core.rows)
        cdef int32_t queue_id = pull.queue_id
        cdef lane_cursor *cursor
        cdef const uint8_t *units
        cdef Region region
        cdef int64_t first, minimum
        cdef int32_t slot
        cdef bytes topic = self.names[row][1]
        found = self.units_of(topic, queue_id, queue_offset)
        if found is None:
            return 0
        if len(self.held) >= MAX_HELD:
            self.let_go()
        region, first, slot, minimum = found
        units = region.reading(0, region.size)
        self.held[row, queue_id] = region.buffer
        # The callback may have moved the rows, and the queues of this row.
        if queue_id >= self.core.rows[row].cursor_count:
            return 0
        cursor = &self.core.rows[row].cursors[queue_id]
        cursor.units = units
        cursor.first, cursor.count = first, region.size // 20
        cursor.slot, cursor.min_offset = slot, minimum
        cursor.generation = self.queues.generation
        self.seen = self.queues.generation
        return 1

    cdef int fetch_log(self, int64_t log_offset) except -1:
        """Return the memory of a log file; 0: the file was removed."""
        cdef Region region = self.log_of(log_offset)
        cdef int number
        if region is None:
            return 0
        number = self.next_span
        self.core.spans[number].start, self.core.spans[number].memory = -1, NULL
        self.spans[number] = region.frozen
        self.core.spans[number].start = log_offset
        self.core.spans[number].memory = region.reading(0, region.size)
        self.next_span = (number + 1) % LANE_SPANS
        if self.core.span_count < LANE_SPANS:
            self.core.span_count += 1
        return 1

    cdef list slices(self, size_t skipped):
        """Return views of the messages found, without the first bytes; the views keep the
        mapping."""
        cdef list views = []
        cdef int64_t start, position
        cdef size_t size
        cdef object view
        for number in range(self.found.run_count):
            size = self.found.runs[number].size
            if skipped >= size:
                skipped -= size
                continue
            start = self.found.runs[number].log_offset
            start -= start % self.core.file_size
            position = self.found.runs[number].log_offset - start
            view = None
            if self.tail.tail.memory != NULL and self.tail.tail.base == start:
                view = memoryview(self.tail.held).toreadonly()
            else:
                for span in range(self.core.span_count):
                    if self.core.spans[span].start == start:
                        view = self.spans[span]
            views.append(view[position + <int64_t>skipped:position + <int64_t>size])
            skipped = 0
        return views

    cdef void count(self, const trf_pull *pull) noexcept:
        """Count the messages found as delivered."""
        lane_got(&self.found, pull)
        self.found_count += 1
        self.transferred_count += <int64_t>self.found.count

    cdef tuple reader(self):
        """Return (group, topic) of the reader that found the messages."""
        return self.names[self.found.reader - self.core.rows]

    cdef int note(self, tuple reader, const trf_pull *pull, int64_t now_ms) except -1:
        """Commit the offset that the reader's pull committed."""
        if pull.sys_flag & 1 and pull.commit_offset >= 0:
            group, topic = reader
            self.commit(group, topic, pull.queue_id, pull.commit_offset, now_ms)
        return 0


cdef int resize(lane_reader *row, int32_t queue_limit) except -1:
    """Make room for the cursors of all queues; all are filled again."""
    cdef lane_cursor *cursors = <lane_cursor *>PyMem_Calloc(
        <size_t>max(queue_limit, 1), sizeof(lane_cursor)
    )
    if cursors == NULL:
        raise MemoryError
    for queue_id in range(queue_limit):
        cursors[queue_id].pulled = -1
        if row.cursors != NULL and queue_id < row.cursor_count:
            cursors[queue_id].pulled = row.cursors[queue_id].pulled
    PyMem_Free(row.cursors)
    row.cursors, row.cursor_count = cursors, queue_limit
    return 0


cdef void free_row(lane_reader *row) noexcept:
    PyMem_Free(row.cursors)
    PyMem_Free(<void *>row.codes)
