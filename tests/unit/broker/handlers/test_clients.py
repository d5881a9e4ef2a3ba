"""Heartbeats, leaving, lists of clients and their housekeeping (remoting.md 12, 16.3)."""

from typing import Any

import pytest

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import VERSION
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.java_properties import Property

FULL = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
KNOWN = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}


def test_a_heartbeat_registers_and_makes_the_retry_topic(admin: Any) -> None:
    peer = admin.connect()
    response = admin.heartbeat(peer, "c1", admin.consumer("g", "T"), producers=("pg",))
    assert (response.code, response.fields, response.version) == (0, FULL, VERSION)
    assert admin.notified(peer) == ["g"]
    retry = admin.broker.topics.get("%RETRY%g")
    assert retry is not None
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
    assert admin.broker.groups.get("g") is not None
    assert list(admin.broker.producers.producers_of("pg")) == [peer]
    assert admin.json(38, consumerGroup="g") == {"consumerIdList": ["c1"]}


def test_the_answer_goes_out_before_the_notice(admin: Any) -> None:
    first, second = admin.connect(), admin.connect()
    admin.heartbeat(first, "c1", admin.consumer("g", "T"))
    admin.notified(first)
    beat = b'{"clientID":"c2","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[]}]}'
    assert admin.ask(34, beat, second).code == 0
    assert admin.notified(first) == admin.notified(second) == []
    second.context["wire"].flush()
    assert admin.notified(first) == admin.notified(second) == ["g"]


def test_a_second_identical_heartbeat_sends_no_notification(admin: Any) -> None:
    peer = admin.connect()
    for _ in range(2):
        admin.heartbeat(peer, "c1", admin.consumer("g", "T"))
    assert admin.notified(peer) == ["g"]


def test_an_order_topic_makes_an_order_retry_topic(admin: Any) -> None:
    admin.create_topic("Ordered", order=True)
    admin.heartbeat(admin.connect(), "c1", admin.consumer("g", "Ordered"))
    assert admin.broker.topics.get("%RETRY%g").order


def test_a_unit_consumer_marks_its_retry_topic(admin: Any) -> None:
    admin.heartbeat(admin.connect(), "c1", admin.consumer("g", "T", unit_mode=True))
    assert admin.broker.topics.get("%RETRY%g").topic_sys_flag == 2


@pytest.mark.parametrize("group", ["", "no blanks", "x" * 121])
def test_an_impossible_group_is_passed_over(admin: Any, group: str) -> None:
    peer = admin.connect()
    response = admin.heartbeat(peer, "c1", admin.consumer(group, "T"), admin.consumer("g", "T"))
    assert response.code == 0
    assert admin.notified(peer) == ["g"]
    assert admin.broker.topics.get(f"%RETRY%{group}") is None


def test_without_automatic_creation_a_new_group_is_passed_over(make_admin: Any) -> None:
    admin = make_admin("autoCreateSubscriptionGroup=false\n")
    peer = admin.connect()
    assert admin.heartbeat(peer, "c1", admin.consumer("g", "T")).code == 0
    assert admin.ask(38, consumerGroup="g").code == 1


def test_second_version_of_heartbeats(admin: Any) -> None:
    peer = admin.connect()

    def beat(*topics: str, mark: int, without_sub: bool = False) -> dict[str, str]:
        response = admin.heartbeat(
            peer,
            "c1",
            admin.consumer("g", *topics),
            heartbeat_fingerprint=mark,
            without_sub=without_sub,
        )
        return dict(response.fields)

    assert beat("T", mark=5) == KNOWN
    assert beat(mark=5, without_sub=True) == KNOWN
    assert admin.broker.consumers.find_subscription("g", "T") is not None
    assert beat("T", "U", mark=6) == FULL
    assert beat(mark=6, without_sub=True) == KNOWN
    assert beat(mark=7, without_sub=True) == FULL
    assert admin.notified(peer) == ["g", "g"]


def test_a_restarted_broker_asks_for_the_subscriptions(admin: Any) -> None:
    response = admin.heartbeat(
        admin.connect(), "c1", admin.consumer("g"), heartbeat_fingerprint=5, without_sub=True
    )
    assert response.fields == FULL


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 1),
        (b"[]", 1),
        (b"{", 1),
        (b'{"clientID":"c","consumerDataSet":[1]}', 1),
        (b"{}", 29),
        (b'{"clientID":"' + b"c" * 256 + b'"}', 29),
        (b'{"clientID":"c"}', 0),
        (b'{"clientID":"c","producerDataSet":[{"groupName":""}]}', 0),
    ],
)
def test_odd_heartbeats(admin: Any, body: bytes, code: int) -> None:
    assert admin.ask(34, body, admin.connect()).code == code
    assert admin.broker.producers.all_producers() == {}


