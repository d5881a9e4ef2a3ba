"""A channel whose server is the test, which reads the channel's bytes and sets the server's."""

import asyncio
from typing import Any, cast

from turbopump.net.grpc.channel import GrpcChannel, _Connection


class Script:
    """The transport of a connection."""

    def __init__(self, client: _Connection) -> None:
        self.client = client
        self.out = b""
        self.is_over = False
        client.connection_made(cast(asyncio.Transport, self))

    def get_extra_info(self, _name: str) -> Any:
        return None

    def write(self, data: bytes) -> None:
        self.out += data

    def say(self, data: bytes, size: int = 1 << 16) -> None:
        """Deliver the server's bytes in pieces, until the client closes."""
        for at in range(0, len(data), size):
            if not self.is_over:
                self.client.data_received(data[at : at + size])

    def close(self) -> None:
        """Close the connection, from either side."""
        if not self.is_over:
            self.is_over = True
            self.client.connection_lost(None)

    abort = close


class Scripted(GrpcChannel):
    """A channel whose connections are scripts."""

    def __init__(self) -> None:
        super().__init__("far:1")
        self.scripts: list[Script] = []

    async def _open(self) -> _Connection:
        client = _Connection(self.address)
        self.scripts.append(Script(client))
        return client

    def ask(self, timeout_ms: int = 60_000) -> "asyncio.Task[list[bytes]]":
        """Begin a call; its request is sent at the end of the loop's turn."""
        return asyncio.create_task(self.call_unary("/S/M", b"request", [], timeout_ms))
