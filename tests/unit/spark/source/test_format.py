"""The reader that Spark uses, without a JVM: partitions sent to workers, of any size, with any
columns and filters, over golden and generated stores, compared with the model."""

import json
import logging
import pickle
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from tests.shortcuts.log_cuts import truncate_log

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.pandas.types import from_arrow_schema
from tests.spark_stores import (
    FILE_SIZE,
    GOLDEN_NAMES,
    NOW_MS,
    fill,
    model_rows,
    opened,
    unpack_golden,
)

from turbopump.engine.snapshot.log_table import DamagedLog
from turbopump.engine.types import LogOffset
from turbopump.spark import store_location
from turbopump.spark.arrow import open_table, read_range
from turbopump.spark.schema import COLUMNS, arrow_schema
from turbopump.spark.source import partitions
from turbopump.spark.source.format import LogReader, LogSource, WrongSchema, requested_schema
from turbopump.spark.source.partitions import LogPartition, make_query

NAMES = (*GOLDEN_NAMES, "generated")
SOME = ("topic", "log_offset", "store_time", "tags", "properties", "body")
Keep = Callable[[dict[str, Any]], bool]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("stores")
    found = unpack_golden(folder)
    with opened(folder / "generated") as made:
        fill(made, 200, step_ms=60_000)
    return found | {"generated": folder / "generated"}


def reader(path: Path, **options: str) -> LogReader:
    source = LogSource({"paths": json.dumps([str(path)]), **options})
    return source.reader(source.schema())


def rows(made: LogReader, parts: list[LogPartition] | None = None) -> list[dict[str, Any]]:
    """Each partition read from a copy of the reader, as in a worker."""
    found: list[dict[str, Any]] = []
    for part in made.partitions() if parts is None else parts:
        there, sent = pickle.loads(pickle.dumps((made, part)))
        for batch in there.read(sent):
            batch.validate(full=True)
            found += batch.to_pylist()
    for row in found:
        for name in {"born_time", "store_time"} & set(row):
            row[name] = row[name].astimezone(UTC)
        if "properties" in row:
            row["properties"] = dict(row["properties"])
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("partition_bytes", [2048, 100_000])
def test_every_record_once(stores: dict[str, Path], name: str, partition_bytes: int) -> None:
    root = stores[name]
    options = {"partitionBytes": str(partition_bytes)}
    expected = model_rows(root)
    assert rows(reader(root, **options)) == expected
    few = rows(reader(root, columns=",".join(SOME), batchRows="11", **options))
    assert few == [{column: row[column] for column in SOME} for row in expected]


def test_no_filter_is_taken_from_spark() -> None:
    """Spark up to 4.3 would apply it to every later query on the same DataFrame."""
    assert LogReader.pushFilters is DataSourceReader.pushFilters


