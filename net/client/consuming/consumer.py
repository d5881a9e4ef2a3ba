"""The push consumer: subscribe, then handle messages by a callback or iterate over them.

Owns the life of a consumer and its public face; the work is done by the balancer (which queues),
the pull loops and the delivery (handlers, acknowledgements). It must never touch a record.

Tests: tests/unit/net/client/consuming/test_balancer.py, tests/integration/client/test_consumer.py
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import QueueOffset
from turbopump.net.allocation.strategies import is_strategy
from turbopump.net.client.consuming.balancer import Balancer
from turbopump.net.client.consuming.delivery import Delivery, check_handler, on_the_loop
from turbopump.net.client.consuming.membership import ConsumerMembership, Handler, RunningHandler
from turbopump.net.client.consuming.offsets import (
    BrokerOffsets,
    LocalOffsets,
    OffsetStore,
    QueueOffsets,
)
from turbopump.net.client.consuming.process_queue import FlowLimits
from turbopump.net.client.consuming.pulling import Puller
from turbopump.net.client.consuming.retry import Retries
from turbopump.net.client.consuming.running_info import consumer_status, running_info
from turbopump.net.client.consuming.subscribing import NO_SUBSCRIPTION, subscription_of
from turbopump.net.client.errors import ClientClosed, ClientError, InvalidArgument, check_type
from turbopump.net.client.group_member import GroupMember
from turbopump.net.client.lifetime import ClientLifetime
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ClientOptions, ConsumerOptions, Outcome
from turbopump.net.client.receiving import received_messages
from turbopump.net.client.sending import check_group, check_topic
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.client.tasks import TaskSet, is_being_cancelled
from turbopump.net.transport.dispatcher import Response
from turbopump.net.wire.bodies import as_int, as_object, encode_json, load_object
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.clients import GetConsumerStatusRequest, ResetOffsetRequest
from turbopump.net.wire.heartbeat import CONSUME_PASSIVELY
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.subscription import ALL, TAG, parse_subscription

logger = logging.getLogger(__name__)

POSITION_TIMEOUT_MS: Final = 3000
"""Longest wait in milliseconds of `start` for the start offsets of the first queues."""

OVERDUE_CHECK_MS: Final = 10_000
"""Interval in milliseconds at which handlers are checked against consume_timeout_ms."""


class Consumer(ClientLifetime):
    """A member of a consumer group to which messages are pushed.

    Either register a handler with `on_message`, or iterate:

        async with Consumer("group", ["127.0.0.1:9876"]) as consumer:
            async for message in consumer:
                ...

    Iterating acknowledges a message when the next one is requested (`auto_ack`). So the message at
    which a loop ends early is delivered again later unless `ack` was called for it.

    Args:
        group: the consumer group.
        namesrv: addresses "host:port", or one text with ";" between; not needed with `client`.
        options: cluster or broadcast, ordered, start position, and so on.
        limits: how many messages and bytes may wait for acknowledgement.
        offsets_folder: folder of a broadcasting consumer's offsets; None keeps them in memory.
        client: a client to share with other producers and consumers.
        client_options: intervals and timeouts of an own client; not with `client`.

    Raises InvalidArgument for an invalid argument or option, and TlsError for TLS files that cannot
    be used.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = (),
        *,
        options: ConsumerOptions | None = None,
        limits: FlowLimits | None = None,
        offsets_folder: Path | None = None,
        client: SharedClient | None = None,
        client_options: ClientOptions | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self._options = options or ConsumerOptions()
        check_type(self._options, ConsumerOptions, "options", "a turbopump.ConsumerOptions")
        if not is_strategy(self._options.strategy):
            raise InvalidArgument(f"there is no strategy {self._options.strategy}")
        self._instance = instance_of(client, namesrv, client_options)
        offsets: OffsetStore = (
            LocalOffsets(group, offsets_folder)
            if self._options.broadcast
            else BrokerOffsets(
                self._instance, group, young_from_start=self._options.young_from_start
            )
        )
        self._membership = ConsumerMembership(
            self._instance,
            group,
            self._options,
            limits or FlowLimits(),
            offsets,
            Puller(self._instance, group, lite=False),
            QueueOffsets(self._instance),
            Retries(self._instance, group, self._options.retry_limit),
        )
        self._background, self._pulls, self._handlers = TaskSet(), TaskSet(), TaskSet()
        self._delivery = Delivery(self._membership, self._handlers)
        self._balancer = Balancer(self._membership, self._pulls, self._delivery.on_message_ready)
        self._member = GroupMember(
            group,
            self._membership.subscriptions,
            CONSUME_PASSIVELY,
            self._on_request,
            self._balancer.rebalance_soon,
            self._options.model,
            self._options.consume_from,
        )
        self._handler: RunningHandler | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._started_ms = 0
        self._closed = False

    @property
    def client_id(self) -> str:
        """The id under which brokers list this consumer; empty before `start`."""
        return self._instance.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues this member consumes now, sorted by topic, broker name and queue id; the retry
        topic's included."""
        return self._balancer.queues

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """Consume a topic; a later call for the same topic replaces the expression. After `start`
        it takes effect in the background, by a heartbeat and a rebalance.

        Args:
            topic: its name.
            expression: "*", or tags joined by "||".
            sql: instead of `expression`, a condition on properties in RocketMQ's SQL92, such as
                `price > 10 AND region IN ('north', 'south')`; `start` raises BrokerError if a
                broker refuses it.

        Raises InvalidArgument for an invalid name or expression, and if both kinds are given.
        """
        check_topic(topic)
        data = subscription_of(topic, expression, sql, self._instance.now_ms())
        self._membership.subscriptions[topic] = data
        self._apply_subscriptions()

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic, in the background: its queues are given up, and their offsets
        committed. Without a subscription it does nothing."""
        self._membership.subscriptions.pop(topic, None)
        self._membership.rates.forget_topic(topic)
        self._apply_subscriptions()

    def on_message(self, handler: Handler) -> Handler:
        """Have every message handled by `handler`; may be called before and after `start`, and as a
        decorator: it returns `handler`. A later handler replaces an earlier one.

        An `async def` handler runs on the loop, a plain `def` in a thread, up to
        `options.concurrency` at a time. Returning acknowledges; raising, or returning
        Outcome.RETRY, has the message delivered again later. Raises InvalidArgument for a handler
        that cannot be called, ClientClosed.
        """
        check_handler(handler)
        if self._closed:
            raise ClientClosed("the consumer is closed")
        if self._threads is None:
            # The pool starts its threads with the first call of a plain function.
            self._threads = ThreadPoolExecutor(self._options.concurrency, self.group)
        self._handler = self._as_call(on_the_loop(handler, self._threads))
        if self._started_ms:
            self._delivery.start(self._handler)
        return handler

    async def start(self) -> None:
        """Join the group and begin to consume. Returns when the start offsets of this member's
        queues are known, or after POSITION_TIMEOUT_MS.

        Raises ClientError for a handler without a subscription, for a second `start` (also after
        `close`, or after a start that joined the group and then failed or was cancelled), and if
        the shared client has a consumer of the group; RemotingError if no name server answers,
        BrokerError for a subscription that the broker refuses. If a handler closes the consumer
        meanwhile, `start` returns without an error.
        """
        await super().start()

    async def _open(self) -> None:
        """Join the group, check the expressions at a broker, and begin to consume."""
        if self._started_ms or self._closed:
            raise ClientError("a consumer starts once")
        if self._handler is not None:
            self._require_subscription()
        await self._instance.add_member(self._member)
        self._started_ms = self._instance.now_ms()
        if not self._options.broadcast:
            retry_topic = self._membership.retry_topic
            self._membership.subscriptions[retry_topic] = parse_subscription(
                retry_topic, ALL, TAG, self._started_ms
            )
        for topic in list(self._membership.subscriptions):
            await self._instance.refresh(topic)
        await self._check_expressions()
        await self._instance.heartbeat()
        self._delivery.start(self._handler)
        await self._balancer.rebalance_topics()
        await self._balancer.wait_until_ready(POSITION_TIMEOUT_MS)
        self._background.spawn(self._balancer.run(), "rebalance")
        self._background.run_every(self._options.persist_ms, self._commit_offsets, "offset commit")
        overdue = self._delivery.send_back_overdue
        self._background.run_every(OVERDUE_CHECK_MS, overdue, "overdue check")
        if self._membership.locks_queues:
            self._background.spawn(self._balancer.renew_locks_forever(), "lock renewal")

    async def close(self) -> None:
        """Leave the group: wait for running handlers (up to close_timeout_ms, then they are
        cancelled), commit the offsets of acknowledged messages, unlock. Messages without an outcome
        are delivered again.

        A handler that calls it does not wait; the closing waits for the handler. Closing twice does
        nothing.
        """
        await super().close()

    async def _close_parts(self) -> None:
        """Leave the group, after up to close_timeout_ms for running handlers."""
        await self._leave_group(self._options.close_timeout_ms)
        self._closed = True

    def _mark_closed(self) -> None:
        """Count as closed, without a request: the loop of `start` was closed."""
        self._closed = True
        with suppress(RuntimeError):  # a `receive` of the closed loop cannot be woken
            self._delivery.stop()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _undo_open(self) -> None:
        """Leave the group, without a wait for running handlers."""
        await self._leave_group(0)

    async def _leave_group(self, timeout_ms: int) -> None:
        """End the membership, after up to `timeout_ms` for running handlers; without effect if the
        group was not joined."""
        if self._closed or not self._started_ms:
            return
        self._closed = True
        end_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        await self._background.cancel()
        self._delivery.stop()
        await self._balancer.close(timeout_ms if self._handler is not None else 0)
        await self._pulls.cancel()
        # Handlers of queues that were given up, and of messages that an operator sent.
        await self._wait_for_calls(end_s)
        await self._handlers.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        await self._instance.remove_member(self._member)

    def __aiter__(self) -> "MessageIterator":
        if self._handler is not None:
            raise ClientError("a consumer with a handler is not iterated over")
        return MessageIterator(self)

    async def receive(self) -> ReceivedMessage | None:
        """The next message, waiting for it without a limit; None after the consumer is closed.

        The caller settles it with `ack` or `retry`. Raises ClientClosed before `start`, ClientError
        without a subscription or with a handler, and BrokerError if the broker refuses all queues
        of a topic for a reason that waiting does not change, such as an invalid filter or a missing
        right.
        """
        if not self._started_ms:
            raise ClientClosed("the consumer is not started")
        if self._handler is not None:
            raise ClientError("this consumer's messages go to its handler")
        self._require_subscription()
        return await self._delivery.receive()

    async def ack(self, message: ReceivedMessage) -> bool:
        """Acknowledge a message in memory; its offset is committed every `persist_ms` and by
        `close`. False if it no longer belongs to this member (it will be delivered again) or was
        settled already."""
        return await self._delivery.settle_message(message, Outcome.ACK, 0)

    async def retry(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Send the message back to the broker, which delivers it again later; False if it no longer
        belongs to this member or was settled already.

        `delay_level` 0 lets the broker choose (10 s, 30 s, 1 min, ...), -1 makes it a dead letter.
        If no broker accepts it, this member hands it out again after 5 s. An ordered queue stops at
        the message and hands it out again after suspend_ms. In broadcast mode it is dropped.
        """
        return await self._delivery.settle_message(message, Outcome.RETRY, delay_level)

    def _on_request(self, request: Command, _now_ms: int) -> Response:
        """Handle a broker's request 220, 221, 307 or 309."""
        if request.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            return self._reset_queues(request)
        if request.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            topic = read_header(GetConsumerStatusRequest, request.fields).topic
            body = consumer_status(self._membership, topic)
            return new_response(request, ResponseCode.SUCCESS, body=body)
        if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            body = running_info(self._membership, self._started_ms)
            return new_response(request, ResponseCode.SUCCESS, body=body)
        response: Deferred[Command | None] = Deferred()
        assert isinstance(request.body, bytes)
        broker_name = request.fields.get("brokerName", "")
        consuming = self._consume_directly(request, request.body, broker_name, response)
        self._handlers.spawn(consuming, "direct consumption")
        return response

    def _require_subscription(self) -> None:
        """Raises ClientError without a subscription."""
        if not set(self._membership.subscriptions) - {self._membership.retry_topic}:
            raise ClientError(NO_SUBSCRIPTION)

    def _apply_subscriptions(self) -> None:
        """Apply changed subscriptions in the background, if the consumer runs."""
        if self._started_ms and not self._closed:
            self._background.spawn(self._resubscribe(), "subscription change")

    async def _resubscribe(self) -> None:
        """Send the subscriptions to the brokers, and rebalance."""
        for topic in list(self._membership.subscriptions):
            await self._instance.route(topic)
        await self._instance.heartbeat()
        self._balancer.rebalance_soon()

    async def _commit_offsets(self) -> None:
        """Commit the offsets without waiting for the brokers."""
        await self._membership.commit_offsets(confirmed=False)

    async def _check_expressions(self) -> None:
        """Have a broker compile the expressions that are not by tags (CHECK_CLIENT_CONFIG)."""
        for data in self._membership.subscriptions.values():
            if data.is_tag_type:
                continue
            route = await self._instance.route(data.topic)
            for broker_name in sorted(route.brokers) if route is not None else ():
                reader = self._instance.brokers.address_to_read(broker_name)
                if reader is not None:
                    body = {
                        "clientId": self._instance.client_id,
                        "group": self.group,
                        "subscriptionData": data.to_json(),
                    }
                    code = RequestCode.CHECK_CLIENT_CONFIG
                    await self._instance.ask(reader[1], code, body=encode_json(body))

    def _reset_queues(self, request: Command) -> Command | None:
        """Handle 220: restart the queues that the request names at its offsets."""
        header = read_header(ResetOffsetRequest, request.fields)
        assert isinstance(request.body, bytes)
        table = as_object(load_object(request.body).get("offsetTable", {}))
        for key, value in table.items():
            queue = MessageQueue.from_key(key)
            if queue.topic == header.topic:
                self._balancer.restart_queue(queue, QueueOffset(as_int(value, "offset")))
        return None if request.is_oneway else new_response(request, ResponseCode.SUCCESS)

    async def _consume_directly(
        self, request: Command, record: bytes, broker_name: str, response: Deferred[Command | None]
    ) -> None:
        """Run the handler on a stored record for an operator (CONSUME_MESSAGE_DIRECTLY)."""
        begin_ms, remark, result = self._instance.steady_ms(), "", "CR_SUCCESS"
        try:
            message = received_messages(record, broker_name, self.group)[0]
            if self._handler is None:
                raise ClientError("this consumer has no handler")
            if await self._handler(message) is Outcome.RETRY:
                result = "CR_LATER"
        except (Exception, asyncio.CancelledError) as error:
            if is_being_cancelled():
                response.resolve(None)
                raise
            logger.exception("the handler failed on a message that an operator sent")
            result, remark = "CR_THROW_EXCEPTION", repr(error)
        body = encode_json(
            {
                "autoCommit": True,
                "consumeResult": result,
                "order": self._options.ordered,
                "remark": remark,
                "spentTimeMills": self._instance.steady_ms() - begin_ms,
            }
        )
        response.resolve(new_response(request, ResponseCode.SUCCESS, body=body))


class MessageIterator:
    """State of an `async for` loop over a consumer, which ends when the consumer is closed; several
    loops may run at the same time, each message goes to a single loop. With `auto_ack` the next
    step acknowledges the previous message. Raises as `Consumer.receive` does."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._previous: ReceivedMessage | None = None

    def __aiter__(self) -> "MessageIterator":
        return self

    async def __anext__(self) -> ReceivedMessage:
        previous, self._previous = self._previous, None
        if previous is not None and self._consumer._options.auto_ack:
            await self._consumer.ack(previous)
        message = await self._consumer.receive()
        if message is None:
            raise StopAsyncIteration
        self._previous = message
        return message
