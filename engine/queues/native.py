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
"""Receives (group, topic, queue id, queue offset, now_ms) of each offset that a native pull
commits; `now_ms` is in epoch ms."""


@dataclass(frozen=True, slots=True)
class TimerDeps:
    """The parts of a store for the native handling of timers."""

    log: CommitLog
    queues: ConsumeQueues
    lookup: Lookup
    statistics: StoreStatistics
    written: Callable[[int], None]
    """Must be called with the time in epoch ms after native appends at the tail of the log."""
    readable: Callable[[], int]
    """Returns the log offset before which records may be read."""


def make_lane(
    log: CommitLog,
    queues: ConsumeQueues,
    pending: PendingSends,
    dispatch: Callable[[int], None],
    arrived: Callable[[], None],
    may_add: Callable[[str], bool],
    clock: Callable[[], int] | None,
) -> Lane:
    """Make a native path for sends into the log, closed at first. `dispatch(now_ms)`, `arrived()`
    and `clock()` (epoch ms; None: the system's wall clock) are explained at Lane. `may_add(topic)`
    returns whether a queue of the topic may be added that the native table writes."""

    def add_queue(topic: bytes, queue_id: int) -> bool:
        name = topic.decode(errors="surrogateescape")
        may = may_add(name)
        if may:
            queues.add(name, queue_id)
        return may

    return Lane(
        log.tail,
        queues.table,
        pending,
        log.config.max_message_size,
        dispatch=dispatch,
        arrived=arrived,
        add_queue=add_queue,
        clock=clock,
    )


def make_pulls(
    config: StoreConfig, log: CommitLog, queues: ConsumeQueues, lookup: Lookup, commit: Commit
) -> Pulls:
    """Make the native path for pulls from the queues, with the limits of remoting.md 10.5, which
    serves no group at first. `commit` is called on the loop thread during a pull."""
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
