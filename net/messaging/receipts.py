"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: settling a message.

Owns receipt handles (pop's handle, followed by the record's log offset), and the requests of
remoting that settle a handle's message. It must never pop, nor know when a handle is renewed:
renewals.py does.

Tests: tests/unit/net/messaging/test_receiving.py
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from turbopump.engine.types import LogOffset
from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.messages import message_class
from turbopump.net.messaging.backend import RequestBackend
from turbopump.net.messaging.rpc import (
    ResponseEntries,
    Rpc,
    RpcRefused,
    code_of,
    group_of,
    status,
    topic_of,
)
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
)
from turbopump.net.wire.headers.send import ConsumerSendMsgBackRequest
from turbopump.net.wire.pop_handles import BadHandle, PopHandle

INVISIBLE_MAX_MS: Final = 12 * 3_600_000
"""Longest time for which a client may hide a message."""
ENTRIES_MAX: Final = 512
"""Maximum number of acknowledgements in a request; a receive returns 32 messages."""
ACKS_PER_STEP: Final = 16
"""Number of acknowledgements in a step; a request with fewer is executed at once."""
_DIGITS_MAX: Final = 18

_AckEntry: Final = message_class("AckMessageResultEntry")
_NO_MORE: Final = frozenset(
    {ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_MESSAGE, ResponseCode.TOPIC_NOT_EXIST}
)
"""Response codes for a handle whose message no longer exists. Clients stop retrying only for
INVALID_RECEIPT_HANDLE."""
Done = Callable[[Code, str], None]
"""Receives code and text of the result, for the client."""


@dataclass(slots=True, frozen=True)
class Receipt:
    """A message that a group popped: its place in the log, and the handle that settles it."""

    group: str
    topic: str
    """The topic that the client names, also for a message of a retry topic."""
    handle: PopHandle
    """The pop's handle, from the newest pop or change of the invisible time."""
    log_offset: LogOffset
    """Log offset of the message's record."""

    @property
    def text(self) -> str:
        """The text that clients keep: the handle's, a blank, and the log offset."""
        return f"{self.handle.text()} {self.log_offset}"

    @property
    def until_ms(self) -> int:
        """Epoch milliseconds at which the message is delivered again, by the broker's clock."""
        return self.handle.pop_time_ms + self.handle.invisible_ms

    def with_new_handle(self, response: Command) -> "Receipt":
        """A new receipt with the handle in `response`, a successful one to
        CHANGE_MESSAGE_INVISIBLETIME."""
        found, before = read_header(ChangeInvisibleTimeResponse, response.fields), self.handle
        assert before.queue_offset is not None, "a receipt names one message"
        handle = PopHandle(
            before.queue_offset,
            found.pop_time,
            found.invisible_time,
            found.revive_qid,
            before.kind,
            before.broker_name,
            before.queue_id,
            before.queue_offset,
        )
        return Receipt(self.group, self.topic, handle, self.log_offset)


def read_receipt(group: str, topic: str, text: str) -> Receipt:
    """Parse `Receipt.text`; raises RpcRefused for a text that no broker can have issued. Whether
    the receipt has expired is not checked."""
    try:
        handle = PopHandle.parse(text)
    except BadHandle as error:
        raise invalid_handle(str(error)) from None
    parts = text.split(" ")
    at = parts[-1] if len(parts) == 9 else ""
    if not (at.isascii() and at.isdigit() and len(at) <= _DIGITS_MAX):
        raise invalid_handle("the handle names no message")
    return Receipt(group, topic, handle, LogOffset(int(at)))


