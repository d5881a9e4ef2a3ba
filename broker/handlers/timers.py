"""Timer requests of replicas, operators and producers.

Owns GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61) and RECALL_MESSAGE (370). It must never
deliver or count a timer: broker/scheduled/timers.py does.

Tests: tests/unit/broker/scheduled/test_timers.py
"""

import re
from functools import partial
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.json_responses import response_in_steps
from turbopump.broker.scheduled.timer_messages import delete_key
from turbopump.broker.traffic.put_message import Draft
from turbopump.broker.traffic.role import Put
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import PutStatus
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import RecallMessageRequest, RecallMessageResponse
from turbopump.net.wire.message_id import INVALID, RecallHandle, decode_handle
from turbopump.net.wire.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

RECALL_TAG: Final = "_RECALL_TAG_"
"""Tag of a stored recall message, RocketMQ's."""
RECALL_UNAVAILABLE: Final = "recall failed, broker service not available"
"""Remark of a recall (370) that this broker cannot serve now, RocketMQ's."""
RECALL_FAILED: Final = "recall failed, execute error"
"""Remark of a recall (370) whose message was not stored, RocketMQ's."""
_STORED = (
    PutStatus.PUT_OK,
    PutStatus.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE,
)
_MS = re.compile(r"[0-9]{1,18}", re.ASCII)


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    table.add(RequestCode.GET_TIMER_CHECK_POINT, partial(_check_point, broker))
    table.add(RequestCode.GET_TIMER_METRICS, partial(_query_metrics, broker))
    table.add(RequestCode.RECALL_MESSAGE, partial(_recall, broker))


def _check_point(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Command:
    """Answer 60, for replicas, with the progress of timers whose deliveries the replicas are sure
    to have."""
    if not broker.config.timer_wheel_enable:
        return new_response(request, ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
    return new_response(
        request, ResponseCode.SUCCESS, body=broker.timers.replica_checkpoint().encode()
    )


def _query_metrics(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Command | Steps[Command]:
    """Answer 61 with the number of waiting timers of each topic."""
    if not broker.config.timer_wheel_enable:
        return new_response(request, ResponseCode.SYSTEM_ERROR, "The timerMessageStore is null")
    return response_in_steps(request, broker.timers.metrics_json())


def _recall(
    broker: BrokerContext, request: Command, peer: Peer, now_ms: int
) -> Command | Deferred[Command | None]:
    """Handle 370: store a recall message in the slot of the timer, so that neither of them is
    delivered (RecallMessageProcessor)."""
    header = read_header(RecallMessageRequest, request.fields)
    region = {names.MSG_REGION: broker.config.region_id}
    refused = _check_recall(broker, header, now_ms)
    if isinstance(refused, tuple):
        return new_response(request, *refused, fields=region)
    draft = _recall_draft(broker, header, refused, peer, now_ms)
    outcome = broker.writer.put(draft, now_ms, must_wait=True, is_sent=True)
    if not isinstance(outcome, Put):
        return new_response(request, ResponseCode.SYSTEM_ERROR, RECALL_FAILED, fields=region)

    def reply(status: PutStatus) -> Command | None:
        if status not in _STORED:
            return new_response(request, ResponseCode.SYSTEM_ERROR, RECALL_FAILED, fields=region)
        recalled = RecallMessageResponse(refused.message_id)
        return new_response(request, ResponseCode.SUCCESS, None, recalled, fields=region)

    return broker.role.when_safe(*outcome).map(reply)


def _check_recall(
    broker: BrokerContext, header: RecallMessageRequest, now_ms: int
) -> tuple[ResponseCode, str] | RecallHandle:
    """Check a recall request: return (code, remark) of the refusal, or the decoded handle."""
    config = broker.config
    if not config.recall_message_enable:
        return ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden"
    if not broker.role.is_master:
        return ResponseCode.SLAVE_NOT_AVAILABLE, RECALL_UNAVAILABLE
    is_closed = not (config.is_writable or config.allow_recall_when_broker_not_writeable)
    if is_closed or now_ms < config.start_accept_send_request_timestamp_ms:
        return ResponseCode.SERVICE_NOT_AVAILABLE, RECALL_UNAVAILABLE
    if broker.topics.get(header.topic) is None:
        return (
            ResponseCode.TOPIC_NOT_EXIST,
            f"recall failed, the topic[{header.topic[:255]}] not exist",
        )
    try:
        handle = decode_handle(header.recall_handle)
    except ValueError as error:
        return ResponseCode.ILLEGAL_OPERATION, str(error)
    if not handle.message_id or not _is_printable(handle, header):
        return ResponseCode.ILLEGAL_OPERATION, INVALID
    if handle.topic != header.topic:
        return ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match"
    if handle.broker_name != config.broker_name:
        return ResponseCode.ILLEGAL_OPERATION, RECALL_UNAVAILABLE
    due_ms = int(handle.timestamp) if _MS.fullmatch(handle.timestamp) else -1
    if not 0 < due_ms - now_ms < config.timer_max_delay_sec * 1_000:
        return ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid"
    return handle


def _is_printable(handle: RecallHandle, header: RecallMessageRequest) -> bool:
    """Whether the texts contain no separator and so can be values of properties."""
    texts = f"{handle.message_id}{header.producer_group or ''}"
    return PROPERTY_SEPARATOR not in texts and NAME_VALUE_SEPARATOR not in texts


def _recall_draft(
    broker: BrokerContext,
    header: RecallMessageRequest,
    handle: RecallHandle,
    peer: Peer,
    now_ms: int,
) -> Draft:
    """Build the message that recalls the handle's timer."""
    with_topic = broker.config.append_topic_for_timer_delete_key
    properties = {
        names.TAGS: RECALL_TAG,
        names.TIMER_DEL_UNIQKEY: delete_key(handle.topic, handle.message_id, with_topic=with_topic),
        names.UNIQ_KEY: handle.message_id,
        names.TIMER_DELIVER_MS: handle.timestamp,
        names.BORN_TIMESTAMP: str(now_ms),
    }
    if header.producer_group:
        properties[names.PGROUP] = header.producer_group
    return Draft(
        topic=handle.topic,
        queue_id=0,
        body=b"0",
        properties=properties,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=now_ms,
        born_host=peer.host,
    )
