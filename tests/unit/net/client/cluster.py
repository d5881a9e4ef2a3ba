"""A cluster of scripted servers for a real client: virtual time, no sockets, listed faults.

Owns the replacement of `net.transport.client.Client`, a name server, brokers with queues, offsets,
locks and members, and the loop that moves its clock to the next timer when idle. It must never
judge: the tests do. Tests with real brokers are in tests/integration/client.
"""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.shortcuts.addresses import pack_host
from tests.unit.links import WrittenDown

from turbopump.net.client.options import ClientOptions
from turbopump.net.client.shared_client import SharedClient
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.errors import CallTimeout, ConnectError, RemotingError
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import as_object, encode_json, load_object
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Body, Command, new_response
from turbopump.net.wire.headers.pull import PullMessageResponse
from turbopump.net.wire.headers.send import SendMessageResponse
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from turbopump.pyx import record
from turbopump.pyx.region import Region

T = TypeVar("T")
NAME_SERVER, OTHER_NAME_SERVER = "127.0.0.1:9876", "127.0.0.1:9877"
START_MS = 1_700_000_000_000
HOST = pack_host("127.0.0.1:10911")
TOPIC = "T"
TURNS_MAX = 100_000
"""Maximum number of the loop's turns in a test, which needs hundreds or thousands: virtual time
alone would never end it."""

Fault = Exception | int | None
"""The outcome of a request instead of its response: an exception, an error code, or None for a
response that never arrives."""

Said = Body | ResponseCode | dict[str, str]
"""A body, an error code, or fields."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop without waiting: its clock jumps to the next timer once no callback is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._turns = 0
        select = self._selector.select  # type: ignore[attr-defined]

        def leap(timeout_s: float | None) -> list[Any]:
            ready: list[Any] = select(0)
            self._turns += 1
            assert self._turns < TURNS_MAX, "a story without an end"
            assert ready or timeout_s is not None, "all tasks wait for ever"
            self._now_s += 0.0 if ready or timeout_s is None else timeout_s
            return ready

        self._selector.select = leap  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now_s


def now_ms() -> int:
    """Milliseconds since the story began; 0 before its start."""
    try:
        return round(asyncio.get_running_loop().time() * 1000)
    except RuntimeError:
        return 0


def play(story: Coroutine[Any, Any, T]) -> T:
    """Run a story in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)


def shared_with(instance: Any) -> SharedClient:
    """A client whose requests go to `instance`, which stands for a ClientInstance."""
    made = SharedClient(NAME_SERVER)
    made._instance = instance
    return made


def options(**more: Any) -> ClientOptions:
    """Client options with the clocks of the loop."""
    return ClientOptions(now_ms=lambda: START_MS + now_ms(), steady_ms=now_ms, **more)


@dataclass
class Stored:
    """A message of a queue."""

    body: bytes
    properties: bytes = b""
    reconsume_times: int = 0


