"""Pop in one value: its parts, their ticks and what a change of role means to them.

Owns the timing of pop: revival, also that of a replica that acts, waits for queues that come free,
the saving of ordered batches. It must never do what its parts do. Made by broker/parts.py; called
by the handlers and the tick.
"""

import heapq
import logging
from collections.abc import Callable, Iterator
from typing import Final

from turbopump.broker.pop.changes import ChangedHandles
from turbopump.broker.pop.hand_outs import HandOuts
from turbopump.broker.pop.in_flight import InFlight
from turbopump.broker.pop.joined_acks import JoinedAcks
from turbopump.broker.pop.lives import Lives
from turbopump.broker.pop.notes import PopNotes
from turbopump.broker.pop.notes_drain import NotesDrain
from turbopump.broker.pop.order_info import OrderedBatches
from turbopump.broker.pop.ordered_log import OrderedLog
from turbopump.broker.pop.popping import Popping
from turbopump.broker.pop.retries import RetryNames
from turbopump.broker.pop.revive import READ_MAX, WRITES_MAX, ReviveQueue
from turbopump.broker.pop.revive_escape import PopEscape
from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.broker.pop.settled_time import SettledTime
from turbopump.broker.pop.waiters import PopWaiters
from turbopump.broker.tables.lags import Held
from turbopump.broker.traffic.role import Role
from turbopump.engine.types import PutStatus
from turbopump.net.transport.turns import Steps
from turbopump.net.wire.pop_handles import RetryKind
from turbopump.pyx.pops import PopTurns

logger = logging.getLogger(__name__)

WAKES_MAX: Final = 100_000
"""Times at which ordered queues come free that are remembered; more are found by the next poll."""


