"""A table of a store that another process is writing, rolling and cleaning."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.columns_model import rows

from turbopump.engine.snapshot.log_table import LogTable, ScanQuery, SegmentGone, decode

pytestmark = pytest.mark.integration

LOOKS = 25
COLUMNS = ("log_offset", "unique_key", "body")
WRITER = """
import random, select, sys
from pathlib import Path
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage

config = StoreConfig(
    sys.argv[1], mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=6000,
    max_hash_slot_num=64, max_index_num=1000,
)
now_ms, number, rng = 1_700_000_000_000, 0, random.Random(1)
store = Store.open(RealFiles(), config, InlineDisk(), now_ms)
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(50):
        body = b"%08d" % number + rng.randbytes(rng.randrange(2000))
        properties = b"UNIQ_KEY\\1%08d\\2" % number
        store.append(NewMessage("T", number % 3, body, properties), now_ms + number)
        number += 1
    store.tick(now_ms + number, number)
    if number % 10_000 == 0:
        while store._log.segments.count > 6:  # as retention does: what is lost stops writes
            Path(store._log.forget_oldest()).unlink()
print(number, flush=True)
store.close(now_ms + number)
"""


def numbers_of(table: LogTable) -> list[int]:
    """The last few files' messages, which must be whole."""
    found = []
    for part in table.split_ranges(200_000)[-10:]:
        for batch in decode(part, ScanQuery(columns=COLUMNS, check_body=True)):
            for _log_offset, key, body in rows(batch, COLUMNS):
                assert body[:8].decode() == key
                found.append(int(key))
    return found


def test_every_look_finds_whole_messages_without_a_gap(tmp_path: Path) -> None:
    root = tmp_path / "store"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None and writer.stdout is not None
    try:
        assert writer.stdout.readline() == "ready\n"
        last, looks = -1, 0
        while looks < LOOKS:
            try:
                found = numbers_of(LogTable.open(str(root)))
            except SegmentGone:
                continue
            looks += 1
            assert found == list(range(found[0], found[0] + len(found))) if found else last < 0
            assert not found or found[-1] >= last, "a later look sees no less"
            last = found[-1] if found else last
        assert last > 0
        out, _ = writer.communicate("stop\n", timeout=60)
        assert numbers_of(LogTable.open(str(root)))[-1] == int(out) - 1
    finally:
        writer.kill()
        writer.communicate()
