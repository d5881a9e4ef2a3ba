"""Small models that kernels and parsers are compared with: slow, and plain enough to be
seen right.
"""

import struct
import zlib
from typing import Any, Final

from turbopump.pyx import record
from turbopump.pyx.region import Region

_HEAD: Final = struct.Struct(">iiiiiqqiq")
_BORN_V6, _STORE_V6 = 0x10, 0x20
_ROWS: Final = 3  # rows of a scan: few, so that a scan continues in the next


def depth_of(value: Any) -> int:
    """Levels of lists and objects, without recursion."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, list | dict)]:
        depth += 1
        level = [
            child for item in level for child in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def java_hash(text: str) -> int:
    """String.hashCode over the UTF-16 units."""
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", raw):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def parse_record(data: bytes) -> dict[str, Any] | str:
    """The record at the start of the bytes, or the reason why no record is there: short, blank or
    bad."""
    if len(data) < 8:
        return "short"
    size, magic = struct.unpack_from(">ii", data)
    if magic == record.BLANK:
        return "blank"
    if magic not in (record.V1, record.V2) or size < 91:
        return "bad"
    if size > len(data):
        return "short"
    data = data[:size]
    _, _, crc, queue_id, flag, queue_offset, physical, sys_flag, born_ms = _HEAD.unpack_from(data)
    born = 20 if sys_flag & _BORN_V6 else 8
    store = 20 if sys_flag & _STORE_V6 else 8
    try:
        at = 48 + born
        (store_ms,) = struct.unpack_from(">q", data, at)
        store_host, at = data[at + 8 : at + 8 + store], at + 8 + store
        reconsumed, prepared, body_size = struct.unpack_from(">iqi", data, at)
        body, at = _piece(data, at + 16, body_size)
        width = ">b" if magic == record.V1 else ">h"
        (topic_size,) = struct.unpack_from(width, data, at)
        topic, at = _piece(data, at + struct.calcsize(width), topic_size)
        (properties_size,) = struct.unpack_from(">h", data, at)
        properties, at = _piece(data, at + 2, properties_size)
    except (struct.error, ValueError):
        return "bad"
    if at != size:
        return "bad"
    return {
        "size": size,
        "magic": magic,
        "body_crc": crc,
        "queue_id": queue_id,
        "flag": flag,
        "queue_offset": queue_offset,
        "physical_offset": physical,
        "sys_flag": sys_flag,
        "born_timestamp_ms": born_ms,
        "born_host": data[48 : 48 + born],
        "store_timestamp_ms": store_ms,
        "store_host": store_host,
        "reconsume_times": reconsumed,
        "prepared_transaction_offset": prepared,
        "body": body,
        "topic": topic,
        "properties": properties,
        "crc_ok": not body or zlib.crc32(body) & 0x7FFFFFFF == crc,
    }


def _piece(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if not 0 <= size <= len(data) - at:
        raise ValueError
    return data[at : at + size], at + size


def check_records(data: bytes) -> None:
    """Kernel against model: each record of a log, and where and why both stop."""
    data = bytes(data)
    region = Region(data)
    at, count, outcome = 0, 0, "end"
    while at < len(data):
        wanted = parse_record(data[at:])
        if isinstance(wanted, str):
            outcome = wanted
            break
        found = record.decode(region, at, region.size, 1000)
        assert found.log_offset == 1000 + at
        seen = {name: getattr(found, name) for name in wanted}
        assert seen == wanted, f"{seen} is not {wanted}"
        at += found.size
        count += 1
    if outcome != "end":
        try:
            record.decode(region, at, region.size)
        except ValueError as error:
            assert str(error)
        else:
            raise AssertionError(f"a record at {at}, where there is none: {outcome}")
    _check_scan(region, at, count, outcome)


def _check_scan(region: Region, end: int, count: int, outcome: str) -> None:
    wanted = {
        "end": record.OK,
        "short": record.SHORT,
        "blank": record.BLANK_FOUND,
        "bad": record.BAD_RECORD,
    }[outcome]
    position = scanned = 0
    while True:
        result = record.scan(region, position, region.size, _ROWS, check_crc=False)
        scanned += result.count
        position = result.position
        if result.status != record.OK or result.count < _ROWS:
            break
    assert (result.status, position, scanned) == (wanted, end, count)
    checked = record.validate(region, 0, region.size, check_crc=False)
    assert (checked.status, checked.position, checked.count) == (wanted, end, count)
