"""The cost of each fault and each recovery for the group: the measures of docs/FORMATS.md, and
more.

A window is the time from the start of a fault to its end, or from there to the next fault.
"""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from interop.rebalance_chaos.history import Happened, History
from interop.rebalance_chaos.ownership import Ownership, Shares, process_of
from turbopump.spark.rebalance.measures import Measures, measure_rebalance, parse

MANY: Final = 1_000_000


@dataclass(frozen=True)
class Window:
    """A fault or recovery of a run. Times are ms."""

    what: str
    kind: str
    """kill, suspend or loss; each has two windows."""
    is_fault: bool
    start_ms: int
    end_ms: int
    notice_ms: int
    """Time at which brokers could know: the kill, the last start, the first change if only missing
    heartbeats show it, or the time at which TCP sends again. While packets are lost members leave
    and return more than once: with a coordinator that keeps a history, the notice that took
    longest."""
    settle_ms: int
    """Time from the notice to the last change before the next notice; 0 without a change. While
    packets to a node are lost, only the other nodes count."""
    is_settled: bool
    """Whether each queue had one owner in the end; while packets to a node are lost, whether no
    queue had two owners among the other nodes."""
    moved: int
    """Number of queues lost by members that lived throughout."""
    overlap_ms: int
    """Longest time with two owners of a queue."""
    overlaps_ms: int
    """Time with two owners of all queues together."""
    unowned_ms: int
    measures: Measures
    least_moves: int
    """Number of the moves that were needed. If several members joined, one may have joined before
    the other, and each took its share: together they took the queues that they have in the end."""
    line: dict[str, Any]
    """Row of a history as `turbopump analyze rebalance` reads it."""

    @property
    def beyond(self) -> int:
        """Number of moves that no balanced assignment needed."""
        return max(0, self.moved - self.least_moves)


def measured(history: History, allocator: str, group: str) -> list[Window]:
    """Return all windows of a run."""
    end_ms = history.end_ms
    ownership = Ownership(history, end_ms)
    happened = list(history.faults())
    ends = [one.time_ms for one in happened[1:]] + [end_ms]
    return [
        _window(history, ownership, one, until_ms, allocator, group)
        for one, until_ms in zip(happened, ends, strict=True)
    ]


def _window(
    history: History,
    ownership: Ownership,
    event: Happened,
    end_ms: int,
    allocator: str,
    group: str,
) -> Window:
    start_ms = event.time_ms
    kind = event.name.rpartition("-")[2]
    before, after = ownership.shares(start_ms - 1), ownership.shares(end_ms - 1)
    members = ownership.members(end_ms - 1)
    # Of members that join one after the other, the first passes queues on to the next: that is no
    # loss.
    stayers = members & ownership.members(start_ms - 1)
    # No broker can settle the queues of a member that receives nearly nothing.
    touched = event.nodes if kind == "loss" and event.is_start else ()
    rest = {one for one in ownership.known if process_of(one).partition(".")[0] not in touched}
    changes = ownership.changes(rest, start_ms, end_ms)
    others = {one for one in rest if process_of(one).partition(".")[0] not in event.nodes}
    apart = ownership.changes(others, start_ms, end_ms)
    notice_ms, settle_ms = _settled(history, event, end_ms, changes, apart)
    longest, total = ownership.with_owners(2, MANY, start_ms, end_ms)
    unowned_ms, _ = ownership.with_owners(0, 0, start_ms, end_ms)
    settled = Counter(queue for one, queues in after.items() if one in rest for queue in queues)
    trigger = event.name if event.is_start else f"after {event.name}"
    line = {
        "time_ms": start_ms,
        "group": group,
        "topic": group,
        "allocator": allocator,
        "trigger": trigger,
        "members": sorted(members),
        "queues": [_place(queue) for queue in sorted(ownership.queues)],
        "before": _named(before),
        "after": _named(after),
        "start_ms": notice_ms,
        "end_ms": notice_ms + settle_ms,
        "overlap_ms": longest,
        "unowned_ms": unowned_ms,
    }
    measures = measure_rebalance(parse(json.dumps(line)))
    came = members - ownership.members(start_ms - 1)
    return Window(
        what=trigger,
        kind=kind,
        is_fault=event.is_start,
        start_ms=start_ms,
        end_ms=end_ms,
        notice_ms=notice_ms,
        settle_ms=settle_ms,
        is_settled=set(settled.values()) <= {1}
        and (bool(touched) or set(settled) == ownership.queues),
        moved=ownership.losses(stayers, start_ms, end_ms),
        overlap_ms=longest,
        overlaps_ms=total,
        unowned_ms=unowned_ms,
        measures=measures,
        least_moves=max(measures.moved_min, sum(len(after.get(one, ())) for one in came)),
        line=line,
    )


def _settled(
    history: History, event: Happened, end_ms: int, changes: list[int], apart: list[int]
) -> tuple[int, int]:
    """Return the notice of a window, and how long changes continued after it. A node with lost
    packets receives a notice after TCP's next repetition, which may be seconds later; for the
    changes `apart`, of all other nodes, the notice itself counts."""
    kind, start_ms = event.name.rpartition("-")[2], event.time_ms
    notices = [at for at in history.notices() if start_ms <= at < end_ms] if kind == "loss" else []
    if not notices:
        notice_ms = _notice(history, event, end_ms, kind, _later(changes, start_ms))
        return notice_ms, max(0, changes[-1] - notice_ms) if changes else 0
    heard_ms = max(
        (
            one.time_ms
            for one in history.heard()
            if not event.is_start and one.node in event.nodes and one.time_ms < end_ms
        ),
        default=start_ms,
    )
    heard = _slowest(sorted({max(at, heard_ms) for at in notices}), changes, end_ms)
    return max(_slowest(sorted(notices), apart, end_ms), heard, key=lambda one: one[1])


def _slowest(notices: list[int], changes: list[int], end_ms: int) -> tuple[int, int]:
    """Return the notice after which changes continued for longest before the next one, and how
    long."""
    found = (notices[0], 0)
    for notice_ms, next_ms in zip(notices, [*notices[1:], end_ms], strict=True):
        took_ms = max((at - notice_ms for at in changes if notice_ms <= at < next_ms), default=0)
        found = max(found, (notice_ms, took_ms), key=lambda one: one[1])
    return found


def _later(changes: list[int], start_ms: int) -> int:
    return changes[0] if changes else start_ms


def _notice(history: History, event: Happened, end_ms: int, kind: str, first_ms: int) -> int:
    if kind == "kill" and not event.is_start:
        started = [
            at
            for member, at in history.started().items()
            if event.time_ms <= at < end_ms and process_of(member).partition(".")[0] in event.nodes
        ]
        return max(started, default=event.time_ms)
    if kind == "loss" or (kind == "suspend" and event.is_start):
        return first_ms
    return event.time_ms


def _place(queue: str) -> list[str | int]:
    broker, _, number = queue.rpartition(":")
    return [broker, int(number)]


def _named(shares: Shares) -> dict[str, list[list[str | int]]]:
    return {
        member: [_place(queue) for queue in sorted(queues)] for member, queues in shares.items()
    }
