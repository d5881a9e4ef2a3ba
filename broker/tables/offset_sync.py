"""Adoption of a master's offsets by its replica, in steps.

Owns one round of adoption: the master's earlier offsets, and the offsets committed here since the
round began. It must never change a version, and must never leave a queue half adopted: after each
step a queue, and its mark in the table of offsets that only this broker has, is either as before
the round or as after it. A round may end after any step.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from turbopump.broker.tables.offset_lines import OffsetEntries, Pair
from turbopump.engine.types import QueueOffset

if TYPE_CHECKING:
    from turbopump.broker.tables.offsets import Offsets

AT_ONCE: Final = 5_000
"""Maximum work of a step of an adoption, 1 to 2 ms. The unit is the check of a pair that has not
changed."""
QUEUE: Final = 10
"""Work of a step for each queue that may have changed, in units of AT_ONCE."""
EQUAL: Final = 16
"""Unchanged queues of a pair whose comparison counts as one unit of AT_ONCE."""

_NONE: Final = QueueOffset(-1)


class OffsetSyncTables(NamedTuple):
    """The offset tables of the adopting broker, each by (topic, group) and queue id: `committed`
    offsets, ends of pulls (`pulled`), pending `resets`, set-back numbers (`lowered`), and `own`,
    offsets that differ from the master's or that the master lacks."""

    committed: OffsetEntries
    pulled: OffsetEntries
    resets: OffsetEntries
    lowered: OffsetEntries
    own: OffsetEntries


