"""The line for each item of a store's file: its members, and their form for readers."""

import ipaddress
from typing import Any

import pytest
from tests.shortcuts.addresses import pack_host

from turbopump.cli.inspect.lines import (
    _format_host,
    damage_line,
    index_entry_line,
    index_head_line,
    log_line,
    queue_line,
    text_of,
)
from turbopump.engine.snapshot import inspect as found
from turbopump.pyx import record
from turbopump.pyx.crc32 import crc32
from turbopump.pyx.region import Region


def parsed(**more: Any) -> found.LogRecord:
    """A record as the walk gives it."""
    buffer = bytearray(600)
    fields: dict[str, Any] = {
        "log_offset": 64,
        "topic": b"T",
        "body": b"body",
        "properties": b"KEYS\x01k\x02",
        "queue_id": 2,
        "flag": 5,
        "queue_offset": 7,
        "sys_flag": 0,
        "born_timestamp_ms": 11,
        "born_host": pack_host("10.0.0.1:4000"),
        "store_timestamp_ms": 12,
        "reconsume_times": 1,
        "store_host": pack_host("10.0.0.2:10911"),
        "prepared_transaction_offset": 9,
        "version": record.V1,
    }
    fields |= more
    at = fields["log_offset"]
    size = record.append(Region(buffer), at, len(buffer), **fields)
    return found.LogRecord(record.decode(Region(buffer), at, at + size), None)


def test_a_record() -> None:
    members = log_line(parsed())
    assert members["t"] == "record" and members["properties"] == {"KEYS": "k"}
    assert (members["offset"], members["queueId"], members["queueOffset"]) == (64, 2, 7)
    assert (members["bornHost"], members["storeHost"]) == ("10.0.0.1|4000", "10.0.0.2|10911")
    assert members["bodyCrc32"] == crc32(b"body") and members["crcOk"]
    assert members["crc"] == crc32(b"body") & 0x7FFFFFFF, "as Java's int holds it"
    assert members["offsetMsgId"].endswith(f"{64:016X}")
    size = members["size"]
    assert text_of(members) == (
        f"64 size={size} V1 crc=ok topic=T queue=2 queueOffset=7 sysFlag=0x0 flag=5 "
        "born=11@10.0.0.1|4000 stored=12@10.0.0.2|10911 retries=1 body=4 KEYS='k'"
    )


def test_a_record_of_a_long_topic_and_without_properties() -> None:
    members = log_line(parsed(version=record.V2, topic=b"T" * 200, properties=b""))
    text = text_of(members)
    assert " V2 " in text and text.endswith("body=4"), "no blank after the last member"
    members = log_line(parsed(topic=b"\xff"))
    assert members["topic"] == "�"


def test_a_host_of_six_is_as_java_prints_it() -> None:
    packed = ipaddress.ip_address("fe80::1").packed + (4000).to_bytes(4, "big")
    assert _format_host(packed, "|") == "fe80:0:0:0:0:0:0:1|4000"
    assert _format_host(pack_host("1.2.3.4:5"), ":") == "1.2.3.4:5"
    assert _format_host(bytes(4) + b"\xff" * 4, ":") == "0.0.0.0:-1", "Java's ports are signed"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (found.Blank(64, 20), "blank offset=64 size=20"),
        (
            found.LogFileEnd("0" * 20, 1024, True, 900, "blank"),
            f"logFile name={'0' * 20} length=1024 full=true endOfRecords=900 stop=blank",
        ),
        (
            found.LogEnd(3, 900, 1, 2),
            "logEnd records=3 endOffset=900 recordsAfterDamage=1 damages=2",
        ),
        (
            found.Deviation("/s/commitlog/0", 5, "no magic number"),
            "DAMAGE /s/commitlog/0 position 5: no magic number",
        ),
    ],
)
def test_lines_of_a_log(line: Any, text: str) -> None:
    assert text_of(log_line(line)) == text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            found.ConsumeQueueUnit(4, 640, 96, -5),
            "cq topic=T queue=2 index=4 offset=640 size=96 tagsCode=-5",
        ),
        (
            found.ExtUnit(32, 0, 0, 0, b""),
            "cqExt topic=T queue=2 position=32 size=0 end=true",
        ),
        (
            found.ExtUnit(0, 32, 7, 11, b"\x01\xff"),
            "cqExt topic=T queue=2 position=0 size=32 tagsCode=7 storeTime=11 bitmap=01ff",
        ),
        (found.Deviation("f", 1, "cut"), "DAMAGE f position 1: cut"),
    ],
)
def test_lines_of_a_queue(line: Any, text: str) -> None:
    assert text_of(queue_line(line, "T", 2)) == text


def test_a_unit_of_a_batch_queue() -> None:
    unit = found.BatchQueueUnit(
        index=1,
        log_offset=640,
        size=96,
        tags_code=3,
        store_timestamp_ms=11,
        base_queue_offset=40,
        count=10,
        compacted=-1,
        reserved=0,
    )
    members = queue_line(unit, "T", 0)
    assert members["t"] == "bcq" and (members["baseOffset"], members["count"]) == (40, 10)
    assert text_of(members).endswith("baseOffset=40 count=10 compacted=-1 reserved=0")


def test_lines_of_an_index() -> None:
    head = found.IndexHead(
        begin_timestamp_ms=1,
        end_timestamp_ms=9,
        begin_log_offset=64,
        end_log_offset=640,
        slot_count=100,
        count=3,
        slots=100,
        entries=3,
    )
    members = index_head_line("20260101", 4096, head)
    assert members["hashSlotCount"] == 100 and "slots" not in members
    assert text_of(members).startswith("indexFile name=20260101 length=4096 beginTimestamp=1 ")
    entry = found.IndexEntry(number=2, key_hash=99, log_offset=64, time_diff_seconds=1, previous=0)
    assert text_of(index_entry_line("f", entry)) == (
        "indexEntry file=f n=2 keyHash=99 offset=64 timeDiff=1 prev=0"
    )
    bad = found.Deviation("f", 40, "a slot leads nowhere")
    assert index_entry_line("f", bad) == damage_line(bad)


def test_an_absent_file_is_a_line() -> None:
    assert text_of({"t": "x", "a": None, "b": False, "c": 0}) == "x a=- b=false c=0"
