"""An acting replica sends popped messages without an acknowledgement to other groups' masters, and
keeps acknowledged ones (RIP-32, I11, I16)."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.escape.cluster import Replica, bodies, records
from tests.unit.broker.pop.answers import read_offsets

from turbopump.broker.pop.acting_journal import ActingJournal
from turbopump.broker.pop.revive import REVIVE_GROUP
from turbopump.broker.pop.revive_escape import PopEscape
from turbopump.engine.deferred import Deferred
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import NewMessage, QueueOffset
from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    PopMessageRequest,
)
from turbopump.net.wire.message import decode_messages
from turbopump.net.wire.pop_handles import PopHandle
from turbopump.net.wire.pop_records import Acknowledgement, CheckPoint, CheckPointKey, unique_key
from turbopump.net.wire.properties import decode_properties
from turbopump.net.wire.topics import TopicConfig

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
GROUP, RETRY = "g", "%RETRY%g_T"


class Popped(Replica):
    """An acting replica whose dead master handed out messages."""

    def __init__(self, make_world: Callable[..., World]) -> None:
        super().__init__(make_world)
        self.world.broker.groups.put(SubscriptionGroupConfig(GROUP), 1)

    def give(self, *bodies: bytes, topic: str = "T", invisible_ms: int = 5_000) -> CheckPoint:
        """Store messages as a single pop; returns its check point, which is not stored yet."""
        start = max(0, self.world.broker.store.max_queue_offset(topic, 1))
        for body in bodies:
            self.store(topic, 1, body, {"UNIQ_KEY": body.decode()})
        at = QueueOffset(start)
        key = CheckPointKey(topic, GROUP, 1, at, self.world.now_ms, "b")
        return CheckPoint(key, invisible_ms, tuple(range(len(bodies))))

    def log(self, what: CheckPoint | Acknowledgement, due_ms: int, *, waits: bool = True) -> None:
        """Store a check point or an acknowledgement as the master did: as a timer, or in the revive
        queue unless `waits`."""
        is_point = isinstance(what, CheckPoint)
        tag = "ck" if is_point else what.tag
        name = unique_key(what.key, tag, None if is_point else -1)
        properties = {"TAGS": tag, "UNIQ_KEY": name, "TIMER_DELIVER_MS": str(due_ms)}
        if not waits:
            self.store(REVIVE, 3, what.encode_body(), properties)
            return
        properties |= {
            "REAL_TOPIC": REVIVE,
            "REAL_QID": "3",
            "TIMER_OUT_MS": str((due_ms - 1) // 1_000 * 1_000),
        }
        self.store(TIMER_TOPIC, 0, what.encode_body(), properties)

    def pop(self, *bodies: bytes, topic: str = "T", waits: bool = True) -> CheckPoint:
        """Store messages and the check point of their pop."""
        point = self.give(*bodies, topic=topic)
        self.log(point, point.revive_ms - 1_000, waits=waits)
        return point

    def ack(self, point: CheckPoint, *numbers: int, waits: bool = True) -> None:
        """Store an acknowledgement of some of the messages of a check point."""
        at = tuple(QueueOffset(point.key.start + number) for number in numbers)
        self.log(Acknowledgement(point.key, at, is_batch=True), point.revive_ms, waits=waits)

    @property
    def revived_to(self) -> int:
        """The progress of the revive queue."""
        return self.world.broker.offsets.query(REVIVE_GROUP, REVIVE, 3)


@pytest.fixture
def replica(make_world: Callable[..., World]) -> Popped:
    return Popped(make_world)


def taker(replica: Popped, name: str = "m", topic: str = "T") -> World:
    """A master of another group that has the consumer group."""
    world = replica.master(name, topic=topic)
    world.broker.groups.put(SubscriptionGroupConfig(GROUP), 1)
    return world


def read_ms(replica: Popped) -> int:
    return replica.world.broker.timers.replica_checkpoint().read_ms


def test_unacknowledged_messages_come_to_consumers_at_another_master(replica: Popped) -> None:
    other = taker(replica)
    point = replica.pop(b"a", b"b", b"c")
    replica.ack(point, 1)
    end = replica.world.broker.store.max_log_offset
    replica.pass_time(4_900)
    assert bodies(other, RETRY) == []
    replica.pass_time(300)
    assert bodies(other, RETRY) == [b"a", b"c"], "neither early nor acknowledged messages"
    first = records(other, RETRY)[0]
    assert first.reconsume_times == 1
    assert decode_properties(first.properties)["1ST_POP_TIME"] == str(point.key.pop_time_ms)
    assert replica.world.broker.store.max_log_offset == end
    header = PopMessageRequest(GROUP, "T", -1, 32, 60_000, 0, 0, 0)
    response = other.ask(RequestCode.POP_MESSAGE, header)
    assert response.code == 0
    assert b"UNIQ_KEY\x01a" in b"".join(response.body)
    replica.pass_time(60_000)
    assert bodies(other, RETRY) == [b"a", b"c"]
    assert bodies(other, REVIVE) == [], "no check point leaves by itself"
    assert other.broker.groups.get("g_T") is None
    assert read_ms(replica) > point.revive_ms


def test_messages_revived_often_are_no_dead_letters_elsewhere(replica: Popped) -> None:
    other = taker(replica)
    message = NewMessage("T", 1, b"old", b"", reconsume_times=30)
    replica.world.broker.store.append(message, replica.world.now_ms)
    point = replica.give()
    key = point.key._replace(start=QueueOffset(0))
    point = CheckPoint(key, point.invisible_ms, (0,), is_suspended=True)
    replica.log(point, point.revive_ms - 1_000)
    replica.pass_time(6_000)
    assert [one.reconsume_times for one in records(other, RETRY)] == [30]
    other.broker.topics.put(TopicConfig("%RETRY%g", 1, 1), 1)
    again = point.key._replace(topic="%RETRY%g+T", start=QueueOffset(0))
    replica.store("%RETRY%g+T", 1, b"second", {"UNIQ_KEY": "second"})
    replica.log(CheckPoint(again, 1_000, (0,)), replica.world.now_ms + 500)
    replica.pass_time(3_000)
    assert bodies(other, RETRY) == [b"old", b"second"], "each broker reads version 1"
    pulled = point.key._replace(topic="%RETRY%g")
    replica.store("%RETRY%g", 1, b"third", {"UNIQ_KEY": "third"})
    replica.log(CheckPoint(pulled, 1_000, (0,)), replica.world.now_ms + 500)
    replica.pass_time(3_000)
    assert bodies(other, "%RETRY%g") == [b"third"]


def test_check_points_that_were_due_before_meet_later_acknowledgements(replica: Popped) -> None:
    """The master died with check points in the revive queue and their acknowledgements still among
    the timers; a replica that restarts finds these after the progress of its timers."""
    other = taker(replica)
    point = replica.pop(b"a", b"b", waits=False)
    replica.ack(point, 0)
    replica.pass_time(30_000)
    assert bodies(other, RETRY) == [b"b"]
    assert replica.revived_to == 0
    late = replica.pop(b"c", b"d", waits=False)
    replica.ack(late, 0)
    replica.ack(late, 1, waits=False)
    replica.world.broker.role.is_acting = False
    replica.pass_time(10_000)
    durable = replica.world.broker.timers.durable
    durable.current = durable.current._replace(read_ms=replica.world.now_ms)
    replica.world.broker.role.is_acting = True
    replica.pass_time(10_000)
    assert bodies(other, RETRY) == [b"b"]
    assert replica.revived_to == 1


def test_messages_no_master_takes_wait_for_one(replica: Popped) -> None:
    other = taker(replica)
    replica.world.broker.topics.put(other.broker.topics.peek_topic("T"), 1)
    stuck = replica.pop(b"alone", topic="Alone")
    replica.store("Alone", 0, b"-", {})
    replica.pass_time(500)
    replica.pop(b"x")
    before = replica.pop(b"old", topic="Alone", waits=False)
    replica.pop(b"new", waits=False)
    replica.pass_time(10_000)
    assert bodies(other, RETRY) == [b"x"], "it holds up nothing else"
    assert read_ms(replica) <= stuck.revive_ms
    assert before is not None
    late = taker(replica, "n", topic="Alone")
    replica.pass_time(12_000)
    assert bodies(late, "%RETRY%g_Alone") == [b"alone"]
    assert read_ms(replica) > stuck.revive_ms


def test_progress_of_a_revive_queue_keeps_its_order(replica: Popped) -> None:
    replica.pop(b"old", topic="Alone", waits=False)
    replica.pop(b"new", waits=False)
    other = taker(replica)
    replica.pass_time(10_000)
    assert bodies(other, RETRY) == [b"new"]
    assert replica.revived_to == -1
    taker(replica, "n", topic="Alone")
    replica.pass_time(12_000)
    assert replica.revived_to == 1


def test_open_sends_are_bounded(replica: Popped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turbopump.broker.pop.revive_escape.OPEN_MAX", 5)
    for number in range(10):
        replica.pop(b"q%d" % number, topic="Alone", waits=False)
        replica.pop(b"t%d" % number, topic="Alone")
    replica.pass_time(20_000)
    assert replica.world.broker.pop.escaping.open_count == 10
    late = taker(replica, "n", topic="Alone")
    replica.pass_time(30_000)
    found = set(bodies(late, "%RETRY%g_Alone"))
    assert len(found) == 10, "the rest is for the master"
    assert replica.revived_to == 4
    assert read_ms(replica) < replica.world.now_ms - 20_000


def test_an_acknowledgement_that_counts_is_of_any_form(replica: Popped) -> None:
    other = taker(replica)
    point = replica.pop(b"a", b"b")
    one = Acknowledgement(point.key, (QueueOffset(point.key.start + 1),))
    replica.log(one, point.revive_ms)
    junk = CheckPoint(point.key._replace(start=QueueOffset(9)), 10**15, (0,))
    replica.log(junk, point.revive_ms)
    replica.pass_time(20_000)
    assert bodies(other, RETRY) == [b"a"]
    assert read_ms(replica) > point.revive_ms


# Pops at the acting replica


class Acting(Popped):
    """A replica that pops for its dead master, which takes the hand-outs over when it is back."""

    def __init__(self, make_world: Callable[..., World]) -> None:
        super().__init__(make_world)
        self.notes.set_master_takes(master_takes=True)

    @property
    def notes(self) -> ActingJournal:
        """The acting replica's notes: its hand-outs and the acknowledgements it received."""
        return self.world.broker.pop.notes

    def ask_pop(self, **more: Any) -> Command:
        """Send a pop request; returns the response."""
        asked: dict[str, Any] = {"queue_id": -1, "max_msg_nums": 32, "invisible_time": 5_000}
        asked |= {"poll_time": 0, "born_time": self.world.now_ms, "init_mode": 0} | more
        return self.world.ask(RequestCode.POP_MESSAGE, PopMessageRequest(GROUP, "T", **asked))

    def popped(self, **more: Any) -> dict[str, str]:
        """Handles of the messages that one pop returns, by body."""
        response = self.ask_pop(**more)
        if response.code:
            return {}
        found = {}
        for one in decode_messages(b"".join(response.body)):
            start = read_offsets(response.fields["startOffsetInfo"])["0", one.queue_id][0]
            handle = f"{start} {response.fields['popTime']} {response.fields['invisibleTime']}"
            handle += f" {response.fields['reviveQid']} 0 b {one.queue_id} {one.queue_offset}"
            found[bytes(one.body).decode()] = one.properties.get("POP_CK", handle)
        return found

    def acks(self, handle: str) -> int:
        """Acknowledge handles; returns the response code."""
        parts = PopHandle.parse(handle)
        at = parts.queue_offset or 0
        header = AckMessageRequest(GROUP, "T", parts.queue_id, handle, at)
        return self.world.ask(RequestCode.ACK_MESSAGE, header).code

    def fill(self, *bodies: bytes) -> None:
        """Store messages copied from the master."""
        for body in bodies:
            self.store("T", 1, body, {"UNIQ_KEY": body.decode()})


