"""The results of the admin commands: a frozen dataclass for each mqadmin command.

Owns the shapes and their JSON (`to_json`): no call, no formatting for people.

Tests: tests/unit/net/client/admin/test_group_view.py, tests/unit/net/client/admin/test_parse.py
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from turbopump.net.client.messages import ReceivedMessage


def json_ready(value: object) -> Any:
    """`value` as JSON-ready dicts (keys become texts), lists, numbers and texts; other objects,
    such as bytes, are returned unchanged."""
    if isinstance(value, Result | ReceivedMessage):
        return value.to_json()
    if isinstance(value, dict):
        return {str(key): json_ready(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(member) for member in value]
    return value


@dataclass(frozen=True, slots=True)
class Result:
    """Base of every result; its JSON has the members under their own names."""

    def to_json(self) -> dict[str, Any]:
        """The result as JSON-ready data: member name to value, nested results likewise."""
        return {member.name: json_ready(getattr(self, member.name)) for member in fields(self)}


@dataclass(frozen=True, slots=True)
class BrokerLine(Result):
    """A broker in clusterList (tools/command/cluster/ClusterListSubCommand).

    `error` is empty, or the reason why the broker did not answer; the figures are zero then.
    Rates (`..._tps`) are messages a second over the last 10 s, queue sizes are requests that wait,
    `timer_read_behind` is in seconds, `timer_offset_behind` and `timer_congest_num` in timers.
    `hours` is the age of the log's oldest message, `space` the used ratio (0 to 1) of the log's
    disk, `active` its brokerActive (at Turbopump: not shutting down). Totals are messages of a day.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    version: str = ""
    in_tps: float = 0.0
    out_tps: float = 0.0
    send_queue_size: int = 0
    send_queue_wait_ms: int = 0
    pull_queue_size: int = 0
    pull_queue_wait_ms: int = 0
    timer_read_behind: int = 0
    timer_offset_behind: int = 0
    timer_congest_num: int = 0
    timer_enqueue_tps: float = 0.0
    timer_dequeue_tps: float = 0.0
    page_cache_wait_ms: int = 0
    hours: float = 0.0
    space: float = 0.0
    active: bool = False
    in_total_yesterday: int = 0
    out_total_yesterday: int = 0
    in_total_today: int = 0
    out_total_today: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class ClusterList(Result):
    """The answer of clusterList, sorted by cluster, broker name and broker id."""

    brokers: list[BrokerLine]


@dataclass(frozen=True, slots=True)
class TopicLine(Result):
    """A topic in topicList; `cluster` (names, comma-joined) and the groups are filled only on
    request (`-c`)."""

    topic: str
    cluster: str = ""
    consumer_groups: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TopicList(Result):
    """The answer of topicList, sorted by topic."""

    topics: list[TopicLine]


@dataclass(frozen=True, slots=True)
class TopicRouteResult(Result):
    """The answer of topicRoute: `route` is the name server's JSON, as mqadmin prints it."""

    topic: str
    route: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The route itself, under RocketMQ's member names."""
        return self.route


@dataclass(frozen=True, slots=True)
class UpdatedTopic(Result):
    """The answer of updateTopic: the configuration as sent and the `addresses` of the brokers that
    accepted it; `attributes` has the assignments only."""

    topic: str
    addresses: list[str]
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True)
class DeletedTopic(Result):
    """The answer of deleteTopic: the addresses of the brokers and of the name servers that deleted
    the topic."""

    topic: str
    cluster: str
    addresses: list[str]
    name_servers: list[str]


@dataclass(frozen=True, slots=True)
class QueueStatus(Result):
    """A queue in topicStatus: its first stored message, its end, and the store time (epoch ms) of
    its newest message; `last_update_ms` is 0 for an empty queue."""

    broker_name: str
    queue_id: int
    min_queue_offset: int
    max_queue_offset: int
    last_update_ms: int


@dataclass(frozen=True, slots=True)
class TopicStatus(Result):
    """The answer of topicStatus, sorted by broker name and queue id; `put_tps` is in messages a
    second over the last minute."""

    topic: str
    put_tps: float
    queues: list[QueueStatus]


@dataclass(frozen=True, slots=True)
class QueueProgress(Result):
    """A queue in consumerProgress; `client_address` (the ip of the member that holds it) is filled
    only on request (`-s`).

    `broker_offset` is the end of the queue, `consumer_offset` the next message to acknowledge,
    `pull_offset` the next to pull; `last_time_ms` is the store time (epoch ms) of the message
    before `consumer_offset`, 0 if not stored. `behind_ms` is the age of the oldest unacknowledged
    message: 0 if all are acknowledged, None if the broker does not report it (RocketMQ's do not),
    and a lower bound if not `behind_known`.
    """

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_time_ms: int
    client_address: str = ""
    behind_ms: int | None = None
    behind_known: bool = False

    @property
    def diff(self) -> int:
        """Number of messages not yet acknowledged, pulled or not."""
        return self.broker_offset - self.consumer_offset

    @property
    def inflight(self) -> int:
        """Number of messages pulled and not yet acknowledged."""
        return max(0, self.pull_offset - self.consumer_offset)

    def to_json(self) -> dict[str, Any]:
        """The members by name, and `diff` and `inflight`."""
        return {
            **super(QueueProgress, self).to_json(),
            "diff": self.diff,
            "inflight": self.inflight,
        }


