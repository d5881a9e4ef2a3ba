"""V1 to V7 (controller.md 12.6), the figure of Raft's paper, transfers, promises, clients."""

import pytest
from tests.sim.raft.group import Flying, Group

from turbopump.controller.raft.actions import Committed
from turbopump.controller.raft.log import Log
from turbopump.controller.raft.member_state import RaftRole, Restored
from turbopump.controller.raft.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    HeartBeatRequest,
    HeartBeatResponse,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    PushType,
    RaftResponseCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from turbopump.controller.raft.options import RaftOptions


def restart(group: Group, peer: str, restored: Restored) -> None:
    """Restart a member with a different persistent state."""
    if peer in group.rafts:
        group.stop(peer)
    group.disks[peer].restored = restored
    group.start(peer)


def log_of(*terms: int) -> Log:
    log = Log()
    for term in terms:
        log.append_entries([log.next_entry(term, b"%d" % term)])
    return log


def quiet(group: Group) -> None:
    """Drop the messages in flight."""
    group.flying.clear()


def vote(group: Group, voter: str, candidate: str, term: int, end: int = -1, end_term: int = -1):
    request = VoteRequest(
        group="default",
        local_id=candidate,
        remote_id=voter,
        leader_id=candidate,
        term=term,
        ledger_end_index=end,
        ledger_end_term=end_term,
    )
    response = group.ask(voter, request)
    assert isinstance(response, VoteResponse)
    return response


# Vectors


def test_v1_the_first_to_ask_leads_term_0() -> None:
    group = Group(3)
    group.rafts["n0"].on_tick(group.now_ms + 10)
    group.do("n0")
    group.settle()
    assert group.rafts["n0"].is_leader
    assert group.rafts["n0"].term == 0
    assert {raft.member.vote for raft in group.rafts.values()} == {"n0"}


def test_v2_one_of_two_candidates_that_voted_for_themselves_passes() -> None:
    group = Group(3)
    for peer in ("n0", "n1"):
        group.rafts[peer].campaign.run(0, group.now_ms)
        group.do(peer)
    group.settle()
    assert group.rafts["n0"].is_leader
    assert group.rafts["n1"].leader_id == "n0"


def test_one_of_two_candidates_that_ask_at_once_runs() -> None:
    """A member votes only for the candidate that can win."""
    group = Group(3)
    for peer in ("n0", "n1"):
        group.rafts[peer].on_tick(group.now_ms + 10)
        group.do(peer)
    group.settle()
    assert group.rafts["n1"].is_leader
    assert {raft.member.vote for raft in group.rafts.values()} == {"n1"}
    assert {raft.term for raft in group.rafts.values()} == {0}


def test_v3_members_of_an_earlier_term_raise_it_and_vote_then() -> None:
    group = Group(3)
    restart(group, "n0", Restored(5, None, log_of(1)))
    for peer in ("n1", "n2"):
        restart(group, peer, Restored(3, None, log_of(1)))
    quiet(group)
    response = vote(group, "n1", "n0", 5, 0, 1)
    assert response.vote_result is VoteResult.UNKNOWN, "it may have promised before"
    group.now_ms += 7000
    response = vote(group, "n1", "n0", 5, 0, 1)
    assert (response.vote_result, response.term) == (VoteResult.ACCEPT, 5), (
        "DLedger: when asked again"
    )
    assert (group.rafts["n1"].term, group.disks["n1"].restored.vote) == (5, "n0")
    group.rafts["n0"].on_tick(group.now_ms)
    group.do("n0")
    group.settle()
    group.tick(20)
    assert (group.leaders, group.rafts["n0"].term) == (["n0"], 5)


def test_v4_a_shorter_log_neither_wins_nor_raises_terms() -> None:
    group = Group(3)
    restart(group, "n0", Restored(9, None, log_of(1)))
    for peer in ("n1", "n2"):
        restart(group, peer, Restored(3, None, log_of(1, 3)))
    quiet(group)
    group.now_ms += 7000
    group.rafts["n0"].on_tick(group.now_ms)
    group.do("n0")
    group.settle()
    assert [raft.term for raft in group.rafts.values()] == [9, 3, 3]
    loser = group.rafts["n0"]
    assert loser.role is RaftRole.CANDIDATE
    assert loser.campaign.next_ms - group.now_ms >= loser.options.max_vote_interval_ms
    assert group.elect() != "n0"


def test_v5_a_vote_survives_a_restart() -> None:
    group = Group(3)
    assert vote(group, "n1", "n0", 0).vote_result is VoteResult.ACCEPT
    restart(group, "n1", group.disks["n1"].again())
    assert vote(group, "n1", "n2", 0).vote_result is VoteResult.REJECT_ALREADY_VOTED


