"""The reader that Spark drives, driven without a JVM: partitions sent to workers, any size of them,
any columns and filters, over golden and generated stores, against the model."""

import json
import logging
import pickle
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, InputPartition, LessThan
from pyspark.sql.pandas.types import from_arrow_schema
from tests.spark_stores import (
    FILE_SIZE,
    GOLDEN_NAMES,
    fill,
    model_rows,
    moment,
    opened,
    unpack_golden,
)

from turbopump.engine.log_table import DamagedLog
from turbopump.spark import folders
from turbopump.spark.arrow import open_table, read_range
from turbopump.spark.partitions import make_wish
from turbopump.spark.pushdown import EVERYTHING
from turbopump.spark.schema import COLUMNS, arrow_schema
from turbopump.spark.source import LogReader, LogSource, WrongSchema, wanted

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


def reader(path: Path, filters: tuple[Filter, ...] = (), **options: str) -> LogReader:
    source = LogSource({"paths": json.dumps([str(path)]), **options})
    made = source.reader(source.schema())
    assert list(made.pushFilters(filters)) == []
    return made


def rows(made: LogReader) -> list[dict[str, Any]]:
    """Each partition read from a copy of the reader, as in a worker."""
    found: list[dict[str, Any]] = []
    for part in made.partitions():
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


@pytest.mark.parametrize("name", NAMES)
def test_filters_of_each_kind(stores: dict[str, Path], name: str) -> None:
    root = stores[name]
    expected = model_rows(root)
    middle = expected[len(expected) // 2]
    topics = {row["topic"] for row in expected[: len(expected) // 3]}
    cases: list[tuple[tuple[Filter, ...], Keep]] = [
        ((In(("topic",), tuple(topics)),), lambda row: row["topic"] in topics),
        ((EqualTo(("queue_id",), 1),), lambda row: row["queue_id"] == 1),
        (
            (GreaterThanOrEqual(("store_time",), middle["store_time"]),),
            lambda row: row["store_time"] >= middle["store_time"],
        ),
        (
            (LessThan(("store_time",), middle["store_time"]), EqualTo(("queue_id",), 0)),
            lambda row: row["store_time"] < middle["store_time"] and row["queue_id"] == 0,
        ),
        (
            (LessThan(("log_offset",), middle["log_offset"]),),
            lambda row: row["log_offset"] < middle["log_offset"],
        ),
        ((EqualTo(("store",), str(root)),), lambda row: True),
        ((EqualTo(("store",), "another"),), lambda row: False),
        ((EqualTo(("topic",), "none"),), lambda row: False),
    ]
    for filters, keep in cases:
        found = rows(reader(root, filters, partitionBytes="65536"))
        assert found == [row for row in expected if keep(row)], filters


def test_ranges_that_remain(stores: dict[str, Path]) -> None:
    """How much of a log is touched at all."""
    root = stores["generated"]
    expected = model_rows(root)
    files = len(list((root / "commitlog").iterdir()))

    def count(*filters: Filter) -> int:
        return len(reader(root, filters).partitions())

    assert count() == files > 4
    assert count(EqualTo(("log_offset",), expected[-1]["log_offset"])) == 1
    assert count(LessThan(("log_offset",), FILE_SIZE)) == 1
    assert count(GreaterThanOrEqual(("log_offset",), 2 * FILE_SIZE)) == files - 2
    assert count(LessThan(("store_time",), expected[1]["store_time"])) == 1
    assert count(GreaterThanOrEqual(("store_time",), expected[-1]["store_time"])) <= 2
    assert count(EqualTo(("store_time",), moment(0))) == 0
    assert count(EqualTo(("topic",), "none")) == files, "only reading tells"
    assert count(EqualTo(("topic",), "a"), EqualTo(("topic",), "b")) == 0


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


def test_nothing_to_read_is_a_partition_of_spark(stores: dict[str, Path]) -> None:
    made = reader(stores["generated"], (EqualTo(("topic",), "a"), EqualTo(("topic",), "b")))
    assert made.partitions() == []
    assert list(made.read(InputPartition(None))) == []


def test_schemas_of_a_user(stores: dict[str, Path]) -> None:
    nullable = pa.schema([field.with_nullable(True) for field in arrow_schema(("size", "keys"))])
    assert wanted(from_arrow_schema(nullable)) == nullable, "as Spark makes it of a text"
    turned = pa.schema([nullable.field("keys"), nullable.field("size")])
    assert wanted(from_arrow_schema(turned)).names == ["keys", "size"]
    with pytest.raises(WrongSchema, match="column 'size' is int, not bigint"):
        wanted(from_arrow_schema(pa.schema([pa.field("size", pa.int64())])))
    assert LogSource({"path": "/a"}).schema().fieldNames() == list(COLUMNS)


def test_no_request_is_larger_than_a_step(
    stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an object store is asked for at once, and so what a worker holds of a log."""
    root = stores["generated"]
    opener = folders.Folder(pa.fs.LocalFileSystem())
    parts = open_table(str(root), opener).split(1 << 20)
    sizes: list[int] = []
    region = folders._Pieces.region

    def noted(self: Any, start: int, end: int) -> Any:
        sizes.append(end - start)
        return region(self, start, end)

    monkeypatch.setattr(folders._Pieces, "region", noted)
    monkeypatch.setattr(folders, "STEP_BYTES", 2048)
    schema = arrow_schema(("log_offset",))
    made = reader(root, columns="log_offset")
    wish = make_wish(made._options, schema, EVERYTHING)
    found = [
        row
        for part in parts
        for batch in read_range(str(root), part, schema, wish, opener=opener)
        for row in batch.column("log_offset").to_pylist()
    ]
    assert found == [row["log_offset"] for row in model_rows(root)]
    assert max(sizes) == 2048
    assert len(sizes) > sum(part.end - part.start for part in parts) // 2048
