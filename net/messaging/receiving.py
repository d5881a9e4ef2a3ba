"""ReceiveMessage: a pop, its wait, and the stream of its answer.

Owns the limits of a receive and the choice of the messages to deliver (RocketMQ:
ReceiveMessageActivity, PopMessageResultFilterImpl). It must never pop itself. The backend may
return available messages already encoded; otherwise remoting's handler pops, for a Peer made for
this call, so that an ended call waits for nothing.

If the call ends before its answer is written, its popped messages are made visible again at once.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.net.grpc.call import GrpcCall, Method, unary_method
from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.framing import frame_message
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.messaging.backend import ANY_QUEUE, PopRequest, RequestBackend
from turbopump.net.messaging.clients import GrpcClients, NoLink, peer_of
from turbopump.net.messaging.delivery import message_of, set_ms
from turbopump.net.messaging.receipts import Receipt, ReceiptSettling, check_invisible
from turbopump.net.messaging.renewals import Renewals
from turbopump.net.messaging.rpc import (
    RpcRefused,
    client_id_of,
    code_of,
    group_of,
    parse_message,
    status,
    topic_of,
)
from turbopump.net.messaging.settings import BATCH_MAX, POLL_MAX_MS, find_group, subscription_of
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pop import PopMessageRequest, PopMessageResponse
from turbopump.net.wire.message import MessageView, Unreadable, decode_each, reconsume_times_after
from turbopump.net.wire.pop_handles import (
    BadHandle,
    PopHandle,
    RetryKind,
    read_order_counts,
    read_start_offsets,
)
from turbopump.net.wire.subscription import SubscriptionData

logger = logging.getLogger(__name__)

POLL_MIN_MS: Final = 5_000
"""Shortest wait of a receive for messages; a call whose deadline leaves less is refused."""
RESERVE_MS: Final = 300
"""Time by which an answer precedes its call's deadline: waits end by a tick of 100 ms, and the
client must receive the answer in time (longPollingReserveTimeInMillis, which is 100)."""
INVISIBLE_MIN_MS: Final = 10_000
"""Shortest time for which a consumer without renewal may hide messages."""
RENEWED_MS: Final = 60_000
"""First invisible time of messages that are renewed (defaultInvisibleTimeMills)."""
_FROM_END: Final = 1

_Request: Final = message_class("ReceiveMessageRequest")
_Response: Final = message_class("ReceiveMessageResponse")
_FOUND: Final = frame_message(_Response(status=status(Code.OK, "OK")).SerializeToString())
_NOTHING: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT})


@dataclass(slots=True, frozen=True)
class _Receive:
    """A call of ReceiveMessage: its client, the receive that it requests, the broker and a Peer
    made for the call."""

    call: GrpcCall
    client_id: str
    wish: PopRequest
    broker_name: str
    peer: Peer


class Receiving:
    """Serves ReceiveMessage for all clients. Loop thread only."""

    def __init__(
        self,
        backend: RequestBackend,
        clients: GrpcClients,
        settling: ReceiptSettling,
        renewals: Renewals,
    ) -> None:
        self._backend = backend
        self._clients = clients
        self._settling = settling
        self._renewals = renewals

    @property
    def receive_method(self) -> Method:
        """The unary Method ReceiveMessage, for the service's table: it answers with a status, the
        messages and the time of delivery."""
        return unary_method(self._serve_call)

    def _serve_call(self, call: GrpcCall, data: bytes) -> None:
        """Check the names of a call, and serve it once the backend has resolved them."""
        try:
            client_id, request = client_id_of(call), parse_message(_Request, data)
            name, group = topic_of(request.message_queue.topic), group_of(request.group)
        except RpcRefused as refused:
            self._end_call(call, refused.code, refused.text)
            return
        work = partial(self._receive_resolved, call, client_id, request)
        self._backend.resolve_names([name], [group], work)

    def _receive_resolved(self, call: GrpcCall, client_id: str, request: Any) -> None:
        """Serve a call whose topic and group are resolved; its errors end it."""
        if call.has_ended:
            return
        try:
            self._receive(call, client_id, request)
        except RpcRefused as refused:
            self._end_call(call, refused.code, refused.text)
        except Exception:
            self._fail_call(call)

    def _receive(self, call: GrpcCall, client_id: str, request: Any) -> None:
        """Answer with the available messages, or pop by a request. Raises RpcRefused."""
        backend = self._backend
        now_ms, name = backend.now_ms(), request.message_queue.topic.name
        backend.topics_of(name)
        broker_name = request.message_queue.broker.name or backend.choose_receiver(name)
        if not backend.executes_for(broker_name):
            raise RpcRefused(Code.BAD_REQUEST, "the broker of the queue is not served here")
        group = find_group(backend, request.group.name)
        take = PopRequest(
            topic=name,
            group=group,
            subscription=subscription_of(name, request.filter_expression, now_ms),
            count=min(request.batch_size, BATCH_MAX) if request.batch_size > 0 else 1,
            invisible_ms=_invisible_ms(request),
            with_rows=request.auto_renew,
        )
        poll_ms = self._poll_ms(call, client_id, request)
        if group.consume_message_orderly or not self._answer_available(
            call, client_id, take, broker_name
        ):
            receive = _Receive(call, client_id, take, broker_name, peer_of(call, NoLink(backend)))
            self._send_pop(receive, request, poll_ms, now_ms)

    def _answer_available(
        self, call: GrpcCall, client_id: str, take: PopRequest, broker_name: str
    ) -> bool:
        """Answer with the available messages and return True, if the backend can return them at
        once; else False."""
        taken = None if call.is_clogged else self._backend.pop_available(take)
        if taken is None:
            return False
        call.answer_framed(_FOUND + taken.framed + frame_message(self._delivery_time()))
        if taken.rows and self._clients.get(client_id) is not None:
            for message_id, start, queue_id, queue_offset, log_offset in taken.rows:
                handle = PopHandle(
                    QueueOffset(start),
                    taken.pop_time_ms,
                    take.invisible_ms,
                    taken.revive_queue_id,
                    RetryKind.NORMAL,
                    broker_name,
                    queue_id,
                    QueueOffset(queue_offset),
                )
                receipt = Receipt(take.group.group_name, take.topic, handle, LogOffset(log_offset))
                self._renewals.begin_renewing(client_id, message_id.decode(), receipt)
        return True

    def _send_pop(self, receive: _Receive, request: Any, poll_ms: int, now_ms: int) -> None:
        """Send a pop request that waits up to `poll_ms` for messages; its response answers the
        call."""
        take = receive.wish
        in_order = take.group.consume_message_orderly
        # Ordered push consumers ask for a queue; other consumers receive from any queue.
        of_queue = in_order and request.auto_renew and request.message_queue.id >= 0
        header = PopMessageRequest(
            consumer_group=take.group.group_name,
            topic=take.topic,
            queue_id=request.message_queue.id if of_queue else ANY_QUEUE,
            max_msg_nums=take.count,
            invisible_time=take.invisible_ms,
            poll_time=poll_ms,
            born_time=now_ms,
            init_mode=_FROM_END,
            exp_type=take.subscription.expression_type,
            exp=take.subscription.sub_string,
            order=in_order,
            attempt_id=request.attempt_id[:64] or None,
        )
        receive.call.on_closed = receive.peer.lost
        asked, done = (
            new_request(RequestCode.POP_MESSAGE, header),
            partial(self._on_popped, receive),
        )
        self._backend.execute_request(receive.broker_name, asked, receive.peer, done, poll_ms)

    def _poll_ms(self, call: GrpcCall, client_id: str, request: Any) -> int:
        """Time to wait for messages, in ms; raises RpcRefused if the deadline leaves none."""
        left_ms = None
        if call.deadline is not None:
            left_ms = round(call.deadline * 1_000) - self._backend.steady_ms()
        if request.HasField("long_polling_timeout"):
            asked = request.long_polling_timeout
            poll_ms = int(asked.seconds * 1_000 + asked.nanos // 1_000_000)
        else:
            client = self._clients.get(client_id)
            timeout_s = 0 if client is None else int(client.settings.request_timeout.seconds)
            poll_ms = POLL_MAX_MS if left_ms is None else left_ms - timeout_s * 500
        poll_ms = min(max(poll_ms, POLL_MIN_MS), POLL_MAX_MS)
        if left_ms is None or poll_ms <= left_ms - RESERVE_MS:
            return poll_ms
        if left_ms < POLL_MIN_MS:
            is_old = call.text(b"x-mq-client-version") < "5.0.3"
            text = f"the deadline leaves {left_ms} ms, under {POLL_MIN_MS}"
            raise RpcRefused(Code.BAD_REQUEST if is_old else Code.ILLEGAL_POLLING_TIME, text)
        return left_ms - RESERVE_MS

    def _on_popped(self, receive: _Receive, response: Command | None) -> None:
        """Answer the call by the response to its pop request."""
        try:
            if response is not None and response.code == ResponseCode.SUCCESS:
                self._answer_popped(receive, response)
            elif response is not None and response.code in _NOTHING:
                self._end_call(receive.call, Code.MESSAGE_NOT_FOUND, "no new message")
            elif response is not None and response.code == ResponseCode.POLLING_FULL:
                self._end_call(receive.call, Code.TOO_MANY_REQUESTS, "polling full")
            else:
                self._end_call(receive.call, *code_of(response))
        except Exception:
            self._fail_call(receive.call)

    def _fail_call(self, call: GrpcCall) -> None:
        """Log the current exception and end the call with INTERNAL."""
        logger.exception("a receive of %s failed", call.address)
        text = "the call failed, see the server's log"
        call.fail(GrpcError(GrpcCode.INTERNAL, text))

    def _answer_popped(self, receive: _Receive, response: Command) -> None:
        """Answer with the popped messages. Messages of other tags are acknowledged, messages
        with too many deliveries become dead letters; if the call has ended, all are made visible
        again."""
        call, wanted = receive.call, []
        is_lost = call.has_ended or call.is_clogged
        for view, receipt, attempt in _each_popped(receive, response):
            if is_lost:
                self._settling.hide_message(receipt, 0, receive.peer, _ignore_hidden, suspend=True)
            elif not _is_wanted(receive.wish.subscription, view):
                self._settling.ack_message(receipt, receive.peer, _ignore_settled)
            elif attempt > receive.wish.attempts_max:
                self._settling.send_to_dlq(receipt, view.message_id, receive.peer, _ignore_settled)
            else:
                wanted.append((view, receipt, attempt))
        if is_lost:
            self._end_call(call, Code.TOO_MANY_REQUESTS, "earlier answers were not taken yet")
        elif not wanted:
            self._end_call(call, Code.MESSAGE_NOT_FOUND, "no match message")
        else:
            made = [
                _Response(message=message_of(view, receipt.text, attempt)).SerializeToString()
                for view, receipt, attempt in wanted
            ]
            self._end_call(call, Code.OK, "OK", *made)
            if receive.wish.with_rows and self._clients.get(receive.client_id) is not None:
                for view, receipt, _attempt in wanted:
                    self._renewals.begin_renewing(receive.client_id, view.message_id, receipt)

    def _end_call(self, call: GrpcCall, code: Code, text: str, *messages: bytes) -> None:
        """Answer a call: its status, the messages, the time of delivery."""
        head = _Response(status=status(code, text))
        call.answer_with(head.SerializeToString(), *messages, self._delivery_time())

    def _delivery_time(self) -> bytes:
        """Return the encoded response with the time of delivery, now."""
        at = _Response()
        set_ms(at.delivery_timestamp, self._backend.now_ms())
        return bytes(at.SerializeToString())


def _invisible_ms(request: Any) -> int:
    """Return the time for which a request hides its messages, in ms; raises RpcRefused."""
    if request.auto_renew:
        return RENEWED_MS
    asked = request.invisible_duration
    invisible_ms = int(asked.seconds * 1_000 + asked.nanos // 1_000_000)
    check_invisible(invisible_ms, INVISIBLE_MIN_MS)
    return invisible_ms


def _each_popped(
    receive: _Receive, response: Command
) -> Iterator[tuple[MessageView, Receipt, int]]:
    """Yield (message, its receipt, number of its delivery from 1) for each popped message."""
    header = read_header(PopMessageResponse, response.fields)
    starts = read_start_offsets(header.start_offset_info or "")
    counts = read_order_counts(header.order_count_info or "")
    body = response.body if not isinstance(response.body, list) else b"".join(response.body)
    for found in decode_each(body):
        if isinstance(found, Unreadable):
            # The message is delivered again, and in the end becomes a dead letter.
            logger.error("message %s cannot be read: %s", found.message.message_id, found.error)
            continue
        handle = _handle_of(found, header, starts, receive.broker_name)
        of_queue = counts.get((found.queue_id, None), 0)
        before = counts.get((found.queue_id, found.queue_offset), of_queue)
        take = receive.wish
        receipt = Receipt(take.group.group_name, take.topic, handle, found.log_offset)
        yield found, receipt, reconsume_times_after(found.reconsume_times, before + 1)


def _handle_of(
    view: MessageView,
    header: PopMessageResponse,
    starts: dict[tuple[RetryKind, int], QueueOffset],
    broker_name: str,
) -> PopHandle:
    """The handle of a message. Messages of a retry topic have one; the others' are made here, as
    remoting's clients do."""
    try:
        brought = PopHandle.parse(view.properties.get(names.POP_CK, ""))
    except BadHandle:
        brought = None  # missing, or not written by a pop
    if brought is not None and brought.kind is not RetryKind.NORMAL:
        return brought
    return PopHandle(
        starts.get((RetryKind.NORMAL, view.queue_id), view.queue_offset),
        header.pop_time,
        header.invisible_time,
        header.revive_qid,
        RetryKind.NORMAL,
        broker_name,
        view.queue_id,
        view.queue_offset,
    )


def _is_wanted(subscription: SubscriptionData, view: MessageView) -> bool:
    """Whether the message has a subscribed tag: pops compare only the tags' hashes."""
    tag = view.properties.get(names.TAGS, "")
    return not subscription.is_tag_type or subscription.wants_tag(tag)


def _ignore_hidden(_code: Code, _text: str, _receipt: Receipt) -> None:
    """No-op: a message that could not be hidden is delivered again."""


def _ignore_settled(_code: Code, _text: str) -> None:
    """No-op: a message that could not be acknowledged or forwarded is delivered again."""
