"""A scripted gRPC server in place of a session's channel: settings, heartbeats, calls.

Owns the answers and the record of the requests. It must never judge: the tests do.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.messages import message_class


class ScriptedStream:
    """A Telemetry stream, on which the server accepts each settings unless it `is_silent`."""

    def __init__(self, server: "ScriptedServer", on_message: Callable[[bytes], None]) -> None:
        self._server = server
        self._on_message = on_message
        self.has_ended = False

    def send(self, message: bytes) -> None:
        if not self._server.is_silent:
            answer = self._server.refusal or message
            asyncio.get_running_loop().call_soon(self._on_message, answer)

    def end(self) -> None:
        self.has_ended = True


class ScriptedServer:
    """A server and, by `__call__`, the constructor of channels to it."""

    def __init__(self) -> None:
        self.is_silent = False
        """Whether the server answers no settings."""
        self.refusal = b""
        """The encoded command that answers settings; empty: they are accepted."""
        self.calls: list[tuple[str, Any]] = []
        """Names and requests of the calls."""
        self.metadata: list[tuple[str, dict[bytes, bytes]]] = []
        """Names and metadata of the calls and streams."""
        self.open = 0
        """Channels that are open."""

    def __call__(self, *_: object) -> "ScriptedServer":
        self.open += 1
        return self

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.open -= 1

    async def open_stream(
        self, path: str, metadata: Any, on_message: Any, _on_over: object
    ) -> ScriptedStream:
        self.metadata.append((path.rpartition("/")[2], dict(metadata)))
        await asyncio.sleep(0)
        return ScriptedStream(self, on_message)

    async def call_unary(
        self, path: str, request: bytes, metadata: Any, _timeout_ms: int
    ) -> list[bytes]:
        name = path.rpartition("/")[2]
        self.metadata.append((name, dict(metadata)))
        self.calls.append((name, message_class(f"{name}Request").FromString(request)))
        await asyncio.sleep(0)
        response: dict[str, Any] = {"status": {"code": Code.OK}}
        if name == "ChangeInvisibleDuration":
            response["receipt_handle"] = "a new receipt"
        return [message_class(f"{name}Response")(**response).SerializeToString()]
