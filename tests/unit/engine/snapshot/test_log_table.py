"""A store as a table: its end, the rows of a read, splits, streams, columns."""

import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.columns_model import expected
from tests.unit.engine.snapshot.log_tables import (
    COUNT,
    FILE_SIZE,
    NOW_MS,
    STORE_TIME_AT,
    Steps,
    change,
    fill,
    log_file,
    number_of,
    offsets_of,
    rows_of,
    snapshot,
)

from turbopump.engine.snapshot.log_table import (
    LogTable,
    ScanQuery,
    decode,
)
from turbopump.engine.store import Store
from turbopump.engine.types import StoreError
from turbopump.pyx.columns import COLUMNS


def test_a_live_store_is_read_and_left_as_it_is(store: Store, put: Any, stores: Any) -> None:
    before = snapshot(stores.root)
    table = LogTable.open(str(stores.root))
    assert (table.min, table.end, table.confirmed_end) == (0, *[store.max_log_offset] * 2)
    assert not table.is_replicated and table.epoch_at(0) is None
    found = rows_of(table.split_ranges())
    assert snapshot(stores.root) == before
    wanted = []
    for row in found:
        one = store.record(row["log_offset"])
        assert one is not None
        wanted.append(expected(one))
    assert found == wanted and number_of(found) == list(range(COUNT))
    fill(store, put, range(COUNT, 2 * COUNT))
    assert rows_of(table.split_ranges()) == found, "later records are not part of it"
    again = LogTable.open(str(stores.root))
    assert number_of(rows_of(again.split_ranges())) == list(range(2 * COUNT))


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_store_at_rest(store: Store, stores: Any, how: str) -> None:
    end = store.max_log_offset
    if how == "closed":
        store.close(NOW_MS)
    else:
        stores.kill(store)
    table = LogTable.open(str(stores.root) + "/")
    assert table.end == end and len(rows_of(table.split_ranges())) == COUNT


def test_folders_and_files_are_tables_too(store: Store, stores: Any, tmp_path: Path) -> None:
    folder = stores.root / "commitlog"
    assert len(rows_of(LogTable.open(str(folder)).split_ranges())) == COUNT
    parts = [LogTable.open(str(path)) for path in sorted(folder.iterdir())]
    assert sum(len(rows_of(table.split_ranges())) for table in parts) == COUNT
    renamed = tmp_path / "copy.log"
    renamed.write_bytes(log_file(stores.root, 1).read_bytes())
    table = LogTable.open(str(renamed))
    assert rows_of(table.split_ranges())[0]["log_offset"] == table.min == FILE_SIZE
    beyond = tmp_path / ("9" * 20)
    beyond.write_bytes(renamed.read_bytes())
    with pytest.raises(StoreError, match="is no file of a log"):
        LogTable.open(str(beyond))
    with pytest.raises(StoreError, match="no commit log at"):
        LogTable.open(str(tmp_path / "nowhere"))
    other = tmp_path / "other.log"
    for data in (b"no log at all", b"", bytes(100)):
        other.write_bytes(data)
        with pytest.raises(StoreError, match=r"is no file of a log: (no record begins|it is)"):
            LogTable.open(str(other))
    blank = tmp_path / f"{0:020d}"
    blank.write_bytes(bytes(FILE_SIZE))
    assert LogTable.open(str(blank)).split_ranges() == [], "made ahead"
    queue = stores.root / "consumequeue" / "T1" / "1"
    for place in (queue, *queue.iterdir()):
        with pytest.raises(StoreError, match="is no file of a log: no record begins it"):
            LogTable.open(str(place))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="empty has no commit log"):
        LogTable.open(str(tmp_path / "empty"))
    with pytest.raises(StoreError, match="has no commit log"):
        LogTable.open(str(tmp_path / "folder"))


def test_a_store_without_messages_has_no_rows(stores: Any) -> None:
    stores.open().close(NOW_MS)
    table = LogTable.open(str(stores.root))
    assert table.segments == () and table.split_ranges() == [] and table.min == table.end == 0


