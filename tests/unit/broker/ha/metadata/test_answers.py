"""A master's responses to its replica: pages, limits, malformed bodies, and RocketMQ's own
bytes."""

import json
from typing import Any

import pytest
from tests.unit.broker.conftest import offset_json
from tests.unit.broker.ha.pairs import Group, Link
from tests.wire.frames import golden_frames

from turbopump.broker.ha.metadata import answers as metadata_answers
from turbopump.broker.handlers.admin import offsets as admin_offsets
from turbopump.broker.tables.assignment_store import StoredAssignment
from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.command import Command, decode, new_request, new_response
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.topics import TopicConfig


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"{}",
        b'{"topicConfigTable":{}}',
        b'{"topicConfigTable":[]}',
        b'{"dataVersion":7,"topicConfigTable":{"T":{"topicName":"T"}}}',
        b'{"offsetTable":{"T@G":7}}',
        b'{"offsetTable":{"x":{"y":1}}}',
        b'{"offsetTable":{"T@G":{"0":99999999999999999999}}}',
        b'{"subscriptionGroupTable":7}',
        b'{"messageRequestModeMap":{"T":7}}',
        b'{"deletedTopics":{"../../x":0,"T":"y"},"topicConfigTable":{"U":{"topicName":"U"}}}',
    ],
)
def test_nonsense_changes_nothing(group: Group, body: bytes) -> None:
    replica = group.replica.broker
    group.commit(5, group.replica)

    def tables() -> Any:
        return replica.topics.all_topics(), replica.groups.to_json(), offset_json(replica.offsets)

    before = tables()
    group.link.target = lambda request: new_response(request, 0, body=body)
    group.round()
    group.round()
    assert tables() == before
    assert group.follower.error


def test_entries_that_no_broker_has_are_left_out(group: Group) -> None:
    good = TopicConfig("good").to_json()
    topics = {
        "good": good,
        "other": good,
        "../x": {**good, "topicName": "../x"},
        "many": {**good, "topicName": "many", "readQueueNums": 65_537},
        "perm": {**good, "topicName": "perm", "perm": 99},
        "filter": {**good, "topicName": "filter", "topicFilterType": "x"},
        "long" * 100: {**good, "topicName": "long" * 100},
        "attributes": {**good, "topicName": "attributes", "attributes": {"a": "b" * 5_000}},
        "bean": 7,
    }
    groups = {
        "G": SubscriptionGroupConfig("G").to_json(),
        "H": SubscriptionGroupConfig("G").to_json(),
        "L": {**SubscriptionGroupConfig("L").to_json(), "x": "y" * 5_000},
    }
    offsets = {"T@G": {"0": 5, "-1": 5, "3000000000": 5, "1": -4}, "@": {"0": 1}, "T@": {"0": 1}}
    offsets["T@" + "g" * 2_000] = {"0": 1}
    version = {"counter": 50}

    def answer(request: Command) -> Command:
        body = {
            "dataVersion": version,
            "topicConfigTable": topics,
            "subscriptionGroupTable": groups,
            "offsetTable": offsets,
            "messageRequestModeMap": {},
            "table": {},
        }
        if request.code == 45:
            body["offsetTable"] = {}
        if request.code == 60:
            return new_response(request, 0, body=bytes(56))
        return new_response(request, 0, body=json.dumps(body).encode())

    group.link.target = answer
    before = set(group.replica.broker.topics.all_topics())
    group.round()
    replica = group.replica.broker
    assert set(replica.topics.all_topics()) - before == {"good"}
    assert (replica.groups.get("G") is None, replica.groups.get("H")) == (False, None)
    assert replica.groups.get("L") is None
    assert offset_json(replica.offsets)["offsetTable"] == {"T@G": {"0": 5}}
    assert group.follower.error == ""


def test_a_table_larger_than_any_broker_s_is_refused(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_answers, "MAX_TOPICS", 14)
    group.master.broker.topics.put_all([TopicConfig(f"T{n}") for n in range(5)], 3)
    group.round()
    assert group.replica.broker.topics.get("T0") is None
    assert "a broker holds at most 14" in group.follower.error


def test_groups_of_more_bytes_than_a_file_may_have_are_refused(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_answers, "MAX_SIZE", 10_000)
    long = [SubscriptionGroupConfig(f"g{n}", attributes={"a": "b" * 3_000}) for n in range(4)]
    group.master.broker.groups.put_all(long[:1], 3)
    group.round()
    assert group.replica.broker.groups.get("g0") == long[0]
    group.master.broker.groups.put_all(long, 4)
    group.round()
    assert group.replica.broker.groups.get("g1") is None
    assert "a broker holds at most 10000" in group.follower.error


