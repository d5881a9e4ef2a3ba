"""Custom headers: typed dataclasses over the text-to-text extFields.

Owns the reading and writing of any header dataclass. It must never know a particular header; they
are in headers/*. Handlers read requests and write responses, clients the reverse.

A header is a `@dataclass(slots=True)`: the wire key of `queue_id` is `queueId`, unless
`field(metadata={"key": "a"})` names it. Types: str, bool, float, Int32, Int64 (also plain int), and
each of them `| None`. A field without a default is required.
"""

import dataclasses
import re
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

Int32 = Annotated[int, 31]
"""An int within the range of Java's int."""

Int64 = Annotated[int, 63]
"""An int within the range of Java's long; a plain int is read the same way."""

H = TypeVar("H")
"""A header dataclass."""

_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class BadHeader(ValueError):
    """A header that lacks a required field or has a malformed one; `field` is the wire key."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"the custom field <{field}> {reason}")
        self.field = field


Member = tuple[str, str, Callable[[str, str], Any], bool]
"""(attribute, wire key, reader, whether it is required); a tuple, because every send unpacks it."""

_known: dict[type[Any], tuple[Member, ...]] = {}


def read_header(cls: type[H], fields: dict[str, str]) -> H:
    """Read the header `cls` from extFields; unknown keys are ignored, missing optional members get
    their default. Raises BadHeader for a missing required or a malformed member.

    An empty value counts as missing unless the member is text: the binary codec cannot distinguish
    the two (RocketMQ: RemotingCommand.decodeCommandCustomHeader).
    """
    values: dict[str, Any] = {}
    for name, key, read, required in members_of(cls):
        text = fields.get(key)
        if text or (text is not None and read is read_text):
            values[name] = read(key, text)
        elif required:
            raise BadHeader(key, "is null")
    return cls(**values)


def read_header_if_any(cls: type[H], fields: dict[str, str]) -> H | None:
    """Read like `read_header`; None without a member that `cls` requires.

    RocketMQ leaves such a member null and does not check it
    (RemotingCommand.decodeCommandCustomHeader, observed with the name server of 5.5.0), and no
    table has an entry for a null name. Raises BadHeader for a malformed header.
    """
    for _, key, _, required in members_of(cls):
        if required and key not in fields:
            return None
    return read_header(cls, fields)


def write_header(header: Any) -> dict[str, str]:
    """Write a header dataclass as extFields (wire key to text), in the order of its members; None
    members are left out, booleans are "true" and "false"."""
    fields: dict[str, str] = {}
    for name, key, _, _ in members_of(type(header)):
        value = getattr(header, name)
        if value is None:
            continue
        if value is True or value is False:
            fields[key] = "true" if value else "false"
        else:
            fields[key] = str(value)
    return fields


def members_of(cls: type[Any]) -> tuple[Member, ...]:
    """Return the members of a header dataclass, in their order: (attribute, wire key, function
    that reads the text, whether the member is required). csrc/wire_tables.py makes the C readers
    from them; one of `read_text`, `read_bool`, `read_int32` and `read_int64` names the type."""
    members = _known.get(cls)
    if members is None:
        members = _known[cls] = _find_members(cls)
    return members


def _find_members(cls: type[Any]) -> tuple[Member, ...]:
    """Return the members of a header dataclass; see `members_of`."""
    hints = typing.get_type_hints(cls, include_extras=True)
    members: list[Member] = []
    for field in dataclasses.fields(cls):
        key = field.metadata.get("key") or _camel_case(field.name)
        required = field.default is field.default_factory is dataclasses.MISSING
        members.append((field.name, key, _reader_of(hints[field.name]), required))
    return tuple(members)


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _reader_of(hint: Any) -> Callable[[str, str], Any]:
    """Return the function that reads a member with this type hint from (wire key, text)."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    if typing.get_origin(hint) is Annotated:
        base, bits = typing.get_args(hint)[:2]
        assert base is int
        return read_int32 if bits == 31 else read_int64
    readers = {str: read_text, bool: read_bool, int: read_int64, float: _read_float}
    assert hint in readers, f"a header member cannot be {hint}"
    return readers[hint]


def read_text(_key: str, text: str) -> str:
    """Return the text of a member of type str."""
    return text


def read_bool(_key: str, text: str) -> bool:
    """Read a bool like Java's Boolean.parseBoolean: every text but "true" is false."""
    return text.lower() == "true"


def read_int32(key: str, text: str) -> int:
    """Read an Int32 from decimal digits with an optional sign. Raises BadHeader, which names
    `key`."""
    return _read_int(key, text, 31)


def read_int64(key: str, text: str) -> int:
    """Read an Int64 from decimal digits with an optional sign. Raises BadHeader, which names
    `key`."""
    return _read_int(key, text, 63)


def _read_int(key: str, text: str, bits: int) -> int:
    """Read a decimal int with `bits` value bits besides the sign (31 or 63); raises BadHeader."""
    if len(text) < 10 and text.isdigit() and text.isascii():
        return int(text)
    if _DIGITS.fullmatch(text):
        value = int(text)
        if -(1 << bits) <= value < 1 << bits:
            return value
    raise BadHeader(key, f"is not an int{bits + 1}: {text[:40]!r}")


def _read_float(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadHeader(key, f"is not a number: {text[:40]!r}") from None
