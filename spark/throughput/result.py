"""The result of the throughput job as plain data, for the terminal, JSON and the report.

Owns the result's shape and the bounds on the data that leaves Spark. It must never need Spark.

Rows are mappings from column to value, as in the Parquet tables of the same name, with points in
time as ISO 8601 text in UTC.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Row = Mapping[str, Any]
"""A row of a table: value by column."""

TIMES: Mapping[str, str] = {
    "first_ms": "first_time",
    "last_ms": "last_time",
    "from_ms": "from_time",
    "until_ms": "until_time",
    "seen_ms": "seen_time",
    "later_ms": "later_time",
    "earlier_ms": "earlier_time",
}
"""Names of the columns with points in time: in cells (ms) to in tables."""
ROWS_SHOWN = 100
"""Rows of a table that come to the driver for the report; the Parquet tables have all."""
STEPS_SHOWN = 400
"""Points of a line over time: a plot has no pixels for more."""
TOPICS_DRAWN = 8
"""Lines in the plot by topic; the other topics share one line."""
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200)
_DAY_S = 86400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Shown:
    """The first rows of a table (`rows`), most important first, and the number of all (`count`)."""

    rows: tuple[Row, ...] = ()
    count: int = 0

    @property
    def rows_left_out(self) -> int:
        """Number of rows that only the Parquet table has."""
        return self.count - len(self.rows)


@dataclass(frozen=True)
class ReplicaLag:
    """Comparison of a replica with its leader (throughput/replicas.py)."""

    leader: str
    """Path or URI of the leader's store."""
    replica: str
    """Path or URI of the replica's store."""
    leader_end: int
    """Log offset after the last whole record."""
    replica_end: int
    """Log offset after the last whole record."""
    common_end: int
    """Log offset up to which both have the same records."""
    differs: bool
    """Both have records after `common_end`, and these differ: one of the logs will be truncated."""
    leader_confirmed_end: int
    """Log offset after the last confirmed record."""
    replica_confirmed_end: int
    """Log offset after the last confirmed record."""
    bytes_behind: int
    """Bytes of the leader after `common_end`."""
    records_behind: int
    """Records of the leader after `common_end`."""
    waiting_ms: int
    """Minimum time that the first record which the replica lacks had been in the leader's log:
    from its store time to the leader's last store time. 0 if the replica lacks no record."""
    ends_apart_ms: int
    """Store time of the leader's last record less that of the last common record."""
    bytes_extra: int
    """Bytes of the replica after `common_end`."""
    records_extra: int
    """Records of the replica after `common_end`."""


@dataclass(frozen=True)
class CopyComparison:
    """A store compared with a copy of it in another group, by unique key."""

    copy: str
    """Path or URI of the copy."""
    totals: Row
    """Columns of replicas.copy_statistics for all topics, and counts of messages without a key."""
    topics: Shown
    """The topics with most missing messages first."""
    over_time: tuple[Row, ...]
    """Counts and delays by `start_s`, the unix second at which a step begins."""


@dataclass(frozen=True)
class Throughput:
    """Result of the throughput job; a row's columns are described in docs/FORMATS.md."""

    stores: tuple[str, ...]
    """Paths or URIs of the stores."""
    totals: Row
    """Figures over all stores, with counts of queues, topics, hosts and events."""
    by_store: Shown
    """Stores with most bytes first."""
    topics: Shown
    """Topics with most bytes first."""
    queues: Shown
    """The worst by latency p99."""
    hosts: Shown
    """Producer hosts with most messages first."""
    gaps: Shown
    """The largest gaps."""
    stalls: Shown
    """The longest stalls."""
    clock_steps: Shown
    """The largest steps."""
    stall_seconds: int
    """Whole seconds of silence that make a stall."""
    step_seconds: int
    """Width of a point in the series over time."""
    over_time: tuple[Row, ...]
    """Figures of all stores by `start_s`, the unix second at which a step begins."""
    topics_over_time: tuple[Row, ...]
    """Series of the TOPICS_DRAWN topics with most bytes."""
    histograms: tuple[Row, ...]
    """Columns: metric, bucket, messages."""
    silences: tuple[Row, ...] = ()
    """The longest silences of queues, topics and stores, including those too short for a stall."""
    replicas: tuple[ReplicaLag, ...] = ()
    """Comparisons of the first store with its replicas."""
    copies: CopyComparison | None = None
    written: tuple[str, ...] = field(default=())
    """Paths of the tables and the report."""

    def to_json(self) -> str:
        """Return the whole result as the text of a JSON object, by field name."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


def times_as_text(row: Row) -> Row:
    """Return a row with its points in time as text, under their names in the tables."""
    return {
        TIMES.get(name, name): format_iso(value)
        if name in TIMES and isinstance(value, int)
        else value
        for name, value in row.items()
    }


def format_iso(time_ms: int) -> str:
    """Return epoch ms as ISO 8601 text in UTC, with ms and "Z"; as "N ms" if the calendar lacks
    the time."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)  # exact, unlike a division
    except OverflowError:
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def step_seconds(first_ms: int, last_ms: int) -> int:
    """Return the least round width, in s, of steps that divide a span of store times into at most
    STEPS_SHOWN points."""
    span_s = last_ms // 1000 - first_ms // 1000 + 1
    least_s = -(-span_s // (STEPS_SHOWN - 1))  # the span need not begin at a multiple of the width
    for width_s in _STEPS_S:
        if width_s >= least_s:
            return width_s
    return -(-least_s // _DAY_S) * _DAY_S
