"""Telemetry: the stream on which a client sends its settings and the broker its commands.

Owns the states of a stream. It must never keep a client: clients.py does.

    open -> settings -> registered -> settings and answers to commands ... -> over
      any refusal or malformed command ends the stream with an error

Tests: tests/unit/net/messaging/test_clients.py
"""

import logging
from collections import deque
from functools import partial
from typing import Any, Final

from turbopump.net.grpc.call import GrpcCall
from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.messaging.backend import RequestBackend
from turbopump.net.messaging.clients import GrpcClient, GrpcClients
from turbopump.net.messaging.rpc import (
    RpcRefused,
    check_response,
    client_id_of,
    parse_message,
    status,
)
from turbopump.net.messaging.settings import names_in_settings
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.wire.command import Command

logger = logging.getLogger(__name__)

COMMAND_MAX: Final = 256 << 10
"""Maximum bytes of a client's command: settings with thousands of topics, stacks of many
threads."""

WAITING_MAX: Final = 16
"""Maximum number of commands of a stream that wait for their turn, beyond which the stream fails: a
client sends one at a time."""

_TelemetryCommand: Final = message_class("TelemetryCommand")
_RESPONSES: Final = frozenset({"thread_stack_trace", "verify_message_result"})


class Telemetry:
    """Serves the streams of all clients. Loop thread only."""

    def __init__(self, backend: RequestBackend, clients: GrpcClients) -> None:
        self._backend = backend
        self._clients = clients

    def begin_stream(self, call: GrpcCall) -> None:
        """Serve Telemetry: set the callbacks of a new stream. Raises GrpcError without a valid
        client id."""
        try:
            stream = _Stream(self._backend, self._clients, call, client_id_of(call))
        except RpcRefused as refused:
            raise _to_grpc_error(refused) from None
        call.on_message, call.on_end, call.on_closed = (
            stream.on_command,
            stream.on_half_end,
            stream.on_end,
        )


class _Stream:
    """A Telemetry stream of a client: its waiting commands, and the client once its settings
    were accepted."""

    __slots__ = ("_backend", "_call", "_client", "_client_id", "_clients", "_waiting")

    def __init__(
        self, backend: RequestBackend, clients: GrpcClients, call: GrpcCall, client_id: str
    ) -> None:
        self._backend = backend
        self._clients = clients
        self._waiting: deque[bytes] = deque()
        self._call = call
        self._client_id = client_id
        self._client: GrpcClient | None = None

    def on_command(self, data: bytes) -> None:
        """Queue a command of the client. Each command of a stream has its own turn among the
        work of other clients."""
        self._waiting.append(data)
        if len(self._waiting) > WAITING_MAX:
            text = f"over {WAITING_MAX} commands at once"
            raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, text)
        if len(self._waiting) == 1:
            self._backend.run_steps(self._call.packed_host, self._handle_settings())

    def _handle_settings(self) -> Steps[None]:
        """Handle the waiting commands, one in each step; an error ends the stream."""
        while self._waiting and not self._call.has_ended:
            try:
                self._on_command(self._waiting[0])
            except GrpcError as error:
                self._call.fail(error)
            except Exception:
                logger.exception("a command of %s failed", self._call.address)
                text = "the stream failed, see the server's log"
                self._call.fail(GrpcError(GrpcCode.INTERNAL, text))
            self._waiting.popleft()
            yield

    def _on_command(self, data: bytes) -> None:
        """Handle a command: settings, or a client's answer to a command. Raises GrpcError."""
        command = parse_message(_TelemetryCommand, data, COMMAND_MAX)
        kind = command.WhichOneof("kind")
        if kind == "settings":
            settings = command.settings
            try:
                topics, groups = names_in_settings(settings)
            except RpcRefused as refused:
                raise _to_grpc_error(refused) from None
            self._backend.resolve_names(topics, groups, partial(self._register, settings))
        elif kind in _RESPONSES and self._client is not None:
            self._client.link.on_answer(command)

    def _register(self, settings: Any) -> None:
        """Register the client with `settings`, whose topics and groups are resolved."""
        if self._call.has_ended:
            return
        try:
            done = partial(self._on_registered, settings)
            self._client = self._clients.register(self._call, self._client_id, settings, done)
        except RpcRefused as refused:
            self._call.fail(_to_grpc_error(refused))
        except Exception:
            logger.exception("settings of %s failed", self._call.address)
            text = "the stream failed, see the server's log"
            self._call.fail(GrpcError(GrpcCode.INTERNAL, text))

    def on_half_end(self) -> None:
        """Handle the end of the client's half: the stream ends after the commands that wait."""
        if self._waiting:
            self._backend.run_steps(self._call.packed_host, self._end_after_waiting())
        else:
            self._call.answer_with()

    def _end_after_waiting(self) -> Steps[None]:
        """Answer the stream with its end, once no command waits."""
        while self._waiting and not self._call.has_ended:
            yield
        self._call.answer_with()

    def on_end(self) -> None:
        """Detach the ended stream from the client, whatever ended it."""
        if self._client is not None:
            self._clients.stream_ended(self._client, self._call)

    def _on_registered(self, settings: Any, response: Command | None) -> None:
        """Send the merged settings to the client, or end the stream if the heartbeat was
        refused."""
        try:
            check_response(response)
        except RpcRefused as refused:
            self._call.fail(_to_grpc_error(refused))
            return
        command = _TelemetryCommand(status=status(Code.OK, "OK"), settings=settings)
        self._call.send(command.SerializeToString())


def _to_grpc_error(refused: RpcRefused) -> GrpcError:
    """Convert a refusal to an error: a refused stream has no status and ends with an error."""
    of_client = Code.BAD_REQUEST <= refused.code < Code.INTERNAL_ERROR
    code = GrpcCode.INVALID_ARGUMENT if of_client else GrpcCode.INTERNAL
    return GrpcError(code, f"process client telemetryCommand failed. {refused.text}")
