"""A whole broker whose clients use gRPC, without a socket: tests make the calls directly."""

from collections.abc import Callable
from typing import Any

from tests.shortcuts.addresses import pack_host
from tests.unit.broker.conftest import World

from turbopump.broker.grpc.backend import BrokerRequestBackend
from turbopump.net.grpc.call import GrpcCall
from turbopump.net.grpc.codes import ClientType
from turbopump.net.grpc.framing import MessageReader
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.messaging.messaging import PATH, Messaging
from turbopump.net.messaging.routes import endpoints_at
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.topics import TopicConfig

TYPES = {
    "TNormal": "NORMAL",
    "TFifo": "FIFO",
    "TDelay": "DELAY",
    "TTran": "TRANSACTION",
}


class Heard:
    """The carrier of a call, with the messages sent to its client. `error` is the call's
    failure."""

    def __init__(self, name: str, address: str) -> None:
        self.address = address
        self.host = pack_host(address)
        self.is_clogged = False
        self.name = name
        self.raw: list[bytes] = []
        self.has_ended = False
        self.error: GrpcError | None = None
        self._reader = MessageReader(64 << 20, gzip=False)

    def write_answer(self, call: GrpcCall, body: bytes, end: tuple[GrpcCode, str] | None) -> None:
        self.raw += self._reader.feed_bytes(body)
        if end is not None:
            self.has_ended = True
            if end[0] is not GrpcCode.OK:
                self.error = GrpcError(*end)

    @property
    def messages(self) -> list[Any]:
        """Messages received since this property was read last."""
        raw, self.raw = self.raw, []
        return [message_class(self.name).FromString(one) for one in raw]

    @property
    def answer(self) -> Any:
        """The only message of a response that has ended."""
        assert self.error is None, self.error
        assert self.has_ended, "the call is not answered"
        (one,) = self.messages
        return one


class GrpcWorld:
    """A World with the gRPC service besides its other handlers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._timers: list[tuple[int, Callable[[], None]]] = []
        world.ticks.append(self._run_due)
        backend = BrokerRequestBackend(
            world.broker,
            world.table,
            call_soon=lambda work: world.soon(work),
            call_later=self.call_later,
            now_ms=lambda: world.now_ms,
        )
        self.messaging = Messaging(backend, lambda _: endpoints_at("127.0.0.1:8081"))
        self.messaging.start()
        for name, kind in TYPES.items():
            attributes = {"message.type": kind}
            topic = TopicConfig(name, 4, 4, attributes=attributes)
            world.broker.topics.put(topic, world.now_ms)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        entry = (self.world.steady_ms + delay_ms, callback)
        self._timers.append(entry)

        class Handle:
            def cancel(_self) -> None:
                if entry in self._timers:
                    self._timers.remove(entry)

        return Handle()

    def _run_due(self, steady_ms: int) -> None:
        for entry in [one for one in self._timers if one[0] <= steady_ms]:
            self._timers.remove(entry)
            entry[1]()
        self.world.turn()

    def begin(
        self, name: str, client_id: str = "c1", response: str = "", timeout_s: float = 0
    ) -> tuple[GrpcCall, Heard]:
        """Begin a call: its headers have arrived."""
        heard = Heard(response or f"{name}Response", "127.0.0.1:50001")
        metadata = {
            b"x-mq-client-id": client_id.encode(),
            b"x-mq-language": b"PYTHON",
            b"x-mq-client-version": b"5.1.2",
        }
        call = GrpcCall(heard, 1, f"{PATH}{name}", metadata)
        if timeout_s:
            call.deadline = self.world.steady_ms / 1_000 + timeout_s
        self.messaging.methods[f"{PATH}{name}"](call)
        return call, heard

    def start(
        self, name: str, client_id: str = "c1", timeout_s: float = 0, **fields: Any
    ) -> tuple[GrpcCall, Heard]:
        """Send a unary call completely."""
        call, heard = self.begin(name, client_id, timeout_s=timeout_s)
        request = message_class(f"{name}Request")(**fields).SerializeToString()
        tell(call, request)
        if call.on_end is not None:
            try:
                call.on_end()
            except GrpcError as error:
                call.fail(error)
        return call, heard

    def ask(self, name: str, client_id: str = "c1", **fields: Any) -> Any:
        """The response to a unary call that is answered at once."""
        heard = self.start(name, client_id, **fields)[1]
        if not heard.has_ended:
            self.world.pass_time(100)
        return heard.answer

    def telemetry(self, client_id: str, **settings: Any) -> tuple[GrpcCall, Heard]:
        """Open a client's telemetry stream and send its settings."""
        call, heard = self.begin("Telemetry", client_id, "TelemetryCommand")
        command = message_class("TelemetryCommand")(settings=settings)
        self.tell(call, command.SerializeToString())
        return call, heard

    def tell(self, call: GrpcCall, message: bytes, times: int = 1) -> None:
        """Send a client's message on a stream, and run the loop."""
        for _ in range(times):
            if call.on_message is not None:
                tell(call, message)
        for _ in range(3 + times):
            self.world.turn()

    def producer(self, client_id: str, *topics: str) -> tuple[GrpcCall, Heard]:
        """Connect a producer with its settings."""
        settings = {"publishing": {"topics": [{"name": topic} for topic in topics]}}
        return self.telemetry(client_id, client_type=ClientType.PRODUCER, **settings)

    def consumer(
        self,
        client_id: str,
        group: str,
        *topics: str,
        kind: ClientType = ClientType.SIMPLE_CONSUMER,
    ) -> tuple[GrpcCall, Heard]:
        """Connect a consumer with its settings."""
        subscriptions = [
            {"topic": {"name": topic}, "expression": {"type": 1, "expression": "*"}}
            for topic in topics
        ]
        subscription = {"group": {"name": group}, "subscriptions": subscriptions}
        return self.telemetry(client_id, client_type=kind, subscription=subscription)

    def send(self, *messages: dict[str, Any], client_id: str = "c1") -> Any:
        """Send messages with SendMessage; returns the response."""
        return self.ask("SendMessage", client_id, messages=messages)

    def peers_of(self, group: str) -> list[Peer]:
        """The members of a producer group."""
        return list(self.world.broker.producers.producers_of(group))


def tell(call: GrpcCall, message: bytes) -> None:
    """Pass a client's message to the call as the connection does."""
    assert call.on_message is not None
    try:
        call.on_message(message)
    except GrpcError as error:
        call.fail(error)


def message(topic: str = "TNormal", body: bytes = b"body", **system: Any) -> dict[str, Any]:
    """The fields of a message; its id is `m1` by default."""
    system = {"message_id": "m1", "message_type": 1, "body_encoding": 1, **system}
    user = system.pop("user", {})
    return {
        "topic": {"name": topic},
        "body": body,
        "user_properties": user,
        "system_properties": system,
    }
