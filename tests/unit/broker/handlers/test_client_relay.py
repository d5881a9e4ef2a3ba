"""Requests that the broker relays to clients: 307, 309, 223 and the push of a reset (remoting.md
15)."""

from typing import Any

import pytest

from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.queues import MessageQueue


def online(admin: Any, client: str = "c1", **members: Any) -> Any:
    peer = admin.connect(**members)
    admin.heartbeat(peer, client, admin.consumer("g", "T"))
    return peer.context["wire"]


def test_running_info_is_relayed_unchanged(admin: Any) -> None:
    wire = online(admin)
    response = admin.begin(307, consumerGroup="g", clientId="c1", jstackEnable=False)
    assert isinstance(response, Deferred)
    assert not response.done
    (asked,) = wire.take(307)
    assert asked.fields == {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "false"}
    assert not asked.is_oneway
    wire.answer(asked, 0, b"{info}", remark="as it is", fields={"x": "y"})
    assert (response.value.code, response.value.remark) == (0, "as it is")
    assert (response.value.body, response.value.fields) == (b"{info}", {"x": "y"})
    assert response.value.opaque == 7


def test_a_client_that_says_no_is_relayed_too(admin: Any) -> None:
    wire = online(admin)
    response = admin.begin(307, consumerGroup="g", clientId="c1")
    wire.answer(wire.take(307)[0], 1, remark="cannot")
    assert (response.value.code, response.value.remark) == (1, "cannot")


def test_a_silent_client_times_out(admin: Any) -> None:
    wire = online(admin)
    response = admin.begin(307, consumerGroup="g", clientId="c1")
    wire.time_out()
    assert response.value.code == 207


def test_a_client_that_goes_away_is_an_error(admin: Any) -> None:
    wire = online(admin)
    response = admin.begin(307, consumerGroup="g", clientId="c1")
    wire.peer.lost()
    assert response.value.code == 1
    assert "connection closed" in response.value.remark


@pytest.mark.parametrize(("group", "client"), [("g", "other"), ("h", "c1")])
def test_a_client_that_is_not_there(admin: Any, group: str, client: str) -> None:
    online(admin)
    response = admin.ask(307, consumerGroup=group, clientId=client)
    assert (response.code, response.remark) == (1, f"The Consumer <{group}> <{client}> not online")


def test_a_client_that_is_too_old(admin: Any) -> None:
    online(admin, version=61)
    response = admin.ask(307, consumerGroup="g", clientId="c1")
    assert response.code == 1
    assert "Version <61> too low" in response.remark


def test_direct_consumption_carries_the_record(admin: Any) -> None:
    wire = online(admin)
    sent = admin.send("T", b"look at me")
    response = admin.begin(
        309, consumerGroup="g", clientId="c1", msgId=sent.fields["msgId"], topic="T"
    )
    (asked,) = wire.take(309)
    assert asked.fields["brokerName"] == admin.broker.config.broker_name
    assert asked.body == bytes(admin.broker.store.record_view(0))
    wire.answer(asked, 0, b'{"consumeResult":"CR_SUCCESS"}')
    assert response.value.body == b'{"consumeResult":"CR_SUCCESS"}'


@pytest.mark.parametrize("message_id", ["", "nonsense", "7F000001000055AA0000000000FFFFFF"])
def test_direct_consumption_of_nothing(admin: Any, message_id: str) -> None:
    online(admin)
    assert admin.ask(309, consumerGroup="g", clientId="c1", msgId=message_id).code == 1


def status(offset: int) -> bytes:
    key = MessageQueue("T", "b", 0).bean_key()
    return f'{{"messageQueueTable":{{{key}:{offset}}}}}'.encode()


