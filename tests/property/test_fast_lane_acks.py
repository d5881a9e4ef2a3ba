"""Native acknowledgements against the handlers': the same responses, records and metrics.

Two brokers pop the same messages by their handlers and get the same acknowledgements: one over a
connection with a lane, cut into reads anywhere, the other by its handlers. Where the handlers serve
some requests of a read, those have records of their own with the same content; else all bytes are
the same.
"""

import tempfile
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.lane.world import ADDRESS, Driven, finish, handle, make
from tests.property.test_fast_lane import KEYED, files_of, send_to
from tests.shortcuts.addresses import pack_host
from tests.unit.broker.conftest import World

from turbopump.broker.tables.groups import FORBIDDEN_READ
from turbopump.broker.tables.statistics import GROUP_ACK_NUMS
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import FlushMode, QueueOffset
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, Command, decode, new_request
from turbopump.net.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    PopMessageRequest,
)
from turbopump.net.wire.pop_handles import read_start_offsets
from turbopump.net.wire.pop_records import Acknowledgement, CheckPointKey
from turbopump.net.wire.properties import decode_properties
from turbopump.net.wire.topics import TopicConfig

SIZES = "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=20000\nmaxMessageSize=4000\n"
SENT = 40
GROUPS = ["live", "tagged"]
INVISIBLE_MS = [900, 60_000]
WRONG = [
    "group", "topic", "queue", "offset", "broker", "revive", "short", "long", "late", "time",
    "quoted", "kind",
]  # fmt: skip

POP = {"group": "live", "max": 32, "invisible_ms": 60_000, "ordered": False}
ONE = {"pop": 0, "at": 0, "count": 1, "group": None, "oneway": False, "wrong": None}

acks = st.fixed_dictionaries(
    {
        "pop": st.integers(0, 5),
        "at": st.integers(0, 7),
        "count": st.sampled_from([1, 1, 3, 40]),
        "group": st.sampled_from([*GROUPS, None, None, None]),
        "oneway": st.sampled_from([False] * 5 + [True]),
        "wrong": st.sampled_from([None] * 14 + WRONG),
    }
)
pops = st.fixed_dictionaries(
    {
        "group": st.sampled_from(GROUPS),
        "max": st.sampled_from([1, 8, 32]),
        "invisible_ms": st.sampled_from(INVISIBLE_MS),
        "ordered": st.sampled_from([False] * 7 + [True]),
    }
)
steps = st.integers(0, 19).flatmap(
    lambda number: (
        acks
        if number < 13
        else pops
        if number < 16
        else st.just("send")
        if number < 17
        else st.sampled_from(["read", "time", "tick", "back", "narrow", "ban", "role", "delete"])
    )
)


