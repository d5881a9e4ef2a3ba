"""Names of topics from callers, the log or the disk never lead out of the queues' folder."""

from pathlib import Path
from typing import Any

import pytest

from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.segments import MappingPool
from turbopump.engine.disk.store_paths import (
    is_folder_name,
    queue_folder,
    queue_folders,
    topic_folder,
)
from turbopump.engine.queues.batch_queue import BatchQueues
from turbopump.engine.queues.queue_ext import QueueExtensions
from turbopump.engine.types import NewMessage, PutStatus, ReadStatus, StoreError

HOSTILE = [
    "",
    ".",
    "..",
    "/",
    "../",
    "../..",
    "../../victim",
    "/etc",
    "a/b",
    "T/0",
    "..\0",
    "T\0",
    "t" * 256,
    "主" * 86,
    "\ud800",
    "\udcff" * 256,
]
"""Invalid folder names: they lead elsewhere, are two path components, or are too long for a
disk."""


def tree(root: Path) -> set[str]:
    """Every file and folder below `root`."""
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@pytest.mark.parametrize("name", HOSTILE)
def test_impossible_names_of_a_folder(name: str) -> None:
    assert not is_folder_name(name)
    for make in (lambda: topic_folder("q", name), lambda: queue_folder("q", name, 0)):
        with pytest.raises(StoreError, match="no folder can be named"):
            make()


@pytest.mark.parametrize(
    "name", ["T", "%RETRY%g", "a|b", "a*b", "...", "..a", " ", "主" * 85, "\udcff", "t" * 255]
)
def test_possible_names_of_a_folder(name: str) -> None:
    assert topic_folder("q", name) == f"q/{name}"
    assert queue_folder("q", name, 7) == f"q/{name}/7"


def test_queue_ids_that_no_queue_has() -> None:
    for queue_id in (-1, 1 << 31):
        with pytest.raises(StoreError):
            queue_folder("q", "T", queue_id)


def test_only_one_name_is_the_folder_of_a_queue(tmp_path: Path) -> None:
    for name in ("0", "00", "12", "a", "-1", "١", "2147483648", "9" * 200):
        (tmp_path / "T" / name).mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    assert sorted(queue_folders(RealFiles(), str(tmp_path))) == [("T", 0), ("T", 12)]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_deletion_of_no_topic_removes_nothing(
    stores: Any, put: Any, settle: Any, name: str
) -> None:
    victim = stores.root.parent / "victim"
    victim.mkdir()
    (victim / "file").write_bytes(b"x")
    store = stores.open()
    put(store, "T", 0, b"kept")
    settle(store)
    before = tree(stores.root.parent)
    with pytest.raises(StoreError, match="no folder can be named"):
        store.delete_topic(name)
    assert tree(stores.root.parent) >= before
    assert store.deletions.former_life_ends() == {}
    assert store.read("T", 0, 0, 32).status is ReadStatus.FOUND
    assert put(store, "T", 0, b"goes on").status is PutStatus.PUT_OK


@pytest.mark.parametrize("family", [BatchQueues, QueueExtensions])
@pytest.mark.parametrize("name", ["..", ".", "", "../victim", "t" * 256])
def test_every_family_of_queues_refuses_it_by_itself(
    tmp_path: Path, family: Any, name: str
) -> None:
    for folder in ("victim", "root/commitlog", f"root/{family.__module__}"):
        (tmp_path / folder).mkdir(parents=True)
    files = RealFiles()
    queues = family(files, str(tmp_path / "root"), 4096, MappingPool(files, 8))
    (tmp_path / "root" / Path(queues.folder).name / "T").mkdir(parents=True)
    before = tree(tmp_path)
    with pytest.raises(StoreError):
        queues.forget_topic(name)
    assert tree(tmp_path) == before


def test_a_record_of_a_topic_that_no_folder_can_have_stops_nothing(stores: Any, put: Any) -> None:
    """A master's bytes may hold such a topic, and a replica dispatches all bytes it receives."""
    store = stores.open()
    names = ["%RETRY%" + "g" * 300, "..", "../x", "a/b"]
    log, dispatcher = store._log, store._dispatcher
    for name in names:
        message = NewMessage(name, 0, b"body", b"")
        log.append(message, b"", 0, 1_700_000_000_000)
    appended = put(store, "T", 0, b"behind")
    assert appended.status is PutStatus.PUT_OK
    assert dispatcher.position == log.end
    assert dispatcher.stalled is None
    assert store.topics() == ["T"]
    store.close(1_700_000_000_000)
    assert stores.open().topics() == ["T"]
