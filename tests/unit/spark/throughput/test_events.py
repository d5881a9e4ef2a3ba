"""The arithmetic of the throughput job over small tables, without Spark."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from turbopump.spark.schema import arrow_schema
from turbopump.spark.throughput import events
from turbopump.spark.throughput.analysis import PlaceFigures, analyse_cells
from turbopump.spark.throughput.batches import CELL, NEEDED, PREPARED, ROLLED_BACK, count_cells
from turbopump.spark.throughput.cells import QUEUE, Derivation
from turbopump.spark.throughput.local_tables import LocalTables, merge_cells
from turbopump.spark.throughput.result import Row, Throughput
from turbopump.spark.throughput.spark_tables import in_lists

BEGIN_MS = 1_700_000_000_000
YEAR = timedelta(days=365)


def moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=BEGIN_MS + ms)


def cells(*rows: Mapping[str, Any]) -> pa.Table:
    """Cells of records; defaults of a row: topic t, queue 0, stored at 0 ms, born at that time.

    Records are consecutive in the log, and each has the next queue offset of its queue.
    """
    offsets: dict[tuple[str, int], int] = {}
    whole = []
    for number, row in enumerate(rows):
        place = str(row.get("topic", "t")), int(row.get("queue_id", 0))
        offset = row.get("queue_offset", offsets.get(place, 0))
        offsets[place] = offset + 1
        stored_ms = row.get("ms", 0)
        born_ms = row.get("born_ms", stored_ms)
        whole.append(
            {
                "store": row.get("store", "s"),
                "topic": place[0],
                "queue_id": place[1],
                "queue_offset": offset,
                "log_offset": 1000 * number,
                "size": row.get("size", 100),
                "body_size": row.get("body_size", 10),
                "born_time": born_ms if isinstance(born_ms, datetime) else moment(born_ms),
                "store_time": moment(stored_ms),
                "born_host": row.get("host", "10.0.0.7:1"),
                "sys_flag": row.get("sys_flag", 0),
            }
        )
    batch = pa.RecordBatch.from_pylist(whole, arrow_schema(NEEDED))
    halves = batch.slice(0, len(whole) // 2), batch.slice(len(whole) // 2)
    return merge_cells(
        CELL.empty_table(), [part for half in halves for part in count_cells([half])]
    )


def at(*offsets: int) -> list[dict[str, int]]:
    return [{"queue_offset": offset} for offset in offsets]


def derived(table: pa.Table, derivation: Derivation, *metrics: str) -> list[Row]:
    """Rows that a derivation makes from the cells of some metrics."""
    tables = LocalTables()
    return list(
        tables.derive_table(tables.filter_rows(table, "metric", metrics), derivation).to_pylist()
    )


def gaps(table: pa.Table) -> list[Row]:
    return derived(table, events.GAPS, "offset", "batch")


def clock_steps(table: pa.Table) -> list[Row]:
    return derived(table, events.CLOCK_STEPS, "clock")


def level(table: pa.Table, keys: tuple[str, ...]) -> list[Row]:
    """Figures for each value of the keys, as the job's tables have them."""
    return list(PlaceFigures(LocalTables(), table).statistics_table(keys).to_pylist())


def analysed(table: pa.Table) -> Throughput:
    return analyse_cells(LocalTables(), table, ("s",), 3)


def ranges(table: pa.Table) -> list[tuple[int, int, int]]:
    rows = sorted(gaps(table), key=lambda row: row["first_missing"])
    return [(row["first_missing"], row["last_missing"], row["missing"]) for row in rows]


