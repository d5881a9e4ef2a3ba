"""A candidate's part: when it asks for votes, in which term, and what its rounds come to.

Owns the rounds (DLedgerLeaderElector.maintainAsCandidate, with votes.py for the tables) and which
one this member favours. It must never change the role: it says that an election is won. Called by
the core.

Before it raises its term a candidate asks whether it would be elected (Raft's thesis, 9.6). That
costs no sync, so a machine whose syncs take a second decides who runs within milliseconds, and a
candidate that cannot win does not disturb. Who runs, or gave its vote a moment ago, would vote for
no other for as long as that vote may take; of two who ask each other at once the better log,
then the higher id, goes on. The answers also tell which term is free, so that no vote is spent on
one that is not.

On the wire such a request is a vote request of term -1 with `preVote`, which DLedger skips: it
looks at the logs and answers that the term is over, changes nothing, and counts as willing.

`Member.sync_ms` is what a sync takes here: rounds and pauses are that much longer, as a vote is
two syncs away, the candidate's and the voter's.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from turbopump.controller.raft import votes
from turbopump.controller.raft.member import Member
from turbopump.controller.raft.messages import VoteRequest, VoteResponse, VoteResult
from turbopump.controller.raft.votes import ParseResult, Pause
from turbopump.engine.types import LONG_AGO_MS

ROUND_SYNCS = 4
"""A round waits so many syncs longer: two for the votes, and each behind one under way."""
FAVOUR_SYNCS = 3
"""How much longer a favoured member has: its sync, the voter's, and one before."""


@dataclass(slots=True)
class Round:
    """Votes that are being asked for."""

    term: int
    is_pre: bool
    started_ms: int
    wait_ms: int
    known_max_term: int
    results: dict[str, VoteResult] = field(default_factory=dict)


