"""The quorum on machines that stay slow: which member leads, how soon, and for how long.

Each sync takes the same time on a member, 25 ms to 3 s; there is no other trouble. The suite checks
an operator's guarantees: a leader within a bound that follows the slowest disk, after all trouble
and again when the leader dies, is taken for dead or hangs at a sync; and otherwise no lead is lost,
and appended entries are committed.

The options are a controller's defaults.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.raft.node import HANGS_MS, Node
from turbopump.controller.raft.core import SYNC_HANGS_MS

if TYPE_CHECKING:
    from tests.sim.raft.suite import Run

SYNCS_MS = (25, 75, 100, 250, 1000, 3000)
STEP_MS = 20
BASE_MS, BASE_SYNCS = 1_000, 9
"""Bound for an election: 2 s with syncs of 100 ms, 10 s with syncs of 1 s."""
LATE_MS, LATE_SYNCS = 10_000, 30
"""Bound directly after trouble: promises end, snapshots are written, messages arrive again."""
CALM_MS = 8_000
COMMIT_MS, COMMIT_SYNCS = 4_000, 10
"""Bound for one entry at a time, as a controller's decisions are: two syncs, those under way, a
snapshot, and a call that expires before the other disk is done.
"""
PROBE_MS = 200
"""Time until all members know that a killed leader's port is refused."""


class Slow:
    """The last act of a seed about slow disks."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.slowest_ms = max(node.sync_ms for node in run.disk)

    def play(self) -> None:
        """AssertionError is a finding."""
        for node in self.run.disk:
            node.disk.cut_after, node.disk.fail_syncs = None, 0
        self._join("after all trouble")
        self._stay()
        if len(self.run.disk) >= 3:
            self._lose()
            self._join("after the loss of a leader")
            self._stay()
        for node in self.run.disk:
            node.sync_ms = 0
            if node.write is not None:
                node.write.ends_ms = node.now_ms

    @property
    def leader(self) -> Node | None:
        """The member that leads, has a quorum, and can write."""
        for node in self.run.disk:
            if node.raft is not None and node.leads and node.raft.has_quorum(node.now_ms):
                return node
        return None

    def _step(self, kept_down: Node | None) -> None:
        run = self.run
        run.now_ms += STEP_MS
        for node in run.disk:
            node.disk.cut_after, node.disk.fail_syncs = None, 0
            if not node.up and node is not kept_down:
                assert node.start(), "a member does not start in calm"
            node.tick()
        run.deliver_all()

    def _wait(self, what: str, bound_ms: int, holds: Callable[[], bool], down: Node | None) -> None:
        began_ms = self.run.now_ms
        while not holds():
            took_ms = self.run.now_ms - began_ms
            assert took_ms < bound_ms, f"{what}: not within {bound_ms} ms: {self.run.states()}"
            self._step(down)

    def _join(self, when: str) -> None:
        """Wait until all members follow one leader and have its log: a member with a later term
        costs the leader its lead, and a late one has more to write than a vote.
        """
        bound_ms = LATE_MS + LATE_SYNCS * self.slowest_ms
        self._wait(f"all follow {when}", bound_ms, self._is_followed, None)

    def _is_followed(self) -> bool:
        leader = self.leader
        return leader is not None and all(
            node.raft is not None
            and (node.raft.leader_id, node.applied) == (leader.name, leader.applied)
            and not len(node.order)
            for node in self.run.disk
        )

    def _elect(self, when: str, bound_ms: int, down: Node | None = None) -> None:
        self._wait(f"a leader {when}", bound_ms, lambda: self.leader is not None, down)

    def _stay(self) -> None:
        """No leader loses the lead while syncs are slow and entries are written."""
        run, leader = self.run, self.leader
        assert leader is not None and leader.raft is not None
        term, ends_ms = leader.raft.term, run.now_ms + CALM_MS
        body, proposed_ms = b"", 0
        while body or run.now_ms < ends_ms:
            if not body:
                body, proposed_ms = run.propose(leader), run.now_ms
            self._step(None)
            assert leader.raft is not None
            still = leader.leads and leader.raft.term == term
            assert still and leader.raft.has_quorum(leader.now_ms), (
                f"the lead of {leader.name} is lost: {run.states()}"
            )
            waited_ms = run.now_ms - proposed_ms
            assert waited_ms < COMMIT_MS + COMMIT_SYNCS * self.slowest_ms, (
                f"{body!r} is not committed: {run.states()}"
            )
            if any(entry.body == body for entry in run.history.committed[-20:]):
                body = b""

    def _lose(self) -> None:
        """The leader's process is gone, which is known or not, or its disk hangs."""
        run, leader = self.run, self.leader
        assert leader is not None and leader.raft is not None
        how = run.rng.choice(("killed", "silent", "hanging"))
        promise_ms = leader.options.promise_ms * 21 // 20
        bound_ms = BASE_MS + BASE_SYNCS * self.slowest_ms
        if any(node.is_elder for node in run.disk):
            # A member without pre-vote accepts every candidate: more elections collide.
            bound_ms = LATE_MS + LATE_SYNCS * self.slowest_ms
        if how == "hanging":
            was_ms, leader.sync_ms = leader.sync_ms, HANGS_MS
            run.propose(leader)
            bound_ms += promise_ms + SYNC_HANGS_MS + 2 * was_ms
            self._wait(
                "another leader than who hangs",
                bound_ms,
                lambda: self.leader not in (None, leader),
                None,
            )
            leader.kill()
            leader.sync_ms = was_ms
            return
        leader.kill()
        if how == "killed":
            for number in range(1, PROBE_MS // STEP_MS + 1):
                self._step(leader)
                self._tell_gone(leader, 0.3 if number * STEP_MS < PROBE_MS else 1.0)
        else:
            bound_ms += promise_ms
        self._elect(f"after the leader was {how}", bound_ms, leader)

    def _tell_gone(self, leader: Node, share: float) -> None:
        for node in self.run.disk:
            if node.raft is not None and self.run.rng.random() < share:
                node.tell(lambda raft, n=node: raft.on_peer_gone(leader.name, n.now_ms))
