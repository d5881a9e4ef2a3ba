"""The requests of the admin commands, each with the brokers that receive it.

Owns the choice of the nodes to ask (name servers, masters, one address of each broker group) and
the reading of the answers. It must never combine them into a command's answer; client.py does.

Tests: tests/unit/net/client/admin/test_controller.py
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Final, TypeVar

from turbopump.net.client.admin import parse as admin_parse
from turbopump.net.client.admin.parse import Connections
from turbopump.net.client.admin.results import MessageTrack, QueueProgress
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.errors import BrokerError, ClientError
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.receiving import received_messages
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire import hosts
from turbopump.net.wire.bodies import (
    BadBody,
    as_object,
    as_text,
    load_object,
    read_list,
    read_table,
)
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Body
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.admin import (
    GetConsumeStatsRequest,
    QueryMessageRequest,
    QueryTopicConsumeByWhoRequest,
    ViewMessageRequest,
)
from turbopump.net.wire.headers.clients import (
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
)
from turbopump.net.wire.headers.routes import (
    GetKVConfigRequest,
    GetKVConfigResponse,
    GetRouteInfoRequest,
    PutKVConfigRequest,
)
from turbopump.net.wire.message_id import decode_message_id
from turbopump.net.wire.names import ORDER_NAMESPACE, RETRY_PREFIX
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import (
    MASTER_ID,
    BrokerData,
    ClusterInfo,
    TopicRouteData,
)

PARALLEL: Final = 16
"""Maximum number of concurrent requests of a command: thousands of groups must not flood a
broker."""

RESPONSES = (ClientError, RemotingError, ValueError)
"""Exceptions of a request; ValueError for a body that cannot be read."""

T = TypeVar("T")


class AdminCalls:
    """Requests to the name servers and brokers of a cluster. Methods raise BrokerError,
    RemotingError, and BadBody for an answer that cannot be read, unless their text excludes it."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def ask(self, address: str, code: int, header: Any = None, body: Body = b"") -> bytes:
        """Send a request to the server at `address` and return the body of its answer; raises
        BrokerError for an error code, RemotingError."""
        return _body_bytes((await self._instance.ask(address, code, header, body)).body)

    async def ask_name_server(self, code: int, header: Any = None) -> bytes:
        """Send a request to the name servers in turn and return the body of the first answer;
        raises BrokerError for an error code, RemotingError."""
        return _body_bytes((await self._instance.ask_name_server(code, header)).body)

    async def cluster_info(self) -> ClusterInfo:
        """All clusters and broker groups that a name server knows."""
        return ClusterInfo.decode(await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO))

    async def query_route(self, topic: str) -> TopicRouteData:
        """The route of a topic; BrokerError 17 for a topic without a route."""
        header = GetRouteInfoRequest(topic, True)
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        return TopicRouteData.decode(await self.ask_name_server(code, header))

    async def topic_names(self) -> list[str]:
        """The names of all topics of a name server, sorted; retry topics and dead letters, too."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        return sorted(
            read_list(load_object(await self.ask_name_server(code)), "topicList", as_text)
        )

    async def broker_addresses(
        self, broker: str | None, cluster: str | None, *, masters_only: bool
    ) -> list[str]:
        """The address `broker`, unchecked, or the addresses of a cluster's brokers (or masters:
        broker id 0), sorted; ClientError for an unknown cluster, or unless exactly one of `broker`
        and `cluster` is given."""
        if (broker is None) == (cluster is None):
            raise ClientError("either a broker address or a cluster is needed")
        if broker is not None:
            return [broker]
        info = await self.cluster_info()
        addresses = [
            address
            for name in info.cluster_addr_table.get(cluster or "", [])
            if name in info.broker_addr_table
            for broker_id, address in info.broker_addr_table[name].broker_addrs.items()
            if broker_id == MASTER_ID or not masters_only
        ]
        if not addresses:
            raise ClientError(f"cluster {cluster} is not known, or has no broker")
        return sorted(addresses)

    async def replicas_of(self, broker_name: str) -> list[str]:
        """The addresses of a broker group, the master's first; ClientError if unknown."""
        info = await self.cluster_info()
        group = info.broker_addr_table.get(broker_name)
        if group is None or not group.broker_addrs:
            raise ClientError(f"broker {broker_name} is not known")
        return [address for _id, address in sorted(group.broker_addrs.items())]

    async def query_runtime(self, address: str) -> dict[str, str]:
        """The runtime table of the broker at `address`, key to text, sorted by key."""
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        return admin_parse.runtime_table(await self.ask(address, code))

    async def groups_of(self, topic: str, route: TopicRouteData) -> list[str]:
        """The groups that consume a topic, or did, by its brokers; sorted."""
        groups: set[str] = set()
        for address in group_addresses(route):
            header = QueryTopicConsumeByWhoRequest(topic)
            body = await self.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            groups.update(read_list(load_object(body), "groupList", as_text))
        return sorted(groups)

    async def find_groups(self, topics: Iterable[str]) -> list[str]:
        """The consumer groups with a retry topic in `topics`, all topics of the cluster; sorted.

        The retry topic of a group that pops is named after the group and a topic: `group+topic`, or
        `group_topic`, which may also be another group's name (KeyBuilder.buildPopRetryTopic). A
        name `a_b` is doubtful if `topics` also has a retry topic of group `a`: then the brokers are
        asked, and `a_b` is a group only if a broker knows it.
        """
        names = {one.removeprefix(RETRY_PREFIX) for one in topics if one.startswith(RETRY_PREFIX)}
        groups = {name.partition("+")[0] for name in names}

        def is_doubtful(name: str) -> bool:
            ends = (at for at, letter in enumerate(name) if letter == "_" and at)
            return any(name[:end] in groups for end in ends)

        doubtful = {name for name in groups if is_doubtful(name)}
        if doubtful:
            info = await self.cluster_info()
            code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            addresses = [_reading_address(one) for one in info.broker_addr_table.values()]
            for body in await await_all(self.ask(address, code) for address in addresses):
                known = read_table(load_object(body), "subscriptionGroupTable", as_object)
                doubtful.difference_update(known)
        return sorted(groups - doubtful)

    async def query_progress(
        self, group: str, route: TopicRouteData, topic: str | None
    ) -> tuple[list[QueueProgress], float, int]:
        """Return (the progress of a group in each queue, sorted by topic, broker name and queue
        id; its consume rate in messages per second; the number of its messages that were popped
        and not acknowledged), over the brokers of a route. `topic` None: all topics of the
        group."""
        header = GetConsumeStatsRequest(group, topic)
        code = RequestCode.GET_CONSUME_STATS
        bodies = await await_all(
            self.ask(address, code, header) for address in group_addresses(route)
        )
        parts = [admin_parse.consume_stats(body) for body in bodies]
        queues = [queue for part, _, _ in parts for queue in part]
        queues.sort(key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
        return queues, sum(tps for _, tps, _ in parts), sum(popped for _, _, popped in parts)

    async def query_members(self, group: str, route: TopicRouteData) -> Connections:
        """The members of a group, from the first broker of the route that knows it; the last
        broker's error, BrokerError 206, if no broker does. ClientError for an empty route."""
        failure: Exception = ClientError(f"no broker of group {group} is known")
        for address in group_addresses(route):
            header = GetConsumerConnectionListRequest(group)
            try:
                body = await self.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
                return Connections.decode(body)
            except (BrokerError, RemotingError) as error:
                failure = error
        raise failure

    async def query_holders(self, group: str, route: TopicRouteData) -> dict[MessageQueue, str]:
        """The client that holds each queue, as the text before "@" in its id (an ip); members
        without an answer are left out. Raises nothing for nodes that do not answer."""
        holders: dict[MessageQueue, str] = {}
        addresses = group_addresses(route)

        async def query_client(client_id: str) -> None:
            header = GetConsumerRunningInfoRequest(group, client_id, False)
            try:
                body = await self.ask(addresses[0], RequestCode.GET_CONSUMER_RUNNING_INFO, header)
                for key in read_table(load_object(body), "mqTable", as_object):
                    holders[MessageQueue.from_key(key)] = client_id.partition("@")[0]
            except RESPONSES:
                return

        try:
            members = await self.query_members(group, route)
        except RESPONSES:
            return holders
        await await_all(query_client(client_id) for client_id in members.client_ids)
        return holders

    async def query_message(self, message_id: str) -> ReceivedMessage | None:
        """The message of an offset message id, from the broker in the id; None if the id is
        malformed, the broker does not have the message, or it does not answer.

        A unique key may decode too, to a host that does not exist.
        """
        try:
            host, log_offset = decode_message_id(message_id)
            address = hosts.unpack_host(host)
            if hosts.split_host_port(address)[1] == 0:
                return None
            header = ViewMessageRequest(log_offset)
            body = await self.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
            messages = received_messages(body, await self._name_of(address))
        except RESPONSES:
            return None
        return messages[0] if messages else None

    async def query(self, topic: str, header: QueryMessageRequest) -> list[ReceivedMessage]:
        """The messages that one broker of each broker group of a topic finds in its index, sorted
        by store time; hash collisions are included."""
        route = await self.query_route(topic)

        async def ask(broker: BrokerData) -> list[ReceivedMessage]:
            address = _reading_address(broker)
            try:
                body = await self.ask(address, RequestCode.QUERY_MESSAGE, header)
            except BrokerError as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    return []
                raise
            return received_messages(body, broker.broker_name)

        parts = await await_all(ask(broker) for broker in route.broker_datas if broker.broker_addrs)
        found = [message for part in parts for message in part]
        return sorted(found, key=lambda message: message.store_timestamp_ms)

    async def track_groups(self, message: ReceivedMessage) -> list[MessageTrack]:
        """The progress of each group of the message's topic with the message, sorted by group;
        empty if the groups cannot be found. A failure becomes the track UNKNOWN."""
        try:
            route = await self.query_route(message.stored_topic)
            groups = await self.groups_of(message.stored_topic, route)
        except RESPONSES:
            return []

        async def track_group(group: str) -> MessageTrack:
            try:
                members = await self.query_members(group, route)
                queues, _, _ = await self.query_progress(group, route, message.stored_topic)
            except BrokerError as error:
                if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                    return MessageTrack(group, "NOT_ONLINE")
                return MessageTrack(group, "UNKNOWN", str(error))
            except RESPONSES as error:
                return MessageTrack(group, "UNKNOWN", str(error))
            return admin_parse.track_of(message, group, members, queues)

        return await await_all(track_group(group) for group in groups)

    async def set_order(self, topic: str, addresses: list[str], queues: int, whole: bool) -> None:
        """Put `queues`, the number of ordered queues of a topic at each broker of `addresses`, into
        the key-value table of every name server.

        `whole` replaces the existing value; otherwise the brokers at `addresses` are added to it.
        """
        info = await self.cluster_info()
        changed = {
            name: queues
            for name, broker in info.broker_addr_table.items()
            if set(addresses) & set(broker.broker_addrs.values())
        }
        known = "" if whole else await self._query_order_config(topic)
        header = PutKVConfigRequest(ORDER_NAMESPACE, topic, admin_parse.order_text(known, changed))
        for address in list(self._instance.namesrv):
            await self.ask(address, RequestCode.PUT_KV_CONFIG, header)

    async def _query_order_config(self, topic: str) -> str:
        """Return the ordered queues of a topic as a name server has them; "" without an entry."""
        try:
            response = await self._instance.ask_name_server(
                RequestCode.GET_KV_CONFIG, GetKVConfigRequest(ORDER_NAMESPACE, topic)
            )
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return ""
            raise
        return read_header(GetKVConfigResponse, response.fields).value or ""

    async def _name_of(self, address: str) -> str:
        """Return the name of the broker group with this address; "" if the cluster has no such
        broker."""
        info = await self.cluster_info()
        for name, broker in info.broker_addr_table.items():
            if address in broker.broker_addrs.values():
                return name
        return ""


def group_addresses(route: TopicRouteData) -> list[str]:
    """An address "host:port" of each broker group, in the order of the route: its master's, else
    the lowest id's."""
    return [_reading_address(broker) for broker in route.broker_datas if broker.broker_addrs]


async def await_all(work: Iterable[Awaitable[T]]) -> list[T]:
    """Await all of `work`, PARALLEL at a time, and return the results in its order. After a failure
    no new element is awaited; those under way end, then the first failure is raised."""
    numbered = enumerate(work)
    results: dict[int, T] = {}
    failures: list[Exception] = []

    async def worker() -> None:
        for number, task in numbered:
            try:
                results[number] = await task
            except Exception as error:
                failures.append(error)
            if failures:
                return

    await asyncio.gather(*(worker() for _ in range(PARALLEL)))
    if failures:
        raise failures[0]
    return [results[number] for number in sorted(results)]


def _reading_address(broker: BrokerData) -> str:
    """Return the address of a broker group's lowest broker id: the master, if there is one."""
    return broker.broker_addrs[min(broker.broker_addrs)]


def _body_bytes(body: Body) -> bytes:
    """Return the body of an answer as bytes; raises BadBody for a missing body."""
    if not isinstance(body, bytes):
        raise BadBody("the answer has no body")
    return body
