"""Pop requests that no consumer sends: each is answered and does not disturb other requests."""

import json
from typing import Any

import pytest
from tests.unit.broker.pop.poppers import INVISIBLE_MS, Popper

from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.broker.pop.waiters import ENDS_MAX, MAX_OF_GROUP, MAX_SIZE
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.pop import ChangeInvisibleTimeRequest
from turbopump.net.wire.pop_records import Acknowledgement, CheckPoint, CheckPointKey
from turbopump.net.wire.properties import encode_properties

HELD = 10_000
LOG = "rmq_sys_REVIVE_LOG_DefaultCluster"


def handle(*, start: str = "0", popped: str = "", hidden: str = "900", broker: str = "") -> str:
    """A forged handle."""
    return f"{start} {popped or 1} {hidden} 0 0 {broker or 'broker-a'} 0 0"


@pytest.mark.parametrize(
    "text",
    [
        handle(start="-1"),
        handle(start=str(2**63)),
        handle(popped="-1"),
        handle(popped=str(2**63)),
        handle(hidden="-1"),
        handle(hidden=str(2**63)),
    ],
)
def test_numbers_that_no_handle_has(popper: Popper, text: str) -> None:
    popper.send("a")
    [(_, good)] = popper.pop()
    assert popper.ack(good, extra_info=text).code == ResponseCode.MESSAGE_ILLEGAL
    header = ChangeInvisibleTimeRequest("g", "T", 0, text, 0, 900)
    changed = popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert changed.code == ResponseCode.MESSAGE_ILLEGAL


def test_an_acknowledgement_of_a_time_to_come_is_refused(popper: Popper) -> None:
    """The record of such an acknowledgement would wait longer than a timer may."""
    popper.send("a")
    [(_, good)] = popper.pop()
    end = popper.world.broker.store.max_log_offset
    response = popper.ack(good, extra_info=handle(popped=str(2**61)))
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert popper.world.broker.store.max_log_offset == end


@pytest.mark.parametrize("invisible_ms", [-1, 2**62, 2**63 - 1])
def test_times_that_no_message_is_hidden_for(popper: Popper, invisible_ms: int) -> None:
    popper.send("a")
    [(_, good)] = popper.pop()
    header = ChangeInvisibleTimeRequest("g", "T", 0, good, 0, invisible_ms)
    response = popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert response.code == ResponseCode.INVALID_PARAMETER
    popper.world.pass_time(INVISIBLE_MS + 300)
    assert [body for body, _ in popper.pop()] == ["a"]


def test_handles_of_other_groups_and_brokers_acknowledge_nothing(popper: Popper) -> None:
    """A handle acknowledges only for its own group and broker."""
    popper.send("a")
    [(_, good)] = popper.pop()
    assert popper.ack(good, consumer_group="others").code == ResponseCode.SUCCESS
    elsewhere = good.replace("broker-a", "broker-b")
    assert popper.ack(good, extra_info=elsewhere).code == ResponseCode.SUCCESS
    popper.world.pass_time(INVISIBLE_MS + 300)
    assert [body for body, _ in popper.pop()] == ["a"]


