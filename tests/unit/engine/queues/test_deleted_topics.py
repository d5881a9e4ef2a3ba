"""Deleted topics: the files that a deletion writes, and the next start that reads them."""

from pathlib import Path

import pytest

from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.queues import deleted_topics
from turbopump.engine.queues.deleted_topics import DeletedTopics
from turbopump.engine.types import LogOffset


class Counted(RealFiles):
    """Counts the written bytes."""

    written = 0

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        self.written += len(data)
        super().write(path, data, position)


def opened(root: Path) -> DeletedTopics:
    found = DeletedTopics(RealFiles(), str(root))
    found.load()
    return found


def test_a_deletion_is_durable_and_the_last_one_comes_last(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for number, name in enumerate(["a", "b", "主", 'q"', "a"], 1):
        table.add(name, LogOffset(number * 100), LogOffset(0))
        again = opened(tmp_path)
        assert again.former_life_ends() == table.former_life_ends()
        assert list(again.former_life_ends()) == list(table.former_life_ends())
    assert (
        list(table.former_life_ends()) == ["b", "主", 'q"', "a"]
        and table.former_life_end("a") == 500
    )
    again.lower_ends(LogOffset(250))
    assert opened(tmp_path).former_life_ends() == {"b": 200, "主": 250, 'q"': 250, "a": 250}


def test_a_deletion_does_not_write_earlier_deletions_again(tmp_path: Path) -> None:
    files = Counted()
    table = DeletedTopics(files, str(tmp_path))
    table.load()
    for number in range(2_000):
        table.add(f"topic{number:05}" + "x" * 40, LogOffset(number + 1), LogOffset(0))
    whole = files.written
    assert whole < 2_000 * 600
    table.add("another", LogOffset(5_000), LogOffset(0))
    assert files.written - whole < 200


def test_entries_go_when_the_table_is_full(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(deleted_topics, "ENTRIES_MAX", 10)
    table = opened(tmp_path)
    for number in range(25):
        table.add(f"t{number}", LogOffset(number + 1), LogOffset(0))
    assert list(opened(tmp_path).former_life_ends()) == [f"t{number}" for number in range(15, 25)]
    table.add("t", LogOffset(100), LogOffset(50))
    assert opened(tmp_path).former_life_ends() == {"t": 100}


def test_a_deletion_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.add("a", LogOffset(1), LogOffset(0))
    table.add("b", LogOffset(2), LogOffset(0))
    broken = table._files._files

    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    broken.sync_data = broken.sync = fail  # type: ignore[method-assign]
    with pytest.raises(OSError):
        table.add("c", LogOffset(3), LogOffset(0))
    assert table.former_life_end("c") == 0
    del broken.sync_data, broken.sync
    table.add("d", LogOffset(4), LogOffset(0))
    assert (
        opened(tmp_path).former_life_ends() == table.former_life_ends() == {"a": 1, "b": 2, "d": 4}
    )
