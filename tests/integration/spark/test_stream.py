"""The log as a stream: each record once, in order of offsets, and never over a cut unseen."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.shortcuts.log_cuts import truncate_log
from tests.spark_stores import FILE_SIZE, NOW_MS, fill, model_rows, opened

from turbopump.engine.types import LogOffset

QUERY_S = 120


def grow(root: Path, count: int, seed: int, epoch: int | None = None) -> None:
    """More messages; of the master of an epoch."""
    with opened(root) as store:
        replicated = None
        if epoch is not None:
            replicated = store.as_replicated(NOW_MS)
            replicated.to_master(epoch, NOW_MS)
        fill(store, count, seed)
        if replicated is not None:
            replicated.confirm_to(replicated.end, NOW_MS)


def cut(root: Path, log_offset: int) -> None:
    with opened(root) as store:
        replicated = store.as_replicated(NOW_MS)
        replicated.to_replica(NOW_MS)
        truncate_log(replicated, LogOffset(log_offset), NOW_MS)


class Query:
    """A query that can be run again and again from its checkpoint, to the end of the log."""

    def __init__(self, spark: Any, root: Path | str, folder: Path) -> None:
        self.spark, self.root, self.folder = spark, root, folder
        self.batches = 0

    def run(self, **options: Any) -> None:
        """Read the new records."""
        options = {"columns": "store,topic,queue_offset,log_offset,body"} | options
        frame = self.spark.readStream.format("turbopump").options(**options).load(str(self.root))
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(QUERY_S)
            self.batches = sum(progress.numInputRows > 0 for progress in query.recentProgress)
        finally:
            query.stop()

    def rows(self) -> list[dict[str, Any]]:
        found = self.spark.read.parquet(str(self.folder / "out")).collect()
        return [row.asDict() for row in sorted(found, key=lambda row: row["log_offset"])]

    def offsets(self) -> Any:
        """Offsets that the last batch saved."""
        folder = self.folder / "checkpoint" / "offsets"
        last = max(
            (path for path in folder.iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
        )
        return json.loads(last.read_text().splitlines()[-1])


def picked(root: Path, **more: Any) -> list[dict[str, Any]]:
    names = ("store", "topic", "queue_offset", "log_offset", "body")
    return [{name: row[name] for name in names} for row in model_rows(root, **more)]


def test_each_record_once_over_restarts(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    grow(root, 30, 1, epoch=3)
    query = Query(spark, root, tmp_path)
    query.run()
    assert query.rows() == picked(root)
    grow(root, 40, 2, epoch=4)
    query.run(maxBytesPerTrigger="4k", partitionBytes="2k")
    assert query.rows() == picked(root)
    assert query.batches > 3, "the limit made small batches"
    end = max(row["log_offset"] + row["size"] for row in model_rows(root))
    epoch, log_offset, entries = query.offsets()[str(root)]
    assert (epoch, log_offset) == (4, end)
    assert [entry[0] for entry in entries] == [3, 4]


def test_unconfirmed_records_come_once_confirmed(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    grow(root, 30, 1, epoch=3)
    with opened(root) as store:
        replicated = store.as_replicated(NOW_MS)
        replicated.to_master(4, NOW_MS)
        fill(store, 10, 2)
    query = Query(spark, root, tmp_path)
    query.run()
    assert query.rows() == picked(root)[:30]
    grow(root, 1, 3, epoch=5)
    query.run()
    assert query.rows() == picked(root)


@pytest.mark.parametrize("then", ["shorter", "written on"])
def test_a_cut_ends_the_query_and_names_both_places(spark: Any, tmp_path: Path, then: str) -> None:
    root = tmp_path / "store"
    grow(root, 30, 1, epoch=3)
    query = Query(spark, root, tmp_path)
    query.run()
    before = picked(root)
    end = max(row["log_offset"] + row["size"] for row in model_rows(root))
    at = before[20]["log_offset"]
    cut(root, at)
    if then == "written on":
        grow(root, 60, 2, epoch=4)
    with pytest.raises(Exception, match=rf"read up to {end} of epoch 3, but .* now") as raised:
        query.run()
    assert f"part at {at}" in str(raised.value)
    assert query.rows() == before, "nothing was read after the cut"
    query.run(failOnTruncation="false")
    rest = picked(root)[20:]
    expected = sorted(before + rest, key=lambda row: row["log_offset"])
    assert sorted(query.rows(), key=lambda row: row["log_offset"]) == expected


def test_a_cut_between_planning_and_reading_is_seen(spark: Any, tmp_path: Path) -> None:
    """A batch that was written down and not done is done again: of a log that was cut since."""
    root = tmp_path / "store"
    grow(root, 30, 1, epoch=3)
    query = Query(spark, root, tmp_path)
    query.run()
    for path in (tmp_path / "checkpoint" / "commits").iterdir():
        path.unlink()
    cut(root, picked(root)[20]["log_offset"])
    grow(root, 60, 2, epoch=4)
    with pytest.raises(Exception, match="of epoch 3, but has bytes of epoch 4 there now"):
        query.run()


def test_messages_removed_by_retention_are_reported(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    grow(root, 10, 1, epoch=3)
    query = Query(spark, root, tmp_path)
    query.run()
    before = picked(root)
    grow(root, 60, 2, epoch=4)
    min((root / "commitlog").iterdir()).unlink()
    with pytest.raises(Exception, match=f"begins at {FILE_SIZE} now: retention removed"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.rows() == before + picked(root)


@pytest.mark.parametrize("chosen", ["latest", "number", "pair"])
def test_where_a_stream_starts(spark: Any, tmp_path: Path, chosen: str) -> None:
    root = tmp_path / "store"
    grow(root, 30, 1, epoch=3)
    at = picked(root)[12]["log_offset"]
    starting = {
        "latest": "latest",
        "number": json.dumps({str(root): at - 3}),
        "pair": json.dumps({str(root): [3, at]}),
    }[chosen]
    query = Query(spark, root, tmp_path)
    query.run(startingOffsets=starting)
    grow(root, 5, 2, epoch=4)
    query.run()
    assert query.rows() == picked(root)[30 if chosen == "latest" else 12 :]


def test_a_wrong_start_is_said(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    grow(root, 30, 1, epoch=3)
    query = Query(spark, root, tmp_path)
    with pytest.raises(Exception, match="startingOffsets is 'yesterday'"):
        query.run(startingOffsets="yesterday")
    with pytest.raises(Exception, match="names '/elsewhere', which is not read"):
        query.run(startingOffsets='{"/elsewhere": 0}')
    with pytest.raises(Exception, match="read up to 100 of epoch 2"):
        query.run(startingOffsets=json.dumps({str(root): [2, 100]}))
