"""Votes and the results of vote rounds: row by row (controller.md 12.2, 12.3)."""

import dataclasses

import pytest

from turbopump.controller.raft.messages import VoteRequest, VoteResult
from turbopump.controller.raft.votes import (
    ParseResult,
    Pause,
    Voter,
    decide_pre_vote,
    decide_vote,
    is_decided,
    parse_votes,
)

R = VoteResult
VOTER = Voter("n1", frozenset({"n0", "n1", "n2"}), 5, None, None, 10, 4)
REQUEST = VoteRequest(
    local_id="n0", remote_id="n1", leader_id="n0", term=5, ledger_end_index=10, ledger_end_term=4
)


def vote_result(voter: dict[str, object], request: dict[str, object]) -> VoteResult:
    return decide_vote(
        dataclasses.replace(VOTER, **voter), dataclasses.replace(REQUEST, **request)
    ).result


@pytest.mark.parametrize(
    ("voter", "request_", "result"),
    [
        ({}, {}, R.ACCEPT),
        ({"vote": "n0"}, {}, R.ACCEPT),  # again
        ({}, {"leader_id": "n9"}, R.REJECT_UNKNOWN_LEADER),  # 1
        ({}, {"leader_id": "n1"}, R.REJECT_UNEXPECTED_LEADER),  # 2
        ({}, {"ledger_end_term": 3, "ledger_end_index": 99}, R.REJECT_EXPIRED_LEDGER_TERM),  # 3
        ({}, {"ledger_end_index": 9}, R.REJECT_SMALL_LEDGER_END_INDEX),  # 4
        ({}, {"ledger_end_index": 9, "term": 9}, R.REJECT_SMALL_LEDGER_END_INDEX),  # before 8
        ({}, {"term": 4}, R.REJECT_EXPIRED_VOTE_TERM),  # 5
        ({"vote": "n2", "leader_id": "n2"}, {}, R.REJECT_ALREADY_HAS_LEADER),  # 6
        ({"vote": "n2"}, {}, R.REJECT_ALREADY_VOTED),  # 7
        ({}, {"term": 6}, R.ACCEPT),  # 8, ours: at once
        ({"vote": "n2", "leader_id": "n2"}, {"term": 6}, R.ACCEPT),
        ({"term": 3}, {"term": 3}, R.REJECT_TERM_SMALL_THAN_LEDGER),  # 9
        ({"taking": True}, {}, R.REJECT_TAKING_LEADERSHIP),  # 10
        ({"taking": True}, {"ledger_end_index": 11}, R.ACCEPT),
        # Turbopump's own rules: a promise to a leader, or a promise possibly given before a restart
        ({"promised": True, "leader_id": "n2"}, {"term": 6}, R.REJECT_ALREADY_HAS_LEADER),
        ({"promised": True, "leader_id": "n2"}, {}, R.REJECT_ALREADY_HAS_LEADER),
        ({"promised": True, "leader_id": "n0"}, {"term": 6}, R.ACCEPT),
        (
            {"promised": True, "leader_id": "n2"},
            {"term": 6, "transfer": True},
            R.ACCEPT,
        ),
        ({"abstains": True}, {}, R.UNKNOWN),
        ({"abstains": True}, {"term": 6}, R.UNKNOWN),
        ({"abstains": True, "vote": "n2"}, {}, R.REJECT_ALREADY_VOTED),
    ],
)
def test_rows(voter: dict[str, object], request_: dict[str, object], result: VoteResult) -> None:
    assert vote_result(voter, request_) is result


def test_a_later_term_is_granted_at_once_and_only_it_raises() -> None:
    verdict = decide_vote(VOTER, dataclasses.replace(REQUEST, term=7))
    assert (verdict.result, verdict.term, verdict.raises_term) == (R.ACCEPT, 7, True)
    assert not decide_vote(VOTER, REQUEST).raises_term


