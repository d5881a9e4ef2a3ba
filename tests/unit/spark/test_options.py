"""What may be said of a source, and what is said of what may not; the types of the table."""

import pyarrow as pa
import pytest

from turbopump.spark.options import BadOption, Options, parse
from turbopump.spark.schema import COLUMNS, UnknownColumn, arrow_schema, parse_columns, spark_ddl


def test_defaults() -> None:
    assert parse({"path": "/a"}) == Options(("/a",), COLUMNS)


def test_names_know_no_case_and_sizes_have_units() -> None:
    options = parse({
        "PATHS": '["/a", "s3://b/c"]', "columns": " size ,topic", "partitionbytes": "64m",
        "BATCHROWS": "5", "maxBytesPerTrigger": "1GiB", "confirmed": "FALSE", "verifyCrc": "true",
        "failOnTruncation": "false",
    })  # fmt: skip
    assert options == Options(
        ("/a", "s3://b/c"), ("topic", "size"), confirmed=False, partition_bytes=64 << 20,
        batch_rows=5, verify_crc=True, max_bytes_per_trigger=1 << 30, fail_on_truncation=False,
    )  # fmt: skip


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
        ({"path": "/a", "verifyCrc": "yes"}, "must be true or false"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        parse(given)


def test_columns_come_in_the_order_of_the_table() -> None:
    assert parse_columns("body, topic,") == ("topic", "body")
    assert parse_columns("") == parse_columns(None) == COLUMNS
    with pytest.raises(UnknownColumn, match="no column 'Topic'"):
        parse_columns("Topic")


def test_types_are_told_alike_to_arrow_and_spark() -> None:
    assert spark_ddl(["keys", "topic", "store_time", "properties", "body"]) == (
        "topic STRING NOT NULL, store_time TIMESTAMP NOT NULL, keys STRING,"
        " properties MAP<STRING, STRING> NOT NULL, body BINARY NOT NULL"
    )
    assert arrow_schema(["epoch"]) == pa.schema([pa.field("epoch", pa.int32())])
    assert spark_ddl().count(", ") == len(COLUMNS)  # one more inside of the map