def time_behind(queues: Sequence[QueueProgress]) -> tuple[int | None, bool]:
    """(`behind_ms`, `behind_known`) of a group over all its queues: the largest `behind_ms` (None
    if no queue has it), and whether it is known exactly for every queue."""
    timed = [queue for queue in queues if queue.behind_ms is not None]
    if not timed:
        return None, False
    known = len(timed) == len(queues) and all(queue.behind_known for queue in timed)
    return max(queue.behind_ms or 0 for queue in timed), known


@dataclass(frozen=True, slots=True)
class ConsumerProgress(Result):
    """The answer of consumerProgress for a group, sorted by topic, broker and queue id.

    `consume_tps` is in messages a second over the last minute. The totals are sums of all queues,
    `inflight_total` with popped messages; `behind_ms` and `behind_known` as in QueueProgress.
    """

    group: str
    consume_tps: float
    diff_total: int
    inflight_total: int
    queues: list[QueueProgress]
    behind_ms: int | None = None
    behind_known: bool = False


@dataclass(frozen=True, slots=True)
class GroupProgress(Result):
    """A group in consumerProgress without `-g`; `count` is the number of online members, `version`
    the oldest of them, "" if all are offline; other members as in ConsumerProgress."""

    group: str
    count: int
    version: str
    consume_type: str
    message_model: str
    consume_tps: float
    diff_total: int
    behind_ms: int | None = None
    behind_known: bool = False


@dataclass(frozen=True, slots=True)
class MessageTrack(Result):
    """The progress of a group with a message (tools/admin/api/MessageTrack).

    `track` is one of CONSUMED, CONSUMED_BUT_FILTERED, NOT_CONSUME_YET, NOT_ONLINE, PULL,
    CONSUME_BROADCASTING, UNKNOWN; `error` is the reason of UNKNOWN.
    """

    group: str
    track: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class FoundMessage(Result):
    """The answer of queryMsgById and queryMsgByUniqueKey: a message and the progress of its groups,
    sorted by group."""

    message: ReceivedMessage
    tracks: list[MessageTrack]


@dataclass(frozen=True, slots=True)
class FoundMessages(Result):
    """The answer of queryMsgByKey, sorted by store time; by default at most 64 messages a
    broker."""

    topic: str
    key: str
    messages: list[ReceivedMessage]


@dataclass(frozen=True, slots=True)
class BrokerStatus(Result):
    """The answer of brokerStatus for a broker: GET_BROKER_RUNTIME_INFO's table, sorted."""

    address: str
    table: dict[str, str]


@dataclass(frozen=True, slots=True)
class HaReplica(Result):
    """A replica's connection in haStatus; `acked` and `next` (the next byte to send) are log
    offsets, -1 if not known; `diff` is the number of bytes that it lacks."""

    address: str
    acked: int
    diff: int
    bytes_per_second: int
    in_sync: bool
    next: int


@dataclass(frozen=True, slots=True)
class HaStatus(Result):
    """The answer of haStatus for a broker; `log_end` is the log offset of its log's end.

    A master has `replicas`, its connections, and the number of `in_sync_replicas`. A replica has
    the rate and the times (epoch ms, 0: never) of its connection to `master_address`, and the log
    offset up to which the master has flushed.
    """

    address: str
    is_master: bool
    log_end: int
    in_sync_replicas: int = 0
    replicas: list[HaReplica] = field(default_factory=list)
    master_address: str = ""
    bytes_per_second: int = 0
    last_read_ms: int = 0
    last_write_ms: int = 0
    master_flushed: int = 0


@dataclass(frozen=True, slots=True)
class EpochSpan(Result):
    """An entry in getBrokerEpoch: the log offsets, from `start` to before `end`, that the master of
    an epoch wrote."""

    epoch: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BrokerEpochs(Result):
    """The answer of getBrokerEpoch for a broker, by epoch; the last epoch ends at `log_end`, the
    end of the log."""

    cluster: str
    broker_name: str
    address: str
    broker_id: int
    log_end: int
    epochs: list[EpochSpan]


@dataclass(frozen=True, slots=True)
class ControllerMetadata(Result):
    """The answer of getControllerMetaData by the controller at `address`.

    `leader_id` and `leader_address` are empty while the controller knows no leader; `peers` is id
    to address; only Turbopump's controllers report `term`, RocketMQ's leave it None.
    """

    address: str
    group: str
    leader_id: str
    leader_address: str
    is_leader: bool
    peers: dict[str, str]
    term: int | None = None


