"""Damage of each kind is found at its place, and a group without damage passes."""

import struct
from pathlib import Path
from typing import Any

import pytest
from tests.shortcuts.log_cuts import truncate_log
from tests.shortcuts.verdicts import find_verdict
from tests.unit.spark.audit.conftest import FILE_SIZE, NOW_MS, Group, Make, claims, only
from tests.waiting import record_epochs

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, NewMessage
from turbopump.pyx.crc32 import masked_crc32
from turbopump.spark.audit.job import AuditOptions, run
from turbopump.spark.audit.ledger import Claim, Confirmed, Cut, Elected, digest_of
from turbopump.spark.audit.replicas import Unusable
from turbopump.spark.audit.verdicts import PromiseOutcome

FLAG_AT, BODY_AT = 16, 88


def write_epochs(group: Group, name: str, pairs: list[tuple[int, int]], crc: int = -1) -> None:
    """Write the epoch file without its backup copy."""
    lines = b"".join(b"%d-%d\n" % pair for pair in pairs)
    crc = masked_crc32(lines) if crc < 0 else crc
    path = group.root(name) / "epochFileCheckpoint"
    path.write_bytes(b"%d\n%d\n" % (len(pairs), crc) + lines)
    path.with_name("epochFileCheckpoint.bak").unlink(missing_ok=True)


def pairs_of(group: Group, name: str) -> list[tuple[int, int]]:
    text = (group.root(name) / "epochFileCheckpoint").read_text().splitlines()[2:]
    return [(int(a), int(b)) for a, b in (line.split("-") for line in text)]


def test_a_whole_group(group: Group) -> None:
    audit = group.audit()
    assert [one.outcome for one in audit.verdicts] == [PromiseOutcome.HOLDS] * 8
    counts = {one.name: one.counts for one in audit.verdicts}
    assert counts["records"] == {"records": 390, "stores": 3}
    assert counts["replicas-equal"]["bytes compared"] == audit.stores[0].end
    assert counts["truncation"]["consistent points"] == 2
    assert counts["acked-survives"] == {"claims": 130, "found": 130}
    assert counts["consumed-survives"] == {"claims": 32, "found": 32}
    assert group.audit(workers=2).members() == audit.members()


def test_epoch_lists_that_lie_elsewhere(group: Group, tmp_path: Path) -> None:
    whole = group.audit()
    stores = tuple(f"{name}={group.root(name)}" for name in ("a", "b", "c"))
    moved = []
    for name in ("a", "c"):
        place = group.root(name) / "epochFileCheckpoint"
        place.rename(tmp_path / f"{name}.epochs")
        place.with_name("epochFileCheckpoint.bak").rename(tmp_path / f"{name}.epochs.bak")
        moved.append(f"{name}={tmp_path}/{name}.epochs")
    assert [one.epochs.last_epoch for one in run(None, AuditOptions(stores)).stores] == [-1, 6, -1]
    found = run(None, AuditOptions(stores, epoch_files=tuple(moved)))
    assert [one.epochs for one in found.stores] == [one.epochs for one in whole.stores]
    assert find_verdict(found, "epochs").members() == find_verdict(whole, "epochs").members()
    alone = run(None, AuditOptions(stores[:1], epoch_files=(f"{tmp_path}/a.epochs",)))
    assert alone.stores[0].epochs == whole.stores[0].epochs
    for wrong in ("x=/nowhere", "/nowhere", "a=/nowhere"):
        with pytest.raises(Unusable, match="/nowhere"):
            run(None, AuditOptions(stores, epoch_files=(wrong,)))


def test_a_flipped_byte_of_a_body(group: Group) -> None:
    claim = claims(group)[77]
    assert claim.log_offset is not None
    at = claim.log_offset + BODY_AT
    (byte,) = group.read("b", at, 1)
    group.change("b", at, bytes([byte ^ 4]))
    found = only(group.audit(), "replicas-equal", "records", "acked-survives")
    (finding,) = found.findings
    assert (finding.store, finding.log_offset, finding.position) == ("b", at, at % FILE_SIZE)
    assert finding.file == str(group.file("b", at)[0])
    assert (finding.topic, finding.queue_id, finding.queue_offset) == claim.place
    audit = group.audit()
    assert audit.leader == "b", "most are right, not the leader"
    records = find_verdict(audit, "records").findings
    assert [(one.log_offset, one.store) for one in records] == [(claim.log_offset, "b")]
    (lost,) = find_verdict(audit, "acked-survives").findings
    assert "is not there" in lost.what and lost.store == "b"
    assert find_verdict(audit, "queue-offsets").outcome is PromiseOutcome.UNDECIDED


