"""SendMessage, EndTransaction and RecallMessage: the requests of producers.

Owns the way of a message to the send handler, and the conversion of the handler's response. It must
never store anything, nor check a message: message_conversion.py does.

RocketMQ's proxy remembers for half a minute where a half message is stored. Here the transaction id
contains the place, and clients return the id unchanged.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from turbopump.net.grpc.codes import Code, MessageType, TransactionResolution, TransactionSource
from turbopump.net.grpc.messages import message_class
from turbopump.net.messaging.backend import RequestBackend
from turbopump.net.messaging.message_conversion import (
    check_sendable,
    kind_of,
    send_fields,
    stored_body,
)
from turbopump.net.messaging.routes import type_of
from turbopump.net.messaging.rpc import (
    REQUEST_MAX,
    ResponseEntries,
    Rpc,
    RpcRefused,
    check_not_system,
    check_response,
    code_of,
    status,
    topic_of,
)
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.send import RecallMessageRequest
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.net.wire.message import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from turbopump.net.wire.message_id import decode_handle, decode_message_id
from turbopump.net.wire.topics import MIXED

MESSAGES_MAX: Final = 512
"""Maximum number of messages in a request."""
MESSAGES_PER_STEP: Final = 16
"""Number of messages in a step; a request with fewer is executed at once."""
LIGHT_MAX: Final = 256 << 10
"""Maximum bytes of a request besides the bodies: sixteen times a message's limit."""

_STORED: Final = frozenset(
    {
        Code.OK,
        Code.MASTER_PERSISTENCE_TIMEOUT,
        Code.SLAVE_PERSISTENCE_TIMEOUT,
        Code.HA_NOT_AVAILABLE,
    }
)
_Entry: Final = message_class("SendResultEntry")
_TRANSACTION: Final = re.compile(
    r"([0-9a-f]{1,15})-([0-9a-f]{1,15})-([0-9a-f]{1,3})-(.{1,600})", re.ASCII
)
_MESSAGES_TAG, _BODY_TAG = 0x0A, 0x22


