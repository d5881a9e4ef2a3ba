"""A leader's part: progress of its followers in one term, and the pending appends.

Owns the dispatcher of each follower (DLedgerEntryPusher.EntryDispatcher), the commit rule and the
heartbeats. It must never change the term or the role: it returns the term that requires the change.
The core makes one object for each term that it leads.

    COMPARE --same entry--> APPEND, or TRUNCATE if the follower has more
    COMPARE --conflict--> COMPARE further down, or INSTALL_SNAPSHOT below the log's begin
    TRUNCATE --done--> APPEND
    APPEND --entries replaced by a snapshot--> INSTALL_SNAPSHOT --done--> COMPARE

Beyond DLedger: only entries of the leader's own term count as committed (0.3.1.2 counts older ones,
too); a new leader appends an empty entry so that there is one; each follower has one push in
progress at a time, with as many entries as allowed; a TRUNCATE contains the term of the next entry,
and is sent only if the follower has more than was compared.

Tests: tests/unit/controller/raft/test_core.py, tests/unit/controller/raft/test_transfer.py
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from turbopump.controller.raft.actions import Committed, Failed, Outcome, Settle
from turbopump.controller.raft.member_state import MemberState, Waiting
from turbopump.controller.raft.messages import (
    HeartBeatRequest,
    InstallSnapshotRequest,
    PushEntryRequest,
    PushEntryResponse,
    PushType,
    RaftMessage,
    RaftResponseCode,
)
from turbopump.controller.raft.options import BYTES_PER_PUSH_MAX, ENTRIES_PER_PUSH_MAX
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS

COMMIT_AGAIN_MS = 1000
"""Interval of commits to an idle follower, DLedger's (EntryDispatcher.doCommit)."""


class FollowerState(Enum):
    """The next request that the leader sends a follower: compare, truncate, append or snapshot."""

    COMPARE = "COMPARE"
    """Search for the last entry that both logs have."""
    TRUNCATE = "TRUNCATE"
    """Remove the follower's entries after it."""
    APPEND = "APPEND"
    """Send new entries and the committed index."""
    INSTALL_SNAPSHOT = "INSTALL_SNAPSHOT"
    """Send the snapshot, because it replaced entries that the follower lacks."""


@dataclass(slots=True)
class FollowerProgress:
    """The leader's view of a follower. Times are of the monotonic clock."""

    peer_id: str
    compare: int
    """Index of the entry that is compared, or was when the follower agreed."""
    state: FollowerState = FollowerState.COMPARE
    match: int = -1
    """Index up to which all entries are on the follower's disk, and will stay."""
    next: int = 0
    """Index of the next entry to append."""
    commit_told: int = -1
    """Committed index that the follower has acknowledged."""
    call: int | None = None
    """Number of the push in progress."""
    sent_ms: int = 0
    """Time of the last push."""
    wait_until_ms: int = LONG_AGO_MS
    """No push before this time."""
    heart_beat_due_ms: int = LONG_AGO_MS
    """Time of the next heartbeat."""
    heard_sent_ms: int = LONG_AGO_MS
    """Sending time of the newest heartbeat that the follower answered with SUCCESS."""
    live: bool = True
    """Whether the last heartbeat got any answer."""


@dataclass(slots=True)
class Pending:
    """A proposed entry that waits until a majority has it."""

    later: Deferred[Outcome]
    deadline_ms: int
    """Monotonic time at which it fails with WAIT_QUORUM_ACK_TIMEOUT."""


