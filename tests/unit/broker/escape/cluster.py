"""An acting replica, and masters of other groups that receive its due messages."""

from collections.abc import Callable

from tests.unit.broker.conftest import World

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import NewMessage, QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.properties import encode_properties
from turbopump.net.wire.route import BrokerData, QueueData, TopicRouteData
from turbopump.net.wire.topics import TopicConfig
from turbopump.pyx.record import Record

NAMES = "10.0.0.9:9876"
OWN = (
    f"brokerName=b\nnamesrvAddr={NAMES}\nenableSlaveActingMaster=true\ntotalReplicas=2\n"
    "brokerRole=SLAVE\nbrokerId=1\nenableRemoteEscape=true\n"
)
DELAYED = "SCHEDULE_TOPIC_XXXX"


class Others:
    """The other nodes that the replica can call: a name server, and masters of other groups."""

    def __init__(self) -> None:
        self.masters: dict[str, World] = {}
        """Masters by the name of their group; the address is this name with a port."""
        self.dead: set[str] = set()
        self.silent = False
        """Whether sends are answered later, by `answer_all`."""
        self.waiting: list[tuple[Deferred[Command | str], Command | str]] = []
        self.sends: list[tuple[str, Command]] = []
        self.codes: dict[str, int] = {}
        """Response code that a master returns instead of its own, by the master's name."""

    def __call__(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        later: Deferred[Command | str] = Deferred()
        if address == NAMES:
            later.resolve(self._route(request))
            return later
        name = address.partition(":")[0]
        self.sends.append((name, request))
        response = self._answer(name, request)
        if self.silent:
            self.waiting.append((later, response))
        else:
            later.resolve(response)
        return later

    def answer_all(self) -> None:
        """Answer all pending sends."""
        waiting, self.waiting = self.waiting, []
        for later, response in waiting:
            later.resolve(response)

    def _route(self, request: Command) -> Command | str:
        if NAMES in self.dead:
            return f"{NAMES}: refused"
        topic = request.fields["topic"]
        route = TopicRouteData([QueueData("b", 4, 4, 4)], [BrokerData("c", "b", {0: "own:1"})])
        for name, world in self.masters.items():
            config = world.broker.topics.peek_topic(topic)
            if config is None:
                continue
            counts = config.read_queue_nums, config.write_queue_nums
            route.queue_datas.append(QueueData(name, *counts, config.perm))
            route.broker_datas.append(BrokerData("c", name, {0: f"{name}:10911"}))
        return new_response(request, 0, body=route.encode())

    def _answer(self, name: str, request: Command) -> Command | str:
        if name in self.dead:
            return f"{name}: no answer"
        body = bytes(request.body)
        again = new_request(request.code, None, body, fields=dict(request.fields))
        response = self.masters[name].dispatch(again)
        if isinstance(response, Deferred):
            if not response.done:
                self.masters[name].turn()
            response = response.value
        if name in self.codes:
            return new_response(request, self.codes[name], "so it is")
        return response


class Replica:
    """An acting replica; `world` is its broker."""

    def __init__(self, make_world: Callable[..., World], more: str = "") -> None:
        self._make = make_world
        self.others = Others()
        self.world = make_world(OWN + more, folder="own")
        self.start()

    def start(self) -> None:
        """Start the broker as an acting replica with a topic."""
        self.world.call = self.others  # type: ignore[method-assign]
        broker = self.world.broker
        broker.topics.put(TopicConfig("T", 4, 4), 1)
        broker.offsets.versions.following = True
        broker.delay.durable.versions = broker.timers.durable.versions = broker.offsets.versions
        broker.role.is_acting = True

    def master(self, name: str, queues: int = 4, topic: str = "T", *, begins: bool = True) -> World:
        """Add another group's master that has the topic; if `begins`, it has read its
        transactions."""
        world = self._make(f"brokerName={name}\n", folder=name)
        world.broker.topics.put(TopicConfig(topic, queues, queues), 1)
        if begins:
            world.pass_time(100)
        self.others.masters[name] = world
        return world

    def delayed(self, level: int, body: bytes, topic: str = "T", **more: str) -> None:
        """Store a delayed message of a level, copied from the dead master."""
        properties = {"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": "2", **more}
        self.store(DELAYED, level - 1, body, properties)

    def store(self, topic: str, queue_id: int, body: bytes, properties: dict[str, str]) -> None:
        """Append a message to the log, as if it were copied from the master."""
        store, now_ms = self.world.broker.store, self.world.now_ms
        message = NewMessage(topic, queue_id, body, encode_properties(properties), 5, 0, 77)
        appended = store.append(message, now_ms)
        assert appended.log_offsets, appended

    def pass_time(self, duration_ms: int) -> None:
        """Advance the clocks of the replica and of all masters."""
        for world in self.others.masters.values():
            world.now_ms = self.world.now_ms + duration_ms
            world.turn()
        self.world.pass_time(duration_ms)


def records(world: World, topic: str = "T") -> list[Record]:
    """All records that a consumer can read from a broker, queue by queue."""
    store = world.broker.store
    store.tick(world.now_ms)
    return [
        record
        for queue_id in sorted(store.queue_ids(topic))
        for unit in store.units(topic, queue_id, QueueOffset(0), 10_000)
        if (record := store.record(unit.log_offset)) is not None
    ]


def bodies(world: World, topic: str = "T") -> list[bytes]:
    """Bodies of all records that a consumer can read from a broker."""
    return [bytes(record.body) for record in records(world, topic)]


BUSY = int(ResponseCode.SYSTEM_BUSY)
NOT_SAFE = int(ResponseCode.FLUSH_SLAVE_TIMEOUT)
SEND = RequestCode.SEND_MESSAGE_V2
