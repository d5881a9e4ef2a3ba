"""Dispatch in any pieces, with any files and any repetition, gives the model's results."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.memory.regions import exact

from turbopump.pyx import dispatch, record
from turbopump.pyx.index import HEADER_SIZE, IndexFile, java_hash, key_hash
from turbopump.pyx.queue import get_unit
from turbopump.pyx.region import Region

HOST = bytes(8)
SLOTS = 7
Queue = tuple[bytes, int]


pieces = st.sampled_from(
    [
        (b"UNIQ_KEY", b"u1"),
        (b"KEYS", b"a b"),
        (b"KEYS", b" x  Aa BB "),
        (b"TAGS", b"TagA"),
        (b"TAGS", "é😀".encode()),
        (b"TAGS", b""),
        (b"TAGS", b"cut \xf0\x9f\x98"),
        (b"", b"x"),
        (b"OTHER", b"1"),
    ]
)


@dataclass
class Sent:
    """A message of the model."""

    topic: bytes
    queue_id: int
    sys_flag: int
    pairs: list[tuple[bytes, bytes]]
    remade: bool = False
    """The topic was deleted before it, and counts from 0 again."""
    log_offset: int = 0
    size: int = 0
    queue_offset: int = 0

    @property
    def has_unit(self) -> bool:
        return self.sys_flag & 12 not in (4, 12)

    @property
    def properties(self) -> dict[bytes, bytes]:
        return {name: value for name, value in self.pairs if name and value}

    @property
    def keys(self) -> list[bytes]:
        found = self.properties
        keys = [found[b"UNIQ_KEY"]] if b"UNIQ_KEY" in found else []
        keys += [key for key in found.get(b"KEYS", b"").split(b" ") if key]
        keys += [b"T#" + found[b"TAGS"]] if b"TAGS" in found else []
        return [self.topic + b"#" + key for key in keys] if self.sys_flag & 12 != 12 else []


sent_messages = st.builds(
    Sent,
    topic=st.sampled_from([b"T", b"other", b"%RETRY%g", b"long-topic-name-of-17"]),
    queue_id=st.integers(0, 2),
    sys_flag=st.sampled_from([0, 0, 0, 4, 8, 12]),
    pairs=st.lists(pieces, max_size=4),
    remade=st.sampled_from([False] * 9 + [True]),
)


@dataclass
class Store:
    """The engine's part of the work, as little of it as there can be."""

    units_per_file: int
    entries_per_file: int
    table: dispatch.QueueTable = field(default_factory=dispatch.QueueTable)
    files: dict[int, list[Region]] = field(default_factory=dict)
    indexes: list[IndexFile] = field(default_factory=list)
    index_regions: list[Region] = field(default_factory=list)

    def roll_index(self) -> None:
        size = HEADER_SIZE + SLOTS * 4 + self.entries_per_file * 20
        self.index_regions.append(exact(size))
        index = IndexFile(self.index_regions[-1], SLOTS, self.entries_per_file)
        if self.indexes:
            index.start_after(self.indexes[-1].end_log_offset, self.indexes[-1].end_timestamp_ms)
        self.indexes.append(index)
        self.table.set_index(index)

    def roll_queue(self, slot: int) -> None:
        region = exact(self.units_per_file * 20)
        self.files.setdefault(slot, []).append(region)
        self.table.attach(slot, region, self.table.max_offset(slot), region.size)

    def run(self, log: Region, base: int, start: int, end: int) -> None:
        while True:
            stop = self.table.dispatch(log, base, start, end)
            start = stop.position
            if stop.status == dispatch.DONE:
                assert start == end
                return
            if stop.status == dispatch.UNKNOWN_QUEUE:
                found = record.decode(log, start, end)
                self.files[self.table.add(found.topic, found.queue_id)] = []
            elif stop.status == dispatch.NEEDS_ROOM:
                self.roll_queue(stop.slot)
            elif stop.status == dispatch.BEGINS_ANEW:
                self.begin_anew(base + start, *self.table.name(stop.slot))
            else:
                assert stop.status == dispatch.NEEDS_INDEX
                self.roll_index()

    def begin_anew(self, at: int, topic: bytes, queue_id: int) -> None:
        """Drop the units of the queue, which are of a former life."""
        slot = self.table.find(topic, queue_id)
        assert self.table.max_offset(slot) > 0
        self.files[slot] = []
        self.table.attach(slot, None, 0, 0)
        self.table.set_progress(slot, 0, at)

    def units(self, slot: int) -> list[tuple[int, int, int]]:
        found = [
            get_unit(region, at) for region in self.files[slot] for at in range(0, region.size, 20)
        ]
        return [unit for unit in found if unit[1] > 0]

    def entries(self) -> list[tuple[int, int]]:
        return [
            (region.get_i32(at), region.get_i64(at + 4))
            for index, region in zip(self.indexes, self.index_regions, strict=True)
            for at in range(
                HEADER_SIZE + SLOTS * 4 + 20, HEADER_SIZE + SLOTS * 4 + index.count * 20, 20
            )
        ]