def test_a_flipped_byte_that_no_checksum_covers(group: Group) -> None:
    claim = claims(group)[3]
    assert claim.log_offset is not None
    group.change("c", claim.log_offset + FLAG_AT + 3, b"\x07")
    (finding,) = only(group.audit(), "replicas-equal").findings
    assert (finding.store, finding.log_offset) == ("c", claim.log_offset + FLAG_AT + 3)


def test_all_replicas_changed_alike(group: Group) -> None:
    """Replicas with equal bytes may still be wrong: the ledger shows it."""
    claim = claims(group)[5]
    assert claim.log_offset is not None
    other = bytes(reversed(group.read("a", claim.log_offset + BODY_AT, 6)))
    body = other + group.read("a", claim.log_offset + BODY_AT, 2000)[6:]
    size = struct.unpack(">i", group.read("a", claim.log_offset + BODY_AT - 4, 4))[0]
    for name in "abc":
        group.change(name, claim.log_offset + 8, struct.pack(">i", masked_crc32(body[:size])))
        group.change(name, claim.log_offset + BODY_AT, other)
    verdict = only(group.audit(), "acked-survives")
    assert {one.store for one in verdict.findings} == {"a", "b", "c"}
    assert all("is another message there" in one.what for one in verdict.findings)
    assert "nowhere else" in verdict.findings[0].what


def test_an_acknowledged_message_is_missing(make: Make) -> None:
    """The message was only on the old master and must not have been acknowledged."""
    group = make()
    group.elect("a")
    group.write(20)
    point = group.logs["a"].end
    lost = group.send()
    group.elect("b")
    truncate_log(group.logs["a"], point, 0)
    record_epochs(group.logs["a"], group.logs["b"].epochs)
    group.write(1, queue_id=lost.queue_id, body=b"another one")
    group.stop()
    verdict = only(group.audit(), "acked-survives")
    assert {one.store for one in verdict.findings} == {"a", "b", "c"}
    finding = verdict.findings[0]
    assert (finding.topic, finding.queue_id, finding.queue_offset) == lost.place
    assert "is another message there" in finding.what and "nowhere else" in finding.what
    # Here no message is at the place of the lost one.
    group.entries.append(Claim(False, "T", 0, 1000, digest_of(b"never"), log_offset=point))
    group.entries.remove(lost)
    verdict = only(group.audit(), "acked-survives")
    assert "is not there" in verdict.findings[0].what


def test_an_acknowledged_message_lies_elsewhere(group: Group) -> None:
    one, other = claims(group)[10], claims(group)[13]
    assert one.queue_id == other.queue_id
    group.entries.remove(one)
    group.entries.append(Claim(False, *one.place, other.digest, other.key, broker="a", epoch=1))
    finding = only(group.audit(), "acked-survives").findings[0]
    assert (finding.topic, finding.queue_id, finding.queue_offset) == one.place
    assert f"{other.topic} queue {other.queue_id} offset {other.queue_offset}" in finding.what
    group.entries[-1] = Claim(False, *one.place, one.digest, log_offset=other.log_offset)
    finding = only(group.audit(), "acked-survives").findings[0]
    assert f"lies at {one.log_offset}, not at log offset {other.log_offset}" in finding.what


def test_a_message_that_was_read_vanished(group: Group) -> None:
    last = claims(group)[-1]
    group.entries.append(Claim(True, "T", last.queue_id, 9999, digest_of(b"read")))
    (finding,) = only(group.audit(), "consumed-survives").findings
    assert finding.queue_offset == 9999 and "was read is not there" in finding.what


def diverged(make: Make) -> tuple[Group, int]:
    """The old master keeps its own message, and appends the new master's bytes after it: its log
    was cut by position only."""
    group = make()
    group.elect("a")
    group.write(20)
    at = group.logs["a"].end
    group.send(acknowledged=False, queue_id=0, body=b"x" * 200)
    group.elect("b")
    group.write(0)
    group.send(queue_id=0, body=b"y" * 200)
    group.write(4)
    group.stop()
    return group, at


def test_a_replica_that_diverges(make: Make) -> None:
    group, at = diverged(make)
    audit = group.audit()
    (finding,) = only(audit, "replicas-equal", "acked-survives").findings
    assert (audit.leader, finding.store) == ("b", "a")
    assert at <= (finding.log_offset or 0) < at + 12, "size and magic are alike"
    assert f"in the record at {at}" in finding.what


