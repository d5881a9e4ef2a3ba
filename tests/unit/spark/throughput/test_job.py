"""The throughput job releases the tables that it keeps in memory, also when a query fails."""

from typing import Any, cast

import pytest

from turbopump.spark.selection import RowSelection
from turbopump.spark.throughput import job, replicas


class KeptFrame:
    """Stands for a frame of Spark that counts itself while it is kept in memory."""

    kept = 0

    def persist(self) -> "KeptFrame":
        KeptFrame.kept += 1
        return self

    def unpersist(self) -> None:
        KeptFrame.kept -= 1


def failing_query(*_given: Any) -> Any:
    """Fail as a query of Spark does; two tables are in memory then."""
    assert KeptFrame.kept == 2
    raise RuntimeError("a worker died")


def test_comparison_with_a_copy_releases_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = cast(Any, KeptFrame())
    monkeypatch.setattr(replicas, "join_replicas", lambda _origin, _copy: frame)
    monkeypatch.setattr(replicas, "copy_cells", lambda _pairs: frame)
    monkeypatch.setattr(replicas, "missing_inside", failing_query)
    options = job.ThroughputOptions(RowSelection(("/origin",)), copy="/copy")
    with pytest.raises(RuntimeError, match="a worker died"):
        job._compare_copy(frame, frame, frame, options)
    assert KeptFrame.kept == 0


def test_comparison_with_a_replica_releases_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = cast(Any, KeptFrame())
    monkeypatch.setattr(replicas, "_record_columns", lambda _table: frame)
    monkeypatch.setattr(replicas, "_digest_blocks", lambda _records: frame)
    monkeypatch.setattr(replicas, "_find_ends", failing_query)
    with pytest.raises(RuntimeError, match="a worker died"):
        replicas.compare_replica(frame, frame, ("/leader", "/replica"))
    assert KeptFrame.kept == 0
