"""A stream's answers to Spark, without a JVM: offsets, limits, ranges, and a cut at each point."""

import json
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.shortcuts.log_cuts import truncate_log

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from tests.spark_stores import NOW_MS, fill, opened, records

from turbopump.engine.snapshot.log_table import DamagedLog
from turbopump.engine.types import LogOffset
from turbopump.spark.schema import arrow_schema
from turbopump.spark.source.options import parse
from turbopump.spark.source.partitions import make_query
from turbopump.spark.source.positions import StreamCut, StreamExpired
from turbopump.spark.source.stream import LogStreamReader

ALL = ReadAllAvailable()


def stream(*paths: Path, **options: str) -> LogStreamReader:
    given = {"paths": json.dumps([str(path) for path in paths]), "columns": "log_offset"}
    chosen = parse(given | options)
    schema = arrow_schema(chosen.columns)
    return LogStreamReader(chosen, schema, make_query(chosen, schema))


def read(reader: LogStreamReader, start: Any, end: Any) -> list[int]:
    """Log offsets of the rows between two stream offsets, each partition pickled as for a
    worker."""
    found: list[int] = []
    for part in reader.partitions(start, end):
        sent = pickle.loads(pickle.dumps(part))
        for batch in pickle.loads(pickle.dumps(reader)).read(sent):
            found += batch.column("log_offset").to_pylist()
    return found


def write(root: Path, count: int, seed: int, epoch: int) -> None:
    with opened(root) as store:
        replicated = store.as_replicated(NOW_MS)
        replicated.to_master(epoch, NOW_MS)
        fill(store, count, seed)
        replicated.confirm_to(replicated.end, NOW_MS)


def cut(root: Path, log_offset: int) -> None:
    with opened(root) as store:
        replicated = store.as_replicated(NOW_MS)
        replicated.to_replica(NOW_MS)
        truncate_log(replicated, LogOffset(log_offset), NOW_MS)


def starts(root: Path) -> list[int]:
    return [record.log_offset for record in records(root)]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    write(tmp_path / "store", 60, 1, 3)
    yield tmp_path / "store"


def test_batches_of_a_limit_have_every_record_once(root: Path) -> None:
    reader = stream(root, maxBytesPerTrigger="4k", partitionBytes="1k")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(4096)
    at = reader.initialOffset()
    found: list[int] = []
    batches = 0
    while (end := reader.latestOffset(at, limit)) != at:
        assert 0 < end[str(root)][1] - at[str(root)][1] <= 4096 + 1400  # type: ignore[operator]
        found += read(reader, at, end)
        at = end
        batches += 1
    assert found == starts(root)
    assert batches > 5
    assert reader.partitions(at, at) == []
    assert stream(root).getDefaultReadLimit() == ALL


def test_several_stores_share_a_limit(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write(other, 40, 2, 1)
    reader = stream(root, other)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxBytes(8000))
    for path in (root, other):
        assert 0 < end[str(path)][1] <= 4000 + 1400  # type: ignore[operator]
    assert read(reader, start, reader.latestOffset(start, ALL)) == starts(root) + starts(other)


def test_a_store_that_comes_later_is_read_from_its_beginning(root: Path, tmp_path: Path) -> None:
    start = stream(root).initialOffset()
    done = stream(root).latestOffset(start, ALL)
    other = tmp_path / "other"
    write(other, 20, 2, 1)
    both = stream(root, other)
    assert read(both, done, both.latestOffset(done, ALL)) == starts(other)
    assert both.partitions(start, done), "a batch from before is done as it was"


def test_no_batch_for_a_new_epoch_alone(root: Path) -> None:
    reader = stream(root)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    with opened(root) as store:
        replicated = store.as_replicated(NOW_MS)
        replicated.to_master(9, NOW_MS)
    assert reader.latestOffset(end, ALL) == end


