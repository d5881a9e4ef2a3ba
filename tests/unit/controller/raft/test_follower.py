"""A follower's handling of pushes: in order, late, repeated, from a different leader (Raft-9,
Raft-10)."""

import random

import pytest

from turbopump.controller.raft.actions import AppendEntries, Apply, LoadSnapshot, TruncateFrom
from turbopump.controller.raft.follower import on_install, on_push
from turbopump.controller.raft.log import Base, Entry, Log
from turbopump.controller.raft.member_state import MemberState, RaftRole, Restored
from turbopump.controller.raft.messages import (
    InstallSnapshotRequest,
    PushEntryRequest,
    PushType,
    RaftMessage,
    RaftResponseCode,
)
from turbopump.controller.raft.options import RaftOptions

PEERS = {"n0": "a:1", "n1": "b:2", "n2": "c:3"}
OK = RaftResponseCode.SUCCESS


def log_of(*terms: int) -> Log:
    log = Log()
    for number, term in enumerate(terms):
        log.append_entries([log.next_entry(term, b"%d.%d" % (number, term))])
    return log


def follower(*terms: int, term: int = 5, committed: int = -1) -> MemberState:
    options = RaftOptions(self_id="n1", peers=PEERS)
    member = MemberState(options, Restored(term, None, log_of(*terms)), random.Random(1))
    member.role, member.leader_id, member.committed = RaftRole.FOLLOWER, "n0", committed
    return member


def push(kind: PushType, leader: Log, first: int, count: int = 1, **changes) -> PushEntryRequest:
    entries = leader.entries()[first : first + count]
    found = {
        "type": kind,
        "leader_id": "n0",
        "term": 5,
        "group": "default",
        "entry": entries[0] if len(entries) == 1 else None,
        "batch_entry": tuple(entries) if len(entries) > 1 else (),
        "pre_log_index": first if kind is PushType.COMPARE else first - 1,
    }
    found["pre_log_term"] = leader.term_at(found["pre_log_index"])
    if kind is PushType.TRUNCATE:
        behind = leader.term_at(first + 1)
        found["next_term"] = behind if behind is not None else -1
    return PushEntryRequest(**{**found, **changes})


def bodies(member: MemberState) -> list[bytes]:
    return [entry.body for entry in member.log.entries()]


LEADER = log_of(1, 1, 4, 5)


def test_compare_truncate_append_commit() -> None:
    member = follower(1, 1, 2, 2, 2)
    compared = on_push(member, push(PushType.COMPARE, LEADER, 3), 7)
    assert compared.code == RaftResponseCode.INCONSISTENT_STATE
    assert (compared.begin_index, compared.end_index) == (0, 4)
    assert (compared.x_term, compared.x_index) == (2, 2)
    assert on_push(member, push(PushType.COMPARE, LEADER, 1), 7).code == OK
    assert on_push(member, push(PushType.TRUNCATE, LEADER, 1), 7).end_index == 1
    assert on_push(member, push(PushType.APPEND, LEADER, 2, 2, commit_index=2), 7).code == OK
    assert [type(action) for action in member.actions] == [TruncateFrom, AppendEntries, Apply]
    assert member.committed == 2
    commit = PushEntryRequest(type=PushType.COMMIT, leader_id="n0", term=5, commit_index=99)
    assert on_push(member, commit, 7).code == OK
    assert member.committed == 3, "only the entries that it has in common with the leader"
    assert bodies(member) == [entry.body for entry in LEADER.entries()]


def test_the_same_again_changes_nothing() -> None:
    member = follower(1, 1, 4, 5, 5, 5)
    longer = log_of(1, 1, 4, 5, 5, 5)
    before = bodies(member)
    late = [
        push(PushType.TRUNCATE, LEADER, 0),  # sent when the leader had four entries
        push(PushType.TRUNCATE, LEADER, 1),
        push(PushType.TRUNCATE, LEADER, 3),
        push(PushType.APPEND, LEADER, 1, 3),
        push(PushType.APPEND, longer, 4, 2),
        push(PushType.COMPARE, LEADER, 2),
    ]
    for request in late:
        assert on_push(member, request, 7).code == OK
    assert bodies(member) == before
    assert not member.actions


def test_committed_entries_are_not_cut() -> None:
    member = follower(1, 1, 2, 2, committed=2)
    response = on_push(member, push(PushType.TRUNCATE, LEADER, 2), 7)
    assert response.code == RaftResponseCode.INCONSISTENT_STATE
    response = on_push(member, push(PushType.APPEND, LEADER, 2, 2), 7)
    assert response.code == RaftResponseCode.INCONSISTENT_STATE
    assert not member.actions


@pytest.mark.parametrize("kind", PushType)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"term": 4}, RaftResponseCode.EXPIRED_TERM),
        ({"term": 6}, RaftResponseCode.INCONSISTENT_TERM),
        ({"leader_id": "n2"}, RaftResponseCode.INCONSISTENT_LEADER),
    ],
)
def test_r10_a_push_of_another_term_or_leader(kind, changes, code) -> None:
    member = follower(1, 1, 2)
    request = push(kind, LEADER, 2, commit_index=2, **changes)
    assert on_push(member, request, 7).code == code
    assert not member.actions
    assert (member.log.end, member.committed) == (2, -1)
    member.role = RaftRole.CANDIDATE
    response = on_push(member, push(kind, LEADER, 2, commit_index=2), 7)
    assert response.code == RaftResponseCode.NOT_FOLLOWER
    assert not member.actions


