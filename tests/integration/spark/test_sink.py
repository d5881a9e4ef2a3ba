"""Rows to a real broker: its store has the rows that Spark wrote. And the recipes of the docs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark_stores import fill, model_rows, opened

from turbopump.spark import read_arrow
from turbopump.testing import RunningCluster, running_cluster

DOCS = Path(__file__).resolve().parents[3] / "docs" / "SPARK.md"
COUNT = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("origin") / "store"
    with opened(root) as made:
        fill(made, COUNT)
    return root


def stored(cluster: RunningCluster, topic: str) -> list[dict[str, Any]]:
    """Messages of a topic in the broker's own log."""
    (root,) = (path.parent for path in cluster.data.glob("*/commitlog"))
    return read_arrow(str(root), topics=[topic]).read_all().to_pylist()


def test_rows_of_a_frame_are_messages_of_a_topic(
    spark: Any, cluster: RunningCluster, store: Path
) -> None:
    log = spark.read.format("turbopump").load(str(store)).where("body_size > 0")
    rows = log.select("body", "keys", "tags", "properties")
    rows.write.format("turbopump").mode("append").options(
        namesrv=cluster.namesrv, topic="Copied"
    ).save()
    ours = ("KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER")

    def comparable(row: dict[str, Any]) -> tuple[Any, ...]:
        own = {k: v for k, v in dict(row["properties"]).items() if k not in ours}
        return bytes(row["body"]), row["keys"], row["tags"], sorted(own.items())

    expected = sorted((comparable(row) for row in model_rows(store) if row["body"]), key=repr)
    assert sorted((comparable(row) for row in stored(cluster, "Copied")), key=repr) == expected
    assert len({row["unique_key"] for row in stored(cluster, "Copied")}) == len(expected) > 50


def test_a_stream_goes_on_where_it_was(spark: Any, cluster: RunningCluster, tmp_path: Path) -> None:
    """A stream continues where it was: with a topic derived from a log, each row is sent once over
    two runs of the query; bodies are text.

    The second run's log lies in two partitions, whose tasks send side by side unless they are one.
    """
    root = tmp_path / "store"

    def run() -> None:
        log = spark.readStream.format("turbopump").option("columns", "topic,log_offset")
        rows = (
            log.load(str(root))
            .selectExpr(
                "cast(log_offset as string) as body",
                "concat('Derived-', topic) as topic",
                "'k' as sharding_key",
            )
            .coalesce(1)
        )
        query = (
            rows.writeStream.format("turbopump")
            .options(namesrv=cluster.namesrv, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    for seed in (1, 2):
        with opened(root) as made:
            fill(made, 20, seed=seed)
        run()
    expected: dict[str, list[bytes]] = {}
    for row in model_rows(root):
        expected.setdefault(f"Derived-{row['topic']}", []).append(b"%d" % row["log_offset"])
    for topic, bodies in expected.items():
        rows = stored(cluster, topic)
        assert [row["body"] for row in rows] == bodies, "of one key: in order"
        assert len({row["queue_id"] for row in rows}) == 1


def test_a_batch_that_was_not_committed_is_sent_again(
    spark: Any, cluster: RunningCluster, tmp_path: Path
) -> None:
    """An uncommitted batch is sent again: the driver died when the rows were sent, but their batch
    was not committed.

    Spark repeats the batch with the same rows; by their keys a reader has each once.
    """
    root, checkpoint = tmp_path / "store", tmp_path / "checkpoint"

    def run() -> None:
        log = spark.readStream.format("turbopump").option("columns", "log_offset")
        rows = log.load(str(root)).selectExpr(
            "cast(log_offset as string) as body", "cast(log_offset as string) as keys"
        )
        query = (
            rows.writeStream.format("turbopump")
            .options(namesrv=cluster.namesrv, topic="Twice", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    def fill_some(seed: int) -> None:
        with opened(root) as made:
            fill(made, 20, seed=seed)

    fill_some(1)
    run()
    first = {str(row["log_offset"]) for row in model_rows(root)}
    # State after a kill between the last response and the commit: the batch's rows are planned.
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink()
    fill_some(2)
    run()
    expected = {str(row["log_offset"]) for row in model_rows(root)}
    assert first < expected
    keys = [row["keys"] for row in stored(cluster, "Twice")]
    assert sorted(keys) == sorted([*first, *expected])
    (store,) = (path.parent for path in cluster.data.glob("*/commitlog"))
    log = spark.read.format("turbopump").option("topics", "Twice").load(str(store))
    assert log.dropDuplicates(["keys"]).count() == len(expected)


def test_an_unsendable_row_fails_the_write(spark: Any, cluster: RunningCluster) -> None:
    frame = spark.createDataFrame([("x",), ("",)], "body string").coalesce(1)
    sink = frame.write.format("turbopump").options(namesrv=cluster.namesrv, topic="Refused")
    with pytest.raises(Exception, match="a message needs a body: the row"):
        sink.mode("append").save()
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        sink.mode("overwrite").save()


RECIPES = re.findall(
    r"### ([^\n]+)\n.*?```python\n(.*?)```", DOCS.read_text().partition("## Recipes")[2], re.DOTALL
)


@pytest.mark.parametrize(("title", "code"), RECIPES, ids=[title for title, _ in RECIPES])
def test_recipes_of_the_docs_run_as_pasted(
    request: pytest.FixtureRequest,
    cluster: RunningCluster,
    store: Path,
    tmp_path: Path,
    title: str,
    code: str,
) -> None:
    spark = request.getfixturevalue("delta" if "delta" in title.lower() else "spark")
    for place in ("/data/store", "/data/orders", "/data/seen"):
        code = code.replace(f'"{place}', f'"{store if place == "/data/store" else tmp_path}')
    code = code.replace("127.0.0.1:9876", cluster.namesrv).replace("Orders", "topic-1")
    expected = [row for row in model_rows(store) if row["topic"] == "topic-1"]
    namespace: dict[str, Any] = {"spark": spark}
    exec(code, namespace)
    assert namespace["rows"] == len(expected), title


def test_delta_passes_over_a_batch_that_is_repeated(
    delta: Any, cluster: RunningCluster, store: Path, tmp_path: Path
) -> None:
    """A kill between Delta's commit and Spark's own: the batch runs again, and adds nothing."""
    (code,) = (code for title, code in RECIPES if "delta" in title.lower())
    for place in ("/data/store", "/data/orders", "/data/seen"):
        code = code.replace(f'"{place}', f'"{store if place == "/data/store" else tmp_path}')
    namespace: dict[str, Any] = {"spark": delta}
    exec(code.replace("Orders", "topic-1"), namespace)
    commits = Path(f"{tmp_path}-delta", "commits")  # /data/seen-delta
    for path in (commits / "0", commits / ".0.crc"):
        path.unlink()
    exec(code.replace("Orders", "topic-1"), namespace)
    assert (commits / "0").exists(), "the batch ran again"
    expected = [row for row in model_rows(store) if row["topic"] == "topic-1"]
    assert namespace["rows"] == len(expected) > 0
