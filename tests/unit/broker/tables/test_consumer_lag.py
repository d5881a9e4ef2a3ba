"""Consumer lag: which messages count, how many queues a step reads, and that no cold file is
read."""

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from turbopump.broker.introspection.metrics import CounterSnapshot, render
from turbopump.broker.introspection.runtime_info import runtime_table
from turbopump.broker.tables.consumer_lag import INLINE, STEP, waited_ms
from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.queues.lookup import Lookup

Metrics = dict[tuple[str, str], dict[str, float]]


@pytest.fixture
def lagging(admin: Any) -> Any:
    """Topic T of two queues with 5 and 1 messages, a second apart; group g is at the second one."""
    admin.create_topic("T", 2)
    admin.ask(200, {"groupName": "g"})
    for number in range(5):
        admin.send("T", b"%d" % number)
        admin.world.now_ms += 1_000
    admin.broker.offsets.commit("g", "T", 0, 1, admin.now_ms)
    admin.broker.offsets.commit_pull("g", "T", 0, 3)
    return admin


@pytest.fixture
def nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail at any read of the log or of a queue's file."""

    def read(*_: object) -> None:
        raise AssertionError("a cold page may have been read")

    for owner, name in (
        (Lookup, "units"),
        (Lookup, "read"),
        (Lookup, "_time_of"),
        (CommitLog, "read_record"),
        (CommitLog, "view_bytes"),
    ):
        monkeypatch.setattr(owner, name, read)


@pytest.fixture
def scrape(admin: Any) -> Callable[[], Metrics]:
    """(group, topic) -> metric -> value."""

    def call() -> Metrics:
        body, _ = render(CounterSnapshot.read_counters(admin.broker, admin.now_ms), "")
        found: Metrics = {}
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                labels = sample.labels
                if "consumer_group" in labels and "topic" in labels:
                    assert labels["is_retry"] == str(labels["topic"][0] == "%").lower()
                    pair = labels["consumer_group"], labels["topic"]
                    found.setdefault(pair, {})[sample.name] = sample.value
        return found

    return call


def test_a_group_that_is_away(lagging: Any, scrape: Callable[[], Metrics]) -> None:
    """The lag grows although no member pulls; messages pulled but not consumed will be pulled
    again."""
    assert scrape() == {
        ("g", "T"): {
            "rocketmq_consumer_lag_messages": 4,
            "rocketmq_consumer_lag_latency_milliseconds": 4_000,
            "rocketmq_consumer_inflight_messages": 0,
            "rocketmq_consumer_ready_messages": 4,
            "rocketmq_consumer_queueing_latency_milliseconds": 4_000,
            "turbopump_consumer_lag_latency_known": 1,
            "turbopump_consumer_members": 0,
        }
    }
    lagging.send("T", b"more")
    lagging.world.now_ms += 60_000
    found = scrape()["g", "T"]
    assert found["rocketmq_consumer_lag_messages"] == 5
    assert found["rocketmq_consumer_lag_latency_milliseconds"] == 64_000


def test_a_group_with_members(lagging: Any, scrape: Callable[[], Metrics]) -> None:
    lagging.heartbeat(lagging.connect(), "c1", lagging.consumer("g", "T"))
    found = scrape()["g", "T"]
    assert found["rocketmq_consumer_lag_messages"] == 4
    assert found["rocketmq_consumer_inflight_messages"] == 2
    assert found["rocketmq_consumer_ready_messages"] == 2
    assert found["rocketmq_consumer_queueing_latency_milliseconds"] == 2_000
    assert found["turbopump_consumer_members"] == 1


def test_a_queue_of_which_nothing_was_consumed(lagging: Any, scrape: Callable[[], Metrics]) -> None:
    """All messages of the queue count as lag, as in consumerProgress."""
    lagging.ask(200, {"groupName": "new"})
    lagging.broker.offsets.commit("new", "T", 1, 0, lagging.now_ms)
    assert scrape()["new", "T"]["rocketmq_consumer_lag_messages"] == 5
    queues = lagging.json(208, consumerGroup="new")["offsetTable"].values()
    assert sum(queue["brokerOffset"] - queue["consumerOffset"] for queue in queues) == 5


def test_a_group_that_has_all(lagging: Any, scrape: Callable[[], Metrics]) -> None:
    lagging.broker.offsets.commit("g", "T", 0, 5, lagging.now_ms)
    found = scrape()["g", "T"]
    assert found.pop("turbopump_consumer_lag_latency_known") == 1
    assert not any(found.values())


