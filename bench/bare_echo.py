"""A minimal uvloop server: finds frames by their length, answers each with fixed bytes.

bench_round_trips.py runs it as a process and reads its port from the output. It has no codec, no
store and no handler.
"""

import asyncio
import struct
import sys
from typing import cast

import uvloop


class Echo(asyncio.BufferedProtocol):
    """Answers every complete frame with `reply`, one write per read."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._buffer = bytearray(1 << 20)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        at = count = 0
        while self._filled - at >= 4:
            size = struct.unpack_from(">i", self._buffer, at)[0] + 4
            if self._filled - at < size:
                break
            at += size
            count += 1
        self._buffer[: self._filled - at] = self._buffer[at : self._filled]
        self._filled -= at
        if count and self._transport is not None:
            self._transport.write(self._reply * count)


async def serve_reply(reply: bytes) -> None:
    """Listen at a free port, print it, and answer each frame with `reply`, for ever."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Echo(reply), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve_reply(bytes.fromhex(sys.argv[1])))
