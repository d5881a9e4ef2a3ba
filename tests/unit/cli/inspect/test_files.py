import errno
from pathlib import Path

import pytest

from turbopump.cli.errors import UserError
from turbopump.cli.inspect.files import index_files, log_files, open_readonly, queue_files

FIRST, SECOND = "0" * 20, f"{1000:020d}"


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def test_a_log_is_found_from_its_store_its_folder_or_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "store" / "commitlog"
    touch(folder / SECOND, folder / FIRST, folder / "notes.txt", folder / "123")
    for path in (tmp_path, tmp_path / "store", folder):
        assert [(file.name, file.base) for file in log_files(path)] == [(FIRST, 0), (SECOND, 1000)]
    assert [file.base for file in log_files(folder / SECOND)] == [1000]
    assert [file.base for file in log_files(folder / "notes.txt")] == [0]


def test_queues_are_found_by_topic_and_number(tmp_path: Path) -> None:
    plain, batch = tmp_path / "consumequeue", tmp_path / "batchconsumequeue"
    touch(
        plain / "B" / "10" / FIRST,
        plain / "B" / "2" / SECOND,
        plain / "B" / "2" / FIRST,
        plain / "A" / "0" / FIRST,
        batch / "C" / "1" / FIRST,
    )
    found = [(one.kind, one.topic, one.queue_id, one.file.base) for one in queue_files(tmp_path)]
    assert found == [
        ("consumequeue", "A", 0, 0),
        ("consumequeue", "B", 2, 0),
        ("consumequeue", "B", 2, 1000),
        ("consumequeue", "B", 10, 0),
        ("batchconsumequeue", "C", 1, 0),
    ]
    (one,) = queue_files(batch / "C" / "1" / FIRST)
    assert (one.kind, one.topic, one.queue_id) == ("batchconsumequeue", "C", 1)
    assert len(queue_files(plain / "B")) == 3


def test_index_files_are_in_order_of_their_names(tmp_path: Path) -> None:
    touch(*(tmp_path / "index" / name for name in ("20261121132020368", "20261121132020367", "x")))
    names = [file.name for file in index_files(tmp_path)]
    assert names == ["20261121132020367", "20261121132020368"]


def test_several_stores_have_to_be_told_apart(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "commitlog" / FIRST, tmp_path / "b" / "commitlog" / FIRST)
    with pytest.raises(UserError, match="say which"):
        log_files(tmp_path)


@pytest.mark.parametrize("find", [log_files, queue_files, index_files])
def test_nothing_to_inspect_is_a_sentence(find: object, tmp_path: Path) -> None:
    assert callable(find)
    with pytest.raises(UserError, match="no file named"):
        find(tmp_path)
    with pytest.raises(UserError, match="no such"):
        find(tmp_path / "nowhere")


def test_a_folder_that_may_not_be_read_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path / "consumequeue" / "T" / "0" / FIRST)

    def refuse(path: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(PermissionError, match="consumequeue"):
        queue_files(tmp_path)


def test_opening_never_writes(tmp_path: Path) -> None:
    touch(tmp_path / FIRST)
    with open_readonly(str(tmp_path / FIRST)) as region:
        assert (region.size, region.readonly) == (1, True)
    with pytest.raises(UserError, match="No such file"), open_readonly(str(tmp_path / "none")):
        raise AssertionError("opened")
