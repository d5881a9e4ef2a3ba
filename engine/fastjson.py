"""JSON as fastjson writes and reads it: the dialect of RocketMQ's bodies and config files.

Owns reading (strict JSON plus the forms a Java peer emits) and writing (keys sorted, null members
left out, map keys that are numbers or beans unquoted where asked for). It must never execute or
instantiate a name in a text (`@type` is an ordinary member).
"""

import json
import math
import re
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any, Final

SIZE_MAX: Final = 64 << 20
"""Maximum characters of a text: four times the largest frame, so that a large config file loads."""

SLOW_MAX: Final = 100_000
"""Maximum slow pieces of a text: beans as keys, and single-quoted texts that need escapes. Each
takes the loop some 10 us, other forms beyond strict JSON a tenth of that."""

DEPTH_MAX: Final = 200
"""Maximum nesting for reading and writing, so that every value that was read can be written again;
RocketMQ's deepest body has 8 levels."""

REFERENCES_MAX: Final = 10_000
"""Maximum number of `$ref` members of a text."""

REFERENCE_TARGET_MAX: Final = 256
"""Maximum number of values inside the target of a `$ref`, so that references cannot multiply a
text's size."""

REFERENCE_TEXT_MAX: Final = 4096
"""Maximum characters of texts and keys inside the target of a `$ref`, for the same reason."""

_MARK = "\0"  # stands for a string while the text outside of strings is parsed
# An unterminated string matches, too: looking for another start inside it would take quadratic
# time. It can only be the last string.
_STRING = re.compile(r"""("(?:[^"\\]++|\\.)*+"?+|'(?:[^'\\]++|\\.)*+'?+)""", re.DOTALL)
_SINGLE = re.compile(r"'(?:[^'\\]++|\\.)*+'", re.DOTALL)
_TO_REQUOTE = re.compile(r"\\(.)|\"", re.DOTALL)
_KEY = re.compile(
    r"""(?<![A-Za-z0-9_$.+-])
    (-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+ | [A-Za-z_$][A-Za-z0-9_$]*+)
    (?=[ \t\r\n]*+:)""",
    re.VERBOSE,
)
_TRAILING_COMMA = re.compile(r",(?=[ \t\r\n]*+[}\]])")
_BEAN_END = re.compile(r"[}\]][ \t\r\n]*+:")
_BRACKET = re.compile(r"[{\[]|[}\]](?:[ \t\r\n]*+:)?+")
_PATH_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]")


class RawKeys(dict[Any, Any]):
    """A dict that `dumps` writes as a Java peer writes maps whose keys are not text.

    Keys that are ints are not quoted, and keys that are str are emitted unchanged: each must be the
    JSON text of a bean (RocketMQ: fastjson's `{{"brokerName":...}:{...}}`).
    """


def loads(text: str | bytes | bytearray | memoryview) -> Any:
    """Parse strict JSON or fastjson's dialect into dicts, lists and scalars; bytes are UTF-8.
    Raises ValueError with a one-line reason, also for a text over the limits of this module.

    Accepted beyond strict JSON: unquoted keys (integers, identifiers, beans), single quotes and
    `$ref`. A bean used as a key becomes its compact, sorted JSON text. Bytes that are not UTF-8 and
    lone surrogates become U+FFFD or `?`, as in Java.
    """
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    _check_size(text)
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    except ValueError:
        value = _load_loose(text)
    if "\\ud" in text or "\\uD" in text:
        # Before references are resolved: this function would write each reference out.
        value = _without_lone_surrogates(value)
    if '"$ref"' in text or "'$ref'" in text:
        value = _Resolver(value).resolve_root()
    elif text.count("{") + text.count("[") <= DEPTH_MAX:
        return value
    if _is_nested_too_deeply(value):
        raise ValueError("JSON is nested too deeply")
    return value