@pytest.mark.parametrize(
    ("offsets", "missing"),
    [
        ((0, 1, 2), []),
        ((5, 6), []),
        ((0, 1, 4), [(2, 3, 2)]),
        ((62, 63, 64, 66), [(65, 65, 1)]),
        ((0, 63, 64), [(1, 62, 62)]),
        ((10, 200), [(11, 199, 189)]),
        ((0, 64 * 3), [(1, 191, 191)]),
        ((63, 130, 0), [(1, 62, 62), (64, 129, 66)]),
        ((130, 1), [(2, 129, 128)]),
        ((0, 1, 1, 2), []),
    ],
)
def test_gaps_of_queue_offsets(
    offsets: tuple[int, ...], missing: list[tuple[int, int, int]]
) -> None:
    table = cells(*at(*offsets))
    assert ranges(table) == missing
    (queue,) = level(table, QUEUE)
    assert queue["missing_offsets"] == sum(count for *_, count in missing)
    assert (queue["queue_offset_min"], queue["queue_offset_max"]) == (min(offsets), max(offsets))
    assert queue["duplicate_offsets"] == len(offsets) - len(set(offsets))


def test_each_queue_has_gaps_of_its_own() -> None:
    rows = [*at(0, 2), *({"queue_id": 1, "queue_offset": offset} for offset in (1, 2))]
    table = cells(*rows, {"topic": "u", "queue_offset": 7})
    (gap,) = gaps(table)
    assert (gap["topic"], gap["queue_id"], gap["first_missing"]) == ("t", 0, 1)


def test_queues_with_batch_records_are_not_judged() -> None:
    table = cells(*at(0, 9), {"queue_offset": 20, "sys_flag": 0x80})
    assert ranges(table) == []
    (queue,) = level(table, QUEUE)
    assert (queue["missing_offsets"], queue["batch_records"]) == (None, 1)


@pytest.mark.parametrize("flag", [PREPARED, ROLLED_BACK])
def test_half_messages_have_no_queue_offset(flag: int) -> None:
    table = cells(*at(0, 1), {"queue_offset": 0, "sys_flag": flag})
    (queue,) = level(table, QUEUE)
    assert (queue["duplicate_offsets"], queue["records_without_queue_offset"]) == (0, 1)


def test_silences_of_each_level() -> None:
    table = cells(
        {"ms": 0},
        {"ms": 900},
        {"ms": 3_100, "queue_id": 1},
        {"ms": 5_000, "topic": "u"},
        {"ms": 7_999},
    )
    found: dict[str, list[tuple[int, int, int]]] = {}
    for row in PlaceFigures(LocalTables(), table).silences_table().to_pylist():
        times = row["from_ms"] - BEGIN_MS, row["until_ms"] - BEGIN_MS, row["silent_seconds"]
        found.setdefault(row["level"], []).append(times)
    assert found == {
        "queue": [(900, 7_999, 6)],
        "topic": [(900, 3_100, 2), (3_100, 7_999, 3)],
        "store": [(900, 3_100, 2), (3_100, 5_000, 1), (5_000, 7_999, 1)],
    }


def test_clock_steps_are_told_once_for_each_greatest_time() -> None:
    table = cells(*({"ms": ms} for ms in (0, 10, 4, 5, 10, 20, 19, 20, 30)))
    steps = sorted(clock_steps(table), key=lambda step: step["later_ms"])
    found = [
        (
            step["later_ms"] - BEGIN_MS,
            step["earlier_ms"] - BEGIN_MS,
            step["back_ms"],
            step["milliseconds"],
        )
        for step in steps
    ]
    assert found == [(10, 4, 6, 2), (20, 19, 1, 1)]
    assert [step["later_log_offset"] for step in steps] == [1_000, 5_000]
    assert [step["earlier_log_offset"] for step in steps] == [2_000, 6_000]
    (again,) = clock_steps(cells({"ms": 10}, {"ms": 20}, {"ms": 10}))
    assert (again["back_ms"], again["earlier_log_offset"]) == (10, 2_000)
    assert clock_steps(cells({"ms": 1}, {"ms": 1}, {"ms": 2})) == []


