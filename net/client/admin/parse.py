"""Bodies of admin answers as results: pure functions.

Owns the reading of runtime tables, offset tables and connection lists. It must never ask a node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from turbopump.net.client.admin.results import (
    BrokerEpochs,
    BrokerLine,
    ClientConnection,
    ConsumerClients,
    EpochSpan,
    HaReplica,
    HaStatus,
    MessageTrack,
    QueueProgress,
    QueueStatus,
)
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.wire.bodies import (
    as_object,
    as_text,
    load_object,
    read_flag,
    read_int64,
    read_list,
    read_table,
    read_text,
)
from turbopump.net.wire.heartbeat import BROADCASTING, CONSUME_ACTIVELY
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.subscription import ALL, SubscriptionData

HOUR_MS: Final = 3_600_000
"""Milliseconds of an hour."""

_V4_0_0: Final = 213
"""MQVersion ordinal of V4_0_0; after it each release follows its snapshot."""


def version_name(ordinal: int) -> str:
    """RocketMQ's name of a version ordinal (common/MQVersion), from 4.0.0 on.

    Every minor version has ten patches, each with a snapshot before it: two ordinals a patch.
    """
    if ordinal < _V4_0_0:
        return f"V3({ordinal})"
    patches, is_snapshot = divmod(ordinal - _V4_0_0, 2)
    patches += is_snapshot
    major, rest = divmod(patches, 100)
    minor, patch = divmod(rest, 10)
    return f"V{4 + major}_{minor}_{patch}{'_SNAPSHOT' if is_snapshot else ''}"


def runtime_table(body: bytes) -> dict[str, str]:
    """The table of GET_BROKER_RUNTIME_INFO, sorted by key; raises BadBody."""
    return dict(sorted(read_table(load_object(body), "table", as_text).items()))


def broker_line(
    cluster: str,
    broker_name: str,
    broker_id: int,
    address: str,
    info: Mapping[str, str],
    now_ms: int,
) -> BrokerLine:
    """The figures of clusterList out of a runtime table `info`; figures that cannot be read are 0.
    `now_ms` (epoch milliseconds) is the time from which `hours` count."""
    earliest_ms = _read_int(info, "earliestMessageTimeStamp")
    put_morning, get_morning = (
        _read_int(info, "msgPutTotalTodayMorning"),
        _read_int(info, "msgGetTotalTodayMorning"),
    )
    return BrokerLine(
        cluster=cluster,
        broker_name=broker_name,
        broker_id=broker_id,
        address=address,
        version=info.get("brokerVersionDesc", ""),
        in_tps=_read_float(info, "putTps"),
        out_tps=_read_float(info, "getTransferredTps"),
        send_queue_size=_read_int(info, "sendThreadPoolQueueSize"),
        send_queue_wait_ms=_read_int(info, "sendThreadPoolQueueHeadWaitTimeMills"),
        pull_queue_size=_read_int(info, "pullThreadPoolQueueSize"),
        pull_queue_wait_ms=_read_int(info, "pullThreadPoolQueueHeadWaitTimeMills"),
        timer_read_behind=_read_int(info, "timerReadBehind"),
        timer_offset_behind=_read_int(info, "timerOffsetBehind"),
        timer_congest_num=_read_int(info, "timerCongestNum"),
        timer_enqueue_tps=_read_float(info, "timerEnqueueTps"),
        timer_dequeue_tps=_read_float(info, "timerDequeueTps"),
        page_cache_wait_ms=_read_int(info, "pageCacheLockTimeMills"),
        hours=max(0, now_ms - earliest_ms) / HOUR_MS if earliest_ms > 0 else 0.0,
        space=_read_float(info, "commitLogDiskRatio"),
        active=info.get("brokerActive", "") == "true",
        in_total_yesterday=put_morning - _read_int(info, "msgPutTotalYesterdayMorning"),
        out_total_yesterday=get_morning - _read_int(info, "msgGetTotalYesterdayMorning"),
        in_total_today=_read_int(info, "msgPutTotalTodayNow") - put_morning,
        out_total_today=_read_int(info, "msgGetTotalTodayNow") - get_morning,
    )


def topic_stats(body: bytes) -> tuple[list[QueueStatus], float]:
    """(queues, sorted by queue; put rate in messages per second) in the answer of
    GET_TOPIC_STATS_INFO; raises BadBody."""
    members = load_object(body)
    queues = [
        QueueStatus(
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            min_queue_offset=read_int64(value, "minOffset"),
            max_queue_offset=read_int64(value, "maxOffset"),
            last_update_ms=read_int64(value, "lastUpdateTimestamp"),
        )
        for queue, value in _sorted_queues(members, "offsetTable")
    ]
    return queues, _read_tps(members, "topicPutTps")


def consume_stats(body: bytes) -> tuple[list[QueueProgress], float, int]:
    """(queues, sorted by queue; consume rate in messages per second; number of messages popped and
    not acknowledged) in the answer of GET_CONSUME_STATS; raises BadBody."""
    members = load_object(body)
    popped = as_object(members.get("popInflight") or {})
    queues = [
        QueueProgress(
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            broker_offset=read_int64(value, "brokerOffset"),
            consumer_offset=read_int64(value, "consumerOffset"),
            pull_offset=read_int64(value, "pullOffset"),
            last_time_ms=read_int64(value, "lastTimestamp"),
            behind_ms=behind if (behind := read_int64(value, "delayTime", -1)) >= 0 else None,
            behind_known=read_flag(value, "delayTimeKnown"),
        )
        for queue, value in _sorted_queues(members, "offsetTable")
    ]
    in_flight = sum(read_int64(popped, topic) for topic in popped)
    return queues, _read_tps(members, "consumeTps"), in_flight


def offset_table(body: bytes) -> dict[MessageQueue, int]:
    """Parse `{"offsetTable":{queue:offset}}` to queue offsets by queue; raises BadBody."""
    members = load_object(body)
    beans = as_object(members.get("offsetTable") or {})
    return {MessageQueue.from_key(key): read_int64(beans, key) for key in beans}


def ha_status(address: str, body: bytes) -> HaStatus:
    """Parse the answer of GET_BROKER_HA_STATUS by the broker at `address`; raises BadBody."""
    members = load_object(body)
    if read_flag(members, "master"):
        return HaStatus(
            address,
            is_master=True,
            log_end=read_int64(members, "masterCommitLogMaxOffset"),
            in_sync_replicas=read_int64(members, "inSyncSlaveNums"),
            replicas=read_list(members, "haConnectionInfo", _ha_replica),
        )
    client = as_object(members.get("haClientRuntimeInfo") or {})
    return HaStatus(
        address,
        is_master=False,
        log_end=read_int64(client, "maxOffset"),
        master_address=read_text(client, "masterAddr"),
        bytes_per_second=read_int64(client, "transferredByteInSecond"),
        last_read_ms=read_int64(client, "lastReadTimestamp"),
        last_write_ms=read_int64(client, "lastWriteTimestamp"),
        master_flushed=read_int64(client, "masterFlushOffset"),
    )


def _ha_replica(value: object) -> HaReplica:
    members = as_object(value)
    return HaReplica(
        address=read_text(members, "addr"),
        acked=read_int64(members, "slaveAckOffset"),
        diff=read_int64(members, "diff"),
        bytes_per_second=read_int64(members, "transferredByteInSecond"),
        in_sync=read_flag(members, "inSync"),
        next=read_int64(members, "transferFromWhere"),
    )


def broker_epochs(address: str, body: bytes) -> BrokerEpochs:
    """Parse the answer of GET_BROKER_EPOCH_CACHE by the broker at `address`; raises BadBody."""
    members = load_object(body)
    log_end = read_int64(members, "maxOffset")
    entries = read_list(members, "epochList", as_object)
    spans = [
        EpochSpan(read_int64(e, "epoch"), read_int64(e, "startOffset"), read_int64(e, "endOffset"))
        for e in entries
    ]
    if spans:  # the last epoch is still open: its end is sent as the largest possible number
        spans[-1] = replace(spans[-1], end=log_end)
    return BrokerEpochs(
        cluster=read_text(members, "clusterName"),
        broker_name=read_text(members, "brokerName"),
        address=address,
        broker_id=read_int64(members, "brokerId"),
        log_end=log_end,
        epochs=spans,
    )


@dataclass(frozen=True, slots=True)
class Connections:
    """The clients that consume a group: the answer of GET_CONSUMER_CONNECTION_LIST, in its order.

    `versions` are MQVersion ordinals, at the places of `client_ids`; `subscriptions` is by topic;
    `consume_type` and `message_model` are texts of net/wire/heartbeat.py.
    """

    client_ids: list[str]
    versions: list[int]
    consume_type: str
    message_model: str
    subscriptions: dict[str, SubscriptionData]

    @classmethod
    def decode(cls, body: bytes) -> "Connections":
        """Parse the answer's body; raises BadBody."""
        members = load_object(body)
        connections = read_list(members, "connectionSet", as_object)
        return cls(
            [read_text(connection, "clientId") for connection in connections],
            [read_int64(connection, "version") for connection in connections],
            read_text(members, "consumeType"),
            read_text(members, "messageModel"),
            read_table(members, "subscriptionTable", SubscriptionData.from_json),
        )


