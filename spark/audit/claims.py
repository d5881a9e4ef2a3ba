"""What clients received, held against what lies at the places that were named.

Owns the judgement of one claim, and what has to be known for it. It must never read a file: what
lies at a place comes from `facts`, with Spark or without. Called by `facts` and the job.

A message that was acknowledged or read is where it was said to be, the same, in the store that
leads and in each replica that has confirmed so much. What lies before a log's first byte went with
age, and what a topic's former life had went with the topic.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from turbopump.engine.log.epochs import Epochs
from turbopump.spark.audit.ledger import Claim
from turbopump.spark.audit.logs import AuditedLog, label_of
from turbopump.spark.audit.verdicts import Finding, Tally

ACKED, CONSUMED, WRITERS = "acked-survives", "consumed-survives", "one-writer"
SOUGHT_MAX = 20
"""Messages that are looked for elsewhere, to say where they are."""


class Fact(NamedTuple):
    """A message of a log. Of those at one place the first counts: readers are shown that one."""

    store: int
    """Number of the store."""
    log_offset: int
    key: str
    digest: str
    """Of the body, all 64 digits; "": of an inner batch, whose messages are not distinguished."""


@dataclass(slots=True, frozen=True)
class Known:
    """What a judge has to know of a store."""

    name: str
    min: int
    confirm: int
    deleted: dict[str, int]
    first: dict[tuple[str, int], int]
    """The first offset of each queue that is still in the log."""
    epochs: Epochs | None


@dataclass(slots=True, frozen=True)
class Court:
    """All stores; the one that leads has that number."""

    stores: tuple[Known, ...]
    leader: int


@dataclass(slots=True)
class Judged:
    """What came of some claims; those of parts can be added up."""

    acked: Tally = field(default_factory=lambda: Tally(ACKED))
    consumed: Tally = field(default_factory=lambda: Tally(CONSUMED))
    writers: Tally = field(default_factory=lambda: Tally(WRITERS))
    missing: list[tuple[int, Claim]] = field(default_factory=list)
    """The first few that are not at their place, by the log offset that the ledger gives."""

    def add(self, other: "Judged") -> None:
        """What another worker judged."""
        for mine, theirs in (
            (self.acked, other.acked),
            (self.consumed, other.consumed),
            (self.writers, other.writers),
        ):
            mine.add(theirs)
        self.missing = first_of([*self.missing, *other.missing])

    def of(self, claim: Claim) -> Tally:
        """Where a claim belongs."""
        return self.consumed if claim.read else self.acked


def first_of(claims: list[tuple[int, Claim]]) -> list[tuple[int, Claim]]:
    """The first few, of all workers, in the order of findings."""
    claims.sort(key=lambda one: (one[0], one[1].place, one[1].digest, one[1].read))
    return claims[:SOUGHT_MAX]


def court_of(logs: Sequence[AuditedLog], leader: AuditedLog) -> Court:
    """What is known behind the scans."""
    stores = tuple(
        Known(
            log.replica.name,
            log.replica.min,
            log.replica.promised_end,
            log.replica.deleted,
            log.queues,
            log.replica.epochs if log.replica.labels.known else None,
        )
        for log in logs
    )
    return Court(stores, next(n for n, log in enumerate(logs) if log is leader))


def judge(claim: Claim, facts: Sequence[Fact], court: Court, judged: Judged) -> None:
    """One claim; `facts` is all that lies at its place, in any store and order."""
    tally = judged.of(claim)
    tally.count("claims")
    there = _by_store(claim, facts, court)
    known = court.stores[court.leader]
    fact = there[court.leader]
    found = (
        [_finding(claim, known, "is not there", claim.log_offset)]
        if fact is None
        else list(_differences(claim, fact, known))
    )
    if found and (why := _excuse(claim, fact, known)):
        tally.count(why)
        return
    tally.extend(found)
    if fact is not None and not found:
        tally.count("found")
        _check_writer(claim, fact, known, judged.writers)
    log_offset = fact.log_offset if fact is not None else claim.log_offset
    for number, other in enumerate(court.stores):
        if number == court.leader or log_offset is None or log_offset < other.min:
            continue
        copy = there[number]
        if copy is not None and copy.log_offset < other.confirm:
            tally.extend(_differences(claim, copy, other))
        elif log_offset < other.confirm and _is_of_this_life(claim, other, log_offset):
            what = f"is not there, and {other.confirm} is confirmed"
            tally.found(_finding(claim, other, what, log_offset))
    if found:
        at = found[0].log_offset
        judged.missing = first_of([*judged.missing, (-1 if at is None else at, claim)])


def _by_store(claim: Claim, facts: Sequence[Fact], court: Court) -> list[Fact | None]:
    """What readers of each store are shown: the first record of the topic's present life."""
    there: list[Fact | None] = [None] * len(court.stores)
    for fact in facts:
        before = there[fact.store]
        begins_anew = court.stores[fact.store].deleted.get(claim.topic, 0)
        if fact.log_offset < begins_anew:
            continue
        if before is None or fact.log_offset < before.log_offset:
            there[fact.store] = fact
    return there


def _is_of_this_life(claim: Claim, known: Known, log_offset: int) -> bool:
    return log_offset >= known.deleted.get(claim.topic, 0)


def _excuse(claim: Claim, fact: Fact | None, known: Known) -> str:
    """Why the message does not lie at its place, if that is as it should be."""
    begins_anew = known.deleted.get(claim.topic)
    if begins_anew is not None and (claim.log_offset is None or claim.log_offset < begins_anew):
        return "of a deleted topic"
    if fact is not None:
        return ""
    if claim.log_offset is not None:
        return "too old to be there" if claim.log_offset < known.min else ""
    first = known.first.get((claim.topic, claim.queue_id))
    if known.min > 0 and (first is None or claim.queue_offset < first):
        return "too old to be there"
    return ""


def _differences(claim: Claim, fact: Fact, known: Known) -> Iterator[Finding]:
    at = fact.log_offset
    if fact.digest and claim.digest and not fact.digest.startswith(claim.digest):
        yield _finding(claim, known, "is another message there", at)
    elif claim.key and fact.key and claim.key != fact.key:
        yield _finding(claim, known, f"has the key {fact.key} there, not {claim.key}", at)
    elif claim.log_offset not in (None, at):
        yield _finding(claim, known, f"lies at {at}, not at log offset {claim.log_offset}", at)


def _check_writer(claim: Claim, fact: Fact, known: Known, writers: Tally) -> None:
    """Who acknowledges in an epoch has written in that epoch."""
    if claim.epoch is None or claim.read or known.epochs is None:
        return
    label = label_of(known.epochs, fact.log_offset)
    writers.count("labels compared")
    if label is not None and label != claim.epoch:
        writers.found(
            _finding(
                claim,
                known,
                f"is of epoch {label} there, {claim.broker or 'a broker'} acknowledged it"
                f" in epoch {claim.epoch}",
                fact.log_offset,
                claim.epoch,
            )
        )


def _finding(
    claim: Claim, known: Known, what: str, log_offset: int | None, epoch: int | None = None
) -> Finding:
    said = "read" if claim.read else "acknowledged"
    name = f" {claim.digest[:16] or claim.key}" if claim.digest or claim.key else ""
    by = f" of {claim.broker}" if claim.broker else ""
    return Finding(
        f"the message{name} that was {said}{by} {what}",
        known.name,
        log_offset=log_offset,
        topic=claim.topic,
        queue_id=claim.queue_id,
        queue_offset=claim.queue_offset,
        epoch=epoch,
    )