def test_ten_thousand_pops_that_wait(popper: Popper) -> None:
    """A group may hold only a part of the waiting pops; all are answered at their timeout."""
    waiters = popper.world.broker.pop.waiters
    groups = -(-HELD // MAX_OF_GROUP)
    for number in range(HELD):
        asked = popper.request(poll_time=1_000, consumer_group=f"g{number % groups}")
        assert isinstance(asked, Deferred)
    assert waiters.count == HELD and waiters.size < MAX_SIZE
    for _ in range(MAX_OF_GROUP - waiters.number_of("T", "g0", -1)):
        popper.request(poll_time=1_000, consumer_group="g0")
    full = popper.request(poll_time=1_000, consumer_group="g0")
    full = full.value if isinstance(full, Deferred) else full
    assert full.code == ResponseCode.POLLING_FULL
    popper.world.pass_time(1_100)
    for _ in range(waiters.count // ENDS_MAX + 1):
        waiters.wake_waiters()
    assert waiters.count == waiters.size == 0


NO_NAMES = ["g\x02", "\x02", "g\x01h", "g\n", "", " ", "\ud800", "g" * 121, "g" * 40_000]
"""Names that no group has: with separators of properties, and similar ones."""


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_group_that_none_is_called_costs_the_others_no_answer(popper: Popper, name: str) -> None:
    """Acknowledgements received in the same turn are written together."""
    world = popper.world
    popper.send("a", "b")
    (_, first), (_, second) = popper.pop()
    bad = popper.header(first, consumer_group=name)
    asked = [
        world.dispatch(popper.acknowledgement(first)),
        world.dispatch(new_request(RequestCode.ACK_MESSAGE, bad)),
        world.dispatch(popper.acknowledgement(second)),
    ]
    world.turn()
    codes = [one.value.code if isinstance(one, Deferred) else one.code for one in asked]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SUCCESS]
    world.pass_time(INVISIBLE_MS + 300)
    assert popper.pop() == []


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_group_that_none_is_called_changes_no_time(popper: Popper, name: str) -> None:
    popper.send("a")
    [(_, good)] = popper.pop()
    end = popper.world.broker.store.max_log_offset
    header = ChangeInvisibleTimeRequest(name, "T", 0, good, 0, 900)
    changed = popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert changed.code == ResponseCode.MESSAGE_ILLEGAL
    assert popper.world.broker.store.max_log_offset == end


@pytest.mark.parametrize("name", NO_NAMES)
def test_the_rest_of_a_batch_with_such_a_group_is_acknowledged(popper: Popper, name: str) -> None:
    popper.send("a")
    [(_, good)] = popper.pop()
    start, popped, hidden, revive, *_ = good.split(" ")
    entry: dict[str, Any] = {
        "c": "g", "t": "T", "r": "0", "so": int(start), "pt": int(popped), "it": int(hidden),
        "rq": int(revive), "q": 0, "b": "AQ==",
    }  # fmt: skip
    body = json.dumps({"brokerName": "broker-a", "acks": [{**entry, "c": name}, entry]})
    response = popper.world.ask(RequestCode.BATCH_ACK_MESSAGE, body=body.encode())
    assert response.code == ResponseCode.SUCCESS
    popper.world.pass_time(INVISIBLE_MS + 300)
    assert popper.pop() == []


def test_a_record_that_fails_takes_the_answers_of_no_others(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No code above the joined write could answer after a failure."""
    world = popper.world
    popper.send("a", "b")
    popper.send("c", queue_id=1)
    handles = dict(popper.pop())
    whole = ReviveLog.add_ack

    def fail(self: ReviveLog, ack: Acknowledgement, *rest: int) -> Deferred[PutStatus]:
        if ack.key.queue_id == 0:
            raise OSError("a disk")
        return whole(self, ack, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(ReviveLog, "add_ack", fail)
        asked = [world.dispatch(popper.acknowledgement(handles[body])) for body in "abc"]
        world.turn()
    assert all(isinstance(one, Deferred) and one.done for one in asked)
    codes = [one.value.code for one in asked if isinstance(one, Deferred)]
    assert codes == [ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS]


def test_a_waiting_pop_that_fails_is_answered_and_the_next_one_wakes(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = popper.world
    waits = [popper.request(poll_time=5_000, consumer_group=group) for group in ("g", "h")]
    whole = world.broker.pop.popping.next_offset

    def fail(wish: Any, *rest: Any) -> QueueOffset:
        if wish.group == "g":
            raise OSError("a disk")
        return whole(wish, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(type(world.broker.pop.popping), "next_offset", lambda _self, *of: fail(*of))
        popper.send("a")
        world.turn()
    responses = [one.value for one in waits if isinstance(one, Deferred) and one.done]
    assert [each.code for each in responses] == [ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS]
    assert "a disk" in responses[0].remark


def test_a_group_whose_name_a_file_brought_is_answered(popper: Popper) -> None:
    """Records of this group cannot be written: no message is handed out, and no pop waits
    forever."""
    group = SubscriptionGroupConfig(group_name="g\x02")
    popper.world.broker.groups.put(group, popper.world.now_ms)
    popper.send("a")
    for _ in range(2):
        response = popper.request(consumer_group="g\x02")
        response = response.value if isinstance(response, Deferred) else response
        assert isinstance(response, Command) and response.code == ResponseCode.SYSTEM_ERROR
        assert "check points are not stored" in (response.remark or "")
    assert [body for body, _ in popper.pop()] == ["a"]


@pytest.mark.parametrize("name", ["x\x02", "x" * 256])
@pytest.mark.parametrize("member", ["t", "c", "bn"])
def test_a_client_s_check_point_with_no_name_keeps_no_others(
    popper: Popper, name: str, member: str
) -> None:
    """Such a check point of another broker would be postponed by a record with the same names, at
    each step."""
    world = popper.world
    key = CheckPointKey("T", "g", 0, QueueOffset(0), world.now_ms - 1, "broker-b")
    members = json.loads(CheckPoint(key, 0, (0,)).encode_body()) | {member: name}
    topic, properties = world.broker.pop.log.topic, {"TAGS": "ck", "UNIQ_KEY": "k"}
    now_ms = world.now_ms
    for queue_id in range(8):
        world.broker.writer.put_record(
            topic, queue_id, encode_json(members), properties, now_ms, now_ms
        )
    popper.send("a")
    popper.pop()
    world.pass_time(INVISIBLE_MS + 300)
    assert [body for body, _ in popper.pop()] == ["a"]


def test_groups_that_are_not_there_have_no_figures(popper: Popper) -> None:
    popper.send("a")
    [(_, good)] = popper.pop()
    for number in range(100):
        header = ChangeInvisibleTimeRequest(f"none{number}", "T", 0, good, 0, 900)
        changed = popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        assert changed.code == ResponseCode.SUCCESS
    assert set(popper.world.broker.pop.in_flight.counts_by_group(popper.world.now_ms)) == {"g"}


def send_record(popper: Popper, properties: dict[str, str], body: bytes, **fields: str) -> Command:
    asked = {
        "a": "p", "b": LOG, "c": "TBW102", "d": "8", "e": "0", "f": "0", "g": "0", "h": "0",
        "i": encode_properties(properties).decode(), "j": "0", "k": "false", "m": "false", **fields,
    }  # fmt: skip
    request = new_request(RequestCode.SEND_MESSAGE_V2, fields=asked, body=body)
    response = popper.world.dispatch(request)
    return response.value if isinstance(response, Deferred) else response


def test_the_revive_topic_takes_the_records_of_brokers_alone(popper: Popper) -> None:
    world = popper.world
    key = CheckPointKey("T", "g", 0, QueueOffset(0), world.now_ms, "broker-a")
    point = CheckPoint(key, 900, (0,)).encode_body()
    ack = Acknowledgement(key, (QueueOffset(0),)).encode_body()
    due = {"TIMER_DELIVER_MS": str(world.now_ms + 900)}
    refused = [
        ({"TAGS": "ck", "TIMER_DELIVER_MS": "²²"}, point),
        ({"TAGS": "ck", "TIMER_DELIVER_MS": "-1"}, point),
        ({"TAGS": "ck"}, b"{}"),
        ({"TAGS": "ck"}, ack),
        ({"TAGS": "ack"}, b"[" * 100),
        ({"TAGS": "order"}, point),
        ({}, point),
        ({"TAGS": "ck", "DELAY": "3"}, point),
        ({"TAGS": "ck", "TRAN_MSG": "true"}, point),
        ({"TAGS": "ck", "TIMER_DEL_UNIQKEY": "LOG+k", **due}, point),
    ]
    end = world.broker.store.max_log_offset
    for properties, body in refused:
        response = send_record(popper, properties, body)
        assert response.code == ResponseCode.MESSAGE_ILLEGAL, properties
        assert "no record of a broker" in (response.remark or "")
    assert send_record(popper, {"TAGS": "ck"}, point, m="true").code != ResponseCode.SUCCESS
    assert world.broker.store.max_log_offset == end
    for properties, body in (({"TAGS": "ck", **due}, point), ({"TAGS": "ack", **due}, ack)):
        assert send_record(popper, properties, body).code == ResponseCode.SUCCESS
    lane, host = world.broker.fast.lane, world.client.host
    assert lane.put_send(LOG.encode(), 0, b"", b"x", world.now_ms, host) is None
