"""A client of a cluster: connections, routes, heartbeats, and requests that brokers send to it.

Owns the single transport Client, the route cache, the client id and the background tasks that
producers and consumers share. It must never know how messages are sent or consumed. Each Producer,
Consumer, PullConsumer and Admin makes its own ClientInstance unless it is given one to share.
"""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import Buffer
from turbopump.net.client.credentials import effective_credentials, signer_of
from turbopump.net.client.errors import BrokerError, ClientClosed, ClientError, check_type
from turbopump.net.client.group_member import GroupMember
from turbopump.net.client.options import ClientOptions, addresses_of, remoting_options
from turbopump.net.client.routes import BrokerTable, TopicRoute, provisional_route, read_route
from turbopump.net.client.sending import DEFAULT_TOPIC_QUEUES
from turbopump.net.client.tasks import TaskSet
from turbopump.net.routing.name_servers import Absent
from turbopump.net.routing.route_cache import NEVER_MS, CacheRules, RouteCache
from turbopump.net.transport.client import Client
from turbopump.net.transport.dispatcher import Dispatcher, Handler, Response
from turbopump.net.transport.errors import RemotingError
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.tls import client_context
from turbopump.net.wire import hosts
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Body, Command, new_request, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.clients import (
    NotifyConsumerIdsChangedRequest,
    UnregisterClientRequest,
)
from turbopump.net.wire.headers.routes import GetRouteInfoRequest
from turbopump.net.wire.heartbeat import HeartbeatData, ProducerData
from turbopump.net.wire.message import MessageView, decode_messages
from turbopump.net.wire.names import AUTO_CREATE_TOPIC
from turbopump.net.wire.route import TopicRouteData

logger = logging.getLogger(__name__)

T = TypeVar("T")

TOPICS_MAX: Final = 10_000
"""Maximum number of topics whose routes are kept and refreshed; beyond it the least recently used
topic is forgotten."""

ROUTE_AGE_MIN_MS: Final = 100
"""Milliseconds in which a route is not requested again: in a failover many senders fail at once."""

UNREGISTER_TIMEOUT_MS: Final = 1000
"""Timeout in milliseconds of the request by which a client leaves a broker: a broker that does not
answer must not hold up `close`."""

NEXT_NAME_SERVER_MS: Final = 1_000
"""After this wait in milliseconds for a name server the next is queried at the same time. A server
answers in a few ms, and a send that needs a route has 3 s in all."""

A_BROKER: Final = "a broker"
"""The kind in KINDS of a broker."""
KINDS: Final = {
    A_BROKER: (RequestCode.GET_BROKER_RUNTIME_INFO,),
    "a name server": (
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_KV_CONFIG,
    ),
    "a controller": (
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        RequestCode.CLEAN_BROKER_DATA,
    ),
    "a container of brokers": (
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.ADD_BROKER,
        RequestCode.REMOVE_BROKER,
    ),
}
"""Kinds of servers, each with the requests that only this kind answers; all other requests are for
brokers. The first request of each kind is a probe: it changes nothing, every server of the kind
answers it, and no earlier kind does."""

_serial = itertools.count()


Checker = Callable[[Command, MessageView, Peer], None]
"""A function of (a broker's request, the message as it would be committed, the broker)."""


@dataclass(slots=True, frozen=True)
class _Failed(Absent):
    """A query for a route that failed. All callers that waited for it raise its error."""

    error: Exception


_CANCELLED: Final = Absent("the caller that sent the query was cancelled", is_certain=False)


