"""Every request of a broker with authentication: refused to anonymous peers and to users without
rights.

OPEN_WITHOUT_CREDENTIALS and OPEN_TO_EVERY_USER are the lists of docs/internals/auth.md.
"""

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.shortcuts.addresses import pack_host
from tests.unit.broker.conftest import World
from tests.unit.broker.handlers.signing import AUTHENTICATED, ROOT, SECURED, Secured, entry

from turbopump.broker.auth.rights import BODY_RIGHTS, RIGHTS
from turbopump.broker.config.config import load_config
from turbopump.engine.deferred import Deferred
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.message_id import encode_message_id
from turbopump.net.wire.signature import sign_request

OPEN_WITHOUT_CREDENTIALS: frozenset[int] = frozenset()
OPEN_TO_EVERY_USER = frozenset({RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT})
"""Without a consumer group: the requests of a producer."""
UNKNOWN = (0, 99, 999, 33_333, 300_000, -5)
DENIED = ResponseCode.NO_PERMISSION

FIELDS = {
    "topic": "T", "b": "T", "a": "P", "consumerGroup": "g", "group": "g", "groupName": "g",
    "queueId": "0", "e": "0", "offset": "0", "commitLogOffset": "0", "msgId": "0" * 32,
    "srcGroup": "g", "destGroup": "g", "compareGroup": "g", "subject": "User:x", "username": "x",
    "producerGroup": "P", "defaultTopic": "TBW102", "c": "TBW102", "defaultTopicQueueNums": "4",
    "d": "4", "sysFlag": "0", "f": "0", "bornTimestamp": "1", "g": "1", "flag": "0", "h": "0",
    "statsName": "TOPIC_PUT_NUMS", "statsKey": "T", "recallHandle": "x", "clientID": "c",
}  # fmt: skip
BODY = json.dumps(
    {
        "consumerGroup": "g", "topic": "T", "groupName": "g", "group": "g", "clientID": "c",
        "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 0}],
        "acks": [{"c": "g", "t": "T"}], "subscriptionData": {"topic": "T"},
        "topicConfigList": [{"topicName": "T"}], "groupConfigList": [{"groupName": "g"}],
        "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "T"}]}],
    }
).encode()  # fmt: skip


@pytest.fixture
def secured(make_world: Callable[..., World]) -> Secured:
    return Secured(make_world(SECURED))


def all_codes(world: World) -> list[int]:
    return sorted({*world.table.codes, *RequestCode, *UNKNOWN})


def test_every_request_of_an_anonymous_peer_is_refused(secured: Secured) -> None:
    for code in all_codes(secured.world):
        for fields, body in (({}, b""), (FIELDS, b""), (FIELDS, BODY), ({}, b"not json")):
            for more in ({}, {"AccessKey": ""}, {"AccessKey": ROOT}, {"AccessKey": "x"}):
                response = secured.ask("", code, body, {**fields, **more})
                assert (response.code == DENIED) is (code not in OPEN_WITHOUT_CREDENTIALS), code
                assert not response.body


def test_every_request_of_a_user_without_rights_is_refused(secured: Secured) -> None:
    norm = secured.user("norm")
    for code in all_codes(secured.world):
        for fields, body in (({}, b""), (FIELDS, b""), (FIELDS, BODY), ({}, BODY)):
            response = secured.ask(norm, code, body, fields)
            is_open = code in OPEN_TO_EVERY_USER and "consumerGroup" not in fields
            if is_open and code == RequestCode.HEART_BEAT:
                is_open = False  # these bodies have a consumer group, or are malformed
            assert (response.code == DENIED) is not is_open, (code, fields, response.remark)
            assert not response.body


def test_a_producer_needs_no_right_to_live(secured: Secured) -> None:
    norm = secured.user("norm")
    beat = {"clientID": "c", "producerDataSet": [{"groupName": "P"}]}
    assert secured.ask(norm, RequestCode.HEART_BEAT, beat).code == 0
    assert secured.ask(norm, RequestCode.UNREGISTER_CLIENT, b"", {"clientID": "c"}).code == 0


