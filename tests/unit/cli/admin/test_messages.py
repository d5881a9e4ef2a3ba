"""Where `--body-dir` writes: the id of a message is the word of its sender."""

import pytest

from turbopump.cli.admin.messages import body_name
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
