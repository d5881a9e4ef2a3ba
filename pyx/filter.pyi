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
    """A compiled expression (csrc/filter.h says what a program is)."""

    def __new__(cls, program: bytes) -> Self:
        """Raises ValueError for bytes that are no program."""

    @property
    def size(self) -> int:
        """Bytes of the program."""

    @property
    def weight(self) -> int:
        """Ordinary reads that one with this filter is worth, for a message with long properties."""

    def evaluate(self, properties: bytes) -> bool | None:
        """What the expression is for a properties text, None: null.

        Raises ValueError where it has no value: RocketMQ throws there and takes the message as not
        matched."""

    def matches(self, region: Region, position: int, size: int) -> bool:
        """Whether a reader with this filter gets the record that lies there; bytes that are no
        record of that size match, so that the caller says what they are."""

class FilterScan:
    """Which records a filter chooses, for one `select` of a queue's units.

    `log_of(log offset)` gives the mapping of the log file that begins there, of `file_size` bytes,
    None if it is gone; records end at `log_end`."""

    def __new__(
        cls,
        filter: Filter,
        file_size: int,
        log_end: int,
        log_of: Callable[[int], Region | None],
    ) -> Self: ...
