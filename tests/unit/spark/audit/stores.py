"""Scanned stores for an audit, built from a few numbers without files."""

from collections.abc import Sequence
from typing import Any

from turbopump.engine.log.epochs import Epochs
from turbopump.spark.audit.logs import AuditedLog, TrailingBytes
from turbopump.spark.audit.replicas import AuditedReplica, Labels, LogFile
from turbopump.spark.audit.verdicts import Tally

FILE = 1000
Pairs = Sequence[tuple[int, int]]


def replica(
    name: str,
    end: int,
    epochs: Pairs | None = ((1, 0),),
    *,
    confirm: int | None = None,
    start: int = 0,
    **more: Any,
) -> AuditedReplica:
    """A replica with log files of 1,000 bytes each; without `epochs` it has no list."""
    files = tuple(
        LogFile(f"/data/{name}/commitlog/{base:020d}", base, FILE)
        for base in range(start - start % FILE, max(end, start + 1), FILE)
    )
    labels = Labels() if epochs is None else Labels(Epochs.from_pairs(epochs), True)
    fields = {"replicated": True, "is_stopped": True, "deleted": {}, "batch_topics": frozenset()}
    return AuditedReplica(
        name,
        f"/data/{name}",
        files,
        confirm=confirm,
        min=start,
        end=end,
        **{"labels": labels, **fields, **more},
    )


def log(
    of: AuditedReplica,
    *behind: TrailingBytes,
    loose: tuple[int, ...] = (),
    count: int = 1,
) -> AuditedLog:
    """The audited log of a replica, with messages by default."""
    return AuditedLog(of, {}, {}, list(behind), loose, count)


def logs_of(*replicas: AuditedReplica) -> list[AuditedLog]:
    """The audited logs of several replicas."""
    return [log(one) for one in replicas]


def reported_places(tally: Tally) -> list[str]:
    """Findings with their stores, in order; then the undecided points."""
    verdict = tally.make_verdict()
    return [*(f"{one.store}: {one.what}" for one in verdict.findings), *verdict.undecided]
