"""Descriptors of appended records: queues, index and answers have the same bytes with descriptors
and without them, and no descriptor outlives the record or the queue that it describes.

Tests: csrc/descriptors.c.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.lane.world import FRAME_MAX, Driven, frame_of, make
from tests.property.templates.test_fast_lane_templates import KEY, MODES, alike, changes, close
from tests.property.test_fast_lane import (
    change,
    change_replicas,
    counted,
    files_of,
    send_to,
)
from tests.unit.broker.conftest import World
from tests.unit.broker.replicas import SYNC_MASTER, Replicas

from turbopump.engine.types import FlushMode, LogOffset
from turbopump.net.wire.command import Codec
from turbopump.net.wire.message import encode_batch
from turbopump.pyx.tail import UNLIMITED, Tail

SMALL = "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=200\nmaxMessageSize=4000\n"
INDEX = "maxHashSlotNum=7\nmaxIndexNum=40\n"
names = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "own", "WAIT", ""])
values = st.sampled_from(
    ["a", "a b", " a  b ", "a b c d e f", "täg", "😀", "x" * 40, "", "1\x01TAGS"]
)
texts = st.lists(st.tuples(names, values), max_size=4).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs)
)
elements = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.binary(max_size=40),
        st.one_of(texts, st.text(alphabet="KEYSTAG\x01\x02", max_size=12)).map(str.encode),
    ),
    min_size=1,
    max_size=6,
)


def single(number: int, text: str) -> dict[str, Any]:
    """A send of a single message with a unique key and more properties."""
    return {**send_to(number % 3, f"{KEY}{number:02X}\x02{text}"), "body": b"x" * (number % 50 + 1)}


def batch(number: int, of: list[tuple[int, bytes, bytes]]) -> dict[str, Any]:
    """A send of a batch."""
    kind = (320, Codec.JSON, "", False)
    return alike(number, kind, body=encode_batch(of))


steps = st.one_of(
    st.builds(single, st.integers(0, 99), texts),
    st.builds(batch, st.integers(0, 99), elements),
    changes,
    st.sampled_from(["ack", "ack", "leave", "too few", "wait", "end"]),
)


def pair(folders: tuple[str, str], mode: FlushMode, properties: str, turn: bool) -> list[Driven]:
    """Two brokers with equal queues: the first with descriptors, the second without them."""
    driven = [Driven(make(folder, mode, SMALL + properties), turn=turn) for folder in folders]
    table_of(driven[1].world).describe(False)
    return driven


def table_of(world: World) -> Any:
    """The dispatch table of a broker."""
    return world.broker.store._parts.queues.table


def tail_of(world: World) -> Tail:
    """The end of a broker's log."""
    return world.broker.store._log.tail


def feed_all(driven: list[Driven], plan: list[dict[str, Any]], cut: int = FRAME_MAX) -> None:
    """Let each broker read the same sends."""
    for number, step in enumerate(plan):
        for each in driven:
            each.feed(frame_of(step, number), cut)


def check_same(driven: list[Driven], folders: tuple[str, str]) -> None:
    """Close both brokers, and compare answers, counts and files."""
    described, parsed = driven
    assert table_of(parsed.world).described_count == 0
    for frames in described.responses.values():
        frames[:] = [frame.replace(folders[0].encode(), folders[1].encode()) for frame in frames]
    assert described.responses == parsed.responses
    assert counted(described.world) == counted(parsed.world)
    for each in driven:
        close(each)
    one, two = map(files_of, folders)
    assert one.keys() == two.keys()
    differ = [name for name in one if one[name] != two[name]]
    assert not differ


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    st.lists(steps, min_size=15, max_size=50),
    st.sampled_from([FRAME_MAX, 1000]),
    st.sampled_from(FlushMode),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", INDEX, "messageIndexEnable=false\n"]),
)
def test_descriptors_change_nothing(
    plan: list[Any], cut: int, mode: FlushMode, turn: bool, replicated: bool, index: str
) -> None:
    properties = index + (SYNC_MASTER if replicated else "")
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        driven = pair((one, two), mode, properties, turn)
        replicas = [Replicas(each.world) for each in driven] if replicated else []
        feed_all(driven, [single(number, "") for number in range(6)], cut)
        for step in plan:
            if isinstance(step, dict):
                feed_all(driven, [step], cut)
                continue
            if step not in ("ack", "leave", "too few", "wait", "end"):
                for each in driven:
                    change(each.world, step)
            for replica in replicas:
                change_replicas(replica, step)
        for replica in replicas:
            replica.end()
        for each in driven:
            each.collect()
        count = table_of(driven[0].world).described_count
        event(f"described: {min(count, 20) // 5 * 5} or more")
        check_same(driven, (one, two))


