"""A seed of the quorum's suite: one to five members, random trouble, and the checks.

The real core and the real files on simulated disks, and a network that delays, loses, doubles and
reorders messages, each by itself, and separates members in one or both directions. Members lose
their power (and unsynced data) or are killed, at any operation of their disks; syncs fail; disks
are slow, so that a core is ahead of its files; clocks differ a little. Some seeds are about syncs
that all take time, as long as the seed lasts (raft/slow.py).

Then trouble stops: soon one member leads and takes appends, and all members have applied the same
entries, including every acknowledged one. Permanent invariants are in raft/checkers.py; besides, a
member that reports a quorum is the only leader (leases of masters rest on that).
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.sim.raft.checkers import History
from tests.sim.raft.node import Node
from tests.sim.raft.slow import SYNCS_MS, Slow
from turbopump.controller.config import ControllerConfig
from turbopump.controller.node import raft_options
from turbopump.controller.raft.actions import Committed, Outcome
from turbopump.controller.raft.member_state import RaftRole
from turbopump.controller.raft.messages import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    RaftMessage,
    decode,
    encode,
)
from turbopump.controller.raft.options import RaftOptions

STEPS_MAX = 900
PAUSES_MS = (0, 0, 0, 1, 2, 5, 10, 10, 20, 40)
SIZES = (0, 3, 10, 40, 200)
FLYING_MAX = 400
"""Messages under way; beyond it the oldest are lost, as any network does."""
TROUBLES = (
    "loss", "doubles", "reorder", "partition", "one way", "crash", "kill", "crash at work",
    "bad sync", "slow disk", "transfer", "gone", "preferred", "torn pages", "writeback", "stall",
    "bounce",
)  # fmt: skip
SLOW_SYNC = "slow sync"
SLOW = 0.12
"""Fraction of the seeds that are slow; they play ten times the time of others."""
SLOW_PACE = 10
ELDERS = 0.15
THEMED = 0.6
THEME_FACTOR = 4
SETTLE_MS = 10_000
SETTLE_STEP_MS = 10
RETRY_MS = 500
UNLIMITED = 1 << 30


@dataclass(slots=True)
class Played:
    """Counts of a played seed."""

    acked: int = 0
    ends: int = 0


@dataclass(slots=True)
class Flying:
    """A message on its way."""

    source: str
    target: str
    call: Any
    message: RaftMessage
    is_response: bool


class Disks(list[Node]):
    """All disks of the group, compared as one."""

    def digest(self) -> str:
        """A hash of all."""
        text = " ".join(node.disk.digest() for node in self)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Run:
    """Run of a seed."""

    def __init__(self, seed: int, about: tuple[str, ...] = ()) -> None:
        """`about`: troubles that it surely knows, the first as its theme."""
        rng = self.rng = random.Random(seed)
        self.now_ms = 0
        self.troubles = {name for name in TROUBLES if rng.random() < 0.35}
        self.theme = rng.choice(TROUBLES) if rng.random() < THEMED else ""
        if about:
            self.theme = about[0]
        self.troubles |= {*about, self.theme} - {""}
        if SLOW_SYNC in about or (not about and rng.random() < SLOW):
            self.troubles = {*self.troubles, SLOW_SYNC} - {"slow disk", "preferred"}
        self.is_slow = SLOW_SYNC in self.troubles
        self.history = History()
        self.played = Played()
        self.number = 0
        self.calm = False
        self.last, self.retry_ms = b"nothing", 0
        self.on_wire = rng.random() < 0.1
        """Whether messages are written and read as on the wire, which takes time."""
        self.batches = self.is_slow or rng.random() < 0.5
        self.flying: list[Flying] = []
        self.cut: set[tuple[str, str]] = set()
        self.loss = rng.choice((0.02, 0.1, 0.3)) if "loss" in self.troubles else 0.0
        self.doubles = rng.choice((0.05, 0.3)) if "doubles" in self.troubles else 0.0
        count = rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 5, 5))
        if self.theme == "one way":
            count = 3
        names = [f"n{number}" for number in range(count)]
        peers = {name: f"{name}:9878" for name in names}
        shared = self._shared_options(count)
        self.nodes: dict[str, Node] = {}
        for name in names:
            options = RaftOptions(self_id=name, peers=peers, **shared)
            node = self.nodes[name] = Node(self, name, options, rng)
            node.disk.torn_pages = "torn pages" in self.troubles
            node.disk.ordered = rng.random() < 0.2
            node.is_elder = rng.random() < ELDERS
        self._slow_down()
        self.disk = Disks(self.nodes.values())
        self.actions = self._actions()

    def _slow_down(self) -> None:
        """Choose the duration of syncs: one for all members, or one for each."""
        if not self.is_slow:
            return
        same_ms = self.rng.choice(SYNCS_MS)
        is_same = self.rng.random() < 0.6
        for node in self.nodes.values():
            node.sync_ms = same_ms if is_same else self.rng.choice((0, *SYNCS_MS))

    def _shared_options(self, count: int) -> dict[str, Any]:
        rng = self.rng
        if self.is_slow:
            options = raft_options(ControllerConfig(self_id="n0"), {"n0": "n0:9878"})
            return {
                "heart_beat_time_interval_ms": options.heart_beat_time_interval_ms,
                "max_heart_beat_leak": options.max_heart_beat_leak,
                "min_vote_interval_ms": options.min_vote_interval_ms,
                "max_vote_interval_ms": options.max_vote_interval_ms,
                "vote_wait_ms": options.vote_wait_ms,
                "snapshot_threshold": rng.choice((40, 1000)),
                "snapshot_keep": rng.choice((1, 4)),
            }
        interval_ms = rng.choice((30, 60, 100))
        preferred = ("n0",) if "preferred" in self.troubles and count > 1 else ()
        return {
            "heart_beat_time_interval_ms": interval_ms,
            "min_vote_interval_ms": 20,
            "max_vote_interval_ms": rng.choice((60, 150)),
            "vote_wait_ms": 80,
            "min_take_leadership_vote_interval_ms": 3,
            "max_take_leadership_vote_interval_ms": 10,
            "leadership_transfer_wait_timeout_ms": 50,
            "check_preferred_leader_interval_ms": 100,
            "max_wait_ack_time_ms": 200,
            "max_push_time_out_ms": rng.choice((40, 100)),
            "push_pause_ms": 20,
            "rpc_timeout_ms": 200,
            "snapshot_threshold": rng.choice((5, 15, 1000)),
            "snapshot_keep": rng.choice((1, 4)),
            "preferred_leader_ids": preferred,
        }

    def _actions(self) -> list[Callable[[], None]]:
        """Possible steps, each repeated by its weight."""
        # Where little is appended no log is too short to be elected.
        appends = self.rng.choice((2, 2, 48) if self.theme == "one way" else (2, 48, 48))
        weights = {self._deliver: 240, self._tick: 100, self._append: appends, self._restart: 16}
        optional = {
            "partition": {self._partition: 3, self._join: 3},
            "one way": {self._block: 3, self._join: 1},
            "crash": {self._crash: 4},
            "kill": {self._kill: 4},
            "crash at work": {self._crash_at_work: 4},
            "bad sync": {self._bad_sync: 4},
            "transfer": {self._transfer: 6},
            "gone": {self._kill_leader: 4},
            "writeback": {self._writeback: 12},
            "stall": {self._stall: 3},
            "bounce": {self._bounce: 4},
        }
        for name in sorted(self.troubles):
            factor = THEME_FACTOR if name == self.theme else 1
            for action, weight in optional.get(name, {}).items():
                weights[action] = weights.get(action, 0) + weight * factor
        return [action for action, weight in weights.items() for _ in range(weight)]

    def play(self) -> Played:
        """Play the whole seed; AssertionError and StoreError are findings."""
        rng = self.rng
        for node in self.nodes.values():
            assert node.start(), "a member does not start"
        for _ in range(rng.randrange(STEPS_MAX // 4, STEPS_MAX)):
            self.actions[int(rng.random() * len(self.actions))]()
            self._check_quorum()
        self._settle()
        return self.played

    # Requests of members

    def disk_work(self) -> int:
        """Number of queued operations that a slow disk does now; the rest waits for the
        next event.
        """
        if self.calm or "slow disk" not in self.troubles or self.rng.random() < 0.6:
            return UNLIMITED
        return int(self.rng.random() * 3)

    def fly(self, source: Node, target: str, call: tuple[int, int], message: RaftMessage) -> None:
        """A request of a life of a member."""
        # Doubles of this one would be a leader's second request, of which it knows nothing.
        once = isinstance(message, LeadershipTransferRequest | LeadershipTransferResponse)
        self._send(Flying(source.name, target, call, message, False), once)

    def fly_back(self, source: Node, target: str, call: Any, message: RaftMessage) -> None:
        """Send a response."""
        self._send(Flying(source.name, target, call, message, True), False)

    def _send(self, flying: Flying, once: bool) -> None:
        if self.on_wire:
            flying.message = decode(type(flying.message), encode(flying.message))
        if not self.calm and self.rng.random() < self.loss:
            return
        self.flying.append(flying)
        if not once and not self.calm and self.rng.random() < self.doubles:
            self.flying.append(flying)
        if len(self.flying) > FLYING_MAX:
            del self.flying[0]

    # Steps

    def _some(self) -> Node:
        return self.disk[int(self.rng.random() * len(self.disk))]

    def _deliver(self) -> None:
        if not self.flying:
            self._tick()
            return
        at = 0
        if "reorder" in self.troubles and not self.calm and self.rng.random() < 0.5:
            at = int(self.rng.random() * len(self.flying))
        flying = self.flying.pop(at)
        if (flying.source, flying.target) in self.cut:
            return
        target = self.nodes[flying.target]
        if flying.is_response:
            life, call = flying.call
            if target.life == life:
                target.on_response(flying.source, call, flying.message)
        elif target.raft is not None:
            target.on_request(flying.message, (flying.source, flying.call))

    def _tick(self) -> None:
        pause_ms = PAUSES_MS[int(self.rng.random() * len(PAUSES_MS))]
        self.now_ms += pause_ms * SLOW_PACE if self.is_slow else pause_ms
        for node in self.disk:
            node.tick()

    def _append(self) -> None:
        leaders = [node for node in self.disk if node.raft and node.raft.role is RaftRole.LEADER]
        node = self._some()
        if leaders and self.rng.random() < 0.95:
            node = leaders[int(self.rng.random() * len(leaders))]
        self.propose(node)

    def propose(self, node: Node) -> bytes:
        """Append something that no other appends."""
        self.number += 1
        body = b"%d " % self.number
        body += b"x" * SIZES[int(self.rng.random() * len(SIZES))]

        def append(raft: Any) -> None:
            raft.append(body, node.now_ms).then(lambda outcome: self._outcome(body, outcome))

        node.tell(append)
        return body

    def _outcome(self, body: bytes, outcome: Outcome) -> None:
        """Check that an acknowledged entry was applied: the history watches it from then to the
        end.
        """
        if isinstance(outcome, Committed):
            self.played.acked += 1
            committed = self.history.committed
            assert outcome.index < len(committed), f"acknowledged before it is applied: {outcome}"
            entry = committed[outcome.index]
            assert (entry.term, entry.pos, entry.body) == (outcome.term, outcome.pos, body)

    def _restart(self) -> None:
        node = self._some()
        if not node.up:
            node.start()

    def _crash(self) -> None:
        node = self._some()
        if node.up:
            self.played.ends += 1
            node.crash(kill=False)

    def _kill(self) -> None:
        node = self._some()
        if node.up:
            self.played.ends += 1
            node.crash(kill=True)

    def _bounce(self) -> None:
        """A follower is killed and there again, perhaps where it does not reach the leader any
        more, to which its last word was a moment ago."""
        node = self._some()
        if node.raft is not None and node.raft.role is RaftRole.FOLLOWER:
            self.played.ends += 1
            if self.rng.random() < 0.5 and (leader := node.raft.leader_id) is not None:
                self.cut |= {(leader, node.name), (node.name, leader)}
            node.crash(kill=True)
            node.start()

    def _crash_at_work(self) -> None:
        node = self._some()
        node.disk.cut_after = int(self.rng.random() * 12)
        node.disk.kill = self.rng.random() < 0.5
        self.played.ends += 1

    def _bad_sync(self) -> None:
        self._some().disk.fail_syncs = 1

    def _writeback(self) -> None:
        self._some().disk.writeback()

    def _kill_leader(self) -> None:
        """Kill the leader: its host refuses connections, so the others learn of its death."""
        leaders = [node for node in self.disk if node.raft and node.raft.role is RaftRole.LEADER]
        if not leaders:
            return
        dead = leaders[0]
        dead.crash(kill=True)
        self.played.ends += 1
        for node in self.disk:
            if self.rng.random() < 0.7:
                node.tell(lambda raft, n=node: raft.on_peer_gone(dead.name, n.now_ms))

    def _transfer(self) -> None:
        target = self._some().name
        for node in self.disk:
            node.tell(lambda raft, n=node: raft.transfer_to(target, n.now_ms))

    def _stall(self) -> None:
        """A long time without a message: the patience of all ends, and leases do."""
        self.now_ms += self.rng.choice((100, 300, 1000))

    def _partition(self) -> None:
        names = [name for name in self.nodes if self.rng.random() < 0.5]
        for one in names:
            for other in self.nodes:
                if other not in names:
                    self.cut |= {(one, other), (other, one)}

    def _block(self) -> None:
        leaders = [node.name for node in self.disk if node.leads]
        one, other = leaders[0] if leaders else self._some().name, self._some().name
        self.cut.add((one, other))
        if self.rng.random() < 0.5:
            self.cut.add((other, one))

    def _join(self) -> None:
        self.cut.clear()

    # Checks

    def _check_quorum(self) -> None:
        """A leader with a quorum is the only one."""
        for node in self.disk:
            raft = node.raft
            if raft is None or raft.role is not RaftRole.LEADER or not raft.has_quorum(node.now_ms):
                continue
            for other in self.disk:
                if other.raft is not None and other.raft.role is RaftRole.LEADER:
                    assert other.raft.term <= raft.term, (
                        f"{node.name} of term {raft.term} has a quorum, {other.name} leads in "
                        f"term {other.raft.term}"
                    )

    def _settle(self) -> None:
        """End all trouble and check that members soon agree, before any append and after it."""
        self.calm = True
        self.cut.clear()
        if self.is_slow:
            Slow(self).play()
        self._wait_for(self._is_one)
        self._wait_for(self._takes_more)
        assert len({node.state for node in self.disk}) == 1, "states differ"

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        deadline_ms = self.now_ms + SETTLE_MS
        while not condition():
            assert self.now_ms < deadline_ms, f"not one after 10 s: {self.states()}"
            self.now_ms += SETTLE_STEP_MS
            for node in self.disk:
                node.disk.cut_after, node.disk.fail_syncs = None, 0
                if not node.up:
                    assert node.start(), "a member does not start in calm"
                node.tick()
            self.deliver_all()

    def deliver_all(self) -> None:
        """Deliver the messages that are on their way, and the responses."""
        for _ in range(FLYING_MAX):
            if self.flying:
                self._deliver()
        self._check_quorum()

    def _takes_more(self) -> bool:
        """Something that was appended now is applied everywhere; a refusal is tried again."""
        if any(entry.body == self.last for entry in self.history.committed[-20:]):
            return self._is_one()
        leaders = [node for node in self.disk if node.leads]
        if leaders and self.now_ms >= self.retry_ms:
            self.retry_ms = self.now_ms + RETRY_MS
            self.last = self.propose(leaders[0])
        return False

    def _is_one(self) -> bool:
        end = len(self.history.committed) - 1
        return all(node.applied == end for node in self.disk) and any(
            node.leads and node.raft.has_quorum(node.now_ms) for node in self.disk if node.raft
        )

    def states(self) -> str:
        """Description of all members for a finding."""
        lines = []
        for node in self.disk:
            raft = node.raft
            if raft is None:
                lines.append(f"{node.name}: down")
                continue
            log = raft.member.log
            lines.append(
                f"{node.name}: {raft.role.name} term {raft.term} vote {raft.member.vote} leader "
                f"{raft.leader_id} log ({log.base.index}, {log.end}] of {log.end_term} committed "
                f"{raft.member.committed} applied {node.applied} queue {len(node.order)} "
                f"sync {node.sync_ms} ms{' elder' if node.is_elder else ''}"
            )
        return "\n".join(lines)


def run_seed(seed: int, about: tuple[str, ...] = ()) -> Played:
    """Play one seed of this suite."""
    return Run(seed, about).play()
