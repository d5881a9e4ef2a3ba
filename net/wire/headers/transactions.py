"""Headers of transactions: their end, the check by the broker, and a check that is resumed.

Owns the fields of RocketMQ's EndTransactionRequestHeader, CheckTransactionStateRequestHeader and
ResumeCheckHalfMessageRequestHeader. It must never check their meaning.

Tests: tests/wire/test_golden_headers.py
"""

from dataclasses import dataclass, field

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class EndTransactionRequest:
    """Request 37 from a producer: the end of a transaction (EndTransactionRequestHeader).

    `tran_state_table_offset` is the queue offset of the half message, `commit_log_offset` its log
    offset, `commit_or_rollback` is 8, 12, or 0 for an unknown outcome.
    """

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    from_transaction_check: bool | None = None
    transaction_id: str | None = None
    topic: str | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class CheckTransactionStateRequest:
    """Request 39 to a producer: check a transaction (CheckTransactionStateRequestHeader); the body
    is the half message's record; the offsets mean the same as in EndTransactionRequest, which
    repeats them. `msg_id` is the client's id, `offset_msg_id` the broker's."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class ResumeCheckHalfMessageRequest:
    """Request 323: resume a check (ResumeCheckHalfMessageRequestHeader); `msg_id` is the broker's
    id."""

    msg_id: str | None = None
    topic: str | None = None
