"""A seed of the assignment suite: brokers assign the queues of a topic to members that join,
leave, crash, sleep and lose requests, while brokers crash and come back and queues are added.

Invariants (the assignment's part of I17, and I18): where no message is late or lost, no queue has
two owners for longer than messages take; no assignment moves more queues than balance needs; in the
end each queue has one owner, the shares are balanced, and members hold the coordinator's
assignment.
"""

import hashlib
import heapq
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from tests.sim.assignment.members import TOPIC, Place, SimMember
from tests.sim.disk import SimDisk
from turbopump.broker.assignment.assignments import AssignmentDeps, Assignments
from turbopump.broker.assignment.history import lines_of
from turbopump.broker.assignment.routes import GroupCoordinator, TopicRoutes
from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.handlers import assignment, clients
from turbopump.broker.tables.assignment_store import AssignmentStore
from turbopump.broker.tables.consumers import ConsumerTable
from turbopump.broker.tables.request_modes import RequestModes
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.flush import InlineDisk
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.route import BrokerData, QueueData, TopicRouteData
from turbopump.spark.rebalance.measures import measure_rebalance, parse

BEGIN_MS: Final = 1_700_000_000_000
EXPIRED_MS: Final = 16_000
"""Time without heartbeats after which a connection is closed."""
TROUBLE_MS: Final = 90_000
QUIET_MS: Final = 75_000
"""Longer than a broker counts members as present that did not come back, and any period."""
OVERLAP_MS: Final = 60
"""Permitted time with two owners: two responses on their way at once."""
AFTERMATH_MS: Final = 40_000
"""Time after a trouble in which two owners are its consequence, and their maximum: the longest
sleep, and the time until a member's next request.
"""
CALM = ("join", "leave", "crash", "queues")
TROUBLES = ("sleep", "loss", "broker")


@dataclass(slots=True)
class Outcome:
    """Counts of a played seed."""

    acked: int = 0
    ends: int = 0
    overlaps_ms: list[int] = field(default_factory=list)


class Node:
    """A broker: its real parts of the assignment, through all its lives."""

    def __init__(self, run: "Run", name: str, queues: int) -> None:
        self.run = run
        self.name = name
        self.queues = queues
        self.disk = SimDisk(run.rng, lambda: run.now_ms)
        self.life = 0
        self.alive = False
        self.lines: list[str] = []
        self.answered_ms = 1 << 60
        """Time at which it first gave a member queues."""
        self.start()

    def start(self) -> None:
        run, disk = self.run, InlineDisk()
        self.life += 1
        self.alive = True
        files = ConfigFiles(self.disk, "/config")
        saver = TableSaver(files, disk)
        modes, kept = RequestModes(saver), AssignmentStore(saver, run.now_ms)
        modes.load()
        kept.load()
        config = BrokerConfig(
            broker_name=self.name, rebalance_strategy="STICKY", namesrv_addr=["ns:9876"]
        )
        self.consumers = ConsumerTable()
        me = GroupCoordinator(self.name, 0, f"{self.name}:10911")
        call = partial(run.call, self)
        routes = TopicRoutes(call, lambda: ["ns:9876"], lambda _: (None, me), lambda: run.now_ms)
        self.assignments = Assignments(
            AssignmentDeps(
                config=config,
                consumers=self.consumers,
                modes=modes,
                kept=kept,
                routes=routes,
                call=call,
                coordinator=lambda: me,
                steady_ms=lambda: run.now_ms,
                wall_ms=lambda: BEGIN_MS + run.now_ms,
                run_on_disk_thread=saver.run_on_disk_thread,
                call_soon=lambda work: run.at(run.now_ms, self._while(self.life, work)),
            )
        )
        self.broker: Any = SimpleNamespace(
            saver=saver,
            topics={TOPIC: True},
            consumers=self.consumers,
            config=config,
            request_modes=modes,
            assignments=self.assignments,
        )
        self.consumers.on_change = self.assignments.group_changed
        self.table = Dispatcher(saver.hold_until_saved)
        assignment.register(self.table, self.broker)
        run.at(run.now_ms + 100, self._while(self.life, self._tick))

    def crash(self) -> None:
        """End the broker as a power cut does."""
        self.alive = False
        self.gather()
        self.disk.end()
        self.disk.restart()

    def closed(self, peer: Peer) -> None:
        """A connection is gone."""
        if self.alive:
            self.consumers.peer_closed(peer)
            self.send_notices()

    def send_notices(self) -> None:
        clients.send_notices(self.broker)

    def dispatch(self, request: Command) -> Deferred[Command]:
        done: Deferred[Command] = Deferred()
        done.then(self._answered)
        response: Any = self.table.dispatch(request, Peer("x:1", b"", None), 0)  # type: ignore[arg-type]
        if isinstance(response, Deferred):
            response.then(done.resolve)
        else:
            done.resolve(response)
        return done

    def _answered(self, response: Command) -> None:
        if b"queueId" in bytes(response.body):  # type: ignore[arg-type]
            self.answered_ms = min(self.answered_ms, BEGIN_MS + self.run.now_ms)

    def gather(self) -> None:
        """The lines of its history."""
        changes = self.assignments.history.take_changes()
        self.lines += [line.decode() for line in lines_of(changes)]

    def _tick(self) -> None:
        self.assignments.tick()
        for peer in self.consumers.find_expired(self.run.now_ms, EXPIRED_MS):
            self.consumers.peer_closed(peer)
            peer.closed = True
        self.send_notices()
        self.run.at(self.run.now_ms + 100, self._while(self.life, self._tick))

    def _while(self, life: int, work: Callable[[], None]) -> Callable[[], None]:
        return lambda: work() if self.alive and self.life == life else None