def check_readable(text: str) -> None:
    """Raise ValueError for a text of `dumps` that `loads` would refuse: over SIZE_MAX characters or
    REFERENCES_MAX references. Does not parse the text."""
    _check_size(text)
    if text.count('"$ref"') > REFERENCES_MAX:
        raise ValueError(f"JSON has over {REFERENCES_MAX} references")


def _check_size(text: str) -> None:
    """Raise ValueError for a text of over SIZE_MAX characters."""
    if len(text) > SIZE_MAX:
        raise ValueError(f"JSON text of {len(text)} characters, over {SIZE_MAX}")


def dumps(value: Any, *, pretty: bool = False, depth: int = 0) -> str:
    """Write JSON as RocketMQ does. `pretty` indents with tabs, as in its config files; `depth` is
    the nesting level of the value, for the tabs of its members and for DEPTH_MAX.

    Keys are sorted, members that are None left out (elements of lists stay, as null), no blanks.
    Raises ValueError for nesting over DEPTH_MAX and TypeError for values that JSON cannot hold.
    """
    return _json_text(value, "\n" if pretty else "", depth)


def text_size(text: str) -> int:
    """UTF-8 bytes of a text as `dumps` writes it, quotes included: two for a quote or a backslash,
    up to six for a control character, one for a lone surrogate."""
    return len(encode_basestring(text).encode("utf-8", "replace"))


_SPACING: Final = b"\n\t"


def encode_member(name: str, value: Any, depth: int) -> bytes:
    """The UTF-8 text `"name":value` of a member as in a pretty text, without tabs before it; the
    value has nesting level `depth`, so the member's object has `depth` - 1. Lone surrogates become
    `?`."""
    text = f"{encode_basestring(name)}:{dumps(value, pretty=True, depth=depth)}"
    return text.encode("utf-8", "replace")


def strip_layout(text: bytes) -> bytes:
    """A pretty text of `dumps` or `encode_member` without its line breaks and tabs: the text of
    `dumps` without `pretty`. Strings contain none, because `dumps` escapes them."""
    return text.translate(None, _SPACING)


