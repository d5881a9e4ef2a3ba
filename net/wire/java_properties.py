"""Java properties text: RocketMQ's configuration files and configuration requests.

Owns the syntax of `.conf`/`.properties` files and of the bodies of 25/26 and 318/319. It must never
know a node's keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MAX_TEXT = 1 << 20
"""Maximum characters of a properties text: RocketMQ's largest sample file has 4,000; a body is not
trusted."""

_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"})
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """An unusable properties text; the message is one sentence for its author."""

    def __init__(self, message: str) -> None:
        super().__init__(escape_unprintable(message))


class ConfigError(PropertiesError):
    """An unusable configuration; the message is one sentence for the operator."""


@dataclass(slots=True)
class Property:
    """A `key=value` of a properties text, unescaped, and the number of its first line, from 1 (0:
    not from a text)."""

    key: str
    value: str
    line: int = 0


def escape_unprintable(text: str) -> str:
    """The text with non-printable characters as Python's escapes, so that a text from outside is a
    single line in logs and terminals."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def parse_properties(text: str) -> list[Property]:
    """Parse a text in the syntax of java.util.Properties, in its order; a key may occur several
    times, and blanks at the end of a value are dropped.

    Raises PropertiesError for a malformed escape or a text beyond MAX_TEXT.
    """
    if len(text) > MAX_TEXT:
        raise PropertiesError(f"the properties text is longer than {MAX_TEXT} characters")
    found: list[Property] = []
    for line, _, logical in _logical_lines(_natural_lines(text)):
        key, value = _split_line(logical)
        found.append(
            Property(_unescape_text(key, line), _unescape_text(value, line).rstrip(), line)
        )
    return found


def format_properties(values: Mapping[str, str]) -> str:
    """Format `key=value` lines sorted by key, as in RocketMQ's response to GET_*_CONFIG; values are
    escaped, keys are not."""
    return "".join(f"{key}={values[key].translate(_ESCAPED)}\n" for key in sorted(values))


def updated_properties(text: str, values: Mapping[str, str]) -> str:
    """Return a properties text without the lines of these keys, and with `values` at its end.

    All other lines stay: they belong to the operator, or to another node with its keys in the same
    file. Raises PropertiesError for a malformed escape in a key of `text`, or if the result has
    more than MAX_TEXT characters: `parse_properties` would refuse the result at the next start.
    """
    naturals = _natural_lines(text)
    kept: list[str] = []
    end = 0
    for first, last, logical in _logical_lines(naturals):
        kept += naturals[end : first - 1]
        end = last
        if _unescape_text(_split_line(logical)[0], first) not in values:
            kept += naturals[first - 1 : last]
    kept += naturals[end:]
    while kept and not kept[-1].strip(" \t\f"):
        kept.pop()
    if kept and kept[-1].endswith("\\"):
        kept.append("")  # ends the continuation, so that it does not include our first line
    updated = "".join(f"{line}\n" for line in kept) + format_properties(values)
    if len(updated) > MAX_TEXT:
        raise PropertiesError(f"the properties text is longer than {MAX_TEXT} characters")
    return updated


def _natural_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _logical_lines(naturals: list[str]) -> list[tuple[int, int, str]]:
    """Join continuation lines and drop comments and blank lines; each result is (number of its
    first line from 1, number of its last line, text)."""
    lines: list[tuple[int, int, str]] = []
    pending: str | None = None
    first = 0
    for number, natural in enumerate(naturals, 1):
        stripped = natural.lstrip(" \t\f")
        if pending is None:
            if not stripped or stripped[0] in "#!":
                continue
            pending, first = "", number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            pending += stripped[:-1]
            continue
        lines.append((first, number, pending + stripped))
        pending = None
    if pending is not None:
        lines.append((first, len(naturals), pending))
    return lines


def _split_line(logical: str) -> tuple[str, str]:
    """Split a logical line into (key, value), both still escaped: the key ends at the first
    unescaped `=`, `:` or white space."""
    at = 0
    while at < len(logical) and logical[at] not in "=: \t\f":
        at += 2 if logical[at] == "\\" else 1
    key, rest = logical[:at], logical[at:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return key, rest


def _unescape_text(text: str, line: int) -> str:
    """Replace the escapes of a key or value; raises PropertiesError with the number `line`."""
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char != "\\":
            parts.append(char)
            at += 1
            continue
        escape = text[at + 1 : at + 2]
        if escape == "u":
            digits = text[at + 2 : at + 6]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise PropertiesError(
                    f"line {line}: \\u is not followed by four hexadecimal digits"
                )
            parts.append(chr(int(digits, 16)))
            at += 6
        else:
            parts.append(_ESCAPES.get(escape, escape))
            at += 2
    unescaped = "".join(parts)
    # Escapes are UTF-16 units: two may form one character; a lone half is replaced, as in Java.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