def test_a_right_to_another_resource_does_not_help(secured: Secured) -> None:
    far = secured.user(
        "far", *(entry(f"{kind}:Other*", "All") for kind in ("Topic", "Group", "Cluster"))
    )
    for code in all_codes(secured.world):
        if code not in OPEN_TO_EVERY_USER:
            assert secured.ask(far, code, BODY, FIELDS).code == DENIED, code


def test_every_code_of_the_broker_has_an_entry_or_is_for_super_users(secured: Secured) -> None:
    changes = {code for code in RequestCode if code.name.startswith("AUTH_")} - set(RIGHTS)
    assert {code.name for code in changes} == {
        "AUTH_CREATE_USER", "AUTH_UPDATE_USER", "AUTH_DELETE_USER", "AUTH_CREATE_ACL",
        "AUTH_UPDATE_ACL", "AUTH_DELETE_ACL",
    }  # fmt: skip
    assert secured.world.table.codes == RIGHTS.keys() | BODY_RIGHTS.keys() | changes
    assert not RIGHTS.keys() & BODY_RIGHTS.keys()


def test_super_users_reach_the_handlers(secured: Secured) -> None:
    for code in all_codes(secured.world):
        if code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            continue
        response = secured.ask(ROOT, code, b"", {})
        if response.code == DENIED:
            assert response.remark == "username can not be blank" or "subject" in response.remark
        if code in UNKNOWN:
            assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def send(topic: str, body: bytes = b"hello") -> tuple[int, bytes, dict[str, str]]:
    fields = {
        "a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
    }  # fmt: skip
    return RequestCode.SEND_MESSAGE_V2, body, fields


def pull(group: str, topic: str) -> tuple[int, bytes, dict[str, str]]:
    fields = {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subVersion": "0", "subscription": "*",
    }  # fmt: skip
    return RequestCode.LITE_PULL_MESSAGE, b"", fields


def test_credentials_that_are_refused(secured: Secured) -> None:
    ann = secured.user("ann", entry("Topic:*", "Pub"))
    assert secured.ask(ann, *send("T")).code == 0

    def without(name: str) -> Callable[[Command], None]:
        return lambda request: request.fields.__delitem__(name)

    def wrong(request: Command) -> None:
        request.body = b"other"

    def one_way(request: Command) -> None:
        request.flag |= 2
        del request.fields["Signature"]

    failed = "check signature failed."
    for change, remark in (
        (without("AccessKey"), "username cannot be null."),
        (without("Signature"), failed),
        (wrong, failed),
        (one_way, failed),
        (lambda request: request.fields.update(e="1"), failed),
        (lambda request: request.fields.update(AccessKey="ghost"), failed),
        (lambda request: request.fields.update(Signature="\u00fc"), failed),
    ):
        response = secured.ask(ann, *send("T"), change=change)
        assert (response.code, response.remark) == (DENIED, remark)
    assert secured.world.broker.store.max_queue_offset("T", 0) == 1


def test_changes_hold_from_the_next_request_on(secured: Secured) -> None:
    ann = secured.user("ann", entry("Topic:T*", "Pub"))
    assert secured.ask(ann, *send("T")).code == 0
    secured.allow(ann, entry("Topic:T", "Pub", decision="Deny"))
    denied = secured.ask(ann, *send("T"))
    assert denied.remark == (
        "User:ann has no permission to access Topic:T from 127.0.0.1, the decision is deny."
    )
    assert secured.ask(ann, *send("T2")).code == 0
    name = {"username": ann}
    secured.ask(ROOT, RequestCode.AUTH_UPDATE_USER, {"userStatus": "disable"}, name)
    assert secured.ask(ann, *send("T2")).remark == "User:ann is disabled."
    secured.ask(ROOT, RequestCode.AUTH_UPDATE_USER, {"userStatus": "enable"}, name)
    secured.ask(ROOT, RequestCode.AUTH_UPDATE_USER, {"password": "new"}, name)
    assert secured.ask(ann, *send("T2")).remark == "check signature failed."
    secured.secrets[ann] = "new"
    assert secured.ask(ann, *send("T2")).code == 0
    secured.ask(ROOT, RequestCode.AUTH_DELETE_ACL, b"", {"subject": "User:ann"})
    assert secured.ask(ann, *send("T2")).remark == (
        "User:ann has no permission to access Topic:T2 from 127.0.0.1, no matched policies."
    )
    secured.ask(ROOT, RequestCode.AUTH_DELETE_USER, b"", name)
    assert secured.ask(ann, *send("T2")).remark == "check signature failed."


