"""Recovery of hand-outs that are missing in the saved offsets after a crash or a switch of masters.

Offsets are saved and copied every few seconds, but check points and records of ordered batches are
in the log. Before the first pop of a term, the newest of these records are read, and offsets move
past the messages that they cover. An offset must never move over messages without a check point: no
consumer would get them.

Records in the log of a new master that are not confirmed yet count, too: nothing is handed out
until they can be read.

    saved offset -> [check point)[check point)[check point)  gap  [check point)
                                                            ^ the group goes on here
    popped in order: after the messages that the last record of the queue has as acknowledged

Tests: tests/unit/broker/pop/test_lives.py
"""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Final

from turbopump.broker.pop.lives import Lives
from turbopump.broker.pop.order_journal import LoggedBatch, read_record
from turbopump.broker.pop.outstanding import PoppedQueue
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.net.wire import properties as names
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.pop_records import CHECK_POINT_TAG, ORDERED_TAG, CheckPoint
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.index import java_hash
from turbopump.pyx.record import Record

WINDOW_MS: Final = 60_000
"""Window of records that are read, in ms before the last one: offsets are saved every 5 s,
and copied by replicas every 10 s."""
READ_MAX: Final = 64
"""Maximum number of records that are read in a step, of all queues together; some 5 ms."""
INTERVALS_MAX: Final = 200_000
"""Maximum number of intervals kept, for all queues; beyond it messages may be handed out twice."""

_CHECK_POINT: Final = java_hash(CHECK_POINT_TAG.encode()) & 0xFFFFFFFF
_ORDERED: Final = java_hash(ORDERED_TAG.encode()) & 0xFFFFFFFF

Interval = tuple[int, int]
"""(first, end) in queue offsets, end exclusive."""


@dataclass(slots=True, frozen=True)
class PoppedOffsets:
    """Access to the groups' offsets for their recovery. `get` returns a queue's offset, -1 for
    none; `set` commits one; `set_back_ms` returns when the offset was last set back, in epoch ms,
    because earlier hand-outs do not count then; `lives` decides which life of the topic or group a
    pop belongs to; `exists` returns whether the queue's topic and group exist; `restore` marks an
    ordered batch as outstanding again."""

    get: Callable[[PoppedQueue], int]
    set: Callable[[PoppedQueue, QueueOffset], None]
    set_back_ms: Callable[[PoppedQueue], int]
    lives: Lives
    exists: Callable[[PoppedQueue], bool]
    restore: Callable[[LoggedBatch], None]

    def is_in_present_life(self, queue: PoppedQueue, pop_time_ms: int) -> bool:
        """Whether a pop of the queue at `pop_time_ms` (epoch ms) belongs to the present life and is
        later than the last time the offset was set back."""
        is_former = self.lives.is_former(queue.topic, queue.group, pop_time_ms)
        return not is_former and pop_time_ms > self.set_back_ms(queue)


def recover_offsets(
    store: Store,
    places: Iterable[tuple[str, int]],
    revive_topic: str,
    broker_name: str,
    offsets: PoppedOffsets,
    noted: Iterable[CheckPoint] = (),
) -> Generator[bool, None, None]:
    """Move the offsets past the messages handed out, and restore ordered batches, in steps.

    `places` are the queues (topic, queue id) that contain the records; check points of another
    `broker_name` are ignored; `noted` are check points kept elsewhere (an acting replica notes its
    hand-outs). Yields after each step: True while records that the log had at the beginning are not
    confirmed and cannot be read yet, so the caller must wait; False to be resumed at once. Offsets
    only grow; the work is complete when the generator ends.
    """
    end_of_before = store.max_log_offset
    while store.dispatched_log_offset < end_of_before:
        yield True
    found: dict[PoppedQueue, list[Interval]] = {}
    ordered: dict[PoppedQueue, LoggedBatch] = {}
    count = looked = 0
    for topic, queue_id in places:
        for code, record in _newest_first(store, topic, queue_id):
            if record is None or looked == READ_MAX:
                yield False
                looked = 0
            looked += 1
            if record is None or count >= INTERVALS_MAX:
                continue
            if code == _CHECK_POINT:
                count += _remember_interval(found, record, revive_topic, broker_name, offsets)
            elif topic == revive_topic:
                count += _remember_ordered(ordered, record, broker_name, offsets)
    for number, check_point in enumerate(noted, 1):
        if number % READ_MAX == 0:
            yield False
        if count < INTERVALS_MAX:
            count += _add_interval(found, check_point, broker_name, offsets)
    for number, logged in enumerate(ordered.values(), 1):
        if number % READ_MAX == 0:
            yield False
        _restore_batch(store, logged, offsets)
    for number, (queue, intervals) in enumerate(found.items(), 1):
        if number % READ_MAX == 0:
            yield False
        at = offsets.get(queue)
        if not offsets.exists(queue):
            continue
        intervals.sort()
        end = intervals[0][0] if at < 0 else at
        high = store.max_queue_offset(queue.topic, queue.queue_id)
        for first, behind in intervals:
            if first <= end < behind <= high:  # else a client wrote the check point
                end = behind
        if end > at:
            offsets.set(queue, QueueOffset(end))