def track_of(
    message: ReceivedMessage, group: str, connections: Connections, progress: list[QueueProgress]
) -> MessageTrack:
    """The progress of an online group with a message (DefaultMQAdminExtImpl.messageTrackDetail);
    `progress` are the group's queues, also of other topics."""
    if connections.message_model == BROADCASTING:
        return MessageTrack(group, "CONSUME_BROADCASTING")
    if connections.consume_type == CONSUME_ACTIVELY:
        return MessageTrack(group, "PULL")
    consumed = any(
        queue.consumer_offset > message.queue_offset
        for queue in progress
        if (queue.topic, queue.broker_name, queue.queue_id)
        == (message.stored_topic, message.broker_name, message.queue_id)
    )
    if not consumed:
        return MessageTrack(group, "NOT_CONSUME_YET")
    wanted = connections.subscriptions.get(message.topic)
    if wanted is not None and wanted.sub_string != ALL and not wanted.wants_tag(message.tags):
        return MessageTrack(group, "CONSUMED_BUT_FILTERED")
    return MessageTrack(group, "CONSUMED")


def read_clients(body: bytes) -> list[ClientConnection]:
    """The connections in an answer of GET_CONSUMER_CONNECTION_LIST or
    GET_PRODUCER_CONNECTION_LIST, sorted by client id; raises BadBody."""
    found = [
        ClientConnection(
            read_text(one, "clientId"),
            read_text(one, "clientAddr"),
            read_text(one, "language"),
            version_name(read_int64(one, "version")),
        )
        for one in read_list(load_object(body), "connectionSet", as_object)
    ]
    return sorted(found, key=lambda one: one.client_id)


