"""A single pull: the request, its broker, and the meaning of the answer.

Owns the two forms of a pull (push consumer, lite pull), the broker suggested for the next pull, and
the text test of tags. It must never decide when to pull.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from turbopump.engine.types import QueueOffset
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.errors import BrokerError, RouteNotFound
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.receiving import Received, received_each
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pull import (
    COMMIT_OFFSET_FLAG,
    LITE_PULL_FLAG,
    SUBSCRIPTION_FLAG,
    SUSPEND_FLAG,
    PullMessageRequest,
    PullMessageResponse,
)
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import MASTER_ID
from turbopump.net.wire.subscription import SubscriptionData

GRACE_MS: Final = 15_000
"""Milliseconds that a pull may take beyond its long poll; RocketMQ: 30 s for a poll of 15 s."""

SUSPEND_MS: Final = 15_000
"""Longest time in milliseconds for which a broker holds a push consumer's pull
(brokerSuspendMaxTimeMillis)."""


class PullStatus(Enum):
    """The result of a pull: messages, no new message, no matching message, or another offset."""

    FOUND = "FOUND"
    """The answer has messages."""
    NO_NEW = "NO_NEW"
    """No message was stored at the offset until the wait ended."""
    NO_MATCH = "NO_MATCH"
    """The broker's filter left out all messages that it looked at."""
    MOVED = "MOVED"
    """The offset is outside of the queue, or was reset: continue at the answer's offset."""


_STATUS: Final = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCH,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.MOVED,
}


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer of a pull; the next pull begins at `next_queue_offset`.

    `messages` are in the queue's order and have a subscribed tag. `min_queue_offset` is the first
    stored message of the queue, `max_queue_offset` its end. `unreadable` are the messages whose
    body cannot be read, each with the error.
    """

    status: PullStatus
    messages: list[ReceivedMessage]
    next_queue_offset: QueueOffset
    min_queue_offset: QueueOffset
    max_queue_offset: QueueOffset
    unreadable: list[tuple[ReceivedMessage, Exception]] = field(default_factory=list)


class Puller:
    """Pulls for one group.

    `lite` pulls carry their subscription and use LITE_PULL_MESSAGE (DefaultLitePullConsumer); the
    others rely on the subscription in the heartbeat (DefaultMQPushConsumer).
    """

    def __init__(self, instance: ClientInstance, group: str, *, lite: bool) -> None:
        self._instance = instance
        self._group = group
        self._lite = lite
        self._suggested: dict[MessageQueue, int] = {}

    async def pull_once(
        self,
        queue: MessageQueue,
        queue_offset: QueueOffset,
        subscription: SubscriptionData,
        *,
        max_count: int,
        suspend_ms: int = SUSPEND_MS,
        commit: QueueOffset | None = None,
    ) -> Pulled:
        """Pull up to `max_count` messages once, from `queue_offset`; the broker waits up to
        `suspend_ms` for a message.

        The request goes to the broker that the last answer suggested, at first to the master; at
        the master it also commits `commit`. Raises BrokerError, RemotingError, RouteNotFound, and
        ValueError for an answer that cannot be read.
        """
        reader = self._instance.brokers.address_to_read(
            queue.broker_name, self._suggested.get(queue, 0)
        )
        if reader is None:
            raise RouteNotFound(f"no address of broker {queue.broker_name} is known")
        broker_id, address = reader
        flags = SUSPEND_FLAG if suspend_ms > 0 else 0
        if self._lite:
            flags |= SUBSCRIPTION_FLAG | LITE_PULL_FLAG
        if commit is not None and broker_id == MASTER_ID:
            flags |= COMMIT_OFFSET_FLAG
        header = PullMessageRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            max_msg_nums=max_count,
            sys_flag=flags,
            commit_offset=commit or 0,
            suspend_timeout_millis=suspend_ms,
            sub_version=0 if self._lite else subscription.sub_version,
            subscription=subscription.sub_string if self._lite else None,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        code = RequestCode.LITE_PULL_MESSAGE if self._lite else RequestCode.PULL_MESSAGE
        try:
            response = await self._instance.call(
                address, new_request(code, header), suspend_ms + GRACE_MS
            )
        except RemotingError:
            self._suggested.pop(queue, None)
            raise
        status = _STATUS.get(response.code)
        if status is None:
            raise BrokerError(response.code, response.remark, address)
        result = read_header(PullMessageResponse, response.fields)
        self._suggested[queue] = result.suggest_which_broker_id
        received, end = Received(), QueueOffset(result.next_begin_offset)
        if status is PullStatus.FOUND:
            assert isinstance(response.body, bytes)
            received = received_each(response.body, queue.broker_name, self._group)
        return Pulled(
            status,
            [one for one in received.messages if is_wanted(subscription, one)],
            end if received.end is None else received.end,
            QueueOffset(result.min_offset),
            QueueOffset(result.max_offset),
            [one for one in received.unreadable if is_wanted(subscription, one[0])],
        )

    def forget_queue(self, queue: MessageQueue) -> None:
        """Drop the suggested broker of a queue that is no longer pulled."""
        self._suggested.pop(queue, None)


def is_wanted(subscription: SubscriptionData, message: ReceivedMessage) -> bool:
    """Whether the message has a subscribed tag, or the subscription is by an expression: brokers
    compare only the tags' hashes."""
    return not subscription.is_tag_type or subscription.wants_tag(message.tags)
