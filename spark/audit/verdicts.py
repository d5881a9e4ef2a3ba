"""What an audit comes to: a verdict a promise, and each broken one with its exact place.

Owns the words of the report and the bound on its size. It must never decide what is a violation.
Called by everyone in this package.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

FINDINGS_MAX = 20
"""Shown of one promise: who has more looks at the first ones, and at the count of the rest."""
REASONS_MAX = 20
"""Why something could not be decided; the same for each store and file is one reason."""


class PromiseOutcome(Enum):
    """Of one promise."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNDECIDED = "not decidable"


@dataclass(slots=True, frozen=True)
class Finding:
    """One violation, and where it is; None and "" where that has no meaning."""

    what: str
    """One sentence."""
    store: str = ""
    file: str = ""
    position: int | None = None
    """A byte of `file`."""
    log_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    epoch: int | None = None

    @property
    def order(self) -> tuple[Any, ...]:
        """The first findings are the same ones, in whatever order workers looked."""
        numbers = (self.log_offset, self.queue_id, self.queue_offset, self.epoch, self.position)
        known = tuple(-1 if number is None else number for number in numbers)
        return (known[0], self.topic or "", *known[1:], self.store, self.file, self.what)

    def members(self) -> dict[str, Any]:
        """As JSON: what has no meaning is left out."""
        names = {
            "what": self.what,
            "store": self.store,
            "file": self.file,
            "position": self.position,
            "logOffset": self.log_offset,
            "topic": self.topic,
            "queue": self.queue_id,
            "queueOffset": self.queue_offset,
            "epoch": self.epoch,
        }
        return {name: value for name, value in names.items() if value is not None and value != ""}

    def __str__(self) -> str:
        where = [self.store] if self.store else []
        if self.file:
            at = f" at byte {self.position}" if self.position is not None else ""
            where.append(f"{self.file}{at}")
        if self.log_offset is not None:
            where.append(f"log offset {self.log_offset}")
        if self.topic is not None:
            where.append(f"{self.topic} queue {self.queue_id} offset {self.queue_offset}")
        if self.epoch is not None:
            where.append(f"epoch {self.epoch}")
        return f"{self.what} [{'; '.join(where)}]" if where else self.what


@dataclass(slots=True, frozen=True)
class Verdict:
    """On one promise."""

    name: str
    outcome: PromiseOutcome
    counts: dict[str, int]
    """What was looked at."""
    findings: tuple[Finding, ...] = ()
    more: int = 0
    """Findings beyond those."""
    undecided: tuple[str, ...] = ()
    """What could not be looked at, and why."""

    def members(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "verdict": self.name,
            "outcome": self.outcome.value,
            "counts": self.counts,
            "findings": [finding.members() for finding in self.findings],
            "more": self.more,
            "undecided": list(self.undecided),
        }

    def lines(self) -> list[str]:
        """For people."""
        counts = ", ".join(f"{count:,} {what}" for what, count in self.counts.items())
        outcome = self.outcome.value
        shown = outcome.upper() if self.outcome is PromiseOutcome.VIOLATED else outcome
        lines = [f"{self.name:<18} {shown:<14} {counts}".rstrip()]
        lines += [f"    {finding}" for finding in self.findings]
        if self.more:
            lines.append(f"    and {self.more:,} more")
        lines += [f"    not decidable: {why}" for why in self.undecided]
        return lines


@dataclass(slots=True)
class Tally:
    """Collects what comes to one verdict. Those of parts can be added up, in any order."""

    name: str
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    total: int = 0
    reasons: set[str] = field(default_factory=set)
    limit: int = FINDINGS_MAX

    def found(self, finding: Finding) -> None:
        """A violation."""
        self.total += 1
        self.findings.append(finding)
        if len(self.findings) > 4 * self.limit:
            self._shorten()

    def cannot_tell(self, why: str) -> None:
        """Something could not be looked at."""
        if len(self.reasons) < REASONS_MAX:
            self.reasons.add(why)

    def count(self, what: str, number: int = 1) -> None:
        """So many things were looked at."""
        self.counts[what] = self.counts.get(what, 0) + number

    def add(self, other: "Tally") -> None:
        """What another worker found of the same promise."""
        self.total += other.total
        self.findings += other.findings
        self._shorten()
        for what, number in other.counts.items():
            self.count(what, number)
        for why in other.reasons:
            self.cannot_tell(why)

    def extend(self, findings: Iterable[Finding]) -> None:
        """Several violations."""
        for finding in findings:
            self.found(finding)

    def verdict(self, *, looked: bool = True) -> Verdict:
        """What it comes to; `looked`: anything could be looked at."""
        self._shorten()
        if self.total:
            outcome = PromiseOutcome.VIOLATED
        else:
            outcome = (
                PromiseOutcome.HOLDS if looked and not self.reasons else PromiseOutcome.UNDECIDED
            )
        return Verdict(
            self.name,
            outcome,
            dict(sorted(self.counts.items())),
            tuple(self.findings),
            self.total - len(self.findings),
            tuple(sorted(self.reasons)),
        )

    def _shorten(self) -> None:
        self.findings.sort(key=lambda finding: finding.order)
        del self.findings[self.limit :]