def test_a_term_that_had_a_leader_has_no_vote_left() -> None:
    """n2 followed n0 without having voted; n1, which voted for n0, returns with an empty disk: n2's
    vote would give term 0 a second leader."""
    group = Group(3)
    raft = group.rafts["n2"]
    quiet(group)
    heartbeat = HeartBeatRequest(
        group="default", local_id="n0", remote_id="n2", leader_id="n0", term=0
    )
    assert isinstance(group.ask("n2", heartbeat), HeartBeatResponse)
    assert (raft.leader_id, raft.member.vote) == ("n0", None)
    group.now_ms += raft.options.promise_ms + 1
    raft.on_peer_gone("n0", group.now_ms)
    assert vote(group, "n2", "n1", 0).vote_result is not VoteResult.ACCEPT
    assert raft.member.vote is None
    assert vote(group, "n2", "n1", 1).vote_result is VoteResult.ACCEPT


def test_a_candidate_does_not_ask_again_in_a_term_that_another_led() -> None:
    """n2 voted for itself, then followed n0, which had n1's vote; n0 returns with an empty disk:
    its vote would make n2 a second leader of term 0 (seed 2623 of the group simulation)."""
    group = Group(3)
    restart(group, "n2", Restored(0, "n2"))
    raft = group.rafts["n2"]
    assert raft.campaign.wanted_term() == 0, "nothing is known of a leader"
    heartbeat = HeartBeatRequest(
        group="default", local_id="n0", remote_id="n2", leader_id="n0", term=0
    )
    assert isinstance(group.ask("n2", heartbeat), HeartBeatResponse)
    group.now_ms += 10 * raft.options.promise_ms
    raft.on_tick(group.now_ms)
    assert raft.role is RaftRole.CANDIDATE
    assert raft.campaign.wanted_term() == 1


@pytest.mark.parametrize("own", [None, "n2"])
def test_entries_of_a_leader_tell_after_a_restart_that_the_term_had_one(own: str | None) -> None:
    group = Group(3)
    restart(group, "n2", Restored(3, own, log_of(1, 3), is_new=False))
    group.now_ms += 7_000
    assert group.rafts["n2"].campaign.wanted_term() == 4
    assert vote(group, "n2", "n1", 3, 1, 3).vote_result is not VoteResult.ACCEPT
    assert vote(group, "n2", "n1", 4, 1, 3).vote_result is VoteResult.ACCEPT


def test_v6_a_leader_cut_off_comes_back_as_a_follower() -> None:
    group = Group(3)
    first = group.elect()
    term = group.rafts[first].term
    others = [peer for peer in group.peers if peer != first]
    group.cut |= {(first, peer) for peer in others} | {(peer, first) for peer in others}
    group.tick(5900)
    assert group.rafts[first].role is RaftRole.LEADER
    group.tick(300)
    assert group.rafts[first].role is RaftRole.CANDIDATE
    group.elect(60_000)
    assert all(group.rafts[peer].term > term for peer in others)
    group.cut.clear()
    group.tick(9_000)
    assert group.rafts[first].role is RaftRole.FOLLOWER


def test_v7_term_below_the_log() -> None:
    group = Group(3)
    restart(group, "n1", Restored(4, None, log_of(4)))
    member = group.rafts["n1"].member
    member.term, member.led_by = 3, None  # as DLedger may be after a lost file; ours refuse it
    group.now_ms += 7000
    response = vote(group, "n1", "n0", 3, 9, 4)
    assert (response.vote_result, response.term) == (VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, 4)


# Heartbeats


def test_rows_of_heartbeats() -> None:
    group = Group(3)
    restart(group, "n1", Restored(5, None, log_of(1)))

    def beat(leader: str, term: int) -> HeartBeatResponse:
        response = group.ask(
            "n1",
            HeartBeatRequest(
                group="default", local_id=leader, remote_id="n1", leader_id=leader, term=term
            ),
        )
        assert isinstance(response, HeartBeatResponse)
        return response

    assert beat("n9", 5).code == RaftResponseCode.UNKNOWN_MEMBER
    assert beat("n1", 5).code == RaftResponseCode.UNEXPECTED_MEMBER
    assert beat("n0", 4) == HeartBeatResponse(code=RaftResponseCode.EXPIRED_TERM, term=5)
    assert beat("n0", 5).code == RaftResponseCode.SUCCESS
    assert group.rafts["n1"].leader_id == "n0"
    assert beat("n2", 5).code == RaftResponseCode.INCONSISTENT_LEADER
    assert beat("n2", 6).code == RaftResponseCode.TERM_NOT_READY
    assert (group.rafts["n1"].term, group.rafts["n1"].leader_id) == (6, None)
    assert beat("n2", 6).code == RaftResponseCode.SUCCESS


# Raft, figure 8: entries of an older term on a majority are not committed by that