def test_too_many_groups_of_one_connection_are_refused(
    admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turbopump.broker.tables.consumers.MAX_GROUPS_OF_PEER", 1)
    peer = admin.connect()
    response = admin.heartbeat(peer, "c1", admin.consumer("g", "T"), admin.consumer("h", "T"))
    assert response.code == 1
    assert "over 1 groups" in response.remark
    assert admin.notified(peer) == ["g"]


def test_leaving(admin: Any) -> None:
    first, second = admin.connect(), admin.connect()
    for peer, name in ((first, "c1"), (second, "c2")):
        admin.heartbeat(peer, name, admin.consumer("g", "T"), producers=("pg",))
    admin.notified(second)
    assert admin.ask(35, peer=first, clientID="c1", consumerGroup="g").code == 0
    assert admin.notified(second) == ["g"]
    assert admin.json(38, consumerGroup="g") == {"consumerIdList": ["c2"]}
    assert admin.ask(35, peer=first, clientID="c1", producerGroup="pg").code == 0
    assert list(admin.broker.producers.producers_of("pg")) == [second]
    assert admin.ask(35, peer=first, clientID="c1", consumerGroup="other").code == 0
    assert admin.ask(35, peer=second, consumerGroup="g").code == 0
    assert admin.json(38, consumerGroup="g") == {"consumerIdList": ["c2"]}


def test_a_lost_connection_leaves_everything_and_the_rest_is_told(admin: Any) -> None:
    first, second = admin.connect(), admin.connect()
    for peer, name in ((first, "c1"), (second, "c2")):
        admin.heartbeat(peer, name, admin.consumer("g", "T"), producers=("pg",))
    admin.notified(second)
    first.lost()
    assert admin.notified(second) == ["g"]
    assert admin.json(38, consumerGroup="g") == {"consumerIdList": ["c2"]}
    assert list(admin.broker.producers.producers_of("pg")) == [second]


def test_silent_connections_are_closed(admin: Any) -> None:
    from turbopump.broker.handlers.clients import remove_expired_clients

    silent, second = admin.connect(), admin.connect()
    admin.heartbeat(silent, "c1", admin.consumer("g", "T"), producers=("pg",))
    admin.world.now_ms += 60_000
    admin.heartbeat(second, "c2", admin.consumer("g", "T"))
    admin.notified(second)
    admin.world.now_ms += 60_000
    remove_expired_clients(admin.broker)
    assert not silent.context["wire"].closed
    admin.world.now_ms += 1
    remove_expired_clients(admin.broker)
    assert silent.context["wire"].closed
    assert not second.context["wire"].closed
    assert admin.notified(second) == ["g"]
    assert admin.json(38, consumerGroup="g") == {"consumerIdList": ["c2"]}
    assert admin.broker.producers.all_producers() == {}


def test_a_heartbeat_does_not_wait_until_its_group_is_saved(admin: Any) -> None:
    admin.world.config_disk.hold()
    peer = admin.connect()
    wire = peer.context["wire"]
    beat = HeartbeatData("c1", [], [admin.consumer("g", "T")])
    response = admin.begin(RequestCode.HEART_BEAT, beat.encode(), peer)
    assert response.code == 0
    assert admin.notified(peer) == []
    wire.flush()
    assert admin.notified(peer) == ["g"]
    made = [admin.begin(200, {"groupName": name}, peer) for name in ("g", "asked")]
    again = admin.begin(RequestCode.HEART_BEAT, beat.encode(), peer)
    assert again.code == 0
    assert not any(each.done for each in made)
    admin.world.config_disk.release()
    assert [each.value.code for each in made] == [0, 0]


@pytest.mark.parametrize("by_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_ends_no_lease_and_prolongs_none(admin: Any, by_ms: int) -> None:
    from turbopump.broker.handlers.clients import remove_expired_clients

    peer = admin.connect()
    admin.heartbeat(peer, "c1", admin.consumer("g", "T"), producers=("pg",))
    queue = {"brokerName": "b", "queueId": 0, "topic": "T"}

    def lock(client_id: str) -> list[Any]:
        body = {"clientId": client_id, "consumerGroup": "g", "mqSet": [queue]}
        found: list[Any] = admin.json(41, body)["lockOKMQSet"]
        return found

    assert lock("c1") == [queue]
    admin.world.set_clock(by_ms)
    remove_expired_clients(admin.broker)
    assert not peer.context["wire"].closed
    assert lock("c2") == []
    (info,) = admin.json(328)["data"]["pg"]
    assert info["lastUpdateTimestamp"] == admin.now_ms
    admin.world.now_ms += 60_001
    assert lock("c2") == [queue]
    admin.world.now_ms += 60_000
    remove_expired_clients(admin.broker)
    assert peer.context["wire"].closed


def test_housekeeping_sweeps_locks_and_compensations(admin: Any) -> None:
    from turbopump.broker.handlers.clients import remove_expired_clients
    from turbopump.net.wire.queues import MessageQueue
    from turbopump.net.wire.subscription import parse_subscription

    admin.broker.locks.lock("g", "c", [MessageQueue("T", "b", 0)], admin.now_ms)
    admin.broker.consumers.remember_subscription(
        "g", "T", parse_subscription("T", "*"), admin.now_ms
    )
    admin.world.now_ms += 600_001
    remove_expired_clients(admin.broker)
    assert len(admin.broker.locks) == 0
    assert admin.broker.consumers.find_subscription("g", "T") is None


@pytest.mark.parametrize("how", ["broker", "group", "broadcasting"])
def test_no_notices_where_they_are_switched_off(make_admin: Any, how: str) -> None:
    off = how == "broker"
    admin = make_admin("notifyConsumerIdsChangedEnable=false\n" if off else "")
    if how == "group":
        body = {"groupName": "g", "notifyConsumerIdsChangedEnable": False}
        assert admin.ask(200, body).code == 0
    model = "BROADCASTING" if how == "broadcasting" else "CLUSTERING"
    peer = admin.connect()
    admin.heartbeat(peer, "c1", admin.consumer("g", "T", message_model=model))
    assert admin.notified(peer) == []


def test_an_empty_group_is_an_error_not_an_empty_list(admin: Any) -> None:
    response = admin.ask(38, consumerGroup="absent")
    assert (response.code, response.remark) == (1, "no consumer for this group, absent")
    assert admin.ask(38).code == 1


INVALID = "Invalid MessageSelector. "
CONFIGS = [
    ("", "TAG", "a > 1", 0, None),
    ("", "SQL92", "a > 1", 0, None),
    ("", "SQL92", "a >", 23, f"{INVALID}It ends too early"),
    ("", "SQL92", "", 23, f"{INVALID}It ends too early"),
    ("", "SQL", "a > 1", 23, f"{INVALID}There are no expressions of type SQL"),
    ("false", "SQL92", "a >", 1, "The broker does not support consumer to filter message by SQL92"),
]


@pytest.mark.parametrize(("enabled", "kind", "expression", "code", "remark"), CONFIGS)
def test_check_client_config(
    admin: Any, enabled: str, kind: str, expression: str, code: int, remark: str | None
) -> None:
    if enabled:
        admin.broker.config.update_keys([Property("enablePropertyFilter", enabled)])
    data = {"topic": "T", "subString": expression, "expressionType": kind}
    response = admin.ask(46, {"clientId": "c", "group": "g", "subscriptionData": data})
    assert (response.code, response.remark) == (code, remark)
    assert admin.ask(46, {"clientId": "c"}).code == 1


def test_the_connections_of_a_group(admin: Any) -> None:
    peer = admin.connect(version=355, language="GO")
    entry = admin.consumer("g", "T:A", consume_type="CONSUME_ACTIVELY", sub_version=3)
    admin.heartbeat(peer, "c1", entry)
    assert admin.json(203, consumerGroup="g") == {
        "connectionSet": [
            {"clientAddr": peer.address, "clientId": "c1", "language": "GO", "version": 355}
        ],
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_ACTIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {
            "T": {
                "classFilterMode": False,
                "codeSet": [65],
                "expressionType": "TAG",
                "subString": "A",
                "subVersion": 3,
                "tagsSet": ["A"],
                "topic": "T",
            }
        },
    }
    response = admin.ask(203, consumerGroup="h")
    assert (response.code, response.remark) == (206, "the consumer group[h] not online")


def test_the_connections_of_producers(admin: Any) -> None:
    peer = admin.connect()
    admin.heartbeat(peer, "p1", producers=("pg", "other"))
    line = {"clientId": "p1", "language": "JAVA", "version": VERSION}
    assert admin.json(204, producerGroup="pg") == {
        "connectionSet": [{"clientAddr": peer.address, **line}]
    }
    response = admin.ask(204, producerGroup="absent")
    assert (response.code, response.remark) == (1, "the producer group[absent] not exist")
    info = {**line, "lastUpdateTimestamp": admin.now_ms, "remoteIP": f"/{peer.address}"}
    assert admin.json(328) == {"data": {"pg": [info], "other": [info]}}
