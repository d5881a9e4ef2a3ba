"""Native pops against the handler's: the same responses, records, offsets and metrics.

Two brokers get the same pops and acknowledgements at the same times: one over a connection with a
lane, cut into reads anywhere, the other by its handlers. A read has pops, or one acknowledgement,
so that the log is the same to the byte.
"""

import tempfile
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.lane.world import Driven, finish, handle, make
from tests.property.test_fast_lane import KEYED, files_of, send_to
from tests.property.test_fast_lane_acks import GROUPS, ONE, SIZES, Acking, messages
from tests.unit.broker.conftest import World, offset_json

from turbopump.broker.tables.statistics import GROUP_GET_SIZE, GROUP_POP_NUMS
from turbopump.engine.types import FlushMode, QueueOffset
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, decode, new_request
from turbopump.net.wire.headers.pop import PopMessageRequest
from turbopump.net.wire.topics import TopicConfig

POP = {
    "group": "live", "max": 1, "invisible_ms": 60_000, "ordered": False, "queue": -1, "exp": "*",
    "kind": "TAG", "late": False, "oneway": False,
}  # fmt: skip
EXPRESSIONS = [("*", "TAG")] * 6 + [
    ("*", None), (None, None), ("TagA", "TAG"), ("TagA || TagB", "TAG"), ("TagZ", "TAG"),
    ("TAGS = 'TagA'", "SQL92"), ("TAGS =", "SQL92"),
]  # fmt: skip
CHANGES = [
    "time", "tick", "tick", "long", "back", "narrow", "ban", "role", "delete", "reset", "commit",
    "behind", "group", "wide",
]  # fmt: skip

pops = st.fixed_dictionaries(
    {
        "group": st.sampled_from(["live", "live", "tagged"]),
        "max": st.sampled_from([1, 1, 1, 2, 8, 32, 32, 0, 33]),
        "invisible_ms": st.sampled_from([900, 1_500, 2_500, 60_000, 60_000, 60_000, 0, 1 << 40]),
        "ordered": st.sampled_from([False] * 11 + [True]),
        "queue": st.sampled_from([-1] * 6 + [0, 1, 7, -2]),
        "expression": st.sampled_from(EXPRESSIONS),
        "late": st.sampled_from([False] * 9 + [True]),
        "oneway": st.sampled_from([False] * 15 + [True]),
    }
).map(lambda one: {**one, "exp": one["expression"][0], "kind": one["expression"][1]})
acks = st.fixed_dictionaries({"pop": st.integers(0, 5), "at": st.integers(0, 7)}).map(
    lambda one: {**ONE, **one}
)
steps = st.integers(0, 19).flatmap(
    lambda number: (
        pops
        if number < 11
        else acks
        if number < 14
        else st.sampled_from([0, 1, 2, 3])
        if number < 16
        else st.just("read")
        if number < 18
        else st.sampled_from(CHANGES)
    )
)


class PopWorld(Acking):
    """A broker whose messages are popped over a connection, or by its handlers."""

    def send_tagged(self, queue_id: int, number: int) -> None:
        tag = "AB"[number % 2]
        fields = {
            "a": "p", "b": "Plain", "c": "TBW102", "d": "8", "e": str(queue_id), "f": "0",
            "g": str(self.world.now_ms), "h": "0", "j": "0", "k": "false", "m": "false",
            "i": send_to(0, f"{KEYED}TAGS\x01Tag{tag}\x02KEYS\x01{number}\x02")["properties"],
        }  # fmt: skip
        request = new_request(RequestCode.SEND_MESSAGE_V2, fields=fields, body=b"x" * number)
        handle(self.world, self.peer(), request, {})

    def pop_frame(self, step: dict[str, Any], opaque: int) -> bytes:
        header = PopMessageRequest(
            consumer_group=step["group"],
            topic="Plain",
            queue_id=step["queue"],
            max_msg_nums=step["max"],
            invisible_time=step["invisible_ms"],
            poll_time=0,
            born_time=self.world.now_ms - 501 * step["late"],
            init_mode=0,
            exp_type=step["kind"],
            exp=step["exp"],
            order=step["ordered"],
        )
        request = new_request(RequestCode.POP_MESSAGE, header, oneway=step["oneway"])
        return finish(request, {"codec": Codec.JSON, "version": 513}, opaque)

    def took(self, responses: dict[int, list[bytes]], opaques: dict[int, str]) -> None:
        """Note the messages that these requests popped."""
        for opaque, group in opaques.items():
            answered = decode(responses[opaque][0]) if opaque in responses else None
            if answered is None or answered.code or answered.fields["reviveQid"] == "999":
                continue
            found = [one for one in messages(answered) if one[0].split(" ")[4] == "0"]
            if found:
                self.popped.append((group, "Plain", found))

    def change(self, step: str) -> None:
        world, broker = self.world, self.world.broker
        if step == "long":
            world.pass_time(6_500)
        elif step == "reset":
            broker.offsets.set_reset("live", "Plain", 0, QueueOffset(3), world.now_ms)
        elif step == "commit":
            broker.offsets.commit("live", "Plain", 1, QueueOffset(5), world.now_ms)
        elif step == "behind":
            broker.offsets.commit("live", "Plain", 1, QueueOffset(1 << 40), world.now_ms)
        elif step == "group":
            broker.groups.delete("live", world.now_ms)
        elif step == "wide":
            broker.topics.put(TopicConfig("Plain", 6, 6), world.now_ms)
        else:
            super().change(step)

    def figures(self) -> tuple[object, ...]:
        broker = self.world.broker
        counted = self.counted()
        names = [f"Plain@{group}" for group in GROUPS]
        kinds = (GROUP_POP_NUMS, GROUP_GET_SIZE)
        popped = [broker.statistics.find_windows(kind, name) for name in names for kind in kinds]
        total = broker.store.statistics.total
        return counted, popped, total.found_count, total.transferred_count


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    st.lists(steps, min_size=4, max_size=25),
    st.sampled_from([1 << 20, 1 << 20, 3000, 77]),
    st.sampled_from([FlushMode.ASYNC_FLUSH] * 4 + [FlushMode.SYNC_FLUSH]),
    st.booleans(),
)
def test_both_paths_pop_the_same(plan: list[Any], cut: int, mode: FlushMode, turn: bool) -> None:
    """Any plan of pops has equal results on both paths, once the lane is allowed to serve the
    group.
    """
    count = compare([POP, "read", *plan], cut, mode, turn)
    event(f"natively: {min(count, 16) // 4 * 4} or more")


