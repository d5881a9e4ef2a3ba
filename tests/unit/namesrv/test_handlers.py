"""Every request code of a name server through the dispatcher, with its codes and remarks."""

import json
import zlib
from collections.abc import Generator
from typing import Any

import pytest
from tests.disk_parts import saved
from tests.unit.links import NoLink

from turbopump.engine.deferred import Deferred
from turbopump.namesrv import handlers
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.handlers import FAQ, NameServer
from turbopump.namesrv.key_values import MAX_ITEM_SIZE, KeyValues, Pieces, table_from_json
from turbopump.namesrv.route_rows import Notice
from turbopump.namesrv.routes import RouteTable
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.names import ORDER_NAMESPACE
from turbopump.net.wire.registration.register import RegisterBrokerBody, body_crc32
from turbopump.net.wire.route import ClusterInfo, QueueData, TopicRouteData
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs

NOW = 1_000_000
ADDRESS = "10.0.0.1:10911"

CODES = (
    100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318,
    319, 322, 327, 901, 904,
)  # fmt: skip
"""All request codes of a name server."""


class Bench:
    """A name server without a socket, and methods that send it requests."""

    def __init__(self) -> None:
        self.saved: list[dict[str, dict[str, str]]] = []
        self.saved_configs: list[dict[str, str]] = []
        self.notices: list[Notice] = []
        self.disk_error: OSError | None = None
        self.server = NameServer(
            NamesrvConfig(),
            RouteTable(),
            KeyValues(self._save),
            NOW,
            self.notices.append,
            self._save_config,
        )
        self.dispatcher = Dispatcher()
        handlers.register(self.dispatcher, self.server)
        self.peer = Peer("192.0.2.1:40000", b"\xc0\0\2\1\0\0\x9c\x40", NoLink())
        self.now_ms = NOW

    def _save(self, pieces: Pieces) -> Deferred[OSError | None]:
        if self.disk_error is None:
            self.saved.append(table_from_json(json.loads(b"".join(pieces()))))
        return saved(self.disk_error)

    def _save_config(self, properties: list[Property]) -> Deferred[OSError | None]:
        if self.disk_error is None:
            self.saved_configs.append({item.key: item.value for item in properties})
        return saved(self.disk_error)

    def ask(
        self,
        code: int,
        body: bytes = b"",
        *,
        version: int = 513,
        peer: Peer | None = None,
        **fields: str,
    ) -> Command:
        request = new_request(code, body=body, fields=fields)
        request.version = version
        request.opaque = 77
        response = self.dispatcher.dispatch(request, peer or self.peer, self.now_ms)
        if isinstance(response, Generator):
            response = run_to_result(response)
        if isinstance(response, Deferred):
            response = response.value
        assert isinstance(response, Command)
        assert (response.opaque, response.is_response) == (77, True)
        return response

    def register(self, **changes: Any) -> Command:
        body = changes.pop("body", None)
        topics = changes.pop("topics", ("T", "U"))
        state = changes.pop("state", 0)
        version = changes.pop("version", 513)
        if body is None:
            table = {name: TopicConfig(name, 4, 4) for name in topics}
            body = RegisterBrokerBody(TopicConfigs(DataVersion(0, state, 0), table)).encode()
        fields = {
            "brokerName": "a",
            "brokerAddr": ADDRESS,
            "clusterName": "c",
            "brokerId": "0",
            "haServerAddr": "10.0.0.1:10912",
            "enableActingMaster": "false",
            "compressed": "false",
            "bodyCrc32": str(body_crc32(body)),
        }
        fields.update(changes)
        return self.ask(RequestCode.REGISTER_BROKER, body, version=version, **fields)

    def route(self, topic: str = "T", **fields: str) -> TopicRouteData:
        response = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, **fields)
        assert response.code == 0, response.remark
        return TopicRouteData.decode(text(response).encode())


def text(response: Command) -> str:
    assert isinstance(response.body, bytes)
    return response.body.decode()


