"""The admin client: the requests of mqadmin, as async methods with typed results.

Owns the call sequences of the mqadmin commands (tools/admin/DefaultMQAdminExtImpl), together with
its bases in nodes.py, members.py and reading.py. It must never print or format.

Tests: tests/integration/client/test_admin.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from turbopump.net.client.admin import parse as admin_parse
from turbopump.net.client.admin.calls import RESPONSES, AdminCalls, await_all, group_addresses
from turbopump.net.client.admin.controller import ControllerAdmin
from turbopump.net.client.admin.group_watch import GroupWatch
from turbopump.net.client.admin.members import GroupCommands
from turbopump.net.client.admin.nodes import NodeCommands
from turbopump.net.client.admin.reading import MessageCommands
from turbopump.net.client.admin.results import (
    BrokerEpochs,
    BrokerLine,
    BrokerStatus,
    ClusterList,
    ConsumeMode,
    ConsumerProgress,
    DeletedTopic,
    FoundMessage,
    FoundMessages,
    GroupProgress,
    HaStatus,
    QueueProgress,
    ResetOffsets,
    ResetQueue,
    TopicLine,
    TopicList,
    TopicRouteResult,
    TopicStatus,
    UpdatedGroup,
    UpdatedTopic,
    time_behind,
)
from turbopump.net.client.admin.trace import (
    MessageTrace,
    trace_of,
)
from turbopump.net.client.errors import BrokerError, ClientError
from turbopump.net.client.lifetime import ClientLifetime
from turbopump.net.client.options import ClientOptions
from turbopump.net.client.sending import check_group, check_topic
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.wire.bodies import encode_json, load_object
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.admin import (
    AddBrokerRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    GetTopicStatsInfoRequest,
    QueryMessageRequest,
    RemoveBrokerRequest,
)
from turbopump.net.wire.headers.clients import ResetOffsetRequest
from turbopump.net.wire.headers.routes import DeleteTopicFromNamesrvRequest, GetRouteInfoRequest
from turbopump.net.wire.names import AUTO_CREATE_TOPIC, DLQ_PREFIX, RETRY_PREFIX, TRACE_TOPIC
from turbopump.net.wire.properties import UNIQ_KEY
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import BrokerData, TopicRouteData
from turbopump.net.wire.topics import SINGLE_TAG

ADMIN_TIMEOUT_MS: Final = 5000
"""Timeout of each request of an admin command in milliseconds; mqadmin's value."""

CONTAINER_TIMEOUT_MS: Final = 60_000
"""Timeout in milliseconds of the start or stop of a container's broker; mqadmin waits 5 s."""


END_OF_TIME_MS: Final = (1 << 63) - 1
"""Largest epoch milliseconds of a query: no upper bound."""

UNIQUE_QUERY_MAX: Final = 32
"""Maximum number of messages in a broker's answer to a query by unique key."""


