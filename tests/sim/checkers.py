"""Invariants of a store, whatever happened before.

The checks are apart from the harness and, where possible, from the engine: files are compared as
bytes with the expected bytes of the model.

I1: acknowledged messages survive. I8: messages that were shown to readers survive. I9: queue
offsets are contiguous and unique, min <= max. I10: queues and index equal the log. I12: no bytes
after the log's end. AssertionErrors name queue and offset.
"""

import random
import struct
from typing import TYPE_CHECKING

from tests.sim.disk import SimDisk
from tests.sim.model import Model, Name, Sent
from turbopump.engine.disk.checkpoint import DurableMarks
from turbopump.engine.store import Store
from turbopump.engine.types import ReadStatus
from turbopump.pyx.index import java_hash

if TYPE_CHECKING:
    from turbopump.engine.config import StoreConfig

UNIT_SIZE = 20
BLANK_UNIT = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
ZEROS = bytes(1 << 16)
KEYS_SAMPLED = 1
QUEUES_SAMPLED = 2
HITS_MAX = 64
# csrc/dispatch.c: number of records whose units are written before the keys of the first of them.
UNITS_AHEAD_MAX = 16
PHYSICAL_OFFSET_AT = 28


def check_opened(store: Store, model: Model, disk: SimDisk) -> None:
    """Check a store after its recovery: everything required survived, and all that it has is
    durable.
    """
    model.found(store.max_log_offset)
    model.begins(store.min_log_offset)
    model.flushed(disk, store.flushed_log_offset)
    assert store.flushed_log_offset == store.max_log_offset, "recovered, but not durable"
    assert store.dispatched_log_offset == store.max_log_offset, "recovered, but not dispatched"
    check_cut(model, disk)


def check_cut(model: Model, disk: SimDisk) -> None:
    """Check that no bytes after the end of the log and of the queues can come back (law 6, I12)."""
    end = len(model.log)
    path = f"{model.folder}/{end - end % model.file_size:020d}"
    behind = (disk.durable(path) or b"")[end % model.file_size :]
    assert behind == ZEROS[: len(behind)], f"log {end}: bytes that were cut are still on the disk"
    deleted = {one.name[0] for one in model.sent if one.former}
    for name, queue in model.queues.items():
        end = len(queue) * UNIT_SIZE
        folder = f"{model.root}/consumequeue/{name[0]}/{name[1]}"
        # Names of a topic's former life may come back: the records of their units show that life.
        paths = disk.paths(folder) if name[0] in deleted else disk.durable_paths(folder)
        for path in paths:
            behind = (disk.durable(path) or b"")[max(0, end - int(path[-20:])) :]
            assert behind == ZEROS[: len(behind)], (
                f"{name}: units that were cut are still on the disk"
            )


def check_store(
    store: Store, model: Model, config: "StoreConfig", disk: SimDisk, rng: random.Random
) -> None:
    """Make all checks that hold at any moment of a store's life."""
    check_log(model, config, disk)
    check_queues(store, model, config, disk)
    check_index(store, model, rng)
    names = list(model.queues)
    for _ in range(min(QUEUES_SAMPLED, len(names))):
        check_read(store, model, names[int(rng.random() * len(names))], rng)


def check_checkpoint(
    marks: DurableMarks, store: Store, model: Model, disk: SimDisk, root: str
) -> None:
    """Check that the saved checkpoint covers only durable bytes (law 4)."""
    assert marks.log <= model.safe, f"the checkpoint has the log durable up to {marks.log}"
    assert marks.queues <= marks.log, "the checkpoint has queues ahead of the log"
    for name, queue in model.queues.items():
        count = model.visible(name, marks.queues)
        check_durable_units(name, queue, store.min_queue_offset(*name), count, disk, root)


def check_counted(store: Store, model: Model, disk: SimDisk, root: str) -> None:
    """Check that every queue kept its durable count of messages that expired from the log:
    otherwise a start would number later ones from 0 again.
    """
    for name, queue in model.queues.items():
        count = model.first(name, store.min_log_offset)
        paths = disk.paths(f"{root}/consumequeue/{name[0]}/{name[1]}/")
        if any(int(path[-20:]) >= count * UNIT_SIZE and disk.durable(path) for path in paths):
            continue  # the name of a later file gives the count
        # A rebuilt queue has blank units for messages that had expired by then: they count, too.
        check_durable_units(name, queue, count - 1, count, disk, root, blanks_too=True)


