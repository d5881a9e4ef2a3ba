"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): queues for ordered consumers.

Owns the two bodies (RocketMQ: LockBatchRequestBody, UnlockBatchRequestBody, LockBatchResponseBody).
It must never decide who holds a queue: that is locks.py. Called by the dispatcher.
"""

from functools import partial

from turbopump.broker.context import BrokerContext
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, response
from turbopump.net.wire.queues import MessageQueue


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this family."""
    table.add(RequestCode.LOCK_BATCH_MQ, partial(_lock, broker))
    table.add(RequestCode.UNLOCK_BATCH_MQ, partial(_unlock, broker))


def _lock(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    group, client_id, queues = _read_body(request)
    granted = broker.locks.lock(group, client_id, queues, broker.steady_ms())
    body = bodies.dump({"lockOKMQSet": [queue.to_json() for queue in granted]})
    return response(request, ResponseCode.SUCCESS, body=body)


def _unlock(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    group, client_id, queues = _read_body(request)
    broker.locks.unlock(group, client_id, queues)
    return response(request, ResponseCode.SUCCESS)


def _read_body(request: Command) -> tuple[str, str, list[MessageQueue]]:
    members = bodies.load_object(request.body)
    queues = bodies.items(members, "mqSet", MessageQueue.from_json)
    return bodies.text(members, "consumerGroup"), bodies.text(members, "clientId"), queues
