"""Headers of transactions: their end, the question about it, a check that is taken up again.

Owns the fields of RocketMQ's EndTransactionRequestHeader, CheckTransactionStateRequestHeader and
ResumeCheckHalfMessageRequestHeader. It must never check their meaning. Called by the broker's
handlers and by producers.
"""

from dataclasses import dataclass, field

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class EndTransactionRequest:
    """EndTransactionRequestHeader: of 37, from a producer.

    `tran_state_table_offset` is the queue offset of the half message, `commit_log_offset` its log
    offset, `commit_or_rollback` 8, 12 or, for what is not known yet, 0.
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
    """CheckTransactionStateRequestHeader: of 39, to a producer; the body is the record."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class ResumeCheckHalfMessageRequest:
    """ResumeCheckHalfMessageRequestHeader: of 323; `msg_id` is the broker's id."""

    msg_id: str | None = None
    topic: str | None = None
