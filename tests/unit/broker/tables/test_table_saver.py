"""Config files written on a disk thread: shared writes, waiting callers, and failures."""

from pathlib import Path
from typing import Any

import pytest

from turbopump.broker.tables.table_saver import WHOLE_AFTER, Source, TableSaver
from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.config_changes import SIZE_MIN, encode_change
from turbopump.engine.disk.config_files import ConfigFiles, pieces_of
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.wire.command import Command, new_request, new_response

NAME, OTHER = "topics.json", "subscriptionGroup.json"


class Steered:
    """A disk that does a piece of work when the test calls it."""

    def __init__(self) -> None:
        self.work: list[tuple[Any, Any]] = []

    def submit(self, work: Any, done: Any) -> Any:
        self.work.append((work, done))

    def close(self) -> None:
        pass

    def step(self, error: OSError | None = None) -> None:
        work, done = self.work.pop(0)
        done(error or work())


def of(value: Any) -> Source:
    """A table that holds this."""
    return lambda: lambda: pieces_of(value)


EMPTY = of({})


@pytest.fixture
def disk() -> Steered:
    return Steered()


@pytest.fixture
def files(tmp_path: Path) -> ConfigFiles:
    return ConfigFiles(RealFiles(), str(tmp_path))


@pytest.fixture
def saver(files: ConfigFiles, disk: Steered) -> TableSaver:
    return TableSaver(files, disk)


def test_nothing_to_save_is_saved(saver: TableSaver) -> None:
    assert saver.when_saved().value is None


def test_changes_while_a_file_is_written_share_the_next_write(
    saver: TableSaver, disk: Steered, files: ConfigFiles
) -> None:
    saved = []
    for number in range(4):
        saver.save_changed(NAME, of({"n": number}))
        saved.append(saver.when_saved())
    assert len(disk.work) == 1, "the same file is never written twice at once"
    disk.step()
    assert [one.done for one in saved] == [True, False, False, False]
    assert files.load(NAME) == {"n": 0}
    disk.step()
    assert [one.value for one in saved] == [None] * 4
    assert files.load(NAME) == {"n": 3}
    assert disk.work == []


def test_a_waiting_caller_waits_for_all_files(saver: TableSaver, disk: Steered) -> None:
    saver.save_changed(NAME, EMPTY)
    saver.save_changed(OTHER, EMPTY)
    saved = saver.when_saved()
    disk.step()
    assert not saved.done
    disk.step()
    assert saved.value is None


def test_a_failure_is_told_and_the_write_repeated(
    saver: TableSaver, disk: Steered, files: ConfigFiles, caplog: pytest.LogCaptureFixture
) -> None:
    full = OSError(28, "No space left on device")
    saver.save_changed(NAME, of({"n": 1}))
    saver.save_changed(OTHER, of({"n": 2}))
    saved = saver.when_saved()
    disk.step(full)
    assert saved.value is full
    assert saver.when_saved().value is full, "no caller waits for a write that no saver does"
    disk.step()
    for error in (full, None):
        saver.tick()
        again = saver.when_saved()
        disk.step(error)
        assert again.value is error
    assert files.load(NAME) == {"n": 1}
    assert caplog.text.count("cannot be saved") == 1
    saver.tick()
    assert disk.work == []


def test_a_change_during_a_write_that_fails_is_written_with_it(
    saver: TableSaver, disk: Steered, files: ConfigFiles
) -> None:
    saver.save_changed(NAME, of({"n": 1}))
    saver.save_changed(NAME, of({"n": 2}))
    disk.step(OSError(5, "Input/output error"))
    saver.tick()
    disk.step()
    assert files.load(NAME) == {"n": 2}
    assert saver.when_saved().value is None


REQUEST = new_request(17)


def test_answers_to_requests_that_change_nothing_pass(saver: TableSaver, disk: Steered) -> None:
    response = new_response(REQUEST, 0)
    assert saver.hold_until_saved(REQUEST, response) is response
    saver.save_changed(NAME, EMPTY)
    assert isinstance(saver.hold_until_saved(REQUEST, response), Deferred)
    assert saver.hold_until_saved(REQUEST, response) is response, "another request changed it"


@pytest.mark.parametrize("is_later", [False, True])
@pytest.mark.parametrize("error", [None, OSError(5, "broken")])
def test_answers_to_changes_wait(
    saver: TableSaver, disk: Steered, is_later: bool, error: OSError | None
) -> None:
    response = new_response(REQUEST, 0, "done")
    later: Deferred[Command | None] = Deferred()
    saver.save_changed(NAME, EMPTY)
    reviewed = saver.hold_until_saved(REQUEST, later if is_later else response)
    assert isinstance(reviewed, Deferred)
    assert not reviewed.done
    disk.step(error)
    if is_later:
        assert reviewed.done == (error is not None)
        later.resolve(response)
    if error is None:
        assert reviewed.value is response
    else:
        assert reviewed.value is not None
        assert (reviewed.value.code, reviewed.value.remark) == (
            14,
            "the change is not saved: broken",
        )


def test_requests_without_an_answer_do_not_wait(saver: TableSaver, disk: Steered) -> None:
    saver.save_changed(NAME, EMPTY)
    assert saver.hold_until_saved(REQUEST, None) is None
    saver.save_changed(NAME, EMPTY)
    response = new_response(REQUEST, 0)
    assert saver.hold_until_saved(new_request(17, oneway=True), response) is response


