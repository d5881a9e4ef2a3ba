"""Stores that a real RocketMQ wrote, as a table: every record of the truth, column by column."""

import json
import pickle
from typing import Any

import pytest
from tests.columns_model import rows
from tests.spark_stores import GOLDEN_NAMES

from turbopump.engine.snapshot.inspect import Deviation
from turbopump.engine.snapshot.log_table import LogTable, ScanQuery, decode
from turbopump.net.wire import hosts
from turbopump.pyx.columns import COLUMNS
from turbopump.pyx.crc32 import crc32


def rows_of(table: LogTable, range_bytes: int) -> list[dict[str, Any]]:
    found = []
    for part in table.split_ranges(range_bytes):
        part = pickle.loads(pickle.dumps(part))
        for batch in decode(part, ScanQuery(check_body=True, batch_rows=100)):
            found += [dict(zip(COLUMNS, row, strict=True)) for row in rows(batch, COLUMNS)]
    return found


@pytest.mark.parametrize("range_bytes", [1 << 40, 1000])
@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_record_is_a_row(name: str, range_bytes: int, unpack: Any) -> None:
    golden = unpack(name)
    table = LogTable.open(str(golden.root))
    found = rows_of(table, range_bytes)
    truth = golden.truth("record")
    for line, row in zip(truth, found, strict=True):
        seen = {
            "offset": row["log_offset"],
            "size": row["size"],
            "crc": row["body_crc"],
            "queueId": row["queue_id"],
            "flag": row["flag"],
            "queueOffset": row["queue_offset"],
            "sysFlag": row["sys_flag"],
            "bornTimestamp": row["born_time"] // 1000,
            "storeTimestamp": row["store_time"] // 1000,
            "reconsumeTimes": row["reconsume_times"],
            "preparedTransactionOffset": row["prepared_transaction_offset"],
            "bodyLength": row["body_size"],
            "bodyCrc32": crc32(row["body"]),
            "topic": row["topic"],
            "properties": dict(row["properties"]),
        }
        assert seen == {key: line[key] for key in seen}
        for host in ("born", "store"):
            ip, port = line[f"{host}Host"].rsplit("|", 1)
            assert hosts.unpack_host(hosts.pack_ip(ip, int(port))) == row[f"{host}_host"]
    last = truth[-1]
    assert table.end == table.confirmed_end >= last["offset"] + last["size"]
    assert table.min == truth[0]["offset"] and not table.is_replicated


@pytest.mark.parametrize("name", ["killed-torn-zeroed", "killed-torn-short"])
def test_a_torn_end_is_left_out(name: str, unpack: Any) -> None:
    golden = unpack("killed")
    torn = json.loads(golden.data(f"{name}.torn.json"))
    path = golden.root / "commitlog" / torn["file"]
    with path.open("r+b") as file:
        file.truncate(torn["cutOffset"] - int(torn["file"]))
        file.truncate(torn["lengthAfter"])
    table = LogTable.open(str(golden.root))
    assert table.end == torn["recordOffset"]
    kept = [line for line in golden.truth("record") if line["offset"] < table.end]
    assert len(rows_of(table, 1 << 20)) == len(kept)


def test_a_changed_body_is_named_and_passed(unpack: Any) -> None:
    golden = unpack("killed")
    torn = json.loads(golden.data("killed-torn-middle.torn.json"))
    path = golden.root / "commitlog" / torn["file"]
    at = torn["cutOffset"] - int(torn["file"])
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))
    damages: list[Deviation] = []
    table = LogTable.open(str(golden.root), damaged=damages.append)
    position = torn["recordOffset"] - int(torn["file"])
    query = ScanQuery(columns=("log_offset",), check_body=True)
    found = []
    for part in table.split_ranges(1 << 20):
        for batch in decode(part, query, damaged=damages.append):
            found += [log_offset for (log_offset,) in rows(batch, query.columns)]
    truth = [line["offset"] for line in golden.truth("record")]
    assert found == [offset for offset in truth if offset != torn["recordOffset"]]
    assert {one.position for one in damages} == {position}
