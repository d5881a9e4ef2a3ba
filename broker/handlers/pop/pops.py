"""POP_MESSAGE (200050): messages of any queue, hidden from the rest of the group for a while.

Owns the checks, the answers and the long poll of RocketMQ's PopMessageProcessor. It must never
return a message without a check point that hides it: broker/pop stores those.
"""

import logging
from functools import partial
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.pop.checks import (
    PopRefused,
    check_group,
    check_poll,
    check_pops,
    check_readable,
    topic_for_pop,
)
from turbopump.broker.pop.popped_records import records_of
from turbopump.broker.pop.popping import Popped, PopQuery
from turbopump.broker.pop.waiters import Arrived, PopWaiter, WaiterAdded
from turbopump.broker.traffic.replies import failure_reply
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import PutStatus
from turbopump.net.transport.dispatcher import Dispatcher, Response, one_line
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pop import PopMessageRequest, PopMessageResponse
from turbopump.net.wire.names import kept_size
from turbopump.net.wire.pop_handles import message_offsets, start_offsets
from turbopump.net.wire.pop_records import MESSAGES_MAX
from turbopump.net.wire.sql.compiler import compile_filter
from turbopump.net.wire.subscription import parse_subscription

logger = logging.getLogger(__name__)

POLL_MAX_MS: Final = 120_000
"""Maximum time that a pop waits, in ms: idle connections are closed after that time anyway. Clients
ask for 15 to 30 s."""
INVISIBLE_MAX_MS: Final = 12 * 3_600_000 + 60_000
"""Maximum time that popped messages are hidden, in ms; the clients' limit is 12 hours."""
EARLY_MS: Final = 50
"""Margin in ms by which a waiting pop is answered before its client gives up
(PopLongPollingService)."""