def _restore_batch(store: Store, logged: LoggedBatch, offsets: PoppedOffsets) -> None:
    """Restore the batch of a record as outstanding, unless its messages are before the group's
    offset, and move the offset."""
    queue, batch = logged.queue, logged.batch
    at, end = offsets.get(queue), batch.offsets[-1] + 1
    is_there = end <= store.max_queue_offset(queue.topic, queue.queue_id)  # else a client wrote it
    if at >= end or not is_there or not offsets.exists(queue):
        return
    for number, offset in enumerate(batch.offsets):
        batch.acked |= (offset < at) << number
    offsets.restore(logged)
    if batch.next_offset() > at:
        offsets.set(queue, batch.next_offset())


def _newest_first(
    store: Store, topic: str, queue_id: int
) -> Generator[tuple[int, Record | None], None, None]:
    """Yield (tags code, record) of a queue's records from the newest backwards; (0, None) where a
    step ends."""
    low = max(0, store.min_queue_offset(topic, queue_id))
    end = store.max_queue_offset(topic, queue_id)
    last_ms = None
    while end > low:
        start = QueueOffset(max(low, end - READ_MAX))
        units = store.units(topic, queue_id, start, end - start)
        for unit in reversed(units):
            code = unit.tags_code & 0xFFFFFFFF
            if code in (_CHECK_POINT, _ORDERED):
                record = store.record_of(unit)
                if record is None:
                    continue
                last_ms = last_ms or record.store_timestamp_ms
                if record.store_timestamp_ms < last_ms - WINDOW_MS:
                    return
                yield code, record
        end = start
        if end > low:
            yield 0, None


def _remember_interval(
    found: dict[PoppedQueue, list[Interval]],
    record: Record,
    revive_topic: str,
    broker_name: str,
    offsets: PoppedOffsets,
) -> int:
    """Keep the interval of queue offsets of a record's check point in `found`; return how many
    intervals were added."""
    properties = decode_properties(record.properties)
    if properties.get(names.REAL_TOPIC, revive_topic) != revive_topic:
        return 0
    try:
        check_point = CheckPoint.parse(record.body)
    except BadBody:
        return 0  # written by a client
    return _add_interval(found, check_point, broker_name, offsets)


def _add_interval(
    found: dict[PoppedQueue, list[Interval]],
    check_point: CheckPoint,
    broker_name: str,
    offsets: PoppedOffsets,
) -> int:
    """Keep the interval of a check point in `found`, joined with the last one of its queue if they
    touch; return how many intervals were added (0 or 1)."""
    key = check_point.key
    if key.broker_name != broker_name:
        return 0
    queue = PoppedQueue(key.topic, key.group, key.queue_id)
    if not offsets.is_in_present_life(queue, key.pop_time_ms):
        return 0
    intervals = found.setdefault(queue, [])
    first, end = key.start, key.start + max(check_point.distances) + 1
    if intervals and first <= intervals[-1][0] <= end:
        intervals[-1] = first, max(end, intervals[-1][1])
        return 0
    intervals.append((first, end))
    return 1


def _remember_ordered(
    found: dict[PoppedQueue, LoggedBatch],
    record: Record,
    broker_name: str,
    offsets: PoppedOffsets,
) -> int:
    """Keep a record of an ordered batch in `found`, if it is the newest of its queue; return how
    many queues were added (0 or 1)."""
    try:
        logged = read_record(record.body, LogOffset(record.log_offset))
    except BadBody:
        return 0  # written by a client
    queue = logged.queue
    known = found.get(queue)
    is_newer = known is None or known.at < logged.at
    counts = offsets.is_in_present_life(queue, logged.batch.pop_time_ms)
    if not is_newer or not counts or logged.broker_name != broker_name:
        return 0
    found[queue] = logged
    return int(known is None)