class Run:
    """Run of a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._owners: dict[Place, set[str]] = {}
        self._shared_since: dict[Place, int] = {}
        self.outcome = Outcome()
        self.troubled_ms = -AFTERMATH_MS
        names = ["a", "b", "c"][: self.rng.choice((1, 2, 2, 3))]
        self.nodes: dict[str, Node] = {}
        for name in names:
            self.nodes[name] = Node(self, name, self.rng.randrange(1, 7))
        self.members: dict[str, SimMember] = {}
        self.disk = self

    def play(self) -> Outcome:
        rng = self.rng
        kinds = CALM if rng.random() < 0.5 else CALM + TROUBLES
        for _ in range(rng.randrange(1, 5)):
            self._join()
        for _ in range(rng.randrange(3, 15)):
            kind = rng.choice(kinds)
            self.at(rng.randrange(TROUBLE_MS), getattr(self, f"_{kind}"))
        self._until(TROUBLE_MS)
        for member in self.members.values():
            member.loss_until_ms = member.sleeps_until_ms = 0
        self._until(TROUBLE_MS + QUIET_MS)
        self._check()
        return self.outcome

    # Time and network

    def at(self, at_ms: int, work: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(at_ms, self.now_ms), next(self._numbers), work))

    def deliver(self, member: SimMember, work: Callable[[], None]) -> None:
        """Something sent to a member."""
        if not self.lost(member):
            self.at(self._later(), lambda: work() if not member.gone else None)

    def ask(
        self,
        member: SimMember,
        node: Node | None,
        request: Command,
        timeout_ms: int,
        done: Callable[[Command | None], None],
    ) -> None:
        """A member's request: `done` once, with None where no answer came."""
        responses: list[Command | None] = []

        def once(response: Command | None) -> None:
            if not responses:
                responses.append(response)
                done(response)

        def arrive() -> None:
            if node is not None and node.alive:
                node.dispatch(request).then(back)

        def back(response: Command) -> None:
            if not self.lost(member):
                self.at(self._later(), lambda: once(response))

        self.at(self.now_ms + timeout_ms, lambda: once(None))
        if not self.lost(member):
            self.at(self._later(), arrive)

    def call(
        self, sender: Node, address: str, request: Command, timeout_ms: int
    ) -> Deferred[Command | str]:
        """A broker's request to another, or to the name server."""
        later: Deferred[Command | str] = Deferred()
        life = sender.life

        def once(response: Command | str) -> None:
            if not later.done and sender.alive and sender.life == life:
                later.resolve(response)

        name = address.partition(":")[0]
        self.at(self.now_ms + timeout_ms, lambda: once("timed out"))

        def arrive() -> None:
            if name == "ns":
                response = new_response(request, 0, body=self._route().encode())
                self.at(self._later(), lambda: once(response))
            elif self.nodes[name].alive:
                body = bytes(request.body)  # type: ignore[arg-type]
                copy = new_request(request.code, None, body, fields=request.fields)
                self.nodes[name].dispatch(copy).then(
                    lambda response: self.at(self._later(), lambda: once(response))
                )
            else:
                once("no connection")

        self.at(self._later(), arrive)
        return later

    def lost(self, member: SimMember) -> bool:
        return self.now_ms < member.loss_until_ms and self.rng.random() < 0.8

    def _later(self) -> int:
        return self.now_ms + self.rng.randrange(1, 15)

    def _route(self) -> TopicRouteData:
        """Route from the name server, without brokers that died."""
        alive = [node for node in self.nodes.values() if node.alive]
        return TopicRouteData(
            [QueueData(node.name, node.queues, node.queues, 6) for node in alive],
            [BrokerData("C", node.name, {0: f"{node.name}:10911"}) for node in alive],
        )

    def _until(self, end_ms: int) -> None:
        while self._events and self._events[0][0] < end_ms:
            self.now_ms, _, work = heapq.heappop(self._events)
            work()
        self.now_ms = end_ms

    # Events

    def _join(self) -> None:
        name = f"c{self.rng.randrange(40):02}"
        if name not in self.members and len(self.members) < 8:
            self.members[name] = SimMember(self, name)
            self.members[name].start()

    def _leave(self) -> None:
        self._end(clean=True)

    def _crash(self) -> None:
        self._end(clean=False)

    def _end(self, *, clean: bool) -> None:
        if len(self.members) > 1:
            self.outcome.ends += 1
            self.members.pop(self.rng.choice(sorted(self.members))).end(clean=clean)

    def _queues(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        node.queues += self.rng.randrange(1, 4)
        node.assignments.topics_changed([TOPIC])

    def _sleep(self) -> None:
        member = self.members[self.rng.choice(sorted(self.members))]
        member.sleeps_until_ms = self._trouble(self.rng.randrange(200, 25_000))

    def _loss(self) -> None:
        member = self.members[self.rng.choice(sorted(self.members))]
        member.loss_until_ms = self._trouble(self.rng.randrange(2_000, 20_000))

    def _broker(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        if node.alive:
            node.crash()
            self.at(self._trouble(self.rng.randrange(100, 15_000)), node.start)

    def _trouble(self, duration_ms: int) -> int:
        end_ms = min(self.now_ms + duration_ms, TROUBLE_MS)
        self.troubled_ms = max(self.troubled_ms, end_ms)
        return end_ms

    # Checks

    def held(self, member: SimMember, places: set[Place]) -> None:
        """Note the queues that a member holds now."""
        self.outcome.acked += 1
        for place in member.held - places:
            owners = self._owners[place]
            owners.discard(member.name)
            since_ms = self._shared_since.pop(place, None) if len(owners) == 1 else None
            if since_ms is not None:
                self._overlapped(since_ms, self.now_ms)
        for place in places - member.held:
            owners = self._owners.setdefault(place, set())
            owners.add(member.name)
            if len(owners) == 2:
                self._shared_since[place] = self.now_ms

    def _overlapped(self, since_ms: int, end_ms: int) -> None:
        self.outcome.overlaps_ms.append(end_ms - since_ms)
        limit_ms = AFTERMATH_MS if since_ms < self.troubled_ms + AFTERMATH_MS else OVERLAP_MS
        assert end_ms - since_ms <= limit_ms, f"two owners from {since_ms} to {end_ms}"

    def _check(self) -> None:
        shares = {name: sorted(member.held) for name, member in self.members.items()}
        wanted = sorted(
            (node.name, number) for node in self.nodes.values() for number in range(node.queues)
        )
        held = sorted(place for share in shares.values() for place in share)
        assert held == wanted, f"queues {wanted} are held as {shares}"
        sizes = [len(share) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1, f"shares are not balanced: {shares}"
        for node in self.nodes.values():
            node.gather()
            check_lines(node)

    def digest(self) -> str:
        """Hash of the disks' contents."""
        found = [node.disk.digest() for node in self.nodes.values()]
        return hashlib.blake2b(json.dumps(found).encode(), digest_size=8).hexdigest()


def check_lines(node: Node) -> None:
    """No assignment is wrong, uneven, or moved more than it had to; none begins with nothing where
    the broker had given an answer before, in whichever life."""
    for one in map(parse, node.lines):
        found = measure_rebalance(one)
        assert not one.faults, one.faults
        assert found.spread <= 1 and found.moved == found.moved_min, one
        assert found.owned or one.time_ms <= node.answered_ms, f"forgotten: {one}"


def run_seed(seed: int) -> Outcome:
    """Play one seed of this suite."""
    return Run(seed).play()
