"""Metrics for Prometheus: RocketMQ's names, the labels, and replication."""

import errno
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from turbopump.broker.introspection.metrics import CounterSnapshot, render
from turbopump.broker.replication import (
    FollowerStatus,
    HaCounters,
    LeaderStatus,
    ReplicaStatus,
    ReplicationStatus,
)
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.types import LogOffset
from turbopump.net.ha.replica import State
from turbopump.net.wire.codes import RequestCode

COMMON = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}

Samples = dict[str, dict[tuple[str, ...], float]]


class Steered:
    """Replication whose status the test sets."""

    def __init__(self, status: ReplicationStatus) -> None:
        self.now = status

    def status(self) -> ReplicationStatus:
        return self.now

    def set_master_flushed(self, log_offset: LogOffset) -> None:
        raise AssertionError("no scrape asked for it")


@pytest.fixture
def scrape(admin: Any) -> Callable[[], Samples]:
    """name -> values of the labels that not every sample has, by label name -> value."""

    def call() -> Samples:
        body, content_type = render(CounterSnapshot.read_counters(admin.broker, admin.now_ms), "")
        assert content_type.startswith("text/plain")
        found: Samples = {}
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                if sample.name.startswith("process_"):
                    continue
                labels = dict(sample.labels)
                assert {name: labels.pop(name) for name in COMMON} == COMMON
                values = found.setdefault(sample.name, {})
                assert tuple(labels.values()) not in values, sample
                values[tuple(labels.values())] = sample.value
        return found

    return call


def test_traffic_by_topic_and_group(admin: Any, scrape: Callable[[], Samples]) -> None:
    for number in range(3):
        admin.send("T", b"%d" % number)
    admin.broker.statistics.count_delivered("G", "T", 2, 400)
    admin.broker.statistics.count_delivered("G", "%RETRY%G", 1, 100)
    admin.broker.store.tick(admin.now_ms)
    admin.world.now_ms += 5_000
    found = scrape()
    assert found["rocketmq_messages_in_total"][("false", "T")] == 3
    store = admin.broker.store
    assert found["rocketmq_throughput_in_total"] == {(): store.max_log_offset}
    assert found["rocketmq_messages_out_total"] == {
        ("G", "false", "false", "T"): 2,
        ("G", "true", "false", "%RETRY%G"): 1,
    }
    assert found["rocketmq_throughput_out_total"][("G", "false", "false", "T")] == 400
    assert found["rocketmq_storage_size"] == {(): store.max_log_offset}
    assert found["rocketmq_storage_message_reserve_time"] == {(): 5_000}
    assert found["rocketmq_storage_dispatch_behind_bytes"] == {(): 0}
    assert found["rocketmq_broker_permission"] == {(): 6}
    assert found["rocketmq_topic_number"] == {(): len(admin.broker.topics.all_topics())}


def test_system_topics_are_marked(admin: Any, scrape: Callable[[], Samples]) -> None:
    admin.send("T", DELAY="2")
    assert scrape()["rocketmq_messages_in_total"][("true", "SCHEDULE_TOPIC_XXXX")] == 1


