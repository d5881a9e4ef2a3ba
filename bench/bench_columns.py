"""Records into Arrow columns, on one core, beside a C loop that reads each of their bytes once.

Back of the envelope: a C loop adds up the words of a log at some 10 GB/s from memory. Columns
without bodies touch two or three cache lines of each record and write some 300 bytes; with bodies
each byte is copied once more, into memory that the allocator gives again. The aim is 1 GB/s of log.

Messages are like the load generator's: its properties, 32 connections, 8 queues.
"""

import ctypes
import mmap
from typing import Any

import pytest
from bench.bench_store import c_buffer

from turbopump.pyx import record
from turbopump.pyx.columns import COLUMNS, OK, Decoder
from turbopump.pyx.region import Region

NOW_MS = 1_800_000_000_000
LOG_BYTES = 256 << 20  # more than the caches hold
TOPIC = b"BenchmarkTest"
PROPERTIES = (
    b"UNIQ_KEY\x017F0000010000558C000000000000%04X\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster\x02"
)
WITHOUT_BODY = tuple(name for name in COLUMNS if name != "body")
WITHOUT_TEXTS = (
    "queue_id",
    "queue_offset",
    "log_offset",
    "size",
    "born_time",
    "store_time",
    "body_size",
)
_logs: dict[int, tuple[mmap.mmap, int, int]] = {}


def log_of(size: int) -> tuple[mmap.mmap, int, int]:
    """Make a log of records with bodies of `size` bytes, once for all benchmarks: (memory, position
    of the end of the records, number of records)."""
    if size not in _logs:
        _logs.clear()
        properties = PROPERTIES % 0
        one = record.record_size(len(TOPIC), size, len(properties), 8, 8, record.V1)
        count = LOG_BYTES // one - 1
        memory = mmap.mmap(-1, LOG_BYTES)
        region = Region(memory)
        at = 0
        for number in range(count):
            at += record.append(
                region,
                at,
                region.size,
                log_offset=at,
                topic=TOPIC,
                body=b"x" * size,
                properties=PROPERTIES % (number % 65536),
                queue_id=number % 8,
                flag=0,
                queue_offset=number // 8,
                sys_flag=0,
                born_timestamp_ms=NOW_MS + number // 900,
                born_host=b"\x7f\0\0\1\0\0" + (40000 + number % 32).to_bytes(2, "big"),
                store_timestamp_ms=NOW_MS + number // 900,
                store_host=b"\x7f\0\0\1\0\0\x2a\x9f",
                reconsume_times=0,
                prepared_transaction_offset=0,
                version=record.V1,
            )
        region.release()
        _logs[size] = memory, at, count
    return _logs[size]


@pytest.mark.parametrize(
    "columns", [COLUMNS, WITHOUT_BODY, WITHOUT_TEXTS], ids=["all", "no-bodies", "numbers"]
)
@pytest.mark.parametrize("size", [128, 1024])
def test_decode(measure: Any, size: int, columns: tuple[str, ...]) -> None:
    """Measure the bytes of log per second that are decoded into these columns."""
    memory, end, count = log_of(size)
    region, decoder = Region(memory), Decoder(columns)

    def decode() -> None:
        position = rows = 0
        while position < end:
            batch = decoder.decode(region, position, end, 0)
            assert batch.status == OK
            position, rows = batch.position, rows + batch.rows
        assert rows == count

    measure(f"log to columns, {size} B", decode, end)
    region.release()


@pytest.mark.parametrize("size", [128, 1024])
def test_decode_one_topic_of_none(measure: Any, size: int) -> None:
    """A filter that leaves nothing: the records are parsed, no byte is copied."""
    memory, end, _count = log_of(size)
    region, decoder = Region(memory), Decoder(COLUMNS, topics=[b"another"])
    measure(f"log to columns, {size} B", lambda: decoder.decode(region, 0, end, 0), end)
    region.release()


@pytest.mark.parametrize("size", [128, 1024])
def test_scan_limit(measure: Any, limits: ctypes.CDLL, size: int) -> None:
    """Measure the C loop that reads each byte of the same log once."""
    memory, end, _count = log_of(size)
    place = c_buffer(memory)
    measure(f"log to columns, {size} B", lambda: limits.limit_scan(place, end), end)
