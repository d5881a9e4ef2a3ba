"""A member of the quorum: DLedger's election and replication without I/O.

Owns the roles and the transitions between them (DLedgerLeaderElector, DLedgerServer). Time and
randomness are arguments; actions come out of `take_actions`, in order (actions.py). It must never
know the content of an entry.

    FOLLOWER  --leader silent, or known to be dead--> CANDIDATE
    CANDIDATE --majority of votes--> LEADER
    CANDIDATE --heartbeat of the term's leader--> FOLLOWER
    LEADER    --cut off, disk hangs, transfer failed, later term--> CANDIDATE
    FOLLOWER  --later term, or asked to take over--> CANDIDATE

Differences to DLedger that make this safe:

* Term, vote and entries are on the disk before a peer learns of them; DLedger syncs neither.
* Entries of older terms are committed only by an entry of the leader's own term (leader.py); a
  leader reports its lead (`is_leader`, BecameLeader) once that entry has been applied.
* A push of an old term or another leader has no effect, and no committed entry is truncated
  (follower.py).
* A follower that received its leader's heartbeat within the promise votes for no other member, nor
  does a leader whose followers answer. A member that starts again votes for none while an earlier
  promise may last. So `has_quorum` proves that no other member can lead. It ends with a transfer of
  leadership, which requests votes in spite of promises; a transfer without a result ends the
  leader's term.
* `on_peer_gone` voids a promise: only for a process that is known to be dead.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from turbopump.controller.raft import clients, votes
from turbopump.controller.raft.actions import (
    Action,
    BecameLeader,
    Failed,
    LostLead,
    Outcome,
    Response,
)
from turbopump.controller.raft.candidate import Candidate
from turbopump.controller.raft.follower import on_install, on_push
from turbopump.controller.raft.leader import LeaderTerm
from turbopump.controller.raft.log import Entry
from turbopump.controller.raft.member_state import MemberState, RaftRole, Restored
from turbopump.controller.raft.messages import (
    RESPONSES,
    AppendEntryRequest,
    GetEntriesRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    InstallSnapshotRequest,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MetadataRequest,
    PushEntryRequest,
    RaftMessage,
    RaftResponseCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from turbopump.controller.raft.options import BODY_MAX, RaftOptions
from turbopump.controller.raft.votes import ParseResult
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS

NO_CAMPAIGN = {
    RaftResponseCode.UNKNOWN_GROUP,
    RaftResponseCode.UNKNOWN_MEMBER,
    RaftResponseCode.UNEXPECTED_ARGUMENT,
    RaftResponseCode.INCONSISTENT_TERM,
    RaftResponseCode.INCONSISTENT_LEADER,
}
"""Codes that refuse a transfer request and prove that the member does not campaign for it."""
SYNC_HANGS_MS = 5000
"""Duration of a sync at which the disk hangs: this member then neither leads nor campaigns."""


@dataclass(slots=True)
class Taking:
    """A request of the leader that this member take over the leadership."""

    token: object
    """Token of the request, for its Answer."""
    request: LeadershipTransferRequest
    deadline_ms: int
    """Monotonic time until which this member's log must have the leader's last entry."""
    term: int = -1
    """The term in which this member campaigns; -1 before it does."""


class Raft:
    """A member of the quorum; see the module.

    `now_ms` is of the monotonic clock and never decreases; `on_tick` is called every 10 to 20 ms.
    After each call the driver performs the actions of `take_actions`.
    """

    def __init__(
        self, options: RaftOptions, restored: Restored, rng: random.Random, now_ms: int
    ) -> None:
        self.options = options
        self.member = MemberState(options, restored, rng)
        self.leading: LeaderTerm | None = None
        self.now_ms = now_ms
        self._disk_hangs = False
        self._announced = False
        self._taking: Taking | None = None
        self._transfer_token: object | None = None
        self._transfer_ends_ms = LONG_AGO_MS
        self._next_preferred_ms = now_ms
        self._next_sweep_ms = now_ms
        is_new = restored.is_new and self.member.term == 0 and self.member.log.end < 0
        is_alone = len(options.peers) == 1
        abstains_until_ms = LONG_AGO_MS if is_new or is_alone else now_ms + options.promise_ms
        self.campaign = Candidate(self.member, abstains_until_ms, self._is_taking)
        self._handlers: dict[type[RaftMessage], Callable[[Any, object], RaftMessage | None]] = {
            VoteRequest: self._on_vote,
            HeartBeatRequest: self._on_heart_beat,
            PushEntryRequest: self._on_push,
            InstallSnapshotRequest: self._on_install,
            LeadershipTransferRequest: self._on_transfer,
            MetadataRequest: self._on_metadata,
            AppendEntryRequest: self._on_append,
            GetEntriesRequest: self._on_get,
        }

    # State that others read

    @property
    def role(self) -> RaftRole:
        """This member's Raft role. A new leader has the role before `is_leader` is True."""
        return self.member.role

    @property
    def term(self) -> int:
        """The current term, which may not be durable yet."""
        return self.member.term

    @property
    def is_leader(self) -> bool:
        """Whether this member leads, with every earlier leader's committed entry committed here."""
        return self.leading is not None and self.leading.has_committed

    @property
    def leader_id(self) -> str | None:
        """Id of the current term's leader; None if unknown."""
        return self.member.leader_id

    @property
    def self_id(self) -> str:
        """Id of this member."""
        return self.options.self_id

    @property
    def peers(self) -> dict[str, str]:
        """`host:port` of all members by id, this one included."""
        return self.options.peers

    def has_quorum(self, now_ms: int) -> bool:
        """Whether this member leads, and no other member can, at `now_ms`."""
        return self.leading is not None and self.leading.has_quorum(now_ms)

    def take_actions(self) -> list[Action]:
        """Remove and return the actions to perform, in order; see actions.py."""
        if self.leading is not None:
            self.leading.push_due(self.now_ms)
        actions, self.member.actions = self.member.actions, []
        return actions

    # Events

    def append(self, body: bytes, now_ms: int | None = None) -> Deferred[Outcome]:
        """Propose an entry; resolved by a Settle when it is applied here, or at once if refused."""
        self.now_ms = now_ms = self.now_ms if now_ms is None else now_ms
        if self.leading is None:
            refused = Failed(RaftResponseCode.NOT_LEADER, f"{self.leader_id} leads")
            return Deferred.resolved(refused)
        if len(body) > BODY_MAX:
            refused = Failed(RaftResponseCode.UNEXPECTED_ARGUMENT, f"over {BODY_MAX} bytes")
            return Deferred.resolved(refused)
        appended = self.leading.append(body, now_ms)
        self._announce_lead()
        return appended

    def on_tick(self, now_ms: int) -> None:
        """Advance the time: elections, heartbeats, and timeouts of calls, appends and transfers."""
        self.now_ms = now_ms
        member = self.member
        if now_ms >= self._next_sweep_ms:
            self._next_sweep_ms = now_ms + self.options.rpc_timeout_ms
            member.forget_old(now_ms)
        self._tick_taking()
        if member.role is RaftRole.FOLLOWER:
            if now_ms - member.heard_ms > self.options.promise_ms:
                self._become_candidate(member.term)
        elif self.leading is not None:
            self._tick_leader(self.leading)
        if member.role is RaftRole.CANDIDATE and not self._disk_hangs:
            self._tick_candidate()

    def on_request(self, message: RaftMessage, token: object, now_ms: int) -> None:
        """Handle a request of a peer or a client; one Answer with this `token` follows, in the next
        `take_actions` or later."""
        self.now_ms = now_ms
        code = RaftResponseCode.SUCCESS
        if message.group != self.options.group:
            code = RaftResponseCode.UNKNOWN_GROUP
        elif message.remote_id != self.self_id:
            code = RaftResponseCode.UNKNOWN_MEMBER
        if code is not RaftResponseCode.SUCCESS:
            response: RaftMessage | None = self._refusal(message, code)
        else:
            response = self._handlers[type(message)](message, token)
        if response is not None:
            self._answer(token, response)

    def on_response(
        self, peer_id: str, call: int, message: RaftMessage | None, now_ms: int
    ) -> None:
        """Handle the answer of a peer to the Call with the number `call`; `message` is None if the
        call failed."""
        self.now_ms = now_ms
        waiting = self.member.take_call(peer_id, call)
        if waiting is None:
            return
        request = waiting.message
        if message is not None and not isinstance(message, RESPONSES[type(request)]):
            message = None
        if isinstance(request, VoteRequest):
            assert message is None or isinstance(message, VoteResponse)
            if self.campaign.on_voted(waiting.peer_id, request, message, now_ms):
                self._become_leader()
            self._answer_taking()
            return
        if isinstance(request, LeadershipTransferRequest):
            self._on_transferred(request, message)
            return
        leading = self.leading
        if leading is None or request.term != leading.term:
            return
        if isinstance(request, HeartBeatRequest):
            term = leading.on_heart_beat(waiting, message, now_ms)
        else:
            term = leading.on_push(call, waiting, message, now_ms)
        if term is not None:
            self._become_candidate(term)
        self._announce_lead()

    def on_peer_gone(self, peer_id: str, now_ms: int) -> None:
        """Handle the death of a peer's process, whose host refuses connections to its port.

        Promises to that peer are void. A closed connection alone does not prove its death.
        """
        self.now_ms = now_ms
        member = self.member
        if peer_id == member.leader_id and member.role is RaftRole.FOLLOWER:
            self._become_candidate(member.term)
            self.campaign.start_round_soon(now_ms)

    def on_synced(self, took_ms: int) -> None:
        """Record a complete sync's time; a longer one counts at once, shorter ones gradually."""
        member = self.member
        member.sync_ms = min(SYNC_HANGS_MS, max(took_ms, member.sync_ms - member.sync_ms // 8))
        self._disk_hangs = False

    def on_sync_waits(self, for_ms: int, now_ms: int) -> None:
        """Record the time in ms that a sync in progress has taken.

        Beyond SYNC_HANGS_MS the disk hangs. Heartbeats would keep a lead in which no entry can be
        written, so this member gives the lead up.
        """
        self.now_ms = now_ms
        self.member.sync_ms = max(self.member.sync_ms, min(for_ms, SYNC_HANGS_MS))
        if for_ms >= SYNC_HANGS_MS:
            self._disk_hangs = True
            if self.leading is not None:
                self._become_candidate(self.term)

    def on_snapshot(self, index: int, data: bytes, now_ms: int) -> None:
        """Handle the machine's state after the entry `index`, which a TakeSnapshot action
        requested: it becomes the snapshot."""
        self.now_ms = now_ms
        self.member.took_snapshot(index, data)

    def transfer_to(
        self, peer_id: str, now_ms: int, token: object | None = None
    ) -> RaftResponseCode:
        """Ask a follower to take over the leadership; SUCCESS if the request is on its way, else
        the refusal. With a token and SUCCESS, an Answer with the outcome follows."""
        self.now_ms = now_ms
        leading = self.leading
        if leading is None:
            return RaftResponseCode.NOT_LEADER
        if peer_id not in leading.peers:
            return RaftResponseCode.UNEXPECTED_MEMBER
        if leading.transferee is not None:
            return RaftResponseCode.LEADER_TRANSFERRING
        if leading.entries_behind(peer_id) >= self.options.max_leadership_transfer_wait_index:
            return RaftResponseCode.FALL_BEHIND_TOO_MUCH
        if self._transfer_token is not None:
            return RaftResponseCode.LEADER_TRANSFERRING
        leading.transferee = peer_id
        self._transfer_token = token
        self._transfer_ends_ms = now_ms + self.options.rpc_timeout_ms
        request = LeadershipTransferRequest(
            group=self.options.group,
            local_id=self.self_id,
            remote_id=peer_id,
            leader_id=self.self_id,
            term=self.term,
            transfer_id=self.self_id,
            transferee_id=peer_id,
            take_leadership_ledger_index=self.member.log.end,
        )
        self.member.call_peer(peer_id, request, now_ms)
        return RaftResponseCode.SUCCESS

    def read(self, index: int) -> Entry | None:
        """Return the committed entry at `index`; None if uncommitted or replaced by a snapshot."""
        return self.member.log.get(index) if index <= self.member.committed else None

    # Roles

    def _become_candidate(self, term: int) -> None:
        """Become a candidate, in a new term if `term` is later (changeRoleToCandidate)."""
        assert term >= self.term, "an old term"
        self._end_leadership()
        member = self.member
        member.role, member.leader_id = RaftRole.CANDIDATE, None
        member.matched, member.aligned = -1, False
        self.campaign.round = None
        if term > self.term:
            member.save_term(term, None)
            self.campaign.last = ParseResult.WAIT_TO_REVOTE
            self._answer_taking()
            self.campaign.next_ms = self.now_ms + self.campaign.random_pause_ms()

    def _become_follower(self, leader_id: str) -> None:
        self._end_leadership()
        member = self.member
        member.role, member.leader_id = RaftRole.FOLLOWER, leader_id
        member.led_by = leader_id
        member.matched, member.aligned = -1, False
        member.heard_ms = self.now_ms
        self.campaign.round = None
        self._answer_taking()

    def _become_leader(self) -> None:
        member = self.member
        member.role, member.leader_id = RaftRole.LEADER, self.self_id
        self.campaign.round = None
        self.leading = LeaderTerm(member, self.now_ms)
        self._next_preferred_ms = self.now_ms + self.options.check_preferred_leader_interval_ms
        self._answer_taking()
        self.leading.on_tick(self.now_ms)
        self._announce_lead()

    def _end_leadership(self) -> None:
        leading, self.leading = self.leading, None
        if leading is None:
            return
        if self._announced:
            self._announced = False
            self.member.actions.append(LostLead(leading.term))
        leading.fail_pending()

    def _announce_lead(self) -> None:
        if self.leading is not None and self.leading.has_committed and not self._announced:
            self._announced = True
            self.member.actions.append(BecameLeader(self.term))

    # Candidates

    def _is_taking(self) -> bool:
        taking = self._taking
        return taking is not None and taking.term == self.term

    def _tick_candidate(self) -> None:
        taking, campaign = self._taking, self.campaign
        if taking is not None and taking.term > self.term:
            # The leader requested this, so no pre-vote is needed. This member's vote creates the
            # term.
            if self.now_ms < campaign.abstains_until_ms:
                return
            is_won = campaign.run(taking.term, self.now_ms)
        else:
            is_won = campaign.on_tick(self.now_ms)
        self._answer_taking()
        if is_won:
            self._become_leader()

    # Requests of peers

    def _answer(self, token: object, message: RaftMessage) -> None:
        self.member.actions.append(Response(token, message))

    def _refusal(self, message: RaftMessage, code: RaftResponseCode) -> RaftMessage:
        return clients.make_refusal(self.member, message, code)

    def _has_promised(self) -> bool:
        """Whether this member has promised: to a live leader, or as a leader to itself."""
        member = self.member
        if self.leading is not None:
            return self.leading.has_quorum(self.now_ms)
        heard_ago = self.now_ms - member.heard_ms
        return member.role is RaftRole.FOLLOWER and heard_ago <= self.options.promise_ms

    def _on_vote(self, request: VoteRequest, token: object) -> VoteResponse:
        member, campaign = self.member, self.campaign
        voter = votes.Voter(
            self.self_id,
            frozenset(self.peers),
            member.term,
            member.voted_for,
            member.leader_id,
            member.log.end,
            member.log.end_term,
            self._has_promised(),
            self.now_ms < campaign.abstains_until_ms,
            self._is_taking(),
        )
        response = VoteResponse(
            group=request.group,
            local_id=request.local_id,
            remote_id=request.remote_id,
            leader_id=request.leader_id,
            term=member.term,
        )
        if request.pre_vote is not None:
            return self._answer_pre_vote(voter, request, response)
        verdict = votes.decide_vote(voter, request)
        if verdict.result is VoteResult.ACCEPT:
            assert request.leader_id is not None
            if verdict.raises_term:
                self._become_candidate(request.term)
            member.save_term(request.term, request.leader_id)
            campaign.on_vote_granted(request.leader_id, self.now_ms)
        return replace(response, term=verdict.term, vote_result=verdict.result)

    def _answer_pre_vote(
        self, voter: votes.Voter, request: VoteRequest, response: VoteResponse
    ) -> VoteResponse:
        """Answer a pre-vote.

        A leader refuses it even before it knows that it is followed.
        """
        campaign = self.campaign
        voter = replace(
            voter,
            promised=voter.promised or self.leading is not None,
            favours_another=self._disk_hangs or campaign.favours_another(request, self.now_ms),
        )
        result, free_term = votes.decide_pre_vote(voter, request)
        if result is VoteResult.ACCEPT:
            campaign.end_own_round(self.now_ms)
        return replace(response, vote_result=result, pre_vote=free_term)

    def _on_heart_beat(self, request: HeartBeatRequest, token: object) -> HeartBeatResponse:
        """Answer a heartbeat, whose sender may become this member's leader."""
        member, leader_id = self.member, request.leader_id
        if leader_id is None or leader_id not in self.peers:
            return HeartBeatResponse(code=RaftResponseCode.UNKNOWN_MEMBER)
        if leader_id == self.self_id:
            return HeartBeatResponse(code=RaftResponseCode.UNEXPECTED_MEMBER)
        if request.term < member.term:
            return HeartBeatResponse(code=RaftResponseCode.EXPIRED_TERM, term=member.term)
        if request.term > member.term:
            self._become_candidate(request.term)
            return HeartBeatResponse(code=RaftResponseCode.TERM_NOT_READY)
        if member.leader_id is None:
            self._become_follower(leader_id)
        elif member.leader_id != leader_id:
            return HeartBeatResponse(code=RaftResponseCode.INCONSISTENT_LEADER)
        member.heard_ms = self.now_ms
        return HeartBeatResponse()

    def _on_push(self, request: PushEntryRequest, token: object) -> RaftMessage:
        response = on_push(self.member, request, self.now_ms)
        self._tick_taking()
        return response

    def _on_install(self, request: InstallSnapshotRequest, token: object) -> RaftMessage:
        return on_install(self.member, request, self.now_ms)

    # Leaders

    def _tick_leader(self, leading: LeaderTerm) -> None:
        leading.on_tick(self.now_ms)
        self._announce_lead()
        if leading.transferee is not None and self.now_ms >= self._transfer_ends_ms:
            self._become_candidate(self.term + 1)
        elif leading.is_cut_off(self.now_ms):
            self._become_candidate(self.term)
        elif self.now_ms >= self._next_preferred_ms:
            self._next_preferred_ms = self.now_ms + self.options.check_preferred_leader_interval_ms
            self._transfer_to_preferred(leading)

    def _transfer_to_preferred(self, leading: LeaderTerm) -> None:
        """Hand over to a preferred member that is alive and has nearly all entries.

        See DLedgerServer.checkPreferredLeader.
        """
        wanted = self.options.preferred_leader_ids
        if not wanted or self.self_id in wanted or leading.transferee is not None:
            return
        peers = [peer for peer in leading.live_peers() if peer in wanted]
        if peers and leading.has_committed:
            best = min(peers, key=leading.entries_behind)
            if leading.entries_behind(best) < self.options.max_leadership_transfer_wait_index:
                self.transfer_to(best, self.now_ms)

    # Transfer of leadership

    def _on_transfer(self, request: LeadershipTransferRequest, token: object) -> RaftMessage | None:
        """Pass a leadership on or take it over; None: the answer follows later."""
        member = self.member
        if request.term != self.term:
            return self._refusal(request, RaftResponseCode.INCONSISTENT_TERM)
        if request.transfer_id == self.self_id:
            code = self.transfer_to(request.transferee_id or "", self.now_ms, token)
            return None if code is RaftResponseCode.SUCCESS else self._refusal(request, code)
        if request.transferee_id != self.self_id:
            return self._refusal(request, RaftResponseCode.UNEXPECTED_ARGUMENT)
        if request.transfer_id != member.leader_id or member.role is not RaftRole.FOLLOWER:
            return self._refusal(request, RaftResponseCode.INCONSISTENT_LEADER)
        self._refuse_taking(RaftResponseCode.TAKE_LEADERSHIP_FAILED)
        deadline_ms = self.now_ms + self.options.leadership_transfer_wait_timeout_ms
        self._taking = Taking(token, request, deadline_ms)
        self._tick_taking()
        return None

    def _tick_taking(self) -> None:
        """Campaign for the next term once the last entries are here."""
        taking, member = self._taking, self.member
        if taking is None or taking.term >= 0:
            return
        request = taking.request
        if request.term != self.term or request.transfer_id != member.leader_id:
            self._refuse_taking(RaftResponseCode.EXPIRED_TERM)
        elif member.log.end >= request.take_leadership_ledger_index:
            taking.term = self.term + 1
            self._become_candidate(self.term)
            self._tick_candidate()
        elif self.now_ms >= taking.deadline_ms:
            self._refuse_taking(RaftResponseCode.TAKE_LEADERSHIP_FAILED)

    def _answer_taking(self) -> None:
        """Answer the request to take over when its outcome is known."""
        taking, role = self._taking, self.member.role
        if taking is None or taking.term < 0:
            return
        if self.term > taking.term:
            self._refuse_taking(RaftResponseCode.EXPIRED_TERM)
        elif role is RaftRole.FOLLOWER:
            self._refuse_taking(RaftResponseCode.TAKE_LEADERSHIP_FAILED)
        elif role is RaftRole.LEADER:
            self._refuse_taking(RaftResponseCode.SUCCESS)

    def _refuse_taking(self, code: RaftResponseCode) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            self._answer(taking.token, self._refusal(taking.request, code))

    def _on_transferred(self, request: RaftMessage, response: RaftMessage | None) -> None:
        """Handle the answer of the member that was asked to take over, maybe elected already."""
        code = response.code if response is not None else RaftResponseCode.NETWORK_ERROR
        token, self._transfer_token = self._transfer_token, None
        if token is not None:
            self._answer(
                token,
                LeadershipTransferResponse(
                    code=code, group=self.options.group, leader_id=self.leader_id, term=self.term
                ),
            )
        if self.leading is None or self.term != request.term:
            return
        if code in NO_CAMPAIGN:
            self.leading.transferee = None
        elif code != RaftResponseCode.SUCCESS:
            # It may campaign at any time in spite of promises, which are void from now.
            self._become_candidate(self.term + 1)

    # Clients

    def _on_metadata(self, request: MetadataRequest, token: object) -> RaftMessage:
        return clients.make_metadata(self.member, request)

    def _on_append(self, request: AppendEntryRequest, token: object) -> RaftMessage | None:
        if not request.body:
            return self._refusal(request, RaftResponseCode.REQUEST_WITH_EMPTY_BODYS)
        self.append(request.body).then(
            lambda result: self._answer(token, clients.append_answer(self.member, request, result))
        )
        return None

    def _on_get(self, request: GetEntriesRequest, token: object) -> RaftMessage:
        return clients.get(self.member, request, self.is_leader)