class ReceiptSettling:
    """The requests that settle a receipt. Each is sent at once; `done` receives its result once,
    perhaps before the method returns. Code INVALID_RECEIPT_HANDLE: the message no longer exists.
    Loop thread only."""

    def __init__(self, backend: RequestBackend) -> None:
        self._backend = backend

    def check_receipt(self, receipt: Receipt) -> None:
        """Raises RpcRefused for a receipt that has expired, or with a broker that is not served
        here."""
        if not self._backend.executes_for(receipt.handle.broker_name):
            raise invalid_handle("the handle is another broker's")
        if receipt.until_ms <= self._backend.now_ms():
            raise invalid_handle("receipt handle is expired")

    def ack_message(self, receipt: Receipt, peer: Peer, done: Done) -> None:
        """Acknowledge the message of a receipt, as a client with the Peer `peer`; `done`
        receives (code, text)."""
        handle = receipt.handle
        assert handle.queue_offset is not None, "a receipt names one message"
        header = AckMessageRequest(
            consumer_group=receipt.group,
            topic=handle.kind.topic_of(receipt.topic, receipt.group),
            queue_id=handle.queue_id,
            extra_info=handle.text(),
            offset=handle.queue_offset,
        )
        request = new_request(RequestCode.ACK_MESSAGE, header)
        self._backend.execute_request(
            handle.broker_name, request, peer, lambda response: done(*_status_of(response))
        )

    def hide_message(
        self,
        receipt: Receipt,
        invisible_ms: int,
        peer: Peer,
        done: Callable[[Code, str, Receipt], None],
        *,
        suspend: bool = False,
    ) -> None:
        """Hide the message for `invisible_ms` from now, 0: make it visible. `done` receives code,
        text, and the new receipt, or the old receipt if the request failed. `suspend`: the delivery
        that ends does not count."""
        handle = receipt.handle
        assert handle.queue_offset is not None, "a receipt names one message"
        header = ChangeInvisibleTimeRequest(
            consumer_group=receipt.group,
            topic=handle.kind.topic_of(receipt.topic, receipt.group),
            queue_id=handle.queue_id,
            extra_info=handle.text(),
            offset=handle.queue_offset,
            invisible_time=invisible_ms,
            suspend=suspend,
        )

        def hidden(response: Command | None) -> None:
            code, text = _status_of(response)
            is_done = code is Code.OK and response is not None
            done(code, text, receipt.with_new_handle(response) if is_done and response else receipt)

        request = new_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        self._backend.execute_request(handle.broker_name, request, peer, hidden)

    def send_to_dlq(self, receipt: Receipt, message_id: str, peer: Peer, done: Done) -> None:
        """Store the message as a dead letter of its group, then acknowledge it; `done` receives the
        result of the first alone."""
        header = ConsumerSendMsgBackRequest(
            offset=receipt.log_offset,
            group=receipt.group,
            delay_level=-1,
            origin_msg_id=message_id,
            origin_topic=receipt.topic,
            max_reconsume_times=0,
        )

        def copied(response: Command | None) -> None:
            code, text = code_of(response)
            if code is not Code.OK:
                done(code, text)
                return
            # If the acknowledgement fails, the message is delivered again, but the dead letter is
            # stored.
            self.ack_message(receipt, peer, lambda _code, _text: done(code, text))

        request = new_request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        self._backend.execute_request(receipt.handle.broker_name, request, peer, copied)


def invalid_handle(text: str) -> RpcRefused:
    """The refusal of a handle, to be raised. Clients see only the text and look for the code's name
    in it, as RocketMQ's proxy sends it (AckMessageActivity)."""
    code = Code.INVALID_RECEIPT_HANDLE
    return RpcRefused(code, f"{code.name}: {text}")


def check_invisible(invisible_ms: int, least_ms: int) -> None:
    """Raises RpcRefused unless `invisible_ms` is from `least_ms` to INVISIBLE_MAX_MS, with the text
    that clients look for (RocketMQ: GrpcValidator.validateInvisibleTime)."""
    if invisible_ms < least_ms:
        text = f"the invisibleTime is too small. min is {least_ms}"
    elif invisible_ms > INVISIBLE_MAX_MS:
        text = f"the invisibleTime is too large. max is {INVISIBLE_MAX_MS}"
    else:
        return
    raise RpcRefused(Code.ILLEGAL_INVISIBLE_TIME, text)


def _status_of(response: Command | None) -> tuple[Code, str]:
    """Return (code, text) of a response to a request that settles a message;
    INVALID_RECEIPT_HANDLE if the message no longer exists."""
    code, text = code_of(response)
    is_gone = response is not None and response.code in _NO_MORE
    if not is_gone:
        return code, text
    refused = invalid_handle(text)
    return refused.code, refused.text


@dataclass(slots=True, frozen=True)
class HeldReceipt:
    """A message's newest receipt, and the callback for its end: `settled` is to be called when the
    message was settled or no longer exists, and stops its renewal."""

    receipt: Receipt
    settled: Callable[[], None]


Lookup = Callable[[str, str, Receipt, Callable[[HeldReceipt], None]], None]
"""Arguments: client id, message id, the client's receipt, and a callback that receives the newest
receipt, now or later."""


