# cython: auto_pickle=False
"""Records of a log as columns in Arrow's layout.

Owns the memory of batches and of the request for columns. It must never open a file, know pyarrow
nor decide the consequences of damage.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.string cimport memset

from turbopump.pyx.c_columns cimport *
from turbopump.pyx.c_record cimport (
    REC_BAD, REC_BLANK, REC_MIN, REC_NO_ROOM, REC_OK, REC_SHORT, rec_reason_text,
)
from turbopump.pyx.region cimport Region

OK = <int>REC_OK
BLANK_FOUND = <int>REC_BLANK
BAD_RECORD = <int>REC_BAD
SHORT = <int>REC_SHORT
NO_ROOM = <int>REC_NO_ROOM

KINDS = {
    "topic": "text", "queue_id": "int32", "queue_offset": "int64", "log_offset": "int64",
    "epoch": "int32", "size": "int32", "born_time": "time", "store_time": "time",
    "born_host": "text", "store_host": "text", "keys": "text", "tags": "text",
    "unique_key": "text", "properties": "map", "flag": "int32", "sys_flag": "int32",
    "reconsume_times": "int32", "prepared_transaction_offset": "int64", "body_crc": "int32",
    "body_size": "int32", "confirmed": "bool", "body": "binary",
}
COLUMNS = tuple(KINDS)
NULLABLE = frozenset(["epoch", "keys", "tags", "unique_key"])
cdef str ELSEWHERE = "a record says it lies elsewhere"

cdef extern from "Python.h":
    # The count is read without a further reference, which would change it.
    PyObject *PyList_GET_ITEM(object list, Py_ssize_t at)
    Py_ssize_t Py_REFCNT(PyObject *one)
    Py_ssize_t PyByteArray_GET_SIZE(PyObject *one)

cdef dict INT32S = {
    "queue_id": COL_QUEUE_ID, "size": COL_SIZE, "flag": COL_FLAG, "sys_flag": COL_SYS_FLAG,
    "reconsume_times": COL_RECONSUME_TIMES, "body_crc": COL_BODY_CRC, "body_size": COL_BODY_SIZE,
}
cdef dict INT64S = {
    "queue_offset": COL_QUEUE_OFFSET, "log_offset": COL_LOG_OFFSET,
    "prepared_transaction_offset": COL_PREPARED_TRANSACTION_OFFSET,
}
cdef dict TIMES = {"born_time": COL_BORN_TIME, "store_time": COL_STORE_TIME}
cdef dict HOSTS = {"born_host": COL_BORN_HOST, "store_host": COL_STORE_HOST}
cdef dict NAMED = {"keys": COL_KEYS, "tags": COL_TAGS, "unique_key": COL_UNIQUE_KEY}

cdef enum:
    # Likely sizes of a row's texts; longer texts mean fewer rows in a batch.
    TOPIC_LIKELY = 64
    NAMED_LIKELY = 64
    MAP_LIKELY = 256
    ENTRIES_LIKELY = 12
    ROWS_MAX = 1 << 22  # no count of bytes or entries exceeds an int32
    DEFAULT_BYTES = 16 << 20
    POOL_MAX = 128  # buffers: three batches of all columns
    # Greatest part of a batch's bytes in any column but the body.
    TEXT_SHARE = 4


cdef class Batch:
    """Rows in Arrow's layout."""

    cdef readonly int status
    cdef readonly Py_ssize_t rows, seen, position, skip, entries
    cdef readonly str reason
    cdef col_batch filled
    cdef dict memory  # column -> bytearrays in Arrow's order, validity first

    def column(self, str name not None) -> tuple[memoryview | None, ...]:
        """Return the buffers of a column; see the stub."""
        cdef Py_ssize_t rows = self.rows, bits = (self.rows + 7) // 8
        cdef list parts = self.memory[name]
        cdef str kind = KINDS[name]
        validity = memoryview(parts[0])[:bits] if self.null_count(name) else None
        if kind == "bool":
            return validity, memoryview(parts[1])[:bits]
        if kind == "map":
            return (
                validity, memoryview(parts[1])[:4 * (rows + 1)],
                *texts(parts[2], parts[3], self.entries), *texts(parts[4], parts[5], self.entries),
            )
        if kind in ("text", "binary"):
            return (validity, *texts(parts[1], parts[2], rows))
        return validity, memoryview(parts[1])[:rows * (4 if kind == "int32" else 8)]

    def null_count(self, str name not None) -> int:
        """Number of rows that are null in the column `name`."""
        if name not in self.memory:
            raise KeyError(name)
        if name == "epoch":
            return <Py_ssize_t>self.filled.epoch_nulls
        return <Py_ssize_t>self.filled.named_nulls[<int>NAMED[name]] if name in NAMED else 0

    @property
    def nbytes(self) -> int:
        """Number of bytes in all buffers of the batch."""
        views = [view for name in self.memory for view in self.column(name)]
        return sum([len(view) for view in views if view is not None])


