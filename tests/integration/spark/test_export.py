"""Topics that real clients sent to a real broker, exported in both formats, and sent again."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from mmap_ninja import RaggedMmap, StringsMmap
from mmap_ninja import numpy as ninja_numpy

import turbopump
from turbopump.spark import read_arrow
from turbopump.testing import running_cluster

Command = Callable[..., tuple[int, str, str]]
PLAIN = {f"Orders-{number}": b"%d " % number * (1 + number * 40) for number in range(60)}
"""Bodies by key; those over 4096 bytes go compressed."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The store of a broker that runs on."""

    async def send(namesrv: str) -> None:
        async with turbopump.Producer("export", namesrv=[namesrv]) as producer:
            for key, body in PLAIN.items():
                message = turbopump.Message("Orders", body, tags=f"t{len(body) % 3}", keys=[key])
                await producer.send(message)
                await producer.send(turbopump.Message("Other", b"other"))

    with running_cluster(tmp_path_factory.mktemp("export")) as cluster:
        cluster.run(send(cluster.namesrv))
        (folder,) = {path.parent for path in cluster.data.rglob("commitlog")}
        yield str(folder)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process: (exit code, output, errors)."""
    from turbopump.cli.app import run

    monkeypatch.setattr("turbopump.spark.progress.LINE_S", 600.0)  # a busy machine is no output

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["turbopump", *arguments])
        with pytest.raises(SystemExit) as ended:
            run()
        written = capsys.readouterr()
        return int(ended.value.code or 0), written.out, written.err

    return call


def table(store: str) -> list[dict[str, Any]]:
    reader = read_arrow(store, topics=["Orders"])
    return list(reader.read_all().to_pylist())


def bodies_of(folder: Path) -> list[bytes]:
    found = RaggedMmap(folder / "body")
    return [bytes(found[row]) for row in range(len(found))]


def test_a_dataset_has_the_rows_of_the_table(store, command, tmp_path) -> None:
    target = tmp_path / "orders"
    code, out, err = command(
        "analyze", "export", store, "-t", "Orders", "-o", str(target), "--format", "ninja", "--json"
    )
    rows = table(store)
    assert (code, err) == (0, "") and len(rows) == len(PLAIN)
    stored = sum(row["body_size"] for row in rows)
    assert json.loads(out) == {
        "target": str(target),
        "format": "ninja",
        "rows": 60,
        "body_bytes": stored,
    }
    assert bodies_of(target) == [row["body"] for row in rows]
    for name in ("queue_id", "queue_offset", "log_offset", "size", "body_size", "sys_flag"):
        found = ninja_numpy.open_existing(target / name)
        assert found.tolist() == [row[name] for row in rows], name
    for name, column in (("born_ms", "born_time"), ("store_ms", "store_time")):
        times = [round(row[column].timestamp() * 1000) for row in rows]
        assert ninja_numpy.open_existing(target / name).tolist() == times
    for name in ("topic", "tags", "keys"):
        with closing(StringsMmap(target / name, mode="rb")) as texts:
            assert list(texts[:]) == [row[name] for row in rows]
    about = json.loads((target / "dataset.json").read_text())
    assert (about["rows"], about["bodies"], about["topics"]) == (60, "stored", ["Orders"])
    assert set(about["columns"]) == {path.name for path in target.iterdir() if path.is_dir()}


def test_plain_bodies_are_those_that_were_sent(store, command, tmp_path) -> None:
    target = tmp_path / "plain"
    options = ["-o", str(target), "--format", "ninja", "--plain-bodies"]
    code, _, _ = command("analyze", "export", store, "-t", "Orders", *options)
    assert code == 0 and bodies_of(target) == list(PLAIN.values())
    assert not any(ninja_numpy.open_existing(target / "sys_flag"))


def test_parquet_has_the_rows_of_the_table(spark, store, command, tmp_path) -> None:
    target = tmp_path / "orders"
    code, out, err = command("analyze", "export", store, "-t", "Orders", "-o", str(target))
    assert (code, err) == (0, "")
    assert out.startswith(f"{target}: 60 messages, ")
    found = pq.read_table(target).to_pylist()
    assert sorted(found, key=lambda row: row["log_offset"]) == table(store)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders"]


def test_parquet_of_plain_bodies_and_some_columns(spark, store, command, tmp_path) -> None:
    target = tmp_path / "some"
    options = ["-o", str(target), "--plain-bodies", "--columns", "keys,body,body_size,sys_flag"]
    assert command("analyze", "export", store, "-t", "Orders", *options)[0] == 0
    rows = pq.read_table(target).to_pylist()
    assert {row["keys"]: row["body"] for row in rows} == PLAIN
    assert all(row["body_size"] == len(row["body"]) for row in rows)
    assert {row["sys_flag"] for row in rows} == {0}
    assert set(rows[0]) == {"keys", "body", "body_size", "sys_flag"}


@pytest.mark.parametrize("kind", ["ninja", "parquet"])
def test_limits_mean_the_same_with_spark_and_without(kind, spark, store, command, tmp_path) -> None:
    rows = table(store)
    first, last = rows[20], rows[40]
    queue = first["queue_id"]
    limits = [
        "--queue",
        str(queue),
        "--min-log-offset",
        str(first["log_offset"]),
        "--max-log-offset",
        str(last["log_offset"]),
        "--since",
        first["store_time"].isoformat(),
        "--until",
        last["store_time"].isoformat(),
    ]
    begin, end = first["store_time"], last["store_time"]
    wanted = [
        row["log_offset"]
        for row in rows[20:41]
        if row["queue_id"] == queue and begin <= row["store_time"] < end
    ]
    target = tmp_path / "some"
    given = ["analyze", "export", store, "-t", "Orders", "-o", str(target), "--format", kind]
    assert command(*given, *limits)[0] == 0
    if kind == "ninja":
        found = ninja_numpy.open_existing(target / "log_offset").tolist()
    else:
        found = sorted(pq.read_table(target)["log_offset"].to_pylist())
    assert found == wanted and wanted


def test_several_stores_lie_behind_each_other(store, command, tmp_path) -> None:
    target = tmp_path / "twice"
    options = ["-t", "Other", "-o", str(target), "--format", "ninja"]
    assert command("analyze", "export", store, store, *options)[0] == 0
    assert ninja_numpy.open_existing(target / "store").tolist() == [0] * 60 + [1] * 60


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["-t", "none"], 1, "there is no such message"),
        ([], 2, "use -t or --all-topics"),
        (["-t", "Orders", "--columns", "body,none"], 2, "no column 'none'"),
        (["-t", "Orders", "-o", "s3://bucket/x"], 2, "it is a folder"),
        (["-t", "Orders", "-o", "/proc/none/x"], 2, "/proc/none is no folder"),
    ],
)
def test_an_impossible_option_is_a_sentence(
    arguments, code, word, store, command, tmp_path
) -> None:
    target = ["-o", str(tmp_path / "out"), "--format", "ninja"]
    found = command("analyze", "export", store, *target, *arguments)
    assert found[:2] == (code, "") and word in found[2] and found[2].count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["ninja", "parquet"])
def test_an_invalid_store_is_a_sentence(kind, spark, command, tmp_path) -> None:
    options = ["-t", "x", "--format", kind, "-o", str(tmp_path / "out")]
    code, out, err = command("analyze", "export", str(tmp_path / "none"), *options)
    assert (code, out) == (2, "") and "none" in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_damage_is_named_by_file_and_position(spark, store, command, tmp_path) -> None:
    """The same sentence from a worker of Spark and without Spark."""
    copy = tmp_path / "copy"
    log = min(Path(store, "commitlog").iterdir())
    rows = table(store)
    data = bytearray(log.read_bytes()[: rows[-1]["log_offset"] + rows[-1]["size"]])
    data[rows[30]["log_offset"] + 4] ^= 0xFF
    (copy / "commitlog").mkdir(parents=True)
    (copy / "commitlog" / log.name).write_bytes(data)
    for kind in ("ninja", "parquet"):
        options = ["-t", "Orders", "--format", kind, "-o", str(tmp_path / kind)]
        code, _, err = command("analyze", "export", str(copy), *options)
        assert code == 2 and f"is damaged at byte {rows[30]['log_offset']}" in err
        assert err.count("\n") == 1
        assert not (tmp_path / kind).exists()


@pytest.mark.parametrize("kind", ["ninja", "parquet"])
def test_an_export_is_sent_again(kind, spark, store, command, tmp_path) -> None:
    target = tmp_path / "out"
    options = ["--format", kind, "--plain-bodies", "-o", str(target)]
    assert command("analyze", "export", store, "-t", "Orders", *options)[0] == 0
    with running_cluster(tmp_path / "other") as cluster:
        load = ["-n", cluster.namesrv, "-t", "Again", "-q", "60", "-w", "3", "--json"]
        code, out, err = command("bench", "producer", *load, "--replay", str(target))
        assert (code, err, json.loads(out)["messages"]) == (0, "", 60)
        (folder,) = {path.parent for path in cluster.data.rglob("commitlog")}
        again = read_arrow(str(folder), columns=["body"], topics=["Again"]).read_all()
    assert sorted(again["body"].to_pylist()) == sorted(PLAIN.values())