def check_removals(model: Model, disk: SimDisk, start: int) -> int:
    """Check the durable names of removed log files, and return the first file that a crash may
    restore.

    Log files are removed in order: if a power cut took back only the first of two removals, the log
    would have a hole. Files before `start` cannot come back.
    """
    coming: list[int] = []
    for base in range(start, model.min_log, model.file_size):
        path = f"{model.folder}/{base:020d}"
        if disk.exists(path):
            break
        if disk.durable(path) is not None:
            coming.append(base)
        elif not coming:
            start = base + model.file_size
    assert len(coming) <= 1, f"log {coming}: removed at once, a power cut may keep any of them"
    return start


def check_durable_units(
    name: Name,
    queue: list[Sent],
    start: int,
    stop: int,
    disk: SimDisk,
    root: str,
    blanks_too: bool = False,
) -> None:
    """The disk has these units of a queue, for good; one alone may be blank with `blanks_too`."""
    start = max(0, start)
    if start >= stop:
        return
    units = b"".join([one.unit for one in queue[start:stop]])
    first = at = start * UNIT_SIZE
    paths = disk.paths(f"{root}/consumequeue/{name[0]}/{name[1]}/")
    bases = [int(path[-20:]) for path in paths]
    for path, base, after in zip(paths, bases, [*bases[1:], stop * UNIT_SIZE], strict=True):
        end = min(after, stop * UNIT_SIZE)
        if not base <= at < end:
            continue
        content = disk.durable(path)
        assert content is not None, f"{name} {at // UNIT_SIZE}: no durable file for its unit"
        held, wanted = content[at - base : end - base], units[at - first : end - first]
        if held != wanted and not (blanks_too and held == BLANK_UNIT):
            number = (at + first_difference(held.ljust(len(wanted)), wanted)) // UNIT_SIZE
            raise AssertionError(
                f"{name} {number}: its unit counts as durable, but the disk has another unit"
            )
        at = end
    assert at >= stop * UNIT_SIZE, f"{name} {at // UNIT_SIZE}: no durable file for its unit"


def check_log(model: Model, config: "StoreConfig", disk: SimDisk) -> None:
    """Check that the log has exactly the appended bytes, and only zeros after them (I1, I12)."""
    size, end = model.file_size, len(model.log)
    expected = model.min_log
    for path in disk.paths(config.log_folder):
        base = int(path[-20:])
        content = disk.content(path)
        assert len(content) == size, f"{path} has {len(content)} bytes"
        assert base == expected or base < model.min_log, f"log {expected}: no file"
        expected = max(expected, base + size)
        used = max(0, min(size, end - base))
        if content[:used] != model.log[base : base + used]:
            at = next(i for i in range(used) if content[i] != model.log[base + i])
            raise AssertionError(f"log {base + at}: another byte than was appended")
        assert content[used:] == ZEROS[: size - used], f"log {base + used}: bytes beyond the end"
    assert expected >= end, f"log {expected}: no file"


def check_queues(store: Store, model: Model, config: "StoreConfig", disk: SimDisk) -> None:
    """Queue units are exactly the log's messages, in order, without a hole (I9, I10)."""
    for name, queue in model.queues.items():
        count, minimum = offsets(store, model, name)
        folder = f"{config.root}/consumequeue/{name[0]}/{name[1]}"
        check_units(name, queue[:count], minimum, disk, folder)
    unknown = set(store.topics()) - {name[0] for name in model.queues}
    assert not unknown, f"topics without an owner: {unknown}"


def offsets(store: Store, model: Model, name: Name) -> tuple[int, int]:
    """A queue's max and min offset, after a check of both."""
    queue, dispatched = model.queues.get(name, []), store.dispatched_log_offset
    count, found = model.visible(name, dispatched), store.max_queue_offset(*name)
    if count < found <= len(queue):
        # Where dispatch waits for room in the index, some units are there before their keys.
        ahead = [one for one in model.sent if dispatched <= one.start <= queue[found - 1].start]
        count = found if len(ahead) <= UNITS_AHEAD_MAX else count
    assert found == count, f"{name}: max offset {found}, expected {count}"
    low = min(count, model.first(name, model.min_log))
    high = min(count, model.first(name, model.expired))
    minimum = store.min_queue_offset(*name)
    assert low <= minimum <= high, f"{name}: min offset {minimum}, expected {low} to {high}"
    return count, minimum


