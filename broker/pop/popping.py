"""Pops: messages of many queues, each hidden by a check point.

Owns the order in which queues are read, the first offset of a group, and the record of a hand-out
(RocketMQ: PopMessageProcessor.popMsgFromQueue). A pop is answered elsewhere: a hand-out counts once
its check point is safe.

    queues of a request -> read -> check point -> hand-out    ordered: batch of order_info instead

Tests: tests/unit/broker/handlers/pop/test_pops.py, tests/unit/broker/pop/test_long_reads.py
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final

from turbopump.broker.pop.lives import Lives
from turbopump.broker.pop.order_info import OrderedBatches
from turbopump.broker.pop.order_journal import OrderJournal
from turbopump.broker.pop.outstanding import OutstandingPops, PoppedQueue
from turbopump.broker.pop.retries import RetryNames
from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.broker.pop.waiters import Arrived
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.deferred import Deferred, gather
from turbopump.engine.log.record_parts import records_in
from turbopump.engine.queues.lookup import Wanted
from turbopump.engine.store import Store
from turbopump.engine.types import PutStatus, QueueOffset, ReadResult, ReadStatus
from turbopump.net.wire.pop_handles import ORDERED_REVIVE_QUEUE, RetryKind, order_counts
from turbopump.net.wire.pop_records import CheckPoint, CheckPointKey
from turbopump.pyx.pops import PopTurns

QUEUES_PER_STEP: Final = 128
"""Number of queues that one step of a pop looks at, some microseconds each."""

SPAN_MAX: Final = 1024
"""Maximum span in queue offsets of the handles of a check point or ordered batch, from their start
to the last message: BATCH_ACK_MESSAGE has a bit for each."""
DISTANCE_MAX: Final = (1 << 31) - 1
"""Maximum distance of a message to the start of its check point, in queue offsets: a Java int."""

_MOVED: Final = {
    ReadStatus.OFFSET_TOO_SMALL,
    ReadStatus.OFFSET_OVERFLOW_BADLY,
    ReadStatus.OFFSET_FOUND_NULL,
}
_NOTHING_HERE: Final = {
    ReadStatus.NO_MATCHED_MESSAGE,
    ReadStatus.OFFSET_FOUND_NULL,
    ReadStatus.MESSAGE_WAS_REMOVING,
}


@dataclass(slots=True, frozen=True)
class PopQuery:
    """The pop that a consumer requests. `queue_id` -1: any queue; `count`: maximum of messages;
    `wanted`: the filter of messages (tags codes, a property filter, or None for all); `from_end`: a
    group without an offset begins at the end (initMode MAX); `attempt_id`: identifies an ordered
    pop and its repetitions."""

    topic: str
    group: str
    queue_id: int
    count: int
    invisible_ms: int
    wanted: Wanted
    from_end: bool = False
    is_ordered: bool = False
    attempt_id: str | None = None


@dataclass(slots=True)
class QueueBatch:
    """The messages that a request popped of one queue. `start` is the first offset of the check
    point, at most the first of `offsets`; `offsets` are ascending. `slices` are views of the log
    with whole records, any number in each, in the order of `offsets`."""

    kind: RetryKind
    queue: PoppedQueue
    start: QueueOffset
    offsets: list[QueueOffset]
    slices: list[memoryview]


@dataclass(slots=True)
class Popped:
    """The messages found for a request; `pop_time_ms` is epoch ms.

    `taken` has a batch for each queue with messages, in the order read, and `count` their messages.
    `counts` has, for an ordered pop, the text of each batch for the answer's order count.
    `remaining_counts` has, by topic and queue id, how many messages are left in each queue that was
    looked at and not empty. `unread` are queues in which nothing was found, though they were not
    examined to their end. `blocked_ms` has by queue id when a queue of an ordered pop can be popped
    again, in epoch ms. `refused` is why the check point of a hand-out was not stored, None if each
    was stored. `pending` are the writes of the check points.
    """

    pop_time_ms: int
    revive_queue_id: int
    taken: list[QueueBatch] = field(default_factory=list)
    counts: list[str] = field(default_factory=list)
    count: int = 0
    remaining_counts: dict[Arrived, int] = field(default_factory=dict)
    unread: list[Arrived] = field(default_factory=list)
    blocked_ms: dict[int, int] = field(default_factory=dict)
    refused: PutStatus | None = None
    pending: list[Deferred[None]] = field(default_factory=list)

    @property
    def remaining_total(self) -> int:
        """Total of `remaining_counts`."""
        return sum(self.remaining_counts.values())

    def when_safe(self) -> Deferred["Popped"]:
        """Resolve with this object once each check point is written or has failed. Batches whose
        check points failed are removed from it, and `refused` is set."""
        return gather(self.pending).map(lambda _written: self)


class Popping:
    """Pops messages for consumer groups: reads the queues of a request, and hides each message by a
    check point. Loop thread only."""

    def __init__(
        self,
        store: Store,
        topics: TopicTable,
        offsets: OffsetTable,
        orders: OrderedBatches,
        order_journal: OrderJournal,
        outstanding: OutstandingPops,
        log: ReviveLog,
        turns: PopTurns,
        lives: Lives,
        retry_names: RetryNames,
        *,
        broker_name: str,
        revive_queues: int,
        retry_share: int,
    ) -> None:
        """`retry_share` is popFromRetryProbability."""
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._orders = orders
        self._order_journal = order_journal
        self._outstanding = outstanding
        self._log = log
        self._turns = turns
        self._lives = lives
        self._retry_names = retry_names
        self._broker_name = broker_name
        self._revive_queues = revive_queues
        self._retry_share = retry_share

    def pop(
        self, query: PopQuery, now_ms: int, arrived: tuple[str, int] | None = None
    ) -> Generator[None, None, Popped]:
        """Pop at `now_ms` (epoch ms), in steps; the generator returns the result. The pop time may
        be later (`Lives.pop_time_ms`). `arrived` is the only (topic, queue id) to look at.

        Check points are appended at once. The answer may leave once `Popped.when_safe` resolves;
        then the group's offsets move, too. An ordered pop commits at once the offset at which it
        began to read: messages are passed by acknowledgements only.
        """
        turn, draw = self._turns.take()
        revive_queue = turn % self._revive_queues
        pop_time_ms = self._lives.pop_time_ms(query.topic, query.group, now_ms)
        popped = Popped(pop_time_ms, ORDERED_REVIVE_QUEUE if query.is_ordered else revive_queue)
        read_on = 0
        for number, (kind, queue) in enumerate(self._queues_in_turn(query, draw)):
            if arrived is not None and arrived != (queue.topic, queue.queue_id):
                continue
            if number % QUEUES_PER_STEP == QUEUES_PER_STEP - 1 or len(popped.unread) > read_on:
                read_on = len(popped.unread)  # one read may examine 16,384 messages
                yield
            self._pop_from_queue(query, popped, kind, queue)
        return popped

    def next_offset(self, query: PopQuery, queue: PoppedQueue, now_ms: int) -> QueueOffset:
        """Return the offset at which the group pops the queue next: a reset offset, else the end of
        the last hand-out, else the group's offset. Effects: a reset offset is used up, and a group
        without an offset gets one. `now_ms` is epoch ms."""
        reset = self._offsets.take_reset(queue.group, queue.topic, queue.queue_id)
        if reset is not None:
            self._outstanding.forget_queue(queue)
            self._orders.remove_batch(*queue)
            return reset
        handed = self._outstanding.next_offset(queue)
        if handed is not None:
            return handed
        known = self._offsets.query(queue.group, queue.topic, queue.queue_id)
        return known if known >= 0 else self._first_offset(query, queue, now_ms)

    def queues_of(self, topic: str, group: str, queue_id: int) -> Iterator[PoppedQueue]:
        """Yield all queues that pops of the group read, first the topic's, then those in retry
        topics. `queue_id` -1: all queues of the topic. Nothing for an unknown topic."""
        query = PopQuery(topic, group, queue_id, 1, 0, None)
        for kind in (RetryKind.NORMAL, *self.retry_kinds(topic, group)):
            for _, queue in self._queues_of_topic(query, kind, 0):
                yield queue

    def peek_offset(self, queue: PoppedQueue) -> QueueOffset:
        """Return the end of the last hand-out, else the group's offset, else the first message of
        the queue. Unlike `next_offset` it changes nothing and ignores a reset."""
        handed = self._outstanding.next_offset(queue)
        if handed is not None:
            return handed
        known = self._offsets.query(queue.group, queue.topic, queue.queue_id)
        low = self._store.min_queue_offset(queue.topic, queue.queue_id)
        return known if known >= 0 else QueueOffset(max(low, 0))

    def offsets_for_native_pops(
        self, group: str, topic: str, queues: int, retries: list[tuple[str, int]]
    ) -> list[QueueOffset] | None:
        """Return the group's offset of each queue, -1 for a queue without an offset: queues 0 to
        `queues` - 1 of the topic, then of each retry topic (name, number of queues) in the
        order of `retries`. None while a reset or a check point is pending in any of them."""
        found = []
        for name, count in [(topic, queues), *retries]:
            if self._offsets.has_resets(group, name):
                return None
            for queue_id in range(count):
                queue = PoppedQueue(name, group, queue_id)
                waits = self._outstanding.next_offset(queue) is not None
                if waits or self._outstanding.has_skipped(queue):
                    return None
                found.append(self._offsets.query(group, name, queue_id))
        return found

    def waiting_count(self, queue: PoppedQueue) -> int:
        """Return the number of messages from `peek_offset` to the end of the queue; messages that
        the group's filter refuses count."""
        high = self._store.max_queue_offset(queue.topic, queue.queue_id)
        return max(0, high - self.peek_offset(queue))

    def retry_kinds(self, topic: str, group: str) -> list[RetryKind]:
        """Return the kinds of retry topics that exist and are the group's for the topic, the
        configured kind first; a pop reads one of them."""
        return self._retry_names.existing_kinds(topic, group)

    def _queues_in_turn(
        self, query: PopQuery, draw: int
    ) -> Iterator[tuple[RetryKind, PoppedQueue]]:
        """Yield (kind, queue) of a request's queues in reading order, turned by `draw`: the retry
        topic comes first now and then, so that neither starves. Each queue is made when it is read:
        a topic may have many."""
        normal = self._queues_of_topic(query, RetryKind.NORMAL, draw)
        kinds = [] if query.is_ordered else self.retry_kinds(query.topic, query.group)
        retry: Iterator[tuple[RetryKind, PoppedQueue]] = iter(())
        if kinds:
            # An answer has messages of a kind of retry topic: both have the same queue ids.
            retry = self._queues_of_topic(query, kinds[draw % len(kinds)], draw)
        return chain(retry, normal) if draw < self._retry_share else chain(normal, retry)

    def _queues_of_topic(
        self, query: PopQuery, kind: RetryKind, draw: int
    ) -> Iterator[tuple[RetryKind, PoppedQueue]]:
        """Yield (kind, queue) of the queues of the topic of that kind, beginning with queue
        `draw`."""
        name = kind.topic_of(query.topic, query.group)
        topic = self._topics.peek_topic(name)
        if topic is None:
            return
        if kind is RetryKind.NORMAL and query.queue_id >= 0:
            yield kind, PoppedQueue(name, query.group, query.queue_id)
            return
        count = topic.read_queue_nums
        for number in range(count):
            yield kind, PoppedQueue(name, query.group, (draw + number) % count)

    def _pop_from_queue(
        self, query: PopQuery, popped: Popped, kind: RetryKind, queue: PoppedQueue
    ) -> None:
        """Pop messages from a queue, if there are any and the request has room for more; the result
        is added to `popped`."""
        now_ms = popped.pop_time_ms
        if self._lives.is_ending(queue.topic):
            return
        position = self.next_offset(query, queue, now_ms)
        count = query.count - popped.count
        if query.is_ordered:
            until_ms = self._orders.blocked_until_ms(*queue, query.attempt_id, now_ms)
            room = self._orders.room(*queue, query.attempt_id)
            count = min(count, room)
            if until_ms or not room:
                if until_ms:
                    popped.blocked_ms[queue.queue_id] = until_ms
                return
        high = self._store.max_queue_offset(queue.topic, queue.queue_id)
        if position == high:
            return
        place = queue.topic, queue.queue_id
        if popped.count >= query.count or self._outstanding.is_full(queue):
            popped.remaining_counts[place] = max(0, high - position)
            return
        result = self._read(query, queue, position, count)
        if result.status in _MOVED:
            position = result.next_queue_offset
            self._outstanding.forget_queue(queue)
            self._offsets.correct_offset(queue.group, queue.topic, queue.queue_id, position, now_ms)
            result = self._read(query, queue, position, count)
        if result.status is ReadStatus.FOUND:
            self._hand_out(query, popped, kind, queue, position, result)
        elif result.status in _NOTHING_HERE:
            if query.is_ordered:
                self._commit_offset(queue, result.next_queue_offset, now_ms)
            else:
                self._outstanding.skip_messages(queue, position, result.next_queue_offset)
            if result.next_queue_offset < result.max_queue_offset:
                popped.unread.append(place)
        popped.remaining_counts[place] = max(0, result.max_queue_offset - result.next_queue_offset)

    def _read(
        self, query: PopQuery, queue: PoppedQueue, position: QueueOffset, count: int
    ) -> ReadResult:
        """Read at most `count` messages of the queue from `position` on; in a retry topic without
        the filter, because each message passed it before."""
        # A message in a retry topic passed the filter when it was first popped.
        wanted = query.wanted if queue.topic == query.topic else None
        result = self._store.read(queue.topic, queue.queue_id, position, count, wanted)
        is_wide = result.next_queue_offset - position > SPAN_MAX
        return within_span(result) if is_wide and result.slices else result

    def _hand_out(
        self,
        query: PopQuery,
        popped: Popped,
        kind: RetryKind,
        queue: PoppedQueue,
        start: QueueOffset,
        result: ReadResult,
    ) -> None:
        """Hand out the messages of a read: write the check point, or the ordered batch, and add
        them to `popped`."""
        now_ms = popped.pop_time_ms
        offsets = queue_offsets(result.slices)
        position = start
        if not query.is_ordered:
            start = self._check_point_start(query, popped, queue, start, offsets)
        elif offsets[-1] - start >= SPAN_MAX:
            start = offsets[0]
        taken = QueueBatch(kind, queue, start, offsets, result.slices)
        popped.taken.append(taken)
        popped.count += len(taken.offsets)
        if query.is_ordered:
            counts = self._orders.hand_out(
                *queue,
                taken.offsets,
                attempt_id=query.attempt_id,
                pop_time_ms=now_ms,
                invisible_ms=query.invisible_ms,
            )
            popped.counts.append(order_counts(kind, queue.queue_id, counts))
            self._commit_offset(queue, position, now_ms)
            logged = self._order_journal.write(queue, now_ms)
            popped.pending.append(logged.map(partial(self._on_batch_logged, popped, taken)))
            return
        key = CheckPointKey(*queue, start, now_ms, self._broker_name)
        distances = tuple(offset - start for offset in taken.offsets)
        # Messages that were examined after the last taken one are examined again, so that no gap
        # lies between two check points (csrc/lane_pop.c does the same).
        given = self._outstanding.add(queue, QueueOffset(taken.offsets[-1] + 1))

        def on_stored(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                self._outstanding.mark_safe(queue, given)
            else:
                self._outstanding.drop_from(queue, given)
                popped.refused = status
                popped.taken.remove(taken)
                popped.count -= len(taken.offsets)

        check_point = CheckPoint(key, query.invisible_ms, distances)
        written = self._log.add_check_point(check_point, popped.revive_queue_id, now_ms)
        popped.pending.append(written.map(on_stored))

    def _check_point_start(
        self,
        query: PopQuery,
        popped: Popped,
        queue: PoppedQueue,
        start: QueueOffset,
        offsets: list[QueueOffset],
    ) -> QueueOffset:
        """Return the queue offset at which the check point begins: it covers messages that the
        filter skipped since the last one, so that a recovery finds no gap between the two
        (offset_recovery.py). If the span is too wide, an acknowledged check point of its own covers
        the skipped messages: the bit sets of acknowledgements begin where the check point does."""
        now_ms = popped.pop_time_ms
        origin = self._outstanding.take_check_point_start(queue, start)
        if offsets[-1] - origin < SPAN_MAX:
            return origin
        if offsets[-1] - start >= SPAN_MAX:
            start = offsets[0]
        distance = start - 1 - origin
        if distance <= DISTANCE_MAX:
            key = CheckPointKey(*queue, origin, now_ms, self._broker_name)
            passed = CheckPoint(key, query.invisible_ms, (distance,), acked=1)
            self._log.add_check_point(passed, popped.revive_queue_id, now_ms)
        return start

    def _on_batch_logged(self, popped: Popped, taken: QueueBatch, status: PutStatus) -> None:
        """Take an ordered hand-out back unless its record is in the log (`status`)."""
        if status is not PutStatus.PUT_OK:
            self._orders.make_batch_visible(*taken.queue, popped.pop_time_ms)
            popped.refused = status
            popped.counts.pop(popped.taken.index(taken))
            popped.taken.remove(taken)
            popped.count -= len(taken.offsets)

    def _first_offset(self, query: PopQuery, queue: PoppedQueue, now_ms: int) -> QueueOffset:
        """Return the first offset of a group without one in the queue, and commit it: the first
        message, or with `from_end` the last message (not the offset after it, as in RocketMQ). A
        young queue is read from its beginning."""
        store, begin = self._store, None
        low = store.min_queue_offset(queue.topic, queue.queue_id)
        if query.from_end and queue.topic == query.topic:
            first = store.units(queue.topic, queue.queue_id, 0, 1) if low <= 0 else []
            if not (first and store.in_memory(first[0].log_offset)):
                high = store.max_queue_offset(queue.topic, queue.queue_id)
                begin = QueueOffset(max(0, high - 1))
        begin = QueueOffset(max(low, 0)) if begin is None else begin
        self._commit_offset(queue, begin, now_ms)
        return begin

    def _commit_offset(self, queue: PoppedQueue, queue_offset: QueueOffset, now_ms: int) -> None:
        """Commit the group's offset of the queue."""
        self._offsets.commit(queue.group, queue.topic, queue.queue_id, queue_offset, now_ms)


def queue_offsets(slices: list[memoryview]) -> list[QueueOffset]:
    """Return the queue offset of each record in slices of whole records of the log, in their
    order."""
    return [QueueOffset(record.queue_offset) for piece in slices for record in records_in(piece)]


def within_span(result: ReadResult) -> ReadResult:
    """Return a read without the messages at SPAN_MAX or more queue offsets after its first message:
    its `next_queue_offset` is after the last message kept, so that a later pop gets the others."""
    kept: list[memoryview] = []
    offsets: list[QueueOffset] = []
    for piece in result.slices:
        for record in records_in(piece):
            if offsets and record.queue_offset - offsets[0] >= SPAN_MAX:
                kept += [piece[: record.log_offset]] if record.log_offset else []
                return replace(
                    result,
                    slices=kept,
                    count=len(offsets),
                    size=sum(map(len, kept)),
                    next_queue_offset=QueueOffset(offsets[-1] + 1),
                )
            offsets.append(QueueOffset(record.queue_offset))
        kept.append(piece)
    return result
