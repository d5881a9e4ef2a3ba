"""Log offset of the first waiting message, and the number of messages lost with their files.

Owns the report to the store's retention (keepWaitingMessages), the age of the oldest message of
each kind, and the log line about losses. Files are removed by engine/lifecycle/retention.py only.

    timers, delay levels, half messages, pop check points -> the least log offset ->
    Store.set_first_waiting

Each broker reports from its own log and its own copy of each progress. A replica is never ahead of
its master, so it keeps at least the files that the master keeps.

A report stays true, because messages that arrive later are later in the log.
"""

import logging
from collections.abc import Generator, Mapping
from typing import Final

from turbopump.broker.scheduled.delay import DelayedMessages
from turbopump.broker.scheduled.timers import Timers
from turbopump.broker.scheduled.transaction_checks import TransactionChecks
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.net.wire.names import HALF_QUEUE_ID, HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP

logger = logging.getLogger(__name__)

LOOK_MS: Final = 5_000
"""Interval in ms between two scans of all waiting messages."""
TIMERS, DELAYS, HALVES, POPS = "timers", "delays", "half_messages", "pop_check_points"
"""Kinds of waiting messages: keys of `WaitingMessages.oldest_ms` and `lost_counts`, names in
metrics."""


class WaitingMessages:
    """The messages of a broker that wait for their delivery: reports the log offset of the first
    one to the store's retention, and counts those lost. Loop thread only."""

    def __init__(
        self,
        store: Store,
        offsets: OffsetTable,
        delay: DelayedMessages,
        timers: Timers,
        transaction_checks: TransactionChecks,
        check_points: tuple[str, str],
    ) -> None:
        """`check_points`: the topic of pop check points, and the group whose offset is the progress
        in it."""
        self._store, self._offsets = store, offsets
        self._delay, self._timers, self._half_checks = delay, timers, transaction_checks
        self._revive_topic, self._revive_group = check_points
        self._look: Generator[None, None, dict[str, LogOffset]] | None = None
        self._due_ms = 0
        self._since_ms: dict[str, int] = {}
        self._reported: Mapping[str, int] = {}
        store.set_first_waiting(LogOffset(0))  # until the first scan has ended

    def step(self, steady_ms: int) -> None:
        """Continue a scan for some milliseconds, or begin one LOOK_MS after the last. `steady_ms`
        is of the monotonic clock. A complete scan sets `Store.set_first_waiting` and logs new
        losses."""
        if self._look is None:
            if steady_ms < self._due_ms:
                return
            self._look = self._find_first_offsets()
        try:
            next(self._look)
        except StopIteration as done:
            self._look, self._due_ms = None, steady_ms + LOOK_MS
            self._on_scanned(done.value)

    def oldest_ms(self) -> dict[str, int]:
        """Return, for each kind with waiting messages, the epoch ms at which the oldest one was
        stored, as of the last complete scan."""
        return dict(self._since_ms)

    def lost_counts(self) -> dict[str, int]:
        """Return the number of messages of each kind (pop check points are not counted) that
        retention removed before their time, since the start."""
        return {
            TIMERS: self._timers.lost_count,
            DELAYS: self._delay.lost,
            HALVES: self._half_checks.lost,
        }

    def _on_scanned(self, places: dict[str, LogOffset]) -> None:
        """Handle the result of a scan (kind to log offset): set the ages, and log new losses."""
        records = {kind: self._store.record(at) for kind, at in places.items()}
        self._since_ms = {
            kind: record.store_timestamp_ms
            for kind, record in records.items()
            if record is not None
        }
        lost = self.lost_counts()
        new = {kind: count - self._reported.get(kind, 0) for kind, count in lost.items()}
        if any(new.values()):
            logger.error(
                "messages were removed with their log files before their time: %d timers,"
                " %d delayed messages, %d half messages",
                *(new[kind] for kind in (TIMERS, DELAYS, HALVES)),
            )
        self._reported = lost

    def _find_first_offsets(self) -> Generator[None, None, dict[str, LogOffset]]:
        """Return the log offset of the first waiting message of each kind, in steps, and report the
        least to the store."""
        store = self._store
        end, begins = store.max_log_offset, store.min_log_offset
        places: dict[str, LogOffset] = {}

        def add(kind: str, at: LogOffset | None) -> None:
            if at is not None:
                places[kind] = min(at, places.get(kind, at))

        progress = self._delay.kept_progress()
        for topic_queue in sorted(progress):
            add(DELAYS, self._message_log_offset(*topic_queue, progress[topic_queue]))
        for topic in (HALF_TOPIC, OP_TOPIC):
            at = self._offsets.query(TRANSACTION_GROUP, topic, HALF_QUEUE_ID)
            add(HALVES, self._message_log_offset(topic, HALF_QUEUE_ID, at))
        for queue_id in store.queue_ids(self._revive_topic):
            at = self._offsets.query(self._revive_group, self._revive_topic, queue_id)
            add(POPS, self._message_log_offset(self._revive_topic, queue_id, at))
        yield
        add(TIMERS, (yield from self._timers.oldest_waiting()))
        # The scan does not count if the log was cut, or had files removed, meanwhile.
        if store.max_log_offset >= end and store.min_log_offset == begins:
            store.set_first_waiting(min([end, *places.values()]))
        return places

    def _message_log_offset(self, topic: str, queue_id: int, queue_offset: int) -> LogOffset | None:
        """Return the log offset of the message at that queue offset, or of the first one after it;
        None without such a message."""
        store = self._store
        at = QueueOffset(max(queue_offset, store.min_queue_offset(topic, queue_id)))
        units = store.units(topic, queue_id, at, 1)
        return units[0].log_offset if units else None