def test_r8_figure_8() -> None:
    group = Group(5, heart_beat_time_interval_ms=50, vote_wait_ms=50)
    # n0 led term 2 and put entry 1 on n1; n4 led term 3 with another entry 1; now n0 leads term 4.
    for peer, terms in {
        "n0": (1, 2),
        "n1": (1, 2),
        "n2": (1,),
        "n3": (1,),
        "n4": (1, 3),
    }.items():
        restart(group, peer, Restored(3, None, log_of(*terms)))
    quiet(group)
    group.now_ms += 200
    group.cut |= {(one, "n4") for one in group.peers} | {("n4", one) for one in group.peers}
    group.stop("n3")
    raft = group.rafts["n0"]
    raft.campaign.run(4, group.now_ms)
    group.do("n0")
    group.tick(10)
    while raft.role is not RaftRole.LEADER:
        group.tick(10, settle=False)
        group.settle()
    # The leader's own entry (index 2) reaches no member: only the earlier one is replicated to n2.
    assert raft.leading is not None
    group.flying.clear()
    for peer, progress in raft.leading.peers.items():
        progress.match = 1 if peer in ("n1", "n2") else -1
    raft.member.committed = min(raft.member.committed, 0)
    raft.leading._commit_majority()
    assert raft.member.committed < 1, "entry 1 of term 2 is on three of five, and not committed"
    for peer in ("n1", "n2"):
        raft.leading.peers[peer].match = 2
    raft.leading._commit_majority()
    assert raft.member.committed == 2, "after an entry of its own term it is"


# Appends and clients


def test_refused_appends() -> None:
    group = Group(3, max_pending_requests_num=2)
    leader = group.elect()
    follower = next(peer for peer in group.peers if peer != leader)
    refused = group.append(follower, b"x").value
    assert (refused.code, refused.reason) == (RaftResponseCode.NOT_LEADER, f"{leader} leads")
    group.append(leader, b"1")
    group.append(leader, b"2")
    assert group.append(leader, b"3").value.code is RaftResponseCode.LEADER_PENDING_FULL
    assert group.append(leader, b"x" * (5 << 20)).value.code is RaftResponseCode.UNEXPECTED_ARGUMENT


def test_clients_append_get_and_ask_for_the_leader() -> None:
    group = Group(3)
    leader = group.elect()
    follower = next(peer for peer in group.peers if peer != leader)
    found = group.ask(follower, MetadataRequest(group="default", remote_id=follower))
    assert found == MetadataResponse(group="default", leader_id=leader, peers=group.peers)
    request = AppendEntryRequest(group="default", remote_id=leader, body=b"hello")
    group.ask(leader, request)
    group.settle()
    response = next(one for one in group.responses.values() if isinstance(one, AppendEntryResponse))
    assert (response.code, response.index, response.pos) == (200, 1, 48)

    def get(peer: str, index: int) -> GetEntriesResponse:
        wanted = GetEntriesRequest(group="default", remote_id=peer, begin_index=index)
        response = group.ask(peer, wanted)
        assert isinstance(response, GetEntriesResponse)
        return response

    assert [entry.body for entry in get(leader, 1).entries] == [b"hello"]
    assert get(leader, 2).code == RaftResponseCode.INDEX_OUT_OF_RANGE
    assert get(follower, 1).code == RaftResponseCode.NOT_LEADER
    other_group = AppendEntryRequest(group="other", remote_id=leader, body=b"x")
    response = group.ask(leader, other_group)
    assert response is not None
    assert response.code == RaftResponseCode.UNKNOWN_GROUP
    response = group.ask(leader, MetadataRequest(group="default", remote_id=follower))
    assert response is not None
    assert response.code == RaftResponseCode.UNKNOWN_MEMBER


def test_an_uncommitted_entry_is_not_shown() -> None:
    group = Group(3)
    leader = group.elect()
    group.append(leader, b"not yet")
    end = group.rafts[leader].member.log.end
    request = GetEntriesRequest(group="default", remote_id=leader, begin_index=end)
    response = group.ask(leader, request)
    assert response is not None
    assert response.code == RaftResponseCode.INDEX_OUT_OF_RANGE


def test_a_response_of_another_kind_is_none() -> None:
    group = Group(3)
    leader = group.elect()
    group.append(leader, b"x")
    pushes = [one for one in group.flying if isinstance(one.message, PushEntryRequest)]
    assert pushes
    assert pushes[0].message.type is PushType.APPEND
    group.rafts[leader].on_response(
        pushes[0].target, pushes[0].call, HeartBeatResponse(), group.now_ms
    )
    group.rafts[leader].on_response(pushes[0].target, 12345, None, group.now_ms)
    group.flying.remove(pushes[0])
    group.tick(2000)
    applied = [machine.applied for machine in group.machines.values()]
    assert applied[0] == applied[1] == applied[2]


def test_an_append_is_settled_when_it_is_applied_and_not_before() -> None:
    group = Group(1)
    group.tick(20)
    raft = group.rafts["n0"]
    later = raft.append(b"x", group.now_ms)
    assert not later.done, "it is not on the disk yet"
    group.do("n0")
    assert isinstance(later.value, Committed)


def test_a_message_tells_where_it_goes() -> None:
    flying = Flying("n0", "n1", 1, HeartBeatRequest())
    assert str(flying) == "n0->n1 HeartBeatRequest"


# Options


def test_options() -> None:
    with pytest.raises(ValueError, match="not among the members"):
        RaftOptions(self_id="n9", peers={"n0": "host-a:9878"})
    five = RaftOptions(self_id="n0", peers={f"n{number}": "" for number in range(5)})
    assert (five.majority, five.promise_ms, five.lease_ms) == (3, 6000, 4800)
