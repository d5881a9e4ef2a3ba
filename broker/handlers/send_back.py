"""CONSUMER_SEND_MSG_BACK (36): a message that a consumer failed to process is redelivered later, or
becomes a dead letter.

Owns the rules of RocketMQ's AbstractSendMessageProcessor.consumerSendMsgBack. It must never wait
for the delay itself: delay.py delivers.

Tests: tests/unit/broker/scheduled/test_delay.py
"""

from turbopump.broker.context import BrokerContext
from turbopump.broker.traffic.put_message import Draft, Refusal
from turbopump.broker.traffic.replies import REJECTED, SEE_FAQ
from turbopump.broker.traffic.timer_requests import TimerRefusal
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LogOffset, PutStatus
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import MAX_RECONSUME_SINCE, ConsumerSendMsgBackRequest
from turbopump.net.wire.message import reconsume_times_after
from turbopump.net.wire.message_id import encode_message_id
from turbopump.net.wire.names import DLQ_PREFIX, RETRY_PREFIX
from turbopump.net.wire.properties import decode_properties
from turbopump.net.wire.topics import PERM_READ, PERM_WRITE
from turbopump.pyx.record import Record

_FIRST_RETRY_LEVEL = 3  # 10 s; each further retry is one level later
_UNIT_SUB = 2  # bit of topicSysFlag


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handler of CONSUMER_SEND_MSG_BACK to the table, which must not have it yet."""

    def send_back(request: Command, _peer: Peer, now_ms: int) -> Command | Deferred[Command | None]:
        return _send_back(broker, request, now_ms)

    table.add(RequestCode.CONSUMER_SEND_MSG_BACK, send_back)


def _send_back(
    broker: BrokerContext, request: Command, now_ms: int
) -> Command | Deferred[Command | None]:
    """Handle 36: check the request, and store the message again for its group."""
    if not broker.role.is_master:
        return new_response(request, ResponseCode.SYSTEM_BUSY, REJECTED)
    header = read_header(ConsumerSendMsgBackRequest, request.fields)
    group = broker.groups.find_or_create(header.group, now_ms)
    if group is None:
        return new_response(
            request,
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, {header.group} {SEE_FAQ}",
        )
    if not broker.config.is_writable:
        return new_response(
            request,
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.config.broker_ip1}] sending message is forbidden",
        )
    if group.retry_queue_nums <= 0:
        return new_response(request, ResponseCode.SUCCESS)
    retry_topic = RETRY_PREFIX + header.group
    sys_flag = _UNIT_SUB if header.unit_mode else 0
    topic = broker.topics.create_internal(
        retry_topic, group.retry_queue_nums, PERM_READ | PERM_WRITE, now_ms, sys_flag=sys_flag
    )
    if topic is None:
        return new_response(request, ResponseCode.SYSTEM_ERROR, f"topic[{retry_topic}] not exist")
    if not topic.is_writable:
        return new_response(
            request,
            ResponseCode.NO_PERMISSION,
            f"the topic[{retry_topic}] sending message is forbidden",
        )
    record = broker.store.record(LogOffset(header.offset))
    if record is None or not record.crc_ok:
        return new_response(
            request, ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}"
        )
    # The topic may date from a time with fewer retry queues; then the other queues have no readers.
    queues = max(1, min(group.retry_queue_nums, topic.read_queue_nums))
    return _store_retry(broker, request, header, group, queues, record, now_ms)


def _store_retry(
    broker: BrokerContext,
    request: Command,
    header: ConsumerSendMsgBackRequest,
    group: SubscriptionGroupConfig,
    queues: int,
    record: Record,
    now_ms: int,
) -> Command | Deferred[Command | None]:
    """Store a copy of the record in the group's retry topic, delayed, or in its dead letter topic
    if its retries are used up; return the answer. `queues`: the retry topic's number of queues to
    choose from."""
    properties = decode_properties(record.properties)
    properties.setdefault(names.RETRY_TOPIC, record.topic.decode())
    properties[names.WAIT] = "false"
    own_id = encode_message_id(record.store_host, LogOffset(record.physical_offset))
    properties.setdefault(names.ORIGIN_MESSAGE_ID, own_id)
    limit = group.retry_max_times
    if request.version >= MAX_RECONSUME_SINCE and header.max_reconsume_times is not None:
        limit = header.max_reconsume_times
    if record.reconsume_times >= limit or header.delay_level < 0:
        name, queue_id, level = DLQ_PREFIX + header.group, 0, 0
        if broker.topics.create_internal(name, 1, PERM_READ | PERM_WRITE, now_ms) is None:
            return new_response(request, ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
    else:
        name = RETRY_PREFIX + header.group
        queue_id = broker.random.randrange(queues)
        level = header.delay_level or _FIRST_RETRY_LEVEL + record.reconsume_times
    properties[names.DELAY] = str(level)
    draft = Draft(
        topic=name,
        queue_id=queue_id,
        body=record.body,
        properties=properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        reconsume_times=reconsume_times_after(record.reconsume_times),
        is_copy=True,
    )
    outcome = broker.writer.put(draft, now_ms, must_wait=True)
    if isinstance(outcome, Refusal | TimerRefusal):
        return _make_response(request, outcome.value)
    if outcome.appended.status is not PutStatus.PUT_OK:
        return _make_response(request, outcome.appended.status.value)
    broker.statistics.count_sent_back(header.group, properties[names.RETRY_TOPIC])
    # The consumer commits its offset after this answer, so the copy must be as safe as the original
    # was (RocketMQ does not wait here).
    safe = broker.role.when_safe(*outcome)
    return safe.map(lambda status: _make_response(request, status.value))


def _make_response(request: Command, status: str) -> Command:
    """The answer for the status of a put, a name as in RocketMQ: success, or SYSTEM_ERROR with the
    name."""
    if status == PutStatus.PUT_OK.value:
        return new_response(request, ResponseCode.SUCCESS)
    return new_response(request, ResponseCode.SYSTEM_ERROR, status)
