"""Telemetry: the stream on which a client says its settings and the broker its commands.

Owns the states of a stream. It must never keep a client: clients.py does. Called by messaging.py.
"""

import logging
from collections import deque
from functools import partial
from typing import Any, Final

from turbopump.net.grpc.call import GrpcCall
from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.messaging.clients import GrpcClient, GrpcClients
from turbopump.net.messaging.ground import GrpcGround
from turbopump.net.messaging.rpc import RpcRefused, check_answer, client_id_of, parsed, status
from turbopump.net.messaging.settings import needs_of
from turbopump.net.transport.turns import Steps
from turbopump.net.wire.command import Command

logger = logging.getLogger(__name__)

COMMAND_MAX: Final = 256 << 10
"""Bytes of what a client says: settings with thousands of topics, the stacks of many threads."""

WAITING_MAX: Final = 16
"""Commands of a stream that wait for their turn: a client says one at a time."""

_TelemetryCommand: Final = message_class("TelemetryCommand")
_ANSWERS: Final = frozenset({"thread_stack_trace", "verify_message_result"})


class Telemetry:
    """Serves the streams of all clients."""

    def __init__(self, ground: GrpcGround, clients: GrpcClients) -> None:
        self._ground = ground
        self._clients = clients

    def begin(self, call: GrpcCall) -> None:
        """A stream is opened."""
        try:
            stream = _Stream(self._ground, self._clients, call, client_id_of(call))
        except RpcRefused as refused:
            raise _failure(refused) from None
        call.on_message, call.on_end, call.on_over = stream.heard, stream.ended, stream.over


class _Stream:
    """One stream of one client."""

    __slots__ = ("_call", "_client", "_client_id", "_clients", "_ground", "_waiting")

    def __init__(
        self, ground: GrpcGround, clients: GrpcClients, call: GrpcCall, client_id: str
    ) -> None:
        self._ground = ground
        self._clients = clients
        self._waiting: deque[bytes] = deque()
        self._call = call
        self._client_id = client_id
        self._client: GrpcClient | None = None

    def heard(self, data: bytes) -> None:
        """The client says something. Of many commands each has its turn among other clients."""
        self._waiting.append(data)
        if len(self._waiting) > WAITING_MAX:
            text = f"over {WAITING_MAX} commands at once"
            raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, text)
        if len(self._waiting) == 1:
            self._ground.work(self._call.host, self._go_on())

    def _go_on(self) -> Steps[None]:
        while self._waiting and not self._call.is_over:
            try:
                self._hear(self._waiting[0])
            except GrpcError as error:
                self._call.fail(error)
            except Exception:
                logger.exception("a command of %s failed", self._call.address)
                text = "the stream failed, see the server's log"
                self._call.fail(GrpcError(GrpcCode.INTERNAL, text))
            self._waiting.popleft()
            yield

    def _hear(self, data: bytes) -> None:
        said = parsed(_TelemetryCommand, data, COMMAND_MAX)
        kind = said.WhichOneof("kind")
        if kind == "settings":
            settings = said.settings
            try:
                topics, groups = needs_of(settings)
            except RpcRefused as refused:
                raise _failure(refused) from None
            self._ground.know(topics, groups, partial(self._take, settings))
        elif kind in _ANSWERS and self._client is not None:
            self._client.link.answered(said)

    def _take(self, settings: Any) -> None:
        """It is known what the settings name."""
        if self._call.is_over:
            return
        try:
            done = partial(self._registered, settings)
            self._client = self._clients.take(self._call, self._client_id, settings, done)
        except RpcRefused as refused:
            self._call.fail(_failure(refused))
        except Exception:
            logger.exception("settings of %s failed", self._call.address)
            text = "the stream failed, see the server's log"
            self._call.fail(GrpcError(GrpcCode.INTERNAL, text))

    def ended(self) -> None:
        """The client closes its half: the stream is over, once what was said is heard."""
        if self._waiting:
            self._ground.work(self._call.host, self._end())
        else:
            self._call.answer()

    def _end(self) -> Steps[None]:
        while self._waiting and not self._call.is_over:
            yield
        self._call.answer()

    def over(self) -> None:
        """However it ended."""
        if self._client is not None:
            self._clients.lost(self._client, self._call)

    def _registered(self, settings: Any, answer: Command | None) -> None:
        try:
            check_answer(answer)
        except RpcRefused as refused:
            self._call.fail(_failure(refused))
            return
        said = _TelemetryCommand(status=status(Code.OK, "OK"), settings=settings)
        self._call.send(said.SerializeToString())


def _failure(refused: RpcRefused) -> GrpcError:
    """There is no status in a stream that is refused: it ends with an error."""
    of_client = Code.BAD_REQUEST <= refused.code < Code.INTERNAL_ERROR
    code = GrpcCode.INVALID_ARGUMENT if of_client else GrpcCode.INTERNAL
    return GrpcError(code, f"process client telemetryCommand failed. {refused.text}")
