"""END_TRANSACTION (37) of producers and RESUME_CHECK_HALF_MESSAGE (323) of operators.

Owns the order of checks and the answers of RocketMQ's EndTransactionProcessor. It must never decide
the outcome of a transaction: `Transactions` does.

A transaction ends once. RocketMQ stores its message again for each repeated commit; here a repeated
request gets the first answer, and a contradicting one is refused (F31). A request is accepted only
if the queue of half messages has its record at the requested log offset: the bytes there may be
anything, such as the body of another message.

Tests: tests/unit/broker/scheduled/test_transactions.py
"""

from dataclasses import replace
from functools import partial

from turbopump.broker.context import BrokerContext
from turbopump.broker.scheduled.half_messages import (
    committed_flag,
    committed_properties,
    immunity_ms,
    renewed_half,
    target_of,
    unique_key,
)
from turbopump.broker.scheduled.transaction_outcomes import TransactionOutcome
from turbopump.broker.scheduled.transactions import Half
from turbopump.broker.traffic.put_message import Draft, Refusal
from turbopump.broker.traffic.replies import failure_reply
from turbopump.broker.traffic.role import Permit, Put
from turbopump.broker.traffic.timer_requests import TimerRefusal
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import Appended, LogOffset, PutStatus, QueueOffset
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.transactions import (
    EndTransactionRequest,
    ResumeCheckHalfMessageRequest,
)
from turbopump.net.wire.message import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from turbopump.net.wire.message_id import decode_message_id, encode_message_id
from turbopump.net.wire.names import GIVEN_UP_TOPIC, HALF_TOPIC
from turbopump.net.wire.properties import decode_properties

_NOT_FOUND = "Find prepared transaction message failed"
_STORED = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
}
"""Response codes by store status. RocketMQ answers 0 to all of them, but a message that is not safe
is no success."""

_Problem = tuple[ResponseCode, str]


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    table.add(RequestCode.END_TRANSACTION, partial(_end_transaction, broker))
    table.add(RequestCode.RESUME_CHECK_HALF_MESSAGE, partial(_resume_check, broker))


