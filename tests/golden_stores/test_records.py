"""Every record that a real RocketMQ wrote is read as RocketMQ reads it."""

import ipaddress
import zlib
from typing import Any

import pytest
from tests.spark_stores import GOLDEN_NAMES

from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.queues.dispatcher import parse_properties
from turbopump.pyx import record as kernel
from turbopump.pyx.crc32 import crc32, masked_crc32
from turbopump.pyx.region import Region

PROPERTY_CRC_SIZE = 20


def packed_host(text: str) -> bytes:
    address, port = text.rsplit("|", 1)
    if ":" in address:
        ip = ipaddress.IPv6Address(address).packed
    else:
        ip = bytes(int(part) for part in address.split("."))
    return ip + int(port).to_bytes(4, "big", signed=True)


def decoded_records(golden: Any) -> dict[int, Any]:
    """All records of the log files, by their log offsets."""
    found = {}
    size = golden.config.mapped_file_size_commit_log
    for path in sorted((golden.root / "commitlog").iterdir()):
        mapped = RealFiles().open(str(path), readonly=True)
        base, position = int(path.name), 0
        while True:
            result = kernel.scan(mapped.region, position, size)
            for row in range(result.count):
                at = result.rows[row, kernel.POSITION]
                raw = mapped.region.read(at, result.rows[row, kernel.SIZE])
                found[base + at] = (kernel.decode(mapped.region, at, size, base), raw)
            position = result.position
            if result.status != kernel.OK or result.count == 0:
                break
        mapped.close()
    return found


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_record_equals_its_truth(name: str, unpack: Any) -> None:
    golden = unpack(name)
    records = decoded_records(golden)
    truth = golden.truth("record")
    assert list(records) == [line["offset"] for line in truth]
    for line in truth:
        record, raw = records[line["offset"]]
        assert record.crc_ok
        seen = {
            "offset": record.log_offset,
            "size": record.size,
            "crc": record.body_crc,
            "queueId": record.queue_id,
            "flag": record.flag,
            "queueOffset": record.queue_offset,
            "physicalOffset": record.physical_offset,
            "sysFlag": record.sys_flag,
            "bornTimestamp": record.born_timestamp_ms,
            "storeTimestamp": record.store_timestamp_ms,
            "reconsumeTimes": record.reconsume_times,
            "preparedTransactionOffset": record.prepared_transaction_offset,
            "bodyLength": len(record.body),
            "bodyCrc32": crc32(record.body),
            "topic": record.topic.decode(),
            "propertiesLength": len(record.properties),
            "propertiesCrc32": crc32(record.properties),
            "recordCrc32": zlib.crc32(raw),
        }
        assert seen == {key: line[key] for key in seen}
        assert record.magic == {-626843481: kernel.V1, -626843477: kernel.V2}[line["magic"]]
        assert record.born_host == packed_host(line["bornHost"])
        assert record.store_host == packed_host(line["storeHost"])
        properties = parse_properties(record.properties)
        assert {k.decode(): v.decode() for k, v in properties.items()} == line["properties"]


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_record_encodes_to_the_same_bytes(name: str, unpack: Any) -> None:
    golden = unpack(name)
    with_crc = golden.config.enabled_append_prop_crc
    for at, (record, raw) in decoded_records(golden).items():
        memory = bytearray(record.size + kernel.FILLER_SIZE)
        region = Region(memory)
        text = record.properties[:-PROPERTY_CRC_SIZE] if with_crc else record.properties
        size = kernel.append(
            region,
            0,
            len(memory),
            log_offset=at,
            topic=record.topic,
            body=record.body,
            properties=text,
            queue_id=record.queue_id,
            flag=record.flag,
            queue_offset=record.queue_offset,
            sys_flag=record.sys_flag,
            born_timestamp_ms=record.born_timestamp_ms,
            born_host=record.born_host,
            store_timestamp_ms=record.store_timestamp_ms,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=record.prepared_transaction_offset,
            version=record.magic,
            property_crc=with_crc,
        )
        assert size == record.size
        assert bytes(memory[:size]) == raw
        if with_crc:
            digits = raw[-11:-1]
            assert int(digits[::-1]) == masked_crc32(raw[:-PROPERTY_CRC_SIZE])


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_fillers_are_where_the_truth_says(name: str, unpack: Any) -> None:
    golden = unpack(name)
    size = golden.config.mapped_file_size_commit_log
    for line in golden.truth("blank"):
        start = line["offset"] // size * size
        path = golden.root / "commitlog" / f"{start:020d}"
        with path.open("rb") as file:
            file.seek(line["offset"] - start)
            filler = file.read(8)
        assert int.from_bytes(filler[:4], "big") == line["size"]
        assert int.from_bytes(filler[4:], "big") == kernel.BLANK & 0xFFFFFFFF
