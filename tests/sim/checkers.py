"""What must hold of an opened store, whatever happened before. Apart from the harness, so that a
planted bug can prove each of them.

I1 acknowledged survives, I8 shown survives (under sync flush), I9 queues contiguous and unique,
I10 queues and index equal a rebuild from the log, I12 nothing behind the log's end.
"""

from typing import TYPE_CHECKING

from turbopump.engine.config import StoreConfig
from turbopump.engine.files import Files
from turbopump.engine.store import Store
from turbopump.pyx import record as kernel
from turbopump.pyx.record import Record

if TYPE_CHECKING:
    from tests.sim.store_suite import Model


def check_store(store: Store, model: "Model", config: StoreConfig, files: Files) -> None:
    """All checks; AssertionError names the queue and the offset."""
    records = log_records(store, config, files)
    check_promises(store, model)
    check_queues(store, records)
    check_index(store, records)
    forget_lost(store, model)


def log_records(store: Store, config: StoreConfig, files: Files) -> list[Record]:
    """All records of the log, and that nothing but zeros follows them (I12)."""
    records: list[Record] = []
    size = config.mapped_file_size_commit_log
    for name in files.list_folder(config.log_folder):
        base = int(name)
        mapped = files.open(f"{config.log_folder}/{name}", readonly=True)
        at = 0
        while base + at < store.max_log_offset and at < size:
            result = kernel.scan(mapped.region, at, size, 1)
            if result.count == 0:
                assert result.status == kernel.BLANK_FOUND, f"log {base + at}: {result.reason}"
                at = size
                break
            found = kernel.decode(mapped.region, at, size, base)
            assert found.physical_offset == base + at, f"log {base + at}: lies elsewhere"
            records.append(found)
            at += found.size
        if at < size:
            assert mapped.region.is_zero(at, size - at), f"log {base + at}: bytes behind the end"
        mapped.close()
    return records


def check_promises(store: Store, model: "Model") -> None:
    """Every acknowledged message is at its queue offset (I1), and what was shown too (I8)."""
    for (topic, queue_id), queue in model.queues.items():
        for number, sent in queue.items():
            if not sent.acked and not (sent.seen and model.sync):
                continue
            units = store.units(topic, queue_id, number, 1)
            assert units, f"{topic}/{queue_id} {number}: acknowledged, but gone"
            found = store.record(units[0].log_offset)
            assert found is not None, f"{topic}/{queue_id} {number}: no record"
            assert found.body == sent.body, f"{topic}/{queue_id} {number}: another message"


def check_queues(store: Store, records: list[Record]) -> None:
    """Queue units are exactly the log's records, in order, without a hole (I9, I10)."""
    expected: dict[tuple[str, int], list[Record]] = {}
    for found in records:
        expected.setdefault((found.topic.decode(), found.queue_id), []).append(found)
    for topic in store.topics():
        for queue_id in store.queue_ids(topic):
            mine = expected.pop((topic, queue_id), [])
            assert store.max_queue_offset(topic, queue_id) == len(mine), f"{topic}/{queue_id} end"
            assert store.min_queue_offset(topic, queue_id) == 0, f"{topic}/{queue_id} minimum"
            units = []
            while len(units) < len(mine):
                part = store.units(topic, queue_id, len(units), 64)
                assert part, f"{topic}/{queue_id} {len(units)}: no unit"
                units += part
            for number, (unit, found) in enumerate(zip(units, mine, strict=True)):
                assert (unit.log_offset, unit.size, found.queue_offset) == (
                    found.log_offset, found.size, number,
                ), f"{topic}/{queue_id} {number}: unit {unit}"  # fmt: skip
    assert not expected, f"no queue for {sorted(expected)}"


def check_index(store: Store, records: list[Record]) -> None:
    """Every key finds its records (I10)."""
    by_key: dict[tuple[str, str], set[int]] = {}
    for found in records:
        for piece in found.properties.split(b"\x02"):
            name, _, value = piece.partition(b"\x01")
            if name == b"KEYS":
                by_key.setdefault((found.topic.decode(), value.decode()), set()).add(
                    found.log_offset
                )
    for (topic, key), offsets in by_key.items():
        result = store.query(topic, key, 64, 0, 1 << 60)
        hits = {int.from_bytes(bytes(part[28:36]), "big") for part in result.slices}
        missing = sorted(offsets - hits)
        assert not missing or len(hits) >= 64, f"{topic} {key}: not in the index: {missing}"


def forget_lost(store: Store, model: "Model") -> None:
    """What was neither acknowledged nor there any more was never sent, as far as readers know."""
    for (topic, queue_id), queue in model.queues.items():
        end = store.max_queue_offset(topic, queue_id)
        for number in [number for number in queue if number >= end]:
            del queue[number]