@pytest.mark.parametrize(
    ("voter", "request_", "result", "free"),
    [
        ({}, {}, R.ACCEPT, 5),
        ({}, {"pre_vote": 6}, R.ACCEPT, 6),
        ({"vote": "n0"}, {}, R.ACCEPT, 5),
        ({"vote": "n2"}, {}, R.REJECT_EXPIRED_VOTE_TERM, 6),
        ({"vote": "n2"}, {"pre_vote": 6}, R.ACCEPT, 6),
        ({}, {"pre_vote": 3}, R.REJECT_EXPIRED_VOTE_TERM, 5),
        ({}, {"leader_id": "n9"}, R.REJECT_UNKNOWN_LEADER, 5),
        ({}, {"leader_id": "n1"}, R.REJECT_UNEXPECTED_LEADER, 5),
        ({}, {"ledger_end_term": 3, "pre_vote": 9}, R.REJECT_EXPIRED_LEDGER_TERM, 9),
        ({}, {"ledger_end_index": 9, "pre_vote": 9}, R.REJECT_SMALL_LEDGER_END_INDEX, 9),
        ({"promised": True, "leader_id": "n2"}, {"pre_vote": 9}, R.REJECT_ALREADY_HAS_LEADER, 9),
        ({"promised": True, "leader_id": "n0"}, {"pre_vote": 9}, R.ACCEPT, 9),
        ({"abstains": True}, {}, R.UNKNOWN, 5),
        ({"favours_another": True}, {"pre_vote": 9}, R.UNKNOWN, 9),
    ],
)
def test_the_result_of_a_possible_vote(
    voter: dict[str, object], request_: dict[str, object], result: VoteResult, free: int
) -> None:
    asked = dataclasses.replace(REQUEST, **{"term": -1, "pre_vote": 5, **request_})
    assert decide_pre_vote(dataclasses.replace(VOTER, **voter), asked) == (result, free)


def test_v7_term_below_the_log_tells_the_log_s() -> None:
    voter = dataclasses.replace(VOTER, term=3)
    assert decide_vote(voter, dataclasses.replace(REQUEST, term=3)).term == 4


@pytest.mark.parametrize(
    ("results", "known_max", "parsed"),
    [
        ([R.ACCEPT, R.ACCEPT, R.ACCEPT], 7, (ParseResult.WAIT_TO_VOTE_NEXT, Pause.VOTE)),  # a
        ([R.ACCEPT, R.REJECT_ALREADY_HAS_LEADER], 5, (ParseResult.WAIT_TO_REVOTE, Pause.LEADER)),
        ([R.ACCEPT, R.UNKNOWN, R.UNKNOWN], 5, (ParseResult.WAIT_TO_REVOTE, Pause.VOTE)),  # c
        (
            [R.ACCEPT, R.REJECT_EXPIRED_LEDGER_TERM, R.REJECT_SMALL_LEDGER_END_INDEX],
            5,
            (ParseResult.WAIT_TO_REVOTE, Pause.LONG_VOTE),
        ),  # d, V4
        ([R.ACCEPT, R.ACCEPT, R.REJECT_ALREADY_VOTED], 5, (ParseResult.PASSED, Pause.NONE)),  # e
        (
            [R.ACCEPT, R.REJECT_TERM_NOT_READY, R.REJECT_TERM_NOT_READY],
            5,
            (ParseResult.REVOTE_IMMEDIATELY, Pause.NONE),
        ),  # f, V3
        (
            [R.ACCEPT, R.REJECT_ALREADY_VOTED, R.REJECT_ALREADY_VOTED],
            5,
            (ParseResult.WAIT_TO_VOTE_NEXT, Pause.VOTE),
        ),  # g
    ],
)
def test_the_result_of_a_round(
    results: list[VoteResult], known_max: int, parsed: tuple[ParseResult, Pause]
) -> None:
    assert parse_votes(results, known_max, 5, 2) == parsed


@pytest.mark.parametrize(
    ("results", "missing", "decided"),
    [
        ([R.ACCEPT, R.ACCEPT], 1, True),
        ([R.ACCEPT, R.REJECT_TERM_NOT_READY], 1, True),
        ([R.ACCEPT, R.REJECT_ALREADY_HAS_LEADER], 1, True),
        ([R.ACCEPT, R.REJECT_ALREADY_VOTED], 1, False),
        ([R.REJECT_ALREADY_VOTED, R.REJECT_ALREADY_VOTED], 1, True),  # the round cannot pass
        ([R.UNKNOWN, R.UNKNOWN], 1, False),
        ([R.UNKNOWN, R.UNKNOWN, R.UNKNOWN], 0, True),
    ],
)
def test_when_a_round_is_decided(results: list[VoteResult], missing: int, decided: bool) -> None:
    assert is_decided(results, missing, 2) is decided
