"""A target is written completely or not at all."""

from pathlib import Path

import pytest

from turbopump.spark.output_folder import write_text, written_folder
from turbopump.spark.session import JobError


def write(target: Path, text: str, *, overwrite: bool = False) -> None:
    with written_folder(str(target), overwrite, "mark") as folder:
        assert not target.exists() or overwrite
        Path(folder, "deep").mkdir(parents=True)
        write_text(folder, "mark", text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_is_renamed_when_it_is_whole(tmp_path) -> None:
    write(tmp_path / "out", "one")
    assert names(tmp_path) == ["out"] and names(tmp_path / "out") == ["deep", "mark"]


def test_nothing_is_left_of_one_that_failed(tmp_path) -> None:
    with pytest.raises(KeyError), written_folder(str(tmp_path / "out"), False, "mark") as folder:
        Path(folder).mkdir()
        raise KeyError
    assert names(tmp_path) == []


def test_existing_output_stays_unless_it_is_replaced(tmp_path) -> None:
    write(tmp_path / "out", "one")
    with pytest.raises(JobError, match="exists"):
        write(tmp_path / "out", "two")
    write(tmp_path / "out", "two", overwrite=True)
    assert (tmp_path / "out" / "mark").read_text() == "two"
    assert names(tmp_path) == ["out"]


def test_a_failure_keeps_the_replaced_output(tmp_path) -> None:
    write(tmp_path / "out", "one")
    with pytest.raises(KeyError), written_folder(str(tmp_path / "out"), True, "mark"):
        raise KeyError
    assert (tmp_path / "out" / "mark").read_text() == "one"


def test_output_of_no_job_is_never_replaced(tmp_path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(JobError, match="not overwritten"):
        write(tmp_path / "out", "two", overwrite=True)


def test_the_rest_of_a_killed_job_is_named_and_can_be_replaced(tmp_path) -> None:
    (tmp_path / "out.part").mkdir()
    with pytest.raises(JobError, match=r"out\.part is left"):
        write(tmp_path / "out", "one")
    write(tmp_path / "out", "one", overwrite=True)
    assert names(tmp_path) == ["out"]


def test_a_folder_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(JobError, match="none is no folder"):
        write(tmp_path / "none" / "out", "one")


def test_a_remote_place_is_written_to_where_it_is(tmp_path) -> None:
    uri = (tmp_path / "bucket").as_uri()
    with written_folder(uri, False, "mark") as folder:
        assert folder == uri
        (tmp_path / "bucket").mkdir()
        write_text(folder, "mark", "é")
    assert (tmp_path / "bucket" / "mark").read_text() == "é"
