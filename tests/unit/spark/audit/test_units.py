"""A record and its queue unit: the fields that must agree, and the cases without a verdict."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.spark.audit.stores import reported_places

from turbopump.engine.queues.queue_files import FOLDER
from turbopump.engine.types import SCHEDULE_TOPIC
from turbopump.pyx import record as kernel
from turbopump.pyx.index import java_hash
from turbopump.pyx.queue import UNIT_SIZE, put_unit
from turbopump.pyx.region import Region
from turbopump.spark.audit.queue_files import (
    MAPPED_MAX,
    EndTask,
    QueueFiles,
    Unit,
    check_ends,
)
from turbopump.spark.audit.units import NotCompared, UnitCheck
from turbopump.spark.audit.verdicts import Tally

BASE, AT, SIZE = 1000, 64, 200
LOG_OFFSET = BASE + AT
EXTENSION = -(1 << 31) - 5


class Queues:
    """Queues that return a given unit."""

    def __init__(self, unit: Unit | None, reaches: bool = True, code: int | None = 0) -> None:
        self._unit, self._reaches, self._code = unit, reaches, code

    def read_unit(self, *_place: Any) -> Unit | None:
        return self._unit

    def begins_before(self, *_place: Any) -> bool:
        return self._reaches

    def queue_folder(self, topic: str, queue_id: int) -> str:
        return f"/cq/{topic}/{queue_id}"

    def tags_code(self, _topic: str, _queue_id: int, unit: Unit) -> int | None:
        return self._code if unit.tags_code == EXTENSION else unit.tags_code


def unit(log_offset: int = LOG_OFFSET, size: int = SIZE, code: int = 0) -> Unit:
    return Unit(log_offset, size, code, "/cq/T/2/0", 140)


def checked(
    queues: Queues, properties: bytes = b"", topic: str = "T", **more: Any
) -> tuple[Tally, NotCompared]:
    """The check's result for a record at log offset 1064 with that unit."""
    row = [0] * 40
    text = b"...." + properties
    row[kernel.QUEUE_ID], row[kernel.QUEUE_OFFSET] = 2, 7
    row[kernel.POSITION], row[kernel.SIZE], row[kernel.STORE_TIMESTAMP_MS] = AT, SIZE, 5_000
    row[kernel.PROPERTIES_AT], row[kernel.PROPERTIES_SIZE] = 4, len(properties)
    fields: dict[str, Any] = {"confirm": None, "is_stopped": True, **more}
    region, places = Region(bytearray(text)), Tally("queue-offsets")
    check = UnitCheck("a", BASE, region=region, queues=queues, places=places, **fields)  # type: ignore[arg-type]
    check.compare_record(row, topic)
    return places, check.not_compared


def test_a_unit_that_is_its_records() -> None:
    places, not_compared = checked(Queues(unit()))
    assert reported_places(places) == [] and places.counts == {"queue units compared": 1}
    assert not_compared == NotCompared()


@pytest.mark.parametrize("other", [unit(LOG_OFFSET + 1), unit(size=SIZE - 1)])
def test_a_unit_of_another_place(other: Unit) -> None:
    places, _ = checked(Queues(other))
    (finding,) = places.findings
    assert finding.what == (
        f"its consume queue unit points to {other.log_offset}, size {other.size}"
    )
    assert (finding.file, finding.position, finding.log_offset) == ("/cq/T/2/0", 140, LOG_OFFSET)
    assert (finding.topic, finding.queue_id, finding.queue_offset) == ("T", 2, 7)


@pytest.mark.parametrize("missing", [None, unit(0, 0)])
def test_a_missing_unit(missing: Unit | None) -> None:
    places, _ = checked(Queues(missing))
    assert reported_places(places) == ["a: the consume queue has no unit of it"]
    assert places.findings[0].file == ("/cq/T/2/0" if missing else "/cq/T/2")
    places, not_compared = checked(Queues(missing), confirm=LOG_OFFSET + SIZE - 1)
    assert reported_places(places) == [] and not_compared == NotCompared(), (
        "it is not dispatched yet"
    )
    places, _ = checked(Queues(missing), confirm=LOG_OFFSET + SIZE)
    assert reported_places(places)
    places, not_compared = checked(Queues(missing), is_stopped=False)
    assert reported_places(places) == [] and not_compared.unmade == 1, "its next start makes it"