class LeaderTerm:
    """This member's leadership in a single term. Times are of the monotonic clock.

    Making it appends the empty first entry of the term.
    """

    def __init__(self, member: MemberState, now_ms: int) -> None:
        self.member = member
        self.term = member.term
        self.started_ms = now_ms
        self.transferee: str | None = None
        """Id of the member that was asked to take over: appends are refused meanwhile."""
        self.peers = {
            peer: FollowerProgress(peer, member.log.end) for peer in member.options.others
        }
        """Progress of each follower by id."""
        self._pending: dict[int, Pending] = {}
        first = member.log.next_entry(self.term, b"")
        member.append((first,))
        self.first_index = first.index
        self._commit_majority()

    @property
    def has_committed(self) -> bool:
        """Whether an entry of this term is committed, and with it all earlier entries."""
        return self.member.committed >= self.first_index

    # Appends

    def append(self, body: bytes, now_ms: int) -> Deferred[Outcome]:
        """Append an entry with this body and start its replication; resolved with Committed by a
        Settle action, or with Failed, at once if refused."""
        member, later = self.member, Deferred[Outcome]()
        if self.transferee is not None:
            later.resolve(
                Failed(RaftResponseCode.LEADER_TRANSFERRING, "the leadership is handed over")
            )
        elif len(self._pending) >= member.options.max_pending_requests_num:
            later.resolve(Failed(RaftResponseCode.LEADER_PENDING_FULL, "too many appends wait"))
        else:
            entry = member.log.next_entry(self.term, body)
            member.append((entry,))
            deadline_ms = now_ms + member.options.max_wait_ack_time_ms + member.patience_ms
            self._pending[entry.index] = Pending(later, deadline_ms)
            self._commit_majority()
        return later

    def fail_pending(self) -> None:
        """Add actions that fail all pending appends with TERM_CHANGED: the term ended, and the next
        leader decides their outcome."""
        failed = Failed(RaftResponseCode.TERM_CHANGED, f"term {self.term} has ended")
        for pending in self._pending.values():
            self.member.actions.append(Settle(pending.later, failed))
        self._pending.clear()

    def _expire_pending(self, now_ms: int) -> None:
        """Fail the pending appends whose deadline has passed with WAIT_QUORUM_ACK_TIMEOUT."""
        failed = Failed(RaftResponseCode.WAIT_QUORUM_ACK_TIMEOUT, "no majority answered in time")
        expired = [index for index, one in self._pending.items() if now_ms >= one.deadline_ms]
        for index in expired:
            self.member.actions.append(Settle(self._pending.pop(index).later, failed))

    def _commit_majority(self) -> None:
        """Commit entries of this term that a majority has.

        The leader's own entries are durable before any later action.
        """
        member = self.member
        matches = sorted([member.log.end, *(one.match for one in self.peers.values())])
        index = matches[len(matches) - member.options.majority]
        before = member.committed
        if index <= before or not self.may_commit(index):
            return
        member.commit_up_to(index)
        for number in range(before + 1, index + 1):
            pending = self._pending.pop(number, None)
            entry = member.log.get(number)
            if pending is not None and entry is not None:
                outcome = Committed(number, entry.term, entry.pos)
                member.actions.append(Settle(pending.later, outcome))
        member.ask_for_snapshot()

    def may_commit(self, index: int) -> bool:
        """Whether the entry at `index` is of this term: older entries are committed only with a
        later entry of this term (Raft, 5.4.2)."""
        return self.member.log.term_at(index) == self.term

    # Time

    def on_tick(self, now_ms: int) -> None:
        """Send due heartbeats and pushes, and fail appends whose deadline has passed."""
        for progress in self.peers.values():
            if now_ms >= progress.heart_beat_due_ms:
                progress.heart_beat_due_ms = (
                    now_ms + self.member.options.heart_beat_time_interval_ms
                )
                request = HeartBeatRequest(**self._common_fields(progress.peer_id))
                self.member.call_peer(progress.peer_id, request, now_ms)
        self._expire_pending(now_ms)
        self.push_due(now_ms)

    def is_cut_off(self, now_ms: int) -> bool:
        """Whether no majority, this member included, answered heartbeats sent in the last
        `promise_ms`, so that followers elect another leader; False until the term is as old."""
        heard_ms = max(self._quorum_heard_ms(now_ms), self.started_ms)
        return now_ms - heard_ms > self.member.options.promise_ms

    def has_quorum(self, now_ms: int) -> bool:
        """Whether no other member can lead at `now_ms`.

        A majority, this member included, answered heartbeats that were sent less than `lease_ms`
        ago, so it still keeps its promise to elect no other. False during a transfer of leadership.
        """
        if self.transferee is not None:
            return False
        return now_ms - self._quorum_heard_ms(now_ms) < self.member.options.lease_ms

    def _quorum_heard_ms(self, now_ms: int) -> int:
        """Time at which the heartbeats were sent that a majority, this member included,
        has answered."""
        heard = sorted([now_ms, *(one.heard_sent_ms for one in self.peers.values())])
        return heard[len(heard) - self.member.options.majority]

    def on_heart_beat(
        self, waiting: Waiting, response: RaftMessage | None, now_ms: int
    ) -> int | None:
        """Handle the answer to a heartbeat (None: the call failed); return the term in which this
        member must become a candidate, or None if it still leads."""
        progress = self.peers[waiting.peer_id]
        progress.live = response is not None
        if response is None:
            return None
        if response.code == RaftResponseCode.SUCCESS:
            progress.heard_sent_ms = max(progress.heard_sent_ms, waiting.sent_ms)
            # It follows now: pushes that it refused before need no pause.
            progress.wait_until_ms = min(progress.wait_until_ms, now_ms)
        elif response.code == RaftResponseCode.TERM_NOT_READY:
            progress.heart_beat_due_ms = now_ms
        elif response.code == RaftResponseCode.EXPIRED_TERM and response.term > self.term:
            return response.term
        elif response.code == RaftResponseCode.INCONSISTENT_LEADER:
            return self.term
        return None

    # Pushes

    def push_due(self, now_ms: int) -> None:
        """Send each follower its next due push, unless one is in progress or a pause is."""
        limit_ms = self.member.options.max_push_time_out_ms + self.member.patience_ms
        for progress in self.peers.values():
            if progress.call is not None:
                if now_ms - progress.sent_ms <= limit_ms:
                    continue
                self.member.forget_call(progress.call)
                progress.call = None
            if now_ms < progress.wait_until_ms:
                continue
            request = self._next_request(progress, now_ms)
            if request is not None:
                progress.call = self.member.call_peer(progress.peer_id, request, now_ms)
                progress.sent_ms = now_ms

    def _common_fields(self, peer_id: str) -> dict[str, Any]:
        """The fields that all requests to a peer have."""
        return {
            "group": self.member.options.group,
            "local_id": self.member.id,
            "remote_id": peer_id,
            "leader_id": self.member.id,
            "term": self.term,
        }

    def _next_request(self, progress: FollowerProgress, now_ms: int) -> RaftMessage | None:
        """The request that a follower needs next, by the state of its dispatcher; None if
        none is due."""
        log = self.member.log
        if progress.state is FollowerState.COMPARE:
            if progress.compare < log.base.index:
                progress.state = FollowerState.INSTALL_SNAPSHOT
            elif progress.compare < 0:
                progress.state = FollowerState.TRUNCATE
        if progress.state is FollowerState.APPEND and progress.next <= log.base.index:
            progress.state = FollowerState.INSTALL_SNAPSHOT
        if progress.state is FollowerState.COMPARE:
            return self._push_request(
                progress, PushType.COMPARE, progress.compare, progress.compare
            )
        if progress.state is FollowerState.TRUNCATE:
            first = max(progress.compare, log.base.index + 1)
            return self._push_request(progress, PushType.TRUNCATE, first, first - 1)
        if progress.state is FollowerState.APPEND:
            if progress.next <= log.end:
                return self._push_request(
                    progress, PushType.APPEND, progress.next, progress.next - 1
                )
            # Repeated, because a restarted follower has forgotten the committed index.
            is_due = now_ms - progress.sent_ms >= COMMIT_AGAIN_MS
            if is_due or progress.commit_told < self.member.committed:
                return self._push_request(progress, PushType.COMMIT, -1, progress.match)
            return None
        return self._install_request(progress)

    def _push_request(
        self, progress: FollowerProgress, kind: PushType, first: int, before: int
    ) -> PushEntryRequest:
        """Make a push of this kind, for the entry at index `first` (or for a batch from there);
        `before` is the index of the entry to compare."""
        log = self.member.log
        values: dict[str, Any] = self._common_fields(progress.peer_id)
        if kind is PushType.APPEND:
            entries = log.entries_from(first, ENTRIES_PER_PUSH_MAX, BYTES_PER_PUSH_MAX)
            if len(entries) > 1:
                values["batch_entry"] = tuple(entries)
            else:
                values["entry"] = entries[0]
        elif kind is not PushType.COMMIT:
            values["entry"] = log.get(first)
        if kind is PushType.TRUNCATE:
            behind = log.term_at(first + 1)
            values["next_term"] = behind if behind is not None else -1
        return PushEntryRequest(
            type=kind,
            commit_index=self.member.committed,
            pre_log_index=before,
            pre_log_term=log.term_at(before),
            **values,
        )

    def _install_request(self, progress: FollowerProgress) -> InstallSnapshotRequest:
        """Make the request that sends the snapshot to a follower."""
        snapshot = self.member.snapshot
        assert snapshot is not None, "entries are gone without a snapshot of them"
        return InstallSnapshotRequest(
            last_included_index=snapshot.base.index,
            last_included_term=snapshot.base.term,
            last_included_pos=snapshot.base.pos,
            data=snapshot.data,
            **self._common_fields(progress.peer_id),
        )

    def on_push(
        self, call: int, waiting: Waiting, response: RaftMessage | None, now_ms: int
    ) -> int | None:
        """Handle the answer to a push or a snapshot (None: the call failed); return the term in
        which this member must become a candidate, or None if it still leads."""
        progress = self.peers[waiting.peer_id]
        if progress.call != call:
            return None
        progress.call = None
        request = waiting.message
        if response is None:
            progress.wait_until_ms = now_ms + self.member.options.push_pause_ms
            return None
        if response.term > self.term:
            return response.term
        if response.code == RaftResponseCode.SUCCESS:
            if isinstance(request, InstallSnapshotRequest):
                self._on_installed(progress, request)
            elif isinstance(request, PushEntryRequest):
                assert isinstance(response, PushEntryResponse)
                self._on_push_success(progress, request, response)
            self._commit_majority()
        elif response.code == RaftResponseCode.INCONSISTENT_STATE and isinstance(
            response, PushEntryResponse
        ):
            self._on_disagreement(progress, request, response, now_ms)
        else:
            progress.state, progress.compare = FollowerState.COMPARE, self.member.log.end
            progress.wait_until_ms = now_ms + self.member.options.push_pause_ms
        return None

    def _on_push_success(
        self, progress: FollowerProgress, request: PushEntryRequest, response: PushEntryResponse
    ) -> None:
        """Record a successful push: the follower has the entries, and its dispatcher
        takes its next state."""
        if request.type is PushType.COMPARE:
            assert request.pre_log_index is not None
            index = request.pre_log_index
            has_more = response.end_index > index
            progress.state = FollowerState.TRUNCATE if has_more else FollowerState.APPEND
        elif request.entries:
            index = request.entries[-1].index
            progress.state = FollowerState.APPEND
        else:
            index = progress.match
        progress.match = max(progress.match, index)
        progress.next = index + 1
        if request.type is not PushType.COMPARE:
            progress.commit_told = request.commit_index

    def _on_installed(self, progress: FollowerProgress, request: InstallSnapshotRequest) -> None:
        """Record that a follower has the snapshot; its log is compared next, because it may have
        entries after the snapshot."""
        progress.match = max(progress.match, request.last_included_index)
        progress.commit_told = max(progress.commit_told, request.last_included_index)
        progress.state, progress.compare = FollowerState.COMPARE, request.last_included_index

    def _on_disagreement(
        self,
        progress: FollowerProgress,
        request: RaftMessage,
        response: PushEntryResponse,
        now_ms: int,
    ) -> None:
        """The follower's log differs at the compared index: compare at a lower index.

        The next index is the follower's end, or the last entry here of the follower's term, or the
        one before its first entry of that term.
        """
        end = self.member.log.end
        if not isinstance(request, PushEntryRequest) or request.type is not PushType.COMPARE:
            progress.wait_until_ms = now_ms + self.member.options.push_pause_ms
            progress.state, progress.compare = (
                FollowerState.COMPARE,
                min(end, max(response.end_index, -1)),
            )
            return
        below = progress.compare - 1
        if response.end_index < progress.compare:
            below = min(below, response.end_index)
        elif response.x_index is not None and response.x_term is not None:
            last = self.member.log.last_of_term(response.x_term, below)
            below = min(below, last if last is not None else response.x_index - 1)
        progress.compare = max(below, -1)

    # Transfer

    def entries_behind(self, peer_id: str) -> int:
        """Return the number of entries that a follower lacks, as known here: it may have more."""
        return self.member.log.end - self.peers[peer_id].match

    def live_peers(self) -> Iterator[str]:
        """Yield the ids of the followers that answered the last heartbeat, or were sent none."""
        return (peer for peer, progress in self.peers.items() if progress.live)
