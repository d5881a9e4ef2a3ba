"""The admin client's requests about nodes: their properties, write permissions and clean-ups.

Owns the call sequences of getBrokerConfig, updateBrokerConfig, getNamesrvConfig,
updateNamesrvConfig, wipeWritePerm, addWritePerm, cleanUnusedTopic, cleanExpiredCQ, topicClusterList
and statsAll (tools/admin/DefaultMQAdminExtImpl, tools/command/stats/StatsAllSubCommand). It must
never print or format. A base of Admin, whose errors these methods raise.

Tests: tests/unit/cli/admin/test_more_commands.py, tests/integration/cli/test_nodes.py
"""

from turbopump.net.client.admin import parse as admin_parse
from turbopump.net.client.admin.calls import RESPONSES, AdminCalls, await_all, group_addresses
from turbopump.net.client.admin.controller import properties_of
from turbopump.net.client.admin.results import (
    ChangedConfig,
    NodeProperties,
    TopicTraffic,
    WritePerm,
)
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.errors import BrokerError, ClientError
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.admin import ViewBrokerStatsDataRequest
from turbopump.net.wire.headers.routes import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)
from turbopump.net.wire.java_properties import format_properties
from turbopump.net.wire.names import DLQ_PREFIX, RETRY_PREFIX
from turbopump.net.wire.route import TopicRouteData