def test_a_caller_that_relies_on_a_change_waits_for_it(saver: TableSaver, disk: Steered) -> None:
    response = new_response(REQUEST, 0)
    change = saver.save_changed(NAME, EMPTY)
    saver.hold_until_saved(REQUEST, response)
    assert saver.durable_change == change - 1
    saver.wait_for_others()
    waits = saver.hold_until_saved(REQUEST, response)
    assert isinstance(waits, Deferred)
    assert saver.hold_until_saved(REQUEST, response) is response, "the next one does not rely on it"
    disk.step()
    assert saver.durable_change == change
    assert waits.value is response


def row(number: int) -> bytes:
    """A change that puts one row."""
    return encode_change({"n": number}, {"t": [b'"%d":{"n":%d}' % (number, number)]}, {})


def rows(count: int) -> dict[str, Any]:
    """The file's content after `count` rows."""
    return {"n": count, "t": {str(one): {"n": one} for one in range(1, count + 1)}}


def put(saver: TableSaver, disk: Steered, first: int, last: int) -> None:
    """The first change alone, the others while it is written."""
    for number in range(first, last + 1):
        saver.save_changed(NAME, of(rows(number)), row(number))
    while disk.work:
        disk.step()


def test_changes_are_appended_together(
    saver: TableSaver, disk: Steered, files: ConfigFiles, tmp_path: Path
) -> None:
    put(saver, disk, 1, 1)  # a file that was never saved is written in full
    before = (tmp_path / NAME).read_bytes()
    for number in range(2, 6):
        saver.save_changed(NAME, of(rows(number)), row(number))
    saved = saver.when_saved()
    assert len(disk.work) == 1
    disk.step()
    assert len(disk.work) == 1, "three that came meanwhile go together"
    assert not saved.done
    disk.step()
    assert saved.value is None
    assert (tmp_path / NAME).read_bytes() == before
    assert files.load(NAME) == rows(5)


def test_a_quiet_file_is_written_whole(
    saver: TableSaver, disk: Steered, files: ConfigFiles, tmp_path: Path
) -> None:
    put(saver, disk, 1, 3)
    saver.tick()
    assert disk.work == [], "there was a change a moment ago"
    saver.tick()
    disk.step()
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, NAME + ".bak"]
    assert fastjson.loads((tmp_path / NAME).read_text()) == rows(3)
    assert saver.when_saved().value is None
    saver.tick()
    assert disk.work == []


def test_a_busy_file_is_written_whole_now_and_then(
    saver: TableSaver, disk: Steered, tmp_path: Path
) -> None:
    put(saver, disk, 1, 2)
    for number in range(WHOLE_AFTER):
        put(saver, disk, number + 3, number + 3)
        saver.tick()
    disk.step()
    assert fastjson.loads((tmp_path / NAME).read_text()) == rows(WHOLE_AFTER + 2)


def test_a_stop_leaves_nothing_beside_the_file(
    saver: TableSaver, disk: Steered, tmp_path: Path
) -> None:
    put(saver, disk, 1, 2)
    saver.save_changed(NAME, of(rows(3)), row(3))
    saver.begin_last_writes()
    while disk.work:
        disk.step()
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, NAME + ".bak"]
    assert fastjson.loads((tmp_path / NAME).read_text()) == rows(3)


def test_an_append_that_fails_is_told_and_the_file_written_whole(
    saver: TableSaver, disk: Steered, files: ConfigFiles, tmp_path: Path
) -> None:
    put(saver, disk, 1, 2)
    broken = OSError(5, "Input/output error")
    saver.save_changed(NAME, of(rows(3)), row(3))
    saver.save_changed(NAME, of(rows(4)), row(4))
    saved = saver.when_saved()
    disk.step(broken)
    assert saved.value is broken
    saver.tick()
    disk.step()
    assert saver.when_saved().value is None
    assert fastjson.loads((tmp_path / NAME).read_text()) == rows(4)


def test_a_file_that_cannot_be_written_whole_still_takes_changes(
    saver: TableSaver, disk: Steered, files: ConfigFiles
) -> None:
    put(saver, disk, 1, 2)
    saver.tick()
    saver.tick()
    saver.save_changed(NAME, of(rows(3)), row(3))
    saved = saver.when_saved()
    disk.step(OSError(28, "No space left on device"))
    assert not saved.done
    disk.step()
    assert saved.value is None
    assert files.load(NAME) == rows(3)


def test_a_table_loaded_with_changes_is_written_whole(
    saver: TableSaver, disk: Steered, files: ConfigFiles, tmp_path: Path
) -> None:
    put(saver, disk, 1, 2)
    again = TableSaver(ConfigFiles(RealFiles(), str(tmp_path)), disk)
    assert again.load(NAME, of(rows(2))) == rows(2)
    again.tick()
    disk.step()
    assert fastjson.loads((tmp_path / NAME).read_text()) == rows(2)


def test_bytes_written_for_a_change_are_bounded(
    saver: TableSaver, disk: Steered, tmp_path: Path
) -> None:
    """However many rows there are: of a large file as many bytes are appended as it has."""
    table = {"t": {f"{number:0200}": {} for number in range(20_000)}}
    saver.save_changed(NAME, of(table))
    disk.step()
    size = (tmp_path / NAME).stat().st_size
    assert size > SIZE_MIN
    taken = 0

    def source() -> Any:
        nonlocal taken
        taken += 1
        return of(table)()

    change_of = encode_change({"n": 1}, {"t": [b'"x":{}']}, {}) + b" " * 10_000
    for _ in range(2 * size // len(change_of)):
        saver.save_changed(NAME, source, change_of)
        disk.step()
    assert taken <= 2
