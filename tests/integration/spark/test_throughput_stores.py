"""The throughput job over real stores: their planted faults, replicas, copies, the command."""

import json
import random
import shutil
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.spark import throughput_model as model
from tests.integration.spark.test_throughput import check
from tests.spark_stores import opened

from turbopump.engine.types import NewMessage, PutStatus
from turbopump.spark.selection import RowSelection
from turbopump.spark.session import JobError
from turbopump.spark.throughput.job import ThroughputOptions, lag_of, main, run

# Position, in a record with IPv4 hosts, of fields that the tests change without the store.
QUEUE_OFFSET_AT = 20
STORE_TIME_AT = 56
FILE_SIZE = 64 * 1024
Put = tuple[str, int, int, int, str, str]
"""topic, queue, store time, born time, producer, unique key"""


def traffic(count: int, seed: int = 3, first_ms: int = model.NOW_MS) -> Iterator[Put]:
    """Messages of three queues and two producers, one of them with a clock ahead, and a stall."""
    rng = random.Random(seed)
    now_ms = first_ms
    for number in range(count):
        now_ms += rng.randrange(9) + (8000 if number == count // 2 else 0)
        topic, queue = rng.choice((("T", 0), ("T", 1), ("U", 0)))
        host = rng.choice(("10.0.0.1", "10.0.0.2"))
        late_ms = rng.choice((1, 5, 700)) if host == "10.0.0.1" else rng.choice((-90, 2))
        yield topic, queue, now_ms, now_ms - late_ms, host, f"KEY{seed}-{number}"


def fill(root: Path, puts: Iterable[Put]) -> list[model.Record]:
    """Append to the store of a folder; return the model's data of each record."""
    records = []
    with opened(root, FILE_SIZE) as store:
        for number, (topic, queue, now_ms, born_ms, host, key) in enumerate(puts):
            body = b"%d" % number * (1 + number % 150)
            packed = bytes(map(int, host.split("."))) + (40000 + number).to_bytes(4, "big")
            appended = store.append(
                NewMessage(
                    topic,
                    queue,
                    body,
                    b"UNIQ_KEY\x01" + key.encode() + b"\x02",
                    born_timestamp_ms=born_ms,
                    born_host=packed,
                ),
                now_ms,
            )
            assert appended.status is PutStatus.PUT_OK, appended
            records.append(
                {
                    "store": str(root),
                    "topic": topic,
                    "queue_id": queue,
                    "queue_offset": appended.queue_offset,
                    "log_offset": appended.log_offsets[0],
                    "size": appended.size,
                    "body_size": len(body),
                    "sys_flag": 0,
                    "store_ms": appended.store_timestamp_ms,
                    "born_ms": born_ms,
                    "host": host,
                }
            )
    return records


def alter(record: model.Record, at: int, key: str, value: int) -> None:
    """Change eight bytes of a record in its file and in the model."""
    base = record["log_offset"] // FILE_SIZE * FILE_SIZE
    with (Path(record["store"]) / "commitlog" / f"{base:020d}").open("r+b") as file:
        file.seek(record["log_offset"] - base + at)
        file.write(struct.pack(">q", value))
    record[key] = value


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[model.Record]]:
    """Two stores; in the first one, offsets are missing and the clock went back."""
    root = tmp_path_factory.mktemp("stores")
    first = fill(root / "a", traffic(900))
    for record in first[500:]:
        if record["topic"] == "U":
            alter(record, QUEUE_OFFSET_AT, "queue_offset", record["queue_offset"] + 130)
    for record in first[700:]:
        alter(record, STORE_TIME_AT, "store_ms", record["store_ms"] - 300)
    second = fill(root / "b", traffic(300, seed=4))
    return root / "a", root / "b", first + second


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_over_two_stores(
    spark: Any, stores: tuple[Path, Path, list[model.Record]], tmp_path: Path
) -> None:
    first, second, records = stores
    options = ThroughputOptions(RowSelection((str(first), str(second))), str(tmp_path / "out"))
    result = run(spark, options)
    check(result.totals, records)
    groups = model.by(records, "store", "topic", "queue_id")
    assert len(result.queues.rows) == len(groups)
    for row in result.queues.rows:
        check(row, groups[row["store"], row["topic"], row["queue_id"]])
    gaps = {
        (r["store"], r["topic"], r["queue_id"], r["first_missing"], r["last_missing"])
        for r in result.gaps.rows
    }
    assert gaps == model.gaps(records) and len(gaps) == 1
    silent = {(r["level"], r["store"], r["silent_ms"]) for r in result.stalls.rows}
    wanted = model.stalls(records, 5)
    assert silent == {(level, store, until - begun) for level, store, *_, begun, until in wanted}
    assert {level for level, *_ in wanted} == {"queue", "topic", "store"}
    (step,) = result.clock_steps.rows
    assert {(step["store"], step["back_ms"])} == {
        (store, high - low) for store, high, low in model.back_steps(records)
    }
    skewed: dict[Any, Any] = {r["born_host"]: r["skewed_messages"] for r in result.hosts.rows}
    assert skewed["10.0.0.1"] == 0 and skewed["10.0.0.2"] > 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<svg") == 6 and str(first) in page
    assert {Path(place).name for place in result.written} == {
        "cells",
        "seconds",
        "queues",
        "topics",
        "hosts",
        "stores",
        "gaps",
        "stalls",
        "clock_steps",
        "report.html",
    }
    with pytest.raises(JobError, match="is there already; --overwrite"):
        run(spark, options)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_only_some_topics_and_times(
    spark: Any, stores: tuple[Path, Path, list[model.Record]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the command line, without an output."""
    _, second, records = stores
    until_ms = model.NOW_MS + 500
    until = "2023-11-14T22:13:20.500"
    assert main([str(second), "--topic", "T", "--until", until, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    check(
        output["totals"],
        [
            r
            for r in records
            if r["store"] == str(second) and r["topic"] == "T" and r["store_ms"] < until_ms
        ],
    )
    assert [row["topic"] for row in output["topics"]["rows"]] == ["T"]
    assert output["written"] == []
    assert main([str(second), "--topic", "none"]) == 0
    assert "no message" in capsys.readouterr().out


def test_an_unreadable_store_is_reported_in_a_sentence(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "nowhere"
    assert main([str(nowhere)]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message == f"turbopump analyze throughput: there is no commit log at {nowhere}"


def test_how_far_a_replica_is_behind(spark: Any, tmp_path: Path) -> None:
    leader, replica = tmp_path / "leader", tmp_path / "replica"
    puts = list(traffic(400))
    fill(leader, puts[:300])
    shutil.copytree(leader, replica)
    behind = fill(leader, puts[300:])
    lag = lag_of(spark, str(leader), str(replica))
    assert (lag.records_behind, lag.differs, lag.records_extra) == (100, False, 0)
    end = behind[-1]["log_offset"] + behind[-1]["size"]
    assert (lag.leader_end, lag.common_end, lag.replica_end) == (end, *[lag.replica_end] * 2)
    assert lag.bytes_behind == end - lag.replica_end > sum(r["size"] for r in behind) - 1
    assert lag.waiting_ms == behind[-1]["store_ms"] - behind[0]["store_ms"]
    assert lag.ends_apart_ms == behind[-1]["store_ms"] - puts[299][2]
    ahead = lag_of(spark, str(replica), str(leader))
    assert (ahead.records_behind, ahead.records_extra, ahead.waiting_ms) == (0, 100, 0)


def test_where_two_logs_part(spark: Any, tmp_path: Path) -> None:
    leader, replica = tmp_path / "leader", tmp_path / "replica"
    puts = list(traffic(400))
    fill(leader, puts[:250])
    shutil.copytree(leader, replica)
    theirs = fill(replica, traffic(30, seed=9, first_ms=puts[-1][2]))
    ours = fill(leader, puts[250:])
    lag = lag_of(spark, str(leader), str(replica))
    assert lag.differs and lag.common_end == ours[0]["log_offset"] == theirs[0]["log_offset"]
    assert (lag.records_behind, lag.records_extra) == (150, 30)
    same = lag_of(spark, str(leader), str(leader))
    assert (same.records_behind, same.differs, same.ends_apart_ms) == (0, False, 0)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_copy_in_another_group(spark: Any, tmp_path: Path) -> None:
    puts = list(traffic(300))
    fill(tmp_path / "origin", puts)
    delays, copied = {}, []
    for number, (topic, queue, now_ms, born_ms, host, key) in enumerate(puts):
        if number in (17, 298, 299):
            continue
        delays[key] = 40 + number % 100
        copied.append((topic, queue, now_ms + delays[key], born_ms, host, key))
    copied.sort(key=lambda one: one[2])
    records = fill(tmp_path / "copy", copied)
    early = next(r for r in records if r["topic"] == "U")
    origin_ms = next(put[2] for put in puts if put[5] == copied[records.index(early)][5])
    del delays[copied[records.index(early)][5]]
    alter(early, STORE_TIME_AT, "store_ms", origin_ms - 5)
    origin = RowSelection((str(tmp_path / "origin"),))
    page = tmp_path / "r.html"
    result = run(spark, ThroughputOptions(origin, copy=str(tmp_path / "copy"), html=str(page)))
    assert result.copies is not None
    totals = result.copies.totals
    assert (totals["copied"], totals["early"], totals["missing"]) == (296, 1, 3)
    assert (totals["missing_inside"], totals["only_in_copy"], totals["copied_again"]) == (1, 0, 0)
    assert totals["early_ms_max"] == 5
    wanted = model.np.percentile(list(delays.values()), [50, 99, 99.9])
    assert [totals[f"delay_ms_{at}"] for at in ("p50", "p99", "p999")] == pytest.approx(
        list(wanted)
    )
    assert page.read_text().count("<svg") == 7
