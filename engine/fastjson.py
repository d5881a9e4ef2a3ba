"""JSON as fastjson writes and reads it: the dialect of RocketMQ's bodies and config files.

Owns reading (strict JSON plus the forms a Java peer emits) and writing (keys sorted, null members
left out, map keys that are numbers or beans unquoted where asked for). It must never execute or
instantiate what a text names (`@type` is an ordinary member). Called by the codecs of net.wire and
by the config files of the engine.
"""

import json
import math
import re
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any, Final

SIZE_MAX: Final = 64 << 20
"""Characters of a text: four times the largest frame, so that a large config file still loads."""

LOOSE_SIZE_MAX: Final = 4 << 20
"""Characters of a text that is not strict JSON: it is parsed in Python, some MB a second."""

DEPTH_MAX: Final = 200
"""Nesting of what is read or written, so that all that was read can be written again; RocketMQ's
deepest body has 8 levels."""

REFERENCES_MAX: Final = 10_000
"""`$ref` members of one text."""

REFERENCE_TARGET_MAX: Final = 256
"""Values inside what a `$ref` points at, so that references cannot multiply a text's size."""

REFERENCE_TEXT_MAX: Final = 4096
"""Characters of texts and keys inside what a `$ref` points at, for the same reason."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]++|\\.)*+")
      | (?P<single>'(?:[^'\\]++|\\.)*+')
      | (?P<mark>[{}\[\]:,])
      | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.]))
      | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
    )""",
    re.VERBOSE | re.DOTALL,
)
_PATH_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]")
_WORDS = {"true": True, "false": False, "null": None}


class RawKeys(dict[Any, Any]):
    """A dict written as a Java peer writes maps whose keys are not text.

    Keys that are ints are not quoted, and keys that are str are emitted as they are: each must be
    the JSON text of a bean (RocketMQ: fastjson's `{{"brokerName":...}:{...}}`).
    """


def loads(text: str | bytes | bytearray | memoryview) -> Any:
    """Parse strict JSON or fastjson's dialect; raises ValueError with a one-line reason.

    Accepted beyond strict JSON: unquoted keys (integers, identifiers, beans), single quotes and
    `$ref`. A bean used as a key becomes its compact, sorted JSON text. Bytes that are not UTF-8
    and lone surrogates become U+FFFD or `?`, as in Java.
    """
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    if len(text) > SIZE_MAX:
        raise ValueError(f"JSON text of {len(text)} characters is over {SIZE_MAX}")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    except ValueError as error:
        value = _load_loose(text, error)
    if "\\ud" in text or "\\uD" in text:
        # Before references are resolved: here each would be written out.
        value = _without_lone_surrogates(value)
    if '"$ref"' in text or "'$ref'" in text:
        value = _Resolver(value).resolved()
    elif text.count("{") + text.count("[") <= DEPTH_MAX:
        return value
    if _is_deep(value):
        raise ValueError("JSON is nested too deeply")
    return value


def dumps(value: Any, *, pretty: bool = False) -> str:
    """Write JSON as RocketMQ does; `pretty` indents with tabs, as its config files are.

    Keys are sorted, members that are None left out (elements of lists stay, as null), no blanks.
    Raises ValueError for nesting over DEPTH_MAX and TypeError for what JSON cannot hold.
    """
    pieces: list[str] = []
    _write(value, pieces.append, "\n" if pretty else "", 0)
    return "".join(pieces)


def _write(value: Any, out: Callable[[str], None], newline: str, depth: int) -> None:
    if isinstance(value, str):
        out(encode_basestring(value))
    elif value is None:
        out("null")
    elif isinstance(value, bool):
        out("true" if value else "false")
    elif isinstance(value, int):
        out(int.__repr__(value))
    elif isinstance(value, float):
        out(float.__repr__(value) if math.isfinite(value) else "null")
    elif depth >= DEPTH_MAX:
        raise ValueError(f"a value nested over {DEPTH_MAX} levels")
    elif isinstance(value, dict):
        _write_members(value, out, newline, depth + 1)
    elif isinstance(value, list | tuple):
        _write_elements(value, out, newline, depth + 1)
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form")


def _write_members(
    members: dict[Any, Any], out: Callable[[str], None], newline: str, depth: int
) -> None:
    raw = isinstance(members, RawKeys)
    items = [(key, value) for key, value in members.items() if value is not None]
    if not items:
        out("{}")
        return
    items.sort(key=_sort_key)
    inner = newline + "\t" * depth if newline else ""
    before = "{" + inner
    for key, value in items:
        out(before)
        out(str(key) if raw else encode_basestring(str(key)))
        out(":")
        _write(value, out, newline, depth)
        before = "," + inner
    out((newline + "\t" * (depth - 1) if newline else "") + "}")


def _sort_key(item: tuple[Any, Any]) -> tuple[bool, Any]:
    key = item[0]
    return (False, key) if isinstance(key, int) else (True, str(key))


