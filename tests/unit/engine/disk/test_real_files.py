"""The operating system's files: mappings that outlive names, reserved blocks, locks, many syncs."""

import contextlib
import errno
import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.engine.conftest import NOW_MS

from turbopump.engine.disk import real_files as module
from turbopump.engine.disk.real_files import RealFiles


def test_a_new_file_is_full_size_sparse_and_zero(tmp_path: Path) -> None:
    path = f"{tmp_path}/new"
    mapped = RealFiles().create(path, 1 << 20)
    assert os.stat(path).st_size == mapped.size == mapped.region.size == 1 << 20
    assert os.stat(path).st_blocks == 0
    assert mapped.region.is_zero(0, 1 << 20)
    mapped.reserve(0, 1 << 16)
    assert os.stat(path).st_blocks * 512 >= 1 << 16
    mapped.reserve(5, 5)
    with pytest.raises(FileExistsError):
        RealFiles().create(path, 10)
    mapped.close()


def test_stored_lines_are_read_by_others(tmp_path: Path) -> None:
    path = f"{tmp_path}/file"
    mapped = RealFiles().create(path, 8192)
    mapped.region.write(5000, b"here")
    mapped.sync(5000, 5004)
    assert Path(path).read_bytes()[5000:5004] == b"here"
    other = RealFiles().open(path, readonly=True)
    assert other.region.read(5000, 4) == b"here"
    with pytest.raises(TypeError):
        other.region.write(0, b"x")
    other.close()
    mapped.close()


def test_views_outlive_mapping_and_name(tmp_path: Path) -> None:
    path = f"{tmp_path}/file"
    mapped = RealFiles().create(path, 4096)
    mapped.region.write(0, b"still here")
    view = mapped.region.view(0, 10)
    mapped.close()
    RealFiles().remove(path)
    del mapped
    gc.collect()
    assert bytes(view) == b"still here"