def test_a_store_that_takes_no_messages(admin: Any, scrape: Callable[[], Samples]) -> None:
    assert scrape()["turbopump_store_unfit"] == {(): 0}
    assert "storeUnfit" not in admin.json(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    admin.broker.store._commit.fail_for_good(OSError(errno.EIO, "input/output error"))
    assert scrape()["turbopump_store_unfit"] == {(): 1}
    shown = admin.json(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert "input/output error" in shown["storeUnfit"]


def test_a_store_whose_disk_is_slow(
    admin: Any, scrape: Callable[[], Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scrape()["turbopump_store_slow"] == {(): 0}
    assert "storeSlow" not in admin.json(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    monkeypatch.setattr(GroupCommit, "is_sync_slow", True)
    found = scrape()
    assert (found["turbopump_store_slow"], found["turbopump_store_unfit"]) == ({(): 1}, {(): 0})
    assert admin.json(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]["storeSlow"] == "true"


def test_connections(admin: Any, scrape: Callable[[], Samples]) -> None:
    admin.heartbeat(admin.connect(), "c1", admin.consumer("G", "T"), producers=("P", "Q"))
    admin.heartbeat(admin.connect(language="GO"), "c2", admin.consumer("G", "T"))
    found = scrape()
    assert found["rocketmq_producer_connections"] == {("JAVA",): 1}
    assert found["rocketmq_consumer_connections"] == {("G", "JAVA"): 1, ("G", "GO"): 1}


def test_a_master_of_a_group(admin: Any, scrape: Callable[[], Samples]) -> None:
    def replica(number: int | None, acked: int, in_sync: bool, behind_ms: int) -> ReplicaStatus:
        address = f"10.0.0.9:{behind_ms}"
        return ReplicaStatus(
            address, number, LogOffset(acked), LogOffset(1_000), in_sync, False, behind_ms, 36
        )

    admin.broker.ha = Steered(
        ReplicationStatus(
            LogOffset(1_000),
            LogOffset(900),
            LeaderStatus(
                (replica(2, 10, False, 9), replica(2, 900, True, 30), replica(None, -1, False, 7)),
                frozenset({1, 2}),
                5,
            ),
            None,
            Epochs.from_pairs([(1, 0), (4, 700)]),
            HaCounters(3, 0, 0),
        )
    )
    found = scrape()
    assert found["turbopump_ha_is_master"] == {(): 1}
    assert found["turbopump_ha_epoch"] == {(): 4}
    assert found["turbopump_ha_confirm_gap_bytes"] == {(): 100}
    assert found["turbopump_ha_sync_state_set_size"] == {(): 2}
    assert found["turbopump_ha_sync_state_set_epoch"] == {(): 5}
    assert found["turbopump_ha_sync_state_set_changes_total"] == {(): 3}
    assert found["turbopump_ha_replica_lag_bytes"] == {("2",): 100, ("10.0.0.9:7",): 1_000}
    assert found["turbopump_ha_replica_lag_milliseconds"] == {("2",): 30, ("10.0.0.9:7",): 7}
    assert found["turbopump_ha_replica_in_sync"] == {("2",): 1, ("10.0.0.9:7",): 0}
    shown = admin.json(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert shown["haReplicaLag_2"] == "100 B, 30 ms"
    assert (shown["haSyncStateSet"], shown["haSyncStateSetEpoch"]) == ("1,2", "5")
    assert (shown["haEpoch"], shown["haConfirmGap"]) == ("4", "100")


def test_a_replica(admin: Any, scrape: Callable[[], Samples]) -> None:
    follower = FollowerStatus("10.0.0.1:10912", State.SUSPEND, "the logs part")
    counters = HaCounters(0, 12_345, 6)
    admin.broker.ha = Steered(
        ReplicationStatus(LogOffset(500), LogOffset(400), None, follower, None, counters)
    )
    found = scrape()
    assert found["turbopump_ha_is_master"] == found["turbopump_ha_following"] == {(): 0}
    assert found["turbopump_ha_epoch"] == {(): -1}
    assert found["turbopump_ha_truncated_bytes_total"] == {(): 12_345}
    assert found["turbopump_ha_reconnects_total"] == {(): 6}
    assert "turbopump_ha_replica_lag_bytes" not in found
    shown = admin.json(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert (shown["haState"], shown["haReason"]) == ("SUSPEND", "the logs part")
    assert shown["haTruncatedBytes"] == "12345"


def test_without_replication_nothing_is_said_of_it_in_the_runtime_table(admin: Any) -> None:
    shown = admin.json(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert not [key for key in shown if key.startswith("ha")]


def test_other_forms(admin: Any) -> None:
    """Newer Prometheus servers request OpenMetrics text."""
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    body, content_type = render(CounterSnapshot.read_counters(admin.broker, admin.now_ms), accept)
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
