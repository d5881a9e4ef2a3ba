"""consumerOffset.json consists of lines, and a save formats only the changed ones."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import offset_json

from turbopump.broker.tables import offset_lines, offsets
from turbopump.broker.tables.offsets import FILE_NAME, OffsetTable
from turbopump.engine import fastjson
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import QueueOffset

NAMES = ["a", "b", "%RETRY%c", 'q"\\', "ünicode", "long" * 30]


@pytest.fixture
def table(tmp_path: Path) -> OffsetTable:
    return OffsetTable(ConfigFiles(RealFiles(), str(tmp_path)))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The lines that were written, by their names."""
    names: list[str] = []
    original = offset_lines._encode_line

    def noted(name: str, queues: Any) -> Any:
        names.append(name)
        return original(name, queues)

    monkeypatch.setattr(offset_lines, "_encode_line", noted)
    yield names


def commit(table: OffsetTable, group: str, topic: str, queue_id: int, at: int) -> None:
    table.commit(group, topic, queue_id, QueueOffset(at), 1)


def model(content: offsets.Offsets) -> dict[str, Any]:
    """The file's expected content, computed in full."""

    def rows(entries: Any) -> dict[str, Any]:
        return {
            f"{topic}@{group}": {str(queue_id): at for queue_id, at in queues.items()}
            for (topic, group), queues in entries.items()
        }

    groups: dict[str, list[str]] = {}
    for topic, group in sorted(content.committed):
        groups.setdefault(group, []).append(topic)
    found: dict[str, Any] = {
        "dataVersion": content.version.to_json(),
        "groupTopicMap": groups,
        "offsetTable": rows(content.committed),
        "pullOffsetTable": rows(content.pulled),
    }
    if content.lowered:
        found["loweredTable"] = rows(content.lowered)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_file_equals_the_table_after_any_changes(table: OffsetTable, seed: int) -> None:
    chance = random.Random(seed)
    for step in range(200):
        group, topic = chance.choice(NAMES), chance.choice(NAMES)
        queue_id, at = chance.randrange(12), QueueOffset(chance.randrange(1 << 40))
        kind = chance.randrange(10)
        if kind < 5:
            commit(table, group, topic, queue_id, at)
        elif kind < 7:
            table.commit_pull(group, topic, queue_id, at)
        elif kind == 7:
            table.remove_topic(topic)
        elif kind == 8:
            table.remove_group(group)
        else:
            assert table.topics_of(group) == model(table.all_offsets())["groupTopicMap"].get(
                group, []
            )
        if step % 20 == 0:
            assert offset_json(table) == model(table.all_offsets())
    text = b"".join(table.take_content()())
    assert json.loads(text) == model(table.all_offsets())
    assert json.loads(fastjson.strip_layout(text)) == json.loads(text)
    table.save()
    table.load()
    assert offset_json(table) == model(table.all_offsets())


def test_a_line_is_as_fastjson_writes_it() -> None:
    queues = {0: 5, 10: 1 << 60, 2: 0}
    row = fastjson.encode_member('T"1@G', {str(queue_id): at for queue_id, at in queues.items()}, 2)
    assert offset_lines._encode_line('T"1@G', queues) == row


def test_a_save_writes_the_lines_that_changed(
    table: OffsetTable, written: list[str], tmp_path: Path
) -> None:
    for number in range(3_000):
        commit(table, "G", f"T{number}", 0, number)
    table.save()
    assert len(written) == 3_000
    written.clear()
    commit(table, "G", "T7", 0, 70)
    commit(table, "G", "T8", 1, 71)
    table.remove_topic("T9")
    table.save()
    assert sorted(written) == ["T7@G", "T8@G"]
    parsed = json.loads((tmp_path / FILE_NAME).read_text())
    assert parsed["offsetTable"]["T7@G"] == {"0": 70}
    assert "T9@G" not in parsed["offsetTable"]
    assert len(parsed["offsetTable"]) == len(parsed["groupTopicMap"]["G"]) == 2_999


def test_loaded_rows_are_not_written_again(table: OffsetTable, written: list[str]) -> None:
    for number in range(50):
        commit(table, "G", f"T{number}", 0, number)
    table.save()
    table.load()
    written.clear()
    commit(table, "G", "T7", 0, 70)
    table.save()
    assert written == ["T7@G"]


def test_two_concurrent_readers_both_get_all(
    table: OffsetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "STEP", 4)
    for number in range(100):
        commit(table, f"G{number % 3}", f"T{number}", 0, number)
    one, other = table.gather_content(), table.gather_content()
    assert next(one) is None
    assert next(other) is None
    next(one)  # and is abandoned: a stopping broker saves all offsets at once
    *_, content = other
    assert content is not None
    assert json.loads(b"".join(content())) == model(table.all_offsets())


def test_no_step_writes_more_than_its_share(
    table: OffsetTable, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "STEP", 40)
    for number in range(200):
        for queue_id in range(1 + number % 4):
            commit(table, "G", f"T{number}", queue_id, number)
    before = 0
    for _ in table.gather_content():
        assert len(written) - before <= 20
        before = len(written)
    assert before == 200