@pytest.fixture
def acting(make_world: Callable[..., World]) -> Acting:
    return Acting(make_world)


def test_a_replica_that_acts_pops_and_writes_nothing(acting: Acting) -> None:
    other = taker(acting)
    acting.fill(b"a", b"b", b"c")
    end = acting.world.broker.store.max_log_offset
    popped = acting.popped()
    assert sorted(popped) == ["a", "b", "c"]
    assert acting.popped() == {}, "they are hidden"
    assert acting.acks(popped["b"]) == 0
    assert [note.acked for note in acting.notes.all_notes()] == [(1,)]
    acting.pass_time(4_900)
    assert bodies(other, RETRY) == []
    acting.pass_time(400)
    assert sorted(bodies(other, RETRY)) == [b"a", b"c"], (
        "messages that were not acknowledged in time"
    )
    assert acting.world.broker.store.max_log_offset == end
    [note] = acting.notes.all_notes()
    assert note.is_complete, "its master will revive none of them"


def test_an_answer_waits_for_the_disk(acting: Acting) -> None:
    acting.fill(b"a", b"b")
    handle = acting.popped(max_msg_nums=1)["a"]
    acting.world.config_disk.hold()
    header = PopMessageRequest(GROUP, "T", -1, 32, 5_000, 0, acting.world.now_ms, 0)
    pop = acting.world.dispatch(new_request(RequestCode.POP_MESSAGE, header))
    parts = PopHandle.parse(handle)
    ack = AckMessageRequest(GROUP, "T", parts.queue_id, handle, 0)
    acked = acting.world.dispatch(new_request(RequestCode.ACK_MESSAGE, ack))
    acting.world.turn()
    assert isinstance(pop, Deferred) and isinstance(acked, Deferred)
    assert not (pop.done or acked.done)
    acting.world.config_disk.release()
    assert (pop.value.code, acked.value.code) == (0, 0)


