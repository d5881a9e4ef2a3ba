"""The messages of a log as facts, ledgers as summaries, and other places of lost messages."""

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.unit.spark.audit.conftest import Group

from turbopump.pyx import record
from turbopump.pyx.region import Region
from turbopump.spark.audit import facts
from turbopump.spark.audit.facts import (
    ELSEWHERE_MAX,
    FactTask,
    SearchTask,
    Summary,
    claims_of,
    facts_of,
    search_bodies,
    summarize_ledger,
)
from turbopump.spark.audit.ledger import (
    Claim,
    Confirmed,
    Cut,
    Deleted,
    Elected,
    Entry,
    LedgerError,
    Part,
    digest_of,
    encode,
    parts_of,
    read_part,
)
from turbopump.spark.audit.replicas import LogFile

HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
PREPARED, ROLLBACK, INNER_BATCH = 0x4, 0xC, 0x80


class Log:
    """A log file of records, written one by one."""

    def __init__(self, path: Path, base: int = 0) -> None:
        self.path, self.base, self.end = path, base, 0
        self._buffer = bytearray(8_192)

    def add(self, queue_offset: int, body: bytes = b"", key: str = "", **more: Any) -> int:
        """Append a message to topic T, queue 0; returns its log offset."""
        at = self.end
        fields = {"topic": b"T", "queue_id": 0, "sys_flag": 0, "more": b""} | more
        properties = (f"UNIQ_KEY\x01{key}\x02".encode() if key else b"") + fields.pop("more")
        self.end += record.append(
            Region(self._buffer),
            at,
            len(self._buffer),
            log_offset=self.base + at,
            body=body or b"body-%d" % queue_offset,
            properties=properties,
            flag=0,
            queue_offset=queue_offset,
            born_timestamp_ms=1,
            born_host=HOST,
            store_timestamp_ms=2,
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            version=record.V1,
            **fields,
        )
        return self.base + at

    def task(self, end: int | None = None, **more: Any) -> FactTask:
        self.path.write_bytes(self._buffer)
        file = LogFile(str(self.path), self.base, len(self._buffer))
        stop = self.base + self.end if end is None else end
        return FactTask(7, file, None, stop, more.get("batch_topics", frozenset()))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "00000000000000001000", 1_000)


def test_a_message_is_a_fact(log: Log) -> None:
    at = log.add(5, b"hello", "KEY1")
    (found,) = facts_of(log.task())
    assert found.place == ("T", 0, 5)
    assert (found.fact.store, found.fact.log_offset, found.fact.key) == (7, at, "KEY1")
    assert found.fact.digest == hashlib.sha256(b"hello").hexdigest()


def test_keys_that_are_none(log: Log) -> None:
    log.add(0, more=b"KEYS\x01UNIQ_KEY\x02")
    log.add(1, more=b"UNIQ_KEY\x01\xff\x02")
    assert [one.fact.key for one in facts_of(log.task())] == ["", "�"]


def test_halves_have_no_place_and_inner_batches_have_several(log: Log) -> None:
    log.add(0, sys_flag=PREPARED)
    log.add(0, sys_flag=ROLLBACK)
    log.add(3, sys_flag=INNER_BATCH, more=b"INNER_NUM\x013\x02")
    found = list(facts_of(log.task()))
    assert [one.place[2] for one in found] == [3, 4, 5]
    assert {one.fact.digest for one in found} == {""}, "a body of several messages proves nothing"


def test_only_the_requested_range_before_the_end(log: Log) -> None:
    places = [log.add(number) for number in range(4)]
    assert len(list(facts_of(log.task(), {("T", 0, 1), ("T", 1, 2)}))) == 1
    assert [one.fact.log_offset for one in facts_of(log.task(places[2]))] == places[:2]


def claim(queue_offset: int, body: bytes = b"", key: str = "") -> Claim:
    return Claim(False, "T", 0, queue_offset, digest_of(body) if body else "", key)


def test_where_a_lost_message_is_found(log: Log) -> None:
    places = [log.add(number, b"twice" if number else b"once", f"K{number}") for number in range(5)]
    task = log.task()
    sought = claim(99, b"once"), claim(98, key="K3"), claim(97, b"nowhere", "K3"), claim(0, b"once")
    found = search_bodies(SearchTask(task, sought))
    assert [(number, one.fact.log_offset) for number, one in found] == [
        (0, places[0]),
        (1, places[3]),
    ]
    many = search_bodies(SearchTask(task, (claim(99, b"twice"),)))
    assert len(many) == ELSEWHERE_MAX, "a finding names the first ones"
    assert search_bodies(SearchTask(task, (claim(99),))) == [], "of which nothing was written down"


# Ledgers


