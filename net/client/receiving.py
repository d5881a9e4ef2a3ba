"""Conversion of stored records into the messages that a program receives.

Owns the reading of a record's properties into ReceivedMessage, and the check of a message that a
program hands back. It must never filter or call.

Tests: tests/unit/net/client/consuming/test_pulling.py, tests/wire/test_golden_client.py
"""

import logging
from dataclasses import dataclass, field
from typing import Final

from turbopump.engine.types import Buffer, QueueOffset
from turbopump.net.client.errors import InvalidArgument, check_type
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.wire import hosts
from turbopump.net.wire import properties as names
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.message import MessageView, Unreadable, decode_each, decode_messages
from turbopump.net.wire.names import RETRY_PREFIX

logger = logging.getLogger(__name__)


def received_messages(body: Buffer, broker_name: str, group: str = "") -> list[ReceivedMessage]:
    """Decode the records in the body of a pull or query answer, in their order; bodies are
    decompressed.

    `broker_name` is copied into each message. `group` is the group whose retry topic is unwrapped:
    such a message shows the topic it was first sent to
    (DefaultMQPushConsumerImpl.resetRetryAndNamespace). Raises BadBody for any bytes that are no
    record or body, and CompressionMissing for a method whose package is not installed.
    """
    retry_topic = f"{RETRY_PREFIX}{group}"
    return [_to_received(view, broker_name, retry_topic) for view in decode_messages(body)]


@dataclass(slots=True)
class Received:
    """The body of a pull's answer, message by message.

    `messages` are in the order of the answer. `unreadable` are messages whose body cannot be read,
    each with the error; their `body` is as stored. `end` is set if bytes that are not a record cut
    the answer short: the queue offset at which to continue; else None.
    """

    messages: list[ReceivedMessage] = field(default_factory=list)
    unreadable: list[tuple[ReceivedMessage, Exception]] = field(default_factory=list)
    end: QueueOffset | None = None


def received_each(body: Buffer, broker_name: str, group: str) -> Received:
    """Decode like `received_messages`, record by record: a bad body makes its message `unreadable`,
    and bytes that are no record end the answer, with a log line. Raises BadBody only if the body
    begins with such bytes."""
    retry_topic = f"{RETRY_PREFIX}{group}"
    received = Received()
    end: QueueOffset | None = None
    try:
        for found in decode_each(body):
            view = found.message if isinstance(found, Unreadable) else found
            message = _to_received(view, broker_name, retry_topic)
            if isinstance(found, Unreadable):
                received.unreadable.append((message, found.error))
            else:
                received.messages.append(message)
            end = QueueOffset(view.queue_offset + 1)
    except BadBody as error:
        if end is None:
            raise
        logger.warning(
            "an answer of broker %s can be read only up to offset %d: %s", broker_name, end, error
        )
        received.end = end
    return received


def received_alone(view: MessageView, broker_name: str) -> ReceivedMessage:
    """Convert a message that came without a pull, such as that of a transaction check; a retry
    topic is not unwrapped."""
    return _to_received(view, broker_name, "")


NOT_POPPED: Final = "the message was not received by a simple consumer"
"""Text of the InvalidArgument for a message without a usable handle."""


def handle_text(message: ReceivedMessage) -> str:
    """The handle by which a popped message is acknowledged, its property POP_CK. Raises
    InvalidArgument for a message without it, and for another object."""
    check_type(message, ReceivedMessage, "the message", "a received message")
    text = message.properties.get(names.POP_CK, "")
    if not text:
        raise InvalidArgument(NOT_POPPED)
    return text


def _to_received(view: MessageView, broker_name: str, retry_topic: str) -> ReceivedMessage:
    """Convert a stored message; a message of `retry_topic` gets the topic it was first sent to."""
    properties = view.properties
    topic = view.topic
    if topic == retry_topic:
        topic = properties.get(names.RETRY_TOPIC, topic)
    return ReceivedMessage(
        topic=topic,
        body=view.body,
        tags=properties.get(names.TAGS, ""),
        keys=tuple(properties.get(names.KEYS, "").split()),
        properties=properties,
        flag=view.flag,
        message_id=view.message_id,
        offset_message_id=view.offset_message_id,
        broker_name=broker_name,
        queue_id=view.queue_id,
        queue_offset=view.queue_offset,
        log_offset=view.log_offset,
        sys_flag=view.sys_flag,
        born_timestamp_ms=view.born_timestamp_ms,
        born_host=hosts.unpack_host(view.born_host),
        store_timestamp_ms=view.store_timestamp_ms,
        store_host=hosts.unpack_host(view.store_host),
        reconsume_times=view.reconsume_times,
        prepared_transaction_offset=view.prepared_transaction_offset,
        body_crc=view.body_crc,
        store_size=view.size,
        stored_topic=view.topic,
    )
