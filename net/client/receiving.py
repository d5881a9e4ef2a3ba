"""Stored records as the messages a program sees.

Owns the reading of a record's properties into ReceivedMessage. It must never filter or call.
Called by the pull loops and the admin client.
"""

from turbopump.engine.types import Buffer
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.wire import hosts
from turbopump.net.wire import properties as names
from turbopump.net.wire.message import MessageView, decode_messages


def received_messages(body: Buffer, broker_name: str, group: str = "") -> list[ReceivedMessage]:
    """The messages in the body of a pull or query answer.

    `group` is the group whose retry topic is unwrapped: such a message shows the topic it was
    first sent to (DefaultMQPushConsumerImpl.resetRetryAndNamespace). Raises BadBody and
    CompressionMissing.
    """
    retry_topic = f"%RETRY%{group}"
    return [_received(view, broker_name, retry_topic) for view in decode_messages(body)]


def _received(view: MessageView, broker_name: str, retry_topic: str) -> ReceivedMessage:
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
        born_host=hosts.unpack(view.born_host),
        store_timestamp_ms=view.store_timestamp_ms,
        store_host=hosts.unpack(view.store_host),
        reconsume_times=view.reconsume_times,
        prepared_transaction_offset=view.prepared_transaction_offset,
        body_crc=view.body_crc,
        store_size=view.size,
        stored_topic=view.topic,
    )