cdef tuple texts(bytearray offsets, bytearray data, Py_ssize_t count):
    cdef int32_t end = (<int32_t *>PyByteArray_AS_STRING(offsets))[count]
    return memoryview(offsets)[:4 * (count + 1)], memoryview(data)[:end]


@cython.internal
cdef class Pool:
    """Memory of earlier batches without readers: allocating new pages costs more than decoding.

    A buffer to which only the pool refers has neither a batch nor a view, because a view refers to
    its buffer.
    """

    cdef list known

    def __cinit__(self):
        self.known = []

    cdef uint8_t *make(self, list parts, Py_ssize_t size) except NULL:
        """Allocate memory without clearing it: the kernel never provides pages that no row
        fills."""
        cdef bytearray memory
        cdef PyObject *one
        cdef Py_ssize_t at
        for at in range(len(self.known)):
            one = PyList_GET_ITEM(self.known, at)
            if Py_REFCNT(one) == 1 and PyByteArray_GET_SIZE(one) == size:
                memory = <bytearray>one
                break
        else:
            memory = PyByteArray_FromStringAndSize(NULL, size)
            if len(self.known) >= POOL_MAX:
                del self.known[:POOL_MAX // 2]
            self.known.append(memory)
        parts.append(memory)
        return <uint8_t *>PyByteArray_AS_STRING(memory)

    cdef uint8_t *bits(self, list parts, Py_ssize_t rows) except NULL:
        cdef uint8_t *made = self.make(parts, (rows + 7) // 8)
        memset(made, 0, <size_t>((rows + 7) // 8))
        return made

    cdef int texts(self, col_texts *made, list parts, Py_ssize_t count, Py_ssize_t room) except -1:
        made.offsets = <int32_t *>self.make(parts, 4 * (count + 1))
        made.offsets[0] = 0
        made.data = self.make(parts, room + COL_SLACK)
        made.room = <size_t>room
        return 0


cdef class Decoder:
    """Decodes ranges of a log into batches, with the columns requested of each record."""

    cdef col_wish wish
    cdef Py_ssize_t batch_rows, batch_bytes
    cdef tuple columns
    cdef list held  # objects whose memory the request points to
    cdef bytearray scratch
    cdef Pool pool
    cdef bint busy

    def __init__(
        self, columns, *, topics=None, queue_ids=None, int64_t min_store_ms=INT64_MIN,
        int64_t max_store_ms=INT64_MAX, int64_t min_log_offset=0, int64_t end_log_offset=INT64_MAX,
        epochs=(), int64_t confirmed_end=INT64_MAX, bint check_body=False,
        Py_ssize_t batch_rows=65536, Py_ssize_t batch_bytes=DEFAULT_BYTES,
    ) -> None:
        if self.busy:
            raise RuntimeError("a decode is under way")
        self.columns = tuple(dict.fromkeys(columns))
        if unknown := [name for name in self.columns if name not in KINDS]:
            raise ValueError(f"no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
        if batch_rows < 1 or batch_bytes < 1:
            raise ValueError("a batch has at least one row and one byte")
        self.batch_rows, self.batch_bytes = min(batch_rows, ROWS_MAX), batch_bytes
        # The request points into the objects that are held here.
        memset(&self.wish, 0, sizeof(col_wish))
        self.held, self.pool = [], Pool()
        self.scratch = PyByteArray_FromStringAndSize(NULL, sizeof(col_scratch))
        self.wish.min_store_ms, self.wish.max_store_ms = min_store_ms, max_store_ms
        self.wish.min_log_offset, self.wish.end_log_offset = min_log_offset, end_log_offset
        self.wish.check_body, self.wish.confirmed_end = check_body, max(confirmed_end, 0)
        self.set_topics(topics)
        self.set_numbers(queue_ids, epochs)

    cdef int set_topics(self, object topics) except -1:
        cdef col_topic *made
        cdef bytes topic
        if topics is None:
            return 0
        wanted = sorted({bytes(one) for one in topics}, key=lambda one: (len(one), one))
        made = <col_topic *>self.pool.make(self.held, (len(wanted) + 1) * sizeof(col_topic))
        for number, topic in enumerate(wanted):
            made[number].text = <const uint8_t *><const char *>topic
            made[number].size = <size_t>len(topic)
        self.held.append(wanted)
        self.wish.topics, self.wish.topic_count = made, <size_t>len(wanted)
        return 0

    cdef int set_numbers(self, object queue_ids, object epochs) except -1:
        cdef int32_t *made = NULL
        cdef int64_t *starts = NULL
        if queue_ids is not None:
            wanted = sorted({number for number in queue_ids if -1 <= number >> 31 <= 0})
            made = <int32_t *>self.pool.make(self.held, (len(wanted) + 1) * 4)
            for number, value in enumerate(wanted):
                made[number] = value
            self.wish.queue_ids, self.wish.queue_id_count = made, <size_t>len(wanted)
        ranges = tuple(epochs)
        starts = <int64_t *>self.pool.make(self.held, (len(ranges) + 1) * 8)
        made = <int32_t *>self.pool.make(self.held, (len(ranges) + 1) * 4)
        for number, (epoch, start) in enumerate(ranges):
            made[number], starts[number] = epoch, start
        self.wish.epoch_starts, self.wish.epochs = starts, made
        self.wish.epoch_count = <size_t>len(ranges)
        return 0

    cdef int make_column(self, Batch batch, str name, Py_ssize_t rows, Py_ssize_t room,
                         Py_ssize_t body_room) except -1:
        """Allocate memory for one column; `room` bounds the bytes of a text, `body_room` the bytes
        of bodies."""
        cdef col_batch *filled = &batch.filled
        cdef list parts = []
        cdef Pool pool = self.pool
        cdef uint8_t *bits = NULL
        cdef Py_ssize_t entries = max(rows * ENTRIES_LIKELY, COL_PAIRS_MAX)
        batch.memory[name] = parts
        if name in NULLABLE:
            bits = pool.bits(parts, rows)
        else:
            parts.append(None)
        if name in INT32S:
            filled.int32s[<int>INT32S[name]] = <int32_t *>pool.make(parts, rows * 4)
        elif name in INT64S:
            filled.int64s[<int>INT64S[name]] = <int64_t *>pool.make(parts, rows * 8)
        elif name in TIMES:
            filled.times[<int>TIMES[name]] = <int64_t *>pool.make(parts, rows * 8)
        elif name in HOSTS:
            # Hosts have a fixed length, which no damage can make too large: this column never ends
            # a batch.
            pool.texts(&filled.hosts[<int>HOSTS[name]], parts, rows, rows * COL_HOST_MAX)
        elif name in NAMED:
            pool.texts(&filled.named[<int>NAMED[name]], parts, rows,
                       min(room, rows * NAMED_LIKELY + COL_TEXT_MAX))
            filled.named_valid[<int>NAMED[name]] = bits
        elif name == "topic":
            pool.texts(&filled.topic, parts, rows, min(room, rows * TOPIC_LIKELY + COL_TEXT_MAX))
        elif name == "body":
            pool.texts(&filled.body, parts, rows, body_room)
        elif name == "properties":
            filled.map = <int32_t *>pool.make(parts, 4 * (rows + 1))
            filled.map[0] = 0
            filled.entries_room = <size_t>entries
            for made in range(2):
                pool.texts(&filled.values if made else &filled.names, parts, entries,
                           min(room, rows * MAP_LIKELY + COL_TEXT_MAX))
        elif name == "epoch":
            filled.epoch, filled.epoch_valid = <int32_t *>pool.make(parts, rows * 4), bits
        elif name == "confirmed":
            filled.confirmed = pool.bits(parts, rows)
        return 0

    def decode(
        self, Region region not None, Py_ssize_t position, Py_ssize_t end, int64_t log_base,
        Py_ssize_t room_wanted=0,
    ) -> Batch:
        """Decode the next rows of [position, end); see the stub."""
        cdef Batch batch = Batch.__new__(Batch)
        cdef const uint8_t *memory
        cdef object held = region.buffer  # outlives a release of the region without the GIL
        cdef Py_ssize_t length = end - position
        cdef Py_ssize_t rows = min(self.batch_rows, length // REC_MIN + 1)
        cdef Py_ssize_t body_room = min(max(self.batch_bytes, room_wanted), length, INT32_MAX)
        cdef Py_ssize_t room = max(min(self.batch_bytes // TEXT_SHARE, INT32_MAX), COL_TEXT_MAX)
        cdef col_scratch *scratch = <col_scratch *>PyByteArray_AS_STRING(self.scratch)
        cdef col_end stop
        if self.busy:
            raise RuntimeError("a decode is under way")
        region.reading(position, length)
        memory = region.memory
        memset(&batch.filled, 0, sizeof(col_batch))
        batch.memory = {}
        batch.filled.room = <size_t>rows
        for name in self.columns:
            self.make_column(batch, name, rows, room, body_room)
        self.busy = True
        with nogil:
            batch.status = col_decode(memory, <size_t>position, <size_t>end, log_base, &self.wish,
                                      &batch.filled, scratch, &stop)
        self.busy = False
        batch.rows, batch.seen = <Py_ssize_t>batch.filled.rows, <Py_ssize_t>stop.seen
        batch.entries = <Py_ssize_t>batch.filled.entries
        batch.position, batch.skip = <Py_ssize_t>stop.at, <Py_ssize_t>stop.skip
        batch.reason = ""
        if batch.status == REC_BAD:
            text = rec_reason_text(stop.reason).decode("ascii")
            batch.reason = ELSEWHERE if stop.elsewhere else text
        return batch