def test_messages_acknowledged_at_a_replica_do_not_leave_it(acting: Acting) -> None:
    """The master handed the messages out; acknowledgements before and after the revive queues are
    read."""
    other = taker(acting)
    acting.world.broker.role.is_acting = False
    point = acting.pop(b"a", b"b", b"c")
    acting.world.broker.role.is_acting = True
    key = point.key
    handle = f"{key.start} {key.pop_time_ms} {point.invisible_ms} 3 0 b 1 {{}}"
    assert acting.acks(handle.format(0)) == 0
    acting.pass_time(1_000)
    assert acting.acks(handle.format(2)) == 0
    acting.pass_time(6_000)
    assert bodies(other, RETRY) == [b"b"]


def test_a_change_of_time_is_noted(acting: Acting) -> None:
    other = taker(acting)
    acting.fill(b"a", b"b")
    handle = acting.popped()["a"]
    parts = PopHandle.parse(handle)
    at = parts.queue_offset or 0
    header = ChangeInvisibleTimeRequest(GROUP, "T", parts.queue_id, handle, at, 20_000)
    response = acting.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert response.code == 0
    acting.pass_time(10_000)
    assert bodies(other, RETRY) == [b"b"]
    acting.pass_time(11_000)
    assert bodies(other, RETRY) == [b"b", b"a"]


