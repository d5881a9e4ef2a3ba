"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): queue locks for ordered consumers.

Owns the bodies (RocketMQ: LockBatchRequestBody, UnlockBatchRequestBody, LockBatchResponseBody). It
must never decide which client holds a queue: tables/locks.py does, and ha/acting/lock_quorum.py
where several brokers of the group have to agree.

Tests: tests/unit/broker/tables/test_locks.py, tests/unit/broker/ha/acting/test_lock_quorum.py
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.acting.lock_quorum import YOUNG
from turbopump.broker.handlers.offsets import NOT_HERE
from turbopump.broker.replication import LockRequest
from turbopump.engine.deferred import Deferred, gather
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import MAX_BODY, Command, new_response
from turbopump.net.wire.names import check_lengths
from turbopump.net.wire.queues import MessageQueue

STRICT_MAX: Final = 4_096
"""Maximum queues of a lock request under lockInStrictMode, which other brokers have to agree to:
its answer is written in one step."""


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    table.add(RequestCode.LOCK_BATCH_MQ, partial(_lock, broker))
    table.add(RequestCode.UNLOCK_BATCH_MQ, partial(_unlock, broker))


def _lock(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Command | Deferred[Command]]:
    """Handle 41: lock queues for a client, in steps; the answer has the queues that the client
    holds now."""
    wanted, only_here = yield from _read_body(request)
    is_strict = broker.config.replication.lock_in_strict_mode and broker.acting is not None
    if not broker.role.may_change_offsets and not (is_strict and only_here):
        return new_response(request, ResponseCode.SERVICE_NOT_AVAILABLE, NOT_HERE)
    if is_strict and len(wanted.queues) > STRICT_MAX:
        remark = f"lockInStrictMode: more than {STRICT_MAX} queues in one request"
        return new_response(request, ResponseCode.INVALID_PARAMETER, remark)
    for some in _split_request(wanted):
        wrong = _wrong_name(some)
        if wrong is not None:
            return new_response(request, ResponseCode.INVALID_PARAMETER, wrong)
        if len(wanted.queues) > bodies.READ:
            yield
    if is_strict and not only_here:
        return (yield from _lock_with_others(broker, request, wanted))
    granted: list[dict[str, Any]] = []
    for some in _split_request(wanted):
        held = broker.locks.lock(some.group, some.client_id, some.queues, broker.steady_ms())
        granted += [queue.to_json() for queue in held]
        if len(wanted.queues) > bodies.READ:
            yield
    members: dict[str, Any] = {"lockOKMQSet": granted}
    if is_strict and broker.acting is not None and broker.acting.quorum.is_young:
        members[YOUNG] = True
    body = yield from bodies.dump_in_steps(members, MAX_BODY)
    assert body is not None, "the answer is no larger than the request"
    return new_response(request, ResponseCode.SUCCESS, body=body)


def _lock_with_others(
    broker: BrokerContext, request: Command, wanted: LockRequest
) -> Steps[Deferred[Command]]:
    """Handle 41 in strict mode: lock only queues that a majority of the group's brokers grants;
    this broker stores a lock after they have agreed."""
    assert broker.acting is not None, "strict mode needs acting replicas"
    locks, quorum, parts = broker.locks, broker.acting.quorum, []

    def lock_here(some: LockRequest, given: list[MessageQueue]) -> list[MessageQueue]:
        if not broker.role.may_change_offsets:
            return []
        return locks.lock(some.group, some.client_id, given, broker.steady_ms())

    for some in _split_request(wanted):
        free = locks.would_lock(some.group, some.client_id, some.queues, broker.steady_ms())
        asked = quorum.request_votes(replace(some, queues=free))
        parts.append(asked.map(partial(lock_here, some)))
        if len(wanted.queues) > bodies.READ:
            yield

    def answer(given: list[list[MessageQueue]]) -> Command:
        queues = [queue.to_json() for part in given for queue in part]
        body = bodies.encode_json({"lockOKMQSet": queues})
        return new_response(request, ResponseCode.SUCCESS, body=body)

    return gather(parts).map(answer)


def _unlock(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Steps[Command]:
    """Handle 42: release a client's locks, in strict mode at the other brokers, too."""
    wanted, only_here = yield from _read_body(request)
    is_strict = broker.config.replication.lock_in_strict_mode
    for some in _split_request(wanted):
        broker.locks.unlock(some.group, some.client_id, some.queues)
        if is_strict and not only_here and broker.acting is not None:
            broker.acting.quorum.release_locks(some)
        if len(wanted.queues) > bodies.READ:
            yield
    return new_response(request, ResponseCode.SUCCESS)


def _split_request(wanted: LockRequest) -> Iterator[LockRequest]:
    """Yield the request in parts of `bodies.READ` queues."""
    for at in range(0, len(wanted.queues), bodies.READ):
        yield replace(wanted, queues=wanted.queues[at : at + bodies.READ])


def _read_body(request: Command) -> Steps[tuple[LockRequest, bool]]:
    """Return (the request, whether only this broker is meant). Raises BadBody."""
    members = yield from bodies.object_in_steps(request.body)
    queues = yield from bodies.items_in_steps(members, "mqSet", MessageQueue.from_json)
    group, client_id = (
        bodies.read_text(members, "consumerGroup"),
        bodies.read_text(members, "clientId"),
    )
    wanted = LockRequest(group, client_id, list(dict.fromkeys(queues)))
    return wanted, bodies.read_flag(members, "onlyThisBroker")


def _wrong_name(wanted: LockRequest) -> str | None:
    """Return the error text for a name that is too long, else None. RocketMQ accepts any length,
    but a lock would keep the name in memory."""
    wrong = check_lengths(consumerGroup=wanted.group, clientId=wanted.client_id)
    for queue in wanted.queues:
        wrong = wrong or check_lengths(topic=queue.topic, brokerName=queue.broker_name)
    return wrong
