"""Keys of configuration files: each is declared once, as a field of a dataclass.

Owns the content of a key's declaration (RocketMQ's name, its values, its default, whether a running
node takes a change, one sentence) and the kinds of values that many keys share. It must never know
a single key or read a file.

Tests: tests/unit/net/config/test_node_config.py, tests/unit/engine/test_config.py
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final, Generic, TypeVar, cast

INT32_MAX: Final = 2**31 - 1
"""The greatest value of Java's int."""
INT64_MAX: Final = 2**63 - 1
"""The greatest value of Java's long."""
OURS: Final = "no such key"
"""`Key.rocketmq` of a key that RocketMQ does not have."""

_KEY: Final = "key"
_SECTION: Final = "section"
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
EnumT = TypeVar("EnumT", bound=Enum)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """A kind of values: its description, its parser and its text form."""

    expected: str
    """The possible values, as a phrase for the operator: "a whole number from 0 to 100"."""
    parse: Callable[[str], T_co]
    """Returns the value of a text without surrounding blanks. Raises ValueError, whose text is the
    expected values (of most kinds `expected`)."""
    to_text: Callable[[Any], str] = str
    """Returns the text of a value, which `parse` reads."""


@dataclass(frozen=True, slots=True)
class Key:
    """The declaration of a key; `key` makes it the metadata of a dataclass field."""

    name: str
    """RocketMQ's name of the key, as in files, requests and responses."""
    kind: Kind[Any]
    default: Any
    """The parsed value of a key that no file sets."""
    meaning: str
    """The description of the key, one sentence."""
    live: bool = False
    """Whether a running node takes a change: its parts read the value each time they use it."""
    rocketmq: str = ""
    """RocketMQ's default as a text, if it is different; OURS: RocketMQ has no such key; "": it has
    the same default."""
    aliases: tuple[str, ...] = ()
    """Other names of the key that RocketMQ takes, and a node reads; responses have `name`."""
    in_force: str = ""
    """Name of the attribute of the same dataclass that has the value in force, if the default is
    computed from other keys; "": the key's own attribute."""
    shows_empty: bool = True
    """Whether a response with the configuration has the key while its text is empty; RocketMQ
    leaves out null values."""


def key(
    name: str,
    kind: Kind[T],
    default: T,
    meaning: str,
    *,
    live: bool = False,
    rocketmq: str = "",
    aliases: tuple[str, ...] = (),
    in_force: str = "",
    shows_empty: bool = True,
) -> T:
    """The value to assign to a dataclass field that is a key; the arguments are the members of
    `Key`. Its real type is `dataclasses.Field`: T is for the type checker. A list as the default is
    copied for each object."""
    declaration = Key(name, kind, default, meaning, live, rocketmq, aliases, in_force, shows_empty)
    if isinstance(default, list):
        return cast(T, field(default_factory=default.copy, metadata={_KEY: declaration}))
    return field(default=default, metadata={_KEY: declaration})


def section(kind: type[T]) -> T:
    """The value to assign to a dataclass field whose value is a `kind`, which is another dataclass
    with keys; by default a new `kind()`. Its real type is `dataclasses.Field`."""
    return field(default_factory=kind, metadata={_SECTION: kind})


def keys_of(kind: type) -> Mapping[str, Key]:
    """Attribute name to key, in the order of the fields, without the keys of sections."""
    return {each.name: each.metadata[_KEY] for each in fields(kind) if _KEY in each.metadata}


def sections_of(kind: type) -> Mapping[str, type]:
    """Attribute name to dataclass, in the order of the fields, for the fields that `section`
    made."""
    found = {each.name: each.metadata.get(_SECTION) for each in fields(kind)}
    return {name: nested for name, nested in found.items() if nested is not None}


def _parse_boolean(value: str) -> bool:
    """Parse `true` or `false` in any case. Raises ValueError."""
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


def _show_boolean(value: bool) -> str:
    """`true` or `false`."""
    return "true" if value else "false"


def bare_host(text: str) -> str:
    """A host without the brackets that an IPv6 address has before a port: `[::1]` gives `::1`, any
    other text itself."""
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


TEXT: Final = Kind("text", str)
"""Any text, also the empty one."""
HOST: Final = Kind("text", bare_host)
"""A name or an address, unchecked; the value of an IPv6 address has no brackets."""
BOOLEAN: Final = Kind("true or false", _parse_boolean, _show_boolean)
"""The texts true and false in upper or lower case; any other text is refused."""


def integer_kind(low: int, high: int) -> Kind[int]:
    """The kind of whole decimal numbers from `low` to `high`, both included."""
    expected = f"a whole number from {low} to {high}"

    def parse(value: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(value) or not low <= int(value) <= high:
            raise ValueError(expected)
        return int(value)

    return Kind(expected, parse)


def enum_kind(kind: type[EnumT]) -> Kind[EnumT]:
    """The kind whose values are the members of the enumeration `kind`, and whose texts are the
    members' values; a value in small letters may be written in capitals, too."""
    members = {str(member.value): member for member in kind}
    expected = " or ".join(members)

    def parse(value: str) -> EnumT:
        found = members.get(value) or members.get(value.lower())
        if found is None:
            raise ValueError(expected)
        return found

    return Kind(expected, parse, lambda member: str(member.value))


ANY: Final = integer_kind(0, INT32_MAX)
"""Any int of Java that is not negative."""
COUNT: Final = integer_kind(1, INT32_MAX)
"""The same without 0."""
PERCENT: Final = integer_kind(0, 100)
"""A whole number of percent."""
PORT: Final = integer_kind(0, 65_535)
"""A TCP port; 0 is allowed."""


def _parse_addresses(value: str) -> list[str]:
    """Split `host:port;host:port` into the addresses. Raises ValueError."""
    found = [part.strip() for part in value.split(";") if part.strip()]
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
            raise ValueError("host:port, several separated by ;")
    return found


NAME_SERVERS: Final = Kind("host:port, several separated by ;", _parse_addresses, ";".join)
"""A list of "host:port" texts; an empty text gives an empty list."""
