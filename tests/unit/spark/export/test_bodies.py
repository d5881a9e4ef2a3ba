"""Exported bodies as their senders wrote them."""

import zlib

import lz4.frame
import pyarrow as pa
import pytest
import zstandard

from turbopump.spark.export.bodies import UnreadableBody, decompress_bodies
from turbopump.spark.schema import arrow_schema

TEXT = b"text " * 100
COLUMNS = ("topic", "queue_id", "queue_offset", "sys_flag", "body_size", "body")


def batch(*rows: tuple[int, bytes]) -> pa.RecordBatch:
    columns = [
        ["t"] * len(rows),
        [3] * len(rows),
        range(len(rows)),
        [flag for flag, _ in rows],
        [len(body) for _, body in rows],
        [body for _, body in rows],
    ]
    return pa.record_batch(columns, schema=arrow_schema(COLUMNS))


def test_compressed_bodies_become_plain_and_say_so() -> None:
    rows = [
        (0, b"as it is"),
        (0x1, zlib.compress(TEXT)),
        (0x301 | 0x8, zlib.compress(TEXT)),
        (0x101, lz4.frame.compress(TEXT)),
        (0x201, zstandard.compress(TEXT)),
        (0x8, b""),
    ]
    found = decompress_bodies(batch(*rows))
    assert found.schema == arrow_schema(COLUMNS)
    assert found.column("body").to_pylist() == [b"as it is", *[TEXT] * 4, b""]
    assert found.column("sys_flag").to_pylist() == [0, 0, 0x8, 0, 0, 0x8]
    assert found.column("body_size").to_pylist() == [8, *[len(TEXT)] * 4, 0]


def test_a_batch_without_compressed_bodies_is_not_touched() -> None:
    given = batch((0, b"one"), (0x100, b"two"))
    assert decompress_bodies(given) is given


@pytest.mark.parametrize(("flag", "word"), [(0x201, "Zstandard"), (0x701, "unknown")])
def test_a_bad_body_is_named_with_its_place(flag, word) -> None:
    with pytest.raises(UnreadableBody, match=f"^t, queue 3, queue offset 1: .*{word}"):
        decompress_bodies(batch((0, b""), (flag, b"nonsense")))
