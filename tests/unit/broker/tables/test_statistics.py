"""Meters and their windows, and the figures since midnight."""

import time
from collections.abc import Iterator

import pytest

from turbopump.broker.tables import statistics
from turbopump.broker.tables.statistics import (
    ALL,
    BROKER_GET_NUMS,
    BROKER_PUT_NUMS,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    IDLE_LIMIT_MS,
    SAMPLE_INTERVAL_MS,
    TOPIC_PUT_NUMS,
    BrokerStatistics,
)

NOON = 1_700_000_000_000 // 86_400_000 * 86_400_000 + 43_200_000


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_nothing_is_known_without_a_measurement() -> None:
    table = BrokerStatistics(lambda table: None)
    assert table.find_windows(TOPIC_PUT_NUMS, "T") is None
    assert table.put_tps("T") == 0.0
    assert table.delivered_tps("g", "T") == 0.0


def test_the_first_sample_counts_from_zero_one_step_ago() -> None:
    table = BrokerStatistics(lambda table: None)
    table.set_put_totals({"T": 5})
    table.sample(NOON)
    found = table.find_windows(TOPIC_PUT_NUMS, "T")
    assert found is not None
    rates = [(5, 5 / seconds, 1.0) for seconds in (10, 600, 3600)]
    assert [(one.sum, one.tps, one.average) for one in found] == rates


def test_a_minute_is_the_last_seven_samples() -> None:
    table = BrokerStatistics(lambda table: None)
    for number in range(10):
        table.set_put_totals({"T": 10 * number})
        table.sample(NOON + number * SAMPLE_INTERVAL_MS)
    found = table.find_windows(TOPIC_PUT_NUMS, "T")
    assert found is not None
    minute = found[0]
    assert (minute.sum, minute.tps, minute.average) == (60, 1.0, 1.0)
    assert table.put_tps("T") == 1.0
    assert minute.to_json() == {"avgpt": 1.0, "sum": 60, "tps": 1.0}


def test_hours_and_days_sample_at_their_own_pace() -> None:
    table = BrokerStatistics(lambda table: None)
    for number in range(361):
        table.set_put_totals({"T": number})
        table.sample(NOON + number * SAMPLE_INTERVAL_MS)
    found = table.find_windows(TOPIC_PUT_NUMS, "T")
    assert found is not None
    _minute, hour, day = found
    assert (hour.sum, day.sum) == (360, 360)
    assert (hour.tps, day.tps) == (0.1, 0.05), "the day began an hour before its first sample"


def test_a_sample_in_the_middle_of_a_burst_does_not_hide_its_rest_for_an_hour() -> None:
    """The first sample found 30 of 40 messages: ten seconds later hour and day have all of them."""
    table = BrokerStatistics(lambda table: None)
    table.set_put_totals({"T": 30})
    table.sample(NOON)
    table.set_put_totals({"T": 40})
    table.sample(NOON + SAMPLE_INTERVAL_MS)
    found = table.find_windows(TOPIC_PUT_NUMS, "T")
    assert found is not None
    assert [one.sum for one in found] == [40, 40, 40]


def test_a_groups_received_messages_have_a_number_and_a_size() -> None:
    table = BrokerStatistics(lambda table: None)
    table.count_delivered("g", "T", 4, 1_000)
    table.sample(NOON)
    table.count_delivered("g", "T", 8, 2_000)
    table.sample(NOON + 10_000)
    nums, sizes = (
        table.find_windows(GROUP_GET_NUMS, "T@g"),
        table.find_windows(GROUP_GET_SIZE, "T@g"),
    )
    assert nums is not None
    assert sizes is not None
    assert (nums[0].sum, nums[0].average) == (12, 6.0)
    assert (sizes[0].sum, sizes[0].tps) == (3_000, 150.0)
    assert table.delivered_tps("g", "T") == 0.6


def test_the_broker_s_own_meters_count_everything() -> None:
    table = BrokerStatistics(lambda table: None)
    table.sample(NOON)
    table.set_put_totals({"T": 3, "U": 4})
    table.set_put_totals({"T": 5, "U": 4})
    table.count_delivered("g", "T", 2, 20)
    table.sample(NOON + 10_000)
    put, got = table.find_windows(BROKER_PUT_NUMS, ALL), table.find_windows(BROKER_GET_NUMS, ALL)
    assert put is not None
    assert got is not None
    assert (put[0].sum, got[0].sum) == (9, 2)


def test_a_topic_made_again_counts_from_zero() -> None:
    table = BrokerStatistics(lambda table: None)
    table.set_put_totals({"T": 5})
    table.set_put_totals({"T": 2})
    assert table.message_totals()["msgPutTotalTodayNow"] == 7
    table.forget_topic("T")
    table.set_put_totals({"T": 3})
    assert table.message_totals()["msgPutTotalTodayNow"] == 10


def test_deleted_topics_and_groups_lose_their_meters() -> None:
    table = BrokerStatistics(lambda table: None)
    table.set_put_totals({"T": 1, "U": 1})
    table.count_delivered("g", "T", 1, 1)
    table.count_delivered("g", "U", 1, 1)
    table.count_delivered("h", "U", 1, 1)
    table.forget_topic("T")
    assert table.find_windows(TOPIC_PUT_NUMS, "T") is None
    assert table.find_windows(GROUP_GET_NUMS, "T@g") is None
    assert table.find_windows(GROUP_GET_NUMS, "U@g") is not None
    table.forget_group("g")
    assert table.find_windows(GROUP_GET_NUMS, "U@g") is None
    assert table.find_windows(GROUP_GET_NUMS, "U@h") is not None
    assert table.find_windows(TOPIC_PUT_NUMS, "U") is not None


def test_idle_groups_are_forgotten_topics_are_not() -> None:
    table = BrokerStatistics(lambda table: None)
    table.set_put_totals({"T": 1})
    table.count_delivered("g", "T", 1, 1)
    table.sample(NOON)
    table.sample(NOON + IDLE_LIMIT_MS)
    assert table.find_windows(GROUP_GET_NUMS, "T@g") is not None
    table.sample(NOON + IDLE_LIMIT_MS + 1)
    assert table.find_windows(GROUP_GET_NUMS, "T@g") is None
    assert table.find_windows(TOPIC_PUT_NUMS, "T") is not None


def test_meters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_METERS", 3)
    table = BrokerStatistics(lambda table: None)
    table.set_put_totals({"T": 1, "U": 1})
    table.count_delivered("g", "T", 1, 1)
    assert table.find_windows(TOPIC_PUT_NUMS, "T") is not None
    assert table.find_windows(TOPIC_PUT_NUMS, "U") is None
    assert table.find_windows(GROUP_GET_NUMS, "T@g") is None
    assert table.message_totals()["msgGetTotalTodayNow"] == 1


def test_mornings_move_at_midnight(utc: None) -> None:
    table = BrokerStatistics(lambda table: None)
    table.set_put_totals({"T": 5})
    table.sample(NOON)
    assert set(table.message_totals().values()) == {0, 5}
    table.count_delivered("g", "T", 2, 2)
    table.sample(NOON + 43_200_000)
    totals = table.message_totals()
    assert (totals["msgPutTotalTodayMorning"], totals["msgGetTotalTodayMorning"]) == (5, 2)
    assert totals["msgPutTotalYesterdayMorning"] == 0
    table.set_put_totals({"T": 6})
    table.sample(NOON + 2 * 86_400_000)
    totals = table.message_totals()
    assert (totals["msgPutTotalYesterdayMorning"], totals["msgPutTotalTodayMorning"]) == (5, 6)