def test_a_replica_that_would_be_cut_below_its_confirmed_offset(make: Make) -> None:
    group = make()
    group.elect("a")
    group.write(20)
    at = group.logs["a"].end
    group.send(acknowledged=False)
    group.logs["a"].confirm_to(group.logs["a"].end, 0)
    group.logs["c"].to_replica(0)
    group.logs.pop("c")
    group.elect("b", 7)
    record_epochs(group.logs["a"], Epochs.from_pairs([(1, 0)]))
    group.send(acknowledged=False)
    group.send(acknowledged=False)
    group.stop()
    verdict = find_verdict(group.audit(), "truncation")
    assert [one.log_offset for one in verdict.findings] == [at]
    assert "would be cut" in verdict.findings[0].what and verdict.findings[0].store == "a"


def test_bytes_that_a_handshake_would_keep(make: Make) -> None:
    """The bytes are not confirmed, but belong to the same epoch in both lists."""
    group = make()
    group.elect("a")
    group.write(20)
    at = group.logs["a"].end
    for _ in range(3):
        group.send(acknowledged=False)
    group.replicate()
    group.stop()
    group.change("b", at + FLAG_AT + 3, b"\x01")
    (finding,) = only(group.audit(leader="a"), "truncation").findings
    assert (finding.store, finding.log_offset) == ("b", at + FLAG_AT + 3)
    assert "a handshake would keep" in finding.what


@pytest.mark.parametrize(
    "change, what",
    [
        (lambda e: [*e[:2], e[1], *e[2:]], "is there twice"),
        (lambda e: [e[0], e[2], e[1], *e[3:]], "follows epoch"),
        (lambda e: [e[0], e[1], (e[2][0], 5), *e[3:]], "before epoch"),
    ],
)
def test_epochs_in_no_order(group: Group, change: Any, what: str) -> None:
    write_epochs(group, "c", change(pairs_of(group, "c")))
    finding = only(group.audit(), "epochs").findings[0]
    assert what in finding.what and finding.store == "c"
    path = Path(finding.file)
    line = path.read_bytes()[finding.position or 0 :].splitlines()[0]
    assert line == b"%d-%d" % (finding.epoch or 0, finding.log_offset or 0)


def test_an_epoch_that_begins_elsewhere(group: Group) -> None:
    pairs = pairs_of(group, "c")
    claim = claims(group)[41]
    write_epochs(group, "c", [pairs[0], (3, claim.log_offset or 0), *pairs[2:]])
    verdict = only(group.audit(), "epochs")
    assert any(
        (one.store, one.epoch, one.log_offset) == ("c", 3, claim.log_offset)
        and f"begins at {pairs[1][1]} in b" in one.what
        for one in verdict.findings
    )
    # The bytes in between have different epochs in the two logs.
    assert any("the byte is of epoch 1 here, of epoch 3" in one.what for one in verdict.findings)


def test_an_epoch_that_begins_inside_of_a_record(group: Group) -> None:
    for name in "abc":
        pairs = pairs_of(group, name)
        write_epochs(group, name, [pairs[0], (3, pairs[1][1] + 7), *pairs[2:]])
    group.entries = [one for one in group.entries if not isinstance(one, Elected)]
    verdict = only(group.audit(), "epochs", "one-writer")
    at = pairs[1][1] + 7
    assert {(one.store, one.log_offset, one.epoch) for one in verdict.findings} == {
        (name, at, 3) for name in "abc"
    }


def test_an_epoch_behind_the_end(group: Group) -> None:
    write_epochs(group, "c", [*pairs_of(group, "c"), (9, 70_000)])
    (finding,) = only(group.audit(), "epochs").findings
    assert (finding.store, finding.epoch, finding.log_offset) == ("c", 9, 70_000)
    (group.root("c") / "abort").write_text("1")
    verdict = find_verdict(group.audit(), "epochs")
    assert verdict.outcome is PromiseOutcome.UNDECIDED and "epoch 9" in verdict.undecided[0]