class Admin(NodeCommands, GroupCommands, MessageCommands, ClientLifetime):
    """An admin client of a cluster of name servers; use as `async with Admin([...]) as admin`.

    Every method raises BrokerError (code and remark) for an error answer, ClientError for arguments
    that cannot be used, RemotingError when a needed node does not answer, ClientClosed unless
    started, BadBody for an answer that cannot be read. `broker` is an address "host:port";
    ClientError unless exactly one of `broker` and `cluster` is given. Changes go to one node after
    the other: at an error the earlier nodes are changed.

    Args:
        namesrv: addresses "host:port" of the name servers, or one text with ";" between.
        timeout_ms: bound of each request; it overrules that of `client_options`.
        client_options: intervals of the client, and TLS.

    Raises InvalidArgument for a malformed address, and TlsError for TLS files that cannot be used.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        *,
        timeout_ms: int = ADMIN_TIMEOUT_MS,
        client_options: ClientOptions | None = None,
    ) -> None:
        options = replace(client_options or ClientOptions(), timeout_ms=timeout_ms)
        self._client = SharedClient(namesrv, options)
        self._instance = instance_of(self._client)
        self._calls = AdminCalls(self._instance)
        self._is_open = False

    async def start(self) -> None:
        """Make the client ready; connections are made when first used. Raises ClientError if
        started already."""
        await super().start()

    async def close(self) -> None:
        """Close the connections. Closing twice does nothing; a closed client can be started
        again."""
        await super().close()

    async def _open(self) -> None:
        """Acquire the client instance."""
        await self._instance.acquire()
        self._is_open = True

    async def _close_parts(self) -> None:
        """Release the client instance; no-op if it was not acquired."""
        if self._is_open:
            self._is_open = False
            await self._instance.release()

    def _mark_closed(self) -> None:
        """Count as closed, without a request: the loop of `start` was closed."""
        self._is_open = False

    async def cluster_list(self, cluster: str | None = None) -> ClusterList:
        """clusterList: every broker, or every broker of `cluster`, with its runtime figures; a
        broker that does not answer has an `error`. ClientError for an unknown cluster."""
        info = await self._calls.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            raise ClientError(f"cluster {cluster} is not known")

        async def query_line(
            cluster_name: str, broker: BrokerData, broker_id: int, address: str
        ) -> BrokerLine:
            try:
                figures = await self._calls.query_runtime(address)
            except RESPONSES as error:
                return BrokerLine(
                    cluster_name, broker.broker_name, broker_id, address, error=str(error)
                )
            now_ms = self._instance.now_ms()
            name = broker.broker_name
            return admin_parse.broker_line(cluster_name, name, broker_id, address, figures, now_ms)

        lines = (
            query_line(cluster_name, info.broker_addr_table[name], broker_id, address)
            for cluster_name, names in sorted(info.cluster_addr_table.items())
            if cluster in (None, cluster_name)
            for name in sorted(names)
            if name in info.broker_addr_table
            for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
        )
        return ClusterList(await await_all(lines))

    async def topic_list(self, *, with_clusters: bool = False) -> TopicList:
        """topicList: the topics of the name server; `with_clusters` adds cluster and groups, and
        leaves out retry topics and dead letters."""
        names = await self._calls.topic_names()
        if not with_clusters:
            return TopicList([TopicLine(name) for name in names])

        async def query_line(name: str) -> TopicLine:
            try:
                route = await self._calls.query_route(name)
                groups = await self._calls.groups_of(name, route)
            except RESPONSES:
                return TopicLine(name)
            clusters = sorted({broker.cluster for broker in route.broker_datas})
            return TopicLine(name, ",".join(clusters), groups)

        shown = [name for name in names if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))]
        return TopicList(await await_all(query_line(name) for name in shown))

    async def topic_route(self, topic: str) -> TopicRouteResult:
        """topicRoute: the route as a name server has it. Raises BrokerError 17 for an unknown
        topic."""
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        body = await self._calls.ask_name_server(code, GetRouteInfoRequest(topic, True))
        route = load_object(body)
        TopicRouteData.from_json(route)  # raises BadBody for a malformed route
        return TopicRouteResult(topic, route)

    async def update_topic(
        self,
        topic: str,
        *,
        broker: str | None = None,
        cluster: str | None = None,
        read_queues: int = 8,
        write_queues: int = 8,
        perm: int = 6,
        order: bool = False,
        unit: bool = False,
        unit_subscribed: bool = False,
        attributes: str = "",
    ) -> UpdatedTopic:
        """updateTopic: create or change the topic at one broker or at every master of a cluster.

        `perm` is 4 to read, 2 to write, 6 for both; `order` also writes the ordered queues into the
        name servers; `attributes` is RocketMQ's text `+key=value,-key`; `unit` and
        `unit_subscribed` are the bits of topicSysFlag.
        """
        check_topic(topic)
        header = CreateTopicRequest(
            topic=topic,
            read_queue_nums=read_queues,
            write_queue_nums=write_queues,
            perm=perm,
            topic_filter_type=SINGLE_TAG,
            default_topic=AUTO_CREATE_TOPIC,
            topic_sys_flag=unit | unit_subscribed << 1,
            order=order,
            attributes=attributes,
            force=False,
        )
        addresses = await self._calls.broker_addresses(broker, cluster, masters_only=True)
        for address in addresses:
            await self._calls.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        if order:
            await self._calls.set_order(topic, addresses, write_queues, whole=cluster is not None)
        return UpdatedTopic(
            topic,
            addresses,
            read_queues,
            write_queues,
            perm,
            order,
            admin_parse.attributes_of(attributes),
        )

    async def delete_topic(self, topic: str, cluster: str) -> DeletedTopic:
        """deleteTopic at every master of the cluster, then at every name server."""
        addresses = await self._calls.broker_addresses(None, cluster, masters_only=True)
        for address in addresses:
            header = DeleteTopicRequest(topic)
            await self._calls.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
        for address in self._instance.namesrv:
            route = DeleteTopicFromNamesrvRequest(topic, cluster)
            await self._calls.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, route)
        return DeletedTopic(topic, cluster, addresses, sorted(self._instance.namesrv))

    async def topic_status(self, topic: str) -> TopicStatus:
        """topicStatus: offsets of every queue, from one broker of each broker group."""
        route = await self._calls.query_route(topic)

        header = GetTopicStatsInfoRequest(topic)
        code = RequestCode.GET_TOPIC_STATS_INFO
        addresses = group_addresses(route)
        bodies = await await_all(self._calls.ask(address, code, header) for address in addresses)
        parts = [admin_parse.topic_stats(body) for body in bodies]
        queues = [queue for part, _ in parts for queue in part]
        queues.sort(key=lambda queue: (queue.broker_name, queue.queue_id))
        return TopicStatus(topic, sum(tps for _, tps in parts), queues)

    async def consumer_progress(
        self, group: str, *, topic: str | None = None, with_clients: bool = False
    ) -> ConsumerProgress:
        """consumerProgress -g: the progress of a group, in all its topics or in `topic`;
        ClientError for an unknown group, and for a group that has not consumed anything.

        `with_clients` (-s) asks every member for the queues that it holds.
        """
        check_group(group)
        try:
            route = await self._calls.query_route(RETRY_PREFIX + group)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise ClientError(f"group {group} is not known") from None
            raise
        queues, tps, popped = await self._calls.query_progress(group, route, topic)
        if not queues:
            raise ClientError(f"group {group} has not consumed anything yet")
        if with_clients:
            holders = await self._calls.query_holders(group, route)
            queues = [
                replace(queue, client_address=holders.get(_queue_of(queue), "")) for queue in queues
            ]
        return ConsumerProgress(
            group,
            tps,
            sum(queue.diff for queue in queues),
            sum(queue.inflight for queue in queues) + popped,
            queues,
            *time_behind(queues),
        )

    async def consumer_progress_all(self) -> list[GroupProgress]:
        """consumerProgress without -g: a line for each group, the largest `diff_total` first, then
        by name; figures of nodes that do not answer are 0."""

        async def query_line(group: str) -> GroupProgress:
            try:
                route = await self._calls.query_route(RETRY_PREFIX + group)
                queues, tps, _ = await self._calls.query_progress(group, route, None)
            except RESPONSES:
                queues, tps, route = [], 0.0, TopicRouteData()
            try:
                members = await self._calls.query_members(group, route)
            except RESPONSES:
                diff = sum(queue.diff for queue in queues)
                return GroupProgress(group, 0, "", "", "", tps, diff, *time_behind(queues))
            version = admin_parse.version_name(min(members.versions, default=0))
            return GroupProgress(
                group,
                len(members.client_ids),
                version,
                members.consume_type,
                members.message_model,
                tps,
                sum(queue.diff for queue in queues),
                *time_behind(queues),
            )

        groups = await self._calls.find_groups(await self._calls.topic_names())
        lines = await await_all(query_line(group) for group in groups)
        return sorted(lines, key=lambda found: (-found.diff_total, found.group))

    async def query_message_by_id(self, topic: str, message_id: str) -> FoundMessage:
        """queryMsgById: by offset message id (`topic` does not matter then), else by unique key in
        `topic`; ClientError if not found."""
        message = await self._calls.query_message(message_id)
        if message is None:
            return await self.query_message_by_unique_key(topic, message_id)
        return FoundMessage(message, await self._calls.track_groups(message))

    async def query_message_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
        max_count: int = 64,
    ) -> FoundMessages:
        """queryMsgByKey: messages with `key` among their keys, by store time; empty if no message
        is found. `begin_ms` and `end_ms` (epoch milliseconds) bound the store time.

        `max_count` is the limit for each broker; hash collisions count, but are left out.
        """
        header = QueryMessageRequest(topic, key, max_count, begin_ms, end_ms, "K", "false")
        messages = [
            message
            for message in await self._calls.query(topic, header)
            if message.stored_topic == topic and key in message.keys
        ]
        return FoundMessages(topic, key, messages)

    async def query_message_by_unique_key(self, topic: str, unique_key: str) -> FoundMessage:
        """queryMsgByUniqueKey: the oldest message with the client's message id; ClientError if not
        found."""
        header = QueryMessageRequest(
            topic, unique_key, UNIQUE_QUERY_MAX, 0, END_OF_TIME_MS, "U", "true"
        )
        for message in await self._calls.query(topic, header):
            if message.properties.get(UNIQ_KEY) == unique_key and message.stored_topic == topic:
                return FoundMessage(message, await self._calls.track_groups(message))
        raise ClientError(f"no message {unique_key} in topic {topic}")

    async def query_message_trace(
        self,
        key: str,
        *,
        trace_topic: str = TRACE_TOPIC,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
        max_count: int = 64,
    ) -> MessageTrace:
        """queryMsgTraceById: the steps of a message, by the client's message id, or of all messages
        with a key, as clients with traces wrote them.

        `begin_ms` and `end_ms` (epoch milliseconds) bound the time at which the trace messages were
        stored; `max_count` bounds them in each broker's answer.
        """
        found = await self.query_message_by_key(
            trace_topic, key, begin_ms=begin_ms, end_ms=end_ms, max_count=max_count
        )
        return MessageTrace(trace_topic, key, trace_of(key, found.messages))

    async def broker_status(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> list[BrokerStatus]:
        """brokerStatus of an address, or of every broker of a cluster, sorted by address."""
        addresses = await self._calls.broker_addresses(broker, cluster, masters_only=False)
        tables = await await_all(self._calls.query_runtime(address) for address in addresses)
        return [BrokerStatus(*pair) for pair in zip(addresses, tables, strict=True)]

    async def delete_expired_commit_log(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """deleteExpiredCommitLog at an address, or at every broker of a cluster: log files older
        than fileReservedTime are deleted now. Returns the addresses that received the request."""
        addresses = await self._calls.broker_addresses(broker, cluster, masters_only=False)
        code = RequestCode.DELETE_EXPIRED_COMMITLOG
        await await_all(self._calls.ask(address, code) for address in addresses)
        return addresses

    async def add_broker(self, container: str, config_path: str) -> None:
        """addBroker: the container at `container` starts the broker of a configuration file on its
        machine. Returns when the broker serves; a recovery longer than CONTAINER_TIMEOUT_MS raises
        CallTimeout, and goes on."""
        header = AddBrokerRequest(config_path)
        await self._instance.ask(
            container, RequestCode.ADD_BROKER, header, timeout_ms=CONTAINER_TIMEOUT_MS
        )

    async def remove_broker(
        self, container: str, cluster: str, broker_name: str, broker_id: int
    ) -> None:
        """removeBroker: the container at address `container` stops that broker, and keeps its
        store; returns when it has stopped."""
        header = RemoveBrokerRequest(broker_name, cluster, broker_id)
        await self._instance.ask(
            container, RequestCode.REMOVE_BROKER, header, timeout_ms=CONTAINER_TIMEOUT_MS
        )

    async def ha_status(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> list[HaStatus]:
        """haStatus of an address, or of every master of a cluster, sorted by address."""
        addresses = await self._calls.broker_addresses(broker, cluster, masters_only=True)
        code = RequestCode.GET_BROKER_HA_STATUS
        bodies = await await_all(self._calls.ask(address, code) for address in addresses)
        return [admin_parse.ha_status(*pair) for pair in zip(addresses, bodies, strict=True)]

    async def broker_epochs(
        self, *, broker_name: str | None = None, cluster: str | None = None
    ) -> list[BrokerEpochs]:
        """getBrokerEpoch for each replica of the group `broker_name` (the master first), or of a
        cluster (sorted by address). BrokerError 1 from a broker that keeps no epochs."""
        if broker_name is not None and cluster is None:
            addresses = await self._calls.replicas_of(broker_name)
        else:
            addresses = await self._calls.broker_addresses(broker_name, cluster, masters_only=False)
        code = RequestCode.GET_BROKER_EPOCH_CACHE
        bodies = await await_all(self._calls.ask(address, code) for address in addresses)
        return [admin_parse.broker_epochs(*pair) for pair in zip(addresses, bodies, strict=True)]

    def controllers(self, addresses: Sequence[str]) -> ControllerAdmin:
        """mqadmin's controller commands, at the controllers with these addresses "host:port"; no
        request is sent yet. Raises InvalidArgument for a malformed address."""
        return ControllerAdmin(self._client, addresses)

    def watch(self, controllers: Sequence[str] = (), broker_name: str | None = None) -> GroupWatch:
        """Samples of all broker groups, or of `broker_name` alone, and of the controllers, if any;
        no request is sent before its `sample`."""
        return GroupWatch(self._client, controllers, broker_name)

    async def broker_names(self, cluster: str) -> list[str]:
        """The broker groups of a cluster, sorted; ClientError for an unknown cluster."""
        names = (await self._calls.cluster_info()).cluster_addr_table.get(cluster)
        if not names:
            raise ClientError(f"cluster {cluster} is not known, or has no broker")
        return sorted(names)

    async def update_subscription_group(
        self,
        group: str,
        *,
        broker: str | None = None,
        cluster: str | None = None,
        consume_enable: bool = True,
        consume_from_min_enable: bool = False,
        consume_broadcast_enable: bool = False,
        consume_message_orderly: bool = False,
        retry_queue_nums: int = 1,
        retry_max_times: int = 16,
        broker_id: int = 0,
        which_broker_when_consume_slowly: int = 1,
        notify_consumer_ids_changed_enable: bool = True,
        retry_policy: Mapping[str, Any] | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> UpdatedGroup:
        """updateSubGroup: create or replace the group at a broker or at every master of a cluster.

        The defaults are mqadmin's (UpdateSubGroupSubCommand), which differ from the broker's own
        for consume_from_min_enable and consume_broadcast_enable. `retry_policy` is RocketMQ's
        GroupRetryPolicy, None for its default.
        """
        check_group(group)
        config = SubscriptionGroupConfig(
            group_name=group,
            consume_enable=consume_enable,
            consume_from_min_enable=consume_from_min_enable,
            consume_broadcast_enable=consume_broadcast_enable,
            consume_message_orderly=consume_message_orderly,
            retry_queue_nums=retry_queue_nums,
            retry_max_times=retry_max_times,
            broker_id=broker_id,
            which_broker_when_consume_slowly=which_broker_when_consume_slowly,
            notify_consumer_ids_changed_enable=notify_consumer_ids_changed_enable,
            attributes=dict(attributes or {}),
        )
        if retry_policy is not None:
            config.group_retry_policy = dict(retry_policy)
        addresses = await self._calls.broker_addresses(broker, cluster, masters_only=True)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        for address in addresses:
            await self._calls.ask(address, code, body=config.encode())
        return UpdatedGroup(group, addresses, config.to_json())

    async def set_consume_mode(
        self,
        group: str,
        topic: str,
        *,
        broker: str | None = None,
        cluster: str | None = None,
        mode: str | None = None,
        pop_share_queue_num: int = 0,
        rebalance: str | None = None,
        strategy: str | None = None,
    ) -> ConsumeMode:
        """setConsumeMode at a broker or at every master of a cluster.

        `mode` is PULL or POP; `pop_share_queue_num`, used with it, is the number of further
        members' queues that a popping member gets (0: all queues). Only Turbopump understands
        `rebalance` (BROKER or CLIENT: the side that divides the queues), `strategy`, and topic `*`
        for all topics of the group. None leaves a setting unchanged.
        """
        check_group(group)
        body: dict[str, Any] = {"consumerGroup": group, "topic": topic}
        if mode is not None:
            body |= {"mode": mode, "popShareQueueNum": pop_share_queue_num}
        if rebalance is not None:
            body["rebalance"] = rebalance
        if strategy is not None:
            body["strategyName"] = strategy
        addresses = await self._calls.broker_addresses(broker, cluster, masters_only=True)
        for address in addresses:
            code = RequestCode.SET_MESSAGE_REQUEST_MODE
            await self._calls.ask(address, code, body=encode_json(body))
        return ConsumeMode(group, topic, addresses, body)

    async def reset_offset_by_time(
        self,
        group: str,
        topic: str,
        timestamp_ms: int,
        *,
        force: bool = True,
        broker: str | None = None,
        queue_id: int = -1,
        queue_offset: int | None = None,
    ) -> ResetOffsets:
        """resetOffsetByTime: move the group's offsets in `topic` to the first message stored at
        `timestamp_ms` (epoch milliseconds) or later; -1 is the end of each queue. Without `force`
        no offset moves forward.

        The brokers reset the offsets: members of the group notice it at their next pull. With
        `broker`, an address, and `queue_id` only that queue is moved, to `queue_offset` if given.
        """
        check_group(group)
        header = ResetOffsetRequest(topic, group, timestamp_ms, force, queue_id, queue_offset)
        addresses = (
            [broker]
            if broker is not None
            else group_addresses(await self._calls.query_route(topic))
        )
        offsets: dict[MessageQueue, int] = {}
        for address in addresses:
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            body = await self._calls.ask(address, code, header)
            offsets.update(admin_parse.offset_table(body))
        queues = [
            ResetQueue(queue.topic, queue.broker_name, queue.queue_id, offset)
            for queue, offset in sorted(offsets.items())
        ]
        return ResetOffsets(group, topic, timestamp_ms, queues)


def _queue_of(progress: QueueProgress) -> MessageQueue:
    """Return the queue of a group's progress."""
    return MessageQueue(progress.topic, progress.broker_name, progress.queue_id)
