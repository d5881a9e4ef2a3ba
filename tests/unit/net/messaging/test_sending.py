"""SendMessage, EndTransaction, RecallMessage: statuses, and the records in the store afterwards."""

import gzip
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.grpc.fronts import GrpcWorld, message

from turbopump.net.grpc.codes import ClientType, Code
from turbopump.net.grpc.messages import message_class
from turbopump.net.messaging.message_conversion import consistent_hash
from turbopump.net.messaging.sending import (
    LIGHT_MAX,
    MESSAGES_MAX,
    check_weight,
    read_transaction_id,
)
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.index import java_hash
from turbopump.pyx.record import Record

TRAN = {"topic": "TTran", "message_type": 4}


def records(front: GrpcWorld, topic: str) -> list[Record]:
    """All messages of a topic."""
    store = front.world.broker.store
    found = []
    for queue_id in range(4):
        for unit in store.units(topic, queue_id, 0, 1_000):
            record = store.record(unit.log_offset)
            assert record is not None
            found.append(record)
    return found


def test_a_message_is_stored_with_its_senders_properties(front: GrpcWorld) -> None:
    draft = message(
        tag="a",
        keys=["k1", "k2"],
        born_timestamp={"seconds": 1_600_000_000, "nanos": 5_000_000},
        born_host="h",
        trace_context="t",
        user={"u": "v"},
    )
    response = front.send(draft)
    assert response.status.code == Code.OK
    (entry,) = response.entries
    assert (entry.status.code, entry.message_id, entry.transaction_id) == (Code.OK, "m1", "m1")
    (record,) = records(front, "TNormal")
    assert (record.body, record.queue_offset) == (b"body", entry.offset)
    assert record.born_timestamp_ms == 1_600_000_000_005
    assert decode_properties(record.properties) == {
        "u": "v",
        "TAGS": "a",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "m1",
        "WAIT": "true",
        "PGROUP": "TNormal",
        "TRACE_CONTEXT": "t",
        "__BORNHOST": "h",
        "BORN_TIMESTAMP": "1600000000005",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }


def test_without_a_birth_a_message_is_born_now(front: GrpcWorld) -> None:
    front.send(message(born_host="x\x02y"))
    (record,) = records(front, "TNormal")
    assert record.born_timestamp_ms == front.world.now_ms
    assert decode_properties(record.properties)["__BORNHOST"] == "127.0.0.1:50001"


def test_messages_of_one_request_have_an_entry_each(front: GrpcWorld) -> None:
    count = 40
    heard = front.start(
        "SendMessage",
        messages=[message(message_id=f"m{number}", body=b"%d" % number) for number in range(count)],
    )[1]
    for _ in range(5):
        front.world.turn()
    response = heard.answer
    assert response.status.code == Code.OK
    assert [entry.message_id for entry in response.entries] == [f"m{n}" for n in range(count)]
    assert {record.body for record in records(front, "TNormal")} == {
        b"%d" % number for number in range(count)
    }


def test_a_message_group_has_one_queue_that_other_proxies_choose_too(front: GrpcWorld) -> None:
    for number in range(20):
        front.send(message("TFifo", message_group="g1", message_id=f"m{number}"))
    found = records(front, "TFifo")
    assert len({record.queue_id for record in found}) == 1
    assert decode_properties(found[0].properties)["__SHARDINGKEY"] == "g1"
    # The results of Guava 32's Hashing.consistentHash.
    assert [consistent_hash(number, 4) for number in range(12)] == [
        *(0, 0, 3, 3, 1, 1, 2, 0, 0, 2, 2, 2),
    ]
    assert [consistent_hash(java_hash("größe-é".encode()), n) for n in (1, 5, 20)] == [0, 4, 12]
    assert consistent_hash(-1, 20) == 10


