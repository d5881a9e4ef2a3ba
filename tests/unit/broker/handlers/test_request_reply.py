"""Replies to requests: 324 and 325, pushed to the producer that asked as 326 (remoting.md 9.6)."""

from typing import Any

import pytest

from turbopump.engine.deferred import Deferred
from turbopump.net.wire.message_id import decode_message_id
from turbopump.net.wire.properties import decode_properties

TOPIC = "DefaultCluster_REPLY_TOPIC"
V2 = "abcdefghijklmn"
V1 = [
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes",
    "batch", "bname",
]  # fmt: skip


def reply(admin: Any, code: int = 325, body: bytes = b"the reply", **changes: object) -> Any:
    text = changes.pop("properties", "REPLY_TO_CLIENT\x01p1\x02CORRELATION_ID\x01c\x02TTL\x019\x02")
    fields = {
        "a": "WPreply",
        "b": TOPIC,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": admin.now_ms,
        "h": 0,
        "i": text,
        "j": 0,
        "k": False,
        "m": False,
        "n": "broker-a",
        **changes,
    }
    if code == 324:
        fields = {V1[V2.index(key)]: value for key, value in fields.items()}
    return admin.begin(code, body, **fields)


@pytest.mark.parametrize("code", [324, 325])
def test_a_reply_reaches_its_producer_and_is_stored(admin: Any, code: int) -> None:
    producer = admin.connect()
    admin.heartbeat(producer, "p1", producers=("pg",))
    wire = producer.context["wire"]
    response = reply(admin, code)
    assert isinstance(response, Deferred)
    assert not response.done
    (pushed,) = wire.take(326)
    assert pushed.body == b"the reply"
    assert pushed.fields["topic"] == TOPIC
    assert pushed.fields["bornHost"] == admin.tool.address
    assert pushed.fields["storeHost"] == admin.broker.address
    assert pushed.fields["storeTimestamp"] == str(admin.now_ms)
    assert pushed.fields["reconsumeTimes"] == "0"
    assert pushed.fields["unitMode"] == "false"
    properties = decode_properties(pushed.fields["properties"])
    assert properties["CORRELATION_ID"] == "c"
    assert properties["PUSH_REPLY_TIME"] == str(admin.now_ms)
    assert properties["MSG_REGION"] == "DefaultRegion"
    wire.answer(pushed, 0)
    fields = response.value.fields
    assert response.value.code == 0
    assert (fields["queueId"], fields["queueOffset"]) == ("0", "0")
    assert (fields["MSG_REGION"], fields["TRACE_ON"]) == ("DefaultRegion", "true")
    record = admin.broker.store.record(decode_message_id(fields["msgId"])[1])
    assert record.topic == TOPIC.encode()
    assert record.body == b"the reply"
    assert record.born_host == admin.tool.host


def test_under_sync_flush_the_answer_waits_for_the_disk(make_admin: Any) -> None:
    admin = make_admin("flushDiskType=SYNC_FLUSH\n")
    producer = admin.connect()
    admin.heartbeat(producer, "p1", producers=("pg",))
    wire = producer.context["wire"]
    admin.world.disk.hold()
    response = reply(admin)
    wire.answer(wire.take(326)[0], 0)
    assert not response.done
    admin.world.disk.release()
    assert response.value.code == 0


@pytest.mark.parametrize("how", ["refuses", "is silent", "goes away"])
def test_a_producer_that_does_not_take_it(admin: Any, how: str) -> None:
    producer = admin.connect()
    admin.heartbeat(producer, "p1", producers=("pg",))
    wire = producer.context["wire"]
    response = reply(admin)
    if how == "refuses":
        wire.answer(wire.take(326)[0], 1)
    elif how == "is silent":
        wire.time_out()
    else:
        producer.lost()
    assert response.value.code == 1
    assert response.value.remark == "push reply message to <p1> fail."
    assert response.value.fields["MSG_REGION"] == "DefaultRegion"


def test_a_producer_that_is_not_there(admin: Any) -> None:
    response = reply(admin)
    assert response.code == 1
    assert response.remark == "push reply message fail, channel of <p1> not found."
    response = reply(admin, properties="CORRELATION_ID\x01c\x02")
    assert response.code == 1
    assert "REPLY_TO_CLIENT" in response.remark


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"b": "no blanks"}, 29),
        ({"b": "SELF_TEST_TOPIC"}, 16),
        ({"b": "Unknown", "c": "none"}, 17),
        ({"e": 9}, 29),
        ({"body": b""}, 1),
        ({"g": "now"}, 1),
    ],
)
def test_replies_that_cannot_be(admin: Any, changes: dict[str, Any], code: int) -> None:
    end = admin.broker.store.max_log_offset
    assert reply(admin, **changes).code == code
    assert admin.broker.store.max_log_offset == end


def test_messages_that_cannot_be_stored_are_delivered_all_the_same(admin: Any) -> None:
    producer = admin.connect()
    admin.heartbeat(producer, "p1", producers=("pg",))
    wire = producer.context["wire"]
    response = reply(admin, properties="REPLY_TO_CLIENT\x01p1\x02DELAY\x01never\x02")
    wire.answer(wire.take(326)[0], 0)
    assert response.value.code == 0
    assert (response.value.fields["msgId"], response.value.fields["queueOffset"]) == ("0", "0")
