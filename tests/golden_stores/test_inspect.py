"""`turbopump inspect` shows RocketMQ's files as RocketMQ's own classes read them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark_stores import GOLDEN_NAMES

from turbopump.cli.app import run

KINDS = {
    "log": ("record", "blank", "logFile", "logEnd"),
    "queue": ("cq", "bcq", "cqExt", "queueFile"),
    "index": ("indexFile", "indexEntry"),
}
OURS = {"crcOk", "recordsAfterDamage", "damages"}  # members that the truth has no word for

Inspect = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def inspect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inspect:
    def call(what: str, path: Path, *more: str) -> tuple[int, list[dict[str, Any]]]:
        arguments = ["turbopump", "inspect", what, str(path), "--json", *more]
        monkeypatch.setattr("sys.argv", arguments)
        with pytest.raises(SystemExit) as ended:
            run()
        lines = capsys.readouterr().out.splitlines()
        return int(ended.value.code or 0), [json.loads(line) for line in lines]

    return call


def in_order(lines: list[dict[str, Any]]) -> list[str]:
    """Comparable whatever the order of files; ours of a kind are in the truth's order."""
    shared = [{key: line[key] for key in line if key not in OURS} for line in lines]
    return sorted(json.dumps(line, sort_keys=True) for line in shared)


def truth_of(golden: Any, what: str) -> list[dict[str, Any]]:
    return [line for kind in KINDS[what] for line in golden.truth(kind)]


@pytest.mark.parametrize("name", GOLDEN_NAMES)
@pytest.mark.parametrize("what", KINDS)
def test_every_line_is_the_truth(name: str, what: str, unpack: Any, inspect: Inspect) -> None:
    golden = unpack(name)
    code, lines = inspect(what, golden.root)
    assert in_order(lines) == in_order(truth_of(golden, what))
    assert code == 0
    assert all(line.get("crcOk", True) for line in lines)