class Campaign:
    """See the module's text. The methods that return a bool say whether the election is won."""

    def __init__(
        self, member: Member, abstains_until_ms: int, is_taking: Callable[[], bool]
    ) -> None:
        self.member = member
        self.round: Round | None = None
        self.last = ParseResult.WAIT_TO_REVOTE
        self.next_ms = LONG_AGO_MS
        self.abstains_until_ms = abstains_until_ms
        self.hurry_until_ms = LONG_AGO_MS
        """The leader is dead: others learn of it a little later."""
        self._is_taking = is_taking
        self._free_term = -1
        """The least that the last answers left."""
        self._favoured: str | None = None
        self._favoured_until_ms = LONG_AGO_MS

    # Time

    def _between(self, low: int, high: int) -> int:
        return low + int(self.member.rng.random() * (high - low))

    def interval_ms(self) -> int:
        """Between two rounds."""
        options = self.member.options
        if self._is_taking():
            return self._hurried_ms()
        least, most = options.min_vote_interval_ms, options.max_vote_interval_ms
        return self._between(least, most) + self.member.sync_ms

    def _hurried_ms(self) -> int:
        options = self.member.options
        return self._between(
            options.min_take_leadership_vote_interval_ms,
            options.max_take_leadership_vote_interval_ms,
        )

    def hurry(self, now_ms: int) -> None:
        """The leader is known to be dead; it may be the one that got this member's vote."""
        self._favoured = None
        self.last = ParseResult.WAIT_TO_VOTE_NEXT
        most_ms = self.member.options.max_take_leadership_vote_interval_ms
        self.next_ms = now_ms + self._between(0, most_ms)
        self.hurry_until_ms = now_ms + self.member.options.promise_ms

    def on_tick(self, now_ms: int) -> bool:
        """Time passes for a candidate."""
        found = self.round
        if found is not None:
            syncs_ms = 0 if found.is_pre else ROUND_SYNCS * self.member.sync_ms
            is_over = now_ms >= found.started_ms + found.wait_ms + syncs_ms
            return is_over and self._close(found, now_ms)
        if now_ms < max(self.next_ms, self.abstains_until_ms):
            return False
        member, term = self.member, self.wanted_term()
        if (member.term, member.vote) == (term, member.id):
            return self._ask(term, now_ms, is_pre=False)  # again: that costs no sync
        return self._ask(term, now_ms, is_pre=True)

    def wanted_term(self) -> int:
        """The next one to ask for votes in."""
        member = self.member
        if self._free_term > member.term:
            return self._free_term
        # Nor in a term that another led, though it voted for itself there: a member that voted for
        # that one may have lost its disk, and votes anew.
        is_spent = self.last is ParseResult.WAIT_TO_VOTE_NEXT or member.led_by is not None
        return member.term + (is_spent or member.given not in (None, member.id))

    # Rounds

    def run(self, term: int, now_ms: int) -> bool:
        """Vote for itself and ask for votes, in a term that no peer is asked about before."""
        self.member.save_term(term, self.member.id)
        self.last = ParseResult.WAIT_TO_REVOTE
        return self._ask(term, now_ms, is_pre=False)

    def _ask(self, term: int, now_ms: int, is_pre: bool) -> bool:
        member, options = self.member, self.member.options
        wait_ms = self._between(options.vote_wait_ms, options.vote_wait_ms * 3 // 2)
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
            member.call(peer, replace(request, remote_id=peer), now_ms)
        return self._check(self.round, now_ms)

    def on_voted(
        self, peer: str, request: VoteRequest, response: VoteResponse | None, now_ms: int
    ) -> bool:
        """An answer, or None if there is none."""
        found = self.round
        is_pre = request.pre_vote is not None
        term = request.pre_vote if is_pre else request.term
        if found is None or (found.is_pre, found.term) != (is_pre, term) or peer in found.results:
            return False
        found.results[peer] = self._result(found, response)
        return self._check(found, now_ms)

    def _result(self, found: Round, response: VoteResponse | None) -> VoteResult:
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
                return VoteResult.ACCEPT  # of one that knows votes only
        return result

    def _check(self, found: Round, now_ms: int) -> bool:
        options = self.member.options
        missing = len(options.peers) - len(found.results)
        if not votes.is_decided(found.results.values(), missing, options.majority):
            return False
        return self._close(found, now_ms)

    def _close(self, found: Round, now_ms: int) -> bool:
        self.round = None
        parsed, pause = votes.parse(
            found.results.values(), found.known_max_term, found.term, self.member.options.majority
        )
        if found.known_max_term > found.term:
            self._free_term = found.known_max_term
            if found.is_pre:
                return self._ask(found.known_max_term, now_ms, is_pre=True)
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
        options = self.member.options
        if pause is Pause.LEADER and now_ms < self.hurry_until_ms:
            return self._hurried_ms()
        if pause is Pause.LONG_VOTE:
            return self.interval_ms() + options.max_vote_interval_ms
        return self.interval_ms() + (options.promise_ms if pause is Pause.LEADER else 0)

    # Others

    def favours_another(self, request: VoteRequest, now_ms: int) -> bool:
        """Whether it runs itself, or voted for another than the one that asks a moment ago."""
        member, candidate = self.member, request.leader_id
        if self.round is not None and not self.round.is_pre:
            return True
        if self.round is not None:
            own = (member.log.end_term, member.log.end, member.id)
            if own > (request.ledger_end_term, request.ledger_end_index, candidate or ""):
                return True
        return self._favoured not in (None, candidate) and now_ms < self._favoured_until_ms

    def give_way(self, now_ms: int) -> None:
        """It would vote for a peer, which may lack other votes: so nothing else is refused yet."""
        self.round = None
        self.next_ms = max(self.next_ms, now_ms + self.interval_ms())

    def favour(self, candidate: str, now_ms: int) -> None:
        """It votes for a peer."""
        self.round = None
        self._favoured = candidate
        wait_ms = self.interval_ms() + FAVOUR_SYNCS * self.member.sync_ms
        self._favoured_until_ms = now_ms + wait_ms
        self.next_ms = max(self.next_ms, self._favoured_until_ms)
