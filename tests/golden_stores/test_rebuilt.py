"""Queues and index derived from RocketMQ's logs alone equal the ones RocketMQ wrote."""

from pathlib import Path
from typing import Any

import pytest
from tests.spark_stores import GOLDEN_NAMES

# Files are compared in pieces: an index file of default size has 420 MB, nearly all of it holes.
PIECE = 1 << 20


def same_content(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as left, other.open("rb") as right:
        while piece := left.read(PIECE):
            if piece != right.read(PIECE):
                return False
    return True


def files_below(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_rebuilt_from_the_log_alone(name: str, unpack: Any, tmp_path: Path) -> None:
    golden = unpack(name)
    topics = golden.batch_topics()
    rebuilt = golden.emptied(tmp_path / "rebuilt", "commitlog")
    rebuilt.open(topics).close(0)
    for kind in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
        theirs, ours = files_below(golden.root / kind), files_below(rebuilt.root / kind)
        assert theirs.keys() == ours.keys()
        for file_name, path in theirs.items():
            assert same_content(path, ours[file_name]), file_name
    # Index names are the times of their creation and differ; slots, entries and headers do not.
    theirs_index = sorted((golden.root / "index").iterdir())
    ours_index = sorted((rebuilt.root / "index").iterdir())
    assert len(theirs_index) == len(ours_index)
    for their_file, our_file in zip(theirs_index, ours_index, strict=True):
        assert same_content(their_file, our_file), their_file.name


@pytest.mark.parametrize("name", GOLDEN_NAMES)
@pytest.mark.parametrize("missing", ["consumequeue", "index"])
def test_missing_folder_is_rebuilt(name: str, missing: str, unpack: Any, tmp_path: Path) -> None:
    """Unlike RocketMQ, which leaves an index folder that is gone empty."""
    golden = unpack(name)
    golden.emptied(tmp_path / "taken", missing)
    store = golden.open()
    (line,) = golden.recovered("recovered")
    assert store.max_log_offset == line["maxPhyOffset"]
    store.close(0)
    theirs = sorted((tmp_path / "taken" / missing).rglob("*"))
    ours = sorted((golden.root / missing).rglob("*"))
    assert len(theirs) == len(ours) > 0
    for their_file, our_file in zip(theirs, ours, strict=True):
        assert their_file.is_dir() or same_content(their_file, our_file), their_file