def test_one_folder_or_file_is_enough(unpack: Any, inspect: Inspect) -> None:
    golden = unpack("shapes-v4")
    _, lines = inspect("log", golden.root / "commitlog" / "00000000000002097152")
    starts = [line["offset"] for line in lines if line["t"] == "record"]
    expected = [line["offset"] for line in golden.truth("record")]
    assert starts == [offset for offset in expected if 2097152 <= offset < 4194304]
    for path in ("consumequeue/Basic/2", "consumequeue/Basic/2/00000000000000000000"):
        _, lines = inspect("queue", golden.root / path)
        units = [
            line for line in golden.truth("cq") if (line["topic"], line["queue"]) == ("Basic", 2)
        ]
        assert [line for line in lines if line["t"] == "cq"] == units
    _, lines = inspect("queue", golden.root / "batchconsumequeue")
    assert [line for line in lines if line["t"] == "bcq"] == golden.truth("bcq")
    name = golden.truth("indexFile")[0]["name"]
    _, lines = inspect("index", golden.root / "index" / name, "--slots", "500")
    assert lines[0] == golden.truth("indexFile")[0]


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def damages(lines: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    found = [line for line in lines if line["t"] == "damage"]
    return [(Path(line["file"]).name, line["position"], line["reason"]) for line in found]


def test_a_changed_body_is_named_and_reading_goes_on(unpack: Any, inspect: Inspect) -> None:
    golden = unpack("killed")
    torn = json.loads(golden.data("killed-torn-middle.torn.json"))
    path = golden.root / "commitlog" / torn["file"]
    at = torn["cutOffset"] - int(torn["file"])
    byte = path.read_bytes()[at]
    overwrite(path, at, bytes([byte ^ 0xFF]))
    code, lines = inspect("log", golden.root)
    position = torn["recordOffset"] - int(torn["file"])
    assert damages(lines) == [(torn["file"], position, "body crc")]
    assert code == 1
    bad = [line["offset"] for line in lines if line["t"] == "record" and not line["crcOk"]]
    assert bad == [torn["recordOffset"]]
    truth = golden.truth("record")
    assert len([line for line in lines if line["t"] == "record"]) == len(truth)
    kept = len([line for line in truth if line["offset"] < torn["recordOffset"]])
    assert lines[-1] == {
        "t": "logEnd",
        "records": kept,
        "endOffset": torn["recordOffset"],
        "recordsAfterDamage": len(truth) - kept,
        "damages": 1,
    }
    assert lines[-2]["stop"] == "body crc"
    assert lines[-2]["endOfRecords"] == torn["recordOffset"]


def test_a_hole_is_named_and_reading_goes_on_behind_it(unpack: Any, inspect: Inspect) -> None:
    golden = unpack("killed")
    truth = golden.truth("record")
    path = golden.root / "commitlog" / "00000000000000000000"
    first, last = truth[10], truth[14]
    overwrite(path, first["offset"], bytes(last["offset"] - first["offset"]))
    code, lines = inspect("log", golden.root)
    assert damages(lines) == [(path.name, first["offset"], "no magic, size 0 magic 0")]
    assert code == 1
    found = [line["offset"] for line in lines if line["t"] == "record"]
    assert found == [line["offset"] for line in truth if line not in truth[10:14]]


@pytest.mark.parametrize("name", ["killed-torn-zeroed", "killed-torn-short"])
def test_a_torn_end_is_where_the_truth_says(name: str, unpack: Any, inspect: Inspect) -> None:
    golden = unpack("killed")
    torn = json.loads(golden.data(f"{name}.torn.json"))
    path = golden.root / "commitlog" / torn["file"]
    cut = torn["cutOffset"] - int(torn["file"])
    with path.open("r+b") as file:
        file.truncate(cut)
        file.truncate(torn["lengthAfter"])
    code, lines = inspect("log", golden.root)
    position = torn["recordOffset"] - int(torn["file"])
    assert [(file, at) for file, at, _ in damages(lines)] == [(torn["file"], position)]
    assert code == 1
    assert lines[-1]["endOffset"] == torn["recordOffset"]
    assert lines[-1]["records"] == len(
        [line for line in golden.truth("record") if line["offset"] < torn["recordOffset"]]
    )


def test_damaged_units_are_named_once_a_run(unpack: Any, inspect: Inspect) -> None:
    golden = unpack("shapes-v4")
    path = golden.root / "consumequeue" / "Roll" / "0" / "00000000000000000000"
    overwrite(path, 100, bytes(40))
    overwrite(path, 200, b"\xff" * 20)
    code, lines = inspect("queue", path)
    assert damages(lines) == [
        (path.name, 100, "no unit: log offset 0, size 0 (2 of this kind)"),
        (path.name, 200, "no unit: log offset -1, size -1 (1 of this kind)"),
    ]
    assert code == 1
    assert len([line for line in lines if line["t"] == "cq"]) == 50 - 3


def test_damaged_entries_are_named(unpack: Any, inspect: Inspect) -> None:
    golden = unpack("shapes-v4")
    name = golden.truth("indexFile")[0]["name"]
    path = golden.root / "index" / name
    position = 40 + 4 * 500 + 20 * 7
    overwrite(path, position, b"\xff" * 20)
    code, lines = inspect("index", path)
    assert damages(lines) == [(name, position, "entry 7 is not an entry")]
    assert code == 1
    overwrite(path, 36, (5000).to_bytes(4, "big"))
    _, lines = inspect("index", path, "--slots", "500")
    reason = "count 5000 in the header of a file with 1000 entries"
    assert damages(lines)[-1] == (name, 36, reason)


def test_an_empty_or_foterm_index_is_damage(tmp_path: Path, inspect: Inspect, unpack: Any) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20261121132020367").touch()
    (tmp_path / "index" / "20261121132020368").write_bytes(b"\x7f" * 4096)
    (tmp_path / "index" / "20261121132020369").write_bytes(b"1")
    code, lines = inspect("index", tmp_path)
    assert [reason for _, _, reason in damages(lines)] == [
        "the file is empty",
        "the number of slots of the file cannot be guessed: say it with --slots",
        "1 bytes are too few for the header of an index file",
    ]
    assert code == 1
