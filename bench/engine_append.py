"""Measures the records per second that the engine appends to its log, without Python between them.

They go into a warm mapping, as in the comparison: bench/bound.c copies the same bytes into one. It
is the native path of a broker from the decoded send: properties, queue, one pass for the CRC and
one for the copy. `dispatched` includes queue unit and index entries.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import encode, new_request
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.pyx import record
from turbopump.pyx.lane import Lane

NOW_MS = 1_800_000_000_000
TOPIC = "Bench"
PROPERTIES = "UNIQ_KEY\x017F0000010000558C00000000000000EF\x02WAIT\x01true\x02"
OWN = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
HOST = b"\x7f\0\0\1\0\0\0\1"
FILE_SIZE = 256 << 20


def record_size(body: int) -> int:
    """Return the bytes of a record with a body of that size."""
    text = len(PROPERTIES) + len(OWN)
    return record.record_size(len(TOPIC), body, text, len(HOST), len(HOST), record.V1)


def send_frame(body: int) -> bytes:
    """Return the frame of a send with a body of `body` bytes, as a client writes it."""
    header = SendMessageRequestV2(
        producer_group="bench",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=NOW_MS,
        flag=0,
        properties=PROPERTIES,
    )
    parts = encode(new_request(RequestCode.SEND_MESSAGE_V2, header, b"x" * body))
    return b"".join(bytes(part) for part in parts)


@contextmanager
def ready_lane(folder: Path) -> Iterator[Lane]:
    """Open the native path into a fresh store, whose only log file is in memory and mapped."""
    config = StoreConfig(root=str(folder), mapped_file_size_commit_log=FILE_SIZE)
    store = Store.open(RealFiles(), config, InlineDisk(), NOW_MS)
    lane = store.make_lane(lambda: None)
    store.append(NewMessage(TOPIC, 0, b"x", PROPERTIES.encode()), NOW_MS)
    file = store._log._file
    assert file is not None
    file.mark_dirty(0, FILE_SIZE)
    lane.configure(OWN.encode(), b"DefaultRegion", True, HOST, 0, 1, b"")
    lane.serve(TOPIC.encode(), 1)
    try:
        yield lane
    finally:
        store.close(NOW_MS)


def appends_per_s(folder: Path, body: int, *, dispatched: bool = False) -> float:
    """Fill one log file with records by the native path; return the records per second."""
    count = FILE_SIZE * 9 // 10 // record_size(body)
    with ready_lane(folder) as lane:
        begin = time.perf_counter()
        stored = lane.append_repeatedly(send_frame(body), HOST, count, dispatched)
        return_s = time.perf_counter() - begin
    assert stored == count, f"{stored} of {count} were stored natively"
    return count / return_s
