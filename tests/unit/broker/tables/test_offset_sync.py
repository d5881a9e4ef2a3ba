"""A replica adopts its master's offsets in steps: the size of a step, and changes between steps."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbopump.broker.tables import offset_sync, offsets
from turbopump.broker.tables.offsets import Offsets, OffsetTable
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.topics import DataVersion

OLD = DataVersion(counter=5, state_version=2, timestamp=8)
NEW = DataVersion(counter=6, state_version=2, timestamp=9)
NEXT_TERM = DataVersion(counter=1, state_version=3, timestamp=9)
PAIRS = 5_000
MOST = offset_sync.AT_ONCE // offset_sync.QUEUE
"""Offsets that one step changes."""

Said = dict[tuple[str, str], dict[int, QueueOffset]]


@pytest.fixture
def table(tmp_path: Path) -> OffsetTable:
    found = OffsetTable(ConfigFiles(RealFiles(), str(tmp_path)))
    found.versions.following = True
    return found


def master_offsets(version: DataVersion = NEW, **groups: int) -> Offsets:
    """Offsets that a master reports for queue 0 of T."""
    return Offsets(version, {("T", name): {0: QueueOffset(at)} for name, at in groups.items()})


def adopt(table: OffsetTable, theirs: Offsets, before: Offsets | None = None) -> None:
    for _ in table.adopt_offsets(theirs, before):
        pass


def begun(table: OffsetTable, theirs: Offsets, before: Offsets | None) -> Iterator[None]:
    """Begin a round, and adopt the first offset."""
    table.adopted_at_once = offset_sync.QUEUE
    steps = table.adopt_offsets(theirs, before)
    next(steps)
    return steps


def own(table: OffsetTable) -> set[tuple[str, str]]:
    return set(table._own)


@pytest.mark.parametrize("is_wide", [False, True], ids=["pairs", "queues"])
def test_a_step_takes_over_a_bounded_number(table: OffsetTable, is_wide: bool) -> None:
    """A table of 100,000 new offsets in a single step would block the loop for 100 ms."""
    pairs: Said = {("T", f"G{number}"): {0: QueueOffset(1)} for number in range(PAIRS)}
    if is_wide:
        pairs = {("T", "G"): dict.fromkeys(range(PAIRS), QueueOffset(1))}
    before = 0
    for theirs in (Offsets(OLD, pairs), Offsets(OLD, pairs, pairs)):
        for _ in table.adopt_offsets(theirs, None):
            assert table.queue_count - before <= MOST
            before = table.queue_count
        assert table.queue_count - before <= MOST
        before = table.queue_count
    assert before == 2 * PAIRS


def test_a_step_forgets_a_bounded_number(table: OffsetTable) -> None:
    pairs: Said = {("T", f"G{number}"): {0: QueueOffset(1)} for number in range(PAIRS)}
    adopt(table, Offsets(OLD, pairs))
    before = table.queue_count
    for _ in table.adopt_offsets(Offsets(NEW, {}), Offsets(OLD, pairs)):
        assert before - table.queue_count <= MOST
        before = table.queue_count
    assert before <= MOST and table.queue_count == 0


def test_a_step_looks_at_a_bounded_number(table: OffsetTable) -> None:
    """A step is bounded for unchanged offsets, and for offsets that only this broker has."""
    pairs: Said = {("T", f"G{number}"): {0: QueueOffset(1)} for number in range(PAIRS)}
    theirs = Offsets(OLD, pairs)
    adopt(table, theirs)
    table.adopted_at_once = 100
    assert len(list(table.adopt_offsets(theirs, theirs))) == 2 * PAIRS // 100
    assert len(list(table.adopt_offsets(theirs, None, all_adopted=True))) == 2 * PAIRS // 100
    table.adopted_at_once = offset_sync.AT_ONCE
    marked = 0
    for _ in table.adopt_offsets(Offsets(NEXT_TERM, {}), None):
        assert len(own(table)) - marked <= MOST
        marked = len(own(table))
    assert len(own(table)) == PAIRS


def test_a_commit_between_two_steps_stays(table: OffsetTable) -> None:
    """The master lowered both offsets, and reported the reset of `counted`."""
    before = master_offsets(OLD, first=5, counted=50, dropped=50, raised=50)
    adopt(table, before)
    theirs = master_offsets(first=6, counted=40, dropped=40, raised=60)
    theirs = Offsets(NEW, theirs.committed, lowered={("T", "counted"): {0: 7}})
    steps = begun(table, theirs, before)
    for group, at in {"counted": 70, "dropped": 71, "raised": 55}.items():
        table.commit(group, "T", 0, QueueOffset(at), 9)
    for _ in steps:
        pass
    for _ in range(2):
        groups = ("first", "counted", "dropped", "raised")
        assert [table.query(group, "T", 0) for group in groups] == [6, 70, 71, 55]
        assert own(table) == {("T", "counted"), ("T", "dropped"), ("T", "raised")}
        adopt(table, theirs, theirs)  # the next round does not apply the earlier reset again either
    later = master_offsets(first=6, counted=41, dropped=40, raised=61)
    adopt(table, Offsets(NEW, later.committed, lowered=theirs.lowered), theirs)
    assert table.query("raised", "T", 0) == 61
    assert table.query("counted", "T", 0) == 70, "that it was set back is known since"


@pytest.mark.parametrize("all_adopted", [False, True])
def test_a_commit_between_two_steps_is_not_forgotten(table: OffsetTable, all_adopted: bool) -> None:
    """The master has deleted the group, or never had it."""
    before = master_offsets(OLD, first=5, gone=50)
    adopt(table, before)
    table.adopted_at_once = offset_sync.QUEUE
    steps = table.adopt_offsets(
        master_offsets(first=6), None if all_adopted else before, all_adopted
    )
    next(steps)
    table.commit("gone", "T", 1, QueueOffset(7), 9)
    table.commit("new", "T", 0, QueueOffset(8), 9)
    for _ in steps:
        pass
    assert table.queues_of("gone", "T") == {1: 7}
    assert table.queues_of("new", "T") == {0: 8}
    assert own(table) == {("T", "gone"), ("T", "new")}


def test_a_round_that_ended_early_notes_no_commit(table: OffsetTable) -> None:
    steps = begun(table, master_offsets(a=1, b=2), None)
    assert table._adoption is not None
    newer = begun(table, master_offsets(a=1, b=2), None)
    noted = table._adoption
    steps.close()
    assert table._adoption is noted is not None, "that of the newer round"
    newer.close()
    assert table._adoption is None


def test_half_a_term_is_not_saved_as_whole(table: OffsetTable, tmp_path: Path) -> None:
    """Offsets from before the term that are not marked yet would count as this master's."""
    adopt(table, master_offsets(OLD, b=5, only_here=9))
    steps = begun(table, master_offsets(NEXT_TERM, a=1, b=2), None)
    assert table.query("a", "T", 0) == 1 and ("T", "only_here") not in own(table)
    assert table.data_version == OLD
    table.save()
    saved = json.loads((tmp_path / "consumerOffset.json").read_text())
    assert DataVersion.from_json(saved["dataVersion"]) == OLD
    for _ in steps:
        assert table.data_version == OLD
    assert table.data_version == NEXT_TERM
    assert own(table) == {("T", "only_here"), ("T", "b")}


def test_within_a_term_nothing_is_newer_than_the_version(table: OffsetTable) -> None:
    """A master that was killed and restarted with an older table has not lowered offsets."""
    adopt(table, master_offsets(OLD, a=5, b=5))
    steps = begun(table, master_offsets(a=7, b=7), master_offsets(OLD, a=5, b=5))
    assert table.query("a", "T", 0) == 7
    assert table.data_version == NEW
    steps.close()
    assert table.data_version == NEW


def test_changes_saved_between_two_steps_are_saved_again(
    table: OffsetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that began before the round does not label its offsets with the new version."""
    monkeypatch.setattr(offsets, "STEP", 1)
    adopt(table, master_offsets(OLD, a=1, b=2))
    saving = table.take_changes()
    assert saving is not None
    next(saving)
    steps = begun(table, master_offsets(a=3, b=4), None)
    *_, content = saving
    assert content is not None
    members = json.loads(b"".join(content()))
    assert DataVersion.from_json(members["dataVersion"]) == NEW
    assert members["offsetTable"]["T@a"] == {"0": 3}
    assert table.take_changes() is not None, "of the first step"
    assert table.take_changes() is None
    for _ in steps:
        pass
    assert table.take_changes() is not None, "of the others"