def _end_transaction(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Response:
    """Handle 37: end a transaction, here or at the master that has its half message; unanswered
    (None) if the producer does not know the outcome yet."""
    header = read_header(EndTransactionRequest, request.fields)
    if broker.transaction_checks.escape.is_enabled:
        return _end_elsewhere(broker, request, header)
    if not broker.role.is_master:
        remark = "a replica does not end transactions: ask its master"
        return new_response(request, ResponseCode.SLAVE_NOT_AVAILABLE, remark)
    if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
        return None  # the producer does not know yet; RocketMQ does not answer, either
    return _end_when_readable(broker, request, header, now_ms)


def _end_elsewhere(
    broker: BrokerContext, request: Command, header: EndTransactionRequest
) -> Response:
    """End a transaction at a replica that acts as master: forward the request to the master that
    then has the half message."""
    if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
        return None
    half = _requested_half(broker, header)
    if not isinstance(half, Half):
        return new_response(request, *half)

    def reply(response: Command | str) -> Command:
        if isinstance(response, str):
            code = ResponseCode.SYSTEM_BUSY if response else ResponseCode.SUCCESS
            return new_response(request, code, response or None)
        return new_response(request, response.code, response.remark)

    return broker.transaction_checks.escape.forward_end(half, header.commit_or_rollback).map(reply)


def _end_when_readable(
    broker: BrokerContext, request: Command, header: EndTransactionRequest, now_ms: int
) -> Command | Deferred[Command | None]:
    """End a transaction now, or once its half message can be read; an error if too many requests
    wait."""
    permit = broker.role.admit_append()
    if isinstance(permit, PutStatus):
        return new_response(request, *failure_reply(permit))
    awaited = broker.transactions.offset_to_await(LogOffset(header.commit_log_offset))
    if awaited is None:
        response = _end_now(broker, request, header, permit, now_ms)
        if response is not None:
            return response
        awaited = LogOffset(broker.store.max_log_offset - 1)
    later: Deferred[Command | None] = Deferred()

    def end_if_readable() -> None:
        # This broker may have lost its role; `now_ms` has hardly aged.
        response = _end_when_readable(broker, request, header, now_ms)
        if isinstance(response, Deferred):
            response.then(later.resolve)
        else:
            later.resolve(response)

    if not broker.transactions.when_readable(awaited, end_if_readable):
        return new_response(
            request, ResponseCode.SYSTEM_BUSY, "too many requests to end transactions are pending"
        )
    return later


def _end_now(
    broker: BrokerContext,
    request: Command,
    header: EndTransactionRequest,
    permit: Permit,
    now_ms: int,
) -> Command | Deferred[Command | None] | None:
    """End a transaction; None if the transaction's newest half message has to become readable
    first."""
    transactions = broker.transactions
    half = _requested_half(broker, header)
    if not isinstance(half, Half):
        return new_response(request, *half)
    problem = _refusal_if_late(broker, header, half, now_ms)
    if problem is not None:
        return new_response(request, *problem)
    found = transactions.find_outcome(half)
    if found is None:
        return None
    outcome, newest = found
    commits = header.commit_or_rollback == TRANSACTION_COMMIT
    if outcome is TransactionOutcome.GIVEN_UP and not commits:
        # A rollback would leave no trace, and a commit may follow: the message that was given up is
        # kept for it.
        return new_response(request, ResponseCode.SYSTEM_ERROR, "The transaction was given up")
    if outcome not in (TransactionOutcome.OPEN, TransactionOutcome.GIVEN_UP):
        # A transaction that ended without a message was not committed.
        if commits == (outcome is TransactionOutcome.COMMITTED):
            # Be as safe as the first answer, which may still be pending.
            transactions.write_ops(now_ms)
            end = broker.store.max_log_offset
            return _answer_when_safe(
                broker, request, Put(Appended(PutStatus.PUT_OK, end=end), permit)
            )
        remark = "The transaction was committed" if not commits else "The transaction has ended"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    if transactions.is_full:
        remark = "too many ends of transactions wait to be written"
        return new_response(request, ResponseCode.SYSTEM_BUSY, remark)
    if commits:
        return _commit_half(broker, request, newest, now_ms)
    transactions.end_all(newest, TransactionOutcome.ROLLED_BACK, LogOffset(0))
    _count_end(broker, newest, now_ms, is_committed=False)
    if request.is_oneway:
        return new_response(request, ResponseCode.SUCCESS)
    written = transactions.write_ops(now_ms)
    return _answer_when_safe(
        broker, request, written or Put(Appended(PutStatus.SERVICE_NOT_AVAILABLE))
    )


def _requested_half(broker: BrokerContext, header: EndTransactionRequest) -> Half | _Problem:
    """Return the half message that the request names, or (code, remark) of the refusal."""
    at = LogOffset(header.commit_log_offset)
    record = broker.store.record(at) if at >= 0 else None
    if record is None or record.topic != HALF_TOPIC.encode():
        return ResponseCode.SYSTEM_ERROR, _NOT_FOUND
    properties = decode_properties(record.properties)
    if properties.get(names.PGROUP) != header.producer_group:
        return ResponseCode.SYSTEM_ERROR, "The producer group wrong"
    if record.queue_offset != header.tran_state_table_offset:
        return ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
    half = broker.transactions.half_at(QueueOffset(record.queue_offset))
    if half is None or half.log_offset != at or target_of(half.properties) is None:
        return ResponseCode.SYSTEM_ERROR, "The commit log offset wrong"
    if not _matches_ids(header, half):
        return ResponseCode.SYSTEM_ERROR, "The transaction id wrong"
    return half


def _matches_ids(header: EndTransactionRequest, half: Half) -> bool:
    """Whether the ids in the request belong to this half message's transaction. After a loss of the
    log's end, another half message may lie at the requested offset; RocketMQ commits that
    message."""
    key, named = unique_key(half.properties), {header.msg_id, header.transaction_id} - {None, ""}
    # used by clients before 4.0
    own_id = encode_message_id(half.record.store_host, half.log_offset)
    return not key or not named or bool(named & {key, own_id})


def _refusal_if_late(
    broker: BrokerContext, header: EndTransactionRequest, half: Half, now_ms: int
) -> _Problem | None:
    """Return (code, remark) to refuse the end of a message whose CHECK_IMMUNITY_TIME_IN_SECONDS has
    passed, unless the request answers a check: the message will be checked now
    (EndTransactionProcessor.rejectCommitOrRollback). None: the end is allowed."""
    limit_ms = immunity_ms(half.properties)
    if limit_ms is None or header.from_transaction_check:
        return None
    age_ms = now_ms - half.record.born_timestamp_ms
    if age_ms <= max(limit_ms, broker.config.transaction_time_out_ms):
        return None
    remark = "The transaction is older than its CHECK_IMMUNITY_TIME_IN_SECONDS: it will be checked"
    return ResponseCode.ILLEGAL_OPERATION, remark


def _commit_half(
    broker: BrokerContext, request: Command, half: Half, now_ms: int
) -> Command | Deferred[Command | None]:
    """Store the committed message of a half message, record the outcome, and answer once the
    message is safe."""
    where, record = target_of(half.properties), half.record
    assert where is not None, "the caller has checked the target"
    draft = Draft(
        topic=where[0],
        queue_id=broker.store.queue_of(*where),
        body=record.body,
        properties=committed_properties(half.properties),
        flag=record.flag,
        sys_flag=committed_flag(record.sys_flag),
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        reconsume_times=record.reconsume_times,
        store_host=record.store_host,
        prepared_transaction_offset=half.log_offset,
        is_copy=True,
    )
    outcome = broker.writer.put(draft, now_ms, must_wait=True)
    if isinstance(outcome, Refusal | TimerRefusal):
        return new_response(request, ResponseCode.SYSTEM_ERROR, outcome.value)
    appended = outcome.appended
    if appended.status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
        remark = "The message is illegal, maybe msg body or properties length not matched."
        return new_response(request, ResponseCode.MESSAGE_ILLEGAL, remark)
    if appended.status is not PutStatus.PUT_OK:
        return new_response(request, *failure_reply(appended.status, appended.reason))
    broker.transactions.end_all(half, TransactionOutcome.COMMITTED, appended.end)
    broker.transactions.on_delivered(where[0])
    _count_end(broker, half, now_ms, is_committed=True)
    return _answer_when_safe(broker, request, outcome)


def _answer_when_safe(
    broker: BrokerContext, request: Command, written: Put
) -> Command | Deferred[Command | None]:
    """Answer a put or an op message once it is safe, or with its failure."""

    def reply(status: PutStatus) -> Command | None:
        if status in _STORED:
            return new_response(request, _STORED[status])
        return new_response(request, *failure_reply(status))

    if written.appended.status is not PutStatus.PUT_OK:
        return reply(written.appended.status) or new_response(request, ResponseCode.SYSTEM_ERROR)
    if request.is_oneway:
        return new_response(request, ResponseCode.SUCCESS)  # one-way: the answer is not sent
    return broker.role.when_safe(*written).map(reply)


def _count_end(broker: BrokerContext, half: Half, now_ms: int, *, is_committed: bool) -> None:
    """Count the end of a half message in the topic's counts."""
    where = target_of(half.properties)
    if where is not None:
        age_ms = max(now_ms - half.record.born_timestamp_ms, 0)
        broker.half_counts.count_ended(where[0], is_committed, age_ms, now_ms)


def _resume_check(broker: BrokerContext, request: Command, _peer: Peer, now_ms: int) -> Response:
    """Handle 323: check a given-up message again, with its count of checks reset
    (AdminBrokerProcessor.resumeCheckHalfMessage)."""
    header = read_header(ResumeCheckHalfMessageRequest, request.fields)
    permit = broker.role.admit_append()
    if isinstance(permit, PutStatus):
        return new_response(request, *failure_reply(permit))
    if not broker.transactions.is_ready:
        return new_response(request, *failure_reply(PutStatus.SERVICE_NOT_AVAILABLE))
    try:
        _host, at = decode_message_id(header.msg_id or "")
    except ValueError as error:
        return new_response(request, ResponseCode.SYSTEM_ERROR, f"msgId is malformed: {error}")
    record = broker.store.record(at) if at >= 0 else None
    half = None
    if record is not None and record.topic == GIVEN_UP_TOPIC.encode():
        half = broker.transactions.half_at(QueueOffset(record.queue_offset), GIVEN_UP_TOPIC)
    if half is None or half.log_offset != at or target_of(half.properties) is None:
        remark = f"no half message that was given up at log offset {at}"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    half = replace(half, queue_offset=QueueOffset(-1))  # its offset belongs to another queue
    found = broker.transactions.find_outcome(half)
    is_over = found is not None and found[0] not in (
        TransactionOutcome.OPEN,
        TransactionOutcome.GIVEN_UP,
    )
    if found is None or found[0] is not TransactionOutcome.GIVEN_UP:
        remark = "the transaction has ended" if is_over else "the transaction is being checked"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    properties = dict(half.properties)
    properties[names.TRANSACTION_CHECK_TIMES] = "0"
    appended = broker.store.append(renewed_half(half.record, properties), now_ms)
    if appended.status is not PutStatus.PUT_OK:
        return new_response(request, *failure_reply(appended.status, appended.reason))
    return _answer_when_safe(broker, request, Put(appended, permit))
