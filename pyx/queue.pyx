# cython: auto_pickle=False
"""Units of a consume queue file: single ones, and batches of them for pulls and recovery.

Owns nothing. It must never know the queue or the file of a region. The dispatch kernel writes the
units of new records.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport qsort

from turbopump.pyx.filter cimport FilterScan, flt_choose
from turbopump.pyx.region cimport Region

cdef extern from "queue_unit.h" nogil:
    enum:
        CQ_UNIT
    struct cq_unit:
        int64_t log_offset
        int32_t size
        int64_t tags_code
    struct cq_wish:
        const int32_t *codes
        size_t code_count
        size_t max_count
        size_t max_units
        int64_t max_size
        int (*matches)(void *chooser, const uint8_t *units, size_t left)
        void *chooser
    struct cq_choice:
        size_t next
        size_t count
        int64_t size
    void cq_put(uint8_t *at, cq_unit unit)
    cq_unit cq_get(const uint8_t *at)
    void cq_fill_blank(uint8_t *buf, size_t at, size_t end)
    size_t cq_find_end(const uint8_t *buf, size_t at, size_t end, int64_t *log_end)
    size_t cq_lower_bound(const uint8_t *buf, size_t at, size_t end, int64_t log_offset)
    void cq_select(const uint8_t *buf, size_t at, size_t end, const cq_wish *wish,
                   cq_unit *chosen, cq_choice *choice)

UNIT_SIZE = CQ_UNIT

cdef enum:
    ON_STACK = 64                 # units and codes of an ordinary pull: no allocation


def put_unit(Region region, Py_ssize_t position, int64_t log_offset, int32_t size,
             int64_t tags_code) -> None:
    """Write one unit."""
    cdef cq_unit unit
    unit.log_offset = log_offset
    unit.size = size
    unit.tags_code = tags_code
    cq_put(region.writing(position, CQ_UNIT), unit)


def get_unit(Region region, Py_ssize_t position) -> tuple[int, int, int]:
    """Return (log_offset, size, tags_code) of a unit; size 0 means not written."""
    cdef cq_unit unit = cq_get(region.reading(position, CQ_UNIT))
    return unit.log_offset, unit.size, unit.tags_code


def fill_blank(Region region, Py_ssize_t position, Py_ssize_t end) -> None:
    """Pre-fill units (0, 0x7FFFFFFF, 0), as RocketMQ does before a queue's first offset."""
    cdef uint8_t *at = region.writing(position, end - position)
    cdef object held = region.buffer
    with nogil:
        cq_fill_blank(at, 0, <size_t>(end - position))


def find_end(Region region, Py_ssize_t position, Py_ssize_t end) -> tuple[int, int]:
    """Find the end of the units: (position after the last valid unit, end (log offset + size) of
    that unit's record or -1).

    Blank units are passed over, and have no end.
    """
    cdef const uint8_t *at = region.reading(position, end - position)
    cdef int64_t log_end
    cdef size_t stop
    cdef object held = region.buffer
    with nogil:
        stop = cq_find_end(at, 0, <size_t>(end - position), &log_end)
    return position + <Py_ssize_t>stop, log_end


def lower_bound(Region region, Py_ssize_t position, Py_ssize_t end, int64_t log_offset) -> int:
    """Return the position of the first unit whose log offset is >= log_offset, else `end`."""
    cdef const uint8_t *at = region.reading(position, end - position)
    return position + <Py_ssize_t>cq_lower_bound(at, 0, <size_t>(end - position), log_offset)


cdef class Selection:
    """The units that `select` chose."""

    cdef readonly list units
    cdef readonly Py_ssize_t next_position
    cdef readonly int64_t size


cdef int compare_codes(const void *left, const void *right) noexcept nogil:
    cdef int32_t a = (<const int32_t *>left)[0]
    cdef int32_t b = (<const int32_t *>right)[0]
    return (a > b) - (a < b)


cdef int take_codes(tuple codes, int32_t *into) except -1:
    cdef Py_ssize_t i
    for i in range(len(codes)):
        # Subscriptions travel as int32, but a peer may send the unsigned form.
        into[i] = <int32_t>(<int64_t>codes[i])
    qsort(into, <size_t>len(codes), sizeof(int32_t), compare_codes)
    return 0


def select(
    Region region,
    Py_ssize_t position,
    Py_ssize_t end,
    *,
    codes: frozenset[int] | None,
    Py_ssize_t max_count,
    int64_t max_size,
    Py_ssize_t max_units,
    FilterScan scan=None,
) -> Selection:
    """Choose units for a pull; see the stub."""
    cdef const uint8_t *at
    cdef cq_unit few_units[ON_STACK]
    cdef int32_t few_codes[ON_STACK]
    cdef cq_unit *units = few_units
    cdef int32_t *taken = few_codes
    cdef cq_wish wish
    cdef cq_choice choice
    cdef Selection selection = Selection.__new__(Selection)
    cdef tuple wanted = () if codes is None else tuple(codes)
    cdef Py_ssize_t code_count = len(wanted)
    cdef Py_ssize_t room = max(0, min(max_count, max_units, (end - position) // CQ_UNIT))

    wish.max_count = <size_t>max(0, max_count)
    wish.max_units = <size_t>max(0, max_units)
    wish.max_size = max_size
    wish.codes = NULL
    wish.matches = NULL
    if scan is not None:
        wish.matches = flt_choose
        wish.chooser = &scan.core
    wish.code_count = <size_t>code_count
    at = region.reading(position, end - position)
    try:
        if room > ON_STACK:
            units = <cq_unit *>PyMem_Malloc(<size_t>room * sizeof(cq_unit))
        if code_count > ON_STACK:
            taken = <int32_t *>PyMem_Malloc(<size_t>code_count * sizeof(int32_t))
        if units == NULL or taken == NULL:
            raise MemoryError
        if codes is not None:
            take_codes(wanted, taken)
            wish.codes = taken
        while True:
            cq_select(at, 0, <size_t>(end - position), &wish, units, &choice)
            if scan is None or not scan.fetch():
                break
            scan.begin()
            at = region.reading(position, end - position)
        selection.units = [
            (units[i].log_offset, units[i].size) for i in range(<Py_ssize_t>choice.count)
        ]
    finally:
        if units != few_units:
            PyMem_Free(units)
        if taken != few_codes:
            PyMem_Free(taken)
    selection.next_position = position + <Py_ssize_t>choice.next
    selection.size = choice.size
    return selection
