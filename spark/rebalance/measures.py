"""Measures of a consumer group's rebalance: evenness, stickiness, correctness, duration.

Owns the format of a history's line (docs/FORMATS.md) and the measures. It must never know Spark,
nor more than one line. It runs on Spark's workers.

The measures of the proposal for rebalancing by the broker, for q queues and n members that have
s1..sn queues each:

balance_degree  the population standard deviation of s1..sn; 0 if all are equal.
stickiness      queues that stayed with their member, divided by all q queues; 1 is best.
                Undefined for a first assignment, before which no queue had an owner.
time_ms         from the start of a rebalance to its end.

Our own measures compare the result with the best possible one:

balance_score   sum of |si - sj| over all pairs of members: Kafka's (AbstractStickyAssignor,
                getBalanceScore); 0 if all are equal.
evenness        1 when the score is the least that q and n allow (some members have one queue
                more if n does not divide q), 0 when one member has all, linear between.
spread          largest si less the smallest.
stayed, moved   of the queues whose owner is still a member: those it kept, and those it lost.
moved_min       how many have to move for a balanced assignment: each member may keep up to
                floor(q / n), and q mod n members that have more keep one more. It is a
                true bound: no balanced assignment moves fewer.
retention       stayed / (stayed + moved - moved_min), at most 1: the share of the queues that
                could have stayed which did. 1 if none could.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import pstdev
from typing import Any

Queue = tuple[str, int]
"""(broker name, queue id)"""
Assignment = Mapping[str, frozenset[Queue]]
"""Queues by client id; a client without queues may be missing."""

TIME_MAX_MS = 253_402_300_800_000  # the year 10,000, where Spark's and Python's times end
MEMBERS_MAX = 100_000  # in a group, and queues in a topic; a longer line is not from a real cluster


class BadHistory(ValueError):
    """A line is not a rebalance; the text names its fault."""


@dataclass(frozen=True)
class Rebalance:
    """A rebalance of a group's queues of a topic: a line of a history."""

    time_ms: int
    """Epoch ms of the rebalance."""
    group: str
    topic: str
    allocator: str
    """Name of the strategy that assigned the queues."""
    trigger: str
    """Cause of the rebalance; "": not recorded."""
    members: tuple[str, ...]
    """Client ids of the group's members, as recorded."""
    topic_queues: frozenset[Queue]
    """All queues of the topic."""
    before: Assignment
    after: Assignment
    faults: tuple[str, ...]
    """Sentences about queues without or with two owners, unknown queues and owners."""
    compute_ms: float | None = None
    """Time to compute the assignment; None: not recorded, as for all times here."""
    time_consumed_ms: int | None = None
    """Time from the rebalance's start to its end."""
    overlap_ms: float | None = None
    """The longest time for which a queue may have had two owners, as the broker saw it."""
    unowned_ms: float | None = None
    """The longest time for which a queue had no owner, as the broker saw it."""


@dataclass(frozen=True)
class Measures:
    """Measures of a rebalance; the module's docstring has the definitions."""

    members: int
    queues: int
    """Queues of the topic."""
    balance_degree: float
    balance_score: int
    evenness: float
    spread: int
    revoked: int
    """Queues that a client had and lost, summed over all clients."""
    assigned: int
    """Queues that a client got, summed over all clients."""
    stayed: int
    moved: int
    moved_min: int
    retention: float
    owned: int
    """Divisor of stickiness: all queues, or 0 for a first assignment."""
    stickiness: float | None


