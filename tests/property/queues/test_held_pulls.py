"""Pulls that native code holds against pulls that the handler holds: the same requests, arrivals,
deadlines, cuts and changes give the same answers, offsets and counts.

Two brokers get the same requests at the same times: one over connections with a lane, the other by
its handlers alone.
"""

import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.lane.world import ADDRESS, SMALL, Driven, finish, frame_of, handle, make, subscribe, wake
from tests.property.test_fast_lane import counted, send_to
from tests.shortcuts.addresses import pack_host
from tests.unit.broker.conftest import World

from turbopump.broker.tables.groups import FORBIDDEN_READ
from turbopump.engine.types import FlushMode, QueueOffset
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, decode, new_request
from turbopump.net.wire.header import write_header
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.topics import TopicConfig

CONNECTIONS, QUEUES = 3, 2
KEY = "UNIQ_KEY\x017F0000010000558C000000000000"

queues, connections = st.integers(0, QUEUES - 1), st.integers(0, CONNECTIONS - 1)
sends = st.tuples(st.just("send"), queues, st.sampled_from(["", "TagA", "TagB"]))
pulls = st.tuples(
    st.just("pull"),
    connections,
    queues,
    st.sampled_from(["live", "live", "tagged", "carried", "sql"]),
    st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1]),  # offset from the queue's end
    st.sampled_from([50, 300, 15_000, 1 << 40]),
    st.sampled_from([2, 2, 3, 2, 2, 2, 0]),  # PullSysFlag without the subscription
)
CHANGES = [
    "time", "long", "delete", "make", "narrow", "reset", "ban", "heartbeat", "config", "short",
    "role", "again", "cut", "end",
]  # fmt: skip
moves = st.tuples(st.sampled_from(CHANGES), connections, queues)
allowed = st.just(("allow",))
busy = st.lists(st.one_of(sends, pulls, pulls, allowed), min_size=4, max_size=12)
parts = st.lists(st.tuples(busy, st.none() | moves), min_size=3, max_size=8)
plans = parts.map(lambda each: [step for some, move in each for step in (*some, move) if step])


class Both:
    """A broker of each kind, and their connections."""

    def __init__(self, folders: tuple[str, str], mode: FlushMode) -> None:
        texts = f"{SMALL}shortPollingTimeMills=400\n"
        self.native, self.python = (make(folder, mode, texts) for folder in folders)
        self.driven = [Driven(self.native) for _ in range(CONNECTIONS)]
        self.peers = [self.peer() for _ in range(CONNECTIONS)]
        self.responses: list[dict[int, list[bytes]]] = [{} for _ in range(CONNECTIONS)]
        self.ended: list[Driven] = []
        self.opaque = 0

    def peer(self) -> Peer:
        return Peer(ADDRESS, pack_host(ADDRESS), None)  # type: ignore[arg-type]

    def request(self, connection: int, frame: bytes) -> None:
        self.driven[connection].feed(frame, 1 << 20)
        handle(self.python, self.peers[connection], decode(frame), self.responses[connection])

    def do(self, step: tuple[Any, ...]) -> None:
        self.opaque += 1
        if step[0] == "send":
            _kind, queue_id, tag = step
            text = f"{KEY}{self.opaque:04}\x02" + (f"TAGS\x01{tag}\x02" if tag else "")
            self.request(0, frame_of(send_to(queue_id, text), self.opaque))
        elif step[0] == "pull":
            self.request(step[1], self.pull_of(*step[2:]))
        elif step[0] == "allow":
            for queue_id in range(QUEUES):
                for group in ("live", "tagged", "carried"):
                    self.opaque += 1
                    self.request(0, self.pull_of(queue_id, group, -1, 0, 0))
        else:
            for world in (self.native, self.python):
                change(world, step[0], step[2])
            if step[0] == "cut":
                self.cut(step[1])
        for world in (self.native, self.python):
            wake(world)
        for each in self.driven:
            each.collect()

    def pull_of(self, queue_id: int, group: str, ahead: int, wait_ms: int, flags: int) -> bytes:
        offset = self.python.broker.store.max_queue_offset("Plain", queue_id) + ahead
        header = PullMessageRequest(
            "carrier" if group == "carried" else group,
            "Plain", queue_id, max(0, offset), 32, flags, max(0, offset - 1), wait_ms, 5,
        )  # fmt: skip
        if group == "carried":
            header.sys_flag |= 4
            header.subscription, header.expression_type = "TagA || TagB", "TAG"
        request = new_request(RequestCode.PULL_MESSAGE, fields=write_header(header))
        return finish(request, {"codec": Codec.JSON, "version": 513}, self.opaque)

    def cut(self, number: int) -> None:
        """Close a connection, and open another in its place."""
        self.driven[number].lose()
        self.peers[number].lost()
        self.check(number)
        self.ended.append(self.driven[number])
        fast = self.native.broker.fast
        self.driven[number] = Driven(self.native)
        self.python.broker.fast.reconfigure()
        assert fast.lane.open
        self.peers[number], self.responses[number] = self.peer(), {}

    def check(self, number: int) -> None:
        self.driven[number].collect()
        one, two = self.driven[number].responses, self.responses[number]
        differ = [each for each in one.keys() | two.keys() if one.get(each) != two.get(each)]
        assert not differ, [(each, one.get(each), two.get(each)) for each in differ]

    def close(self) -> None:
        for world in (self.native, self.python):
            world.broker.held_pulls.release_all()
            wake(world)
            world.close()
        for each in (*self.driven, *self.ended):
            each.end_fast()
            each.near.close()
            each.far.close()


