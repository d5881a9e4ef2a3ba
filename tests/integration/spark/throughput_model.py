"""Expected results of the throughput job, computed in plain Python over a list of records."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

NOW_MS = 1_700_000_000_000
CENTURY_MS = 100 * 366 * 86_400_000
Record = dict[str, Any]


def is_born(record: Record) -> bool:
    """Whether the producer gave a born time of this century."""
    return record["born_ms"] > 0 and abs(record["store_ms"] - record["born_ms"]) <= CENTURY_MS


def figures(records: Iterable[Record]) -> dict[str, Any]:
    """The figures of some records, percentiles by numpy over the values themselves."""
    records = list(records)
    late = [r["store_ms"] - r["born_ms"] for r in records if is_born(r)]
    found: dict[str, Any] = {
        "messages": len(records),
        "bytes": sum(r["size"] for r in records),
        "body_bytes": sum(r["body_size"] for r in records),
        "skewed_messages": sum(ms < 0 for ms in late),
        "skew_ms_max": max((-ms for ms in late if ms < 0), default=0),
        "unborn_messages": sum(not is_born(r) for r in records),
    }
    for name, values in (
        ("size", [r["size"] for r in records]),
        ("body", [r["body_size"] for r in records]),
        ("latency_ms", [ms for ms in late if ms >= 0]),
    ):
        keys = ("min", "avg", "max", "p50", "p99", "p999")
        statistics = [None] * 6
        if values:
            statistics = [
                min(values),
                sum(values) / len(values),
                max(values),
                *np.percentile(values, [50, 99, 99.9]),
            ]
        found |= {f"{name}_{key}": value for key, value in zip(keys, statistics, strict=True)}
    return found


def by(records: Iterable[Record], *keys: str) -> dict[tuple[Any, ...], list[Record]]:
    """Records by the values of keys."""
    groups = defaultdict(list)
    for record in records:
        groups[tuple(record[key] for key in keys)].append(record)
    return groups


def gaps(records: Iterable[Record]) -> set[tuple[Any, ...]]:
    """(store, topic, queue, first missing, last missing)."""
    found = set()
    for queue, there in by(records, "store", "topic", "queue_id").items():
        offsets = sorted({r["queue_offset"] for r in there if r["sys_flag"] & 12 not in (4, 12)})
        for one, other in itertools.pairwise(offsets):
            if other > one + 1:
                found.add((*queue, one + 1, other - 1))
    return found


def stalls(records: Iterable[Record], stall_s: int) -> set[tuple[Any, ...]]:
    """(level, store, topic, queue, last before, first after) in ms."""
    found = set()
    for level, keys in (
        ("queue", ("store", "topic", "queue_id")),
        ("topic", ("store", "topic")),
        ("store", ("store",)),
    ):
        for place, there in by(records, *keys).items():
            times = sorted(r["store_ms"] for r in there)
            for one, other in itertools.pairwise(times):
                if other // 1000 - one // 1000 - 1 >= stall_s:
                    found.add((level, *place, *[None] * (3 - len(place)), one, other))
    return found


def back_steps(records: Iterable[Record]) -> set[tuple[Any, ...]]:
    """(store, greatest time before, least time that came after it)."""
    found: dict[tuple[str, int], int] = {}
    for (store,), there in by(records, "store").items():
        highest = -1
        for record in sorted(there, key=lambda r: r["log_offset"]):
            now = record["store_ms"]
            if now < highest:
                found[store, highest] = min(now, found.get((store, highest), now))
            highest = max(highest, now)
    return {(*place, now) for place, now in found.items()}