class Sending:
    """Serves producers. Loop thread only.

    `peer_of` finds or makes the caller's Peer; `produces` is called with client id and topic before
    a transaction is sent, and may raise RpcRefused.
    """

    def __init__(
        self,
        backend: RequestBackend,
        peer_of: Callable[[Rpc], Peer],
        produces: Callable[[str, str], None],
    ) -> None:
        self._backend = backend
        self._peer_of = peer_of
        self._produces = produces

    def send(self, rpc: Rpc) -> None:
        """Serve SendMessage: once the topic is resolved, check all messages, then store each; the
        call is answered when all are stored or refused. Raises RpcRefused for a request of no, too
        many or mixed messages."""
        messages = rpc.request.messages
        if not messages:
            raise RpcRefused(Code.MESSAGE_CORRUPTED, "no message to send")
        if len(messages) > MESSAGES_MAX:
            raise RpcRefused(Code.BAD_REQUEST, f"{len(messages)} messages, over {MESSAGES_MAX}")
        name = topic_of(messages[0].topic)
        if any(message.topic.name != name for message in messages):
            raise RpcRefused(Code.MESSAGE_CORRUPTED, "topic in message is not same")
        check_not_system(self._backend, name)
        rpc.when_resolved(self._backend, [name], [], lambda: self._send(rpc, name))

    def _send(self, rpc: Rpc, name: str) -> None:
        """Check and store the messages of a request whose topic `name` is resolved. Raises
        RpcRefused."""
        backend, messages = self._backend, rpc.request.messages
        body_max, now_ms = backend.body_max, backend.now_ms()
        check_sendable(messages, next(iter(backend.topics_of(name).values())), body_max, now_ms)
        if any(kind_of(one.system_properties) is MessageType.TRANSACTION for one in messages):
            self._produces(rpc.client_id, name)
        peer = self._peer_of(rpc)
        requests = []
        for message in messages:
            system = message.system_properties
            group = system.message_group if system.HasField("message_group") else None
            broker_name, queue_id = backend.choose_queue(name, group)
            fields = send_fields(message, queue_id, rpc.call.address, now_ms)
            body = stored_body(message, body_max)
            request = new_request(RequestCode.SEND_MESSAGE_V2, body=body, fields=fields)
            requests.append((broker_name, request))
        entries = ResponseEntries(rpc, len(requests))
        steps = self._send_all(rpc, requests, peer, entries)
        if len(requests) < MESSAGES_PER_STEP:
            for _ in steps:
                pass
        else:
            self._backend.run_steps(peer.host, steps)

    def _send_all(
        self, rpc: Rpc, requests: list[tuple[str, Command]], peer: Peer, entries: ResponseEntries
    ) -> Steps[None]:
        """Send the requests, (broker name, request) of each message, MESSAGES_PER_STEP in each
        step; each response sets the message's entry."""
        for number, (broker_name, request) in enumerate(requests):
            system, take = (
                rpc.request.messages[number].system_properties,
                entries.entry_setter(number),
            )
            done = partial(_pass_result, broker_name, system, take)
            self._backend.execute_request(broker_name, request, peer, done)
            if number % MESSAGES_PER_STEP == MESSAGES_PER_STEP - 1:
                yield

    def serve_end_transaction(self, rpc: Rpc) -> None:
        """Serve EndTransaction. Unlike in RocketMQ, the answer waits until the end is safely
        stored; a producer that does not know yet is answered OK. Raises RpcRefused for an invalid
        name or id."""
        request = rpc.request
        topic = topic_of(request.topic)
        place = read_transaction_id(request.transaction_id)
        flags = {
            TransactionResolution.COMMIT: TRANSACTION_COMMIT,
            TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
        }
        flag = flags.get(request.resolution)
        if flag is None:
            rpc.answer_call()  # the producer does not know yet
            return
        header = EndTransactionRequest(
            producer_group=topic,
            tran_state_table_offset=place.queue_offset,
            commit_log_offset=place.log_offset,
            commit_or_rollback=flag,
            msg_id=place.message_id,
            from_transaction_check=request.source == TransactionSource.SOURCE_SERVER_CHECK,
            transaction_id=place.message_id,
            topic=topic,
            broker_name=place.broker_name,
        )
        asked = new_request(RequestCode.END_TRANSACTION, header)

        def end_transaction() -> None:
            if not self._backend.executes_for(place.broker_name):
                text = "the transaction is another broker's"
                raise RpcRefused(Code.INVALID_TRANSACTION_ID, text)
            peer = self._peer_of(rpc)
            self._backend.execute_request(
                place.broker_name, asked, peer, lambda response: _answer_status(rpc, response)
            )

        rpc.when_resolved(self._backend, [topic], [], end_transaction)

    def serve_recall(self, rpc: Rpc) -> None:
        """Serve RecallMessage: once the topic is resolved, recall a delayed message by its handle,
        and answer with its message id. Raises RpcRefused for an invalid name."""
        name = topic_of(rpc.request.topic)
        rpc.when_resolved(self._backend, [name], [], lambda: self._recall_message(rpc, name))

    def _recall_message(self, rpc: Rpc, name: str) -> None:
        """Recall a delayed message of the resolved topic `name`. Raises RpcRefused."""
        topics, text = self._backend.topics_of(name), rpc.request.recall_handle
        if type_of(next(iter(topics.values()))) not in (MessageType.DELAY.name, MIXED):
            text = f"messages of topic {name} are not delayed"
            raise RpcRefused(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)
        # The handler refuses a malformed handle, and a handle of another topic.
        broker_name = next(iter(topics))
        with suppress(ValueError):
            named = decode_handle(text).broker_name
            broker_name = named if self._backend.executes_for(named) else broker_name
        header = RecallMessageRequest(name, text, name)
        asked = new_request(RequestCode.RECALL_MESSAGE, header)

        def done(response: Command | None) -> None:
            rpc.fail_on_error(
                lambda: rpc.answer_call(message_id=check_response(response).fields["msgId"])
            )

        self._backend.execute_request(broker_name, asked, self._peer_of(rpc), done)


