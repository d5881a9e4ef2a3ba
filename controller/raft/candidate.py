"""A candidate's part: rounds of votes, their terms and their results.

Owns the rounds (DLedgerLeaderElector.maintainAsCandidate, with votes.py for the tables) and the
candidate that this member favours. It must never change the role: it returns that an election is
won.

    pre-vote round --majority willing--> vote round --majority accepts--> won
          ^  ^                               |
          |  +------ pause, next term -------+
          +-- pause (not willing, timeout)

Before a candidate raises its term, it asks whether it would be elected (pre-vote; Raft's thesis,
9.6). That costs no sync, so even if a sync takes a second, the candidate is settled within
milliseconds, and a candidate that cannot win does not disturb. A member that is a candidate itself,
or voted a moment ago, is not willing to vote for another candidate while that vote is in progress;
of two that ask each other at once, the better log, then the higher id, continues. The answers also
contain the next term in which the voter's vote is free, so that no vote is spent in vain.

On the wire such a request is a vote request of term -1 with `preVote`, which DLedger ignores: it
compares the logs, answers that the term is expired, changes nothing, and counts as willing.

`MemberState.sync_ms` is the duration of a sync here: rounds and pauses are longer by it, because a
vote needs two syncs, the candidate's and the voter's.

Tests: tests/unit/controller/raft/test_votes.py
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from turbopump.controller.raft import votes
from turbopump.controller.raft.member_state import MemberState
from turbopump.controller.raft.messages import VoteRequest, VoteResponse, VoteResult
from turbopump.controller.raft.votes import ParseResult, Pause
from turbopump.engine.types import LONG_AGO_MS

ROUND_SYNCS = 4
"""Durations of a sync added to a vote round's timeout: two for the votes, each after another sync
in progress."""
FAVOUR_SYNCS = 3
"""Durations of a sync added to the time that a favoured candidate has to win: its own, the voter's,
and a sync before."""


@dataclass(slots=True)
class Round:
    """A round of vote or pre-vote requests in progress, with the answers so far."""

    term: int
    """Term in which the votes are."""
    is_pre: bool
    """Whether it is a round of pre-votes."""
    started_ms: int
    wait_ms: int
    """Timeout after `started_ms` (monotonic), without the time for syncs."""
    known_max_term: int
    """Greatest term that any answer reported."""
    results: dict[str, VoteResult] = field(default_factory=dict)
    """Answers by member id, this member's own included."""


