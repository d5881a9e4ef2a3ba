"""Histories of assignments, one line each: the queues of each member, the cause, and the duration.

Owns the lines (docs/FORMATS.md) and the changes that wait to be written. node.py makes and writes
the lines on a disk thread; `turbopump analyze rebalance` reads the files.

Tests: tests/unit/broker/assignment/test_handover.py
"""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from turbopump.engine.disk.flush import pause_if_long
from turbopump.net.allocation.shares import Shares

WAITING_MAX: Final = 100_000
"""Maximum number of members and queues in waiting changes; the oldest changes are dropped if the
disk is too slow. They use at most as much memory as the assignments themselves."""


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """An assignment that replaced another. Times are epoch ms: of the cause, of the decision, and
    when all members held their shares; `end_ms` is 0 if that did not happen before the next change.
    `trigger` has the causes, joined by "+": join, leave, queues, admin; else timer. `compute_ms` is
    a duration; for `overlap_ms` and `unowned_ms` see handover.py."""

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
    def name_count(self) -> int:
        """Number of members and queues after the change."""
        return len(self.after) + sum(map(len, self.after.values()))

    def with_end(self, end_ms: int, overlap_ms: int, unowned_ms: int) -> "AssignmentChange":
        """Return a copy with these results of the handover; `end_ms` is epoch ms, the others are
        durations in ms."""
        return replace(self, end_ms=end_ms, overlap_ms=overlap_ms, unowned_ms=unowned_ms)


class AssignmentHistory:
    """Changes of assignments that wait to be written to the histories, in memory only. Loop thread
    only."""

    def __init__(self) -> None:
        self._changes: deque[AssignmentChange] = deque()
        self._weight = 0

    def add(self, change: AssignmentChange) -> None:
        """Add a change; while more than WAITING_MAX members and queues wait, the oldest changes are
        dropped."""
        self._changes.append(change)
        self._weight += change.name_count
        while self._weight > WAITING_MAX and len(self._changes) > 1:
            self._weight -= self._changes.popleft().name_count

    def take_changes(self) -> list[AssignmentChange]:
        """Return the changes since the last call, oldest first, and forget them."""
        changes = list(self._changes)
        self._changes.clear()
        self._weight = 0
        return changes


def lines_of(changes: Sequence[AssignmentChange]) -> Iterator[bytes]:
    """Yield a line of JSON with its line end for each change (docs/FORMATS.md), in the order given.
    For a disk thread: it gives way to the loop before each line."""
    for change in changes:
        pause_if_long()
        yield _encode_line(change)


def _encode_line(change: AssignmentChange) -> bytes:
    """Encode a change as a line of JSON in UTF-8, with its line end; unknown members are left
    out."""
    queues = sorted(queue for share in change.after.values() for queue in share)
    value = {
        "time_ms": change.decided_ms,
        "group": change.group,
        "topic": change.topic,
        "allocator": change.strategy,
        "trigger": change.trigger,
        "members": list(change.after),
        "queues": [[queue.broker_name, queue.queue_id] for queue in queues],
        "before": _queues_by_member(change.before),
        "after": _queues_by_member(change.after),
        "compute_ms": round(change.compute_ms, 3),
        "start_ms": change.start_ms if change.end_ms else None,
        "end_ms": change.end_ms or None,
        "overlap_ms": change.overlap_ms if change.end_ms else None,
        "unowned_ms": change.unowned_ms if change.end_ms else None,
    }
    found = {name: one for name, one in value.items() if one is not None}
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def _queues_by_member(shares: Shares) -> dict[str, list[list[str | int]]]:
    """Return (broker name, queue id) pairs by client id, without members that have no queue."""
    return {
        member: [[queue.broker_name, queue.queue_id] for queue in share]
        for member, share in shares.items()
        if share
    }
