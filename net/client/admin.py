"""The admin client: what mqadmin asks, as async methods with typed results.

Owns the call sequences of the mqadmin commands (tools/admin/DefaultMQAdminExtImpl). It must never
print or format. Called by the CLI, by tests and by programs.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType

from turbopump.net.client.admin_results import (
    BrokerStatus,
    ClusterList,
    ConsumerProgress,
    DeletedTopic,
    FoundMessage,
    FoundMessages,
    GroupProgress,
    ResetOffsets,
    TopicList,
    TopicRouteResult,
    TopicStatus,
    UpdatedGroup,
    UpdatedTopic,
)

ADMIN_TIMEOUT_MS = 5000
"""How long one request of an admin command may take; mqadmin's value."""


class Admin:
    """An admin client of one cluster of name servers; use as `async with Admin([...]) as admin`.

    Every method raises BrokerError (code and remark) for an error answer, ClientError for what
    cannot be asked, RemotingError when nobody answers.

    Args:
        namesrv: addresses "host:port" of the name servers.
        timeout_ms: bound of each request.
    """

    def __init__(self, namesrv: Sequence[str], *, timeout_ms: int = ADMIN_TIMEOUT_MS) -> None:
        self._namesrv = list(namesrv)
        self._timeout_ms = timeout_ms

    async def start(self) -> None:
        """Nothing is connected yet; connections are made when first used."""

    async def close(self) -> None:
        """Close the connections."""

    async def __aenter__(self) -> "Admin":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def cluster_list(self, cluster: str | None = None) -> ClusterList:
        """clusterList: every broker with its runtime figures; `cluster` limits it to one."""
        raise NotImplementedError

    async def topic_list(self, *, with_clusters: bool = False) -> TopicList:
        """topicList: the topics of the name server; `with_clusters` adds cluster and groups."""
        raise NotImplementedError

    async def topic_route(self, topic: str) -> TopicRouteResult:
        """topicRoute: BrokerError 17 for an unknown topic."""
        raise NotImplementedError

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
        attributes: str = "",
    ) -> UpdatedTopic:
        """updateTopic at one broker address or at every master of a cluster.

        `attributes` is RocketMQ's text `+key=value,-key`. Exactly one of `broker` and `cluster`.
        """
        raise NotImplementedError

    async def delete_topic(self, topic: str, cluster: str) -> DeletedTopic:
        """deleteTopic at every broker of the cluster and at every name server."""
        raise NotImplementedError

    async def topic_status(self, topic: str) -> TopicStatus:
        """topicStatus: offsets of every queue."""
        raise NotImplementedError

    async def consumer_progress(
        self, group: str, *, topic: str | None = None, with_clients: bool = False
    ) -> ConsumerProgress:
        """consumerProgress -g: how far a group is; ClientError for an unknown group.

        `with_clients` (-s) asks every member which queues it holds.
        """
        raise NotImplementedError

    async def consumer_progress_all(self) -> list[GroupProgress]:
        """consumerProgress without -g: one line for each group, largest difference first."""
        raise NotImplementedError

    async def query_message_by_id(self, topic: str, message_id: str) -> FoundMessage:
        """queryMsgById: by offset message id, else by unique key; ClientError if not found."""
        raise NotImplementedError

    async def query_message_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = (1 << 63) - 1,
        max_count: int = 64,
    ) -> FoundMessages:
        """queryMsgByKey: hash collisions are left out; empty when nothing is found."""
        raise NotImplementedError

    async def query_message_by_unique_key(self, topic: str, unique_key: str) -> FoundMessage:
        """queryMsgByUniqueKey: by the client's message id; ClientError if not found."""
        raise NotImplementedError

    async def broker_status(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> list[BrokerStatus]:
        """brokerStatus of one address, or of every broker of a cluster."""
        raise NotImplementedError

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
        attributes: Mapping[str, str] | None = None,
    ) -> UpdatedGroup:
        """updateSubGroup at one broker address or at every master of a cluster.

        The defaults are those of mqadmin (UpdateSubGroupSubCommand), which differ from the
        broker's own for consume_from_min_enable and consume_broadcast_enable.
        """
        raise NotImplementedError

    async def reset_offset_by_time(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> ResetOffsets:
        """resetOffsetByTime: -1 is the end of each queue."""
        raise NotImplementedError
