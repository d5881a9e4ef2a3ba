"""A member of the simulated quorum: the real core over the real files of a simulated disk.

Its actions are done in the order that the driver of the controller's node uses; a crash drops
pending actions and unsynced data. A disk may take time for each sync, or hang: a write is done at
the beginning of that time or at its end, and reported after it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tests.sim.disk import PowerCut, SimDisk
from tests.sim.raft.checkers import History
from turbopump.controller.raft import actions as acts
from turbopump.controller.raft.core import Raft
from turbopump.controller.raft.disk_order import DiskOrder
from turbopump.controller.raft.log import Entry, Log
from turbopump.controller.raft.member_state import RaftRole
from turbopump.controller.raft.messages import (
    HeartBeatRequest,
    InstallSnapshotRequest,
    PushEntryRequest,
    RaftMessage,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from turbopump.controller.raft.options import RaftOptions
from turbopump.controller.raft.storage import Durable, RaftStorage

FOLDER = "/dledger"
FILE_SIZE = 4096


HANGS_MS = 1 << 40


def syncs_of(batch: list[Durable]) -> int:
    """Number of syncs that the files need for a batch."""
    kinds = [type(action) for action in batch]
    syncs = 0
    if acts.SaveSnapshot in kinds:
        before_it = kinds[: len(kinds) - 1 - kinds[::-1].index(acts.SaveSnapshot)]
        syncs = int(acts.AppendEntries in before_it)  # after it, if the file does not have them
        del kinds[: len(before_it)]
    for kind, before in zip(kinds, [None, *kinds], strict=False):
        if kind is not before or kind is acts.TruncateFrom:
            syncs += {acts.TruncateFrom: 2, acts.SaveSnapshot: 2}.get(kind, 1)
    return syncs


@dataclass(slots=True)
class Write:
    """Pending write of a slow disk."""

    batch: list[Durable]
    began_ms: int
    ends_ms: int
    is_done: bool


class World(Protocol):
    """Interface of the run for a member."""

    history: History
    rng: random.Random
    now_ms: int
    batches: bool
    """Whether disks do all queued work at once, before the messages queued ahead of it are sent."""

    def disk_work(self) -> int:
        """Number of operations that a disk does now."""

    def fly(self, source: "Node", target: str, call: tuple[int, int], message: RaftMessage) -> None:
        """Send a request; `call` names the life and the call."""

    def fly_back(self, source: "Node", target: str, call: Any, message: RaftMessage) -> None:
        """Send a response."""


class Node:
    """A member and its machine."""

    def __init__(
        self, world: World, name: str, options: RaftOptions, disk_rng: random.Random
    ) -> None:
        self.world = world
        self.name = name
        self.options = options
        self.disk = SimDisk(disk_rng, lambda: world.now_ms)
        self.rate = world.rng.uniform(0.97, 1.03)
        self.offset_ms = world.rng.randrange(1_000_000)
        self.life = 0
        self.storage: RaftStorage | None = None
        self.raft: Raft | None = None
        self.order = DiskOrder()
        self.sync_ms = 0
        """Duration of a sync in ms."""
        self.write: Write | None = None
        self.is_elder = False
        """Whether it has no pre-vote before an election, like DLedger's members."""
        self.calls: dict[int, tuple[str, int]] = {}
        """The member that a call of this life asks, and when it fails."""
        self.state = 0
        self.applied = -1
        self.leads = False
        self.term = 0

    @property
    def now_ms(self) -> int:
        """Time of its own clock in ms."""
        return int(self.world.now_ms * self.rate) + self.offset_ms

    @property
    def up(self) -> bool:
        return self.raft is not None

    def start(self) -> bool:
        """Start its process; False if the power was cut meanwhile."""
        assert self.raft is None
        self.life += 1
        storage = RaftStorage(self.disk, FOLDER, FILE_SIZE)
        try:
            restored = storage.open()
        except PowerCut:
            self.down()
            return False
        except OSError:
            self.kill()
            return False
        assert restored.log is not None
        self.state, self.applied, self.leads = 0, -1, False
        self.storage = storage
        # A generator of its own: its draws must not depend on the others.
        rng = random.Random(self.world.rng.random())
        self.raft = Raft(self.options, restored, rng, self.now_ms)
        log, history = restored.log, self.world.history
        history.tells_term(self.name, restored.term)
        history.appends(self.name, log.base.term, log.entries())
        if restored.vote is not None:
            history.votes_for(self.name, restored.term, restored.vote)
        self.term = self.raft.term
        self.run()
        return True

    def down(self) -> None:
        """The process is gone, by whatever."""
        self.raft = None
        self.storage = None
        self.order = DiskOrder()
        self.write = None
        self.calls.clear()
        self.leads = False
        self.world.history.leads_not(self.name)
        self.disk.restart()

    def crash(self, kill: bool) -> None:
        """The power goes, or the process is killed, between two operations of the disk."""
        self.disk.kill = kill
        self.disk.end()
        self.down()

    def kill(self) -> None:
        """Kill the process, as a member whose disk failed does itself."""
        self.crash(kill=True)

    # Work

    def tell(self, event: Callable[[Raft], None]) -> None:
        """Something happens to the core."""
        if self.raft is not None:
            event(self.raft)
            self.run()

    def run(self) -> None:
        """Do actions until the disk is slow."""
        limit: int | None = None
        while self.raft is not None:
            raft, found = self.raft, self.raft.take_actions()
            self.order.add(found)
            while (next_one := self.order.next_action()) is not None:
                self._do(raft, next_one)
                found.append(next_one)
            batch = self.order.next_batch()
            if found:
                continue
            if not batch or self.write is not None:
                break
            if limit is None:
                limit = self.world.disk_work()
            if limit <= 0 or not self._begin(batch if self.world.batches else batch[:1]):
                break
            limit -= 1
        self.look()

    def _begin(self, batch: list[Durable]) -> bool:
        """Whether it is written at once."""
        if not self.sync_ms:
            return self._write(batch)
        ends_ms = self.now_ms + syncs_of(batch) * self.sync_ms
        self.write = Write(batch, self.now_ms, ends_ms, self.world.rng.random() < 0.5)
        if self.write.is_done:
            self._keep(batch)
        return False

    def _write(self, batch: list[Durable]) -> bool:
        if self._keep(batch):
            self.order.on_written(batch)
        return self.raft is not None

    def _keep(self, batch: list[Durable]) -> bool:
        """Have it on the disk."""
        try:
            self._store(batch)
        except PowerCut:
            self.down()
        except OSError:
            self.kill()
        return self.raft is not None

    def _look_at_disk(self, raft: Raft) -> None:
        """Finish or report a pending sync, as a driver does at its ticks."""
        write = self.write
        if write is None:
            return
        waited_ms = self.now_ms - write.began_ms
        if self.now_ms < write.ends_ms:
            raft.on_sync_waits(min(waited_ms, self.sync_ms), self.now_ms)
            return
        self.write = None
        if write.is_done or self._keep(write.batch):
            raft.on_synced(self.sync_ms)
            self.order.on_written(write.batch)
            self.run()

    def look(self) -> None:
        """Check the visible state of the member."""
        raft, history = self.raft, self.world.history
        if raft is None:
            return
        assert raft.term >= self.term, f"Raft-2: {self.name} is back in term {raft.term}"
        self.term = raft.term
        if raft.role is RaftRole.LEADER:
            history.leads(self.name, raft.term, raft.member.log, raft.member.committed)
        else:
            history.leads_not(self.name)

    def _do(self, raft: Raft, action: acts.Action) -> None:
        world = self.world
        if isinstance(action, acts.Call):
            self._speaks(action.message)
            fails_ms = self.now_ms + self.options.rpc_timeout_ms
            self.calls[action.call] = (action.peer_id, fails_ms)
            world.fly(self, action.peer_id, (self.life, action.call), action.message)
        elif isinstance(action, acts.Response):
            self._speaks(action.message)
            world.fly_back(self, action.token[0], action.token[1], action.message)
        elif isinstance(action, acts.Apply):
            for entry in action.entries:
                self._apply(entry)
        elif isinstance(action, acts.LoadSnapshot):
            self.state = self.read_snapshot(action.index, action.data)
            self.applied = action.index
        elif isinstance(action, acts.TakeSnapshot):
            assert self.applied == action.index, "a snapshot of another state"
            data = b"%d" % self.state
            raft.on_snapshot(action.index, data, self.now_ms)
        elif isinstance(action, acts.Settle):
            action.later.resolve(action.outcome)
        elif isinstance(action, acts.BecameLeader):
            assert not self.leads
            self.leads = True
        elif isinstance(action, acts.LostLead):
            assert self.leads
            self.leads = False

    def read_snapshot(self, index: int, data: bytes) -> int:
        """Raft-7: check that a snapshot has the state of the applied entries."""
        states = self.world.history.states
        state = int(data)
        assert index < len(states), f"Raft-7: a snapshot at {index}, which is not applied"
        assert states[index] == state, f"Raft-7: another snapshot at {index}"
        return state

    def _apply(self, entry: Entry) -> None:
        assert entry.index == self.applied + 1, (
            f"Raft-7: {self.name} applies {entry.index} after {self.applied}"
        )
        self.applied = entry.index
        term = self.raft.term if self.raft is not None else 0
        self.state = self.world.history.applies(self.name, self.state, entry, term)

    def _store(self, batch: list[Any]) -> None:
        storage, history = self.storage, self.world.history
        assert storage is not None
        log = Log(storage._base, storage._entries)
        appended: list[tuple[int | None, tuple[Entry, ...]]] = []
        for action in batch:
            if isinstance(action, acts.TruncateFrom):
                history.cuts(self.name, log.entries_between(log.end, action.index - 1))
                log.truncate_from(action.index)
            elif isinstance(action, acts.AppendEntries):
                appended.append((log.term_at(action.entries[0].index - 1), action.entries))
                log.append_entries(action.entries)
            elif isinstance(action, acts.SaveSnapshot):
                log = Log(action.base, action.entries)
        storage.perform_actions(batch)
        # Entries that were not written may be replaced by others.
        for before, entries in appended:
            history.appends(self.name, before, entries)
        for action in batch:
            if isinstance(action, acts.SaveTerm) and action.vote is not None:
                history.votes_for(self.name, action.term, action.vote)

    def _speaks(self, message: RaftMessage) -> None:
        """Check a message when it leaves, because all actions before it in the queue are done."""
        history = self.world.history
        if isinstance(message, VoteRequest | VoteResponse) and message.pre_vote is not None:
            return  # a question, and no promise
        if isinstance(message, VoteRequest | HeartBeatRequest):
            history.tells_term(self.name, message.term)
        if isinstance(message, VoteResponse) and message.vote_result is VoteResult.ACCEPT:
            history.tells_term(self.name, message.term)
            assert message.leader_id is not None
            history.votes_for(self.name, message.term, message.leader_id)

    # The network

    def on_request(self, message: RaftMessage, token: object) -> None:
        """Raft-10: a push of an old term or of another leader does nothing."""
        raft = self.raft
        assert raft is not None
        if self.is_elder and isinstance(message, VoteRequest):
            message = replace(message, pre_vote=None)
        member = raft.member
        before = None
        if isinstance(message, PushEntryRequest | InstallSnapshotRequest) and (
            message.term < raft.term or message.leader_id != raft.leader_id
        ):
            before = (member.log.end, member.log.end_term, member.committed)
        raft.on_request(message, token, self.now_ms)
        if before is not None:
            after = (member.log.end, member.log.end_term, member.committed)
            assert before == after, f"Raft-10: {type(message).__name__} of term {message.term}"
        self.run()

    def on_response(self, peer: str, call: int, message: RaftMessage | None) -> None:
        """Pass on a response, once for each call of this life."""
        if self.raft is not None and self.calls.pop(call, None) is not None:
            self.raft.on_response(peer, call, message, self.now_ms)
            self.run()

    def tick(self) -> None:
        """Advance the time of the member."""
        if self.raft is None:
            return
        for call in [call for call, (_, at_ms) in self.calls.items() if at_ms <= self.now_ms]:
            peer, _at_ms = self.calls.pop(call)
            self.raft.on_response(peer, call, None, self.now_ms)
        self._look_at_disk(self.raft)
        if self.raft is None:
            return
        self.raft.on_tick(self.now_ms)
        self.run()