@pytest.mark.parametrize(
    ("draft", "code"),
    [
        (message("", body=b"x"), Code.ILLEGAL_TOPIC),
        (message("a b"), Code.ILLEGAL_TOPIC),
        (message("t" * 128), Code.ILLEGAL_TOPIC),
        (message("SCHEDULE_TOPIC_XXXX"), Code.ILLEGAL_TOPIC),
        (message("rmq_sys_wheel_timer"), Code.ILLEGAL_TOPIC),
        (message("TUnknown"), Code.TOPIC_NOT_FOUND),
        (message(body=b""), Code.MESSAGE_BODY_EMPTY),
        (message(body=bytes((4 << 20) + 1)), Code.MESSAGE_BODY_TOO_LARGE),
        (message(user={str(number): "v" for number in range(129)}), 43101),
        (message(user={"k": "v" * 16_384}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message(user={"KEYS": "v"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(user={"a": "b\x02c"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(user={"a\x01": "b"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(user={"": "b"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(tag=" "), Code.ILLEGAL_MESSAGE_TAG),
        (message(tag="a|b"), Code.ILLEGAL_MESSAGE_TAG),
        (message(tag="a\x02b"), Code.ILLEGAL_MESSAGE_TAG),
        (message(keys=["a", " "]), Code.ILLEGAL_MESSAGE_KEY),
        (message(keys=["a\x01"]), Code.ILLEGAL_MESSAGE_KEY),
        (message(message_id=" "), Code.ILLEGAL_MESSAGE_ID),
        (message(message_id="a\x02UNIQ_KEY\x01b"), Code.ILLEGAL_MESSAGE_ID),
        (message(orphaned_transaction_recovery_duration={"seconds": 3_601}), Code.BAD_REQUEST),
        (message("TDelay", delivery_timestamp={"seconds": 1_700_086_401}), 40012),
        (message("TFifo", message_group=" "), Code.ILLEGAL_MESSAGE_GROUP),
        (message("TFifo", message_group="g" * 64), Code.ILLEGAL_MESSAGE_GROUP),
        (message("TFifo", message_group="g\x02"), Code.ILLEGAL_MESSAGE_GROUP),
        (message("TFifo"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message(message_group="g"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message(message_type=4), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message(trace_context="\x02"), Code.BAD_REQUEST),
        (message(priority=1), Code.NOT_IMPLEMENTED),
        (message(body_encoding=2), Code.MESSAGE_CORRUPTED),
    ],
)
def test_messages_that_may_not_be_sent(front: GrpcWorld, draft: dict[str, Any], code: int) -> None:
    response = front.send(draft)
    assert response.status.code == code
    assert not response.entries
    assert not records(front, "TNormal")


def test_requests_that_are_refused(front: GrpcWorld) -> None:
    assert front.send().status.code == Code.MESSAGE_CORRUPTED
    assert front.send(message(), message("TFifo")).status.code == Code.MESSAGE_CORRUPTED
    assert front.send(message(), client_id=" ").status.code == Code.CLIENT_ID_REQUIRED
    many = [message() for _ in range(MESSAGES_MAX + 1)]
    assert front.send(*many).status.code == Code.BAD_REQUEST
    heard = front.begin("SendMessage")[1]
    assert not heard.has_ended


def test_a_closed_topic_is_forbidden(front: GrpcWorld) -> None:
    topic = front.world.broker.topics.get("TNormal")
    assert topic is not None
    topic.perm = 4
    assert front.send(message()).status.code == Code.FORBIDDEN


def test_a_gzip_body_is_stored_plain(front: GrpcWorld) -> None:
    front.send(message(body=gzip.compress(b"plain" * 100), body_encoding=2))
    (record,) = records(front, "TNormal")
    assert (record.body, record.sys_flag & 1) == (b"plain" * 100, 0)
    bomb = gzip.compress(bytes(8 << 20))
    code = front.send(message(body=bomb, body_encoding=2)).status.code
    assert code == Code.MESSAGE_BODY_TOO_LARGE
    cut = gzip.compress(b"plain" * 100)[:-9]
    assert front.send(message(body=cut, body_encoding=2)).status.code == Code.MESSAGE_CORRUPTED


def test_small_parts_of_a_large_request_are_not_even_read() -> None:
    request = message_class("SendMessageRequest")
    fine = request(messages=[message(body=zlib.compress(bytes(4 << 20)) * 800)])
    check_weight(fine.SerializeToString())
    check_weight(b"\x0a\x00" * MESSAGES_MAX)
    for bad in (
        b"\x0a\x00" * LIGHT_MAX,
        request(messages=[message(user={"a": "b" * LIGHT_MAX})]).SerializeToString(),
        b"\x0a\x80\x80\x80\x80\x80\x80" * LIGHT_MAX,
        b"\x08\x01" * LIGHT_MAX,
    ):
        with pytest.raises(Exception, match="too much besides the bodies"):
            check_weight(bad)


def test_a_delayed_message_can_be_recalled(make_front: Callable[..., GrpcWorld]) -> None:
    front = make_front("recallMessageEnable=true\ntimerWheelEnable=true\n")
    due_s = front.world.now_ms // 1_000 + 5
    response = front.send(message("TDelay", delivery_timestamp={"seconds": due_s}))
    assert response.status.code == Code.OK
    handle = response.entries[0].recall_handle
    assert handle
    recalled = front.ask("RecallMessage", topic={"name": "TDelay"}, recall_handle=handle)
    assert (recalled.status.code, recalled.message_id) == (Code.OK, "m1")
    front.world.pass_time(7_000)
    assert not records(front, "TDelay")
    refused = front.ask("RecallMessage", topic={"name": "TDelay"}, recall_handle="x")
    assert refused.status.code == Code.INTERNAL_SERVER_ERROR
    refused = front.ask("RecallMessage", topic={"name": "TNormal"}, recall_handle=handle)
    assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_a_delayed_message_comes_when_it_is_due(front: GrpcWorld) -> None:
    due_s = front.world.now_ms // 1_000 + 5
    front.send(message("TDelay", delivery_timestamp={"seconds": due_s}))
    front.world.pass_time(3_000)
    assert not records(front, "TDelay")
    front.world.pass_time(4_000)
    assert [record.body for record in records(front, "TDelay")] == [b"body"]


def end(front: GrpcWorld, entry: Any, resolution: int, **fields: Any) -> Any:
    asked = {
        "topic": {"name": "TTran"},
        "message_id": entry.message_id,
        "transaction_id": entry.transaction_id,
        "resolution": resolution,
        "source": 1,
        **fields,
    }
    return front.ask("EndTransaction", **asked).status


def test_a_transaction_is_there_when_it_is_committed(front: GrpcWorld) -> None:
    (entry,) = front.send(message(**TRAN)).entries
    assert not records(front, "TTran")
    assert end(front, entry, 0).code == Code.OK
    assert not records(front, "TTran")
    assert end(front, entry, 1).code == Code.OK
    assert [record.body for record in records(front, "TTran")] == [b"body"]
    assert end(front, entry, 1).code == Code.OK
    assert end(front, entry, 2).code == Code.INTERNAL_SERVER_ERROR
    assert len(records(front, "TTran")) == 1


def test_a_transaction_that_is_rolled_back_is_never_there(front: GrpcWorld) -> None:
    (entry,) = front.send(message(**TRAN)).entries
    assert end(front, entry, 2).code == Code.OK
    assert end(front, entry, 1).code == Code.INTERNAL_SERVER_ERROR
    assert not records(front, "TTran")


@pytest.mark.parametrize(
    "named", ["", "m1", "1-1", "-1-1-m1", "g-1-m1", "1" * 16 + "-1-m1", "1-1-3-b-m", "1-1-0-m"]
)
def test_an_id_of_no_transaction_is_refused(front: GrpcWorld, named: str) -> None:
    (entry,) = front.send(message(**TRAN)).entries
    assert end(front, entry, 1, transaction_id=named).code == Code.INVALID_TRANSACTION_ID
    place = read_transaction_id(entry.transaction_id)
    nothing = replace(place, log_offset=1 << 30).transaction_id
    assert end(front, entry, 1, transaction_id=nothing).code == Code.INTERNAL_SERVER_ERROR
    elsewhere = replace(place, broker_name="b-0").transaction_id
    assert end(front, entry, 1, transaction_id=elsewhere).code == Code.INVALID_TRANSACTION_ID
    assert read_transaction_id(elsewhere) == replace(place, broker_name="b-0")


def test_a_transaction_that_is_left_is_checked_by_telemetry(
    make_front: Callable[..., GrpcWorld],
) -> None:
    front = make_front("transactionTimeOut=3000\ntransactionCheckInterval=1000\n")
    heard = front.producer("c1")[1]
    front.world.turn()
    assert [command.WhichOneof("kind") for command in heard.messages] == ["settings"]
    front.send(message(**TRAN, user={"u": "v"}))  # its settings did not name the topic
    front.world.turn()
    front.world.pass_time(5_000)
    checks = [command.recover_orphaned_transaction_command for command in heard.messages]
    assert checks, "no producer was asked"
    check = checks[-1]
    assert (check.message.topic.name, check.message.body) == ("TTran", b"body")
    assert dict(check.message.user_properties) == {"u": "v"}
    assert check.message.system_properties.message_id == "m1"
    named = {"message_id": "m1", "transaction_id": check.transaction_id}
    status = front.ask(
        "EndTransaction", topic={"name": "TTran"}, resolution=1, source=2, **named
    ).status
    assert status.code == Code.OK
    assert [record.body for record in records(front, "TTran")] == [b"body"]


def test_a_check_does_not_wait_for_a_stream_that_is_not_taken(
    make_front: Callable[..., GrpcWorld],
) -> None:
    front = make_front("transactionTimeOut=3000\ntransactionCheckInterval=1000\n")
    heard = front.telemetry(
        "c1", client_type=ClientType.PRODUCER, publishing={"topics": [{"name": "TTran"}]}
    )[1]
    front.world.turn()
    front.send(message(**TRAN))
    heard.is_clogged = True
    heard.raw.clear()
    front.world.pass_time(5_000)
    assert not heard.raw
    heard.is_clogged = False
    front.world.pass_time(3_000)
    assert heard.raw


def sent_and_stored(front: GrpcWorld, *, natively: bool) -> tuple[list[bytes], list[bytes], int]:
    """Answers and records of sends of all kinds, and how many of them the lane stored."""
    world = front.world
    world.broker.fast.start(world.broker.store_host)
    world.broker.fast.lane.open = natively
    drafts = [
        message(message_id="a", born_host="h"),
        message(message_id="a", born_host="h", tag="t", keys=["k1", "k2"], trace_context="x"),
        message(message_id="b", user={"u": "v", "w": "\u20ac"}, born_timestamp={"seconds": 1_000}),
        message("TFifo", message_id="c", message_group="g"),
        message("TDelay", message_id="d", delivery_timestamp={"seconds": world.now_ms // 1000 + 9}),
        message(**TRAN, message_id="e"),
        message(message_id="f", body_encoding=2, body=gzip.compress(b"g" * 300, mtime=0)),
        message(message_id="h", body=b"x" * (70 << 10)),
        message(message_id="i", tag="|"),
        message(message_id="j", user={"TAGS": "of the system"}),
        message(message_id="k", user={"u": "\x01"}),
        message("TFifo", message_id="l"),
        message("TNone", message_id="m"),
        message(message_id="", body=b"no id"),
        message(message_id="n", body=b""),
    ]
    responses = [front.send(one).SerializeToString() for _ in range(8) for one in drafts]
    responses.append(front.send(*drafts[:3]).SerializeToString())
    log = Path(world.config.store.root, "commitlog")
    return (
        responses,
        [path.read_bytes() for path in sorted(log.iterdir())],
        world.broker.fast.lane.send_count,
    )


def test_the_lane_stores_and_answers_as_the_handler_does(
    make_world: Callable[..., World],
) -> None:
    by_lane = sent_and_stored(GrpcWorld(make_world("", "lane")), natively=True)
    by_handler = sent_and_stored(GrpcWorld(make_world("", "handler")), natively=False)
    assert by_lane[:2] == by_handler[:2]
    assert by_lane[2] > 40
    assert by_handler[2] == 0


def test_a_send_that_waits_for_the_disk_is_the_handlers(
    make_front: Callable[..., GrpcWorld],
) -> None:
    front = make_front("flushDiskType=SYNC_FLUSH")
    front.world.broker.fast.start(front.world.broker.store_host)
    for _ in range(9):
        assert front.send(message()).status.code == Code.OK
    assert front.world.broker.fast.lane.send_count == 0