class ScriptedBroker:
    """A broker without a disk: it keeps messages in memory."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address
        self.queues: dict[tuple[str, int], list[Stored]] = defaultdict(list)
        self.least: dict[tuple[str, int], int] = defaultdict(int)
        self.committed: dict[tuple[str, str, int], int] = {}
        self.locks: dict[tuple[str, int], str] = {}
        self.members: list[str] = []
        self.back: list[dict[str, str]] = []
        self.suggested = 0
        self._arrived: list[asyncio.Event] = []

    def put(self, body: bytes, queue_id: int = 0, **more: Any) -> None:
        """Append a message from elsewhere."""
        self.queues[TOPIC, queue_id].append(Stored(body, **more))
        for event in self._arrived:
            event.set()

    async def answer(self, request: Command) -> Command:
        """The response to a request, after a long poll if needed."""
        fields = request.fields
        done = new_response(request, ResponseCode.SUCCESS)
        match request.code:
            case RequestCode.HEART_BEAT:
                assert isinstance(request.body, bytes)
                client_id = HeartbeatData.decode(request.body).client_id
                if client_id not in self.members:
                    self.members.append(client_id)
            case RequestCode.UNREGISTER_CLIENT:
                self.members = [one for one in self.members if one != fields["clientID"]]
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                done.body = encode_json({"consumerIdList": self.members})
            case RequestCode.SEND_MESSAGE_V2:
                at = (fields["b"], int(fields["e"]))
                assert isinstance(request.body, bytes)
                self.queues[at].append(Stored(request.body, (fields.get("i") or "").encode()))
                header = SendMessageResponse("ID", at[1], len(self.queues[at]) - 1)
                done = new_response(request, ResponseCode.SUCCESS, header=header)
            case RequestCode.QUERY_CONSUMER_OFFSET:
                offset = self.committed.get(self._group_key(fields))
                if offset is None:
                    return new_response(request, ResponseCode.QUERY_NOT_FOUND, "none")
                done.fields = {"offset": str(offset)}
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                self.committed[self._group_key(fields)] = int(fields["commitOffset"])
            case RequestCode.GET_MIN_OFFSET:
                done.fields = {"offset": str(self.least[self._key(fields)])}
            case RequestCode.GET_MAX_OFFSET:
                done.fields = {"offset": str(self._end(self._key(fields)))}
            case RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                done.fields = {"offset": str(int(fields["timestamp"]) - START_MS)}
            case RequestCode.PULL_MESSAGE | RequestCode.LITE_PULL_MESSAGE:
                return await self._pull(request)
            case RequestCode.LOCK_BATCH_MQ | RequestCode.UNLOCK_BATCH_MQ:
                done.body = self._lock(request)
            case RequestCode.CONSUMER_SEND_MSG_BACK:
                self.back.append(dict(fields))
        return done

    def _end(self, key: tuple[str, int]) -> int:
        return self.least[key] + len(self.queues[key])

    @staticmethod
    def _key(fields: dict[str, str]) -> tuple[str, int]:
        return fields["topic"], int(fields["queueId"])

    @staticmethod
    def _group_key(fields: dict[str, str]) -> tuple[str, str, int]:
        return fields["consumerGroup"], fields["topic"], int(fields["queueId"])

    def _lock(self, request: Command) -> bytes:
        assert isinstance(request.body, bytes)
        body = load_object(request.body)
        client_id, granted = body["clientId"], []
        for bean in body["mqSet"]:
            queue = MessageQueue.from_json(as_object(bean))
            key = (queue.topic, queue.queue_id)
            if request.code == RequestCode.UNLOCK_BATCH_MQ:
                if self.locks.get(key) == client_id:
                    del self.locks[key]
            elif self.locks.setdefault(key, client_id) == client_id:
                granted.append(queue.to_json())
        return encode_json({"lockOKMQSet": granted})

    async def _pull(self, request: Command) -> Command:
        fields, key = request.fields, self._key(request.fields)
        at, count = int(fields["queueOffset"]), int(fields["maxMsgNums"])
        if int(fields["sysFlag"]) & 1:
            self.committed[self._group_key(fields)] = int(fields["commitOffset"])
        if at >= self._end(key) and self.least[key] <= at <= self._end(key):
            await self._wait(int(fields["suspendTimeoutMillis"]))
        code, after, body = ResponseCode.PULL_NOT_FOUND, at, b""
        if not self.least[key] <= at <= self._end(key):
            code = ResponseCode.PULL_OFFSET_MOVED
            after = max(self.least[key], min(at, self._end(key)))
        elif at < self._end(key):
            code, after = ResponseCode.SUCCESS, min(self._end(key), at + count)
            found = enumerate(self.queues[key][at - self.least[key] : after - self.least[key]], at)
            body = b"".join(record_bytes(key, offset, one) for offset, one in found)
        header = PullMessageResponse(self.suggested, after, self.least[key], self._end(key))
        return new_response(request, code, header=header, body=body)

    async def _wait(self, suspend_ms: int) -> None:
        event = asyncio.Event()
        self._arrived.append(event)
        try:
            async with asyncio.timeout(suspend_ms / 1000):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._arrived.remove(event)


def record_bytes(key: tuple[str, int], queue_offset: int, one: Stored) -> bytes:
    """A message in its stored form; its log offset is a thousand times its queue offset."""
    buffer = bytearray(256 + len(one.body) + len(one.properties))
    size = record.append(
        Region(buffer),
        0,
        len(buffer),
        log_offset=1000 * queue_offset,
        topic=key[0].encode(),
        body=one.body,
        properties=one.properties,
        queue_id=key[1],
        flag=0,
        queue_offset=queue_offset,
        sys_flag=0,
        born_timestamp_ms=1,
        born_host=HOST,
        store_timestamp_ms=2,
        store_host=HOST,
        reconsume_times=one.reconsume_times,
        prepared_transaction_offset=0,
        version=record.V1,
    )
    return bytes(buffer[:size])


@dataclass
class Call:
    """A request that the client made."""

    at_ms: int
    address: str
    request: Command
    timeout_ms: int

    @property
    def code(self) -> int:
        """The request's code."""
        return self.request.code


