"""QUERY_ASSIGNMENT of 1,000 members and 1,000 queues, unchanged and after a change.

The limit is the bare allocation of the same group by STICKY, which an answer after a change always
needs; with sorting, moving queues between owners and recording the result it may take 20 ms. An
answer from the stored assignment is a look-up, and may take 1 ms.
"""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from turbopump.broker.assignment.assignments import AssignmentDeps, Assignments
from turbopump.broker.assignment.routes import GroupCoordinator, TopicRoutes
from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.handlers import assignment
from turbopump.broker.tables.assignment_store import AssignmentStore
from turbopump.broker.tables.consumers import ConsumerTable
from turbopump.broker.tables.request_modes import RequestModes
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.allocation.shares import sharing_of
from turbopump.net.allocation.strategies import STICKY, allocate_by_name
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.heartbeat import ConsumerData
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.topics import TopicConfig

T = TypeVar("T")
MEMBERS = QUEUES = 1_000
CACHED, CHANGED = 1.0, 20.0
Measure = Callable[..., Any]


class AssignmentBroker:
    """The parts of a broker that answer QUERY_ASSIGNMENT, with a topic and a group of
    1,000 members."""

    def __init__(self, folder: Path) -> None:
        saver = TableSaver(ConfigFiles(RealFiles(), str(folder)), InlineDisk())
        config = BrokerConfig(rebalance_strategy=STICKY)
        self.consumers, modes = ConsumerTable(), RequestModes(saver)
        me, topic = GroupCoordinator("a", 0, "a:10911"), TopicConfig("T", QUEUES, QUEUES)
        self._clock, self._new = itertools.count(), itertools.count(MEMBERS)

        def call(_address: str, _request: Command, _timeout_ms: int) -> Deferred[Command | str]:
            raise AssertionError("one broker asks no other")

        def now_ms() -> int:
            return next(self._clock) // 100

        def run_on_disk_thread(work: Callable[[], T]) -> Deferred[T | OSError]:
            done: Deferred[T | OSError] = Deferred()
            done.resolve(work())
            return done

        routes = TopicRoutes(call, list, lambda _topic: (topic, me), now_ms)
        assignments = Assignments(
            AssignmentDeps(
                config=config,
                consumers=self.consumers,
                modes=modes,
                kept=AssignmentStore(saver, 1),
                routes=routes,
                call=call,
                coordinator=lambda: me,
                steady_ms=now_ms,
                wall_ms=now_ms,
                run_on_disk_thread=run_on_disk_thread,
                call_soon=lambda _work: None,
            )
        )
        self.consumers.on_change = assignments.group_changed
        broker: Any = SimpleNamespace(
            saver=saver, topics={"T": topic}, config=config, assignments=assignments
        )
        self.table = Dispatcher(saver.hold_until_saved)
        assignment.register(self.table, broker)
        self.peers = [self.add_member(f"10.0.0.1@{number:04}") for number in range(MEMBERS)]
        for number in range(MEMBERS):
            self.query_assignment(number)

    def add_member(self, name: str) -> Peer:
        """Add a member with this client id to the group."""
        peer = Peer(f"{name}:1", b"", None)  # type: ignore[arg-type]
        self.consumers.register(peer, name, ConsumerData("G"), 0)
        return peer

    def query_assignment(self, number: int) -> Command:
        """Answer QUERY_ASSIGNMENT for the member with this number."""
        body = {"clientId": f"10.0.0.1@{number:04}", "consumerGroup": "G", "topic": "T"}
        request = new_request(RequestCode.QUERY_ASSIGNMENT, None, json.dumps(body).encode())
        response: Any = self.table.dispatch(request, self.peers[0] if number else None, 0)  # type: ignore[arg-type]
        response = response.value if isinstance(response, Deferred) else response
        assert response.code == 0 and b"queueId" in response.body
        return response  # type: ignore[no-any-return]

    def replace_member(self) -> None:
        """Replace a member of the group by a new one."""
        closed = self.peers.pop()
        self.consumers.peer_closed(closed)
        self.peers.append(self.add_member(f"10.0.0.1@{next(self._new)}"))


@pytest.fixture
def asked(tmp_path: Path) -> AssignmentBroker:
    """A broker with 1,000 members, see AssignmentBroker."""
    return AssignmentBroker(tmp_path)


GROUP = "assignment of 1,000 members and 1,000 queues"


def test_allocation_limit(measure: Measure) -> None:
    """Measure the bare STICKY allocation after one member was replaced."""
    names = [f"10.0.0.1@{number:04}" for number in range(MEMBERS)]
    queues = [MessageQueue("T", "a", number) for number in range(QUEUES)]
    before = allocate_by_name(STICKY, sharing_of(names, queues))
    sharing = sharing_of(names[1:], queues, before)
    measure(GROUP, lambda: allocate_by_name(STICKY, sharing), 1)


def test_stored_assignment(measure: Measure, asked: AssignmentBroker, benchmark: Any) -> None:
    """Measure an answer from the stored assignment."""
    measure(GROUP, lambda: asked.query_assignment(7), 1)
    assert benchmark.stats.stats.min * 1e3 < CACHED


def test_after_a_change(measure: Measure, asked: AssignmentBroker, benchmark: Any) -> None:
    """Measure the first answer after one member was replaced."""

    def changed() -> None:
        asked.replace_member()
        asked.query_assignment(7)

    measure(GROUP, changed, 1)
    assert benchmark.stats.stats.min * 1e3 < CHANGED