def test_pages_are_put_together(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_answers, "PAGE", 3)
    group.master.broker.topics.put_all([TopicConfig(f"T{n}") for n in range(50)], 3)
    group.round()
    assert group.replica.broker.topics.all_topics() == group.master.broker.topics.all_topics()
    assert group.link.codes.count(21) == -(-len(group.master.broker.topics.all_topics()) // 3)
    sizes = {one.fields["topicSeq"]: one.fields for one in group.link.asked if one.code == 21}
    assert sizes["0"]["dataVersion"] == ""
    assert json.loads(sizes["3"]["dataVersion"])["counter"] == 1


def test_a_table_that_changes_between_two_pages_is_begun_again(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_answers, "PAGE", 5)
    changes = iter(["new 1", "new 2"])

    def answer(request: Command) -> Command | str:
        if request.code == 21 and request.fields["topicSeq"] == "5":
            name = next(changes, None)
            if name is not None:
                group.master.broker.topics.put(TopicConfig(name.replace(" ", "_")), 3)
        return Link(group.master).answer(request)

    group.link.target = answer
    group.round()
    assert group.replica.broker.topics.all_topics() == group.master.broker.topics.all_topics()


def test_pages_that_never_end_are_given_up(group: Group) -> None:
    def answer(request: Command) -> Command:
        number = int(request.fields.get("topicSeq", 0))
        topic = TopicConfig(f"T{number}").to_json()
        body = json.dumps({"topicConfigTable": {f"T{number}": topic}}).encode()
        return new_response(request, 0, header=None, body=body)

    def endless(request: Command) -> Command:
        made = answer(request)
        made.fields["totalTopicNum"] = "2000000"
        return made

    group.link.target = endless
    group.round()
    assert len(group.link.asked) <= 5_000
    assert "changed between pages, or has too many pages" in group.follower.error


# Message request modes


def test_modes_of_a_rocketmq_master_are_kept_and_told(group: Group) -> None:
    mode = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 8, "topic": "T"}
    body = json.dumps({"messageRequestModeMap": {"T": {"G": mode}}}).encode()

    def answer(request: Command) -> Command | str:
        if request.code == 402:
            return new_response(request, 0, body=body)
        return Link(group.master).answer(request)

    group.link.target = answer
    group.round()
    group.replica.close()
    group.replica.open()
    assert json.loads(group.replica.ask(402).body) == json.loads(body)


def test_the_last_assignments_are_copied_when_they_are_others(group: Group) -> None:
    """A replica that coordinates or becomes master starts with these assignments."""

    def kept(generation: int) -> StoredAssignment:
        return StoredAssignment(
            "G", "T", "STICKY", generation, 5, {"c": [MessageQueue("T", "a", 1)]}
        )

    mine, theirs = (one.broker.assignments.kept for one in (group.replica, group.master))
    theirs.put(kept(3))
    group.round()
    assert mine.get("G", "T") == kept(3)
    group.round()
    requests = [request.fields for request in group.link.asked if request.code == 402]
    assert [fields["assignmentsVersion"] for fields in requests][-1] == theirs.version
    mine.put(kept(9))  # it coordinated meanwhile, and has a newer table
    theirs.put(kept(4))
    group.round()
    assert mine.get("G", "T") == kept(9)
    group.replica.close()
    group.replica.open()
    assert group.replica.broker.assignments.kept.get("G", "T") == kept(9)


# Large tables


def test_many_offsets_are_written_by_another_thread(group: Group) -> None:
    for queue_id in range(admin_offsets.MAX_INLINE_QUEUES + 1):
        group.master.broker.offsets.commit("G", "T", queue_id, QueueOffset(1), 5)
    group.master.config_disk.hold()
    response = group.master.dispatch(new_request(43))
    assert isinstance(response, Deferred)
    assert not response.done
    group.commit(9)
    group.master.config_disk.release()
    offsets = json.loads(bytes(response.value.body))["offsetTable"]["T@G"]
    assert len(offsets) == admin_offsets.MAX_INLINE_QUEUES + 1
    assert offsets["0"] == 1, "as it was when it was asked for"


