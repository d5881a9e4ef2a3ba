"""A network that loses packets, for clients that reach their servers by SOCKS 5.

Packets to a client are lost with a probability (random-loss drops incoming packets, controller.md
22); TCP sends a lost packet again after 200 ms, then after twice as long each time. Bytes from a
server are delayed here by this time, and so is a new connection, whose first packet is sent again
after 1 s. Must never lose or change a byte, as TCP does not.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from typing import Final

FIRST_AGAIN_S: Final = 0.2
CONNECT_AGAIN_S: Final = 1.0
AGAIN_MAX_S: Final = 120.0
CHUNK: Final = 64 * 1024
_IPV4, _NAME = 1, 3


class LossyNetwork:
    """A client's connections to all servers; it listens on its own thread until it is closed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._loss = 0.0
        self.heard_ms = 0
        """Time at which the last repeated packet arrived after the end of a loss (epoch ms)."""
        self._loop = asyncio.new_event_loop()
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self._serving = self._loop.run_until_complete(
            asyncio.start_server(self._client, sock=listening)
        )
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def lose(self, share: float) -> None:
        """Set the share of the packets to the client that are lost."""
        self._loss = share

    def close(self) -> None:
        """End all connections and the thread."""

        def end() -> None:
            self._serving.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_soon(self._loop.stop)

        self._loop.call_soon_threadsafe(end)
        self._thread.join()
        self._loop.close()

    async def _until_sent(self, again_s: float) -> None:
        was_lost = False
        while self._loss and self._rng.random() < self._loss:
            was_lost = True
            await asyncio.sleep(min(again_s, AGAIN_MAX_S))
            again_s *= 2
        if was_lost and not self._loss:
            self.heard_ms = time.time_ns() // 1_000_000

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            await self._until_sent(CONNECT_AGAIN_S)
            host, port = await _greeted(reader, writer)
            from_server, to_server = await asyncio.open_connection(host, port)
            try:
                writer.write(bytes([5, 0, 0, _IPV4]) + bytes(6))
                await asyncio.wait(
                    [
                        asyncio.ensure_future(self._pass_on(reader, to_server, loses=False)),
                        asyncio.ensure_future(self._pass_on(from_server, writer, loses=True)),
                    ],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                to_server.close()
        writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, loses: bool
    ) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(CHUNK):
                if loses:
                    await self._until_sent(FIRST_AGAIN_S)
                writer.write(data)
                await writer.drain()


async def _greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int]:
    """Read the address that the client asks for (RFC 1928, without a password)."""
    _, methods = await reader.readexactly(2)
    await reader.readexactly(methods)
    writer.write(bytes([5, 0]))
    _, _, _, kind = await reader.readexactly(4)
    if kind == _NAME:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
    else:
        host = socket.inet_ntoa(await reader.readexactly(4))
    return host, struct.unpack(">H", await reader.readexactly(2))[0]
