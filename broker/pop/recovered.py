"""What was handed out and is not in the offsets any more, after a crash or a switch of masters.

Owns the look at the newest check points: offsets are saved and copied every few seconds, check
points are in the log. It must never move an offset over messages that have no check point: those
would be given to no consumer. Called by service.py before the first pop of a reign.

    saved offset -> [check point)[check point)[check point)  gap  [check point)
                                                           ^ the group goes on here
"""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Final

from turbopump.broker.pop.hand_outs import PoppedQueue
from turbopump.engine.store import Store
from turbopump.engine.types import QueueOffset
from turbopump.net.wire import properties as names
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.pop_records import CHECK_POINT_TAG, CheckPoint
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.index import java_hash
from turbopump.pyx.record import Record

WINDOW_MS: Final = 60_000
"""Check points that were stored so long before the last one are looked at: offsets are saved every
5 s, and copied by replicas every 10 s."""
READ_MAX: Final = 256
"""Records that are looked at in a step, some 5 ms."""
INTERVALS_MAX: Final = 200_000
"""Stretches of all queues that are remembered; beyond it messages may be handed out twice."""

_CODE: Final = java_hash(CHECK_POINT_TAG.encode()) & 0xFFFFFFFF

Interval = tuple[int, int]


@dataclass(slots=True, frozen=True)
class PoppedOffsets:
    """The groups' offsets. `get` says -1 for none; `set_back_ms`: when someone set it back, so that
    what was handed out before does not count; `exists`: the queue's topic and group do."""

    get: Callable[[PoppedQueue], int]
    set: Callable[[PoppedQueue, QueueOffset], None]
    set_back_ms: Callable[[PoppedQueue], int]
    exists: Callable[[PoppedQueue], bool]


def recover_offsets(
    store: Store,
    places: Iterable[tuple[str, int]],
    revive_topic: str,
    broker_name: str,
    offsets: PoppedOffsets,
) -> Generator[None, None, None]:
    """Set the offsets behind what was handed out; in steps. `places` are the queues where check
    points lie."""
    found: dict[PoppedQueue, list[Interval]] = {}
    count = 0
    for topic, queue_id in places:
        for record in _newest(store, topic, queue_id):
            if record is None:
                yield
            elif count < INTERVALS_MAX:
                count += _remember(found, record, revive_topic, broker_name, offsets)
    for number, (queue, intervals) in enumerate(found.items(), 1):
        if number % READ_MAX == 0:
            yield
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


def _newest(store: Store, topic: str, queue_id: int) -> Generator[Record | None, None, None]:
    """Check points from the last one back; None where a step ends."""
    low = max(0, store.min_queue_offset(topic, queue_id))
    end = store.max_queue_offset(topic, queue_id)
    last_ms = None
    while end > low:
        start = QueueOffset(max(low, end - READ_MAX))
        units = store.units(topic, queue_id, start, end - start)
        for unit in reversed(units):
            if unit.tags_code & 0xFFFFFFFF == _CODE:
                record = store.record_of(unit)
                if record is None:
                    continue
                last_ms = last_ms or record.store_timestamp_ms
                if record.store_timestamp_ms < last_ms - WINDOW_MS:
                    return
                yield record
        end = start
        if end > low:
            yield None


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
    key = check_point.key
    if key.broker_name != broker_name:
        return 0
    queue = PoppedQueue(key.topic, key.group, key.queue_id)
    if key.pop_time_ms <= offsets.set_back_ms(queue):
        return 0
    intervals = found.setdefault(queue, [])
    first, end = key.start, key.start + max(check_point.distances) + 1
    if intervals and first <= intervals[-1][0] <= end:
        intervals[-1] = first, max(end, intervals[-1][1])
        return 0
    intervals.append((first, end))
    return 1
