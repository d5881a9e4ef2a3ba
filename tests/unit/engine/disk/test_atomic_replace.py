"""A table whose name is a symbolic link is written to the link's target, and stays a link."""

from pathlib import Path

import pytest

from turbopump.broker.ha.control.identity import Applied, IdentityFiles
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk import atomic_replace
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.lifecycle import restart
from turbopump.engine.log.epoch_file import EpochFile
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import LogOffset
from turbopump.net.config.config_file import save_changes
from turbopump.net.wire.java_properties import Property

TABLES = ["topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json"]


@pytest.fixture
def linked(tmp_path: Path) -> tuple[Path, Path]:
    """(the store's folder, a folder elsewhere) with a table linked from the first to the second."""
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    (store / "config").mkdir(parents=True)
    elsewhere.mkdir()
    return store, elsewhere


def link(path: Path, target: Path, text: str | None) -> None:
    if text is not None:
        target.write_text(text)
    path.symlink_to(target)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("kind", ["absolute", "relative", "dangling", "a link to a link"])
def test_a_table(linked: tuple[Path, Path], name: str, kind: str) -> None:
    store, elsewhere = linked
    path, target = store / "config" / name, elsewhere / "table"
    if kind == "relative":
        target.write_text('{"a": 1}')
        path.symlink_to(Path("../../elsewhere/table"))
    elif kind == "a link to a link":
        link(elsewhere / "between", target, '{"a": 1}')
        path.symlink_to(elsewhere / "between")
    else:
        link(path, target, None if kind == "dangling" else '{"a": 1}')
    files = ConfigFiles(RealFiles(), f"{store}/config")
    assert files.load(name) == (None if kind == "dangling" else {"a": 1})
    for number in (2, 3):
        files.save(name, {"a": number})
    assert path.is_symlink()
    assert not target.is_symlink()
    again = ConfigFiles(RealFiles(), f"{store}/config")
    assert again.load(name) == {"a": 3}
    backup = store / "config" / f"{name}.bak"
    assert not backup.is_symlink(), "RocketMQ looks for it there"
    assert '"a":2' in backup.read_text().replace(" ", "").replace("\t", "")
    target.write_text("{")
    assert again.load(name) == {"a": 2}
    again.save(name, {"a": 4})
    assert path.is_symlink()
    assert ConfigFiles(RealFiles(), f"{store}/config").load(name) == {"a": 4}
    left = {one.name for one in elsewhere.iterdir()} - {"between"}
    assert left == {"table", "table.damaged"}, "nothing unfinished is left"


def test_a_backup(linked: tuple[Path, Path]) -> None:
    store, elsewhere = linked
    link(store / "config" / "topics.json.bak", elsewhere / "backup", "{}")
    files = ConfigFiles(RealFiles(), f"{store}/config")
    for number in (1, 2):
        files.save("topics.json", {"a": number})
    assert (store / "config" / "topics.json.bak").is_symlink()
    assert "1" in (elsewhere / "backup").read_text()


def test_the_epoch_list(linked: tuple[Path, Path]) -> None:
    store, elsewhere = linked
    path, config = store / "epochFileCheckpoint", StoreConfig(str(store))
    text = Epochs.from_pairs([(1, 0)]).encode().decode()
    for suffix in ("", ".bak", ".changes"):
        link(Path(f"{path}{suffix}"), elsewhere / f"list{suffix}", text if suffix == "" else None)

    def opened() -> EpochFile:
        file = EpochFile.open(RealFiles(), str(path), LogOffset(0), LogOffset(100))
        file.begin_lines()
        return file

    file = opened()
    file.append(2, LogOffset(50))
    file.write_copies()
    file.append(3, LogOffset(60))
    assert opened().epochs == Epochs.from_pairs([(1, 0), (2, 50), (3, 60)])
    assert all(Path(f"{path}{suffix}").is_symlink() for suffix in ("", ".bak", ".changes"))
    assert (elsewhere / "list").read_bytes() == file.epochs.encode()
    (store / restart.MARK_FILE).touch()
    restart.finish_pending(RealFiles(), config)
    assert path.is_symlink(), "also of a log that begins again"
    assert list(elsewhere.iterdir()) == []


def test_identity_and_configuration(linked: tuple[Path, Path]) -> None:
    store, elsewhere = linked
    path = store / "brokerIdentity"
    link(path, elsewhere / "identity", "c#b#1")
    files = IdentityFiles(RealFiles(), str(path), "c", "b")
    files.save_applied(Applied(2, "code"))
    files.save(2)
    assert (path.is_symlink(), (elsewhere / "identity").read_text()) == (True, "c#b#2")
    files.remove_files()
    assert (path.is_symlink(), path.exists(), files.load()) == (True, False, None)
    assert (store / "brokerIdentity-forgotten").read_text() == "c#b#2"
    link(store / "broker.conf", elsewhere / "conf", "a=1\n")
    save_changes(RealFiles(), f"{store}/broker.conf", [Property("a", "2")])
    assert (store / "broker.conf").is_symlink()
    assert (elsewhere / "conf").read_text().splitlines() == ["a=2"]
    assert (store / "broker.conf.bak").read_text() == "a=1\n"


def test_a_plain_file_is_renamed(tmp_path: Path) -> None:
    path = tmp_path / "table"
    atomic_replace.replace(RealFiles(), str(path), b"one")
    inode = path.stat().st_ino
    atomic_replace.move_to_backup(RealFiles(), str(path), f"{path}.bak")
    assert (tmp_path / "table.bak").stat().st_ino == inode
    assert not path.exists()
