# cython: auto_pickle=False
"""Filters over the properties of messages: compiled programs, evaluated natively.

Owns the memory of a program and the numbers of its ops. It must never know the language from which
a program was compiled: net/wire/sql does.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from turbopump.pyx.region cimport Region

cdef extern from "filter.h" nogil:
    enum:
        FLT_MAGIC
        FLT_NAMES_MAX
        FLT_DEPTH_MAX
        FLT_OPS_MAX
    enum flt_opcode:
        FLT_PROPERTY
        FLT_NULL
        FLT_BOOLEAN
        FLT_TEXT
        FLT_INT
        FLT_LONG
        FLT_DOUBLE
        FLT_CAST
        FLT_NOT
        FLT_NEGATE
        FLT_IF_FALSE
        FLT_IF_TRUE
        FLT_IF_NULL
        FLT_AND
        FLT_OR
        FLT_COMPARE
        FLT_COMPARE_INT
        FLT_COMPARE_LONG
        FLT_COMPARE_DOUBLE
        FLT_COMPARE_TEXT
        FLT_COMPARE_BOOLEAN
        FLT_IS_NULL
        FLT_IN
        FLT_CONTAINS
        FLT_STARTS
        FLT_ENDS
        FLT_BETWEEN_LOW
        FLT_BETWEEN_HIGH
    enum flt_relation:
        FLT_EQUAL
        FLT_LESS
        FLT_LESS_EQUAL
        FLT_GREATER
        FLT_GREATER_EQUAL

cdef enum:
    READ_COST = 1024              # cost of an ordinary read, some microseconds

MAGIC = FLT_MAGIC
NAMES_MAX = FLT_NAMES_MAX
DEPTH_MAX = FLT_DEPTH_MAX
OPS_MAX = FLT_OPS_MAX
PROPERTY = FLT_PROPERTY
NULL_VALUE = FLT_NULL
BOOLEAN = FLT_BOOLEAN
TEXT = FLT_TEXT
INT = FLT_INT
LONG = FLT_LONG
DOUBLE = FLT_DOUBLE
CAST = FLT_CAST
NOT = FLT_NOT
NEGATE = FLT_NEGATE
IF_FALSE = FLT_IF_FALSE
IF_TRUE = FLT_IF_TRUE
IF_NULL = FLT_IF_NULL
AND = FLT_AND
OR = FLT_OR
COMPARE = FLT_COMPARE
COMPARE_INT = FLT_COMPARE_INT
COMPARE_LONG = FLT_COMPARE_LONG
COMPARE_DOUBLE = FLT_COMPARE_DOUBLE
COMPARE_TEXT = FLT_COMPARE_TEXT
COMPARE_BOOLEAN = FLT_COMPARE_BOOLEAN
IS_NULL = FLT_IS_NULL
IN = FLT_IN
CONTAINS = FLT_CONTAINS
STARTS = FLT_STARTS
ENDS = FLT_ENDS
BETWEEN_LOW = FLT_BETWEEN_LOW
BETWEEN_HIGH = FLT_BETWEEN_HIGH
EQUAL = FLT_EQUAL
LESS = FLT_LESS
LESS_EQUAL = FLT_LESS_EQUAL
GREATER = FLT_GREATER
GREATER_EQUAL = FLT_GREATER_EQUAL


cdef class Filter:
    """See the stub."""

    def __cinit__(self, bytes program not None):
        self.size = len(program)
        self.memory = PyMem_Malloc(<size_t>max(self.size, 1))
        if self.memory == NULL:
            raise MemoryError
        memcpy(self.memory, <const char *>program, <size_t>self.size)
        if not flt_open(<const uint8_t *>self.memory, <size_t>self.size, &self.core):
            raise ValueError("these bytes are no filter")

    def __dealloc__(self):
        PyMem_Free(self.memory)

    @property
    def weight(self) -> int:
        """Cost of evaluating a message, as a number of reads without a filter; see the stub."""
        return 1 + flt_cost(&self.core) // READ_COST

    def evaluate(self, bytes properties not None) -> bool | None:
        """Return the expression's value for a properties text; None: null. ValueError: it has no
        value."""
        cdef int64_t work = 0
        cdef flt_answer answer = flt_evaluate(
            &self.core, <const uint8_t *><const char *>properties, <size_t>len(properties), &work
        )
        if answer == FLT_ERROR:
            raise ValueError("the expression has no value for these properties")
        return None if answer == FLT_NULL_ANSWER else answer == FLT_TRUE

    def matches(self, Region region not None, Py_ssize_t position, Py_ssize_t size) -> bool:
        """Whether a reader receives the record at `position`; bytes that are no record match."""
        cdef int64_t work = 0
        cdef const uint8_t *at = region.reading(position, size)
        return flt_matches(&self.core, at, <size_t>size, &work) != 0


cdef class FilterScan:
    """See the stub."""

    def __cinit__(self, Filter filter not None, int64_t file_size, int64_t log_end, log_of):
        self.filter, self.log_of, self.held = filter, log_of, []
        self.core.program = &filter.core
        self.core.file_size, self.core.log_end = file_size, log_end
        self.core.recent = self.core.span_count = 0
        self.begin()

    cdef void begin(self) noexcept:
        """Begin a selection, or begin it again."""
        self.core.work, self.core.lacking = 0, -1

    cdef bint fetch(self) except -1:
        """Add the mapping that the selection lacked; False: it lacked none, or holds too many
        already."""
        cdef Region region
        cdef size_t number = self.core.span_count
        if self.core.lacking < 0 or number == FLT_SPANS:
            return False
        region = self.log_of(self.core.lacking)
        self.core.spans[number].start = self.core.lacking
        self.core.spans[number].memory = NULL
        if region is not None:
            self.held.append(region.buffer)
            self.core.spans[number].memory = region.reading(0, region.size)
        self.core.span_count += 1
        return True
