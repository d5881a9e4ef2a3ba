"""Connections to a broker's gRPC service whose simple calls are served natively, or not."""

import asyncio
from typing import Any, cast

from tests.unit.broker.grpc.fronts import GrpcWorld
from tests.unit.net.grpc.conftest import StillLoop, Wire, hear

from turbopump.broker.grpc.simple_calls import SimpleCalls
from turbopump.net.grpc.connection import GrpcConnection
from turbopump.net.grpc.hub import GrpcHub
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.options import GrpcOptions
from turbopump.net.grpc.status import HEADERS, GrpcCode, encode_trailers
from turbopump.net.messaging.messaging import PATH
from turbopump.pyx.grpc_lane import GrpcLane
from turbopump.pyx.h2 import DATA, H2Session, pairs
from turbopump.pyx.h2 import HEADERS as BLOCK

HEAD = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", f"{PATH}SendMessage".encode()),
    (b":authority", b"broker"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
    (b"grpc-timeout", b"3000000u"),
    (b"x-mq-client-id", b"c1"),
)
"""Headers of a call as clients send them."""


class Side:
    """Connections to a broker's service, native or not."""

    def __init__(self, front: GrpcWorld, is_native: bool) -> None:
        self.loop = StillLoop()
        self.turn = front.world.turn
        plain = SimpleCalls(front.world.broker, front.messaging)
        self.lane = GrpcLane(
            plain.find_native_lane, plain.may_ack, HEADERS, encode_trailers(GrpcCode.OK, "")
        )
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        lane = self.lane if is_native else None
        self.hub = GrpcHub(front.messaging.methods, GrpcOptions(), loop, lane)

    def connect(self) -> "Caller":
        return Caller(self)


class Caller:
    """A connection and its client, which uses the same HTTP/2 library."""

    def __init__(self, side: Side) -> None:
        self.session = H2Session(100, 8_192, 1 << 20, 1 << 20, client=True)
        self.connection = GrpcConnection(side.hub)
        self.wire = Wire(self.connection)
        self._side = side
        self.connection.connection_made(cast(asyncio.Transport, self.wire))
        hear(self.connection, self.session.take()[0])
        self.heard()

    def bytes_of(self, *bodies: bytes, head: Any = HEAD) -> bytes:
        """The wire bytes of calls with these bodies."""
        for body in bodies:
            self.session.request(pairs(list(head)), body, True)
        return self.session.take()[0]

    def heard(self) -> dict[int, tuple[bytes, dict[bytes, bytes]]]:
        """DATA and all headers by stream, since the last call of this method."""
        for _ in range(3):  # acknowledgements of a turn are written together
            self._side.turn()
            self._side.loop.run()
        out, self.wire.out = self.wire.out, b""
        found: dict[int, tuple[bytes, dict[bytes, bytes]]] = {}
        for kind, stream, what in self.session.receive(out)[1]:
            data, headers = found.get(stream, (b"", {}))
            if kind == DATA:
                found[stream] = (data + cast(bytes, what), headers)
            elif kind == BLOCK:
                found[stream] = (data, headers | dict(cast(Any, what)))
        return found

    def call(
        self, body: bytes, head: Any = HEAD, name: str = "SendMessage"
    ) -> tuple[Any, dict[bytes, bytes]]:
        """Make a call; returns its response, if there is a message, and its headers."""
        hear(self.connection, self.bytes_of(body, head=head))
        ((data, headers),) = self.heard().values()
        return message_class(f"{name}Response").FromString(data[5:]), headers
