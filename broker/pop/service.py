"""The pop service of a broker: its parts, their ticks, and the effect of a change of role.

Owns the timing of pop: revival on a master or on a replica that acts for it, pops that wait for an
ordered queue to become free, and the saving of ordered batches. The work itself is done by the
parts.

    not serving --master, or acting replica--> recovering --done--> serving
         ^                                         |                   |
         '---------- role lost, or acting replica becomes master ------'

Tests: tests/unit/broker/pop/test_revive.py, tests/unit/broker/handlers/pop/test_pops.py
"""

import heapq
import logging
from collections.abc import Callable, Iterator
from typing import Final

from turbopump.broker.pop.ack_batcher import AckBatcher
from turbopump.broker.pop.ack_watermark import AckWatermark
from turbopump.broker.pop.acting_journal import ActingJournal
from turbopump.broker.pop.acting_journal_replay import ActingJournalReplay
from turbopump.broker.pop.changes import ChangedHandles
from turbopump.broker.pop.in_flight import InFlight
from turbopump.broker.pop.lives import Lives
from turbopump.broker.pop.order_info import OrderedBatches
from turbopump.broker.pop.order_journal import OrderJournal
from turbopump.broker.pop.outstanding import OutstandingPops
from turbopump.broker.pop.popping import Popping
from turbopump.broker.pop.retries import RetryNames
from turbopump.broker.pop.revive import READ_MAX, WRITES_MAX, ReviveQueue
from turbopump.broker.pop.revive_escape import PopEscape
from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.broker.pop.waiters import PopWaiters
from turbopump.broker.tables.consumer_lag import UnackedPops
from turbopump.broker.traffic.role import Role
from turbopump.engine.types import PutStatus
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.wire.pop_handles import RetryKind
from turbopump.pyx.pops import PopTurns

logger = logging.getLogger(__name__)

WAKES_MAX: Final = 100_000
"""Maximum number of wake times kept for ordered queues; pops of further queues wait until their
deadline."""


