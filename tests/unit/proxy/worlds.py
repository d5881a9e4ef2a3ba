"""A proxy in front of two whole brokers and a name server, without a socket or a loop."""

from collections.abc import Callable, Generator
from typing import Any

from tests.shortcuts.addresses import pack_host
from tests.unit.broker.conftest import World
from tests.unit.broker.grpc.fronts import GrpcWorld, Heard

from turbopump.engine.deferred import Deferred
from turbopump.net.messaging.messaging import Messaging
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import VERSION, Command, new_request, new_response
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from turbopump.net.wire.topics import TopicConfig
from turbopump.proxy.backend import ProxyRequestBackend
from turbopump.proxy.broker_calls import BrokerCalls
from turbopump.proxy.cluster_map import ClusterMap
from turbopump.proxy.config import ProxyConfig
from turbopump.proxy.endpoints import ClientEndpoints
from turbopump.proxy.members import ClusterMembers

NAME_SERVER = "127.0.0.1:9876"
TYPES = {"TNormal": "NORMAL", "TFifo": "FIFO", "TDelay": "DELAY", "TTran": "TRANSACTION"}


class RemoteBroker:
    """A broker at an address, and the proxy's connection to it."""

    def __init__(self, world: World, address: str, table: Dispatcher) -> None:
        self.world = world
        self.name = world.config.broker_name
        self.address = address
        self.asked: list[Command] = []
        self._table = table
        self.connect()

    def connect(self) -> None:
        """Replace the proxy's connection with a new one."""
        self.peer = Peer(self.address, pack_host(self.address), self)
        self.peer.version = VERSION

    def answer(self, request: Command) -> Deferred[Command | str]:
        """Dispatch a request at the broker; returns its response."""
        passed = new_request(request.code, None, request.body, fields=dict(request.fields))
        self.asked.append(passed)
        found: Any = self.world.table.dispatch(passed, self.peer, self.world.now_ms)
        while isinstance(found, Generator):
            try:
                next(found)
            except StopIteration as ended:
                found = ended.value
        later: Deferred[Command | str] = Deferred()
        if isinstance(found, Deferred):
            found.then(lambda one: later.resolve(one))
        else:
            later.resolve(found)
        return later

    def times(self, code: int) -> int:
        """Number of requests with that code."""
        return sum(one.code == code for one in self.asked)

    # Methods of a Link: commands from the broker to the proxy.

    def send(self, command: Command) -> None:
        if isinstance(command.body, list):
            command.body = b"".join(command.body)
        response: Any = self._table.dispatch(command, self.peer, self.world.now_ms)
        if isinstance(response, Deferred):
            response.then(self.peer.answered)
        elif response is not None:
            self.peer.answered(response)

    def close(self) -> None:
        self.peer.lost()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        return self

    def cancel(self) -> None:
        """Do nothing: no timeout fires in these tests."""

    def after_answers(self, callback: Callable[[], None]) -> None:
        callback()


