"""The work of tasks, with Spark or without: messages of a log as facts, and a ledger's summary.

Owns how claims and facts are joined without Spark: in rounds. Each round holds a part of the claims
and walks all logs once, which bounds memory for a ledger of any size.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from turbopump.engine.queues.dispatcher import parse_properties
from turbopump.pyx import record as kernel
from turbopump.pyx.region import Region
from turbopump.spark.audit.claims import AuditedStores, Fact, Judgement, judge_claim
from turbopump.spark.audit.ledger import (
    Claim,
    Confirmed,
    Cut,
    Deleted,
    Elected,
    Part,
    read_part,
)
from turbopump.spark.audit.replicas import LogFile, map_file
from turbopump.spark.audit.scan import RecordWalk, Row, queue_offsets_of, topic_of

ROUND = 250_000
"""Claims per round: about 250 MB with their facts."""
CUTS_MAX = 100_000
"""Truncations kept from the ledgers; a real run has fewer. The rest is only counted."""
WRITERS_MAX = 100_000
"""(epoch, broker) pairs kept from the ledgers: few in any real ledger. The rest is only counted."""

ELSEWHERE_MAX = 2
"""Other places of a message that a finding lists, at most."""

Place = tuple[str, int, int]
"""(topic, queue id, queue offset)."""


@dataclass(slots=True, frozen=True)
class FactTask:
    """A log file whose messages are needed."""

    store: int
    """Index of the store in AuditedStores."""
    file: LogFile
    confirm: int | None
    """The store's confirmed end; None: the whole log is confirmed."""
    end: int
    """End of the log's records, as a log offset."""
    batch_topics: frozenset[str]
    """Topics whose records hold several messages."""


@dataclass(slots=True, frozen=True)
class Placed:
    """A message of a log, and its (topic, queue id, queue offset)."""

    place: Place
    fact: Fact


def facts_of(task: FactTask, wanted: set[Place] | None = None) -> Iterator[Placed]:
    """Yield the messages of a file in the order of the log, or only the messages at the `wanted`
    places; an inner batch yields one for each queue offset. Raises OSError."""
    names: dict[bytes, str] = {}
    with map_file(task.file.path) as opened:
        region = opened.region
        for row in RecordWalk(region, task.file, task.confirm):
            log_offset = task.file.base + row[kernel.POSITION]
            if log_offset >= task.end:
                return
            raw = region.read(row[kernel.TOPIC_AT], row[kernel.TOPIC_SIZE])
            topic = names.setdefault(raw, topic_of(row, region)) if raw not in names else names[raw]
            width = queue_offsets_of(row, region, topic in task.batch_topics)
            first, queue_id = row[kernel.QUEUE_OFFSET], row[kernel.QUEUE_ID]
            for number in range(width):
                place = topic, queue_id, first + number
                if wanted is None or place in wanted:
                    yield Placed(place, _make_fact(task.store, log_offset, row, region, width))


def _make_fact(store: int, log_offset: int, row: Row, region: Region, width: int) -> Fact:
    """Return the message in `row` as a Fact; `width` is the number of its queue offsets."""
    text = region.read(row[kernel.PROPERTIES_AT], row[kernel.PROPERTIES_SIZE])
    key = parse_properties(text).get(b"UNIQ_KEY", b"") if b"UNIQ_KEY" in text else b""
    digest = (
        ""
        if width > 1
        else hashlib.sha256(region.view(row[kernel.BODY_AT], row[kernel.BODY_SIZE])).hexdigest()
    )
    return Fact(store, log_offset, key.decode(errors="replace"), digest)


# Ledgers


