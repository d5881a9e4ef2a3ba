"""The audit on Spark comes to the same as without it, of a whole group and of damaged ones."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.spark.audit.conftest import Group, make, template

from turbopump.spark.audit.digests import BLOCK_BYTES
from turbopump.spark.audit.job import AuditOptions, main, run
from turbopump.spark.audit.ledger import Claim, Confirmed, Cut, LedgerError, digest_of

__all__ = ["make", "template"]
QUEUE_OFFSET_AT, BODY_AT = 20, 88


@pytest.fixture
def group(template: Group, tmp_path: Path) -> Group:
    return template.copied(tmp_path / "group")


def same(spark: Any, group: Group) -> Any:
    """Result of the audit, which has to be the same with Spark and without."""
    options = group.options()
    local = run(None, options)
    assert run(spark, options).members() == local.members()
    return local


def nothing_in_its_place(group: Group) -> None:
    gone = [Claim(False, "T", 1, 4000 + n, digest_of(b"%d" % n), log_offset=n) for n in range(70)]
    group.entries += [*gone, Claim(True, "No such topic", 0, 1)]


def another_place(group: Group) -> None:
    one, other = (
        entry
        for entry in group.entries
        if isinstance(entry, Claim)
        and not entry.read
        and entry.queue_offset in (3, 4)
        and entry.queue_id == 2
    )
    group.entries.append(Claim(False, *one.place, other.digest, other.key, broker="x", epoch=1))


def a_byte(group: Group) -> None:
    at = min(e.log_offset for e in group.entries if isinstance(e, Claim) and e.log_offset)
    group.change("c", at + BODY_AT + 2, b"!!")


def a_queue_offset(group: Group) -> None:
    at = max(e.log_offset for e in group.entries if isinstance(e, Claim) and e.log_offset)
    for name in "abc":
        group.change(name, at + QUEUE_OFFSET_AT, struct.pack(">q", 1))


def an_epoch_file(group: Group) -> None:
    path = group.root("b") / "epochFileCheckpoint"
    path.write_bytes(path.read_bytes()[:-4])


def a_tail(group: Group) -> None:
    end = group.audit().stores[0].end
    group.change("a", end + 50, b"something")
    group.entries += [Cut("a", end + 100, end), Confirmed("a", end + 7)]


def arguments(group: Group) -> list[str]:
    stores = [f"{name}={group.root(name)}" for name in group.logs]
    return [*stores, "--ledger", str(group.ledger()), "--json"]


def broken(audit: Any) -> list[str]:
    return [one.name for one in audit.verdicts if one.findings]


def test_damage_of_stores(spark: Any, group: Group) -> None:
    a_byte(group)
    a_queue_offset(group)
    an_epoch_file(group)
    assert broken(same(spark, group)) == [
        "records",
        "replicas-equal",
        "epochs",
        "queue-offsets",
        "acked-survives",
    ]


@pytest.mark.long
def test_ledger_entries_missing_in_stores(
    spark: Any, group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing_in_its_place(group)
    another_place(group)
    a_tail(group)
    audit = group.audit(block_bytes=BLOCK_BYTES)
    assert main(arguments(group)) == 1
    assert json.loads(capsys.readouterr().out) == audit.members()
    assert broken(audit) == [
        "replicas-equal",
        "truncation",
        "acked-survives",
        "consumed-survives",
        "one-writer",
    ]


def test_a_deleted_topic(spark: Any, make: Callable[..., Group]) -> None:
    group = make()
    group.elect("a")
    group.write(10)
    for store in group.stores.values():
        store.delete_topic("T", None, 0)
    group.write(12)
    group.write(3, topic="Batch", queue_id=0, properties=b"INNER_NUM\x013\x02")
    group.stop()
    assert not same(spark, group).is_broken


def test_a_whole_group(spark: Any, group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(group)) == 0
    expected = group.audit(block_bytes=BLOCK_BYTES)
    assert json.loads(capsys.readouterr().out) == expected.members()


def test_unusable_stores(spark: Any, group: Group, tmp_path: Path) -> None:
    ledger = tmp_path / "wrong.jsonl"
    ledger.write_text("nonsense\n")
    with pytest.raises(LedgerError, match=r"wrong.jsonl: the line at byte 0"):
        run(spark, AuditOptions((str(group.root("a")),), (str(ledger),)))
