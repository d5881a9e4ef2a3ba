"""SEND_REPLY_MESSAGE and _V2 (324, 325): a consumer's reply to the producer of a request.

Owns the push to the producer (326) and the answer (RocketMQ: ReplyMessageProcessor). It must never
wait for a producer before storing: the log's times would run backwards.
"""

from functools import partial
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.send import topic_for_send
from turbopump.broker.handlers.send_refusals import SendRefused
from turbopump.broker.traffic.put_message import TRANSACTION_BITS, Draft
from turbopump.broker.traffic.role import Put
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import Appended, PutStatus
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.headers.clients import ReplyMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequest, SendMessageResponse, read_send
from turbopump.net.wire.message_id import encode_message_id
from turbopump.net.wire.properties import decode_properties, encode_properties

PUSH_TIMEOUT_MS: Final = 10_000
"""Timeout of the producer's answer to the push (326), in ms, as in RocketMQ's Broker2Client."""


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    table.add(RequestCode.SEND_REPLY_MESSAGE, partial(_handle_reply, broker))
    table.add(RequestCode.SEND_REPLY_MESSAGE_V2, partial(_handle_reply, broker))


def _handle_reply(broker: BrokerContext, request: Command, peer: Peer, now_ms: int) -> Response:
    """Store the reply and push it to the producer; the code of the answer depends on the push
    alone.

    A reply that could not be stored but was delivered is a success, as in RocketMQ; its message id
    is 0.
    """
    header = read_send(request.code, request.fields)
    try:
        topic_for_send(broker, header, peer, now_ms)
    except SendRefused as refused:
        return _make_answer(broker, request, refused.code, refused.remark)
    if not request.body or isinstance(request.body, list):
        remark = "the message has no body"
        return _make_answer(broker, request, ResponseCode.SYSTEM_ERROR, remark)
    properties = decode_properties(header.properties or "")
    properties[names.MSG_REGION] = broker.config.region_id
    properties[names.TRACE_ON] = "true" if broker.config.trace_on else "false"
    client_id = properties.get(names.REPLY_TO_CLIENT)
    stored, outcome = _store_reply(broker, request, header, peer, properties, now_ms)
    if client_id is None:
        remark = "push reply message fail, property[REPLY_TO_CLIENT] is null"
        return _make_answer(broker, request, ResponseCode.SYSTEM_ERROR, remark, stored)
    producer = broker.producers.find(client_id)
    if producer is None:
        remark = f"push reply message fail, channel of <{client_id}> not found."
        return _make_answer(broker, request, ResponseCode.SYSTEM_ERROR, remark, stored)
    push = _push_request(broker, request, header, peer, properties, now_ms)
    answered: Deferred[Command | None] = Deferred()
    safe = broker.role.when_safe(*outcome)

    def pushed(response: Command | None) -> None:
        # The answer contains the reply's log position, so it waits until the reply is stored
        # safely.
        reply = _answer_pushed(broker, request, client_id, stored, response)
        safe.then(lambda _status: answered.resolve(reply))

    producer.call(push, PUSH_TIMEOUT_MS).then(pushed)
    return answered


def _store_reply(
    broker: BrokerContext,
    request: Command,
    header: SendMessageRequest,
    peer: Peer,
    properties: dict[str, str],
    now_ms: int,
) -> tuple[SendMessageResponse, Put]:
    """Store the reply as a message; return (fields of the answer, result of the put). A reply that
    was not stored has message id "0"."""
    queue_id = max(header.queue_id, 0)
    assert not isinstance(request.body, list), "a decoded body is bytes"
    draft = Draft(
        topic=header.topic,
        queue_id=queue_id,
        body=request.body,
        properties=dict(properties),
        flag=header.flag,
        sys_flag=header.sys_flag & ~TRANSACTION_BITS,
        born_timestamp_ms=header.born_timestamp,
        born_host=peer.host,
        reconsume_times=header.reconsume_times or 0,
    )
    outcome = broker.writer.put(draft, now_ms)
    if not isinstance(outcome, Put):
        outcome = Put(Appended(PutStatus.UNKNOWN_ERROR))
    appended = outcome.appended
    if appended.status is not PutStatus.PUT_OK:
        return SendMessageResponse("0", queue_id, 0), outcome
    message_id = encode_message_id(broker.store_host, appended.log_offsets[0])
    return SendMessageResponse(message_id, queue_id, appended.queue_offset), outcome


def _push_request(
    broker: BrokerContext,
    request: Command,
    header: SendMessageRequest,
    peer: Peer,
    properties: dict[str, str],
    now_ms: int,
) -> Command:
    """Build the request 326 that pushes the reply to the producer."""
    pushed = {names.PUSH_REPLY_TIME: str(now_ms), **properties}
    reply = ReplyMessageRequest(
        producer_group=header.producer_group,
        topic=header.topic,
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        queue_id=header.queue_id,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        flag=header.flag,
        born_host=peer.address,
        store_host=broker.address,
        store_timestamp=now_ms,
        properties=str(encode_properties(pushed), "utf-8"),
        reconsume_times=header.reconsume_times,
        unit_mode=header.unit_mode,
    )
    return new_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, reply, request.body)


def _answer_pushed(
    broker: BrokerContext,
    request: Command,
    client_id: str,
    stored: SendMessageResponse,
    response: Command | None,
) -> Command | None:
    """Make the answer to the consumer: a success if the producer accepted the reply."""
    if response is not None and response.code == ResponseCode.SUCCESS:
        return _make_answer(broker, request, ResponseCode.SUCCESS, None, stored)
    remark = f"push reply message to <{client_id}> fail."
    return _make_answer(broker, request, ResponseCode.SYSTEM_ERROR, remark, stored)


def _make_answer(
    broker: BrokerContext,
    request: Command,
    code: ResponseCode,
    remark: str | None,
    header: SendMessageResponse | None = None,
) -> Command:
    """Build an answer with the fields that clients read from every answer to a send."""
    fields = {
        names.MSG_REGION: broker.config.region_id,
        names.TRACE_ON: "true" if broker.config.trace_on else "false",
    }
    return new_response(request, code, remark, header, fields=fields)
