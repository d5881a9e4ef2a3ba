"""Members of a quorum together: elections, commits, failures, on a network without losses."""

from dataclasses import replace
from typing import Any

import pytest
from tests.sim.raft.group import Group

from turbopump.controller.raft import member_state
from turbopump.controller.raft.actions import Committed, Failed, SaveTerm
from turbopump.controller.raft.log import Log
from turbopump.controller.raft.member_state import MemberState, RaftRole, Restored
from turbopump.controller.raft.messages import (
    PushEntryRequest,
    PushType,
    RaftMessage,
    RaftResponseCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
    decode,
    encode,
)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_new_group_elects_and_commits(count: int) -> None:
    group = Group(count)
    leader = group.elect()
    assert group.rafts[leader].has_quorum(group.now_ms)
    laters = [group.append(leader, b"%d" % number) for number in range(3)]
    group.settle()
    outcomes = [later.value for later in laters]
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    group.tick(100)
    applied = [machine.applied for machine in group.machines.values()]
    assert all(one == applied[0] for one in applied)
    assert [body for _index, body in applied[0] if body] == [b"0", b"1", b"2"]


def test_the_leader_dies() -> None:
    group = Group(3)
    first = group.elect()
    later = group.append(first, b"kept")
    group.settle()
    assert isinstance(later.value, Committed)
    group.stop(first)
    second = group.elect()
    assert second != first
    assert (later.value.index, b"kept") in group.machines[second].applied
    group.append(second, b"more")
    group.start(first)
    group.tick(10_000)
    assert group.rafts[first].role is RaftRole.FOLLOWER
    assert group.machines[first].applied == group.machines[second].applied


def test_a_follower_in_a_new_life_receives_the_commit_index() -> None:
    """The follower learns it also while its leader has nothing to append (`make sim
    SUITE=group`)."""
    group = Group(3)
    leader = group.elect()
    group.append(leader, b"kept")
    group.settle()
    group.tick(3000)
    follower = next(peer for peer in group.peers if peer != leader)
    group.stop(follower)
    group.start(follower)
    group.tick(5000)
    assert group.rafts[leader].is_leader
    assert group.machines[follower].applied == group.machines[leader].applied


def test_a_dead_leader_that_is_known_to_be_dead_is_replaced_at_once() -> None:
    group = Group(3)
    first = group.elect()
    group.tick(3000)
    group.stop(first)
    died_ms = group.now_ms
    for raft in list(group.rafts.values()):
        raft.on_peer_gone(first, group.now_ms)
    group.elect()
    assert group.now_ms - died_ms < 2000


def test_one_cut_off_steps_down_and_its_append_is_of_unknown_fate() -> None:
    group = Group(3)
    first = group.elect()
    group.tick(100)
    others = [peer for peer in group.peers if peer != first]
    group.cut |= {(first, peer) for peer in others} | {(peer, first) for peer in others}
    later = group.append(first, b"lost")
    group.tick(2600)
    assert isinstance(later.value, Failed)
    assert later.value.code is RaftResponseCode.WAIT_QUORUM_ACK_TIMEOUT
    another = group.append(first, b"lost, too")
    lost_ms = None
    while group.rafts[first].role is RaftRole.LEADER:
        group.tick()
        if lost_ms is None and not group.rafts[first].has_quorum(group.now_ms):
            lost_ms = group.now_ms
        assert lost_ms is not None or not [peer for peer in others if group.rafts[peer].is_leader]
    assert another.value.code in (
        RaftResponseCode.TERM_CHANGED,
        RaftResponseCode.WAIT_QUORUM_ACK_TIMEOUT,
    )
    second = group.elect(60_000)
    assert second != first
    group.append(second, b"kept")
    group.cut.clear()
    group.tick(20_000)
    bodies = {body for _index, body in group.machines[first].applied}
    assert b"kept" in bodies
    assert not bodies & {b"lost", b"lost, too"}