class ReceiptMethods:
    """Serves consumers' calls about messages. `newest` finds the newest receipt of a renewed
    message. Loop thread only."""

    def __init__(
        self,
        backend: RequestBackend,
        settling: ReceiptSettling,
        peer_of: Callable[[Rpc], Peer],
        newest: Lookup,
    ) -> None:
        self._backend = backend
        self._settling = settling
        self._peer_of = peer_of
        self._newest = newest

    def ack(self, rpc: Rpc) -> None:
        """Serve AckMessage: acknowledge each entry; the answer has a status for each. Raises
        RpcRefused for invalid names, and for no or too many entries."""
        request = rpc.request
        group, topic, asked = group_of(request.group), topic_of(request.topic), request.entries
        if not asked:
            raise RpcRefused(Code.BAD_REQUEST, "no entries to acknowledge")
        if len(asked) > ENTRIES_MAX:
            raise RpcRefused(Code.BAD_REQUEST, f"{len(asked)} entries, over {ENTRIES_MAX}")
        rpc.when_resolved(self._backend, [topic], [], lambda: self._ack_entries(rpc, group, topic))

    def _ack_entries(self, rpc: Rpc, group: str, topic: str) -> None:
        """Acknowledge all entries of a request, at once or, if there are many, in steps."""
        asked = rpc.request.entries
        peer, entries = self._peer_of(rpc), ResponseEntries(rpc, len(asked))
        steps = self._ack_all(rpc, group, topic, peer, entries)
        if len(asked) < ACKS_PER_STEP:
            for _ in steps:
                pass
        else:
            self._backend.run_steps(peer.host, steps)

    def _ack_all(
        self, rpc: Rpc, group: str, topic: str, peer: Peer, entries: ResponseEntries
    ) -> Steps[None]:
        """Acknowledge the entries of a request, ACKS_PER_STEP in each step."""
        for number, one in enumerate(rpc.request.entries):
            self._ack(rpc, group, topic, one, peer, entries.entry_setter(number))
            if number % ACKS_PER_STEP == ACKS_PER_STEP - 1:
                yield

    def _ack(
        self,
        rpc: Rpc,
        group: str,
        topic: str,
        asked: Any,
        peer: Peer,
        take: Callable[[Any], None],
    ) -> None:
        """Acknowledge the entry `asked`; `take` receives its result entry."""

        def done(code: Code, text: str) -> None:
            take(
                _AckEntry(
                    message_id=asked.message_id,
                    receipt_handle=asked.receipt_handle,
                    status=status(code, text),
                )
            )

        def settle(held: HeldReceipt) -> None:
            def acked(code: Code, text: str) -> None:
                if code in (Code.OK, Code.INVALID_RECEIPT_HANDLE):
                    held.settled()
                done(code, text)

            try:
                self._settling.check_receipt(held.receipt)
            except RpcRefused as refused:
                acked(refused.code, refused.text)
                return
            self._settling.ack_message(held.receipt, peer, acked)

        try:
            receipt = read_receipt(group, topic, asked.receipt_handle)
        except RpcRefused as refused:
            done(refused.code, refused.text)
            return
        self._newest(rpc.client_id, asked.message_id, receipt, settle)

    def serve_change_invisible(self, rpc: Rpc) -> None:
        """Serve ChangeInvisibleDuration: the answer has the new handle, which replaces the old one.
        Raises RpcRefused for an invalid time, name or handle."""
        request = rpc.request
        duration = request.invisible_duration
        invisible_ms = duration.seconds * 1_000 + duration.nanos // 1_000_000
        check_invisible(invisible_ms, 0)

        def change_invisible(held: HeldReceipt) -> None:
            self._settling.check_receipt(held.receipt)

            def changed(code: Code, text: str, receipt: Receipt) -> None:
                if code in (Code.OK, Code.INVALID_RECEIPT_HANDLE):
                    held.settled()
                rpc.fail_on_error(lambda: rpc.answer_call(code, text, receipt_handle=receipt.text))

            self._settling.hide_message(
                held.receipt, invisible_ms, self._peer_of(rpc), changed, suspend=request.suspend
            )

        self._with_newest(rpc, change_invisible)

    def serve_forward_to_dlq(self, rpc: Rpc) -> None:
        """Serve ForwardMessageToDeadLetterQueue: store the message as a dead letter and acknowledge
        it. Raises RpcRefused for an invalid name or handle."""

        def send_to_dlq(held: HeldReceipt) -> None:
            self._settling.check_receipt(held.receipt)

            def sent(code: Code, text: str) -> None:
                if code is Code.OK:
                    held.settled()
                rpc.fail_on_error(lambda: rpc.answer_call(code, text))

            self._settling.send_to_dlq(
                held.receipt, rpc.request.message_id, self._peer_of(rpc), sent
            )

        self._with_newest(rpc, send_to_dlq)

    def _with_newest(self, rpc: Rpc, work: Callable[[HeldReceipt], None]) -> None:
        """Run `work` with the newest receipt of the request's message, once its topic is
        resolved. Raises RpcRefused for an invalid name or handle."""
        request = rpc.request
        receipt = read_receipt(
            group_of(request.group), topic_of(request.topic), request.receipt_handle
        )

        def found(held: HeldReceipt) -> None:
            rpc.fail_on_error(lambda: work(held))

        def known() -> None:
            self._newest(rpc.client_id, request.message_id, receipt, found)

        rpc.when_resolved(self._backend, [receipt.topic], [], known)
