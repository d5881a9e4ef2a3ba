"""The owners of each queue over time: by the lines of members, and only while their process ran.

A suspended process holds queues in its memory, but consumes none: it owns them again when it
continues. Must never judge.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from interop.rebalance_chaos.history import Down, History

Shares = dict[str, frozenset[str]]
"""Member -> its queues, `broker:number`."""


@dataclass(frozen=True)
class Span:
    """A member owns a queue, from the first time until the second (epoch ms)."""

    start_ms: int
    end_ms: int
    member: str


def process_of(member: str) -> str:
    """Return the process of a member's client id, `address@prefix-process-number`."""
    return member.rsplit("-", 2)[1]


class Ownership:
    """Return the spans of all queues of a run, which ended at `end_ms`."""

    def __init__(self, history: History, end_ms: int) -> None:
        self._downs: dict[str, list[Down]] = defaultdict(list)
        for down in history.downs():
            self._downs[down.process].append(down)
        self._started = history.started()
        self._spans: dict[str, list[Span]] = defaultdict(list)
        since: dict[tuple[str, str], int] = {}
        for one in history.held():
            mine = {queue for member, queue in since if member == one.member}
            for queue in mine - one.queues:
                self._close(one.member, queue, since.pop((one.member, queue)), one.time_ms)
            for queue in one.queues - mine:
                since[one.member, queue] = one.time_ms
        for (member, queue), start_ms in since.items():
            self._close(member, queue, start_ms, end_ms)

    def _close(self, member: str, queue: str, start_ms: int, end_ms: int) -> None:
        for low, high in self._running(member, start_ms, end_ms):
            self._spans[queue].append(Span(low, high, member))

    def _running(self, member: str, start_ms: int, end_ms: int) -> Iterator[tuple[int, int]]:
        """Return the parts of a time in which a member's process ran."""
        at = start_ms
        is_up = True
        for down in self._downs[process_of(member)]:
            if down.is_down and is_up and down.time_ms > at:
                if at < min(down.time_ms, end_ms):
                    yield at, min(down.time_ms, end_ms)
                is_up = False
            elif down.is_down:
                is_up = False
            else:
                is_up = True
            at = max(at, down.time_ms)
        if is_up and at < end_ms:
            yield at, end_ms

    @property
    def queues(self) -> set[str]:
        """All queues that any member owned."""
        return set(self._spans)

    def members(self, at_ms: int) -> set[str]:
        """Return the members that have started, and whose process runs."""
        return {
            member
            for member, started_ms in self._started.items()
            if started_ms <= at_ms and any(self._running(member, at_ms, at_ms + 1))
        }

    def shares(self, at_ms: int) -> Shares:
        """Return the owners of all queues at a time."""
        found: dict[str, set[str]] = defaultdict(set)
        for queue, spans in self._spans.items():
            for span in spans:
                if span.start_ms <= at_ms < span.end_ms:
                    found[span.member].add(queue)
        return {member: frozenset(queues) for member, queues in found.items()}

    @property
    def known(self) -> set[str]:
        """Return all members that ever started."""
        return set(self._started)

    def changes(self, members: set[str], start_ms: int, end_ms: int) -> list[int]:
        """Return the times at which one of the members got or lost a queue, sorted; stops of its
        process do not count."""
        stops = {name: {down.time_ms for down in downs} for name, downs in self._downs.items()}
        return sorted(
            at
            for spans in self._spans.values()
            for span in spans
            for at in (span.start_ms, span.end_ms)
            if span.member in members
            and start_ms < at < end_ms
            and at not in stops.get(process_of(span.member), ())
        )

    def losses(self, members: set[str], start_ms: int, end_ms: int) -> int:
        """Count the queues that one of the members lost. A queue that a suspended process still
        holds when it continues, and that another member took over long before, is not lost then."""
        count = 0
        for spans in self._spans.values():
            for span in spans:
                if span.member in members and start_ms < span.end_ms < end_ms:
                    count += not any(
                        one.start_ms < start_ms and one.end_ms > span.end_ms
                        for one in spans
                        if one.member != span.member
                    )
        return count

    def with_owners(self, least: int, most: int, start_ms: int, end_ms: int) -> tuple[int, int]:
        """Measure for how long any queue had between `least` and `most` owners without a break, and
        for all queues together."""
        longest = total = 0
        for spans in self._spans.values():
            run = 0
            for low, high, owners in self._counted(spans, start_ms, end_ms):
                run = run + high - low if least <= owners <= most else 0
                longest = max(longest, run)
                total += high - low if least <= owners <= most else 0
        return longest, total

    @staticmethod
    def _counted(spans: list[Span], start_ms: int, end_ms: int) -> Iterator[tuple[int, int, int]]:
        inside = [span for span in spans if span.start_ms < end_ms and span.end_ms > start_ms]
        times = {start_ms, end_ms}
        for span in inside:
            times |= {max(start_ms, span.start_ms), min(end_ms, span.end_ms)}
        for low, high in pairwise(sorted(times)):
            owners = {one.member for one in inside if one.start_ms <= low < one.end_ms}
            yield low, high, len(owners)
