"""What the throughput job found, as plain data: what is shown, printed as JSON and drawn.

Owns the result's shape and the bounds on what leaves Spark. It must never need Spark. Called by
throughput/job.py, which fills it, and report.py, which draws it.

Rows are mappings from column to value, as in the Parquet tables of the same name, with points in
time as ISO 8601 text in UTC.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta

Row = Mapping[str, object]

TIMES: Mapping[str, str] = {
    "first_ms": "first_time",
    "last_ms": "last_time",
    "from_ms": "from_time",
    "until_ms": "until_time",
    "seen_ms": "seen_time",
    "later_ms": "later_time",
    "earlier_ms": "earlier_time",
}
"""Points in time as cells have them, in ms, and the names of these columns in tables."""
ROWS_SHOWN = 100
"""Rows of a table that come to the driver: what a person reads; the Parquet tables have all."""
STEPS_SHOWN = 400
"""Points of a line over time: more than that is more than a plot has pixels for."""
TOPICS_DRAWN = 8
"""Lines in the plot by topic; the rest is one line."""
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200)
_DAY_S = 86400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Shown:
    """The first rows of a table in the order that matters, and how many there are."""

    rows: tuple[Row, ...] = ()
    count: int = 0

    @property
    def left_out(self) -> int:
        """Rows that are in the Parquet table only."""
        return self.count - len(self.rows)


@dataclass(frozen=True)
class ReplicaLag:
    """How far one store of a group is behind another one (throughput/replicas.py)."""

    leader: str
    replica: str
    leader_end: int
    """Log offset behind the last whole record."""
    replica_end: int
    common_end: int
    """Up to here both have the same records."""
    differs: bool
    """Both go on behind `common_end`, with different records: one of them will be truncated."""
    leader_confirmed_end: int
    replica_confirmed_end: int
    bytes_behind: int
    records_behind: int
    waiting_ms: int
    """How long the first record that the replica lacks had been in the leader's log, at least: from
    its store time to the last store time there. 0: it lacks none."""
    ends_apart_ms: int
    """Store time of the leader's last record less that of the last record both have."""
    bytes_extra: int
    """What the replica has behind `common_end`."""
    records_extra: int


@dataclass(frozen=True)
class CopyComparison:
    """A store compared with a copy of it in another group, by unique key."""

    copy: str
    totals: Row
    topics: Shown
    over_time: tuple[Row, ...]


@dataclass(frozen=True)
class Throughput:
    """What run() returns."""

    stores: tuple[str, ...]
    totals: Row
    by_store: Shown
    topics: Shown
    """By bytes."""
    queues: Shown
    """The worst by latency p99."""
    hosts: Shown
    """By messages."""
    gaps: Shown
    """The largest ones."""
    stalls: Shown
    """The longest ones."""
    clock_steps: Shown
    """The largest ones."""
    stall_seconds: int
    step_seconds: int
    """The width of a point of what is over time."""
    over_time: tuple[Row, ...]
    topics_over_time: tuple[Row, ...]
    """The TOPICS_DRAWN topics with most bytes."""
    histograms: tuple[Row, ...]
    """metric, bucket, messages."""
    silences: tuple[Row, ...] = ()
    """The longest ones of queues, topics and stores, also those that are too short for a stall."""
    replicas: tuple[ReplicaLag, ...] = ()
    copies: CopyComparison | None = None
    written: tuple[str, ...] = field(default=())
    """The tables and the report, where they were written."""

    def to_json(self) -> str:
        """Everything, as one JSON object."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


def readable(row: Row) -> Row:
    """A row with its points in time as text, under the names that they have in the tables."""
    return {
        TIMES.get(name, name): iso(value) if name in TIMES and isinstance(value, int) else value
        for name, value in row.items()
    }


def iso(time_ms: int) -> str:
    """A point in time as text; the number itself if the calendar does not have it."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)  # exact, which a division is not
    except OverflowError:
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def step_seconds(first_ms: int, last_ms: int) -> int:
    """The width that cuts a span into at most STEPS_SHOWN points."""
    span_s = last_ms // 1000 - first_ms // 1000 + 1
    least_s = -(-span_s // (STEPS_SHOWN - 1))  # the span need not begin where a step begins
    for width_s in _STEPS_S:
        if width_s >= least_s:
            return width_s
    return -(-least_s // _DAY_S) * _DAY_S
