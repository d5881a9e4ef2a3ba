"""Requests that only a client can answer: the broker forwards them and returns the answer.

Owns GET_CONSUMER_RUNNING_INFO (307), CONSUME_MESSAGE_DIRECTLY (309),
INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223, forwarded as 221) and the push of an offset reset to
clients (220) (RocketMQ: Broker2Client). It must never change an answer of a client.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from turbopump.broker.context import BrokerContext
from turbopump.engine.deferred import gather
from turbopump.engine.fastjson import RawKeys
from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import MAX_BODY, Command, new_request, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.clients import (
    ConsumeMessageDirectlyResultRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    ResetOffsetRequest,
)
from turbopump.net.wire.message_id import decode_message_id
from turbopump.net.wire.queues import MessageQueue

RELAY_TIMEOUT_MS: Final = 10_000
"""Timeout of a client's answer to 307 and 309, in ms, as in RocketMQ's Broker2Client."""
STATUS_TIMEOUT_MS: Final = 5_000
"""Timeout of a client's answer to 221, in ms, as in RocketMQ's Broker2Client."""

MAX_STATUS: Final = 128 << 10
"""Maximum bytes of a client's answer to 221: over 1,000 queues; a longer answer is ignored."""

MEMBERS_PER_STEP: Final = 10
"""Connections that are notified of a reset (220) in one step; each receives up to 16 MB."""

_V3_1_8 = 62  # first client version that answers 307 and 309
_V3_0_7 = 28  # first client version that understands 220 and 221


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    table.add(RequestCode.GET_CONSUMER_RUNNING_INFO, partial(_running_info, broker))
    table.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, partial(_consume_directly, broker))
    table.add(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, partial(_consumer_status, broker))