def change(world: World, step: str, queue_id: int) -> None:
    """Make a change to a broker beside requests."""
    broker = world.broker
    if step == "time":
        world.pass_time(100)
    elif step == "long":
        world.pass_time(15_100, 5_000)
    elif step == "delete":
        broker.topics.delete("Plain", world.now_ms)
        broker.store.delete_topic("Plain")
    elif step == "make":
        broker.topics.put(TopicConfig("Plain", 4, 4), world.now_ms)
    elif step == "narrow":
        broker.topics.put(TopicConfig("Plain", 1, 1), world.now_ms)
    elif step == "reset":
        broker.offsets.set_reset("live", "Plain", queue_id, QueueOffset(1), world.now_ms)
    elif step == "ban":
        mask = FORBIDDEN_READ - broker.groups.forbidden_mask("live", "Plain")
        broker.groups.set_forbidden("live", "Plain", mask, world.now_ms)
    elif step == "heartbeat":
        subscribe(world, "live", "TagA", 7)
    elif step == "config":
        world.config.broker_permission = 6 if world.config.broker_permission == 2 else 2
        broker.fast.reconfigure()
    elif step == "short":
        world.config.long_polling_enable = not world.config.long_polling_enable
        broker.fast.reconfigure()
    elif step == "role":
        broker.role.become_replica(1)
        broker.held_pulls.release_all()
    elif step == "again":
        broker.role._is_slave = False
        broker.fast.reconfigure()
    elif step == "end":
        broker.held_pulls.release_all()


def play(plan: list[tuple[Any, ...]], mode: FlushMode) -> tuple[int, int, int]:
    """Play a plan on both brokers; returns pulls held natively, answered natively with messages,
    and left to the handler."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        both = Both((one, two), mode)
        rows = both.native.broker.fast.held_rows
        left = [0]
        hand_over = rows.hand_over

        def counting(*arguments: Any) -> None:
            left[0] += 1
            hand_over(*arguments)

        rows.hand_over = counting
        for queue_id in range(QUEUES):
            both.do(("send", queue_id, "TagA"))
        both.do(("allow",))
        for step in plan:
            both.do(step)
            counts = [world.broker.held_pulls.count for world in (both.native, both.python)]
            sizes = [world.broker.held_pulls.size for world in (both.native, both.python)]
            assert counts[0] == counts[1], (step, counts)
            assert sizes[0] == sizes[1], (step, sizes)
            assert rows.count <= sum(each.held for each in both.driven) <= counts[0]
        for number in range(CONNECTIONS):
            both.check(number)
        misses = [w.broker.store.statistics.total.miss_count for w in (both.native, both.python)]
        assert misses[0] == misses[1]
        assert counted(both.native) == counted(both.python)
        figures = rows.held_count, rows.wake_count, left[0]
        both.close()
        return figures


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(plans, st.sampled_from(FlushMode))
def test_both_kinds_answer_the_same(plan: list[tuple[Any, ...]], mode: FlushMode) -> None:
    held, woken, left = play(plan, mode)
    event(f"held natively: {min(held, 9) // 3 * 3} or more")
    event(f"woken natively: {min(woken, 6) // 2 * 2} or more")
    event(f"left to the handler: {min(left, 6) // 2 * 2} or more")


def test_a_plain_plan_is_native() -> None:
    plan = [("pull", 1, 0, "live", 0, 15_000, 2), ("pull", 2, 0, "tagged", 0, 15_000, 3)]
    plan += [("send", 0, "TagB"), ("send", 0, "TagA"), ("pull", 1, 1, "live", 0, 300, 2)]
    plan += [("pull", 1, 0, "carried", 0, 15_000, 2), ("send", 0, "TagB"), ("long", 0, 0)]
    held, woken, left = play(plan, FlushMode.ASYNC_FLUSH)
    assert (held, woken, left) == (4, 3, 0)


@pytest.mark.parametrize("change", CHANGES)
def test_pulls_wait_across_a_change(change: str) -> None:
    """Pulls that wait while a change happens are answered as the handler answers them, at the next
    message and at the end of their time."""
    for ends in (False, True):
        plan: list[tuple[Any, ...]] = [("allow",)]
        plan += [
            ("pull", connection, queue_id, group, 0, 15_000, 2)
            for connection in (1, 2)
            for queue_id in range(QUEUES)
            for group in ("live", "tagged", "carried")
        ]
        plan += [("send", 0, "TagB"), (change, 2, 0)]
        plan += [] if ends else [("send", 0, "TagA"), ("send", 1, "TagB"), ("make", 0, 0)]
        plan += [("send", 1, "TagA"), ("long", 0, 0)]
        held, woken, _left = play(plan, FlushMode.ASYNC_FLUSH)
        assert held == 12
        assert woken >= 4
