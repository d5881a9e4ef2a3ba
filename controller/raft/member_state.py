"""State that the parts of a member share: term, vote, role, log, and pending actions.

Owns the order of actions, and the committed index. It must never decide on the leader.

Tests: tests/unit/controller/raft/test_core.py
"""

import logging
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
from turbopump.controller.raft.options import LOG_BYTES_MAX, SNAPSHOT_MAX, RaftOptions
from turbopump.engine.types import LONG_AGO_MS

logger = logging.getLogger(__name__)

UNKNOWN_LEADER: Final = ""
"""Id of an unknown leader: the term had one before a restart, which forgot the id."""


class RaftRole(Enum):
    """Raft role of a member in its present term (MemberState.Role)."""

    CANDIDATE = "CANDIDATE"
    """The member follows no leader, and may request votes."""
    LEADER = "LEADER"
    """A majority voted for the member; see Raft.is_leader."""
    FOLLOWER = "FOLLOWER"
    """The member received a heartbeat of the term's leader."""


@dataclass(slots=True)
class Restored:
    """Durable state of a member from its previous process; the defaults are a new member's."""

    term: int = 0
    vote: str | None = None
    """Id of the member that got the vote in `term`; None: not given."""
    log: Log | None = None
    """Entries on the disk; None: the log is empty."""
    snapshot: Snapshot | None = None
    is_new: bool = True
    """Whether the folder never had any state; otherwise the member may have made a promise, even if
    it wrote nothing then."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request to a peer that has no answer yet."""

    peer_id: str
    message: RaftMessage
    """The request."""
    sent_ms: int
    """Monotonic time of the Call action."""