class ProxyWorld(GrpcWorld):
    """gRPC clients in front of a proxy; `world` is the first broker's, and its clock is used by
    all."""

    def __init__(self, worlds: list[World], properties: dict[str, str]) -> None:
        self.world = worlds[0]
        self._timers = []
        self.world.ticks.append(self._run_due)
        self.config = ProxyConfig(namesrv_addr=[NAME_SERVER])
        self.config.update_keys([Property(key, value) for key, value in properties.items()])
        self.table = Dispatcher()
        self.brokers = [
            RemoteBroker(world, f"127.0.0.1:109{number}1", self.table)
            for number, world in enumerate(worlds, 1)
        ]
        self.masters = {one.name: one.address for one in self.brokers}
        """Addresses of the masters, as the name server has them."""
        self.no_response: dict[str, str] = {}
        """Errors of addresses that do not answer; "" for an address that hangs."""
        self.hanging: list[Deferred[Command | str]] = []
        self.routes_asked = 0
        self.known = ClusterMap(self.config, self.call, lambda: self.world.steady_ms)
        self.calls = BrokerCalls(self.known, self.call)
        self.members = ClusterMembers(
            self.known, self.calls, "proxy@1", lambda: self.world.steady_ms
        )
        self.members.register(self.table)
        backend = ProxyRequestBackend(
            self.config,
            self.known,
            self.calls,
            self.members,
            call_soon=lambda work: self.world.soon(work),
            call_later=self.call_later,
            now_ms=lambda: self.world.now_ms,
            steady_ms=lambda: self.world.steady_ms,
        )
        self.backend = backend
        self.messaging = Messaging(backend, ClientEndpoints("10.0.0.1", 8081, echoes_port=False))
        self.messaging.start()
        for world in worlds:
            for name, kind in TYPES.items():
                topic = TopicConfig(name, 4, 4, attributes={"message.type": kind})
                world.broker.topics.put(topic, world.now_ms)
        self.tick()

    def tick(self, ms: int = 0) -> None:
        """Advance the clocks by `ms` and run the proxy's tick."""
        for one in self.brokers[1:]:
            one.world.now_ms += ms
        self.world.now_ms += ms
        self._run_due(self.world.steady_ms)
        self.known.tick()
        self.members.tick()

    def pass_all(self, duration_ms: int) -> None:
        """Advance the clock of the brokers."""
        for one in self.brokers:
            one.world.turn()
            one.world.pass_time(duration_ms)

    def ask(self, name: str, client_id: str = "c1", **fields: Any) -> Any:
        """The response to a unary call that is answered at once."""
        heard = self.start(name, client_id, **fields)[1]
        if not heard.has_ended:
            self.pass_all(100)
        return heard.answer

    def call(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        """Send a request of the proxy to another node."""
        later: Deferred[Command | str] = Deferred()
        if address in self.no_response:
            if self.no_response[address]:
                later.resolve(self.no_response[address])
            else:
                self.hanging.append(later)
            return later
        if address == NAME_SERVER:
            later.resolve(self._named(request))
            return later
        return next(one for one in self.brokers if one.address == address).answer(request)

    def _named(self, request: Command) -> Command:
        groups = {
            one.name: BrokerData("C", one.name, {0: self.masters[one.name]})
            for one in self.brokers
            if one.name in self.masters
        }
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            body = ClusterInfo(groups, {"C": list(groups)}).encode()
            return new_response(request, ResponseCode.SUCCESS, body=body)
        self.routes_asked += 1
        name = request.fields["topic"]
        found = {
            one.name: topic
            for one in self.brokers
            if one.name in groups and (topic := one.world.broker.topics.get(name)) is not None
        }
        if not found:
            return new_response(request, ResponseCode.TOPIC_NOT_EXIST, "no route")
        queues = [
            QueueData(broker, one.read_queue_nums, one.write_queue_nums, one.perm)
            for broker, one in found.items()
        ]
        route = TopicRouteData(queues, [groups[broker] for broker in found])
        return new_response(request, ResponseCode.SUCCESS, body=route.encode())

    def receive(self, topic: str, group: str, broker: str = "", **more: Any) -> Heard:
        """Start a ReceiveMessage call."""
        queue = {"topic": {"name": topic}, "broker": {"name": broker}}
        asked = {
            "group": {"name": group},
            "message_queue": queue,
            "batch_size": 32,
            "invisible_duration": {"seconds": 30},
            "long_polling_timeout": {"seconds": 5},
            **more,
        }
        return self.start("ReceiveMessage", **asked)[1]

    def received(self, topic: str, group: str, broker: str) -> list[Any]:
        """The messages that a receive returns at once."""
        heard = self.receive(topic, group, broker)
        if not heard.has_ended:
            self.pass_all(100)
        return [one.message for one in heard.messages if one.WhichOneof("kind") == "message"]
