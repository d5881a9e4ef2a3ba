"""The rules of an election, row by row.

Owns who gets a vote and what a round of votes comes to (DLedgerLeaderElector.handleVote and
maintainAsCandidate, VoteResponse.ParseResult). It must never change anything. Called by the
elector.

Beyond DLedger: who follows a leader that was heard within the promise votes for no other, and a
leader whose followers keep that promise does not give way, both but for a transfer of leadership.
That makes a leader's `has_quorum` mean what it says, and a member that comes back does not depose.
A vote in a later term is given at once (DLedger raises its term first, and votes when it is asked
again): term and vote cost one sync. `foresee` says what a vote would be, and changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from turbopump.controller.raft.messages import VoteRequest, VoteResult


class ParseResult(Enum):
    """What a round of votes comes to (VoteResponse.ParseResult)."""

    WAIT_TO_REVOTE = auto()
    """Ask again in the same term."""
    REVOTE_IMMEDIATELY = auto()
    """The same, at once: some only had to raise their term."""
    PASSED = auto()
    WAIT_TO_VOTE_NEXT = auto()
    """Ask again in the next term."""


class Pause(Enum):
    """When to ask again."""

    NONE = auto()
    VOTE = auto()
    """After a vote's interval."""
    LONG_VOTE = auto()
    """After that and the longest vote's interval: others have more entries."""
    LEADER = auto()
    """After that and the time in which a follower misses its leader."""


@dataclass(frozen=True, slots=True)
class Voter:
    """What a vote depends on."""

    self_id: str
    peers: frozenset[str]
    term: int
    vote: str | None
    leader_id: str | None
    ledger_end_index: int
    ledger_end_term: int
    promised: bool = False
    """To a leader that others may rely on (ours)."""
    abstains: bool = False
    """It may have promised before its restart (ours)."""
    taking: bool = False
    """It was asked to take the leadership over."""
    favours_another: bool = False
    """It runs itself, or would vote for another (asked before an election only)."""


@dataclass(frozen=True, slots=True)
class VoteVerdict:
    """The answer, its term, and whether the term is to be raised to the candidate's."""

    result: VoteResult
    term: int
    raises: bool = False


def _unfit(voter: Voter, request: VoteRequest) -> VoteResult | None:
    """Why this candidate, with its log, is none."""
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


def judge(voter: Voter, request: VoteRequest) -> VoteVerdict:
    """What is said to a candidate. ACCEPT is to be durable before it is said."""
    candidate = request.leader_id
    ends = (request.ledger_end_term, request.ledger_end_index)
    result, term, raises = VoteResult.ACCEPT, voter.term, False
    unfit = _unfit(voter, request)
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


def foresee(voter: Voter, request: VoteRequest) -> tuple[VoteResult, int]:
    """What a vote in the term `pre_vote` would be, and the least term from that on whose vote is
    free. UNKNOWN: not now."""
    candidate, wanted = request.leader_id, request.pre_vote
    assert wanted is not None, "a vote is asked for"
    free = max(wanted, voter.term + (voter.vote not in (None, candidate)))
    unfit = _unfit(voter, request)
    if unfit is not None:
        return unfit, free
    if voter.promised and candidate != voter.leader_id:
        return VoteResult.REJECT_ALREADY_HAS_LEADER, free
    if voter.abstains or voter.favours_another:
        return VoteResult.UNKNOWN, free
    return VoteResult.ACCEPT if wanted == free else VoteResult.REJECT_EXPIRED_VOTE_TERM, free


_BIGGER = {VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX}


def is_decided(results: Iterable[VoteResult], missing: int, majority: int) -> bool:
    """Whether a round need not wait for the `missing` answers (ours: also when it cannot pass any
    more, a majority having answered)."""
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


def parse(
    results: Iterable[VoteResult], known_max_term: int, term: int, majority: int
) -> tuple[ParseResult, Pause]:
    """What the answers of a round come to; the first row that fits."""
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
