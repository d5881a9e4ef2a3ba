"""Bugs that a quorum can have, to be planted one at a time: the suite must find each.

Raft-1 to Raft-10 are the rules that they break; several are DLedger's behaviour.
"""

import dataclasses
from typing import Any

from tests.sim.planting import Patch, Plant
from turbopump.controller.raft import actions as acts
from turbopump.controller.raft import core, disk_order, follower, leader, votes
from turbopump.controller.raft.candidate import Candidate
from turbopump.controller.raft.core import Raft
from turbopump.controller.raft.leader import LeaderTerm
from turbopump.controller.raft.log import Log
from turbopump.controller.raft.member_state import MemberState
from turbopump.controller.raft.messages import (
    PushEntryRequest,
    RaftResponseCode,
    VoteRequest,
    VoteResponse,
)
from turbopump.controller.raft.options import RaftOptions
from turbopump.controller.raft.storage import RaftStorage
from turbopump.controller.raft.votes import Voter, VoteVerdict


def half_is_a_majority(patch: Patch) -> None:
    """Raft-1: two of four, one of three elect."""
    real = RaftOptions.__post_init__

    def post_init(self: RaftOptions) -> None:
        real(self)
        object.__setattr__(self, "majority", max(1, len(self.peers) // 2))

    patch.setattr(RaftOptions, "__post_init__", post_init)


def raised_term_is_not_kept(patch: Patch) -> None:
    """Raft-2: a term is written down with the next vote in it only."""
    real = RaftStorage.save_term

    def save_term(self: RaftStorage, term: int, vote: str | None) -> None:
        if vote is not None or term == 0:
            real(self, term, vote)

    patch.setattr(RaftStorage, "save_term", save_term)


def votes_are_not_kept(patch: Patch) -> None:
    """Raft-3: the file has the term only."""
    real = RaftStorage.save_term
    patch.setattr(RaftStorage, "save_term", lambda self, term, vote: real(self, term, None))


def without_sync(patch: Patch, storage: RaftStorage, work: Any) -> None:
    """Do it with mappings that are not synced."""
    mapped = storage._mapped
    assert mapped is not None
    with patch.context() as inside:
        inside.setattr(type(mapped), "sync", lambda *args: None)
        work()


def vote_is_said_before_it_is_kept(patch: Patch) -> None:
    """Raft-3: term and vote are written and not synced (DLedger's MemberState.persist)."""
    real = RaftStorage.save_term
    patch.setattr(
        RaftStorage,
        "save_term",
        lambda self, term, vote: without_sync(patch, self, lambda: real(self, term, vote)),
    )


def new_leader_cuts_what_is_not_committed(patch: Patch) -> None:
    """Raft-4: a new leader truncates its log to the last entry that it knows as committed."""
    real = LeaderTerm.__init__

    def init(self: LeaderTerm, member: MemberState, now_ms: int) -> None:
        real(self, member, now_ms)
        role, member.role = member.role, core.RaftRole.FOLLOWER
        if member.committed < self.first_index - 1:
            member.truncate_from(member.committed + 1)
            member.append((member.log.next_entry(self.term, b""),))
        member.role = role

    patch.setattr(LeaderTerm, "__init__", init)


def entries_follow_anything(patch: Patch) -> None:
    """Raft-5: a follower does not compare the entry before new ones."""
    patch.setattr(
        follower, "_may_place_at", lambda member, request, first: first <= member.log.end + 1
    )
    patch.setitem(follower._HANDLERS, follower.PushType.COMPARE, lambda member, request: OK)


OK = RaftResponseCode.SUCCESS


def any_log_is_good_enough(patch: Patch) -> None:
    """Raft-6: votes are given whatever the candidate has."""
    real = votes.decide_vote

    def judge(voter: Voter, request: VoteRequest) -> VoteVerdict:
        return real(blind(voter), request)

    patch.setattr(votes, "decide_vote", judge)
    foresee = votes.decide_pre_vote
    patch.setattr(votes, "decide_pre_vote", lambda voter, request: foresee(blind(voter), request))


def blind(voter: Voter) -> Voter:
    """The voter with an empty log."""
    return dataclasses.replace(voter, ledger_end_index=-1, ledger_end_term=-1)


def commits_up_to_its_end(patch: Patch) -> None:
    """Raft-7: a follower commits all its entries, compared or not (DLedger's handleDoCommit)."""
    end = property(lambda self: self.log.end, lambda self, value: None)
    patch.setattr(MemberState, "matched", end, raising=False)


def older_entries_are_counted(patch: Patch) -> None:
    """Raft-8: a majority commits an entry of whatever term (DLedger 0.3.1.2)."""
    patch.setattr(LeaderTerm, "may_commit", lambda self, index: True)


def truncate_cuts_what_it_says(patch: Patch) -> None:
    """Raft-9: a TRUNCATE is done as it stands, also late and for the second time (DLedger)."""

    def truncate(self: MemberState, request: PushEntryRequest) -> RaftResponseCode:
        entry = request.entry
        assert entry is not None
        if not follower._may_place_at(self, request, entry.index):
            return RaftResponseCode.INCONSISTENT_STATE
        if entry.index <= self.log.base.index:
            return OK
        if entry.index <= self.log.end:
            self.log.truncate_from(entry.index)
            self.actions.append(acts.TruncateFrom(entry.index))
        self.append((entry,))
        self.matched = entry.index
        return OK

    patch.setitem(follower._HANDLERS, follower.PushType.TRUNCATE, truncate)


def pushes_of_anybody(patch: Patch) -> None:
    """Raft-10: neither term nor leader of a push is looked at (DLedger 0.3.3)."""
    patch.setattr(
        follower,
        "check_leader",
        lambda member, request: (
            OK if member.role is not core.RaftRole.LEADER else RaftResponseCode.NOT_FOLLOWER
        ),
    )


def entries_are_not_synced(patch: Patch) -> None:
    """DLedger flushes every 10 ms, answered or not."""
    real = RaftStorage.append
    patch.setattr(
        RaftStorage,
        "append",
        lambda self, entries: without_sync(patch, self, lambda: real(self, entries)),
    )


def restarts_forget_promises(patch: Patch) -> None:
    """A restarted member votes at once, while a leader may still rely on its earlier promise."""
    real = Raft.__init__

    def init(self: Raft, *args: Any) -> None:
        real(self, *args)
        self.campaign.abstains_until_ms = core.LONG_AGO_MS

    patch.setattr(Raft, "__init__", init)


def promises_are_not_kept(patch: Patch) -> None:
    """Followers of a living leader vote for others, as DLedger's do."""
    real = votes.decide_vote

    def free(voter: Voter) -> Voter:
        return dataclasses.replace(voter, promised=False, leader_id=None)

    patch.setattr(votes, "decide_vote", lambda voter, request: real(free(voter), request))
    foresee = votes.decide_pre_vote
    patch.setattr(votes, "decide_pre_vote", lambda voter, request: foresee(free(voter), request))


def snapshot_of_a_later_state(patch: Patch) -> None:
    """A snapshot is taken for the entry before it."""
    real = MemberState.took_snapshot
    patch.setattr(
        MemberState,
        "took_snapshot",
        lambda self, index, data: real(self, max(index - 1, self.log.base.index), data),
    )


def log_goes_before_its_snapshot(patch: Patch) -> None:
    """The log is cut first, the snapshot saved then."""

    def save_snapshot(self: RaftStorage, snapshot: Any, base: Any, entries: Any) -> None:
        with patch.context() as inside:
            inside.setattr(self, "_replace_file", lambda name, data: None)
            real(self, snapshot, self._base, tuple(self._entries))
        log = Log(base, entries)
        self._base, self._entries = log.base, list(log.entries())
        self._rewrite_entries()
        real(self, snapshot, base, entries)

    real = RaftStorage.save_snapshot
    patch.setattr(RaftStorage, "save_snapshot", save_snapshot)


def commit_is_told_once(patch: Patch) -> None:
    """A follower that began a new life applies nothing until the next append (found by the suite
    of whole groups)."""
    real = LeaderTerm._next_request

    def request(self: LeaderTerm, progress: leader.FollowerProgress, now_ms: int) -> Any:
        """Request to a follower, as if the committed entries were only just reported."""
        has_all = progress.next > self.member.log.end
        if progress.state is leader.FollowerState.APPEND and has_all:
            progress.sent_ms = now_ms
        return real(self, progress, now_ms)

    patch.setattr(LeaderTerm, "_next_request", request)


def heartbeats_wait_for_the_disk(patch: Patch) -> None:
    """Heartbeats wait for the entries before them: a slow disk costs the lead."""
    patch.setattr(disk_order, "waits_for_terms_only", lambda action: False)


def votes_do_not_wait_for_the_disk(patch: Patch) -> None:
    """Raft-3: a vote is sent while it is being written."""
    patch.setattr(
        disk_order,
        "waits_for_no_write",
        lambda action: isinstance(
            action.message if isinstance(action, acts.Call | acts.Response) else None,
            VoteRequest | VoteResponse,
        ),
    )


def nobody_is_asked_before(patch: Patch) -> None:
    """There is no pre-vote: a candidate raises its term and votes for itself at its timeout,
    however long its disk takes, and no candidate waits for another.
    """
    patch.setattr(Candidate, "on_vote_granted", lambda self, candidate, now_ms: None)
    patch.setattr(
        Candidate,
        "random_pause_ms",
        lambda self: self._random_between(
            self.member.options.min_vote_interval_ms, self.member.options.max_vote_interval_ms
        ),
    )

    def on_tick(self: Candidate, now_ms: int) -> bool:
        found, term = self.round, self.member.term + 1
        if found is not None:
            return now_ms >= found.started_ms + found.wait_ms and self._end_round(found, now_ms)
        if now_ms < max(self.next_ms, self.abstains_until_ms):
            return False
        self.next_ms = now_ms + self.random_pause_ms()
        return self.run(term, now_ms)

    patch.setattr(Candidate, "on_tick", on_tick)


def pushes_do_not_wait_for_slow_disks(patch: Patch) -> None:
    """A push is repeated, and its response ignored, before a slow disk can finish."""
    patch.setattr(MemberState, "patience_ms", 0)


def a_leader_whose_disk_hangs_leads_on(patch: Patch) -> None:
    """A leader whose disk hangs keeps its lead, because heartbeats need no disk."""
    patch.setattr(Raft, "on_sync_waits", lambda self, for_ms, now_ms: None)


BUGS: list[Plant] = [
    half_is_a_majority, raised_term_is_not_kept, votes_are_not_kept,
    vote_is_said_before_it_is_kept, new_leader_cuts_what_is_not_committed, entries_follow_anything,
    any_log_is_good_enough, commits_up_to_its_end, older_entries_are_counted,
    truncate_cuts_what_it_says, pushes_of_anybody, entries_are_not_synced,
    restarts_forget_promises, promises_are_not_kept, snapshot_of_a_later_state,
    log_goes_before_its_snapshot, commit_is_told_once, heartbeats_wait_for_the_disk,
    votes_do_not_wait_for_the_disk, nobody_is_asked_before, a_leader_whose_disk_hangs_leads_on,
]  # fmt: skip
# Kinds of trouble to play, the first as the theme of the seed, for bugs that show in few seeds.
ABOUT: dict[Plant, tuple[str, ...]] = {
    restarts_forget_promises: ("one way", "bounce"),
    promises_are_not_kept: ("one way",),
    truncate_cuts_what_it_says: ("doubles", "reorder", "kill"),
    vote_is_said_before_it_is_kept: ("crash", "partition"),
    raised_term_is_not_kept: ("kill", "partition"),
    heartbeats_wait_for_the_disk: ("slow sync",),
    votes_do_not_wait_for_the_disk: ("crash", "slow disk"),
    nobody_is_asked_before: ("slow sync",),
    a_leader_whose_disk_hangs_leads_on: ("slow sync",),
}