def code_and_remark(response: Command) -> tuple[int, str | None]:
    return response.code, response.remark


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_every_code_of_a_name_server_has_a_handler(bench: Bench) -> None:
    assert bench.dispatcher.codes == set(CODES)
    assert code_and_remark(bench.ask(10)) == (3, " request type 10 not supported")


def test_a_registration_of_changes_removes_no_other_topic(bench: Bench) -> None:
    """Even if missing topics are removed: a broker registers one new topic without its others."""
    bench.server.config.delete_topic_with_broker_registration = True
    bench.register()
    assert bench.register(topics=("V",), state=1, changesOnly="true").code == 0
    assert bench.server.routes.topics() == ["T", "U", "V"]
    assert bench.register(topics=("U", "V"), state=2).code == 0
    assert bench.server.routes.topics() == ["U", "V"]


def test_a_registered_broker_is_found(bench: Bench) -> None:
    response = bench.register()
    assert (code_and_remark(response), response.fields, response.body) == ((0, None), {}, b"")
    response = bench.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert text(response) == (
        '{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"a","cluster":"c",'
        '"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"a",'
        '"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_an_unknown_topic_is_17(bench: Bench) -> None:
    remark = "No topic route info in name server for the topic: X" + FAQ
    assert code_and_remark(bench.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="X")) == (17, remark)


def test_a_name_server_may_wait_for_its_brokers(bench: Bench) -> None:
    bench.register()
    bench.server.config.need_wait_for_service = True
    bench.now_ms = NOW + 44_999
    response = bench.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert code_and_remark(response) == (1, "name server not ready")
    bench.now_ms = NOW + 45_000
    bench.route()


def test_a_zone_is_honoured_only_in_zone_mode(bench: Bench) -> None:
    bench.register(__ZONE_NAME="z1")
    assert bench.route(__ZONE_NAME="z2").broker_datas
    assert bench.route(__ZONE_NAME="z2", __ZONE_MODE="false").broker_datas
    assert bench.route(__ZONE_NAME=" ", __ZONE_MODE="true").broker_datas
    assert bench.route(__ZONE_NAME="z2", __ZONE_MODE="true").broker_datas == []
    (data,) = bench.route(__ZONE_NAME="Z1", __ZONE_MODE="true").broker_datas
    assert data.zone_name == "z1"


def test_an_acting_master_is_shown_where_configured(bench: Bench) -> None:
    bench.register(brokerId="1", enableActingMaster="true")
    assert bench.route().broker_datas[0].broker_addrs == {1: ADDRESS}
    bench.server.config.support_acting_master = True
    assert bench.route().broker_datas[0].broker_addrs == {0: ADDRESS}


def test_an_ordered_topic_tells_its_queues(bench: Bench) -> None:
    bench.register()
    bench.server.key_values.set_value(ORDER_NAMESPACE, "T", "a:4")
    assert bench.route().order_topic_conf is None
    bench.server.config.order_message_enable = True
    assert bench.route().order_topic_conf == "a:4"
    assert bench.route("U").order_topic_conf is None


def test_brokers_are_told_the_order_configuration(bench: Bench) -> None:
    bench.server.key_values.set_value(ORDER_NAMESPACE, "T", "a:4")
    assert text(bench.register()) == '{"table":{"T":"a:4"}}'
    bench.server.config.return_order_topic_config_to_broker = False
    assert text(bench.register()) == ""


def test_a_replica_is_told_its_master(bench: Bench) -> None:
    bench.register()
    response = bench.register(brokerAddr="10.0.0.2:10911", brokerId="1")
    assert response.fields == {"haServerAddr": "10.0.0.1:10912", "masterAddr": ADDRESS}