def test_a_restarted_replica_continues_after_its_forwarded_messages(acting: Acting) -> None:
    """The group's offsets were lost: they were not saved after the pop."""
    acting.fill(b"a", b"b", b"c")
    assert sorted(acting.popped(max_msg_nums=2)) == ["a", "b"]
    broker = acting.world.broker
    broker.offsets.remove_group(GROUP)
    acting.world.close()
    acting.world.open()
    acting.world.broker.groups.put(SubscriptionGroupConfig(GROUP), 1)
    acting.start()
    acting.world.pass_time(100)
    assert sorted(acting.popped()) == ["c"]


def test_a_pop_at_a_replica_in_vain(acting: Acting) -> None:
    """Refused are ordered pops, whose records only the log has; pops while the master would not
    take notes over, as RocketMQ's masters; and pops once the master is back."""
    acting.fill(b"a")
    assert acting.ask_pop(order=True).code == 2
    handle = acting.popped()["a"]
    parts = PopHandle.parse(handle)
    ordered = handle.replace(f" {parts.revive_queue_id} 0 b", " 999 0 b")
    assert acting.acks(ordered) == 2
    entry = {"r": "0", "c": GROUP, "t": "T", "so": 0, "pt": parts.pop_time_ms, "it": 5_000}
    entry |= {"rq": 999, "q": 1, "b": base64.b64encode(b"\1").decode()}
    body = encode_json({"brokerName": "b", "acks": [entry]})
    assert acting.world.ask(RequestCode.BATCH_ACK_MESSAGE, None, body).code == 1
    acting.notes.set_master_takes(master_takes=False)
    assert (acting.ask_pop().code, acting.acks(handle)) == (2, 2)
    acting.notes.set_master_takes(master_takes=True)
    assert acting.acks(handle) == 0
    acting.world.broker.role.is_acting = False
    assert (acting.ask_pop().code, acting.acks(handle)) == (2, 2)