def test_a_gap_and_a_wrong_predecessor_are_told() -> None:
    for kind in PushType.APPEND, PushType.TRUNCATE:
        for missing in {}, {"pre_log_index": None, "pre_log_term": None}:
            member = follower(1)
            response = on_push(member, push(kind, LEADER, 2, **missing), 7)
            assert response.code == RaftResponseCode.INCONSISTENT_STATE
    member = follower(1, 2)
    response = on_push(member, push(PushType.APPEND, LEADER, 2), 7)
    assert response.code == RaftResponseCode.INCONSISTENT_STATE
    assert not member.actions


def test_a_call_whose_answer_is_lost_is_forgotten() -> None:
    member = follower(1)
    old, new = (member.call_peer("n0", RaftMessage(), now_ms) for now_ms in (0, 9_000))
    member.forget_old(10_000)
    assert member.take_call("n0", old) is None
    assert member.take_call("n0", new) is not None


def test_the_leader_of_a_term_is_known_until_a_later_term() -> None:
    member = follower(1)
    member.save_term(5, "n0")
    member.led_by = "n0"
    member.save_term(5, "n0")
    assert member.led_by == "n0", "the vote request came twice"
    member.save_term(6, None)
    assert member.led_by is None


def test_append_replaces_contradicting_entries_after_an_agreed_entry() -> None:
    member = follower(1, 1, 2, 2, 2)
    assert on_push(member, push(PushType.APPEND, LEADER, 1, 3), 7).code == OK
    assert bodies(member) == [entry.body for entry in LEADER.entries()]


def test_a_leader_of_java_reports_neither_earlier_nor_later_entries() -> None:
    bare = {"pre_log_index": None, "pre_log_term": None, "next_term": None}
    member = follower(1, 1, 2, 2, 2)
    assert on_push(member, push(PushType.COMPARE, LEADER, 1, **bare), 7).code == OK
    assert on_push(member, push(PushType.TRUNCATE, LEADER, 1, **bare), 7).end_index == 1
    assert on_push(member, push(PushType.APPEND, LEADER, 2, **bare), 7).code == OK
    assert on_push(member, push(PushType.TRUNCATE, LEADER, 1, **bare), 7).end_index == 2
    assert on_push(member, push(PushType.APPEND, LEADER, 3, **bare), 7).code == OK
    assert bodies(member) == [entry.body for entry in LEADER.entries()]


def test_an_empty_follower_is_begun_as_java_begins_it() -> None:
    """The sequence captured from Java: COMPARE of entry 0 is refused, TRUNCATE writes it."""
    member = follower()
    leader = log_of(5)
    assert on_push(member, push(PushType.COMPARE, leader, 0), 7).code == (
        RaftResponseCode.INCONSISTENT_STATE
    )
    response = on_push(member, push(PushType.TRUNCATE, leader, 0), 7)
    assert (response.code, response.begin_index, response.end_index) == (OK, 0, 0)


@pytest.mark.parametrize(
    "request_",
    [
        PushEntryRequest(type=PushType.APPEND, leader_id="n0", term=5),
        PushEntryRequest(type=PushType.TRUNCATE, leader_id="n0", term=5),
        PushEntryRequest(type=PushType.COMPARE, leader_id="n0", term=5),
        PushEntryRequest(
            type=PushType.APPEND,
            leader_id="n0",
            term=5,
            batch_entry=(Entry(1, 2, 0), Entry(3, 2, 0)),
        ),
        PushEntryRequest(type=PushType.APPEND, leader_id="n0", term=5, entry=Entry(1, 6, 0)),
    ],
)
def test_a_push_that_makes_no_sense(request_: PushEntryRequest) -> None:
    member = follower(1)
    assert on_push(member, request_, 7).code == RaftResponseCode.UNEXPECTED_ARGUMENT
    assert not member.actions


def test_entries_of_an_older_term_do_not_follow_later_ones() -> None:
    bare = {"pre_log_index": None, "pre_log_term": None}
    member = follower(1, 3)
    request = push(PushType.APPEND, log_of(1, 1, 2), 2, **bare)
    assert on_push(member, request, 7).code == RaftResponseCode.INCONSISTENT_STATE
    request = push(PushType.TRUNCATE, log_of(1, 1, 2), 2, **bare)
    assert on_push(member, request, 7).code == RaftResponseCode.INCONSISTENT_STATE
    assert not member.actions


def install(index: int, term: int) -> InstallSnapshotRequest:
    return InstallSnapshotRequest(
        leader_id="n0",
        term=5,
        last_included_index=index,
        last_included_term=term,
        last_included_pos=500,
        data=b"state",
    )


def test_a_snapshot_replaces_a_log_that_contradicts_it() -> None:
    member = follower(1, 1, 2, 2)
    assert on_install(member, install(2, 4), 7).code == OK
    assert (member.log.base, member.log.end, member.committed) == (Base(2, 4, 500), 2, 2)
    assert isinstance(member.actions[-1], LoadSnapshot)


def test_a_snapshot_keeps_later_entries() -> None:
    member = follower(1, 1, 4, 4)
    assert on_install(member, install(2, 4), 7).code == OK
    assert (member.log.base.index, member.log.end) == (2, 3)


def test_an_older_snapshot_or_one_of_another_leader_does_nothing() -> None:
    member = follower(1, 1, 4, 4, committed=3)
    assert on_install(member, install(2, 4), 7).code == OK
    member.leader_id = "n2"
    assert on_install(member, install(9, 4), 7).code == RaftResponseCode.INCONSISTENT_LEADER
    assert not member.actions