def _pass_result(
    broker_name: str, system: Any, take: Callable[[Any], None], response: Command | None
) -> None:
    """Pass the result entry of a message to `take`, by the response to its send."""
    take(_result_entry(broker_name, system, response))


def _result_entry(broker_name: str, system: Any, response: Command | None) -> Any:
    """Return the result entry of a message by the response to its send; `system` is the
    message's SystemProperties."""
    code, text = code_of(response)
    if response is None or code not in _STORED or "msgId" not in response.fields:
        return _Entry(status=status(code, text))
    fields = response.fields
    transaction_id = fields.get("transactionId", "")
    if system.message_type == MessageType.TRANSACTION:
        log_offset = decode_message_id(fields["msgId"])[1]
        place = HalfPlace(broker_name, log_offset, int(fields["queueOffset"]), transaction_id)
        transaction_id = place.transaction_id
    return _Entry(
        status=status(code, text),
        message_id=system.message_id,
        transaction_id=transaction_id,
        offset=int(fields["queueOffset"]),
        recall_handle=fields.get("recallHandle", ""),
    )


@dataclass(slots=True, frozen=True)
class HalfPlace:
    """The place of a half message, which its transaction id contains."""

    broker_name: str
    log_offset: int
    """Log offset of the half message's record."""
    queue_offset: int
    """Queue offset of the half message in the topic of half messages."""
    message_id: str
    """The unique id that the producer gave the message."""

    @property
    def transaction_id(self) -> str:
        """The id as clients keep it: log offset, queue offset and length of the broker's name, each
        in hex and followed by -, then the broker's name and the message id. A broker's name may
        have any character."""
        place = f"{self.log_offset:x}-{self.queue_offset:x}-{len(self.broker_name):x}"
        return f"{place}-{self.broker_name}{self.message_id}"


def read_transaction_id(text: str) -> HalfPlace:
    """Parse `HalfPlace.transaction_id`; raises RpcRefused for a text that no broker issued."""
    found = _TRANSACTION.fullmatch(text)
    length = 0 if found is None else int(found[3], 16)
    if found is None or not 0 < length < len(found[4]):
        text = "no broker issued this transaction id"
        raise RpcRefused(Code.INVALID_TRANSACTION_ID, text)
    names = found[4]
    return HalfPlace(names[:length], int(found[1], 16), int(found[2], 16), names[length:])


def _answer_status(rpc: Rpc, response: Command | None) -> None:
    """Answer a call with the status of a handler's response."""
    rpc.fail_on_error(lambda: rpc.answer_call(*code_of(response)))


def check_weight(data: bytes) -> None:
    """Raises RpcRefused for a SendMessageRequest, as bytes, with over LIGHT_MAX bytes besides the
    bodies or over MESSAGES_MAX messages, before it is parsed: parsing takes some ms for each 100
    KiB of small parts."""
    if len(data) <= REQUEST_MAX:
        return
    messages, light = 0, len(data)
    for tag, begin, end in _bytes_fields(data, 0, len(data)):
        messages += 1
        if tag != _MESSAGES_TAG or messages > MESSAGES_MAX:
            break
        bodies = (
            to - since for inner, since, to in _bytes_fields(data, begin, end) if inner == _BODY_TAG
        )
        light -= max(bodies, default=0)
    if messages > MESSAGES_MAX or light > LIGHT_MAX:
        raise RpcRefused(Code.MESSAGE_PROPERTIES_TOO_LARGE, "too much besides the bodies")


def _bytes_fields(data: bytes, at: int, end: int) -> Any:
    """Yield (tag, begin, end) of the length-delimited fields in data[at:end], up to the first
    field of another kind."""
    for _ in range(MESSAGES_MAX + 1):
        if at >= end or data[at] & 7 != 2:
            return
        tag = data[at]
        size = shift = 0
        at += 1
        while at < end and shift < 35:
            size |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if not data[at - 1] & 0x80:
                break
        if at + size > end:
            return
        yield tag, at, at + size
        at += size
