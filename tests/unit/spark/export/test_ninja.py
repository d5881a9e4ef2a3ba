"""Datasets written as a stream are what mmap-ninja writes, and reads."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from mmap_ninja import RaggedMmap, StringsMmap
from mmap_ninja import numpy as ninja_numpy

from turbopump.spark.export import ninja
from turbopump.spark.export.ninja import Numbers, Ragged, Strings


def sliced(values: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and bytes as in an Arrow array that is part of a larger buffer."""
    sizes = np.cumsum([7, *map(len, values)])
    return sizes.astype(np.int64), np.frombuffer(b"........"[:7] + b"".join(values), np.uint8)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


BATCHES = [
    [[b"one", b"", b"three"], [], [b"4"]],
    [[b""], [b"", b""]],
    [[b"\xff" * 70_000, b"x"]],
]


@pytest.mark.parametrize("batches", BATCHES)
def test_ragged_bytes_are_those_of_mmap_ninja(tmp_path, batches) -> None:
    ours = Ragged(tmp_path / "ours")
    for batch in batches:
        ours.append(*sliced(batch))
    ours.finish()
    flat = [np.frombuffer(value, np.uint8) for batch in batches for value in batch]
    RaggedMmap.from_lists(tmp_path / "theirs", flat)
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "theirs")
    read = RaggedMmap(tmp_path / "ours")
    assert [bytes(read[row]) for row in range(len(read))] == [bytes(value) for value in flat]


def test_mmap_ninja_makes_and_extends_every_array(tmp_path, monkeypatch) -> None:
    """The library makes the files; only bodies are appended to its arrays directly."""
    called: dict[str, set[str]] = {"from_ndarray": set(), "extend_dir": set()}
    for name, folders in called.items():
        before = getattr(ninja_numpy, name)

        def noted(folder, values, before=before, folders=folders):
            folders.add(folder.name)
            return before(folder, values)

        monkeypatch.setattr(ninja_numpy, name, noted)
    monkeypatch.setattr(ninja, "WRITE_BUFFER", 16)
    ours = Ragged(tmp_path / "ours")
    for batch in BATCHES[0] * 2:
        ours.append(*sliced(batch))
    ours.finish()
    columns = {"starts", "ends", "shapes", "flattened_shapes"}
    assert called == {"from_ndarray": {"ours", *columns}, "extend_dir": columns}


def test_strings_are_those_of_mmap_ninja(tmp_path) -> None:
    ours = Strings(tmp_path / "ours")
    ours.append(*sliced(["é".encode(), b""]))
    ours.append(*sliced([b"abc"]))
    ours.finish()
    StringsMmap.from_strings(tmp_path / "theirs", ["é", "", "abc"]).close()
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "theirs")


def test_strings_without_a_byte_can_be_opened(tmp_path) -> None:
    ours = Strings(tmp_path / "ours")
    ours.append(*sliced([b"", b""]))
    ours.finish()
    with closing(StringsMmap(tmp_path / "ours")) as read:
        assert list(read[:]) == ["", ""]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_numbers_are_those_of_mmap_ninja(tmp_path, dtype) -> None:
    ours = Numbers(tmp_path / "ours", dtype)
    ours.append(np.arange(5, dtype=np.int32)[::2])
    ours.append(np.array([], np.int32))
    ours.append(np.array([-1], np.int32))
    ours.finish()
    ninja_numpy.from_ndarray(tmp_path / "theirs", np.array([0, 2, 4, -1], dtype))
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "theirs")


def test_numbers_that_do_not_fit_are_refused(tmp_path) -> None:
    with closing(Numbers(tmp_path / "ours", "int32")) as ours, pytest.raises(TypeError):
        ours.append(np.array([1 << 40]))
