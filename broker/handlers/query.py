"""Message queries: by key, by log offset, and the units of a consume queue.

Owns QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33) and QUERY_CONSUME_QUEUE (321). It must never decode
a body: records leave as they are stored.
"""

from functools import partial
from typing import Any, Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.json_responses import json_response
from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import MAX_BODY, Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.admin import (
    QueryConsumeQueueRequest,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
)
from turbopump.net.wire.subscription import SubscriptionData

MAX_FOUND: Final = 64
"""Maximum messages in an answer to 12; mqadmin asks for 64 (queryMsgByKey). RocketMQ has no
limit."""

UNIQUE_FOUND: Final = 32
"""Maximum messages in an answer to 12 by unique key, whatever maxNum is (defaultQueryMaxNum)."""

MAX_UNITS: Final = 4_096
"""Maximum units of a queue in an answer to 321: some 400 KB."""

_KINDS = frozenset({"K", "U", "T"})


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    table.add(RequestCode.QUERY_MESSAGE, partial(_query_message, broker))
    table.add(RequestCode.VIEW_MESSAGE_BY_ID, partial(_view_message, broker))
    table.add(RequestCode.QUERY_CONSUME_QUEUE, partial(_query_consume_queue, broker))


def _query_message(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """Answer 12 with the records that have the key, each once. RocketMQ also returns other keys
    with the same hash, which its clients filter out."""
    header = read_header(QueryMessageRequest, request.fields)
    unique = header.unique_key_query == "true"
    kind = (header.index_type or "").upper()
    if kind and kind not in _KINDS:
        remark = f"indexType {header.index_type} must be K, U or T"
        return new_response(request, ResponseCode.INVALID_PARAMETER, remark)
    if not kind and unique:
        kind = "U"
    count = UNIQUE_FOUND if unique else min(header.max_num, MAX_FOUND)
    found = broker.store.query(
        header.topic, header.key, max(count, 0), header.begin_timestamp, header.end_timestamp, kind
    )
    progress = QueryMessageResponse(found.last_timestamp_ms, found.last_log_offset)
    slices: list[memoryview] = []
    size = 0
    for record in found.slices:
        size += len(record)
        if size > MAX_BODY:
            break
        slices.append(record)
    if not slices:
        remark = "can not find message, maybe time range not correct"
        return new_response(request, ResponseCode.QUERY_NOT_FOUND, remark, progress)
    return new_response(request, ResponseCode.SUCCESS, header=progress, body=slices)


def _view_message(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """Answer 33 with the record at the log offset in the request."""
    header = read_header(ViewMessageRequest, request.fields)
    record = broker.store.record_view(LogOffset(header.offset))
    if record is None:
        remark = f"can not find message by the offset, {header.offset}"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    return new_response(request, ResponseCode.SUCCESS, body=[record])


def _query_consume_queue(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Command:
    """Answer 321 with the stored units of a queue and whether a group's subscription matches
    them."""
    header = read_header(QueryConsumeQueueRequest, request.fields)
    topic, queue_id = header.topic, header.queue_id
    store = broker.store
    if queue_id not in store.queue_ids(topic):
        remark = f"{queue_id}@{topic} is not exist!"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    first, end = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
    if not first <= header.index < end:
        remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
        return new_response(request, ResponseCode.SUCCESS, remark)
    subscription: SubscriptionData | None = None
    filter_data: str | None = None
    if header.consumer_group:
        subscription = broker.consumers.find_subscription(header.consumer_group, topic)
        offline = f"{header.consumer_group}@{topic} is not online!"
        filter_data = "null" if subscription else offline
    count = min(max(header.count, 0), MAX_UNITS)
    units = store.units(topic, queue_id, QueueOffset(header.index), count)
    body: dict[str, Any] = {
        "filterData": filter_data,
        "maxQueueIndex": end,
        "minQueueIndex": first,
        "queueData": [
            {
                # RocketMQ asks the filter only where a unit has an extension.
                "eval": unit.is_extended and _accepts(subscription, unit.tags_code),
                "physicOffset": unit.log_offset,
                "physicSize": unit.size,
                "tagsCode": unit.tags_code,
            }
            for unit in units
        ],
        "subscriptionData": subscription.to_json() if subscription else None,
    }
    return json_response(request, body)


def _accepts(subscription: SubscriptionData | None, tags_code: int) -> bool:
    """Whether a subscription accepts a message with this tags code; False without a
    subscription."""
    if subscription is None:
        return False
    codes = subscription.filter_codes
    return codes is None or tags_code in codes
