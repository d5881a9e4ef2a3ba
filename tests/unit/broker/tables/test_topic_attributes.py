"""Attributes of topics: their text form, and the allowed changes (remoting.md 16.2)."""

import pytest

from turbopump.broker.tables.topic_attributes import (
    MAX_ATTRIBUTES_TEXT,
    BadAttributes,
    apply_attributes,
    parse_attributes,
)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (None, {}),
        ("", {}),
        ("  ", {}),
        ("+message.type=FIFO", {"+message.type": "FIFO"}),
        ("+a=1,-b", {"+a": "1", "-b": ""}),
        (" +a = 1 , -b ", {"+a": "1", "-b": ""}),
        ("+a=", {"+a": ""}),
    ],
)
def test_readable_texts(text: str | None, changes: dict[str, str]) -> None:
    assert parse_attributes(text) == changes


@pytest.mark.parametrize(
    "text",
    [
        "a=1",
        "+a",
        "b",
        "-b=1",
        "+a=1,,",
        "+=1",
        "-",
        "++a=1",
        "+-a=1",
        "+a=1,+a=2",
        "+a=" + "x" * MAX_ATTRIBUTES_TEXT,
    ],
)
def test_unreadable_texts(text: str) -> None:
    with pytest.raises(BadAttributes):
        parse_attributes(text)


@pytest.mark.parametrize(
    ("current", "changes", "result"),
    [
        (None, {"+queue.type": "BatchCQ"}, {"queue.type": "BatchCQ"}),
        (None, {"+cleanup.policy": "COMPACTION"}, {"cleanup.policy": "COMPACTION"}),
        (None, {"+reserve.time": "-1"}, {"reserve.time": "-1"}),
        ({}, {"+message.type": "DELAY"}, {"message.type": "DELAY"}),
        ({"message.type": "DELAY"}, {"+message.type": "FIFO"}, {"message.type": "FIFO"}),
        ({"message.type": "DELAY"}, {"-message.type": ""}, {}),
        ({"queue.type": "BatchCQ"}, {"+queue.type": "BatchCQ"}, {"queue.type": "BatchCQ"}),
        ({"queue.type": "BatchCQ"}, {}, {"queue.type": "BatchCQ"}),
    ],
)
def test_allowed_changes(
    current: dict[str, str] | None, changes: dict[str, str], result: dict[str, str]
) -> None:
    assert apply_attributes(current, changes) == result


@pytest.mark.parametrize(
    ("current", "changes", "reason"),
    [
        (None, {"-message.type": ""}, "only add"),
        (None, {"+color": "red"}, "unsupported key: color"),
        (None, {"+queue.type": "Tree"}, "not allowed"),
        (None, {"+message.type": "fifo"}, "not allowed"),
        (None, {"+reserve.time": "-2"}, "not allowed"),
        (None, {"+reserve.time": "soon"}, "not allowed"),
        ({}, {"+queue.type": "BatchCQ"}, "unchangeable"),
        ({"queue.type": "BatchCQ"}, {"+queue.type": "SimpleCQ"}, "unchangeable"),
        ({"queue.type": "BatchCQ"}, {"-queue.type": ""}, "unchangeable"),
        ({}, {"-message.type": ""}, "nonexistent"),
        ({"message.type": "FIFO"}, {"+message.type": "FIFO", "-message.type": ""}, "both"),
        ({}, {"message.type": "FIFO"}, "needs"),
        ({}, {"": "FIFO"}, "needs"),
    ],
)
def test_refused_changes(
    current: dict[str, str] | None, changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(BadAttributes, match=reason):
        apply_attributes(current, changes)