def test_a_claim_of_an_older_state_is_answered_without_master(bench: Bench) -> None:
    bench.register(state=5)
    response = bench.register(brokerAddr="10.0.0.2:10911", state=4)
    assert (code_and_remark(response), response.fields) == ((0, None), {})
    assert bench.route().broker_datas[0].broker_addrs == {0: ADDRESS}


def test_a_first_registration_of_one_topic_is_refused(bench: Bench) -> None:
    assert code_and_remark(bench.register(topics=("T",))) == (1, "register broker failed")


def test_a_wrong_crc_is_refused(bench: Bench) -> None:
    assert code_and_remark(bench.register(bodyCrc32="12345")) == (1, "crc32 not match")
    assert code_and_remark(bench.register(bodyCrc32="0")) == (0, None)


def test_a_compressed_body_is_read(bench: Bench) -> None:
    table = {name: TopicConfig(name, 4, 8, 4) for name in ("T", "U")}
    body = RegisterBrokerBody(TopicConfigs(DataVersion(1), table)).encode(compressed=True)
    assert code_and_remark(bench.register(body=body, compressed="true")) == (0, None)
    assert bench.route().queue_datas == [QueueData("a", 4, 8, 4)]


def test_an_old_brokers_body_is_the_topics_alone(bench: Bench) -> None:
    table = {name: TopicConfig(name, 4, 4) for name in ("T", "U")}
    body = TopicConfigs(DataVersion(1), table).encode()
    assert code_and_remark(bench.register(body=body, version=36)) == (0, None)
    assert bench.route().queue_datas == [QueueData("a", 4, 4, 6)]


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    "inner",
    [
        (0x7FFFFFFF).to_bytes(4, "big"),
        (-1).to_bytes(4, "big", signed=True),
        sized(b"{}") + (0x7FFFFFFF).to_bytes(4, "big"),
        sized(b"{}") + (1).to_bytes(4, "big") + (0x7FFFFFF0).to_bytes(4, "big") + b"x",
        sized(b"{}") + (1).to_bytes(4, "big") + sized(b"T 1"),
        sized(b"nonsense"),
        b"",
        bytes(60 << 20),
    ],
    ids=["2GB", "-1", "2G topics", "2GB topic", "words", "json", "nothing", "bomb"],
)
def test_a_malformed_compressed_body_is_a_clear_error(bench: Bench, inner: bytes) -> None:
    response = bench.register(body=zlib.compress(inner), compressed="true")
    assert response.code == 1
    assert (response.remark or "").startswith("Failed to decode RegisterBrokerBody, ")
    assert bench.server.routes.topics() == []


@pytest.mark.parametrize("compressed", ["true", "false"])
def test_a_body_that_is_neither_form_is_a_clear_error(bench: Bench, compressed: str) -> None:
    for body in (b"\x78\xda\x01", b"[]", b"{", b"\xff\xfe", zlib.compress(b"{}")[:-3]):
        response = bench.register(body=body, compressed=compressed)
        assert response.code == 1, body
        assert (response.remark or "").startswith("Failed to decode RegisterBrokerBody, ")


def test_unregistering_forgets_the_broker(bench: Bench) -> None:
    bench.register()
    fields = {"brokerName": "a", "brokerAddr": ADDRESS, "clusterName": "c", "brokerId": "0"}
    assert code_and_remark(bench.ask(RequestCode.UNREGISTER_BROKER, **fields)) == (0, None)
    assert code_and_remark(bench.ask(RequestCode.UNREGISTER_BROKER, **fields)) == (0, None)
    assert bench.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").code == 17


def test_a_closed_connection_forgets_the_broker(bench: Bench) -> None:
    bench.register()
    bench.register()
    bench.peer.lost()
    assert bench.server.routes.topics() == []


