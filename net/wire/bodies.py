"""Decoding of JSON bodies member by member, as tolerant as fastjson.

Owns the conversions (numbers as text, missing and null members) that every typed body needs. It
must never know a particular body.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeVar

from turbopump.engine import fastjson, json_steps
from turbopump.engine.json_steps import UNBOUNDED, JsonBounds
from turbopump.engine.types import Buffer

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work in steps: a generator that yields between pieces of at most a few ms and returns the
result; `run_to_result` runs it at once."""

SMALL_MAX: Final = 64 << 10
"""Bytes up to which a JSON body is parsed at once, in 6 ms at most."""

LONG: Final = JsonBounds(2 << 20, 40_000, 200_000)
"""Bounds of a request with a long list: 20,000 queues, thousands of topics or subscriptions."""

READ: Final = 200
"""Elements converted in one step; an element takes at most some 10 us."""


class BadBody(ValueError):
    """A body that is not JSON, or has another shape than its request code requires."""


def load(body: Buffer | list[memoryview], bounds: JsonBounds = UNBOUNDED) -> Any:
    """Parse the JSON value of a body, at once, into dicts, lists, texts, numbers, booleans and
    None; an empty body is an error, as in RocketMQ.

    Raises BadBody, also for a body longer than SMALL_MAX that exceeds `bounds`.
    """
    if isinstance(body, list):
        body = b"".join(body)
    try:
        if len(body) > SMALL_MAX:
            # In pieces even without other work between them, so that other threads can run.
            return run_to_result(json_steps.load_in_steps(bytes(body), bounds))
        return fastjson.loads(body)
    except ValueError as error:
        raise BadBody(f"the body is not JSON: {error}") from None


def load_small(body: Buffer | list[memoryview]) -> Any:
    """Parse like `load` the body of a request that is never long; raises BadBody beyond
    SMALL_MAX."""
    if len(body) > SMALL_MAX:
        raise BadBody(f"a body of {len(body)} bytes exceeds {SMALL_MAX}")
    return load(body)


def load_small_object(body: Buffer | list[memoryview]) -> dict[str, Any]:
    """Parse like `load_object` the body of a request that is never long; raises BadBody, also
    beyond SMALL_MAX."""
    return as_object(load_small(body))


def object_in_steps(
    body: Buffer | list[memoryview], bounds: JsonBounds = LONG
) -> Steps[dict[str, Any]]:
    """Parse like `load_object`, in steps; raises BadBody, also for a body longer than SMALL_MAX
    that exceeds `bounds`."""
    if len(body) <= SMALL_MAX:
        return load_object(body)
    try:
        value = yield from json_steps.load_in_steps(bytes(body), bounds)  # type: ignore[arg-type]
    except ValueError as error:
        raise BadBody(f"the body is not JSON: {error}") from None
    return as_object(value)


def load_object(body: Buffer | list[memoryview]) -> dict[str, Any]:
    """Parse the JSON object of a body of any size, at once; raises BadBody for any other value."""
    return as_object(load(body))


def encode_json(value: Any) -> bytes:
    """Encode a JSON body as RocketMQ does: compact, keys sorted, None members left out."""
    return fastjson.dumps(value).encode("utf-8", "replace")


def as_object(value: Any) -> dict[str, Any]:
    """Return `value` itself if it is a dict; raises BadBody for any other value, None included."""
    if not isinstance(value, dict):
        raise BadBody(f"the body has {_kind_name(value)} where an object belongs")
    return value


def read_text(members: dict[str, Any], name: str, default: str = "") -> str:
    """Read a text member; numbers and booleans become text, null and missing the default. Raises
    BadBody for an object or a list."""
    value = members.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise BadBody(f"{name} is {_kind_name(value)}, not text")


def optional_text(members: dict[str, Any], name: str) -> str | None:
    """Read a text member like `read_text`; None if it is null or missing. Raises BadBody."""
    return None if members.get(name) is None else read_text(members, name)


def read_int64(members: dict[str, Any], name: str, default: int = 0) -> int:
    """Read an int64 member; null and missing are the default, digits as text are accepted,
    fractions are cut off. Raises BadBody."""
    value = members.get(name)
    return default if value is None else as_int(value, name)


