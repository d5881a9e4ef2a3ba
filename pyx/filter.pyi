"""Filters over message properties (SQL92), compiled and run natively.

A program is a list of ops that run on a stack of values; an op has the fields flag, name, arg and
operand (csrc/filter.h). net/wire/sql compiles expressions with these constants.
"""

from collections.abc import Callable
from typing import Self

from turbopump.pyx.region import Region

MAGIC: int
"""First number of every program: "FLT1" in little endian."""
NAMES_MAX: int
"""Maximum number of properties that a program reads: 128."""
DEPTH_MAX: int
"""Maximum number of values on the stack: 512."""
OPS_MAX: int
"""Maximum number of ops in a program: 16,384."""

# Opcodes: the stack before and after the op, and its fields. Jumps go forward only.
PROPERTY: int
"""Op [] -> [text or null]: the value of property `name`."""
NULL_VALUE: int
"""Op [] -> [null]."""
BOOLEAN: int
"""Op [] -> [boolean]: `flag`."""
TEXT: int
"""Op [] -> [text]: `operand` is its place in the texts."""
INT: int
"""Op [] -> [int]: `operand`."""
LONG: int
"""Op [] -> [long]: `operand`."""
DOUBLE: int
"""Op [] -> [double]: `operand`."""
CAST: int
"""Op [any] -> [boolean]: values but null and booleans become false."""
NOT: int
"""Op [boolean] -> [boolean]."""
NEGATE: int
"""Op [any] -> [number or null]."""
IF_FALSE: int
"""Op [boolean] -> the same; jumps to op `arg` if false."""
IF_TRUE: int
"""Op [boolean] -> the same; jumps to op `arg` if true."""
IF_NULL: int
"""Op [any] -> the same; jumps to op `arg` if null."""
AND: int
"""Op [boolean, boolean] -> [boolean]."""
OR: int
"""Op [boolean, boolean] -> [boolean]."""
COMPARE: int
"""Op [any, any] -> [boolean]: `flag` is a relation."""
COMPARE_INT: int
"""Op [] -> [boolean]: compares property `name` with the int `operand`; `flag` is a relation."""
COMPARE_LONG: int
"""Op [] -> [boolean]: as COMPARE_INT, with a long."""
COMPARE_DOUBLE: int
"""Op [] -> [boolean]: as COMPARE_INT, with a double."""
COMPARE_TEXT: int
"""Op [] -> [boolean]: as COMPARE_INT, with a text, and EQUAL only."""
COMPARE_BOOLEAN: int
"""Op [] -> [boolean]: as COMPARE_INT, with the boolean `arg`, and EQUAL only."""
IS_NULL: int
"""Op [any] -> [boolean]."""
IN: int
"""Op [] -> [boolean]: property `name` equals one of `arg` entries that begin with number
`operand`; `flag` 1: NOT."""
CONTAINS: int
"""Op [any] -> [boolean]: the value contains the text `operand`; `flag` 1: NOT."""
STARTS: int
"""Op [any] -> [boolean]: as CONTAINS, at the beginning."""
ENDS: int
"""Op [any] -> [boolean]: as CONTAINS, at the end."""
BETWEEN_LOW: int
"""Op [value, low] -> [value, boolean], or [boolean] with a jump; `flag` 1: NOT."""
BETWEEN_HIGH: int
"""Op [value, boolean, high] -> [boolean]."""

# Relations: values of `flag` in the comparing ops.
EQUAL: int
"""Relation =."""
LESS: int
"""Relation <."""
LESS_EQUAL: int
"""Relation <=."""
GREATER: int
"""Relation >."""
GREATER_EQUAL: int
"""Relation >=."""

class Filter:
    """A compiled SQL92 expression over properties (csrc/filter.h describes the format of its
    program, which net/wire/sql writes). Immutable."""

    def __new__(cls, program: bytes) -> Self:
        """Load a copy of a program. Raises ValueError for bytes that are no program."""

    @property
    def size(self) -> int:
        """Number of bytes of the program."""

    @property
    def weight(self) -> int:
        """Greatest cost of evaluating a message, with properties of the greatest length, in reads
        without a filter."""

    def evaluate(self, properties: bytes) -> bool | None:
        """Return the expression's value for a properties text (name 0x01 value 0x02 ...); None:
        null, which matches no message.

        Raises ValueError where the expression has no value: RocketMQ throws there and treats the
        message as not matched."""

    def matches(self, region: Region, position: int, size: int) -> bool:
        """Whether a reader with this filter receives the record of `size` bytes at `position`: only
        if the value is true. Bytes that are no record of that size match, so that the caller
        reports them."""

class FilterScan:
    """A filter over the records of a queue's units, for a single call of `queue.select`.

    `log_of(log offset)` returns the mapping of the log file that begins there, of `file_size`
    bytes, None if the file was removed; `log_end` is the log offset at which records end."""

    def __new__(
        cls,
        filter: Filter,
        file_size: int,
        log_end: int,
        log_of: Callable[[int], Region | None],
    ) -> Self: ...
