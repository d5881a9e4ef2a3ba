"""NOTIFICATION, POLLING_INFO, PEEK_MESSAGE: queries for messages that can be popped, without
popping.

Owns the answers of RocketMQ's NotificationProcessor, PollingInfoProcessor and PeekMessageProcessor.
It must never move an offset.

Tests: tests/unit/broker/handlers/pop/test_pops.py, tests/unit/broker/pop/test_long_reads.py
"""

from functools import partial

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.pop.checks import (
    PopRefused,
    check_group,
    check_poll,
    check_pops,
    check_readable,
    topic_for_pop,
)
from turbopump.broker.handlers.pop.pops import EARLY_MS, POLL_MAX_MS
from turbopump.broker.pop.waiters import Arrived, PopWaiter, WaiterAdded
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import ReadStatus
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pop import (
    NotificationRequest,
    NotificationResponse,
    PeekMessageRequest,
    PollingInfoRequest,
    PollingInfoResponse,
    PopMessageResponse,
)
from turbopump.net.wire.names import kept_size
from turbopump.net.wire.pop_records import MESSAGES_MAX

_QUEUES_PER_STEP = 128


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of NOTIFICATION, POLLING_INFO and PEEK_MESSAGE to the table, which must not
    have them yet."""

    def handle_notification(request: Command, peer: Peer, now_ms: int) -> Steps[Response]:
        header = read_header(NotificationRequest, request.fields)
        try:
            until_ms = check_poll(header.born_time, header.poll_time, now_ms)
            check_pops(broker)
            check_readable(broker)
            topic_for_pop(broker, header.topic, header.queue_id, peer)
            check_group(broker, header.consumer_group, now_ms)
        except PopRefused as refused:
            return new_response(request, refused.code, refused.remark)
        has_any = yield from _has_any(broker, header, now_ms)
        return _answer_or_hold(broker, request, header, peer, has_any, until_ms - now_ms)

    def polling_info(request: Command, peer: Peer, _now_ms: int) -> Response:
        header = read_header(PollingInfoRequest, request.fields)
        try:
            check_readable(broker)
            topic_for_pop(broker, header.topic, header.queue_id, peer)
        except PopRefused as refused:
            return new_response(request, refused.code, refused.remark)
        count = broker.pop.waiters.number_of(header.topic, header.consumer_group, header.queue_id)
        return new_response(request, ResponseCode.SUCCESS, header=PollingInfoResponse(count))

    def handle_peek(request: Command, peer: Peer, now_ms: int) -> Steps[Response]:
        header = read_header(PeekMessageRequest, request.fields)
        try:
            check_pops(broker)
            check_readable(broker)
            topic_for_pop(broker, header.topic, header.queue_id, peer)
            check_group(broker, header.consumer_group, now_ms)
        except PopRefused as refused:
            return new_response(request, refused.code, refused.remark)
        return (yield from _peek(broker, request, header, now_ms))

    table.add(RequestCode.NOTIFICATION, handle_notification)
    table.add(RequestCode.POLLING_INFO, polling_info)
    table.add(RequestCode.PEEK_MESSAGE, handle_peek)


def _has_any(broker: BrokerContext, header: NotificationRequest, now_ms: int) -> Steps[bool]:
    """Return, in steps, whether a pop of this group and topic would find a message."""
    places = broker.pop.popping.queues_of(header.topic, header.consumer_group, header.queue_id)
    for number, queue in enumerate(places):
        if number % _QUEUES_PER_STEP == _QUEUES_PER_STEP - 1:
            yield
        place = queue.topic, queue.queue_id
        if header.order and _blocked_until_ms(broker, header, place, now_ms):
            continue
        if broker.pop.popping.waiting_count(queue) > 0:
            return True
    return False


def _blocked_until_ms(
    broker: BrokerContext, header: NotificationRequest, place: Arrived, now_ms: int | None = None
) -> int:
    """Return the epoch ms until which an unacknowledged batch blocks the ordered queue `place` for
    this attempt, 0 if the queue is not blocked. A held request is attempted again at that time."""
    topic, queue_id = place
    until_ms = broker.pop.orders.blocked_until_ms(
        topic,
        header.consumer_group,
        queue_id,
        header.attempt_id,
        broker.pop.now_ms() if now_ms is None else now_ms,
    )
    if until_ms:
        broker.pop.wake_at(topic, queue_id, until_ms)
    return until_ms


def _answer_or_hold(
    broker: BrokerContext,
    request: Command,
    header: NotificationRequest,
    peer: Peer,
    has_any: bool,
    left_ms: int,
) -> Response:
    """Answer NOTIFICATION: at once with `has_any`, or without a message hold the request for at
    most `left_ms`."""
    wait_ms = min(left_ms - EARLY_MS, POLL_MAX_MS)
    if has_any or wait_ms <= 0 or broker.shutting_down:
        found = NotificationResponse(has_any, False)
        return new_response(request, ResponseCode.SUCCESS, header=found)
    response: Deferred[Command | None] = Deferred()

    def attempt(arrived: Arrived | None) -> bool:
        if arrived is not None and header.order and _blocked_until_ms(broker, header, arrived):
            return False
        found = NotificationResponse(arrived is not None, False)
        response.resolve(new_response(request, ResponseCode.SUCCESS, header=found))
        return True

    waiter = PopWaiter(
        topics=(
            header.topic,
            *broker.pop.retry_topics(header.topic, header.consumer_group),
        ),
        group=header.consumer_group,
        queue_id=header.queue_id,
        deadline_ms=broker.steady_ms() + wait_ms,
        owner=peer,
        attempt=attempt,
        size=kept_size(header.topic, header.consumer_group),
        only_asks=True,
    )
    if broker.pop.waiters.add(waiter) is WaiterAdded.FULL:
        return new_response(request, ResponseCode.SUCCESS, header=NotificationResponse(False, True))
    peer.on_close(partial(broker.pop.waiters.drop_waiters, peer))
    return response


def _peek(
    broker: BrokerContext, request: Command, header: PeekMessageRequest, now_ms: int
) -> Steps[Command]:
    """Answer PEEK_MESSAGE with the next messages of the group, in steps; nothing is hidden."""
    count = min(max(header.max_msg_nums, 1), MESSAGES_MAX)
    rest = 0
    body: list[memoryview] = []
    places = broker.pop.popping.queues_of(header.topic, header.consumer_group, header.queue_id)
    for number, queue in enumerate(places):
        if number % _QUEUES_PER_STEP == _QUEUES_PER_STEP - 1:
            yield
        position = broker.pop.popping.peek_offset(queue)
        if count <= 0:
            rest += broker.pop.popping.waiting_count(queue)
            continue
        result = broker.store.read(queue.topic, queue.queue_id, position, count)
        if result.status is ReadStatus.FOUND:
            body.extend(result.slices)
            count -= result.count
        rest += max(0, result.max_queue_offset - result.next_queue_offset)
    found = PopMessageResponse(now_ms, 0, 0, rest)
    code = ResponseCode.SUCCESS if body else ResponseCode.PULL_NOT_FOUND
    return new_response(request, code, None, found, body)
