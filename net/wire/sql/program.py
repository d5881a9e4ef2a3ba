"""A filter's program under construction: ops, the texts they refer to, the depth of the stack.

Owns the bytes that csrc/filter.h describes. It must never know the language.

Tests: tests/unit/net/wire/sql/test_compiler.py, tests/wire/test_golden_filters.py
"""

import struct
from typing import Final

from turbopump.net.wire.sql.words import SqlError
from turbopump.pyx import filter as kernel

_OP = struct.Struct("<BBHI8s")
_HEAD = struct.Struct("<6I")
_PLACE = struct.Struct("<II")
_WHOLE = struct.Struct("<q")
_REAL = struct.Struct("<d")
_NO_OPERAND: Final = bytes(8)

_EFFECT: Final = {
    **dict.fromkeys(range(kernel.BETWEEN_HIGH + 1), 1),  # pushes a value
    **dict.fromkeys((kernel.CAST, kernel.NOT, kernel.NEGATE, kernel.IF_FALSE), 0),
    **dict.fromkeys((kernel.IF_TRUE, kernel.IF_NULL, kernel.IS_NULL, kernel.BETWEEN_LOW), 0),
    **dict.fromkeys((kernel.CONTAINS, kernel.STARTS, kernel.ENDS), 0),
    **dict.fromkeys((kernel.AND, kernel.OR, kernel.COMPARE), -1),
    kernel.BETWEEN_HIGH: -2,
}


class Program:
    """A program under construction: ops of a stack machine, numbered from 0. Raises SqlError if it
    exceeds the limits of pyx.filter: ops, depth of the stack, names."""

    def __init__(self) -> None:
        self._ops: list[tuple[int, int, int, int, bytes]] = []
        self._names: dict[str, int] = {}
        self._lists: list[list[bytes]] = []
        self._texts: dict[bytes, int] = {}
        self._text_size = 0
        self._depth = self._depth_max = 0

    def __len__(self) -> int:
        """Return the number of the next op."""
        return len(self._ops)

    def add(
        self, op: int, *, flag: int = 0, name: str = "", arg: int = 0, operand: bytes = _NO_OPERAND
    ) -> int:
        """Append an op and return its number. `name` is the property that it reads, "" for none;
        `arg` and the 8 bytes `operand` are as csrc/filter.h demands of the op."""
        number = len(self._ops)
        if number == kernel.OPS_MAX:
            raise SqlError(f"It takes over {kernel.OPS_MAX} steps")
        self._ops.append((op, flag, self._name(name) if name else 0, arg, operand))
        self._depth += _EFFECT[op]
        self._depth_max = max(self._depth_max, self._depth)
        if self._depth_max > kernel.DEPTH_MAX:
            raise SqlError(f"It is nested over {kernel.DEPTH_MAX} deep")
        return number

    def add_list(self, members: set[bytes], *, flag: int, name: str) -> None:
        """Append IN, or NOT IN with `flag` 1: whether property `name` equals one of `members`
        (`encode_text` texts)."""
        number = len(self._lists)
        self._lists.append(sorted(members, key=lambda member: (len(member), member)))
        self.add(kernel.IN, flag=flag, name=name, arg=len(members), operand=_WHOLE.pack(number))

    def remove_ops_from(self, number: int) -> None:
        """Remove the ops from `number` on; together they must push a single value."""
        if number < len(self._ops):
            del self._ops[number:]
            self._depth -= 1

    def set_jump_target(self, number: int) -> None:
        """Set the target of the jump with that number to the op that is appended next."""
        op, flag, name, _arg, operand = self._ops[number]
        self._ops[number] = op, flag, name, len(self._ops), operand

    def text(self, text: str) -> bytes:
        """Store a text, once, and return the 8-byte operand that refers to it."""
        data = encode_text(text)
        return _PLACE.pack(self._store_text(data), len(data))

    def _name(self, name: str) -> int:
        """Return the number of a property's name, which is added once. Raises SqlError beyond
        the limit."""
        number = self._names.setdefault(name, len(self._names))
        if number == kernel.NAMES_MAX:
            raise SqlError(f"It names over {kernel.NAMES_MAX} properties")
        return number

    def _store_text(self, data: bytes) -> int:
        """Store bytes, once, and return their position among the stored texts."""
        at = self._texts.get(data)
        if at is None:
            at = self._texts[data] = self._text_size
            self._text_size += len(data)
        return at

    def to_bytes(self) -> bytes:
        """Encode the complete program in the form of csrc/filter.h."""
        entries = [name.encode() for name in self._names]
        firsts = []
        for members in self._lists:
            firsts.append(len(entries))
            entries += members
        places = [_PLACE.pack(self._store_text(entry), len(entry)) for entry in entries]
        ops = []
        for op, flag, name, arg, operand in self._ops:
            if op == kernel.IN:
                operand = _WHOLE.pack(firsts[_WHOLE.unpack(operand)[0]])
            ops.append(_OP.pack(op, flag, name, arg, operand))
        sizes = (len(self._names), max(1, self._depth_max), len(ops), len(entries), self._text_size)
        return b"".join((_HEAD.pack(kernel.MAGIC, *sizes), *ops, *places, *self._texts))


def encode_text(text: str) -> bytes:
    """Encode a text as UTF-8, as in properties; half a surrogate pair is kept, and matches no
    message."""
    return text.encode(errors="surrogatepass")


def int_operand(value: int) -> bytes:
    """Encode the 8-byte operand of an int or a long (int64, little endian)."""
    return _WHOLE.pack(value)


def double_operand(value: float) -> bytes:
    """Encode the 8-byte operand of a double (little endian)."""
    return _REAL.pack(value)
