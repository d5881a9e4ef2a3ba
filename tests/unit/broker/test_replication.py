"""The status of replication: rates over a period, and the replicas that count as in sync."""

from turbopump.broker.replication import ByteRate, LeaderStatus, ReplicaStatus, ReplicationLag
from turbopump.engine.types import LogOffset


def replica(number: int, in_sync: bool) -> ReplicaStatus:
    return ReplicaStatus(f"10.0.0.{number}:1", None, LogOffset(0), LogOffset(0), in_sync)


def test_a_rate_is_that_of_the_last_full_period() -> None:
    rate = ByteRate(1_000)
    rate.count_bytes(300, 1_100)
    assert rate.per_second(1_900) == 0
    rate.count_bytes(200, 1_999)
    assert rate.per_second(2_000) == 500
    rate.count_bytes(50, 2_500)
    assert rate.per_second(2_600) == 500
    assert rate.per_second(3_000) == 50


def test_a_rate_of_the_distant_past_is_zero() -> None:
    rate = ByteRate(0)
    rate.count_bytes(300, 100)
    assert rate.per_second(10_000) == 0


def test_a_replica_is_behind_since_it_had_all_there_was() -> None:
    behind = ReplicationLag(1_000)
    end = LogOffset(500)
    assert behind.lag_ms(end, 1_400) == 400, "it has sent nothing yet"
    behind.on_ack(end, end, 2_000)
    assert behind.lag_ms(end, 9_000) == 0
    behind.on_tick(end, 9_000)
    assert behind.lag_ms(LogOffset(600), 9_100) == 100, "not since its last word"


def test_a_replica_that_follows_a_log_that_grows_is_behind_by_one_round() -> None:
    behind = ReplicationLag(0)
    for at_ms in range(100, 10_000, 100):
        behind.on_ack(LogOffset(at_ms - 100), LogOffset(at_ms), at_ms)
    assert behind.lag_ms(LogOffset(9_900), 9_900) == 100
    behind.on_ack(LogOffset(9_800), LogOffset(20_000), 20_000)
    assert behind.lag_ms(LogOffset(20_000), 20_000) == 20_000 - 9_800


def test_in_sync_replicas_do_not_count_the_master() -> None:
    replicas = (replica(1, True), replica(2, False), replica(3, True))
    assert LeaderStatus(replicas).in_sync_replicas == 2
    assert LeaderStatus(replicas, frozenset({1, 4}), 3).in_sync_replicas == 1
    assert LeaderStatus().in_sync_replicas == 0
