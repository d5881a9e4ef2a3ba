"""Every record, once, as it is: stores read through Spark against the model."""

import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f
from tests.spark_stores import FILE_SIZE, GOLDEN_NAMES, NOW_MS, fill, model_rows, moment, opened

from turbopump.spark.schema import COLUMNS, COLUMNS_WITHOUT_BODY

MINUTE_MS = 60_000


def rows(frame: Any) -> list[dict[str, Any]]:
    """The rows of a frame as the model has them, in the order of stores and logs."""
    found = [row.asDict() for row in frame.collect()]
    for row in found:
        for name in ("born_time", "store_time"):
            if name in row:
                row[name] = row[name].astimezone(UTC)
        if "body" in row:
            row["body"] = bytes(row["body"])
    return sorted(found, key=lambda row: (row.get("store", ""), row["log_offset"]))


def load(spark: Any, path: Path | str, **options: Any) -> Any:
    reader = spark.read.format("turbopump")
    return reader.options(**options).load(str(path))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several files."""
    root = tmp_path_factory.mktemp("generated") / "store"
    with opened(root) as made:
        fill(made, 300, step_ms=MINUTE_MS)
    return root


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_stores_are_read_as_they_are(spark: Any, golden: Any, name: str) -> None:
    root = golden[name]
    assert rows(load(spark, root)) == model_rows(root)


@pytest.mark.parametrize(
    ("partition_bytes", "batch_rows"), [(1024, 1000), (5000, 1), (FILE_SIZE, 7), (1 << 20, 1000)]
)
def test_partitions_and_batches_change_nothing(
    spark: Any, store: Path, partition_bytes: int, batch_rows: int
) -> None:
    frame = load(spark, store, partitionBytes=partition_bytes, batchRows=batch_rows)
    expected = model_rows(store)
    assert rows(frame) == expected
    files = len(list((store / "commitlog").iterdir()))
    count = frame.rdd.getNumPartitions()
    assert count > 2 * files if partition_bytes == 1024 else count >= files


def test_columns_are_chosen_by_the_option_or_by_a_schema(spark: Any, store: Path) -> None:
    expected = model_rows(store)
    some = ("topic", "log_offset", "keys", "properties")
    picked = [{name: row[name] for name in some} for row in expected]
    frame = load(spark, store, columns="keys, log_offset,topic,properties")
    assert frame.columns == list(some)
    assert rows(frame) == picked
    kinds = "properties map<string,string>, keys string, log_offset bigint, topic string"
    by_schema = spark.read.format("turbopump").schema(kinds).load(str(store))
    assert by_schema.columns == ["properties", "keys", "log_offset", "topic"]
    assert rows(by_schema) == picked
    without = load(spark, store, columns=",".join(COLUMNS_WITHOUT_BODY))
    assert rows(without) == [{name: row[name] for name in COLUMNS_WITHOUT_BODY} for row in expected]
    assert load(spark, store).columns == list(COLUMNS)


FILTERS = [  # which Spark applies
    ("topic = 'topic-1'", lambda row: row["topic"] == "topic-1"),
    ("topic in ('topic-0', 'none')", lambda row: row["topic"] == "topic-0"),
    ("topic = 'none'", lambda row: False),
    (
        "queue_id = 2 and topic <> 'topic-0'",
        lambda row: row["queue_id"] == 2 and row["topic"] != "topic-0",
    ),
    ("queue_id in (1, 3)", lambda row: row["queue_id"] in (1, 3)),
    ("queue_id > 1 and queue_id < 3", lambda row: row["queue_id"] == 2),
    ("log_offset >= 20000 and log_offset < 40000", lambda row: 20000 <= row["log_offset"] < 40000),
    ("log_offset > 20000 and log_offset <= 20000", lambda row: False),
    ("keys is not null and confirmed", lambda row: row["keys"] is not None),
    ("not confirmed", lambda row: False),
    ("epoch is null", lambda row: True),
    ("properties['TAGS'] = 'plain'", lambda row: row["properties"].get("TAGS") == "plain"),
    ("topic like 'topic-%' and body_size = 900", lambda row: row["body_size"] == 900),
    (
        "topic = 'topic-1' or queue_id = 0",
        lambda row: row["topic"] == "topic-1" or row["queue_id"] == 0,
    ),
]


@pytest.mark.parametrize(("condition", "keep"), FILTERS, ids=[text for text, _ in FILTERS])
def test_filters_return_the_matching_rows(
    spark: Any, store: Path, condition: str, keep: Any
) -> None:
    frame = load(spark, store, partitionBytes=4096).where(condition)
    assert rows(frame) == [row for row in model_rows(store) if keep(row)]


@pytest.mark.parametrize("micros", [0, 1, 999])
def test_times_between_two_milliseconds(spark: Any, store: Path, micros: int) -> None:
    at = moment(NOW_MS + 40 * MINUTE_MS).replace(
        microsecond=moment(NOW_MS + 40 * MINUTE_MS).microsecond + micros
    )
    expected = model_rows(store)
    frame = load(spark, store, columns="log_offset,store_time")
    time = f.col("store_time")
    for condition, keep in (
        (time < at, lambda row: row["store_time"] < at),
        (time <= at, lambda row: row["store_time"] <= at),
        (time > at, lambda row: row["store_time"] > at),
        (time >= at, lambda row: row["store_time"] >= at),
        (time == at, lambda row: row["store_time"] == at),
    ):
        wanted = [row["log_offset"] for row in expected if keep(row)]
        assert [row["log_offset"] for row in rows(frame.where(condition))] == wanted


def planned(frame: Any) -> int:
    """Tasks of the scan."""
    return int(frame.rdd.getNumPartitions())


def test_filters_of_the_load_leave_out_files(spark: Any, store: Path) -> None:
    files = sorted((store / "commitlog").iterdir())
    expected = model_rows(store)
    assert planned(load(spark, store)) == len(files) > 5
    middle = expected[len(expected) // 2]
    at = middle["log_offset"]
    one = load(spark, store, minLogOffset=at, maxLogOffset=at, columns="log_offset")
    assert planned(one) == 2, "a member to read, and a member for new records"
    assert rows(one) == [{"log_offset": at}]
    some = load(
        spark,
        store,
        topics="topic-1,topic-2",
        queues="2",
        since=middle["store_time"].isoformat(),
        until=expected[-5]["store_time"].isoformat(),
    )
    assert rows(some) == [
        row
        for row in expected[len(expected) // 2 : -5]
        if row["topic"] in ("topic-1", "topic-2") and row["queue_id"] == 2
    ]


class TestQueriesOnOneFrame:
    """Each query on one frame gives the same result as on a fresh load."""

    CONDITIONS = ("queue_id = 0", "queue_id = 0 or topic = 'topic-1'", "queue_id = 1", "true")

    def test_one_behind_the_other(self, spark: Any, store: Path) -> None:
        log = load(spark, store, columns="topic,queue_id,store")
        for condition in self.CONDITIONS:
            fresh = load(spark, store, columns="topic,queue_id,store").where(condition)
            assert log.where(condition).count() == fresh.count() > 0, condition
        assert log.count() == len(model_rows(store))

    def test_united_with_itself(self, spark: Any, store: Path) -> None:
        log = load(spark, store, columns="queue_id,log_offset")
        log.where("queue_id = 3").count()
        both = log.where("queue_id = 0").union(log.where("queue_id = 1"))
        found = sorted(row.log_offset for row in both.collect())
        expected = [row["log_offset"] for row in model_rows(store) if row["queue_id"] in (0, 1)]
        assert found == expected

    def test_subqueries_of_a_view(self, spark: Any, store: Path) -> None:
        load(spark, store, columns="queue_id").createOrReplaceTempView("log")
        parts = [
            f"(select count(*) from log where {text})"
            for text in ("queue_id = 0", "queue_id = 1", "true")
        ]
        model = [row["queue_id"] for row in model_rows(store)]
        found = spark.sql(f"select {', '.join(parts)}").first()
        assert tuple(found) == (model.count(0), model.count(1), len(model))

    def test_of_a_log_that_grows(self, spark: Any, tmp_path: Path) -> None:
        root = tmp_path / "store"
        with opened(root) as made:
            fill(made, 20)
        log = load(spark, root, columns="queue_id,log_offset", partitionBytes="4k")
        log.createOrReplaceTempView("growing")
        for seed in (2, 3):
            expected = [row["log_offset"] for row in model_rows(root)]
            assert [row.log_offset for row in log.orderBy("log_offset").collect()] == expected
            assert spark.sql("select * from growing").count() == len(expected)
            with opened(root) as made:
                fill(made, 60, seed=seed)


def test_several_stores_are_one_table(spark: Any, store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with opened(other) as made:
        fill(made, 50, seed=2)
    expected = sorted(
        model_rows(store) + model_rows(other), key=lambda row: (row["store"], row["log_offset"])
    )
    both = spark.read.format("turbopump").load([str(store), str(other)])
    assert rows(both) == expected
    option = spark.read.format("turbopump").option("paths", json.dumps([str(store), str(other)]))
    assert option.load().count() == len(expected)
    only = both.where(f.col("store") == str(other))
    assert rows(only) == model_rows(other)


def test_only_confirmed_records(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with opened(root) as made:
        replicated = made.as_replicated(NOW_MS)
        replicated.to_master(3, NOW_MS)
        fill(made, 40)
        confirmed = replicated.end
        replicated.confirm_to(confirmed, NOW_MS)
        replicated.to_master(5, NOW_MS)
        fill(made, 20, seed=4, first_ms=NOW_MS + 10_000)
    everything = model_rows(root, confirmed_end=confirmed)
    assert {row["epoch"] for row in everything} == {3, 5}
    assert [row["confirmed"] for row in everything] == [True] * 40 + [False] * 20
    assert rows(load(spark, root)) == everything[:40]
    frame = load(spark, root, confirmed="false")
    assert rows(frame) == everything
    assert rows(frame.where("confirmed")) == everything[:40]
    assert rows(frame.where("not confirmed and epoch = 5")) == everything[40:]


def test_a_store_without_messages_has_no_rows(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with opened(root):
        pass
    assert load(spark, root).count() == 0
    assert rows(load(spark, root).where("topic = 'T'")) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": "topic,topik"}, "there is no column 'topik'"),
        ({"confirmed": "perhaps"}, "confirmed is 'perhaps'"),
        ({"partitionBytes": "12x"}, "partitionBytes is '12x'"),
        ({"partitonBytes": "4m"}, "there is no option 'partitonbytes'"),
    ],
)
def test_faults_are_reported(spark: Any, store: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(Exception, match=words):
        load(spark, store, **options).count()


def test_a_store_that_is_not_there_is_said(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="nowhere"):
        load(spark, tmp_path / "nowhere").count()


def test_a_schema_that_the_table_does_not_have(spark: Any, store: Path) -> None:
    reader = spark.read.format("turbopump").schema("topic bigint")
    with pytest.raises(Exception, match="column 'topic' is string, not bigint"):
        reader.load(str(store)).count()


def test_values_are_checked_once(spark: Any) -> None:
    """The JVM has the properties that session.start sets for a local one."""
    system = spark.sparkContext._jvm.java.lang.System
    assert system.getProperty("arrow.enable_unsafe_memory_access") == "true"
    assert system.getProperty("arrow.enable_null_check_for_get") == "false"


def test_uris_are_stores_too(spark: Any, store: Path) -> None:
    uri = store.as_uri()
    assert rows(load(spark, uri)) == model_rows(store, uri)
