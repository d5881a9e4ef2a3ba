"""Replays the bytes that RocketMQ's gRPC clients sent to a broker (interop/grpc/recording.py).

The bytes of each connection are delivered in pieces of several sizes, with and without the native
path: every call is answered, and all sent messages are stored.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.grpc.fronts import GrpcWorld
from tests.unit.broker.grpc.native import Side
from tests.unit.net.grpc.conftest import Wire, hear
from tests.wire import h2_frames as h2
from tests.wire.h2_frames import frames

from turbopump.net.grpc.call import GrpcCall, Method
from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.connection import GrpcConnection
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.server import why_no_grpc
from turbopump.net.wire.topics import TopicConfig

pytestmark = pytest.mark.skipif(why_no_grpc() is not None, reason=str(why_no_grpc()))
RECORDED = Path(__file__).parents[3] / "golden" / "grpc"
CLIENTS = ("go", "java", "node", "python", "rust")
SENT = 40
FOREIGN = {Code.INVALID_RECEIPT_HANDLE, Code.INTERNAL_SERVER_ERROR}
FINE = {
    "QueryRoute": {Code.OK},
    # Settings may arrive on the other connection, which is replayed later.
    "Heartbeat": {Code.OK, Code.UNRECOGNIZED_CLIENT_TYPE},
    "SendMessage": {Code.OK},
    "QueryAssignment": {Code.OK},
    "ReceiveMessage": {Code.OK, Code.MESSAGE_NOT_FOUND},
    "NotifyClientTermination": {Code.OK, Code.UNRECOGNIZED_CLIENT_TYPE},
    # The receipts are from a different broker, at a time that is in this broker's future.
    "AckMessage": FOREIGN,
    "ChangeInvisibleDuration": FOREIGN,
    "Telemetry": {Code.OK},
}


class Replay:
    """The connections of a client, and the results of their calls."""

    def __init__(self, front: GrpcWorld, client: str, is_native: bool) -> None:
        self.topic = "simple" if client == "java" else f"{client}-simple"
        self.side = Side(front, is_native)
        self.paths: dict[tuple[int, int], str] = {}
        self.codes: dict[str, set[int]] = {}
        self.world = front.world
        front.world.broker.topics.put(TopicConfig(self.topic, 1, 1), front.world.now_ms)
        methods = {
            path: self._noted(path, method) for path, method in self.side.hub.methods.items()
        }
        self.side.hub.methods = methods

    def _noted(self, path: str, method: Method) -> Method:
        def begin(call: GrpcCall) -> None:
            self.paths[id(call._carrier), call.stream_id] = path.rpartition("/")[2]
            method(call)

        return begin

    def play(self, data: bytes, size: int) -> None:
        """Replay a connection until it ends."""
        one = GrpcConnection(self.side.hub)
        wire: Any = Wire(one)
        one.connection_made(wire)
        for at in range(0, len(data), size):
            self.side.loop.now = self.world.steady_ms / 1_000
            hear(one, data[at : at + size])
            self.world.turn()
            self.side.loop.run()
        for _ in range(40):
            self.world.pass_time(500)
            self.side.loop.run()
        self._judge(one, list(frames(wire.out)))
        one.connection_lost(None)

    def _judge(self, one: GrpcConnection, written: list[tuple[int, int, int, bytes]]) -> None:
        assert not [kind for kind, *_ in written if kind in (h2.GOAWAY, h2.RESET)]
        bodies: dict[int, bytes] = {}
        for kind, stream, _flags, payload in written:
            if kind == h2.DATA:
                bodies[stream] = bodies.get(stream, b"") + payload
        for stream in {stream for owner, stream in self.paths if owner == id(one)}:
            name = self.paths.pop((id(one), stream))
            body = bodies.get(stream, b"")
            assert body, f"{name} of stream {stream} is not answered"
            size = int.from_bytes(body[1:5], "big")
            kind = "TelemetryCommand" if name == "Telemetry" else f"{name}Response"
            response = message_class(kind).FromString(body[5 : 5 + size])
            self.codes.setdefault(name, set()).add(response.status.code)

    @property
    def stored(self) -> int:
        """Messages of the topic."""
        return self.world.broker.store.max_queue_offset(self.topic, 0)


@pytest.mark.parametrize("is_native", [False, True], ids=["handlers", "natively"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("size", [1_000, 7])
def test_a_clients_settings_are_understood(
    make_front: Callable[..., GrpcWorld], client: str, is_native: bool, size: int
) -> None:
    front = make_front()
    front.world.broker.fast.start(front.world.broker.store_host)
    replay = Replay(front, client, is_native)
    files = sorted(RECORDED.glob(f"{client}-*.bin"))
    assert files
    for file in files:
        replay.play(file.read_bytes(), size)
    wrong = {name: codes for name, codes in replay.codes.items() if not codes <= FINE[name]}
    assert not wrong
    assert {"QueryRoute", "Telemetry", "ReceiveMessage"} <= set(replay.codes)
    assert replay.stored == SENT
    # A call that is split between two reads is left to Python.
    assert (replay.side.lane.send_count > SENT // 2) == (is_native and size == 1_000)