def test_a_queue_that_does_not_reach_back_is_no_violation() -> None:
    places, not_compared = checked(Queues(None, reaches=False))
    assert reported_places(places) == [] and places.counts == {}
    assert not_compared.absent == {("T", 2): 1}


def test_tags() -> None:
    red = b"TAGS\x01red\x02"
    assert reported_places(checked(Queues(unit(code=java_hash(b"red"))), red)[0]) == []
    assert reported_places(checked(Queues(unit()), red)[0]) == [
        f"a: its consume queue unit has tags code 0, its tags 'red' have {java_hash(b'red')}"
    ]
    assert reported_places(checked(Queues(unit(code=5)), b"KEYS\x01k\x02")[0]) == [
        "a: its consume queue unit has tags code 5, its tags '' have 0"
    ]
    assert reported_places(checked(Queues(unit()), b"KEYS\x01TAGS\x02")[0]) == [], (
        "a key of that name"
    )
    long = b"TAGS\x01" + b"\xff" * 500 + b"\x02"
    (text,) = reported_places(checked(Queues(unit()), long)[0])
    assert text.count("�") == 64, "a name that a store has is shown in part"


def test_tags_in_an_extension() -> None:
    red = b"TAGS\x01red\x02"
    there = Queues(unit(code=EXTENSION), code=java_hash(b"red"))
    assert reported_places(checked(there, red)[0]) == []
    assert reported_places(checked(Queues(unit(code=EXTENSION), code=4), red)[0])
    assert reported_places(checked(Queues(unit(code=EXTENSION), code=None), red)[0]) == [
        f"a: its consume queue unit names an extension, {EXTENSION}, that is not there"
    ]


@pytest.mark.parametrize(("code", "is_wrong"), [(5_000, False), (9_999, False), (4_999, True)])
def test_a_delayed_message_has_its_time_for_tags(code: int, is_wrong: bool) -> None:
    delayed = b"DELAY\x013\x02TAGS\x01red\x02"
    places, _ = checked(Queues(unit(code=code)), delayed, SCHEDULE_TOPIC)
    text = f"a: its consume queue unit delivers it at {code}, before it was stored"
    assert reported_places(places) == ([text] if is_wrong else [])
    assert reported_places(checked(Queues(unit(code=code)), delayed)[0]), "of that topic alone"


def test_uncompared_bytes_are_reported_with_their_number() -> None:
    total = NotCompared(unmade=2, batches=1)
    for queue_id, count in ((1, 3), (2, 1_500)):
        other = NotCompared()
        other.absent["T", queue_id] = count
        total.merge(other)
    total.merge(NotCompared(unmade=3))
    places = Tally("queue-offsets")
    total.record_reasons("a", places)
    found = reported_places(places)
    assert any(
        text.startswith("a: 1,503 records of 2 queues lie before") and "T queue 2: 1,500" in text
        for text in found
    )
    assert any(text.startswith("a: 5 records have no consume queue unit") for text in found)
    assert any(text.startswith("a: 1 inner batches") for text in found)
    assert places.counts == {"records without a queue unit": 1_508}
    nothing = Tally("queue-offsets")
    NotCompared().record_reasons("a", nothing)
    assert reported_places(nothing) == [] and nothing.counts == {}


# Files