def log_of(messages: list[Sent], base: int) -> tuple[Region, list[int]]:
    """The log of the messages, and where each record ends."""
    memory = Region(bytearray(1 << 16))
    counters: dict[Queue, int] = {}
    at, ends = 0, [0]
    for message in messages:
        queue = (message.topic, message.queue_id)
        if message.remade:
            counters = {name: n for name, n in counters.items() if name[0] != message.topic}
        message.queue_offset = counters.get(queue, 0) if message.has_unit else 0
        counters[queue] = counters.get(queue, 0) + message.has_unit
        message.log_offset = base + at
        # Without a last separator the last value ends where the record, and maybe the log, does.
        properties = b"\x02".join(b"%b\x01%b" % pair for pair in message.pairs)
        message.size = record.append(
            memory,
            at,
            memory.size,
            log_offset=base + at,
            topic=message.topic,
            body=b"body",
            properties=properties,
            queue_id=message.queue_id,
            flag=0,
            queue_offset=message.queue_offset,
            sys_flag=message.sys_flag,
            born_timestamp_ms=0,
            born_host=HOST,
            store_timestamp_ms=1000 + at,
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            version=record.V1,
        )
        at += message.size
        ends.append(at)
    return exact(at, memory.read(0, at)), ends


@given(
    st.lists(sent_messages, min_size=1, max_size=25),
    st.lists(st.integers(0, 25), max_size=6),
    st.integers(1, 6),
    st.integers(2, 9),
    st.integers(0, 1 << 40),
)
def test_any_order_of_pieces_gives_every_unit_and_key_once(
    messages: list[Sent], cuts: list[int], units_per_file: int, entries_per_file: int, base: int
) -> None:
    log, ends = log_of(messages, base)
    store = Store(units_per_file, entries_per_file)
    store.roll_index()
    done = 0
    for cut in [*cuts, len(messages)]:
        # A step back repeats dispatched records; a step forward never omits one.
        reach = min(cut, len(messages))
        store.run(log, base, ends[min(done, reach)], ends[reach])
        if reach < done:
            store.run(log, base, ends[reach], ends[done])
        done = max(done, reach)
    wanted: dict[Queue, list[tuple[int, int, int]]] = {}
    for sent in messages:
        if sent.has_unit:
            unit = (sent.log_offset, sent.size, java_hash(sent.properties.get(b"TAGS", b"")))
            if sent.queue_offset == 0:
                wanted[sent.topic, sent.queue_id] = []
            wanted.setdefault((sent.topic, sent.queue_id), []).append(unit)
    found = {store.table.name(slot): store.units(slot) for slot in store.files}
    assert found == wanted
    assert store.entries() == [
        (key_hash(key), sent.log_offset) for sent in messages for key in sent.keys
    ]
    arrived = {store.table.name(slot) for slot in store.table.take_arrivals()}
    assert arrived == set(wanted)
    assert all(index.full for index in store.indexes[:-1])


@given(st.binary(max_size=300), st.lists(sent_messages, max_size=3))
def test_garbage_behind_records_stops_the_dispatch(garbage: bytes, messages: list[Sent]) -> None:
    for message in messages:
        message.remade = False
    log, ends = log_of(messages, 0)
    region = exact(log.size + len(garbage), log.read(0, log.size) + garbage)
    table = dispatch.QueueTable()
    units: Any = {}
    for message in messages:
        slot = table.add(message.topic, message.queue_id)
        units[slot] = exact(100 * 20)
        table.attach(slot, units[slot], 0, 100 * 20)
    stop = table.dispatch(region, 0, 0, region.size)
    assert stop.position >= ends[-1]
    assert stop.status == dispatch.DONE or stop.position < region.size


@given(st.lists(st.tuples(st.binary(max_size=4), st.integers(-2, 2), st.booleans()), max_size=300))
def test_the_table_of_queues_is_a_dictionary(steps: list[tuple[bytes, int, bool]]) -> None:
    table = dispatch.QueueTable()
    model: dict[Queue, int] = {}
    for topic, queue_id, is_added in steps:
        name = (topic, queue_id)
        assert table.find(topic, queue_id) == model.get(name, -1)
        if is_added:
            slot = table.add(topic, queue_id)
            assert model.setdefault(name, slot) == slot
        elif name in model:
            table.remove(model.pop(name))
    assert table.count == len(model) == len(set(model.values()))
    assert {table.name(slot): slot for slot in model.values()} == model