@pytest.mark.parametrize("name", NAMES)
def test_filters_of_each_kind(stores: dict[str, Path], name: str) -> None:
    root = stores[name]
    expected = model_rows(root)
    middle = expected[len(expected) // 2]
    topics = {row["topic"] for row in expected[: len(expected) // 3]}
    time, at = str(round(middle["store_time"].timestamp() * 1000)), middle["log_offset"]
    cases: list[tuple[dict[str, str], Keep]] = [
        ({"topics": ",".join(topics)}, lambda row: row["topic"] in topics),
        ({"topics": json.dumps(list(topics))}, lambda row: row["topic"] in topics),
        ({"queues": "1, 3"}, lambda row: row["queue_id"] in (1, 3)),
        ({"since": time}, lambda row: row["store_time"] >= middle["store_time"]),
        (
            {"until": middle["store_time"].isoformat(), "queues": "0"},
            lambda row: row["store_time"] < middle["store_time"] and row["queue_id"] == 0,
        ),
        ({"maxLogOffset": str(at)}, lambda row: row["log_offset"] <= at),
        ({"minLogOffset": str(at), "maxLogOffset": str(at)}, lambda row: row is middle),
        ({"topics": "none"}, lambda row: False),
    ]
    for options, keep in cases:
        found = rows(reader(root, partitionBytes="65536", **options))
        assert found == [row for row in expected if keep(row)], options


def test_ranges_that_remain(stores: dict[str, Path]) -> None:
    """The ranges show how much of a log is read; the last partition is for new records."""
    root = stores["generated"]
    expected = model_rows(root)
    files = len(list((root / "commitlog").iterdir()))

    def count(**options: str) -> int:
        return sum(part.planned is not None for part in reader(root, **options).partitions())

    last = str(expected[-1]["log_offset"])
    assert count() == files > 4
    assert count(minLogOffset=last, maxLogOffset=last) == 1
    assert count(maxLogOffset=str(FILE_SIZE - 1)) == 1
    assert count(minLogOffset=str(2 * FILE_SIZE)) == files - 2
    assert count(topics="none") == files, "only reading shows it"


def test_a_plan_that_is_kept_is_read_as_the_store_is_then(tmp_path: Path) -> None:
    """Spark plans once for all queries on a DataFrame: the log grows, is cut, loses files."""
    root = tmp_path / "store"
    with opened(root):
        pass
    for count in (0, 40, 90):
        made = reader(root, partitionBytes="4k", confirmed="false")
        parts = made.partitions()
        assert len(parts) >= 1 + count // 10
        with opened(root) as store:
            fill(store, 50, seed=count)
        assert rows(made, parts) == model_rows(root), "records written since"
    made = reader(root, partitionBytes="4k", confirmed="false")
    parts = made.partitions()
    with opened(root) as store:
        replicated = store.as_replicated(NOW_MS)
        replicated.to_replica(NOW_MS)
        truncate_log(replicated, LogOffset(model_rows(root)[60]["log_offset"]), NOW_MS)
        replicated.to_master(7, NOW_MS)
        fill(store, 80, seed=5)
    fresh = rows(reader(root, confirmed="false"))
    assert [row["body"] for row in fresh] == [row["body"] for row in model_rows(root)]
    assert rows(made, parts) == fresh, "the other content there"
    min((root / "commitlog").iterdir()).unlink()
    left = [row for row in fresh if row["log_offset"] >= FILE_SIZE]
    assert rows(made, parts) == left, "what retention left"


def test_a_plan_is_read_without_a_second_look_where_nothing_changed(
    stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reader(stores["generated"])
    *closed, _last = made.partitions()
    monkeypatch.setattr(partitions, "open_store", None)
    assert sum(batch.num_rows for part in closed for batch in made.read(part)) > 100


def test_damage_is_named_or_passed_over(tmp_path: Path, caplog: Any) -> None:
    root = tmp_path / "store"
    with opened(root) as made:
        fill(made, 100)
    expected = model_rows(root)
    (root / "commitlog" / f"{FILE_SIZE:020d}").unlink()
    broken = expected[3]
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(broken["log_offset"] + 4)
        file.write(b"\0\0\0\1")
    with pytest.raises(DamagedLog, match="not at 16384"):
        reader(root).partitions()
    with caplog.at_level(logging.WARNING):
        found = rows(reader(root, skipDamaged="true"))
    kept = [row for row in expected if row["log_offset"] // FILE_SIZE != 1]
    assert found == kept[:3] + kept[4:]
    assert f"damaged at byte {broken['log_offset']}, which is passed over" in caplog.text


def test_a_wrong_body_at_the_end_is_a_row_or_damage(tmp_path: Path, caplog: Any) -> None:
    root = tmp_path / "store"
    with opened(root) as made:
        fill(made, 30)
    whole = model_rows(root)
    victim = [row for row in whole if row["body_size"] == 900][-1]
    name = f"{victim['log_offset'] // FILE_SIZE * FILE_SIZE:020d}"
    data = bytearray((root / "commitlog" / name).read_bytes())
    data[data.index(victim["body"]) + 5] ^= 1
    (root / "commitlog" / name).write_bytes(data)
    (root / "checkpoint").unlink()  # the checkpoint marks the whole log as sound
    offsets = [row["log_offset"] for row in whole]
    assert [row["log_offset"] for row in rows(reader(root))] == offsets
    with caplog.at_level(logging.WARNING):
        assert [row["log_offset"] for row in rows(reader(root, skipDamaged="true"))] == offsets
        assert caplog.text == "", "delivered records were not skipped"
        found = rows(reader(root, skipDamaged="true", verifyCrc="true"))
    assert found == [row for row in whole if row["log_offset"] != victim["log_offset"]]
    assert "which is passed over: the body does not have the stored CRC" in caplog.text
    with pytest.raises(DamagedLog, match="stored CRC"):
        rows(reader(root, verifyCrc="true"))


def test_schemas_of_a_user(stores: dict[str, Path]) -> None:
    nullable = pa.schema([field.with_nullable(True) for field in arrow_schema(("size", "keys"))])
    assert requested_schema(from_arrow_schema(nullable)) == nullable, "as Spark makes it of a text"
    turned = pa.schema([nullable.field("keys"), nullable.field("size")])
    assert requested_schema(from_arrow_schema(turned)).names == ["keys", "size"]
    with pytest.raises(WrongSchema, match="column 'size' is int, not bigint"):
        requested_schema(from_arrow_schema(pa.schema([pa.field("size", pa.int64())])))
    assert LogSource({"path": "/a"}).schema().fieldNames() == list(COLUMNS)


def test_no_request_is_larger_than_a_step(
    stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step limits the requests to an object store, and so a worker's memory."""
    root = stores["generated"]
    opener = store_location.StoreFolder(pa.fs.LocalFileSystem())
    parts = open_table(str(root), opener).split_ranges(1 << 20)
    sizes: list[int] = []
    region = store_location._Pieces.region

    def noted(self: Any, start: int, end: int) -> Any:
        sizes.append(end - start)
        return region(self, start, end)

    monkeypatch.setattr(store_location._Pieces, "region", noted)
    monkeypatch.setattr(store_location, "STEP_BYTES", 2048)
    schema = arrow_schema(("log_offset",))
    made = reader(root, columns="log_offset")
    query = make_query(made._options, schema)
    found = [
        row
        for part in parts
        for batch in read_range(str(root), part, schema, query, opener=opener)
        for row in batch.column("log_offset").to_pylist()
    ]
    assert found == [row["log_offset"] for row in model_rows(root)]
    assert max(sizes) == 2048
    assert len(sizes) > sum(part.end - part.start for part in parts) // 2048
