"""Answers of other nodes by name, kept for a while: routes of topics, configurations of groups.

Owns when something is asked for, once for all that wait for it, and how much is kept. It must never
know what is asked, nor read a clock. Called by cluster_map.py.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar, cast

from turbopump.net.wire.names import kept_size

SIZE_MAX: Final = 32 << 20
"""Bytes of one kind of answers: 20,000 topics on a handful of brokers. Of more, what was not used
for the longest time is asked for again."""
ENTRY_SIZE: Final = 500
"""Bytes of an entry besides its name and its answer."""
AGAIN_MS: Final = 200
"""A question whose answer is in doubt is not repeated sooner: in a failover all calls fail."""
ABSENT_MS: Final = 1_000
"""So long the answer that there is none, or that none came, stands."""
GONE_MS: Final = 30_000
"""What was there is believed gone after so long: in a failover a topic has no route for a while."""
LOOKS_MAX: Final = 64
"""Questions at once; more wait for their turn."""

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Absent:
    """There is no answer. `is_certain`: a node says so; else none could be asked."""

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
    """All that want it wait for the look that is under way."""
    in_doubt: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)
    size: int = 0


class KeptAnswers(Generic[T]):
    """Answers to one kind of question. `look` asks: (name, what was known of it, where the answer
    goes, now or later). `size_of` says the bytes of an answer. Loop thread only."""

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
        """What is known of a name; None: it was not asked for, or too long ago."""
        entry = self._entries.get(name)
        return None if entry is None else entry.value

    def doubt(self, name: str) -> None:
        """The answer may not hold any more: it is asked for before it is used again."""
        entry = self._entries.get(name)
        if entry is not None:
            entry.in_doubt = True

    def want(self, name: str, then: Callable[[], None]) -> None:
        """Call `then` when there is an answer, which is now where it is fresh enough. One that is
        old is used while it is asked for anew."""
        entry = self._entries.pop(name, None) or self._add(name)
        self._entries[name] = entry  # used last
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
        """Forget what was not used for the longest time; what is asked for stays."""
        while self.size > SIZE_MAX and self._entries:
            oldest = next(iter(self._entries.values()))
            if oldest.looks or oldest is entry:
                break
            del self._entries[oldest.name]
            self.size -= oldest.size

    def _stays(self, entry: _Entry[T], value: Absent, now_ms: int) -> bool:
        """Whether what was known is used on, although there is no answer now."""
        if entry.value is None or isinstance(entry.value, Absent):
            return False
        return not value.is_certain or now_ms - entry.good_ms < GONE_MS
