"""A TCP link between a replica and a master's HA port that can be cut, stalled, slowed, delayed.

One `Link` for each direction of each pair of brokers: the group file that a broker has names the
links that begin at it, so nothing of replication goes around them.
"""

import asyncio
import contextlib
import socket
import struct

PIECE = 64 << 10
SMALL_PIECE = 7
"""Bytes at once of a link that breaks everything into pieces: no frame is as short."""


class Way:
    """A direction of a link."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.delay_s = 0.0
        self.small_until = 0
        """Number of bytes that still go in small pieces."""

    def heal(self) -> None:
        """End all trouble."""
        self.delay_s, self.small_until = 0.0, 0
        self.open.set()

    async def pump(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        """Copy bytes until one of both ends closes."""
        with contextlib.suppress(OSError):
            while True:
                await self.open.wait()
                size = SMALL_PIECE if self.small_until > 0 else PIECE
                data = await source.read(size)
                if not data:
                    break
                self.small_until -= len(data)
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self.open.wait()
                to.write(data)
                await to.drain()
        to.close()


class Link:
    """Link from a broker to the HA port of another broker; or from any process to a port, at a
    loopback address of its own.
    """

    def __init__(self, target_port: int, host: str = "127.0.0.1", port: int = 0) -> None:
        self.there, self.back = Way(), Way()
        self.address = ""
        """Address to which replicas connect."""
        self.is_cut = False
        self.connections = 0
        self._target_port = target_port
        self._place = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Open the port."""
        self._server = await asyncio.start_server(self._accepted, *self._place)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    async def stop(self) -> None:
        """Close the port and all connections."""
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Connections end, and there are no new ones until `heal`."""
        self.is_cut = True
        self.reset()

    def reset(self) -> None:
        """Connections end, without a last word; each peer may connect again."""
        for writer in list(self._writers):
            sock = writer.get_extra_info("socket")
            if sock is not None:  # None once it is closed
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def heal(self) -> None:
        """End all trouble of the link."""
        self.is_cut = False
        self.there.heal()
        self.back.heal()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = {writer}
        self._writers |= writers
        try:
            if self.is_cut:
                return
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(
                    "127.0.0.1", self._target_port
                )
                writers.add(far_writer)
                self._writers |= writers
                if self.is_cut:
                    return
                self.connections += 1
                pumps = [
                    asyncio.ensure_future(self.there.pump(reader, far_writer)),
                    asyncio.ensure_future(self.back.pump(far_reader, writer)),
                ]
                # Where one direction ended, the other may stand still for ever.
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            for one in writers:
                one.transport.abort()
            self._writers -= writers
