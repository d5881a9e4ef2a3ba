"""The table of last assignments: bounded, newest entries kept, malformed files refused."""

import json
from typing import Any

import pytest
from tests.unit.broker.conftest import World

from turbopump.broker.tables import assignment_store
from turbopump.broker.tables.assignment_store import StoredAssignment, read_assignments
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.queues import MessageQueue


def share(group: str, generation: int = 1, count: int = 2) -> StoredAssignment:
    queues = [MessageQueue("T", "broker-a", number) for number in range(count)]
    return StoredAssignment(
        group, "T", "STICKY", generation, generation, {"c\U0001f600": queues, "d": []}
    )


def test_rows_survive_a_restart_and_the_newer_counts(world: World) -> None:
    kept = world.broker.assignments.kept
    kept.put(share("G", 3))
    kept.put(share("H"))
    kept.adopt_rows({one.name: one for one in (share("G", 2, count=9), share("H", 4, count=3))})
    world.close()
    world.open()
    kept = world.broker.assignments.kept
    assert kept.get("G", "T") == share("G", 3)
    assert kept.get("H", "T") == share("H", 4, count=3)


def test_the_oldest_go_where_it_is_full(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment_store, "MAX_SIZE", 5 * len(share("G0").row()))
    monkeypatch.setattr(assignment_store, "MAX_ROW", 1_000)
    kept = world.broker.assignments.kept
    for number in range(9):
        kept.put(share(f"G{number}"))
    kept.put(share("G5", 2))
    kept.put(share("G9", count=1_000))  # too large for a row
    for _ in range(2):
        found = [number for number in range(10) if kept.get(f"G{number}", "T")]
        assert found == [4, 5, 6, 7, 8]
        world.close()
        world.open()
        kept = world.broker.assignments.kept


@pytest.mark.parametrize(
    "row",
    [
        7,
        {"owners": 7},
        {"owners": {"c": 7}},
        {"owners": {"c": {"b": [7]}}},
        {"owners": {"c": {"b": "x"}}},
        {"owners": {"c": {"b": "-1"}}},
        {"owners": {"c": {"b": "1," * 70_000}}},
        {"owners": {"c" * 256: {}}},
        {"owners": {"c": {"b" * 256: "1"}}},
        {"generation": -1},
        {"generation": 2**63},
        {"strategy": "x" * 256},
    ],
)
def test_a_row_that_cannot_be_is_refused(row: Any) -> None:
    with pytest.raises(BadBody):
        read_assignments({"assignments": {"T@G": row}})


@pytest.mark.parametrize("name", ["", "T", "@G", "T@", "T" * 256 + "@G"])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(BadBody):
        read_assignments(json.loads(json.dumps({"assignments": {name: {}}})))
