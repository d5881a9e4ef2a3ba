"""A follower's part: handles the entries and snapshots of its leader.

Owns the answers to pushes (DLedgerEntryPusher.EntryHandler). It must never act for any member but
the leader of its own term.

DLedger checks neither term nor leader of COMPARE, TRUNCATE and COMMIT, truncates wherever a
TRUNCATE demands, and commits up to its log's end. Here each is checked. Only entries that the
leader lacks are removed, and never committed ones, so that a push that comes late, twice or out of
order has no effect. And no entry is committed that was not compared with the leader's log in this
term.
"""

import logging

from turbopump.controller.raft.log import Base, are_consecutive
from turbopump.controller.raft.member_state import MemberState, RaftRole
from turbopump.controller.raft.messages import (
    InstallSnapshotRequest,
    InstallSnapshotResponse,
    PushEntryRequest,
    PushEntryResponse,
    PushType,
    RaftResponseCode,
)

logger = logging.getLogger(__name__)


def check_leader(
    member: MemberState, request: PushEntryRequest | InstallSnapshotRequest
) -> RaftResponseCode:
    """Return SUCCESS if the request comes from the leader of this member's term, else the code that
    refuses the request."""
    if request.term < member.term:
        return RaftResponseCode.EXPIRED_TERM
    if request.term > member.term:
        return RaftResponseCode.INCONSISTENT_TERM
    if member.role is not RaftRole.FOLLOWER:
        return RaftResponseCode.NOT_FOLLOWER
    if request.leader_id != member.leader_id or member.leader_id is None:
        return RaftResponseCode.INCONSISTENT_LEADER
    return RaftResponseCode.SUCCESS


def on_push(member: MemberState, request: PushEntryRequest, now_ms: int) -> PushEntryResponse:
    """Perform a push of the leader on `member` and return the answer, which must be sent after the
    durable actions that this added to `member.actions`.

    A push that does not come from this term's leader is refused without effect (`check_leader`).
    """
    code = check_leader(member, request)
    if code is RaftResponseCode.SUCCESS:
        member.heard_ms = now_ms
        code = _HANDLERS[request.type](member, request)
        if code is RaftResponseCode.SUCCESS:
            member.commit_up_to(min(request.commit_index, member.matched))
            member.ask_for_snapshot()
    return _push_answer(member, request, code)


def _push_answer(
    member: MemberState, request: PushEntryRequest, code: RaftResponseCode
) -> PushEntryResponse:
    """Make the answer to a push, with the bounds of this log; after INCONSISTENT_STATE also the
    term of the entry here and the first index of that term."""
    entries = request.entries
    index = entries[0].index if entries else request.pre_log_index
    x_term = x_index = None
    if code is RaftResponseCode.INCONSISTENT_STATE and index is not None:
        x_term = member.log.term_at(index)
        x_index = member.log.first_of_term(index) if x_term is not None else None
    return PushEntryResponse(
        code=code,
        group=request.group,
        term=member.term,
        index=index if entries else None,
        begin_index=member.log.begin,
        end_index=member.log.end,
        count=max(1, len(entries)),
        x_term=x_term,
        x_index=x_index,
    )


def _compare_entry(member: MemberState, request: PushEntryRequest) -> RaftResponseCode:
    """Compare the leader's entry before the pushed ones with the log, by index and term; DLedger
    compares whole entries. SUCCESS: the log has it."""
    index, term = request.pre_log_index, request.pre_log_term
    if request.entry is not None:
        index, term = request.entry.index, request.entry.term
    if index is None or term is None or index < -1:
        return RaftResponseCode.UNEXPECTED_ARGUMENT
    log = member.log
    if index >= log.base.index and log.term_at(index) != term:
        return RaftResponseCode.INCONSISTENT_STATE
    # Entries replaced by a snapshot were committed, so the log of every leader has them.
    member.matched = max(member.matched, index)
    return RaftResponseCode.SUCCESS


def _has_entry(member: MemberState, index: int, term: int) -> bool:
    """Whether the log has this entry, or had it before a snapshot."""
    return index < member.log.base.index or member.log.term_at(index) == term


