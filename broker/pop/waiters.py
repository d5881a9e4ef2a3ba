"""Pops that wait for a message: long polling of any queue, or of a queue.

Owns the waiting pops, by topic and group, by deadline and by connection. Popping itself is done by
the handler's `attempt`.

An arrival wakes one waiter of each group, because a message has one consumer in a group (RocketMQ:
PopLongPollingService). Requests that only ask whether there is a message are all woken.
"""

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

MAX_OF_GROUP: Final = 1_024
"""Maximum number of waiting pops of a topic, group and queue (popPollingSize)."""
MAX_WAITING: Final = 100_000
"""Maximum number of all waiting pops (maxPopPollingSize)."""
MAX_SIZE: Final = 128 << 20
"""Maximum size of all waiting pops in memory, in bytes; beyond it a pop is answered at once."""
WAITER_SIZE: Final = 1_200
"""Assumed size of a waiting pop in memory, in bytes, besides its texts."""
SWEEP_MAX: Final = 500
"""Maximum number of attempts in a call of `wake_waiters`, some 20 ms; the rest follow after other
requests had their turn."""
ENDS_MAX: Final = 250
"""Maximum number of waits that a call of `wake_waiters`, `tick` or `release_some` ends, some 5 ms;
the rest follow after other requests."""
READS_ON_MAX: Final = 2
"""Maximum number of attempts in a call of `wake_waiters` that found nothing within the maximum that
one read examines, some ms each with an SQL92 expression."""
_SLACK: Final = 1_024  # deadlines of answered pops that may stay in the heap before it is rebuilt

Arrived = tuple[str, int]
"""(topic, queue id)."""


class WaiterAdded(Enum):
    """Result of `PopWaiters.add`."""

    WAITS = auto()
    """The pop waits; its `attempt` answers it later."""
    FULL = auto()
    """A limit is reached: the caller answers the pop."""


@dataclass(slots=True, eq=False)
class PopWaiter:
    """A waiting pop. `topics` are the topics that it reads: its own first, then retry topics.
    `queue_id` is -1 for any queue; in a retry topic a pop waits for any queue. `deadline_ms` is of
    the monotonic clock; `owner` is its connection; `size` is that of its texts in bytes.

    `attempt(arrived)` pops again and returns whether the waiter was answered; with None the wait
    has ended, and it must answer and return True. `only_asks`: it pops nothing, so an arrival wakes
    other waiters besides. `waiting` is kept by PopWaiters.
    """

    topics: tuple[str, ...]
    group: str
    queue_id: int
    deadline_ms: int
    owner: Hashable
    attempt: Callable[[Arrived | None], bool]
    size: int = 0
    only_asks: bool = False
    waiting: bool = field(default=False, init=False)


_Key = tuple[str, str, int]


