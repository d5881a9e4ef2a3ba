"""A cache of other nodes' answers by name: routes of topics, configurations of groups.

Owns the time of queries, one query for all that wait for it, and the size of the cache. It must
never depend on the kind of the query, nor read a clock.

States of an entry:

    empty --want--> queued --room among LOOKS_MAX--> queried --answer--> fresh or absent
    fresh --fresh_ms--> old: used, and queried at its next use
    fresh --doubt--> in doubt: its next use waits for a query
    absent --ABSENT_MS--> its next use waits for a query

Tests: tests/unit/proxy/test_cluster_map.py
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar, cast

from turbopump.net.wire.names import kept_size

SIZE_MAX: Final = 32 << 20
"""Maximum bytes of a cache: 20,000 topics on a handful of brokers.

Beyond it the entries that were not used for the longest time are dropped.
"""
ENTRY_SIZE: Final = 500
"""Estimated bytes of an entry besides its name and its answer."""
AGAIN_MS: Final = 200
"""Least time between two queries for an answer in doubt: in a failover all calls fail."""
ABSENT_MS: Final = 1_000
"""Time for which the result that there is no answer is used."""
GONE_MS: Final = 30_000
"""Time after which a missing name is believed: in a failover a topic has no route for a while."""
LOOKS_MAX: Final = 64
"""Maximum number of concurrent queries; more are queued."""

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Absent:
    """No answer.

    `is_certain`: a node reported that the name does not exist; else no node responded.
    """

    text: str
    is_certain: bool


@dataclass(slots=True, eq=False)
class _Entry(Generic[T]):
    name: str
    value: T | Absent | None = None
    asked_ms: int = 0
    good_ms: int = 0
    looks: bool = False
    holds: bool = False
    """Uses of the entry wait for the current query."""
    in_doubt: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)
    size: int = 0


class KeptAnswers(Generic[T]):
    """A cache for one kind of query. Loop thread only.

    `look` sends a query: (name, the previous answer, callback for the answer, called now or later).
    `size_of` returns the bytes of an answer.
    """

    def __init__(
        self,
        look: Callable[[str, T | None, Callable[[T | Absent], None]], None],
        size_of: Callable[[T], int],
        steady_ms: Callable[[], int],
        fresh_ms: int,
    ) -> None:
        self._look = look
        self._size_of = size_of
        self._steady_ms = steady_ms
        self._fresh_ms = fresh_ms
        self._entries: dict[str, _Entry[T]] = {}
        self._queue: deque[_Entry[T]] = deque()
        self._looking = 0
        self.size = 0

    def get(self, name: str) -> T | Absent | None:
        """The current answer for a name; None if there was no query, or the entry was dropped."""
        entry = self._entries.get(name)
        return None if entry is None else entry.value

    def doubt(self, name: str) -> None:
        """Mark the answer as doubtful: the next use waits for a query."""
        entry = self._entries.get(name)
        if entry is not None:
            entry.in_doubt = True

    def want(self, name: str, then: Callable[[], None]) -> None:
        """Call `then` when there is an answer: at once if it is fresh enough.

        An old answer is used while it is queried again.
        """
        entry = self._entries.pop(name, None) or self._add(name)
        self._entries[name] = entry  # as the most recently used entry
        age_ms = self._steady_ms() - entry.asked_ms
        if entry.value is None:
            is_due = waits = True
        elif isinstance(entry.value, Absent):
            is_due = waits = age_ms >= ABSENT_MS
        else:
            waits = entry.in_doubt and age_ms >= AGAIN_MS
            is_due = waits or age_ms >= self._fresh_ms
        if is_due and not entry.looks:
            entry.looks, entry.holds = True, waits
            self._queue.append(entry)
        if waits or entry.holds:
            entry.waiting.append(then)
        else:
            then()
        self._go_on()

    def _add(self, name: str) -> _Entry[T]:
        entry = _Entry[T](name, size=ENTRY_SIZE + kept_size(name))
        self.size += entry.size
        self._make_room(entry)
        return entry

    def _go_on(self) -> None:
        while self._queue and self._looking < LOOKS_MAX:
            entry = self._queue.popleft()
            self._looking += 1
            entry.asked_ms, entry.in_doubt = self._steady_ms(), False
            before = None if isinstance(entry.value, Absent) else entry.value
            self._look(entry.name, before, partial(self._take, entry))

    def _take(self, entry: _Entry[T], value: T | Absent) -> None:
        self._looking -= 1
        entry.looks = entry.holds = False
        now_ms = self._steady_ms()
        if not isinstance(value, Absent):
            entry.good_ms = now_ms
        elif self._stays(entry, value, now_ms):
            value = cast(T, entry.value)
            entry.in_doubt = True
        entry.value = value
        self._resize(entry)
        waiting, entry.waiting = entry.waiting, []
        for then in waiting:
            then()
        self._go_on()

    def _resize(self, entry: _Entry[T]) -> None:
        if self._entries.get(entry.name) is not entry:
            return
        value = entry.value
        size = ENTRY_SIZE + kept_size(entry.name)
        if value is not None and not isinstance(value, Absent):
            size += self._size_of(value)
        self.size += size - entry.size
        entry.size = size
        self._make_room(entry)

    def _make_room(self, entry: _Entry[T]) -> None:
        """Drop the entries that were not used for the longest time; an entry with a query stays."""
        while self.size > SIZE_MAX and self._entries:
            oldest = next(iter(self._entries.values()))
            if oldest.looks or oldest is entry:
                break
            del self._entries[oldest.name]
            self.size -= oldest.size

    def _stays(self, entry: _Entry[T], value: Absent, now_ms: int) -> bool:
        """Whether the previous answer stays in use although there is no answer now."""
        if entry.value is None or isinstance(entry.value, Absent):
            return False
        return not value.is_certain or now_ms - entry.good_ms < GONE_MS
