from collections.abc import Callable
from typing import Self

from turbopump.pyx.region import Region

MAGIC: int
NAMES_MAX: int
DEPTH_MAX: int
OPS_MAX: int
PROPERTY: int
NULL_VALUE: int
BOOLEAN: int
TEXT: int
INT: int
LONG: int
DOUBLE: int
CAST: int
NOT: int
NEGATE: int
IF_FALSE: int
IF_TRUE: int
IF_NULL: int
AND: int
OR: int
COMPARE: int
COMPARE_INT: int
COMPARE_LONG: int
COMPARE_DOUBLE: int
COMPARE_TEXT: int
COMPARE_BOOLEAN: int
IS_NULL: int
IN: int
CONTAINS: int
STARTS: int
ENDS: int
BETWEEN_LOW: int
BETWEEN_HIGH: int
EQUAL: int
LESS: int
LESS_EQUAL: int
GREATER: int
GREATER_EQUAL: int

class Filter:
    """A compiled expression (csrc/filter.h describes the format of its program)."""

    def __new__(cls, program: bytes) -> Self:
        """Load a program. Raises ValueError for bytes that are no program."""

    @property
    def size(self) -> int:
        """Number of bytes of the program."""

    @property
    def weight(self) -> int:
        """Cost of evaluating a message with long properties, in reads without a filter."""

    def evaluate(self, properties: bytes) -> bool | None:
        """Return the expression's value for a properties text; None: null.

        Raises ValueError where the expression has no value: RocketMQ throws there and treats the
        message as not matched."""

    def matches(self, region: Region, position: int, size: int) -> bool:
        """Whether a reader with this filter receives the record at `position`. Bytes that are no
        record of `size` bytes match, so that the caller reports them."""

class FilterScan:
    """A filter over the records of a queue's units, for a single `select`.

    `log_of(log offset)` returns the mapping of the log file that begins there, of `file_size`
    bytes, None if the file was removed; records end at `log_end`."""

    def __new__(
        cls,
        filter: Filter,
        file_size: int,
        log_end: int,
        log_of: Callable[[int], Region | None],
    ) -> Self: ...
