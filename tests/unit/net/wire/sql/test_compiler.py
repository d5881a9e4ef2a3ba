"""The limits and errors of filter expressions; their values are tested in tests/wire."""

import pytest

from turbopump.net.wire.sql.compiler import compile_sql
from turbopump.net.wire.sql.words import WORDS_MAX, SqlError

REFUSED = [
    ("", "ends too early"),
    ("a =", "ends too early"),
    ("(a = 1", "ends too early"),
    ("a = 1)", "')' at character 6"),
    ("a LIKE 'x'", "'LIKE' at character 3"),
    ("a = NULL", "there is IS NULL"),
    ("TRUE = 5", "True cannot be compared with 5"),
    ("a > 'x'", "'x' cannot be compared by <"),
    ("5 IN ('x')", "asks for a property, not for 5"),
    ("a BETWEEN 5 AND 1", "two values in order, not 5, 1"),
    ("5 AND a = 1", "5 is no condition"),
    ("a = 1 ! b", "No word can begin at character 7: '! b'"),
    ("a = 9223372036854775808", "is beyond 9223372036854775807"),
    ("a = " + "9" * 10_000, "is beyond 9223372036854775807"),
    ("a > 0.0", "is not within a double's range"),
    ("a = 'x" + "y" * 60_000, "No word can begin at character 5"),
    ("a = '" + "x" * 65_536 + "'", "over 65536 characters"),
    ("(" * 10_000 + "a = 1" + ")" * 10_000, "nested over 1000 deep"),
    ("NOT " * 10_000 + "(a = 1)", "nested over 1000 deep"),
    ("-" * 65_000, "nested over 1000 deep"),
    ("/*" * 30_000, "No word can begin at character 6"),
    ("a OR (" * 520 + "b" + ")" * 520, "nested over"),
    (" OR ".join(["a = 1"] * WORDS_MAX), f"over {WORDS_MAX} words"),
    (" OR ".join(f"a{number} = 1" for number in range(200)), "over 128 properties"),
    (" OR ".join(["a CONTAINS 'x'"] * 33), "over 32 times"),
]


@pytest.mark.parametrize(("sql", "why"), REFUSED)
def test_refused_operations(sql: str, why: str) -> None:
    with pytest.raises(SqlError, match="Invalid MessageSelector") as refused:
        compile_sql(sql)
    assert why in str(refused.value)
    assert len(str(refused.value)) < 200


def test_values_within_the_bounds() -> None:
    deep = compile_sql("(" * 900 + "a = 1" + ")" * 900)
    assert deep.evaluate(b"a\x011\x02") is True
    right = compile_sql("(NULL OR " * 400 + "b = 1" + ")" * 400)
    assert right.evaluate(b"b\x011") is True
    assert right.evaluate(b"b\x012") is None
    members = ", ".join(f"'{number}'" for number in range(1_000))
    listed = compile_sql(f"a IN ({members})")
    assert [listed.evaluate(b"a\x01%d" % one) for one in (0, 999, 1_000)] == [True, True, False]


def test_comments() -> None:
    for sql in ("a = 1 -- one", "-- first\na = 1", "a /* is */ = 1 /* one */", "a = 1 --"):
        assert compile_sql(sql).evaluate(b"a\x011") is True
    assert compile_sql("a = --1").evaluate(b"a\x011") is True  # two signs: no line ends


def test_of_two_properties_with_one_name_the_later_counts() -> None:
    wanted = compile_sql("a = '2'")
    assert wanted.evaluate(b"a\x011\x02a\x012\x02") is True
    assert wanted.evaluate(b"a\x012\x02a\x011\x02") is False
    assert wanted.evaluate(b"a\x012\x02a\x01\x02") is True  # no value: no property
