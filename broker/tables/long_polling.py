"""Held pulls: long polling without threads and without repeated reads.

Owns the held pulls, by queue, by deadline and by connection. It must never read the store or build
an answer: the pull handler's `attempt` does.
"""

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from turbopump.engine.types import QueueOffset
from turbopump.pyx.held import HeldRows

MAX_SUSPEND_MS = 120_000
"""Maximum time that a pull is held, in ms: idle connections are closed after that time anyway.
Clients ask for 15 to 20 s."""
MAX_HOLDS = 200_000
"""Maximum number of held pulls; a further pull is answered at once."""
MAX_SIZE = 192 << 20
"""Maximum estimated bytes of all held pulls; a further pull is answered at once."""
HOLD_SIZE = 900
"""Estimated bytes of a held pull besides its texts: the pull, its request and header, and its table
entries."""
SWEEP_MAX = 250
"""Maximum weight of the attempts of an `attempt_grown`, or of the final attempts of a tick, some
5 ms; the rest follow after other requests. Pulls whose filters refuse everything are attempted at
every arrival, and a peer may hold thousands."""
_SLACK = 1_024  # deadlines of answered pulls that may stay in the heap before it is rebuilt

_ANY_OFFSET = QueueOffset(2**63 - 1)  # above every queue offset

_Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class HeldPull:
    """A pull request that waits for messages at or after `queue_offset`, until `deadline_ms` of the
    monotonic clock. `owner` is its connection. `attempt(hold, final)` reads again and answers and
    returns True, or returns False to stay held (it may then have moved `queue_offset` past messages
    that its filter refused); with `final` it must answer."""

    topic: str
    queue_id: int
    queue_offset: QueueOffset
    deadline_ms: int
    owner: Hashable
    attempt: Callable[["HeldPull", bool], bool]
    size: int = 0
    """Bytes of the texts that the pull refers to."""
    weight: int = 1
    """Cost of an attempt of this pull, in attempts of a pull without a filter expression."""
    waiting: bool = field(default=False, init=False)
    """Whether it is in the table of held pulls."""


class NativePull(NamedTuple):
    """A pull that native code held and leaves to the handler: fields of its request, `deadline_ms`
    of the monotonic clock, and `how` the handler continues: HOLD, ATTEMPT or FINISH of pyx/held.
    `queue_offset` is after the messages that the pull's tags refused."""

    opaque: int
    group: bytes
    topic: bytes
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    sub_version: int
    subscription: bytes | None
    expression_type: bytes | None
    deadline_ms: int
    how: int