class ClientInstance:
    """A client of a cluster of name servers, shared by any number of producers and consumers.

    `client_id` ("ip@name", empty until started) is the id under which brokers list it; `ip` is this
    machine's address towards the name server; `namesrv` begins with the server that is asked first;
    `brokers` has the addresses of brokers; `tasks` end when the last user leaves. Loop thread only.

    Args:
        namesrv: addresses "host:port", or one text with ";" between them; the first that answers
            is used until it fails, or needs more than a second.
        options: intervals and timeouts.

    Raises InvalidArgument for a malformed address or unusable credentials, and TlsError for TLS
    files that cannot be used.
    """

    def __init__(self, namesrv: str | Sequence[str], options: ClientOptions | None = None) -> None:
        self.namesrv = addresses_of(namesrv)
        self.options = options or ClientOptions()
        check_type(self.options, ClientOptions, "client_options", "a turbopump.ClientOptions")
        self._sign = signer_of(effective_credentials(self.options.credentials))
        tls = remoting_options(self.options).tls
        if tls is not None:
            client_context(tls)  # a missing file raises here, not at the first call
        self.brokers = BrokerTable()
        self.tasks = TaskSet()
        self.client_id = ""
        self.ip = "127.0.0.1"
        self._client: Client | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users = 0
        self._starting = asyncio.Lock()
        self._heartbeats = asyncio.Lock()
        self._routes = self._new_cache()
        self._due: dict[str, Deferred[TopicRoute | Absent]] = {}
        """Queries that the current caller of `refresh` sends."""
        self._producers: dict[str, int] = {}
        self._members: dict[str, GroupMember] = {}
        self._checkers: dict[str, Checker] = {}

    def now_ms(self) -> int:
        """Epoch milliseconds of the client's wall clock."""
        return self.options.now_ms()

    def steady_ms(self) -> int:
        """Milliseconds of the monotonic clock: for waits, leases and durations."""
        return self.options.steady_ms()

    async def acquire(self) -> None:
        """Count a user; the first one starts the client, without a request to a server. Each
        `acquire` needs a `release`; a cancelled `acquire` counts nothing. Raises ClientError in
        another event loop than that of the users."""
        self._leave_ended_loop()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._users or self._starting.locked():
                raise ClientError("the client was started by another event loop")
            self._loop = loop
            self._starting, self._heartbeats = asyncio.Lock(), asyncio.Lock()
        async with self._starting:
            if self._users == 0:
                await self._start()
            self._users += 1

    async def release(self) -> None:
        """Undo an `acquire`; with the last user, cancel the background tasks, close the connections
        and wait for that. A later `acquire` starts the client again."""
        async with self._starting:
            assert self._users > 0, "released more often than acquired"
            self._users -= 1
            if self._users == 0:
                try:
                    await self.tasks.cancel()
                finally:
                    client, self._client = self._client, None
                    assert client is not None
                    await client.close()

    async def call(self, address: str, request: Command, timeout_ms: int = 0) -> Command:
        """Send a request to `address` ("host:port") and return its response, also with an error
        code.

        Raises RemotingError when no response arrives within `timeout_ms` (0: the option's value),
        which includes connecting; ClientClosed unless started, ClientError in another event loop.
        """
        client = self._running_client()
        return await client.call(address, request, timeout_ms or self.options.timeout_ms)

    async def ask(
        self,
        address: str,
        code: int,
        header: Any = None,
        body: Body = b"",
        *,
        timeout_ms: int = 0,
        fields: dict[str, str] | None = None,
    ) -> Command:
        """Build a request of `code` and `call` with it; raises BrokerError for every code but
        SUCCESS.

        `fields` are further header fields. After REQUEST_CODE_NOT_SUPPORTED, probes find out
        whether the server is of another kind (KINDS), which the error's remark then names.
        """
        request = new_request(code, header, body, fields=fields)
        response = await self.call(address, request, timeout_ms)
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise BrokerError(
                response.code, await self._wrong_kind_text(address, code, response), address
            )
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response.code, response.remark, address)
        return response

    async def _wrong_kind_text(self, address: str, code: int, response: Command) -> str | None:
        """The error text for a server of another kind, found by probes; else None."""
        asked = next((kind for kind, codes in KINDS.items() if code in codes), A_BROKER)
        for kind, codes in KINDS.items():
            try:
                probe = await self.call(address, new_request(next(iter(codes))), 0)
            except RemotingError:
                break
            if probe.code == ResponseCode.SUCCESS and kind != asked:
                return f"this is {kind}, not {asked}"
            if probe.code == ResponseCode.SUCCESS:
                break  # the right kind of server, which does not support this request
        return response.remark

    async def notify(self, address: str, request: Command) -> None:
        """Write a one-way request, connecting first if needed, within 3 s; the server does not
        answer it. Raises RemotingError if it was not written, ClientClosed unless started,
        ClientError in another event loop."""
        await self._running_client().notify(address, request)

    def notify_peer(self, peer: Peer, request: Command) -> None:
        """Write a one-way request, signed like any other, on the connection of a broker that sent a
        request; no-op if it is lost. Raises WireError if it does not fit into a frame."""
        if self._sign is not None:
            self._sign(request)
        peer.notify(request)

    async def ask_name_server(
        self, code: int, header: Any = None, body: Body = b"", *, timeout_ms: int = 0
    ) -> Command:
        """Ask the name servers in turn and return the first SUCCESS; raises BrokerError for the
        first answer with an error code, the last RemotingError if no server answers, ClientClosed.

        If a name server fails, or does not answer within NEXT_NAME_SERVER_MS, the next one is
        queried, and later requests begin with another; the slow one may still answer first.
        `timeout_ms` bounds each query.
        """
        failure: RemotingError | None = None
        left = list(self.namesrv)
        asked: dict[asyncio.Task[Command], str] = {}
        try:
            while left or asked:
                if left:
                    address = left.pop(0)
                    asking = self.ask(address, code, header, body, timeout_ms=timeout_ms)
                    asked[asyncio.create_task(asking)] = address
                wait_s = NEXT_NAME_SERVER_MS / 1000 if left else None
                done, _ = await asyncio.wait(
                    asked, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    self._prefer_other_server(address)
                for task in done:
                    try:
                        return task.result()
                    except RemotingError as error:
                        failure = error
                        self._prefer_other_server(asked.pop(task))
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        assert failure is not None
        raise failure

    def _prefer_other_server(self, address: str) -> None:
        """Let later requests begin with another name server; the list keeps all of them."""
        if self.namesrv[0] == address:
            self.namesrv.append(self.namesrv.pop(0))

    async def route(self, topic: str, *, for_sending: bool = False) -> TopicRoute | None:
        """The route of a topic, from the cache however old, else from a name server; None if no
        name server knows it.

        `for_sending` falls back to the provisional route of TBW102: the first message creates the
        topic. Raises RemotingError when no name server answers, BrokerError for an error but
        TOPIC_NOT_EXIST, and ClientClosed.
        """
        known = self._routes.get(topic)
        if isinstance(known, TopicRoute) and (for_sending or not known.provisional):
            self._routes.current_answer(topic)
            return known
        return await self.refresh(topic, for_sending=for_sending)

    async def refresh(self, topic: str, *, for_sending: bool = False) -> TopicRoute | None:
        """Request the route of a topic again and return it; the cached route if the last request
        began less than ROUTE_AGE_MIN_MS ago. Waits for a request that is under way.

        The answer updates `brokers`, and wakes consumers whose readable queues changed. An answer
        "no route" leaves an earlier route in place: after a failover brokers come back one by one.
        None if there is no earlier route. `for_sending` and errors as in `route`.
        """
        while True:
            former = self._routes.get(topic)
            known = _route_or_none(former)
            at_once = former is _CANCELLED or (for_sending and known is None)
            response = self._routes.query_again(topic, at_once=at_once)
            query = self._due.pop(topic, None)
            if query is not None:
                await self._send_query(topic, known, for_sending, query)
            found = await _wait_for(response)
            if isinstance(found, _Failed):
                raise found.error
            route = _route_or_none(found) or _route_or_none(self._routes.get(topic))
            if found is not _CANCELLED and (route or query or not for_sending):
                return route

    async def add_producer(self, group: str, checker: Checker | None = None) -> None:
        """Call `acquire`, and add the producer group to later heartbeats; sends no heartbeat.

        `checker` is called on the loop with each check of a transaction of the group; it must not
        block and answers later, by `Peer.notify`. Raises ClientError for a second checker of the
        same group: a broker addresses a check to the group and the client.
        """
        await self.acquire()
        if checker is not None and group in self._checkers:
            self._users -= 1  # not the last: the producer with the checker is a user
            raise ClientError(
                f"group {group} has a producer of transactions in this instance already"
            )
        self._producers[group] = self._producers.get(group, 0) + 1
        if checker is not None:
            self._checkers[group] = checker

    async def remove_producer(self, group: str, checker: Checker | None = None) -> None:
        """Undo `add_producer` with the same arguments, and call `release`; after the group's last
        producer all known brokers are notified (1 s at most; failures are logged)."""
        if checker is not None:
            del self._checkers[group]
        self._producers[group] -= 1
        try:
            if not self._producers[group]:
                del self._producers[group]
                request = UnregisterClientRequest(self.client_id, producer_group=group)
                await self._unregister_everywhere(request)
        finally:
            await self.release()

    async def add_member(self, member: GroupMember) -> None:
        """Call `acquire`, add the consumer to later heartbeats, and pass brokers' requests to it;
        sends no heartbeat.

        Raises ClientError for a second consumer of the same group: brokers distinguish consumers by
        client id, and both would have the same id.
        """
        await self.acquire()
        if member.group in self._members:
            self._users -= 1  # not the last: the group's consumer is a user
            raise ClientError(f"group {member.group} has a consumer in this instance already")
        self._members[member.group] = member

    async def remove_member(self, member: GroupMember) -> None:
        """Undo `add_member`, notify all known brokers (1 s at most; failures are logged), and call
        `release`."""
        del self._members[member.group]
        request = UnregisterClientRequest(self.client_id, consumer_group=member.group)
        try:
            await self._unregister_everywhere(request)
        finally:
            await self.release()

    async def heartbeat(self, addresses: Collection[str] | None = None) -> None:
        """Send a heartbeat to the brokers at `addresses` (None: all known masters, and with a
        consumer their replicas) and wait for the answers; failures are logged. No-op without a
        producer and a consumer."""
        if not self._producers and not self._members:
            return
        async with self._heartbeats:
            if addresses is None:
                addresses = self.brokers.addresses(masters_only=not self._members)
            body = HeartbeatData(
                self.client_id,
                [ProducerData(group) for group in sorted(self._producers)],
                [self._members[group].heartbeat_data() for group in sorted(self._members)],
            ).encode()
            await asyncio.gather(*(self._send_heartbeat(address, body) for address in addresses))

    def _new_cache(self) -> RouteCache[TopicRoute]:
        rules = CacheRules(
            fresh_ms=NEVER_MS,
            again_ms=ROUTE_AGE_MIN_MS,
            absent_ms=ROUTE_AGE_MIN_MS,
            gone_ms=NEVER_MS,
            size_max=TOPICS_MAX,
        )
        return RouteCache(self._query, lambda _topic, _route: 1, self.steady_ms, rules)

    def _leave_ended_loop(self) -> None:
        """Drop all users whose loop was closed before they left: nothing of them runs."""
        if self._loop is not None and self._loop.is_closed():
            self._loop = self._client = None
            self._users, self.tasks, self._starting = 0, TaskSet(), asyncio.Lock()
            self._producers, self._members, self._checkers = {}, {}, {}
            self._due, self._routes = {}, self._new_cache()

    def _running_client(self) -> Client:
        """The transport's client; raises ClientClosed unless started, ClientError elsewhere."""
        self._leave_ended_loop()
        if self._client is None:
            raise ClientClosed("the client is not started, or is closed")
        if self._loop is not asyncio.get_running_loop():
            raise ClientError("the client was started by another event loop")
        return self._client

    async def _start(self) -> None:
        self.ip = await self._own_ip()
        name = self.options.instance_name or f"{os.getpid()}#{time.time_ns() + next(_serial)}"
        self.client_id = f"{self.ip}@{name}"
        dispatcher = Dispatcher()
        dispatcher.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._on_ids_changed)
        dispatcher.add(RequestCode.CHECK_TRANSACTION_STATE, self._on_check)
        for code, name_of_group in (
            (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, "group"),
            (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, "group"),
            (RequestCode.GET_CONSUMER_RUNNING_INFO, "consumerGroup"),
            (RequestCode.CONSUME_MESSAGE_DIRECTLY, "consumerGroup"),
        ):
            dispatcher.add(code, self._make_forwarder(name_of_group))
        options = remoting_options(self.options, self._sign)
        self._client = Client(self.options.now_ms, dispatcher, options)
        self.tasks.run_every(self.options.route_refresh_ms, self._refresh_all, "route refresh")
        self.tasks.run_every(self.options.heartbeat_ms, self.heartbeat, "heartbeat")

    async def _own_ip(self) -> str:
        """The address of this machine from which the name server is reached."""
        host, port = hosts.split_host_port(self.namesrv[0])
        try:
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=(host, port)
            )
        except OSError:
            return "127.0.0.1"
        try:
            return str(transport.get_extra_info("sockname")[0])
        finally:
            transport.close()

    def _query(self, topic: str, _former: TopicRoute | None) -> Deferred[TopicRoute | Absent]:
        """Return the Deferred of a query for the cache; `_send_query` resolves it."""
        query = self._due[topic] = Deferred[TopicRoute | Absent]()
        return query

    async def _send_query(
        self,
        topic: str,
        known: TopicRoute | None,
        for_sending: bool,
        query: Deferred[TopicRoute | Absent],
    ) -> None:
        """Query a route, resolve `query` to it, and wake consumers whose queues changed."""
        found: TopicRoute | Absent = _CANCELLED
        try:
            found = await self._find_route(topic, for_sending and known is None)
        except Exception as error:
            found = _Failed(str(error), False, error)
        finally:
            query.resolve(found)
        if isinstance(found, TopicRoute):
            self.brokers.update_addresses(found)
            if known is None or known.subscribe != found.subscribe:
                for member in self._members.values():
                    if topic in member.topics():
                        member.wake()

    async def _find_route(self, topic: str, may_create: bool) -> TopicRoute | Absent:
        """Query a route; without one, return the provisional route if `may_create`."""
        route = await self._fetch_route(topic)
        if route is None and may_create:
            template = await self._fetch_route(AUTO_CREATE_TOPIC)
            if template is not None and template.publish:
                route = provisional_route(topic, template, DEFAULT_TOPIC_QUEUES)
        return route or Absent(f"no name server knows topic {topic}", is_certain=True)

    async def _fetch_route(self, topic: str) -> TopicRoute | None:
        try:
            response = await self.ask_name_server(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic, True)
            )
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        assert isinstance(response.body, bytes)
        return read_route(topic, TopicRouteData.decode(response.body))

    async def _refresh_all(self) -> None:
        topics = {topic for topic, _ in self._routes.list_answers()}
        for member in self._members.values():
            topics.update(member.topics())
        for topic in sorted(topics):
            try:
                await self.refresh(topic)
            except (ClientError, RemotingError, ValueError) as error:
                logger.warning("the route of %s was not refreshed: %s", topic, error)
        self.brokers.retain_only(
            name for _, route in self._routes.list_answers() if route for name in route.brokers
        )

    async def _send_heartbeat(self, address: str, body: bytes) -> None:
        try:
            await self.ask(address, RequestCode.HEART_BEAT, body=body)
        except (ClientError, RemotingError) as error:
            logger.info("heartbeat to %s failed: %s", address, error)

    async def _unregister_everywhere(self, header: UnregisterClientRequest) -> None:

        async def leave(address: str) -> None:
            try:
                await self.ask(
                    address,
                    RequestCode.UNREGISTER_CLIENT,
                    header,
                    timeout_ms=UNREGISTER_TIMEOUT_MS,
                )
            except (ClientError, RemotingError) as error:
                logger.debug("leaving %s failed: %s", address, error)

        await asyncio.gather(*map(leave, self.brokers.addresses(masters_only=False)))

    def _on_ids_changed(self, request: Command, _peer: Peer, _now_ms: int) -> None:
        group = read_header(NotifyConsumerIdsChangedRequest, request.fields).consumer_group
        member = self._members.get(group)
        if member is not None:
            member.wake()

    def _on_check(self, request: Command, peer: Peer, _now_ms: int) -> None:
        """Handle 39 (CHECK_TRANSACTION_STATE): ask the messages' producer for the end."""
        for view in decode_messages(_body_of(request)):
            checker = self._checkers.get(view.properties.get(names.PGROUP, ""))
            if checker is not None:
                checker(request, view, peer)

    def _make_forwarder(self, name_of_group: str) -> Handler:
        """The handler that passes a request to the group in the field `name_of_group`."""

        def forward_request(request: Command, _peer: Peer, now_ms: int) -> Response:
            group = request.fields.get(name_of_group, "")
            member = self._members.get(group)
            if member is None:
                remark = f"The Consumer Group <{group}> not exist in this consumer"
                return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
            return member.answer(request, now_ms)

        return forward_request


def _route_or_none(route: TopicRoute | Absent | None) -> TopicRoute | None:
    return None if isinstance(route, Absent) else route


async def _wait_for(later: Deferred[T]) -> T:
    arrived = asyncio.Event()
    later.then(lambda _value: arrived.set())
    await arrived.wait()
    return later.value


def _body_of(request: Command) -> Buffer:
    """Return the body of a decoded request, a single buffer."""
    assert not isinstance(request.body, list), "a decoded body is one buffer"
    return request.body
