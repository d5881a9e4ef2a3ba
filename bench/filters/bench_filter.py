"""A filter over a queue, on one core, beside a C loop that searches for one property.

Back of the envelope: a record with a body of 128 B has some 350 bytes in six cache lines. The loop
reads its head and its properties, four of them, byte by byte; the filter also reads the queue unit,
checks every length of the record, and looks at each separator of the properties, eight bytes at a
time. The aim is the loop's speed: 5 million messages a second and core from memory.
"""

import ctypes
import mmap
import struct
from typing import Any

import pytest
from bench.bench_store import c_buffer

from turbopump.net.wire.sql.compiler import compile_sql
from turbopump.pyx import queue, record
from turbopump.pyx.filter import FilterScan
from turbopump.pyx.region import Region

NOW_MS = 1_800_000_000_000
LOG_BYTES = 256 << 20  # more than the caches hold
TOPIC = b"BenchmarkTest"
PROPERTIES = (
    b"UNIQ_KEY\x017F0000010000558C000000000000%04X\x02WAIT\x01true\x02price\x01%d\x02"
    b"region\x01north\x02CLUSTER\x01DefaultCluster\x02"
)
EXPRESSIONS = {
    "number": "price = 7",
    "text": "price = '7'",
    "two": "price = 7 AND region IS NOT NULL",
    "range": "price BETWEEN 7 AND 7 OR price > 100",
    "list": "price IN (" + ", ".join(f"'{7 + 100 * one}'" for one in range(50)) + ")",
}
_logs: dict[int, tuple[mmap.mmap, int, int, bytes]] = {}


def log_of(size: int) -> tuple[mmap.mmap, int, int, bytes]:
    """Make a log of records with bodies of `size` bytes, once: (memory, position of the end of the
    records, number of records, units of their queue)."""
    if size not in _logs:
        memory = mmap.mmap(-1, LOG_BYTES)
        region, at, count, units = Region(memory), 0, 0, []
        while at < LOG_BYTES - 2 * (size + 1_000):
            taken = record.append(
                region,
                at,
                region.size,
                log_offset=at,
                topic=TOPIC,
                body=b"x" * size,
                properties=PROPERTIES % (count % 65536, count % 100),
                queue_id=0,
                flag=0,
                queue_offset=count,
                sys_flag=0,
                born_timestamp_ms=NOW_MS,
                born_host=b"\x7f\0\0\1\0\0\x9c\x40",
                store_timestamp_ms=NOW_MS,
                store_host=b"\x7f\0\0\1\0\0\x2a\x9f",
                reconsume_times=0,
                prepared_transaction_offset=0,
                version=record.V1,
            )
            units.append(struct.pack(">qiq", at, taken, 0))
            at, count = at + taken, count + 1
        region.release()
        _logs.clear()
        _logs[size] = memory, at, count, b"".join(units)
    return _logs[size]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("size", [128, 1024])
def test_filter(measure: Any, size: int, expression: str) -> None:
    """Measure the messages per second that the filter examines."""
    memory, end, count, units = log_of(size)
    log, units_region, compiled = (
        Region(memory),
        Region(units),
        compile_sql(EXPRESSIONS[expression]),
    )

    def read() -> None:
        position = found = 0
        while position < len(units):
            selection = queue.select(
                units_region,
                position,
                len(units),
                codes=None,
                max_count=256,
                max_size=1 << 30,
                max_units=1 << 14,
                scan=FilterScan(compiled, LOG_BYTES, end, lambda _start: log),
            )
            position, found = selection.next_position, found + len(selection.units)
        assert found in (count // 100, count // 100 + 1)

    measure(f"filter, {size} B", read, count)
    log.release()


@pytest.mark.parametrize("size", [128, 1024])
def test_filter_limit(measure: Any, limits: ctypes.CDLL, size: int) -> None:
    """Measure the C loop that searches the same records for one property."""
    memory, end, count, _units = log_of(size)
    place = c_buffer(memory)
    assert limits.limit_filter(place, end) in (count // 100, count // 100 + 1)
    measure(f"filter, {size} B", lambda: limits.limit_filter(place, end), count)