def test_a_heartbeat_and_a_version_query_are_signs_of_life(bench: Bench) -> None:
    bench.register(heartbeatTimeoutMillis="1000")
    names = {"brokerName": "a", "brokerAddr": ADDRESS, "clusterName": "c", "brokerId": "0"}
    bench.now_ms = NOW + 900
    assert code_and_remark(bench.ask(RequestCode.BROKER_HEARTBEAT, **names)) == (0, None)
    assert bench.server.routes.unregister_silent(NOW + 1_900) == []
    bench.now_ms = NOW + 1_900
    bench.ask(RequestCode.QUERY_DATA_VERSION, DataVersion().encode(), **names)
    assert bench.server.routes.unregister_silent(NOW + 2_900) == []
    assert len(bench.server.routes.unregister_silent(NOW + 2_901)) == 1


def test_a_data_version_is_compared(bench: Bench) -> None:
    names = {"brokerName": "a", "brokerAddr": ADDRESS, "clusterName": "c", "brokerId": "0"}
    response = bench.ask(RequestCode.QUERY_DATA_VERSION, DataVersion(3).encode(), **names)
    assert (response.fields, response.body) == ({"changed": "true"}, b"")
    bench.register(state=2)
    response = bench.ask(RequestCode.QUERY_DATA_VERSION, DataVersion(0, 2).encode(), **names)
    assert response.fields == {"changed": "false"}
    assert text(response) == '{"counter":0,"stateVersion":2,"timestamp":0}'
    assert bench.ask(RequestCode.QUERY_DATA_VERSION, b"[", **names).code == 1


def test_member_groups(bench: Bench) -> None:
    bench.register()
    response = bench.ask(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="c", brokerName="a")
    assert json.loads(text(response)) == {
        "brokerMemberGroup": {"brokerAddrs": {"0": ADDRESS}, "brokerName": "a", "cluster": "c"}
    }
    response = bench.ask(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="c", brokerName="x")
    assert json.loads(text(response))["brokerMemberGroup"]["brokerAddrs"] == {}


def test_cluster_info(bench: Bench) -> None:
    empty = text(bench.ask(RequestCode.GET_BROKER_CLUSTER_INFO))
    assert empty == '{"brokerAddrTable":{},"clusterAddrTable":{}}'
    bench.register()
    info = ClusterInfo.decode(text(bench.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).encode())
    assert info.cluster_addr_table == {"c": ["a"]}
    assert info.broker_addr_table["a"].broker_addrs == {0: ADDRESS}


def test_key_values_come_and_go(bench: Bench) -> None:
    item = {"namespace": "NS", "key": "k"}
    assert code_and_remark(bench.ask(RequestCode.GET_KV_CONFIG, **item)) == (
        22,
        "No config item, Namespace: NS Key: k",
    )
    assert code_and_remark(bench.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="NS")) == (
        22,
        "No config item, Namespace: NS",
    )
    assert code_and_remark(bench.ask(RequestCode.PUT_KV_CONFIG, **item, value="中")) == (0, None)
    assert bench.saved == [{"NS": {"k": "中"}}]
    assert bench.ask(RequestCode.GET_KV_CONFIG, **item).fields == {"value": "中"}
    response = bench.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="NS")
    assert json.loads(text(response)) == {"table": {"k": "中"}}
    assert code_and_remark(bench.ask(RequestCode.DELETE_KV_CONFIG, **item)) == (0, None)
    assert code_and_remark(bench.ask(RequestCode.DELETE_KV_CONFIG, **item)) == (0, None)
    assert bench.saved[1:] == [{"NS": {}}]
    assert bench.ask(RequestCode.GET_KV_CONFIG, **item).code == 22


@pytest.mark.parametrize("fields", [{}, {"key": "k"}, {"namespace": "n"}])
def test_a_key_value_needs_namespace_and_key(bench: Bench, fields: dict[str, str]) -> None:
    response = bench.ask(RequestCode.PUT_KV_CONFIG, value="v", **fields)
    assert code_and_remark(response) == (1, "namespace or key is null")


def test_a_key_value_without_value_is_refused(bench: Bench) -> None:
    assert code_and_remark(bench.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k")) == (
        1,
        "value is null",
    )


