"""The files with the id that controllers assigned to a broker."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sim.disk import PowerCut, SimDisk

from turbopump.broker.ha.control.identity import Applied, IdentityError, IdentityFiles
from turbopump.engine.disk.real_files import RealFiles

PATH = "/store/brokerIdentity"
CODE = "127.0.0.1:10911;1700000000000"


def real(folder: Path, cluster: str = "c", name: str = "b") -> IdentityFiles:
    return IdentityFiles(RealFiles(), f"{folder}/brokerIdentity", cluster, name)


def test_files_are_as_rocketmq_writes_them(tmp_path: Path) -> None:
    files = real(tmp_path)
    files.save_applied(Applied(2, CODE))
    assert (tmp_path / "brokerIdentity-temp").read_text() == f"c#b#2#{CODE}"
    files.save(2)
    assert (tmp_path / "brokerIdentity").read_text() == "c#b#2"
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["brokerIdentity", "brokerIdentity-temp"], "the code is kept"


def test_a_saved_identity_is_found(tmp_path: Path) -> None:
    files = real(tmp_path)
    assert files.load() is None
    assert files.load_applied() is None
    files.save_applied(Applied(7, CODE))
    assert real(tmp_path).load_applied() == Applied(7, CODE)
    files.save(7)
    assert real(tmp_path).load() == 7
    assert real(tmp_path).load_applied() == Applied(7, CODE), "it proves whose the id is"


def test_a_forgotten_id_is_kept_aside(tmp_path: Path) -> None:
    files = real(tmp_path)
    files.save(3)
    files.remove_files()
    assert real(tmp_path).load() is None
    assert (tmp_path / "brokerIdentity-forgotten").read_text() == "c#b#3"


@pytest.mark.parametrize(("cluster", "name"), [("other", "b"), ("c", "other")])
def test_files_of_another_broker_are_refused(tmp_path: Path, cluster: str, name: str) -> None:
    real(tmp_path).save(1)
    with pytest.raises(IdentityError, match=r"is of broker b of cluster c, not of .*new store"):
        real(tmp_path, cluster, name).load()


@pytest.mark.parametrize(
    "content",
    [b"c#b", b"c#b#x", b"c#b#0", b"c#b#-1", b"c#b#1#2", b"\xff\xfe", b"c#b#" + b"1" * 5_000],
)
def test_damage_is_named_and_not_guessed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "brokerIdentity").write_bytes(content)
    with pytest.raises(IdentityError, match="brokerIdentity is damaged"):
        real(tmp_path).load()


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b"\n"])
def test_an_empty_file_of_a_java_broker_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "brokerIdentity").write_bytes(content)
    assert real(tmp_path).load() is None


def saved(files: IdentityFiles) -> None:
    files.save_applied(Applied(5, CODE))
    files.save(5)


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_a_crash_anywhere_leaves_a_usable_identity(power: bool, seed: int) -> None:
    """R31: an assigned id is never lost, and the broker never invents one."""
    for cut in range(40):
        disk = SimDisk(random.Random(f"{seed} {cut}"), lambda: 0)
        disk.make_folders("/store")
        disk.sync_folder("/")
        done: list[str] = []
        disk.kill, disk.cut_after = not power, cut
        try:
            files = IdentityFiles(disk, PATH, "c", "b")
            files.save_applied(Applied(5, CODE))
            done.append("asked")
            files.save(5)
            done.append("given")
        except PowerCut:
            pass
        else:
            disk.end()
        ended = len(done) == 2
        disk.restart()
        files = IdentityFiles(disk, PATH, "c", "b")
        known, applied = files.load(), files.load_applied()
        assert known in (None, 5)
        assert applied in (None, Applied(5, CODE))
        if "given" in done:
            assert known == 5
        elif "asked" in done:
            assert known == 5 or applied is not None, "the id may be given: it must not be lost"
        if ended:
            return
    raise AssertionError("it never came to an end")


def test_forgetting_survives_a_crash() -> None:
    for cut in range(20):
        disk = SimDisk(random.Random(cut), lambda: 0)
        disk.make_folders("/store")
        disk.sync_folder("/")
        saved(IdentityFiles(disk, PATH, "c", "b"))
        disk.cut_after = cut
        gone: Callable[[], None] = IdentityFiles(disk, PATH, "c", "b").remove_files
        try:
            gone()
        except PowerCut:
            disk.restart()
            assert IdentityFiles(disk, PATH, "c", "b").load() in (None, 5)
            continue
        disk.end()
        disk.restart()
        assert IdentityFiles(disk, PATH, "c", "b").load() is None
        return
    raise AssertionError("it never came to an end")
