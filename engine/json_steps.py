"""Long JSON texts in steps: read and written piece by piece, so that a loop serves others between.

Owns the splitting of texts, and the limits of texts from a peer, which are checked in the text
before objects are made of it. It must never wait or know a loop: a step is a `yield`. The dialect
and the pieces are fastjson's.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from heapq import merge
from io import BytesIO
from json.encoder import encode_basestring
from typing import Any, Final, TypeVar

from turbopump.engine import fastjson
from turbopump.pyx.json_split import CLOSED, COMMA, LARGE, next_piece

PIECE: Final = 32 << 10
"""Bytes of text that are read in one step: 3 ms if all of it is brackets."""

WRITTEN: Final = 32 << 10
"""Characters of text after which a written step ends."""
WRITTEN_TEXTS: Final = 256
"""Number of texts of at most SMALL values each after which a written step ends."""
SMALL: Final = 32
"""Number of values that are written as a single text; a value takes some 300 ns."""

SORTED: Final = 4_096
"""Keys sorted in one step, in 2 ms; sorted parts are merged while they are written."""

DEPTH_MAX: Final = 8
"""Maximum nesting of containers larger than a piece; RocketMQ's have 3."""

REFERENCES_UP_TO: Final = 256 << 10
"""Maximum bytes of a text with `$ref`: its target may be anywhere, so the text is read at once.
Only peers before RocketMQ 5 write references."""

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work in steps: the caller runs the generator, may do other work at each yield, and receives the
result as its return value. An error is raised from the step in which it is found."""


@dataclass(frozen=True, slots=True)
class JsonBounds:
    """Limits of a JSON text from a peer, for `load_in_steps`: bytes of the text and of a value,
    numbers of values and containers."""

    size: int
    """Maximum bytes of the text."""
    containers: int
    """Maximum number of objects and lists; only checked in a text that is read in several steps, as
    are `values` and `scalar`."""
    values: int
    """Maximum number of commas, which stands for the number of values."""
    scalar: int = 256 << 10
    """Maximum bytes of a value that is not a container."""


UNBOUNDED: Final = JsonBounds(1 << 62, 1 << 62, 1 << 62, 1 << 62)
"""No limits, for texts of our own files."""


class Lazy(dict[str, Any]):
    """An object for `dump_in_steps`, whose values are made by `form` from the values of `members`
    when they are written."""

    def __init__(self, members: Mapping[str, Any], form: Callable[[Any], Any]) -> None:
        super().__init__(members)
        self.form = form
        """Returns the value to write for a value of the dict."""


class LazyItems(list[Any]):
    """A list for `dump_in_steps`, whose elements are made by `form` from `elements` when they are
    written."""

    def __init__(self, elements: Iterable[Any], form: Callable[[Any], Any]) -> None:
        super().__init__(elements)
        self.form = form
        """Returns the value to write for an element of the list."""


class Rows:
    """An object for `dump_in_steps` whose members are already compact JSON text: each of `texts`
    has some `"name":value`, separated by commas, and is not empty. The texts are requested while
    they are written, so a Rows of an iterator can be written once."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = texts
        """The texts of the members, in the order in which they are written."""


def load_in_steps(text: bytes, bounds: JsonBounds = UNBOUNDED) -> Steps[Any]:
    """Parse a UTF-8 text as fastjson.loads does, in steps; returns the value. Raises ValueError,
    also for a text over its bounds. A text of up to PIECE bytes, with `$ref`, or of another value
    than an object or list is read in a single step; the latter two are refused over
    REFERENCES_UP_TO."""
    if len(text) > bounds.size:
        raise ValueError(f"a text of {len(text)} bytes is over {bounds.size}")
    begin = len(text) - len(text.lstrip(b" \t\r\n"))
    is_short = len(text) <= PIECE
    if is_short or text[begin : begin + 1] not in (b"{", b"[") or b"$ref" in text:
        if not is_short and len(text) > REFERENCES_UP_TO:
            raise ValueError(f"a text of {len(text)} bytes with references, or without an object")
        return fastjson.loads(text)
    pieces = _PieceReader(text, bounds)
    value, end = yield from pieces.read_container(begin, 0)
    if text[end:].strip():
        raise ValueError("JSON has text after its end")
    return value


