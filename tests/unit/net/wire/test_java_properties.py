import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.net.wire.java_properties import (
    MAX_TEXT,
    PropertiesError,
    Property,
    format_properties,
    parse_properties,
    updated_properties,
)


def pairs(text: str) -> dict[str, str]:
    return {item.key: item.value for item in parse_properties(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("  a = b  ", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("a\\=b=c", {"a=b": "c"}),
        ("# x=1\n! y=2\n\n  \t\nz=3", {"z": "3"}),
        ("a=b\\\n   c\\\n d\ne=f", {"a": "bcd", "e": "f"}),
        ("a=b\\\\\ne=f", {"a": "b\\", "e": "f"}),
        ("a=\\u4e2d\\t!", {"a": "中\t!"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_the_syntax_of_java_properties(text: str, expected: dict[str, str]) -> None:
    assert pairs(text) == expected


def test_a_property_knows_the_line_it_began_on() -> None:
    assert parse_properties("# c\na=1\\\n2\n\nb=3") == [
        Property("a", "12", 2),
        Property("b", "3", 5),
    ]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "x=1\n\\uzzzz=2"])
def test_a_malformed_escape_names_its_line(text: str) -> None:
    line = text.count("\n") + 1
    with pytest.raises(PropertiesError, match=f"line {line}: "):
        parse_properties(text)


def test_a_text_without_end_is_refused() -> None:
    with pytest.raises(PropertiesError):
        parse_properties("a=" + "x" * MAX_TEXT)


def test_an_update_that_could_not_be_read_again_is_refused() -> None:
    half = "x" * (MAX_TEXT // 2)
    with pytest.raises(PropertiesError, match="longer than"):
        updated_properties(f"kept={half}\n", {"new": half})
    text = updated_properties(f"kept={half}\nold={half}\n", {"old": "1"})
    assert pairs(text) == {"kept": half, "old": "1"}


VALUES = st.text(st.characters(codec="utf-8")).map(str.strip)
KEYS = st.text("abcXYZ.", min_size=1)


@given(st.dictionaries(KEYS, VALUES))
def test_written_values_are_read_back(values: dict[str, str]) -> None:
    assert pairs(format_properties(values)) == values


def test_written_lines_are_in_order_of_their_keys() -> None:
    assert format_properties({"b": "2", "a": "x\\y"}) == "a=x\\\\y\nb=2\n"


def test_changed_values_leave_the_others_of_a_text() -> None:
    text = "# of two nodes\nlistenPort = 1\nother:a\\tb\n\n!last\r\nlisten\\\n  Port=3\n\n\n"
    assert updated_properties(text, {"listenPort": "2", "new": "x"}) == (
        "# of two nodes\nother:a\\tb\n\n!last\nlistenPort=2\nnew=x\n"
    )
    assert updated_properties("", {"a": "b"}) == "a=b\n"


@given(st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, VALUES))
def test_updated_values_are_read_back(before: dict[str, str], values: dict[str, str]) -> None:
    assert pairs(updated_properties(format_properties(before), values)) == before | values


@given(st.text("ab=:\\# \n\r", max_size=30), st.dictionaries(KEYS, VALUES))
def test_an_update_of_any_text_changes_nothing_else(text: str, values: dict[str, str]) -> None:
    assert pairs(updated_properties(text, values)) == pairs(text) | values
