"""The way back to a gRPC client: commands for its Peer are sent on its Telemetry stream.

Owns the conversion of remoting's requests to Telemetry commands, and the clients' answers to
commands (RocketMQ: GrpcClientChannel). It must never know settings.

A client without a stream, or that does not read its commands, is sent nothing: a check of a
transaction is repeated later, and an operator's request is answered with an error.

Tests: tests/unit/net/messaging/test_clients.py
"""

from collections.abc import Callable
from typing import Any, Final

from turbopump.net.grpc.call import GrpcCall
from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.messages import message_class
from turbopump.net.messaging.backend import RequestBackend
from turbopump.net.messaging.delivery import message_of
from turbopump.net.messaging.rpc import status
from turbopump.net.messaging.sending import HalfPlace
from turbopump.net.transport.peer import Peer, Timer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.transactions import CheckTransactionStateRequest
from turbopump.net.wire.message import decode_messages

NONCE_DIGITS_MAX: Final = 10
"""Maximum digits of the nonce in a client's answer: it is the opaque of the command."""
ASKED_MAX: Final = 64
"""Maximum number of commands to a client that wait for its answers; beyond it the oldest is
forgotten, and its request times out."""

_TelemetryCommand: Final = message_class("TelemetryCommand")
_RESULTS: Final = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}


class TelemetryLink:
    """The link of a gRPC client's Peer: requests to the client are sent as commands on its
    Telemetry stream. Loop thread only. `on_close` is called when the broker closes the
    connection."""

    __slots__ = ("_asked", "_backend", "_on_close", "peer", "stream")

    def __init__(self, backend: RequestBackend, on_close: Callable[[], None]) -> None:
        self._backend = backend
        self._on_close = on_close
        self._asked: dict[int, Command] = {}
        self.stream: GrpcCall | None = None
        """The client's newest Telemetry call; None: it has none."""
        self.peer: Peer | None = None
        """The Peer that this link belongs to, set by the owner; it receives the answers."""

    # Methods for Peer.

    def send(self, command: Command) -> None:
        """Convert a request of remoting to a Telemetry command and send it now. If it cannot be
        sent, or has no such command (see _COMMANDS), the Peer receives the response SYSTEM_ERROR in
        a later turn of the loop; a one-way request is dropped."""
        ask = _COMMANDS.get(command.code)
        message = None if ask is None else ask(command)
        is_sent = message is not None and self._send(message)
        if command.is_oneway:
            return
        asked = Command(command.code, command.opaque)
        if not is_sent:
            self._backend.call_soon(lambda: self._answer_refused(asked))
            return
        self._asked[command.opaque] = asked
        if len(self._asked) > ASKED_MAX:
            del self._asked[next(iter(self._asked))]

    def close(self) -> None:
        """Call `on_close`: the broker closes the connection to the client."""
        self._on_close()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the loop after `delay_ms`, unless the returned timer is cancelled
        first."""
        return self._backend.call_later(delay_ms, callback)

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` after the current turn of the loop."""
        self._backend.call_soon(callback)

    # Methods for telemetry.py.

    def on_answer(self, message: Any) -> None:
        """Convert a client's answer, a TelemetryCommand with `thread_stack_trace` or
        `verify_message_result`, to a response of remoting, and pass it to the Peer. Dropped unless
        a command with its nonce waits."""
        kind = message.WhichOneof("kind")
        nonce = getattr(message, kind).nonce
        is_number = nonce.isascii() and nonce.isdigit() and len(nonce) <= NONCE_DIGITS_MAX
        asked = self._asked.pop(int(nonce), None) if is_number else None
        if asked is None or self.peer is None:
            return
        if kind == "thread_stack_trace":
            response = _running_info_response(asked, message)
        else:
            response = _consumed_response(asked, message)
        self.peer.answered(response)

    def _send(self, message: Any) -> bool:
        """Send a TelemetryCommand; False, and nothing is sent, without a stream whose client
        reads."""
        stream = self.stream
        if stream is None or stream.has_ended or stream.is_clogged:
            return False
        stream.send(message.SerializeToString())
        return True

    def _answer_refused(self, command: Command) -> None:
        """Give the Peer the response SYSTEM_ERROR to a command that cannot be sent."""
        if self.peer is not None:
            remark = "the client cannot be asked: it has no telemetry stream, or no such command"
            self.peer.answered(new_response(command, ResponseCode.SYSTEM_ERROR, remark))


def _check_command(command: Command) -> Any:
    """Convert CHECK_TRANSACTION_STATE to a TelemetryCommand."""
    header = read_header(CheckTransactionStateRequest, command.fields)
    assert not isinstance(command.body, list), "a check has one record"
    view = decode_messages(command.body)[0]
    place = HalfPlace(
        header.broker_name or "",
        header.commit_log_offset,
        header.tran_state_table_offset,
        view.message_id,
    )
    return _TelemetryCommand(
        status=status(Code.OK, "OK"),
        recover_orphaned_transaction_command={
            "message": message_of(view),
            "transaction_id": place.transaction_id,
        },
    )


def _print_stack_command(command: Command) -> Any:
    """Convert GET_CONSUMER_RUNNING_INFO to a TelemetryCommand."""
    return _TelemetryCommand(
        status=status(Code.OK, "OK"),
        print_thread_stack_trace_command={"nonce": str(command.opaque)},
    )


def _verify_command(command: Command) -> Any:
    """Convert CONSUME_MESSAGE_DIRECTLY to a TelemetryCommand."""
    assert not isinstance(command.body, list), "it has one record"
    return _TelemetryCommand(
        status=status(Code.OK, "OK"),
        verify_message_command={
            "nonce": str(command.opaque),
            "message": message_of(decode_messages(command.body)[0]),
        },
    )


_COMMANDS: Final[dict[int, Callable[[Command], Any]]] = {
    RequestCode.CHECK_TRANSACTION_STATE: _check_command,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _print_stack_command,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _verify_command,
}


def _running_info_response(asked: Command, message: Any) -> Command:
    """Convert a client's thread stack trace to the response to GET_CONSUMER_RUNNING_INFO; a gRPC
    client reports nothing but its threads."""
    info = {
        "jstack": message.thread_stack_trace.thread_stack_trace,
        "mqTable": {},
        "properties": {},
        "statusTable": {},
        "subscriptionSet": [],
    }
    return new_response(asked, ResponseCode.SUCCESS, body=bodies.encode_json(info))


def _consumed_response(asked: Command, message: Any) -> Command:
    """Convert a client's result of handling a message to the response to
    CONSUME_MESSAGE_DIRECTLY."""
    result = {
        "autoCommit": True,
        "consumeResult": _RESULTS.get(message.status.code, "CR_THROW_EXCEPTION"),
        "order": False,
        "remark": message.status.message,
        "spentTimeMills": 0,
    }
    return new_response(asked, ResponseCode.SUCCESS, body=bodies.encode_json(result))
