"""A proxy: the choice of the broker, failures of brokers, and the brokers' knowledge of clients."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.grpc.fronts import message
from tests.unit.proxy.worlds import NAME_SERVER, ProxyWorld

from turbopump.net.grpc.codes import ClientType, Code
from turbopump.net.messaging.message_conversion import queue_of_group
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.clients import GetConsumerRunningInfoRequest
from turbopump.net.wire.route import QUEUES_MAX
from turbopump.proxy import backend, broker_calls
from turbopump.proxy.cluster_map import KnownTopic

TRAN: dict[str, Any] = {"topic": "TTran", "message_type": 4}


def test_a_route_has_the_queues_of_all_brokers_at_the_proxys_address(proxy: ProxyWorld) -> None:
    response = proxy.ask("QueryRoute", topic={"name": "TFifo"})
    assert response.status.code == Code.OK
    assert [(one.broker.name, one.id) for one in response.message_queues] == [
        (broker, queue_id) for broker in "ab" for queue_id in range(4)
    ]
    (address,) = response.message_queues[0].broker.endpoints.addresses
    assert (address.host, address.port) == ("10.0.0.1", 8081)
    endpoints = {"scheme": 3, "addresses": [{"host": "proxies.example", "port": 80}]}
    response = proxy.ask("QueryRoute", topic={"name": "TFifo"}, endpoints=endpoints)
    endpoints = response.message_queues[-1].broker.endpoints
    (address,) = endpoints.addresses
    assert (endpoints.scheme, address.host, address.port) == (3, "proxies.example", 8081)
    missing = proxy.ask("QueryRoute", topic={"name": "TNone"})
    assert missing.status.code == Code.TOPIC_NOT_FOUND
    group = {"name": "G1"}
    assigned = proxy.ask("QueryAssignment", topic={"name": "TNormal"}, group=group).assignments
    queues = [one.message_queue for one in assigned]
    assert [(one.broker.name, one.id) for one in queues] == [("a", -1), ("b", -1)]


def test_absurd_numbers_of_queues_in_a_route_are_bounded(proxy: ProxyWorld) -> None:
    for broker, count in zip(proxy.brokers, (2**31 - 1, -8), strict=True):
        topic = broker.world.broker.topics.get("TFifo")
        assert topic is not None
        topic.read_queue_nums = topic.write_queue_nums = count
    found = proxy.known.topics.get_or_query("TFifo").value
    assert isinstance(found, KnownTopic)
    counts = {
        name: (one.read_queue_nums, one.write_queue_nums) for name, one in found.topics.items()
    }
    assert counts == {"a": (QUEUES_MAX, QUEUES_MAX), "b": (0, 0)}


def test_brokers_take_turns_and_a_group_has_one_queue(proxy: ProxyWorld) -> None:
    for _ in range(4):
        assert proxy.send(message()).status.code == Code.OK
    assert [one.times(RequestCode.SEND_MESSAGE_V2) for one in proxy.brokers] == [2, 2]
    for number in range(6):
        of_group = message("TFifo", b"%d" % number, message_group="g")
        assert proxy.send(of_group).status.code == Code.OK
    sent = [one.asked[-1] for one in proxy.brokers if one.times(RequestCode.SEND_MESSAGE_V2) > 2]
    assert len(sent) == 1
    number = queue_of_group("g", 8)
    assert sent[0].fields["e"] == str(number % 4)
    assert proxy.brokers[number // 4].times(RequestCode.SEND_MESSAGE_V2) == 8


def test_received_messages_are_settled_at_their_broker(proxy: ProxyWorld) -> None:
    for _ in range(2):
        assert proxy.send(message(body=b"x")).status.code == Code.OK
    for broker in "ab":
        (one,) = proxy.received("TNormal", "G1", broker)
        system = one.system_properties
        named = {"group": {"name": "G1"}, "topic": {"name": "TNormal"}}
        entry = {"message_id": system.message_id, "receipt_handle": system.receipt_handle}
        changed = proxy.ask(
            "ChangeInvisibleDuration", invisible_duration={"seconds": 60}, **named, **entry
        )
        assert changed.status.code == Code.OK
        entry["receipt_handle"] = changed.receipt_handle
        assert proxy.ask("AckMessage", entries=[entry], **named).status.code == Code.OK
    assert [one.times(RequestCode.ACK_MESSAGE) for one in proxy.brokers] == [1, 1]
    entry["receipt_handle"] = entry["receipt_handle"].replace(" b ", " c ")
    response = proxy.ask("AckMessage", entries=[entry], **named)
    assert response.status.code == Code.INVALID_RECEIPT_HANDLE
    elsewhere = proxy.receive("TNormal", "G1", "c").messages
    assert elsewhere[0].status.code == Code.BAD_REQUEST


def test_another_proxy_settles_and_ends_the_work_of_this_one(
    proxy: ProxyWorld, make_proxy: Callable[..., ProxyWorld]
) -> None:
    (entry,) = proxy.send(message(**TRAN)).entries
    other = ProxyWorld([one.world for one in proxy.brokers], {})
    named = {"message_id": "m1", "transaction_id": entry.transaction_id}
    ended = other.ask("EndTransaction", topic={"name": "TTran"}, resolution=1, **named)
    assert ended.status.code == Code.OK
    (one,) = [one for broker in "ab" for one in other.received("TTran", "G1", broker)]
    assert one.body == b"body"


def test_a_transaction_is_checked_at_a_client_of_the_topic(proxy: ProxyWorld) -> None:
    heard = proxy.producer("c1", "TTran", "TNormal")[1]
    assert [telemetry.WhichOneof("kind") for telemetry in heard.messages] == ["settings"]
    producers = proxy.brokers[1].world.broker.producers
    assert [one.client_id for one in producers.producers_of("TTran").values()] == ["proxy@1"]
    assert not producers.producers_of("TNormal"), "only transactions are asked about"
    proxy.send(message(**TRAN))
    proxy.pass_all(5_000)
    checks = [telemetry.recover_orphaned_transaction_command for telemetry in heard.messages]
    assert checks, "no producer was asked"
    assert checks[-1].message.body == b"body"
    named = {"message_id": "m1", "transaction_id": checks[-1].transaction_id, "source": 2}
    ended = proxy.ask("EndTransaction", topic={"name": "TTran"}, resolution=1, **named)
    assert ended.status.code == Code.OK
    assert [len(proxy.received("TTran", "G1", broker)) for broker in "ab"] in ([1, 0], [0, 1])
    proxy.ask("NotifyClientTermination")
    assert not producers.producers_of("TTran")


def test_a_group_is_one_member_of_each_broker(proxy: ProxyWorld) -> None:
    config = SubscriptionGroupConfig("G1", retry_max_times=4)
    for one in proxy.brokers:
        one.world.broker.groups.put(config, one.world.now_ms)
    streams = [proxy.consumer(client, "G1", "TNormal") for client in ("c1", "c2")]
    assert streams[0][1].messages[0].settings.backoff_policy.max_attempts == 5
    for one in proxy.brokers:
        group = one.world.broker.consumers.group("G1")
        assert group is not None
        assert group.client_ids() == {"proxy@1"}
        assert list(group.subscriptions) == ["TNormal"]
    header = GetConsumerRunningInfoRequest("G1", "proxy@1")
    asked = new_request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    response = proxy.brokers[0].answer(asked)
    commands = [telemetry for stream in streams for telemetry in stream[1].messages]
    (command,) = [one for one in commands if one.WhichOneof("kind") != "settings"]
    trace = {
        "nonce": command.print_thread_stack_trace_command.nonce,
        "thread_stack_trace": "main",
    }
    telemetry = type(command)(thread_stack_trace=trace).SerializeToString()
    for call, _heard in streams:
        proxy.tell(call, telemetry)
    assert isinstance(response.value, type(asked)) and b"main" in response.value.body  # type: ignore[operator]
    proxy.ask("NotifyClientTermination", "c1")
    assert proxy.brokers[0].world.broker.consumers.group("G1") is not None
    proxy.ask("NotifyClientTermination", "c2")
    assert proxy.brokers[0].world.broker.consumers.group("G1") is None


def test_a_broker_is_told_again_when_its_connection_was_lost(proxy: ProxyWorld) -> None:
    proxy.producer("c1", "TTran")
    far = proxy.brokers[0]
    far.peer.lost()
    far.world.broker.producers.peer_closed(far.peer)
    far.connect()
    proxy.members.note_lost(far.address)
    proxy.tick(500)
    assert [one.client_id for one in far.world.broker.producers.producers_of("TTran").values()]
    before = far.times(RequestCode.HEART_BEAT)
    proxy.tick(29_000)
    assert far.times(RequestCode.HEART_BEAT) == before
    proxy.tick(1_500)
    assert far.times(RequestCode.HEART_BEAT) == before + 1


def test_a_broker_that_fails_is_chosen_for_nothing_new(proxy: ProxyWorld) -> None:
    proxy.no_response[proxy.brokers[0].address] = "the connection was refused"
    codes = [proxy.send(message()).status.code for _ in range(6)]
    assert sorted(codes) == [Code.OK] * 5 + [Code.INTERNAL_SERVER_ERROR]


def test_a_new_master_is_followed_after_one_failure(proxy: ProxyWorld) -> None:
    far = proxy.brokers[0]
    assert [proxy.send(message("TFifo", message_group=group)).status.code for group in "hi"]
    group = next(one for one in "abcdefgh" if queue_of_group(one, 8) < 4)
    proxy.no_response[far.address] = "the connection was lost"
    proxy.world.now_ms += 300
    of_group = message("TFifo", message_group=group)
    assert proxy.send(of_group).status.code == Code.INTERNAL_SERVER_ERROR
    far.address = proxy.masters[far.name] = "127.0.0.1:10931"
    far.connect()
    proxy.world.now_ms += 300
    assert proxy.send(of_group).status.code == Code.OK
    asked = proxy.routes_asked
    assert proxy.send(of_group).status.code == Code.OK
    assert proxy.routes_asked == asked, "a route that holds is not asked for again"


def test_acknowledgements_follow_a_new_master_by_the_next_tick(proxy: ProxyWorld) -> None:
    assert proxy.send(message(), message()).status.code == Code.OK
    (one,) = proxy.received("TNormal", "G1", "a")
    system, far = one.system_properties, proxy.brokers[0]
    proxy.no_response[far.address] = "the connection was lost"
    far.address = proxy.masters[far.name] = "127.0.0.1:10931"
    far.connect()
    asked = {
        "group": {"name": "G1"},
        "topic": {"name": "TNormal"},
        "entries": [{"message_id": "m1", "receipt_handle": system.receipt_handle}],
    }
    assert proxy.ask("AckMessage", **asked).status.code == Code.INTERNAL_SERVER_ERROR
    proxy.tick(500)
    assert proxy.ask("AckMessage", **asked).status.code == Code.OK


def test_a_broker_that_hangs_harms_its_own_calls_alone(
    proxy: ProxyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.send(message())
    proxy.no_response[proxy.brokers[0].address] = ""
    monkeypatch.setattr(broker_calls, "HELD_OF_BROKER_MAX", 3 * broker_calls.REQUEST_SIZE)
    heards = [
        proxy.start("SendMessage", messages=[message(body=b"x" * 3_000)])[1] for _ in "12345678"
    ]
    responses = [one.answer.status.code for one in heards if one.has_ended]
    assert responses.count(Code.OK) == 4, "the other broker serves"
    assert responses.count(Code.TOO_MANY_REQUESTS) == 3
    assert proxy.calls.held == broker_calls.REQUEST_SIZE + 3_000
    for later in proxy.hanging:
        later.resolve("it did not answer in time")
    assert proxy.calls.held == 0
    assert all(one.has_ended for one in heards)


def test_known_names_are_used_without_a_name_server(proxy: ProxyWorld) -> None:
    proxy.send(message())
    proxy.no_response[NAME_SERVER] = "the connection was refused"
    proxy.world.now_ms += 60_000
    for _ in range(2):
        assert proxy.send(message()).status.code == Code.OK
    unknown = proxy.ask("QueryRoute", topic={"name": "TOther"}).status
    assert unknown.code == Code.INTERNAL_SERVER_ERROR
    assert "no name server answers" in unknown.message


def test_requests_that_wait_for_a_name_server_are_served_then(proxy: ProxyWorld) -> None:
    proxy.no_response[NAME_SERVER] = ""
    heards = [proxy.start("QueryRoute", topic={"name": "TNormal"})[1] for _ in range(3)]
    assert not any(one.has_ended for one in heards)
    assert len(proxy.hanging) == 1, "all wait for one answer"
    del proxy.no_response[NAME_SERVER]
    proxy.hanging[0].resolve(
        proxy._named(new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={"topic": "TNormal"}))
    )
    assert [len(one.answer.message_queues) for one in heards] == [8, 8, 8]


def test_requests_that_wait_for_names_are_bounded_in_bytes(
    proxy: ProxyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "WAITING_MAX", 10_000)
    proxy.no_response[NAME_SERVER] = ""
    sends = [proxy.start("SendMessage", messages=[message(body=bytes(4_000))])[1] for _ in range(3)]
    assert [one.has_ended for one in sends] == [False, True, True]
    assert sends[1].answer.status.code == Code.INTERNAL_SERVER_ERROR
    proxy.hanging[0].resolve("it did not answer in time")
    assert sends[0].has_ended
    assert proxy.backend.waiting == 0


def test_a_group_that_found_no_room_is_not_taken_for_absent(proxy: ProxyWorld) -> None:
    put_fifo_group(proxy)
    assert proxy.known.topics.get_or_query("TFifo").done
    groups = proxy.known.groups
    groups.rules = replace(groups.rules, blanks_max=4)
    proxy.no_response = {one.address: "" for one in proxy.brokers}
    for number in range(4):
        groups.get_or_query(f"flood-{number}")
    named = {"topic": {"name": "TFifo"}, "group": {"name": "G1"}}
    unknown = proxy.ask("QueryAssignment", **named).status
    assert unknown.code == Code.INTERNAL_SERVER_ERROR
    assert unknown.message == "the group G1 is not known yet"
    received = proxy.receive("TFifo", "G1", "a").messages[0].status
    assert received.code == Code.INTERNAL_SERVER_ERROR
    settings = proxy.consumer("c1", "G1", "TFifo")[1]
    assert settings.error is not None and unknown.message in str(settings.error)
    proxy.no_response.clear()
    for later in proxy.hanging:
        later.resolve("it did not answer in time")
    assert len(proxy.ask("QueryAssignment", **named).assignments) == 8, "each queue, as for FIFO"


def test_a_group_that_was_dropped_meanwhile_is_not_taken_for_absent(proxy: ProxyWorld) -> None:
    put_fifo_group(proxy)
    groups = proxy.known.groups
    groups.rules = replace(groups.rules, blanks_max=4)
    proxy.no_response = {one.address: "it did not answer in time" for one in proxy.brokers}
    proxy.no_response[NAME_SERVER] = ""
    named = {"topic": {"name": "TFifo"}, "group": {"name": "G1"}}
    heard = proxy.start("QueryAssignment", **named)[1]
    for number in range(4):
        groups.get_or_query(f"flood-{number}")
    assert groups.get("G1") is None and not heard.has_ended
    proxy.no_response.clear()
    proxy.hanging[0].resolve(
        proxy._named(new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={"topic": "TFifo"}))
    )
    assert heard.answer.status.code == Code.INTERNAL_SERVER_ERROR


def put_fifo_group(proxy: ProxyWorld) -> None:
    """Create the group G1, which consumes in order, at the brokers."""
    config = SubscriptionGroupConfig("G1", consume_message_orderly=True)
    for one in proxy.brokers:
        one.world.broker.groups.put(config, one.world.now_ms)


def test_a_call_that_was_over_when_its_route_came_does_nothing(proxy: ProxyWorld) -> None:
    proxy.no_response[NAME_SERVER] = ""
    call = proxy.start("SendMessage", messages=[message()])[0]
    call.end_silently()
    del proxy.no_response[NAME_SERVER]
    proxy.hanging[0].resolve(
        proxy._named(new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={"topic": "TNormal"}))
    )
    assert [one.times(RequestCode.SEND_MESSAGE_V2) for one in proxy.brokers] == [0, 0]


def test_a_topic_is_missed_for_a_while_before_it_is_gone(proxy: ProxyWorld) -> None:
    proxy.send(message())
    proxy.masters.clear()  # both have left the name server
    proxy.world.now_ms += 25_000
    assert proxy.ask("QueryRoute", topic={"name": "TNormal"}).status.code == Code.OK
    proxy.world.now_ms += 31_000
    proxy.ask("QueryRoute", topic={"name": "TNormal"})
    response = proxy.ask("QueryRoute", topic={"name": "TNormal"})
    assert response.status.code == Code.TOPIC_NOT_FOUND


def test_only_the_brokers_of_its_cluster_are_served(make_proxy: Callable[..., ProxyWorld]) -> None:
    assert make_proxy(rocketMQClusterName="C").send(message()).status.code == Code.OK


def test_none_of_another_cluster_is(make_proxy: Callable[..., ProxyWorld]) -> None:
    response = make_proxy(rocketMQClusterName="D").ask("QueryRoute", topic={"name": "TNormal"})
    assert response.status.code == Code.TOPIC_NOT_FOUND


def test_known_names_are_bounded_in_bytes(proxy: ProxyWorld) -> None:
    proxy.known.topics.rules = replace(proxy.known.topics.rules, size_max=20_000)
    for number in range(200):
        proxy.ask("QueryRoute", topic={"name": f"TNone{number}"})
    assert proxy.known.topics.size <= 20_000
    assert proxy.send(message()).status.code == Code.OK


def test_a_dead_letter_is_made_where_its_message_lies(proxy: ProxyWorld) -> None:
    proxy.send(message())
    proxy.send(message())
    (one,) = proxy.received("TNormal", "G1", "b")
    response = proxy.ask(
        "ForwardMessageToDeadLetterQueue",
        group={"name": "G1"},
        topic={"name": "TNormal"},
        message_id="m1",
        receipt_handle=one.system_properties.receipt_handle,
    )
    assert response.status.code == Code.OK
    assert [one.times(RequestCode.CONSUMER_SEND_MSG_BACK) for one in proxy.brokers] == [0, 1]
    assert proxy.brokers[1].world.broker.topics.get("%DLQ%G1") is not None


def test_a_recall_goes_to_the_broker_of_its_handle(proxy: ProxyWorld) -> None:
    due = {"delivery_timestamp": {"seconds": proxy.world.now_ms // 1_000 + 60}}
    for _ in range(2):
        (entry,) = proxy.send(message("TDelay", **due)).entries
    proxy.ask("RecallMessage", topic={"name": "TDelay"}, recall_handle=entry.recall_handle)
    asked = [one.times(RequestCode.RECALL_MESSAGE) for one in proxy.brokers]
    sent = [one.times(RequestCode.SEND_MESSAGE_V2) for one in proxy.brokers]
    assert (sorted(asked), sent) == ([0, 1], [1, 1])


def test_a_simple_consumer_that_names_no_broker_gets_of_all(proxy: ProxyWorld) -> None:
    for _ in range(2):
        proxy.send(message())
    proxy.consumer("c1", "G1", "TNormal", kind=ClientType.SIMPLE_CONSUMER)
    found = [one for _ in "ab" for one in proxy.received("TNormal", "G1", "")]
    assert len(found) == 2
