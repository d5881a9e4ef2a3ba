"""Stores for the tests of the table, and the expected row of each of their records.

The model reads record by record with `pyx.record.decode`, which other tests compare with files of a
real RocketMQ, and does not use the decoder under test.
"""

import io
import ipaddress
import mmap
import random
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import zstandard

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.log.epochs import decode as decode_epochs
from turbopump.engine.queues.dispatcher import parse_properties
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, NewMessage, PutStatus
from turbopump.pyx import record as kernel
from turbopump.pyx.region import Region

NOW_MS = 1_700_000_000_000
FILE_SIZE = 16 * 1024
GOLDEN = Path(__file__).parent / "golden" / "stores" / "stores.tar.zst"
GOLDEN_NAMES = (
    "shapes-v4",
    "shapes-v6",
    "prop-crc-ext",
    "killed",
    "default-sizes",
    "default-sizes-killed",
)
V6_HOST = ipaddress.ip_address("2001:db8::7").packed + (10911).to_bytes(4, "big")
ODD_TEXTS = ("plain", "zwei Wörter", "三", "a b\tc", "")


def unpack_golden(folder: Path) -> dict[str, Path]:
    """Every store of the golden archive, by name."""
    window = 1 << 27
    compressed = GOLDEN.read_bytes()
    reader = zstandard.ZstdDecompressor(max_window_size=window).stream_reader(compressed)
    with tarfile.open(fileobj=io.BytesIO(reader.read())) as archive:
        archive.extractall(folder, filter="data")
    return {name: folder / name for name in GOLDEN_NAMES}


@contextmanager
def opened(root: Path, file_size: int = FILE_SIZE) -> Iterator[Store]:
    """A store with small files, closed cleanly after the block."""
    config = StoreConfig(
        str(root),
        mapped_file_size_commit_log=file_size,
        mapped_file_size_consume_queue=200,
        max_hash_slot_num=64,
        max_index_num=100,
        max_message_size=4096,
    )
    store = Store.open(RealFiles(), config, InlineDisk(), NOW_MS)
    try:
        yield store
    finally:
        store.close(NOW_MS)


def put(store: Store, topic: str, queue_id: int, body: bytes, now_ms: int, **fields: Any) -> None:
    """Append a message that must be taken."""
    appended = store.append(NewMessage(topic, queue_id, body, **fields), now_ms)
    assert appended.status is PutStatus.PUT_OK, appended


def fill(
    store: Store, count: int, seed: int = 1, first_ms: int = NOW_MS, step_ms: int = 10
) -> None:
    """Messages of all shapes: topics, queues, hosts of both kinds, properties, bodies; one comes
    each `step_ms`."""
    rng = random.Random(seed)
    for number in range(count):
        pairs = {b"UNIQ_KEY": b"%032X" % rng.getrandbits(128)}
        if rng.random() < 0.5:
            pairs[b"TAGS"] = rng.choice(ODD_TEXTS).encode() or b"T"
        if rng.random() < 0.4:
            pairs[b"KEYS"] = b"k%d k%d" % (number, number + 1)
        if rng.random() < 0.1:
            pairs[b"broken"] = b"\xff\xfe before \xc3"
        if rng.random() < 0.1:
            pairs = {}
        is_v6 = rng.random() < 0.2
        store_ms = first_ms + number * step_ms
        put(
            store,
            f"topic-{rng.randrange(3)}",
            rng.randrange(4),
            rng.randbytes(rng.choice((0, 1, 100, 900))),
            store_ms,
            properties=b"".join(b"%s\x01%s\x02" % pair for pair in pairs.items()),
            flag=rng.randrange(-5, 5),
            born_timestamp_ms=store_ms - rng.randrange(50),
            born_host=V6_HOST if is_v6 else b"\x0a\x00\x00\x07\x00\x00\x27\x11",
            reconsume_times=rng.randrange(3),
            prepared_transaction_offset=rng.randrange(1 << 40),
        )


def moment(time_ms: int) -> datetime:
    """A time of the log as the table has it."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)


def records(root: Path) -> Iterator[kernel.Record]:
    """Every whole record of a store with the right physical offset, up to the first other one."""
    for path in sorted((root / "commitlog").iterdir()):
        base, position = int(path.name), 0
        with path.open("rb") as file:  # mapped: stores of the default sizes have files of 1 GiB
            region = Region(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        while True:
            result = kernel.scan(region, position, region.size)
            for row in range(result.count):
                at, size = result.rows[row, kernel.POSITION], result.rows[row, kernel.SIZE]
                one = kernel.decode(region, at, at + size, base)
                if one.physical_offset != base + at:
                    return
                yield one
            position = result.position
            if result.status != kernel.OK or result.count == 0:
                break


def model_rows(
    root: Path, location: str | None = None, confirmed_end: int | None = None
) -> list[dict[str, Any]]:
    """Every record of a store as a row of the table; None: all of it is confirmed."""
    path = root / "epochFileCheckpoint"
    epochs = decode_epochs(path.read_bytes())[0] if path.exists() else None
    return [_row(one, location or str(root), epochs, confirmed_end) for one in records(root)]


def _row(
    one: kernel.Record, location: str, epochs: Any, confirmed_end: int | None
) -> dict[str, Any]:
    pairs = parse_properties(one.properties)
    number = epochs.index_at(LogOffset(one.log_offset)) if epochs else None
    same = (
        "queue_id", "queue_offset", "log_offset", "size", "flag", "sys_flag", "reconsume_times",
        "prepared_transaction_offset", "body_crc", "body",
    )  # fmt: skip
    return {name: getattr(one, name) for name in same} | {
        "store": location,
        "topic": _text(one.topic),
        "epoch": None if number is None else epochs.entries[number].epoch,
        "born_time": moment(one.born_timestamp_ms),
        "store_time": moment(one.store_timestamp_ms),
        "born_host": _host(one.born_host),
        "store_host": _host(one.store_host),
        "keys": _text(pairs.get(b"KEYS")),
        "tags": _text(pairs.get(b"TAGS")),
        "unique_key": _text(pairs.get(b"UNIQ_KEY")),
        "properties": {_text(name): _text(value) for name, value in pairs.items()},
        "body_size": len(one.body),
        "confirmed": confirmed_end is None or one.log_offset + one.size <= confirmed_end,
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _host(packed: bytes) -> str:
    ip = ipaddress.ip_address(packed[:-4])
    port = int.from_bytes(packed[-4:], "big", signed=True)
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"
