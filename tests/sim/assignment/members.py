"""A consumer like RocketMQ's: heartbeats to all brokers, a rebalance by any broker's response.

Owns the queues that a member takes for its own, and the times of its requests. It must never know
the right assignment: the suite does.
"""

import json
from typing import TYPE_CHECKING, Any, Final

from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.heartbeat import CLUSTERING, ConsumerData

if TYPE_CHECKING:
    from tests.sim.assignment.suite import Node, Run

GROUP, TOPIC = "G", "T"
HEARTBEAT_MS: Final = 5_000
PAUSE_MS: Final = 1_000
"""Minimum interval of rebalances (RebalanceService.minInterval)."""
PERIOD_MS: Final = 20_000
TIMEOUT_MS: Final = 3_000

Place = tuple[str, int]


class Link:
    """A connection of a member, with the interface that a broker uses."""

    def __init__(self, member: "SimMember") -> None:
        self.member = member

    def send(self, command: Command) -> None:
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self.member.run.deliver(self.member, self.member.wake)

    def close(self) -> None:
        pass

    def call_later(self, delay_ms: int, callback: Any) -> Any:
        raise AssertionError("no calls to members")

    def after_answers(self, callback: Any) -> None:
        callback()


class SimMember:
    """See the module. `sleeps_until_ms` and `loss_until_ms` are its troubles."""

    def __init__(self, run: "Run", name: str) -> None:
        self.run = run
        self.name = name
        self.peers: dict[str, tuple[int, Peer]] = {}
        """Broker name to its life and our connection to it."""
        self.held: set[Place] = set()
        self.gone = False
        self.sleeps_until_ms = self.loss_until_ms = 0
        self._last_ms = -PAUSE_MS
        self._due: int | None = None
        self._asking = self._again = False

    def start(self) -> None:
        self._beat()
        self.wake()

    @property
    def awake(self) -> bool:
        return not self.gone and self.run.now_ms >= self.sleeps_until_ms

    def end(self, *, clean: bool) -> None:
        """Leave, or be killed: connections close either way."""
        self.gone = True
        for name, (life, peer) in self.peers.items():
            node = self.run.nodes[name]
            if clean:
                node.consumers.unregister(peer, self.name, GROUP)
            if node.life == life:
                node.closed(peer)
        self._hold(set())

    def wake(self) -> None:
        """A notice: rebalance as soon as may be."""
        self._plan(max(self.run.now_ms, self._last_ms + PAUSE_MS))

    def _plan(self, at_ms: int) -> None:
        if self._due is None or at_ms < self._due:
            self._due = at_ms
            self.run.at(at_ms, lambda: self._rebalance(at_ms))

    def _rebalance(self, planned_ms: int) -> None:
        if self.gone or self._due != planned_ms:
            return
        if self._asking:
            self._due, self._again = None, True
            return
        if not self.awake:
            self._due = None
            self._plan(self.sleeps_until_ms)
            return
        self._due, self._last_ms, self._asking = None, self.run.now_ms, True
        body = {
            "clientId": self.name,
            "consumerGroup": GROUP,
            "messageModel": CLUSTERING,
            "strategyName": "AVG",
            "topic": TOPIC,
        }
        request = new_request(RequestCode.QUERY_ASSIGNMENT, None, json.dumps(body).encode())
        alive = [node for node in self.run.nodes.values() if node.alive]
        node = self.run.rng.choice(alive) if alive else None
        self.run.ask(self, node, request, TIMEOUT_MS, self._answered)

    def _answered(self, response: Command | None) -> None:
        self._asking = False
        if self.gone:
            return
        if not self.awake:
            self.run.at(self.sleeps_until_ms, lambda: self._answered_late(response))
            return
        assert response is None or response.code == 0, response.remark
        found = None
        if response is not None:
            assert isinstance(response.body, bytes)
            found = json.loads(response.body).get("messageQueueAssignments")
        if found is None:
            self._plan(self._last_ms + PAUSE_MS)
            return
        beans = [one["messageQueue"] for one in found]
        self._hold({(bean["brokerName"], bean["queueId"]) for bean in beans})
        again, self._again = self._again, False
        self._plan(self._last_ms + PAUSE_MS if again else self.run.now_ms + PERIOD_MS)

    def _answered_late(self, response: Command | None) -> None:
        self._asking = True
        self._answered(response)

    def _hold(self, places: set[Place]) -> None:
        self.run.held(self, places)
        self.held = places

    def _beat(self) -> None:
        if self.gone:
            return
        if self.awake:
            for node in self.run.nodes.values():
                if node.alive and not self.run.lost(self):
                    self._beat_at(node)
        self.run.at(self.run.now_ms + HEARTBEAT_MS, self._beat)

    def _beat_at(self, node: "Node") -> None:
        known = self.peers.get(node.name)
        if known is None or known[0] != node.life or known[1].closed:
            address = f"{self.name}:{self.run.now_ms}"
            known = self.peers[node.name] = node.life, Peer(address, b"", Link(self))
        data = ConsumerData(GROUP, message_model=CLUSTERING)
        node.consumers.register(known[1], self.name, data, self.run.now_ms)
        node.send_notices()
