"""Compares replicas with each other: bytes must be equal up to the point that the algorithm allows.

Owns two promises: confirmed bytes are the same in all stores, and below the consistent point of a
replica and the leader no byte differs, because a handshake would not truncate there. This module
must never read a log, except to narrow a difference down.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from turbopump.engine.log.epochs import Epochs, EpochsDamaged, consistent_point
from turbopump.engine.types import LogOffset
from turbopump.spark.audit.digests import DigestReport, first_difference, record_at
from turbopump.spark.audit.ledger import Cut, Pairs
from turbopump.spark.audit.logs import AuditedLog, check_same_bytes_same_labels, names_store
from turbopump.spark.audit.replicas import AuditedReplica
from turbopump.spark.audit.verdicts import FINDINGS_MAX, Finding, Tally


@dataclass(slots=True)
class Difference:
    """Consecutive pieces that differ between two stores."""

    one: AuditedReplica
    other: AuditedReplica
    start: int
    """Log offset of the first piece."""
    end: int
    """Log offset after the last piece."""


def leader_of(
    logs: Sequence[AuditedLog], name: str, elected: Iterable[tuple[int, str]] = ()
) -> AuditedLog:
    """Return the leader's store, by its name or, without a name, as an election would choose.

    An election prefers the newest epoch, then the longest log, then the store whose election in
    that epoch is in a ledger (`elected`: pairs of epoch and broker). Raises ValueError if no store
    has the name.
    """
    if name:
        for log in logs:
            if names_store(name, log.replica):
                return log
        raise ValueError(f"no store is named {name}")
    chosen = {(epoch, broker) for epoch, broker in elected}

    def rank(log: AuditedLog) -> tuple[int, int, bool]:
        replica = log.replica
        epoch = replica.epochs.last_epoch
        led = any(names_store(broker, replica) for one, broker in chosen if one == epoch)
        return epoch, replica.end, led

    return max(logs, key=rank)


def truncation_point(replica: AuditedReplica, leader: AuditedReplica) -> int | None:
    """Return the log offset at which a replica would truncate its log under that leader.

    None if one of the epoch lists is unreliable, or both have nothing in common.
    """
    if not (replica.labels.known and leader.labels.known):
        return None
    return consistent_point(
        replica.epochs, LogOffset(replica.end), leader.epochs, LogOffset(leader.end)
    )


def check_points(
    logs: Sequence[AuditedLog], leader: AuditedLog, truncation: Tally, epochs: Tally
) -> dict[str, int]:
    """Return each replica's consistent point with the leader, a log offset by the store's name;
    replicas without a point are left out.

    Adds a violation to `truncation` where a replica has confirmed bytes after its point, and to
    `epochs` where epoch lists label common bytes differently.
    """
    points = {}
    for log in logs:
        replica, master = log.replica, leader.replica
        if log is leader or not replica.replicated or not master.replicated:
            continue
        if replica.end == replica.min or master.end == master.min:
            continue  # an empty log has nothing to truncate
        point = truncation_point(replica, master)
        if point is None:
            truncation.cannot_check(
                f"{replica.name} and {master.name}: their epoch lists show nothing in common"
            )
            continue
        truncation.count("consistent points")
        points[replica.name] = point
        check_same_bytes_same_labels(replica, master, point, epochs)
        if point < replica.confirmed_end:
            truncation.add_finding(
                Finding(
                    f"it would be cut at {point} as a replica of {master.name}, and has confirmed "
                    f"{replica.confirmed_end}",
                    replica.name,
                    log_offset=point,
                    epoch=master.epochs.last_epoch,
                )
            )
    return points


def block_boundaries(logs: Sequence[AuditedLog], points: dict[str, int]) -> list[int]:
    """Return the log offsets, ascending, at which blocks are divided: starts, confirmed ends and
    ends of the logs, and `points`."""
    ends = [(log.replica.min, log.replica.confirmed_end, log.replica.end) for log in logs]
    return sorted({*points.values(), *(at for one in ends for at in one)})


def check_bytes(
    logs: Sequence[AuditedLog],
    leader: AuditedLog,
    points: dict[str, int],
    reports: Iterable[DigestReport],
    equal: Tally,
    truncation: Tally,
) -> None:
    """Compare the digests of all stores, piece by piece.

    Pieces that two stores have confirmed must be equal (`equal`), and so must a replica's pieces
    below its point (`points`, by store name) and the leader's (`truncation`). Raises OSError.
    """
    replicas = {log.replica.name: log.replica for log in logs}
    master = leader.replica
    digests: dict[tuple[int, int], dict[str, bytes]] = {}
    for report in reports:
        for piece, digest in zip(pairwise(report.task.bounds), report.digests, strict=True):
            digests.setdefault(piece, {})[report.task.store] = digest
    different: dict[tuple[str, str, bool], list[Difference]] = {}
    compared = 0
    for start, end in sorted(digests):
        held = digests[start, end]
        sure = [name for name in held if end <= replicas[name].confirmed_end]
        equal.count("pieces compared", len(sure) > 1)
        compared += (end - start) * (len(sure) > 1)
        first = _reference_store(held, sure, master.name)
        pairs = [(first, name, True) for name in sure if name != first]
        if master.name in held:
            pairs += [
                (master.name, name, False)
                for name, point in points.items()
                if name in held and end <= point and not (name in sure and master.name in sure)
            ]
        for one, other, is_sure in pairs:
            if held[one] != held[other]:
                runs = different.setdefault((one, other, is_sure), [])
                if runs and runs[-1].end == start:
                    runs[-1].end = end
                else:
                    runs.append(Difference(replicas[one], replicas[other], start, end))
    equal.count("bytes compared", compared)
    _report_uncompared(logs, leader, equal)
    for (_one, _other, is_sure), runs in different.items():
        for number, run in enumerate(runs):
            tally = equal if is_sure else truncation
            tally.add_finding(_narrowed_finding(run, points, is_sure, narrow=number < FINDINGS_MAX))


def _report_uncompared(logs: Sequence[AuditedLog], leader: AuditedLog, equal: Tally) -> None:
    """Report stores without any compared byte: the verdict on equality does not cover them."""
    for log in logs:
        replica = log.replica
        if not log.count:
            equal.cannot_check(f"{replica.name} has no message: nothing of it was compared")
            continue
        spans = [(one.replica.min, one.replica.confirmed_end) for one in logs if one is not log]
        own = replica.min, replica.confirmed_end
        if log is not leader and all(max(own[0], a) >= min(own[1], b) for a, b in spans):
            equal.cannot_check(
                f"{replica.name} has confirmed {own[0]} to {own[1]}, of which no other store has "
                "confirmed anything: nothing of it was compared"
            )


def _reference_store(held: dict[str, bytes], sure: Sequence[str], leader: str) -> str:
    """Return the name of the store to compare the others with: one of the majority by digest
    (`held`, by store name), preferably the leader. `sure` are the stores that have confirmed the
    piece."""
    counts = Counter(held[name] for name in sure)
    return max(sure, key=lambda name: (counts[held[name]], name == leader), default="")


def _narrowed_finding(
    run: Difference, points: dict[str, int], is_sure: bool, *, narrow: bool
) -> Finding:
    """Return the finding about a difference; with `narrow` it has the first differing byte and
    its record."""
    at, one, other = run.start, run.one, run.other
    mine, theirs = one.file_at(at), other.file_at(at)
    lies = None
    if narrow and mine is not None and theirs is not None:
        found = first_difference(mine, theirs, at, min(run.end, mine.end, theirs.end))
        at = at if found is None else found
        lies = record_at(theirs, at) or record_at(mine, at)
    why = "" if is_sure else (f"; a handshake would keep all before {points.get(other.name, 0)}")
    where = f", in the record at {lies.log_offset}" if lies else ""
    return Finding(
        f"the byte differs from {one.name}'s{where}; both have blocks that differ up to "
        f"{run.end}{why}",
        other.name,
        theirs.path if theirs else "",
        at - theirs.base if theirs else None,
        at,
        lies.topic if lies else None,
        lies.queue_id if lies else None,
        lies.queue_offset if lies else None,
    )


def check_cuts(cuts: Sequence[Cut], logs: Sequence[AuditedLog], truncation: Tally) -> None:
    """Check truncations in the ledgers: at the consistent point of the recorded epoch lists, and
    never below confirmed bytes; violations go to `truncation`."""
    for cut in cuts:
        truncation.count("cuts")
        replica = next((log.replica for log in logs if names_store(cut.store, log.replica)), None)
        name = replica.name if replica else cut.store
        if cut.confirm is not None and cut.to < cut.confirm:
            truncation.add_finding(
                Finding(
                    f"it was cut at {cut.to}, and had confirmed {cut.confirm}",
                    name,
                    log_offset=cut.to,
                    epoch=cut.epoch,
                )
            )
        if cut.own is None or cut.other is None or cut.other_end is None:
            continue
        try:
            point = _recomputed_point(cut, cut.own, cut.other, cut.other_end)
        except EpochsDamaged as error:
            truncation.cannot_check(f"{name}: the cut at {cut.to} names no epoch list: {error}")
            continue
        if point != cut.to:
            truncation.add_finding(
                Finding(
                    f"it was cut at {cut.to}, the consistent point is {point}",
                    name,
                    log_offset=cut.to,
                    epoch=cut.epoch,
                )
            )


def _recomputed_point(cut: Cut, own: Pairs, other: Pairs, other_end: int) -> int | None:
    """Return the consistent point of the epoch lists that a truncation's ledger line recorded;
    None if they have nothing in common."""
    return consistent_point(
        Epochs.from_pairs(own), LogOffset(cut.start), Epochs.from_pairs(other), LogOffset(other_end)
    )
