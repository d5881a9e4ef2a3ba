"""The audit as a program: `python -m turbopump.spark.audit.job STORE... --ledger FILE...`.

    broker-1=/data/1 broker-2=/data/2 broker-3=/data/3 --ledger /data/ledgers --json

Owns the order of the steps, the report and the exit code: 0, 1 if a promise was broken, 2 if the
input cannot be used. Only `session` imports Spark: --local needs no JVM and gives the same
verdicts. It must never change a store.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from turbopump.spark import session
from turbopump.spark.audit import compare
from turbopump.spark.audit.claims import Judgement, audited_stores
from turbopump.spark.audit.digests import BLOCK_BYTES, digest_file, tasks_of
from turbopump.spark.audit.executors import LocalTaskRunner, SparkTaskRunner, TaskRunner
from turbopump.spark.audit.facts import (
    ELSEWHERE_MAX,
    FactTask,
    SearchTask,
    Summary,
    search_bodies,
    summarize_ledger,
)
from turbopump.spark.audit.ledger import LedgerError, Part, parts_of
from turbopump.spark.audit.logs import (
    AuditedLog,
    check_labels,
    check_same_labels,
    check_tails,
    join_reports,
    task_of,
)
from turbopump.spark.audit.queue_files import EndTask, check_ends
from turbopump.spark.audit.replicas import AuditedReplica, Unusable, open_replica
from turbopump.spark.audit.scan import scan_file
from turbopump.spark.audit.verdicts import Finding, PromiseOutcome, Tally, Verdict
from turbopump.spark.commands import parsers
from turbopump.spark.commands.stores import named_stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND = "its body or key is found"
"""Text in a finding of a missing message, before its other places."""
FOUND_NOWHERE = f"{FOUND} nowhere else"
"""Text in a finding of a missing message without another place."""
NO_LEDGER = "no ledger of received messages was given"
"""Reason why promises on claims are undecided."""
USABLE, BROKEN, UNUSABLE = 0, 1, 2
"""Exit codes: no promise was broken, a promise was broken, the input cannot be used."""


@dataclass(slots=True, frozen=True)
class AuditOptions:
    """Input of an audit: stores, ledgers, and how they are read."""

    stores: tuple[str, ...]
    """Paths, or `name=path` with the name that ledgers use for the store."""
    ledgers: tuple[str, ...] = ()
    """Files or folders."""
    leader: str = ""
    """Name of the leader's store; "": the store with the newest epoch and the longest log."""
    workers: int = 1
    """Number of processes, without Spark."""
    block_bytes: int = BLOCK_BYTES
    """Bytes of log under one digest when replicas are compared."""
    epoch_files: tuple[str, ...] = ()
    """Epoch lists outside of their stores, as `name=file`, or just a file for a single store."""


@dataclass(slots=True, frozen=True)
class Audit:
    """Result of an audit: a verdict for each promise, and facts about the stores."""

    verdicts: tuple[Verdict, ...]
    """Verdicts on the promises, in the order of the report."""
    leader: str
    """Name of the leader's store."""
    stores: tuple[AuditedReplica, ...]
    """The stores, in the order of the options."""

    @property
    def is_broken(self) -> bool:
        """Whether any promise was broken."""
        return any(one.outcome is PromiseOutcome.VIOLATED for one in self.verdicts)

    def members(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "broken": self.is_broken,
            "leader": self.leader,
            "stores": [
                {
                    "store": one.name,
                    "path": one.root,
                    "start": one.min,
                    "end": one.end,
                    "confirmed": one.confirmed_end,
                    "epoch": one.epochs.last_epoch,
                    "stopped": one.is_stopped,
                }
                for one in self.stores
            ],
            "verdicts": [one.members() for one in self.verdicts],
        }

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        lines = []
        for one in self.stores:
            role = ", leads" if one.name == self.leader else ""
            lines.append(
                f"{one.name}: log from {one.min} to {one.end}, confirmed to {one.confirmed_end}, "
                f"epoch {one.epochs.last_epoch}{role}"
            )
        return [*lines, *(line for one in self.verdicts for line in one.lines())]


@dataclass(slots=True)
class Tallies:
    """A tally for each promise, in the order of the report."""

    records: Tally = field(default_factory=lambda: Tally("records"))
    equal: Tally = field(default_factory=lambda: Tally("replicas-equal"))
    epochs: Tally = field(default_factory=lambda: Tally("epochs"))
    truncation: Tally = field(default_factory=lambda: Tally("truncation"))
    places: Tally = field(default_factory=lambda: Tally("queue-offsets"))