def test_consumer_status_collects_from_every_client(admin: Any) -> None:
    first, second = online(admin, "c1"), online(admin, "c2")
    response = admin.begin(223, topic="T", group="g")
    for number, wire in enumerate((first, second)):
        (asked,) = wire.take(221)
        assert asked.fields == {"topic": "T", "group": "g"}
        assert not response.done
        wire.answer(asked, 0, status(number + 4))
    key = MessageQueue("T", "b", 0).bean_key()
    text = bytes(response.value.body).decode()
    assert text == f'{{"consumerTable":{{"c1":{{{key}:4}},"c2":{{{key}:5}}}}}}'


def test_consumer_status_leaves_out_silent_members(admin: Any) -> None:
    wires = [online(admin, f"c{number}") for number in range(4)]
    response = admin.begin(223, topic="T", group="g", clientAddr="")
    wires[0].answer(wires[0].take(221)[0], 1)
    wires[1].answer(wires[1].take(221)[0], 0, b"[")
    wires[2].time_out()
    wires[3].answer(wires[3].take(221)[0], 0, b'{"messageQueueTable":{"x":1}}')
    assert fastjson.loads(response.value.body) == {"consumerTable": {}}


def test_consumer_status_of_one_client(admin: Any) -> None:
    first, second = online(admin, "c1"), online(admin, "c2")
    response = admin.begin(223, topic="T", group="g", clientAddr="c2")
    assert first.take(221) == []
    second.answer(second.take(221)[0], 0, status(1))
    assert list(fastjson.loads(response.value.body)["consumerTable"]) == ["c2"]
    assert admin.json(223, topic="T", group="g", clientAddr="c9") == {"consumerTable": {}}


def test_consumer_status_of_no_members_and_of_old_clients(admin: Any) -> None:
    assert admin.ask(223, topic="T", group="g").code == 206
    online(admin, version=27)
    assert admin.ask(223, topic="T", group="g").code == 1


@pytest.fixture
def by_clients(make_admin: Any) -> Any:
    """A broker that lets clients carry out resets."""
    admin = make_admin("useServerSideResetOffset=false\n")
    admin.create_topic("T", 2)
    for number in range(3):
        admin.send("T", b"%d" % number)
    for queue in range(2):
        admin.broker.offsets.commit("g", "T", queue, 2, admin.now_ms)
    admin.ask(200, {"groupName": "g"})
    return admin


def test_a_reset_by_clients_is_pushed_to_all(by_clients: Any) -> None:
    java, cpp = online(by_clients, "c1"), online(by_clients, "c2", language="CPP")
    response = by_clients.ask(222, topic="T", group="g", timestamp=0, isForce=True)
    keys = [MessageQueue("T", "broker-a", number) for number in range(2)]
    raw = ",".join(f"{key.bean_key()}:0" for key in keys)
    assert bytes(response.body).decode() == f'{{"offsetTable":{{{raw}}}}}'
    (pushed,) = java.take(220)
    assert pushed.is_oneway
    assert pushed.body == response.body
    assert (pushed.fields["topic"], pushed.fields["group"]) == ("T", "g")
    assert (pushed.fields["timestamp"], pushed.fields["isForce"]) == ("0", "true")
    (listed,) = cpp.take(220)
    assert fastjson.loads(listed.body) == {
        "offsetTable": [{**key.to_json(), "offset": 0} for key in keys]
    }
    assert by_clients.broker.offsets.query("g", "T", 0) == 2


def test_a_reset_without_force_only_goes_back(by_clients: Any) -> None:
    online(by_clients)
    body = by_clients.json(222, topic="T", group="g", timestamp=-1, isForce=False)
    assert list(body["offsetTable"].values()) == [2, 0]


def test_a_reset_by_clients_needs_progress_and_clients(by_clients: Any) -> None:
    response = by_clients.ask(222, topic="T", group="g", timestamp=0, isForce=True)
    assert response.code == 206
    by_clients.ask(200, {"groupName": "h"})
    assert by_clients.ask(222, topic="T", group="h", timestamp=0, isForce=True).code == 1
    online(by_clients, version=27)
    assert by_clients.ask(222, topic="T", group="g", timestamp=0, isForce=True).code == 1
