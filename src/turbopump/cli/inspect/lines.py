"""Lines for the contents of a store file: JSON members, and text for people.

Owns the member names, the same as in the golden files of the tests (RocketMQ's own classes where
they exist). It must never read a file.
"""

import ipaddress
from typing import Any

from turbopump.engine.snapshot import inspect as found
from turbopump.engine.types import LogOffset
from turbopump.net.wire.message_id import encode_message_id
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.crc32 import crc32
from turbopump.pyx.record import V1

Members = dict[str, Any]
"""A line as a JSON object; its member `t` is the kind of the line."""


def log_line(line: found.LogLine) -> Members:
    """Build the line of `inspect log --json` for a record, a filler, an end or damage."""
    match line:
        case found.LogRecord():
            return _record_members(line)
        case found.Blank():
            return {"t": "blank", "offset": line.log_offset, "size": line.size}
        case found.LogFileEnd():
            return {
                "t": "logFile",
                "name": line.name,
                "length": line.length,
                "full": line.full,
                "endOfRecords": line.end_of_records,
                "stop": line.stop,
            }
        case found.LogEnd():
            return {
                "t": "logEnd",
                "records": line.records,
                "endOffset": line.end_offset,
                "recordsAfterDamage": line.after_damage,
                "damages": line.damages,
            }
        case found.Deviation():
            return damage_line(line)


def _record_members(line: found.LogRecord) -> Members:
    record = line.record
    return {
        "t": "record",
        "offset": record.log_offset,
        "size": record.size,
        "magic": record.magic,
        "crc": record.body_crc,
        "crcOk": record.crc_ok,
        "queueId": record.queue_id,
        "flag": record.flag,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": _format_host(record.born_host, "|"),
        "storeTimestamp": record.store_timestamp_ms,
        "storeHost": _format_host(record.store_host, "|"),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyLength": len(record.body),
        "bodyCrc32": crc32(record.body),
        "topic": record.topic.decode("utf-8", "replace"),
        "propertiesLength": len(record.properties),
        "propertiesCrc32": crc32(record.properties),
        "properties": decode_properties(record.properties),
        "offsetMsgId": encode_message_id(record.store_host, LogOffset(record.physical_offset)),
        "recordCrc32": line.record_crc,
    }


def damage_line(line: found.Deviation) -> Members:
    """Build the line for damage, alike for every kind of file."""
    return {"t": "damage", "file": line.file, "position": line.position, "reason": line.reason}


def queue_line(line: found.QueueLine, topic: str, queue_id: int) -> Members:
    """Build the line of `inspect queue --json` for a unit of this queue, or for damage."""
    whose = {"topic": topic, "queue": queue_id}
    match line:
        case found.ConsumeQueueUnit():
            return {"t": "cq", **whose, "index": line.index, **_unit_members(line)}
        case found.BatchQueueUnit():
            return {
                "t": "bcq",
                **whose,
                "index": line.index,
                **_unit_members(line),
                "storeTimestamp": line.store_timestamp_ms,
                "baseOffset": line.base_queue_offset,
                "count": line.count,
                "compacted": line.compacted,
                "reserved": line.reserved,
            }
        case found.ExtUnit() if line.size == 0:
            return {"t": "cqExt", **whose, "position": line.position, "size": 0, "end": True}
        case found.ExtUnit():
            return {
                "t": "cqExt",
                **whose,
                "position": line.position,
                "size": line.size,
                "tagsCode": line.tags_code,
                "storeTime": line.store_timestamp_ms,
                "bitmap": line.bitmap.hex(),
            }
        case found.Deviation():
            return damage_line(line)


def _unit_members(line: found.ConsumeQueueUnit | found.BatchQueueUnit) -> Members:
    return {"offset": line.log_offset, "size": line.size, "tagsCode": line.tags_code}


def index_head_line(name: str, length: int, head: found.IndexHead) -> Members:
    """Build the line of the index file `name` with `length` bytes, without its slots, which may be
    millions."""
    return {
        "t": "indexFile",
        "name": name,
        "length": length,
        "beginTimestamp": head.begin_timestamp_ms,
        "endTimestamp": head.end_timestamp_ms,
        "beginPhyOffset": head.begin_log_offset,
        "endPhyOffset": head.end_log_offset,
        "hashSlotCount": head.slot_count,
        "indexCount": head.count,
    }


def index_entry_line(name: str, line: found.IndexEntry | found.Deviation) -> Members:
    """Build the line for an entry of the index file `name`, or for damage."""
    if isinstance(line, found.Deviation):
        return damage_line(line)
    return {
        "t": "indexEntry",
        "file": name,
        "n": line.number,
        "keyHash": line.key_hash,
        "offset": line.log_offset,
        "timeDiff": line.time_diff_seconds,
        "prev": line.previous,
    }


def text_of(members: Members) -> str:
    """Format a line for people, without a newline: its kind, then `name=value` pairs."""
    kind = members["t"]
    if kind == "damage":
        return f"DAMAGE {members['file']} position {members['position']}: {members['reason']}"
    if kind == "record":
        return _record_text(members)
    shown = " ".join(
        f"{name}={_plain_text(value)}" for name, value in members.items() if name != "t"
    )
    return f"{kind} {shown}"


def _record_text(members: Members) -> str:
    version = "V1" if members["magic"] == V1 else "V2"
    verdict = "ok" if members["crcOk"] else "BAD"
    properties = " ".join(f"{name}={value!r}" for name, value in members["properties"].items())
    return (
        f"{members['offset']} size={members['size']} {version} crc={verdict} "
        f"topic={members['topic']} queue={members['queueId']} "
        f"queueOffset={members['queueOffset']} sysFlag={members['sysFlag']:#x} "
        f"flag={members['flag']} born={members['bornTimestamp']}@{members['bornHost']} "
        f"stored={members['storeTimestamp']}@{members['storeHost']} "
        f"retries={members['reconsumeTimes']} body={members['bodyLength']} {properties}"
    ).rstrip()


def _plain_text(value: object) -> object:
    """A value as text for people: "-" for None, `true` or `false` for a bool; others are returned
    themselves."""
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else value


def _format_host(packed: bytes, separator: str) -> str:
    """Format a packed host as Java prints it: an IPv6 address without any shortening."""
    ip, port = ipaddress.ip_address(packed[:-4]), int.from_bytes(packed[-4:], "big", signed=True)
    if isinstance(ip, ipaddress.IPv6Address):
        groups = (int(group, 16) for group in ip.exploded.split(":"))
        return ":".join(f"{group:x}" for group in groups) + f"{separator}{port}"
    return f"{ip}{separator}{port}"
