"""The options of a source, the errors about invalid ones, and the types of the table."""

import pyarrow as pa
import pytest

from turbopump.spark.schema import (
    COLUMNS,
    COLUMNS_WITHOUT_BODY,
    UnknownColumn,
    arrow_schema,
    parse_columns,
)
from turbopump.spark.source.options import BadOption, SourceOptions, parse


def test_defaults() -> None:
    assert parse({"path": "/a"}) == SourceOptions(("/a",), COLUMNS)


def test_batches_of_narrow_rows_have_more_of_them() -> None:
    narrow = parse({"path": "/a", "columns": "topic,queue_id,store_time,size"})
    assert narrow.batch_rows == 65_536
    wide = parse({"path": "/a", "columns": ",".join(COLUMNS_WITHOUT_BODY)})
    assert 4_096 < wide.batch_rows < 16_384
    assert parse({"path": "/a"}).batch_rows == 4_096
    assert parse({"path": "/a", "columns": "size", "batchRows": "7"}).batch_rows == 7


def test_names_know_no_case_and_sizes_have_units() -> None:
    options = parse(
        {
            "PATHS": '["/a", "s3://b/c"]',
            "columns": " size ,topic",
            "partitionbytes": "64m",
            "BATCHROWS": "5",
            "maxBytesPerTrigger": "1GiB",
            "confirmed": "FALSE",
            "verifyCrc": "true",
            "failOnTruncation": "false",
        }
    )
    assert options == SourceOptions(
        ("/a", "s3://b/c"),
        ("topic", "size"),
        confirmed=False,
        partition_bytes=64 << 20,
        batch_rows=5,
        verify_crc=True,
        max_bytes_per_trigger=1 << 30,
        fail_on_truncation=False,
    )


def test_filters_are_options() -> None:
    given = {
        "path": "/a",
        "topics": "a, b,",
        "queues": "0, 12",
        "since": "1970-01-01T00:00:01",
        "until": "2000",
        "minLogOffset": "5",
        "maxLogOffset": "9",
        "pruneByTime": "true",
    }
    assert parse(given) == SourceOptions(
        ("/a",),
        COLUMNS,
        topics=frozenset("ab"),
        queue_ids=frozenset((0, 12)),
        min_store_ms=1000,
        max_store_ms=1999,
        min_log_offset=5,
        max_log_offset=9,
        prune_by_time=True,
    )
    assert parse({"path": "/a", "topics": '["a,b"]'}).topics == frozenset(["a,b"])
    assert parse({"path": "/a", "since": "1970-01-01T01:00:00+01:00"}).min_store_ms == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "no store was named"),
        ({"path": "/a", "paths": '["/a"]'}, "'/a' is named twice"),
        ({"paths": '{"a": 1}'}, "must be a JSON list"),
        ({"path": "/a", "colums": "size"}, "no option 'colums'; there are path, paths, columns"),
        ({"path": "/a", "batchRows": "0"}, "batchRows is '0'"),
        ({"path": "/a", "batchRows": "-1"}, "batchRows is '-1'"),
        ({"path": "/a", "partitionBytes": "1"}, "at least 1024"),
        ({"path": "/a", "topics": ","}, "topics is ',', but must be a comma list"),
        ({"path": "/a", "topics": "[1]"}, "topics is"),
        ({"path": "/a", "queues": "1,-2"}, "queues is '1,-2'"),
        ({"path": "/a", "since": "yesterday"}, "since is 'yesterday', but must be ISO 8601"),
        ({"path": "/a", "until": "9" * 30}, "until is"),
        ({"path": "/a", "minLogOffset": "-1"}, "minLogOffset is '-1'"),
        ({"path": "/a", "verifyCrc": "yes"}, "must be true or false"),
    ],
)
def test_faults_are_reported(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        parse(given)


def test_columns_come_in_the_order_of_the_table() -> None:
    assert parse_columns("body, topic,") == ("topic", "body")
    assert parse_columns("") == parse_columns(None) == COLUMNS
    with pytest.raises(UnknownColumn, match="no column 'Topic'"):
        parse_columns("Topic")


def test_a_schema_has_the_columns_asked_for() -> None:
    assert arrow_schema(["epoch"]) == pa.schema([pa.field("epoch", pa.int32())])