def test_latencies_of_clocks_that_disagree_are_never_averaged_in() -> None:
    table = cells(
        {"ms": 1_000, "born_ms": 990},
        {"ms": 1_000, "born_ms": 970},
        {"ms": 1_000, "born_ms": 1_250},
        {"ms": 1_000, "born_ms": datetime(1970, 1, 1, tzinfo=UTC)},
        {"ms": 1_000, "born_ms": moment(0) + 120 * YEAR},
        {"ms": 1_000, "born_ms": 1_000},
    )
    (row,) = level(table, ())
    assert (row["messages"], row["timed_messages"]) == (6, 3)
    assert (row["latency_ms_min"], row["latency_ms_max"]) == (0, 30)
    assert row["latency_ms_avg"] == pytest.approx(40 / 3)
    assert (row["skewed_messages"], row["skew_ms_max"], row["unborn_messages"]) == (1, 250, 2)


def test_sums_and_peaks_by_any_key() -> None:
    table = cells(
        {"size": 100, "body_size": 1, "host": "a:1"},
        {"size": 300, "body_size": 3, "host": "a:2", "ms": 999},
        {"size": 500, "body_size": 5, "host": "b:1", "ms": 1_000},
    )
    hosts = {row["born_host"]: row for row in level(table, ("born_host",))}
    assert {host: row["messages"] for host, row in hosts.items()} == {"a": 2, "b": 1}, "no ports"
    (total,) = level(table, ())
    assert (total["bytes"], total["body_bytes"], total["size_avg"]) == (900, 9, 300.0)
    assert (total["first_ms"] - BEGIN_MS, total["last_ms"] - BEGIN_MS) == (0, 1_000)
    assert (total["peak_messages_per_s"], total["peak_bytes_per_s"]) == (2, 500)
    assert total["seconds_with_messages"] == 2
    assert level(cells(), ("topic",)) == []


def test_lists_of_spark_have_all_rows_for_batches_of_any_size() -> None:
    table = cells(*({"ms": 700 * n, "topic": "tu"[n % 2], "queue_offset": n} for n in range(60)))
    judged = LocalTables().filter_rows(table, "metric", ("offset",)).sort_by("topic")
    for size in (1, 3, 1000):
        batches = [batch.columns for batch in judged.to_batches(max_chunksize=size)]
        lists = list(in_lists(events.GAPS, iter(batches)))
        assert [len(one) for one in lists] == [len(batch[0]) for batch in batches]
        rows = [row for one in lists for found in one.to_pylist() for row in found]
        assert rows == gaps(table) and len(rows) == 58


def test_rows_in_order_with_missing_values_last() -> None:
    rows: list[Row] = [{"a": 1, "b": None}, {"a": 2, "b": 1}, {"a": 1, "b": 5}]
    table, tables = pa.Table.from_pylist(rows), LocalTables()
    assert tables.first_rows(table, ("b desc", "a")) == (rows[2], rows[1], rows[0])
    assert tables.first_rows(table, ("a", "b"), 2) == (rows[2], rows[0])


def test_everything_about_a_store_with_one_of_each() -> None:
    table = cells(
        *({"ms": ms, "queue_offset": offset} for ms, offset in ((0, 0), (10, 1), (5, 1), (20, 4))),
        {"ms": 9_000, "topic": "u"},
    )
    found = analysed(table)
    totals = found.totals
    assert (totals["messages"], totals["queues"], totals["topics"], totals["hosts"]) == (5, 2, 2, 1)
    assert (totals["gaps"], totals["missing_offsets"], totals["duplicate_offsets"]) == (1, 2, 1)
    assert (totals["queue_stalls"], totals["topic_stalls"], totals["store_stalls"]) == (0, 0, 1)
    assert (totals["clock_steps"], totals["back_ms_max"]) == (1, 5)
    assert [row["topic"] for row in found.topics.rows] == ["t", "u"]
    assert [row["messages"] for row in found.over_time] == [4, 1]
    nothing = analysed(cells())
    assert (nothing.totals["messages"], nothing.totals["peak_messages_per_s"]) == (0, None)