@dataclass(frozen=True, slots=True)
class ReplicaLine(Result):
    """A replica in getSyncStateSet; `broker_id` is the controller's, which never changes; `alive`:
    the controller receives its heartbeats."""

    broker_name: str
    broker_id: int
    address: str
    alive: bool


@dataclass(frozen=True, slots=True)
class SyncStateLine(Result):
    """The answer of getSyncStateSet for a broker group; without a master `master_id` is None and
    `master_address` empty. `master_epoch` rises with each election, `set_epoch` with each change of
    the SyncStateSet, whose members are `in_sync`."""

    broker_name: str
    master_id: int | None
    master_address: str
    master_epoch: int
    set_epoch: int
    in_sync: list[ReplicaLine]
    not_in_sync: list[ReplicaLine]


@dataclass(frozen=True, slots=True)
class ElectedMaster(Result):
    """The answer of electMaster: the group's master after it; `members` is id to address of the
    group's replicas; the epochs as in SyncStateLine."""

    cluster: str
    broker_name: str
    master_id: int | None
    master_address: str
    master_epoch: int
    set_epoch: int
    members: dict[int, str]


@dataclass(frozen=True, slots=True)
class NodeProperties(Result):
    """The configuration of the node at `address`: `table` is name to value, sorted by name."""

    address: str
    table: dict[str, str]


@dataclass(frozen=True, slots=True)
class UpdatedControllerConfig(Result):
    """The answer of updateControllerConfig: the controllers that accepted `key` = `value`."""

    addresses: list[str]
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class CleanedBroker(Result):
    """The answer of cleanBrokerMetadata; without ids the whole group was forgotten."""

    broker_name: str
    broker_ids: list[int]


@dataclass(frozen=True, slots=True)
class UpdatedGroup(Result):
    """The answer of updateSubGroup: the configuration as sent (RocketMQ's member names), and the
    brokers that accepted it."""

    group: str
    addresses: list[str]
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumeMode(Result):
    """The answer of setConsumeMode: the settings sent to each broker (the request's member
    names)."""

    group: str
    topic: str
    addresses: list[str]
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResetQueue(Result):
    """A queue that resetOffsetByTime moved; `queue_offset` is the next message to consume."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class ResetOffsets(Result):
    """The answer of resetOffsetByTime: the moved queues, sorted by broker name and queue id;
    `timestamp_ms` as requested."""

    group: str
    topic: str
    timestamp_ms: int
    queues: list[ResetQueue]


@dataclass(frozen=True, slots=True)
class ChangedConfig(Result):
    """The answer of updateBrokerConfig and updateNamesrvConfig: the nodes that accepted
    `key` = `value`."""

    addresses: list[str]
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class WritePerm(Result):
    """The answer of wipeWritePerm and addWritePerm: the number of topics changed, by address of the
    name server."""

    broker_name: str
    topics: dict[str, int]


@dataclass(frozen=True, slots=True)
class ClientConnection(Result):
    """A client of a group; `address` is its end "ip:port" of the connection, `version` RocketMQ's
    name of its version, such as V5_5_0."""

    client_id: str
    address: str
    language: str
    version: str


@dataclass(frozen=True, slots=True)
class ConsumerClients(Result):
    """The answer of consumerConnection, clients sorted by client id; `subscriptions` is topic to
    expression; the other members are texts of net/wire/heartbeat.py."""

    group: str
    clients: list[ClientConnection]
    subscriptions: dict[str, str]
    consume_type: str
    message_model: str
    consume_from_where: str


@dataclass(frozen=True, slots=True)
class ProducerClients(Result):
    """The answer of producerConnection, clients sorted by client id."""

    group: str
    topic: str
    clients: list[ClientConnection]


@dataclass(frozen=True, slots=True)
class MemberStatus(Result):
    """A member in consumerStatus: its queues, as "topic broker queue", and its own answer to
    GET_CONSUMER_RUNNING_INFO. `error` is the reason if it did not answer, else empty."""

    client_id: str
    queues: list[str]
    info: dict[str, Any]
    error: str = ""


@dataclass(frozen=True, slots=True)
class TopicTraffic(Result):
    """A line of statsAll: a topic with a group, or without groups (`group` empty). Rates are
    messages a second over the last minute, counts are messages of the last 24 hours. `behind`: the
    number of messages that the group has not acknowledged."""

    topic: str
    group: str
    behind: int
    in_tps: float
    out_tps: float
    in_24_hours: int
    out_24_hours: int


@dataclass(frozen=True, slots=True)
class ResentMessage(Result):
    """A dead letter that was sent to the retry topic of its group; `topic` is the topic that it was
    first sent to."""

    message_id: str
    topic: str
    retry_topic: str