def consumer_clients(group: str, body: bytes) -> ConsumerClients:
    """Parse the answer of GET_CONSUMER_CONNECTION_LIST, subscriptions sorted by topic; raises
    BadBody."""
    members = load_object(body)
    subscriptions = read_table(members, "subscriptionTable", SubscriptionData.from_json)
    return ConsumerClients(
        group,
        read_clients(body),
        {topic: data.sub_string for topic, data in sorted(subscriptions.items())},
        read_text(members, "consumeType"),
        read_text(members, "messageModel"),
        read_text(members, "consumeFromWhere"),
    )


def stats_data(body: bytes) -> tuple[float, int]:
    """(messages per second over the last minute, messages in the last 24 hours) in the answer of
    VIEW_BROKER_STATS_DATA; raises BadBody. A missing count is replaced by that of a shorter time
    (StatsAllSubCommand.compute24HourSum)."""
    members = load_object(body)
    minute, hour, day = (
        as_object(members.get(name) or {}) for name in ("statsMinute", "statsHour", "statsDay")
    )
    return _read_tps(minute, "tps"), (
        read_int64(day, "sum") or read_int64(hour, "sum") or read_int64(minute, "sum")
    )


def attributes_of(changes: str) -> dict[str, str]:
    """The assignments in `+key=value,-key` as key to value; removals are left out."""
    pairs = (item.strip()[1:].split("=", 1) for item in changes.split(",") if "=" in item)
    return {name.strip(): value.strip() for name, value in pairs}


def order_text(known: str, changed: Mapping[str, int]) -> str:
    """`known`, a text `broker:queues;...`, with the numbers of queues of the brokers in `changed`
    replaced or added, sorted by broker."""
    counts = dict(item.rsplit(":", 1) for item in known.split(";") if ":" in item)
    counts.update({name: str(count) for name, count in changed.items()})
    return ";".join(f"{name}:{count}" for name, count in sorted(counts.items()))


def _sorted_queues(members: dict[str, Any], name: str) -> list[tuple[MessageQueue, dict[str, Any]]]:
    """Return (queue, its object) for each entry of the table `name`, sorted by queue; raises
    BadBody."""
    beans = read_table(members, name, as_object)
    return sorted((MessageQueue.from_key(key), value) for key, value in beans.items())


def _read_tps(members: dict[str, Any], name: str) -> float:
    """Return a rate in messages per second; 0 if it is missing."""
    value = members.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _read_int(info: Mapping[str, str], name: str) -> int:
    """Return an entry of a runtime table as a number; 0 if it cannot be read."""
    try:
        return int(info.get(name, "0"))
    except ValueError:
        return 0


def _read_float(info: Mapping[str, str], name: str) -> float:
    """Return the first of several numbers in an entry, the rate over the shortest time; 0 if it
    cannot be read."""
    try:
        return float(info.get(name, "").split()[0])
    except (ValueError, IndexError):
        return 0.0
