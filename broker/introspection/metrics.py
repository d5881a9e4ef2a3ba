"""Metrics of a broker for Prometheus: RocketMQ's under its names, and replication's.

Owns the names, labels and help texts (RocketMQ: BrokerMetricsConstant, DefaultStoreMetricsConstant;
`turbopump_ha_*` are ours). Nothing is changed here, and the loop is not held:
`CounterSnapshot.read_counters` copies counters on it, `render` makes the text on another thread.

prometheus_client is imported by the first scrape: most brokers never see one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.introspection.replication import ha_status
from turbopump.broker.replication import ReplicaStatus, ReplicationStatus
from turbopump.broker.scheduled.timer_status import BACKLOG_BOUNDS_S, TimerStatus
from turbopump.broker.tables.consumer_lag import Lag, waited_ms
from turbopump.broker.tables.half_counts import LATENCY_BOUNDS_S, TopicEnds
from turbopump.broker.tables.statistics import GROUP_GET_NUMS, GROUP_GET_SIZE
from turbopump.engine.types import StoreHealth
from turbopump.net.ha.replica import State
from turbopump.net.wire.names import RETRY_PREFIX
from turbopump.net.wire.pop_handles import original_topic

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

MAX_LAGS: Final = 10_000
"""Maximum pairs of group and topic in a scrape, the pairs with the most messages: some 70,000
lines."""

Samples = Sequence[tuple[tuple[str, ...], float]]
"""Samples of a metric: pairs (values of its labels, value)."""


@dataclass(frozen=True, slots=True)
class CounterSnapshot:
    """A broker's counters at one moment; immutable, so that another thread may read it. Counts are
    since the start of the broker, except present numbers."""

    common: Mapping[str, str]
    """The labels, with their values, that every sample has."""
    gauges: Mapping[str, float]
    """Present values by metric name, of metrics without other labels."""
    stored_counts: Mapping[str, int]
    """Messages stored, by topic."""
    stored_size: int
    """Bytes of messages stored."""
    delivered_counts: Mapping[str, int]
    """Messages delivered, by `topic@group`."""
    delivered_sizes: Mapping[str, int]
    """Bytes of messages delivered, by `topic@group`."""
    system_topics: frozenset[str]
    """Names of the topics that have the label is_system."""
    producers: Mapping[str, int]
    """Present connections of producers, by client language."""
    consumers: Mapping[tuple[str, str], int]
    """Present connections of consumers, by (group, client language)."""
    ha: ReplicationStatus
    """Status of replication at that moment."""
    lags: Sequence[Lag]
    """Present lags, one for each topic and group; at most MAX_LAGS, the largest."""
    system_groups: frozenset[str]
    """Names of the groups in `lags` that have the label is_system."""
    open_halves: Mapping[str, int]
    """Present number of open half messages, by topic."""
    transaction_ends: Mapping[str, TopicEnds]
    """Numbers of ended half messages by outcome, by topic."""
    timers: TimerStatus
    """Status of the timers at that moment."""
    waiting_timers: Mapping[str, int]
    """Present number of waiting timers, by topic."""
    timer_totals: Mapping[str, Mapping[str, int]]
    """Number of timers that went into the wheel ("enqueue") and came out of it ("dequeue"), each by
    topic."""
    io_cpu_ns: Sequence[int]
    """CPU time of each I/O thread since its start in ns; empty without I/O threads."""
    pops_refused: int
    """Number of pops that returned nothing because the store did not take their check points."""
    waiting_ms: Mapping[str, int]
    """Epoch ms when the oldest waiting message of each kind was stored."""
    lost_counts: Mapping[str, int]
    """Number of messages of each kind that retention removed before their delivery time."""
    now_ms: int
    """Epoch ms of the snapshot."""

    @classmethod
    def read_counters(cls, broker: BrokerContext, now_ms: int) -> "CounterSnapshot":
        """Copy the broker's present counters; `now_ms` is epoch ms. Runs on the loop; it also adds
        the store's counts to the broker's statistics."""
        config, store, statistics = broker.config, broker.store, broker.statistics
        statistics.set_put_totals(
            store.statistics.put_count_by_topic, store.statistics.put_size_by_topic
        )
        lags = broker.lags.current_lags()
        if len(lags) > MAX_LAGS:
            lags = nlargest(MAX_LAGS, lags, key=lambda lag: lag.messages)
        connections = {
            peer: producer.language
            for group in broker.producers.all_producers().values()
            for peer, producer in group.items()
        }
        return cls(
            common={
                "cluster": config.broker_cluster_name,
                "node_type": "broker",
                "node_id": config.broker_name,
            },
            gauges={
                "rocketmq_broker_permission": config.broker_permission,
                "rocketmq_topic_number": len(broker.topics),
                "rocketmq_consumer_group_number": len(broker.groups),
                "rocketmq_storage_size": store.max_log_offset - store.min_log_offset,
                "rocketmq_storage_flush_behind_bytes": (
                    store.max_log_offset - store.flushed_log_offset
                ),
                "rocketmq_storage_dispatch_behind_bytes": (
                    store.max_log_offset - store.dispatched_log_offset
                ),
                "rocketmq_storage_message_reserve_time": (
                    max(now_ms - store.first_stored_ms, 0) if store.first_stored_ms >= 0 else 0
                ),
                "turbopump_waiting_kept_bytes": store.kept_bytes,
                "turbopump_store_unfit": store.health not in (StoreHealth.FIT, StoreHealth.SLOW),
                "turbopump_store_slow": bool(store.is_sync_slow),
            },
            stored_counts=dict(store.statistics.put_count_by_topic),
            stored_size=store.statistics.total.put_size,
            delivered_counts=statistics.sums_by_key(GROUP_GET_NUMS),
            delivered_sizes=statistics.sums_by_key(GROUP_GET_SIZE),
            system_topics=frozenset(broker.topics.system_topics()),
            producers=Counter(connections.values()),
            consumers=broker.consumers.count_connections(),
            ha=ha_status(broker),
            lags=lags,
            system_groups=frozenset(
                lag.group for lag in lags if broker.groups.is_system(lag.group)
            ),
            open_halves=broker.half_counts.open_counts(),
            transaction_ends=broker.half_counts.end_counts(),
            timers=broker.timers.status(now_ms),
            waiting_timers=broker.timers.metrics.waiting_by_topic(),
            timer_totals={
                "enqueue": dict(broker.timers.enqueued.topics),
                "dequeue": dict(broker.timers.dequeued.topics),
            },
            io_cpu_ns=broker.io_threads.cpu_ns if broker.io_threads is not None else (),
            pops_refused=broker.pop.refused_count,
            waiting_ms=broker.waiting.oldest_ms(),
            lost_counts=broker.waiting.lost_counts(),
            now_ms=now_ms,
        )


_HELP: Final = {
    "rocketmq_broker_permission": "brokerPermission: 4 allows reading, 2 allows writing",
    "rocketmq_topic_number": "Topics",
    "turbopump_waiting_kept_bytes": "Log files kept beyond fileReservedTime for waiting messages",
    "rocketmq_consumer_group_number": "Consumer groups",
    "rocketmq_storage_size": "Bytes of the commit log, from its first to its last byte",
    "rocketmq_storage_flush_behind_bytes": "Bytes of the commit log that are not durable yet",
    "rocketmq_storage_dispatch_behind_bytes": "Bytes of the commit log that no queue shows yet",
    "rocketmq_storage_message_reserve_time": "Age of the oldest message in ms",
    "turbopump_store_unfit": "1 while the store takes no messages: failed sync, damage, full disk",
    "turbopump_store_slow": "1 while syncs of the log are slower than sends may wait",
}


Join = Callable[[list[float]], float]
"""Function that joins the figures of topics with equal labels to one figure."""
_JOINED: Final[dict[str, Join]] = {
    "rocketmq_consumer_lag_latency_milliseconds": max,
    "rocketmq_consumer_queueing_latency_milliseconds": max,
    "turbopump_consumer_lag_latency_known": min,
    "turbopump_consumer_members": max,
}
"""Functions that join the figures of topics with equal labels; other figures are added."""


def render(snapshot: CounterSnapshot, accept: str) -> tuple[bytes, str]:
    """Return (text of a scrape in bytes, its content type) in the format that the Accept header
    `accept` prefers, with the metrics of this process, too. Runs on any thread; imports
    prometheus_client."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(snapshot))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Collector:
    """The metrics of a snapshot, in the interface of prometheus_client's collectors."""

    def __init__(self, snapshot: CounterSnapshot) -> None:
        self._snapshot = snapshot
        self._names = list(snapshot.common)
        self._values = list(snapshot.common.values())

    def describe(self) -> list["Metric"]:
        """Return no descriptions: names are checked by tests, not at each scrape."""
        return []

    def collect(self) -> Iterator["Metric"]:
        """Yield every metric with its samples."""
        for name, value in self._snapshot.gauges.items():
            yield self._gauge(name, _HELP[name], [((), value)])
        yield from self._traffic()
        yield from self._io_threads()
        yield from self._clients()
        yield from self._lags()
        yield from self._timers()
        yield from self._waiting_messages()
        yield from self._transactions()
        yield from self._replication()
        if self._snapshot.ha.leader is not None:
            yield from self._replicas()

    def _traffic(self) -> Iterator["Metric"]:
        """Yield the metrics of stored and delivered messages, and of refused pops."""
        shot = self._snapshot
        yield self._counter(
            "rocketmq_messages_in_total",
            "Messages stored, by topic",
            [((topic, self._is_system(topic)), n) for topic, n in shot.stored_counts.items()],
            ("topic", "is_system"),
        )
        size = [((), shot.stored_size)]
        yield self._counter("rocketmq_throughput_in_total", "Bytes of messages stored", size)
        refused = [((), shot.pops_refused)]
        yield self._counter(
            "turbopump_pops_refused_total",
            "Pops without messages because the store did not accept their check points",
            refused,
        )
        labels = ("topic", "consumer_group", "is_system", "is_retry")
        for name, text, counts in (
            ("rocketmq_messages_out_total", "Messages given to consumers", shot.delivered_counts),
            ("rocketmq_throughput_out_total", "Bytes given to consumers", shot.delivered_sizes),
        ):
            samples = []
            for key, count in counts.items():
                topic, _, group = key.partition("@")
                retry = _java_boolean(topic.startswith(RETRY_PREFIX))
                samples.append(((topic, group, self._is_system(topic), retry), count))
            yield self._counter(name, text, samples, labels)

    def _io_threads(self) -> Iterator["Metric"]:
        """Yield the CPU time of each I/O thread."""
        times = [((str(i),), ns / 1e9) for i, ns in enumerate(self._snapshot.io_cpu_ns)]
        text = "CPU time of a thread that reads and writes clients' connections"
        yield self._counter("turbopump_io_thread_cpu_seconds_total", text, times, ("thread",))

    def _clients(self) -> Iterator["Metric"]:
        """Yield the metrics of clients' connections."""
        shot = self._snapshot
        yield self._gauge(
            "rocketmq_producer_connections",
            "Connections of producers",
            [((language,), count) for language, count in shot.producers.items()],
            ("language",),
        )
        yield self._gauge(
            "rocketmq_consumer_connections",
            "Connections of consumers, by group",
            list(shot.consumers.items()),
            ("consumer_group", "language"),
        )

    def _lags(self) -> Iterator["Metric"]:
        """Yield the metrics of consumer lag, by group and topic."""
        now_ms = self._snapshot.now_ms
        labels = ("consumer_group", "topic", "is_retry", "is_system")
        value_of: Callable[[Lag], float]
        for name, text, value_of in (
            (
                "rocketmq_consumer_lag_messages",
                "Messages a group has not acknowledged",
                lambda lag: lag.messages,
            ),
            (
                "rocketmq_consumer_lag_latency_milliseconds",
                "Age of the oldest message that is not acknowledged",
                lambda lag: waited_ms(lag.since, now_ms),
            ),
            (
                "rocketmq_consumer_inflight_messages",
                "Messages pulled and not acknowledged",
                lambda lag: lag.inflight,
            ),
            ("rocketmq_consumer_ready_messages", "Messages not pulled yet", lambda lag: lag.ready),
            (
                "rocketmq_consumer_queueing_latency_milliseconds",
                "Age of the oldest message that is not pulled",
                lambda lag: waited_ms(lag.ready_since, now_ms),
            ),
            (
                "turbopump_consumer_lag_latency_known",
                "1: the latency is exact; 0: it is a lower bound",
                lambda lag: lag.since[1],
            ),
            (
                "turbopump_consumer_members",
                "Connections of the group; 0: no member is connected",
                lambda lag: lag.members,
            ),
        ):
            yield self._gauge(name, text, self._by_labels(value_of, _JOINED.get(name, sum)), labels)

    def _by_labels(self, value_of: Callable[[Lag], float], join: Join) -> Samples:
        """Return the value of each lag by its labels; values of lags with equal labels are joined
        by `join`. A topic may have retry topics of both versions."""
        found: dict[tuple[str, ...], list[float]] = {}
        for lag in self._snapshot.lags:
            # Unknown figures are left out: an unknown latency is not a latency of 0.
            if (value := value_of(lag)) >= 0:
                found.setdefault(self._labels_of(lag), []).append(value)
        return [(labels, join(values)) for labels, values in found.items()]

    def _timers(self) -> Iterator["Metric"]:
        """Yield the metrics of timers."""
        shot, status = self._snapshot, self._snapshot.timers
        for name, text, value in (
            ("enqueue_lag", "Timers that are not in the wheel yet", status.offset_behind),
            (
                "enqueue_latency_milliseconds",
                "Age of the oldest timer that is not in the wheel yet",
                status.offset_behind_ms,
            ),
            ("dequeue_lag", "Timers that are in the wheel", status.in_wheel),
            ("dequeue_latency_milliseconds", "Lateness of delivery", status.read_behind_ms),
        ):
            yield self._gauge(f"rocketmq_timer_{name}", text, [((), value)])
        timing = [((topic,), count) for topic, count in shot.waiting_timers.items()]
        yield self._gauge(
            "rocketmq_timing_messages", "Waiting timers, by topic", timing, ("topic",)
        )
        bounds = [
            ((str(bound),), count)
            for bound, count in zip(BACKLOG_BOUNDS_S, status.backlog, strict=True)
        ]
        yield self._gauge(
            "rocketmq_timer_message_snapshot",
            "Timers that are due within timer_bound_s seconds, and after the next lower bound",
            bounds,
            ("timer_bound_s",),
        )
        for name, text in (
            ("enqueue", "Timers that went into the wheel"),
            ("dequeue", "Timers that left the wheel"),
        ):
            totals = [((topic,), count) for topic, count in shot.timer_totals[name].items()]
            yield self._counter(f"rocketmq_timer_{name}_total", text, totals, ("topic",))
        next_due = [] if status.next_due_ms is None else [((), status.next_due_ms / 1_000)]
        yield self._gauge(
            "turbopump_timer_next_due_seconds", "Unix time of the next timer", next_due
        )

    def _waiting_messages(self) -> Iterator["Metric"]:
        """Yield the metrics of messages that wait for their delivery time, and of those lost."""
        shot = self._snapshot
        ages = [
            ((kind,), max(0, shot.now_ms - stored_ms) / 1_000)
            for kind, stored_ms in shot.waiting_ms.items()
        ]
        text = "Age of the oldest message that waits for its delivery time"
        yield self._gauge("turbopump_waiting_oldest_seconds", text, ages, ("kind",))
        lost = [((kind,), count) for kind, count in shot.lost_counts.items()]
        text = "Messages that were removed with their log files before their delivery time"
        yield self._counter("turbopump_waiting_lost_total", text, lost, ("kind",))

    def _transactions(self) -> Iterator["Metric"]:
        """Yield the metrics of half messages and their ends."""
        from prometheus_client.core import HistogramMetricFamily

        shot = self._snapshot
        halves = [((topic,), count) for topic, count in shot.open_halves.items()]
        yield self._gauge("rocketmq_half_messages", "Open half messages", halves, ("topic",))
        value_of: Callable[[TopicEnds], float]
        for name, text, value_of in (
            ("commit", "Half messages that were committed", lambda ends: ends.committed),
            ("rollback", "Half messages that were rolled back", lambda ends: ends.rolled_back),
        ):
            samples = [((topic,), value_of(ends)) for topic, ends in shot.transaction_ends.items()]
            yield self._counter(f"rocketmq_{name}_messages_total", text, samples, ("topic",))
        family = HistogramMetricFamily(
            "rocketmq_finish_message_latency_milliseconds",
            "Age of half messages at their commit, in seconds as in RocketMQ",
            labels=self._labels(("topic",)),
        )
        for topic, ends in shot.transaction_ends.items():
            bounds = [*(f"{bound:.1f}" for bound in LATENCY_BOUNDS_S), "+Inf"]
            buckets = list(zip(bounds, accumulate(ends.latencies), strict=True))
            family.add_metric([*self._values, topic], buckets, ends.latency_sum_s)
        yield family

    def _labels_of(self, lag: Lag) -> tuple[str, ...]:
        """The label values of a lag: group, topic, is_retry, is_system."""
        is_retry = _java_boolean(lag.topic.startswith(RETRY_PREFIX))
        system = lag.group in self._snapshot.system_groups
        is_system = "true" if system else self._is_system(lag.topic)
        return lag.group, original_topic(lag.group, lag.topic), is_retry, is_system

    def _replication(self) -> Iterator["Metric"]:
        """Yield the metrics of replication, without the metrics of single replicas."""
        ha = self._snapshot.ha
        leader, follower, counters = ha.leader, ha.follower, ha.counters
        gauges: list[tuple[str, str, float]] = [
            ("is_master", "1: master; 0: replica", follower is None),
            (
                "epoch",
                "The epoch of the log's end, -1 without epochs",
                ha.epochs.last_epoch if ha.epochs is not None else -1,
            ),
            ("log_end_offset", "The log offset after the last byte", ha.log_end),
            ("confirm_offset", "The log offset up to which consumers may read", ha.confirm),
            ("confirm_gap_bytes", "Bytes that are not confirmed yet", ha.log_end - ha.confirm),
        ]
        if leader is not None:
            gauges += [
                (
                    "sync_state_set_size",
                    "Members of the SyncStateSet, the master included",
                    leader.in_sync_replicas + 1,
                ),
                ("sync_state_set_epoch", "The epoch of the SyncStateSet", leader.set_epoch),
            ]
        if follower is not None:
            following = follower.state is State.TRANSFER
            gauges.append(("following", "1 while the log follows the master's", following))
        for name, text, value in gauges:
            yield self._gauge(f"turbopump_ha_{name}", text, [((), value)])
        for name, text, count in (
            ("sync_state_set_changes", "Changes of the SyncStateSet", counters.set_changes),
            ("truncated_bytes", "Bytes cut off to follow a master", counters.truncated_bytes),
            ("reconnects", "Connections to a master after a lost connection", counters.reconnects),
        ):
            yield self._counter(f"turbopump_ha_{name}_total", text, [((), count)])

    def _replicas(self) -> Iterator["Metric"]:
        """Yield the metrics of each replica; only on a master."""
        ha = self._snapshot.ha
        assert ha.leader is not None
        # If a replica has two connections, the newer one counts: a name must not come twice.
        replicas = {replica.name: replica for replica in ha.leader.replicas}
        value_of: Callable[[ReplicaStatus], float]
        for name, text, value_of in (
            (
                "lag_bytes",
                "Bytes of the log that a replica lacks",
                lambda r: ha.log_end - max(r.acked, 0),
            ),
            (
                "lag_milliseconds",
                "Milliseconds since a replica last had the whole log",
                lambda r: r.behind_ms,
            ),
            ("in_sync", "1: the replica is in sync", lambda r: r.in_sync),
            (
                "bytes_per_second",
                "Bytes of the log per second sent to a replica",
                lambda r: r.bytes_per_second,
            ),
        ):
            samples = [((label,), value_of(replica)) for label, replica in replicas.items()]
            yield self._gauge(f"turbopump_ha_replica_{name}", text, samples, ("replica",))

    def _is_system(self, topic: str) -> str:
        """The label is_system of the topic: "true" or "false"."""
        return _java_boolean(topic in self._snapshot.system_topics)

    def _gauge(
        self, name: str, text: str, samples: Samples, labels: tuple[str, ...] = ()
    ) -> "Metric":
        """Make a gauge with these samples."""
        from prometheus_client.core import GaugeMetricFamily

        return self._add_samples(
            GaugeMetricFamily(name, text, labels=self._labels(labels)), samples
        )

    def _counter(
        self, name: str, text: str, samples: Samples, labels: tuple[str, ...] = ()
    ) -> "Metric":
        """Make a counter with these samples."""
        from prometheus_client.core import CounterMetricFamily

        return self._add_samples(
            CounterMetricFamily(name, text, labels=self._labels(labels)), samples
        )

    def _labels(self, labels: tuple[str, ...]) -> list[str]:
        """The names of the common labels and of `labels`."""
        return [*self._names, *labels]

    def _add_samples(
        self, family: "GaugeMetricFamily | CounterMetricFamily", samples: Samples
    ) -> "Metric":
        """Add the samples, with the values of the common labels, to a metric, and return it."""
        for values, value in samples:
            family.add_metric([*self._values, *values], value)
        return family


def _java_boolean(value: bool) -> str:
    """ "true" or "false", as in Java."""
    return "true" if value else "false"
