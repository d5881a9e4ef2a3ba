"""The format of ledgers: written entries can be read, in parts too, and other lines are refused."""

import gzip
import json
from pathlib import Path

import pytest

from turbopump.spark.audit.ledger import (
    LINE_MAX,
    Claim,
    Confirmed,
    Cut,
    Deleted,
    Elected,
    Entry,
    LedgerError,
    Part,
    decode,
    digest_of,
    encode,
    parts_of,
    read_part,
)

ENTRIES: list[Entry] = [
    Claim(False, "T", 3, 17, digest_of(b"body"), "KEY", 4711, "broker-1", 5),
    Claim(True, "ü", 0, 0),
    Confirmed("broker-1", 900),
    Elected(5, "broker-1", 800),
    Elected(6, "broker-2"),
    Deleted("T", 1000),
    Cut("broker-2", 1200, 900, 6, 850, ((1, 0), (2, 1000)), ((1, 0), (3, 900)), 1100),
    Cut("broker-2", 1200, 900),
]


def test_all_kinds() -> None:
    for entry in ENTRIES:
        assert decode(encode(entry)) == entry


def test_an_offset_message_id_names_the_log_offset() -> None:
    line = {"kind": "acked", "topic": "T", "queue": 0, "offset": 1}
    for host in ("7F00000100002A9F", "0" * 32 + "00002A9F"):
        found = decode(json.dumps({**line, "id": f"{host}{4711:016X}"}))
        assert isinstance(found, Claim) and found.log_offset == 4711
    with pytest.raises(LedgerError, match="id names log offset 4711, log 5"):
        decode(json.dumps({**line, "id": f"7F00000100002A9F{4711:016X}", "log": 5}))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "1",
        '{"kind":"sent"}',
        "{}",
        '{"kind":"acked","topic":"T","queue":0}',
        '{"kind":"acked","topic":"T","queue":"0","offset":1}',
        '{"kind":"acked","topic":"T","queue":0,"offset":-1}',
        '{"kind":"acked","topic":"T","queue":0,"offset":true}',
        '{"kind":"acked","topic":"","queue":0,"offset":1}',
        '{"kind":"acked","topic":"T","queue":0,"offset":1,"digest":"12"}',
        '{"kind":"acked","topic":"T","queue":0,"offset":1,"digest":"XXXXXXXXXXXXXXXXXX"}',
        '{"kind":"acked","topic":"T","queue":0,"offset":1,"id":"12"}',
        '{"kind":"acked","topic":"T","queue":0,"offset":1,"key":7}',
        '{"kind":"acked","topic":"T","queue":0,"offset":9223372036854775808}',
        '{"kind":"truncated","store":"a","from":1,"to":0,"own":[1]}',
        '{"kind":"confirmed","store":"a"}',
        "[" * 100_000,
    ],
)
def test_invalid_lines(text: str) -> None:
    with pytest.raises(LedgerError):
        decode(text)


def test_parts_hold_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(map(encode, ENTRIES)) * 20 + "\n")
    size = path.stat().st_size
    for part_bytes in (1, 7, 64, 100, 1000, size - 1, size, size + 1):
        parts = parts_of([str(path)], part_bytes)
        assert [entry for part in parts for entry in read_part(part)] == ENTRIES * 20
        assert len(parts) == -(-size // part_bytes)


def test_folders_and_packed_ledgers(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(encode(ENTRIES[0]))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as packed:
        packed.write("".join(map(encode, ENTRIES)))
    (tmp_path / "store.log").write_text("no ledger")
    (tmp_path / "empty.jsonl").touch()
    found = [entry for part in parts_of([str(tmp_path)]) for entry in read_part(part)]
    assert found == [ENTRIES[0], *ENTRIES]
    (tmp_path / "none").mkdir()
    with pytest.raises(LedgerError, match="no ledger is in it"):
        parts_of([str(tmp_path / "none")])
    with pytest.raises(FileNotFoundError):
        parts_of([str(tmp_path / "missing.jsonl")])


def test_half_a_line_at_the_end_is_none(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(encode(ENTRIES[0]) + encode(ENTRIES[1])[:-5])
    (part,) = parts_of([str(path)])
    assert list(read_part(part)) == [ENTRIES[0]]


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first = encode(ENTRIES[0])
    path.write_text(first + "nonsense\n" + first)
    (part,) = parts_of([str(path)])
    with pytest.raises(LedgerError, match=rf"run.jsonl: the line at byte {len(first)}: no JSON"):
        list(read_part(part))
    path.write_bytes(b"x" * (LINE_MAX + 1))
    with pytest.raises(LedgerError, match="longer than"):
        list(read_part(Part(str(path), 0, LINE_MAX + 1)))