def test_a_held_pull_is_answered_when_rights_change(secured: Secured) -> None:
    ann = secured.user("ann", entry("Topic:T", "Pub", "Sub"), entry("Group:g", "Sub"))
    secured.ask(ann, *send("T"))
    code, _, fields = pull("g", "T")
    fields |= {"queueOffset": "1", "sysFlag": "6", "suspendTimeoutMillis": "20000"}
    request = Command(code, fields=fields)
    sign_request(request, ann, secured.secrets[ann])
    world = secured.world
    held = world.table.dispatch(request, world.client, world.now_ms)
    assert isinstance(held, Deferred) and not held.done
    secured.ask(ROOT, RequestCode.AUTH_DELETE_ACL, b"", {"subject": "User:ann"})
    while world.broker.held_pulls.release_some():
        pass
    assert held.done and not held.value.body


def record_offset(secured: Secured, topic: str) -> int:
    """Store a message of a topic as root; returns its log offset."""
    end = secured.world.broker.store.max_log_offset
    assert secured.ask(ROOT, *send(topic)).code == 0
    return end


def test_holes_of_rocketmq_are_closed(secured: Secured) -> None:
    eve = secured.user("eve", entry("Group:own*", "All"), entry("Topic:own*", "All"))
    at = str(record_offset(secured, "Secret"))
    message_id = encode_message_id(secured.world.broker.store_host, int(at))  # type: ignore[arg-type]
    back = {"group": "own", "offset": at, "delayLevel": "0", "originTopic": "own"}
    for code, body, fields in (
        (RequestCode.CONSUMER_SEND_MSG_BACK, b"", back),
        (RequestCode.VIEW_MESSAGE_BY_ID, b"", {"offset": at}),
        (RequestCode.VIEW_MESSAGE_BY_ID, b"", {"offset": at, "topic": "own"}),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, b"",
         {"consumerGroup": "own", "clientId": "c", "msgId": message_id, "topic": "own"}),
        pull("own", "Secret"),
        pull("own", "%RETRY%Secret"),
        pull("own", "%RETRY%other_own"),
        send("%RETRY%other"),
        (RequestCode.BATCH_ACK_MESSAGE,
         {"acks": [{"c": "own", "t": "own"}, {"c": "own", "t": "Secret"}]}, {}),
        (RequestCode.LOCK_BATCH_MQ,
         {"consumerGroup": "own", "mqSet": [{"topic": "own"}, {"topic": "Secret"}]}, {}),
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
         {"topicConfigList": [{"topicName": "own"}, {"topicName": "other"}]}, {}),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": "other"}, {}),
        (RequestCode.CLONE_GROUP_OFFSET, b"",
         {"srcGroup": "other", "destGroup": "own", "topic": "own"}),
        (RequestCode.CLONE_GROUP_OFFSET, b"", {"srcGroup": "own", "destGroup": "own"}),
        (RequestCode.GET_CONSUME_STATS, b"", {"consumerGroup": "own", "topicList": "own;Secret"}),
        (RequestCode.GET_BROKER_CONFIG, b"", {}),
        (RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=5\n", {}),
        (RequestCode.HEART_BEAT,
         {"consumerDataSet": [
             {"groupName": "own", "subscriptionDataSet": [{"topic": "own"}, {"topic": "Secret"}]}
         ]}, {}),
    ):  # fmt: skip
        response = secured.ask(eve, code, body, fields)
        assert response.code == DENIED, (code, fields, body)
    assert secured.ask(eve, *send("own")).code == 0
    assert secured.world.broker.topics.peek_topic("%RETRY%own") is None


