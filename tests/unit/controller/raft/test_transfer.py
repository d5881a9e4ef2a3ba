"""Leadership transfer (16)."""

from tests.sim.raft.group import Group

from turbopump.controller.raft.actions import Failed
from turbopump.controller.raft.member_state import RaftRole
from turbopump.controller.raft.messages import LeadershipTransferRequest, RaftResponseCode

# Leadership transfer (16)


def transfer(group: Group, leader: str, target: str, term: int | None = None):
    return LeadershipTransferRequest(
        group="default",
        remote_id=leader,
        transfer_id=leader,
        transferee_id=target,
        term=group.rafts[leader].term if term is None else term,
    )


def test_a_transfer_at_the_request_of_a_client() -> None:
    group = Group(3)
    leader = group.elect()
    group.append(leader, b"x")
    group.tick(2000)
    target = next(peer for peer in group.peers if peer != leader)
    assert group.ask(leader, transfer(group, leader, target)) is None
    refused = group.append(leader, b"y").value
    assert isinstance(refused, Failed)
    assert refused.code is RaftResponseCode.LEADER_TRANSFERRING
    assert not group.rafts[leader].has_quorum(group.now_ms)
    began_ms = group.now_ms
    while group.leaders != [target]:
        group.tick()
    assert group.now_ms - began_ms < 500, "the taker asks for votes at once"
    group.tick(100)
    assert [one.code for one in group.responses.values()] == [RaftResponseCode.SUCCESS]


def test_refused_transfers() -> None:
    group = Group(3, max_leadership_transfer_wait_index=5)
    leader = group.elect()
    group.tick(100)
    follower, third = (peer for peer in group.peers if peer != leader)
    term = group.rafts[leader].term
    responses = {
        RaftResponseCode.INCONSISTENT_TERM: (leader, transfer(group, leader, follower, term + 1)),
        RaftResponseCode.UNEXPECTED_MEMBER: (leader, transfer(group, leader, "n9")),
        RaftResponseCode.UNEXPECTED_ARGUMENT: (
            follower,
            LeadershipTransferRequest(
                group="default",
                remote_id=follower,
                transfer_id=leader,
                transferee_id=third,
                term=term,
            ),
        ),
        RaftResponseCode.INCONSISTENT_LEADER: (
            follower,
            LeadershipTransferRequest(
                group="default",
                remote_id=follower,
                transfer_id=third,
                transferee_id=follower,
                term=term,
            ),
        ),
        RaftResponseCode.NOT_LEADER: (
            follower,
            LeadershipTransferRequest(
                group="default",
                remote_id=follower,
                transfer_id=follower,
                transferee_id=third,
                term=term,
            ),
        ),
    }
    for code, (asked, request) in responses.items():
        response = group.ask(asked, request)
        assert response is not None
        assert response.code == code
    group.stop(follower)
    for number in range(6):
        group.append(leader, b"%d" % number)
        group.settle()
    response = group.ask(leader, transfer(group, leader, follower))
    assert response is not None
    assert response.code == RaftResponseCode.FALL_BEHIND_TOO_MUCH


def test_a_taker_that_lacks_entries_waits_a_second() -> None:
    group = Group(3)
    leader = group.elect()
    group.tick(100)
    target = next(peer for peer in group.peers if peer != leader)
    request = LeadershipTransferRequest(
        group="default",
        remote_id=target,
        transfer_id=leader,
        transferee_id=target,
        term=group.rafts[leader].term,
        take_leadership_ledger_index=99,
    )
    assert group.ask(target, request) is None
    group.tick(990)
    assert not group.responses
    group.tick(20)
    assert [one.code for one in group.responses.values()] == [
        RaftResponseCode.TAKE_LEADERSHIP_FAILED
    ]
    assert group.leaders == [leader]


def test_a_transfer_without_a_response_ends_the_term() -> None:
    """The target may still campaign in spite of promises: the leader must not trust its quorum
    again."""
    group = Group(3)
    leader = group.elect()
    group.tick(100)
    term = group.rafts[leader].term
    target = next(peer for peer in group.peers if peer != leader)
    assert group.rafts[leader].transfer_to(target, group.now_ms) is RaftResponseCode.SUCCESS
    actions = [one for one in group.rafts[leader].take_actions() if hasattr(one, "call")]
    assert actions, "it is lost"
    group.tick(2900)
    assert group.rafts[leader].role is RaftRole.LEADER
    assert not group.rafts[leader].has_quorum(group.now_ms)
    group.tick(200)
    assert group.rafts[leader].term > term
    assert group.rafts[group.elect()].term > term


def test_a_preferred_member_is_given_the_lead() -> None:
    group = Group(3, preferred_leader_ids=("n2",))
    group.rafts["n0"].on_tick(group.now_ms)
    group.do("n0")
    group.settle()
    assert group.leaders == ["n0"]
    group.tick(3000)
    assert group.leaders == ["n2"]
    group.tick(5000)
    assert group.leaders == ["n2"]
