"""A unary call of the clients' service: its request as a message, its answer with a status.

Owns the parts common to all methods: the caller's id, the statuses, the conversion of handlers'
codes. It must never know a method.

RocketMQ reports nearly every error in the status of an answer; the call itself ends with OK.
Clients take another end for a broken network.

Tests: tests/unit/net/messaging/test_receiving.py
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from turbopump.net.grpc.call import GrpcCall, Method, unary_method
from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.messaging.backend import RequestBackend
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import LANGUAGES, Command
from turbopump.net.wire.names import MAX_ANY_NAME_LENGTH, validate_group_name, validate_topic_name

logger = logging.getLogger(__name__)

REQUEST_MAX: Final = 128 << 10
"""Maximum bytes of a request other than a send: if it consists of small parts, parsing takes some
ms."""

_STATUS: Final = message_class("Status")
_CODES: Final[dict[int, Code]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
}


class RpcRefused(Exception):
    """A call that is answered with a status other than OK; `code` and `text` are for the client."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Rpc:
    """A unary call of the clients' service, with its request and its answer's class. Loop thread
    only."""

    __slots__ = ("_answers", "_size", "call", "client_id", "request")

    def __init__(self, call: GrpcCall, size: int, responses: Any) -> None:
        self.call = call
        self.client_id = ""
        """The caller's own header x-mq-client-id."""
        self.request: Any = None
        """The parsed request message, set before the method is served."""
        self._size = size
        self._answers = responses

    def answer_call(self, code: Code = Code.OK, text: str = "OK", **fields: Any) -> None:
        """End the call now with a response of this status and these fields; no-op if it has
        ended."""
        self.call.answer_with(
            self._answers(status=status(code, text), **fields).SerializeToString()
        )

    def refuse_call(self, refused: RpcRefused) -> None:
        """End the call now with the status of `refused` and no other field; no-op if it has
        ended."""
        self.answer_call(refused.code, refused.text)

    def fail_on_error(self, work: Callable[[], None]) -> None:
        """Run `work` now, a later part of the call; never raises. RpcRefused ends the call with its
        status, another exception is logged and ends it with GrpcCode.INTERNAL."""
        try:
            work()
        except RpcRefused as refused:
            self.refuse_call(refused)
        except Exception:
            logger.exception("a call of %s to %s failed", self.call.address, self.call.path)
            self.call.fail(GrpcError(GrpcCode.INTERNAL, "the call failed, see the server's log"))

    def when_resolved(
        self,
        backend: RequestBackend,
        topics: Sequence[str],
        groups: Sequence[str],
        work: Callable[[], None],
    ) -> None:
        """Run `work`, as `fail_on_error` does, once the backend can answer for these topics and
        groups: now or later, but not if the call has ended by then."""

        def serve_resolved() -> None:
            if not self.call.has_ended:
                self.fail_on_error(work)

        backend.resolve_names(topics, groups, serve_resolved, self._size)


class ResponseEntries:
    """The entries of an answer to `rpc`, collected until all `count` are set; then the call is
    answered, with the entries in their order. Each entry is a message with a status of its own; the
    call's status is their common code, or MULTIPLE_RESULTS."""

    def __init__(self, rpc: Rpc, count: int) -> None:
        self._rpc = rpc
        self._entries: list[Any] = [None] * count
        self._left = count

    def entry_setter(self, number: int) -> Callable[[Any], None]:
        """The callback that sets the entry at index `number`; it must be called once, and may
        answer the call."""

        def set_entry(entry: Any) -> None:
            self._entries[number] = entry
            self._left -= 1
            if self._left == 0:
                self._rpc.fail_on_error(self._answer_call)

        return set_entry

    def _answer_call(self) -> None:
        """Answer the call with all entries and their common status."""
        codes = {entry.status.code: entry.status.message for entry in self._entries}
        if len(codes) == 1:
            code, text = codes.popitem()
            self._rpc.answer_call(Code(code), text, entries=self._entries)
        else:
            self._rpc.answer_call(Code.MULTIPLE_RESULTS, "see the entries", entries=self._entries)