def test_the_record_decides_about_a_transaction(secured: Secured) -> None:
    eve = secured.user("eve", entry("Topic:own", "Pub"))
    code, body, fields = send("Secret")
    fields |= {"f": "4", "i": "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01K\x02"}
    at = secured.world.broker.store.max_log_offset
    assert secured.ask(ROOT, code, body, fields).code == 0
    end = {
        "producerGroup": "P", "tranStateTableOffset": "0", "commitLogOffset": str(at),
        "commitOrRollback": "8", "msgId": "K", "topic": "own",
    }  # fmt: skip
    assert secured.ask(eve, RequestCode.END_TRANSACTION, b"", end).code == DENIED
    pat = secured.user("pat", entry("Topic:Secret", "Pub"))
    del end["topic"]
    assert secured.ask(pat, RequestCode.END_TRANSACTION, b"", end).code == 0


def test_a_consumer_with_its_rights(secured: Secured) -> None:
    ann = secured.user("ann", entry("Topic:T", "Sub"), entry("Group:g", "Sub"))
    at = record_offset(secured, "T")
    beat = {
        "clientID": "c",
        "consumerDataSet": [
            {"groupName": "g",
             "subscriptionDataSet": [{"topic": "T", "subString": "*"}, {"topic": "%RETRY%g"}]}
        ],
    }  # fmt: skip
    assert secured.ask(ann, RequestCode.HEART_BEAT, beat).code == 0
    found = secured.ask(ann, *pull("g", "T"))
    assert found.code == 0 and found.body
    back = {"group": "g", "offset": str(at), "delayLevel": "0"}
    assert secured.ask(ann, RequestCode.CONSUMER_SEND_MSG_BACK, b"", back).code == 0
    assert secured.ask(ann, *pull("g", "%RETRY%g")).code != DENIED
    assert secured.ask(ann, *send("%RETRY%g")).code == 0
    queues = {"consumerGroup": "g", "clientId": "c", "mqSet": [{"topic": "T"}]}
    assert secured.ask(ann, RequestCode.LOCK_BATCH_MQ, queues).code == 0
    assert secured.ask(ann, *send("T")).code == DENIED


def test_own_retry_topics_of_pops(secured: Secured) -> None:
    ann = secured.user("ann", entry("Topic:T", "Sub"), entry("Group:g", "Sub"))
    ack = {"consumerGroup": "g", "queueId": "0", "extraInfo": "x", "offset": "0"}
    for topic in ("T", "%RETRY%g", "%RETRY%g_T", "%RETRY%g+T"):
        response = secured.ask(ann, RequestCode.ACK_MESSAGE, b"", {**ack, "topic": topic})
        assert response.code != DENIED, topic
    secured.world.broker.groups.find_or_create("g_T", secured.world.now_ms)
    for topic in ("T2", "%RETRY%g_T", "%RETRY%g_T2", "%RETRY%g+T2", "%RETRY%g2_T"):
        response = secured.ask(ann, RequestCode.ACK_MESSAGE, b"", {**ack, "topic": topic})
        assert response.code == DENIED, topic


def test_a_long_body_is_checked_in_steps(secured: Secured) -> None:
    ann = secured.user("ann", entry("Group:g", "Sub"), entry("Topic:T*", "Sub"))
    queues = [{"topic": f"T{number}"} for number in range(4_000)]
    body = {"consumerGroup": "g", "clientId": "c", "mqSet": queues}
    assert len(json.dumps(body)) > 64 << 10
    assert secured.ask(ann, RequestCode.LOCK_BATCH_MQ, body).code == 0
    queues.append({"topic": "Secret"})
    assert secured.ask(ann, RequestCode.LOCK_BATCH_MQ, body).code == DENIED
    long = b'{"consumerGroup":' + b"[" * 70_000
    assert secured.ask(ann, RequestCode.LOCK_BATCH_MQ, long).code == DENIED


def test_source_addresses(secured: Secured) -> None:
    far = {**entry("Topic:T", "Pub"), "sourceIps": ["10.1.0.0/16", "::1"]}
    ann = secured.user("ann", far)
    assert secured.ask(ann, *send("T")).code == DENIED
    for address, code in (("10.1.2.3:5", 0), ("[::1]:5", 0), ("10.2.0.1:5", DENIED)):
        peer = Peer(address, pack_host(address), secured.world.client._link)
        assert secured.ask(ann, *send("T"), peer=peer).code == code


