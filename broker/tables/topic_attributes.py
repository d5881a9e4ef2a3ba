"""Attributes of topics and groups: parsing `+key=value,-key`, and the rules for changes.

Owns RocketMQ's attribute names and rules (TopicAttributes, SubscriptionGroupAttributes,
AttributeParser, AttributeUtil). It must never touch a table.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from turbopump.net.wire.topics import MESSAGE_TYPE, MIXED

CLEANUP_POLICY: Final = "cleanup.policy"
"""Topic attribute: DELETE or COMPACTION; it cannot be changed after the topic's creation."""
COMPACTION: Final = "COMPACTION"
"""Value of CLEANUP_POLICY: only the newest message of each key stays. Requests to set it are
refused."""

MAX_ATTRIBUTES_TEXT: Final = 4_096
"""Maximum characters of an attributes text, else BadAttributes: real texts have some hundred."""


class BadAttributes(ValueError):
    """Attributes are malformed or not allowed; the exception's text is for the operator."""


@dataclass(frozen=True, slots=True)
class _Attribute:
    """An attribute that topics or groups may have: the check of its value, and whether it may be
    changed."""

    check: Callable[[str], bool]
    changeable: bool


def _one_of(*values: str) -> Callable[[str], bool]:
    """Return a check that accepts only these values."""
    return frozenset(values).__contains__


def _int64_check(low: int, high: int = (1 << 63) - 1) -> Callable[[str], bool]:
    """Return a check that accepts whole numbers from `low` to `high`."""

    def check(value: str) -> bool:
        return bool(re.fullmatch(r"[+-]?[0-9]{1,19}", value)) and low <= int(value) <= high

    return check


def _is_boolean(value: str) -> bool:
    """Whether the value is true or false, in any case."""
    return value.lower() in ("true", "false")


def _text(value: str) -> bool:
    """Whether the value is printable text."""
    return value.isprintable()


_KNOWN: Mapping[str, _Attribute] = {
    "queue.type": _Attribute(_one_of("BatchCQ", "SimpleCQ"), changeable=False),
    CLEANUP_POLICY: _Attribute(_one_of("DELETE", COMPACTION), changeable=False),
    MESSAGE_TYPE: _Attribute(
        _one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", MIXED),
        changeable=True,
    ),
    "reserve.time": _Attribute(_int64_check(-1), changeable=True),
    "lite.topic.expiration": _Attribute(_int64_check(-1, 30 * 24 * 60), changeable=True),
}

_OF_GROUPS: Mapping[str, _Attribute] = {
    "priority.factor": _Attribute(_int64_check(0, 100), changeable=True),
    "lite.bind.topic": _Attribute(_text, changeable=True),
    "lite.sub.model": _Attribute(_one_of("Shared", "Exclusive"), changeable=True),
    "lite.sub.reset.offset.exclusive": _Attribute(_is_boolean, changeable=True),
    "lite.sub.reset.offset.unsubscribe": _Attribute(_is_boolean, changeable=True),
    "lite.sub.client.quota": _Attribute(_int64_check(-1), changeable=True),
    "lite.sub.client.max.event.cnt": _Attribute(_int64_check(10), changeable=True),
    "lite.sub.wildcard": _Attribute(_text, changeable=True),
}
"""Attributes that are stored as in RocketMQ; priority and light topics themselves are not supported
yet."""


def parse_attributes(text: str | None) -> dict[str, str]:
    """Parse `+a=1,-b` to {"+a": "1", "-b": ""}, the signs included; None or a blank text to {}
    (RocketMQ: AttributeParser.parseToMap). Raises BadAttributes for a malformed text; names and
    values are not checked."""
    changes: dict[str, str] = {}
    if text is None or not text.strip():
        return changes
    if len(text) > MAX_ATTRIBUTES_TEXT:
        raise BadAttributes(f"attributes have more than {MAX_ATTRIBUTES_TEXT} characters")
    for part in text.split(","):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if separator:
            if not key.startswith("+"):
                raise BadAttributes(f"add/alter attribute format is wrong: {part}")
        elif not key.startswith("-"):
            raise BadAttributes(f"delete attribute format is wrong: {part}")
        if not key[1:] or key[1:].startswith(("+", "-")):
            raise BadAttributes(f"an attribute has no name: {part}")
        if key in changes:
            raise BadAttributes(f"key duplication: {key}")
        changes[key] = value
    return changes


def apply_group_attributes(
    current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return a consumer group's new attributes, by name without sign, after `changes` (names with
    sign); `current` is None for a new group. `changes` equal to `current` (names without sign) are
    accepted, from a client that read the group and changed something else of it. Raises
    BadAttributes."""
    if sum(len(key) + len(value) for key, value in changes.items()) > MAX_ATTRIBUTES_TEXT:
        raise BadAttributes(f"attributes have more than {MAX_ATTRIBUTES_TEXT} characters")
    if current is not None and changes == current:
        return dict(current)
    return apply_attributes(current, changes, _OF_GROUPS)


def apply_attributes(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    attributes: Mapping[str, _Attribute] = _KNOWN,
) -> dict[str, str]:
    """Return the new attributes, by name without sign, after `changes` (`parse_attributes`);
    `current` is None for a new topic. Raises BadAttributes; the arguments never change.

    On a new topic only `+` is allowed; an immutable attribute cannot be changed or deleted; names
    and values must be known to `attributes` (RocketMQ: AttributeUtil.alterCurrentAttributes).
    """
    result = dict(current or {})
    if len({key[1:] for key in changes}) < len(changes):
        raise BadAttributes("an attribute is both set and deleted")
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if sign not in ("+", "-"):
            raise BadAttributes(f"an attribute needs + or - before its name: {signed}")
        known = attributes.get(key)
        if known is None:
            raise BadAttributes(f"unsupported key: {key}")
        if sign == "-":
            if current is None:
                raise BadAttributes(f"only add attribute is supported while creating topic: {key}")
            if key not in current:
                raise BadAttributes(f"attempt to delete a nonexistent key: {key}")
            if not known.changeable:
                raise BadAttributes(f"attempt to delete an unchangeable attribute: {key}")
            del result[key]
            continue
        if not known.check(value):
            raise BadAttributes(f"value of {key} is not allowed: {value}")
        if current is not None and not known.changeable and current.get(key) != value:
            raise BadAttributes(f"attempt to update an unchangeable attribute: {key}")
        result[key] = value
    return result