def test_a_long_poll_ends_when_the_master_is_back(acting: Acting) -> None:
    assert acting.popped() == {}
    header = PopMessageRequest(GROUP, "T", -1, 32, 5_000, 10_000, acting.world.now_ms, 0)
    waits = acting.world.dispatch(new_request(RequestCode.POP_MESSAGE, header))
    acting.pass_time(200)
    assert isinstance(waits, Deferred) and not waits.done
    acting.world.broker.role.is_acting = False
    acting.pass_time(200)
    assert waits.value.code == 2


def test_partly_forwarded_messages_are_noted_for_the_master(acting: Acting) -> None:
    """A check point has a message that a timer acknowledged and a message that went to another
    master, and an earlier check point holds the progress back."""
    other = taker(acting)
    acting.pop(b"alone", topic="Alone", waits=False)
    point = acting.pop(b"a", b"b", b"c", waits=False)
    acting.ack(point, 0)
    acting.others.codes["m"] = 0
    acting.pass_time(8_000)
    assert sorted(bodies(other, RETRY)) == [b"b", b"c"]
    assert acting.revived_to == -1
    note = acting.notes.get(point.key)
    assert note is not None and sorted(note.acked) == [0, 1, 2]
    assert (note.check_point, note.revive_queue_id) == (None, 3)


def test_results_of_timers_are_noted_for_the_master(acting: Acting) -> None:
    """The master may have the check point in its revive queue, which the replica did not copy, and
    skips timers that its replica has passed."""
    other = taker(acting)
    point = acting.pop(b"a", b"b")
    acting.ack(point, 0)
    acting.pass_time(8_000)
    assert bodies(other, RETRY) == [b"b"]
    note = acting.notes.get(point.key)
    assert note is not None and sorted(note.acked) == [0, 1]


def test_results_of_earlier_timers_are_noted_for_the_master(
    acting: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted replica reads acknowledgements that its timers have already delivered."""
    monkeypatch.setattr(PopEscape, "take_timer_message", lambda self, message, left: left())
    acting.world.broker.role.is_acting = False
    point = acting.pop(b"a", b"b", topic="Alone", waits=False)
    acting.ack(point, 0)
    acting.store(TIMER_TOPIC, 0, b"{", {"TAGS": "ack", "REAL_TOPIC": REVIVE})  # of a client
    acting.pass_time(10_000)
    acting.world.broker.role.is_acting = True
    acting.pass_time(3_000)
    note = acting.notes.get(point.key)
    assert note is not None and note.acked == (0,)


def test_a_pop_that_is_noted_later_leaves_in_its_time(acting: Acting) -> None:
    other = taker(acting)
    acting.pass_time(1_000)
    acting.fill(b"here")
    key = CheckPointKey("T", GROUP, 1, QueueOffset(0), acting.world.now_ms, "b")
    acting.notes.add_check_point(CheckPoint(key, 1_000, (0,)), 3, acting.world.now_ms)
    acting.pass_time(3_000)
    assert bodies(other, RETRY) == [b"here"]


def test_a_pop_of_another_replica_that_is_not_here_yet_is_not_done(acting: Acting) -> None:
    """The other replica had a longer log. Seed 212 of the simulation of pops lost two messages this
    way."""
    other = taker(acting)
    acting.fill(b"here")
    key = CheckPointKey("T", GROUP, 1, QueueOffset(0), acting.world.now_ms, "b")
    acting.notes.add_check_point(CheckPoint(key, 1_000, (0, 1)), 3, acting.world.now_ms)
    acting.pass_time(3_000)
    assert bodies(other, RETRY) == [b"here"]
    note = acting.notes.get(key)
    assert note is not None and note.acked == (0,)
    acting.fill(b"later")
    acting.pass_time(60_000)
    assert bodies(other, RETRY) == [b"here", b"later"]
