"""An acting replica prefers a master in its own process, which needs no connection (RIP-31)."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.escape.cluster import Replica, bodies
from tests.unit.broker.scheduled.test_half_escape import COMMIT, end, half

from turbopump.broker.container.local_master import LocalMaster
from turbopump.broker.escape.bridge import TIMEOUT_MS
from turbopump.broker.introspection.runtime_info import runtime_table
from turbopump.engine.types import NewMessage
from turbopump.net.wire.properties import encode_properties
from turbopump.net.wire.topics import TopicConfig


class Beside:
    """A master in the replica's process; its timeouts fire when a test calls them."""

    def __init__(self, replica: Replica, world: World, name: str) -> None:
        self.replica, self.world = replica, world
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.asked: list[int] = []
        self.node: Any = SimpleNamespace(context=world.broker, table=self, address=f"{name}:10911")
        replica.world.neighbours.append(
            LocalMaster(self.node, lambda: world.now_ms, self._call_later)
        )

    def dispatch_trusted(self, request: Any, peer: Any, now_ms: int) -> Any:
        self.asked.append(request.code)
        return self.world.table.dispatch_trusted(request, peer, now_ms)

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        entry = seconds, callback
        self.timers.append(entry)
        return SimpleNamespace(cancel=lambda: self.timers.remove(entry))

    def pass_time(self, duration_ms: int) -> None:
        self.replica.pass_time(duration_ms)


def beside(replica: Replica, make: Callable[..., World], name: str = "near", more: str = "") -> Any:
    world = make(f"brokerName={name}\n{more}", folder=f"beside-{name}")
    world.broker.topics.put(TopicConfig("T", 4, 4), 1)
    world.pass_time(100)
    return Beside(replica, world, name)


@pytest.fixture
def replica(make_world: Callable[..., World]) -> Replica:
    return Replica(make_world)


def test_a_master_of_the_process_gets_it_and_no_other_one_is_asked(
    replica: Replica, make_world: Callable[..., World]
) -> None:
    far, near = replica.master("far"), beside(replica, make_world)
    for number in range(300):
        replica.delayed(1, b"%d" % number)
    store = replica.world.broker.store
    due = {"TIMER_OUT_MS": str(replica.world.now_ms + 1_000), "REAL_TOPIC": "T", "REAL_QID": "1"}
    message = NewMessage("rmq_sys_wheel_timer", 0, b"timer", encode_properties(due))
    assert store.append(message, replica.world.now_ms).log_offsets
    end_of_log = store.max_log_offset
    replica.pass_time(3_000)
    assert sorted(bodies(near.world)) == sorted([*(b"%d" % n for n in range(300)), b"timer"])
    assert bodies(far) == [] and replica.others.sends == []
    assert store.max_log_offset == end_of_log, "it writes nothing itself"
    assert replica.world.broker.delay.copy_progress() == {1: 300}
    runtime = runtime_table(replica.world.broker, replica.world.now_ms)
    assert runtime["escapedTo_near"].startswith("301 messages")
    assert not near.timers, "an answered request times nothing out"


def test_one_without_the_topic_or_of_the_own_group_is_passed_over(
    replica: Replica, make_world: Callable[..., World]
) -> None:
    far = replica.master("far")
    own, without = beside(replica, make_world, "b"), beside(replica, make_world, "without")
    without.world.broker.topics.delete("T", 2)
    closed = beside(replica, make_world, "closed", "brokerPermission=4\n")
    third = beside(replica, make_world, "third")
    third.world.broker.shutting_down = True
    replica.delayed(1, b"x")
    replica.pass_time(2_000)
    assert bodies(far) == [b"x"]
    assert not own.asked and not without.asked and not closed.asked and not third.asked


def test_where_no_name_server_answers_it_goes_on(
    replica: Replica, make_world: Callable[..., World]
) -> None:
    replica.others.dead.add("10.0.0.9:9876")
    near = beside(replica, make_world)
    replica.delayed(1, b"x")
    replica.pass_time(2_000)
    assert bodies(near.world) == [b"x"]


def test_one_that_does_not_answer_is_given_up_for_another(
    replica: Replica, make_world: Callable[..., World]
) -> None:
    far = replica.master("far")
    near = beside(replica, make_world, "near", "flushDiskType=SYNC_FLUSH\n")
    near.world.disk.hold()
    replica.delayed(1, b"x")
    replica.pass_time(1_500)
    ((seconds, expire),) = near.timers
    assert seconds * 1_000 == TIMEOUT_MS and bodies(far) == []
    expire()
    replica.pass_time(1_000)
    assert bodies(far) == [b"x"]
    near.world.disk.release()
    replica.pass_time(3_000)
    replica.delayed(1, b"y")
    replica.pass_time(2_000)
    assert b"y" in bodies(near.world), "it is asked again"


def test_a_half_message_moves_there_and_is_ended_there(
    replica: Replica, make_world: Callable[..., World]
) -> None:
    far, near = replica.master("far"), beside(replica, make_world)
    header = half(replica, b"K1")
    replica.pass_time(1_000)
    ended = end(replica, header, COMMIT)
    replica.pass_time(1_000)
    near.world.pass_time(200)
    assert bodies(near.world) == [b"K1"] and bodies(far) == []
    response = getattr(ended, "value", ended)
    assert response.code == 0 and replica.others.sends == []


def test_related_messages_go_to_the_same_master(
    replica: Replica, make_world: Callable[..., World]
) -> None:
    """Messages with one key keep going to their master, even if it is avoided for others."""
    far, near = replica.master("far"), beside(replica, make_world)
    escape = replica.world.broker.escape
    escape._avoided[near.node.address] = replica.world.steady_ms + 60_000
    for key in "abcdefgh":
        message = NewMessage("T", 0, key.encode())
        assert escape.send(message, key=key).value.address == near.node.address
    escape.send(NewMessage("T", 0, b"asks for the route"))
    assert escape.send(NewMessage("T", 0, b"plain")).value.address != near.node.address
    assert b"plain" in bodies(far)