def test_snapshots_bound_the_log_and_bring_a_follower_up() -> None:
    group = Group(3, snapshot_threshold=20, snapshot_keep=5)
    leader = group.elect()
    lagging = next(peer for peer in group.peers if peer != leader)
    group.stop(lagging)
    for number in range(100):
        group.append(leader, b"%d" % number)
        group.settle()
    log = group.rafts[leader].member.log
    assert log.end - log.base.index <= 26
    group.start(lagging)
    group.tick(5000)
    assert group.machines[lagging].applied == group.machines[leader].applied
    assert len(group.machines[lagging].applied) >= 100


def test_snapshots_bound_the_bytes_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of clients are large: a thousand of them would be gigabytes."""
    monkeypatch.setattr(member_state, "LOG_BYTES_MAX", 1_000)
    group = Group(3, snapshot_threshold=10_000, snapshot_keep=100)
    leader = group.elect()
    lagging = next(peer for peer in group.peers if peer != leader)
    group.stop(lagging)
    largest = 0
    for number in range(60):
        group.append(leader, b"%03d" % number * (100 if number % 20 else 1_000))
        group.settle()
        logs = [raft.member.log for raft in group.rafts.values()]
        largest = max(largest, *(log.end_pos - log.base.pos for log in logs))
    assert largest < 8_000, "kept, since the snapshot, and the largest entry"
    assert all(len(log.entries()) > 1 for log in logs)
    group.start(lagging)
    group.tick(5_000)
    assert group.machines[lagging].applied == group.machines[leader].applied
    assert len(group.machines[lagging].applied) >= 60


def test_more_entries_of_an_old_term_than_the_leader_has() -> None:
    """The simulation found that entries after the agreed point which contradict the leader were
    never cut, and the follower waited forever."""
    group = Group(3)
    for peer, terms in {"n0": (1, 1, 1, 2), "n1": (1, 1, 1, 2), "n2": (1,) * 8}.items():
        log = Log()
        for term in terms:
            log.append_entries([log.next_entry(term, b"%d" % term)])
        group.stop(peer)
        group.disks[peer].restored = Restored(3, None, log)
        group.start(peer)
    leader = group.elect()
    assert leader != "n2"
    group.tick(3000)
    logs = [raft.member.log.entries() for raft in group.rafts.values()]
    assert logs[0] == logs[1] == logs[2]
    assert [entry.term for entry in logs[2]][:4] == [1, 1, 1, 2]


def test_a_term_that_the_leader_lacks_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    call = MemberState.call_peer

    def note(member: MemberState, peer: str, request: RaftMessage, now_ms: int) -> int:
        if isinstance(request, PushEntryRequest) and request.type is PushType.COMPARE:
            sent.append(request.pre_log_index)
        return call(member, peer, request, now_ms)

    group = Group(3)
    same = (1, *[3] * 20)
    for peer, terms in {"n0": same, "n1": same, "n2": (1, *[2] * 20)}.items():
        log = Log()
        for term in terms:
            log.append_entries([log.next_entry(term, b"%d" % term)])
        group.stop(peer)
        group.disks[peer].restored = Restored(3, None, log)
        group.start(peer)
    monkeypatch.setattr(MemberState, "call_peer", note)
    group.elect()
    group.tick(3000)
    assert len(group.rafts["n2"].member.log.entries()) > 20
    assert sent == [20, 20, 0], "the end of the log to both, then the entry before term 2"


class Elder:
    """A peer of DLedger with the votes of controller.md 12.2 and without pre-votes; its term and
    vote are in memory."""

    def __init__(self, peer: str, term: int, log: Log) -> None:
        self.peer, self.term, self.log = peer, term, log
        self.vote: str | None = None
        self.asked: list[VoteRequest] = []

    def answer(self, request: VoteRequest) -> VoteResponse:
        """Answer a vote request by rows 3 to 11 of controller.md 12.2."""
        self.asked.append(request)
        ends = (request.ledger_end_term, request.ledger_end_index)
        term, result = self.term, VoteResult.ACCEPT
        if ends[0] < self.log.end_term:
            result = VoteResult.REJECT_EXPIRED_LEDGER_TERM
        elif ends < (self.log.end_term, self.log.end):
            result = VoteResult.REJECT_SMALL_LEDGER_END_INDEX
        elif request.term < self.term:
            result = VoteResult.REJECT_EXPIRED_VOTE_TERM
        elif request.term == self.term and self.vote not in (None, request.leader_id):
            result = VoteResult.REJECT_ALREADY_VOTED
        elif request.term > self.term:
            self.term, self.vote, result = request.term, None, VoteResult.REJECT_TERM_NOT_READY
        else:
            self.vote = request.leader_id
        return VoteResponse(
            group=request.group,
            local_id=request.local_id,
            remote_id=request.remote_id,
            leader_id=request.leader_id,
            term=term,
            vote_result=result,
        )


@pytest.mark.parametrize("term", [0, 3, 9])
def test_peers_of_dledger_elect_one_of_ours(term: int) -> None:
    """DLedger's members refuse the pre-vote, change no state for it, and vote on the vote
    request."""
    group = Group(3)
    elders = {peer: Elder(peer, term, Log()) for peer in ("n1", "n2")}
    for peer in elders:
        group.stop(peer)
    raft = group.rafts["n0"]
    for _ in range(3000):
        group.now_ms += 10
        raft.on_tick(group.now_ms)
        group.do("n0")
        flying, group.flying = group.flying, []
        for one in flying:
            if not isinstance(one.message, VoteRequest):
                continue
            elder, before = elders[one.target], (elders[one.target].term, elders[one.target].vote)
            # DLedger skips unknown fields.
            read = decode(VoteRequest, encode(replace(one.message, pre_vote=None)))
            response = elder.answer(read)
            if one.message.pre_vote is not None:
                assert before == (elder.term, elder.vote)
            raft.on_response(one.target, one.call, response, group.now_ms)
            group.do("n0")
        if raft.role is RaftRole.LEADER:
            break
    assert raft.role is RaftRole.LEADER
    assert any(request.term == -1 for request in elders["n1"].asked)
    assert raft.term in (term, term + 1)
    assert {elder.vote for elder in elders.values()} >= {"n0"}


def test_a_member_that_comes_back_raises_no_term() -> None:
    """The member asks for pre-votes first: members that have a leader refuse, and nothing is
    written."""
    group = Group(3)
    leader = group.elect()
    group.tick(3000)
    away = next(peer for peer in group.peers if peer != leader)
    others = [peer for peer in group.peers if peer != away]
    group.cut |= {(away, one) for one in others} | {(one, away) for one in others}
    term = group.rafts[leader].term
    group.tick(60_000)
    assert group.rafts[away].role is RaftRole.CANDIDATE
    assert group.rafts[away].term == group.disks[away].restored.term == term
    group.cut.clear()
    group.tick(5000)
    assert (group.leaders, group.rafts[leader].term) == ([leader], term)
    assert group.rafts[away].leader_id == leader


def test_a_candidate_costs_one_write_and_a_voter_one() -> None:
    group = Group(3)
    first = group.elect()
    group.tick(3000)
    group.stop(first)
    saved: dict[str, int] = dict.fromkeys(group.rafts, 0)
    real = {peer: group.disks[peer].do for peer in group.rafts}
    for peer in group.rafts:

        def do(action: Any, peer: str = peer) -> None:
            saved[peer] += isinstance(action, SaveTerm)
            real[peer](action)

        group.disks[peer].do = do  # type: ignore[method-assign]
    for raft in list(group.rafts.values()):
        raft.on_peer_gone(first, group.now_ms)
    group.elect()
    assert set(saved.values()) == {1}