class PopWaiters:
    """The waiting pops of a broker. Loop thread only. Wakes one pop of each group for an arrival,
    and every waiter that only asks."""

    def __init__(self, wake: Callable[[], None], watch: Callable[[bool], None]) -> None:
        """`wake` has `wake_waiters` called soon; `watch` is called with True when the first pop
        begins to wait, with False when the last one leaves."""
        self._wake = wake
        self._watch = watch
        self._woken = False
        self._by_key: dict[_Key, dict[PopWaiter, None]] = {}
        self._groups: dict[str, dict[str, int]] = {}
        """Topic to group to number of waiting pops; an arrival looks here first."""
        self._by_owner: dict[Hashable, set[PopWaiter]] = {}
        self._deadlines: list[tuple[int, int, PopWaiter]] = []
        self._sequence = 0
        self._arrived: dict[Arrived, None] = {}
        self._behind: deque[tuple[PopWaiter, Arrived]] = deque()
        self._ended_ms = -1  # time of the last tick
        self._ran = True  # `wake_waiters`, since the last tick
        self._releasing: list[tuple[int, int, PopWaiter]] = []  # entries of _deadlines, last first
        self.count = 0
        """Number of waiting pops."""
        self.size = 0
        """Approximate size of all waiting pops in memory, in bytes."""

    def add(self, waiter: PopWaiter) -> WaiterAdded:
        """Let a pop wait until it is answered or dropped, and return WAITS. If a limit is reached,
        return FULL: nothing is kept, and the caller answers."""
        size = WAITER_SIZE + waiter.size
        key = self._arrival_key(waiter, waiter.topics[0])
        if (
            self.count >= MAX_WAITING
            or self.size + size > MAX_SIZE
            or len(self._by_key.get(key, ())) >= MAX_OF_GROUP
        ):
            return WaiterAdded.FULL
        waiter.waiting = True
        self.count += 1
        self.size += size
        if self.count == 1:
            self._watch(True)
        for topic in waiter.topics:
            self._by_key.setdefault(self._arrival_key(waiter, topic), {})[waiter] = None
            groups = self._groups.setdefault(topic, {})
            groups[waiter.group] = groups.get(waiter.group, 0) + 1
        self._by_owner.setdefault(waiter.owner, set()).add(waiter)
        self._sequence += 1
        heapq.heappush(self._deadlines, (waiter.deadline_ms, self._sequence, waiter))
        if len(self._deadlines) > 2 * self.count + _SLACK:
            self._deadlines = [entry for entry in self._deadlines if entry[2].waiting]
            heapq.heapify(self._deadlines)
        return WaiterAdded.WAITS

    def number_of(self, topic: str, group: str, queue_id: int) -> int:
        """Return the number of pops that wait for exactly this queue id; -1: pops for any queue
        (POLLING_INFO)."""
        return len(self._by_key.get((topic, group, queue_id), ()))

    def on_arrival(self, topic: str, queue_id: int) -> None:
        """Note that a queue has grown or may be popped again; the next `wake_waiters` wakes a
        waiter. Nothing is answered here, because this runs inside an append."""
        if topic in self._groups:
            self._arrived[topic, queue_id] = None
            self._ask_to_wake()

    def wake_waiters(self) -> None:
        """End waits of `release_all` and waits whose time ended, at most ENDS_MAX, then call
        `attempt` of the waiters that arrivals wake, at most SWEEP_MAX; `wake` is called again if
        some are left."""
        self._woken, self._ran = False, True
        self._end_some()
        if not self._behind:
            arrived, self._arrived = self._arrived, {}
            for one in arrived:
                for group in list(self._groups.get(one[0], ())):
                    self._choose_waiters(group, one)
        reads_on = 0
        for _ in range(min(SWEEP_MAX, len(self._behind))):
            if reads_on >= READS_ON_MAX:
                break
            waiter, one = self._behind.popleft()
            known = len(self._arrived)
            if waiter.waiting and waiter.attempt(one):
                self._remove(waiter)
            elif not waiter.waiting:
                # the client is gone: wake another waiter for the message
                self._choose_waiters(waiter.group, one)
            reads_on += len(self._arrived) > known
        self._go_on()

    def tick(self, now_ms: int) -> None:
        """End the wait of pops whose deadline has passed at `now_ms`, a time of the monotonic
        clock: `attempt(None)` answers them; if there are many, a part follows later."""
        if not self._ran:
            self._woken = False  # the loop drops the call while another thread uses the store
        self._ran, self._ended_ms = False, now_ms
        self._end_some()
        self._go_on()

    def drop_waiters(self, owner: Hashable) -> None:
        """Forget the waiting pops of `owner`, whose connection closed, without an attempt or an
        answer."""
        for waiter in list(self._by_owner.get(owner, ())):
            self._remove(waiter)

    def release_all(self) -> None:
        """Have the waits of all present pops ended by `attempt(None)`, because the broker stops, or
        is no longer the master: in portions, by `wake_waiters` or by calls of `release_some`."""
        self._releasing = self._deadlines[::-1]
        self._go_on()

    def release_some(self) -> bool:
        """End a portion of the waits of `release_all` now; returns whether some are left."""
        self._end_some()
        return bool(self._releasing)

    def _end_some(self) -> None:
        """End waits of `release_all` and waits whose time ended before the last tick, at most
        ENDS_MAX."""
        for _ in range(ENDS_MAX):
            if self._releasing:
                waiter = self._releasing.pop()[2]
            elif self._deadlines and self._deadlines[0][0] <= self._ended_ms:
                waiter = heapq.heappop(self._deadlines)[2]
            else:
                return
            if waiter.waiting:
                self._end_wait(waiter)

    def _go_on(self) -> None:
        """Have `wake_waiters` called again if there is work for it."""
        is_due = self._deadlines and self._deadlines[0][0] <= self._ended_ms
        if self._behind or self._arrived or self._releasing or is_due:
            self._ask_to_wake()

    def _choose_waiters(self, group: str, arrived: Arrived) -> None:
        """Choose the waiters of a group that an arrival wakes: the first pop, and all that only
        ask."""
        topic, queue_id = arrived
        popped = False
        for key in ((topic, group, -1), (topic, group, queue_id)):
            for waiter in self._by_key.get(key, ()):
                if waiter.only_asks:
                    self._behind.append((waiter, arrived))
                elif not popped:
                    popped = True
                    self._behind.append((waiter, arrived))

    @staticmethod
    def _arrival_key(waiter: PopWaiter, topic: str) -> _Key:
        """The key under which the waiter waits for arrivals in `topic`: topic, group and queue
        id."""
        # in a retry topic a pop waits for any queue
        return topic, waiter.group, waiter.queue_id if topic == waiter.topics[0] else -1

    def _ask_to_wake(self) -> None:
        """Have `wake_waiters` called soon, unless that is requested already."""
        if not self._woken:
            self._woken = True
            self._wake()

    def _end_wait(self, waiter: PopWaiter) -> None:
        """End the wait of a pop by a last attempt, which answers it."""
        answered = waiter.attempt(None)
        assert answered, "a final attempt must answer"
        self._remove(waiter)

    def _remove(self, waiter: PopWaiter) -> None:
        """Remove a waiter from all indexes, if it waits."""
        if not waiter.waiting:
            return
        waiter.waiting = False
        self.count -= 1
        self.size -= WAITER_SIZE + waiter.size
        if self.count == 0:
            self._watch(False)
        for topic in waiter.topics:
            self._forget_key(self._arrival_key(waiter, topic), waiter)
        owned = self._by_owner[waiter.owner]
        owned.discard(waiter)
        if not owned:
            del self._by_owner[waiter.owner]

    def _forget_key(self, key: _Key, waiter: PopWaiter) -> None:
        """Remove a waiter from the index of one key."""
        waiters = self._by_key[key]
        del waiters[waiter]
        if not waiters:
            del self._by_key[key]
        groups = self._groups[key[0]]
        groups[waiter.group] -= 1
        if not groups[waiter.group]:
            del groups[waiter.group]
        if not groups:
            del self._groups[key[0]]