def read_int32(members: dict[str, Any], name: str, default: int = 0) -> int:
    """Read like `read_int64` a member that is an int in RocketMQ's class; raises BadBody also
    beyond 32 bits: a peer could not read a larger number, nor open a file that contains it."""
    value = read_int64(members, name, default)
    if -(1 << 31) <= value < 1 << 31:
        return value
    raise BadBody(f"{name} exceeds 32 bits")


def as_int(value: Any, name: str) -> int:
    """Convert a number, a boolean or digits to int64 as fastjson does; fractions are cut off.
    Raises BadBody, whose text has `name`."""
    if isinstance(value, int | float | str):
        try:
            # Python, but not Java, reads 1_000 as a number.
            result = int(value.replace("_", "?") if isinstance(value, str) else value)
        except (ValueError, OverflowError):
            raise BadBody(f"{name} is no number: {str(value)[:40]!r}") from None
        if -(1 << 63) <= result < 1 << 63:
            return result
        raise BadBody(f"{name} exceeds 64 bits")
    raise BadBody(f"{name} is {_kind_name(value)}, not a number")


def read_flag(members: dict[str, Any], name: str, default: bool = False) -> bool:
    """Read a boolean member; null and missing are the default. As in fastjson the texts "true" (in
    any case) and "1" and the number 1 are True, other texts and numbers False. Raises BadBody for
    an object or a list."""
    value = members.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        return value.lower() in ("true", "1")
    if isinstance(value, int | float):
        return value == 1
    raise BadBody(f"{name} is {_kind_name(value)}, not a boolean")


def read_list(members: dict[str, Any], name: str, read: Callable[[Any], T]) -> list[T]:
    """Read a list member, each element (also null) by `read`, in order; null and missing are empty.
    Raises BadBody."""
    value = members.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadBody(f"{name} is {_kind_name(value)}, not a list")
    return [read(element) for element in value]


def read_table(members: dict[str, Any], name: str, read: Callable[[Any], T]) -> dict[str, T]:
    """Read an object member as a map, each value by `read`; null values are dropped, null and
    missing are empty. Raises BadBody."""
    value = members.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadBody(f"{name} is {_kind_name(value)}, not an object")
    return {key: read(element) for key, element in value.items() if element is not None}


def items_in_steps(members: dict[str, Any], name: str, read: Callable[[Any], T]) -> Steps[list[T]]:
    """Read like `read_list`, in steps of READ elements; raises BadBody."""
    value = members.get(name)
    if not isinstance(value, list) or len(value) <= READ:
        return read_list(members, name, read)
    found: list[T] = []
    for begin in range(0, len(value), READ):
        found += map(read, value[begin : begin + READ])
        yield
    return found


def table_in_steps(
    members: dict[str, Any], name: str, read: Callable[[Any], T]
) -> Steps[dict[str, T]]:
    """Read like `read_table`, in steps of READ members; raises BadBody."""
    value = members.get(name)
    if not isinstance(value, dict) or len(value) <= READ:
        return read_table(members, name, read)
    found: dict[str, T] = {}
    for number, (key, element) in enumerate(value.items()):
        if element is not None:
            found[key] = read(element)
        if number % READ == READ - 1:
            yield
    return found


def dump_in_steps(value: Any, size_max: int) -> Steps[bytes | None]:
    """Encode like `encode_json`, in steps; None for more than `size_max` bytes. `value` must not
    change until the last step."""
    try:
        return (yield from json_steps.dump_in_steps(value, size_max))
    except ValueError:
        return None


def sort_in_steps(values: Iterable[str]) -> Steps[list[str]]:
    """Return a sorted list of texts (by code points), in steps."""
    return (yield from json_steps.sort_in_steps(values))


class KeptBody:
    """A cached body that is the same for all requests until its key changes."""

    def __init__(self) -> None:
        self._key: object = None
        self._body: bytes | None = b""

    def dump_in_steps(self, key: object, value: Any, size_max: int) -> Steps[bytes | None]:
        """Encode like `dump_in_steps`, or return the last body (or None, too large) if `key` equals
        the last key; with key None encode each time, and cache nothing."""
        if key is None or key != self._key:
            body = yield from dump_in_steps(value, size_max)
            if key is None:
                return body
            self._key, self._body = key, body
        return self._body


def run_to_result(steps: Steps[T]) -> T:
    """Run all steps at once and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def as_text(value: Any) -> str:
    """Convert an element to text: numbers and booleans become text, null "". Raises BadBody for an
    object or a list."""
    return read_text({"element": value}, "element")


def _kind_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
