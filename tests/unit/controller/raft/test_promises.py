"""Promises and the quorum."""

from tests.sim.raft.group import Group
from tests.unit.controller.raft.test_core import restart, vote

from turbopump.controller.raft.member_state import RaftRole
from turbopump.controller.raft.messages import HeartBeatRequest, VoteResult

# Promises and the quorum


def test_has_quorum_ends_before_anybody_else_can_be_elected() -> None:
    group = Group(3)
    leader = group.elect()
    group.tick(4000)
    raft = group.rafts[leader]
    assert raft.has_quorum(group.now_ms)
    others = [peer for peer in group.peers if peer != leader]
    group.cut |= {(leader, peer) for peer in others}
    sent = max(one.heard_sent_ms for one in raft.leading.peers.values())
    assert raft.has_quorum(sent + 4799)
    assert not raft.has_quorum(sent + 4800)
    for peer in others:
        heard = group.rafts[peer].member.heard_ms
        group.rafts[peer].on_tick(heard + 6000)
        assert group.rafts[peer].role is RaftRole.FOLLOWER
        assert group.rafts[peer]._has_promised()


def test_a_candidate_that_comes_back_deposes_no_leader() -> None:
    group = Group(3)
    leader = group.elect()
    group.tick(3000)
    other = next(peer for peer in group.peers if peer != leader)
    third = next(peer for peer in group.peers if peer not in (leader, other))
    log = group.rafts[third].member.log
    term = group.rafts[leader].term
    for voter in (leader, other):
        response = vote(group, voter, third, term + 3, log.end, log.end_term)
        assert response.vote_result is VoteResult.REJECT_ALREADY_HAS_LEADER
        assert group.rafts[voter].term == term


def test_a_member_alone_has_a_quorum_at_once() -> None:
    group = Group(1)
    group.tick(20)
    raft = group.rafts["n0"]
    assert raft.is_leader
    assert raft.has_quorum(group.now_ms + 1_000_000)
    group.append("n0", b"x")
    restart(group, "n0", group.disks["n0"].again())
    group.tick(20)
    assert group.rafts["n0"].is_leader
    assert [body for _, body in group.machines["n0"].applied if body] == [b"x"]


def test_a_restarted_member_elects_no_leader_as_long_as_it_may_have_promised() -> None:
    group = Group(3)
    leader = group.elect()
    group.stop(leader)
    other = next(iter(group.rafts))
    restart(group, other, group.disks[other].again())
    started_ms = group.now_ms
    group.tick(5900)
    assert not group.leaders
    group.elect()
    assert group.now_ms - started_ms >= 6000


def test_a_promise_of_the_first_life_holds_in_the_next() -> None:
    """The promise was never written: the leader's first entry did not arrive."""
    group = Group(3)
    group.rafts["n0"].campaign.run(0, group.now_ms)
    group.do("n0")
    group.deliver()  # n0 asks n1
    group.flying = [one for one in group.flying if "n2" not in (one.source, one.target)]
    group.deliver()  # the vote of n1: n0 leads
    beat = next(one for one in group.flying if isinstance(one.message, HeartBeatRequest))
    group.deliver(group.flying.index(beat))
    assert group.rafts["n1"].leader_id == "n0"
    group.stop("n1")
    group.start("n1")
    assert group.rafts["n1"].member.log.end == -1
    assert vote(group, "n1", "n2", 1).vote_result is VoteResult.UNKNOWN
    group.now_ms += 6000
    assert vote(group, "n1", "n2", 1).vote_result is VoteResult.ACCEPT