class _PieceReader:
    """Reads a JSON text piece by piece, within its bounds."""

    def __init__(self, text: bytes, bounds: JsonBounds) -> None:
        self._text = text
        self._containers = bounds.containers
        self._values = bounds.values
        self._scalar = bounds.scalar

    def read_container(self, begin: int, depth: int) -> Steps[tuple[Any, int]]:
        """The object or list whose bracket is at `begin`, and the position after it."""
        if depth >= DEPTH_MAX:
            raise ValueError("JSON is nested too deeply")
        text = self._text
        left = text[begin : begin + 1]
        right = b"}" if left == b"{" else b"]"
        found: Any = {} if left == b"{" else []
        at = begin + 1
        while True:
            kind, end, containers, commas = next_piece(text, at, PIECE)
            if kind == LARGE:
                end = yield from self._read_large_member(found, at, end, depth)
                kind = COMMA if text[end : end + 1] == b"," else CLOSED
            elif kind in (COMMA, CLOSED):
                self._check_bounds(containers, commas)
                if end - at > self._scalar:
                    raise ValueError(f"JSON has a value of {end - at} bytes")
                _extend_container(found, fastjson.loads(left + text[at:end] + right))
                yield
            else:
                raise ValueError("JSON ends early")
            at = end + 1
            if kind == CLOSED:
                if text[end : end + 1] != right:
                    raise ValueError(f"JSON has an unexpected {text[end : end + 1]!r}")
                return found, at

    def _read_large_member(self, found: Any, at: int, begin: int, depth: int) -> Steps[int]:
        """Read a member that is larger than a piece. Returns the position of the character that
        follows it."""
        text = self._text
        value, end = yield from self.read_container(begin, depth + 1)
        if isinstance(found, list):
            if text[at:begin].strip():
                raise ValueError("JSON has an unexpected text before a bracket")
            found.append(value)
        else:
            (key,) = fastjson.loads(b"{" + text[at:begin] + b"0}") or ("",)
            found[key] = value
        return end + len(text[end : end + PIECE]) - len(text[end : end + PIECE].lstrip())

    def _check_bounds(self, containers: int, commas: int) -> None:
        """Count dicts and lists, and other values, of a piece against the bounds. Raises ValueError
        over them."""
        self._containers -= containers
        self._values -= commas
        if self._containers < 0 or self._values < 0:
            raise ValueError("JSON has more values than a peer may send")


def _extend_container(found: Any, more: Any) -> None:
    """Add the members or elements of `more` to the dict or list `found`."""
    if isinstance(found, dict):
        found.update(more)
    else:
        found.extend(more)


def dump_in_steps(value: Any, size_max: int = 1 << 62) -> Steps[bytes]:
    """Write the compact text of fastjson.dumps in UTF-8, in steps; returns it. The value, which may
    contain Lazy, LazyItems and Rows, must not change meanwhile. Raises ValueError as soon as the
    text has more than `size_max` bytes, and the errors of fastjson.dumps."""
    # The buffer grows in place and is not copied at the end: a copy was one step of 15 ms for 20
    # MiB.
    done = BytesIO()
    gathered: list[str] = []
    length = 0
    for text in _text_pieces(value):
        if text is None:
            yield
            continue
        gathered.append(text)
        length += len(text)
        if length >= WRITTEN or len(gathered) >= WRITTEN_TEXTS:
            _flush_texts(done, gathered, size_max)
            length = 0
            yield
    _flush_texts(done, gathered, size_max)
    return done.getvalue()


def _flush_texts(done: BytesIO, texts: list[str], size_max: int) -> None:
    """Append the texts in UTF-8 to `done`, and empty the list. Raises ValueError if `done` has over
    `size_max` bytes then."""
    done.write("".join(texts).encode("utf-8", "replace"))
    texts.clear()
    if done.tell() > size_max:
        raise ValueError(f"it is over {size_max} bytes")


def sort_in_steps(
    elements: Iterable[Any], key: Callable[[Any], Any] | None = None
) -> Steps[list[Any]]:
    """Sort as `sorted` does, in steps; returns a new list. No element may be None."""
    found: list[Any] = []
    for one in _sorted_in_steps(list(elements), key):
        if one is not None:
            found.append(one)
        if one is None or len(found) % SORTED == 0:
            yield
    return found


def _sorted_in_steps(
    elements: list[Any], key: Callable[[Any], Any] | None
) -> Generator[Any, None, None]:
    """The elements, which are never None, in their order; None where a step ends."""
    if len(elements) <= SORTED:
        yield from sorted(elements, key=key)
        return
    parts = []
    for at in range(0, len(elements), SORTED):
        parts.append(sorted(elements[at : at + SORTED], key=key))
        yield None
    yield from merge(*parts, key=key)


def _text_pieces(value: Any) -> Generator[str | None, None, None]:
    """The text of a value, at most some SMALL values at a time; None where a step ends."""
    if isinstance(value, Rows):
        separator = "{"
        for text in value.texts:
            yield separator + text
            separator = ","
        yield "}" if separator == "," else "{}"
    elif _budget_after(value, SMALL) > 0:
        yield fastjson.dumps(value)
    elif isinstance(value, dict):
        yield from _object_pieces(value)
    else:
        form = value.form if isinstance(value, LazyItems) else None
        separator = "["
        for one in value:
            yield separator
            yield from _text_pieces(one if form is None else form(one))
            separator = ","
        yield "]" if separator == "," else "[]"


def _object_pieces(value: dict[Any, Any]) -> Generator[str | None, None, None]:
    """The text of an object, as `_text_pieces`."""
    form = value.form if isinstance(value, Lazy) else None
    raw = isinstance(value, fastjson.RawKeys)
    keys = [key for key, one in value.items() if one is not None or form is not None]
    separator = "{"
    for key in _sorted_in_steps(keys, fastjson.sort_key_of(keys)):
        if key is None:
            yield None
            continue
        yield f"{separator}{key if raw else encode_basestring(str(key))}:"
        yield from _text_pieces(value[key] if form is None else form(value[key]))
        separator = ","
    yield "}" if separator == "," else "{}"


def _budget_after(value: Any, left: int) -> int:
    """`left` less the number of values inside `value`; the counting stops at 0 or less."""
    if isinstance(value, Lazy | LazyItems | Rows):
        return 0
    if isinstance(value, dict | list | tuple):
        left -= len(value)
        if left > 0:
            for one in value.values() if isinstance(value, dict) else value:
                if isinstance(one, dict | list | tuple | Rows):
                    left = _budget_after(one, left)
                    if left <= 0:
                        break
    return left