def _truncate_after(member: MemberState, request: PushEntryRequest) -> RaftResponseCode:
    """Take the leader's entry at its index, and remove later entries that the leader lacks."""
    entry, log = request.entry, member.log
    if entry is None or not are_consecutive([entry], entry.index, member.term):
        return RaftResponseCode.UNEXPECTED_ARGUMENT
    before = log.term_at(entry.index - 1)
    if not _may_place_at(member, request, entry.index) or (
        before is not None and before > entry.term
    ):
        return RaftResponseCode.INCONSISTENT_STATE
    cut = entry.index
    if _has_entry(member, entry.index, entry.term):
        cut = entry.index + 1 if _is_foreign(member, request, entry.index + 1) else log.end + 1
    if cut <= log.end and not _remove_from(member, cut):
        return RaftResponseCode.INCONSISTENT_STATE
    if entry.index > log.end:
        member.append((entry,))
    member.matched = max(member.matched, entry.index)
    member.aligned = True
    return RaftResponseCode.SUCCESS


def _is_foreign(member: MemberState, request: PushEntryRequest, index: int) -> bool:
    """Whether the entry at `index` is not the leader's.

    A leader only appends to its own entries, so an entry of its term is its own, sent after this
    request. A leader of DLedger does not send the term at `index`; then a TRUNCATE removes entries
    only once per term, first of all.
    """
    have = member.log.get(index)
    if have is None or have.term == member.term:
        return False
    if request.next_term is None:
        return not member.aligned
    return have.term != request.next_term


def _may_place_at(member: MemberState, request: PushEntryRequest, first: int) -> bool:
    """Whether the push's entries may be placed at index `first`: the log has the entry before."""
    if first > member.log.end + 1:
        return False
    if request.pre_log_index is None or request.pre_log_term is None:
        return True
    return request.pre_log_index == first - 1 and _has_entry(
        member, request.pre_log_index, request.pre_log_term
    )


def _append(member: MemberState, request: PushEntryRequest) -> RaftResponseCode:
    """Append entries, skipping entries that are there already.

    Other entries in their place are removed if the request names the entry before (Raft, section
    5.3).
    """
    entries = request.entries
    if not entries or not are_consecutive(entries, entries[0].index, member.term):
        return RaftResponseCode.UNEXPECTED_ARGUMENT
    if not _may_place_at(member, request, entries[0].index):
        return RaftResponseCode.INCONSISTENT_STATE
    new = tuple(entry for entry in entries if not _has_entry(member, entry.index, entry.term))
    if new:
        first = new[0].index
        before = member.log.term_at(first - 1)
        if before is None or before > new[0].term:
            return RaftResponseCode.INCONSISTENT_STATE
        if first <= member.log.end:
            if request.pre_log_term is None or not _remove_from(member, first):
                return RaftResponseCode.INCONSISTENT_STATE
            new = entries[first - entries[0].index :]
        member.append(new)
    member.matched = max(member.matched, entries[-1].index)
    return RaftResponseCode.SUCCESS


def _remove_from(member: MemberState, index: int) -> bool:
    """Remove the entries from `index` on, which the leader lacks; returns False, without effect, if
    one of them is committed."""
    if index <= member.committed:
        logger.error(
            "%s: refused the leader's truncation at %d, as entries up to %d are committed",
            member.id,
            index,
            member.committed,
        )
        return False
    member.truncate_from(index)
    return True


def _commit_up_to(member: MemberState, request: PushEntryRequest) -> RaftResponseCode:
    """Commit entries up to the leader's commit index, after a comparison: a restarted process has
    forgotten which entries it compared."""
    if request.pre_log_index is None or request.pre_log_term is None:
        return RaftResponseCode.SUCCESS
    return _compare_entry(member, request)


_HANDLERS = {
    PushType.COMPARE: _compare_entry,
    PushType.TRUNCATE: _truncate_after,
    PushType.APPEND: _append,
    PushType.COMMIT: _commit_up_to,
}


def on_install(
    member: MemberState, request: InstallSnapshotRequest, now_ms: int
) -> InstallSnapshotResponse:
    """Install the leader's snapshot in place of entries, and return the answer, which must be sent
    after the durable actions; if all its entries are committed here, only acknowledge it."""
    code = check_leader(member, request)
    if code is RaftResponseCode.SUCCESS:
        member.heard_ms = now_ms
        base = Base(
            request.last_included_index, request.last_included_term, request.last_included_pos or 0
        )
        if base.index < 0 or not 0 <= base.term <= member.term:
            code = RaftResponseCode.UNEXPECTED_ARGUMENT
        else:
            if base.index > member.committed:
                member.install_snapshot(base, request.data)
            member.matched = max(member.matched, base.index)
    return InstallSnapshotResponse(code=code, group=request.group, term=member.term)
