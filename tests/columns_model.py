"""Batches of columns as Python values, and the expected values of a record.

Owns the reading of Arrow's layout by hand, so that the kernel is not judged by pyarrow.
"""

import ipaddress
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.columns import KINDS, NO_ROOM, Batch, Decoder
from turbopump.pyx.record import Record
from turbopump.pyx.region import Region

TIME_MIN_MS, TIME_MAX_MS = -62135596800000, 253402300799999


def numbers(data: memoryview | None, letter: str) -> list[int]:
    assert data is not None
    return list(struct.unpack(f"={len(data) // struct.calcsize('=' + letter)}{letter}", data))


def bits(data: memoryview | None, count: int) -> list[bool]:
    assert data is not None and len(data) == (count + 7) // 8
    return [bool(data[n // 8] >> n % 8 & 1) for n in range(count)]


def texts(offsets: memoryview | None, data: memoryview | None) -> list[bytes]:
    ends = numbers(offsets, "i")
    assert data is not None and ends[0] == 0 and ends[-1] == len(data)
    return [bytes(data[a:b]) for a, b in pairwise(ends)]


def values(batch: Batch, name: str) -> list[Any]:
    """The values of a column."""
    kind = KINDS[name]
    validity, *parts = batch.column(name)
    found: list[Any]
    if kind == "bool":
        found = bits(parts[0], batch.rows)
    elif kind == "map":
        names = [text.decode() for text in texts(parts[1], parts[2])]
        pairs = list(zip(names, [t.decode() for t in texts(parts[3], parts[4])], strict=True))
        ends = numbers(parts[0], "i")
        assert ends[-1] == len(pairs) == batch.entries
        found = [pairs[a:b] for a, b in pairwise(ends)]
    elif kind in ("text", "binary"):
        found = texts(parts[0], parts[1])
        found = [text.decode() for text in found] if kind == "text" else found
    else:
        found = numbers(parts[0], "i" if kind == "int32" else "q")
    assert len(found) == batch.rows
    valid = [True] * batch.rows if validity is None else bits(validity, batch.rows)
    assert batch.null_count(name) == valid.count(False)
    return [value if there else None for value, there in zip(found, valid, strict=True)]


def rows(batch: Batch, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows of a batch, each with the columns in that order."""
    if not columns:
        return [()] * batch.rows
    return list(zip(*[values(batch, name) for name in columns], strict=True))


def batches(
    decoder: Decoder, region: Region, position: int, end: int, log_base: int
) -> Iterator[Batch]:
    """All batches of a range, up to its end or to a decode that stops early."""
    room = 0
    while True:
        batch = decoder.decode(region, position, end, log_base, room)
        yield batch
        if batch.status == NO_ROOM and room == 0:
            room = region.get_i32(batch.position)
        elif batch.status != 0 or batch.position >= end or batch.position == position:
            return
        else:
            room = 0
        position = batch.position


def host_text(packed: bytes) -> str:
    port = int.from_bytes(packed[-4:], "big")
    ip = ipaddress.ip_address(packed[:-4])
    if isinstance(ip, ipaddress.IPv4Address):
        return f"{ip}:{port}"
    if ip.ipv4_mapped is not None:  # newer Pythons print these their own way
        return (
            f"[::ffff:{int.from_bytes(packed[12:14]):x}:{int.from_bytes(packed[14:16]):x}]:{port}"
        )
    return f"[{ip}]:{port}"


def time_of(timestamp_ms: int) -> int:
    return min(max(timestamp_ms, TIME_MIN_MS), TIME_MAX_MS) * 1000


def expected(
    record: Record, epochs: Sequence[tuple[int, int]] = (), confirmed_end: int = 1 << 62
) -> dict[str, Any]:
    """The row of a record."""
    properties = decode_properties(record.properties)
    return {
        "topic": record.topic.decode("utf-8", "replace"),
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "log_offset": record.log_offset,
        "epoch": next((e for e, s in reversed(epochs) if s <= record.log_offset), None),
        "size": record.size,
        "born_time": time_of(record.born_timestamp_ms),
        "store_time": time_of(record.store_timestamp_ms),
        "born_host": host_text(record.born_host),
        "store_host": host_text(record.store_host),
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "unique_key": properties.get("UNIQ_KEY"),
        "properties": list(properties.items()),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_crc": record.body_crc,
        "body_size": len(record.body),
        "confirmed": record.log_offset + record.size <= confirmed_end,
        "body": record.body,
    }
