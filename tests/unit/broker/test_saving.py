"""Config files written elsewhere: shared writes, who waits, and what a failure is told."""

from pathlib import Path
from typing import Any

import pytest

from turbopump.broker.saving import Saver
from turbopump.engine.config_files import ConfigFiles
from turbopump.engine.files import RealFiles
from turbopump.engine.later import Later
from turbopump.net.wire.command import Command, new_request, response

NAME, OTHER = "topics.json", "subscriptionGroup.json"


class Steered:
    """A disk that does one piece of work when a test says so."""

    def __init__(self) -> None:
        self.work: list[tuple[Any, Any]] = []

    def submit(self, work: Any, done: Any) -> Any:
        self.work.append((work, done))

    def close(self) -> None:
        pass

    def step(self, error: OSError | None = None) -> None:
        work, done = self.work.pop(0)
        done(error or work())


@pytest.fixture
def disk() -> Steered:
    return Steered()


@pytest.fixture
def files(tmp_path: Path) -> ConfigFiles:
    return ConfigFiles(RealFiles(), str(tmp_path))


@pytest.fixture
def saver(files: ConfigFiles, disk: Steered) -> Saver:
    return Saver(files, disk)


def test_nothing_to_save_is_saved(saver: Saver) -> None:
    assert saver.saved().value is None


def test_changes_while_a_file_is_written_share_the_next_write(
    saver: Saver, disk: Steered, files: ConfigFiles
) -> None:
    saved = []
    for number in range(4):
        saver.changed(NAME, lambda number=number: {"n": number})
        saved.append(saver.saved())
    assert len(disk.work) == 1, "the same file is never written twice at once"
    disk.step()
    assert [one.done for one in saved] == [True, False, False, False]
    assert files.load(NAME) == {"n": 0}
    disk.step()
    assert [one.value for one in saved] == [None] * 4
    assert files.load(NAME) == {"n": 3}
    assert disk.work == []


def test_who_waits_waits_for_all_files(saver: Saver, disk: Steered) -> None:
    saver.changed(NAME, dict)
    saver.changed(OTHER, dict)
    saved = saver.saved()
    disk.step()
    assert not saved.done
    disk.step()
    assert saved.value is None


def test_a_failure_is_told_and_the_write_repeated(
    saver: Saver, disk: Steered, files: ConfigFiles, caplog: pytest.LogCaptureFixture
) -> None:
    full = OSError(28, "No space left on device")
    saver.changed(NAME, lambda: {"n": 1})
    saver.changed(OTHER, lambda: {"n": 2})
    saved = saver.saved()
    disk.step(full)
    assert saved.value is full
    assert saver.saved().value is full, "nobody waits for a write that nobody does"
    disk.step()
    for error in (full, None):
        saver.retry()
        again = saver.saved()
        disk.step(error)
        assert again.value is error
    assert files.load(NAME) == {"n": 1}
    assert caplog.text.count("cannot be saved") == 1
    saver.retry()
    assert disk.work == []


def test_a_change_during_a_write_that_fails_is_written_with_it(
    saver: Saver, disk: Steered, files: ConfigFiles
) -> None:
    saver.changed(NAME, lambda: {"n": 1})
    saver.changed(NAME, lambda: {"n": 2})
    disk.step(OSError(5, "Input/output error"))
    saver.retry()
    disk.step()
    assert files.load(NAME) == {"n": 2}
    assert saver.saved().value is None


REQUEST = new_request(17)


def test_answers_to_requests_that_change_nothing_pass(saver: Saver, disk: Steered) -> None:
    answer = response(REQUEST, 0)
    assert saver.review(REQUEST, answer) is answer
    saver.changed(NAME, dict)
    assert isinstance(saver.review(REQUEST, answer), Later)
    assert saver.review(REQUEST, answer) is answer, "another request changed it"


@pytest.mark.parametrize("is_later", [False, True])
@pytest.mark.parametrize("error", [None, OSError(5, "broken")])
def test_answers_to_changes_wait(
    saver: Saver, disk: Steered, is_later: bool, error: OSError | None
) -> None:
    answer = response(REQUEST, 0, "done")
    later: Later[Command | None] = Later()
    saver.changed(NAME, dict)
    reviewed = saver.review(REQUEST, later if is_later else answer)
    assert isinstance(reviewed, Later)
    assert not reviewed.done
    disk.step(error)
    if is_later:
        assert reviewed.done == (error is not None)
        later.resolve(answer)
    if error is None:
        assert reviewed.value is answer
    else:
        assert reviewed.value is not None
        assert (reviewed.value.code, reviewed.value.remark) == (
            1,
            "the change is not saved: [Errno 5] broken",
        )


def test_what_is_not_answered_does_not_wait(saver: Saver, disk: Steered) -> None:
    saver.changed(NAME, dict)
    assert saver.review(REQUEST, None) is None
    saver.changed(NAME, dict)
    answer = response(REQUEST, 0)
    assert saver.review(new_request(17, oneway=True), answer) is answer


def test_who_relies_on_a_change_waits_for_it(saver: Saver, disk: Steered) -> None:
    answer = response(REQUEST, 0)
    change = saver.changed(NAME, dict)
    saver.review(REQUEST, answer)
    assert saver.durable == change - 1
    saver.rely()
    waits = saver.review(REQUEST, answer)
    assert isinstance(waits, Later)
    assert saver.review(REQUEST, answer) is answer, "the next one does not rely on it"
    disk.step()
    assert saver.durable == change
    assert waits.value is answer
