"""One member of the quorum: DLedger's election and replication without I/O.

Owns the roles and what leads from one to the next (DLedgerLeaderElector, DLedgerServer). Time and
randomness are arguments; what must be done comes out of `take`, in order (actions.py). It must
never know what an entry says. Called by the driver of the controller's node, and by simulations.

Where this is safe and DLedger is not:

* Term, vote and entries are on the disk before anybody hears of them; DLedger syncs neither.
* Entries of older terms are committed by one of the leader's own term only (replication.py); who
  leads says so (`is_leader`, BecameLeader) once that has been applied.
* A push of an old term or another leader does nothing, and nothing committed is cut (following.py).
* A follower that heard its leader within the promise, and a leader that its followers heard, elect
  nobody else; a member that starts again elects nobody for as long as it may have promised before.
  So `has_quorum` says that no other member can lead. It ends with a transfer of leadership, which
  asks to be elected in spite of promises; a transfer that nobody heard of ends the leader's term.
* `on_peer_gone` voids a promise: only for a process that is known to be dead.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from turbopump.controller.raft import clients, votes
from turbopump.controller.raft.actions import (
    Action,
    Answer,
    BecameLeader,
    Failed,
    LostLead,
    Outcome,
)
from turbopump.controller.raft.following import on_install, on_push
from turbopump.controller.raft.log import Entry
from turbopump.controller.raft.member import Member, Restored, Role
from turbopump.controller.raft.messages import (
    RESPONSES,
    AppendEntryRequest,
    GetEntriesRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    InstallSnapshotRequest,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    Message,
    MetadataRequest,
    PushEntryRequest,
    ResponseCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from turbopump.controller.raft.options import BODY_MAX, RaftOptions
from turbopump.controller.raft.replication import Leading
from turbopump.controller.raft.votes import ParseResult, Pause
from turbopump.engine.later import Later
from turbopump.engine.types import LONG_AGO_MS

NO_CAMPAIGN = {
    ResponseCode.UNKNOWN_GROUP, ResponseCode.UNKNOWN_MEMBER, ResponseCode.UNEXPECTED_ARGUMENT,
    ResponseCode.INCONSISTENT_TERM, ResponseCode.INCONSISTENT_LEADER,
}  # fmt: skip
"""Answers to a request to take over after which nobody campaigns."""


@dataclass(slots=True)
class Round:
    """Votes that are being asked for."""

    term: int
    deadline_ms: int
    known_max_term: int
    results: dict[str, VoteResult] = field(default_factory=dict)


@dataclass(slots=True)
class Taking:
    """The leader asked this member to take over."""

    token: object
    request: LeadershipTransferRequest
    deadline_ms: int
    """Until then its log must be long enough."""
    term: int = -1
    """The term it campaigns for."""


class Raft:
    """See the module's text. `now_ms` never goes back; `on_tick` is called every 10 ms or so."""

    def __init__(
        self, options: RaftOptions, restored: Restored, rng: random.Random, now_ms: int
    ) -> None:
        self.options = options
        self.member = Member(options, restored, rng)
        self.leading: Leading | None = None
        self.now_ms = now_ms
        self._round: Round | None = None
        self._last_parse = ParseResult.WAIT_TO_REVOTE
        self._next_vote_ms = LONG_AGO_MS
        self._hurry_until_ms = LONG_AGO_MS
        """The leader is dead: others learn of it a little later."""
        self._known_max_term = -1
        self._announced = False
        self._taking: Taking | None = None
        self._transfer_token: object | None = None
        self._transfer_ends_ms = LONG_AGO_MS
        self._next_preferred_ms = now_ms
        self._next_sweep_ms = now_ms
        is_new = restored.is_new and self.member.term == 0 and self.member.log.end < 0
        is_alone = len(options.peers) == 1
        self._abstains_until_ms = LONG_AGO_MS if is_new or is_alone else now_ms + options.promise_ms
        self._handlers: dict[type[Message], Callable[[Any, object], Message | None]] = {
            VoteRequest: self._on_vote,
            HeartBeatRequest: self._on_heart_beat,
            PushEntryRequest: self._on_push,
            InstallSnapshotRequest: self._on_install,
            LeadershipTransferRequest: self._on_transfer,
            MetadataRequest: self._on_metadata,
            AppendEntryRequest: self._on_append,
            GetEntriesRequest: self._on_get,
        }

    # What others see

    @property
    def role(self) -> Role:
        """Of this member, at once; see `is_leader`."""
        return self.member.role

    @property
    def term(self) -> int:
        """The current one."""
        return self.member.term

    @property
    def is_leader(self) -> bool:
        """It leads, and all that any leader before it committed is committed here."""
        return self.leading is not None and self.leading.ready

    @property
    def leader_id(self) -> str | None:
        """Who leads, as far as this member knows."""
        return self.member.leader_id

    @property
    def self_id(self) -> str:
        """This member."""
        return self.options.self_id

    @property
    def peers(self) -> dict[str, str]:
        """Addresses of all members by id."""
        return self.options.peers

    def has_quorum(self, now_ms: int) -> bool:
        """It leads, and no other member can, at `now_ms`."""
        return self.leading is not None and self.leading.has_quorum(now_ms)

    def take(self) -> list[Action]:
        """What is to be done, in order; see actions.py."""
        if self.leading is not None:
            self.leading.push(self.now_ms)
        actions, self.member.actions = self.member.actions, []
        return actions

    # What happens

    def append(self, body: bytes, now_ms: int | None = None) -> Later[Outcome]:
        """Propose an entry; resolved by a Settle when it is applied here, or at once if refused."""
        self.now_ms = now_ms = self.now_ms if now_ms is None else now_ms
        later = Later[Outcome]()
        if self.leading is None:
            later.resolve(Failed(ResponseCode.NOT_LEADER, f"{self.leader_id} leads"))
        elif len(body) > BODY_MAX:
            later.resolve(Failed(ResponseCode.UNEXPECTED_ARGUMENT, f"over {BODY_MAX} bytes"))
        else:
            later = self.leading.append(body, now_ms)
            self._announce()
        return later

    def on_tick(self, now_ms: int) -> None:
        """Time passes."""
        self.now_ms = now_ms
        member = self.member
        if now_ms >= self._next_sweep_ms:
            self._next_sweep_ms = now_ms + self.options.rpc_timeout_ms
            member.forget_old(now_ms)
        self._tick_taking()
        if member.role is Role.FOLLOWER:
            if now_ms - member.heard_ms > self.options.promise_ms:
                self._become_candidate(member.term)
        elif self.leading is not None:
            self._tick_leader(self.leading)
        if member.role is Role.CANDIDATE:
            self._tick_candidate()

    def on_request(self, message: Message, token: object, now_ms: int) -> None:
        """A request of a peer or a client; an Answer with its token follows, also much later."""
        self.now_ms = now_ms
        code = ResponseCode.SUCCESS
        if message.group != self.options.group:
            code = ResponseCode.UNKNOWN_GROUP
        elif message.remote_id != self.self_id:
            code = ResponseCode.UNKNOWN_MEMBER
        if code is not ResponseCode.SUCCESS:
            answer: Message | None = self._refusal(message, code)
        else:
            answer = self._handlers[type(message)](message, token)
        if answer is not None:
            self._answer(token, answer)

    def on_response(self, peer_id: str, call: int, message: Message | None, now_ms: int) -> None:
        """The answer to a Call; None if there is none."""
        self.now_ms = now_ms
        waiting = self.member.answered(peer_id, call)
        if waiting is None:
            return
        request = waiting.message
        if message is not None and not isinstance(message, RESPONSES[type(request)]):
            message = None
        if isinstance(request, VoteRequest):
            assert message is None or isinstance(message, VoteResponse)
            self._on_voted(waiting.peer_id, request, message)
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
        self._announce()

    def on_peer_gone(self, peer_id: str, now_ms: int) -> None:
        """The process of a peer is dead: its host refuses connections to its port. What was
        promised to it is void; a connection that closed says less and is not enough."""
        self.now_ms = now_ms
        member = self.member
        if peer_id == member.leader_id and member.role is Role.FOLLOWER:
            self._become_candidate(member.term)
            self._last_parse = ParseResult.WAIT_TO_VOTE_NEXT
            self._next_vote_ms = now_ms + self._between(
                0, self.options.max_take_leadership_vote_interval_ms
            )
            self._hurry_until_ms = now_ms + self.options.promise_ms

    def on_snapshot(self, index: int, data: bytes, now_ms: int) -> None:
        """What a TakeSnapshot asked for."""
        self.now_ms = now_ms
        self.member.took_snapshot(index, data)

    def transfer_to(self, peer_id: str, now_ms: int, token: object | None = None) -> ResponseCode:
        """Hand the leadership over; SUCCESS if that begins. An Answer follows if there is a
        token."""
        self.now_ms = now_ms
        leading = self.leading
        if leading is None:
            return ResponseCode.NOT_LEADER
        if peer_id not in leading.peers:
            return ResponseCode.UNEXPECTED_MEMBER
        if leading.transferee is not None:
            return ResponseCode.LEADER_TRANSFERRING
        if leading.lag(peer_id) >= self.options.max_leadership_transfer_wait_index:
            return ResponseCode.FALL_BEHIND_TOO_MUCH
        if self._transfer_token is not None:
            return ResponseCode.LEADER_TRANSFERRING
        leading.transferee = peer_id
        self._transfer_token = token
        self._transfer_ends_ms = now_ms + self.options.rpc_timeout_ms
        request = LeadershipTransferRequest(
            group=self.options.group, local_id=self.self_id, remote_id=peer_id,
            leader_id=self.self_id, term=self.term, transfer_id=self.self_id,
            transferee_id=peer_id, take_leadership_ledger_index=self.member.log.end,
        )  # fmt: skip
        self.member.call(peer_id, request, now_ms)
        return ResponseCode.SUCCESS

    def read(self, index: int) -> Entry | None:
        """A committed entry that is not yet behind a snapshot."""
        return self.member.log.get(index) if index <= self.member.committed else None

    # Roles

    def _become_candidate(self, term: int) -> None:
        """It looks for a leader, in a new term if `term` is one (changeRoleToCandidate)."""
        assert term >= self.term, "an old term"
        self._end_leadership()
        member = self.member
        member.role, member.leader_id = Role.CANDIDATE, None
        member.matched, member.aligned = -1, False
        self._round = None
        if term > self.term:
            self._known_max_term = max(self._known_max_term, term)
            self._raise_term()
            self._next_vote_ms = self.now_ms + self._vote_interval()

    def _raise_term(self) -> None:
        """MemberState.nextTerm."""
        self.member.save_term(max(self._known_max_term, self.term + 1), None)
        self._last_parse = ParseResult.WAIT_TO_REVOTE
        self._tell_taker()

    def _become_follower(self, leader_id: str) -> None:
        self._end_leadership()
        member = self.member
        member.role, member.leader_id = Role.FOLLOWER, leader_id
        member.matched, member.aligned = -1, False
        member.heard_ms = self.now_ms
        self._round = None
        self._tell_taker()

    def _become_leader(self) -> None:
        member = self.member
        member.role, member.leader_id = Role.LEADER, self.self_id
        self._round = None
        self.leading = Leading(member, self.now_ms)
        self._next_preferred_ms = self.now_ms + self.options.check_preferred_leader_interval_ms
        self._tell_taker()
        self.leading.on_tick(self.now_ms)
        self._announce()

    def _end_leadership(self) -> None:
        leading, self.leading = self.leading, None
        if leading is None:
            return
        if self._announced:
            self._announced = False
            self.member.actions.append(LostLead(leading.term))
        leading.fail_pending()

    def _announce(self) -> None:
        if self.leading is not None and self.leading.ready and not self._announced:
            self._announced = True
            self.member.actions.append(BecameLeader(self.term))

    # Candidates

    def _between(self, low: int, high: int) -> int:
        return low + int(self.member.rng.random() * (high - low))

    def _vote_interval(self) -> int:
        options = self.options
        if self._is_taking():
            return self._between(
                options.min_take_leadership_vote_interval_ms,
                options.max_take_leadership_vote_interval_ms,
            )
        return self._between(options.min_vote_interval_ms, options.max_vote_interval_ms)

    def _is_taking(self) -> bool:
        taking = self._taking
        return taking is not None and taking.term == self.term

    def _tick_candidate(self) -> None:
        if self._round is not None:
            if self.now_ms >= self._round.deadline_ms:
                self._close_round(self._round)
            return
        if self.now_ms < max(self._next_vote_ms, self._abstains_until_ms):
            return
        if self._last_parse is ParseResult.WAIT_TO_VOTE_NEXT:
            self._raise_term()
        self._ask_for_votes()

    def _ask_for_votes(self) -> None:
        member, options = self.member, self.options
        wait_ms = self._between(options.vote_wait_ms, options.vote_wait_ms * 3 // 2)
        self._round = Round(self.term, self.now_ms + wait_ms, self.term)
        request = VoteRequest(
            group=options.group, local_id=self.self_id, remote_id=self.self_id,
            leader_id=self.self_id, term=self.term, ledger_end_index=member.log.end,
            ledger_end_term=member.log.end_term, transfer=True if self._is_taking() else None,
        )  # fmt: skip
        own = self._vote(request, is_self=True)
        self._count_vote(self._round, self.self_id, own)
        for peer in options.others:
            member.call(peer, replace(request, remote_id=peer), self.now_ms)
        self._check_round(self._round)

    def _on_voted(self, peer: str, request: VoteRequest, response: VoteResponse | None) -> None:
        found = self._round
        if found is None or request.term != found.term or peer in found.results:
            return
        self._count_vote(found, peer, response)
        self._check_round(found)

    def _count_vote(self, found: Round, peer: str, response: VoteResponse | None) -> None:
        result = response.vote_result if response is not None else VoteResult.UNKNOWN
        found.results[peer] = result
        if response is not None and result in (
            VoteResult.REJECT_EXPIRED_VOTE_TERM, VoteResult.REJECT_TERM_SMALL_THAN_LEDGER,
        ):  # fmt: skip
            found.known_max_term = max(found.known_max_term, response.term)

    def _check_round(self, found: Round) -> None:
        missing = len(self.options.peers) - len(found.results)
        if votes.is_decided(found.results.values(), missing, self.options.majority):
            self._close_round(found)

    def _close_round(self, found: Round) -> None:
        self._round = None
        self._last_parse, pause = votes.parse(
            found.results.values(), found.known_max_term, found.term, self.options.majority
        )
        if self._last_parse is ParseResult.PASSED:
            self._become_leader()
        elif pause is not Pause.NONE:
            wait_ms = self._vote_interval()
            if pause is Pause.LONG_VOTE:
                wait_ms += self.options.max_vote_interval_ms
            elif pause is Pause.LEADER and self.now_ms >= self._hurry_until_ms:
                wait_ms += self.options.promise_ms
            self._next_vote_ms = self.now_ms + wait_ms
            if found.known_max_term > self.term:
                self._become_candidate(found.known_max_term)

    # Requests of peers

    def _answer(self, token: object, message: Message) -> None:
        self.member.actions.append(Answer(token, message))

    def _refusal(self, message: Message, code: ResponseCode) -> Message:
        return clients.refusal(self.member, message, code)

    def _is_promised(self) -> bool:
        """To a leader that is taken for alive, or as a leader to itself."""
        member = self.member
        if self.leading is not None:
            return self.leading.has_quorum(self.now_ms)
        heard_ago = self.now_ms - member.heard_ms
        return member.role is Role.FOLLOWER and heard_ago <= self.options.promise_ms

    def _on_vote(self, request: VoteRequest, token: object) -> VoteResponse:
        return self._vote(request)

    def _vote(self, request: VoteRequest, is_self: bool = False) -> VoteResponse:
        member = self.member
        voter = votes.Voter(
            self.self_id, frozenset(self.peers), member.term, member.vote, member.leader_id,
            member.log.end, member.log.end_term, self._is_promised(),
            self.now_ms < self._abstains_until_ms, self._is_taking(),
        )  # fmt: skip
        verdict = votes.judge(voter, request, is_self)
        if verdict.raises:
            self._become_candidate(request.term)
        elif verdict.result is VoteResult.ACCEPT:
            member.save_term(member.term, request.leader_id)
            if request.leader_id != self.self_id:
                self._next_vote_ms = max(self._next_vote_ms, self.now_ms + self._vote_interval())
        return VoteResponse(
            group=request.group, local_id=request.local_id, remote_id=request.remote_id,
            leader_id=request.leader_id, term=verdict.term, vote_result=verdict.result,
        )  # fmt: skip

    def _on_heart_beat(self, request: HeartBeatRequest, token: object) -> HeartBeatResponse:
        member, leader_id = self.member, request.leader_id
        if leader_id is None or leader_id not in self.peers:
            return HeartBeatResponse(code=ResponseCode.UNKNOWN_MEMBER)
        if leader_id == self.self_id:
            return HeartBeatResponse(code=ResponseCode.UNEXPECTED_MEMBER)
        if request.term < member.term:
            return HeartBeatResponse(code=ResponseCode.EXPIRED_TERM, term=member.term)
        if request.term > member.term:
            self._become_candidate(request.term)
            return HeartBeatResponse(code=ResponseCode.TERM_NOT_READY)
        if member.leader_id is None:
            self._become_follower(leader_id)
        elif member.leader_id != leader_id:
            return HeartBeatResponse(code=ResponseCode.INCONSISTENT_LEADER)
        member.heard_ms = self.now_ms
        return HeartBeatResponse()

    def _on_push(self, request: PushEntryRequest, token: object) -> Message:
        answer = on_push(self.member, request, self.now_ms)
        self._tick_taking()
        return answer

    def _on_install(self, request: InstallSnapshotRequest, token: object) -> Message:
        return on_install(self.member, request, self.now_ms)

    # Leaders

    def _tick_leader(self, leading: Leading) -> None:
        leading.on_tick(self.now_ms)
        self._announce()
        if leading.transferee is not None and self.now_ms >= self._transfer_ends_ms:
            self._become_candidate(self.term + 1)
        elif leading.is_cut_off(self.now_ms):
            self._become_candidate(self.term)
        elif self.now_ms >= self._next_preferred_ms:
            self._next_preferred_ms = self.now_ms + self.options.check_preferred_leader_interval_ms
            self._prefer(leading)

    def _prefer(self, leading: Leading) -> None:
        """Hand over to a member that shall lead, if one is there and has nearly all
        (DLedgerServer.checkPreferredLeader)."""
        wanted = self.options.preferred_leader_ids
        if not wanted or self.self_id in wanted or leading.transferee is not None:
            return
        peers = [peer for peer in leading.live_peers() if peer in wanted]
        if peers and leading.ready:
            best = min(peers, key=leading.lag)
            if leading.lag(best) < self.options.max_leadership_transfer_wait_index:
                self.transfer_to(best, self.now_ms)

    # Transfer of leadership

    def _on_transfer(self, request: LeadershipTransferRequest, token: object) -> Message | None:
        member = self.member
        if request.term != self.term:
            return self._refusal(request, ResponseCode.INCONSISTENT_TERM)
        if request.transfer_id == self.self_id:
            code = self.transfer_to(request.transferee_id or "", self.now_ms, token)
            return None if code is ResponseCode.SUCCESS else self._refusal(request, code)
        if request.transferee_id != self.self_id:
            return self._refusal(request, ResponseCode.UNEXPECTED_ARGUMENT)
        if request.transfer_id != member.leader_id or member.role is not Role.FOLLOWER:
            return self._refusal(request, ResponseCode.INCONSISTENT_LEADER)
        self._drop_taking(ResponseCode.TAKE_LEADERSHIP_FAILED)
        deadline_ms = self.now_ms + self.options.leadership_transfer_wait_timeout_ms
        self._taking = Taking(token, request, deadline_ms)
        self._tick_taking()
        return None

    def _tick_taking(self) -> None:
        """A taker waits for the last entries, then campaigns for the next term."""
        taking, member = self._taking, self.member
        if taking is None or taking.term >= 0:
            return
        request = taking.request
        if request.term != self.term or request.transfer_id != member.leader_id:
            self._drop_taking(ResponseCode.EXPIRED_TERM)
        elif member.log.end >= request.take_leadership_ledger_index:
            taking.term = self.term + 1
            self._become_candidate(taking.term)
        elif self.now_ms >= taking.deadline_ms:
            self._drop_taking(ResponseCode.TAKE_LEADERSHIP_FAILED)

    def _tell_taker(self) -> None:
        """Whoever asked for a transfer hears what came of it."""
        taking, role = self._taking, self.member.role
        if taking is None or taking.term < 0 or self.term < taking.term:
            return
        if self.term > taking.term:
            self._drop_taking(ResponseCode.EXPIRED_TERM)
        elif role is Role.LEADER:
            self._drop_taking(ResponseCode.SUCCESS)
        elif role is Role.FOLLOWER:
            self._drop_taking(ResponseCode.TAKE_LEADERSHIP_FAILED)

    def _drop_taking(self, code: ResponseCode) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            self._answer(taking.token, self._refusal(taking.request, code))

    def _on_transferred(self, request: Message, response: Message | None) -> None:
        """The taker's answer; it may have been elected meanwhile."""
        code = response.code if response is not None else ResponseCode.NETWORK_ERROR
        token, self._transfer_token = self._transfer_token, None
        if token is not None:
            self._answer(token, LeadershipTransferResponse(
                code=code, group=self.options.group, leader_id=self.leader_id, term=self.term
            ))  # fmt: skip
        if self.leading is None or self.term != request.term:
            return
        if code in NO_CAMPAIGN:
            self.leading.transferee = None
        elif code != ResponseCode.SUCCESS:
            # It may campaign, now or later, in spite of promises: they are worth nothing any more.
            self._become_candidate(self.term + 1)

    # Clients

    def _on_metadata(self, request: MetadataRequest, token: object) -> Message:
        return clients.metadata(self.member, request)

    def _on_append(self, request: AppendEntryRequest, token: object) -> Message | None:
        if not request.body:
            return self._refusal(request, ResponseCode.REQUEST_WITH_EMPTY_BODYS)
        self.append(request.body).then(
            lambda outcome: self._answer(token, clients.appended(self.member, request, outcome))
        )
        return None

    def _on_get(self, request: GetEntriesRequest, token: object) -> Message:
        return clients.get(self.member, request, self.is_leader)
