"""Pulls that wait for a message: long polling without a thread and without polling.

Owns the waiting pulls, by queue, by deadline and by connection. It must never read the store or
build an answer: the pull handler's `attempt` does. Called by handlers/pull.py (add), the store
(arrived), and node.py (sweep, tick, drop).
"""

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from turbopump.engine.types import QueueOffset

MAX_HOLDS = 200_000
"""All waiting pulls; one more is answered at once."""
MAX_SIZE = 192 << 20
"""Bytes of all waiting pulls; one more is answered at once."""
HOLD_SIZE = 900
"""Bytes of one besides its texts: the pull, its request and header, and where they are held."""
SWEEP_MAX = 1_000
"""Attempts of one sweep, some 20 ms; the rest follow when other requests have had their turn. Pulls
whose filters refuse everything are attempted at every arrival, and a peer may hold thousands."""
_SLACK = 1_024  # deadlines of answered pulls that may stay in the heap before it is rebuilt

_ANY_OFFSET = QueueOffset(2**63 - 1)  # above every queue offset

_Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class Hold:
    """One waiting pull; `deadline_ms` is of the clock that `PullHolds.tick` is given.

    `attempt(hold, final)` reads again and answers, or returns False to go on waiting (it may then
    have moved `queue_offset` on over messages that its filter refused); with `final` it must
    answer.
    """

    topic: str
    queue_id: int
    queue_offset: QueueOffset
    deadline_ms: int
    owner: Hashable
    attempt: Callable[["Hold", bool], bool]
    size: int = 0
    """Bytes of the texts that the pull keeps."""
    weight: int = 1
    """Ordinary attempts that one of this pull is worth."""
    waiting: bool = field(default=False, init=False)


class PullHolds:
    """The waiting pulls of a broker. Loop thread only.

    `wake` asks the shell for a `sweep` soon; it is called once for any number of arrivals.
    """

    def __init__(
        self,
        wake: Callable[[], None] = lambda: None,
        max_holds: int = MAX_HOLDS,
        sweep_max: int = SWEEP_MAX,
    ) -> None:
        self._wake = wake
        self._woken = False
        self._max_holds = max_holds
        self._sweep_max = sweep_max
        self._by_queue: dict[_Key, dict[Hold, None]] = {}
        self._by_owner: dict[Hashable, set[Hold]] = {}
        self._deadlines: list[tuple[int, int, Hold]] = []
        self._sequence = 0
        self._arrived: dict[_Key, QueueOffset] = {}
        self._behind: deque[tuple[Hold, QueueOffset]] = deque()
        self.count = 0
        self.size = 0
        """Bytes of all waiting pulls."""
        self.watch: Callable[[bool], None] = lambda watched: None
        """Called when the first pull begins to wait, and when none does any more."""

    def add(self, hold: Hold) -> bool:
        """Let a pull wait; False if there are too many already."""
        if self.count >= self._max_holds or self.size + HOLD_SIZE + hold.size > MAX_SIZE:
            return False
        hold.waiting = True
        self.count += 1
        self.size += HOLD_SIZE + hold.size
        if self.count == 1:
            self.watch(True)
        self._by_queue.setdefault((hold.topic, hold.queue_id), {})[hold] = None
        self._by_owner.setdefault(hold.owner, set()).add(hold)
        self._sequence += 1
        heapq.heappush(self._deadlines, (hold.deadline_ms, self._sequence, hold))
        if len(self._deadlines) > 2 * self.count + _SLACK:
            self._deadlines = [entry for entry in self._deadlines if entry[2].waiting]
            heapq.heapify(self._deadlines)
        return True

    def arrived(self, topic: str, queue_id: int, max_queue_offset: QueueOffset) -> None:
        """A queue has grown. Nothing is answered here: this runs inside an append."""
        key = (topic, queue_id)
        if key in self._by_queue:
            self._arrived[key] = max_queue_offset
            self._ask_for_sweep()

    def touch(self, topic: str, queue_id: int) -> None:
        """Attempt the queue's pulls soon, whatever they wait for (an offset was reset)."""
        self.arrived(topic, queue_id, _ANY_OFFSET)

    def sweep(self) -> None:
        """Attempt the pulls whose queue has grown beyond them; `wake` is called if some are left.

        What arrives meanwhile waits until all of them had their turn.
        """
        self._woken = False
        if not self._behind:
            arrived, self._arrived = self._arrived, {}
            for key, max_queue_offset in arrived.items():
                holds = self._by_queue.get(key, ())
                self._behind.extend((hold, max_queue_offset) for hold in holds)
        weight = 0
        while self._behind and weight < self._sweep_max:
            hold, max_queue_offset = self._behind.popleft()
            weight += hold.weight
            grown = hold.waiting and hold.queue_offset < max_queue_offset
            if grown and hold.attempt(hold, False):
                self._remove(hold)
        if self._behind or self._arrived:
            self._ask_for_sweep()

    def tick(self, now_ms: int) -> None:
        """Answer the pulls whose time is over."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            hold = heapq.heappop(self._deadlines)[2]
            if hold.waiting:
                self._finish(hold)

    def drop(self, owner: Hashable) -> None:
        """Forget the pulls of a connection that is gone."""
        for hold in list(self._by_owner.get(owner, ())):
            self._remove(hold)

    def release_all(self) -> None:
        """Answer every waiting pull now (the broker stops)."""
        for holds in list(self._by_owner.values()):
            for hold in list(holds):
                self._finish(hold)

    def _ask_for_sweep(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake()

    def _finish(self, hold: Hold) -> None:
        answered = hold.attempt(hold, True)
        assert answered, "a final attempt must answer"
        self._remove(hold)

    def _remove(self, hold: Hold) -> None:
        if not hold.waiting:
            return  # the attempt closed its own connection, which dropped it
        hold.waiting = False
        self.count -= 1
        self.size -= HOLD_SIZE + hold.size
        if self.count == 0:
            self.watch(False)
        key = (hold.topic, hold.queue_id)
        del self._by_queue[key][hold]
        if not self._by_queue[key]:
            del self._by_queue[key]
        self._by_owner[hold.owner].discard(hold)
        if not self._by_owner[hold.owner]:
            del self._by_owner[hold.owner]