def test_a_key_value_is_not_taken_when_it_cannot_be_saved(bench: Bench) -> None:
    item = {"namespace": "NS", "key": "k"}
    bench.ask(RequestCode.PUT_KV_CONFIG, **item, value="old")
    bench.disk_error = OSError(28, "No space left on device")
    for code in (RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG):
        response = bench.ask(code, **item, value="new")
        assert code_and_remark(response) == (1, "not saved: [Errno 28] No space left on device")
    assert bench.ask(RequestCode.GET_KV_CONFIG, **item).fields == {"value": "old"}


def test_key_values_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    item = {"namespace": "NS", "key": "k"}
    response = bench.ask(RequestCode.PUT_KV_CONFIG, **item, value="x" * MAX_ITEM_SIZE)
    assert response.code == 1
    monkeypatch.setattr("turbopump.namesrv.key_values.MAX_ITEMS", 1)
    assert bench.ask(RequestCode.PUT_KV_CONFIG, **item, value="1").code == 0
    assert bench.ask(RequestCode.PUT_KV_CONFIG, **item, value="2").code == 0
    assert bench.ask(RequestCode.PUT_KV_CONFIG, namespace="o", key="k", value="1").code == 1
    assert bench.ask(RequestCode.DELETE_KV_CONFIG, **item).code == 0
    response = bench.ask(RequestCode.PUT_KV_CONFIG, namespace="o", key="k", value="1")
    assert response.code == 1, "an empty namespace takes room, too"
    monkeypatch.setattr("turbopump.namesrv.key_values.MAX_ITEMS", 9)
    monkeypatch.setattr("turbopump.namesrv.key_values.MAX_TOTAL_SIZE", 300)
    assert bench.ask(RequestCode.PUT_KV_CONFIG, **item, value="123").code == 0
    assert bench.ask(RequestCode.PUT_KV_CONFIG, namespace="o", key="k", value="1").code == 1


def test_write_permission(bench: Bench) -> None:
    bench.register()
    response = bench.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a")
    assert (code_and_remark(response), response.fields) == ((0, None), {"wipeTopicCount": "2"})
    assert bench.route().queue_datas[0].perm == 4
    response = bench.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a")
    assert response.fields == {"addTopicCount": "2"}
    assert bench.route().queue_datas[0].perm == 6


def test_topic_lists_can_be_switched_off(bench: Bench) -> None:
    bench.register()
    all_topics = bench.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert text(all_topics) == '{"topicList":["T","U"]}'
    of_cluster = bench.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c")
    assert text(of_cluster) == '{"topicList":["T","U"]}'
    assert text(bench.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="x")) == '{"topicList":[]}'
    bench.server.config.enable_all_topic_list = False
    bench.server.config.enable_topic_list = False
    for code in (206, 224, 311, 312, 313):
        assert code_and_remark(bench.ask(code, cluster="c")) == (1, "disable")


def test_topics_by_unit_flags(bench: Bench) -> None:
    table = {f"T{flag}": TopicConfig(f"T{flag}", topic_sys_flag=flag) for flag in range(4)}
    bench.register(body=RegisterBrokerBody(TopicConfigs(DataVersion(), table)).encode())
    for code, expected in ((311, ["T1", "T3"]), (312, ["T2", "T3"]), (313, ["T2"])):
        assert json.loads(text(bench.ask(code))) == {"topicList": expected}


def test_system_topics(bench: Bench) -> None:
    assert text(bench.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)) == '{"topicList":[]}'
    bench.register()
    response = bench.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert json.loads(text(response)) == {"brokerAddr": ADDRESS, "topicList": ["c", "a"]}


def test_topics_are_deleted(bench: Bench) -> None:
    bench.register()
    delete = RequestCode.DELETE_TOPIC_IN_NAMESRV
    assert code_and_remark(bench.ask(delete, topic="T", clusterName="other")) == (0, None)
    bench.route("T")
    assert code_and_remark(bench.ask(delete, topic="T", clusterName="")) == (0, None)
    assert code_and_remark(bench.ask(delete, topic="U", clusterName="c")) == (0, None)
    assert bench.server.routes.topics() == []