class HeldPulls:
    """The held pulls of a broker (long polling), by queue, deadline and connection. Loop thread
    only."""

    def __init__(
        self,
        wake: Callable[[], None],
        watch: Callable[[bool], None],
        max_holds: int = MAX_HOLDS,
        sweep_max: int = SWEEP_MAX,
        rows: HeldRows | None = None,
    ) -> None:
        """`wake` has `attempt_grown` called soon; it is called once for any number of arrivals.
        `watch(True)` is called when the first pull is held, `watch(False)` when none is left:
        arrivals need reports between these calls only. `rows` are the pulls that native code
        holds, with the same limits for both together."""
        self._wake = wake
        self._watch = watch
        self._woken = False
        self._max_holds = max_holds
        self._sweep_max = sweep_max
        self._by_queue: dict[_Key, dict[HeldPull, None]] = {}
        self._by_owner: dict[Hashable, set[HeldPull]] = {}
        self._deadlines: list[tuple[int, int, HeldPull]] = []
        self._sequence = 0
        self._arrived: dict[_Key, QueueOffset] = {}
        self._behind: deque[tuple[Iterator[HeldPull], QueueOffset]] = deque()
        self._ended_ms = -1  # time of the last tick
        self._swept = True  # since the last tick
        self._releasing: list[tuple[int, int, HeldPull]] = []  # entries of _deadlines, last first
        self._rows = rows
        self._count = self._size = 0
        if rows is not None:
            rows.count_max, rows.size_max, rows.row_size = max_holds, MAX_SIZE, HOLD_SIZE

    @property
    def count(self) -> int:
        """Number of held pulls."""
        return self._count + (0 if self._rows is None else self._rows.count)

    @property
    def size(self) -> int:
        """Estimated bytes of all held pulls."""
        return self._size + (0 if self._rows is None else self._rows.size)

    def add(self, hold: HeldPull) -> bool:
        """Hold a pull and return True; False, and nothing changes, beyond `max_holds` pulls or
        MAX_SIZE bytes: the caller answers it."""
        if self.count >= self._max_holds or self.size + HOLD_SIZE + hold.size > MAX_SIZE:
            return False
        self.hold_native(hold)
        return True

    def hold_native(self, hold: HeldPull) -> None:
        """Hold a pull that native code held until now."""
        hold.waiting = True
        self._count_held(1, HOLD_SIZE + hold.size)
        if self._count == 1:
            self._watch(True)
        self._by_queue.setdefault((hold.topic, hold.queue_id), {})[hold] = None
        self._by_owner.setdefault(hold.owner, set()).add(hold)
        self._sequence += 1
        heapq.heappush(self._deadlines, (hold.deadline_ms, self._sequence, hold))
        if len(self._deadlines) > 2 * self._count + _SLACK:
            self._deadlines = [entry for entry in self._deadlines if entry[2].waiting]
            heapq.heapify(self._deadlines)

    def attempt_pull(self, hold: HeldPull, final: bool) -> None:
        """Attempt a pull now; with `final` it is answered."""
        if final:
            self._end_wait(hold)
        elif hold.attempt(hold, False):
            self._remove(hold)

    def on_arrival(self, topic: str, queue_id: int, max_queue_offset: QueueOffset) -> None:
        """Note that a queue now ends at `max_queue_offset` (the offset after its last message).
        Pulls are attempted in a later `attempt_grown`, never here: this runs inside an append."""
        key = (topic, queue_id)
        if key in self._by_queue:
            self._arrived[key] = max_queue_offset
            self._ask_for_sweep()

    def attempt_all(self, topic: str, queue_id: int) -> None:
        """Have the next `attempt_grown` attempt all pulls of the queue, whatever their offsets,
        because an offset was reset. The pulls that native code holds are attempted in portions,
        after that."""
        if self._rows is not None:
            self._rows.leave(topic.encode(), queue_id)
        self.on_arrival(topic, queue_id, _ANY_OFFSET)

    def attempt_grown(self) -> None:
        """Answer pulls of `release_all` and pulls whose time ended, then attempt the pulls whose
        queue has grown beyond their offset, all up to the weight `sweep_max`; if some are left,
        `wake` is called.

        Later arrivals wait until all of these pulls have been attempted.
        """
        self._woken, self._swept = False, True
        weight = self._finish_some()
        if not self._behind:
            arrived, self._arrived = self._arrived, {}
            for key, max_queue_offset in arrived.items():
                holds = list(self._by_queue.get(key, ()))
                self._behind.append((iter(holds), max_queue_offset))
        while self._behind and weight < self._sweep_max:
            rest, max_queue_offset = self._behind[0]
            hold = next(rest, None)
            if hold is None:
                self._behind.popleft()
                continue
            weight += hold.weight
            grown = hold.waiting and hold.queue_offset < max_queue_offset
            if grown and hold.attempt(hold, False):
                self._remove(hold)
        if self._behind or self._arrived or self._must_finish():
            self._ask_for_sweep()

    def tick(self, now_ms: int) -> None:
        """Answer, by a final attempt, the pulls with a deadline at or before `now_ms` (monotonic
        clock); if there are many, a part follows later."""
        if self._rows is not None:
            self._rows.tick(now_ms)
        if not self._swept:
            self._woken = False  # the loop drops the call while another thread uses the store
        self._swept, self._ended_ms = False, now_ms
        self._finish_some()
        if self._behind or self._arrived or self._must_finish():
            self._ask_for_sweep()

    def drop_pulls(self, owner: Hashable) -> None:
        """Remove the pulls of a closed connection without an answer."""
        for hold in list(self._by_owner.get(owner, ())):
            self._remove(hold)

    def release_all(self) -> None:
        """Have all present pulls answered, by a final attempt each, because the broker stops or its
        role has changed: in portions, by sweeps or by calls of `release_some`. Pulls that are held
        from now on stay."""
        if self._rows is not None:
            self._rows.finish_all()
        self._releasing = self._deadlines[::-1]
        if self._releasing:
            self._ask_for_sweep()

    def release_some(self) -> bool:
        """Answer a portion of the pulls of `release_all` now; returns whether some are left."""
        if self._rows is not None:
            self._rows.hand_over_some()
        self._finish_some()
        return bool(self._releasing) or (self._rows is not None and self._rows.has_leaving)

    def _finish_some(self) -> int:
        """Answer pulls of `release_all` and pulls whose time ended before the last tick, up to the
        weight `sweep_max`; returns their weight."""
        weight = 0
        while weight < self._sweep_max:
            if self._releasing:
                hold = self._releasing.pop()[2]
            elif self._deadlines and self._deadlines[0][0] <= self._ended_ms:
                hold = heapq.heappop(self._deadlines)[2]
            else:
                break
            weight += hold.weight
            if hold.waiting:
                self._end_wait(hold)
        return weight

    def _must_finish(self) -> bool:
        """Whether a pull is left for `_finish_some`."""
        return bool(self._releasing) or (
            bool(self._deadlines) and self._deadlines[0][0] <= self._ended_ms
        )

    def _ask_for_sweep(self) -> None:
        """Have `attempt_grown` called soon, unless that is requested already."""
        if not self._woken:
            self._woken = True
            self._wake()

    def _count_held(self, count: int, size: int) -> None:
        self._count += count
        self._size += size
        if self._rows is not None:
            self._rows.others_count, self._rows.others_size = self._count, self._size

    def _end_wait(self, hold: HeldPull) -> None:
        """Answer a pull by a final attempt, and remove it."""
        answered = hold.attempt(hold, True)
        assert answered, "a final attempt must answer"
        self._remove(hold)

    def _remove(self, hold: HeldPull) -> None:
        """Remove a pull from all indexes, if it is still held."""
        if not hold.waiting:
            return  # the attempt closed its own connection, which dropped the pull
        hold.waiting = False
        self._count_held(-1, -HOLD_SIZE - hold.size)
        if self._count == 0:
            self._watch(False)
        key = (hold.topic, hold.queue_id)
        del self._by_queue[key][hold]
        if not self._by_queue[key]:
            del self._by_queue[key]
        self._by_owner[hold.owner].discard(hold)
        if not self._by_owner[hold.owner]:
            del self._by_owner[hold.owner]