def run(spark: "SparkSession | None", options: AuditOptions) -> Audit:
    """Run the audit, in this machine's processes if `spark` is None; changes no store. Raises
    Unusable, LedgerError, OSError, and Spark's errors."""
    runner: TaskRunner = (
        LocalTaskRunner(options.workers) if spark is None else SparkTaskRunner(spark)
    )
    parts = parts_of(list(options.ledgers))
    summary = Summary()
    for one in runner.run(summarize_ledger, parts):
        summary.merge(one)
    tallies = Tallies()
    logs = _scan_logs(runner, _open_replicas(options, summary), tallies)
    try:
        leader = compare.leader_of(logs, options.leader, summary.elected)
    except ValueError as error:
        raise Unusable(str(error)) from None
    _check_stores(runner, options, logs, leader, summary, tallies)
    tasks = [
        FactTask(number, file, log.replica.confirm, log.replica.end, log.replica.batch_topics)
        for number, log in enumerate(logs)
        for file in log.replica.files
        if file.base < log.replica.end
    ]
    judged = (
        runner.judge_claims(parts, tasks, audited_stores(logs, leader)) if parts else Judgement()
    )
    _check_writers(summary, leader, judged, tallies)
    _search_missing(runner, judged, [one for one in tasks if logs[one.store] is leader])
    return Audit(
        tuple(_make_verdicts(tallies, judged, summary, parts)),
        leader.replica.name,
        tuple(log.replica for log in logs),
    )


def _open_replicas(options: AuditOptions, summary: Summary) -> list[AuditedReplica]:
    """Open the stores, with the topics' deletions of the ledgers. Raises Unusable."""
    moved = _epoch_files(options)
    replicas = [open_replica(text, moved.get(_name_of(text), "")) for text in options.stores]
    if len({one.name for one in replicas}) < len(replicas):
        raise Unusable("two stores have one name")
    return [
        replace(
            one,
            deleted={
                topic: max(one.deleted.get(topic, 0), summary.deleted.get(topic, 0))
                for topic in {*one.deleted, *summary.deleted}
            },
        )
        for one in replicas
    ]


def _name_of(store: str) -> str:
    """Return the name in `name=path`; the path if no name is given."""
    name, _, path = store.rpartition("=")
    return name or path


def _epoch_files(options: AuditOptions) -> dict[str, str]:
    """Return the paths of separate epoch files, by the store's name."""
    names = [_name_of(text) for text in options.stores]
    found: dict[str, str] = {}
    for text in options.epoch_files:
        name, _, path = text.rpartition("=")
        if not name and len(names) == 1:
            name = names[0]
        if name not in names:
            raise Unusable(f"{text}: an epoch file is named STORE=FILE, of {', '.join(names)}")
        found[name] = path
    return found


def _scan_logs(
    runner: TaskRunner, replicas: Sequence[AuditedReplica], tallies: Tallies
) -> list[AuditedLog]:
    """Scan all files of all stores; faults go to `tallies`."""
    tasks = [task_of(one, file) for one in replicas for file in one.files]
    reports = iter(runner.run(scan_file, tasks))
    return [
        join_reports(one, [next(reports) for _ in one.files], tallies.records, tallies.places)
        for one in replicas
    ]


def _check_stores(
    runner: TaskRunner,
    options: AuditOptions,
    logs: list[AuditedLog],
    leader: AuditedLog,
    summary: Summary,
    tallies: Tallies,
) -> None:
    """Compare the stores with each other: bytes, epoch lists, truncations and queue ends. Claims
    are not needed."""
    ends = [
        EndTask(one.name, one.root, one.min, one.is_stopped, log.queue_ends)
        for log in logs
        for one in (log.replica,)
    ]
    for places in runner.run(check_ends, ends):
        tallies.places.merge(places)
    check_labels(logs, tallies.epochs)
    check_same_labels(logs, leader, tallies.epochs)
    check_tails(logs, summary.cuts, tallies.truncation)
    compare.check_cuts(summary.cuts, logs, tallies.truncation)
    points = compare.check_points(logs, leader, tallies.truncation, tallies.epochs)
    if len(logs) > 1:
        cuts = compare.block_boundaries(logs, points)
        work = tasks_of([log.replica for log in logs], cuts, options.block_bytes)
        reports = runner.run(digest_file, work)
        compare.check_bytes(logs, leader, points, reports, tallies.equal, tallies.truncation)
    master = leader.replica
    for store, log_offset in sorted(summary.confirmed.items()):
        tallies.equal.count("confirmed ends reported")
        if master.end < log_offset:
            tallies.equal.add_finding(
                Finding(
                    f"{store} had confirmed {log_offset}, the log that leads ends at {master.end}",
                    master.name,
                    log_offset=master.end,
                )
            )


