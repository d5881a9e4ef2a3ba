"""Bugs that a quorum can have, to be planted one at a time: the suite must find each.

R1 to R10 are the invariants of the reference that each breaks; several are how DLedger is. Used by
tests/sim/test_raft.py.
"""

import dataclasses
from typing import Any

import pytest

from tests.sim.planted import Plant
from turbopump.controller.raft import actions as acts
from turbopump.controller.raft import core, following, replication, storage, votes
from turbopump.controller.raft.core import Raft
from turbopump.controller.raft.log import Log
from turbopump.controller.raft.member import Member
from turbopump.controller.raft.messages import PushEntryRequest, ResponseCode, VoteRequest
from turbopump.controller.raft.options import RaftOptions
from turbopump.controller.raft.replication import Leading
from turbopump.controller.raft.storage import RaftStorage
from turbopump.controller.raft.votes import Verdict, Voter

Patch = pytest.MonkeyPatch


def half_is_a_majority(patch: Patch) -> None:
    """R1: two of four, one of three elect."""
    real = RaftOptions.__post_init__

    def post_init(self: RaftOptions) -> None:
        real(self)
        object.__setattr__(self, "majority", max(1, len(self.peers) // 2))

    patch.setattr(RaftOptions, "__post_init__", post_init)


def raised_term_is_not_kept(patch: Patch) -> None:
    """R2: a term is written down with the next vote in it only."""
    real = RaftStorage.save_term

    def save_term(self: RaftStorage, term: int, vote: str | None) -> None:
        if vote is not None or term == 0:
            real(self, term, vote)

    patch.setattr(RaftStorage, "save_term", save_term)


def votes_are_not_kept(patch: Patch) -> None:
    """R3: the file has the term only."""
    real = RaftStorage.save_term
    patch.setattr(
        RaftStorage, "save_term", lambda self, term, vote: real(self, term, None)
    )


def vote_is_said_before_it_is_kept(patch: Patch) -> None:
    """R3: the file of term and vote is renamed and not synced (DLedger's MemberState.persist)."""
    real = RaftStorage._replace

    def replace(self: RaftStorage, name: str, data: bytes) -> None:
        if name == storage.CURRENT_TERM:
            self._files.write(self._path(name + storage.TEMPORARY), data)
            self._files.rename(self._path(name + storage.TEMPORARY), self._path(name))
        else:
            real(self, name, data)

    patch.setattr(RaftStorage, "_replace", replace)


def new_leader_cuts_what_is_not_committed(patch: Patch) -> None:
    """R4: it begins its term behind what it knows to be committed."""
    real = Leading.__init__

    def init(self: Leading, member: Member, now_ms: int) -> None:
        real(self, member, now_ms)
        role, member.role = member.role, core.Role.FOLLOWER
        if member.committed < self.first_index - 1:
            member.truncate_from(member.committed + 1)
            member.append((member.log.next_entry(self.term, b""),))
        member.role = role

    patch.setattr(Leading, "__init__", init)


def entries_follow_anything(patch: Patch) -> None:
    """R5: a follower does not look at what comes before."""
    patch.setattr(
        following, "_follows", lambda member, request, first: first <= member.log.end + 1
    )
    patch.setitem(following._HANDLERS, following.PushType.COMPARE, lambda member, request: OK)


OK = ResponseCode.SUCCESS


def any_log_is_good_enough(patch: Patch) -> None:
    """R6: votes are given whatever the candidate has."""
    real = votes.judge

    def judge(voter: Voter, request: VoteRequest, is_self: bool = False) -> Verdict:
        blind = dataclasses.replace(voter, ledger_end_index=-1, ledger_end_term=-1)
        return real(blind, request, is_self)

    patch.setattr(votes, "judge", judge)


def commits_up_to_its_end(patch: Patch) -> None:
    """R7: a follower commits what it has, compared or not (DLedger's handleDoCommit)."""
    end = property(lambda self: self.log.end, lambda self, value: None)
    patch.setattr(Member, "matched", end, raising=False)


def older_entries_are_counted(patch: Patch) -> None:
    """R8: a majority commits an entry of whatever term (DLedger 0.3.1.2)."""
    patch.setattr(Leading, "may_commit", lambda self, index: True)


def truncate_cuts_what_it_says(patch: Patch) -> None:
    """R9: a TRUNCATE is done as it stands, also late and for the second time (DLedger)."""

    def truncate(self: Member, request: PushEntryRequest) -> ResponseCode:
        entry = request.entry
        assert entry is not None
        if not following._follows(self, request, entry.index):
            return ResponseCode.INCONSISTENT_STATE
        if entry.index <= self.log.base.index:
            return OK
        if entry.index <= self.log.end:
            self.log.truncate_from(entry.index)
            self.actions.append(acts.TruncateFrom(entry.index))
        self.append((entry,))
        self.matched = entry.index
        return OK

    patch.setitem(following._HANDLERS, following.PushType.TRUNCATE, truncate)


def pushes_of_anybody(patch: Patch) -> None:
    """R10: neither term nor leader of a push is looked at (DLedger 0.3.3)."""
    patch.setattr(following, "check_leader", lambda member, request: (
        OK if member.role is not core.Role.LEADER else ResponseCode.NOT_FOLLOWER
    ))  # fmt: skip


def entries_are_not_synced(patch: Patch) -> None:
    """DLedger flushes every 10 ms, whoever was answered."""
    real = RaftStorage.append

    def append(self: RaftStorage, entries: Any) -> None:
        mapped, disk = self._mapped, self._files
        assert mapped is not None
        with patch.context() as inside:
            inside.setattr(type(mapped), "sync", lambda *args: None)
            real(self, entries)
        assert disk is not None

    patch.setattr(RaftStorage, "append", append)


def restarts_forget_promises(patch: Patch) -> None:
    """Who starts again votes at once: a leader may still rely on what it promised before."""
    real = Raft.__init__

    def init(self: Raft, *args: Any) -> None:
        real(self, *args)
        self._abstains_until_ms = core.LONG_AGO_MS

    patch.setattr(Raft, "__init__", init)


def promises_are_not_kept(patch: Patch) -> None:
    """Followers of a living leader vote for others, as DLedger's do."""
    real = votes.judge

    def judge(voter: Voter, request: VoteRequest, is_self: bool = False) -> Verdict:
        return real(dataclasses.replace(voter, promised=False, leader_id=None), request, is_self)

    patch.setattr(votes, "judge", judge)


def snapshot_of_a_later_state(patch: Patch) -> None:
    """A snapshot is taken for the entry before it."""
    real = Member.took_snapshot
    patch.setattr(
        Member, "took_snapshot",
        lambda self, index, data: real(self, max(index - 1, self.log.base.index), data),
    )  # fmt: skip


def log_goes_before_its_snapshot(patch: Patch) -> None:
    """The log is cut first, the snapshot saved then."""

    def save_snapshot(self: RaftStorage, snapshot: Any, base: Any, entries: Any) -> None:
        with patch.context() as inside:
            inside.setattr(self, "_replace", lambda name, data: None)
            real(self, snapshot, self._base, tuple(self._entries))
        log = Log(base, entries)
        self._base, self._entries = log.base, list(log.entries())
        self._rewrite()
        real(self, snapshot, base, entries)

    real = RaftStorage.save_snapshot
    patch.setattr(RaftStorage, "save_snapshot", save_snapshot)


def commit_is_told_once(patch: Patch) -> None:
    """A follower that began a new life applies nothing until the next append (found by the suite
    of whole groups)."""
    patch.setattr(replication, "COMMIT_AGAIN_MS", 1 << 60)


BUGS: list[Plant] = [
    half_is_a_majority, raised_term_is_not_kept, votes_are_not_kept, vote_is_said_before_it_is_kept,
    new_leader_cuts_what_is_not_committed, entries_follow_anything, any_log_is_good_enough,
    commits_up_to_its_end, older_entries_are_counted, truncate_cuts_what_it_says,
    pushes_of_anybody, entries_are_not_synced, restarts_forget_promises, promises_are_not_kept,
    snapshot_of_a_later_state, log_goes_before_its_snapshot, commit_is_told_once,
]  # fmt: skip
# What a bug needs that shows in few seeds: these play its troubles, the first as their theme.
ABOUT: dict[Plant, tuple[str, ...]] = {
    restarts_forget_promises: ("one way", "bounce"),
    promises_are_not_kept: ("one way",),
    truncate_cuts_what_it_says: ("doubles", "reorder", "kill"),
    vote_is_said_before_it_is_kept: ("crash", "partition"),
    raised_term_is_not_kept: ("kill", "partition"),
}
