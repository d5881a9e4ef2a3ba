"""Computes the throughput result of stores in this process.

Owns how the parts become a `Throughput`, as throughput/job.py does with Spark. It must never write
any file; the caller writes the report.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from turbopump.spark.selection import RowSelection
from turbopump.spark.throughput.cells import MEASURED
from turbopump.spark.throughput.events import LEVELS, QUEUE, SILENCES_SHOWN
from turbopump.spark.throughput.local import events
from turbopump.spark.throughput.local.cells import added, cells_of, of_metrics
from turbopump.spark.throughput.local.statistics import Row, in_order, level, traffic_statistics
from turbopump.spark.throughput.result import (
    ROWS_SHOWN,
    TOPICS_DRAWN,
    Shown,
    Throughput,
    readable,
    step_seconds,
)


def analyse(selection: RowSelection, stall_s: int, *, with_ports: bool = False) -> Throughput:
    """Read the stores once and return all results. Raises JobError, StoreError."""
    return throughput_of(cells_of(selection, with_ports=with_ports), selection.stores, stall_s)


def throughput_of(cells: pa.Table, stores: tuple[str, ...], stall_s: int) -> Throughput:
    """Compute all results from cells."""
    offsets = events.queues(cells)
    queues = [row | offsets[_queue(row)] for row in level(cells, QUEUE)]
    hosts = level(cells, ("store", "born_host"))
    gaps, steps = list(events.gaps(cells)), list(events.clock_steps(cells))
    silent = {name: list(events.silences(cells, name)) for name in LEVELS}
    stalls = [row for rows in silent.values() for row in rows if row["silent_seconds"] >= stall_s]
    longest = [
        row
        for name in sorted(silent)
        for row in in_order(silent[name], "silent_ms desc", *QUEUE, "from_ms")[:SILENCES_SHOWN]
    ]
    totals = _totals(level(cells, ())[0], queues, hosts, gaps, stalls, steps)
    step_s = step_seconds(totals["first_ms"] or 0, totals["last_ms"] or 0)
    topics = level(cells, ("store", "topic"))
    stepped = _in_steps(of_metrics(cells, *MEASURED), step_s)
    histograms = added(of_metrics(cells, *MEASURED), ("metric", "bucket"))
    return Throughput(
        stores=stores,
        totals=readable(totals),
        by_store=_shown(level(cells, ("store",)), "bytes desc", "store"),
        topics=_shown(topics, "bytes desc", "store", "topic"),
        queues=_shown(queues, "latency_ms_p99 desc", "bytes desc", *QUEUE),
        hosts=_shown(hosts, "messages desc", "store", "born_host"),
        gaps=_shown(gaps, "missing desc", *QUEUE, "first_missing"),
        stalls=_shown(stalls, "silent_ms desc", "level", *QUEUE),
        clock_steps=_shown(steps, "back_ms desc", "store"),
        stall_seconds=stall_s,
        step_seconds=step_s,
        over_time=_over_time(stepped),
        topics_over_time=_topics_over_time(stepped, topics),
        histograms=tuple(
            {name: row[name] for name in ("metric", "bucket", "messages")}
            for row in in_order(histograms, "metric", "bucket")
        ),
        silences=tuple(readable(row) for row in longest),
    )


def _queue(row: Row) -> tuple[Any, ...]:
    return tuple(row[key] for key in QUEUE)


def _totals(
    everything: Row,
    queues: list[Row],
    hosts: list[Row],
    gaps: list[Row],
    stalls: list[Row],
    steps: list[Row],
) -> Row:
    sums = ("duplicate_offsets", "records_without_queue_offset", "batch_records")
    return everything | {
        "queues": len(queues),
        "topics": len({row["topic"] for row in queues}),
        **{name: sum(row[name] for row in queues) for name in sums},
        "hosts": len({row["born_host"] for row in hosts}),
        "gaps": len(gaps),
        "missing_offsets": sum(row["missing"] for row in gaps),
        **{f"{name}_stalls": sum(row["level"] == name for row in stalls) for name in LEVELS},
        "clock_steps": len(steps),
        "back_ms_max": max((row["back_ms"] for row in steps), default=0),
    }


def _shown(rows: Iterable[Row], *order: str) -> Shown:
    found = in_order(rows, *order)
    return Shown(tuple(readable(row) for row in found[:ROWS_SHOWN]), len(found))


def _in_steps(cells: pa.Table, step_s: int) -> pa.Table:
    """Add `start_s`, the second at which a cell's step begins."""
    seconds = cells["second"].combine_chunks().to_numpy(zero_copy_only=False).astype("int64")
    return cells.append_column("start_s", pa.array(seconds - seconds % step_s))


def _over_time(stepped: pa.Table) -> tuple[Row, ...]:
    names = (
        "start_s",
        "messages",
        "bytes",
        "body_bytes",
        "timed_messages",
        "latency_ms_p50",
        "latency_ms_p99",
        "latency_ms_p999",
        "latency_ms_max",
        "skewed_messages",
    )
    rows = in_order(traffic_statistics(stepped, ("start_s",)), "start_s")
    return tuple({name: row[name] for name in names} for row in rows)


def _topics_over_time(stepped: pa.Table, topics: list[Row]) -> tuple[Row, ...]:
    size: dict[str, int] = {}
    for row in topics:
        size[row["topic"]] = size.get(row["topic"], 0) + row["bytes"]
    largest = sorted(size, key=lambda name: (-size[name], name))[:TOPICS_DRAWN]
    drawn = of_metrics(stepped, "size")
    drawn = drawn.filter(pc.is_in(drawn["topic"], pa.array(largest, pa.string())))
    rows = in_order(added(drawn, ("topic", "start_s")), "topic", "start_s")
    return tuple(
        {
            "topic": row["topic"],
            "start_s": row["start_s"],
            "messages": row["messages"],
            "bytes": row["total"],
        }
        for row in rows
    )
