"""The table of GET_BROKER_RUNTIME_INFO: a text for each key that RocketMQ's tools know.

Owns the names and text forms (RocketMQ: AdminBrokerProcessor, StoreStatsService). Nothing is
changed here.

Keys of parts that do not exist here (thread pools, the transient pool, page cache locks) have the
values of an idle RocketMQ broker: tools parse them and fail if one is missing.

Tests: tests/unit/broker/handlers/admin/test_broker.py, tests/unit/broker/ha/test_membership_told.py
"""

from collections.abc import Mapping
from heapq import nlargest
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.escape.bridge import Escape
from turbopump.broker.replication import ActingReplicas, GroupMembership, ReplicationStatus
from turbopump.broker.scheduled.timer_status import BACKLOG_BOUNDS_S
from turbopump.broker.tables.consumer_lag import waited_ms
from turbopump.net.wire.command import VERSION
from turbopump.net.wire.names import SCHEDULE_TOPIC

VERSION_TEXT: Final = "V5_5_0"
"""RocketMQ's name of the protocol version command.VERSION; tools show it, clients do not parse
it."""

GROUP_ROWS_MAX: Final = 20
"""Maximum rows of lags, and maximum rows of groups that pop, in the table: as many as fit a
screen."""

_RATE_SECONDS = (10, 60, 600)
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

_IDLE: Mapping[str, str] = {
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "100000",
    "ackThreadPoolQueueCapacity": "100000",
    "ackThreadPoolQueueHeadWaitTimeMills": "0",
    "ackThreadPoolQueueSize": "0",
    "dispatchMaxBuffer": "0",
    "getMessageEntireTimeMax": "0",
    "litePullThreadPoolQueueCapacity": "100000",
    "litePullThreadPoolQueueHeadWaitTimeMills": "0",
    "litePullThreadPoolQueueSize": "0",
    "pageCacheLockTimeMills": "0",
    "pullThreadPoolQueueCapacity": "100000",
    "pullThreadPoolQueueHeadWaitTimeMills": "0",
    "pullThreadPoolQueueSize": "0",
    "putLatency99": "0.00",
    "putLatency999": "0.00",
    "putMessageDistributeTime": (
        "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 "
        "[1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
    ),
    "putMessageEntireTimeMax": "0",
    "queryThreadPoolQueueCapacity": "20000",
    "queryThreadPoolQueueHeadWaitTimeMills": "0",
    "queryThreadPoolQueueSize": "0",
    "remainTransientStoreBufferNumbs": "2147483647",
    "sendThreadPoolQueueCapacity": "10000",
    "sendThreadPoolQueueHeadWaitTimeMills": "0",
    "sendThreadPoolQueueSize": "0",
}


def runtime_table(broker: BrokerContext, now_ms: int) -> dict[str, str]:
    """Build the table of the answer to 28, key to text; times in it and `now_ms` are epoch ms. It
    also adds the store's counts to the broker's statistics, and may begin a computation of all
    lags."""
    stored = broker.store.statistics
    broker.statistics.set_put_totals(stored.put_count_by_topic, stored.put_size_by_topic)
    table = dict(_IDLE)
    table.update(_of_broker(broker, now_ms))
    table.update(_of_io_threads(broker))
    table.update(_of_store(broker, now_ms))
    table.update({key: str(value) for key, value in broker.statistics.message_totals().items()})
    if broker.ha is not None:
        table.update(_of_replication(broker.ha.status()))
    if broker.membership is not None:
        table.update(membership_table(broker.membership))
    if broker.acting is not None:
        table.update(_of_acting(broker.acting, now_ms))
    table.update(_of_escape(broker.escape, acts=broker.role.is_acting))
    table.update(_of_groups(broker, now_ms))
    table.update(_of_pops(broker, now_ms))
    table.update(_of_timers(broker, now_ms))
    table.update(_of_transactions(broker))
    for level, queue_offset in broker.delay.copy_progress().items():
        end = broker.store.max_queue_offset(SCHEDULE_TOPIC, level - 1)
        table[f"scheduleMessageOffset_{level}"] = f"{queue_offset},{end}"
    return table


def _of_groups(broker: BrokerContext, now_ms: int) -> dict[str, str]:
    """Return the rows about the consumer groups with the largest lag (keys of this project; `top`
    reads them)."""
    table = {}
    for lag in broker.lags.largest_lags(GROUP_ROWS_MAX):
        behind = waited_ms(lag.since, now_ms)
        waited = "?" if behind < 0 else f"{'' if lag.since[1] else '>='}{behind}"
        text = f"{lag.messages} messages, {waited} ms, {lag.members} members"
        table[f"consumerLag_{lag.topic}@{lag.group}"] = text
    return table


