"""The native path into a store and out of it, connected to the store's parts.

Owns which parts the lane and the pulls work on. It must never serve a request itself.

Tests: tests/unit/broker/traffic/test_fast_path.py
"""

from collections.abc import Callable
from dataclasses import dataclass

from turbopump.engine.config import StoreConfig
from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.queues.consume_queue import ConsumeQueues
from turbopump.engine.queues.lookup import Lookup
from turbopump.engine.statistics import StoreStatistics
from turbopump.pyx.lane import Lane
from turbopump.pyx.pending import PendingSends
from turbopump.pyx.pulls import Pulls

Commit = Callable[[bytes, bytes, int, int, int], None]
"""Receives (group, topic, queue id, queue offset, now_ms) of offsets that pulls commit."""


@dataclass(frozen=True, slots=True)
class TimerDeps:
    """The parts of a store for the native handling of timers. `written(now_ms)` must follow appends
    at the tail of the log; records before `readable()` may be read."""

    log: CommitLog
    queues: ConsumeQueues
    lookup: Lookup
    statistics: StoreStatistics
    written: Callable[[int], None]
    readable: Callable[[], int]


def make_lane(
    log: CommitLog,
    queues: ConsumeQueues,
    pending: PendingSends,
    dispatch: Callable[[int], None],
    arrived: Callable[[], None],
    clock: Callable[[], int] | None,
) -> Lane:
    """A lane into the log; see Store.lane."""
    return Lane(
        log.tail,
        queues.table,
        pending,
        log.config.max_message_size,
        dispatch=dispatch,
        arrived=arrived,
        clock=clock,
    )


def make_pulls(
    config: StoreConfig, log: CommitLog, queues: ConsumeQueues, lookup: Lookup, commit: Commit
) -> Pulls:
    """Native pulls from the queues, with the limits of remoting.md 10.5."""
    limits = (
        lookup.memory_size,
        config.max_transfer_count_on_message_in_memory,
        config.max_transfer_bytes_on_message_in_memory,
        config.max_transfer_count_on_message_in_disk,
        config.max_transfer_bytes_on_message_in_disk,
    )
    return Pulls(
        log.tail,
        queues.table,
        log.file_size,
        limits,
        units_of=lookup.units_of,
        log_of=log.region_of,
        commit=commit,
    )