@dataclass
class ScriptedCluster:
    """Servers by address, routes by topic, and the faults of requests."""

    brokers: dict[str, ScriptedBroker] = field(default_factory=dict)
    routes: dict[str, TopicRouteData] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    faults: dict[tuple[str, int], list[Fault]] = field(default_factory=dict)
    responses: dict[tuple[str, int], Body | ResponseCode | dict[str, str]] = field(
        default_factory=dict
    )
    calls: list[Call] = field(default_factory=list)
    dispatcher: Dispatcher | None = None
    open: int = 0

    def add(self, *names: str, queues: int = 1, topics: tuple[str, ...] = (TOPIC,)) -> None:
        """Add brokers, and topics with queues on all present brokers."""
        for name in names:
            address = f"127.0.0.1:{11_000 + len(self.brokers)}"
            self.brokers[address] = ScriptedBroker(name, address)
        for topic in topics:
            self.routes[topic] = self.route(queues, *(one.name for one in self.brokers.values()))

    def route(self, queues: int, *names: str, perm: int = 6) -> TopicRouteData:
        """A route over brokers with `queues` queues each."""
        return TopicRouteData(
            [QueueData(name, queues, queues, perm) for name in names],
            [BrokerData("C", name, {0: self.named(name).address}) for name in names],
        )

    def named(self, name: str) -> ScriptedBroker:
        """The broker of that name."""
        return next(one for one in self.brokers.values() if one.name == name)

    def fail(self, name: str, code: int, *faults: Fault) -> None:
        """Set faults of the next requests with that code to a broker or an address."""
        address = name if ":" in name else self.named(name).address
        self.faults.setdefault((address, code), []).extend(faults)

    def set_response(self, name: str, code: int, response: Said) -> None:
        """Set the response of a broker or an address to all later requests with that code."""
        self.responses[name if ":" in name else self.named(name).address, code] = response

    def made(self, code: int) -> list[Call]:
        """Requests with that code until now."""
        return [call for call in self.calls if call.code == code]

    def times(self, code: int) -> list[int]:
        """Times of the requests with that code, in ms since the test began."""
        return [call.at_ms for call in self.made(code)]

    def ask_client(self, code: int, fields: dict[str, str], body: bytes = b"") -> Any:
        """Send a broker's request to the client; returns the response or the promise of it."""
        assert self.dispatcher is not None
        peer = Peer("127.0.0.1:11000", HOST, WrittenDown())
        return self.dispatcher.dispatch(Command(code, fields=fields, body=body), peer, now_ms())

    def __call__(self, _now: object, dispatcher: Dispatcher, _options: object) -> "ScriptedCluster":
        """Stands for the constructor of the transport's Client."""
        self.dispatcher = dispatcher
        self.open += 1
        return self

    async def close(self) -> None:
        """Release the client like Client.close."""
        self.open -= 1

    async def notify(self, address: str, request: Command) -> None:
        """Send a one-way request like Client.notify."""
        await self.call(address, request, 3000)

    async def call(self, address: str, request: Command, timeout_ms: int) -> Command:
        """Send a request like Client.call."""
        self.calls.append(Call(now_ms(), address, request, timeout_ms))
        await asyncio.sleep(0)
        if address in self.down:
            raise ConnectError(f"{address} cannot be reached")
        faults = self.faults.get((address, request.code))
        if faults:
            fault = faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            if fault is not None:
                return new_response(request, fault, "scripted")
            await asyncio.sleep(timeout_ms / 1000)
            raise CallTimeout(f"{address} does not answer")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._answer(address, request)
        except TimeoutError:
            raise CallTimeout(f"{address} does not answer") from None

    async def _answer(self, address: str, request: Command) -> Command:
        response = self.responses.get((address, request.code))
        if isinstance(response, ResponseCode):
            return new_response(request, response, "scripted")
        if isinstance(response, dict):
            return new_response(request, ResponseCode.SUCCESS, fields=response)
        if response is not None:
            return new_response(request, ResponseCode.SUCCESS, body=response)
        if address in self.brokers:
            return await self.brokers[address].answer(request)
        if address not in (NAME_SERVER, OTHER_NAME_SERVER):
            raise RemotingError(f"there is nothing at {address}")
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return new_response(request, ResponseCode.SUCCESS, body=self._cluster_info().encode())
        if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            body = encode_json({"topicList": list(self.routes)})
            return new_response(request, ResponseCode.SUCCESS, body=body)
        if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return new_response(request, ResponseCode.SUCCESS)
        route = self.routes.get(request.fields["topic"])
        if route is None:
            return new_response(request, ResponseCode.TOPIC_NOT_EXIST, "no route")
        return new_response(request, ResponseCode.SUCCESS, body=route.encode())

    def _cluster_info(self) -> ClusterInfo:
        data = [BrokerData("C", one.name, {0: one.address}) for one in self.brokers.values()]
        names = [one.broker_name for one in data]
        return ClusterInfo({one.broker_name: one for one in data}, {"C": names})
