"""Compares each claim of a client with the message that lies at the claimed place.

Owns the judgement of a claim, and the facts about a store needed for it. It must never read a
file: `facts` supplies the messages, with Spark or without.

A message that was acknowledged or read must lie at its claimed place, unchanged, in the leader's
store and in each replica whose confirmed end is beyond it. Two claims are excused: retention
removed the place (it lies before the log's first byte), or the topic was deleted since.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from turbopump.engine.log.epochs import Epochs
from turbopump.spark.audit.ledger import Claim
from turbopump.spark.audit.logs import AuditedLog, epoch_at
from turbopump.spark.audit.verdicts import Finding, Tally

ACKED, CONSUMED, WRITERS = "acked-survives", "consumed-survives", "one-writer"
"""Names of the promises on acknowledged messages, on read messages, and on one broker per epoch."""
SOUGHT_MAX = 20
"""Missing messages, at most, that the audit searches for at other places."""


class Fact(NamedTuple):
    """A message of a log.

    If several messages lie at one place, the first counts, because the broker serves that one.
    """

    store: int
    """Index of the store in AuditedStores."""
    log_offset: int
    key: str
    """The property UNIQ_KEY, or ""."""
    digest: str
    """SHA-256 of the body, all 64 digits; "" for an inner batch, whose messages are not
    distinguished."""


@dataclass(slots=True, frozen=True)
class JudgedStore:
    """A store as claims are judged against it: its log's limits, deletions and epochs."""

    name: str
    min: int
    """First log offset of the log."""
    confirm: int
    """Confirmed end that the store reports, even if its log is shorter."""
    deleted: dict[str, int]
    """End of the log at a topic's last deletion, by topic."""
    first: dict[tuple[str, int], int]
    """First queue offset that is still in the log, by (topic, queue id)."""
    epochs: Epochs | None
    """The epoch list; None: unreliable or missing."""


@dataclass(slots=True, frozen=True)
class AuditedStores:
    """The stores of the audit; `leader` is the index of the leader's store."""

    stores: tuple[JudgedStore, ...]
    leader: int


@dataclass(slots=True)
class Judgement:
    """Results of judging some claims; the results of several tasks can be added up."""

    acked: Tally = field(default_factory=lambda: Tally(ACKED))
    consumed: Tally = field(default_factory=lambda: Tally(CONSUMED))
    writers: Tally = field(default_factory=lambda: Tally(WRITERS))
    missing: list[tuple[int, Claim]] = field(default_factory=list)
    """The first SOUGHT_MAX claims whose message is not at its place, by log offset."""

    def merge(self, other: "Judgement") -> None:
        """Add the results of another task to this object."""
        for mine, theirs in (
            (self.acked, other.acked),
            (self.consumed, other.consumed),
            (self.writers, other.writers),
        ):
            mine.merge(theirs)
        self.missing = first_claims([*self.missing, *other.missing])

    def tally_of(self, claim: Claim) -> Tally:
        """Return the tally that counts a claim: `consumed` for a read, else `acked`."""
        return self.consumed if claim.read else self.acked


def first_claims(claims: list[tuple[int, Claim]]) -> list[tuple[int, Claim]]:
    """Sort `claims`, pairs (log offset or -1, claim), in place, in the order of findings, and
    return the first SOUGHT_MAX."""
    claims.sort(key=lambda one: (one[0], one[1].place, one[1].digest, one[1].read))
    return claims[:SOUGHT_MAX]


def audited_stores(logs: Sequence[AuditedLog], leader: AuditedLog) -> AuditedStores:
    """Collect the facts for judging, after all logs are scanned."""
    stores = tuple(
        JudgedStore(
            log.replica.name,
            log.replica.min,
            log.replica.promised_end,
            log.replica.deleted,
            log.queues,
            log.replica.epochs if log.replica.labels.known else None,
        )
        for log in logs
    )
    return AuditedStores(stores, next(n for n, log in enumerate(logs) if log is leader))


