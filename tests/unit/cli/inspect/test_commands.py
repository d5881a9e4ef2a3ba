"""`turbopump inspect log`: by topic, from a log offset on, with at most the requested number."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from turbopump.cli.inspect.commands import app
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage

FILE_SIZE = 4096
COUNT = 40


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A store with alternating messages of two topics in several files, and the log offset of each
    record."""
    root = tmp_path_factory.mktemp("store")
    config = StoreConfig(str(root), mapped_file_size_commit_log=FILE_SIZE)
    opened = Store.open(RealFiles(), config, InlineDisk(), 1)
    places = []
    for number in range(COUNT):
        done = opened.append(NewMessage(f"Topic-{number % 2}", 0, b"x" * 200), 1)
        places.append(int(done.log_offsets[0]))
    opened.close(1)
    return root, places


def lines(store: Path, *arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["log", str(store), "--json", *arguments])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.output.splitlines()]


def places_of(found: list[dict[str, Any]]) -> list[int]:
    return [line["offset"] for line in found if line["t"] == "record"]


def test_all_records_and_the_end(store) -> None:
    root, places = store
    found = lines(root)
    assert places_of(found) == places
    assert found[-1]["t"] == "logEnd" and found[-1]["records"] == COUNT


@pytest.mark.parametrize("number", [0, 1, 7, 25, COUNT - 1])
@pytest.mark.parametrize("more", [0, -3])
def test_from_a_log_offset_on(store, number, more) -> None:
    """The offset is a record's start, or lies inside of the record before it."""
    root, places = store
    found = lines(root, "--offset", str(max(0, places[number] + more)))
    assert places_of(found) == places[number:]
    assert found[-1]["records"] == COUNT - number and found[-1]["damages"] == 0


def test_behind_the_last_record_there_is_none(store) -> None:
    root, places = store
    for log_offset in (places[-1] + 1, places[-1] + 400, 1 << 40):
        found = lines(root, "--offset", str(log_offset))
        assert places_of(found) == [] and "damage" not in {line["t"] for line in found}


def test_of_a_topic_and_so_many(store) -> None:
    root, places = store
    assert places_of(lines(root, "-t", "Topic-1")) == places[1::2]
    assert places_of(lines(root, "-t", "Topic-1", "--limit", "3")) == places[1:7:2]
    both = lines(root, "--topic", "Topic-0", "-t", "Topic-1", "--limit", "2")
    assert places_of(both) == places[:2]
    found = lines(root, "--offset", str(places[9]), "--limit", "1", "-t", "Topic-0")
    assert places_of(found) == [places[10]]
    assert lines(root, "--limit", "0") == []
    assert places_of(lines(root, "-t", "None")) == []
