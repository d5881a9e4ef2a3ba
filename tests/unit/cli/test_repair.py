"""`turbopump repair`: reports damage, and changes only the requested parts."""

import json
from pathlib import Path
from typing import Any

import pytest

from turbopump.cli import app
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage

NOW_MS = 1_800_000_000_000
SETTINGS = "mappedFileSizeCommitLog=65536\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
BODY_AT = 88


@pytest.fixture
def damaged(tmp_path: Path) -> list[int]:
    """Make a store with damaged records 3 and 7; returns the log offsets of its ten records."""
    root = tmp_path / "store"
    config = StoreConfig(
        str(root), mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400
    )
    store = Store.open(RealFiles(), config, InlineDisk(), NOW_MS)
    starts = [store.append(NewMessage("T", 0, b"body"), NOW_MS).log_offsets[0] for _ in range(10)]
    store.close(NOW_MS)
    (tmp_path / "broker.conf").write_text(SETTINGS)
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[starts[3] + BODY_AT] = data[starts[7] + BODY_AT] = 0xFF
    path.write_bytes(data)
    return starts


@pytest.fixture
def repair(tmp_path: Path, monkeypatch: Any, capsys: Any) -> Any:
    def run(*arguments: str) -> tuple[int, Any, str]:
        line = ["turbopump", "repair", str(tmp_path / "store"), "--json"]
        monkeypatch.setattr("sys.argv", [*line, "-c", str(tmp_path / "broker.conf"), *arguments])
        with pytest.raises(SystemExit) as ended:
            app.run()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), json.loads(out) if out else None, err

    return run


def test_without_an_order_it_only_looks(damaged: list[int], repair: Any, tmp_path: Path) -> None:
    before = (tmp_path / "store/commitlog" / f"{0:020d}").read_bytes()
    code, found, _err = repair()
    places = [(one["log_offset"], one["position"], one["end"]) for one in found["damages"]]
    assert places == [(damaged[at], damaged[at], damaged[at + 1]) for at in (3, 7)]
    assert (code, [one["given_up"] for one in found["damages"]]) == (1, [False, False])
    assert (tmp_path / "store/commitlog" / f"{0:020d}").read_bytes() == before


def test_records_are_given_up_one_by_one(damaged: list[int], repair: Any) -> None:
    code, found, _err = repair("--give-up", str(damaged[3]))
    assert (code, [one["given_up"] for one in found["damages"]]) == (1, [True, False])
    code, found, _err = repair("--give-up", str(damaged[7]))
    assert (code, [one["given_up"] for one in found["damages"]]) == (0, [True, True])


def test_the_log_is_cut_where_it_is_told(damaged: list[int], repair: Any) -> None:
    code, found, _err = repair("--cut-log-at", str(damaged[7]))
    assert (code, found["logEnd"], len(found["damages"])) == (1, damaged[7], 1)
    code, found, _err = repair("--cut-log-at", str(damaged[3]))
    assert (code, found) == (0, {"logEnd": damaged[3], "damages": []})


def test_a_whole_file_is_not_cut(damaged: list[int], repair: Any) -> None:
    for option in ("--cut-log-at", "--give-up"):
        code, found, err = repair(option, str(damaged[5]))
        assert (code, found) == (2, None)
        assert err.endswith(f"no record is damaged at log offset {damaged[5]}\n")
    code, _found, err = repair("--cut-log-at", "1", "--give-up", "1")
    assert (code, "choose one" in err) == (2, True)


def test_a_store_in_use_and_none_at_all(damaged: list[int], repair: Any, tmp_path: Path) -> None:
    lock = RealFiles().lock(str(tmp_path / "store/lock"), b"lock")
    code, _found, err = repair()
    assert (code, "in use by a running broker" in err) == (2, True)
    lock.release()
    (tmp_path / "store/commitlog").rename(tmp_path / "elsewhere")
    assert repair()[0] == 2
    assert not (tmp_path / "store/commitlog").exists()


@pytest.mark.parametrize(
    "text",
    ["[]", '{"topicConfigTable":5}', '{"topicConfigTable":{"T":{"attributes":5}}}', "no json"],
)
def test_a_topic_table_of_another_shape_is_a_sentence(
    damaged: list[int], repair: Any, tmp_path: Path, text: str
) -> None:
    """JSON that is no table must not end in a traceback with the store open."""
    folder = tmp_path / "store/config"
    folder.mkdir(exist_ok=True)
    (folder / "topics.json").write_text(text)
    before = (tmp_path / "store/commitlog" / f"{0:020d}").read_bytes()
    code, found, err = repair("--give-up", str(damaged[3]))
    assert (code, found, err.count("\n")) == (2, None, 1)
    assert err.startswith(f"turbopump: {folder / 'topics.json'}")
    assert (tmp_path / "store/commitlog" / f"{0:020d}").read_bytes() == before
    (folder / "topics.json").unlink()
    assert repair("--give-up", str(damaged[3]))[0] == 1, "the store is not locked by it"


def test_properties_that_are_none_are_a_sentence(
    damaged: list[int], repair: Any, tmp_path: Path
) -> None:
    (tmp_path / "broker.conf").write_text("mappedFileSizeCommitLog=much\n")
    code, found, err = repair()
    assert (code, found) == (2, None) and err.startswith(f"turbopump: {tmp_path / 'broker.conf'}: ")
    (tmp_path / "broker.conf").write_bytes(b"brokerName=\xff\n")
    assert repair()[2] == f"turbopump: {tmp_path / 'broker.conf'} is not UTF-8 text\n"
    (tmp_path / "broker.conf").unlink()
    assert repair()[2].endswith("broker.conf: No such file or directory\n")


def test_damage_as_text(
    damaged: list[int], tmp_path: Path, monkeypatch: Any, capsys: Any, repair: Any
) -> None:
    repair("--give-up", str(damaged[3]))
    conf = str(tmp_path / "broker.conf")
    monkeypatch.setattr("sys.argv", ["turbopump", "repair", str(tmp_path / "store"), "-c", conf])
    with pytest.raises(SystemExit):
        app.run()
    first, second, end = capsys.readouterr().out.splitlines()
    assert first.startswith(f"log offset {damaged[3]} to {damaged[4]}: ")
    assert first.endswith(", given up") and not second.endswith(", given up")
    assert end == f"The log ends at {damaged[9] + 96}, 2 places are damaged."