def test_pops_of_a_known_group_are_native() -> None:
    """Native pops read several queues, with the remaining messages counted, also after a pop by the
    handler.
    """
    many = {**POP, "max": 32}
    ordered = {**POP, "ordered": True, "queue": 1}
    plan = [POP, "read", POP, POP, ONE, many, {**POP, "queue": 1}, "read", "tick", ordered, POP]
    assert compare(plan, 1 << 20, FlushMode.ASYNC_FLUSH, False) >= 4


def test_messages_in_a_retry_topic_are_left_to_the_handler() -> None:
    """The handler serves pops while the retry topic has messages; the lane is notified of that
    topic.
    """
    short = {**POP, "invisible_ms": 1_500, "max": 2}
    all_ = [{**POP, "max": 32}] * 4
    plan = [
        short,
        "read",
        short,
        short,
        "tick",
        "tick",
        "long",
        *all_,
        "read",
        0,
        1,
        0,
        1,
        *[POP] * 4,
    ]
    assert compare(plan, 1 << 20, FlushMode.ASYNC_FLUSH, False) >= 5


def test_a_count_that_fell_to_nothing_keeps_its_place() -> None:
    """Native code counts all acknowledgements of a step at the same time, so that no queue state
    is dropped in between.

    The first message was handled twice, so that the second one counts as handled; the third is
    popped into the same second.
    """
    short, soon = {**POP, "invisible_ms": 900}, {**POP, "invisible_ms": 1_500}
    ack = {**ONE, "pop": 0, "at": 0}
    plan = [POP, "read", 0, short, short, ack, short, short, short, POP, soon, ack, POP]
    assert compare([*plan, "time", "time"], 1 << 20, FlushMode.ASYNC_FLUSH, False) >= 3


def test_an_offset_that_is_set_counts() -> None:
    """A pop begins at an offset that was committed or reset since the last pop."""
    plan = [POP, "read", POP, "commit", POP, POP, "reset", POP, POP, "behind", *[POP] * 5]
    assert compare(plan, 1 << 20, FlushMode.ASYNC_FLUSH, False) >= 3


def compare(plan: list[Any], cut: int, mode: FlushMode, turn: bool) -> int:
    """Carry out a plan on both paths; how many pops were served natively."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        native, python = (PopWorld(make(folder, mode, SIZES)) for folder in (one, two))
        driven = Driven(native.world, turn=turn)
        peer = native.peer()
        responses: dict[int, list[bytes]] = {}
        pending: list[bytes] = []
        opaques: dict[int, str] = {}

        def read() -> None:
            driven.feed(b"".join(pending), cut)
            for frame in pending:
                handle(python.world, peer, decode(frame), responses)
            for world in (native.world, python.world):
                world.broker.pop.acks.write_collected()  # the turn ends
            python.world.turn()
            pending.clear()
            native.took(driven.responses, opaques)
            python.took(responses, opaques)
            opaques.clear()
            assert native.popped == python.popped

        for opaque, step in enumerate(plan, 1):
            if isinstance(step, dict) and "exp" in step:
                pending.append(native.pop_frame(step, 100 * opaque))
                opaques[100 * opaque] = step["group"]
                continue
            read()
            if isinstance(step, dict):
                pending += native.frames(step, opaque)
                read()
                continue
            for world in (native, python):
                if isinstance(step, int):
                    world.send_tagged(step % 2, opaque)
                elif step != "read":
                    world.change(step)
        read()
        driven.collect()
        both = driven.responses.keys() | responses.keys()
        differ = [each for each in both if driven.responses.get(each) != responses.get(each)]
        assert not differ, [(driven.responses.get(at), responses.get(at)) for at in differ]
        check_same(native, python)
        count = native.world.broker.fast.pops.pop_count
        for world in (native.world, python.world):
            world.pass_time(300)
            world.close()
        driven.near.close()
        driven.far.close()
        assert files_of(one) == files_of(two)
        return count


def check_same(native: PopWorld, python: PopWorld) -> None:
    """Figures, records and places."""
    assert native.figures() == python.figures()
    assert native.records() == python.records()
    tables = [offset_json(each.world.broker.offsets) for each in (native, python)]
    assert tables[0] == tables[1]
    worlds: tuple[World, World] = (native.world, python.world)
    turns = [world.broker.pop.turns.take() for world in worlds]
    assert turns[0] == turns[1]
