"""Answers to the quorum's clients (DLedgerClient): metadata, append, get.

Owns their form. It must never change the member.

Tests: tests/unit/controller/raft/test_core.py
"""

from turbopump.controller.raft.actions import Failed, Outcome
from turbopump.controller.raft.member_state import MemberState
from turbopump.controller.raft.messages import (
    RESPONSES,
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    MetadataRequest,
    MetadataResponse,
    RaftMessage,
    RaftResponseCode,
)


def make_refusal(member: MemberState, message: RaftMessage, code: RaftResponseCode) -> RaftMessage:
    """Make the answer that refuses `message` with `code`, with this member's leader and term."""
    return RESPONSES[type(message)](
        code=code,
        group=message.group,
        local_id=message.local_id,
        remote_id=message.remote_id,
        leader_id=member.leader_id,
        term=member.term,
    )


def make_metadata(member: MemberState, request: MetadataRequest) -> RaftMessage:
    """Make the answer with the leader and all members' addresses (DLedgerServer.handleMetadata)."""
    return MetadataResponse(
        group=request.group, leader_id=member.leader_id, peers=dict(member.options.peers)
    )


def append_answer(
    member: MemberState, request: AppendEntryRequest, outcome: Outcome
) -> RaftMessage:
    """Make the answer to an append: index and position of the committed entry, or the refusal."""
    if isinstance(outcome, Failed):
        return make_refusal(member, request, outcome.code)
    return AppendEntryResponse(
        group=request.group,
        leader_id=member.leader_id,
        term=outcome.term,
        index=outcome.index,
        pos=outcome.pos,
    )


def get(member: MemberState, request: GetEntriesRequest, leads: bool) -> RaftMessage:
    """Answer with the committed entry at `request.begin_index`.

    Refused with NOT_LEADER unless `leads`, with INDEX_OUT_OF_RANGE for an index that is not
    committed, and with INDEX_LESS_THAN_LOCAL_BEGIN if a snapshot replaced the entry.
    DLedgerServer.handleGet also returns uncommitted entries.
    """
    index = request.begin_index
    if not leads:
        return make_refusal(member, request, RaftResponseCode.NOT_LEADER)
    if index is None or not 0 <= index <= member.committed:
        return make_refusal(member, request, RaftResponseCode.INDEX_OUT_OF_RANGE)
    entry = member.log.get(index)
    if entry is None:
        return make_refusal(member, request, RaftResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN)
    return GetEntriesResponse(
        group=request.group, leader_id=member.leader_id, term=member.term, entries=(entry,)
    )