def parse(line: str) -> Rebalance:
    """Parse and check a line of a history (docs/FORMATS.md). Raises BadHistory if it is malformed;
    a wrong assignment only adds to `faults`."""
    try:
        value = json.loads(line)
    except ValueError as error:
        raise BadHistory(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadHistory("no JSON object")
    members = tuple(_read_texts(value, "members"))
    queues = _read_queues(_read_list(value, "queues"), "queues")
    before, after = (_read_assignment(value, name) for name in ("before", "after"))
    found = frozenset(queues)
    return Rebalance(
        time_ms=_read_time(value, "time_ms"),
        group=_text(value, "group"),
        topic=_text(value, "topic"),
        allocator=_text(value, "allocator"),
        trigger=_text(value, "trigger", ""),
        members=members,
        topic_queues=found,
        before={client: frozenset(owned) for client, owned in before.items()},
        after={client: frozenset(owned) for client, owned in after.items()},
        faults=tuple(_find_faults(members, found, after)),
        compute_ms=_read_duration(value, "compute_ms"),
        time_consumed_ms=_read_span(value),
        overlap_ms=_read_duration(value, "overlap_ms"),
        unowned_ms=_read_duration(value, "unowned_ms"),
    )


def measure_rebalance(one: Rebalance) -> Measures:
    """Compute the measures of a rebalance; a group without members has evenness and retention 1."""
    members = sorted(set(one.members))
    sizes = [len(one.after.get(client, ())) for client in members]
    score = sum_of_differences(sizes)
    stayed, moved, moved_min = _count_movement(one)
    could = stayed + moved - moved_min
    owned = len(one.topic_queues) if any(one.before.values()) else 0
    return Measures(
        members=len(members),
        queues=len(one.topic_queues),
        balance_degree=pstdev(sizes) if sizes else 0.0,
        balance_score=score,
        evenness=_compute_evenness(score, len(one.topic_queues), len(members)),
        spread=max(sizes) - min(sizes) if sizes else 0,
        revoked=_count_lost(one.before, one.after),
        assigned=_count_lost(one.after, one.before),
        stayed=stayed,
        moved=moved,
        moved_min=moved_min,
        retention=min(1.0, stayed / could) if could else 1.0,
        owned=owned,
        stickiness=stayed / owned if owned else None,
    )


def sum_of_differences(sizes: Iterable[int]) -> int:
    """Return the sum of |a - b| over all pairs of `sizes`, in the time of a sort."""
    ordered = sorted(sizes)
    last = len(ordered) - 1
    return sum(size * (2 * at - last) for at, size in enumerate(ordered))


def assignment_id(assignment: Assignment) -> str:
    """Return a text that is equal for equal assignments only (clients without queues do not count),
    to see whether lines are consecutive."""
    owned = sorted((client, sorted(queues)) for client, queues in assignment.items() if queues)
    return json.dumps(owned, separators=(",", ":"))


def _compute_evenness(score: int, queues: int, members: int) -> float:
    """Return 1 for the least score that the numbers allow, 0 if one member has all queues."""
    if not members:
        return 1.0
    more = queues % members
    best, worst = more * (members - more), queues * (members - 1)
    return 1.0 if worst <= best else max(0.0, (worst - score) / (worst - best))


def _count_movement(one: Rebalance) -> tuple[int, int, int]:
    """Return the numbers of queues (stayed, moved, moved_min); see the module."""
    members = set(one.members)
    none: frozenset[Queue] = frozenset()
    kept = {client: one.before.get(client, none) & one.topic_queues for client in members}
    stayed = sum(len(queues & one.after.get(client, none)) for client, queues in kept.items())
    owned = sum(map(len, kept.values()))
    if not members:
        return 0, 0, 0
    each, more = divmod(len(one.topic_queues), len(members))
    over = sum(len(queues) > each for queues in kept.values())
    could = sum(min(len(queues), each) for queues in kept.values()) + min(more, over)
    return stayed, owned - stayed, owned - could


def _count_lost(first: Assignment, second: Assignment) -> int:
    """Return the number of queues that their client has in `first` and not in `second`."""
    return sum(len(queues - second.get(client, frozenset())) for client, queues in first.items())


def _find_faults(
    members: tuple[str, ...], queues: frozenset[Queue], after: Mapping[str, list[Queue]]
) -> Iterable[str]:
    """Yield the faults of an assignment.

    A fault is a queue without an owner, with two owners, or that does not exist, or a client that
    is no member. In a group without members, queues need no owner.
    """
    owners = Counter(queue for owned in after.values() for queue in owned)
    for queue, count in sorted(owners.items()):
        if count > 1:
            yield f"queue {_name(queue)} is assigned {count} times"
        if queue not in queues:
            yield f"queue {_name(queue)} is assigned, but does not belong to the topic"
    if members:
        yield from (f"queue {_name(queue)} has no owner" for queue in sorted(queues - set(owners)))
    for client in sorted(set(after) - set(members)):
        if after[client]:
            yield f"{client} has queues, but is no member"


def _name(queue: Queue) -> str:
    """Format a queue as "broker name/queue id"."""
    return f"{queue[0]}/{queue[1]}"


def _text(value: dict[str, Any], name: str, default: str | None = None) -> str:
    """Read a text member; raises BadHistory."""
    found = value.get(name, default)
    if not isinstance(found, str):
        raise BadHistory(f"{name} is {found!r}: a text is expected")
    return found


def _read_time(value: dict[str, Any], name: str) -> int:
    """Read a time in epoch ms; raises BadHistory."""
    found = value.get(name)
    if type(found) is not int or not 0 <= found < TIME_MAX_MS:
        raise BadHistory(f"{name} is {found!r}: epoch milliseconds are expected")
    return found


def _read_duration(value: dict[str, Any], name: str) -> float | None:
    """Read a duration in ms; None if it is null or missing. Raises BadHistory."""
    found = value.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e15:
        raise BadHistory(f"{name} is {found!r}: milliseconds are expected")
    return float(found)


def _read_span(value: dict[str, Any]) -> int | None:
    """Return the time from `start_ms` to `end_ms`; None if neither is given."""
    if value.get("start_ms") is None and value.get("end_ms") is None:
        return None
    start_ms, end_ms = _read_time(value, "start_ms"), _read_time(value, "end_ms")
    if end_ms < start_ms:
        raise BadHistory(f"end_ms is {end_ms}, before start_ms, {start_ms}")
    return end_ms - start_ms


def _read_list(value: dict[str, Any], name: str) -> list[Any]:
    """Read a list member of at most MEMBERS_MAX items; raises BadHistory."""
    found = value.get(name)
    if not isinstance(found, list) or len(found) > MEMBERS_MAX:
        raise BadHistory(f"{name} is no list of up to {MEMBERS_MAX}")
    return found


def _read_texts(value: dict[str, Any], name: str) -> list[str]:
    """Read a list of texts; raises BadHistory."""
    found = _read_list(value, name)
    if not all(isinstance(one, str) for one in found):
        raise BadHistory(f"{name} is no list of texts")
    return found


def _read_queues(found: list[Any], name: str) -> list[Queue]:
    """Read a list of [broker name, queue id]; raises BadHistory."""
    made: list[Queue] = []
    for one in found:
        if not isinstance(one, list) or len(one) != 2:
            raise BadHistory(f"{name} has {one!r}: [broker name, queue id] is expected")
        broker, number = one
        if not isinstance(broker, str) or type(number) is not int or number < 0:
            raise BadHistory(f"{name} has {one!r}: [broker name, queue id] is expected")
        made.append((broker, number))
    return made


def _read_assignment(value: dict[str, Any], name: str) -> dict[str, list[Queue]]:
    """Read an assignment: the queues of each client. Raises BadHistory."""
    found = value.get(name)
    if not isinstance(found, dict) or len(found) > MEMBERS_MAX:
        raise BadHistory(f"{name} is no object of clients and their queues")
    return {client: _read_queues(_read_list(found, client), name) for client in found}
