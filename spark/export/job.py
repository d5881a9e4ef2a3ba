"""Export of topics: to Parquet by Spark, to an mmap-ninja dataset without Spark.

Owns the contents of the target, which appears completely or not at all: it is written beside its
place and renamed. It must never change a store, nor hold more than a batch of it. docs/FORMATS.md
describes a dataset; `turbopump bench producer --replay` sends its messages.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turbopump.engine.types import StoreError
from turbopump.spark.commands import parsers
from turbopump.spark.export.bodies import UnreadableBody, decompress_bodies, plain_frame
from turbopump.spark.export.ninja import Numbers, Ragged, Strings
from turbopump.spark.output_folder import is_remote, written_folder
from turbopump.spark.progress import show_progress
from turbopump.spark.schema import COLUMNS, UnknownColumn, parse_columns
from turbopump.spark.selection import RowSelection, selection_of
from turbopump.spark.session import BAD_INPUT, JobError, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILED = 1
"""Exit code of an export without rows."""
DATASET_VERSION = 1
"""Value of `turbopump_dataset` in the manifest."""
MANIFEST = "dataset.json"
"""Name of the manifest in a dataset's folder."""
PARQUET_MARK = "_SUCCESS"  # Spark's, in a folder that it has written completely
NUMBERS = {
    "queue_id": "int32",
    "queue_offset": "int64",
    "log_offset": "int64",
    "size": "int32",
    "body_size": "int32",
    "flag": "int32",
    "sys_flag": "int32",
    "reconsume_times": "int32",
}
"""Type of each column of numbers in a dataset, by name."""
TIMES = {"born_ms": "born_time", "store_ms": "store_time"}
"""Column of times of the table by the dataset's column, which has int64 epoch ms."""
STRINGS = ("topic", "tags", "keys")
"""Columns of texts in a dataset; null becomes ""."""
READ = (*NUMBERS, *TIMES.values(), *STRINGS, "body")
"""Columns of the table that go into a dataset."""


class NothingFound(JobError):
    """The selection has no rows; exit code 1."""


@dataclass(frozen=True)
class ExportOptions:
    """Input of an export: the selection, the target and its format."""

    selection: RowSelection
    target: str
    """Folder to create, or for Parquet a URI."""
    format: str = "parquet"
    """"parquet" or "ninja" (an mmap-ninja dataset)."""
    columns: tuple[str, ...] = COLUMNS
    """Columns of Parquet; a dataset always has the same columns."""
    plain_bodies: bool = False
    """Whether compressed bodies are decompressed."""
    overwrite: bool = False
    """Whether an existing export is replaced."""


@dataclass(frozen=True)
class ExportResult:
    """Result of an export: the target, its format, and the number of rows and bytes."""

    target: str
    format: str
    rows: int
    body_bytes: int | None
    """Bytes of all exported bodies; None without bodies."""

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        bodies = "" if self.body_bytes is None else f", {self.body_bytes:,} bytes of bodies"
        return [f"{self.target}: {self.rows:,} messages{bodies}"]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "target": self.target,
            "format": self.format,
            "rows": self.rows,
            "body_bytes": self.body_bytes,
        }


def run(spark: "SparkSession | None", options: ExportOptions) -> ExportResult:
    """Export the selected rows to `options.target`, which appears completely or not at all; only
    Parquet needs a session.

    Raises JobError, NothingFound if the selection has no rows, and Spark's errors.
    """
    try:
        if options.format == "ninja":
            return _to_ninja(options)
        assert spark is not None, "Parquet is written by Spark"
        return _to_parquet(spark, options)
    except (StoreError, UnknownColumn, UnreadableBody) as error:
        raise JobError(str(error)) from error


def _to_parquet(spark: "SparkSession", options: ExportOptions) -> ExportResult:
    """Export by Spark to a folder of Parquet files."""
    wanted = options.columns
    asked = set(wanted)
    if options.plain_bodies:
        asked |= {"body", "sys_flag", "topic", "queue_id", "queue_offset"}
    columns = tuple(name for name in COLUMNS if name in asked)
    frame = options.selection.make_frame(spark, columns)
    if options.plain_bodies:
        frame = plain_frame(frame).select(*wanted)
    with written_folder(options.target, options.overwrite, PARQUET_MARK) as folder:
        mode = "overwrite" if options.overwrite else "errorifexists"
        frame.write.mode(mode).option("compression", "zstd").parquet(folder)
        written = spark.read.parquet(folder)
        sizes = "sum(octet_length(body))" if "body" in wanted else "cast(null as bigint)"
        row = written.selectExpr("count(*) as rows", f"{sizes} as bytes").collect()[0]
        if not row["rows"]:
            raise NothingFound("there is no such message")
    return ExportResult(options.target, "parquet", row["rows"], row["bytes"])


