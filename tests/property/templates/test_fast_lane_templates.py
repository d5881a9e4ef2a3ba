"""Templates of sends in the lane: the same bytes give the same answers, files and counts with
templates and without them, and with the handlers alone.

Tests: pyx/send_template.pyx.
"""

import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.lane.world import FRAME_MAX, Driven, frame_of, handle, make
from tests.property.test_fast_lane import (
    change,
    change_replicas,
    compare,
    counted,
    files_of,
    send_to,
)
from tests.unit.broker.replicas import SYNC_MASTER, Replicas

from turbopump.engine.types import FlushMode
from turbopump.net.wire.command import Codec, WireError, decode
from turbopump.net.wire.message import encode_batch

KEY = "UNIQ_KEY\x017F0000010000558C00000000000000"
TEXTS = [
    f"{KEY}{{n:02X}}\x02WAIT\x01true\x02",
    f"{KEY}{{n:02X}}\x02KEYS\x01order-{{n}} b\x02TAGS\x01Tag{{n}}\x02WAIT\x01false",
    f"shop\x01north {{n}}\x02{KEY}{{n:02X}}\x02TAGS\x01é\x02",
]
BATCH = encode_batch([(0, b"x", b"KEYS\x01k\x02"), (3, b"y" * 40, f"{KEY}EE\x02".encode())])
bodies = st.one_of(
    st.binary(min_size=1, max_size=300), st.integers(1, 4200).map(lambda size: b"b" * size)
)
kinds = st.tuples(
    st.sampled_from([310, 310, 310, 10, 320]),
    st.sampled_from(Codec),
    st.sampled_from(TEXTS),
    st.sampled_from([False] * 5 + [True]),
)
mutations = st.lists(
    st.tuples(st.integers(4, 700), st.sampled_from(["set", "put", "drop"]), st.integers(0, 255)),
    max_size=2,
)
changes = st.sampled_from(
    ["time", "back", "tick", "delete", "narrow", "readonly", "region", "damage", "time", "tick"]
)
of_replicas = st.sampled_from(["ack", "ack", "ack", "leave", "too few", "wait", "end"])


def alike(number: int, kind: tuple[int, Codec, str, bool], **more: Any) -> dict[str, Any]:
    """The send `number` of a producer that sends `kind` alone."""
    code, codec, text, oneway = kind
    is_batch = code == 320
    found = {
        **send_to(number % 3, text.format(n=number)),
        "code": code,
        "codec": codec,
        "oneway": oneway,
        "batch": is_batch or None,
        "body": BATCH if is_batch else b"body %d" % number,
    }
    return found | more


def mutated(frame: bytes, plan: list[tuple[int, str, int]]) -> bytes:
    """The frame with changed bytes after its length, which stays right."""
    for place, kind, byte in plan:
        place = 4 + place % (len(frame) - 4)
        one = b"" if kind == "drop" else bytes([byte])
        frame = frame[:place] + one + frame[place + (kind != "put") :]
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


class Cut(Driven):
    """A connection that is closed by a frame that is no request."""

    def frame(self, view: memoryview) -> bool:
        self.met_version = -1
        try:
            request = decode(view)
        except WireError:
            self.closed = True
            return False
        handle(self.world, self.peer, request, self.responses)
        return True


def close(*connections: Driven) -> None:
    """Close connections of a broker, and the broker."""
    for each in connections:
        each.end_fast()
        each.near.close()
        each.far.close()
    connections[0].world.close()


