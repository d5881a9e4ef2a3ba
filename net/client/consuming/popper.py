"""Pops of a group's messages by remoting, and their acknowledgements.

Owns the handles of popped messages, the turns of brokers, and the group's part in heartbeats. It
must never divide queues among members or read ahead: the broker hides popped messages from the rest
of the group for a while.

Tests: tests/unit/net/client/consuming/test_simple_consumer.py,
tests/unit/net/client/consuming/test_pop_consumer.py
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from turbopump.engine.types import QueueOffset
from turbopump.net.client import backoff
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.consuming.pulling import GRACE_MS, is_wanted
from turbopump.net.client.consuming.queue_runner import FAILURES
from turbopump.net.client.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    InvalidArgument,
    RouteNotFound,
    check_type,
)
from turbopump.net.client.group_member import GroupMember, make_refuser
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.receiving import NOT_POPPED, handle_text, received_each
from turbopump.net.client.sending import check_group
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from turbopump.net.wire.heartbeat import CONSUME_POP
from turbopump.net.wire.pop_handles import (
    BadHandle,
    PopHandle,
    RetryKind,
    is_receipt,
    read_order_counts,
    read_start_offsets,
)
from turbopump.net.wire.subscription import SubscriptionData

logger = logging.getLogger(__name__)

INVISIBLE_MAX_MS: Final = 12 * 3_600_000
"""The longest time in milliseconds for which messages may be hidden (RocketMQ's clients)."""
NOT_RUNNING: Final = "the consumer is not started, or is closed"
"""Text of the ClientClosed that a consumer over pop raises."""
TURN_MS: Final = 2_000
"""Milliseconds of waiting at a broker, if there are several, before the next broker is asked."""

_ANY_QUEUE: Final = -1
_FROM_FIRST, _FROM_LAST = 0, 1
_NOTHING: Final = {
    ResponseCode.POLLING_TIMEOUT,
    ResponseCode.POLLING_FULL,
    ResponseCode.PULL_NOT_FOUND,
}


@dataclass(frozen=True, slots=True)
class PopPlace:
    """A topic and the name of a broker to pop it from."""

    topic: str
    broker_name: str


class Popper:
    """A member of a group that pops; `from_first` and `ordered` as in SimpleConsumer.

    `subscriptions`, by topic, may change at any time: the next pop uses them. `is_running`: whether
    it was started and not closed. `now_ms` is the wall clock, in epoch milliseconds. Raises
    InvalidArgument for an invalid group name.
    """

    def __init__(
        self, instance: ClientInstance, group: str, *, from_first: bool, ordered: bool
    ) -> None:
        check_group(group)
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.now_ms = instance.now_ms
        self.is_running = False
        self._instance = instance
        self._group = group
        self._init_mode = _FROM_FIRST if from_first else _FROM_LAST
        self._ordered = ordered
        self._member = GroupMember(group, self.subscriptions, CONSUME_POP, make_refuser("simple"))
        self._turn = 0
        self._introduced: set[str] = set()
        """Topics whose brokers received a heartbeat with the subscription."""

    async def start(self) -> None:
        """Join the group and send heartbeats to the brokers of the subscribed topics; failures of
        these are logged. Raises ClientError if started already, or if the instance has a consumer
        of the group."""
        if self.is_running:
            raise ClientError("the consumer is started already")
        await self._instance.add_member(self._member)
        self.is_running = True
        await self._send_first_heartbeat()

    async def close(self) -> None:
        """Leave the group at all known brokers; a `receive` in progress raises ClientClosed at its
        next round. Closing twice does nothing."""
        if self.is_running:
            self.is_running = False
            await self._instance.remove_member(self._member)

    def mark_closed(self) -> None:
        """Count as closed, without a request: the loop of `start` was closed."""
        self.is_running = False

    async def receive(
        self, max_count: int, invisible_ms: int, wait_ms: int
    ) -> list[ReceivedMessage]:
        """Receive up to `max_count` messages of a single broker and topic, asking all in turn for
        up to `wait_ms`; an empty list if none came.

        The messages are hidden for `invisible_ms`; their handle is the property POP_CK. A failed
        broker is asked again until the time ends; then the last error of FAILURES is raised. Raises
        RouteNotFound at once without a readable broker, ClientClosed.
        """
        end_ms = self._instance.steady_ms() + wait_ms
        failures = 0
        while True:
            self._check_running()  # closed meanwhile, if others keep the instance open
            places = await self.find_places()
            left_ms = max(0, end_ms - self._instance.steady_ms())
            slice_ms = left_ms if len(places) == 1 else min(left_ms, TURN_MS)
            failed: Exception | None = None
            for number in range(len(places)):
                self._turn += 1
                place = places[self._turn % len(places)]
                # Only the last broker of a round is polled with a wait; the others are asked
                # without it.
                poll_ms = slice_ms if number == len(places) - 1 else 0
                try:
                    found = await self.pop_messages(place, max_count, invisible_ms, poll_ms)
                except FAILURES as error:
                    logger.info("popping %s failed: %s", place, error)
                    failed = error
                    continue
                if found:
                    return found
            left_ms = end_ms - self._instance.steady_ms()
            if failed is not None:
                failures += 1
                await self.refresh()
                if left_ms <= 0:
                    raise failed
                await asyncio.sleep(min(left_ms, backoff.wait_ms(failed, failures)) / 1000)
            elif left_ms <= 0:
                return []

    async def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge the message, by its property POP_CK, and wait for the broker's answer: the
        group does not receive it again. One try; raises BrokerError, RemotingError, RouteNotFound,
        InvalidArgument without a handle, ClientClosed."""
        handle = _handle_of(message)
        assert handle.queue_offset is not None
        header = AckMessageRequest(
            consumer_group=self._group,
            topic=handle.kind.topic_of(message.topic, self._group),
            queue_id=handle.queue_id,
            extra_info=message.properties[names.POP_CK],
            offset=handle.queue_offset,
            broker_name=handle.broker_name,
        )
        await self._send_to_master(handle, RequestCode.ACK_MESSAGE, header)

    async def change_invisible(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """Hide the message for `invisible_ms` from now; a new handle is written to its property
        POP_CK. Raises as `ack` does."""
        handle = _handle_of(message)
        assert handle.queue_offset is not None
        header = ChangeInvisibleTimeRequest(
            consumer_group=self._group,
            topic=handle.kind.topic_of(message.topic, self._group),
            queue_id=handle.queue_id,
            extra_info=message.properties[names.POP_CK],
            offset=handle.queue_offset,
            invisible_time=invisible_ms,
            broker_name=handle.broker_name,
        )
        response = await self._send_to_master(
            handle, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header
        )
        changed = read_header(ChangeInvisibleTimeResponse, response.fields)
        message.properties[names.POP_CK] = PopHandle(
            handle.queue_offset,
            changed.pop_time,
            changed.invisible_time,
            changed.revive_qid,
            handle.kind,
            handle.broker_name,
            handle.queue_id,
            handle.queue_offset,
        ).text()

    async def _send_first_heartbeat(self) -> None:
        """Send a heartbeat to the brokers of the subscribed topics, so that they list this member
        and create the group's retry topic, by which tools find the group."""
        for topic in list(self.subscriptions):
            try:
                if await self._instance.route(topic) is not None:
                    self._introduced.add(topic)
            except FAILURES as error:
                logger.info("no route of %s: %s", topic, error)
        if self._introduced:
            await self._instance.heartbeat()

    async def find_places(self) -> list[PopPlace]:
        """The readable brokers of all subscribed topics, by order of subscription, then sorted by
        name; brokers of a new topic receive a heartbeat first. Raises RouteNotFound if no topic has
        a readable broker, RemotingError, BrokerError."""
        places: list[PopPlace] = []
        for topic in list(self.subscriptions):
            route = await self._instance.route(topic)
            if route is not None and topic not in self._introduced:
                await self._send_first_heartbeat()
            if route is not None:
                readable = sorted({queue.broker_name for queue in route.subscribe})
                places += [PopPlace(topic, name) for name in readable]
        if not places:
            raise RouteNotFound(f"no broker of {', '.join(self.subscriptions) or 'no topic'}")
        return places

    async def refresh(self) -> None:
        """Request the routes of all subscribed topics again and wait; failures are logged."""
        for topic in list(self.subscriptions):
            try:
                await self._instance.refresh(topic)
            except FAILURES as error:
                logger.info("the route of %s was not refreshed: %s", topic, error)

    async def pop_messages(
        self, place: PopPlace, max_count: int, invisible_ms: int, poll_ms: int
    ) -> list[ReceivedMessage]:
        """Pop up to `max_count` messages of `place.topic` at its broker's master, which waits up to
        `poll_ms` for the first; an empty list if none came.

        Messages of unsubscribed tags are acknowledged and left out, unreadable messages are logged
        and left out. `reconsume_times` counts earlier deliveries. `place.topic` must be subscribed.
        Raises BrokerError, RemotingError, RouteNotFound, and ValueError for an answer that cannot
        be read.
        """
        subscription = self.subscriptions[place.topic]
        header = PopMessageRequest(
            consumer_group=self._group,
            topic=place.topic,
            queue_id=_ANY_QUEUE,
            max_msg_nums=max_count,
            invisible_time=invisible_ms,
            poll_time=poll_ms,
            born_time=self._instance.now_ms(),
            init_mode=self._init_mode,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=self._ordered,
            broker_name=place.broker_name,
        )
        address = self._master_address(place.broker_name)
        request = new_request(RequestCode.POP_MESSAGE, header)
        response = await self._instance.call(address, request, poll_ms + GRACE_MS)
        if response.code in _NOTHING:
            return []
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response.code, response.remark, address)
        result = read_header(PopMessageResponse, response.fields)
        assert isinstance(response.body, bytes)
        received = received_each(response.body, place.broker_name, self._group)
        for message, error in received.unreadable:
            logger.error("message %s cannot be read: %s", message.message_id, error)
        starts = read_start_offsets(result.start_offset_info or "")
        counts = read_order_counts(result.order_count_info or "")
        for message in received.messages:
            self._add_handle(message, result, starts)
            of_queue = counts.get((message.queue_id, None), 0)
            at = QueueOffset(message.queue_offset)
            message.reconsume_times += counts.get((message.queue_id, at), of_queue)
        return await self._with_wanted_tag(subscription, received.messages)

    async def _with_wanted_tag(
        self, subscription: SubscriptionData, messages: Sequence[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """The messages with a subscribed tag: a broker compares only the tags' hashes. The others
        are acknowledged, because they would be delivered again
        (DefaultMQPushConsumerImpl.processPopResult)."""
        wanted = []
        for message in messages:
            if is_wanted(subscription, message):
                wanted.append(message)
                continue
            try:
                await self.ack(message)
            except FAILURES as error:
                logger.info(
                    "message %s of another tag was not acknowledged: %s", message.message_id, error
                )
        return wanted

    def _add_handle(
        self,
        message: ReceivedMessage,
        result: PopMessageResponse,
        starts: dict[tuple[RetryKind, int], QueueOffset],
    ) -> None:
        """Add a handle to a message that has none, as Java's client does
        (MQClientAPIImpl.processPopResponse); the broker adds one only to messages of a retry
        topic."""
        if names.POP_CK in message.properties:
            return
        offset = QueueOffset(message.queue_offset)
        message.properties[names.POP_CK] = PopHandle(
            starts.get((RetryKind.NORMAL, message.queue_id), offset),
            result.pop_time,
            result.invisible_time,
            result.revive_qid,
            RetryKind.NORMAL,
            message.broker_name,
            message.queue_id,
            offset,
        ).text()

    async def _send_to_master(
        self, handle: PopHandle, code: int, header: AckMessageRequest | ChangeInvisibleTimeRequest
    ) -> Command:
        """Send a request about a handle's message to the broker's master; after a failure,
        request the routes again."""
        self._check_running()
        try:
            return await self._instance.ask(self._master_address(handle.broker_name), code, header)
        except FAILURES:
            await self.refresh()  # the caller may try again, at another master
            raise

    def _master_address(self, broker_name: str) -> str:
        """Return the address of a broker's master; raises RouteNotFound."""
        address = self._instance.brokers.master_address(broker_name)
        if address is None:
            raise RouteNotFound(f"no master of broker {broker_name} is known")
        return address

    def _check_running(self) -> None:
        """Raises ClientClosed unless started."""
        if not self.is_running:
            raise ClientClosed(NOT_RUNNING)


def _handle_of(message: ReceivedMessage) -> PopHandle:
    """Return the handle of a popped message; raises InvalidArgument without one, or for a
    message received by gRPC."""
    text = handle_text(message)
    if is_receipt(text):
        # A gRPC server may have renewed the handle: the broker would ignore this text.
        raise InvalidArgument("the message was received by gRPC, and is acknowledged by gRPC alone")
    try:
        handle = PopHandle.parse(text)
    except BadHandle:
        handle = None
    if handle is None or handle.queue_offset is None:
        raise InvalidArgument(NOT_POPPED)
    return handle


def check_invisible(invisible_ms: int, least_ms: int) -> None:
    """Raises InvalidArgument unless `invisible_ms` is an int from `least_ms` to
    INVISIBLE_MAX_MS."""
    check_type(invisible_ms, int, "invisible_ms", "a whole number")
    if not least_ms <= invisible_ms <= INVISIBLE_MAX_MS:
        raise InvalidArgument(
            f"invisible_ms is {invisible_ms}, not from {least_ms} to {INVISIBLE_MAX_MS}"
        )