def test_an_empty_file_cannot_be_mapped(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(OSError, match="cannot be mapped"):
        RealFiles().open(f"{tmp_path}/empty")


def test_open_files_do_not_leak_when_creation_fails(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError):
        RealFiles().create(f"{tmp_path}/huge", 1 << 62)
    assert not (tmp_path / "huge").exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_lock_keeps_out_a_second_holder_of_the_same_process(tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    Path(path).write_text("something longer than that")
    lock = RealFiles().lock(path, b"lock")
    assert Path(path).read_bytes() == b"lock"
    with pytest.raises(BlockingIOError):
        RealFiles().lock(path, b"lock")
    # A POSIX record lock would be lost when any descriptor of the file is closed.
    Path(path).read_bytes()
    with pytest.raises(BlockingIOError):
        RealFiles().lock(path, b"lock")
    lock.release()
    RealFiles().lock(path, b"lock").release()


def test_a_removed_lock_file_opens_the_folder_to_no_process(tmp_path: Path) -> None:
    files, path = RealFiles(), f"{tmp_path}/lock"
    first = files.lock(path, b"lock")
    (tmp_path / "lock").unlink()
    with pytest.raises(BlockingIOError):
        files.lock(path, b"lock")
    first.release()
    files.lock(path, b"lock").release()


def test_write_replaces_or_overwrites(tmp_path: Path) -> None:
    files, path = RealFiles(), f"{tmp_path}/file"
    files.write(path, b"0123456789")
    files.write(path, b"ab", 3)
    assert files.read(path) == b"012ab56789"
    files.write(path, b"new")
    assert files.read(path) == b"new"
    files.resize(path, 5)
    assert files.read(path) == b"new\0\0"


def test_folders(tmp_path: Path) -> None:
    files = RealFiles()
    assert files.list_folder(f"{tmp_path}/none") == []
    files.make_folders(f"{tmp_path}/a/b")
    files.make_folders(f"{tmp_path}/a/b")
    files.write(f"{tmp_path}/a/2", b"")
    files.write(f"{tmp_path}/a/1", b"")
    assert files.list_folder(f"{tmp_path}/a") == ["1", "2", "b"]
    assert files.list_folder(f"{tmp_path}/a/1") == []
    assert files.is_folder(f"{tmp_path}/a/b") and not files.is_folder(f"{tmp_path}/a/1")
    files.rename(f"{tmp_path}/a/1", f"{tmp_path}/a/2")
    files.sync_folder(f"{tmp_path}/a")
    files.remove_folder(f"{tmp_path}/a")
    files.remove_folder(f"{tmp_path}/a")
    assert not files.exists(f"{tmp_path}/a")


@pytest.mark.parametrize("limit", [0, 1000])
def test_many_are_synced_and_the_gone_are_passed_over(
    tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SYNC_ONE_BY_ONE_MAX", limit)
    files = RealFiles()
    paths = [f"{tmp_path}/{number}" for number in range(5)]
    for path in paths:
        files.write(path, b"x")
    files.remove(paths[2])
    files.sync_all(paths, [str(tmp_path), f"{tmp_path}/gone"])
    files.sync_all([], [])


def test_numbers_of_the_machine(tmp_path: Path) -> None:
    files = RealFiles()
    assert 0.0 < files.used_ratio(str(tmp_path)) <= 1.0
    assert 64 <= files.mapping_limit() <= module.MAPPED_FILES_MAX
    assert files.memory_size() > 1 << 20


def test_the_tail_of_a_file_ends_at_the_hole_behind_its_data(tmp_path: Path) -> None:
    files, path = RealFiles(), f"{tmp_path}/file"
    mapped = files.create(path, 1 << 20)
    assert files.read_tail(path, 4096) == (0, b"")
    mapped.reserve(0, 1 << 16)
    mapped.region.write(4096, b"page two")
    start, data = files.read_tail(path, 1 << 16)
    assert start == 0
    assert data.rstrip(b"\0") == bytes(4096) + b"page two"
    assert len(data) < 1 << 20
    mapped.region.write((1 << 20) - 3, b"end")
    assert files.read_tail(path, 4) == ((1 << 20) - 4, b"\0end")
    mapped.close()


def test_files_of_a_folder_are_listed_with_their_sizes(tmp_path: Path) -> None:
    files = RealFiles()
    (tmp_path / "b").write_bytes(b"12345")
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    assert files.list_files(f"{tmp_path}") == [("a", 0), ("b", 5)]
    assert files.list_files(f"{tmp_path}/none") == files.list_files(f"{tmp_path}/a") == []


def test_a_file_that_goes_while_its_folder_is_listed_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a listing during the removal of the oldest log file would find no log at all."""
    for name in "abc":
        (tmp_path / name).write_bytes(b"12345")
    scan = os.scandir

    @contextlib.contextmanager
    def removing(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with scan(path) as entries:
            found = list(entries)
        (tmp_path / "a").unlink()
        yield found

    monkeypatch.setattr(os, "scandir", removing)
    assert RealFiles().list_files(f"{tmp_path}") == [("b", 5), ("c", 5)]


def test_a_new_file_may_have_blocks_for_its_beginning(tmp_path: Path) -> None:
    path = f"{tmp_path}/new"
    mapped = RealFiles().create(path, 1 << 20, 4096)
    assert 4096 <= os.stat(path).st_blocks * 512 < 1 << 16
    assert (os.stat(path).st_size, mapped.region.is_zero(0, 1 << 20)) == (1 << 20, True)
    with pytest.raises(FileExistsError) as caught:
        RealFiles().create(path, 1 << 20, 4096)
    assert caught.value.filename == path
    assert os.stat(path).st_size == 1 << 20, "the file that existed stays"


def test_a_file_that_cannot_be_made_is_not_left(tmp_path: Path) -> None:
    path = f"{tmp_path}/large"
    with pytest.raises(OSError, match="large") as caught:
        RealFiles().create(path, 1 << 62, 4096)
    assert caught.value.errno == errno.EFBIG
    assert not os.path.exists(path)


def test_a_limit_that_is_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{tmp_path}/file"
    RealFiles().create(path, 4096).close()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(path, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        with pytest.raises(OSError, match=rf"more than {free} files \(ulimit -n\)") as caught:
            RealFiles().open(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (caught.value.errno, caught.value.filename) == (errno.EMFILE, path)

    def no_mapping(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(module, "Mapping", no_mapping)
    with pytest.raises(OSError, match=r"more than \d+ mappings \(vm.max_map_count\)"):
        RealFiles().open(path)


def test_mappings_stay_below_every_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, limit = RealFiles(), tmp_path / "max_map_count"
    monkeypatch.setattr(module, "MAX_MAP_COUNT", str(limit))
    monkeypatch.setattr(RealFiles, "memory_size", lambda self: 8 << 30)
    for allowed, wanted in (
        ("65530\n", 49_146),
        ("300\n", 225),
        ("10\n", 64),
        ("9999999\n", 65_536),
        ("none", 16_384),
    ):
        limit.write_text(allowed)
        assert files.mapping_limit() == wanted
    limit.write_text("65530")
    monkeypatch.setattr(RealFiles, "memory_size", lambda self: 1 << 30)
    assert files.mapping_limit() == 16_384


def test_mapped_files_have_no_descriptors(tmp_path: Path) -> None:
    """More files than the process may open are all synced."""
    files, before = RealFiles(), resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(tmp_path, os.O_RDONLY)
    os.close(free)
    paths = [f"{tmp_path}/{number}" for number in range(20)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, before[1]))
    try:
        made = [files.create(path, 8192) for path in paths]
        opened = [files.open(path, readonly=True) for path in paths]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for number, (one, other) in enumerate(zip(made, opened, strict=True)):
        one.region.write(5000, b"%d" % number)
        one.sync(5000, 5002)
        assert files.read(one.path)[5000:5002].rstrip(b"\0") == b"%d" % number
        assert other.region.read(5000, 2).rstrip(b"\0") == b"%d" % number
        one.close()
        other.close()


def memory_flags(path: str) -> set[str]:
    """The kernel's flags of this process's mapping of a file."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    assert any(line.endswith(path) for line in lines), "not mapped"
    return next(set(line.split()[1:]) for line in lines if line.startswith("VmFlags"))


def test_index_files_are_read_here_and_there_and_log_files_are_not(stores: Any, put: Any) -> None:
    stores.configure(max_index_num=1000)
    store = stores.open()
    put(store, KEYS="k")
    store.close(NOW_MS)
    store = stores.open()
    assert len(store.query("T", "k", 10, 0, 1 << 60).slices) == 1
    (name,) = os.listdir(f"{stores.root}/index")
    assert "rr" in memory_flags(f"{stores.root}/index/{name}")
    assert "rr" not in memory_flags(f"{stores.root}/commitlog/{'0' * 20}")


def test_an_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{tmp_path}/file"
    files = RealFiles()
    mapped = files.create(path, 1 << 20)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, old[1]))
    try:
        for fails in (
            lambda: files.write(path, b"x", 1 << 20),
            lambda: files.resize(path, 2 << 20),
        ):
            with pytest.raises(OSError, match="File too large") as caught:
                fails()
            assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)

    def broken(_descriptor: int, *_range: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    monkeypatch.setattr(os, "posix_fallocate", broken)
    for fails, name in (
        (lambda: files.sync(path), path),
        (lambda: files.sync_folder(str(tmp_path)), str(tmp_path)),
        (lambda: mapped.reserve(0, 8192), path),
    ):
        with pytest.raises(OSError, match="Input/output error") as caught:
            fails()
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, name)
    mapped.close()


def test_a_slow_sync_is_told(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    path = f"{tmp_path}/file"
    files = RealFiles()
    mapped = files.create(path, 4096)
    clock = iter([0.0, 1.0, 10.0, 11.1, 20.0, 36.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    files.sync(path)
    mapped.sync(0, 4096)
    files.sync_folder(str(tmp_path))
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [f"{path}: its sync took 1.1 s", f"{tmp_path}: its sync took 16.0 s"]
    mapped.close()


def test_syncs_are_counted_for_each_node(tmp_path: Path) -> None:
    """A healthy disk must not count for the disk of a different node in the same process."""
    one, other = RealFiles(), RealFiles()
    path = str(tmp_path / "file")
    one.write(path, b"x")
    one.sync(path)
    mapped = one.open(path)
    mapped.sync(0, 1)
    mapped.close()
    assert (one.syncs_returned(), other.syncs_returned()) == (2, 0)
