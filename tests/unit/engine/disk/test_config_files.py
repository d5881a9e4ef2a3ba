"""Config files: replaced atomically, restored from the backup, never guessed (R45)."""

import os
from pathlib import Path
from typing import Any

import pytest

from turbopump.engine import fastjson
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import StoreError

NAME = "topics.json"


@pytest.fixture
def config_files(tmp_path: Path) -> ConfigFiles:
    return ConfigFiles(RealFiles(), f"{tmp_path}/config")


class Killed(Exception):
    """Ends the simulated process."""


class DyingFiles(RealFiles):
    """Ends the process before its n-th change; a write may be cut short."""

    def __init__(self, steps: int, torn: bool = False) -> None:
        super().__init__()
        self._steps = steps
        self._torn = torn

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise Killed

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        if self._steps == 0 and self._torn:
            super().write(path, data[: len(data) // 2], position)
        self._step()
        super().write(path, data, position)

    def sync(self, path: str) -> None:
        self._step()
        super().sync(path)

    def sync_folder(self, path: str) -> None:
        self._step()
        super().sync_folder(path)

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)


def test_a_value_a_start_would_refuse_is_not_written(
    config_files: ConfigFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastjson, "SIZE_MAX", 40)
    monkeypatch.setattr(fastjson, "REFERENCES_MAX", 1)
    config_files.save(NAME, {"a": "x" * 25})
    deep: list[Any] = []
    for _ in range(fastjson.DEPTH_MAX):
        deep = [deep]
    for value in ({"a": "x" * 40}, deep, [{"$ref": "$"}] * 2):
        with pytest.raises(OSError, match=r"topics.json could not be read again: .* over"):
            config_files.save(NAME, value)
    assert config_files.load(NAME) == {"a": "x" * 25}


def test_saved_tables_are_loaded(config_files: ConfigFiles, tmp_path: Path) -> None:
    assert config_files.load(NAME) is None
    config_files.save(NAME, {"a": [1, 2], "ü": "好"})
    assert config_files.load(NAME) == {"a": [1, 2], "ü": "好"}
    config_files.save(NAME, {"a": 2})
    assert config_files.load(NAME) == {"a": 2}
    names = sorted(path.name for path in (tmp_path / "config").iterdir())
    assert names == [NAME, NAME + ".bak"]
    text = (tmp_path / "config" / NAME).read_text()
    assert text == '{\n\t"a":2\n}'


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("steps", range(12))
def test_a_save_that_is_killed_leaves_the_old_or_the_new(
    config_files: ConfigFiles, tmp_path: Path, steps: int, torn: bool
) -> None:
    config_files.save(NAME, {"version": 0})
    config_files.save(NAME, {"version": 1})
    dying = ConfigFiles(DyingFiles(steps, torn), f"{tmp_path}/config")
    try:
        dying.save(NAME, {"version": 2})
        saved = {2}
    except Killed:
        saved = {1, 2}
    assert config_files.load(NAME)["version"] in saved
    config_files.save(NAME, {"version": 3})
    assert config_files.load(NAME) == {"version": 3}


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b'{"a":', b"\xff\xfe garbage", b"  \n"])
def test_a_damaged_file_is_restored_from_its_backup(
    config_files: ConfigFiles, tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    config_files.save(NAME, {"version": 1})
    config_files.save(NAME, {"version": 2})
    (tmp_path / "config" / NAME).write_bytes(damage)
    assert config_files.load(NAME) == {"version": 1}
    assert "was restored from" in caplog.text
    # The damaged file must not become the backup of the next save.
    config_files.save(NAME, {"version": 3})
    (tmp_path / "config" / NAME).unlink()
    assert config_files.load(NAME) == {"version": 1}


def test_a_missing_file_is_restored_from_its_backup(
    config_files: ConfigFiles, tmp_path: Path
) -> None:
    config_files.save(NAME, {"version": 1})
    config_files.save(NAME, {"version": 2})
    (tmp_path / "config" / NAME).unlink()
    assert config_files.load(NAME) == {"version": 1}


def test_damage_without_a_whole_copy_is_said(config_files: ConfigFiles, tmp_path: Path) -> None:
    config_files.save(NAME, {"version": 1})
    (tmp_path / "config" / NAME).write_text("{")
    with pytest.raises(StoreError, match=f"{NAME} is damaged and no whole copy"):
        config_files.load(NAME)
    (tmp_path / "config" / (NAME + ".bak")).write_text("[[[")
    with pytest.raises(StoreError, match=f"{NAME} is damaged and no whole copy"):
        config_files.load(NAME)


def test_a_zeroed_first_file_counts_as_missing(config_files: ConfigFiles, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / NAME).write_bytes(bytes(4096))
    assert config_files.load(NAME) is None


def test_the_forms_of_fastjson_are_read(config_files: ConfigFiles, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:12,1:7}}}')
    value: Any = config_files.load("consumerOffset.json")
    assert value == {"offsetTable": {"T@g": {"0": 12, "1": 7}}}


@pytest.mark.parametrize("text", [b"", b"\0" * 64, b"\n"])
def test_an_empty_file_with_an_empty_copy_is_refused(
    config_files: ConfigFiles, tmp_path: Path, text: bytes
) -> None:
    """The file once had a table: starting without it would lose the consumers' offsets."""
    config_files.save(NAME, {"a": 1})
    for name in (NAME, f"{NAME}.bak"):
        (tmp_path / "config" / name).write_bytes(text)
    with pytest.raises(StoreError, match="is damaged and no whole copy"):
        config_files.load(NAME)


def test_a_file_that_says_null_is_damaged(config_files: ConfigFiles, tmp_path: Path) -> None:
    config_files.save(NAME, {"a": 1})
    config_files.save(NAME, {"a": 2})
    (tmp_path / "config" / NAME).write_text("null")
    assert config_files.load(NAME) == {"a": 1}
    for name in (NAME, f"{NAME}.bak"):
        (tmp_path / "config" / name).write_text(" null\n")
    with pytest.raises(StoreError, match="is damaged and no whole copy"):
        config_files.load(NAME)


def test_private_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    files = ConfigFiles(RealFiles(), f"{tmp_path}/config")
    files.keep_private(NAME)
    before = os.umask(0)
    try:
        for value in (1, 2):
            files.save(NAME, {"a": value})
            files.save("public.json", {"a": value})
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "config").iterdir()}
    assert modes[NAME] == modes[f"{NAME}.bak"] == 0o600
    assert modes["public.json"] == 0o644
