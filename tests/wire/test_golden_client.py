"""The client decodes the responses of a real RocketMQ 5.5.0, and sends like Java's client."""

from collections.abc import Iterator
from typing import Any

from turbopump.net.client.admin import parse as admin_parse
from turbopump.net.client.messages import Message
from turbopump.net.client.receiving import received_messages
from turbopump.net.client.routes import read_route
from turbopump.net.client.sending import send_request, send_result
from turbopump.net.wire import properties as names
from turbopump.net.wire.command import decode
from turbopump.net.wire.properties import decode_properties
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import TopicRouteData


def answers(all_frames: Any, name: str) -> Iterator[Any]:
    """Successful answers with a body to requests with the same name."""
    found = [
        golden
        for golden in all_frames
        if golden.truth["requestName"] == name
        and not golden.is_request
        and golden.truth["code"] == 0
        and golden.truth["bodyLength"]
    ]
    assert found, name
    yield from found


def test_sends_have_the_fields_of_javas(all_frames) -> None:
    seen = 0
    for golden in all_frames:
        if not golden.is_request or golden.truth["name"] != "SEND_MESSAGE_V2":
            continue
        java = decode(golden.frame).fields
        properties = decode_properties(java["i"])
        special = set(properties) & (names.RESERVED - {"KEYS", "TAGS", "UNIQ_KEY", "WAIT"})
        if special or java["f"] != "0" or java["j"] != "0" or "n" not in java:
            continue
        message = Message(
            java["b"],
            golden.body or b"x",
            properties.get("TAGS", ""),
            tuple(properties.get("KEYS", "").split()),
            {key: value for key, value in properties.items() if key not in names.RESERVED},
            flag=int(java["h"]),
        )
        queue = MessageQueue(java["b"], java["n"], int(java["e"]))
        born_ms, unique_id = int(java["g"]), properties["UNIQ_KEY"]
        ours = send_request(message, queue, java["a"], unique_id, born_ms).fields
        # Java states the default of WAIT; the broker assumes it.
        properties.pop("WAIT", None)
        assert decode_properties(ours.pop("i")) == properties, golden
        java.pop("i")
        assert ours == java, golden
        seen += 1
    assert seen


def test_answers_to_sends_become_results(all_frames) -> None:
    seen = 0
    for golden in all_frames:
        if golden.is_request or golden.truth["requestName"] != "SEND_MESSAGE_V2":
            continue
        response = decode(golden.frame)
        if response.code == 0:
            result = send_result(response, MessageQueue("W", "broker-a", 0), "ID", "a:1")
            assert result.offset_message_id == response.fields["msgId"], golden
            assert result.queue.queue_id == int(response.fields["queueId"]), golden
            seen += 1
    assert seen


def test_pulled_messages_are_complete(all_frames) -> None:
    for golden in answers(all_frames, "PULL_MESSAGE"):
        for message in received_messages(golden.body, "broker-a"):
            properties = message.properties
            assert message.message_id == properties.get("UNIQ_KEY", message.offset_message_id)
            assert message.tags == properties.get("TAGS", "")
            assert message.born_host and message.store_host.startswith("127.0.0.1:")


def test_routes_name_their_queues(all_frames) -> None:
    for golden in answers(all_frames, "GET_ROUTEINFO_BY_TOPIC"):
        data = TopicRouteData.decode(golden.body)
        route = read_route("T", data)
        readable = sum(queues.read_queue_nums for queues in data.queue_datas if queues.perm & 4)
        assert len(route.subscribe) == readable, golden


def test_runtime_tables_become_lines(all_frames) -> None:
    for golden in answers(all_frames, "GET_BROKER_RUNTIME_INFO"):
        table = admin_parse.runtime_table(golden.body)
        line = admin_parse.broker_line("C", "a", 0, "a:1", table, 1 << 60)
        assert line.version == "V5_5_0", golden
        assert line.active is (table["brokerActive"] == "true"), golden
        assert 0 < line.space < 1, golden


def test_offset_tables_are_read(all_frames) -> None:
    for golden in answers(all_frames, "GET_TOPIC_STATS_INFO"):
        queues, _ = admin_parse.topic_stats(golden.body)
        assert queues and all(one.min_queue_offset <= one.max_queue_offset for one in queues), (
            golden
        )
    for golden in answers(all_frames, "GET_CONSUME_STATS"):
        progress, tps, _popped = admin_parse.consume_stats(golden.body)
        assert tps >= 0 and all(one.consumer_offset <= one.broker_offset for one in progress), (
            golden
        )
    for golden in answers(all_frames, "INVOKE_BROKER_TO_RESET_OFFSET"):
        assert admin_parse.offset_table(golden.body), golden


def test_connections_are_read(all_frames) -> None:
    for golden in answers(all_frames, "GET_CONSUMER_CONNECTION_LIST"):
        found = admin_parse.Connections.decode(golden.body)
        assert found.client_ids and set(found.versions) == {513}, golden
        assert found.consume_type and found.message_model, golden


def test_replication_as_masters_tell_it(all_frames) -> None:
    replicas = 0
    for golden in answers(all_frames, "GET_BROKER_HA_STATUS"):
        status = admin_parse.ha_status("a:1", decode(golden.frame).body)
        assert status.is_master and status.log_end > 0
        assert status.in_sync_replicas == sum(each.in_sync for each in status.replicas)
        assert all(each.acked + each.diff == status.log_end for each in status.replicas)
        replicas += len(status.replicas)
    assert replicas


def test_epochs_as_brokers_tell_them(all_frames) -> None:
    for golden in answers(all_frames, "GET_BROKER_EPOCH_CACHE"):
        found = admin_parse.broker_epochs("a:1", decode(golden.frame).body)
        assert (found.broker_name, found.cluster) == ("broker-c", "DefaultCluster")
        ends = [0, *(span.end for span in found.epochs)]
        assert [span.start for span in found.epochs] == ends[:-1]
        assert ends[-1] == found.log_end
