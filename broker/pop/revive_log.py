"""Writes check points and acknowledgements to the revive topic.

Owns the format and place of these records. Queues and properties are RocketMQ's, so that a Java
broker of the group can continue with them. It never blocks: results are delivered later.

Tests: tests/unit/broker/pop/test_revive.py, tests/unit/broker/pop/test_order_journal.py
"""

from collections.abc import Callable

from turbopump.broker.pop.acting_journal import ActingJournal
from turbopump.broker.pop.outstanding import PoppedQueue
from turbopump.broker.traffic.put_message import MessageWriter
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import PutStatus
from turbopump.net.wire import properties as names
from turbopump.net.wire.names import REVIVE_PREFIX
from turbopump.net.wire.pop_records import (
    CHECK_POINT_LEAD_MS,
    CHECK_POINT_TAG,
    ORDERED_TAG,
    Acknowledgement,
    CheckPoint,
    unique_key,
)


def revive_topic(cluster: str) -> str:
    """Return the topic of a cluster's check points (PopAckConstants.REVIVE_TOPIC)."""
    return REVIVE_PREFIX + cluster


class ReviveLog:
    """Writes check points and acknowledgements to the revive topic of a cluster; an acting
    replica's go into the notes of ActingJournal in its place. Times are epoch ms. Each result is
    PUT_OK once the record is as safe as a send, else the status of the failure."""

    def __init__(
        self,
        topic: str,
        queue_count: Callable[[], int],
        writer: MessageWriter,
        notes: ActingJournal,
    ) -> None:
        """`queue_count` returns the number of revive queues, including former queues that are still
        read."""
        self.topic = topic
        """The revive topic of the cluster."""
        self.queue_count = queue_count
        """Returns the number of revive queues, including former queues that are still read."""
        self._writer = writer
        self._notes = notes

    def add_check_point(
        self, check_point: CheckPoint, revive_queue_id: int, now_ms: int
    ) -> Deferred[PutStatus]:
        """Append a check point now: its messages become visible again after its invisible time
        unless they are acknowledged."""
        if self._notes.in_use:
            return self._notes.add_check_point(check_point, revive_queue_id, now_ms)
        is_new = not check_point.acked and not check_point.retries
        if is_new and self._writer.put_check_point(check_point, revive_queue_id, now_ms):
            return Deferred.resolved(PutStatus.PUT_OK)
        due_ms = check_point.revive_ms - CHECK_POINT_LEAD_MS
        key = unique_key(check_point.key, CHECK_POINT_TAG)
        return self._write(
            check_point.encode_body(), CHECK_POINT_TAG, key, revive_queue_id, due_ms, now_ms
        )

    def add_ack(
        self,
        ack: Acknowledgement,
        invisible_ms: int,
        revive_queue_id: int,
        now_ms: int,
        delivered_ms: int | None = None,
    ) -> Deferred[PutStatus]:
        """Append an acknowledgement now. `invisible_ms` is the invisible time of its check point.
        The record must come after its check point, even if the acknowledgement is late: check
        points due by `delivered_ms` (None: `now_ms`) have left the timers, later ones may still be
        there."""
        if self._notes.in_use:
            return self._notes.add_ack(ack, invisible_ms, revive_queue_id, now_ms)
        due_ms = ack.key.pop_time_ms + invisible_ms
        first = -1 if ack.is_batch else ack.queue_offsets[0]
        key = unique_key(ack.key, ack.tag, first)
        return self._write(
            ack.encode_body(), ack.tag, key, revive_queue_id, due_ms, now_ms, delivered_ms
        )

    def add_ordered(
        self, queue: PoppedQueue, body: bytes, revive_queue_id: int, now_ms: int
    ) -> Deferred[PutStatus]:
        """Append the outstanding batch of a queue that is popped in order; `body` is from
        order_journal.body_of. The record is stored in the revive queue at once, not as a timer.
        While notes are in use the result is SERVICE_NOT_AVAILABLE."""
        if self._notes.in_use:
            return Deferred.resolved(PutStatus.SERVICE_NOT_AVAILABLE)
        key = f"{queue.topic}@{queue.queue_id}@{queue.group}@{now_ms}@{ORDERED_TAG}"
        return self._write(body, ORDERED_TAG, key, revive_queue_id, now_ms, now_ms)

    def _write(
        self,
        body: bytes,
        tag: str,
        key: str,
        queue_id: int,
        due_ms: int,
        now_ms: int,
        delivered_ms: int | None = None,
    ) -> Deferred[PutStatus]:
        """Append a record that is due at `due_ms` now, through the timers or at once; resolves with
        its status."""
        if names.PROPERTY_SEPARATOR in key:
            # a group whose name came from a file
            return Deferred.resolved(PutStatus.MESSAGE_ILLEGAL)
        properties = {names.UNIQ_KEY: key, names.TAGS: tag}
        # A record that is due is stored at once in its revive queue.
        from_ms = now_ms
        if due_ms > (now_ms if delivered_ms is None else min(delivered_ms, now_ms)):
            properties[names.TIMER_DELIVER_MS] = str(due_ms)
            from_ms = min(now_ms, due_ms - 1)
        return self._writer.put_record(self.topic, queue_id, body, properties, now_ms, from_ms)