def test_a_damaged_epoch_file(group: Group) -> None:
    path = group.root("b") / "epochFileCheckpoint"
    path.write_bytes(path.read_bytes().replace(b"1-0", b"2-0"))
    (finding,) = only(group.audit(), "epochs").findings
    assert "checksum" in finding.what and finding.file == str(path)
    path.with_name("epochFileCheckpoint.bak").unlink()
    audit = group.audit()
    only(audit, "epochs")
    assert "b has no whole epoch list" in find_verdict(audit, "epochs").undecided
    path.unlink()
    assert find_verdict(audit, "truncation").outcome is PromiseOutcome.UNDECIDED


def test_a_replica_that_has_nothing(make: Make) -> None:
    group = make()
    group.elect("a")
    for _ in range(20):
        group.send()
    group.replicate("b")
    for name in "ab":
        group.logs[name].confirm_to(group.logs["a"].end, NOW_MS)
    group.stop()
    verdict = find_verdict(group.audit(), "replicas-equal")
    assert verdict.outcome is PromiseOutcome.UNDECIDED
    assert verdict.undecided == ("c has no message: nothing of it was compared",)
    assert verdict.counts["bytes compared"] > 0


def test_a_replica_that_has_nothing_in_common(make: Make) -> None:
    """The replica's log begins after the other replica's confirmed offset."""
    group = make(names=("a", "b"))
    group.elect("a")
    for _ in range(90):
        group.send()
    group.replicate("b")
    group.logs["a"].confirm_to(group.logs["a"].end, NOW_MS)
    group.logs["b"].confirm_to(claims(group)[5].log_offset, NOW_MS)
    group.stop()
    (group.root("a") / "commitlog" / f"{0:020d}").unlink()
    verdict = find_verdict(group.audit(), "replicas-equal")
    assert verdict.outcome is PromiseOutcome.UNDECIDED
    assert any("b has confirmed 0 to" in why for why in verdict.undecided), verdict.undecided


def test_a_tail_that_was_not_made_zeros(group: Group) -> None:
    end = group.audit().stores[2].end
    old = group.read("c", claims(group)[-1].log_offset or 0, end)[:300]
    group.change("c", end + 100, old)
    (finding,) = only(group.audit(), "truncation").findings
    assert (finding.store, finding.log_offset) == ("c", end + 102)
    assert finding.position == (end + 102) % FILE_SIZE
    assert group.read("c", end + 102, 1) != b"\0"
    # For a killed store there is no verdict, except where a cut was reported.
    (group.root("c") / "abort").write_text("1")
    verdict = find_verdict(group.audit(), "truncation")
    assert verdict.outcome is PromiseOutcome.UNDECIDED and verdict.undecided[0].startswith("c:")
    group.entries.append(Cut("c", end + 500, end))
    (finding,) = only(group.audit(), "truncation").findings
    assert f"it was cut at {end}" in finding.what


def test_a_whole_record_behind_a_cut(group: Group) -> None:
    """RocketMQ only lowers a position (R11): the tail still has magic and CRC."""
    last = claims(group)[-1]
    assert last.log_offset is not None
    end = group.audit().stores[0].end
    head = group.read("a", last.log_offset, 8)
    for name in "abc":
        group.change(name, last.log_offset, bytes(8))
    group.entries.remove(last)
    audit = group.audit()
    tails = find_verdict(audit, "truncation").findings
    assert {(one.store, one.log_offset) for one in tails} == {
        (name, last.log_offset + 8) for name in "abc"
    }
    assert audit.stores[0].end == last.log_offset
    assert "is confirmed, whole records end at" in find_verdict(audit, "records").findings[0].what
    assert end > last.log_offset and head


def test_a_transfer_ends_anywhere(make: Make) -> None:
    group = make()
    group.elect("a")
    group.write(20)
    group.send(acknowledged=False)
    leader, log = group.logs["a"], group.logs["b"]
    log.append(log.end, b"".join(leader.view(log.end, 50)), 0)
    # As a process killed now leaves the files: a clean close would truncate the log.
    root = group.root("b")
    killed = {path: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}
    group.stop()
    for path, data in killed.items():
        path.write_bytes(data)
    audit = group.audit()
    only_holds = [one.outcome for one in audit.verdicts]
    assert only_holds == [PromiseOutcome.HOLDS] * 8, "\n".join(audit.lines())
    assert audit.stores[1].end < audit.stores[0].end


def test_a_message_a_broker_confirmed_is_missing(group: Group) -> None:
    end = group.audit().stores[0].end
    group.entries += [Confirmed("a", end), Confirmed("c", end + 1)]
    (finding,) = only(group.audit(), "replicas-equal").findings
    assert finding.what.startswith(f"c had confirmed {end + 1}")


