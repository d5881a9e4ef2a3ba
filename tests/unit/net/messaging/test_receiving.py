"""ReceiveMessage, acknowledgements, renewals: the receiver of a message, and its redelivery."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.grpc.fronts import GrpcWorld, Heard, message

from turbopump.broker.grpc.backend import BrokerRequestBackend
from turbopump.net.grpc.call import GrpcCall
from turbopump.net.grpc.codes import ClientType, Code
from turbopump.net.messaging import renewals
from turbopump.net.messaging.rpc import RpcRefused
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.properties import encode_properties

PUSH = ClientType.PUSH_CONSUMER


def start(
    front: GrpcWorld,
    topic: str = "TNormal",
    client_id: str = "c1",
    timeout_s: float = 25,
    group: str = "G1",
    **changed: Any,
) -> tuple[GrpcCall, Heard]:
    """Start a receive that may wait."""
    asked = {
        "group": {"name": group},
        "message_queue": {"topic": {"name": topic}, "id": changed.pop("queue_id", -1)},
        "filter_expression": {"type": 1, "expression": "*"},
        "batch_size": 32,
        "invisible_duration": {"seconds": 20},
        "long_polling_timeout": {"seconds": 20},
        **changed,
    }
    return front.start("ReceiveMessage", client_id, timeout_s, **asked)


def ended(heard: Heard) -> tuple[int, list[Any]]:
    """The status and the messages of a stream that ended without an error."""
    assert heard.error is None
    assert heard.has_ended, "it still waits"
    first, *between, last = heard.messages
    assert last.WhichOneof("kind") == "delivery_timestamp"
    return first.status.code, [one.message for one in between]


def receive(front: GrpcWorld, *given: Any, **changed: Any) -> list[Any]:
    """The messages of a receive that finds some at once."""
    heard = start(front, *given, **changed)[1]
    if not heard.has_ended:
        front.world.pass_time(100)
    code, messages = ended(heard)
    assert code == Code.OK
    return messages


def receipt(one: Any) -> dict[str, str]:
    system = one.system_properties
    return {"message_id": system.message_id, "receipt_handle": system.receipt_handle}


def ack(front: GrpcWorld, *given: Any, group: str = "G1", topic: str = "TNormal") -> Any:
    """Acknowledge messages; returns the response."""
    entries = [one if isinstance(one, dict) else receipt(one) for one in given]
    return front.ask("AckMessage", group={"name": group}, topic={"name": topic}, entries=entries)


def change(front: GrpcWorld, given: dict[str, str], seconds: int, **more: Any) -> Any:
    return front.ask(
        "ChangeInvisibleDuration",
        group={"name": "G1"},
        topic={"name": "TNormal"},
        invisible_duration={"seconds": seconds},
        **given,
        **more,
    )


def is_empty(front: GrpcWorld, client_id: str = "c9", **changed: Any) -> bool:
    """Whether a receive finds nothing at once."""
    call, heard = start(front, client_id=client_id, **changed)
    front.world.pass_time(300)
    if heard.has_ended:
        return ended(heard) == (Code.MESSAGE_NOT_FOUND, [])
    call.end_silently()
    return True


def test_a_message_is_received_as_it_was_sent(front: GrpcWorld) -> None:
    front.send(
        message(tag="a", keys=["k1", "k2"], user={"u": "v"}, born_host="h", trace_context="t")
    )
    (found,) = receive(front)
    system = found.system_properties
    assert (found.topic.name, found.body, dict(found.user_properties)) == (
        "TNormal",
        b"body",
        {"u": "v"},
    )
    assert (system.tag, [*system.keys], system.message_id) == ("a", ["k1", "k2"], "m1")
    assert (system.born_host, system.trace_context, system.delivery_attempt) == ("h", "t", 1)
    assert (system.body_encoding, system.message_type, system.queue_offset) == (1, 1, 0)
    assert system.body_digest.checksum == "841A2D689AD86BD1611447453C22C6FC"
    assert system.store_host == "127.0.0.1:10911"
    assert len(system.receipt_handle.split(" ")) == 9
    assert is_empty(front)
    assert ack(front, found).status.code == Code.OK
    front.world.pass_time(30_000)
    assert is_empty(front)


def test_messages_sent_by_remoting_are_received_with_their_properties(front: GrpcWorld) -> None:
    properties = {"UNIQ_KEY": "id", "TAGS": "a", "KEYS": "k", "u": "v", "WAIT": "true"}
    text = encode_properties(properties).decode()
    header = SendMessageRequestV2("PG", "TNormal", "TBW102", 4, 1, 0, 5, 0, properties=text)
    front.world.ask(RequestCode.SEND_MESSAGE_V2, header, b"remoting")
    (found,) = receive(front)
    system = found.system_properties
    assert (found.body, system.message_id, system.tag) == (b"remoting", "id", "a")
    assert dict(found.user_properties) == {"u": "v"}
    assert system.queue_id == 1


def test_a_receive_waits_for_a_message(front: GrpcWorld) -> None:
    heard = start(front)[1]
    front.world.pass_time(3_000)
    assert not heard.has_ended
    front.send(message())
    front.world.turn()
    code, messages = ended(heard)
    assert (code, len(messages)) == (Code.OK, 1)


def test_a_receive_ends_empty_before_its_deadline(front: GrpcWorld) -> None:
    heard = start(front, timeout_s=8)[1]
    front.world.pass_time(7_500)
    assert not heard.has_ended
    front.world.pass_time(450, 50)
    assert ended(heard) == (Code.MESSAGE_NOT_FOUND, [])


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"timeout_s": 4}, Code.ILLEGAL_POLLING_TIME),
        ({"topic": "TNone"}, Code.TOPIC_NOT_FOUND),
        ({"topic": "a b"}, Code.ILLEGAL_TOPIC),
        ({"group": " "}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"invisible_duration": {"seconds": 9}}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": {"seconds": 43_201}}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"filter_expression": {"type": 2, "expression": "a ="}}, 40010),
        ({"filter_expression": {"type": 1, "expression": "||"}}, 40010),
        ({"client_id": ""}, Code.CLIENT_ID_REQUIRED),
    ],
)
def test_receives_that_are_refused(front: GrpcWorld, changed: dict[str, Any], code: int) -> None:
    front.send(message())
    assert ended(start(front, **changed)[1]) == (code, [])


def test_another_brokers_queue_is_refused(front: GrpcWorld) -> None:
    queue = {"topic": {"name": "TNormal"}, "broker": {"name": "other"}}
    assert ended(start(front, message_queue=queue)[1])[0] == Code.BAD_REQUEST


def test_a_call_that_is_over_takes_no_message(front: GrpcWorld) -> None:
    call = start(front)[0]
    front.world.pass_time(200)
    call.end_silently()  # its connection is lost
    front.send(message())
    front.world.turn()
    assert len(receive(front, client_id="c2")) == 1


def test_untaken_messages_are_redelivered_at_once(front: GrpcWorld) -> None:
    front.send(message())
    heard = start_clogged(front)[1]
    front.world.pass_time(100)
    assert ended(heard) == (Code.TOO_MANY_REQUESTS, [])
    front.world.pass_time(500)
    (one,) = receive(front, client_id="c2")
    assert (one.system_properties.message_id, one.system_properties.delivery_attempt) == ("m1", 1)


def test_messages_popped_for_an_ended_call_are_redelivered_at_once(
    make_front: Callable[..., GrpcWorld],
) -> None:
    front = make_front("flushDiskType=SYNC_FLUSH\n")
    front.world.disk.hold()  # the check point becomes safe only after `release`
    sent = front.start("SendMessage", messages=[message()])[1]
    front.world.disk.release()
    front.world.pass_time(100)
    assert sent.answer.status.code == Code.OK
    front.world.disk.hold()
    call, heard = start(front)
    front.world.turn()
    assert not heard.has_ended
    call.end_silently()  # the call is cancelled while its response is pending
    front.world.disk.release()
    front.world.pass_time(500)
    (one,) = receive(front, client_id="c2")
    assert (one.system_properties.message_id, one.system_properties.delivery_attempt) == ("m1", 1)


def start_clogged(front: GrpcWorld) -> tuple[GrpcCall, Heard]:
    """Start a receive whose client does not read the response."""
    begin = front.begin

    def clogged(*given: Any, **named: Any) -> tuple[GrpcCall, Heard]:
        call, heard = begin(*given, **named)
        heard.is_clogged = True
        return call, heard

    front.begin = clogged  # type: ignore[method-assign]
    try:
        return start(front)
    finally:
        front.begin = begin  # type: ignore[method-assign]


def test_tags_and_conditions_filter(front: GrpcWorld) -> None:
    for number, tag in enumerate(("a", "b", "a")):
        front.send(message(tag=tag, message_id=f"m{number}", user={"n": str(number)}))
    tags = {"type": 1, "expression": "a || c"}
    found = receive(front, filter_expression=tags)
    assert sorted(one.system_properties.message_id for one in found) == ["m0", "m2"]
    by_sql = {"type": 2, "expression": "n > 0"}
    found = receive(front, group="G2", filter_expression=by_sql)
    assert sorted(one.system_properties.message_id for one in found) == ["m1", "m2"]


def test_a_tag_of_the_same_hash_is_acknowledged_and_not_delivered(front: GrpcWorld) -> None:
    front.send(message(tag="Aa"))
    expression = {"type": 1, "expression": "BB"}
    heard = start(front, filter_expression=expression)[1]
    front.world.pass_time(100)
    assert ended(heard) == (Code.MESSAGE_NOT_FOUND, [])
    front.world.pass_time(30_000)
    assert is_empty(front)


def test_unacknowledged_messages_are_redelivered(front: GrpcWorld) -> None:
    front.send(message())
    receive(front)
    front.world.pass_time(25_000)
    (again,) = receive(front)
    assert again.system_properties.delivery_attempt == 2
    assert again.topic.name == "TNormal"
    assert ack(front, again).status.code == Code.OK
    front.world.pass_time(30_000)
    assert is_empty(front)


def test_an_acknowledgement_that_is_none(front: GrpcWorld) -> None:
    front.send(message())
    (found,) = receive(front)
    good = receipt(found)
    for text in ("", "x", "1 2 3", good["receipt_handle"].rsplit(" ", 1)[0], "9" * 2_000):
        response = ack(front, {"message_id": "m1", "receipt_handle": text})
        assert response.status.code == Code.INVALID_RECEIPT_HANDLE
        assert response.status.message.startswith("INVALID_RECEIPT_HANDLE: ")
    elsewhere = good["receipt_handle"].replace(front.world.config.broker_name, "other")
    response = ack(front, good, {"message_id": "m1", "receipt_handle": elsewhere})
    assert response.status.code == Code.MULTIPLE_RESULTS
    assert [one.status.code for one in response.entries] == [Code.OK, Code.INVALID_RECEIPT_HANDLE]
    assert ack(front).status.code == Code.BAD_REQUEST
    assert ack(front, *[{}] * 513).status.code == Code.BAD_REQUEST
    front.world.pass_time(25_000)
    expired = ack(front, good).status
    assert expired.code == Code.INVALID_RECEIPT_HANDLE
    assert expired.message == "INVALID_RECEIPT_HANDLE: receipt handle is expired"


def test_many_acknowledgements_of_one_request(front: GrpcWorld) -> None:
    for number in range(40):
        front.send(message(message_id=f"m{number}"))
    found = receive(front) + receive(front)
    assert len(found) == 40
    heard = front.start(
        "AckMessage",
        group={"name": "G1"},
        topic={"name": "TNormal"},
        entries=[receipt(one) for one in found],
    )[1]
    front.world.pass_time(500)
    response = heard.answer
    assert response.status.code == Code.OK
    assert [one.message_id for one in response.entries] == [
        one.system_properties.message_id for one in found
    ]
    front.world.pass_time(30_000)
    assert is_empty(front)


def test_a_changed_time_has_a_handle_of_its_own(front: GrpcWorld) -> None:
    front.send(message())
    (found,) = receive(front)
    response = change(front, receipt(found), 40)
    assert response.status.code == Code.OK
    assert len(response.receipt_handle.split(" ")) == 9
    assert response.receipt_handle.split(" ")[-1] == receipt(found)["receipt_handle"].split(" ")[-1]
    front.world.pass_time(25_000)
    assert is_empty(front)
    given = {"message_id": "m1", "receipt_handle": response.receipt_handle}
    assert ack(front, given).status.code == Code.OK
    front.world.pass_time(30_000)
    assert is_empty(front)
    for seconds, text in (
        (43_201, "the invisibleTime is too large. max is 43200000"),
        (-1, "the invisibleTime is too small. min is 0"),
    ):
        refused = change(front, given, seconds).status
        assert (refused.code, refused.message) == (Code.ILLEGAL_INVISIBLE_TIME, text)


def test_a_time_of_nothing_shows_the_message_again(front: GrpcWorld) -> None:
    front.send(message())
    (found,) = receive(front)
    assert change(front, receipt(found), 0, suspend=True).status.code == Code.OK
    front.world.pass_time(300)
    (again,) = receive(front)
    assert again.system_properties.delivery_attempt == 1


def test_attempts_that_are_used_up_make_a_dead_letter(front: GrpcWorld) -> None:
    config = SubscriptionGroupConfig("G1", retry_max_times=1)
    front.world.broker.groups.put(config, front.world.now_ms)
    front.send(message())
    for attempt in (1, 2):
        (found,) = receive(front)
        assert found.system_properties.delivery_attempt == attempt
        front.world.pass_time(25_000)
    assert is_empty(front)
    assert front.world.broker.store.max_queue_offset("%DLQ%G1", 0) == 1
    front.world.pass_time(60_000)
    assert is_empty(front)


def test_a_message_is_delivered_once_where_no_retry_is_allowed(front: GrpcWorld) -> None:
    """Each message became a dead letter before its first delivery if retryMaxTimes was -1."""
    config = SubscriptionGroupConfig("G1", retry_max_times=-1)
    front.world.broker.groups.put(config, front.world.now_ms)
    front.send(message())
    (found,) = receive(front)
    assert found.system_properties.delivery_attempt == 1
    assert front.world.broker.store.max_queue_offset("%DLQ%G1", 0) == 0
    front.world.pass_time(25_000)
    assert is_empty(front)
    assert front.world.broker.store.max_queue_offset("%DLQ%G1", 0) == 1


def test_a_consumer_makes_a_dead_letter(front: GrpcWorld) -> None:
    front.send(message())
    (found,) = receive(front)
    given = {"group": {"name": "G1"}, "topic": {"name": "TNormal"}, **receipt(found)}
    response = front.ask("ForwardMessageToDeadLetterQueue", **given)
    assert response.status.code == Code.OK
    front.world.pass_time(30_000)
    assert is_empty(front)
    units = front.world.broker.store.units("%DLQ%G1", 0, 0, 10)
    record = front.world.broker.store.record(units[0].log_offset)
    assert record is not None
    assert record.body == b"body"
    given["receipt_handle"] = "x"
    response = front.ask("ForwardMessageToDeadLetterQueue", **given)
    assert response.status.code == Code.INVALID_RECEIPT_HANDLE


def test_an_ordered_group_receives_nothing_after_an_outstanding_batch(front: GrpcWorld) -> None:
    config = SubscriptionGroupConfig("GO", consume_message_orderly=True)
    front.world.broker.groups.put(config, front.world.now_ms)
    for number in range(3):
        front.send(message("TFifo", message_group="g", message_id=f"m{number}"))
    ordered = {"group": "GO", "topic": "TFifo"}
    found = receive(front, batch_size=2, **ordered)
    assert [one.system_properties.message_id for one in found] == ["m0", "m1"]
    assert is_empty(front, **ordered)
    assert ack(front, *found, group="GO", topic="TFifo").status.code == Code.OK
    (last,) = receive(front, **ordered)
    assert last.system_properties.message_id == "m2"


def test_a_member_in_order_gets_the_queue_that_it_asks_for(front: GrpcWorld) -> None:
    config = SubscriptionGroupConfig("GO", consume_message_orderly=True)
    front.world.broker.groups.put(config, front.world.now_ms)
    front.send(message("TFifo", message_group="g"))
    store = front.world.broker.store
    (mine,) = [number for number in range(4) if store.max_queue_offset("TFifo", number) > 0]
    push = {"group": "GO", "topic": "TFifo", "auto_renew": True}
    assert is_empty(front, queue_id=(mine + 1) % 4, **push)
    assert len(receive(front, queue_id=mine, **push)) == 1


def push(front: GrpcWorld, client_id: str = "c1") -> Any:
    """Start a push consumer, which receives the only message."""
    front.consumer(client_id, "G1", "TNormal", kind=PUSH)
    front.send(message())
    (found,) = receive(front, client_id=client_id, auto_renew=True)
    return found


def test_messages_in_work_at_a_push_consumer_stay_hidden(front: GrpcWorld) -> None:
    found = push(front)
    front.world.pass_time(1_200_000, 1_000)
    assert is_empty(front)
    assert front.messaging.renewals.count == 1
    # Its client knows the first handle alone.
    assert ack(front, found).status.code == Code.OK
    assert front.messaging.renewals.count == 0
    front.world.pass_time(4_000_000, 5_000)
    assert is_empty(front)


def test_messages_of_a_lost_consumer_are_redelivered_soon(front: GrpcWorld) -> None:
    push(front)
    assert front.ask("NotifyClientTermination").status.code == Code.OK
    assert front.messaging.renewals.count == 0
    front.world.pass_time(1_500)
    (again,) = receive(front, client_id="c2")
    assert again.system_properties.delivery_attempt == 2


def test_a_message_is_not_renewed_for_ever(
    front: GrpcWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "TOTAL_MAX_MS", 600_000)
    push(front)
    # A renewal is a step after its tick: with steps of 5 s it would be too late.
    front.world.pass_time(500_000, 2_500)
    assert front.messaging.renewals.count == 1
    front.world.pass_time(1_000_000, 2_500)
    assert front.messaging.renewals.count == 0
    assert len(receive(front, client_id="c2")) == 1


def test_a_message_of_a_group_that_is_not_known_is_not_renewed_for_ever(
    front: GrpcWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_backend: BrokerRequestBackend, name: str) -> None:
        raise RpcRefused(Code.INTERNAL_SERVER_ERROR, f"the group {name} is not known yet")

    push(front)
    with monkeypatch.context() as patched:
        patched.setattr(BrokerRequestBackend, "group_config", refuse)
        patched.setattr(renewals, "TOTAL_MAX_MS", 100_000)
        front.world.pass_time(200_000, 1_000)
    assert front.messaging.renewals.count == 0
    assert len(receive(front, client_id="c2")) == 1


def test_renewed_messages_are_bounded(front: GrpcWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewals, "RENEWED_SIZE_MAX", 0)
    push(front)
    assert front.messaging.renewals.count == 0
    front.world.pass_time(61_000, 1_000)
    assert len(receive(front, client_id="c2")) == 1


def test_renewed_messages_are_bounded_by_their_bytes(
    front: GrpcWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id is a producer's text of up to 32 KiB."""
    monkeypatch.setattr(renewals, "RENEWED_SIZE_MAX", 4_000)
    front.consumer("c1", "G1", "TNormal", kind=PUSH)
    for size in (3_000, 1):
        front.send(message(message_id="m" * size))
    receive(front, client_id="c1", auto_renew=True, batch_size=32)
    assert front.messaging.renewals.count == 1
    front.messaging.clients.drop_client(front.messaging.clients.get("c1"))
    assert front.messaging.renewals._size == 0


def test_a_failed_message_is_no_longer_renewed(front: GrpcWorld) -> None:
    found = push(front)
    front.world.pass_time(70_000, 1_000)
    assert change(front, receipt(found), 1).status.code == Code.OK
    assert front.messaging.renewals.count == 0
    front.world.pass_time(1_500)
    (again,) = receive(front, client_id="c2")
    assert again.system_properties.delivery_attempt == 2