steps = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 3), bodies, st.just([])),
    st.tuples(st.just("send"), st.integers(0, 3), bodies, st.just([])),
    st.tuples(st.just("send"), st.integers(0, 3), bodies, st.just([])),
    st.tuples(st.just("send"), st.integers(0, 3), bodies, mutations),
    changes,
    of_replicas,
)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    st.lists(kinds, min_size=1, max_size=2),
    st.lists(steps, min_size=15, max_size=50),
    st.sampled_from([1 << 20, 1000, 77]),
    st.sampled_from(FlushMode),
    st.booleans(),
    st.booleans(),
)
def test_templates_change_nothing(
    sent: list[tuple[int, Codec, str, bool]],
    plan: list[Any],
    cut: int,
    mode: FlushMode,
    turn: bool,
    replicated: bool,
) -> None:
    """Sends of a producer, changed anywhere, among changes of the broker, in each mode."""
    properties = f"mappedFileSizeCommitLog=16384\n{SYNC_MASTER if replicated else ''}"
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        worlds = [make(folder, mode, SIZES + properties) for folder in (one, two)]
        replicas = [Replicas(world) for world in worlds] if replicated else []
        driven = [Cut(world, turn=turn) for world in worlds]
        driven[1].lane.has_templates = False
        for number in range(8):
            frame = frame_of(alike(number, sent[0]), number)
            for each in driven:
                each.feed(frame, cut)
        for number, step in enumerate(plan, 8):
            if isinstance(step, tuple):
                _, which, body, wrong = step
                wanted = alike(number, sent[which % len(sent)])
                if wanted["code"] != 320:
                    wanted["body"] = body
                frame = mutated(frame_of(wanted, number), wrong)
                for each in driven:
                    each.feed(frame, cut)
                continue
            for place, world in enumerate(worlds):
                if step in ("ack", "leave", "too few", "wait", "end"):
                    if replicated:
                        change_replicas(replicas[place], step)
                else:
                    change(world, step)
        for replica in replicas:
            replica.end()
        for each in driven:
            each.collect()
        with_templates, without = driven
        event(f"matched: {min(with_templates.lane.matched_count, 9) // 3 * 3} or more")
        assert without.lane.matched_count == 0
        assert with_templates.lane.send_count == without.lane.send_count
        assert with_templates.closed == without.closed
        assert with_templates.held == without.held
        for frames in with_templates.responses.values():
            frames[:] = [frame.replace(one.encode(), two.encode()) for frame in frames]
        assert with_templates.responses == without.responses
        assert counted(worlds[0]) == counted(worlds[1])
        for each in driven:
            close(each)
        assert files_of(one) == files_of(two)


SIZES = "mappedFileSizeConsumeQueue=200\nmaxMessageSize=4000\n"
MODES = [(FlushMode.ASYNC_FLUSH, ""), (FlushMode.SYNC_FLUSH, ""), (FlushMode.ASYNC_FLUSH, "rep")]


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("mode", MODES, ids=["async", "sync", "replicated"])
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("code", [10, 310, 320])
@settings(max_examples=1, suppress_health_check=list(HealthCheck))
@given(_nothing=st.none())
def test_each_change_counts_for_the_next_send(
    code: int, codec: Codec, mode: tuple[FlushMode, str], turn: bool, _nothing: None
) -> None:
    """A send that matches the template is refused, or stored with other values, as the handler
    would do it, from the first send after each change: of the topic (deleted, fewer queues), the
    permission to write, the configuration, the role, the term and its replicas, and the log.
    """
    flush, replicated = mode
    plan: list[Any] = []
    steps = ["time", "narrow", "region", "readonly", "readonly", "delete", "tick"]
    if replicated:
        steps += ["too few", "too few", "leave", "ack", "end", "ack", "wait"]
    for step in [*steps, "damage"]:
        for _ in range(7):
            plan.append(alike(len(plan), (code, codec, TEXTS[1], False)))
        plan.append(step)
    properties = SYNC_MASTER if replicated else ""
    matched = compare(plan, 1 << 20, flush, turn, properties, replicated=bool(replicated))
    assert matched > len(steps), "templates were not used"


def test_a_template_ends_with_its_connection(tmp_path: Any) -> None:
    """A second connection learns for itself."""
    world = make(str(tmp_path), FlushMode.ASYNC_FLUSH)
    kind = (310, Codec.JSON, TEXTS[0], False)
    first = Driven(world)
    for number in range(9):
        first.feed(frame_of(alike(number, kind), number), FRAME_MAX)
    matched = first.lane.matched_count
    assert matched > 0
    first.end_fast()
    second = Driven(world)
    for number in (9, 10):  # to the handler, and to be learned
        second.feed(frame_of(alike(number, kind), number), FRAME_MAX)
        assert second.lane.matched_count == matched
    second.feed(frame_of(alike(11, kind), 11), FRAME_MAX)
    assert second.lane.matched_count == matched + 1
    close(first, second)


def test_a_log_that_refuses_gets_no_send_that_matches(tmp_path: Any) -> None:
    world = make(str(tmp_path), FlushMode.ASYNC_FLUSH)
    kind = (310, Codec.JSON, TEXTS[0], False)
    driven = Driven(world)
    for number in range(9):
        driven.feed(frame_of(alike(number, kind), number), FRAME_MAX)
    count, matched = driven.lane.send_count, driven.lane.matched_count
    assert matched > 0
    world.broker.store._log.tail.refuse(1 << 20, True)
    for number in range(9, 12):
        driven.feed(frame_of(alike(number, kind), number), FRAME_MAX)
    assert (driven.lane.send_count, driven.lane.matched_count) == (count, matched)
    world.broker.store._log.tail.refuse(1 << 20, False)
    driven.feed(frame_of(alike(12, kind), 12), FRAME_MAX)
    assert driven.lane.matched_count == matched + 1
    close(driven)
