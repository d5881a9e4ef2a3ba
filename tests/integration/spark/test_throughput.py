"""The throughput job against the model: every figure, gap, stall and step of the clock."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.spark import throughput_model as model

from turbopump.spark.schema import arrow_schema
from turbopump.spark.selection import RowSelection
from turbopump.spark.throughput import batches as throughput_batches
from turbopump.spark.throughput.analysis import analyse_cells as analyse_tables
from turbopump.spark.throughput.job import ThroughputOptions, analyse_frame
from turbopump.spark.throughput.local_tables import LocalTables, merge_cells
from turbopump.spark.throughput.result import Throughput

EXACT = (
    "messages", "bytes", "body_bytes", "skewed_messages", "skew_ms_max", "unborn_messages",
    "size_min", "size_max", "body_min", "body_max", "latency_ms_min", "latency_ms_max",
)  # fmt: skip
PERCENTILES = ("p50", "p99", "p999")
BUCKETED = [f"{name}_{at}" for name in ("size", "body", "latency_ms") for at in PERCENTILES]
NO_TIMES = (0, -5, 9_000_000_000_000_000)
LATE_MS = (0, 3, 15, 900, 4000, -250)
PLAIN = (
    "store", "topic", "queue_id", "queue_offset", "log_offset", "size", "sys_flag", "body_size",
)  # fmt: skip
Analysed = tuple[list[model.Record], Throughput, Path]


def planted(seed: int = 5) -> list[model.Record]:
    """Records of two stores: several hosts, a stall, gaps, skewed and unborn ones, a step back."""
    rng = random.Random(seed)
    records = []
    for store in ("a", "b"):
        at, now_ms = 1000, model.NOW_MS
        next_offset: dict[Any, int] = {}
        for number in range(3000):
            now_ms += rng.choice((0, 1, 2, 7)) + (12_345 if number in (700, 1900) else 0)
            if store == "b" and number in (1200, 2100):
                now_ms -= 400 if number == 1200 else 2500
            topic, queue = rng.choice((("T", 0), ("T", 1), ("U", 0), ("%RETRY%g", 0)))
            topic = "T" if topic == "U" and 400 <= number < 700 else topic
            offset = next_offset.setdefault((topic, queue), 40)
            offset += rng.choice((0, 0, 0, 0, 0, 1, 70, 200)) if number % 97 == 5 else 0
            next_offset[topic, queue] = offset + 1
            body = rng.choice((10, 200, 5000)) + rng.randrange(90)
            prepared = number % 211 == 0
            born_ms = NO_TIMES[number % 3] if number % 301 == 7 else now_ms - rng.choice(LATE_MS)
            records.append(
                {
                    "store": store,
                    "topic": topic,
                    "queue_id": queue,
                    "queue_offset": 0 if prepared else offset,
                    "log_offset": at,
                    "size": body + 100,
                    "body_size": body,
                    "sys_flag": 4 if prepared else 0,
                    "store_ms": now_ms,
                    "born_ms": born_ms,
                    "host": rng.choice(("10.0.0.1", "10.0.0.2", "[2001:db8::1]")),
                }
            )
            at += body + 100
    return records


def counted(records: list[model.Record]) -> list[pa.RecordBatch]:
    """Cells that workers count from the records in the data source's form."""
    return [cell for part in record_parts(records) for cell in throughput_batches.count_cells(part)]


def merged_cells(records: list[model.Record]) -> pa.Table:
    """Cells of the records without Spark."""
    return merge_cells(throughput_batches.CELL.empty_table(), counted(records))


def record_parts(records: list[model.Record]) -> Iterator[list[pa.RecordBatch]]:
    """Records as batches: three parts, in no order."""
    rng = random.Random(1)
    shuffled = rng.sample(records, len(records))
    for part in (shuffled[::3], shuffled[1::3], shuffled[2::3]):
        columns = {
            **{name: [one[name] for one in part] for name in PLAIN},
            "born_time": [one["born_ms"] * 1000 for one in part],
            "store_time": [one["store_ms"] * 1000 for one in part],
            "born_host": [f"{one['host']}:{rng.randrange(1, 65536)}" for one in part],
        }
        schema = arrow_schema(throughput_batches.NEEDED)
        arrays = [pa.array(columns[field.name]).cast(field.type) for field in schema]
        yield pa.Table.from_arrays(arrays, schema=schema).to_batches(max_chunksize=300)


@pytest.fixture(scope="module")
def analysed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """The planted records, and the job's results for them."""
    records = planted()
    output = tmp_path_factory.mktemp("throughput") / "out"
    options = ThroughputOptions(RowSelection(("a", "b")), str(output), stall_seconds=3)
    cells = spark.createDataFrame(pa.Table.from_batches(counted(records)))
    return records, analyse_frame(spark, cells, options), output


def check(row: Any, records: Iterable[model.Record]) -> None:
    """A row of figures against the model: exact where it must be, else within the stated error."""
    wanted = model.figures(records)
    for name in EXACT:
        assert row[name] == wanted[name], name
    for name in (*BUCKETED, "size_avg", "body_avg", "latency_ms_avg"):
        error = 0.0 if name.endswith("avg") else 1 / 128
        if wanted[name] is None:
            assert row[name] is None, name
        else:
            assert row[name] == pytest.approx(wanted[name], rel=error, abs=1e-9), name


