"""Records of ordered batches in the log, so that another master knows the outstanding batches.

The records are in the revive topic under a tag of their own, which RocketMQ's brokers skip. The
file consumerOrderInfo.json is local to a broker: without these records, a new master would give out
messages again, in parallel with their consumer, which were acknowledged since offsets were last
copied. The batches themselves are in order_info.py.

    pop, acknowledgement, changed time -> a record, and only then the answer
    a batch outstanding for long       -> a record every REFRESH_MS, within the recovery window
    a term begins                      -> the last record of each queue counts
"""

from collections import OrderedDict
from typing import Any, Final, NamedTuple

from turbopump.broker.pop.order_info import OrderedBatch, OrderedBatches
from turbopump.broker.pop.outstanding import PoppedQueue
from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import Buffer, LogOffset, PutStatus
from turbopump.net.wire.bodies import BadBody, encode_json, load_small_object, read_int32, read_text
from turbopump.net.wire.names import check_lengths, name_member
from turbopump.net.wire.pop_records import MESSAGES_MAX

REFRESH_MS: Final = 20_000
"""Age in ms after which the record of an outstanding batch is written again: a third of the window
of offset_recovery.py."""
REFRESHED_MAX: Final = 64
"""Maximum number of batches that one `rewrite_old` looks at."""


class LoggedBatch(NamedTuple):
    """A record: the batch of a queue that broker `broker_name` wrote at log offset `at`."""

    queue: PoppedQueue
    batch: OrderedBatch
    broker_name: str
    at: LogOffset


class OrderJournal:
    """Writes the outstanding batches of ordered pops to the log, and restores them from it. Loop
    thread only; times are epoch ms."""

    def __init__(
        self, batches: OrderedBatches, log: ReviveLog, revive_queues: int, broker_name: str
    ) -> None:
        self._batches = batches
        self._log = log
        self._revive_queues = revive_queues
        self._broker_name = broker_name
        self._logged_ms: OrderedDict[PoppedQueue, int] = OrderedDict()

    def write(self, queue: PoppedQueue, now_ms: int) -> Deferred[PutStatus]:
        """Append the present batch of the queue to the log now. Resolves with PUT_OK once the
        record is safe, at once for a queue without a batch; else with the status of the failure."""
        batch = self._batches.get(*queue)
        if batch is None:
            return Deferred.resolved(PutStatus.PUT_OK)
        self._logged_ms[queue] = now_ms
        self._logged_ms.move_to_end(queue)
        body = body_of(queue, batch, self._broker_name)
        # All records of a queue are in one queue of the revive topic: the last record is the last
        # state.
        return self._log.add_ordered(queue, body, queue.queue_id % self._revive_queues, now_ms)

    def rewrite_old(self, now_ms: int) -> None:
        """Append the records of outstanding batches again that are older than REFRESH_MS at
        `now_ms`, at most REFRESHED_MAX; results are not awaited."""
        for _ in range(REFRESHED_MAX):
            queue, logged_ms = next(iter(self._logged_ms.items()), (None, now_ms))
            if queue is None or 0 <= now_ms - logged_ms < REFRESH_MS:
                return
            del self._logged_ms[queue]
            if self._batches.blocked_until_ms(*queue, None, now_ms):
                self.write(queue, now_ms)

    def forget_batches(self) -> None:
        """Remove all batches, here and in OrderedBatches, because this broker's role changed: the
        records of another master count, not the local state."""
        self._logged_ms.clear()
        self._batches.clear_all()

    def restore_batch(self, found: LoggedBatch, now_ms: int) -> None:
        """Put the batch of a record into OrderedBatches; its record counts as written at
        `now_ms`."""
        self._batches.restore_batch(*found.queue, found.batch)
        self._logged_ms[found.queue] = now_ms


def body_of(queue: PoppedQueue, batch: OrderedBatch, broker_name: str) -> bytes:
    """Return the body of a record, which `read_record` parses: JSON of the batch with broker,
    group, queue id and topic."""
    members = batch.to_json()
    members |= {"bn": broker_name, "c": queue.group, "q": queue.queue_id, "t": queue.topic}
    if check_lengths(attempt=batch.attempt_id):
        del members["a"]  # too long for a record; no client sends such an id
    return encode_json(members)


def read_record(body: Buffer, at: LogOffset) -> LoggedBatch:
    """Parse the body of a record; `at` is its log offset. Raises BadBody: clients write to the
    topic, too."""
    members: dict[str, Any] = load_small_object(body)
    batch = OrderedBatch.from_json(members)
    if batch is None or len(batch.offsets) > MESSAGES_MAX or batch.offsets != sorted(batch.offsets):
        raise BadBody("the messages of an ordered batch are malformed")
    if batch.offsets[0] < 0 or batch.offsets[-1] >= 1 << 62:
        raise BadBody("the offsets of an ordered batch are out of range")
    topic, group = name_member(members, "t"), name_member(members, "c")
    queue_id = read_int32(members, "q")
    if not topic or not group or queue_id < 0:
        raise BadBody("an ordered batch without a queue")
    queue = PoppedQueue(topic, group, queue_id)
    return LoggedBatch(queue, batch, read_text(members, "bn"), at)