def _write_elements(
    elements: list[Any] | tuple[Any, ...], out: Callable[[str], None], newline: str, depth: int
) -> None:
    if not elements:
        out("[]")
        return
    inner = newline + "\t" * depth if newline else ""
    before = "[" + inner
    for value in elements:
        out(before)
        _write(value, out, newline, depth)
        before = "," + inner
    out((newline + "\t" * (depth - 1) if newline else "") + "]")


def _without_lone_surrogates(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return any(isinstance(item, dict | list) for item in level)


def _load_loose(text: str, error: ValueError) -> Any:
    if len(text) > LOOSE_SIZE_MAX:
        raise ValueError(f"not strict JSON ({error}) and over {LOOSE_SIZE_MAX} characters")
    return _Loose(text).document()


class _Loose:
    """A recursive descent parser over fastjson's dialect, bounded by DEPTH_MAX."""

    __slots__ = ("_at", "_in_key", "_kind", "_text", "_token")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._in_key = False
        self._kind: str | None = None
        self._token = ""

    def document(self) -> Any:
        self._next()
        value = self._value(0)
        if self._text[self._at :].strip():
            raise ValueError(f"JSON goes on after its end at character {self._at}")
        return value

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise ValueError(f"not JSON at character {self._at}")
        self._kind = match.lastgroup
        self._token = match[self._kind or 0]
        self._at = match.end()

    def _fail(self) -> ValueError:
        found = self._token[:20]
        return ValueError(f"JSON has an unexpected {found!r} before character {self._at}")

    def _value(self, depth: int) -> Any:
        """The value that starts at the current token; leaves its last token current."""
        kind, token = self._kind, self._token
        if kind == "string":
            return _text_of(token)
        if kind == "single":
            return _text_of_single(token)
        if kind == "number":
            return _number_of(token)
        if kind == "word" and token in _WORDS:
            return _WORDS[token]
        if depth >= DEPTH_MAX:
            raise ValueError("JSON is nested too deeply")
        if token == "{" and kind == "mark":
            return self._members(depth + 1)
        if token == "[" and kind == "mark":
            return self._elements(depth + 1)
        raise self._fail()

    def _members(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self._next()
        while self._token != "}" or self._kind != "mark":
            key = self._key(depth)
            self._expect(":")
            self._next()
            members[key] = self._value(depth)
            self._next()
            if self._kind != "mark" or self._token not in ",}":
                raise self._fail()
            if self._token == ",":
                self._next()
        return members

    def _key(self, depth: int) -> str:
        if self._kind == "word":
            return self._token
        if self._kind == "mark":
            # Each level of beans in beans would double the backslashes of the text.
            if self._in_key:
                raise ValueError("JSON has a key inside a key")
            self._in_key = True
            value = self._value(depth)
            self._in_key = False
            return dumps(value)
        value = self._value(depth)
        return value if isinstance(value, str) else self._token

    def _elements(self, depth: int) -> list[Any]:
        elements: list[Any] = []
        self._next()
        while self._token != "]" or self._kind != "mark":
            elements.append(self._value(depth))
            self._next()
            if self._kind != "mark" or self._token not in ",]":
                raise self._fail()
            if self._token == ",":
                self._next()
        return elements

    def _expect(self, mark: str) -> None:
        self._next()
        if self._kind != "mark" or self._token != mark:
            raise self._fail()


def _text_of(token: str) -> str:
    # Raw line breaks inside strings are legal for fastjson, hence strict=False.
    value = json.loads(token, strict=False)
    assert isinstance(value, str)
    return value


def _text_of_single(token: str) -> str:
    inner = re.sub(r"\\(.)|\"", _requote, token[1:-1], flags=re.DOTALL)
    return _text_of(f'"{inner}"')


def _requote(match: re.Match[str]) -> str:
    if match[0] == '"':
        return '\\"'
    return "'" if match[1] == "'" else match[0]


def _number_of(token: str) -> int | float:
    return float(token) if any(mark in token for mark in ".eE") else int(token)


class _Resolver:
    """Replaces `{"$ref": path}` by its target, where that is small and free of references."""

    __slots__ = ("_count", "_root")

    def __init__(self, root: Any) -> None:
        self._root = root
        self._count = 0

    def resolved(self) -> Any:
        return self._walk(self._root, (), 0)

    def _walk(self, value: Any, ancestors: tuple[Any, ...], depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise ValueError("JSON is nested too deeply")
        if isinstance(value, dict):
            if _is_reference(value):
                return self._target(value, ancestors)
            inner = (*ancestors, value)
            return {key: self._walk(child, inner, depth + 1) for key, child in value.items()}
        if isinstance(value, list):
            inner = (*ancestors, value)
            return [self._walk(child, inner, depth + 1) for child in value]
        return value

    def _target(self, reference: dict[str, Any], ancestors: tuple[Any, ...]) -> Any:
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
