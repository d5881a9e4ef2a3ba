"""A stream's position in a log, judged against real logs that were really cut."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.shortcuts.log_cuts import truncate_log
from tests.spark_stores import NOW_MS, fill, opened, records

from turbopump.engine.replicated import Replicated
from turbopump.engine.snapshot.log_table import LogTable
from turbopump.engine.store import Store
from turbopump.spark.arrow import open_table
from turbopump.spark.source.positions import (
    BadPosition,
    Fate,
    StreamPosition,
    compare_with_log,
    decode_position,
    position_at,
)

Write = Callable[[Store, Replicated], None]


def written(root: Path, *steps: Write) -> LogTable:
    """The table of a replicated store after some steps."""
    with opened(root) as store:
        replicated = store.as_replicated(NOW_MS)
        for step in steps:
            step(store, replicated)
    return open_table(str(root))


def master(epoch: int) -> Write:
    return lambda _store, replicated: replicated.to_master(epoch, NOW_MS) and None


def messages(count: int, seed: int = 1) -> Write:
    return lambda store, _replicated: fill(store, count, seed)


def confirm(_store: Store, replicated: Replicated) -> None:
    replicated.confirm_to(replicated.end, NOW_MS)


def cut_at(log_offset: int) -> Write:
    def run(_store: Store, replicated: Replicated) -> None:
        replicated.to_replica(NOW_MS)
        truncate_log(replicated, log_offset, NOW_MS)  # type: ignore[arg-type]

    return run


def starts(root: Path) -> list[int]:
    return [record.log_offset for record in records(root)]


def test_a_log_that_only_grew_is_the_same(tmp_path: Path) -> None:
    before = written(tmp_path, master(3), messages(30), confirm)
    position = position_at(before, before.end)
    assert (position.epoch, position.entries) == (3, ((3, 0),))
    after = written(tmp_path, master(5), messages(30, 2), confirm)
    assert compare_with_log(after, position).fate is Fate.SAME
    grown = position_at(after, after.end)
    assert grown.entries == ((3, 0), (5, before.end))
    assert position_at(after, before.end) == position, "the new epoch wrote nothing before it"


def test_a_cut_is_seen_while_the_log_is_shorter(tmp_path: Path) -> None:
    before = written(tmp_path, master(3), messages(30), confirm)
    position = position_at(before, before.end)
    at = starts(tmp_path)[20]
    verdict = compare_with_log(written(tmp_path, cut_at(at)), position)
    assert (verdict.fate, verdict.resume) == (Fate.CUT, at)
    assert f"read up to {before.end} of epoch 3" in verdict.reason
    assert f"ends at {at} now" in verdict.reason


def test_a_cut_is_seen_when_others_wrote_on(tmp_path: Path) -> None:
    before = written(tmp_path, master(3), messages(30), confirm)
    position = position_at(before, before.end)
    at = starts(tmp_path)[20]
    after = written(tmp_path, cut_at(at), master(4), messages(60, 2), confirm)
    assert after.end > before.end
    verdict = compare_with_log(after, position)
    assert (verdict.fate, verdict.resume) == (Fate.CUT, at)
    assert f"read up to {before.end} of epoch 3" in verdict.reason
    assert f"epoch 4 there now; the two part at {at}" in verdict.reason
    assert compare_with_log(after, position_at(before, at)).fate is Fate.SAME, (
        "who was not further is fine"
    )


def test_where_two_histories_part_is_found_across_epochs(tmp_path: Path) -> None:
    """The last epoch that was read, and the epoch before it, were both cut."""
    first = written(tmp_path, master(1), messages(20), confirm)
    second = written(tmp_path, master(3), messages(20, 2), confirm)
    position = position_at(second, second.end)
    at = starts(tmp_path)[10]
    assert at < first.end
    after = written(tmp_path, cut_at(at), master(2), messages(90, 3), master(4), messages(5, 4))
    verdict = compare_with_log(after, position)
    assert (verdict.fate, verdict.resume) == (Fate.CUT, at)
    bare = StreamPosition(position.log_offset, position.epoch)
    assert compare_with_log(after, bare).fate is Fate.CUT


def test_a_short_form_knows_its_epoch(tmp_path: Path) -> None:
    before = written(tmp_path, master(3), messages(30), confirm)
    position = decode_position([3, before.end])
    assert compare_with_log(before, position).fate is Fate.SAME
    at = starts(tmp_path)[20]
    after = written(tmp_path, cut_at(at), master(4), messages(60, 2), confirm)
    verdict = compare_with_log(after, position)
    assert (verdict.fate, verdict.resume) == (Fate.CUT, at)


def test_a_lost_epoch_list_is_no_proof(tmp_path: Path) -> None:
    before = written(tmp_path, master(3), messages(30), confirm)
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        (tmp_path / name).unlink()
    assert (
        compare_with_log(open_table(str(tmp_path)), position_at(before, before.end)).fate
        is Fate.CUT
    )


def test_a_store_without_epochs_is_judged_by_its_records(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 40)
    before = open_table(str(tmp_path))
    position = position_at(before, before.end)
    assert position == StreamPosition(before.end)
    inside = position_at(before, starts(tmp_path)[30])
    with opened(tmp_path) as store:
        fill(store, 10, 2)
    after = open_table(str(tmp_path))
    assert (
        compare_with_log(after, position).fate is compare_with_log(after, inside).fate is Fate.SAME
    )
    assert compare_with_log(after, StreamPosition(inside.log_offset + 4)).fate is Fate.CUT  # type: ignore[arg-type]
    with opened(tmp_path) as store:
        store.truncate(inside.log_offset, NOW_MS)
    verdict = compare_with_log(open_table(str(tmp_path)), position)
    assert (verdict.fate, verdict.resume) == (Fate.CUT, inside.log_offset)


def test_the_end_of_a_full_file_is_a_place(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 100)
    table = open_table(str(tmp_path))
    ends = [record.log_offset + record.size for record in records(tmp_path)]
    rolled = [end for end in ends if end not in starts(tmp_path)][:-1]
    assert len(rolled) > 1, "ends of records with a filler after them"
    for end in rolled:
        assert compare_with_log(table, position_at(table, end)).fate is Fate.SAME


def test_messages_removed_by_retention_are_distinguished(tmp_path: Path) -> None:
    table = written(tmp_path, master(3), messages(60), confirm)
    position = position_at(table, starts(tmp_path)[3])
    first = min((tmp_path / "commitlog").iterdir())
    first.unlink()
    verdict = compare_with_log(open_table(str(tmp_path)), position)
    assert (verdict.fate, verdict.resume) == (Fate.EXPIRED, 16 * 1024)
    assert f"read up to {position.log_offset} of epoch 3, but begins at 16384" in verdict.reason


def test_a_position_survives_json(tmp_path: Path) -> None:
    table = written(tmp_path, master(1), messages(5), master(7), messages(5, 2), confirm)
    for position in (position_at(table, table.end), position_at(table, 0)):
        assert decode_position(json.loads(json.dumps(position.encode()))) == position
    assert position_at(table, table.end).encode()[:2] == [7, table.end]
    assert position_at(table, 0).encode() == [-1, 0]


@pytest.mark.parametrize(
    "value",
    [None, 5, [1], [1, -1], [-2, 0], [1, 2, 3], [1, 2, [[1]]], [1, 2, [[2, 0], [1, 5]]], ["1", 2]],
)
def test_an_invalid_position_is_reported(value: object) -> None:
    with pytest.raises(BadPosition):
        decode_position(value)