def push_reset(
    broker: BrokerContext,
    request: Command,
    header: ResetOffsetRequest,
    targets: Mapping[MessageQueue, QueueOffset],
) -> Steps[Command]:
    """Send each online member of the group the new offsets `targets` of its queues (220, one-way),
    and return the answer to `request`: success with the offsets, also if a member does not get
    them; an error if the group is offline or has a client that is too old. It commits no offset.

    Only for useServerSideResetOffset=false (RocketMQ: Broker2Client.resetOffset).
    """
    group = broker.consumers.group(header.group)
    if group is None:
        remark = (
            f"Consumer not online, so can not reset offset, Group: {header.group} "
            f"Topic: {header.topic} Timestamp: {header.timestamp}"
        )
        return new_response(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
    old = [member.version for member in group.members.values() if member.version < _V3_0_7]
    if old:
        remark = f"the client does not support this feature. version={old[0]}"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    table, beans = RawKeys(), list[dict[str, Any]]()
    for queue, at in targets.items():
        table[queue.bean_key()] = at
        beans.append({**queue.to_json(), "offset": at})
        if len(beans) % bodies.READ == 0:
            yield
    as_map = yield from bodies.dump_in_steps({"offsetTable": table}, MAX_BODY)
    as_list = yield from bodies.dump_in_steps({"offsetTable": beans}, MAX_BODY)
    if as_map is None or as_list is None:
        remark = f"the offsets of {len(targets)} queues do not fit into one frame"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    pushed = ResetOffsetRequest(header.topic, header.group, header.timestamp, header.is_force)
    for number, (peer, member) in enumerate(list(group.members.items()), 1):
        if number % MEMBERS_PER_STEP == 0:
            yield
        # The C++ client cannot read a map with bean keys.
        body = as_list if member.language == "CPP" else as_map
        code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        peer.notify(new_request(code, pushed, body, oneway=True))
    return new_response(request, ResponseCode.SUCCESS, body=as_map)


def _running_info(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Response:
    """Handle 307: return the client's own answer about its state."""
    header = read_header(GetConsumerRunningInfoRequest, request.fields)
    return _relay_to_client(broker, request, header.consumer_group, header.client_id, {}, b"")


def _consume_directly(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Response:
    """Handle 309: forward the record with the request; the client consumes it and answers with the
    result."""
    header = read_header(ConsumeMessageDirectlyResultRequest, request.fields)
    try:
        _host, log_offset = decode_message_id(header.msg_id or "")
    except ValueError as error:
        return new_response(request, ResponseCode.SYSTEM_ERROR, f"msgId is malformed: {error}")
    record = broker.store.record_view(LogOffset(log_offset))
    if record is None:
        remark = f"can not find message by the offset, {log_offset}"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    added = {"brokerName": broker.config.broker_name}
    client_id = header.client_id or ""
    return _relay_to_client(broker, request, header.consumer_group, client_id, added, bytes(record))


def _relay_to_client(
    broker: BrokerContext,
    request: Command,
    group_name: str,
    client_id: str,
    added_fields: dict[str, str],
    body: bytes,
) -> Response:
    """Forward a request to the client `client_id` of the group, with added fields and this body,
    and return its answer unchanged (callConsumer); an error if the client is not connected or too
    old."""
    group = broker.consumers.group(group_name)
    client = group.find(client_id) if group else None
    if group is None or client is None:
        remark = f"The Consumer <{group_name}> <{client_id}> not online"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    version = group.members[client].version
    if version < _V3_1_8:
        remark = (
            f"The Consumer <{client_id}> Version <{version}> too low to finish, "
            "please upgrade it to V3_1_8_SNAPSHOT"
        )
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    passed_on = new_request(request.code, None, body, fields={**request.fields, **added_fields})
    response = client.call(passed_on, RELAY_TIMEOUT_MS)
    return response.map(partial(_relayed_answer, request, group_name, client_id, client))


def _relayed_answer(
    request: Command, group_name: str, client_id: str, client: Peer, response: Command | None
) -> Command | None:
    """Make the answer to the request from the client's answer; an error if it is missing (None)."""
    if response is not None:
        fields = response.fields
        return new_response(
            request, response.code, response.remark, body=response.body, fields=fields
        )
    if client.closed:
        remark = f"invoke consumer <{group_name}> <{client_id}> Exception: connection closed"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
    remark = f"consumer <{group_name}> <{client_id}> Timeout: {RELAY_TIMEOUT_MS} ms"
    return new_response(request, ResponseCode.CONSUME_MSG_TIMEOUT, remark)


def _consumer_status(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Response:
    """Handle 223: ask every client of the group (or a named one) for its offsets, and merge the
    answers."""
    header = read_header(GetConsumerStatusRequest, request.fields)
    group = broker.consumers.group(header.group)
    if group is None:
        remark = f"No Any Consumer online in the consumer group: [{header.group}]"
        return new_response(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
    asked = {
        peer: member
        for peer, member in group.members.items()
        if not header.client_addr or header.client_addr == member.client_id
    }
    old = [member.version for member in asked.values() if member.version < _V3_0_7]
    if old:
        remark = f"the client does not support this feature. version={old[0]}"
        return new_response(request, ResponseCode.SYSTEM_ERROR, remark)

    def answer(statuses: list[RawKeys | None]) -> Command:
        members = zip(asked.values(), statuses, strict=True)
        table = {member.client_id: one for member, one in members if one is not None}
        body = bodies.encode_json({"consumerTable": table})
        return new_response(request, ResponseCode.SUCCESS, body=body)

    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    question = GetConsumerStatusRequest(header.topic, header.group)
    responses = [peer.call(new_request(code, question), STATUS_TIMEOUT_MS) for peer in asked]
    return gather([one.map(_read_status) for one in responses]).map(answer)


def _read_status(response: Command | None) -> RawKeys | None:
    """The offsets in one client's answer; None if the answer is missing or malformed."""
    if response is None or response.code != ResponseCode.SUCCESS:
        return None
    try:
        if len(response.body) > MAX_STATUS:
            return None
        members = bodies.load_object(response.body)
        queues = bodies.read_table(
            members, "messageQueueTable", partial(bodies.as_int, name="offset")
        )
        return RawKeys((MessageQueue.from_key(key).bean_key(), at) for key, at in queues.items())
    except bodies.BadBody:
        return None
