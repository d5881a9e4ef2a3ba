"""What the parts of one member share: term, vote, role, log, and the actions to be done.

Owns the order of actions and what is committed. It must never decide who leads. Called by the core
and by its parts for the leader and for followers.
"""

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

from turbopump.controller.raft.actions import (
    Action,
    AppendEntries,
    Apply,
    Call,
    LoadSnapshot,
    SaveSnapshot,
    SaveTerm,
    TakeSnapshot,
    TruncateFrom,
)
from turbopump.controller.raft.log import Base, Entry, Log, Snapshot
from turbopump.controller.raft.messages import RaftMessage
from turbopump.controller.raft.options import SNAPSHOT_MAX, RaftOptions
from turbopump.engine.types import LONG_AGO_MS

SOMEONE: Final = ""
"""Leads in a term that had a leader before a restart, which forgot which one."""


class RaftRole(Enum):
    """MemberState.Role."""

    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"


@dataclass(slots=True)
class Restored:
    """What a member has from its last life."""

    term: int = 0
    vote: str | None = None
    log: Log | None = None
    snapshot: Snapshot | None = None
    is_new: bool = True
    """It never had one. Who had may have promised something, even if nothing was written then."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that was not answered yet."""

    peer_id: str
    message: RaftMessage
    sent_ms: int


class Member:
    """See the module's text."""

    def __init__(self, options: RaftOptions, restored: Restored, rng: random.Random) -> None:
        self.options = options
        self.rng = rng
        self.role = RaftRole.CANDIDATE
        self.term = restored.term
        self.vote = restored.vote
        self.leader_id: str | None = None
        self.log = restored.log if restored.log is not None else Log()
        self.led_by = SOMEONE if self.log.end_term == self.term else None
        """Which member it followed in this term, dead or not."""
        self.snapshot = restored.snapshot
        self.committed = -1
        """Index of the last entry that is committed and, as soon as the actions are done, applied.
        It is not kept: a leader finds it again."""
        self.matched = -1
        """A follower's log is its leader's up to here, as far as this term has shown."""
        self.aligned = False
        """Whether that leader has cut what it has not."""
        self.heard_ms = LONG_AGO_MS
        """When a follower heard from its leader."""
        self.sync_ms = 0
        """What a sync takes here, as far as the driver measured."""
        self.actions: list[Action] = []
        self._calls: dict[int, Waiting] = {}
        self._next_call = 0
        self._snapshot_asked = -1
        if self.snapshot is not None:
            self.committed = self._snapshot_asked = self.snapshot.base.index
            self.actions.append(LoadSnapshot(self.committed, self.snapshot.data))

    @property
    def id(self) -> str:
        """Its own."""
        return self.options.self_id

    @property
    def given(self) -> str | None:
        """Whose its vote is. A term that had a leader has no vote left: a member that voted for
        that one may have lost its disk since."""
        return self.led_by if self.vote is None else self.vote

    @property
    def patience_ms(self) -> int:
        """So much longer all takes than on a disk that costs nothing: what is sent stands behind
        what is written here, and its answer behind the same there."""
        return 4 * self.sync_ms

    def save_term(self, term: int, vote: str | None) -> None:
        """A new term, or a vote in it; the old term's votes are void."""
        assert term > self.term or (term == self.term and self.vote in (None, vote)), "a term back"
        if term > self.term:
            self.led_by = None
        if (term, vote) != (self.term, self.vote):
            self.term, self.vote = term, vote
            if self.actions and isinstance(self.actions[-1], SaveTerm):
                self.actions.pop()  # no peer heard of that one
            self.actions.append(SaveTerm(term, vote))

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Entries behind the end."""
        self.log.extend(entries)
        last = self.actions[-1] if self.actions else None
        if isinstance(last, AppendEntries):
            self.actions[-1] = AppendEntries(last.entries + entries)
        else:
            self.actions.append(AppendEntries(entries))

    def truncate_from(self, index: int) -> None:
        """Cut; never what is committed, never as a leader."""
        assert index > self.committed, f"committed entries are cut from {index} on"
        assert self.role is not RaftRole.LEADER, "a leader cuts its log"
        self.log.truncate_from(index)
        self.actions.append(TruncateFrom(index))

    def commit(self, index: int) -> None:
        """Everything up to here is committed; never back."""
        if index <= self.committed:
            return
        entries = self.log.upto(index, self.committed)
        assert entries and entries[-1].index == index, "an unknown entry is committed"
        self.committed = index
        self.actions.append(Apply(entries))

    def ask_for_snapshot(self) -> None:
        """If it is time for one. Called when all that was applied has been reported."""
        if self.committed - self._snapshot_asked >= self.options.snapshot_threshold:
            self._snapshot_asked = self.committed
            self.actions.append(TakeSnapshot(self.committed))

    def took_snapshot(self, index: int, data: bytes) -> bool:
        """The state of all up to `index` as bytes; entries before it go, but for some. False if it
        is too large to be sent, or a newer one is there."""
        known = self.snapshot.base.index if self.snapshot is not None else -1
        if len(data) > SNAPSHOT_MAX or index <= known or index < self.log.base.index:
            return False
        assert index <= self.committed, "a snapshot of what is not committed"
        snapshot = Snapshot(self.log.base_at(index), data)
        self.log.compact(max(self.log.base.index, index - self.options.snapshot_keep))
        self._keep(snapshot)
        return True

    def install(self, base: Base, data: bytes) -> None:
        """A snapshot of the leader's that is ahead of what is committed here."""
        assert base.index > self.committed, "an older snapshot is installed"
        if self.log.term_at(base.index) == base.term:
            self.log.compact(base.index)
        else:
            self.log.reset(base)
        self._keep(Snapshot(base, data))
        self.committed = self._snapshot_asked = base.index
        self.actions.append(LoadSnapshot(base.index, data))

    def _keep(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.actions.append(SaveSnapshot(snapshot, self.log.base, self.log.entries()))

    # Calls

    def call(self, peer_id: str, message: RaftMessage, now_ms: int) -> int:
        """Ask a peer."""
        call = self._next_call
        self._next_call += 1
        self._calls[call] = Waiting(peer_id, message, now_ms)
        self.actions.append(Call(peer_id, call, message))
        return call

    def answered(self, peer_id: str, call: int) -> Waiting | None:
        """What was asked; None if the caller has given up."""
        waiting = self._calls.get(call)
        if waiting is None or waiting.peer_id != peer_id:
            return None
        del self._calls[call]
        return waiting

    def forget(self, call: int) -> None:
        """The answer is not wanted any more."""
        self._calls.pop(call, None)

    def forget_old(self, now_ms: int) -> None:
        """A driver that loses an answer must not cost memory."""
        limit = now_ms - 2 * self.options.rpc_timeout_ms - self.patience_ms
        for call in [call for call, one in self._calls.items() if one.sent_ms < limit]:
            del self._calls[call]
