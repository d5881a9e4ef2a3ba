"""Coercion of JSON members, and the small beans."""

import pytest

from turbopump.net.wire import bodies
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import BrokerData, ClusterInfo, TopicRouteData
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs


def test_members_are_coerced() -> None:
    members = bodies.load_object(b'{"t":1,"b":true,"n":"12","f":3.0,"z":null,"s":"TRUE","o":1}')
    assert bodies.read_text(members, "t") == "1"
    assert bodies.read_text(members, "b") == "true"
    assert bodies.read_text(members, "z", "none") == "none"
    assert bodies.optional_text(members, "missing") is None
    assert bodies.read_int64(members, "n") == 12
    assert bodies.read_int64(members, "f") == 3
    assert bodies.read_int64(members, "z", 7) == 7
    assert bodies.read_flag(members, "s") and bodies.read_flag(members, "o")
    assert not bodies.read_flag(members, "z")
    assert bodies.read_list(members, "z", bodies.as_text) == []
    assert bodies.read_table(members, "z", bodies.as_text) == {}


def test_a_body_in_slices() -> None:
    assert bodies.load([memoryview(b'{"a"'), memoryview(b":1}")]) == {"a": 1}


@pytest.mark.parametrize("body", [b"", b"text", b"\0\1", b"[1", b"{" * 1000])
def test_bodies_other_than_json(body) -> None:
    with pytest.raises(BadBody, match="not JSON"):
        bodies.load(body)


@pytest.mark.parametrize(
    "read",
    [
        lambda: bodies.load_object(b"[]"),
        lambda: bodies.read_text({"a": []}, "a"),
        lambda: bodies.read_int64({"a": "x"}, "a"),
        lambda: bodies.read_int64({"a": "1_0"}, "a"),
        lambda: bodies.read_int64({"a": 1 << 63}, "a"),
        lambda: bodies.read_int64({"a": {}}, "a"),
        lambda: bodies.read_int32({"a": 1 << 31}, "a"),
        lambda: bodies.read_int32({"a": "-2147483649"}, "a"),
        lambda: SubscriptionGroupConfig.from_json({"groupName": "g", "retryMaxTimes": 1 << 31}),
        lambda: TopicConfig.from_json({"topicName": "t", "readQueueNums": 1 << 31}),
        lambda: bodies.read_flag({"a": []}, "a"),
        lambda: bodies.read_list({"a": {}}, "a", bodies.as_text),
        lambda: bodies.read_table({"a": "x"}, "a", bodies.as_text),
        lambda: bodies.as_text({}),
        lambda: TopicConfig.from_text("too few"),
        lambda: TopicConfig.from_text("T 1 1 6 SINGLE_TAG {"),
        lambda: TopicConfig.from_text("T x 1 6 SINGLE_TAG"),
        lambda: TopicConfigs.from_json({"topicConfigTable": {"T": 5}}),
        lambda: BrokerData.from_json({"brokerAddrs": {"x": "a"}}),
        lambda: TopicRouteData.decode(b'{"queueDatas":[null]}'),
        lambda: MessageQueue.from_key("nonsense"),
    ],
)
def test_bodies_of_the_wrong_shape(read) -> None:
    with pytest.raises(BadBody):
        read()


def test_queues_sort_as_clients_allocate() -> None:
    queues = [MessageQueue("B", "b", 0), MessageQueue("A", "b", 1), MessageQueue("A", "a", 2)]
    queues.append(MessageQueue("A", "b", 0))
    assert [queue.bean_key() for queue in sorted(queues)] == [
        '{"brokerName":"a","queueId":2,"topic":"A"}',
        '{"brokerName":"b","queueId":0,"topic":"A"}',
        '{"brokerName":"b","queueId":1,"topic":"A"}',
        '{"brokerName":"b","queueId":0,"topic":"B"}',
    ]


def test_versions() -> None:
    version = DataVersion(1, 2, 3)
    assert version.next_version(9, state_version=4) == DataVersion(2, 4, 9)
    assert DataVersion.from_json(None) == DataVersion()
    assert version.encode() == b'{"counter":1,"stateVersion":2,"timestamp":3}'
    assert DataVersion.decode(version.encode()) == version


def test_topics() -> None:
    config = TopicConfig("T", 4, 8, 7, "MULTI_TAG", 1, True, {"message.type": "FIFO"})
    assert config.is_readable and config.is_writable and config.is_inherited
    assert TopicConfig.decode(config.encode()) == config
    assert config.to_text() == 'T 4 8 7 MULTI_TAG {"message.type":"FIFO"}'
    # Order and topicSysFlag are not carried by the text.
    again = TopicConfig.from_text(config.to_text())
    assert (again.order, again.topic_sys_flag, again.attributes) == (False, 0, config.attributes)
    assert TopicConfig.from_text("T 4 8 6 SINGLE_TAG").attributes == {}
    table = TopicConfigs(DataVersion(1, 0, 2), {"T": config})
    assert TopicConfigs.decode(table.encode()) == table


def test_groups_keep_members_they_do_not_know() -> None:
    config = SubscriptionGroupConfig.from_json(
        {"groupName": "g", "subscriptionDataSet": [{"a": 1}]}
    )
    assert config.extra == {"subscriptionDataSet": [{"a": 1}]}
    assert SubscriptionGroupConfig.decode(config.encode()) == config
    assert config.to_json()["retryMaxTimes"] == 16


def test_routes_have_no_blank_and_quoted_ids() -> None:
    route = TopicRouteData.from_json(
        {
            "brokerDatas": [
                {"brokerAddrs": {0: "a:1", 1: "b:2"}, "brokerName": "b", "cluster": "c"}
            ],
            "queueDatas": [{"brokerName": "b", "perm": "6", "readQueueNums": 4}],
            "orderTopicConf": "b:4",
        }
    )
    assert route.encode() == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"a:1","1":"b:2"},"brokerName":"b","cluster":"c",'
        b'"enableActingMaster":false}],"filterServerTable":{},"orderTopicConf":"b:4","queueDatas":'
        b'[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":0}]}'
    )
    assert TopicRouteData.decode(route.encode()) == route


def test_cluster_tables_are_read_with_raw_ids() -> None:
    raw = (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c"}},'
        b'"clusterAddrTable":{"c":["b"]}}'
    )
    info = ClusterInfo.decode(raw)
    assert info.broker_addr_table["b"].broker_addrs == {0: "a:1"}
    assert ClusterInfo.decode(info.encode()) == info
