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
INT64_MAX: Final = 2**63 - 1
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
    """A kind of values: its description, its parser and its text form.

    `parse` takes a text without surrounding blanks and raises ValueError with the expected values.
    """

    expected: str
    parse: Callable[[str], T_co]
    show: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Key:
    """The declaration of a key."""

    name: str
    """RocketMQ's name of the key, as in files, requests and responses."""
    kind: Kind[Any]
    default: Any
    meaning: str
    """The description of the key, one sentence."""
    live: bool = False
    """Whether a running node takes a change: its parts read the value each time they use it."""
    rocketmq: str = ""
    """RocketMQ's default, if it is different, or OURS."""
    aliases: tuple[str, ...] = ()
    """Other names of the key that RocketMQ takes."""
    in_force: str = ""
    """The attribute with the value in force, if the default is computed from other keys."""
    shows_empty: bool = True
    """Whether a response includes the key without a value; RocketMQ leaves out null values."""


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
    """A field of a dataclass that is a key; see `Key`."""
    declaration = Key(name, kind, default, meaning, live, rocketmq, aliases, in_force, shows_empty)
    if isinstance(default, list):
        return cast(T, field(default_factory=default.copy, metadata={_KEY: declaration}))
    return field(default=default, metadata={_KEY: declaration})


def section(kind: type[T]) -> T:
    """A field of a dataclass that holds another dataclass with keys, all with their defaults."""
    return field(default_factory=kind, metadata={_SECTION: kind})


def keys_of(kind: type) -> Mapping[str, Key]:
    """Attribute name to key, for the keys that a dataclass declares itself."""
    return {each.name: each.metadata[_KEY] for each in fields(kind) if _KEY in each.metadata}


def sections_of(kind: type) -> Mapping[str, type]:
    """Attribute name to dataclass, for the attributes of a dataclass that are dataclasses with
    keys."""
    found = {each.name: each.metadata.get(_SECTION) for each in fields(kind)}
    return {name: nested for name, nested in found.items() if nested is not None}


def _boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


def _show_boolean(value: bool) -> str:
    return "true" if value else "false"


def bare_host(text: str) -> str:
    """A host without the brackets that an IPv6 address has before a port: `[::1]` is `::1`."""
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


TEXT: Final = Kind("text", str)
HOST: Final = Kind("text", bare_host)
"""A name or an address, IPv6 with or without brackets."""
BOOLEAN: Final = Kind("true or false", _boolean, _show_boolean)
"""The texts true and false in any case, as Java reads them."""


def between(low: int, high: int) -> Kind[int]:
    """The kind of a key whose values are whole numbers from `low` to `high`, both included."""
    expected = f"a whole number from {low} to {high}"

    def parse(value: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(value) or not low <= int(value) <= high:
            raise ValueError(expected)
        return int(value)

    return Kind(expected, parse)


def choice(kind: type[EnumT]) -> Kind[EnumT]:
    """The members of an enumeration by their values, which are texts; lower case values may be
    written in any case."""
    members = {str(member.value): member for member in kind}
    expected = " or ".join(members)

    def parse(value: str) -> EnumT:
        found = members.get(value) or members.get(value.lower())
        if found is None:
            raise ValueError(expected)
        return found

    return Kind(expected, parse, lambda member: str(member.value))


ANY: Final = between(0, INT32_MAX)
COUNT: Final = between(1, INT32_MAX)
PERCENT: Final = between(0, 100)
PORT: Final = between(0, 65_535)


def _addresses(value: str) -> list[str]:
    found = [part.strip() for part in value.split(";") if part.strip()]
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
            raise ValueError("host:port, several separated by ;")
    return found


NAME_SERVERS: Final = Kind("host:port, several separated by ;", _addresses, ";".join)