class OffsetSync:
    """A round in which a replica adopts its master's offsets `theirs`, in steps; it changes
    `tables`. `before`: the same master's earlier offsets, None if that answer is missing.
    `all_adopted`: without `before`, every offset here that is not marked as this broker's own came
    from the master. With both an AssertionError is raised."""

    def __init__(
        self,
        tables: OffsetSyncTables,
        theirs: "Offsets",
        before: "Offsets | None",
        all_adopted: bool,
    ) -> None:
        assert before is None or not all_adopted, (
            "either `before` or `all_adopted` shows the master's earlier offsets"
        )
        self._tables = tables
        self._theirs = theirs
        self._before = before
        self._all_adopted = all_adopted
        self._fresh: dict[Pair, set[int]] = {}

    def note_commit(self, pair: Pair, queue_id: int) -> None:
        """Report an offset that was committed here during the round: it is newer than the master's
        answer."""
        self._fresh.setdefault(pair, set()).add(queue_id)

    def adopt_steps(self, at_once: int) -> Iterator[None]:
        """Adopt all offsets; the iterator yields after some `at_once` units of work (see AT_ONCE),
        and may be dropped after any step."""
        work = 0
        for done in chain(
            self._adopt_committed(),
            self._adopt_pulled(),
            self._forget_deleted(),
            self._drop_marks_of_deleted(),
        ):
            work += done
            if work >= at_once:
                work = 0
                yield

    def _adopt_committed(self) -> Iterator[int]:
        """Adopt the master's committed offsets. Yields the work done since the last yield."""
        theirs, own = self._theirs, self._tables.own
        for pair, queues in theirs.committed.items():
            earlier, known = self._earlier_offsets(pair), self._earlier_numbers(pair)
            numbers: Mapping[int, int] = theirs.lowered.get(pair, {})
            is_news = earlier is None or earlier != queues or numbers != known
            yield 1 + len(queues) // EQUAL
            if not is_news and pair not in own:
                continue
            for queue_id, at in queues.items():
                if is_news:
                    before = earlier.get(queue_id, _NONE) if earlier else _NONE
                    self._adopt_offset(pair, queue_id, at, before, numbers.get(queue_id, 0))
                self._mark_own(pair, queue_id, at)
                yield QUEUE
            yield from self._mark_others(pair, queues)

    def _forget_deleted(self) -> Iterator[int]:
        """Forget pairs that the master had and no longer has; mark other pairs that it lacks as
        this broker's own. Yields the work done."""
        theirs, committed = self._theirs.committed, self._tables.committed
        for pair in list(committed):
            yield 1
            if pair in theirs:
                continue
            if self._earlier_offsets(pair) is not None:
                self._forget_pair(pair)
                yield QUEUE
            else:
                yield from self._mark_others(pair, {})

    def _adopt_pulled(self) -> Iterator[int]:
        """Adopt the ends of pulls, which serve admin tools only: the master's value is taken even
        if it is older. Yields the work done."""
        pulled = self._tables.pulled
        for pair, queues in self._theirs.pulled.items():
            for queue_id, at in queues.items():
                if pulled.get(pair, {}).get(queue_id) != at:
                    pulled.set_entry(pair, queue_id, at)
                yield QUEUE

    def _drop_marks_of_deleted(self) -> Iterator[int]:
        """Remove the marks of own offsets of deleted topics and groups. Yields the work done."""
        own = self._tables.own
        for pair in list(own):
            if pair not in self._tables.committed and pair in own:
                own.remove([pair])
            yield 1

    def _mark_others(self, pair: Pair, queues: Mapping[int, int]) -> Iterator[int]:
        """Update the marks of a pair's queues that are here or marked, but not in the master's
        `queues`. Yields the work done."""
        for entries in (self._tables.committed, self._tables.own):
            for queue_id in [one for one in entries.get(pair, ()) if one not in queues]:
                self._mark_own(pair, queue_id, None)
                yield QUEUE

    def _earlier_offsets(self, pair: Pair) -> Mapping[int, int] | None:
        """Return the master's earlier offsets of a pair, by queue id, that this round has not
        adopted yet; None if they are unknown."""
        if self._before is not None:
            return self._before.committed.get(pair)
        queues = self._tables.committed.get(pair) if self._all_adopted else None
        own = self._tables.own.get(pair)
        if not queues or not own:
            return queues
        return {queue_id: at for queue_id, at in queues.items() if queue_id not in own} or None

    def _earlier_numbers(self, pair: Pair) -> Mapping[int, int]:
        """Return the master's earlier set-back numbers of a pair, by queue id."""
        if self._before is not None:
            return self._before.lowered.get(pair, {})
        return self._tables.lowered.get(pair, {})

    def _adopt_offset(
        self, pair: Pair, queue_id: int, at: QueueOffset, before: int, number: int
    ) -> None:
        """Adopt the master's offset `at` of a queue, whose earlier one was `before` (-1: none) and
        whose set-back number is `number`. The offset goes back only if the master counted a
        set-back, or itself had a higher offset before (a RocketMQ master does not count)."""
        committed, lowered = self._tables.committed, self._tables.lowered
        newer = number > lowered.get(pair, {}).get(queue_id, 0)
        taken = queue_id in self._fresh.get(pair, ())
        if not taken:
            mine = committed.get(pair, {}).get(queue_id, _NONE)
            if not (newer or at < before or at > mine):
                return
            taken = committed.set_entry(pair, queue_id, at)
        if taken and newer:
            lowered.restore_entry(pair, queue_id, QueueOffset(number))

    def _mark_own(self, pair: Pair, queue_id: int, theirs: int | None) -> None:
        """Mark the queue as this broker's own if its offset differs from the master's (None:
        missing there), else remove the mark."""
        own = self._tables.own
        mine = self._tables.committed.get(pair, {}).get(queue_id)
        marked = own.get(pair, {}).get(queue_id)
        if mine is None or mine == theirs:
            if marked is not None:
                own.remove_entry(pair, queue_id)
        elif marked != mine:
            own.restore_entry(pair, queue_id, mine)

    def _forget_pair(self, pair: Pair) -> None:
        """Remove a pair that the master has deleted; offsets committed here since the round began
        stay."""
        tables, fresh = self._tables, self._fresh.get(pair, ())
        for entries in tables:
            queues = entries.get(pair)
            if queues is None:
                continue
            entries.remove([pair])
            if entries is not tables.lowered and entries is not tables.pulled:
                for queue_id in fresh:
                    if queue_id in queues:
                        entries.restore_entry(pair, queue_id, queues[queue_id])
