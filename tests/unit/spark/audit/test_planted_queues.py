"""Queues that contradict the log are found, and records that cannot be compared are counted."""

import shutil
import struct
from pathlib import Path

import pytest
from tests.shortcuts.verdicts import find_verdict
from tests.unit.spark.audit.conftest import FILE_SIZE, NOW_MS, Group, Make, claims, only

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage
from turbopump.spark.audit.job import AuditOptions, run
from turbopump.spark.audit.ledger import Claim
from turbopump.spark.audit.verdicts import PromiseOutcome

QUEUE_OFFSET_AT = 20


@pytest.mark.parametrize("add, what", [(-1, "was given before"), (1, "missing before")])
def test_queue_offsets(group: Group, add: int, what: str) -> None:
    """The message is the same in all replicas: its master counted wrong."""
    last = [one for one in claims(group) if one.queue_id == 1][-1]
    group.entries = [one for one in group.entries if not isinstance(one, Claim)]
    assert last.log_offset is not None
    for name in "abc":
        number = struct.pack(">q", last.queue_offset + add)
        group.change(name, last.log_offset + QUEUE_OFFSET_AT, number)
    verdict = only(group.audit(), "queue-offsets")
    found = [one for one in verdict.findings if what in one.what]
    assert {one.store for one in found} == {"a", "b", "c"}
    assert {one.log_offset for one in found} == {last.log_offset}
    assert {one.queue_offset for one in found} == {last.queue_offset + add}


def test_a_queue_that_points_elsewhere(group: Group) -> None:
    claim = claims(group)[0]
    folder = group.root("b") / "consumequeue" / "T" / str(claim.queue_id)
    path = folder / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[0:8] = struct.pack(">q", 4711)
    path.write_bytes(data)
    (finding,) = only(group.audit(), "queue-offsets").findings
    assert (finding.store, finding.file, finding.position) == ("b", str(path), 0)
    data[0:20] = bytes(20)
    path.write_bytes(data)
    (finding,) = only(group.audit(), "queue-offsets").findings
    assert "has no unit" in finding.what


def test_a_consume_queue_that_was_removed(group: Group) -> None:
    """Without any unit to compare there is no proof that all are right."""
    shutil.rmtree(group.root("b") / "consumequeue" / "T" / "1")
    verdict = find_verdict(group.audit(leader="b"), "queue-offsets")
    missing = sum(one.queue_id == 1 for one in claims(group))
    assert verdict.outcome is PromiseOutcome.UNDECIDED and not verdict.findings
    assert verdict.counts["records without a queue unit"] == missing
    (why,) = verdict.undecided
    assert why.startswith(f"b: {missing} records of 1 queues") and "T queue 1" in why
    shutil.rmtree(group.root("b") / "consumequeue")
    verdict = find_verdict(group.audit(leader="b"), "queue-offsets")
    assert verdict.counts["records without a queue unit"] == len(claims(group))
    assert verdict.undecided[0].startswith("b: 130 records of 3 queues")


@pytest.mark.parametrize("number", [1, -1])
def test_a_file_of_a_queue_is_missing(group: Group, number: int) -> None:
    """The file lies between others, or is the last: its records were dispatched once."""
    folder = group.root("b") / "consumequeue" / "T" / "1"
    gone = sorted(folder.iterdir())[number]
    gone.unlink()
    first = int(gone.name) // 20
    lost = [
        one for one in claims(group) if one.queue_id == 1 and first <= one.queue_offset < first + 10
    ]
    verdict = only(group.audit(), "queue-offsets")
    assert [one.queue_offset for one in verdict.findings] == [one.queue_offset for one in lost]
    assert {one.file for one in verdict.findings} == {str(folder)}
    assert all("no unit" in one.what for one in verdict.findings)
    (group.root("b") / "abort").write_text("1")
    verdict = find_verdict(group.audit(), "queue-offsets")
    assert verdict.outcome is PromiseOutcome.UNDECIDED
    assert verdict.undecided[0].startswith(f"b: {len(lost)} records have no consume queue unit")


def test_the_oldest_file_of_a_queue_went(group: Group) -> None:
    """The file may have expired: nothing distinguishes the cases."""
    folder = group.root("b") / "consumequeue" / "T" / "1"
    sorted(folder.iterdir())[0].unlink()
    verdict = find_verdict(group.audit(), "queue-offsets")
    assert verdict.outcome is PromiseOutcome.UNDECIDED and not verdict.findings
    assert verdict.undecided[0].startswith("b: 10 records of 1 queues lie before all")