def test_all_figures_are_those_of_the_model(analysed: Analysed) -> None:
    records, result, _ = analysed
    check(result.totals, records)
    for shown, keys in (
        (result.by_store, ("store",)),
        (result.topics, ("store", "topic")),
        (result.queues, ("store", "topic", "queue_id")),
        (result.hosts, ("store", "host")),
    ):
        groups = model.by(records, *keys)
        assert shown.count == len(shown.rows) == len(groups)
        for row in shown.rows:
            place = tuple(row["born_host" if key == "host" else key] for key in keys)
            there = groups.pop(place)
            check(row, there)
            seconds = Counter(record["store_ms"] // 1000 for record in there)
            assert row["peak_messages_per_s"] == max(seconds.values())
            assert row["seconds_with_messages"] == len(seconds)


def plain(raw: Any) -> Any:
    """Rows without an order, numbers as Spark and numpy round them."""
    if isinstance(raw, dict):
        return {name: plain(value) for name, value in raw.items()}
    if isinstance(raw, list | tuple):
        return sorted(map(plain, raw), key=repr)
    return float(f"{raw:.9g}") if isinstance(raw, int | float) else raw


def test_without_spark_it_tells_the_same(analysed: Analysed) -> None:
    records, result, _ = analysed
    local = analyse_tables(LocalTables(), merged_cells(records), result.stores, 3)
    for name, ours in asdict(local).items():
        theirs = getattr(result, name)
        if name != "written":
            assert plain(ours) == plain(asdict(theirs) if is_dataclass(theirs) else theirs), name


def test_each_second_of_each_producer_is_told(spark: Any, analysed: Analysed) -> None:
    records, _, output = analysed
    keys = ("store", "topic", "queue_id", "host", "second")
    groups = model.by([{**r, "second": r["store_ms"] // 1000} for r in records], *keys)
    for row in spark.read.parquet(str(output / "seconds")).collect():
        place = (row.store, row.topic, row.queue_id, row.born_host, row.unix_second)
        check(row, groups.pop(place))
    assert not groups
    assert [day.name for day in sorted((output / "seconds").glob("day=*"))] == ["day=2023-11-14"]


def test_figures_over_time_add_up(analysed: Analysed) -> None:
    records, result, _ = analysed
    assert result.step_seconds == 1
    for row in result.over_time:
        there = [r for r in records if r["store_ms"] // 1000 == row["start_s"]]
        assert (row["messages"], row["skewed_messages"]) == (
            len(there),
            model.figures(there)["skewed_messages"],
        )
    of_topics = model.by([{**r, "s": r["store_ms"] // 1000} for r in records], "topic", "s")
    reported = {(r["topic"], r["start_s"]): r["messages"] for r in result.topics_over_time}
    assert reported == {place: len(there) for place, there in of_topics.items()}


def test_percentiles_below_256_are_exact() -> None:
    records = [{**r, "born_ms": r["store_ms"] - n % 256} for n, r in enumerate(planted(8))]
    row = analyse_tables(LocalTables(), merged_cells(records), (), 3).totals
    wanted = model.figures(records)
    for name in ("latency_ms_p50", "latency_ms_p99", "latency_ms_p999", "latency_ms_avg"):
        assert row[name] == pytest.approx(wanted[name], rel=1e-12)


def test_gaps_stalls_and_steps_of_the_clock(analysed: Analysed) -> None:
    records, result, _ = analysed
    found: set[Any] = {
        (r["store"], r["topic"], r["queue_id"], r["first_missing"], r["last_missing"])
        for r in result.gaps.rows
    }
    assert found == model.gaps(records) and len(found) > 5
    missing = sum(last - first + 1 for *_, first, last in found)
    assert (result.totals["gaps"], result.totals["missing_offsets"]) == (len(found), missing)
    of_queues: list[Any] = [row["missing_offsets"] for row in result.queues.rows]
    assert sum(of_queues) == missing
    prepared: list[Any] = [row["records_without_queue_offset"] for row in result.queues.rows]
    assert sum(prepared) == sum(r["sys_flag"] == 4 for r in records)
    silent = {
        (r["level"], r["store"], r["topic"], r["queue_id"], r["silent_ms"])
        for r in result.stalls.rows
    }
    wanted = {(*place, until - begun) for *place, begun, until in model.stalls(records, 3)}
    assert silent == wanted and {level for level, *_ in wanted} == {"queue", "topic", "store"}
    everything = model.stalls(records, 0)
    for level in ("queue", "topic", "store"):
        silences_ms = [row["silent_ms"] for row in result.silences if row["level"] == level]
        silences = sorted((until - begun for at, *_, begun, until in everything if at == level))
        assert silences_ms == silences[:-6:-1], "however short"
    steps = {(r["store"], r["back_ms"]) for r in result.clock_steps.rows}
    assert steps == {(store, high - low) for store, high, low in model.back_steps(records)}
    assert len(steps) == 2


def test_duplicates_and_batches_are_told_apart_from_gaps() -> None:
    some = [
        {**r, "queue_offset": n, "topic": "T", "queue_id": 0, "sys_flag": 0}
        for n, r in enumerate(planted()[:200])
    ]
    again = [{**r, "log_offset": 1 << 30} for r in some[:7]]  # a topic that was created again
    batch = [
        {**r, "topic": "B", "queue_offset": r["queue_offset"] * 10, "sys_flag": 0xC0} for r in some
    ]
    cells = merged_cells([*some[:100], *some[101:], *again, *batch])
    found = analyse_tables(LocalTables(), cells, (), 3)
    queues = {row["topic"]: row for row in found.queues.rows}
    figures = queues["T"]
    assert (figures["missing_offsets"], figures["duplicate_offsets"]) == (1, 7)
    assert (figures["batch_records"], queues["B"]["batch_records"]) == (0, 200)
    assert queues["B"]["missing_offsets"] is None
    gaps = [(row["topic"], row["first_missing"], row["last_missing"]) for row in found.gaps.rows]
    assert gaps == [("T", 100, 100)]
