"""A client of RocketMQ's gRPC service: id, settings on a Telemetry stream, heartbeats, calls.

Owns the channel to one address and the life of the stream. It must never know a message that is
sent or received. Each producer and consumer with `endpoints` makes its own.
"""

import asyncio
import itertools
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

from turbopump.net.client.credentials import Credentials, effective_credentials
from turbopump.net.client.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    InvalidArgument,
    check_type,
)
from turbopump.net.client.options import ClientOptions, remoting_options
from turbopump.net.client.tasks import TaskSet
from turbopump.net.grpc.channel import GrpcChannel, OutgoingCall
from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.messages import SERVICE, message_class
from turbopump.net.grpc.server import why_no_grpc
from turbopump.net.grpc.signature import can_be_sent, signed_metadata
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.transport.errors import CallTimeout, ConnectionClosed, RemotingError
from turbopump.net.transport.hub import HTTP2
from turbopump.net.transport.tls import client_context
from turbopump.net.wire.hosts import split_host_port

logger = logging.getLogger(__name__)

VERSION: Final = b"5.1.0"
"""Version of the service that this client speaks, as RocketMQ's clients do; servers compare it."""
HEARTBEAT_MS: Final = 10_000
"""Interval of heartbeats in milliseconds."""
AGAIN_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Waits between tries to open a lost stream again, in seconds; the last one repeats."""
CLOSE_MS: Final = 1_000
"""Timeout in milliseconds of the request by which a client leaves."""

_serial = itertools.count()
_Command: Final = message_class("TelemetryCommand")


class EndpointSession:
    """A client of `host:port`. `settings` returns the client's current settings (a Settings
    message) each time they are sent. `client_id` is empty until started; the owner sets
    `client_type` (a ClientType) before `start`.

    Raises InvalidArgument for a malformed address or unusable credentials, TlsError for TLS files
    that cannot be used.
    """

    def __init__(
        self, address: str, options: ClientOptions | None, settings: Callable[[], Any]
    ) -> None:
        check_type(address, str, "endpoints", "'host:port'")
        try:
            split_host_port(address)
        except ValueError as error:
            raise InvalidArgument(f"endpoints: {error}") from None
        self.address = address
        self.options = options or ClientOptions()
        check_type(self.options, ClientOptions, "client_options", "a turbopump.ClientOptions")
        self._credentials = effective_credentials(self.options.credentials)
        _check_sendable(self._credentials)
        self._make_tls_context()  # a missing file raises here, not at the first call
        self._settings = settings
        self._tasks = TaskSet()
        self._channel: GrpcChannel | None = None
        self._stream: OutgoingCall | None = None
        self._answered: asyncio.Future[Any] | None = None
        self._sending = asyncio.Lock()
        self._will_send = False
        self.client_id = ""
        self.client_type = 0

    @property
    def is_running(self) -> bool:
        """Whether the session was started and not closed."""
        return self._channel is not None

    async def start(self) -> None:
        """Connect, send the settings and wait until the server accepted them; heartbeats follow.

        Raises ClientError if started already or if gRPC's package is missing, BrokerError if the
        server refuses the settings, RemotingError.
        """
        if self.is_running:
            raise ClientError("the client is started already")
        reason = why_no_grpc()
        if reason is not None:
            raise ClientError(reason)
        name = self.options.instance_name or f"{time.time_ns() + next(_serial)}"
        self._sending = asyncio.Lock()  # a lock belongs to the loop in which it is waited for
        self.client_id = f"{socket.gethostname()}@{os.getpid()}#{name}"
        self._channel = GrpcChannel(
            self.address, self._make_tls_context(), self.options.connect_timeout_ms
        )
        try:
            await self.send_settings()
        except BaseException:
            await self._disconnect()
            raise
        self._tasks.run_every(HEARTBEAT_MS, self._send_heartbeat, "heartbeat")

    async def close(self) -> None:
        """Send the client's termination (1 s at most; a failure is logged), and close the
        connection. Closing twice does nothing."""
        if self._channel is None:
            return
        try:
            await self.call_successfully("NotifyClientTermination", {}, CLOSE_MS)
        except (ClientError, RemotingError) as error:
            logger.debug("leaving %s failed: %s", self.address, error)
        await self._disconnect()

    def mark_closed(self) -> None:
        """Count as closed, without a request: the loop of `start` was closed."""
        self._tasks, self._will_send = TaskSet(), False
        self._channel = self._stream = self._answered = None

    async def send_settings(self) -> None:
        """Send the settings, over a new stream if no stream is open, and wait for the answer, up to
        the option `timeout_ms`. Raises BrokerError if the server refuses them, RemotingError,
        ClientClosed. An answer does not name its settings, so the lock admits a single exchange at
        a time."""
        async with self._sending:
            self._will_send = False
            await self._send_settings()

    def send_settings_soon(self) -> None:
        """Send the settings in the background; a failure is logged. Calls before they are sent
        count as a single call; unless started, nothing is sent."""
        if not self._will_send and self.is_running:
            self._will_send = True
            self._tasks.spawn(self._sync_or_log(), "settings")

    async def _disconnect(self) -> None:
        """Cancel the background tasks, end the stream and close the channel."""
        channel, self._channel = self._channel, None
        await self._tasks.cancel()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()
        if channel is not None:
            await channel.close()

    async def _sync_or_log(self) -> None:
        """Send the settings; a failure is logged."""
        try:
            await self.send_settings()
        except (ClientError, RemotingError) as error:
            logger.info("%s did not accept new settings: %s", self.address, error)

    async def _send_settings(self) -> None:
        """Send the settings on the stream, opened if necessary, and wait for the server's
        answer. Raises CallTimeout, BrokerError, RemotingError."""
        channel = self._open_channel()
        message = _Command(settings=self._settings()).SerializeToString()
        answered = self._answered = asyncio.get_running_loop().create_future()
        if self._stream is None or self._stream.has_ended:
            path = f"/{SERVICE}/Telemetry"
            self._stream = await channel.open_stream(
                path, self._call_headers(), self._on_command, self._on_stream_end
            )
        self._stream.send(message)
        try:
            async with asyncio.timeout(self.options.timeout_ms / 1_000):
                await answered
        except TimeoutError:
            raise CallTimeout(f"{self.address} did not answer the settings in time") from None

    async def call_successfully(
        self,
        name: str,
        request: dict[str, Any],
        timeout_ms: int = 0,
        *,
        fine: frozenset[Code] = frozenset({Code.OK}),
    ) -> Any:
        """Call the unary method `name` with the fields `request` of its message and return the
        answer, a message of type `name`Response.

        `timeout_ms` 0 is the option's value. Raises BrokerError for a status that is not `fine`,
        RemotingError without an answer, ClientClosed unless started.
        """
        found = await self._call_method(name, request, timeout_ms or self.options.timeout_ms)
        if len(found) != 1:
            raise ConnectionClosed(f"{self.address} answered {name} with {len(found)} messages")
        response = self._read(name, found[0])
        self.check_status(response.status, fine)
        return response

    async def call_streaming(
        self, name: str, request: dict[str, Any], timeout_ms: int
    ) -> list[Any]:
        """Call `name` like `call_successfully` and return all messages of its streamed answer, in
        order, when it has ended; a status inside of a message is not checked. Raises RemotingError
        without an answer, BrokerError if gRPC itself reports an error, ClientClosed unless
        started."""
        found = await self._call_method(name, request, timeout_ms)
        return [self._read(name, one) for one in found]

    def _read(self, name: str, message: bytes) -> Any:
        """Parse the answer to the method `name`; raises ConnectionClosed for other bytes."""
        try:
            return message_class(f"{name}Response").FromString(message)
        except DecodeError:
            text = f"{self.address} answered {name} with bytes that are no message"
            raise ConnectionClosed(text) from None

    def check_status(self, status: Any, fine: frozenset[Code] = frozenset({Code.OK})) -> None:
        """Raises BrokerError for a Status whose code is not in `fine`."""
        if status.code not in fine:
            raise BrokerError(status.code, status.message, self.address)

    async def _call_method(
        self, name: str, request: dict[str, Any], timeout_ms: int
    ) -> list[bytes]:
        """Call the method `name` and return the messages of its answer, encoded. Raises
        BrokerError, RemotingError, ClientClosed."""
        channel = self._open_channel()
        asked = message_class(f"{name}Request")(**request).SerializeToString()
        try:
            return await channel.call_unary(
                f"/{SERVICE}/{name}", asked, self._call_headers(), timeout_ms
            )
        except GrpcError as error:
            raise _to_client_error(error, self.address) from None

    def _open_channel(self) -> GrpcChannel:
        """Return the channel; raises ClientClosed unless started."""
        if self._channel is None:
            raise ClientClosed("the client is not started, or is closed")
        return self._channel

    def _make_tls_context(self) -> ssl.SSLContext | None:
        """Make the TLS context of the options; None: without TLS. Raises TlsError."""
        settings = remoting_options(self.options).tls
        if settings is None:
            return None
        context = client_context(settings)
        context.set_alpn_protocols([HTTP2])
        return context

    def _call_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of each call: client id, language, version, protocol, and with
        credentials the signature of this time."""
        headers = [
            (b"x-mq-client-id", self.client_id.encode()),
            (b"x-mq-language", b"PYTHON"),
            (b"x-mq-client-version", VERSION),
            (b"x-mq-protocol", b"v2"),
        ]
        if self._credentials is not None:
            key = self._credentials
            now_ms = self.options.now_ms()
            headers += signed_metadata(key.access_key, key.secret_key, now_ms, key.security_token)
        return headers

    async def _send_heartbeat(self) -> None:
        """Call Heartbeat, so that the server keeps the client registered."""
        await self.call_successfully("Heartbeat", {"client_type": self.client_type})

    # Callbacks of the stream.

    def _on_command(self, message: bytes) -> None:
        """Handle a command of the stream: the answer to the settings, or a status alone, with which
        a server refuses the client; others are ignored. Raises GrpcError."""
        try:
            command = _Command.FromString(message)
        except DecodeError:
            text = "a command that is no message came over the stream of settings"
            raise GrpcError(GrpcCode.INTERNAL, text) from None
        answered = self._answered
        kind = command.WhichOneof("kind")
        if kind not in ("settings", None) or answered is None or answered.done():
            return
        if command.HasField("status") and command.status.code != Code.OK:
            answered.set_exception(
                BrokerError(command.status.code, command.status.message, self.address)
            )
        elif kind is not None:
            answered.set_result(command.settings)

    def _on_stream_end(self, error: Exception | None) -> None:
        """Handle the end of the stream: settings without an answer fail, otherwise the stream is
        reopened."""
        answered = self._answered
        if answered is not None and not answered.done():
            lost = ConnectionClosed(f"{self.address} closed the stream of settings")
            failure = (
                _to_client_error(error, self.address) if isinstance(error, GrpcError) else lost
            )
            answered.set_exception(failure)
        elif self.is_running:
            self._tasks.spawn(self._reopen_stream(), "settings")

    async def _reopen_stream(self) -> None:
        """Reopen a lost stream; tries until it succeeds or the session is closed."""
        for wait_s in itertools.chain(AGAIN_S, itertools.repeat(AGAIN_S[-1])):
            await asyncio.sleep(wait_s)
            if not self.is_running:
                return
            try:
                await self.send_settings()
                return
            except (ClientError, RemotingError) as error:
                logger.info("no stream of settings to %s: %s", self.address, error)


def _check_sendable(credentials: Credentials | None) -> None:
    """Raise InvalidArgument for credentials that metadata cannot hold."""
    if credentials is None:
        return
    if not can_be_sent(credentials.access_key, ends_at="/,"):
        raise InvalidArgument(
            f"credentials: gRPC cannot send the access key {credentials.access_key!r}: it takes"
            " printable ASCII without comma and slash"
        )
    if not can_be_sent(credentials.security_token):
        raise InvalidArgument("credentials: gRPC cannot send a token that is not printable ASCII")


def _to_client_error(error: GrpcError, address: str) -> Exception:
    """Convert the error of a call into an exception of the public API."""
    if error.code is GrpcCode.DEADLINE_EXCEEDED:
        return CallTimeout(f"{address} did not answer in time: {error.text}")
    if error.code in (GrpcCode.UNAVAILABLE, GrpcCode.CANCELLED):
        return ConnectionClosed(f"{address} ended the call: {error.text}")
    return BrokerError(error.code, error.text, address)