def _to_ninja(options: ExportOptions) -> ExportResult:
    """Export without Spark to a dataset of mmap-ninja."""
    if is_remote(options.target):
        raise JobError(f"{options.target}: a dataset is mapped into memory, so it is a folder")
    with (
        written_folder(options.target, options.overwrite, MANIFEST) as folder,
        closing(_Dataset(Path(folder))) as dataset,
        show_progress(dataset.progress),
    ):
        for store, batch in options.selection.read_arrow_batches(READ):
            dataset.append(store, decompress_bodies(batch) if options.plain_bodies else batch)
        dataset.write_manifest(options)
    return ExportResult(options.target, "ninja", dataset.rows, dataset.body_bytes)


class _Dataset:
    """The folder of a dataset while it is written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._store = Numbers(folder / "store", "int32")
        self._numbers = {
            name: Numbers(folder / name, kind)
            for name, kind in {**NUMBERS, **dict.fromkeys(TIMES, "int64")}.items()
        }
        self._strings = {name: Strings(folder / name) for name in STRINGS}
        self._bodies = Ragged(folder / "body")
        self._parts: list[Numbers | Strings | Ragged] = [
            self._store,
            *self._numbers.values(),
            *self._strings.values(),
            self._bodies,
        ]
        self.rows = 0
        self.body_bytes = 0

    def progress(self) -> tuple[int, None, str]:
        """Return (rows written, None: their total is unknown, a description), for
        `progress.show_progress`."""
        return self.rows, None, f"messages, {self.body_bytes >> 20:,} MiB"

    def append(self, store: int, batch: pa.RecordBatch) -> None:
        """Append the rows of a batch; `store` is the index of their store in the selection."""
        self._store.append(np.full(batch.num_rows, store, np.int32))
        for name in NUMBERS:
            self._numbers[name].append(batch.column(name).to_numpy())
        for name, column in TIMES.items():
            micros = batch.column(column).cast(pa.int64()).to_numpy()
            self._numbers[name].append(micros // 1000)
        for name in STRINGS:
            self._strings[name].append(*_offsets_and_bytes(pc.fill_null(batch.column(name), "")))
        offsets, data = _offsets_and_bytes(batch.column("body"))
        self._bodies.append(offsets, data)
        self.rows += batch.num_rows
        self.body_bytes += int(offsets[-1] - offsets[0])

    def write_manifest(self, options: ExportOptions) -> None:
        """Complete the files and write the manifest. Raises NothingFound if there are no rows."""
        if not self.rows:
            raise NothingFound("there is no such message")
        for part in self._parts:
            part.finish()
        kinds = {"store": "int32", **NUMBERS, **dict.fromkeys(TIMES, "int64")}
        kinds |= {**dict.fromkeys(STRINGS, "string"), "body": "ragged uint8"}
        about = {
            "turbopump_dataset": DATASET_VERSION,
            "rows": self.rows,
            "body_bytes": self.body_bytes,
            "bodies": "plain" if options.plain_bodies else "stored",
            "columns": kinds,
            **options.selection.describe_as_json(),
        }
        (self._folder / MANIFEST).write_text(json.dumps(about, indent=1) + "\n")

    def close(self) -> None:
        """Close the files of the dataset, finished or not."""
        for part in self._parts:
            part.close()


def _offsets_and_bytes(column: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return (offsets of the rows, bytes of all rows) of an array of strings or binaries,
    without copying the bytes."""
    _, offsets, data = column.buffers()
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    places = np.frombuffer(offsets, np.int64 if wide else np.int32)
    places = places[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return places, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def options_of(given: argparse.Namespace) -> ExportOptions:
    """Make the options from the parsed arguments of `parsers.export_parser`. Raises JobError if no
    topics are selected, a column is unknown or a folder has several stores."""
    if not given.topics and not given.all_topics:
        raise JobError("no topics are selected: use -t or --all-topics")
    try:
        columns = parse_columns(given.columns)
    except UnknownColumn as error:
        raise JobError(str(error)) from None
    return ExportOptions(
        selection_of(given),
        given.output,
        given.format,
        columns,
        given.plain_bodies,
        given.overwrite,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code: 0, FAILED without rows, BAD_INPUT for an error,
    which is printed to stderr. `argv` None: the process's arguments."""
    made = parsers.export_parser()
    given = made.parse_args(argv)
    try:
        options = options_of(given)
        if options.format == "ninja":
            result = run(None, options)
        else:
            with open_session(made.prog, given.master, given.conf, verbose=given.verbose) as spark:
                result = run(spark, options)
    except JobError as error:
        print(f"{made.prog}: {error}", file=sys.stderr)
        return FAILED if isinstance(error, NothingFound) else BAD_INPUT
    print(json.dumps(result.to_json()) if given.json else "\n".join(result.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
