"""A log, its queues and an index, for tests of dispatch."""

from typing import Any

from turbopump.pyx import dispatch, record
from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.index import HEADER_SIZE, IndexFile
from turbopump.pyx.region import Region

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
EVER = (0, 1 << 62)


class Log:
    """A log file under test: records appended one by one."""

    def __init__(self, size: int = 65536, base: int = 0) -> None:
        self.region = Region(bytearray(size))
        self.base = base
        self.end = 0

    def add(self, **changes: Any) -> int:
        """Append a record; returns its log offset."""
        fields: dict[str, Any] = {
            "log_offset": self.base + self.end,
            "topic": b"T",
            "body": b"body",
            "properties": b"",
            "queue_id": 0,
            "flag": 0,
            "queue_offset": 0,
            "sys_flag": 0,
            "born_timestamp_ms": 1,
            "born_host": HOST,
            "store_timestamp_ms": 1000,
            "store_host": HOST,
            "reconsume_times": 0,
            "prepared_transaction_offset": 0,
            "version": record.V1,
            **changes,
        }
        start = self.end
        self.end += record.append(self.region, start, self.region.size, **fields)
        return self.base + start


def table_of(log: Log, *queues: tuple[bytes, int], units: int = 100) -> tuple[QueueTable, Region]:
    """A table whose queues have consecutive parts of a single region."""
    table = QueueTable()
    region = Region(bytearray(units * 20 * len(queues)))
    for topic, queue_id in queues:
        table.attach(table.add(topic, queue_id), region, 0, units * 20)
    return table, region


def run(table: QueueTable, log: Log, start: int = 0, end: int | None = None) -> dispatch.Stop:
    return table.dispatch(log.region, log.base, start, log.end if end is None else end)


def index_of(entries: int = 100, slots: int = 16) -> IndexFile:
    return IndexFile(Region(bytearray(HEADER_SIZE + slots * 4 + entries * 20)), slots, entries)
