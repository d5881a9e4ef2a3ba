"""Typed bodies: read from every golden body of their code and written back to the same JSON."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from turbopump.engine import fastjson
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.registration.register import RegisterBrokerBody, body_crc32
from turbopump.net.wire.route import BrokerData, ClusterInfo, TopicRouteData
from turbopump.net.wire.subscription import SubscriptionData
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs


def sorted_lists(value: Any) -> Any:
    """Sort lists of texts and numbers, which are sets in Java: their order has no meaning."""
    if isinstance(value, dict):
        return {key: sorted_lists(member) for key, member in value.items()}
    if isinstance(value, list):
        inner = [sorted_lists(member) for member in value]
        return sorted(inner, key=fastjson.dumps)
    return value


def bodies_of(all_frames, name: str, request: bool) -> Iterator[Any]:
    found = [
        golden
        for golden in all_frames
        if golden.truth["requestName"] == name
        and golden.is_request is request
        and golden.truth["bodyLength"]
        and (request or golden.truth["code"] == 0)
    ]
    assert found, name
    yield from found


def round_trips(golden, value: Any, read: Callable[[Any], Any]) -> None:
    typed = read(value)
    written = fastjson.loads(fastjson.dumps(typed.to_json()))
    assert sorted_lists(written) == sorted_lists(value), golden
    assert read(written) == typed, golden


def test_heartbeats(all_frames) -> None:
    for golden in bodies_of(all_frames, "HEART_BEAT", True):
        round_trips(golden, fastjson.loads(golden.body), HeartbeatData.from_json)
        data = HeartbeatData.decode(golden.body)
        for consumer in data.consumer_data_set:
            for subscription in consumer.subscription_data_set:
                assert subscription.sub_version > 0


def test_routes_are_the_same_bytes(all_frames) -> None:
    for golden in bodies_of(all_frames, "GET_ROUTEINFO_BY_TOPIC", False):
        assert TopicRouteData.decode(golden.body).encode() == golden.body, golden


def test_cluster_tables(all_frames) -> None:
    """Java leaves broker ids unquoted there; ours are quoted, which every client reads."""
    for golden in bodies_of(all_frames, "GET_BROKER_CLUSTER_INFO", False):
        round_trips(golden, fastjson.loads(golden.body), ClusterInfo.from_json)
        assert json.loads(ClusterInfo.decode(golden.body).encode())


def test_member_groups(all_frames) -> None:
    for golden in bodies_of(all_frames, "CONTROLLER_ELECT_MASTER", False):
        group = fastjson.loads(golden.body)["brokerMemberGroup"]
        data = BrokerData.from_json(group)
        assert data.broker_addrs == {int(key): value for key, value in group["brokerAddrs"].items()}


def test_registrations(all_frames) -> None:
    compressed = plain = 0
    for golden in bodies_of(all_frames, "REGISTER_BROKER", True):
        fields = golden.truth["extFields"]
        assert int(fields["bodyCrc32"]) == body_crc32(golden.body), golden
        # RocketMQ 5.5.0 sends compressed=false with its compressed bodies, too.
        if not golden.body.startswith(b"{"):
            compressed += 1
            body = RegisterBrokerBody.decode(golden.body, compressed=True)
            assert "TBW102" in body.topics.topic_config_table
        else:
            plain += 1
            body = RegisterBrokerBody.decode(golden.body)
            written = fastjson.loads(body.encode())
            assert sorted_lists(written) == sorted_lists(fastjson.loads(golden.body)), golden
        assert RegisterBrokerBody.decode(body.encode()) == body, golden
        again = RegisterBrokerBody.decode(body.encode(compressed=True), compressed=True)
        assert again.topics.data_version == body.topics.data_version
        assert again.filter_server_list == body.filter_server_list
        for name, config in body.topics.topic_config_table.items():
            assert again.topics.topic_config_table[name].to_text() == config.to_text()
    assert compressed and plain


def test_topic_tables(all_frames) -> None:
    for golden in bodies_of(all_frames, "GET_ALL_TOPIC_CONFIG", False):
        round_trips(golden, fastjson.loads(golden.body), TopicConfigs.from_json)


def test_topics(all_frames) -> None:
    for golden in bodies_of(all_frames, "GET_TOPIC_CONFIG", False):
        assert TopicConfig.decode(golden.body).encode() == golden.body, golden
    for golden in bodies_of(all_frames, "UPDATE_AND_CREATE_TOPIC_LIST", True):
        for value in fastjson.loads(golden.body)["topicConfigList"]:
            round_trips(golden, value, TopicConfig.from_json)


def test_groups(all_frames) -> None:
    for golden in bodies_of(all_frames, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", True):
        assert SubscriptionGroupConfig.decode(golden.body).encode() == golden.body, golden
    for golden in bodies_of(all_frames, "GET_ALL_SUBSCRIPTIONGROUP_CONFIG", False):
        for value in fastjson.loads(golden.body)["subscriptionGroupTable"].values():
            round_trips(golden, value, SubscriptionGroupConfig.from_json)


def test_subscriptions(all_frames) -> None:
    for golden in bodies_of(all_frames, "CHECK_CLIENT_CONFIG", True):
        value = fastjson.loads(golden.body)["subscriptionData"]
        round_trips(golden, value, SubscriptionData.from_json)
        assert not SubscriptionData.from_json(value).is_tag_type


def test_locks_and_bean_keys(all_frames) -> None:
    for golden in bodies_of(all_frames, "LOCK_BATCH_MQ", True):
        for value in fastjson.loads(golden.body)["mqSet"]:
            round_trips(golden, value, MessageQueue.from_json)
    for golden in bodies_of(all_frames, "GET_TOPIC_STATS_INFO", False):
        table = fastjson.loads(golden.body)["offsetTable"]
        for key in table:
            assert MessageQueue.from_key(key).bean_key() == key, golden
        raw = {"offsetTable": fastjson.RawKeys(table)}
        text = fastjson.dumps(raw)
        assert f'{{"offsetTable":{{{min(table)}:' in text
        assert fastjson.loads(text)["offsetTable"] == table


def test_versions_of_tables(all_frames) -> None:
    seen = 0
    for golden in all_frames:
        if golden.body[:1] == b"{" and b'"dataVersion":{' in golden.body:
            value = fastjson.loads(golden.body)
            if "dataVersion" in value:
                round_trips(golden, value["dataVersion"], DataVersion.from_json)
                seen += 1
    assert seen


def test_every_json_body_is_read(all_frames) -> None:
    """Strict ones also come back in the same form once their members are sorted."""
    strict = raw = 0
    for golden in all_frames:
        if golden.body[:1] not in (b"{", b"["):
            continue
        value = fastjson.loads(golden.body)
        try:
            plain = json.loads(golden.body)
        except ValueError:
            raw += 1
        else:
            strict += 1
            assert value == plain, golden
            ordered = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
            assert fastjson.dumps(value) == ordered, golden
    assert strict > 200 and raw > 20
