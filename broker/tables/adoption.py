"""A master's offsets, taken over by its replica in steps.

Owns one round of it: what the master had before, and what was committed here since the round began.
It must never touch a version, and must never leave a queue half taken over: after each step a queue
is as it was before the round or as it is after it, and so is its mark in the table of what this
broker has otherwise. A round may end after any step. Called by the offset table.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from turbopump.broker.tables.offset_lines import Entries, Pair
from turbopump.engine.types import QueueOffset

if TYPE_CHECKING:
    from turbopump.broker.tables.offsets import Offsets

AT_ONCE: Final = 5_000
"""What the work of one step may be, in looks at a pair that is as before: 1 to 2 ms."""
QUEUE: Final = 10
"""The work for a queue that may be another, in such looks."""
EQUAL: Final = 16
"""Queues that are found to be as before in the time of one such look."""

_NONE: Final = QueueOffset(-1)


class AdoptingTables(NamedTuple):
    """Those of the broker that takes over."""

    committed: Entries
    pulled: Entries
    resets: Entries
    lowered: Entries
    own: Entries


class Adoption:
    """One round. `before` is what the same master had earlier, None if that answer is not there;
    `told`: all that is here, and not marked as this broker's own, is what the master had."""

    def __init__(
        self, tables: AdoptingTables, theirs: "Offsets", before: "Offsets | None", told: bool
    ) -> None:
        assert before is None or not told, "one of them says what the master had"
        self._tables = tables
        self._theirs = theirs
        self._before = before
        self._told = told
        self._fresh: dict[Pair, set[int]] = {}

    def note(self, pair: Pair, queue_id: int) -> None:
        """An offset was committed here. It is newer than what the master said before that."""
        self._fresh.setdefault(pair, set()).add(queue_id)

    def steps(self, at_once: int) -> Iterator[None]:
        """Take all of it over; a step does `at_once`, or the one queue that is over it."""
        work = 0
        for done in chain(
            self._take_theirs(), self._take_pulled(), self._look_at_mine(), self._clear_own()
        ):
            work += done
            if work >= at_once:
                work = 0
                yield

    def _take_theirs(self) -> Iterator[int]:
        """These all yield the work that was done since they did last."""
        theirs, own = self._theirs, self._tables.own
        for pair, queues in theirs.committed.items():
            said, known = self._said(pair), self._numbers_said(pair)
            numbers: Mapping[int, int] = theirs.lowered.get(pair, {})
            is_news = said is None or said != queues or numbers != known
            yield 1 + len(queues) // EQUAL
            if not is_news and pair not in own:
                continue
            for queue_id, at in queues.items():
                if is_news:
                    before = said.get(queue_id, _NONE) if said else _NONE
                    self._take(pair, queue_id, at, before, numbers.get(queue_id, 0))
                self._mark(pair, queue_id, at)
                yield QUEUE
            yield from self._mark_others(pair, queues)

    def _look_at_mine(self) -> Iterator[int]:
        """Pairs that the master has not: forgotten if it had them, else this broker's own."""
        theirs, committed = self._theirs.committed, self._tables.committed
        for pair in list(committed):
            yield 1
            if pair in theirs:
                continue
            if self._said(pair) is not None:
                self._forget(pair)
                yield QUEUE
            else:
                yield from self._mark_others(pair, {})

    def _take_pulled(self) -> Iterator[int]:
        """Where pulls ended is for admin tools: what the master says is right, also if it is
        older."""
        pulled = self._tables.pulled
        for pair, queues in self._theirs.pulled.items():
            for queue_id, at in queues.items():
                if pulled.get(pair, {}).get(queue_id) != at:
                    pulled.put(pair, queue_id, at)
                yield QUEUE

    def _clear_own(self) -> Iterator[int]:
        """A topic or a group that was deleted has no marks."""
        own = self._tables.own
        for pair in list(own):
            if pair not in self._tables.committed and pair in own:
                own.remove(pair)
            yield 1

    def _mark_others(self, pair: Pair, queues: Mapping[int, int]) -> Iterator[int]:
        """Queues that are here or marked, but not among those that the master has."""
        for entries in (self._tables.committed, self._tables.own):
            for queue_id in [one for one in entries.get(pair, ()) if one not in queues]:
                self._mark(pair, queue_id, None)
                yield QUEUE

    def _said(self, pair: Pair) -> Mapping[int, int] | None:
        """What the master had before, of a pair that this round has not taken over yet."""
        if self._before is not None:
            return self._before.committed.get(pair)
        queues = self._tables.committed.get(pair) if self._told else None
        own = self._tables.own.get(pair)
        if not queues or not own:
            return queues
        return {queue_id: at for queue_id, at in queues.items() if queue_id not in own} or None

    def _numbers_said(self, pair: Pair) -> Mapping[int, int]:
        if self._before is not None:
            return self._before.lowered.get(pair, {})
        return self._tables.lowered.get(pair, {})

    def _take(self, pair: Pair, queue_id: int, at: QueueOffset, before: int, number: int) -> None:
        """An offset goes back only if the master counted that it was set back, or had a higher one
        itself before (a RocketMQ master counts nothing)."""
        committed, lowered = self._tables.committed, self._tables.lowered
        newer = number > lowered.get(pair, {}).get(queue_id, 0)
        taken = queue_id in self._fresh.get(pair, ())
        if not taken:
            mine = committed.get(pair, {}).get(queue_id, _NONE)
            if not (newer or at < before or at > mine):
                return
            taken = committed.put(pair, queue_id, at)
        if taken and newer:
            lowered.restore(pair, queue_id, QueueOffset(number))

    def _mark(self, pair: Pair, queue_id: int, theirs: int | None) -> None:
        """Whether what is here now is not what the master has."""
        own = self._tables.own
        mine = self._tables.committed.get(pair, {}).get(queue_id)
        marked = own.get(pair, {}).get(queue_id)
        if mine is None or mine == theirs:
            if marked is not None:
                own.take(pair, queue_id)
        elif marked != mine:
            own.restore(pair, queue_id, mine)

    def _forget(self, pair: Pair) -> None:
        """The master has deleted it. What was committed here since the round began stays."""
        tables, fresh = self._tables, self._fresh.get(pair, ())
        for entries in tables:
            queues = entries.get(pair)
            if queues is None:
                continue
            entries.remove(pair)
            if entries is not tables.lowered and entries is not tables.pulled:
                for queue_id in fresh:
                    if queue_id in queues:
                        entries.restore(pair, queue_id, queues[queue_id])
