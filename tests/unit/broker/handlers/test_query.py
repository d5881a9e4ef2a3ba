"""Queries for messages: 12, 33 and 321 (remoting.md 16.1)."""

from typing import Any

import pytest

from turbopump.net.wire.message_id import decode_message_id
from turbopump.pyx.index import java_hash

FOREVER = 2**63 - 1


def query(admin: Any, key: str, **more: object) -> Any:
    fields = {
        "topic": "T",
        "key": key,
        "maxNum": 64,
        "beginTimestamp": 0,
        "endTimestamp": FOREVER,
        "_UNIQUE_KEY_QUERY": "false",
        "indexType": "K",
    }
    wanted = {name: value for name, value in {**fields, **more}.items() if value is not None}
    return admin.ask(12, **wanted)


def record(admin: Any, sent: Any) -> bytes:
    _host, log_offset = decode_message_id(sent.fields["msgId"])
    return bytes(admin.broker.store.record_view(log_offset))


def joined(response: Any) -> bytes:
    return b"".join(response.body)


def test_by_key_in_the_order_of_the_log(admin: Any) -> None:
    sent = [admin.send("T", b"%d" % number, KEYS="k other") for number in range(3)]
    admin.send("T", b"x", KEYS="another")
    response = query(admin, "k")
    assert response.code == 0
    assert joined(response) == b"".join(record(admin, each) for each in sent)
    assert int(response.fields["indexLastUpdateTimestamp"]) == admin.now_ms
    assert int(response.fields["indexLastUpdatePhyoffset"]) > 0


def test_by_unique_key_whatever_max_num_says(admin: Any) -> None:
    sent = admin.send("T", UNIQ_KEY="7F00", KEYS="k")
    for kind in ("U", None):
        response = query(admin, "7F00", maxNum=0, _UNIQUE_KEY_QUERY="true", indexType=kind)
        assert joined(response) == record(admin, sent)


def test_by_tag(admin: Any) -> None:
    sent = admin.send("T", TAGS="A", KEYS="k")
    assert joined(query(admin, "A", indexType="T")) == record(admin, sent)
    assert query(admin, "A").code == 22


def test_an_old_client_sends_no_index_type(admin: Any) -> None:
    sent = admin.send("T", KEYS="k")
    assert joined(query(admin, "k", indexType=None)) == record(admin, sent)


def test_as_many_as_asked_for(admin: Any) -> None:
    for _ in range(5):
        admin.send("T", KEYS="k")
    response = query(admin, "k", maxNum=2)
    assert len(response.body) == 2
    assert query(admin, "k", maxNum=0).code == 22
    assert query(admin, "k", maxNum=-1).code == 22


def test_nothing_found(admin: Any) -> None:
    response = query(admin, "k")
    assert response.code == 22
    assert response.remark == "can not find message, maybe time range not correct"
    assert response.fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
    admin.send("T", KEYS="k")
    assert query(admin, "k", topic="U").code == 22
    assert query(admin, "k", endTimestamp=admin.now_ms - 3_600_000).code == 22


def test_bad_queries(admin: Any) -> None:
    assert query(admin, "k", indexType="X").code == 29
    assert query(admin, "k", maxNum="many").code == 1
    assert query(admin, "k", topic=None).code == 1


def test_by_log_offset(admin: Any) -> None:
    sent = admin.send("T", b"here")
    _host, log_offset = decode_message_id(sent.fields["msgId"])
    response = admin.ask(33, offset=log_offset, topic="T")
    assert (response.code, joined(response)) == (0, record(admin, sent))


@pytest.mark.parametrize("offset", [1, -1, 1 << 40, FOREVER])
def test_no_record_at_a_log_offset(admin: Any, offset: int) -> None:
    admin.send("T", b"here")
    response = admin.ask(33, offset=offset, topic="T")
    assert response.code == 1
    assert response.remark == f"can not find message by the offset, {offset}"


def test_units_of_a_queue(admin: Any) -> None:
    for tag in ("A", "B", "A"):
        admin.send("T", TAGS=tag)
    admin.heartbeat(admin.connect(), "c", admin.consumer("g", "T:A"))
    body = admin.json(321, topic="T", queueId=0, index=1, count=9, consumerGroup="g")
    assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 3)
    assert body["filterData"] == "null"
    assert body["subscriptionData"]["subString"] == "A"
    assert [unit["eval"] for unit in body["queueData"]] == [False, False]
    codes = [java_hash(b"B"), java_hash(b"A")]
    assert [unit["tagsCode"] for unit in body["queueData"]] == codes
    units = admin.broker.store.units("T", 0, 1, 9)
    assert [unit["physicOffset"] for unit in body["queueData"]] == [u.log_offset for u in units]
    assert [unit["physicSize"] for unit in body["queueData"]] == [u.size for u in units]


def test_units_with_an_extension_say_whether_the_group_wants_them(make_admin: Any) -> None:
    admin = make_admin("enableConsumeQueueExt=true\n")
    for tag in ("A", "B"):
        admin.send("T", TAGS=tag)
    body = admin.json(321, topic="T", queueId=0, index=0, count=9, consumerGroup="g")
    assert [unit["eval"] for unit in body["queueData"]] == [False, False]
    admin.heartbeat(admin.connect(), "c", admin.consumer("g", "T:A"))
    body = admin.json(321, topic="T", queueId=0, index=0, count=9, consumerGroup="g")
    assert [unit["eval"] for unit in body["queueData"]] == [True, False]


def test_units_without_a_group_or_of_one_offline(admin: Any) -> None:
    admin.send("T", TAGS="A")
    body = admin.json(321, topic="T", queueId=0, index=0, count=1)
    assert "subscriptionData" not in body
    assert "filterData" not in body
    assert body["queueData"][0]["eval"] is False
    body = admin.json(321, topic="T", queueId=0, index=0, count=1, consumerGroup="g")
    assert body["filterData"] == "g@T is not online!"
    assert admin.json(321, topic="T", queueId=0, index=0, count=-1)["queueData"] == []


def test_units_that_are_not_there(admin: Any) -> None:
    admin.send("T")
    response = admin.ask(321, topic="T", queueId=0, index=1, count=1)
    assert (response.code, response.body) == (0, b"")
    assert response.remark == "Index 1 of 0@T is not exist!"
    response = admin.ask(321, topic="T", queueId=3, index=0, count=1)
    assert (response.code, response.remark) == (1, "3@T is not exist!")
