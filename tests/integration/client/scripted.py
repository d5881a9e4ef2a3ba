"""A name server and broker whose every response a test decides.

Owns a real server of net/transport with handlers that note requests. It must never behave like a
broker on its own: the other tests have real ones for that.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.server import Server
from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.headers.pull import PullMessageResponse
from turbopump.net.wire.headers.send import SendMessageResponse
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.route import BrokerData, QueueData, TopicRouteData
from turbopump.pyx import record
from turbopump.pyx.region import Region

Script = Callable[[Command], Response]
HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class ScriptedBroker:
    """Answers SUCCESS unless `responses` has a script for the code;

    `requests` holds the received requests.

    Long polls without a script are held until the end; a consumer list names every client seen.
    """

    def __init__(self, name: str = "broker-a", queues: int = 1) -> None:
        self.name = name
        self.queues = queues
        self.requests: list[Command] = []
        self.peers: list[Peer] = []
        self.responses: dict[int, Script] = {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.PULL_MESSAGE: lambda request: Deferred(),
            RequestCode.QUERY_CONSUMER_OFFSET: lambda request: new_response(
                request, 0, header=None, fields={"offset": "0"}
            ),
            RequestCode.LOCK_BATCH_MQ: lambda request: new_response(request, 0, body=b"{}"),
        }
        self.client_ids: list[str] = []
        self.routes: dict[str, TopicRouteData] = {}
        self.address = ""
        dispatcher = Dispatcher()
        for code in RequestCode:
            dispatcher.add(code, self._handle)
        self._server = Server(dispatcher, None, now_ms)

    async def __aenter__(self) -> "ScriptedBroker":
        port = await self._server.start("127.0.0.1", 0)
        self.address = f"127.0.0.1:{port}"
        self.responses.setdefault(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    def requests_of(self, code: int) -> list[Command]:
        """The requests of a code so far."""
        return [request for request in self.requests if request.code == code]

    def fail(
        self, code: int, response: int, remark: str = "scripted", times: int = 1 << 30
    ) -> None:
        """Answer a request code with an error code, `times` times, then as before."""
        before = self.responses.get(code, lambda request: new_response(request, 0))

        def script(request: Command) -> Response:
            if len(self.requests_of(code)) <= times:
                return new_response(request, response, remark)
            return before(request)

        times += len(self.requests_of(code))
        self.responses[code] = script

    async def ask_clients(self, code: int, fields: dict[str, str], body: bytes) -> list[Command]:
        """Send a request to every client and wait for the answers."""
        responses = []
        for peer in {peer for peer in self.peers if not peer.closed}:
            future: asyncio.Future[Command | None] = asyncio.get_running_loop().create_future()
            peer.call(Command(code, fields=fields, body=body), 5000).then(future.set_result)
            response = await future
            assert response is not None
            responses.append(response)
        return responses

    def notify_clients(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        """Send a one-way request to every client."""
        for peer in {peer for peer in self.peers if not peer.closed}:
            peer.notify(Command(code, fields=fields, body=body))

    def _handle(self, request: Command, peer: Peer, _now_ms: int) -> Response:
        # A copy: a request that waits for its answer loses its fields and body.
        self.requests.append(dataclasses.replace(request))
        self.peers.append(peer)
        script = self.responses.get(request.code)
        return script(request) if script is not None else new_response(request, 0)

    def _route(self, request: Command) -> Command:
        topic = request.fields["topic"]
        route = self.routes.get(topic) or route_of(self)
        return new_response(request, ResponseCode.SUCCESS, body=route.encode())

    def _heartbeat(self, request: Command) -> Command:
        assert isinstance(request.body, bytes)
        client_id = HeartbeatData.decode(request.body).client_id
        if client_id not in self.client_ids:
            self.client_ids.append(client_id)
        return new_response(request, ResponseCode.SUCCESS)

    def _members(self, request: Command) -> Command:
        return new_response(request, 0, body=encode_json({"consumerIdList": self.client_ids}))


def route_of(*brokers: ScriptedBroker) -> TopicRouteData:
    """The route of a topic that has queues on all of these."""
    return TopicRouteData(
        [QueueData(broker.name, broker.queues, broker.queues, 6) for broker in brokers],
        [BrokerData("C", broker.name, {0: broker.address}) for broker in brokers],
    )


def stored(request: Command, queue_offset: int = 0) -> Command:
    """The answer to a send."""
    header = SendMessageResponse("7F00000100002A9F0000000000000000", 0, queue_offset)
    return new_response(request, ResponseCode.SUCCESS, header=header)


def pulled(
    request: Command,
    code: int,
    next_offset: int,
    bodies: list[bytes] | None = None,
    *,
    reconsume_times: int = 0,
    properties: bytes = b"",
) -> Command:
    """The answer to a pull: `bodies` end at `next_offset`."""
    header = PullMessageResponse(0, next_offset, 0, next_offset)
    texts = bodies or []
    first = next_offset - len(texts)
    body = b"".join(
        record_bytes(request.fields["topic"], first + at, text, reconsume_times, properties)
        for at, text in enumerate(texts)
    )
    return new_response(request, code, header=header, body=body)


def record_bytes(
    topic: str,
    queue_offset: int,
    body: bytes,
    reconsume_times: int = 0,
    properties: bytes = b"",
    sys_flag: int = 0,
) -> bytes:
    """A stored record; its log offset is a thousand times its queue offset."""
    buffer = bytearray(1024 + len(body) + len(properties))
    size = record.append(
        Region(buffer),
        0,
        len(buffer),
        log_offset=1000 * queue_offset,
        topic=topic.encode(),
        body=body,
        properties=properties,
        queue_id=0,
        flag=7,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        born_host=HOST,
        store_timestamp_ms=2,
        store_host=HOST,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=0,
        version=record.V1,
    )
    return bytes(buffer[:size])