@pytest.mark.parametrize("torn", ["body", "properties", "head"])
def test_a_record_that_is_being_written_is_left_out(store: Store, stores: Any, torn: str) -> None:
    last = offsets_of(stores)[-1]
    size = store.max_log_offset - last
    start = {"body": 100, "properties": size - 4, "head": 0}[torn]
    change(log_file(stores.root, last // FILE_SIZE), last % FILE_SIZE + start, bytes(size - start))
    table = LogTable.open(str(stores.root))
    assert table.end == last
    assert number_of(rows_of(table.split_ranges())) == list(range(COUNT - 1))


@pytest.mark.parametrize("range_bytes", [1, 500, 4000, 1 << 30])
@pytest.mark.parametrize("step", [None, 300, 5000])
def test_ranges_hold_every_record_once(
    store: Store, stores: Any, range_bytes: int, step: int | None
) -> None:
    opener = Steps(step) if step else None
    table = LogTable.open(str(stores.root), opener)
    assert table.end == store.max_log_offset
    parts = pickle.loads(pickle.dumps(table.split_ranges(range_bytes)))
    if range_bytes < 4000:
        assert len(parts) > COUNT // 3
    whole = rows_of(LogTable.open(str(stores.root)).split_ranges())
    assert rows_of(parts, opener=opener) == whole
    small = ScanQuery(batch_rows=7, batch_bytes=100)
    assert rows_of(parts, small, opener=opener) == whole


def test_little_is_read_to_split(store: Store, stores: Any, put: Any) -> None:
    store.close(NOW_MS)
    opener = Steps(100)
    table = LogTable.open(str(stores.root), opener)
    opener.opened.clear()
    assert table.split_ranges(FILE_SIZE) and not opener.opened, "files begin with records"
    assert table.split_ranges(6000) and sum(file.read for file in opener.opened) > 0


def test_a_clock_that_was_set_back_hides_no_record(store: Store, stores: Any) -> None:
    """Records with times of other hours in a file and a range: RocketMQ stores the clock's time."""
    for number, hours in ((40, -2), (41, 9)):
        at = offsets_of(stores)[number]
        time_ms = NOW_MS + hours * 3_600_000
        data = time_ms.to_bytes(8, "big")
        change(log_file(stores.root, at // FILE_SIZE), at % FILE_SIZE + STORE_TIME_AT, data)
    table = LogTable.open(str(stores.root))
    early, late = (
        ScanQuery(max_store_ms=NOW_MS - 3_600_000),
        ScanQuery(min_store_ms=NOW_MS + 8 * 3_600_000),
    )
    assert number_of(rows_of(table.split_ranges(2000, early), early)) == [40]
    assert number_of(rows_of(table.split_ranges(2000, late), late)) == [41]
    assert table.split_ranges(1 << 20, replace(early, prune_by_time=True)) == [], (
        "as it was asked for"
    )


def test_ranges_that_exclude_themselves_are_not_planned(store: Store, stores: Any) -> None:
    table = LogTable.open(str(stores.root))
    whole = rows_of(table.split_ranges())
    late = NOW_MS + 95 * 60_000
    query = ScanQuery(min_store_ms=late, prune_by_time=True)
    parts = table.split_ranges(2000, query)
    assert 0 < len(parts) < len(table.split_ranges(2000)) / 2
    assert number_of(rows_of(parts, query)) == list(range(95, COUNT))
    query = ScanQuery(max_store_ms=NOW_MS + 60_000, prune_by_time=True)
    assert number_of(rows_of(table.split_ranges(2000, query), query)) == [0, 1]
    low, high = whole[20]["log_offset"], whole[30]["log_offset"]
    query = ScanQuery(min_log_offset=low + 1, end_log_offset=high)
    parts = table.split_ranges(2000, query)
    assert all(part.base + part.end > low and part.log_offset < high for part in parts)
    assert number_of(rows_of(parts, query)) == list(range(21, 30))
    query = ScanQuery(
        topics=frozenset([b"T1"]), queue_ids=frozenset([1]), columns=("body", "topic")
    )
    assert number_of(rows_of(table.split_ranges(), query)) == [
        n for n in range(COUNT) if n % 6 == 1
    ]
    assert rows_of(table.split_ranges(), ScanQuery(columns=())) == [{}] * COUNT


def test_a_stream_goes_on_where_it_was(store: Store, stores: Any) -> None:
    table = LogTable.open(str(stores.root))
    at: int = table.min
    found = []
    while at < table.end:
        until = table.find_boundary(at + 3000)
        assert at < until <= table.end
        found += rows_of(table.split_ranges(1000, start=at, end=until))
        at = until
    assert found == rows_of(table.split_ranges())
    assert table.find_boundary(0) == 0 and table.find_boundary(table.end + 1) == table.end
    assert table.split_ranges(start=table.end) == []


def test_columns_are_those_of_a_wish(store: Store, stores: Any) -> None:
    assert ScanQuery().columns == COLUMNS
    part = LogTable.open(str(stores.root)).split_ranges()[0]
    with pytest.raises(ValueError, match="no column 'colour'"):
        next(decode(part, ScanQuery(columns=("colour",))))
    assert os.path.basename(part.path) == f"{0:020d}"