def test_queues_that_do_not_count(lagging: Any, scrape: Callable[[], Metrics]) -> None:
    """Not counted: deleted topics and groups, queues that the topic lacks, subscriptions that
    ended. Retries count, with their own label."""
    offsets, now_ms = lagging.broker.offsets, lagging.now_ms
    offsets.commit("g", "Gone", 0, 0, now_ms)
    offsets.commit("nobody", "T", 0, 0, now_ms)
    offsets.commit("g", "T", 7, 0, now_ms)
    lagging.create_topic("%RETRY%g", 1)
    lagging.send("%RETRY%g", b"again")
    offsets.commit("g", "%RETRY%g", 0, 0, now_ms)
    assert scrape().keys() == {("g", "T"), ("g", "%RETRY%g")}
    assert scrape()["g", "%RETRY%g"]["rocketmq_consumer_lag_messages"] == 1
    lagging.create_topic("Other", 1)
    lagging.heartbeat(lagging.connect(), "c1", lagging.consumer("g", "Other"))
    assert scrape().keys() == {("g", "%RETRY%g")}


@pytest.mark.usefixtures("nothing_is_read")
def test_a_scrape_reads_nothing(lagging: Any, scrape: Callable[[], Metrics]) -> None:
    lagging.broker.store._first = lagging.broker.store.min_log_offset, lagging.now_ms
    assert scrape()["g", "T"]["rocketmq_consumer_lag_latency_milliseconds"] == 4_000


def test_the_logs_first_record_is_read_once(
    lagging: Any, scrape: Callable[[], Metrics], request: pytest.FixtureRequest
) -> None:
    scrape()
    request.getfixturevalue("nothing_is_read")
    scrape()


def test_a_backlog_of_before_the_start(lagging: Any, scrape: Callable[[], Metrics]) -> None:
    """The lag is reported as the broker's uptime, a lower bound, and marked as not exact."""
    table = lagging.broker.store._queues.table
    for slot in range(table.count):
        end = table.max_offset(slot)
        table.set_progress(slot, 0, 0)
        table.set_progress(slot, end, 0)
    lagging.world.now_ms += 10_000
    found = scrape()["g", "T"]
    assert found["turbopump_consumer_lag_latency_known"] == 0
    started_ms = lagging.broker.store.statistics.started_ms
    assert found["rocketmq_consumer_lag_latency_milliseconds"] == lagging.now_ms - started_ms
    runtime = runtime_table(lagging.broker, lagging.now_ms)["consumerLag_T@g"]
    assert runtime == f"4 messages, >={lagging.now_ms - started_ms} ms, 0 members"
    progress = lagging.json(208, consumerGroup="g")["offsetTable"]
    assert [queue["delayTimeKnown"] for queue in progress.values()] == [False, True]


def test_the_worst_are_told_to_top(lagging: Any) -> None:
    for number in range(30):
        group = f"h{number:02}"
        lagging.ask(200, {"groupName": group})
        lagging.broker.offsets.commit(group, "T", 0, min(number // 6, 5), lagging.now_ms)
    runtime = [
        key for key in runtime_table(lagging.broker, lagging.now_ms) if "consumerLag_" in key
    ]
    assert len(runtime) == 20
    assert "consumerLag_T@h00" in runtime and "consumerLag_T@h29" not in runtime
    lagging.broker.offsets.commit("g", "T", 0, 5, lagging.now_ms)
    assert "consumerLag_T@g" not in runtime_table(lagging.broker, lagging.now_ms)


def test_many_groups_are_walked_in_steps(lagging: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of the loop visits at most STEP queues plus the queues of a single pair."""
    groups = INLINE + STEP
    for number in range(groups):
        name = f"many{number}"
        lagging.broker.groups.find_or_create(name, lagging.now_ms)
        lagging.broker.offsets.commit(name, "T", 0, 2, lagging.now_ms)
    lagging.broker.groups.find_or_create("wide", lagging.now_ms)
    lagging.create_topic("Wide", 3 * STEP)
    lagging.broker.offsets.commit("wide", "Wide", 0, 0, lagging.now_ms)
    lags, looks, count = lagging.broker.lags, [], 0
    end = lagging.broker.store.max_queue_offset

    def counted(topic: str, queue_id: int) -> int:
        nonlocal count
        count += 1
        return int(end(topic, queue_id))

    monkeypatch.setattr(type(lagging.broker.store), "max_queue_offset", staticmethod(counted))
    assert lags.current_lags() == [], (
        "a walk over this number of queues is too much work for a request"
    )
    assert count == 0
    while lags._walk is not None:
        lags.tick()
        looks.append(count)
        count = 0
    assert len(looks) > (groups + 3 * STEP) // STEP
    assert max(looks) <= 2 * STEP, "a queue with a lag is checked twice"
    assert len(lags.current_lags()) == groups + 2
    assert [(lag.group, lag.messages) for lag in lags.largest_lags(1)] == [("g", 4)]


def test_for_how_long() -> None:
    assert waited_ms((0, True), 5) == 0
    assert waited_ms((3, True), 5) == 2
    assert waited_ms((9, True), 5) == 0, "a clock that went back"
    assert waited_ms((-1, False), 5) == -1