def test_a_tags_code_that_is_not_that_of_the_tags(make: Make) -> None:
    group = make()
    group.elect("a")
    group.write(4, properties=b"TAGS\x01new\x02", queue_id=0)
    group.write(2, queue_id=1)
    group.write(2, topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x013\x02", queue_id=2)
    group.stop()
    audit = group.audit()
    assert [one.outcome for one in audit.verdicts] == [PromiseOutcome.HOLDS] * 8, audit.lines()
    queues = group.root("b") / "consumequeue"
    for folder, code in (
        ("T/0", 4711),
        ("T/1", 1),
        ("T/0", -(1 << 40)),
        ("SCHEDULE_TOPIC_XXXX/2", 5),
    ):
        path = queues / folder / f"{0:020d}"
        whole = path.read_bytes()
        path.write_bytes(whole[:12] + struct.pack(">q", code) + whole[20:])
        (finding,) = only(group.audit(), "queue-offsets").findings
        assert (finding.store, finding.file, finding.position) == ("b", str(path), 0)
        assert str(code) in finding.what
        path.write_bytes(whole)


def test_tags_codes_of_queue_extensions(tmp_path: Path) -> None:
    root = tmp_path / "alone"
    config = StoreConfig(
        str(root), mapped_file_size_commit_log=FILE_SIZE, enable_consume_queue_ext=True
    )
    store = Store.open(RealFiles(), config, InlineDisk(), 1)
    for _ in range(5):
        store.append(NewMessage("T", 0, b"x", b"TAGS\x01new\x02"), 1)
    store.close(1)
    verdict = find_verdict(run(None, AuditOptions((str(root),))), "queue-offsets")
    assert verdict.outcome is PromiseOutcome.HOLDS and verdict.counts["queue units compared"] == 5
    (path,) = (root / "consumequeue_ext" / "T" / "0").iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:2] + struct.pack(">q", 4711) + data[10:])
    (finding,) = find_verdict(run(None, AuditOptions((str(root),))), "queue-offsets").findings
    assert "tags code 4711" in finding.what and finding.queue_offset == 0
    path.unlink()
    verdict = find_verdict(run(None, AuditOptions((str(root),))), "queue-offsets")
    assert len(verdict.findings) == 5 and "is not there" in verdict.findings[0].what


def test_a_queue_that_goes_on_behind_the_log(group: Group) -> None:
    """The queues of a truncated log have to be truncated, too (R12)."""
    last = [one for one in claims(group) if one.queue_id == 2][-1]
    at = (last.queue_offset + 1) * 20
    path = group.root("a") / "consumequeue" / "T" / "2" / f"{at - at % 200:020d}"
    data = bytearray(path.read_bytes() if path.exists() else bytes(200))
    data[at % 200 : at % 200 + 20] = struct.pack(">qiq", 70_000, 100, 0)
    path.write_bytes(data)
    (finding,) = only(group.audit(), "queue-offsets").findings
    assert (finding.store, finding.file, finding.position) == ("a", str(path), at % 200)
    assert (finding.queue_offset, finding.log_offset) == (last.queue_offset + 1, 70_000)
    data[at % 200 : at % 200 + 20] = bytes(20)
    path.write_bytes(data)
    other = group.root("a") / "consumequeue" / "Gone" / "0"
    other.mkdir(parents=True)
    (other / f"{0:020d}").write_bytes(struct.pack(">qiq", 100, 100, 0).ljust(200, b"\0"))
    (finding,) = only(group.audit(), "queue-offsets").findings
    assert (finding.topic, finding.log_offset) == ("Gone", 100)
    (group.root("a") / "abort").write_text("1")
    assert find_verdict(group.audit(), "queue-offsets").outcome is PromiseOutcome.UNDECIDED


def test_a_topic_that_was_deleted_and_made_again(make: Make) -> None:
    group = make()
    group.elect("a")
    group.write(10)
    group.write(12, topic="Other")
    for store in group.stores.values():
        store.delete_topic("T", None, NOW_MS)
    group.write(12)
    group.stop()
    audit = group.audit()
    assert not audit.is_broken, "\n".join(audit.lines())
    counts = find_verdict(audit, "acked-survives").counts
    assert counts == {"claims": 34, "found": 24, "of a deleted topic": 10}


def test_inner_batches_have_several_offsets(make: Make) -> None:
    group = make()
    group.elect("a")
    for count in (3, 1, 5):
        text = b"INNER_NUM\x01%d\x02" % count
        group.write(1, topic="Batch", queue_id=0, properties=text)
    group.stop()
    audit = group.audit()
    assert not audit.is_broken, "\n".join(audit.lines())
    assert [one.queue_offset for one in claims(group)] == [0, 3, 4]
    group.entries.append(Claim(False, "Batch", 0, 8))
    assert not group.audit().is_broken
    group.entries.append(Claim(False, "Batch", 0, 9))
    assert group.audit().is_broken
