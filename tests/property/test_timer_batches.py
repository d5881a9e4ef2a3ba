"""Timers that are done with many at once against those done one by one: the same files.

Two brokers get the same messages at the same times; one of them leaves each to the code in Python.
"""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.lane.world import SMALL, handle, make
from tests.shortcuts.addresses import pack_host
from tests.unit.broker.conftest import World

from turbopump.engine.timer.timer_batches import NOTHING
from turbopump.engine.types import FlushMode
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.headers.send import SendMessageRequestV2

ADDRESS = "127.0.0.1:50000"
WHEEL = "timerPrecisionMs=1000\nmappedFileSizeTimerLog=1100\nrecallMessageEnable=true\n"
times = st.one_of(
    st.integers(1, 2500).map(lambda delay: f"TIMER_DELAY_MS\x01{delay}\x02"),
    st.integers(1, 4).map(lambda delay: f"TIMER_DELAY_SEC\x01{delay}\x02"),
    st.just("TIMER_DELAY_SEC\x01190000\x02"),
)
sends = st.tuples(
    times,
    st.sampled_from(["Plain"] * 6 + ["Other", "Inner", "Multi"]),
    st.sampled_from([0, 0, 1, 3]),
    st.sampled_from([""] * 6 + ["KEYS\x01k\x02", "TIMER_ROLL_TIMES\x013\x02", "__CRC32#\x01x\x02"]),
    st.sampled_from([10, 10, 10, 3000]),
    st.integers(1, 12),
)
plans = st.lists(
    sends | sends | st.sampled_from(["short", "long", "recall", "back", "plain", "ahead"]),
    min_size=6,
    max_size=24,
)


def one_by_one(world: World) -> None:
    """Take the native steps away from a broker."""
    timers: Any = world.broker.timers
    timers._batches.fill_slots = timers._batches.append_due = lambda *_arguments: NOTHING
    timers._slots._order = lambda *_arguments: 0


def send(world: World, topic: str, queue_id: int, properties: str, body: bytes) -> None:
    """Send a message through the handler."""
    header = SendMessageRequestV2(
        "producers", topic, "TBW102", 4, queue_id, 0, world.now_ms, 0, properties
    )
    peer = Peer(ADDRESS, pack_host(ADDRESS), None)  # type: ignore[arg-type]
    handle(world, peer, new_request(RequestCode.SEND_MESSAGE_V2, header, body), {})


def play(world: World, step: Any, number: int) -> None:
    """Do one step of a plan."""
    if step == "short":
        world.pass_time(400)
    elif step == "long":
        world.pass_time(2300)
    elif step == "back":
        world.now_ms -= 1_700
    elif step == "ahead":
        world.now_ms += 900_000
    elif step == "plain":
        for queue_id in range(4):
            send(world, "Plain", queue_id, f"UNIQ_KEY\x01P{number}{queue_id}\x02", b"x")
    elif step == "recall":
        text = f"UNIQ_KEY\x01R{number}\x02TIMER_DELAY_MS\x011500\x02"
        send(world, "Plain", 0, f"{text}TIMER_DEL_UNIQKEY\x01K{number - 1}-0\x02", b"r")
    else:
        asks, topic, queue_id, more, size, count = step
        for each in range(count):
            text = f"UNIQ_KEY\x01K{number}-{each}\x02{more}{asks}"
            send(world, topic, queue_id, text, b"b" * size)


def files_of(folder: str) -> dict[str, bytes]:
    """Log, queues, wheel and timer log, as they lie there; but for files that were made ahead."""
    parts = ("commitlog", "consumequeue", "timerlog", "timerwheel")
    paths = [
        each for part in parts for each in (Path(folder, part), *Path(folder, part).rglob("*"))
    ]
    found = {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}
    return {name: content for name, content in found.items() if content.strip(b"\0")}


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(plans, st.sampled_from(FlushMode))
def test_many_at_once_equal_one_by_one(plan: list[Any], mode: FlushMode) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        native, python = make(one, mode, SMALL + WHEEL), make(two, mode, SMALL + WHEEL)
        one_by_one(python)
        delivered = 0
        for number, step in enumerate(["plain", "short", *plan, "long", "long", "long"]):
            for world in (native, python):
                play(world, step, number)
            ours, theirs = native.broker.timers, python.broker.timers
            assert ours.status(native.now_ms) == theirs.status(python.now_ms), step
            assert ours.metrics.to_json() == theirs.metrics.to_json(), step
            assert ours.enqueued.topics == theirs.enqueued.topics, step
            assert ours.dequeued.topics == theirs.dequeued.topics, step
            delivered = ours.dequeued.total
        totals = [world.broker.store.statistics.put_size_by_topic for world in (native, python)]
        assert totals[0] == totals[1]
        event(f"delivered: {min(delivered, 40) // 10 * 10} or more")
        check_same(one, two)
        native.close()
        python.close()
        check_same(one, two)


def check_same(one: str, two: str) -> None:
    """Check that the files of two folders are equal; a failure names the different ones."""
    ours, theirs = files_of(one), files_of(two)
    assert not [each for each in ours.keys() | theirs.keys() if ours.get(each) != theirs.get(each)]
