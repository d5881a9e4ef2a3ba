"""Handles of popped messages, and the offsets in responses (messages.md 4.4)."""

import pytest
from tests.unit.broker.pop.answers import read_counts, read_offsets

from turbopump.engine.types import QueueOffset
from turbopump.net.wire.pop_handles import (
    HANDLE_MAX,
    BadHandle,
    PopHandle,
    RetryKind,
    message_offsets,
    order_counts,
    read_order_counts,
    read_start_offsets,
    start_offsets,
)

TEXT = "4 1795267326369 20000 1 0 broker-a 0 5"


def test_a_handle_is_read_and_written() -> None:
    handle = PopHandle.parse(TEXT)
    assert handle == PopHandle(
        QueueOffset(4), 1795267326369, 20000, 1, RetryKind.NORMAL, "broker-a", 0, QueueOffset(5)
    )
    assert handle.text() == TEXT
    assert not handle.is_ordered


def test_a_handle_without_the_message_or_with_a_log_offset_behind_it() -> None:
    assert PopHandle.parse(TEXT[:-2]).queue_offset is None
    assert PopHandle.parse(f"{TEXT} 4711") == PopHandle.parse(TEXT)
    assert PopHandle.parse("0 1 2 999 2 b 3 4").is_ordered


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2 3 4 0 b",
        "1 2 3 4 0 b 5 6 7 8",
        "-1 2 3 4 0 b 5",
        "1 2 3 4 3 b 5",
        "1 2 3 4 0  5 6",
        "1 2 3 2147483648 0 b 5",
        "9223372036854775808 2 3 4 0 b 5",
        "1 2 3 4 0 b\n 5",
        "1 2 3 4 0 b ٣",
        "1 2 3 4 0 b 5 " + "1" * HANDLE_MAX,
    ],
)
def test_an_invalid_handle_is_refused(text: str) -> None:
    with pytest.raises(BadHandle):
        PopHandle.parse(text)


def test_offsets_of_an_answer() -> None:
    starts = start_offsets([(RetryKind.NORMAL, 3, 10), (RetryKind.RETRY_V2, 0, 7)])
    assert starts == "0 3 10;2 0 7"
    read = {(RetryKind.NORMAL, 3): 10, (RetryKind.RETRY_V2, 0): 7}
    assert read_start_offsets(starts) == read
    for text in ("0 3", "9 3 10", "0 3 -1", "0 3 10 11", "0 x 1"):
        with pytest.raises(BadHandle):
            read_start_offsets(text)
    offsets = message_offsets([(RetryKind.NORMAL, 3, [10, 12]), (RetryKind.RETRY_V2, 0, [7])])
    assert offsets == "0 3 10,12;2 0 7"
    assert read_offsets(offsets) == {("0", 3): [10, 12], ("2", 0): [7]}


def test_counts_of_an_ordered_answer() -> None:
    """First deliveries have no count of their own (ConsumerOrderInfoManager.update)."""
    first = {QueueOffset(5): 0, QueueOffset(6): 0}
    assert order_counts(RetryKind.NORMAL, 2, first) == "0 2 0"
    again = {QueueOffset(5): 2, QueueOffset(6): 1}
    text = order_counts(RetryKind.NORMAL, 2, again)
    assert text == "0 qo2%5 2;0 qo2%6 1;0 2 1"
    assert read_order_counts(text) == {(2, 5): 2, (2, 6): 1, (2, None): 1}
    for bad in ("0 2", "0 qo2%x 1", "0 qo%5 1", "0 2 -1"):
        with pytest.raises(BadHandle):
            read_order_counts(bad)
    assert read_counts(text) == {("0", "qo2%5"): 2, ("0", "qo2%6"): 1, ("0", "2"): 1}


def test_names_of_retry_topics() -> None:
    names = [kind.topic_of("T", "g") for kind in RetryKind]
    assert names == ["T", "%RETRY%g_T", "%RETRY%g+T"]
