"""The files that `--body-dir` writes: the sender chooses the id of a message."""

import pytest
import typer

from turbopump.cli.admin.messages import _trace_row, body_name, text_of
from turbopump.net.client.admin.trace import TraceRecord
from turbopump.net.client.messages import ReceivedMessage

OFFSET_ID = "7F00000100002A9F0000000000000000"


def message(message_id: str) -> ReceivedMessage:
    return ReceivedMessage(
        topic="T",
        body=b"x",
        tags="",
        keys=(),
        properties={},
        flag=0,
        message_id=message_id,
        offset_message_id=OFFSET_ID,
        broker_name="b",
        queue_id=0,
        queue_offset=0,
        log_offset=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host="",
        store_timestamp_ms=0,
        store_host="",
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
        store_size=0,
        stored_topic="T",
    )


def test_a_body_is_named_by_its_message() -> None:
    assert body_name(message("7F0000010BAE9AC1DFB16B14BA550001")) == (
        "7F0000010BAE9AC1DFB16B14BA550001"
    )


@pytest.mark.parametrize("wrong", ["", "..", "../x", "/etc/passwd", "a/b", "a\0b", ".hidden"])
def test_a_name_that_leads_elsewhere_is_not_used(wrong: str) -> None:
    assert body_name(message(wrong)) == OFFSET_ID


@pytest.mark.parametrize("charset", ["punycode", "undefined", "idna", "utf\0", "hex", "no such"])
def test_a_charset_that_is_none_is_a_bad_parameter(charset: str) -> None:
    """Some of Python's codecs decode no bytes to text, or accept no replacement of invalid
    bytes."""
    with pytest.raises(typer.BadParameter, match="is no known character set"):
        text_of(b"\xff", charset)


def test_bytes_outside_a_charset_are_shown_as_bytes() -> None:
    assert text_of("三".encode() + b"\xff", "utf-8") == "三\\xff"
    assert text_of(b"\xe4", "latin-1") == "ä"


STEPS = {
    "SubBefore": (TraceRecord("SubBefore", group="g", retry_times=2), "try 3"),
    "a first delivery": (TraceRecord("SubBefore"), "try 1"),
    "Pub": (TraceRecord("Pub", is_success=True), "SUCCESS"),
    "a failed one": (TraceRecord("Pub", is_success=False), "FAILED"),
    "its outcome is shown": (
        TraceRecord("SubAfter", is_success=False, outcome="TIME_OUT"),
        "TIME_OUT",
    ),
    "an end": (TraceRecord("EndTransaction", transaction_state="COMMIT_MESSAGE"), "COMMIT_MESSAGE"),
    "an end that was asked for": (
        TraceRecord("EndTransaction", transaction_state="UNKNOW", from_check=True),
        "UNKNOW by check",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_result_of_a_step(name: str) -> None:
    record, status = STEPS[name]
    kind, group, host, when, cost, shown = _trace_row(record)
    assert (kind, group, shown) == (record.kind, record.group or "-", status)
    assert (host, when, cost) == ("-", "-", "-"), "an unknown value is not 0"


def test_a_step_that_took_no_time_says_so() -> None:
    *_, cost, _status = _trace_row(TraceRecord("Pub", timestamp_ms=0, cost_ms=0, is_success=True))
    assert cost == "0ms"