def test_two_writers_of_an_epoch(group: Group) -> None:
    claim = claims(group)[50]
    group.entries.append(Claim(False, *claim.place, claim.digest, broker="c", epoch=claim.epoch))
    (finding,) = only(group.audit(), "one-writer").findings
    assert finding.epoch == claim.epoch and "b and c" in finding.what
    group.entries[-1] = Claim(False, *claim.place, claim.digest, broker="b", epoch=6)
    (finding,) = only(group.audit(), "one-writer").findings
    assert f"is of epoch {claim.epoch} there" in finding.what
    group.entries[-1] = Elected(6, "c")
    (finding,) = only(group.audit(), "one-writer").findings
    assert "both were elected" in finding.what


def test_cuts_that_were_written_down(group: Group) -> None:
    right = Cut(
        "c", 1200, 900, 2, own=((0, 0), (1, 1000)), other=((0, 0), (2, 900)), other_end=1100
    )
    group.entries.append(right)
    assert find_verdict(group.audit(), "truncation").counts["cuts"] == 1
    only_holds = find_verdict(group.audit(), "truncation")
    assert only_holds.outcome is PromiseOutcome.HOLDS
    group.entries[-1] = Cut("c", 1200, 1000, 2, own=right.own, other=right.other, other_end=1100)
    (finding,) = only(group.audit(), "truncation").findings
    assert "cut at 1000, the consistent point is 900" in finding.what
    group.entries[-1] = Cut("c", 1200, 900, 2, confirm=950)
    (finding,) = only(group.audit(), "truncation").findings
    assert "had confirmed 950" in finding.what


def test_old_files_went_by_age(group: Group) -> None:
    """The files expired on a replica, then also on the master."""
    first = group.root("c") / "commitlog" / f"{0:020d}"
    first.unlink()
    audit = group.audit(leader="a")
    assert not audit.is_broken, "\n".join(audit.lines())
    assert audit.stores[2].min == FILE_SIZE
    assert find_verdict(audit, "replicas-equal").outcome is PromiseOutcome.HOLDS
    for name in "ab":
        (group.root(name) / "commitlog" / f"{0:020d}").unlink()
    verdict = find_verdict(group.audit(), "acked-survives")
    assert verdict.outcome is PromiseOutcome.HOLDS
    old = sum((one.log_offset or 0) < FILE_SIZE for one in claims(group))
    assert verdict.counts == {"claims": 130, "found": 130 - old, "too old to be there": old}


def test_a_store_that_never_was_replicated(make: Make) -> None:
    root = make(names=("a",)).folder / "alone"
    store = Store.open(
        RealFiles(), StoreConfig(str(root), mapped_file_size_commit_log=FILE_SIZE), InlineDisk(), 1
    )
    for _ in range(50):
        store.append(NewMessage("T", 0, b"x" * 500), 1)
    store.close(1)
    audit = run(None, AuditOptions((str(root),)))
    assert not audit.is_broken
    assert audit.stores[0].confirmed_end == audit.stores[0].end > FILE_SIZE
    undecided = {one.name for one in audit.verdicts if one.outcome is PromiseOutcome.UNDECIDED}
    assert undecided == {
        "replicas-equal",
        "epochs",
        "acked-survives",
        "consumed-survives",
        "one-writer",
    }


def test_the_list_of_findings_is_bounded(group: Group) -> None:
    group.entries += [
        Claim(False, "T", 0, 5000 + number, log_offset=LogOffset(59_000)) for number in range(100)
    ]
    verdict = only(group.audit(), "acked-survives")
    assert len(verdict.findings) == 20 and verdict.more == 280
    assert verdict.findings[0].queue_offset == 5000
    assert sum("found nowhere else" in one.what for one in verdict.findings) > 15


def test_reported_messages_are_looked_for(group: Group) -> None:
    """The messages shown in a report are searched for, whether they are the first by queue or by
    log offset."""
    some = [one for one in claims(group) if one.queue_id == 2][5:8]
    for one in some:
        group.entries.append(Claim(False, *one.place, digest_of(b"never %d" % one.queue_offset)))
    group.entries += [Claim(False, "T", 0, 7000 + n, digest_of(b"%d" % n)) for n in range(40)]
    group.entries += [
        Claim(False, "T", 0, 8000 + n, digest_of(b"%d" % n), log_offset=90_000) for n in range(60)
    ]
    shown = only(group.audit(), "acked-survives").findings
    assert all("found nowhere else" in one.what for one in shown)
