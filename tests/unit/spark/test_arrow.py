"""The log as Arrow batches, from every kind of location, compared with the model."""

import subprocess
import sys
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs
from tests.spark_stores import (
    FILE_SIZE,
    GOLDEN_NAMES,
    NOW_MS,
    fill,
    model_rows,
    opened,
    unpack_golden,
)

from turbopump.engine.snapshot.inspect import Deviation
from turbopump.engine.snapshot.log_table import DamagedLog
from turbopump.engine.types import StoreError
from turbopump.spark import ARROW_SCHEMA, COLUMNS, read_arrow, store_location
from turbopump.spark.schema import UnknownColumn

COUNT = 150


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("generated") / "store"
    with opened(root) as made:
        fill(made, COUNT, step_ms=60_000)
    return root


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return unpack_golden(tmp_path_factory.mktemp("golden"))


def rows(reader: pa.RecordBatchReader) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reader.read_all().to_pylist()
    for row in found:
        for name in {"born_time", "store_time"} & set(row):
            row[name] = row[name].astimezone(UTC)
        if "properties" in row:
            row["properties"] = dict(row["properties"])
    return found


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_stores_are_read_as_they_are(golden: dict[str, Path], name: str) -> None:
    assert rows(read_arrow(str(golden[name]))) == model_rows(golden[name])


@pytest.mark.parametrize("batch_rows", [1, 7, 65_536])
def test_batches_are_whole_and_valid(store: Path, batch_rows: int) -> None:
    reader = read_arrow(str(store), batch_rows=batch_rows)
    assert reader.schema == ARROW_SCHEMA
    batches = list(reader)
    for batch in batches:
        batch.validate(full=True)
        assert 0 < batch.num_rows <= batch_rows
    found = rows(pa.RecordBatchReader.from_batches(ARROW_SCHEMA, batches))
    assert found == model_rows(store)


@pytest.mark.parametrize("column", COLUMNS)
def test_each_column_alone(store: Path, column: str) -> None:
    found = rows(read_arrow(str(store), columns=[column]))
    assert found == [{column: row[column]} for row in model_rows(store)]


def test_limits_and_sets(store: Path) -> None:
    expected = model_rows(store)
    middle = expected[COUNT // 2]
    at, ms = middle["log_offset"], NOW_MS + COUNT // 2 * 60_000
    for query, keep in (
        ({"topics": ["topic-1", b"none"]}, lambda row: row["topic"] == "topic-1"),
        ({"topics": []}, lambda row: False),
        ({"queue_ids": {0, 3}}, lambda row: row["queue_id"] in (0, 3)),
        ({"min_store_ms": ms}, lambda row: row["store_time"] >= middle["store_time"]),
        ({"max_store_ms": ms}, lambda row: row["store_time"] <= middle["store_time"]),
        ({"min_log_offset": at}, lambda row: row["log_offset"] >= at),
        ({"max_log_offset": at}, lambda row: row["log_offset"] <= at),
        ({"min_log_offset": at + 1, "max_log_offset": at + 2}, lambda row: False),
    ):
        found = rows(read_arrow(str(store), **query))
        assert found == [row for row in expected if keep(row)], query


def mocked(root: Path, path: str) -> Any:
    """A file system in memory that holds a store."""
    system = fs._MockFileSystem()
    for folder in ("commitlog", "config"):
        system.create_dir(f"{path}/{folder}")
    for file in (*root.glob("commitlog/*"), root / "checkpoint"):
        name = f"{path}/{file.relative_to(root)}"
        with system.open_output_stream(name) as out:
            out.write(file.read_bytes())
    return system


@pytest.mark.parametrize("step", [300, 5000, store_location.STEP_BYTES])
def test_pieces_of_any_size_give_the_same_rows(
    store: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store has requests of a fixed size, and records cross their boundaries."""
    monkeypatch.setattr(store_location, "STEP_BYTES", step)
    expected = model_rows(store, "bucket/store")
    system = mocked(store, "bucket/store")
    assert rows(read_arrow("bucket/store", filesystem=system)) == expected
    below = fs.SubTreeFileSystem(str(store.parent), fs.LocalFileSystem())
    found = rows(read_arrow("store", filesystem=below))
    assert found == model_rows(store, "store")


def test_uris_are_places_too(store: Path) -> None:
    uri = store.as_uri()
    assert uri.startswith("file:///")
    assert rows(read_arrow(uri)) == model_rows(store, uri)
    path, opener = store_location.split_location("mock:///bucket/store/")
    assert path == "bucket/store"
    assert isinstance(opener, store_location.StoreFolder)


@pytest.mark.parametrize("place", ["/nowhere/at/all", "file:///nowhere/at/all", "nope://x/y"])
def test_a_place_that_is_none_is_named(place: str) -> None:
    with pytest.raises(StoreError, match=r"nowhere/at/all|nope://x/y"):
        read_arrow(place)


def test_unknown_columns_are_named(store: Path) -> None:
    with pytest.raises(UnknownColumn, match="no column 'bodies'"):
        read_arrow(str(store), columns=["body", "bodies"])


def test_damage_is_named_or_passed_over(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with opened(root) as made:
        fill(made, 60)
    expected = model_rows(root)
    broken = expected[10]
    path = root / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(broken["log_offset"] + 4)
        file.write(b"\xde\xad\xbe\xef")
    with pytest.raises(DamagedLog, match=rf"{path.name} is damaged at byte {broken['log_offset']}"):
        read_arrow(str(root)).read_all()
    damages: list[Deviation] = []
    found = rows(read_arrow(str(root), damaged=damages.append))
    assert found == expected[:10] + expected[11:]
    assert [(one.file, one.position) for one in damages] == [(str(path), broken["log_offset"])]


def test_a_file_that_is_missing_is_damage(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with opened(root) as made:
        fill(made, 100)
    expected = model_rows(root)
    (root / "commitlog" / f"{FILE_SIZE:020d}").unlink()
    with pytest.raises(DamagedLog, match=f"next file begins at {2 * FILE_SIZE}, not at"):
        read_arrow(str(root))
    damages: list[Deviation] = []
    found = rows(read_arrow(str(root), damaged=damages.append))
    assert found == [row for row in expected if row["log_offset"] // FILE_SIZE != 1]
    assert len(damages) == 1


def test_a_wrong_body_is_damage_if_asked(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with opened(root) as made:
        fill(made, 60)
    expected = model_rows(root)
    victim = next(row for row in expected if row["body_size"] == 900)
    data = bytearray((root / "commitlog" / f"{0:020d}").read_bytes())
    at = data.index(victim["body"])
    data[at] ^= 1
    (root / "commitlog" / f"{0:020d}").write_bytes(data)
    assert len(rows(read_arrow(str(root), columns=["size"]))) == 60
    with pytest.raises(DamagedLog, match="damaged at byte"):
        read_arrow(str(root), columns=["size"], verify_crc=True).read_all()


def test_neither_pyspark_nor_a_jvm_is_needed(store: Path) -> None:
    code = (
        "import sys; from turbopump.spark import read_arrow, register\n"
        f"print(read_arrow({str(store)!r}, columns=['size']).read_all().num_rows)\n"
        "assert not [name for name in sys.modules if name.startswith(('pyspark', 'py4j'))]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, str(COUNT)), done.stderr


def test_files_are_small_enough_to_mean_something(store: Path) -> None:
    assert len(list((store / "commitlog").iterdir())) > 3
    assert FILE_SIZE < 1 << 20
