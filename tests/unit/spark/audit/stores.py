"""Stores as an audit sees them after their scans, made of a few numbers, without a file."""

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
    """A replica whose log files have 1,000 bytes each; without epochs it has no list."""
    files = tuple(
        LogFile(f"/data/{name}/commitlog/{base:020d}", base, FILE)
        for base in range(start - start % FILE, max(end, start + 1), FILE)
    )
    labels = Labels() if epochs is None else Labels(Epochs.of(epochs), True)
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
    """Its log, with messages unless it is said otherwise."""
    return AuditedLog(of, {}, {}, list(behind), loose, count)


def logs_of(*replicas: AuditedReplica) -> list[AuditedLog]:
    """Of each of them."""
    return [log(one) for one in replicas]


def told(tally: Tally) -> list[str]:
    """What is wrong, with its store, in order; then what cannot be decided."""
    verdict = tally.verdict()
    return [*(f"{one.store}: {one.what}" for one in verdict.findings), *verdict.undecided]
