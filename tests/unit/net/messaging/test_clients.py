"""Routes, settings, heartbeats: the responses to a client, and its entry in the broker's tables."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.grpc.fronts import GrpcWorld, message

from turbopump.net.grpc.codes import ClientType, Code, Permission
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.status import GrpcCode
from turbopump.net.messaging import clients, telemetry
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.clients import (
    ConsumeMessageDirectlyResultRequest,
    GetConsumerRunningInfoRequest,
)
from turbopump.net.wire.message_id import encode_message_id
from turbopump.net.wire.topics import TopicConfig


def route(front: GrpcWorld, topic: str) -> Any:
    return front.ask("QueryRoute", topic={"resource_namespace": "n", "name": topic})


def test_a_route_names_this_broker_and_its_queues(front: GrpcWorld) -> None:
    response = route(front, "TFifo")
    assert response.status.code == Code.OK
    assert [queue.id for queue in response.message_queues] == [0, 1, 2, 3]
    queue = response.message_queues[0]
    assert (queue.topic.resource_namespace, queue.topic.name) == ("n", "TFifo")
    assert (queue.permission, [*queue.accept_message_types]) == (Permission.READ_WRITE, [2])
    assert (queue.broker.name, queue.broker.id, queue.broker.endpoints.scheme) == (
        front.world.config.broker_name,
        0,
        1,
    )
    (address,) = queue.broker.endpoints.addresses
    assert (address.host, address.port) == ("127.0.0.1", 8081)


def test_a_route_has_a_topics_types_and_permissions(front: GrpcWorld) -> None:
    topics, now_ms = front.world.broker.topics, front.world.now_ms
    mixed = {"message.type": "MIXED"}
    topics.put(TopicConfig("TMixed", 1, 1, attributes=mixed), now_ms)
    topics.put(TopicConfig("TPlain", 2, 3), now_ms)
    topics.put(TopicConfig("TRead", 1, 1, perm=4), now_ms)
    topics.put(TopicConfig("TClosed", 1, 1, perm=0), now_ms)
    assert [*route(front, "TMixed").message_queues[0].accept_message_types] == [1, 2, 3, 4]
    plain = route(front, "TPlain").message_queues
    assert [(queue.id, queue.permission) for queue in plain] == [(0, 4), (1, 4), (2, 3)]
    assert [*plain[0].accept_message_types] == [1]
    assert [queue.permission for queue in route(front, "TRead").message_queues] == [2]
    assert [queue.permission for queue in route(front, "TClosed").message_queues] == [1]
    assert route(front, "TNone").status.code == Code.TOPIC_NOT_FOUND
    assert route(front, "a b").status.code == Code.ILLEGAL_TOPIC
    for name in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
        refused = route(front, name).status
        assert (refused.code, refused.message) == (
            Code.ILLEGAL_TOPIC,
            "cannot access system topic",
        )


def test_a_route_of_many_queues_is_made_in_steps(front: GrpcWorld) -> None:
    topic = TopicConfig("TMany", 1_000, 1_000)
    front.world.broker.topics.put(topic, front.world.now_ms)
    heard = front.start("QueryRoute", topic={"name": "TMany"})[1]
    for _ in range(3):
        front.world.turn()
        assert not heard.has_ended
    for _ in range(3):
        front.world.turn()
    assert [queue.id for queue in heard.answer.message_queues] == [*range(1_000)]


def test_an_assignment_is_one_for_all_queues_but_in_order(front: GrpcWorld) -> None:
    def ids(group: str) -> list[int]:
        topic = {"name": "TNormal"}
        response = front.ask("QueryAssignment", topic=topic, group={"name": group})
        assert response.status.code == Code.OK
        return [one.message_queue.id for one in response.assignments]

    ordered = SubscriptionGroupConfig("GO", consume_message_orderly=True)
    front.world.broker.groups.put(ordered, front.world.now_ms)
    assert ids("GN") == [-1]
    assert ids("GO") == [0, 1, 2, 3]
    topic = {"name": "TNormal"}
    known = front.world.broker.topics.get("TNormal")
    assert known is not None
    known.perm = 2
    asked = front.ask("QueryAssignment", topic=topic, group={"name": "GN"})
    assert asked.status.code == Code.FORBIDDEN
    asked = front.ask("QueryAssignment", topic=topic, group={"name": " "})
    assert asked.status.code == Code.ILLEGAL_CONSUMER_GROUP


def test_a_producers_settings_are_answered_with_the_brokers_figures(front: GrpcWorld) -> None:
    heard = front.producer("c1", "TNormal", "TTran")[1]
    front.world.turn()
    (command,) = heard.messages
    assert command.status.code == Code.OK
    settings = command.settings
    assert [one.name for one in settings.publishing.topics] == ["TNormal", "TTran"]
    assert settings.publishing.max_body_size == 4 << 20
    assert settings.publishing.validate_message_type
    assert settings.backoff_policy.max_attempts == 3
    backoff = settings.backoff_policy.exponential_backoff
    assert (backoff.initial.nanos, backoff.max.seconds, backoff.multiplier) == (10_000_000, 1, 2)
    (peer,) = front.peers_of("TTran")
    assert front.peers_of("TNormal") == [peer]
    assert (peer.address, peer.language) == ("127.0.0.1:50001", "PYTHON")


def test_a_consumers_settings_have_its_groups_figures(front: GrpcWorld) -> None:
    policy = {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 2_000, "max": 9_000, "multiplier": 3},
    }
    config = SubscriptionGroupConfig(
        "G1", consume_message_orderly=True, retry_max_times=4, group_retry_policy=policy
    )
    front.world.broker.groups.put(config, front.world.now_ms)
    settings = front.consumer("c1", "G1", "TNormal")[1].messages[0].settings
    subscription = settings.subscription
    assert (
        subscription.fifo,
        subscription.receive_batch_size,
        subscription.long_polling_timeout.seconds,
    ) == (True, 32, 20)
    assert settings.backoff_policy.max_attempts == 5
    backoff = settings.backoff_policy.exponential_backoff
    assert (backoff.initial.seconds, backoff.max.seconds, backoff.multiplier) == (2, 9, 3)
    # An unknown group is made, where RocketMQ's proxy refuses it.
    settings = front.consumer("c2", "G2", "TNormal")[1].messages[0].settings
    assert not settings.subscription.fifo
    assert settings.backoff_policy.max_attempts == 17
    steps = settings.backoff_policy.customized_backoff.next
    assert (len(steps), steps[0].seconds, steps[-1].seconds) == (18, 1, 7_200)
    group = front.world.broker.consumers.group("G2")
    assert group is not None
    assert group.client_ids() == {"c2"}
    assert list(group.subscriptions) == ["TNormal"]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, GrpcCode.INVALID_ARGUMENT),
        ({"publishing": {"topics": [{"name": "a b"}]}}, GrpcCode.INVALID_ARGUMENT),
        ({"subscription": {"group": {"name": ""}}, "client_type": 2}, GrpcCode.INVALID_ARGUMENT),
        ({"subscription": {"group": {"name": "G"}}, "client_type": 4}, GrpcCode.INVALID_ARGUMENT),
    ],
)
def test_settings_that_are_none_end_the_stream(
    front: GrpcWorld, settings: dict[str, Any], code: GrpcCode
) -> None:
    heard = front.telemetry("c1", **settings)[1]
    assert heard.error is not None
    assert heard.error.code is code
    assert len(front.messaging.clients) == 0


def test_an_unknown_group_is_refused_where_groups_are_not_made(
    make_front: Callable[..., GrpcWorld],
) -> None:
    front = make_front("autoCreateSubscriptionGroup=false\n")
    heard = front.consumer("c1", "G1", "TNormal")[1]
    assert heard.error is not None
    assert heard.error.text.endswith("group not found: G1")


def test_bytes_that_are_no_command_end_the_stream(front: GrpcWorld) -> None:
    for command in (b"\xff\xff", bytes(1 << 20)):
        call, heard = front.begin("Telemetry", response="TelemetryCommand")
        front.tell(call, command)
        assert heard.error is not None
    response = front.start("QueryRoute", topic={"name": "t" * (128 << 10)})[1]
    assert response.error is not None
    assert response.error.code is GrpcCode.RESOURCE_EXHAUSTED


def test_many_commands_of_one_stream_have_a_turn_each(front: GrpcWorld) -> None:
    settings = {"publishing": {"topics": [{"name": "TNormal"}]}}
    command = message_class("TelemetryCommand")(settings=settings).SerializeToString()
    call, heard = front.begin("Telemetry", response="TelemetryCommand")
    front.tell(call, command, times=3)
    assert len(heard.messages) == 3
    assert call.on_end is not None
    call.on_end()
    assert heard.has_ended
    call, heard = front.begin("Telemetry", response="TelemetryCommand")
    front.tell(call, command, times=telemetry.WAITING_MAX + 1)
    assert heard.error is not None
    assert heard.error.code is GrpcCode.RESOURCE_EXHAUSTED


def test_thousands_of_clients_are_looked_at_in_steps(front: GrpcWorld) -> None:
    calls = [front.producer(f"c{number}", "TNormal")[0] for number in range(50)]
    for call in calls:
        call.end_silently()
    front.world.pass_time(40_000, 5_000)
    left = [len(front.messaging.clients)]
    for _ in range(10):
        front.world.turn()
        left.append(len(front.messaging.clients))
    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) == 8
    assert front.messaging.clients.size == 0


def test_a_heartbeat_needs_settings(front: GrpcWorld) -> None:
    assert front.ask("Heartbeat").status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    front.producer("c1", "TNormal")
    assert front.ask("Heartbeat").status.code == Code.OK
    assert front.ask("NotifyClientTermination").status.code == Code.OK
    assert not front.peers_of("TNormal")
    assert front.ask("NotifyClientTermination").status.code == Code.UNRECOGNIZED_CLIENT_TYPE


def test_a_client_lives_by_its_stream_or_by_its_calls(front: GrpcWorld) -> None:
    call = front.consumer("c1", "G1", "TNormal")[0]
    front.world.pass_time(200_000)
    front.world.turn()
    group = front.world.broker.consumers.group("G1")
    assert group is not None
    assert [front.world.steady_ms - one.last_update_ms < 60_000 for one in group.members.values()]
    call.end_silently()  # its connection is lost
    front.world.pass_time(20_000)
    assert front.ask("Heartbeat").status.code == Code.OK
    front.world.pass_time(20_000)
    assert front.world.broker.consumers.group("G1") is not None
    front.world.pass_time(20_000)
    assert front.world.broker.consumers.group("G1") is None
    assert len(front.messaging.clients) == 0
    assert front.messaging.clients.size == 0


def test_another_stream_of_the_same_client_takes_over(front: GrpcWorld) -> None:
    first = front.producer("c1", "TNormal")[0]
    second, heard = front.producer("c1", "TTran")
    assert len(front.messaging.clients) == 1
    first.end_silently()
    front.world.pass_time(100_000)
    assert len(front.messaging.clients) == 1
    (client,) = front.peers_of("TTran")
    assert client is front.peers_of("TNormal")[0]
    assert second.on_end is not None
    second.on_end()
    assert heard.has_ended


def test_clients_are_bounded_in_bytes(front: GrpcWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "CLIENTS_SIZE_MAX", 10_000)
    assert front.producer("c1", "TNormal")[1].error is None
    assert front.producer("c2", "TNormal")[1].error is None
    assert front.producer("c2", "TTran")[1].error is None
    refused = front.producer("c3", "TNormal")[1].error
    assert refused is not None
    assert "10000 bytes" in refused.text
    monkeypatch.setattr(clients, "TOPICS_MAX", 2)
    assert front.producer("c1", "TFifo", "TDelay")[1].error is not None
    front.ask("NotifyClientTermination", "c1")
    front.ask("NotifyClientTermination", "c2")
    assert front.messaging.clients.size == 0


def test_a_client_whose_new_settings_are_refused_is_unchanged(
    front: GrpcWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    front.consumer("c1", "G1", "TNormal")
    monkeypatch.setattr(clients, "CLIENTS_SIZE_MAX", 100)
    assert front.producer("c1", "TNormal")[1].error is not None
    client = front.messaging.clients.get("c1")
    assert client is not None and client.group_name == "G1"


@pytest.mark.logs_tracebacks
def test_clients_are_looked_at_again_after_one_has_failed(
    front: GrpcWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    front.ask("Heartbeat", "c1")
    front.producer("c1", "TNormal")[0].on_closed()
    dropped = front.messaging.clients.drop_client

    def fails(_client: Any) -> None:
        monkeypatch.setattr(front.messaging.clients, "drop_client", dropped)
        raise RuntimeError("it fails once")

    monkeypatch.setattr(front.messaging.clients, "drop_client", fails)
    front.world.pass_time(60_000, 1_000)
    assert len(front.messaging.clients) == 0


def test_an_operator_sees_the_threads_of_a_consumer(front: GrpcWorld) -> None:
    call, heard = front.consumer("c1", "G1", "TNormal")
    heard.raw.clear()
    header = GetConsumerRunningInfoRequest("G1", "c1", jstack_enable=True)
    request = front.world.dispatch(new_request(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
    (command,) = heard.messages
    trace = {"nonce": command.print_thread_stack_trace_command.nonce, "thread_stack_trace": "main"}
    response = message_class("TelemetryCommand")(thread_stack_trace=trace)
    front.tell(call, response.SerializeToString())
    assert bodies.load_object(request.value.body)["jstack"] == "main"
    front.tell(call, response.SerializeToString())  # no request waits for this response


@pytest.mark.parametrize(
    ("code", "result"),
    [(Code.OK, "CR_SUCCESS"), (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"), (50502, "CR_THROW")],
)
def test_an_operator_has_a_consumer_try_a_message(front: GrpcWorld, code: int, result: str) -> None:
    call, heard = front.consumer("c1", "G1", "TNormal", kind=ClientType.PUSH_CONSUMER)
    heard.raw.clear()
    front.send(message())
    store = front.world.broker.store
    (unit,) = [one for number in range(4) for one in store.units("TNormal", number, 0, 1)]
    message_id = encode_message_id(front.world.broker.store_host, unit.log_offset)
    header = ConsumeMessageDirectlyResultRequest("G1", "c1", message_id)
    request = front.world.dispatch(new_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header))
    (command,) = heard.messages
    asked = command.verify_message_command
    assert (asked.message.body, asked.message.topic.name) == (b"body", "TNormal")
    response = message_class("TelemetryCommand")(
        status={"code": code}, verify_message_result={"nonce": asked.nonce}
    )
    front.tell(call, response.SerializeToString())
    assert bodies.load_object(request.value.body)["consumeResult"].startswith(result)


def test_a_client_without_a_stream_is_not_asked(front: GrpcWorld) -> None:
    call = front.consumer("c1", "G1", "TNormal")[0]
    call.end_silently()
    header = GetConsumerRunningInfoRequest("G1", "c1", jstack_enable=True)
    asked = front.world.dispatch(new_request(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
    front.world.turn()
    assert asked.value.code == 1
    assert "cannot be asked" in asked.value.remark


def test_a_replica_says_so(front: GrpcWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(front.world.broker.role), "is_master", False)
    assert route(front, "TNormal").status.code == Code.HA_NOT_AVAILABLE
    assert front.send(message()).status.code == Code.HA_NOT_AVAILABLE


def test_a_simple_consumer_is_seen_as_one(front: GrpcWorld) -> None:
    front.consumer("c1", "G1", "TNormal")
    front.consumer("c2", "G2", "TNormal", kind=ClientType.PUSH_CONSUMER)
    tables = front.world.broker.consumers
    kinds = {}
    for name in ("G1", "G2"):
        group = tables.group(name)
        assert group is not None
        kinds[name] = group.consume_type
    assert kinds == {"G1": "CONSUME_ACTIVELY", "G2": "CONSUME_PASSIVELY"}