def written(path: Path, *entries: Entry) -> Part:
    path.write_text("".join(map(encode, entries)))
    return Part(str(path), 0, path.stat().st_size)


ENTRIES = (
    Claim(False, "T", 0, 1, broker="a", epoch=3),
    Claim(False, "T", 0, 2, broker="a", epoch=3),
    Claim(True, "T", 0, 1, broker="b", epoch=4),
    Claim(False, "T", 0, 3, broker="b"),
    Confirmed("a", 500),
    Confirmed("a", 400),
    Elected(3, "a", 100),
    Elected(4, "b"),
    Deleted("T", 50),
    Deleted("T", 40),
    Cut("b", 900, 800),
)


def test_a_summary(tmp_path: Path) -> None:
    found = summarize_ledger(written(tmp_path / "a.jsonl", *ENTRIES))
    assert (found.acked, found.read) == (3, 1)
    assert found.confirmed == {"a": 500} and found.deleted == {"T": 50}, "the greatest of each"
    assert found.elected == {(3, "a"): 100, (4, "b"): None}
    assert found.writers == {(3, "a")}, "the broker that acknowledged, and its epoch"
    assert found.cuts == [Cut("b", 900, 800)] and found.left_out == 0


def test_summaries_add_up_as_one_ledger_would(tmp_path: Path) -> None:
    whole = summarize_ledger(written(tmp_path / "a.jsonl", *ENTRIES))
    for at in range(len(ENTRIES) + 1):
        one = summarize_ledger(written(tmp_path / "b.jsonl", *ENTRIES[:at]))
        one.merge(summarize_ledger(written(tmp_path / "c.jsonl", *ENTRIES[at:])))
        assert one == whole


def test_reports_of_brokers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "CUTS_MAX", 3)
    monkeypatch.setattr(facts, "WRITERS_MAX", 2)
    cuts = [Cut("b", 900, at) for at in range(5)]
    writers = [Claim(False, "T", 0, at, broker="a", epoch=at % 4) for at in range(8)]
    found = summarize_ledger(written(tmp_path / "a.jsonl", *cuts, *writers))
    assert (len(found.cuts), len(found.writers)) == (3, 2)
    assert found.left_out == 2 + 4 and found.acked == 8, "claims are counted all the same"
    total = Summary()
    for _ in range(2):
        total.merge(summarize_ledger(written(tmp_path / "a.jsonl", *cuts[:2])))
    assert (len(total.cuts), total.left_out) == (3, 1)


def test_claims_of_parts_that_were_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    written(path, *ENTRIES)
    wanted = [one for one in ENTRIES if isinstance(one, Claim)]
    for size in (1, 7, 64, 100, 10_000):
        assert list(claims_of(parts_of([str(path)], size))) == wanted, size


# Packed ledgers


def test_a_packed_ledger_of_a_writer_that_was_killed(tmp_path: Path) -> None:
    """Entries written before the kill count; the rest must not end in a traceback."""
    path = tmp_path / "a.jsonl.gz"
    many = [Claim(False, "T", 0, number, digest_of(b"%d" % number)) for number in range(2_000)]
    data = gzip.compress("".join(map(encode, many)).encode())
    path.write_bytes(data)
    (part,) = parts_of([str(path)])
    assert list(read_part(part)) == many
    for size in (len(data) - 4, len(data) - 9, len(data) // 2, 11):
        path.write_bytes(data[:size])
        found = list(read_part(part))
        assert found == many[: len(found)] and (len(found) > 500 or size < len(data) // 2)


def test_a_packed_ledger_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    data = bytearray(gzip.compress("".join(map(encode, ENTRIES)).encode()))
    data[12] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises((LedgerError, OSError)) as raised:
        list(read_part(Part(str(path), 0, len(data))))
    assert str(raised.value)
    path.write_bytes(b"no gzip")
    with pytest.raises(OSError, match="gzip"):
        list(read_part(Part(str(path), 0, 7)))


@pytest.mark.parametrize("pairs", ["[[1e400,0]]", "[[1,-Infinity]]", "[[NaN,0]]", "[[1]]", "5"])
def test_epoch_lists_that_are_none(tmp_path: Path, pairs: str) -> None:
    """An infinite epoch must not end in a traceback."""
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"kind":"truncated","store":"a","from":9,"to":5,"own":{pairs}}}\n')
    with pytest.raises(LedgerError, match="own cannot be"):
        list(read_part(Part(str(path), 0, 1)))


def test_a_group_with_a_packed_ledger(group: Group) -> None:
    path = group.ledger()
    packed = group.folder / "run.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    plain = group.audit().members()
    assert group.audit(ledgers=(str(packed),)).members() == plain