@pytest.mark.parametrize("mode", MODES, ids=["async", "sync", "replicated"])
def test_plain_sends_and_batches_are_described(mode: tuple[FlushMode, str], tmp_path: Path) -> None:
    """Descriptors are used in each mode, whatever delays the dispatch."""
    flush, replicated = mode
    folders = str(tmp_path / "one"), str(tmp_path / "two")
    driven = pair(folders, flush, SYNC_MASTER if replicated else "", True)
    replicas = [Replicas(each.world) for each in driven] if replicated else []
    of = [(0, b"x", f"{KEY}{number:02X}\x02KEYS\x01a b\x02".encode()) for number in range(5)]
    plan = [single(number, "TAGS\x01TagA\x02KEYS\x01k1 k2\x02") for number in range(12)]
    feed_all(driven, [*plan, batch(1, of), batch(2, of), *plan[:3]])
    for replica in replicas:
        replica.ack()
    assert table_of(driven[0].world).described_count >= 12
    check_same(driven, folders)


def cut(world: World, held: int) -> None:
    """Cut the records that wait for dispatch, and let others of the same sizes take their log
    offsets."""
    world.broker.store.truncate(LogOffset(held), world.now_ms)
    tail_of(world).limit = held


def delete(world: World, held: int) -> None:
    """Delete a topic as of the first record that waits for dispatch: the queues of its next life
    get the former slots, in another order."""
    table = table_of(world)
    former = [table.find(b"Plain", queue_id) for queue_id in range(3)]
    world.broker.store.delete_topic("Plain", held, world.now_ms)
    slots = [table.find(b"Plain", queue_id) for queue_id in range(3)]
    assert slots != former
    assert sorted(slots) == sorted(former)


def roll(world: World, held: int) -> None:
    """The log is just continued, past the end of its file."""


AFTER = {
    cut: [{**single(number, ""), "queue_id": (number + 1) % 3} for number in range(1, 7)],
    delete: [{**single(number, "TAGS\x01B\x02"), "topic": "Other"} for number in range(8)],
    roll: [single(number, "KEYS\x01k\x02") for number in range(99)],
}


@pytest.mark.parametrize("act", [cut, delete, roll])
def test_no_descriptor_is_stale(act: Callable[[World, int], None], tmp_path: Path) -> None:
    """Records wait for dispatch, as after confirmOffset, while the log is cut, their topic is
    deleted or the file rolls."""
    folders = str(tmp_path / "one"), str(tmp_path / "two")
    driven = pair(folders, FlushMode.ASYNC_FLUSH, INDEX, False)
    feed_all(driven, [{**single(n, ""), "topic": t} for n in range(6) for t in ("Plain", "Other")])
    for each in driven:
        tail = tail_of(each.world)
        tail.limit = tail.dispatched
    feed_all(driven, [single(number, "KEYS\x01old\x02"[: number % 2 * 10]) for number in range(6)])
    for each in driven:
        tail = tail_of(each.world)
        assert tail.limit == tail.dispatched < tail.end
        act(each.world, tail.limit)
    feed_all(driven, AFTER[act])
    for each in driven:
        tail = tail_of(each.world)
        tail.limit = UNLIMITED
        each.world.broker.store._run_dispatch(each.world.now_ms)
        assert tail.dispatched == tail.end
    if act is not delete:
        assert table_of(driven[0].world).described_count > 6
    check_same(driven, folders)
