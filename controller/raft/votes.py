"""The rules of an election, row by row.

Owns the decisions on votes, and the result of a round of votes (DLedgerLeaderElector.handleVote and
maintainAsCandidate, VoteResponse.ParseResult). It must never change anything.

Beyond DLedger: a follower that received its leader's heartbeat within the promise votes for no
other member, and a leader whose followers keep that promise does not give way; a transfer of
leadership overrides both. So a leader's `has_quorum` is reliable, and a member that comes back does
not depose the leader. A vote in a later term is given at once (DLedger raises its term first, and
votes at the next request): term and vote cost one sync. `decide_pre_vote` predicts a vote and
changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from turbopump.controller.raft.messages import VoteRequest, VoteResult


class ParseResult(Enum):
    """Result of a round of votes (VoteResponse.ParseResult)."""

    WAIT_TO_REVOTE = auto()
    """Request votes again in the same term."""
    REVOTE_IMMEDIATELY = auto()
    """The same, at once: some voters only had to raise their term."""
    PASSED = auto()
    """The candidate is elected."""
    WAIT_TO_VOTE_NEXT = auto()
    """Request votes again in the next term."""


class Pause(Enum):
    """Kind of pause before a candidate's next round of votes."""

    NONE = auto()
    """Begin at once, or not at all if the round passed."""
    VOTE = auto()
    """After a vote's interval."""
    LONG_VOTE = auto()
    """After the interval plus the longest interval: others have more entries."""
    LEADER = auto()
    """After the interval plus the time in which a follower misses its leader."""


@dataclass(frozen=True, slots=True)
class Voter:
    """The state of the member that is asked for a vote."""

    self_id: str
    peers: frozenset[str]
    """Ids of all members, this one included."""
    term: int
    vote: str | None
    """Id of the member that has its vote in `term`; None: free."""
    leader_id: str | None
    ledger_end_index: int
    """Index of the last entry of its log."""
    ledger_end_term: int
    promised: bool = False
    """Whether it has made a promise to a leader that others may rely on (ours)."""
    abstains: bool = False
    """Whether it may have made a promise before its restart (ours)."""
    taking: bool = False
    """Whether the leader asked it to take over."""
    favours_another: bool = False
    """Whether it is a candidate, or would vote for another member (pre-votes only)."""


@dataclass(frozen=True, slots=True)
class VoteVerdict:
    """A decision on a vote request: the result and term of the answer, and whether the
    voter's term rises."""

    result: VoteResult
    term: int
    """Term to send in the answer."""
    raises_term: bool = False
    """Whether the voter's term rises to the candidate's."""


def _log_refusal(voter: Voter, request: VoteRequest) -> VoteResult | None:
    """Return the reason why a member with this log cannot be a candidate; None if it can."""
    candidate = request.leader_id
    ends = (request.ledger_end_term, request.ledger_end_index)
    if candidate not in voter.peers:
        return VoteResult.REJECT_UNKNOWN_LEADER
    if candidate == voter.self_id:
        return VoteResult.REJECT_UNEXPECTED_LEADER
    if ends[0] < voter.ledger_end_term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if ends < (voter.ledger_end_term, voter.ledger_end_index):
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    return None


def decide_vote(voter: Voter, request: VoteRequest) -> VoteVerdict:
    """Decide on a vote; changes nothing. The caller saves an ACCEPT before it is sent."""
    candidate = request.leader_id
    ends = (request.ledger_end_term, request.ledger_end_index)
    result, term, raises = VoteResult.ACCEPT, voter.term, False
    unfit = _log_refusal(voter, request)
    if unfit is not None:
        result = unfit
    elif request.term < voter.term:
        result = VoteResult.REJECT_EXPIRED_VOTE_TERM
    elif request.term == voter.term and voter.vote not in (None, candidate):
        has_leader = voter.leader_id is not None
        result = (
            VoteResult.REJECT_ALREADY_HAS_LEADER if has_leader else VoteResult.REJECT_ALREADY_VOTED
        )
    elif voter.promised and candidate != voter.leader_id and not request.transfer:
        result = VoteResult.REJECT_ALREADY_HAS_LEADER
    elif voter.abstains:
        result = VoteResult.UNKNOWN
    elif request.term > voter.term:
        term, raises = request.term, True
    elif request.term < voter.ledger_end_term:
        result, term = VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, voter.ledger_end_term
    elif voter.taking and ends == (voter.ledger_end_term, voter.ledger_end_index):
        result = VoteResult.REJECT_TAKING_LEADERSHIP
    return VoteVerdict(result, term, raises)


def decide_pre_vote(voter: Voter, request: VoteRequest) -> tuple[VoteResult, int]:
    """Return (the result of a vote in the term `pre_vote`, the lowest term from there whose vote is
    free), without voting. UNKNOWN: this member would not vote now."""
    candidate, wanted = request.leader_id, request.pre_vote
    assert wanted is not None, "a vote is asked for"
    free = max(wanted, voter.term + (voter.vote not in (None, candidate)))
    unfit = _log_refusal(voter, request)
    if unfit is not None:
        return unfit, free
    if voter.promised and candidate != voter.leader_id:
        return VoteResult.REJECT_ALREADY_HAS_LEADER, free
    if voter.abstains or voter.favours_another:
        return VoteResult.UNKNOWN, free
    return VoteResult.ACCEPT if wanted == free else VoteResult.REJECT_EXPIRED_VOTE_TERM, free


_BIGGER = {VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX}


def is_decided(results: Iterable[VoteResult], missing: int, majority: int) -> bool:
    """Whether a round need not wait for the `missing` answers; `results` has the candidate's own
    vote, too, and `majority` is a number of members.

    Ours: also when a majority has answered and the round cannot pass.
    """
    found = list(results)
    accepted = found.count(VoteResult.ACCEPT)
    ready = accepted + found.count(VoteResult.REJECT_TERM_NOT_READY)
    valid = len(found) - found.count(VoteResult.UNKNOWN)
    return (
        missing == 0
        or VoteResult.REJECT_ALREADY_HAS_LEADER in found
        or accepted >= majority
        or ready >= majority
        or (valid >= majority and ready + missing < majority)
    )


def parse_votes(
    results: Iterable[VoteResult], known_max_term: int, term: int, majority: int
) -> tuple[ParseResult, Pause]:
    """Return (the result of a round in `term`, the pause before the next round), from the answers
    that have arrived, the candidate's own vote included.

    `known_max_term` is the greatest term that any member reported, `majority` a number of members.
    """
    found = list(results)
    accepted = found.count(VoteResult.ACCEPT)
    ready = accepted + found.count(VoteResult.REJECT_TERM_NOT_READY)
    valid = len(found) - found.count(VoteResult.UNKNOWN)
    bigger = sum(result in _BIGGER for result in found)
    if known_max_term > term:
        return ParseResult.WAIT_TO_VOTE_NEXT, Pause.VOTE
    if VoteResult.REJECT_ALREADY_HAS_LEADER in found:
        return ParseResult.WAIT_TO_REVOTE, Pause.LEADER
    if valid < majority:
        return ParseResult.WAIT_TO_REVOTE, Pause.VOTE
    if valid - bigger < majority:
        return ParseResult.WAIT_TO_REVOTE, Pause.LONG_VOTE
    if accepted >= majority:
        return ParseResult.PASSED, Pause.NONE
    if ready >= majority:
        return ParseResult.REVOTE_IMMEDIATELY, Pause.NONE
    return ParseResult.WAIT_TO_VOTE_NEXT, Pause.VOTE
