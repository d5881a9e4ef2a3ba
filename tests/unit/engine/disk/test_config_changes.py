"""The change file beside a config file: its content, the changes that count, and crashes at each
step."""

import copy
import logging
import random
from pathlib import Path
from typing import Any

import pytest
from tests.sim.disk import SimDisk
from tests.unit.engine.disk.test_config_files import DyingFiles, Killed

from turbopump.engine.disk import config_changes
from turbopump.engine.disk.config_changes import apply_change, encode_change
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import StoreError

NAME = "topics.json"
BASE = {"version": 0, "topics": {"A": {"perm": 6}, "B": {"perm": 4}}, "marks": ["A"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "config"


@pytest.fixture
def files(folder: Path) -> ConfigFiles:
    files = ConfigFiles(RealFiles(), str(folder))
    files.save(NAME, BASE)
    return files


def put(number: int) -> bytes:
    return encode_change(
        {"version": number}, {"topics": [b'"T%d":{"perm":%d}' % (number, number)]}, {}
    )


def expected(*numbers: int) -> dict[str, Any]:
    topics = {"A": {"perm": 6}, "B": {"perm": 4}}
    topics |= {f"T{number}": {"perm": number} for number in numbers}
    return {**BASE, "version": max(numbers, default=0), "topics": topics}


def again(folder: Path) -> ConfigFiles:
    return ConfigFiles(RealFiles(), str(folder))


def read(text: bytes) -> Any:
    return config_changes.fastjson.loads(text)


def test_contents_of_a_change() -> None:
    result = encode_change(
        {"version": 1, "marks": None},
        {"topics": [b'"A":{"perm":2}', b'"C":{}'], "bans": [b'"g":{"t":1}']},
        {"topics": ["B", "nobody"], "bans": []},
    )
    assert apply_change(copy.deepcopy(BASE), read(result)) == {
        "version": 1,
        "topics": {"A": {"perm": 2}, "C": {}},
        "bans": {"g": {"t": 1}},
    }
    assert apply_change({}, read(encode_change({"version": 3}, {}, {}))) == {"version": 3}


@pytest.mark.parametrize("value", [[], 7, {"topics": [1]}])
def test_a_change_of_something_else_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="a change does not fit"):
        apply_change(value, read(put(1)))


def test_changes_are_part_of_the_loaded_table(files: ConfigFiles, folder: Path) -> None:
    before = (folder / NAME).read_bytes()
    assert files.may_append(NAME, 100)
    files.append(NAME, [put(1)])
    files.append(NAME, [put(2), put(3)])
    assert (folder / NAME).read_bytes() == before
    loaded = again(folder)
    assert loaded.load(NAME) == expected(1, 2, 3)
    assert loaded.has_changes(NAME)
    assert loaded.is_latest(NAME)
    assert not loaded.may_append(NAME, 1), "incomplete changes may follow them"
    loaded.save(NAME, expected(1, 2, 3))
    assert sorted(path.name for path in folder.iterdir()) == [NAME, NAME + ".bak"]
    assert not loaded.has_changes(NAME)
    loaded.append(NAME, [put(4)])
    assert again(folder).load(NAME) == expected(1, 2, 3, 4)


def test_beside_another_file_they_count_for_nothing(files: ConfigFiles, folder: Path) -> None:
    """A RocketMQ broker, or an older Turbopump, has written the file since."""
    files.append(NAME, [put(1)])
    (folder / NAME).write_text('{"version": 9, "topics": {}}')
    loaded = again(folder)
    assert loaded.load(NAME) == {"version": 9, "topics": {}}
    assert not loaded.has_changes(NAME)
    loaded.append(NAME, [put(2)])
    assert again(folder).load(NAME) == {"version": 2, "topics": {"T2": {"perm": 2}}}


def test_incomplete_lines_end_them(
    files: ConfigFiles, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files.append(NAME, [put(1)])
    whole = len((folder / (NAME + ".changes")).read_bytes().rstrip(b"\0"))
    files.append(NAME, [put(2)])
    files.append(NAME, [put(3)])
    path = folder / (NAME + ".changes")
    image = bytearray(path.read_bytes())
    image[whole + 20] ^= 1
    path.write_bytes(image)
    assert again(folder).load(NAME) == expected(1), "nothing after it either"
    assert "was not completed" in caplog.text
    path.write_bytes(image[: whole + 3])
    assert again(folder).load(NAME) == expected(1)
    path.write_bytes(b"")
    assert again(folder).load(NAME) == expected()


def test_zeros_behind_them_are_no_damage(
    files: ConfigFiles, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files.append(NAME, [put(1)])
    assert again(folder).load(NAME) == expected(1)
    assert caplog.text == ""


def test_most_appends_leave_the_size_alone(files: ConfigFiles, folder: Path) -> None:
    """A sync of a growing file waits for the file system's journal, and delays other syncs."""
    path = folder / (NAME + ".changes")
    sizes = set()
    for number in range(1, 3_000):
        files.append(NAME, [put(number)])
        sizes.add(path.stat().st_size)
    assert len(sizes) <= 3
    assert again(folder).load(NAME)["version"] == 2_999


class Failing(RealFiles):
    """A disk on which the n-th sync fails."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1

    def sync(self, path: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(5, "Input/output error", path)
        super().sync(path)

    sync_data = sync


def test_nothing_is_appended_behind_a_failure(folder: Path) -> None:
    disk = Failing()
    files = ConfigFiles(disk, str(folder))
    files.save(NAME, BASE)
    files.append(NAME, [put(1)])
    disk.left = 1
    with pytest.raises(OSError, match="Input/output"):
        files.append(NAME, [put(2)])
    assert not files.may_append(NAME, 1)
    files.save(NAME, expected(1, 2))
    assert files.may_append(NAME, 1)
    files.append(NAME, [put(3)])
    assert again(folder).load(NAME) == expected(1, 2, 3)


def test_they_are_bounded(files: ConfigFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = config_changes.SIZE_MIN
    assert files.may_append(NAME, limit)
    assert not files.may_append(NAME, limit + 1)
    assert not files.may_append("other.json", 1), "it was neither read nor written"


@pytest.mark.parametrize("steps", range(10))
@pytest.mark.parametrize("torn", [False, True])
def test_a_kill_at_any_step_loses_nothing(folder: Path, steps: int, torn: bool) -> None:
    """An append, a save of the table, an append: returned changes are there, unfinished ones may
    be."""
    files = ConfigFiles(RealFiles(), str(folder))
    files.save(NAME, BASE)
    dying = ConfigFiles(DyingFiles(1_000, torn), str(folder))
    dying.load(NAME)
    dying.append(NAME, [put(1)])
    dying._files._steps = steps
    done, tried = 1, 1
    try:
        tried = 2
        dying.append(NAME, [put(2)])
        done = 2
        dying.save(NAME, expected(1, 2))
        tried = 3
        dying.append(NAME, [put(3)])
        done = 3
    except Killed:
        pass
    loaded = again(folder)
    value = loaded.load(NAME)
    assert value in [expected(*range(1, last + 1)) for last in range(done, tried + 1)]
    loaded.save(NAME, value)
    loaded.append(NAME, [put(9)])
    assert again(folder).load(NAME)["version"] == 9


def test_a_backup_has_its_changes(files: ConfigFiles, folder: Path) -> None:
    """The kill is between the two renames of a save."""
    files.append(NAME, [put(1)])
    (folder / NAME).rename(folder / (NAME + ".bak"))
    loaded = again(folder)
    assert loaded.load(NAME) == expected(1)
    assert not loaded.is_latest(NAME)


def test_changes_that_fit_nothing_are_said(files: ConfigFiles, folder: Path) -> None:
    files.save(NAME, {"topics": [1]})
    files.append(NAME, [put(1)])
    with pytest.raises(StoreError, match=r"topics.json.changes cannot be read: a change does not"):
        again(folder).load(NAME)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_is_as_before_its_changes_does_not_get_them_back(restarted: bool) -> None:
    """The change file is removed after a save, and a power cut may restore its name: the table has
    the same text for which the changes were made. Otherwise a topic's deletion would apply to its
    next life."""
    for seed in range(20):
        disk = SimDisk(random.Random(seed), lambda: 0)
        files = ConfigFiles(disk, "/store/config")
        files.save(NAME, BASE)
        files.append(NAME, [put(1)])
        if restarted:
            files = ConfigFiles(disk, "/store/config")
            assert files.load(NAME) == expected(1)
        files.save(NAME, BASE)
        disk.end()
        disk.restart()
        assert ConfigFiles(disk, "/store/config").load(NAME) == BASE, f"seed {seed}"