@pytest.mark.parametrize("stopped", [False, True])
def test_large_answers_are_read_by_another_thread(
    group: Group, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """Data read in a term that has ended meanwhile is discarded."""
    group.round()
    monkeypatch.setattr(metadata_answers, "MAX_INLINE", 0)
    group.commit(7)
    group.replica.config_disk.hold()
    group.round()
    assert group.link.codes[7:] == [21]
    if stopped:
        group.follower.stop()
    group.replica.config_disk.release()
    assert group.offset() == (-1 if stopped else 7)
    assert group.link.codes[7:] == ([21] if stopped else [21, 201, 43, 45, 60, 61, 402])


def test_nonsense_that_another_thread_reads_is_nonsense(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_answers, "MAX_INLINE", 0)
    group.link.target = lambda request: new_response(request, 0, body=b'{"offsetTable":7}')
    group.round()
    assert "offsetTable is a number, not an object" in group.follower.error


# A RocketMQ 5.5.0 on the other side

FOLLOWED = (21, 43, 45, 60, 61, 201, 402)


def exchanges(name: str) -> list[tuple[Command, Command]]:
    """Requests of a RocketMQ replica to its master, with the responses."""
    frames = {one.truth["frame"]: one for one in golden_frames(name)}
    found = []
    for one in frames.values():
        pair = frames.get(one.truth["pair"])
        if one.truth["kind"] == "response" and pair is not None and pair.truth["code"] in FOLLOWED:
            found.append((decode(pair.frame), decode(one.frame)))
    return found


@pytest.mark.parametrize("name", ["plain-ha", "controller-json", "controller-mixed"])
def test_a_rocketmq_master_is_followed(group: Group, name: str) -> None:
    recorded = {int(request.code): answer for request, answer in exchanges(name)}

    def answer(request: Command) -> Command:
        if request.code in recorded:
            return recorded[request.code]
        if request.code == 60:
            return new_response(request, 1, "The checkpoint is null")
        return new_response(request, 0, body=b'{"table":{"commitLogMaxOffset":"576142"}}')

    group.link.target = answer
    group.replica.set_clock(1_795_270_500_000 - group.replica.now_ms)
    group.round()
    broker = group.replica.broker
    lost = "topics: the broker has no topics: its table is lost"
    assert group.follower.error == ("" if 21 in recorded else lost)
    for code, table in ((201, broker.groups), (43, broker.offsets), (21, broker.topics)):
        if code in recorded:
            theirs = fastjson.loads(recorded[code].body)
            assert table.data_version.to_json() == theirs["dataVersion"]
    theirs = fastjson.loads(recorded[45].body)
    assert broker.delay.durable.data_version.to_json() == theirs["dataVersion"]
    if 21 in recorded:
        theirs = fastjson.loads(recorded[21].body)["topicConfigTable"]
        mine = {name: one.to_json() for name, one in broker.topics.all_topics().items()}
        assert {name: mine[name] for name in theirs} == theirs
        assert broker.topics.data_version.state_version > 0


@pytest.mark.parametrize("name", ["plain-ha", "controller-json", "controller-mixed"])
def test_it_is_asked_as_its_own_replica_asks(group: Group, name: str) -> None:
    theirs = {int(request.code): request for request, _ in exchanges(name)}
    group.round()
    ours = {int(request.code): request for request in group.link.asked}
    for code, request in theirs.items():
        more = {21: {"deletedTopics": "true"}, 402: {"assignmentsVersion": ""}}.get(code, {})
        assert ours[code].fields == {**request.fields, **more}
        assert bytes(ours[code].body) == bytes(request.body) == b""


@pytest.mark.parametrize("name", ["plain-ha", "controller-json", "controller-mixed"])
def test_its_replica_is_answered_as_by_its_own_master(group: Group, name: str) -> None:
    master = group.master.broker
    seen = set()
    for request, theirs in exchanges(name):
        ours = Link(group.master).answer(request)
        assert isinstance(ours, Command)
        assert (ours.code, ours.fields.keys()) == (theirs.code, theirs.fields.keys())
        if request.code == 60:
            assert len(ours.body) == len(theirs.body) == 56
            continue
        members, expected = json.loads(bytes(ours.body)), fastjson.loads(theirs.body)
        assert members.keys() == expected.keys()
        assert members.get("dataVersion", {}).keys() == expected.get("dataVersion", {}).keys()
        seen.add(int(request.code))
    assert seen >= {43, 45, 201, 402}
    topics = json.loads(bytes(Link(group.master).answer(new_topics_request()).body))
    assert topics["topicConfigTable"].keys() == master.topics.all_topics().keys()


def new_topics_request() -> Command:
    """The request for all topics as RocketMQ's replica sends it."""
    return next(request for request, _ in exchanges("controller-json") if request.code == 21)


def test_fields_only_our_replicas_read_are_not_sent_to_others(group: Group) -> None:
    def asked(code: int, fields: dict[str, str]) -> Any:
        return json.loads(bytes(group.master.ask_fields(code, fields).body))

    assert "loweredTable" not in asked(43, {})
    group.commit(5)
    group.commit(4)
    assert asked(43, {})["loweredTable"]["T@G"].keys() == {"0"}
    group.master.ask_fields(215, {"topic": "gone"})
    fields = new_topics_request().fields
    assert "deletedTopics" not in asked(21, fields)
    assert asked(21, {**fields, "deletedTopics": "true"})["deletedTopics"] == {"gone": 0}