class PopService:
    """The pop of a broker, with its parts as public attributes. Loop thread only. `now_ms` returns
    epoch ms, and all times are of that clock; `recover` moves offsets past the messages that were
    handed out before this broker served."""

    def __init__(
        self,
        *,
        popping: Popping,
        retry_names: RetryNames,
        turns: PopTurns,
        waiters: PopWaiters,
        orders: OrderedBatches,
        order_journal: OrderJournal,
        outstanding: OutstandingPops,
        in_flight: InFlight,
        changes: ChangedHandles,
        lives: Lives,
        log: ReviveLog,
        acks: AckBatcher,
        queue_of: Callable[[int], ReviveQueue],
        role: Role,
        now_ms: Callable[[], int],
        settled: AckWatermark,
        recover: Callable[[], Iterator[bool]],
        escaping: PopEscape,
        notes: ActingJournal,
        drain: ActingJournalReplay,
    ) -> None:
        self.others_first: Callable[[], bool] = lambda: False
        """Returns whether replicas must be asked before a master revives anything: a replica may
        have acted while the master was down, and received acknowledgements. Set by the assembly."""
        self.popping = popping
        self.retry_names = retry_names
        self.turns = turns
        self.waiters = waiters
        self.orders = orders
        self.order_journal = order_journal
        self.outstanding = outstanding
        self.lives = lives
        self.log = log
        self.acks = acks
        self.queues: list[ReviveQueue] = []
        """The revive queues by queue id, as many as the last `step` found."""
        self._queue_of = queue_of
        self.now_ms = now_ms
        self.escaping = escaping
        self.notes = notes
        self._drain = drain
        self.in_flight = in_flight
        self.changes = changes
        self.refused_count = 0
        """Number of pops that returned nothing because the store did not take their check points,
        since the start."""
        self._refuses = False
        self._role = role
        self._settled = settled
        self._recover = recover
        self._recovery: Iterator[bool] | None = None
        self._waits = False
        self._wakes: list[tuple[int, str, int]] = []
        self._known_wakes: set[tuple[int, str, int]] = set()
        self._led = self._acted = False
        self._first = 0
        self._held_ms: int | None = None
        """Time of the last step with notes on their way into the log; None once the revive queues
        contain them, so that they are read first."""

    def retry_topics(self, topic: str, group: str) -> tuple[str, ...]:
        """Return the names of the retry topics of version 1 and 2, in this order, that a pop of the
        topic also reads, whether they exist or not."""
        kinds = (RetryKind.RETRY_V1, RetryKind.RETRY_V2)
        return tuple(kind.topic_of(topic, group) for kind in kinds)

    def forget_topic(self, topic: str) -> None:
        """Drop the pending hand-outs of a deleted topic without a commit, and all ordered batches
        of former lives: they must not count for a new topic of that name. Call it for its retry
        topics, too."""
        self.outstanding.forget_name(topic=topic)
        self.orders.end_former(self.lives.is_former)

    def forget_group(self, group: str) -> None:
        """Drop the pending hand-outs of a group deleted with its offsets, and all ordered batches
        of former lives."""
        self.outstanding.forget_name(group=group)
        self.orders.end_former(self.lives.is_former)

    def wake_at(self, topic: str, queue_id: int, at_ms: int) -> None:
        """Make a `step` at or after `at_ms` (epoch ms) wake a pop that waits for the queue: its
        outstanding batch ends then. The same time for the same queue is kept once; beyond WAKES_MAX
        the call is ignored."""
        wake = at_ms, topic, queue_id
        if len(self._wakes) < WAKES_MAX and wake not in self._known_wakes:
            self._known_wakes.add(wake)
            heapq.heappush(self._wakes, wake)

    def store_refused(self, status: PutStatus) -> None:
        """Count a pop that returned nothing because the store did not take its check points (full
        disk, late replica). Logged for the first pop after `store_took`."""
        self.refused_count += 1
        if not self._refuses:
            self._refuses = True
            logger.warning(
                "pops return no messages: the store does not accept their check points (%s)",
                status.value,
            )

    def store_took(self) -> None:
        """Note that a pop returned messages; log the recovery after refusals."""
        if self._refuses:
            self._refuses = False
            logger.info(
                "pops return messages again, %d were refused since the start", self.refused_count
            )

    @property
    def is_acting(self) -> bool:
        """Whether this broker is a replica that pops for its missing master."""
        return self.notes.in_use

    @property
    def _is_serving(self) -> bool:
        """Whether this broker serves pops: as the master, or as an acting replica."""
        return self._role.is_master or self.is_acting

    def step(self, now_ms: int) -> bool:
        """Do a part of the work of this role: recovery, then revival and wake-ups on a master;
        sending unacknowledged messages to other masters on an acting replica. Returns whether to
        call again at once."""
        if self._led and (not self._is_serving or self._acted != self.is_acting):
            self._end_serving()
        while len(self.queues) < self.log.queue_count():
            self.queues.append(self._queue_of(len(self.queues)))
        if not self._role.is_master:
            self._drain.stop()
            self._held_ms = None
            for queue in self.queues:
                queue.remember_end()
            if self.is_acting:
                # so that acknowledgements are noted before due messages are sent away
                self.acks.write_collected()
                self._recover_step()
            return self.escaping.step(now_ms)
        self.escaping.stop()
        holds = self._must_wait(now_ms)
        if not self._recover_step():
            return not self._waits
        while self._wakes and self._wakes[0][0] <= now_ms:
            wake = heapq.heappop(self._wakes)
            self._known_wakes.discard(wake)
            self.waiters.on_arrival(*wake[1:])
        # acknowledgements received before must be in the log before messages are revived
        self.acks.write_collected()
        self.order_journal.rewrite_old(now_ms)
        settled_ms = self._settled.take_sample(now_ms)
        if self._held_ms is not None and not holds and settled_ms >= self._held_ms:
            self._held_ms = None
            for queue in self.queues:
                queue.read_first()
        holds = holds or self._held_ms is not None
        more, room, writes = False, READ_MAX, WRITES_MAX
        for number in range(len(self.queues)):
            queue = self.queues[(self._first + number) % len(self.queues)]
            read, written = queue.step(now_ms, settled_ms, room, writes, holds=holds)
            more, room, writes = more or read == room, room - read, writes - written
        self._first += 1  # rotate, so that each queue gets its turn when all of them are late
        return more or writes <= 0

    def unacked_pops(self, topic: str, group: str) -> UnackedPops:
        """Return the counts of messages of that topic name (a retry topic is another) that the
        group has popped and not acknowledged, at present."""
        now_ms = self.now_ms()
        found = self.in_flight.count_of(group, topic, now_ms)
        ordered = self.orders.unacknowledged_count(topic, group, now_ms)
        return UnackedPops(max(found.messages, ordered), ordered, found.oldest)

    def behind_ms(self, now_ms: int) -> int:
        """Return how late revival is at `now_ms`, in ms, in the latest revive queue; 0 if nothing
        is late."""
        return max((queue.behind_ms(now_ms) for queue in self.queues), default=0)

    @property
    def is_ready(self) -> bool:
        """Whether no recovery is in progress. It is also True before the first recovery begins;
        `ready` starts and completes it."""
        return self._recovery is None

    def ensure_recovered(self) -> Steps[bool]:
        """Run the recovery before a pop, in steps. The generator returns False if the recovery
        cannot go on now, because records of earlier hand-outs are not confirmed or notes of
        replicas are not in the log: nothing may be popped. It returns True once the recovery is
        complete, and at once on a broker that does not serve."""
        while self._is_serving and not self._recover_step():
            if self._waits:
                return False
            yield
        return True

    def _must_wait(self, now_ms: int) -> bool:
        """Whether revival must wait, because replicas may hold acknowledgements that this log
        lacks."""
        if len(self.notes):
            self._held_ms = now_ms
        return not self._drain.step(now_ms) or self.others_first()

    def _recover_step(self) -> bool:
        """Run one step of the recovery of earlier hand-outs; return whether the recovery is
        complete."""
        if not self._led:
            if self._role.is_master and len(self.notes):
                self._waits = True  # the notes of replicas must be in the log first
                return False
            self._led, self._acted, self._recovery = True, self.is_acting, self._recover()
        if self._recovery is None:
            return True
        waits = next(self._recovery, None)
        self._waits = bool(waits)
        if waits is None:
            self._recovery = None
            self.waiters.release_all()  # their clients ask again, now that recovery is complete
        return waits is None

    def _end_serving(self) -> None:
        """Clear the state of serving, because this broker is no longer the master, or this replica
        no longer acts or became the master."""
        self._led, self._recovery = False, None
        self._settled.drop_samples()
        self._wakes.clear()
        self._known_wakes.clear()
        self.outstanding.forget_all()
        self.order_journal.forget_batches()
        self.waiters.release_all()
        for queue in self.queues:
            queue.forget_state()