class NodeCommands:
    """Requests of mqadmin about brokers and name servers as machines.

    `broker` is an address "host:port"; exactly one of `broker` and `cluster` is given, else
    ClientError. The first failure of a node is raised; other nodes may have carried the request
    out.
    """

    _instance: ClientInstance
    _calls: AdminCalls

    async def broker_config(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> list[NodeProperties]:
        """getBrokerConfig of an address, or of every broker of a cluster, sorted by address."""
        addresses = await self._calls.broker_addresses(broker, cluster, masters_only=False)
        code = RequestCode.GET_BROKER_CONFIG
        return await await_all(self._query_config(address, code) for address in addresses)

    async def update_broker_config(
        self, key: str, value: str, *, broker: str | None = None, cluster: str | None = None
    ) -> ChangedConfig:
        """updateBrokerConfig at an address, or at every broker of a cluster, one after the other;
        at an error the earlier brokers are changed. ClientError for an empty key."""
        addresses = await self._calls.broker_addresses(broker, cluster, masters_only=False)
        return await self._change_property(addresses, RequestCode.UPDATE_BROKER_CONFIG, key, value)

    async def namesrv_config(self) -> list[NodeProperties]:
        """getNamesrvConfig of each name server, sorted by address."""
        addresses, code = sorted(self._instance.namesrv), RequestCode.GET_NAMESRV_CONFIG
        return await await_all(self._query_config(address, code) for address in addresses)

    async def update_namesrv_config(self, key: str, value: str) -> ChangedConfig:
        """updateNamesrvConfig at each name server, one after the other; at an error the earlier
        servers are changed. ClientError for an empty key."""
        addresses = sorted(self._instance.namesrv)
        return await self._change_property(addresses, RequestCode.UPDATE_NAMESRV_CONFIG, key, value)

    async def wipe_write_perm(self, broker_name: str) -> WritePerm:
        """wipeWritePerm: at each name server, no topic of the broker may be written any longer,
        until the broker registers again."""
        request = WipeWritePermOfBrokerRequest(broker_name)
        topics = {}
        for address in sorted(self._instance.namesrv):
            code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
            response = await self._instance.ask(address, code, request)
            header = read_header(WipeWritePermOfBrokerResponse, response.fields)
            topics[address] = header.wipe_topic_count
        return WritePerm(broker_name, topics)

    async def add_write_perm(self, broker_name: str) -> WritePerm:
        """addWritePerm: at each name server, the topics of the broker may be written again."""
        request = AddWritePermOfBrokerRequest(broker_name)
        topics = {}
        for address in sorted(self._instance.namesrv):
            code = RequestCode.ADD_WRITE_PERM_OF_BROKER
            response = await self._instance.ask(address, code, request)
            header = read_header(AddWritePermOfBrokerResponse, response.fields)
            topics[address] = header.add_topic_count
        return WritePerm(broker_name, topics)

    async def clean_unused_topics(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """cleanUnusedTopic at an address, or at every broker of a cluster: the queue files of
        topics that no longer exist are removed. Returns the addresses, sorted, which accepted the
        request."""
        addresses = await self._calls.broker_addresses(broker, cluster, masters_only=False)
        code = RequestCode.CLEAN_UNUSED_TOPIC
        await await_all(self._calls.ask(address, code) for address in addresses)
        return addresses

    async def clean_expired_queues(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """cleanExpiredCQ at an address, or at every broker of a cluster: queue files whose messages
        have left the log are removed. Returns the addresses, sorted, which accepted the request."""
        addresses = await self._calls.broker_addresses(broker, cluster, masters_only=False)
        code = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE
        await await_all(self._calls.ask(address, code) for address in addresses)
        return addresses

    async def topic_clusters(self, topic: str) -> list[str]:
        """topicClusterList: the clusters whose brokers have the topic, sorted; BrokerError 17 if no
        broker has it."""
        route = await self._calls.query_route(topic)
        return sorted({broker.cluster for broker in route.broker_datas})

    async def stats_all(self, topic: str | None = None) -> list[TopicTraffic]:
        """statsAll: the traffic of each topic, or of `topic` alone, with each of its groups, sorted
        by topic and group; retry topics and dead letters are left out."""
        names = [topic] if topic is not None else await self._calls.topic_names()
        wanted = [name for name in names if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))]
        lines = await await_all(
            self._query_traffic(name, must_answer=topic is not None) for name in wanted
        )
        return [line for of_topic in lines for line in of_topic]

    async def _query_traffic(self, topic: str, *, must_answer: bool) -> list[TopicTraffic]:
        """Return the lines of a topic, one for each group. If a broker does not answer, or the
        topic was deleted after the listing, the result is empty, unless `must_answer`: the error
        is raised then."""
        try:
            route = await self._calls.query_route(topic)
            groups = await self._calls.groups_of(topic, route)
        except RESPONSES:
            if must_answer:
                raise
            return []
        in_tps, in_count = await self._rate_and_count(route, "TOPIC_PUT_NUMS", topic)
        lines = []
        for group in groups:
            try:
                queues, _, _ = await self._calls.query_progress(group, route, topic)
            except RESPONSES:
                queues = []
            out_tps, out_count = await self._rate_and_count(
                route, "GROUP_GET_NUMS", f"{topic}@{group}"
            )
            behind = sum(queue.diff for queue in queues)
            lines.append(TopicTraffic(topic, group, behind, in_tps, out_tps, in_count, out_count))
        return lines or [TopicTraffic(topic, "", 0, in_tps, 0.0, in_count, 0)]

    async def _rate_and_count(
        self, route: TopicRouteData, name: str, key: str
    ) -> tuple[float, int]:
        """Return (messages per second, messages of 24 hours) of the statistic `name` and `key`,
        summed over the brokers of a route. A broker without traffic of the key answers
        SYSTEM_ERROR and counts as 0."""
        header = ViewBrokerStatsDataRequest(name, key)
        tps, count = 0.0, 0
        for address in group_addresses(route):
            try:
                body = await self._calls.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
            except BrokerError as error:
                if error.code != ResponseCode.SYSTEM_ERROR:
                    raise
                continue
            found = admin_parse.stats_data(body)
            tps, count = tps + found[0], count + found[1]
        return tps, count

    async def _query_config(self, address: str, code: RequestCode) -> NodeProperties:
        """Return the configuration of the node at `address` by the request `code`."""
        return NodeProperties(address, properties_of(await self._instance.ask(address, code)))

    async def _change_property(
        self, addresses: list[str], code: RequestCode, key: str, value: str
    ) -> ChangedConfig:
        """Change a property at each address, one after the other, by the request `code`. Raises
        ClientError for an empty key."""
        if not key:
            raise ClientError("a property needs a name")
        body = format_properties({key: value}).encode()
        for address in addresses:
            await self._instance.ask(address, code, body=body)
        return ChangedConfig(addresses, key, value)
