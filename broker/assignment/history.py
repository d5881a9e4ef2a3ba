"""Histories of assignments: who got which queues, why, and how long it took, one line each.

Owns the lines (docs/FORMATS.md) and what waits to be written. It must never
write: node.py does, on a disk thread, where the lines are made, too. Called by coordinated.py;
`turbopump analyze rebalance` reads the files.
"""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from turbopump.engine.disk.flush import give_way
from turbopump.net.allocation.shares import Shares

WAITING_MAX: Final = 100_000
"""Members and queues of the changes that wait for the disk; the oldest ones go where it does not
keep up. They hold no more memory than the assignments themselves."""


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """One assignment that replaced another. Times are the wall clock's, in ms: of what set it off,
    of the decision, and when all members held what is theirs; `end_ms` 0: that did not happen
    before the next one. For `overlap_ms` and `unowned_ms` see settling.py."""

    group: str
    topic: str
    strategy: str
    trigger: str
    before: Shares
    after: Shares
    start_ms: int
    decided_ms: int
    end_ms: int
    compute_ms: float
    overlap_ms: int
    unowned_ms: int

    @property
    def weight(self) -> int:
        """Members and queues."""
        return len(self.after) + sum(map(len, self.after.values()))

    def ended(self, end_ms: int, overlap_ms: int, unowned_ms: int) -> "AssignmentChange":
        """The same once it is over."""
        return replace(self, end_ms=end_ms, overlap_ms=overlap_ms, unowned_ms=unowned_ms)


class AssignmentHistory:
    """Changes until they are written. Loop thread only."""

    def __init__(self) -> None:
        self._changes: deque[AssignmentChange] = deque()
        self._weight = 0

    def add(self, change: AssignmentChange) -> None:
        """One more."""
        self._changes.append(change)
        self._weight += change.weight
        while self._weight > WAITING_MAX and len(self._changes) > 1:
            self._weight -= self._changes.popleft().weight

    def take(self) -> list[AssignmentChange]:
        """The changes since the last call, to be written."""
        changes = list(self._changes)
        self._changes.clear()
        self._weight = 0
        return changes


def lines_of(changes: Sequence[AssignmentChange]) -> Iterator[bytes]:
    """The lines; on a disk thread, which gives way between two."""
    for change in changes:
        give_way()
        yield _line(change)


def _line(change: AssignmentChange) -> bytes:
    queues = sorted(queue for share in change.after.values() for queue in share)
    value = {
        "time_ms": change.decided_ms,
        "group": change.group,
        "topic": change.topic,
        "allocator": change.strategy,
        "trigger": change.trigger,
        "members": list(change.after),
        "queues": [[queue.broker_name, queue.queue_id] for queue in queues],
        "before": _owned(change.before),
        "after": _owned(change.after),
        "compute_ms": round(change.compute_ms, 3),
        "start_ms": change.start_ms if change.end_ms else None,
        "end_ms": change.end_ms or None,
        "overlap_ms": change.overlap_ms if change.end_ms else None,
        "unowned_ms": change.unowned_ms if change.end_ms else None,
    }
    found = {name: one for name, one in value.items() if one is not None}
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def _owned(shares: Shares) -> dict[str, list[list[str | int]]]:
    return {
        member: [[queue.broker_name, queue.queue_id] for queue in share]
        for member, share in shares.items()
        if share
    }
