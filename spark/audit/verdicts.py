"""Results of an audit: a verdict per promise, and each violation with its exact place.

Owns the wording of the report and the bound on its size. It must never decide whether something is
a violation.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

FINDINGS_MAX = 20
"""Findings shown per promise, at most: the first ones and the count suffice for diagnosis."""
REASONS_MAX = 20
"""Reasons for an undecided promise, at most; equal texts of several files count once."""


class PromiseOutcome(Enum):
    """Outcome of the audit of a promise: it holds, was violated, or cannot be decided."""

    HOLDS = "holds"
    """Everything was checked, without a violation."""
    VIOLATED = "violated"
    """A violation was found."""
    UNDECIDED = "not decidable"
    """No violation was found, but something could not be checked."""


@dataclass(slots=True, frozen=True)
class Finding:
    """A violation and its place; fields that do not apply are None or ""."""

    what: str
    """A sentence that describes the violation."""
    store: str = ""
    """Name of the store."""
    file: str = ""
    """Path of the file."""
    position: int | None = None
    """Byte within `file`."""
    log_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    epoch: int | None = None

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """Sort key that gives the same first findings whatever the order of the workers."""
        numbers = (self.log_offset, self.queue_id, self.queue_offset, self.epoch, self.position)
        known = tuple(-1 if number is None else number for number in numbers)
        return (known[0], self.topic or "", *known[1:], self.store, self.file, self.what)

    def members(self) -> dict[str, Any]:
        """Return the finding as JSON values by their names in the report, without fields that do
        not apply."""
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
    """The verdict of an audit on a promise, with findings, counts and reasons."""

    name: str
    """Name of the promise, such as "truncation"."""
    outcome: PromiseOutcome
    counts: dict[str, int]
    """Number of checked objects, by kind."""
    findings: tuple[Finding, ...] = ()
    """The first violations in the order of `Finding.sort_key`."""
    more: int = 0
    """Number of findings that are not listed."""
    undecided: tuple[str, ...] = ()
    """Reasons why something could not be checked."""

    def members(self) -> dict[str, Any]:
        """Return the verdict as JSON values."""
        return {
            "verdict": self.name,
            "outcome": self.outcome.value,
            "counts": self.counts,
            "findings": [finding.members() for finding in self.findings],
            "more": self.more,
            "undecided": list(self.undecided),
        }

    def lines(self) -> list[str]:
        """Return the verdict as lines of text: the outcome, then findings and reasons."""
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
    """Collects findings and counts for one verdict; tallies of parts can be added in any order."""

    name: str
    """Name of the promise."""
    counts: dict[str, int] = field(default_factory=dict)
    """Number of checked objects, by kind."""
    findings: list[Finding] = field(default_factory=list)
    """Violations, unsorted; more than `limit` until the next shortening."""
    total: int = 0
    """Number of all violations."""
    reasons: set[str] = field(default_factory=set)
    """Reasons why something could not be checked."""
    limit: int = FINDINGS_MAX
    """Violations that the verdict lists, at most."""

    def add_finding(self, finding: Finding) -> None:
        """Count a violation, and keep its finding if it may be among the first `limit`."""
        self.total += 1
        self.findings.append(finding)
        if len(self.findings) > 4 * self.limit:
            self._limit_findings()

    def cannot_check(self, why: str) -> None:
        """Record a reason why the promise could not be checked for an object; the verdict is then
        not HOLDS. Reasons beyond REASONS_MAX are dropped."""
        if len(self.reasons) < REASONS_MAX:
            self.reasons.add(why)

    def count(self, what: str, number: int = 1) -> None:
        """Add `number` to the checked objects of the kind `what`, such as "records"."""
        self.counts[what] = self.counts.get(what, 0) + number

    def merge(self, other: "Tally") -> None:
        """Add the findings, counts and reasons of another worker on the same promise; `other` is
        not changed."""
        self.total += other.total
        self.findings += other.findings
        self._limit_findings()
        for what, number in other.counts.items():
            self.count(what, number)
        for why in other.reasons:
            self.cannot_check(why)

    def add_findings(self, findings: Iterable[Finding]) -> None:
        """Record several violations; see `add_finding`."""
        for finding in findings:
            self.add_finding(finding)

    def make_verdict(self, *, looked: bool = True) -> Verdict:
        """Return the verdict on all that was recorded; `looked` is False if no object could be
        checked: then it is UNDECIDED without a violation."""
        self._limit_findings()
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

    def _limit_findings(self) -> None:
        """Keep only the first `limit` findings."""
        self.findings.sort(key=lambda finding: finding.sort_key)
        del self.findings[self.limit :]
