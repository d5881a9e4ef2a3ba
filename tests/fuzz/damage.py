"""A small store whose files are damaged in any way, opened, read through, written to, opened again.

The result of a recovery is judged elsewhere; here it must come to an end: a store that opens and
serves its messages, or an error with a reason.
"""

import functools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tests.sim.disk import SimDisk
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.store import Store
from turbopump.engine.types import Boundary, NewMessage, StoreError

ROOT: Final = "/store"
NOW_MS: Final = 1_800_000_000_000
DELAYS_MS: Final = (1000, 5000)
CONFIG: Final = StoreConfig(
    root=ROOT,
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=100,
    mapped_file_size_consume_queue_ext=256,
    mapper_file_size_batch_consume_queue=92,
    max_hash_slot_num=5,
    max_index_num=20,
    max_message_size=2048,
)
BATCH_TOPIC: Final = "Batch"
NAMES: Final = (("A", 0), ("A", 1), ("SCHEDULE_TOPIC_XXXX", 0), (BATCH_TOPIC, 0))
MESSAGES: Final = 24
READ_MAX: Final = 100


def check_store(data: bytes) -> None:
    """The first byte chooses the store, the rest is damage; see `_damage`."""
    mode = data[0] if data else 0
    config = replace(CONFIG, enable_consume_queue_ext=mode & 1 == 1)
    disk = _disk()
    for path, content in _template(config):
        if path != f"{ROOT}/abort" or mode & 2:
            disk.make_folders(path.rpartition("/")[0])
            disk.write(path, content)
    _damage(disk, data[1:])
    disk.settle()
    try:
        store = _open(disk, config)
    except StoreError as error:
        assert str(error) and "\n" not in str(error)
        return
    _read(store)
    for topic, queue_id in NAMES:
        store.append(NewMessage(topic, queue_id, b"more", b"KEYS\x01k1\x02"), NOW_MS + 1)
    store.tick(NOW_MS + 200)
    _read(store)
    seen = _ends(store)
    store.close(NOW_MS + 300)
    store = _open(disk, config)
    # Bytes after the end that looked like units may be next to it only now.
    now = _ends(store)
    assert all(now[name] >= end for name, end in seen.items() if end)
    store.close(NOW_MS + 400)


def _damage(disk: SimDisk, data: bytes) -> None:
    """Steps of file, kind, position (2 bytes) and, for some kinds, bytes."""
    at = 0
    while at + 4 <= len(data) and (paths := disk.paths(ROOT)):
        path, kind = paths[data[at] % len(paths)], data[at + 1]
        content = disk.content(path)
        position = int.from_bytes(data[at + 2 : at + 4], "big") % (len(content) + 1)
        at += 4
        size = min((kind >> 2) + 1, len(content) - position)
        if kind & 3 == 0:
            piece = data[at : at + size]
            content[position : position + len(piece)] = piece
            at += size
        elif kind & 3 == 1:
            content[position : position + size] = bytes(size)
        elif kind & 3 == 2:
            disk.write(path, bytes(content[:position]))
        else:
            disk.remove(path)


def _read(store: Store) -> None:
    for topic in store.topics():
        for queue_id in store.queue_ids(topic):
            begin, end = (
                store.min_queue_offset(topic, queue_id),
                store.max_queue_offset(topic, queue_id),
            )
            for boundary in Boundary:
                store.search_time(topic, queue_id, NOW_MS, boundary)
            for queue_offset in (*range(begin, min(end, begin + READ_MAX)), end, -1, end + 5):
                store.store_timestamp_ms(topic, queue_id, queue_offset)
            store.units(topic, queue_id, begin, READ_MAX)
            for codes in (None, frozenset({1})):
                at = begin
                for _ in range(READ_MAX):
                    result = store.read(topic, queue_id, at, 8, codes)
                    if result.next_queue_offset <= at:
                        break
                    at = result.next_queue_offset
        store.query(topic, "k1", 10, 0, NOW_MS * 2)
    for log_offset in range(store.min_log_offset, store.max_log_offset, 97):
        store.record(log_offset)
        store.record_view(log_offset)


def _ends(store: Store) -> dict[tuple[str, int], int]:
    return {
        (topic, queue_id): store.max_queue_offset(topic, queue_id)
        for topic in store.topics()
        for queue_id in store.queue_ids(topic)
    }


def _open(disk: SimDisk, config: StoreConfig) -> Store:
    return Store.open(
        disk,
        config,
        InlineDisk(),
        NOW_MS,
        delay_levels_ms=list(DELAYS_MS),
        is_batch_topic=lambda topic: topic == BATCH_TOPIC,
    )


def _disk() -> SimDisk:
    return SimDisk(random.Random(0), lambda: NOW_MS)


@functools.cache
def _template(config: StoreConfig) -> list[tuple[str, bytes]]:
    """The files of a store with a few messages of each kind, the abort file among them."""
    disk = _disk()
    store = _open(disk, config)
    for number in range(MESSAGES):
        topic, queue_id = NAMES[number % len(NAMES)]
        properties = f"KEYS\x01k{number % 3}\x02TAGS\x01t{number % 2}\x02DELAY\x011\x02"
        if topic == BATCH_TOPIC:
            properties += "INNER_NUM\x013\x02"
        body = bytes([number]) * (150 * (number % 4))
        store.append(NewMessage(topic, queue_id, body, properties.encode()), NOW_MS)
    abort = [(path, bytes(disk.content(path))) for path in disk.paths(ROOT) if "abort" in path]
    assert abort
    store.close(NOW_MS)
    return [*abort, *((path, bytes(disk.content(path))) for path in disk.paths(ROOT))]


def store_seeds() -> Iterator[bytes]:
    """Seeds with one damage of each kind to each file, and without any."""
    yield from (b"\0", b"\1", b"\2", b"\3")
    for number in range(24):
        for kind in (0x1C, 0x41, 2, 3):
            yield bytes([number & 3, number, kind, 0, number * 9]) + b"\x7f\xff\xff\xff" * 2