class Candidate:
    """The candidate's rounds; see the module. Times are of the monotonic clock.

    `on_tick`, `run` and `on_voted` return whether the election is won. Until `abstains_until_ms` no
    round starts by itself. `is_taking` returns whether the leader asked this member to lead.
    """

    def __init__(
        self, member: MemberState, abstains_until_ms: int, is_taking: Callable[[], bool]
    ) -> None:
        self.member = member
        self.round: Round | None = None
        self.last = ParseResult.WAIT_TO_REVOTE
        """Result of the last vote round."""
        self.next_ms = LONG_AGO_MS
        """Time of the next round, at the earliest."""
        self.abstains_until_ms = abstains_until_ms
        self.hurry_until_ms = LONG_AGO_MS
        """The leader is dead, so pauses are short until then: others learn of its death a little
        later."""
        self._is_taking = is_taking
        self._free_term = -1
        """The lowest term in which all voters of the last round had a free vote."""
        self._favoured: str | None = None
        self._favoured_until_ms = LONG_AGO_MS

    # Time

    def _random_between(self, low: int, high: int) -> int:
        """A random number of ms from `low` to below `high`."""
        return low + int(self.member.rng.random() * (high - low))

    def random_pause_ms(self) -> int:
        """Return a new random pause between two rounds, in ms, with the time of a sync."""
        options = self.member.options
        if self._is_taking():
            return self._takeover_pause_ms()
        least, most = options.min_vote_interval_ms, options.max_vote_interval_ms
        return self._random_between(least, most) + self.member.sync_ms

    def _takeover_pause_ms(self) -> int:
        """A new random pause in ms before a round of a member whose leader is dead."""
        options = self.member.options
        return self._random_between(
            options.min_take_leadership_vote_interval_ms,
            options.max_take_leadership_vote_interval_ms,
        )

    def start_round_soon(self, now_ms: int) -> None:
        """Let the next round start within `max_take_leadership_vote_interval_ms`, because the
        leader is dead; an earlier vote of this member for another candidate does not delay it."""
        self._favoured = None
        self.last = ParseResult.WAIT_TO_VOTE_NEXT
        most_ms = self.member.options.max_take_leadership_vote_interval_ms
        self.next_ms = now_ms + self._random_between(0, most_ms)
        self.hurry_until_ms = now_ms + self.member.options.promise_ms

    def on_tick(self, now_ms: int) -> bool:
        """End a round whose timeout has passed, or start the next round if it is due; call it only
        as a candidate."""
        found = self.round
        if found is not None:
            syncs_ms = 0 if found.is_pre else ROUND_SYNCS * self.member.sync_ms
            is_over = now_ms >= found.started_ms + found.wait_ms + syncs_ms
            return is_over and self._end_round(found, now_ms)
        if now_ms < max(self.next_ms, self.abstains_until_ms):
            return False
        member, term = self.member, self.wanted_term()
        if (member.term, member.vote) == (term, member.id):
            return self._start_round(term, now_ms, is_pre=False)  # again: that costs no sync
        return self._start_round(term, now_ms, is_pre=True)

    def wanted_term(self) -> int:
        """Return the term of the next round: the present one if this member's vote in it is its own
        or free and no leader had it, else a later one."""
        member = self.member
        if self._free_term > member.term:
            return self._free_term
        # A term with another leader is spent, even if this member voted for itself in it: a member
        # that voted for that leader may have lost its disk, and would vote again.
        is_spent = self.last is ParseResult.WAIT_TO_VOTE_NEXT or member.led_by is not None
        return member.term + (is_spent or member.voted_for not in (None, member.id))

    # Rounds

    def run(self, term: int, now_ms: int) -> bool:
        """Save this member's vote for itself in `term` and request votes, without pre-votes."""
        self.member.save_term(term, self.member.id)
        self.last = ParseResult.WAIT_TO_REVOTE
        return self._start_round(term, now_ms, is_pre=False)

    def _start_round(self, term: int, now_ms: int, is_pre: bool) -> bool:
        """Start a round of votes or, with `is_pre`, of pre-votes for `term`: request them from all
        other members. Returns whether the election is won already."""
        member, options = self.member, self.member.options
        wait_ms = self._random_between(options.vote_wait_ms, options.vote_wait_ms * 3 // 2)
        self.round = Round(term, is_pre, now_ms, wait_ms, term)
        self.round.results[member.id] = VoteResult.ACCEPT
        request = VoteRequest(
            group=options.group,
            local_id=member.id,
            leader_id=member.id,
            term=-1 if is_pre else term,
            pre_vote=term if is_pre else None,
            ledger_end_index=member.log.end,
            ledger_end_term=member.log.end_term,
            transfer=True if self._is_taking() else None,
        )
        for peer in options.others:
            member.call_peer(peer, replace(request, remote_id=peer), now_ms)
        return self._end_if_decided(self.round, now_ms)

    def on_voted(
        self, peer: str, request: VoteRequest, response: VoteResponse | None, now_ms: int
    ) -> bool:
        """Handle the answer of `peer` to a vote request or pre-vote; `response` is None if the call
        failed. An answer to an earlier round is ignored."""
        found = self.round
        is_pre = request.pre_vote is not None
        term = request.pre_vote if is_pre else request.term
        if found is None or (found.is_pre, found.term) != (is_pre, term) or peer in found.results:
            return False
        found.results[peer] = self._vote_in(found, response)
        return self._end_if_decided(found, now_ms)

    def _vote_in(self, found: Round, response: VoteResponse | None) -> VoteResult:
        """The vote in an answer (UNKNOWN: the call failed); raises the round's greatest known term
        to that of the answer."""
        if response is None:
            return VoteResult.UNKNOWN
        result = response.vote_result
        if found.is_pre and response.pre_vote is not None:
            found.known_max_term = max(found.known_max_term, response.pre_vote)
        elif result in (
            VoteResult.REJECT_EXPIRED_VOTE_TERM,
            VoteResult.REJECT_TERM_SMALL_THAN_LEDGER,
        ):
            found.known_max_term = max(found.known_max_term, response.term)
            if found.is_pre and response.term <= found.term:
                return VoteResult.ACCEPT  # a peer without pre-votes
        return result

    def _end_if_decided(self, found: Round, now_ms: int) -> bool:
        """End the round if its outcome no longer depends on missing answers; returns whether the
        election is won."""
        options = self.member.options
        missing = len(options.peers) - len(found.results)
        if not votes.is_decided(found.results.values(), missing, options.majority):
            return False
        return self._end_round(found, now_ms)

    def _end_round(self, found: Round, now_ms: int) -> bool:
        """End the round: a passed pre-vote round is followed by a vote round, any other by a pause.
        Returns whether the election is won."""
        self.round = None
        parsed, pause = votes.parse_votes(
            found.results.values(), found.known_max_term, found.term, self.member.options.majority
        )
        if found.known_max_term > found.term:
            self._free_term = found.known_max_term
            if found.is_pre:
                return self._start_round(found.known_max_term, now_ms, is_pre=True)
        if found.is_pre:
            if parsed is ParseResult.PASSED:
                return self.run(found.term, now_ms)
        else:
            self.last = parsed
            if parsed is ParseResult.PASSED:
                return True
        if pause is not Pause.NONE:
            self.next_ms = now_ms + self._pause_ms(pause, now_ms)
        return False

    def _pause_ms(self, pause: Pause, now_ms: int) -> int:
        """A new random pause in ms of this kind."""
        options = self.member.options
        if pause is Pause.LEADER and now_ms < self.hurry_until_ms:
            return self._takeover_pause_ms()
        if pause is Pause.LONG_VOTE:
            return self.random_pause_ms() + options.max_vote_interval_ms
        return self.random_pause_ms() + (options.promise_ms if pause is Pause.LEADER else 0)

    # Other candidates

    def favours_another(self, request: VoteRequest, now_ms: int) -> bool:
        """Whether this member prefers another candidate than the sender of a pre-vote: itself in a
        vote round or with a better log, or a member that it voted for a short time ago."""
        member, candidate = self.member, request.leader_id
        if self.round is not None and not self.round.is_pre:
            return True
        if self.round is not None:
            own = (member.log.end_term, member.log.end, member.id)
            if own > (request.ledger_end_term, request.ledger_end_index, candidate or ""):
                return True
        return self._favoured not in (None, candidate) and now_ms < self._favoured_until_ms

    def end_own_round(self, now_ms: int) -> None:
        """End this member's own round, and start none for an interval, because it is willing to
        vote for a peer.

        The peer may lack other votes, so no candidate is refused yet.
        """
        self.round = None
        self.next_ms = max(self.next_ms, now_ms + self.random_pause_ms())

    def on_vote_granted(self, candidate: str, now_ms: int) -> None:
        """Record that this member voted for `candidate`: end its own round, and for an interval
        (plus FAVOUR_SYNCS) start none and grant no other candidate a pre-vote."""
        self.round = None
        self._favoured = candidate
        wait_ms = self.random_pause_ms() + FAVOUR_SYNCS * self.member.sync_ms
        self._favoured_until_ms = now_ms + wait_ms
        self.next_ms = max(self.next_ms, self._favoured_until_ms)
