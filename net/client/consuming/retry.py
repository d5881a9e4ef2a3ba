"""Sending a failed message back: to its broker or, if that fails, as a new message.

Owns CONSUMER_SEND_MSG_BACK and its fallback (DefaultMQPushConsumerImpl.sendMessageBack). It must
never decide whether a message failed.

Tests: tests/unit/net/client/consuming/test_delivery.py
"""

import logging
from typing import Final

from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.errors import BrokerError, ClientError
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.sending import DEFAULT_TOPIC_QUEUES, encoded_properties, send_result
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.send import (
    ConsumerSendMsgBackRequest,
    SendMessageRequestV2,
    write_send,
)
from turbopump.net.wire.message import reconsume_times_after
from turbopump.net.wire.names import AUTO_CREATE_TOPIC, RETRY_PREFIX
from turbopump.net.wire.queues import MessageQueue

logger = logging.getLogger(__name__)

SEND_BACK_TIMEOUT_MS: Final = 5000
"""Timeout of a send-back in milliseconds, as in RocketMQ."""

INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"
"""The producer group under which RocketMQ's clients send retries themselves."""

DEAD_LETTER: Final = -1
"""The delay level of messages for %DLQ%."""

FIRST_DELAY_LEVEL: Final = 3
"""Delay level of the first retry (10 s); each further retry has the next level."""


class Retries:
    """Sends a group's failed messages back; after `limit` retries the broker makes a message a dead
    letter."""

    def __init__(self, instance: ClientInstance, group: str, limit: int) -> None:
        self._instance = instance
        self._group = group
        self._limit = limit

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Have the message's broker store it for a later delivery, or else send it as a new message
        to the group's retry topic; waits for the answers. False if no broker accepted it; failures
        are logged.

        `delay_level` 0 lets the broker choose by the number of retries, DEAD_LETTER makes it a dead
        letter, which only the message's own broker can do.
        """
        try:
            await self._ask_broker(message, delay_level)
            return True
        except (ClientError, RemotingError) as error:
            logger.warning("message %s was not sent back: %s", message.message_id, error)
        return delay_level != DEAD_LETTER and await self._send_as_new(message)

    async def send_back_unread(self, message: ReceivedMessage) -> bool:
        """Send back a message that cannot be read: only the broker, which has it, can store it
        again.

        False if the broker refuses. Raises ClientError without a master, RemotingError without an
        answer.
        """
        try:
            await self._ask_broker(message, 0)
        except BrokerError as error:
            logger.warning("message %s was not sent back: %s", message.message_id, error)
            return False
        return True

    async def send_to_dead_letters(self, message: ReceivedMessage) -> bool:
        """Have the message's broker store it in the group's dead letters (%DLQ%); False if it did
        not accept it."""
        return await self.send_back(message, DEAD_LETTER)

    async def _ask_broker(self, message: ReceivedMessage, delay_level: int) -> None:
        """Send CONSUMER_SEND_MSG_BACK to the message's broker. Raises ClientError without a
        master, BrokerError, RemotingError."""
        header = ConsumerSendMsgBackRequest(
            offset=message.log_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=self._limit,
            broker_name=message.broker_name,
        )
        master = self._instance.brokers.master_address(message.broker_name)
        if master is None:
            raise ClientError(f"broker {message.broker_name} has no master")
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        await self._instance.ask(master, code, header, timeout_ms=SEND_BACK_TIMEOUT_MS)

    async def _send_as_new(self, message: ReceivedMessage) -> bool:
        """Send the message to the group's retry topic as a new message; False if no queue
        accepted it."""
        topic = f"{RETRY_PREFIX}{self._group}"
        try:
            route = await self._instance.route(topic)
            for queue in route.publish if route is not None else ():
                if await self._send_to(message, queue):
                    return True
        except (ClientError, RemotingError) as error:
            logger.warning("no route of %s: %s", topic, error)
        return False

    async def _send_to(self, message: ReceivedMessage, queue: MessageQueue) -> bool:
        """Send the message to a queue of the retry topic; False if that failed."""
        address = self._instance.brokers.master_address(queue.broker_name)
        if address is None:
            return False
        request = retry_send_request(message, queue, self._limit, self._instance.now_ms())
        try:
            response = await self._instance.call(address, request, SEND_BACK_TIMEOUT_MS)
            send_result(response, queue, message.message_id, address)
        except (ClientError, RemotingError) as error:
            logger.warning("retry of %s was not sent: %s", message.message_id, error)
            return False
        return True


def retry_send_request(
    message: ReceivedMessage, queue: MessageQueue, limit: int, now_ms: int
) -> Command:
    """Build SEND_MESSAGE_V2 for `queue` of the group's retry topic from a failed message, which is
    not changed (messages.md 6.3). `now_ms` (epoch milliseconds) becomes the born timestamp.

    The broker takes the number of retries and their `limit` from the header, not the properties.
    """
    properties = dict(message.properties)
    properties.pop(names.TRAN_MSG, None)
    properties.setdefault(names.RETRY_TOPIC, message.topic)
    properties.setdefault(names.ORIGIN_MESSAGE_ID, message.offset_message_id)
    properties[names.DELAY] = str(FIRST_DELAY_LEVEL + message.reconsume_times)
    header = SendMessageRequestV2(
        producer_group=INNER_GROUP,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=now_ms,
        flag=message.flag,
        properties=encoded_properties(properties).decode(),
        reconsume_times=reconsume_times_after(message.reconsume_times),
        unit_mode=False,
        max_reconsume_times=limit,
        batch=False,
        broker_name=queue.broker_name,
    )
    code = RequestCode.SEND_MESSAGE_V2
    return new_request(code, body=message.body, fields=write_send(code, header))