@dataclass(slots=True)
class Summary:
    """Summary of some parts of the ledgers; claims are only counted."""

    acked: int = 0
    """Number of acknowledgements."""
    read: int = 0
    """Number of reads."""
    confirmed: dict[str, int] = field(default_factory=dict)
    """Greatest reported confirmed end, by store."""
    elected: dict[tuple[int, str], int | None] = field(default_factory=dict)
    """Log offset at which an epoch began, if recorded, by (epoch, broker)."""
    writers: set[tuple[int, str]] = field(default_factory=set)
    """(epoch, broker) of acknowledgements."""
    deleted: dict[str, int] = field(default_factory=dict)
    """End of the log at the last deletion, by topic."""
    cuts: list[Cut] = field(default_factory=list)
    """Truncations, at most CUTS_MAX."""
    left_out: int = 0
    """Lines of brokers beyond CUTS_MAX and WRITERS_MAX, which are not checked."""

    def merge(self, other: "Summary") -> None:
        """Add the summary of other parts to this object."""
        self.acked += other.acked
        self.read += other.read
        self.left_out += other.left_out
        for store, log_offset in other.confirmed.items():
            self.confirmed[store] = max(log_offset, self.confirmed.get(store, 0))
        for topic, log_offset in other.deleted.items():
            self.deleted[topic] = max(log_offset, self.deleted.get(topic, 0))
        self.elected |= other.elected
        self.writers |= other.writers
        self.cuts += other.cuts
        self.left_out += max(len(self.cuts) - CUTS_MAX, 0)
        del self.cuts[CUTS_MAX:]


def summarize_ledger(part: Part) -> Summary:
    """Read one part of a ledger and return its summary. Raises OSError, LedgerError."""
    summary = Summary()
    for entry in read_part(part):
        if isinstance(entry, Claim):
            summary.read += entry.read
            summary.acked += not entry.read
            if entry.broker and entry.epoch is not None and not entry.read:
                _add_writer(summary, (entry.epoch, entry.broker))
        elif isinstance(entry, Confirmed):
            before = summary.confirmed.get(entry.store, 0)
            summary.confirmed[entry.store] = max(before, entry.log_offset)
        elif isinstance(entry, Elected):
            summary.elected[entry.epoch, entry.broker] = entry.log_offset
        elif isinstance(entry, Deleted):
            before = summary.deleted.get(entry.topic, 0)
            summary.deleted[entry.topic] = max(before, entry.log_offset)
        else:
            summary.cuts.append(entry)
            if len(summary.cuts) > CUTS_MAX:
                summary.cuts.pop()
                summary.left_out += 1
    return summary


def _add_writer(summary: Summary, writer: tuple[int, str]) -> None:
    """Add (epoch, broker) of an acknowledgement to a summary, up to WRITERS_MAX."""
    if writer not in summary.writers and len(summary.writers) >= WRITERS_MAX:
        summary.left_out += 1
    else:
        summary.writers.add(writer)


def claims_of(parts: Iterable[Part]) -> Iterator[Claim]:
    """Yield all claims of the parts, in order. Raises OSError, LedgerError."""
    for part in parts:
        yield from (entry for entry in read_part(part) if isinstance(entry, Claim))


# Without Spark


def judge_in_rounds(
    parts: Sequence[Part], tasks: Sequence[FactTask], audited: AuditedStores, count: int = ROUND
) -> Judgement:
    """Judge all claims in `parts` of ledgers by the messages in the log files of `tasks`, `count`
    claims per round; each round reads all files. Raises OSError, LedgerError."""
    judged = Judgement()
    claims = claims_of(parts)
    while some := list(islice(claims, count)):
        wanted = {claim.place for claim in some}
        found: dict[Place, list[Fact]] = {}
        for task in tasks:
            for placed in facts_of(task, wanted):
                found.setdefault(placed.place, []).append(placed.fact)
        for claim in some:
            judge_claim(claim, found.get(claim.place, ()), audited, judged)
    return judged


# Search at other places


@dataclass(slots=True, frozen=True)
class SearchTask:
    """A log file to search for messages that are missing from their places."""

    facts: FactTask
    """The file."""
    sought: tuple[Claim, ...]
    """Claims whose messages are missing."""


def search_bodies(task: SearchTask) -> list[tuple[int, Placed]]:
    """Return pairs (index of the claim in `sought`, message at another place), found by its body's
    digest, or by its key if the claim has no digest.

    At most ELSEWHERE_MAX per claim in the file. Raises OSError.
    """
    found: list[tuple[int, Placed]] = []
    counts = [0] * len(task.sought)
    for placed in facts_of(task.facts):
        for number, claim in enumerate(task.sought):
            fact = placed.fact
            same_body = bool(claim.digest) and fact.digest.startswith(claim.digest)
            same_key = bool(claim.key) and claim.key == fact.key
            if placed.place == claim.place or counts[number] >= ELSEWHERE_MAX:
                continue
            if same_body or (same_key and not claim.digest):
                counts[number] += 1
                found.append((number, placed))
    return found
