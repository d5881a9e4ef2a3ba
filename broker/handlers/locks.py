"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): queues for ordered consumers.

Owns the two bodies (RocketMQ: LockBatchRequestBody, UnlockBatchRequestBody, LockBatchResponseBody).
It must never decide who holds a queue: that is locks.py. Called by the dispatcher.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.offsets import NOT_HERE
from turbopump.broker.handlers.shapes import MAX_BODY
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.turns import Steps
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, response
from turbopump.net.wire.names import check_lengths
from turbopump.net.wire.queues import MessageQueue


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this family."""
    table.add(RequestCode.LOCK_BATCH_MQ, partial(_lock, broker))
    table.add(RequestCode.UNLOCK_BATCH_MQ, partial(_unlock, broker))


def _lock(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Steps[Command]:
    group, client_id, queues = yield from _read_body(request)
    if not broker.role.keeps_progress:
        return response(request, ResponseCode.SERVICE_NOT_AVAILABLE, NOT_HERE)
    for some in _parts(queues):
        wrong = _wrong_name(group, client_id, some)
        if wrong is not None:
            return response(request, ResponseCode.INVALID_PARAMETER, wrong)
        if len(queues) > bodies.READ:
            yield
    granted: list[dict[str, Any]] = []
    for some in _parts(queues):
        held = broker.locks.lock(group, client_id, some, broker.steady_ms())
        granted += [queue.to_json() for queue in held]
        if len(queues) > bodies.READ:
            yield
    body = yield from bodies.dump_in_steps({"lockOKMQSet": granted}, MAX_BODY)
    assert body is not None, "no more than what was asked for"
    return response(request, ResponseCode.SUCCESS, body=body)


def _unlock(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Steps[Command]:
    group, client_id, queues = yield from _read_body(request)
    for some in _parts(queues):
        broker.locks.unlock(group, client_id, some)
        if len(queues) > bodies.READ:
            yield
    return response(request, ResponseCode.SUCCESS)


def _parts(queues: list[MessageQueue]) -> Iterator[list[MessageQueue]]:
    return (queues[at : at + bodies.READ] for at in range(0, len(queues), bodies.READ))


def _read_body(request: Command) -> Steps[tuple[str, str, list[MessageQueue]]]:
    members = yield from bodies.object_in_steps(request.body)
    queues = yield from bodies.items_in_steps(members, "mqSet", MessageQueue.from_json)
    distinct = list(dict.fromkeys(queues))
    return bodies.text(members, "consumerGroup"), bodies.text(members, "clientId"), distinct


def _wrong_name(group: str, client_id: str, queues: list[MessageQueue]) -> str | None:
    """RocketMQ takes any; a lock would keep them."""
    wrong = check_lengths(consumerGroup=group, clientId=client_id)
    for queue in queues:
        wrong = wrong or check_lengths(topic=queue.topic, brokerName=queue.broker_name)
    return wrong
