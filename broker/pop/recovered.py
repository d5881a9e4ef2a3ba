"""What was handed out and is not in the offsets any more, after a crash or a switch of masters.

Owns the look at the newest check points, and records of ordered batches: offsets are saved and
copied every few seconds, these are in the log. It must never move an offset over messages that have
no check point: those would be given to no consumer. Called by service.py before the first pop of a
reign.

What is in the log of a new master and was not confirmed yet is part of that: until it can be read
nothing is handed out.

    saved offset -> [check point)[check point)[check point)  gap  [check point)
                                                           ^ the group goes on here
    popped in order: behind what the last record of the queue says is acknowledged
"""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Final

from turbopump.broker.pop.hand_outs import PoppedQueue
from turbopump.broker.pop.lives import Lives
from turbopump.broker.pop.ordered_log import LoggedBatch, read_record
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.net.wire import properties as names
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.pop_records import CHECK_POINT_TAG, ORDERED_TAG, CheckPoint
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.index import java_hash
from turbopump.pyx.record import Record

WINDOW_MS: Final = 60_000
"""Records that were stored so long before the last one are looked at: offsets are saved every 5 s,
and copied by replicas every 10 s."""
READ_MAX: Final = 64
"""Records that are looked at in a step, some 5 ms, in all queues together."""
INTERVALS_MAX: Final = 200_000
"""Stretches of all queues that are remembered; beyond it messages may be handed out twice."""

_CHECK_POINT: Final = java_hash(CHECK_POINT_TAG.encode()) & 0xFFFFFFFF
_ORDERED: Final = java_hash(ORDERED_TAG.encode()) & 0xFFFFFFFF

Interval = tuple[int, int]


@dataclass(slots=True, frozen=True)
class PoppedOffsets:
    """The groups' offsets. `get` says -1 for none; `set_back_ms`: when someone set it back, so that
    what was handed out before does not count; `lives`: which check points and batches belong to a
    former life of the topic or the group; `exists`: the queue's topic and group do; `restore`
    has an ordered batch be out again."""

    get: Callable[[PoppedQueue], int]
    set: Callable[[PoppedQueue, QueueOffset], None]
    set_back_ms: Callable[[PoppedQueue], int]
    lives: Lives
    exists: Callable[[PoppedQueue], bool]
    restore: Callable[[LoggedBatch], None]

    def counts(self, queue: PoppedQueue, pop_time_ms: int) -> bool:
        """Whether a pop at that time was of the present life, and not before a set back."""
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
    """Set the offsets behind what was handed out, and have ordered batches out again; in steps.
    `places` are the queues where the records lie, `noted` are check points that lie elsewhere (a
    replica that acts notes what it gives out). Yields whether it has to wait for others: records
    that the log had at the begin are not confirmed, and cannot be read yet."""
    end_of_before = store.max_log_offset
    while store.dispatched_log_offset < end_of_before:
        yield True
    found: dict[PoppedQueue, list[Interval]] = {}
    ordered: dict[PoppedQueue, LoggedBatch] = {}
    count = looked = 0
    for topic, queue_id in places:
        for code, record in _newest(store, topic, queue_id):
            if record is None or looked == READ_MAX:
                yield False
                looked = 0
            looked += 1
            if record is None or count >= INTERVALS_MAX:
                continue
            if code == _CHECK_POINT:
                count += _remember(found, record, revive_topic, broker_name, offsets)
            elif topic == revive_topic:
                count += _remember_ordered(ordered, record, broker_name, offsets)
    for number, check_point in enumerate(noted, 1):
        if number % READ_MAX == 0:
            yield False
        if count < INTERVALS_MAX:
            count += _remember_one(found, check_point, broker_name, offsets)
    for number, logged in enumerate(ordered.values(), 1):
        if number % READ_MAX == 0:
            yield False
        _restore(store, logged, offsets)
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
            if first <= end < behind <= high:  # else a client wrote it
                end = behind
        if end > at:
            offsets.set(queue, QueueOffset(end))


def _restore(store: Store, logged: LoggedBatch, offsets: PoppedOffsets) -> None:
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


def _newest(
    store: Store, topic: str, queue_id: int
) -> Generator[tuple[int, Record | None], None, None]:
    """Codes and records from the last one back; None where a step ends."""
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


def _remember(
    found: dict[PoppedQueue, list[Interval]],
    record: Record,
    revive_topic: str,
    broker_name: str,
    offsets: PoppedOffsets,
) -> int:
    """Keep what a check point says was handed out; how many stretches more these are."""
    properties = decode_properties(record.properties)
    if properties.get(names.REAL_TOPIC, revive_topic) != revive_topic:
        return 0
    try:
        check_point = CheckPoint.parse(record.body)
    except BadBody:
        return 0  # a client's
    return _remember_one(found, check_point, broker_name, offsets)


def _remember_one(
    found: dict[PoppedQueue, list[Interval]],
    check_point: CheckPoint,
    broker_name: str,
    offsets: PoppedOffsets,
) -> int:
    key = check_point.key
    if key.broker_name != broker_name:
        return 0
    queue = PoppedQueue(key.topic, key.group, key.queue_id)
    if not offsets.counts(queue, key.pop_time_ms):
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
    """Keep the last record of a queue; how many queues more these are."""
    try:
        logged = read_record(record.body, LogOffset(record.log_offset))
    except BadBody:
        return 0  # a client's
    queue = logged.queue
    known = found.get(queue)
    is_newer = known is None or known.at < logged.at
    counts = offsets.counts(queue, logged.batch.pop_time_ms)
    if not is_newer or not counts or logged.broker_name != broker_name:
        return 0
    found[queue] = logged
    return int(known is None)