def _of_pops(broker: BrokerContext, now_ms: int) -> dict[str, str]:
    """Return the rows about the consumer groups that pop, ordered by messages in flight (keys of
    this project; `top` reads them)."""
    rates, in_flight = broker.statistics.pop_rates(), broker.pop.in_flight.counts_by_group(now_ms)
    if not rates and not in_flight:
        return {}
    table = {"popReviveBehind": str(broker.pop.behind_ms(now_ms))}
    groups = nlargest(GROUP_ROWS_MAX, rates.keys() | in_flight.keys(), key=in_flight.__getitem__)
    for group in groups:
        popped, acked = rates.get(group, (0.0, 0.0))
        text = f"{popped:.1f} popped/s, {acked:.1f} acked/s, {in_flight[group]} in flight"
        table[f"consumerPop_{group}"] = text
    return table


def _of_timers(broker: BrokerContext, now_ms: int) -> dict[str, str]:
    """Return the rows about timers: RocketMQ's keys, and two of this project: the next due time,
    and timers by time range."""
    status = broker.timers.status(now_ms)
    seconds = max(1, now_ms - broker.started_ms) / 1_000
    table = {
        "timerCongestNum": str(status.waiting),
        "timerDequeueTps": f"{status.dequeued / seconds:.1f}",
        "timerEnqueueTps": f"{status.enqueued / seconds:.1f}",
        "timerOffsetBehind": str(status.offset_behind),
        "timerReadBehind": str(status.read_behind_ms // 1_000),
    }
    if status.next_due_ms is not None:
        table["timerNextDue"] = str(status.next_due_ms)
        backlog = zip(BACKLOG_BOUNDS_S, status.backlog, strict=True)
        table["timerBacklog"] = ", ".join(f"{bound} s: {count}" for bound, count in backlog)
    return table


def _of_transactions(broker: BrokerContext) -> dict[str, str]:
    """Return the rows about open half messages, and results of checks since the start (keys of this
    project)."""
    checks = broker.transaction_checks
    return {
        "transactionsOpen": str(broker.transactions.open_count),
        "transactionsAsked": str(checks.asked),
        "transactionsGivenUp": str(checks.given_up),
        "transactionsWithoutProducer": str(checks.unasked),
    }


def _of_broker(broker: BrokerContext, now_ms: int) -> dict[str, str]:
    """Return the rows about the broker process: version, start and state."""
    return {
        "bootTimestamp": str(broker.started_ms),
        "brokerActive": "false" if broker.shutting_down else "true",
        "brokerVersion": str(VERSION),
        "brokerVersionDesc": VERSION_TEXT,
        "runtime": _span_text(now_ms - broker.started_ms),
        "startAcceptSendRequestTimeStamp": str(
            broker.config.start_accept_send_request_timestamp_ms
        ),
    }


def _of_io_threads(broker: BrokerContext) -> dict[str, str]:
    """Return the rows about the threads that read and write clients' connections (keys of this
    project): their number, and the CPU time of each since the start in ms."""
    times_ns = broker.io_threads.cpu_ns if broker.io_threads is not None else []
    return {
        "ioThreads": str(len(times_ns)),
        "ioThreadsCpuMs": " ".join(str(each // 1_000_000) for each in times_ns),
    }


def _of_store(broker: BrokerContext, now_ms: int) -> dict[str, str]:
    """Return the rows about the store: sizes, offsets, rates and problems."""
    store = broker.store
    total = store.statistics.total
    # The earliest time of an empty log is now: tools show the distance in hours.
    earliest_ms = store.first_stored_ms if store.first_stored_ms >= 0 else now_ms
    ratio = f"{store.disk_used_ratio():.2f}"
    space, free = store.disk_space()
    damage = {"commitLogDamage": str(store.damage)} if store.damage is not None else {}
    unfit = {"storeUnfit": store.why_unfit} if store.why_unfit else {}
    slow = {"storeSlow": "true"} if store.is_sync_slow else {}
    return (
        damage
        | unfit
        | slow
        | {
            "commitLogDirCapacity": f"Total : {size_text(space)}, Free : {size_text(free)}.",
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{store.config.log_folder}": ratio,
            "commitLogMaxOffset": str(store.max_log_offset),
            "commitLogMinOffset": str(store.min_log_offset),
            "consumeQueueDiskRatio": ratio,
            "dispatchBehindBytes": str(store.max_log_offset - store.dispatched_log_offset),
            "earliestMessageTimeStamp": str(earliest_ms),
            "getFoundTps": _rates(broker, "found_count"),
            "getMissTps": _rates(broker, "miss_count"),
            "getTotalTps": _rates(broker, "found_count", "miss_count"),
            # RocketMQ's tools ask for the name of version 4, which has one r less.
            "getTransferedTps": _rates(broker, "transferred_count"),
            "getTransferredTps": _rates(broker, "transferred_count"),
            "putMessageAverageSize": str(total.put_size / max(total.put_count, 1)),
            "putMessageFailedTimes": str(total.put_failed_count),
            "putMessageSizeTotal": str(total.put_size),
            "putMessageTimesTotal": str(total.put_count),
            "putTps": _rates(broker, "put_count"),
            "remainHowManyDataToFlush": size_text(store.max_log_offset - store.flushed_log_offset),
        }
    )


def _of_replication(ha: ReplicationStatus) -> dict[str, str]:
    """Return the rows about replication (keys of this project): RocketMQ reports it only in
    GET_BROKER_HA_STATUS."""
    counters = ha.counters
    table = {
        "haConfirmGap": str(ha.log_end - ha.confirm),
        "haConfirmOffset": str(ha.confirm),
        "haReconnects": str(counters.reconnects),
        "haSyncStateSetChanges": str(counters.set_changes),
        "haTruncatedBytes": str(counters.truncated_bytes),
    }
    if ha.epochs is not None:
        table["haEpoch"] = str(ha.epochs.last_epoch)
    if ha.follower is not None:
        table["haState"] = ha.follower.state.name
        if ha.follower.reason:
            table["haReason"] = ha.follower.reason
    if ha.leader is not None:
        table["haSyncStateSet"] = ",".join(map(str, sorted(ha.leader.members)))
        table["haSyncStateSetEpoch"] = str(ha.leader.set_epoch)
        for replica in ha.leader.replicas:
            lag = f"{ha.log_end - max(replica.acked, 0)} B, {replica.behind_ms} ms"
            table[f"haReplicaLag_{replica.name}"] = lag
    return table


def _of_acting(acting: ActingReplicas, now_ms: int) -> dict[str, str]:
    """Return the rows about acting (keys of this project): since when (epoch ms) a replica acts for
    its master, or why a master does not serve."""
    acts_for_ms, reason_not_serving = acting.acts_for_ms, acting.reason_not_serving
    table = {} if acts_for_ms is None else {"actingSince": str(now_ms - acts_for_ms)}
    return table | {"masterWaits": reason_not_serving} if reason_not_serving else table


def _of_escape(escape: Escape, *, acts: bool) -> dict[str, str]:
    """Return the rows about messages that this replica has given to masters of other groups since
    its start (keys of this project; `top` reads them): their number, when the last one was given
    (epoch ms), and why sending waits."""
    table = {
        f"escapedTo_{name}": f"{escaped.messages} messages, last at {escaped.last_ms}"
        for name, escaped in escape.sent_by_master.items()
    }
    return (
        table | {"escapeWaits": escape.failure_reason} if acts and escape.failure_reason else table
    )


def membership_table(membership: GroupMembership) -> dict[str, str]:
    """Return the rows about a broker's membership in a group with controllers (keys of this
    project): haLease, haMembership, and haBrokerId if it has an id."""
    table = {"haLease": "true" if membership.has_lease() else "false"}
    if membership.own_id is not None:
        table["haBrokerId"] = str(membership.own_id)
    if membership.reason_without_role:
        table["haMembership"] = f"{membership.stage.value}: {membership.reason_without_role}"
    else:
        table["haMembership"] = membership.stage.value
    return table


def _rates(broker: BrokerContext, *counters: str) -> str:
    """Return the rates per second of the sum of these counters over 10, 60 and 600 s, separated by
    blanks; tools read the first one."""
    rate = broker.store.statistics.rate
    return " ".join(
        str(sum(rate(counter, seconds) for counter in counters)) for seconds in _RATE_SECONDS
    )


def _span_text(span_ms: int) -> str:
    """Format a duration as RocketMQ does: `[ 1 days, 2 hours, 3 minutes, 4 seconds ]`."""
    seconds = max(span_ms, 0) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


def size_text(size: int) -> str:
    """Format bytes as `2.1 KiB`, in units of 1,024; below 1,024 as `17 B` (RocketMQ:
    toHumanReadable)."""
    if size < 1024:
        return f"{size} B"
    scaled, unit = float(size), 0
    while scaled >= 1024 and unit < len(_SIZE_UNITS) - 1:
        scaled /= 1024
        unit += 1
    return f"{scaled:.1f} {_SIZE_UNITS[unit]}"