def test_white_lists(make_world: Callable[..., World]) -> None:
    lists = "authenticationWhitelist=28, 310\nauthorizationWhitelist=28,30\n"
    secured = Secured(make_world(SECURED + lists))
    norm = secured.user("norm")
    assert secured.ask("", RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
    assert secured.ask("", *send("T")).code == DENIED  # an anonymous peer has no right
    forged = secured.ask("", *send("T")[:2], {**send("T")[2], "AccessKey": ROOT})
    assert forged.code == DENIED
    maximum = {"topic": "TBW102", "queueId": "0"}
    assert secured.ask(norm, RequestCode.GET_MAX_OFFSET, b"", maximum).code == 0
    assert secured.ask("", RequestCode.GET_MAX_OFFSET, b"", maximum).code == DENIED
    with pytest.raises(ConfigError):
        load_config(SECURED + "authenticationWhitelist=3001\n")


def test_without_authorization_users_may_do_all_but_manage_users(
    make_world: Callable[..., World],
) -> None:
    secured = Secured(make_world(AUTHENTICATED))
    norm = secured.user("norm")
    assert secured.ask(norm, *send("T")).code == 0
    assert secured.ask("", *send("T")).code == DENIED
    for code in range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1):
        assert secured.ask(norm, code, {"password": "s"}, {"username": "x"}).code == DENIED


def test_without_authentication_nothing_is_checked(world: World) -> None:
    assert world.broker.users is None
    assert world.ask(RequestCode.GET_BROKER_CONFIG).code == 0
    unsupported = world.ask(RequestCode.AUTH_LIST_USER)
    assert unsupported.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_handlers_do_not_see_signatures(secured: Secured) -> None:
    seen: list[dict[str, str]] = []

    def around(handler: Any) -> Any:
        def handle(request: Command, peer: Peer, now_ms: int) -> Any:
            seen.append(dict(request.fields))
            return handler(request, peer, now_ms)

        return handle

    secured.world.table.wrap_handler(RequestCode.SEND_MESSAGE_V2, around)
    code, body, fields = send("T")
    secured.ask(ROOT, code, body, fields)
    assert seen == [{**fields, "AccessKey": ROOT}]


def test_denials_and_changes_are_in_the_audit_log(secured: Secured) -> None:
    secured.user("ann", entry("Topic:T", "Pub"))
    secured.ask("ann", *send("Other"))
    secured.ask("", RequestCode.GET_BROKER_CONFIG)
    folder = secured.world.config.store.root
    with open(f"{folder}/audit/auth-00000001.jsonl") as file:
        lines = [json.loads(line) for line in file]
    assert [(one["event"], one["user"], one["code"]) for one in lines] == [
        ("changed", ROOT, 3001), ("changed", ROOT, 3006), ("denied", "ann", 310),
        ("denied", "", 26),
    ]  # fmt: skip
    assert lines[1]["target"] == "User:ann Allow Topic:T"
    assert "Topic:Other" in lines[2]["reason"]
    assert "secret" not in str(lines)


def test_a_frame_of_another_code_with_the_same_fields(secured: Secured) -> None:
    """The code is not signed; the rights of the code that came count."""
    ann = secured.user("ann", entry("Topic:T", "Get"))
    fields = {"topic": "T", "queueId": "0"}

    def other(request: Command) -> None:
        request.code = RequestCode.DELETE_TOPIC_IN_BROKER

    record_offset(secured, "T")
    assert secured.ask(ann, RequestCode.GET_MIN_OFFSET, b"", fields).code == 0
    assert secured.ask(ann, RequestCode.GET_MIN_OFFSET, b"", fields, change=other).code == DENIED


def test_a_bogus_record_does_not_move_the_decision(secured: Secured) -> None:
    """An offset inside of a body that looks like a record: its text decides, and its text is all
    that is read."""
    eve = secured.user("eve", entry("Topic:own", "Get"))
    fake = struct.pack(">iI", 60, 0xDAA320A7) + bytes(52)
    at = record_offset(secured, "own")
    secured.ask(ROOT, *send("own", fake))
    for offset in range(at, at + 200, 7):
        response = secured.ask(eve, RequestCode.VIEW_MESSAGE_BY_ID, b"", {"offset": str(offset)})
        assert response.code == DENIED or offset == at
