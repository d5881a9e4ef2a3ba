"""The sync times at which a disk counts as too slow for sends, and its recovery."""

import logging
from typing import Any

import pytest

from turbopump.engine.disk.sync_pace import (
    FAST_MS,
    RECOVERY_MS,
    RESPITE_MS,
    SLOW_MS,
    SLOW_SYNCS,
    SyncPace,
)

TICK_MS = 100


class Log:
    """Makes syncs one after the other, with ticks during each."""

    def __init__(self) -> None:
        self.pace = SyncPace()
        self.now_ms = 1_000_000

    def sync(self, *times_ms: int) -> bool | None:
        for took_ms in times_ms:
            for so_far_ms in range(TICK_MS, took_ms + 1, TICK_MS):
                self.now_ms += TICK_MS
                self.pace.judge_running(so_far_ms, self.now_ms)
            self.pace.judge_ended(took_ms, self.now_ms)
        return self.pace.slow

    def fast(self, for_ms: int, took_ms: int = 10) -> bool | None:
        """Make a fast sync every 100 ms."""
        for _ in range(for_ms // 100):
            self.now_ms += 100
            self.sync(took_ms)
        return self.pace.slow


def slow_log() -> Log:
    log = Log()
    assert log.sync(*[SLOW_MS] * SLOW_SYNCS) is True
    return log


def test_nothing_is_known_before_the_first_sync() -> None:
    log = Log()
    assert log.pace.slow is None
    assert log.sync(10) is False


def test_one_or_two_slow_syncs_are_not_a_slow_disk() -> None:
    log = Log()
    assert log.sync(4900, 4900) is None, "unknown, so no lead moves here"
    assert log.sync(10) is None
    assert log.fast(RESPITE_MS) is False
    assert log.sync(4900, 4900) is None


def test_three_in_a_row_are_slow() -> None:
    assert Log().sync(2000, 2000, 2000) is True


def test_the_third_slow_sync_counts_while_it_is_under_way() -> None:
    log = Log()
    log.sync(3000, 3000)
    log.pace.judge_running(SLOW_MS - 1, log.now_ms)
    assert log.pace.slow is None
    log.pace.judge_running(SLOW_MS, log.now_ms)
    assert log.pace.slow is True


def test_each_sync_counts_once() -> None:
    log = Log()
    for took_ms in range(0, 4900, 100):
        log.pace.judge_running(took_ms, log.now_ms)
    assert log.sync(4900) is None


def test_syncs_a_little_faster_are_not_slow() -> None:
    assert Log().sync(*[SLOW_MS - 1] * 20) is None, "and no lead moves here"


def test_fast_syncs_between_stalls_do_not_end_the_row() -> None:
    log = Log()
    for _ in range(SLOW_SYNCS):
        log.sync(2000)
        log.fast(RESPITE_MS - 500)
    assert log.pace.slow is True


def test_a_row_is_over_after_a_respite() -> None:
    log = Log()
    for _ in range(20):
        log.sync(2000, 2000)
        assert log.fast(RESPITE_MS) is False


def test_without_syncs_a_row_goes_on() -> None:
    """Messages are rare, and each send waits for a sync."""
    log = Log()
    for _ in range(SLOW_SYNCS):
        log.now_ms += 60_000
        log.sync(2000)
    assert log.pace.slow is True


def test_a_slow_disk_recovers_after_a_longer_time() -> None:
    log = slow_log()
    assert log.fast(RECOVERY_MS) is True
    assert log.fast(100) is False
    assert log.sync(2000, 2000) is None, "it begins again"


@pytest.mark.parametrize("took_ms", [SLOW_MS, FAST_MS])
def test_a_sync_that_is_not_fast_restarts_that_time(took_ms: int) -> None:
    log = slow_log()
    log.fast(RECOVERY_MS - 1000)
    log.sync(took_ms)
    assert log.fast(RECOVERY_MS) is True
    assert log.fast(100) is False


def test_without_syncs_a_slow_disk_stays_slow() -> None:
    log = slow_log()
    log.now_ms += 10 * RECOVERY_MS
    assert log.sync(10) is True, "a single sync shows little"


def test_each_change_is_one_line(caplog: Any) -> None:
    log = Log()
    with caplog.at_level(logging.INFO):
        log.sync(*[2000] * 10)
        log.fast(3 * RECOVERY_MS)
    assert [one.levelname for one in caplog.records] == ["WARNING", "WARNING"]
    assert "slow" in caplog.text and "fast again" in caplog.text
