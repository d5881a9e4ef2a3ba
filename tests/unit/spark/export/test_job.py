"""Export to a dataset: all selected messages, completely or not at all, and the report."""

import itertools
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmap_ninja import RaggedMmap, StringsMmap

from turbopump.cli.bench.corpus import open_corpus
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage
from turbopump.spark.commands.parsers import export_parser
from turbopump.spark.export import job
from turbopump.spark.export.job import ExportOptions, ExportResult, main, options_of
from turbopump.spark.schema import COLUMNS
from turbopump.spark.selection import RowSelection
from turbopump.spark.session import JobError

NOW_MS = 1_700_000_000_000
Output = pytest.CaptureFixture[str]
BODIES = [b"", b"one", b"two" * 100, b"\xff\x00", b"5"]
COMPRESSED = 0x1


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Five messages of T, and one of a different topic."""
    root = str(tmp_path_factory.mktemp("store"))
    config = StoreConfig(
        root, mapped_file_size_commit_log=65_536, max_hash_slot_num=64, max_index_num=100
    )
    opened = Store.open(RealFiles(), config, InlineDisk(), NOW_MS)
    for number, body in enumerate(BODIES):
        tags = b"TAGS\x01red\x02" if number % 2 else b""
        message = NewMessage("T", number % 2, body or b"-", tags, 0, 0, NOW_MS - 9)
        assert opened.append(message, NOW_MS + number).log_offsets
    packed = NewMessage("Other", 0, b"plain text", b"", 0, 0, NOW_MS)
    assert opened.append(packed, NOW_MS).log_offsets
    opened.close(NOW_MS)
    return root


def column(folder: Path, name: str) -> list[Any]:
    manifest = json.loads((folder / "dataset.json").read_text())
    kind = manifest["columns"][name]
    if kind == "string":
        with closing(StringsMmap(folder / name)) as opened:
            return [opened[at] for at in range(len(opened))]
    if kind.startswith("ragged"):
        ragged = RaggedMmap(folder / name)
        return [bytes(ragged[at]) for at in range(len(ragged))]
    from mmap_ninja import numpy as ninja

    return list(np.asarray(ninja.open_existing(folder / name)).tolist())


def test_a_topic_as_a_dataset(store: str, tmp_path: Path, capsys: Output) -> None:
    target = tmp_path / "out"
    assert main([store, "-t", "T", "--format", "ninja", "-o", str(target)]) == 0
    total = sum(len(body or b"-") for body in BODIES)
    assert capsys.readouterr().out == f"{target}: 5 messages, {total} bytes of bodies\n"
    assert column(target, "body") == [body or b"-" for body in BODIES]
    assert column(target, "topic") == ["T"] * 5
    assert column(target, "tags") == ["", "red", "", "red", ""]
    assert column(target, "queue_id") == [0, 1, 0, 1, 0]
    assert column(target, "queue_offset") == [0, 0, 1, 1, 2]
    assert column(target, "store_ms") == [NOW_MS + number for number in range(5)]
    assert column(target, "born_ms") == [NOW_MS - 9] * 5
    assert column(target, "store") == [0] * 5
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "nothing is left beside it"


def test_the_manifest_describes_the_export(store: str, tmp_path: Path, capsys: Output) -> None:
    target = tmp_path / "out"
    words = "--all-topics", "--since", str(NOW_MS), "--queue", "0"
    assert main([store, *words, "--format", "ninja", "-o", str(target), "--json"]) == 0
    parsed = json.loads(capsys.readouterr().out)
    manifest = json.loads((target / "dataset.json").read_text())
    assert (
        manifest["rows"] == parsed["rows"] == 4 and manifest["body_bytes"] == parsed["body_bytes"]
    )
    assert manifest["turbopump_dataset"] == job.DATASET_VERSION
    assert (manifest["bodies"], manifest["stores"]) == ("stored", [store])
    assert (manifest["from_ms"], manifest["until_ms"], manifest["queue_ids"]) == (NOW_MS, None, [0])
    assert all((target / name).is_dir() for name in manifest["columns"])
    assert len(open_corpus(target)) == 4, "the load generator takes it"


def test_two_stores_are_told_apart(store: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert main([store, store, "-t", "Other", "--format", "ninja", "-o", str(target)]) == 0
    assert column(target, "store") == [0, 1]


def refused(capsys: Output, *words: str) -> tuple[int, str]:
    code = main([*words, "--format", "ninja"])
    found = capsys.readouterr()
    assert not found.out and found.err.count("\n") == 1
    return code, found.err.removeprefix("turbopump analyze export: ").rstrip("\n")


def test_nothing_to_export_leaves_nothing(store: str, tmp_path: Path, capsys: Output) -> None:
    target = tmp_path / "out"
    message = refused(capsys, store, "-t", "None", "-o", str(target))
    assert message == (1, "there is no such message")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-o", "x"), "no topics are selected: use -t or --all-topics"),
        (("-t", "T", "-o", "x", "--columns", "body,colour"), "there is no column 'colour'"),
        (("-t", "T", "-o", "/none/x"), "/none is no folder"),
        (("-t", "T", "-o", "/"), "/ is no place for a folder of its own"),
        (("-t", "T", "-o", "s3://bucket/x"), "s3://bucket/x: a dataset is mapped into memory"),
    ],
)
def test_stores_that_cannot_be_exported(
    store: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Output,
    words: tuple[str, ...],
    sentence: str,
) -> None:
    """The root of the file system as a target must not end in a traceback."""
    monkeypatch.chdir(tmp_path)
    code, message = refused(capsys, store, *words)
    assert code == 2 and message.startswith(sentence)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_none(tmp_path: Path, capsys: Output) -> None:
    code, message = refused(
        capsys, str(tmp_path / "gone"), "--all-topics", "-o", str(tmp_path / "x")
    )
    assert code == 2 and str(tmp_path / "gone") in message


def test_an_export_is_replaced_and_nothing_else(store: str, tmp_path: Path, capsys: Output) -> None:
    target, words = tmp_path / "out", ("--all-topics", "-o", str(tmp_path / "out"))
    assert main([store, "-t", "T", "--format", "ninja", "-o", str(target)]) == 0
    capsys.readouterr()
    code, message = refused(capsys, store, *words)
    assert code == 2 and message.startswith(f"{target} exists")
    assert main([store, *words, "--format", "ninja", "--overwrite"]) == 0
    assert json.loads((target / "dataset.json").read_text())["rows"] == 6
    (target / "dataset.json").unlink()
    capsys.readouterr()
    code, message = refused(capsys, store, *words, "--overwrite")
    assert (code, message) == (2, f"{target} is no export: it is not overwritten")


def test_options(store: str) -> None:
    given = export_parser().parse_args(
        [store, "-t", "T", "-o", "x", "--columns", "topic, body", "--plain-bodies", "--overwrite"]
    )
    found = options_of(given)
    assert found == ExportOptions(
        RowSelection((store,), ("T",)), "x", "parquet", ("topic", "body"), True, True
    )
    every = options_of(export_parser().parse_args([store, "--all-topics", "-o", "x"]))
    assert every.columns == COLUMNS and not every.plain_bodies


def test_the_text_about_an_export_without_bodies() -> None:
    result = ExportResult("x", "parquet", 1_234, None)
    assert result.lines() == ["x: 1,234 messages"]
    assert result.to_json() == {
        "target": "x",
        "format": "parquet",
        "rows": 1_234,
        "body_bytes": None,
    }


def test_parquet_needs_a_session(store: str) -> None:
    with pytest.raises(AssertionError, match="written by Spark"):
        job.run(None, ExportOptions(RowSelection((store,)), "x"))


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "large_binary"])
def test_bytes_of_a_part_of_an_array(kind: str) -> None:
    import pyarrow as pa

    values = pa.array(["front", "a", "", "ccc", "end"]).cast(getattr(pa, kind)())
    offsets, data = job._offsets_and_bytes(values.slice(1, 3))
    texts = [data[start:end].tobytes() for start, end in itertools.pairwise(offsets)]
    assert texts == [b"a", b"", b"ccc"]
    offsets, data = job._offsets_and_bytes(values.slice(2, 0))
    assert len(offsets) == 1
    assert len(job._offsets_and_bytes(pa.array([], getattr(pa, kind)()))[1]) == 0


@pytest.mark.parametrize("broken", [b"no zlib", b""])
def test_bodies_that_do_not_decompress(tmp_path: Path, capsys: Output, broken: bytes) -> None:
    config = StoreConfig(
        str(tmp_path / "s"),
        mapped_file_size_commit_log=65_536,
        max_hash_slot_num=64,
        max_index_num=100,
    )
    opened = Store.open(RealFiles(), config, InlineDisk(), NOW_MS)
    opened.append(NewMessage("T", 0, broken or b"x", b"", 0, COMPRESSED, NOW_MS), NOW_MS)
    opened.close(NOW_MS)
    words = str(tmp_path / "s"), "-t", "T", "-o", str(tmp_path / "out")
    code, message = refused(capsys, *words, "--plain-bodies")
    assert code == 2 and "T" in message and not (tmp_path / "out").exists()
    assert main([*words, "--format", "ninja"]) == 0, "as they are stored they can be had"


def test_a_failure_is_a_jobs(store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from turbopump.engine.types import StoreError

    def broken(*_: Any, **__: Any) -> Any:
        raise StoreError("the log is damaged at 5")

    monkeypatch.setattr(RowSelection, "read_arrow_batches", broken)
    with pytest.raises(JobError, match="the log is damaged at 5"):
        job.run(None, ExportOptions(RowSelection((store,)), str(tmp_path / "x"), "ninja"))
    assert list(tmp_path.iterdir()) == []