def check_units(name: Name, queue: list[Sent], minimum: int, disk: SimDisk, folder: str) -> None:
    """Check that the files of a queue hold these units from offset `minimum`, and zeros
    after them.
    """
    units = b"".join([one.unit for one in queue])
    at = minimum * UNIT_SIZE
    for path in disk.paths(folder + "/"):
        base, content = int(path[-20:]), disk.content(path)
        end = base + len(content)
        if end <= at:
            continue
        if base <= at < len(units):
            stop = min(end, len(units))
            if content[at - base : stop - base] != units[at:stop]:
                number = first_difference(content[at - base :], units[at:stop]) + at
                raise AssertionError(f"{name} {number // UNIT_SIZE}: another unit")
            at = stop
        used = max(0, len(units) - base)
        assert content[used:] == ZEROS[: max(0, len(content) - used)], (
            f"{name}: units beyond {len(queue)}"
        )
    assert at >= len(units), f"{name} {at // UNIT_SIZE}: no file for its unit"


def first_difference(left: bytes | bytearray, right: bytes | bytearray) -> int:
    """Position of the first byte at which two buffers differ."""
    return next(
        (at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), 0
    )


def check_index(store: Store, model: Model, rng: random.Random) -> None:
    """Keys find their messages, each once (I10); some of them are tried, the last one always."""
    seen = store.dispatched_log_offset
    sent = [one for one in model.sent if one.key and one.end <= seen]
    if not sent:
        return
    chosen = [sent[-1], *(sent[int(rng.random() * len(sent))] for _ in range(KEYS_SAMPLED))]
    for one in chosen:
        check_key(store, model, sent, one.name[0], one.key)


def check_key(store: Store, model: Model, sent: list[Sent], topic: str, key: str) -> None:
    """Check that a key finds exactly its messages, or also others with the same hash."""
    result = store.query(topic, key, HITS_MAX, 0, 1 << 60)
    hits = [
        int.from_bytes(part[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8]) for part in result.slices
    ]
    expected = {
        one.start
        for one in sent
        if one.key == key and one.name[0] == topic and one.start >= model.expired
    }
    missing = sorted(expected.difference(hits))
    assert not missing or len(hits) >= HITS_MAX, f"{topic} {key}: not in the index: {missing}"
    assert len(set(hits)) == len(hits), f"{topic} {key}: in the index twice: {hits}"
    if not expected.issuperset(hits):
        # Of the record where dispatch waits for room some keys may be there already.
        seen = store.dispatched_log_offset
        wanted = java_hash(f"{topic}#{key}".encode())
        alike = {
            one.start
            for one in model.sent
            if one.start <= seen and java_hash(f"{one.name[0]}#{one.key}".encode()) == wanted
        }
        assert alike.issuperset(hits), f"{topic} {key}: the index finds other messages"


def check_read(store: Store, model: Model, name: Name, rng: random.Random) -> None:
    """A pull from anywhere in a queue gets the messages that are there, whole and in order."""
    queue = model.queues.get(name, [])
    high, low = offsets(store, model, name)
    start = int(rng.random() * (high + 2))
    result = store.read(name[0], name[1], start, 32)
    if start >= high or high == 0:
        assert result.count == 0, f"{name} {start}: read beyond the end"
        return
    if start < low:
        assert result.status is ReadStatus.OFFSET_TOO_SMALL, f"{name} {start}: {result.status}"
        assert result.next_queue_offset == low, f"{name}: sent on to another offset"
        return
    assert result.status is ReadStatus.FOUND, f"{name} {start}: {result.status}"
    check_slices(model, queue[start : start + result.count], result.slices)
    assert result.next_queue_offset == start + result.count, f"{name} {start}: a gap"
    one = queue[start]
    if one.end <= store.dispatched_log_offset:
        record = store.record(one.start)
        assert record is not None and record.body == one.body, f"{name} {start}: no record"


def check_slices(model: Model, sent: list[Sent], slices: list[memoryview]) -> None:
    """Check that a reader received exactly the appended bytes."""
    expected = b"".join([model.log[one.start : one.end] for one in sent])
    assert b"".join(slices) == expected, f"{sent[0].name} {sent[0].number}: other bytes were read"