_FROM_END = 1  # initMode: consume from the end of the queue
_WATCHED = "pop waiters"  # key of Peer.context


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handler of POP_MESSAGE to the table, which must not have it yet."""

    def handle_pop(request: Command, peer: Peer, now_ms: int) -> Steps[Response]:
        header = read_header(PopMessageRequest, request.fields)
        try:
            query, until_ms = _read_query(broker, header, peer, now_ms)
        except PopRefused as refused:
            return new_response(request, refused.code, refused.remark)
        popped = Popped(now_ms, 0)
        if (yield from broker.pop.ensure_recovered()):
            popped = yield from broker.pop.popping.pop(query, now_ms)
            _allow_native_pops(broker, header, query, popped)
        return _Pop(broker, request, query, peer).answer_or_hold(popped, until_ms, now_ms)

    table.add(RequestCode.POP_MESSAGE, handle_pop)


def _allow_native_pops(
    broker: BrokerContext, header: PopMessageRequest, query: PopQuery, popped: Popped
) -> None:
    """Let the fast lane serve later pops of this group and topic natively."""
    if popped.taken and not query.is_ordered and broker.pop.is_ready and broker.role.is_master:
        kinds = broker.pop.popping.retry_kinds(query.topic, query.group)
        names = [kind.topic_of(query.topic, query.group) for kind in kinds]
        broker.fast.allow_pop(
            query.group,
            query.topic,
            query.wanted,
            header.exp,
            header.exp_type,
            names,
            popped.pop_time_ms,
            broker.pop.lives.ended_ms(query.topic, query.group),
        )


def _read_query(
    broker: BrokerContext, header: PopMessageRequest, peer: Peer, now_ms: int
) -> tuple[PopQuery, int]:
    """Read the pop request after its checks: return (the pop, the end of its wait in epoch ms);
    raises PopRefused."""
    until_ms = check_poll(header.born_time, header.poll_time, now_ms)
    check_pops(broker, in_order=header.order is True)
    check_readable(broker)
    if not 0 < header.max_msg_nums <= MESSAGES_MAX:
        raise PopRefused(
            ResponseCode.INVALID_PARAMETER,
            f"the broker[{broker.config.broker_ip1}] pop message's num is greater than 32",
        )
    if not 0 < header.invisible_time <= INVISIBLE_MAX_MS:
        raise PopRefused(
            ResponseCode.INVALID_PARAMETER,
            f"invisibleTime {header.invisible_time} is not from 1 to {INVISIBLE_MAX_MS} ms",
        )
    topic_for_pop(broker, header.topic, header.queue_id, peer)
    check_group(broker, header.consumer_group, now_ms)
    try:
        subscription = parse_subscription(header.topic, header.exp or "*", header.exp_type, now_ms)
        by_tags = subscription.is_tag_type
        wanted = subscription.filter_codes if by_tags else compile_filter(subscription)
    except ValueError:
        raise PopRefused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
        ) from None
    steady_ms = broker.steady_ms()
    broker.consumers.remember_subscription(
        header.consumer_group, header.topic, subscription, steady_ms
    )
    query = PopQuery(
        topic=header.topic,
        group=header.consumer_group,
        queue_id=header.queue_id,
        count=header.max_msg_nums,
        invisible_ms=header.invisible_time,
        wanted=wanted,
        from_end=header.init_mode == _FROM_END,
        is_ordered=header.order is True,
        attempt_id=header.attempt_id,
    )
    return query, until_ms


class _Pop:
    """A pop request, from its arrival to its answer, through any number of attempts."""

    __slots__ = ("_answer", "_broker", "_peer", "_read_query", "_request", "_rests")

    def __init__(
        self, broker: BrokerContext, request: Command, query: PopQuery, peer: Peer
    ) -> None:
        self._broker = broker
        self._request = request
        self._read_query = query
        self._peer = peer
        self._answer: Deferred[Command | None] = Deferred()
        self._rests: dict[Arrived, int] = {}

    def answer_or_hold(self, popped: Popped, until_ms: int, now_ms: int) -> Response:
        """Answer with the messages found at once, or hold the pop."""
        self._rests = popped.remaining_counts
        if popped.taken or popped.refused is not None:
            popped.when_safe().then(self._answer_popped)
            return self._answer
        wait_ms = min(until_ms - now_ms - EARLY_MS, POLL_MAX_MS)
        if wait_ms <= 0 or self._broker.shutting_down:
            return self._answer_empty(ResponseCode.POLLING_TIMEOUT)
        query, pop = self._read_query, self._broker.pop
        retries = pop.retry_topics(query.topic, query.group) if not query.is_ordered else ()
        waiter = PopWaiter(
            topics=(query.topic, *retries),
            group=query.group,
            queue_id=query.queue_id,
            deadline_ms=self._broker.steady_ms() + wait_ms,
            owner=self._peer,
            attempt=self._attempt_held,
            size=kept_size(query.topic, query.group, query.attempt_id or ""),
        )
        if pop.waiters.add(waiter) is WaiterAdded.FULL:
            return self._answer_empty(ResponseCode.POLLING_FULL)
        self._schedule_attempt(popped)
        _drop_at_close(self._broker, self._peer)
        return self._answer

    def _attempt_held(self, arrived: Arrived | None) -> bool:
        """Pop again from the queue that has grown, or answer that the wait has ended (None); return
        whether the request is answered."""
        broker, query = self._broker, self._read_query
        try:
            # a refused consumer looks for another broker
            check_pops(broker, in_order=query.is_ordered)
            if arrived is None:
                self._answer.resolve(self._answer_empty(ResponseCode.POLLING_TIMEOUT))
                return True
            if not broker.pop.is_ready:
                return False
            topic_for_pop(broker, query.topic, query.queue_id, self._peer)
            steps = broker.pop.popping.pop(query, broker.pop.now_ms(), arrived)
            popped = _run_all(steps)
        except PopRefused as refused:
            self._answer.resolve(new_response(self._request, refused.code, refused.remark))
            return True
        except Exception as error:
            # No dispatcher catches this exception, and other held pops wait for the same arrival.
            logger.exception("a waiting pop of %s failed", self._peer.address)
            failed = new_response(self._request, ResponseCode.SYSTEM_ERROR, one_line(error))
            self._answer.resolve(failed)
            return True
        if popped.taken or popped.refused is not None:
            popped.when_safe().then(self._answer_popped)
            return True
        self._rests[arrived] = popped.remaining_total
        self._schedule_attempt(popped)
        return False

    def _schedule_attempt(self, popped: Popped) -> None:
        """Schedule the next attempt after an empty pop: in the next sweep if a queue was not
        examined to its end, as if it had grown; for a blocked queue, when its batch ends."""
        pop, topic = self._broker.pop, self._read_query.topic
        for place in popped.unread:
            pop.waiters.on_arrival(*place)
        for queue_id, until_ms in popped.blocked_ms.items():
            pop.wake_at(topic, queue_id, until_ms)

    def _answer_popped(self, popped: Popped) -> None:
        """Answer with the messages once their check points are safe, or with the reason why these
        were not stored."""
        query, broker = self._read_query, self._broker
        if not popped.taken:
            status = popped.refused or PutStatus.UNKNOWN_ERROR
            # MESSAGE_ILLEGAL: no record can hold the group's name
            if status is not PutStatus.MESSAGE_ILLEGAL:
                broker.pop.store_refused(status)
            code, remark = failure_reply(status)
            remark = f"messages cannot be handed out, their check points are not stored: {remark}"
            self._answer.resolve(new_response(self._request, code, remark))
            return
        broker.pop.store_took()
        header = PopMessageResponse(
            pop_time=popped.pop_time_ms,
            invisible_time=query.invisible_ms,
            revive_qid=popped.revive_queue_id,
            rest_num=popped.remaining_total,
            start_offset_info=start_offsets(
                (one.kind, one.queue.queue_id, one.start) for one in popped.taken
            ),
            msg_offset_info=message_offsets(
                (one.kind, one.queue.queue_id, one.offsets) for one in popped.taken
            ),
            order_count_info=";".join(popped.counts) or None,
        )
        body: list[memoryview] = []
        for one in popped.taken:
            body.extend(records_of(one, popped, query, broker.config.broker_name))
            count = len(one.offsets)
            size = sum(map(len, one.slices))
            broker.statistics.count_popped(query.group, one.queue.topic, count, size)
            until_ms = popped.pop_time_ms + query.invisible_ms
            first = one.offsets[0]
            broker.pop.in_flight.count_popped(one.queue, first, until_ms, count, popped.pop_time_ms)
        if popped.remaining_total > 0:
            for one in popped.taken:
                broker.pop.waiters.on_arrival(one.queue.topic, one.queue.queue_id)
            for place in popped.unread:
                broker.pop.waiters.on_arrival(*place)
        self._answer.resolve(
            new_response(self._request, ResponseCode.SUCCESS, "FOUND", header, body)
        )

    def _answer_empty(self, code: ResponseCode) -> Command:
        """The answer without messages, with this code."""
        rest, now_ms = sum(self._rests.values()), self._broker.pop.now_ms()
        header = PopMessageResponse(now_ms, self._read_query.invisible_ms, 0, rest)
        return new_response(self._request, code, None, header)


def _run_all(steps: Steps[Popped]) -> Popped:
    """Run all steps of a pop from one queue, which reads at most once, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            popped = done.value
            assert isinstance(popped, Popped)
            return popped


def _drop_at_close(broker: BrokerContext, peer: Peer) -> None:
    """Have the waiting pops of a connection dropped when it closes; registers once per
    connection."""
    if not peer.context.get(_WATCHED):
        peer.context[_WATCHED] = True
        peer.on_close(partial(broker.pop.waiters.drop_waiters, peer))