def write(root: Path, topic: str, queue_id: int, base: int, *units: tuple[int, int, int]) -> None:
    """Write a queue file that begins at unit `base`; (0, 0, 0) leaves a hole."""
    folder = root / FOLDER / topic / str(queue_id)
    folder.mkdir(parents=True, exist_ok=True)
    data = bytearray(len(units) * UNIT_SIZE)
    for number, (log_offset, size, code) in enumerate(units):
        if size:
            put_unit(Region(data), number * UNIT_SIZE, log_offset, size, code)
    (folder / f"{base * UNIT_SIZE:020d}").write_bytes(data)


def test_units_lie_in_their_files(tmp_path: Path) -> None:
    write(tmp_path, "T", 0, 10, (100, 5, 1), (200, 6, 2))
    write(tmp_path, "T", 0, 12, (300, 7, 3), (0, 0, 0))
    with QueueFiles(str(tmp_path)) as queues:
        found = [queues.read_unit("T", 0, number) for number in range(9, 15)]
        assert [None if one is None else one[:3] for one in found] == [
            *(None, (100, 5, 1), (200, 6, 2), (300, 7, 3), (0, 0, 0), None)
        ]
        assert found[3] is not None and found[3].position == 0
        assert [queues.begins_before("T", 0, number) for number in (9, 10, 99)] == [
            False,
            True,
            True,
        ]
        assert queues.read_unit("T", 1, 10) is None and not queues.begins_before("T", 1, 10)
        for topic in ("../T", "T\0", "a/b"):
            assert queues.read_unit(topic, 0, 10) is None, (
                "a topic of a damaged record leads nowhere"
            )


def test_mappings_are_bounded(tmp_path: Path) -> None:
    for queue_id in range(MAPPED_MAX + 5):
        write(tmp_path, "T", queue_id, 0, (100 + queue_id, 5, 1))
    with QueueFiles(str(tmp_path)) as queues:
        for queue_id in range(MAPPED_MAX + 5):
            found = queues.read_unit("T", queue_id, 0)
            assert found is not None and found.log_offset == 100 + queue_id
        assert len(queues._mapped) == MAPPED_MAX
        assert len(queues.all_queues()) == MAPPED_MAX + 5
    assert not queues._mapped


def test_folders_that_are_no_queues(tmp_path: Path) -> None:
    write(tmp_path, "T", 3, 0, (100, 5, 1))
    for name in ("x", "-1", "٣"):
        (tmp_path / FOLDER / "T" / name).mkdir()
    with QueueFiles(str(tmp_path)) as queues:
        assert queues.all_queues() == [("T", 3)]
    with QueueFiles(str(tmp_path / "none")) as queues:
        assert queues.all_queues() == []


def test_the_first_unit_of_a_queue(tmp_path: Path) -> None:
    write(tmp_path, "T", 0, 5, (0, 0, 0), (700, 5, 1))
    write(tmp_path, "T", 1, 5, (0, 0, 0))
    with QueueFiles(str(tmp_path)) as queues:
        found = queues.first_unit("T", 0)
        assert found is not None and (found.log_offset, found.position) == (700, UNIT_SIZE)
        assert queues.first_unit("T", 1) is None and queues.first_unit("T", 2) is None


@pytest.mark.parametrize(
    ("ends", "log_min", "is_stopped", "wrong"),
    [
        ({("T", 0): 2}, 0, True, []),
        ({("T", 0): 1}, 0, True, [(200, 1)]),
        ({("T", 0): 1}, 201, True, []),
        ({}, 0, True, [(100, None)]),
        ({("T", 0): 1}, 0, False, None),
    ],
)
def test_a_queue_has_nothing_behind_its_last_message(
    tmp_path: Path, ends: Any, log_min: int, is_stopped: bool, wrong: Any
) -> None:
    write(tmp_path, "T", 0, 0, (100, 5, 1), (200, 6, 2))
    places = check_ends(EndTask("a", str(tmp_path), log_min, is_stopped, ends))
    if wrong is None:
        (text,) = reported_places(places)
        assert text.endswith("it was not stopped in order, and may be open")
    else:
        assert [(one.log_offset, one.queue_offset) for one in places.findings] == wrong