class MemberState:
    """The shared state of a member; see the module.

    Methods change the state in memory at once, and add the actions that make it durable to
    `actions`. Times are of the monotonic clock.
    """

    def __init__(self, options: RaftOptions, restored: Restored, rng: random.Random) -> None:
        self.options = options
        self.rng = rng
        self.role = RaftRole.CANDIDATE
        self.term = restored.term
        self.vote = restored.vote
        self.leader_id: str | None = None
        self.log = restored.log if restored.log is not None else Log()
        self.led_by = UNKNOWN_LEADER if self.log.end_term == self.term else None
        """The member that it followed in this term, dead or not."""
        self.snapshot = restored.snapshot
        self.committed = -1
        """Index of the last entry that is committed and, once the actions are done, applied. It is
        not stored: a leader determines it again."""
        self.matched = -1
        """Index up to which a follower's log equals its leader's, as compared in this term."""
        self.aligned = False
        """Whether that leader has removed the entries that it lacks."""
        self.heard_ms = LONG_AGO_MS
        """Time of the last message from a follower's leader."""
        self.sync_ms = 0
        """Duration of a sync here in ms, as the driver measured."""
        self.actions: list[Action] = []
        """Actions to perform, in order; `Raft.take_actions` removes them."""
        self._calls: dict[int, Waiting] = {}
        self._next_call = 0
        self._snapshot_asked = -1
        if self.snapshot is not None:
            self.committed = self._snapshot_asked = self.snapshot.base.index
            self.actions.append(LoadSnapshot(self.committed, self.snapshot.data))

    @property
    def id(self) -> str:
        """Id of this member."""
        return self.options.self_id

    @property
    def voted_for(self) -> str | None:
        """Id of the member that has this member's vote in this term; None if the vote is free.

        A term with a leader has no vote left: a member that voted for that leader may have lost its
        disk since.
        """
        return self.led_by if self.vote is None else self.vote

    @property
    def patience_ms(self) -> int:
        """Extra time in ms for answers: requests wait for writes here, and answers for writes at
        the peer."""
        return 4 * self.sync_ms

    def save_term(self, term: int, vote: str | None) -> None:
        """Set and save a later term, or the vote in the present term if it is free.

        A lower term or a second vote is a programmer error. Without effect if both are unchanged.
        """
        assert term > self.term or (term == self.term and self.vote in (None, vote)), "a term back"
        if term > self.term:
            self.led_by = None
        if (term, vote) != (self.term, self.vote):
            self.term, self.vote = term, vote
            if self.actions and isinstance(self.actions[-1], SaveTerm):
                self.actions.pop()  # no peer has learned of that vote
            self.actions.append(SaveTerm(term, vote))

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Append entries to the log in memory, and request their durable write."""
        self.log.append_entries(entries)
        last = self.actions[-1] if self.actions else None
        if isinstance(last, AppendEntries):
            self.actions[-1] = AppendEntries(last.entries + entries)
        else:
            self.actions.append(AppendEntries(entries))

    def truncate_from(self, index: int) -> None:
        """Remove the entry at `index` and all after it from the log, and request the same of the
        disk; committed entries and a leader's are a programmer error."""
        assert index > self.committed, f"committed entries are cut from {index} on"
        assert self.role is not RaftRole.LEADER, "a leader cuts its log"
        self.log.truncate_from(index)
        self.actions.append(TruncateFrom(index))

    def commit_up_to(self, index: int) -> None:
        """Raise the index of the newest committed entry to `index`, never lower it, and request the
        application of the entries."""
        if index <= self.committed:
            return
        entries = self.log.entries_between(index, self.committed)
        assert entries and entries[-1].index == index, "an unknown entry is committed"
        self.committed = index
        self.actions.append(Apply(entries))

    def ask_for_snapshot(self) -> None:
        """Add a TakeSnapshot if `snapshot_threshold` entries, or more than LOG_BYTES_MAX bytes,
        were committed since the last request or installed snapshot.

        Call it after `commit_up_to` and the Settle actions of its entries.
        """
        since, log = self._snapshot_asked, self.log
        if self.committed <= since:
            return
        size = log.base_at(self.committed).pos - log.base_at(since).pos
        if self.committed - since >= self.options.snapshot_threshold or size > LOG_BYTES_MAX:
            self._snapshot_asked = self.committed
            self.actions.append(TakeSnapshot(self.committed))

    def took_snapshot(self, index: int, data: bytes) -> bool:
        """Make `data`, the machine's state after the entry `index`, the snapshot, and remove older
        entries from the log except for `snapshot_keep` and LOG_BYTES_MAX bytes.

        False, without effect, if `data` exceeds SNAPSHOT_MAX or a newer snapshot exists.
        """
        known = self.snapshot.base.index if self.snapshot is not None else -1
        if index <= known or index < self.log.base.index:
            return False
        if len(data) > SNAPSHOT_MAX:
            logger.error(
                "the snapshot of entry %d has %d bytes, over %d: the log is not shortened",
                *(index, len(data), SNAPSHOT_MAX),
            )
            return False
        assert index <= self.committed, "a snapshot of uncommitted entries"
        snapshot = Snapshot(self.log.base_at(index), data)
        kept = max(self.log.base.index, index - self.options.snapshot_keep)
        while kept < index - 1 and snapshot.base.pos - self.log.base_at(kept).pos > LOG_BYTES_MAX:
            kept += 1
        self.log.remove_up_to(kept)
        self._save_snapshot(snapshot)
        return True

    def install_snapshot(self, base: Base, data: bytes) -> None:
        """Install a leader's snapshot of all entries up to `base`, which must be ahead of
        `committed`.

        Entries after `base` remain if the log has the base's entry; otherwise all are removed.
        """
        assert base.index > self.committed, "an older snapshot is installed"
        if self.log.term_at(base.index) == base.term:
            self.log.remove_up_to(base.index)
        else:
            self.log.restart_after(base)
        self._save_snapshot(Snapshot(base, data))
        self.committed = self._snapshot_asked = base.index
        self.actions.append(LoadSnapshot(base.index, data))

    def _save_snapshot(self, snapshot: Snapshot) -> None:
        """Make this the snapshot, and request its durable write."""
        self.snapshot = snapshot
        self.actions.append(SaveSnapshot(snapshot, self.log.base, self.log.entries()))

    # Calls

    def call_peer(self, peer_id: str, message: RaftMessage, now_ms: int) -> int:
        """Add the Call action that sends a request to a peer; return the call's number."""
        call = self._next_call
        self._next_call += 1
        self._calls[call] = Waiting(peer_id, message, now_ms)
        self.actions.append(Call(peer_id, call, message))
        return call

    def take_call(self, peer_id: str, call: int) -> Waiting | None:
        """Remove and return the call that was answered; None if it was answered or forgotten
        before, or went to another peer."""
        waiting = self._calls.get(call)
        if waiting is None or waiting.peer_id != peer_id:
            return None
        del self._calls[call]
        return waiting

    def forget_call(self, call: int) -> None:
        """Forget the call with this number, so that its answer is ignored."""
        self._calls.pop(call, None)

    def forget_old(self, now_ms: int) -> None:
        """Forget calls sent more than twice `rpc_timeout_ms` and `patience_ms` ago, so that a
        driver that loses an answer costs no memory."""
        limit = now_ms - 2 * self.options.rpc_timeout_ms - self.patience_ms
        for call in [call for call, one in self._calls.items() if one.sent_ms < limit]:
            del self._calls[call]