def test_topics_are_registered_by_hand(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.register()
    body = TopicRouteData([QueueData("a", 1, 2, 6), QueueData("x", 1, 1, 6)]).encode()
    code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    assert code_and_remark(bench.ask(code, body, topic="New")) == (0, None)
    assert bench.route("New").queue_datas == [QueueData("a", 1, 2, 6)]
    assert code_and_remark(bench.ask(code, topic="Nothing")) == (0, None)
    assert bench.ask(code, b"[1", topic="Bad").code == 1
    monkeypatch.setattr("turbopump.namesrv.topic_queues.MAX_QUEUE_DATAS", 3)
    assert bench.ask(code, body, topic="More").code == 1


def test_configuration_is_shown_and_changed(bench: Bench) -> None:
    get, update = RequestCode.GET_NAMESRV_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG
    assert "orderMessageEnable=false\n" in text(bench.ask(get))
    assert code_and_remark(bench.ask(update, b"orderMessageEnable=true\nnoSuchKey=1\n")) == (
        0,
        None,
    )
    assert bench.saved_configs == [{"orderMessageEnable": "true"}]
    assert bench.server.config.order_message_enable
    shown = text(bench.ask(get))
    assert "orderMessageEnable=true\n" in shown
    assert "noSuchKey" not in shown


def test_a_refused_configuration_changes_nothing(bench: Bench) -> None:
    update = RequestCode.UPDATE_NAMESRV_CONFIG
    before = text(bench.ask(RequestCode.GET_NAMESRV_CONFIG))
    refused = bench.ask(update, b"orderMessageEnable=true\nkvConfigPath=x")
    assert code_and_remark(refused) == (16, "Can not update config in black list.")
    response = bench.ask(update, b"orderMessageEnable=true\nlistenPort=no")
    assert code_and_remark(response) == (
        1,
        "listenPort=no: expected a whole number from 0 to 65535 (line 2)",
    )
    assert bench.ask(update, b"a=\\u1").code == 1
    fixed = b"orderMessageEnable=true\nlistenPort=1\ntls.server.mode=disabled"
    assert code_and_remark(bench.ask(update, fixed)) == (
        1,
        "listenPort, tls.server.mode cannot change while this node runs: set it in its file and"
        " restart",
    )
    for hostile in (b"a\\=b=1", b"order\0=1", b"productEnvName=a\\nb", b"x=" + b"y" * (1 << 20)):
        assert bench.ask(update, b"orderMessageEnable=true\n" + hostile).code == 1
    bench.disk_error = OSError(30, "Read-only file system")
    assert code_and_remark(bench.ask(update, b"orderMessageEnable=true")) == (
        1,
        "not saved: [Errno 30] Read-only file system",
    )
    assert text(bench.ask(RequestCode.GET_NAMESRV_CONFIG)) == before
    assert bench.saved_configs == []


def test_brokers_are_told_of_a_new_lead_where_configured(bench: Bench) -> None:
    other = Peer("192.0.2.2:1", b"\xc0\0\2\2\0\0\0\1", NoLink())
    for wanted in (False, True):
        bench.server.config.notify_min_broker_id_changed = wanted
        bench.register(brokerId="1", brokerAddr="r:1", enableActingMaster="true")
        bench.register(brokerId="0", enableActingMaster="true")
        bench.ask(
            RequestCode.UNREGISTER_BROKER,
            brokerName="a",
            brokerAddr=ADDRESS,
            clusterName="c",
            brokerId="0",
            peer=other,
        )
        leads = [(notice.min_broker_id, notice.targets) for notice in bench.notices]
        assert leads == ([(0, ["r:1"]), (1, ["r:1"])] if wanted else [])