def test_available_now_stops_where_the_log_ended_then(root: Path) -> None:
    reader = stream(root)
    start = reader.initialOffset()
    before = starts(root)
    reader.prepareForTriggerAvailableNow()
    write(root, 20, 2, 4)
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == before
    assert reader.latestOffset(end, ALL) == end
    assert reader.reportLatestOffset()[str(root)][1] > end[str(root)][1]  # type: ignore[operator]


def test_a_cut_amid_a_batch_is_seen_behind_it(root: Path, caplog: Any) -> None:
    """A different master cuts and rewrites the range between its planning and its reading."""
    reader = stream(root)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    parts = reader.partitions(start, end)
    at = starts(root)[30]
    cut(root, at)
    write(root, 90, 2, 4)
    touched = [part for part in parts if part.part.base + part.part.end > at]
    assert touched
    for part in parts:
        if part in touched:
            with pytest.raises(StreamCut, match=f"epoch 4 there now; the two part at {at}"):
                list(reader.read(part))
        else:
            assert list(reader.read(part))
    easy = stream(root, failOnTruncation="false")
    with caplog.at_level(logging.WARNING):
        list(easy.read(touched[-1]))
    assert f"the two part at {at}" in caplog.text


def test_going_on_behind_a_cut_begins_where_the_logs_part(root: Path, caplog: Any) -> None:
    start = stream(root).initialOffset()
    end = stream(root).latestOffset(start, ALL)
    at = starts(root)[30]
    cut(root, at)
    with pytest.raises(StreamCut, match=f"failOnTruncation=false the stream goes on at {at}"):
        stream(root).latestOffset(end, ALL)
    with pytest.raises(StreamCut):
        stream(root).partitions(start, end)
    easy = stream(root, failOnTruncation="false")
    with caplog.at_level(logging.WARNING):
        shorter = easy.latestOffset(end, ALL)
    assert shorter[str(root)][1] == at
    assert f"ends at {at} now" in caplog.text
    assert read(easy, end, shorter) == []
    write(root, 10, 2, 4)
    longer = easy.latestOffset(shorter, ALL)
    assert read(easy, shorter, longer) == starts(root)[30:]
    assert read(easy, end, longer) == starts(root)[30:], "also straight from the old place"


def test_messages_removed_by_retention_are_reported(root: Path) -> None:
    reader = stream(root)
    start = reader.initialOffset()
    min((root / "commitlog").iterdir()).unlink()
    with pytest.raises(StreamExpired, match="begins at 16384 now"):
        reader.latestOffset(start, ALL)
    easy = stream(root, failOnDataLoss="false")
    assert read(easy, start, easy.latestOffset(start, ALL)) == starts(root)


def test_a_range_that_is_damaged_or_went_is_said(root: Path) -> None:
    reader = stream(root)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ALL))
    path = sorted((root / "commitlog").iterdir())[0]
    with path.open("r+b") as file:
        file.seek(starts(root)[5] + 4)
        file.write(b"\0\0\0\1")
    with pytest.raises(DamagedLog, match="is damaged at byte"):
        list(reader.read(parts[0]))
    path.unlink()
    with pytest.raises(StreamExpired, match=r"is gone: .*with failOnDataLoss=false"):
        list(reader.read(parts[0]))
    assert not list(stream(root, failOnDataLoss="false").read(parts[0]))


def test_confirmed_end_that_went_back_is_waited_for(root: Path) -> None:
    reader = stream(root)
    end = stream(root, confirmed="false").latestOffset(reader.initialOffset(), ALL)
    with opened(root) as store:
        replicated = store.as_replicated(NOW_MS)
        replicated.to_master(4, NOW_MS)
        fill(store, 20, 2)
    assert reader.latestOffset(end, ALL) == end
    ahead = stream(root, confirmed="false").latestOffset(end, ALL)
    assert ahead != end
    assert reader.latestOffset(ahead, ALL) == ahead, "neither back nor on"
