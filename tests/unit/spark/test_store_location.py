"""Stores in file systems of pyarrow: listings, reads in pieces, invalid places."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from turbopump.spark.store_location import STEP_BYTES, StoreFolder, split_location


class Noted(fs.FileSystemHandler):
    """A file system in memory that behaves like an object store and records reads."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.opened: list[str] = []

    def get_type_name(self) -> str:
        return "noted"

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        if path in self.files:
            return fs.FileInfo(path, fs.FileType.File, size=len(self.files[path]))
        inside = any(one.startswith(f"{path}/") for one in self.files)
        return fs.FileInfo(path, fs.FileType.Directory if inside else fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        base = f"{selector.base_dir}/"
        names = {one[len(base) :].split("/")[0] for one in self.files if one.startswith(base)}
        if not names and not selector.allow_not_found:
            raise FileNotFoundError(selector.base_dir)
        return [self._info(base + name) for name in names]

    def open_input_file(self, path: str) -> pa.NativeFile:
        self.opened.append(path)
        return pa.PythonFile(pa.BufferReader(self.files[path]))

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is written")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refused
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refused
    open_input_stream = normalize_path = _refused

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


@pytest.fixture
def noted() -> Noted:
    return Noted({"b/log/2": b"second!", "b/log/10": b"tenth", "b/log/sub/x": b"x", "b/log/1": b""})


@pytest.fixture
def folder(noted: Noted) -> StoreFolder:
    return StoreFolder(fs.PyFileSystem(noted))


def test_files_are_listed_by_name_and_folders_are_none(folder: StoreFolder) -> None:
    assert folder.list_files("b/log") == [("1", 0), ("10", 5), ("2", 7)]
    assert folder.list_files("b/none") == [], "a store may lack a folder"


def test_a_small_file_is_read_whole(folder: StoreFolder, noted: Noted) -> None:
    assert folder.read("b/log/10") == b"tenth" and folder.read("b/log/1") == b""
    assert noted.opened == ["b/log/10", "b/log/1"]


@pytest.mark.parametrize("path", ["b/log/3", "b/log", "b", "none"])
def test_an_absent_file(folder: StoreFolder, noted: Noted, path: str) -> None:
    for read in (folder.read, folder.open):
        with pytest.raises(FileNotFoundError, match=path):
            read(path)
    assert not noted.opened, "file systems may raise any error: they are not queried"


def test_pieces_of_a_file(folder: StoreFolder) -> None:
    opened = folder.open("b/log/2")
    assert (opened.size, opened.step) == (7, STEP_BYTES)
    region = opened.region(1, 4)
    assert region.read(0, 3) == b"eco"
    with pytest.raises(OSError, match=r"^b/log/2: bytes from 7 to 9 cannot be read$"):
        opened.region(5, 9)
    opened.close()
    with pytest.raises(ValueError, match="closed"):
        opened.region(0, 1)


def test_a_log_that_shrinks_while_it_is_read(noted: Noted, folder: StoreFolder) -> None:
    """An object that was replaced by a shorter one is an error, not a shorter log."""
    opened = folder.open("b/log/2")
    noted.files["b/log/2"] = b"s"
    assert opened.region(0, 7).read(0, 7) == b"second!", "open files stay"
    again = folder.open("b/log/2")
    with pytest.raises(OSError, match="bytes from 1 to 7"):
        again.region(0, 7)


@pytest.mark.parametrize("location", ["/a/b", "a", "", "a:/b", "1s://x", "c:\\x", "://x"])
def test_paths_of_this_machine(location: str) -> None:
    assert split_location(location) == (location, None)


def test_locations_with_a_scheme(tmp_path: Path) -> None:
    assert split_location(f"file://{tmp_path}/") == (str(tmp_path), None), "it is a path, too"
    path, system = split_location("mock:///a/b/")
    assert path.strip("/") == "a/b" and isinstance(system, StoreFolder)
    with pytest.raises(ValueError, match="nosuch"):
        split_location("nosuch://a")
