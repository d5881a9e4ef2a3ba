"""The admin client's reading of queues: messages by time or offset, and dead letters sent again.

Owns the call sequences of printMsg and queryMsgByOffset (tools/command/message) and of the resend
of dead letters. It must never print or format. A base of Admin, whose errors these methods raise.

Tests: tests/unit/cli/admin/test_more_commands.py, tests/integration/client/test_admin.py
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from turbopump.engine.types import QueueOffset
from turbopump.net.client.admin.calls import AdminCalls
from turbopump.net.client.admin.results import ResentMessage
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.errors import BrokerError, ClientError, InvalidArgument
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.receiving import received_each
from turbopump.net.client.sending import check_group, encoded_properties
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.offsets import (
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from turbopump.net.wire.headers.pull import (
    SUBSCRIPTION_FLAG,
    PullMessageRequest,
    PullMessageResponse,
)
from turbopump.net.wire.headers.send import SendMessageRequestV2, write_send
from turbopump.net.wire.names import AUTO_CREATE_TOPIC, DLQ_PREFIX, RETRY_PREFIX, TOOLS_GROUP
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import TopicRouteData, bounded_queue_counts
from turbopump.net.wire.subscription import ALL, TAG, SubscriptionData, parse_subscription

PULL_COUNT: Final = 32
"""Messages requested by one pull."""

_DROPPED: Final = frozenset(
    {
        names.DELAY,
        names.DLQ_ORIGIN_TOPIC,
        names.DLQ_ORIGIN_MESSAGE_ID,
        names.POP_CK,
        names.REAL_TOPIC,
        names.REAL_QID,
    }
)
"""Properties of a dead letter that describe its way there, not the message."""


class MessageCommands:
    """Requests of mqadmin that read queues, message after message."""

    _instance: ClientInstance
    _calls: AdminCalls

    async def messages(
        self,
        topic: str,
        *,
        expression: str = ALL,
        begin_ms: int | None = None,
        end_ms: int | None = None,
    ) -> AsyncIterator[ReceivedMessage]:
        """printMsg: the stored messages of a topic, queue after queue (by broker name and queue
        id), each by offset; commits nothing.

        `expression` is "*" or tags joined by "||"; `begin_ms` and `end_ms` bound the time at which
        a message was stored, epoch milliseconds, the end not included. Messages that arrive in a
        queue after its reading began are not read; unreadable messages are left out. Raises
        InvalidArgument for an invalid expression.
        """
        try:
            subscription = parse_subscription(topic, expression)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        route = await self._calls.query_route(topic)
        for queue, address in _queues(topic, route):
            at = await self._offset_at(queue, address, begin_ms)
            end = await self._max_offset(queue, address)
            if end_ms is not None:
                end = min(end, await self._offset_at(queue, address, end_ms))
            while at < end:
                found, following = await self._pull_messages(queue, address, at, subscription)
                for message in found:
                    if message.queue_offset < end:
                        yield message
                if following <= at:
                    break
                at = following

    async def message_at(
        self, topic: str, broker_name: str, queue_id: int, queue_offset: int
    ) -> ReceivedMessage:
        """queryMsgByOffset: the message at a queue offset, from the master of the broker group;
        ClientError if the offset has no readable message, or the group is unknown."""
        queue = MessageQueue(topic, broker_name, queue_id)
        address = (await self._calls.replicas_of(broker_name))[0]
        subscription = parse_subscription(topic, ALL)
        at = QueueOffset(queue_offset)
        found, _ = await self._pull_messages(queue, address, at, subscription, count=1)
        for message in found:
            if message.queue_offset == queue_offset:
                return message
        raise ClientError(
            f"no message at offset {queue_offset} of {topic} {broker_name} {queue_id}"
        )

    async def resend_dead_letters(
        self, group: str, *, max_count: int = 0
    ) -> AsyncIterator[ResentMessage]:
        """Send the dead letters of a group to its retry topic, from which it consumes them again,
        while the caller iterates: each step sends a message and then yields it.

        The group's offset in %DLQ% is committed after each message, so a second call continues with
        later messages. A message is sent before its offset is committed: it may be sent twice,
        never lost. `max_count` 0 is for all. ClientError for a group without dead letters.
        """
        check_group(group)
        dead_topic = f"{DLQ_PREFIX}{group}"
        try:
            route = await self._calls.query_route(dead_topic)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise ClientError(f"group {group} has no dead letters") from None
            raise
        known = set(await self._calls.topic_names())
        subscription = parse_subscription(dead_topic, ALL)
        sent = 0
        for queue, address in _queues(dead_topic, route):
            at = await self._query_committed(group, queue, address)
            end = await self._max_offset(queue, address)
            while at < end:
                found, following = await self._pull_messages(queue, address, at, subscription)
                for message in found:
                    if sent == max_count and max_count:
                        return
                    resent = await self._resend(group, message, address, known)
                    await self._commit(group, queue, address, message.queue_offset + 1)
                    sent += 1
                    yield resent
                if following <= at:
                    break
                at = following

    async def _resend(
        self, group: str, dead: ReceivedMessage, address: str, known: set[str]
    ) -> ResentMessage:
        """Send a dead letter to the group's retry topic at `address`; `known` are the names of
        the cluster's topics, for the retry topic of a group that pops."""
        origin = dead.properties.get(names.RETRY_TOPIC) or dead.properties.get(
            names.DLQ_ORIGIN_TOPIC, ""
        )
        retry = f"{RETRY_PREFIX}{group}"
        popped = (f"{retry}+{origin}", f"{retry}_{origin}")
        target = next((name for name in popped if origin and name in known), retry)
        properties = {k: v for k, v in dead.properties.items() if k not in _DROPPED}
        if origin:
            properties[names.RETRY_TOPIC] = origin
        header = SendMessageRequestV2(
            producer_group=TOOLS_GROUP,
            topic=target,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=dead.born_timestamp_ms,
            flag=dead.flag,
            properties=encoded_properties(properties).decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            broker_name=dead.broker_name,
        )
        code = RequestCode.SEND_MESSAGE_V2
        await self._instance.ask(address, code, body=dead.body, fields=write_send(code, header))
        return ResentMessage(dead.message_id, origin or dead.topic, target)

    async def _pull_messages(
        self,
        queue: MessageQueue,
        address: str,
        at: QueueOffset,
        subscription: SubscriptionData,
        *,
        count: int = PULL_COUNT,
    ) -> tuple[list[ReceivedMessage], QueueOffset]:
        """Return (messages from a queue offset on, queue offset at which to continue) of a
        single pull."""
        header = PullMessageRequest(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=at,
            max_msg_nums=count,
            sys_flag=SUBSCRIPTION_FLAG,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=subscription.sub_string,
            expression_type=TAG,
            broker_name=queue.broker_name,
        )
        request = new_request(RequestCode.PULL_MESSAGE, header)
        response = await self._instance.call(address, request)
        if response.code not in _READ:
            raise BrokerError(response.code, response.remark, address)
        following = QueueOffset(read_header(PullMessageResponse, response.fields).next_begin_offset)
        if response.code != ResponseCode.SUCCESS:
            return [], following
        assert isinstance(response.body, bytes)
        received = received_each(response.body, queue.broker_name, "")
        wanted = [one for one in received.messages if _has_wanted_tag(subscription, one)]
        return wanted, received.end or following

    async def _offset_at(
        self, queue: MessageQueue, address: str, timestamp_ms: int | None
    ) -> QueueOffset:
        """The first queue offset that was stored at a time or
        later, or the smallest stored offset."""
        least = GetMinOffsetRequest(queue.topic, queue.queue_id, queue.broker_name)
        response = await self._instance.ask(address, RequestCode.GET_MIN_OFFSET, least)
        smallest = max(0, read_header(GetMinOffsetResponse, response.fields).offset)
        if timestamp_ms is None:
            return QueueOffset(smallest)
        header = SearchOffsetRequest(
            queue.topic, queue.queue_id, timestamp_ms, broker_name=queue.broker_name
        )
        response = await self._instance.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return QueueOffset(max(smallest, read_header(SearchOffsetResponse, response.fields).offset))

    async def _max_offset(self, queue: MessageQueue, address: str) -> QueueOffset:
        """Return the end of a queue, from the broker at `address`."""
        header = GetMaxOffsetRequest(queue.topic, queue.queue_id, broker_name=queue.broker_name)
        response = await self._instance.ask(address, RequestCode.GET_MAX_OFFSET, header)
        return QueueOffset(read_header(GetMaxOffsetResponse, response.fields).offset)

    async def _query_committed(self, group: str, queue: MessageQueue, address: str) -> QueueOffset:
        """The queue offset up to which the dead letters of a queue were sent again."""
        least = await self._offset_at(queue, address, None)
        header = QueryConsumerOffsetRequest(
            group, queue.topic, queue.queue_id, broker_name=queue.broker_name
        )
        response: Command = await self._instance.call(
            address, new_request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        )
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return least
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response.code, response.remark, address)
        found = read_header(QueryConsumerOffsetResponse, response.fields).offset
        return QueueOffset(max(least, found or 0))

    async def _commit(
        self, group: str, queue: MessageQueue, address: str, queue_offset: int
    ) -> None:
        """Commit the group's offset of a queue at the broker with this address."""
        header = UpdateConsumerOffsetRequest(
            group, queue.topic, queue.queue_id, queue_offset, queue.broker_name
        )
        await self._instance.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


_READ: Final = {
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}


def _has_wanted_tag(subscription: SubscriptionData, message: ReceivedMessage) -> bool:
    """Whether the message has a wanted tag: brokers compare only the tags' hashes."""
    return subscription.sub_string == ALL or subscription.wants_tag(message.tags)


def _queues(topic: str, route: TopicRouteData) -> Sequence[tuple[MessageQueue, str]]:
    """The readable queues of a route, each with an address of its broker."""
    brokers = {one.broker_name: one.broker_addrs for one in route.broker_datas if one.broker_addrs}
    counts = {
        data.broker_name: data.read_queue_nums
        for data in route.queue_datas
        if data.broker_name in brokers
    }
    return [
        (MessageQueue(topic, name, queue_id), brokers[name][min(brokers[name])])
        for name, count in bounded_queue_counts(sorted(counts.items()))
        for queue_id in range(count)
    ]
