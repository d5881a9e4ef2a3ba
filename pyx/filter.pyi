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
    def op_count(self) -> int:
        """Steps that an evaluation takes, at most."""

    def evaluate(self, properties: bytes) -> bool | None:
        """What the expression is for a properties text, None: null.

        Raises ValueError where it has no value: RocketMQ throws there and takes the message as not
        matched."""

    def matches(self, region: Region, position: int, size: int) -> bool:
        """Whether a reader with this filter gets the record that lies there; bytes that are no
        record of that size match, so that whoever takes them says what they are."""
