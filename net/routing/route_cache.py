"""A cache of other nodes' answers by name: routes of topics, configurations of groups.

Owns the times of queries, one query for all that wait for it, and the size of the cache. It must
never depend on the kind of the query, nor read a clock.

States of an entry:

    empty --use--> queued --room among queries_max--> queried --answer--> fresh or absent
    fresh --fresh_ms--> old: used, and queried at its next use or `refresh_due`
    fresh --doubt--> in doubt: its next use waits for a query
    absent --absent_ms--> its next use waits for a query
    any --unused_ms without use, or no room--> forgotten

A query for which no use waits is a refresh; it does not delay the others: name servers may be slow.
A flood of unknown names cannot displace the answers: `blanks_max` bounds the entries without one.
"""

import logging
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.routing.name_servers import Absent

logger = logging.getLogger(__name__)

_PASSED_MAX: Final = 16
"""Waiting entries that are passed over for the sake of a new entry: a flood of waiting names must
not cost a search of the whole table for each name."""
NEVER_MS: Final = sys.maxsize
"""A time in ms that never comes, or a duration that never ends."""

T = TypeVar("T")

_FULL: Final = Absent("too many unknown names are queried", is_certain=False)


@dataclass(slots=True, frozen=True, kw_only=True)
class CacheRules:
    """The durations, in ms, and the bounds of a cache."""

    fresh_ms: int
    """Age from which an answer is queried again."""
    again_ms: int
    """Minimum interval of queries for an answer that may be wrong: in a failover all calls fail."""
    absent_ms: int
    """Age up to which an Absent is used without another query."""
    gone_ms: int = 0
    """Time since the last answer after which a certain Absent replaces it: in a failover a topic
    has no route for a while. An Absent that is not certain never does."""
    unused_ms: int = NEVER_MS
    """Time without use after which `forget_unused` drops an entry."""
    doubts_failed: bool = False
    """Whether an Absent that does not replace the former answer leaves it in doubt: its next use
    waits for a query."""
    size_max: int
    """Maximum sum of the sizes of all entries, in the unit of `size_of`; the least recently used
    are dropped first."""
    entries_max: int = sys.maxsize
    """Maximum number of entries; the least recently used are dropped first."""
    blanks_max: int = sys.maxsize
    """Maximum number of entries without an answer; the least recently used are dropped first. While
    all of them are queried, a use of a further name results in an Absent that is not certain."""
    queries_max: int = sys.maxsize
    """Maximum number of concurrent queries; more are queued. At most half of them, but at least
    one, begin as refreshes."""

    @property
    def refreshes_max(self) -> int:
        """Maximum number of concurrent queries that began as refreshes."""
        return max(1, self.queries_max // 2)


@dataclass(slots=True, eq=False)
class _Entry(Generic[T]):
    """A name in the cache: the former answer, its query if there is one, and the uses that wait."""

    name: str
    value: T | Absent | None = None
    asked_ms: int = LONG_AGO_MS
    good_ms: int = LONG_AGO_MS
    used_ms: int = LONG_AGO_MS
    due_ms: int = NEVER_MS
    """When the answer is queried although it is fresh."""
    is_asking: bool = False
    uses_wait: bool = False
    """Uses of the entry wait for the current query."""
    in_doubt: bool = False
    waiting: list[Deferred[T | Absent]] = field(default_factory=list)
    size: int = 0

    @property
    def answer(self) -> T | None:
        """The answer; None if the name is absent or unknown."""
        return None if isinstance(self.value, Absent) else self.value


class RouteCache(Generic[T]):
    """A cache for one kind of query. Loop thread only; times are ms of the monotonic clock
    `steady_ms`.

    `query` begins a query for a name; its second argument is the former answer, or None. An
    exception that it raises is logged, and counts as an Absent that is not certain. `size_of`
    returns the size of an entry by its name and its answer, or None. Entries with pending uses are
    not dropped, even beyond the bounds of sizes and entries.
    """

    def __init__(
        self,
        query: Callable[[str, T | None], Deferred[T | Absent]],
        size_of: Callable[[str, T | None], int],
        steady_ms: Callable[[], int],
        rules: CacheRules,
    ) -> None:
        self.rules = rules
        self.size = 0
        """Sum of the sizes of all entries, as `size_of` returns them."""
        self._query, self._size_of = query, size_of
        self._steady_ms = steady_ms
        self._entries: dict[str, _Entry[T]] = {}
        """The entries, the least recently used first."""
        self._blanks: dict[str, _Entry[T]] = {}
        """The entries without an answer, in the order of `_entries`, except that entries that
        `_make_room` passed over are last."""
        self._queued: OrderedDict[_Entry[T], None] = OrderedDict()
        """The entries whose uses wait for a query that has not begun, in order."""
        self._queued_refreshes: OrderedDict[_Entry[T], None] = OrderedDict()
        """The other entries whose query has not begun, in order."""
        self._asking = self._refreshing = 0
        self._refresh_is_next = False
        self._goes_on = False

    def __len__(self) -> int:
        return len(self._entries)

    def list_answers(self) -> list[tuple[str, T | None]]:
        """A new list of all names, each with its answer, or None if it is absent or unknown; the
        least recently used first."""
        return [(name, entry.answer) for name, entry in self._entries.items()]

    def get(self, name: str) -> T | Absent | None:
        """The current answer for a name, or an Absent; None if there was no result of a query, or
        the entry was dropped. Does not count as a use, and begins no query."""
        entry = self._entries.get(name)
        return None if entry is None else entry.value

    def current_answer(self, name: str) -> T | Absent | None:
        """The current answer for a name, or an Absent; None before the first result of a query.
        Counts as a use; if the answer is old, missing or in doubt, a query begins, whose result is
        for later uses."""
        entry = self._use_entry(name)
        if entry is None:
            return _FULL
        if self._is_due(entry):
            self._enqueue_query(entry)
        return entry.value

    def get_or_query(self, name: str) -> Deferred[T | Absent]:
        """Resolve to the answer or an Absent: at once if it is fresh, or an answer that is old and
        not in doubt (then it is also queried again); else to the result of a query. Counts as a
        use.

        A query may result in an Absent although `get` still returns the former answer.
        """
        entry = self._use_entry(name)
        if entry is None:
            return Deferred.resolved(_FULL)
        if self._is_due(entry):
            self._enqueue_query(entry, holds=self._is_doubtful(entry))
        if entry.value is not None and not entry.uses_wait:
            return Deferred.resolved(entry.value)
        return self._wait_for_query(entry)

    def query_again(self, name: str, *, at_once: bool) -> Deferred[T | Absent]:
        """Resolve to the result of a query, even if the answer is fresh; to an Absent if there
        is no room for a new name. Unless `at_once`, a query that began less than `again_ms` ago
        counts: the Deferred waits for it, or resolves at once to the answer in use if it has
        ended. Counts as a use."""
        entry = self._use_entry(name)
        if entry is None:
            return Deferred.resolved(_FULL)
        if at_once or self._age_ms(entry) >= self.rules.again_ms:
            self._enqueue_query(entry, holds=True)
        if entry.value is not None and not entry.is_asking:
            return Deferred.resolved(entry.value)
        return self._wait_for_query(entry)

    def set_answer(self, name: str, value: T | Absent) -> None:
        """Set the answer for a name without a query; counts as a use. Its age is still that of the
        last query. An Absent for a new name is dropped if there is no room for it."""
        if name not in self._entries and not isinstance(value, Absent):
            self._entries[name] = _Entry[T](name, value)  # needs no room among the blanks
        entry = self._use_entry(name)
        if entry is not None:
            entry.value = value
            self._recount_size(entry)

    def mark_doubtful(self, name: str) -> None:
        """Mark the answer as doubtful: the next use does not get the answer at once but waits
        for a query, unless the last query is younger than `again_ms`. No-op without an entry."""
        entry = self._entries.get(name)
        if entry is not None:
            entry.in_doubt = True

    def refresh_soon(self, name: str) -> None:
        """Begin a query for an answer that failed its user, unless the last query is younger than
        `again_ms`; uses do not wait for it. No-op without an entry."""
        entry = self._entries.get(name)
        if entry is not None and self._age_ms(entry) >= self.rules.again_ms:
            self._enqueue_query(entry)

    def refresh_later(self, name: str) -> None:
        """Make the answer due `again_ms` from now, because name servers are notified of a change
        now; the next use or `refresh_due` after that queries it. No-op without an entry."""
        entry = self._entries.get(name)
        if entry is not None:
            entry.due_ms = min(entry.due_ms, self._steady_ms() + self.rules.again_ms)

    def forget_unused(self) -> None:
        """Drop the entries that were not used for `unused_ms`; to be called periodically."""
        unused_ms = self._steady_ms() - self.rules.unused_ms
        for entry in list(self._entries.values()):
            is_queried = entry.is_asking and entry not in self._queued_refreshes
            if entry.used_ms <= unused_ms and not is_queried:
                self._drop_entry(entry)

    def refresh_due(self) -> None:
        """Begin queries for all answers that are due; to be called periodically. It does not count
        as a use. An absent name is queried by its next use alone: names that nothing has cost no
        further query."""
        for entry in list(self._entries.values()):
            if entry.answer is not None and self._is_due(entry):
                self._enqueue_query(entry)

    def _use_entry(self, name: str) -> _Entry[T] | None:
        """Return the entry of a name, as the most recently used one; made if new. None if there
        is no room for a new name."""
        entry = self._entries.pop(name, None)
        is_new = entry is None
        entry = entry or _Entry[T](name)
        self._entries[name] = entry
        if self._blanks.pop(name, None) is not None:
            self._blanks[name] = entry
        entry.used_ms = self._steady_ms()
        if is_new:
            if not self._make_room():
                del self._entries[name]
                return None
            self._recount_size(entry)
        return entry

    def _make_room(self) -> bool:
        """Make room for another entry without an answer; returns whether there is room."""
        passed = 0
        while len(self._blanks) >= self.rules.blanks_max:
            oldest = next(iter(self._blanks.values()))
            if not oldest.is_asking:
                self._drop_entry(oldest)
            elif passed == _PASSED_MAX:
                return False
            else:
                self._blanks[oldest.name] = self._blanks.pop(oldest.name)
                passed += 1
        return True

    def _wait_for_query(self, entry: _Entry[T]) -> Deferred[T | Absent]:
        """Return a Deferred that resolves to the result of the entry's query."""
        wanted: Deferred[T | Absent] = Deferred()
        entry.waiting.append(wanted)
        self._promote_query(entry)
        return wanted

    def _age_ms(self, entry: _Entry[T]) -> int:
        """Return the time since the entry's last query began, in ms."""
        return self._steady_ms() - entry.asked_ms

    def _is_doubtful(self, entry: _Entry[T]) -> bool:
        """Whether the entry's next use has to wait for a query."""
        if entry.answer is None:
            return entry.value is None or self._age_ms(entry) >= self.rules.absent_ms
        return entry.in_doubt and self._age_ms(entry) >= self.rules.again_ms

    def _is_due(self, entry: _Entry[T]) -> bool:
        """Whether a use or a refresh of the entry begins a query now."""
        if self._is_doubtful(entry) or self._steady_ms() >= entry.due_ms:
            return True
        return entry.answer is not None and self._age_ms(entry) >= self.rules.fresh_ms

    def _enqueue_query(self, entry: _Entry[T], *, holds: bool = False) -> None:
        """Queue a query for the entry unless it has one; `holds`: a use waits for it."""
        if entry.is_asking:
            entry.uses_wait = entry.uses_wait or holds
            return
        entry.is_asking, entry.uses_wait = True, holds or entry.answer is None
        (self._queued if entry.uses_wait else self._queued_refreshes)[entry] = None
        self._begin_queries()

    def _promote_query(self, entry: _Entry[T]) -> None:
        """Make a queued refresh a query that a use waits for; no-op for another entry."""
        if entry in self._queued_refreshes:
            del self._queued_refreshes[entry]
            self._queued[entry] = None
            self._begin_queries()

    def _begin_queries(self) -> None:
        """Begin queued queries within the limits; queries with waiting uses and refreshes take
        turns."""
        if self._goes_on:
            return  # a query was answered at once: the caller below continues
        self._goes_on = True
        try:
            while self._asking < self.rules.queries_max:
                has_room = self._refreshing < self.rules.refreshes_max
                refreshes = bool(self._queued_refreshes) and has_room
                if refreshes and (self._refresh_is_next or not self._queued):
                    self._begin_query(
                        self._queued_refreshes.popitem(last=False)[0], is_refresh=True
                    )
                elif self._queued:
                    self._begin_query(self._queued.popitem(last=False)[0], is_refresh=False)
                else:
                    return
        finally:
            self._goes_on = False

    def _begin_query(self, entry: _Entry[T], *, is_refresh: bool) -> None:
        """Begin the query of an entry, unless it was dropped and no use waits for it."""
        if self._entries.get(entry.name) is not entry and not entry.waiting:
            return  # it was dropped, and no use waits for it
        # In turns, because a flood of unknown names must not stop all refreshes.
        self._refresh_is_next = not is_refresh
        self._asking += 1
        self._refreshing += is_refresh
        entry.asked_ms, entry.due_ms, entry.in_doubt = self._steady_ms(), NEVER_MS, False
        answer: Deferred[T | Absent]
        try:
            answer = self._query(entry.name, entry.answer)
        except Exception as error:
            logger.exception("the query of %r failed", entry.name)
            answer = Deferred.resolved(Absent(f"the query failed: {error}", is_certain=False))
        answer.then(partial(self._on_answer, entry, is_refresh))

    def _on_answer(self, entry: _Entry[T], was_refresh: bool, value: T | Absent) -> None:
        """Store `value`, the result of a query, unless the former answer stays in use, and
        resolve the uses that wait; `was_refresh`: the query began as a refresh."""
        self._asking -= 1
        self._refreshing -= was_refresh
        entry.is_asking = entry.uses_wait = False
        now_ms = self._steady_ms()
        if not isinstance(value, Absent):
            entry.good_ms = now_ms
        if isinstance(value, Absent) and self._keeps_former(entry, value, now_ms):
            entry.in_doubt = self.rules.doubts_failed
        else:
            entry.value = value
        self._recount_size(entry)
        waiting, entry.waiting = entry.waiting, []
        for wanted in waiting:
            wanted.resolve(value)
        self._begin_queries()

    def _keeps_former(self, entry: _Entry[T], value: Absent, now_ms: int) -> bool:
        """Whether the former answer stays in use although the query's result is an Absent."""
        if entry.answer is None:
            return False
        return not value.is_certain or now_ms - entry.good_ms < self.rules.gone_ms

    def _recount_size(self, entry: _Entry[T]) -> None:
        """Recount an entry's size, then drop the oldest entries without waiting uses while the
        cache exceeds its bounds."""
        if self._entries.get(entry.name) is not entry:
            return
        if entry.answer is not None:
            self._blanks.pop(entry.name, None)
        else:
            self._blanks.setdefault(entry.name, entry)
        size = self._size_of(entry.name, entry.answer)
        self.size += size - entry.size
        entry.size = size
        passed = 0
        while self._exceeds_bounds():
            oldest = next(iter(self._entries.values()))
            if oldest is entry or passed == _PASSED_MAX:
                return
            if oldest.waiting:  # in use
                self._entries[oldest.name] = self._entries.pop(oldest.name)
                passed += 1
            else:
                self._drop_entry(oldest)

    def _exceeds_bounds(self) -> bool:
        return self.size > self.rules.size_max or len(self._entries) > self.rules.entries_max

    def _drop_entry(self, entry: _Entry[T]) -> None:
        """Forget an entry for which no use waits, and its query that has not begun."""
        del self._entries[entry.name]
        self._queued.pop(entry, None)
        self._queued_refreshes.pop(entry, None)
        self._blanks.pop(entry.name, None)
        self.size -= entry.size
