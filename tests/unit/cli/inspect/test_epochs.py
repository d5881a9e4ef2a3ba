"""`turbopump inspect epochs`: a single list, two lists, and the point where the logs diverge."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from turbopump.cli.inspect.commands import app
from turbopump.cli.inspect.epochs import Labelled, log_end, read
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage

STAGES = Path(__file__).resolve().parents[3] / "golden" / "ha" / "controller-json" / "epochs"


def run(*words: str | Path) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(app, ["epochs", *map(str, words), "--json"])
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_real_brokers_list() -> None:
    file = STAGES / "6-end" / "a"
    code, lines = run(file)
    assert code == 0
    assert [(line["epoch"], line["start"], line["end"]) for line in lines] == [
        (1, 0, 407727),
        (2, 407727, 602849),
        (3, 602849, None),
    ]
    assert {(line["t"], line["file"]) for line in lines} == {("epoch", str(file))}


def test_epochs_of_a_real_pair_after_a_failover() -> None:
    a, b = STAGES / "3-b-master" / "a", STAGES / "3-b-master" / "b"
    code, lines = run(a, b, "--diff")
    assert code == 0
    assert lines == [
        {"t": "onlyIn", "file": str(b), "epoch": 2, "start": 407727},
        {"t": "consistentPoint", "offset": 407727, "same": False},
    ]
    assert len(run(a, b)[1]) == 5


def test_damage_is_told(tmp_path: Path) -> None:
    file = tmp_path / "epochFileCheckpoint"
    file.write_bytes(b"1\n5\n1-0\n")
    code, lines = run(tmp_path)
    assert code == 1
    assert lines[0]["t"] == "damage" and "checksum" in lines[0]["reason"]
    text = CliRunner().invoke(app, ["epochs", str(file)])
    assert (text.exit_code, text.stdout[:6]) == (1, "DAMAGE")


def test_a_store_tells_where_its_log_ends(tmp_path: Path) -> None:
    config = StoreConfig(f"{tmp_path}/store", mapped_file_size_commit_log=4096)
    store = Store.open(RealFiles(), config, InlineDisk(), now_ms=1)
    for number in range(40):
        end = store.append(NewMessage("T", 0, b"x" * (50 + number)), now_ms=2).end
    store.close(3)
    assert log_end(tmp_path / "store" / "commitlog") == end > 4096
    (tmp_path / "store" / "epochFileCheckpoint").write_bytes(Epochs.from_pairs([(1, 0)]).encode())
    found = read(tmp_path / "store")
    assert isinstance(found, Labelled) and found.end == end
    store_path = tmp_path / "store"
    assert run(store_path, store_path, "--diff") == (
        0,
        [{"t": "consistentPoint", "offset": end, "same": True}],
    )


def test_a_list_that_lies_elsewhere(tmp_path: Path) -> None:
    moved = tmp_path / "epochs"
    ends = {}
    for name, count in (("a", 3), ("b", 5)):
        config = StoreConfig(str(tmp_path / name), mapped_file_size_commit_log=4096)
        store = Store.open(RealFiles(), config, InlineDisk(), now_ms=1)
        for _ in range(count):
            ends[name] = store.append(NewMessage("T", 0, b"x"), now_ms=2).end
        store.close(3)
    moved.write_bytes(Epochs.from_pairs([(1, 0)]).encode())
    (tmp_path / "b" / "epochFileCheckpoint").write_bytes(moved.read_bytes())
    code, lines = run(tmp_path / "a", "--epoch-file", moved)
    assert (code, lines[0]["end"]) == (0, ends["a"])
    code, lines = run(tmp_path / "a", tmp_path / "b", "--epoch-file", moved, "--diff")
    assert (code, lines[0]["offset"]) == (0, ends["a"])
    with pytest.raises(Exception, match="--epoch-file"):
        read(tmp_path / "a")


@pytest.mark.parametrize("name", ["", "nothing"])
def test_nothing_to_inspect_is_a_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(Exception, match="no epoch file"):
        read(tmp_path / name)