def _json_text(value: Any, newline: str, depth: int) -> str:
    """JSON text of a value at nesting level `depth`; `newline` is a line break for a pretty text,
    else ""."""
    kind = type(value)
    if kind is str or isinstance(value, str):
        return encode_basestring(value)
    if kind is int:
        return int.__repr__(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else "null"
    if depth >= DEPTH_MAX:
        raise ValueError(f"a value nested over {DEPTH_MAX} levels")
    if isinstance(value, dict):
        raw = isinstance(value, RawKeys)
        members = [
            f"{str(key) if raw else encode_basestring(str(key))}:"
            f"{_json_text(value[key], newline, depth + 1)}"
            for key in sorted_keys(value)
        ]
        return _join_in_brackets("{", members, "}", newline, depth)
    if isinstance(value, list | tuple):
        elements = [_json_text(element, newline, depth + 1) for element in value]
        return _join_in_brackets("[", elements, "]", newline, depth)
    raise TypeError(f"{kind.__name__} has no JSON form")


def sorted_keys(members: dict[Any, Any]) -> list[Any]:
    """Keys of the members that are not None, in the order of `dumps`: numbers ascending, then texts
    by code point."""
    keys = [key for key, value in members.items() if value is not None]
    keys.sort(key=sort_key_of(keys))
    return keys


def sort_key_of(keys: list[Any]) -> Callable[[Any], Any] | None:
    """The `key` argument with which `sorted` gives these keys the order of `sorted_keys`; None: no
    argument is needed."""
    kinds = set(map(type, keys))
    return None if kinds <= _STR or kinds <= _INT else _sort_key


_STR, _INT = {str}, {int}


def _sort_key(key: Any) -> tuple[bool, Any]:
    """Sort key of a map's key: numbers ascending before texts by code point."""
    return (False, key) if isinstance(key, int) else (True, str(key))


def _join_in_brackets(left: str, parts: list[str], right: str, newline: str, depth: int) -> str:
    """The parts between two brackets, separated by commas; each on an indented line of its own if
    `newline` is not empty."""
    if not parts:
        return left + right
    if not newline:
        return f"{left}{','.join(parts)}{right}"
    inner = newline + "\t" * (depth + 1)
    return f"{left}{inner}{(',' + inner).join(parts)}{newline}{chr(9) * depth}{right}"


def _without_lone_surrogates(value: Any) -> Any:
    """A copy of the JSON value, with `?` in place of lone surrogates in its texts."""
    try:
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def _is_nested_too_deeply(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
        level = [
            child for item in level for child in (item.values() if isinstance(item, dict) else item)
        ]
    return any(isinstance(item, dict | list) for item in level)


class _SlowBudget:
    """Budget of the pieces of a text that Python reads one by one."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = SLOW_MAX

    def count_piece(self) -> None:
        """Count one piece; raises ValueError after SLOW_MAX pieces."""
        self._left -= 1
        if self._left < 0:
            raise ValueError(
                f"JSON has over {SLOW_MAX} bean keys or single-quoted texts with escapes"
            )


def _load_loose(text: str) -> Any:
    """Parse fastjson's dialect, made strict by expressions that read each character once."""
    pieces = _STRING.split(text)
    strings, outside = pieces[1::2], _MARK.join(pieces[::2])
    if outside.count(_MARK) != len(strings) or _MARK * 2 in outside:
        raise ValueError("JSON has a NUL, or a text right after a text")
    if strings and strings[-1][0] == "'" and not _SINGLE.fullmatch(strings[-1]):
        raise ValueError("JSON ends inside a text")
    slow = _SlowBudget()
    strings = [_double_quoted(one, slow) if one[0] == "'" else one for one in strings]
    # Splitting and joining takes a third of the time of a substitution.
    pieces = _KEY.split("".join(_TRAILING_COMMA.split(outside)))
    pieces[1::2] = [f'"{key}"' for key in pieces[1::2]]
    outside = "".join(pieces)
    if _BEAN_END.search(outside):
        outside, strings = _with_bean_keys(outside, strings, slow)
    return _parse_strict(_with_strings(outside, strings))


def _double_quoted(token: str, slow: _SlowBudget) -> str:
    """A single-quoted string of a text, quotes included, as a double-quoted string."""
    inner = token[1:-1]
    if "\\" in inner or '"' in inner:
        slow.count_piece()
        inner = _TO_REQUOTE.sub(_requoted_character, inner)
    return f'"{inner}"'


def _requoted_character(match: re.Match[str]) -> str:
    """The form in a double-quoted string of a matched quote or escape of a single-quoted string."""
    if match[0] == '"':
        return '\\"'
    return "'" if match[1] == "'" else match[0]


def _with_strings(outside: str, strings: list[str]) -> str:
    """A text whose strings were cut out (`outside`, with a _MARK for each
    string), complete again."""
    pieces = outside.split(_MARK)
    filled = [""] * (len(pieces) + len(strings))
    filled[::2], filled[1::2] = pieces, strings
    return "".join(filled)


def _parse_strict(text: str) -> Any:
    """Parse strict JSON, but with line breaks in strings. Raises ValueError with
    a one-line reason."""
    try:
        # Raw line breaks inside strings are legal for fastjson, hence strict=False.
        return json.loads(text, strict=False, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        found = error.doc[error.pos : error.pos + 20]
        reason = f"has an unexpected {found!r}" if found else "ends early"
        raise ValueError(f"JSON {reason}") from None
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def _refuse_constant(word: str) -> Any:
    """Raise ValueError for NaN or Infinity in a text."""
    raise ValueError(f"JSON has an unexpected {word!r}")


def _with_bean_keys(outside: str, strings: list[str], slow: _SlowBudget) -> tuple[str, list[str]]:
    """Replace each bean before a colon by a string of its text, which includes the bean's
    strings."""
    opened: list[int] = []
    pieces: list[str] = []
    kept: list[str] = []
    done = used = 0
    for bracket in _BRACKET.finditer(outside):
        if bracket[0] in "{[":
            opened.append(bracket.start())
            if len(opened) > DEPTH_MAX:
                raise ValueError("JSON is nested too deeply")
            continue
        if not opened:
            raise ValueError(f"JSON has an unexpected {bracket[0]!r}")
        begin, end = opened.pop(), bracket.end()
        if outside[end - 1] != ":":
            continue
        if begin < done:
            # Each level of beans in beans would double the backslashes of the text.
            raise ValueError("JSON has a key inside a key")
        slow.count_piece()
        bean = outside[begin : end - 1]
        first = used + outside.count(_MARK, done, begin)
        kept += strings[used:first]
        used = first + bean.count(_MARK)
        key = dumps(_parse_strict(_with_strings(bean, strings[first:used])))
        pieces += (outside[done:begin], json.dumps(key), ":")
        done = end
    return "".join((*pieces, outside[done:])), kept + strings[used:]


class _Resolver:
    """Replaces `{"$ref": path}` by its target if the target is small and free of references."""

    __slots__ = ("_count", "_root")

    def __init__(self, root: Any) -> None:
        self._root = root
        self._count = 0

    def resolve_root(self) -> Any:
        """A copy of the root in which references are replaced by their targets."""
        return self._resolve_value(self._root, (), 0)

    def _resolve_value(self, value: Any, ancestors: tuple[Any, ...], depth: int) -> Any:
        """A copy of the value with its references resolved; `ancestors` are the dicts and lists
        around it, outermost first. Raises ValueError over DEPTH_MAX."""
        if depth > DEPTH_MAX:
            raise ValueError("JSON is nested too deeply")
        if isinstance(value, dict):
            if _is_reference(value):
                return self._resolve_reference(value, ancestors)
            inner = (*ancestors, value)
            return {
                key: self._resolve_value(child, inner, depth + 1) for key, child in value.items()
            }
        if isinstance(value, list):
            inner = (*ancestors, value)
            return [self._resolve_value(child, inner, depth + 1) for child in value]
        return value

    def _resolve_reference(self, reference: dict[str, Any], ancestors: tuple[Any, ...]) -> Any:
        """The target of a reference; the reference itself if there is no target, or the target is
        large or contains references. Raises ValueError over REFERENCES_MAX references."""
        self._count += 1
        if self._count > REFERENCES_MAX:
            raise ValueError(f"JSON has over {REFERENCES_MAX} references")
        path = reference["$ref"]
        if path == "@":
            return reference
        if path == "..":
            found = ancestors[-2] if len(ancestors) > 1 else reference
        else:
            found = self._look_up(path, reference)
        return found if _is_small_and_plain(found) else reference

    def _look_up(self, path: str, missing: Any) -> Any:
        """The value at a path such as `$.name[0]` of the root; `missing` without such a value."""
        if not path.startswith("$"):
            return missing
        value, at = self._root, 1
        while at < len(path):
            step = _PATH_STEP.match(path, at)
            if step is None:
                return missing
            at = step.end()
            name, index = step[1], step[2]
            if name is not None and isinstance(value, dict) and name in value:
                value = value[name]
            elif index is not None and isinstance(value, list) and int(index) < len(value):
                value = value[int(index)]
            else:
                return missing
        return value


def _is_reference(value: dict[Any, Any]) -> bool:
    return len(value) == 1 and isinstance(value.get("$ref"), str)


def _is_small_and_plain(value: Any) -> bool:
    """Whether a value may be the target of a reference: within the limits of size, and without
    references."""
    waiting, seen, characters = [value], 0, 0
    while waiting:
        item = waiting.pop()
        seen += 1
        if isinstance(item, str):
            characters += len(item)
        elif isinstance(item, dict):
            characters += sum(map(len, item))
        if seen > REFERENCE_TARGET_MAX or characters > REFERENCE_TEXT_MAX:
            return False
        if isinstance(item, dict):
            if _is_reference(item):
                return False
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        if len(waiting) > REFERENCE_TARGET_MAX:
            return False
    return True