def judge_claim(
    claim: Claim, facts: Sequence[Fact], audited: AuditedStores, judged: Judgement
) -> None:
    """Judge one claim and add the result to `judged`; `facts` are all messages at its place, of any
    store, in any order."""
    tally = judged.tally_of(claim)
    tally.count("claims")
    there = _by_store(claim, facts, audited)
    known = audited.stores[audited.leader]
    fact = there[audited.leader]
    found = (
        [_make_finding(claim, known, "is not there", claim.log_offset)]
        if fact is None
        else list(_find_differences(claim, fact, known))
    )
    if found and (why := _excuse_for(claim, fact, known)):
        tally.count(why)
        return
    tally.add_findings(found)
    if fact is not None and not found:
        tally.count("found")
        _check_writer(claim, fact, known, judged.writers)
    log_offset = fact.log_offset if fact is not None else claim.log_offset
    for number, other in enumerate(audited.stores):
        if number == audited.leader or log_offset is None or log_offset < other.min:
            continue
        copy = there[number]
        if copy is not None and copy.log_offset < other.confirm:
            tally.add_findings(_find_differences(claim, copy, other))
        elif log_offset < other.confirm and _is_after_deletion(claim, other, log_offset):
            what = f"is not there, and {other.confirm} is confirmed"
            tally.add_finding(_make_finding(claim, other, what, log_offset))
    if found:
        at = found[0].log_offset
        judged.missing = first_claims([*judged.missing, (-1 if at is None else at, claim)])


def _by_store(claim: Claim, facts: Sequence[Fact], audited: AuditedStores) -> list[Fact | None]:
    """Return for each store, in the order of `audited.stores`, the message that the broker would
    serve at the claimed place, or None. That is the first record which was written after the
    topic was last deleted."""
    there: list[Fact | None] = [None] * len(audited.stores)
    for fact in facts:
        before = there[fact.store]
        begins_anew = audited.stores[fact.store].deleted.get(claim.topic, 0)
        if fact.log_offset < begins_anew:
            continue
        if before is None or fact.log_offset < before.log_offset:
            there[fact.store] = fact
    return there


def _is_after_deletion(claim: Claim, known: JudgedStore, log_offset: int) -> bool:
    """Whether a record at `log_offset` was written after the claim's topic was last deleted."""
    return log_offset >= known.deleted.get(claim.topic, 0)


def _excuse_for(claim: Claim, fact: Fact | None, known: JudgedStore) -> str:
    """Return the reason if the message is rightly absent from its place, else ""."""
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


def _find_differences(claim: Claim, fact: Fact, known: JudgedStore) -> Iterator[Finding]:
    """Yield a finding for each difference of the message at the claimed place from the claim."""
    at = fact.log_offset
    if fact.digest and claim.digest and not fact.digest.startswith(claim.digest):
        yield _make_finding(claim, known, "is another message there", at)
    elif claim.key and fact.key and claim.key != fact.key:
        yield _make_finding(claim, known, f"has the key {fact.key} there, not {claim.key}", at)
    elif claim.log_offset not in (None, at):
        yield _make_finding(claim, known, f"lies at {at}, not at log offset {claim.log_offset}", at)


def _check_writer(claim: Claim, fact: Fact, known: JudgedStore, writers: Tally) -> None:
    """Check that a broker that acknowledged a message in an epoch also wrote it in that epoch."""
    if claim.epoch is None or claim.read or known.epochs is None:
        return
    label = epoch_at(known.epochs, fact.log_offset)
    writers.count("labels compared")
    if label is not None and label != claim.epoch:
        writers.add_finding(
            _make_finding(
                claim,
                known,
                f"is of epoch {label} there, {claim.broker or 'a broker'} acknowledged it"
                f" in epoch {claim.epoch}",
                fact.log_offset,
                claim.epoch,
            )
        )


def _make_finding(
    claim: Claim, known: JudgedStore, what: str, log_offset: int | None, epoch: int | None = None
) -> Finding:
    """Return a violation of a claim in a store; `what` is the end of its text, after "the
    message that was read"."""
    verb = "read" if claim.read else "acknowledged"
    name = f" {claim.digest[:16] or claim.key}" if claim.digest or claim.key else ""
    by = f" of {claim.broker}" if claim.broker else ""
    return Finding(
        f"the message{name} that was {verb}{by} {what}",
        known.name,
        log_offset=log_offset,
        topic=claim.topic,
        queue_id=claim.queue_id,
        queue_offset=claim.queue_offset,
        epoch=epoch,
    )