def _check_writers(
    summary: Summary, leader: AuditedLog, judged: Judgement, tallies: Tallies
) -> None:
    """Check that each epoch had one broker and began where its election was recorded."""
    for what, pairs in (("acknowledged", summary.writers), ("elected", set(summary.elected))):
        brokers: dict[int, list[str]] = {}
        for epoch, broker in sorted(pairs):
            brokers.setdefault(epoch, []).append(broker)
        judged.writers.count(f"epochs {what} in", len(brokers))
        for epoch, names in brokers.items():
            if len(names) > 1:
                did = "both were elected" if what == "elected" else what
                judged.writers.add_finding(
                    Finding(
                        f"{' and '.join(names)} {did} in one epoch",
                        epoch=epoch,
                    )
                )
    for (epoch, broker), log_offset in summary.elected.items():
        entry = leader.replica.labels.epochs.get(epoch)
        if entry is not None and log_offset is not None and entry.start != log_offset:
            tallies.epochs.add_finding(
                Finding(
                    f"{broker} was elected and began at {log_offset}, the list has {entry.start}",
                    leader.replica.name,
                    log_offset=entry.start,
                    epoch=epoch,
                )
            )
    if summary.left_out:
        judged.writers.cannot_check(f"{summary.left_out:,} lines of brokers were too many")


def _search_missing(runner: TaskRunner, judged: Judgement, tasks: Sequence[FactTask]) -> None:
    """Search the leader's log for the first missing messages, and add to their findings where
    they lie."""
    sought = tuple(claim for _at, claim in judged.missing)
    if not sought:
        return
    places: dict[int, list[str]] = {}
    for found in runner.run(search_bodies, [SearchTask(one, sought) for one in tasks]):
        for number, placed in found:
            topic, queue_id, queue_offset = placed.place
            places.setdefault(number, []).append(
                f"{topic} queue {queue_id} offset {queue_offset}, log offset "
                f"{placed.fact.log_offset}"
            )
    for number, claim in enumerate(sought):
        where = " and at ".join(places.get(number, [])[:ELSEWHERE_MAX])
        where_found = f"{FOUND} at {where}" if where else FOUND_NOWHERE
        tally = judged.tally_of(claim)
        tally.findings = [
            replace(one, what=f"{one.what}; {where_found}")
            if (one.topic, one.queue_id, one.queue_offset) == claim.place
            and FOUND not in one.what
            and (claim.digest[:16] or claim.key) in one.what
            else one
            for one in tally.findings
        ]


def _make_verdicts(
    tallies: Tallies, judged: Judgement, summary: Summary, parts: Sequence[Part]
) -> list[Verdict]:
    """Return a verdict on each promise, with the reasons for which it could not be checked."""
    looked = tallies.records.counts.get("records", 0) > 0
    compared = any(tallies.equal.counts.values())
    if not compared:
        tallies.equal.cannot_check("no two stores have confirmed bytes in common")
    if not parts:
        for tally in (judged.acked, judged.consumed, judged.writers):
            tally.cannot_check(NO_LEDGER)
    elif not judged.acked.counts.get("claims"):
        judged.acked.cannot_check("the ledgers hold no acknowledgement")
    if parts and not judged.consumed.counts.get("claims"):
        judged.consumed.cannot_check("the ledgers hold no message that was read")
    if parts and not summary.writers and not summary.elected:
        judged.writers.cannot_check("the ledgers name no broker and epoch of an acknowledgement")
    for tally in (judged.acked, judged.consumed):
        claims = tally.counts.get("claims", 0)
        if claims and not tally.counts.get("found") and not tally.total:
            tally.cannot_check("all messages are too old to be in the logs, or of deleted topics")
    return [
        tallies.records.make_verdict(looked=looked),
        tallies.equal.make_verdict(looked=compared),
        tallies.epochs.make_verdict(looked=tallies.epochs.counts.get("stores", 0) > 0),
        tallies.truncation.make_verdict(looked=looked),
        tallies.places.make_verdict(looked=looked),
        judged.acked.make_verdict(),
        judged.consumed.make_verdict(),
        judged.writers.make_verdict(),
    ]


def main(argv: list[str] | None = None) -> int:
    """Run the command: print the audit; return USABLE, BROKEN or UNUSABLE. `argv` None: the
    process's arguments."""
    parser = parsers.truncation_parser()
    given = parser.parse_args(argv)
    stores = tuple(one for text in given.stores for one in named_stores(text))
    options = AuditOptions(
        stores,
        tuple(given.ledger),
        given.leader,
        max(given.workers, 1),
        epoch_files=tuple(given.epoch_file),
    )
    try:
        if given.local:
            audit = run(None, options)
        else:
            with session.open_session(
                parser.prog, given.master, given.conf, verbose=given.verbose
            ) as spark:
                audit = run(spark, options)
    except (Unusable, LedgerError, OSError, session.JobError) as error:
        print(f"the audit is not possible: {error}", file=sys.stderr)
        return UNUSABLE
    if given.json:
        print(json.dumps(audit.members(), indent=1))
    else:
        print("\n".join(audit.lines()))
    return BROKEN if audit.is_broken else USABLE


if __name__ == "__main__":
    sys.exit(main())