class PopService:
    """The pop of a broker. Loop thread only. `now_ms` is the wall clock; `recover` sets offsets
    behind what was handed out before this broker led."""

    def __init__(
        self,
        *,
        popping: Popping,
        retry_names: RetryNames,
        turns: PopTurns,
        waiters: PopWaiters,
        orders: OrderedBatches,
        ordered_log: OrderedLog,
        hand_outs: HandOuts,
        lives: Lives,
        log: ReviveLog,
        acks: JoinedAcks,
        queue_of: Callable[[int], ReviveQueue],
        role: Role,
        now_ms: Callable[[], int],
        settled: SettledTime,
        recover: Callable[[], Iterator[bool]],
        escaping: PopEscape,
        notes: PopNotes,
        drain: NotesDrain,
        is_elected: bool,
    ) -> None:
        self.others_first: Callable[[], bool] = lambda: False
        """Whether replicas are to be asked before a master revives anything: while it stood still
        one may have acted, and heard acknowledgements."""
        self.popping = popping
        self.retry_names = retry_names
        self.turns = turns
        self.waiters = waiters
        self.orders = orders
        self.ordered_log = ordered_log
        self.hand_outs = hand_outs
        self.lives = lives
        self.log = log
        self.acks = acks
        self.queues: list[ReviveQueue] = []
        self._queue_of = queue_of
        self.now_ms = now_ms
        self.escaping = escaping
        self.notes = notes
        self._drain = drain
        self._is_elected = is_elected
        self.in_flight = InFlight()
        self.changes = ChangedHandles()
        self.refused_count = 0
        """Pops that got nothing because the store did not take their check points."""
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
        """When the last notes came into the log that are not read yet; None: all are."""

    def retry_topics(self, topic: str, group: str) -> tuple[str, ...]:
        """Topics that a pop of the topic reads besides, whether they are there yet or not."""
        kinds = (RetryKind.RETRY_V1, RetryKind.RETRY_V2)
        return tuple(kind.topic_of(topic, group) for kind in kinds)

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: nothing that was handed out of it counts in its next life."""
        self.hand_outs.forget_name(topic=topic)
        self.orders.end_former(self.lives.is_former)

    def forget_group(self, group: str) -> None:
        """The group was deleted with its offsets: as `forget_topic`."""
        self.hand_outs.forget_name(group=group)
        self.orders.end_former(self.lives.is_former)

    def wake_at(self, topic: str, queue_id: int, at_ms: int) -> None:
        """Attempt the pops that wait for the queue at that time: the batch that is out of it ends
        then. Each waiting pop asks for the same time; it is kept once."""
        wake = at_ms, topic, queue_id
        if len(self._wakes) < WAKES_MAX and wake not in self._known_wakes:
            self._known_wakes.add(wake)
            heapq.heappush(self._wakes, wake)

    def store_refused(self, status: PutStatus) -> None:
        """A pop got nothing: the store did not take its check points (a full disk, a replica that
        is late). Logged once, until `store_took`."""
        self.refused_count += 1
        if not self._refuses:
            self._refuses = True
            logger.warning("pops get nothing: the store takes no check points (%s)", status.value)

    def store_took(self) -> None:
        """A pop got messages."""
        if self._refuses:
            self._refuses = False
            logger.info("pops get messages again, %d got none so far", self.refused_count)

    @property
    def acts(self) -> bool:
        """Whether this replica pops for its master, which is gone: one that takes over what was
        noted meanwhile. Where controllers elect, another master is there soon."""
        role = self._role
        is_one = role.is_acting and not role.is_master and not self._is_elected
        return is_one and self.notes.master_takes

    @property
    def _serves(self) -> bool:
        return self._role.is_master or self.acts

    def step(self, now_ms: int) -> bool:
        """Revive what is due and wake what waits for that time; True if there may be more at
        once."""
        if self._led and (not self._serves or self._acted != self.acts):
            self._stop()
        while len(self.queues) < self.log.queue_count():
            self.queues.append(self._queue_of(len(self.queues)))
        if not self._role.is_master:
            self._drain.stop()
            self._held_ms = None
            for queue in self.queues:
                queue.bound()
            if self.acts:
                self.acks.flush()  # before what is due leaves
                self._is_ready()
            return self.escaping.step(now_ms)
        self.escaping.stop()
        holds = self._holds(now_ms)
        if not self._is_ready():
            return not self._waits
        while self._wakes and self._wakes[0][0] <= now_ms:
            wake = heapq.heappop(self._wakes)
            self._known_wakes.discard(wake)
            self.waiters.arrived(*wake[1:])
        self.acks.flush()  # what came by now is in the log
        self.ordered_log.refresh(now_ms)
        settled_ms = self._settled.step(now_ms)
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
        self._first += 1  # each queue has its turn when all are behind
        return more or writes <= 0

    def held(self, topic: str, group: str) -> Held:
        """What the group has popped of the topic and not handled."""
        now_ms = self.now_ms()
        found = self.in_flight.of(group, topic, now_ms)
        ordered = self.orders.out_count(topic, group, now_ms)
        return Held(max(found.messages, ordered), ordered, found.oldest)

    def behind_ms(self, now_ms: int) -> int:
        """How late revival is."""
        return max((queue.behind_ms(now_ms) for queue in self.queues), default=0)

    @property
    def is_ready(self) -> bool:
        """Whether it is known what was handed out before, so that more can be."""
        return self._recovery is None

    def ready(self) -> Steps[bool]:
        """Of one that pops: its first ones wait, in steps, until it knows what was handed out
        before. False where records of that are not confirmed yet: nothing is popped for now."""
        while self._serves and not self._is_ready():
            if self._waits:
                return False
            yield
        return True

    def _holds(self, now_ms: int) -> bool:
        """Whether nothing is to be revived for now: replicas know more than this log."""
        if len(self.notes):
            self._held_ms = now_ms
        return not self._drain.step(now_ms) or self.others_first()

    def _is_ready(self) -> bool:
        """A step of the look at what was handed out; whether it is over."""
        if not self._led:
            if self._role.is_master and len(self.notes):
                self._waits = True  # what replicas gave out is to be in the log first
                return False
            self._led, self._acted, self._recovery = True, self.acts, self._recover()
        if self._recovery is None:
            return True
        waits = next(self._recovery, None)
        self._waits = bool(waits)
        if waits is None:
            self._recovery = None
            self.waiters.release_all()  # they waited for this; their clients ask again
        return waits is None

    def _stop(self) -> None:
        """This broker is the master no more: another one hands out and revives. Or a replica acts
        no more, or is the master from now on."""
        self._led, self._recovery = False, None
        self._settled.forget()
        self._wakes.clear()
        self._known_wakes.clear()
        self.hand_outs.forget_all()
        self.ordered_log.forget()
        self.waiters.release_all()
        for queue in self.queues:
            queue.forget()
