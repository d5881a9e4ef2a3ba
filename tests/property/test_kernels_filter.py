"""Native filters against the evaluator of tests/sql_model.py, and programs of any bytes."""

import math
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.sql_model import Long, Thrown, evaluate, text_of

from turbopump.net.wire.sql.compiler import compile_sql
from turbopump.pyx.filter import MAGIC, Filter

NAMES = ["a", "b", "C_1"]
texts = st.sampled_from(["x", "true", "it's", "5", "-7", "5.0", "中", ""]) | st.text(
    st.characters(codec="utf-8"), max_size=3
)
ints = st.integers(0, (1 << 31) - 1) | st.sampled_from([0, 5, 7])
longs = st.integers(1 << 31, (1 << 63) - 1).map(Long)
doubles = st.floats(5e-324, 1.7e308) | st.sampled_from([5.0, 0.5, 7.25])
numbers = ints | longs | doubles
properties_of = st.tuples(st.just("property"), st.sampled_from(NAMES))


def constant(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just("constant"), values)


def operators(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Operands that may be compared by order: properties, numbers, and negations."""
    return (
        properties_of
        | constant(numbers)
        | st.tuples(st.just("negate"), parts | properties_of | constant(numbers))
    )


def conditions(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    ordered, negates = operators(parts), st.booleans()
    searches = st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"])
    asked = parts | properties_of
    return (
        st.tuples(st.sampled_from(["AND", "OR"]), asked, asked)
        | st.tuples(st.just("not"), asked)
        | st.tuples(st.just("null"), asked | ordered)
        | st.tuples(st.sampled_from(["<", "<=", ">", ">="]), ordered, ordered)
        | st.tuples(st.just("="), asked | ordered, asked | ordered | constant(texts)).map(allowed)
        | st.tuples(st.just("="), properties_of, constant(st.booleans() | texts | numbers))
        | st.tuples(st.just("in"), st.sampled_from(NAMES), st.lists(texts, min_size=1), negates)
        | st.tuples(st.just("search"), searches, asked, texts, negates)
        | st.tuples(st.just("between"), ordered, ordered, ordered, negates).map(in_order)
    )


def allowed(tree: Any) -> Any:
    """RocketMQ refuses NULL beside `=`, and TRUE or FALSE on the left of another constant."""
    _kind, left, right = tree
    is_truth = left[0] == "constant" and isinstance(left[1], bool)
    is_other = right[0] == "constant" and not isinstance(right[1], bool)
    refused = ("constant", None) in (left, right) or (is_truth and is_other)
    return ("=", ("property", "a"), ("constant", True)) if refused else tree


def in_order(tree: Any) -> Any:
    """RocketMQ refuses BETWEEN with two constants that are not."""
    kind, value, low, high, negates = tree
    swaps = low[0] == high[0] == "constant" and low[1] > high[1]
    return (kind, value, high, low, negates) if swaps else tree


trees = st.recursive(constant(st.none() | st.booleans()), conditions, max_leaves=8)
WORDS = (
    "5 -7 +7 5.0 7.25 .5 1e3 x true TRUE it's 中 5f NaN -Infinity -0.0 2147483648"
    " 9223372036854775807 5e - ٥ 1e-400"
)
values = st.sampled_from([*WORDS.split(), " 5 "]) | st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=4
)
messages = st.dictionaries(st.sampled_from([*NAMES, "UNIQ_KEY", "c_1"]), values)


def outcome(ask: Any, *given: Any) -> Any:
    try:
        found = ask(*given)
    except (Thrown, ValueError):
        return "thrown"
    return False if isinstance(found, str) else found


@given(trees, st.lists(messages, min_size=1, max_size=6))
def test_native_is_the_model(tree: Any, given: list[dict[str, str]]) -> None:
    compiled = compile_sql(text_of(tree))
    for properties in given:
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        wanted = outcome(evaluate, tree, properties)
        assert outcome(compiled.evaluate, text.encode()) == wanted, (text_of(tree), properties)


@given(
    st.floats(allow_nan=False), st.sampled_from(["%r", "%.17g", "%.25e", "%.40f", "0%r", " %r "])
)
def test_every_double_is_read_as_java_does(value: float, form: str) -> None:
    text = form % value
    if form == "0%r" and (text.startswith("0-") or math.isinf(value)):
        text = text[1:]
    shown = f"a\x01{text}\x02b\x01{float(text)!r}\x02".replace("inf", "Infinity")
    assert compile_sql("a <= b AND a >= b").evaluate(shown.encode())


heads = st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(0, 9), st.integers(0, 5))


@given(heads, st.binary(max_size=300), st.binary(max_size=40))
def test_programs_of_any_bytes_are_refused_or_end(
    head: tuple[int, int, int, int], body: bytes, properties: bytes
) -> None:
    names, depth, ops, entries = head
    size = max(0, len(body) - 16 * ops - 8 * entries)
    small = bytes(
        byte % 29 if number % 16 in (0, 1, 2, 4) else byte for number, byte in enumerate(body)
    )
    for one in (body, small):
        program = struct.pack("<6I", MAGIC, names, depth, ops, entries, size) + one
        try:
            compiled = Filter(program)
        except ValueError:
            continue
        assert outcome(compiled.evaluate, properties) in (True, False, None, "thrown")