def unary_rpc(
    name: str, serve: Callable[[Rpc], None], check: Callable[[bytes], None] | None = None
) -> Method:
    """The unary Method whose messages are `name` + Request and `name` + Response. `serve` answers
    the Rpc now or later, or raises RpcRefused. `check`, if given, receives the bytes of a request
    before they are parsed and may raise RpcRefused; without it a request has at most REQUEST_MAX
    bytes."""
    requests, responses = message_class(f"{name}Request"), message_class(f"{name}Response")

    def begin(call: GrpcCall, data: bytes) -> None:
        rpc = Rpc(call, len(data), responses)
        try:
            rpc.client_id = client_id_of(call)
            if check is not None:
                check(data)
            rpc.request = parse_message(requests, data, REQUEST_MAX if check is None else len(data))
            serve(rpc)
        except RpcRefused as refused:
            rpc.refuse_call(refused)

    return unary_method(begin)


def parse_message(messages: Any, data: bytes, most: int = REQUEST_MAX) -> Any:
    """Parse `data` as a message of the protobuf class `messages`. Raises GrpcError:
    RESOURCE_EXHAUSTED for more than `most` bytes, INTERNAL for bytes that are no such message."""
    if len(data) > most:
        text = f"a {messages.DESCRIPTOR.name} of {len(data)} bytes, over {most}"
        raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, text)
    try:
        return messages.FromString(data)
    except DecodeError:
        text = f"not a {messages.DESCRIPTOR.name}"
        raise GrpcError(GrpcCode.INTERNAL, text) from None


def client_id_of(call: GrpcCall) -> str:
    """The header x-mq-client-id of a call; raises RpcRefused if it is missing, blank or over
    MAX_ANY_NAME_LENGTH characters."""
    client_id = call.text(b"x-mq-client-id")
    if not client_id.strip() or len(client_id) > MAX_ANY_NAME_LENGTH:
        text = f"x-mq-client-id must have 1 to {MAX_ANY_NAME_LENGTH} characters"
        raise RpcRefused(Code.CLIENT_ID_REQUIRED, text)
    return client_id


def language_of(call: GrpcCall) -> str:
    """The client's programming language by remoting's name, from the header x-mq-language; OTHER if
    remoting has no such name."""
    language = call.text(b"x-mq-language")
    return language if language in LANGUAGES else "OTHER"


def status(code: Code, text: str) -> Any:
    """Make a new message Status of this code and text."""
    return _STATUS(code=code, message=text)


def code_of(response: Command | None) -> tuple[Code, str]:
    """(code, text) of the gRPC status for a handler's response: (OK, "OK") for SUCCESS, else the
    text is its remark. None, the broker did not answer, and codes without a counterpart are
    INTERNAL_SERVER_ERROR."""
    if response is None:
        return Code.INTERNAL_SERVER_ERROR, "the broker did not answer"
    code = _CODES.get(response.code, Code.INTERNAL_SERVER_ERROR)
    return code, "OK" if code is Code.OK else response.remark or code.name


def check_response(response: Command | None) -> Command:
    """Return a response whose code is SUCCESS; raises RpcRefused with `code_of` for another and for
    None."""
    code, text = code_of(response)
    if code is not Code.OK:
        raise RpcRefused(code, text)
    assert response is not None, "None is no success"
    return response


def topic_of(resource: Any) -> str:
    """The name in a message Resource of a topic; raises RpcRefused for an invalid name."""
    name = str(resource.name)
    problem = validate_topic_name(name)
    if problem is not None:
        raise RpcRefused(Code.ILLEGAL_TOPIC, problem)
    return name


def check_not_system(backend: RequestBackend, topic: str) -> None:
    """Raises RpcRefused for a topic of the system (RocketMQ: GrpcValidator.validateTopic)."""
    if backend.is_system(topic):
        raise RpcRefused(Code.ILLEGAL_TOPIC, "cannot access system topic")


def group_of(resource: Any) -> str:
    """The name in a message Resource of a consumer group; raises RpcRefused for an invalid name."""
    name = str(resource.name)
    problem = validate_group_name(name)
    if problem is not None:
        raise RpcRefused(Code.ILLEGAL_CONSUMER_GROUP, problem)
    return name