class Acking:
    """A broker whose messages are popped, with the receipts that its consumers have."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.popped: list[tuple[str, str, list[tuple[str, int, int]]]] = []
        for queue_id in (0, 1):
            for number in range(SENT // 2):
                self.send(queue_id, number)

    def send(self, queue_id: int, number: int) -> None:
        fields = {
            "a": "p", "b": "Plain", "c": "TBW102", "d": "8", "e": str(queue_id), "f": "0",
            "g": str(self.world.now_ms), "h": "0", "j": "0", "k": "false", "m": "false",
            "i": send_to(0, f"{KEYED}KEYS\x01{number}\x02")["properties"],
        }  # fmt: skip
        request = new_request(RequestCode.SEND_MESSAGE_V2, fields=fields, body=b"x")
        handle(self.world, self.peer(), request, {})

    def peer(self) -> Peer:
        return Peer(ADDRESS, pack_host(ADDRESS), None)  # type: ignore[arg-type]

    def pop(self, step: dict[str, Any]) -> None:
        header = PopMessageRequest(
            consumer_group=step["group"],
            topic="Plain",
            queue_id=0 if step["ordered"] else -1,
            max_msg_nums=step["max"],
            invisible_time=step["invisible_ms"],
            poll_time=0,
            born_time=self.world.now_ms,
            init_mode=0,
            order=step["ordered"],
        )
        responses: dict[int, list[bytes]] = {}
        request = new_request(RequestCode.POP_MESSAGE, header)
        handle(self.world, self.peer(), request, responses)
        answered = decode(responses[request.opaque][0])
        if answered.code == 0:
            self.popped.append((step["group"], "Plain", messages(answered)))

    def change(self, step: str) -> None:
        world = self.world
        if step == "send":
            self.send(0, 99)
        elif step == "time":
            world.now_ms += 500
        elif step == "back":
            world.now_ms -= 30
        elif step == "hide":
            self.hide()
        elif step == "tick":
            world.pass_time(1_100)
        elif step == "narrow":
            world.broker.topics.put(TopicConfig("Plain", 1, 1), world.now_ms)
        elif step == "ban":
            world.broker.groups.set_forbidden("live", "Plain", FORBIDDEN_READ, world.now_ms)
        elif step == "role":
            world.broker.fast._on_role_changed()
        elif step == "delete":
            world.broker.topics.delete("Plain", world.now_ms)
            world.broker.store.delete_topic("Plain")

    def hide(self) -> None:
        """Give the first message of the first pop another time: its handle is replaced."""
        group, topic, [(text, queue_id, offset), *_] = self.popped[0]
        header = ChangeInvisibleTimeRequest(group, topic, queue_id, text, offset, 30_000)
        request = new_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        responses: dict[int, list[bytes]] = {}
        handle(self.world, self.peer(), request, responses)
        assert decode(responses[request.opaque][0]).code == 0

    def frames(self, step: dict[str, Any], opaque: int) -> list[bytes]:
        """The acknowledgements of a step, of messages that lie side by side in a pop."""
        if not self.popped:
            return []
        group, topic, found = self.popped[step["pop"] % len(self.popped)]
        at = step["at"] % len(found)
        frames = []
        for number, (handle_, queue_id, offset) in enumerate(found[at : at + step["count"]]):
            header = AckMessageRequest(step["group"] or group, topic, queue_id, handle_, offset)
            if number == 0 and step["wrong"] is not None:
                spoil(header, step["wrong"])
            request = new_request(RequestCode.ACK_MESSAGE, header, oneway=step["oneway"])
            of_frame = {"codec": Codec.JSON, "version": 513}
            frames.append(finish(request, of_frame, 100 * opaque + number))
        return frames

    def counted(self) -> tuple[object, ...]:
        broker, now_ms = self.world.broker, self.world.now_ms
        in_flight = broker.pop.in_flight
        flying = [in_flight.count_of(group, "Plain", now_ms) for group in GROUPS]
        broker.statistics.sample(now_ms)
        names = [f"Plain@{group}" for group in GROUPS]
        acked = [broker.statistics.find_windows(GROUP_ACK_NUMS, name) for name in names]
        return acked, flying

    def records(self) -> set[tuple[CheckPointKey, QueueOffset, str | None]]:
        """Acknowledgements in the log, each with its due time."""
        store, topic = self.world.broker.store, self.world.broker.pop.log.topic
        places = [(TIMER_TOPIC, 0), *((topic, queue_id) for queue_id in range(8))]
        found = set()
        for place in places:
            for unit in store.units(*place, QueueOffset(0), 10_000):
                record = store.record_of(unit)
                assert record is not None
                properties = decode_properties(record.properties)
                tag, due = properties["TAGS"], properties.get("TIMER_DELIVER_MS")
                if tag in ("ack", "bAck"):
                    ack = Acknowledgement.parse(record.body, tag == "bAck")
                    found |= {(ack.key, offset, due) for offset in ack.queue_offsets}
        return found


def messages(answered: Command) -> list[tuple[str, int, int]]:
    """(handle, queue id, queue offset) of each message of a pop."""
    fields = answered.fields
    starts = read_start_offsets(fields["startOffsetInfo"])
    found = []
    for (kind, queue_id), start in starts.items():
        handle_ = (
            f"{start} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
            f" {kind.value} broker-a {queue_id}"
        )
        for part in fields["msgOffsetInfo"].split(";"):
            flag, of_queue, offsets = part.split(" ")
            if (flag, of_queue) == (kind.value, str(queue_id)):
                found += [(f"{handle_} {at}", queue_id, int(at)) for at in offsets.split(",")]
    return found


def spoil(header: AckMessageRequest, wrong: str) -> None:
    """An acknowledgement that is not plain."""
    words = header.extra_info.split(" ")
    if wrong == "group":
        header.consumer_group = "no\x02ne"
    elif wrong == "topic":
        header.topic = "None"
    elif wrong == "queue":
        header.queue_id = 7
    elif wrong == "offset":
        header.offset = 1 << 40
    elif wrong == "broker":
        words[5] = "other-\\broker"
    elif wrong == "revive":
        words[3] = "8"
    elif wrong == "short":
        words.pop()
    elif wrong == "long":
        words.append("123")
    elif wrong == "late":
        words[2] = "0"
    elif wrong == "time":
        words[2] = "1000000000000"
    elif wrong == "quoted":
        words[1] = f"{words[1]}\n"
    elif wrong == "kind":
        words[4] = "3"
    header.extra_info = " ".join(words)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(
    st.lists(steps, min_size=4, max_size=25),
    st.sampled_from([1 << 20, 1 << 20, 3000, 77]),
    st.sampled_from([FlushMode.ASYNC_FLUSH] * 3 + [FlushMode.SYNC_FLUSH]),
    st.booleans(),
)
def test_both_paths_acknowledge_the_same(
    plan: list[Any], cut: int, mode: FlushMode, turn: bool
) -> None:
    """Any plan of acknowledgements has equal results on both paths, once the lane is allowed to
    serve the group.
    """
    count = compare([POP, ONE, "read", *plan], cut, mode, turn)
    event(f"natively: {min(count, 40) // 10 * 10} or more")


def test_acknowledgements_of_a_read_are_one_record() -> None:
    """Acknowledgements of a read are stored natively in one record of at most 32, once a handler
    has served one.
    """
    plan = [POP, ONE, "read", {**ONE, "count": 40}]
    assert compare(plan, 1 << 20, FlushMode.ASYNC_FLUSH, False, same_files=True) >= 20


def test_a_second_acknowledgement_counts_for_no_later_pop() -> None:
    """Regression: native acknowledgements were counted after the pop that followed them."""
    again = {**ONE, "at": 0, "count": 1}
    plan = [POP, ONE, "read", again, {**again, "count": 40}, {**POP, "max": 1}]
    compare(plan, 1 << 20, FlushMode.ASYNC_FLUSH, False)


def test_a_handle_that_was_replaced_is_refused_on_both_paths() -> None:
    """Native code leaves it to the handler, which refuses it; other messages stay native."""
    plan = [POP, {**ONE, "at": 1}, "read", "hide", ONE, "read", {**ONE, "at": 2, "count": 9}]
    assert compare(plan, 1 << 20, FlushMode.ASYNC_FLUSH, False) >= 9 - 1


def compare(
    plan: list[Any], cut: int, mode: FlushMode, turn: bool, *, same_files: bool = False
) -> int:
    """Carry out a plan on both paths; how many acknowledgements were served natively."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        native, python = (Acking(make(folder, mode, SIZES)) for folder in (one, two))
        driven = Driven(native.world, turn=turn)
        peer = native.peer()
        responses: dict[int, list[bytes]] = {}
        pending: list[bytes] = []

        def read() -> None:
            driven.feed(b"".join(pending), cut)
            for frame in pending:
                handle(python.world, peer, decode(frame), responses)
            python.world.turn()
            # the turn ends: handlers write joined acknowledgements
            native.world.broker.pop.acks.write_collected()
            pending.clear()

        for opaque, step in enumerate(plan):
            if isinstance(step, dict) and "pop" in step:
                pending += native.frames(step, opaque)
                continue
            read()
            for acking in (native, python):
                if isinstance(step, dict):
                    acking.pop(step)
                elif step != "read":
                    acking.change(step)
            assert native.popped == python.popped
        read()
        for acking in (native, python):
            acking.world.pass_time(300)
        count = driven.lane.ack_count
        driven.collect()
        both = driven.responses.keys() | responses.keys()
        differ = [each for each in both if driven.responses.get(each) != responses.get(each)]
        assert not differ, [(driven.responses.get(at), responses.get(at)) for at in differ]
        assert native.counted() == python.counted()
        assert native.records() == python.records()
        for world in (native.world, python.world):
            world.close()
        driven.near.close()
        driven.far.close()
        assert not same_files or files_of(one) == files_of(two)
        return count
