"""A store against a plain list: after any operations, in any order, both have the same content.

The model keeps every message of every queue. Reopening cleanly keeps all; a kill keeps all too (the
page cache survives the process), acknowledged messages under SYNC_FLUSH in any case. A deleted
topic counts from 0 again, and truncated records never happened. Power cuts and failing disks are
played in tests/sim.
"""

import shutil
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import (
    Boundary,
    FlushMode,
    LogOffset,
    NewMessage,
    PutStatus,
    ReadStatus,
    StoreError,
)
from turbopump.pyx.index import java_hash

START_MS = 1_700_000_000_000
LOG_FILE = 8192
FOREVER = 1 << 62

queues = st.tuples(st.sampled_from(["A", "Bb", "%RETRY%g"]), st.integers(0, 2))
bodies = st.binary(max_size=300)
tags = st.sampled_from(["", "red", "green", "Aa", "BB"])
keys = st.integers(0, 9)


class StoreAgainstList(RuleBasedStateMachine):
    """Rules are operations of brokers on a store; each compares the store with the lists."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.now_ms = START_MS
        self.model: dict[tuple[str, int], list[tuple[bytes, str, int, int]]] = {}
        self.keys: dict[tuple[str, int], list[int]] = {}
        self.starts: list[int] = []
        self.store: Store | None = None
        self.config = StoreConfig(self.folder)

    @initialize(
        mode=st.sampled_from(FlushMode),
        queue_file=st.sampled_from([20, 100, 4000]),
        index_file=st.sampled_from([3, 20]),
        crc=st.booleans(),
        extended=st.booleans(),
    )
    def begin(
        self, mode: FlushMode, queue_file: int, index_file: int, crc: bool, extended: bool
    ) -> None:
        self.config = StoreConfig(
            f"{self.folder}/store",
            mapped_file_size_commit_log=LOG_FILE,
            flush_disk_type=mode,
            mapped_file_size_consume_queue=queue_file,
            max_index_num=index_file,
            max_hash_slot_num=7,
            enabled_append_prop_crc=crc,
            enable_consume_queue_ext=extended,
            mapped_file_size_consume_queue_ext=100,
            max_message_size=4096,
        )
        self.open()

    def open(self) -> None:
        self.store = Store.open(RealFiles(), self.config, InlineDisk(), self.now_ms)

    @property
    def opened(self) -> Store:
        assert self.store is not None
        return self.store

    @rule(queue=queues, body=bodies, tag=tags, key=keys)
    def append(self, queue: tuple[str, int], body: bytes, tag: str, key: int) -> None:
        text = f"KEYS\x01k{key}\x02" + (f"TAGS\x01{tag}\x02" if tag else "")
        message = NewMessage(queue[0], queue[1], body, text.encode())
        appended = self.opened.append(message, self.now_ms)
        assert appended.status is PutStatus.PUT_OK
        assert self.opened.when_safe(appended).value is PutStatus.PUT_OK
        expected = self.model.setdefault(queue, [])
        assert appended.queue_offset == len(expected)
        at = appended.log_offsets[0]
        expected.append((body, tag, self.now_ms, at))
        self.starts.append(at)
        self.keys.setdefault((queue[0], key), []).append(at)

    @rule(queue=queues, batch=st.lists(bodies, min_size=1, max_size=6))
    def append_batch(self, queue: tuple[str, int], batch: list[bytes]) -> None:
        element = b"".join(
            (22 + len(body)).to_bytes(4, "big")
            + bytes(12)
            + len(body).to_bytes(4, "big")
            + body
            + bytes(2)
            for body in batch
        )
        appended = self.opened.append_batch(NewMessage(*queue, element), self.now_ms)
        assert appended.status is PutStatus.PUT_OK
        assert self.opened.when_safe(appended).value is PutStatus.PUT_OK
        expected = self.model.setdefault(queue, [])
        assert appended.queue_offset == len(expected)
        first, last = appended.log_offsets[0], appended.log_offsets[-1]
        assert first // LOG_FILE == last // LOG_FILE
        for body, at in zip(batch, appended.log_offsets, strict=True):
            expected.append((body, "", self.now_ms, at))
            self.starts.append(at)

    @rule(queue=queues, size=st.integers(4097, 1 << 20))
    def append_too_much(self, queue: tuple[str, int], size: int) -> None:
        end = self.opened.max_log_offset
        appended = self.opened.append(NewMessage(*queue, bytes(size)), self.now_ms)
        assert appended.status is PutStatus.MESSAGE_ILLEGAL
        assert self.opened.max_log_offset == end

    @rule(passed_ms=st.sampled_from([0, 1, 20, 600, 61_000]))
    def tick(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.opened.tick(self.now_ms)

    @rule(queue=queues, at=st.integers(-2, 60), count=st.integers(1, 40), tag=tags)
    def read(self, queue: tuple[str, int], at: int, count: int, tag: str) -> None:
        expected = self.model.get(queue, [])
        codes = frozenset({java_hash(tag.encode())}) if tag else None
        result = self.opened.read(*queue, at, count, codes)
        if not expected:
            assert result.status in (
                ReadStatus.NO_MATCHED_LOGIC_QUEUE,
                ReadStatus.NO_MESSAGE_IN_QUEUE,
            )
            return
        assert (result.min_queue_offset, result.max_queue_offset) == (0, len(expected))
        if 0 <= at < len(expected):
            assert at < result.next_queue_offset <= len(expected)
            wanted = [
                one
                for one in expected[at : result.next_queue_offset]
                if codes is None or java_hash(one[1].encode()) in codes
            ]
            assert result.count == len(wanted) <= count
            joined = b"".join(bytes(part) for part in result.slices)
            assert len(joined) == result.size
            position = 0
            for body, _tag, _time, log_offset in wanted:
                size = int.from_bytes(joined[position : position + 4], "big")
                assert int.from_bytes(joined[position + 28 : position + 36], "big") == log_offset
                assert body in joined[position : position + size]
                position += size
        else:
            assert result.count == 0

    @rule(queue=queues, offset_ms=st.integers(-5, 70_000), upper=st.booleans())
    def search_time(self, queue: tuple[str, int], offset_ms: int, upper: bool) -> None:
        times = [one[2] for one in self.model.get(queue, [])]
        wanted = START_MS + offset_ms
        boundary = Boundary.UPPER if upper else Boundary.LOWER
        found = self.opened.search_time(*queue, wanted, boundary)
        if upper:
            before = [number for number, time_ms in enumerate(times) if time_ms <= wanted]
            assert found == (before[-1] if before else 0)
        else:
            after = [number for number, time_ms in enumerate(times) if time_ms >= wanted]
            assert found == (after[0] if after else len(times))

    @rule(topic=st.sampled_from(["A", "Bb", "%RETRY%g"]), key=keys)
    def query(self, topic: str, key: int) -> None:
        result = self.opened.query(topic, f"k{key}", 64, 0, FOREVER)
        found = [int.from_bytes(view[28:36], "big") for view in result.slices]
        assert found == sorted(self.keys.get((topic, key), []))[-64:]

    @precondition(lambda self: self.starts)
    @rule(back=st.integers(1, 12))
    def truncate(self, back: int) -> None:
        cut_at = self.starts[max(0, len(self.starts) - back)]
        self.opened.truncate(LogOffset(cut_at), self.now_ms)
        assert self.opened.max_log_offset == self.opened.flushed_log_offset == cut_at
        self.starts = [at for at in self.starts if at < cut_at]
        for messages in self.model.values():
            messages[:] = [one for one in messages if one[3] < cut_at]
        for hits in self.keys.values():
            hits[:] = [at for at in hits if at < cut_at]

    @precondition(lambda self: self.starts)
    @rule(back=st.integers(1, 3))
    def truncate_inside_of_a_record(self, back: int) -> None:
        end = self.opened.max_log_offset
        cut_at = LogOffset(self.starts[max(0, len(self.starts) - back)] + 1)
        with pytest.raises(StoreError, match="no record begins there"):
            self.opened.truncate(cut_at, self.now_ms)
        assert self.opened.max_log_offset == end

    @rule(topic=st.sampled_from(["A", "Bb", "%RETRY%g"]))
    def delete_topic(self, topic: str) -> None:
        """Delete a topic, whose records stay in the log, where keys find them."""
        self.opened.delete_topic(topic)
        for queue, messages in self.model.items():
            if queue[0] == topic:
                messages.clear()
        assert topic not in self.opened.topics()

    @rule()
    def close_and_open(self) -> None:
        self.opened.close(self.now_ms)
        self.open()

    @rule()
    def kill_and_open(self) -> None:
        self.let_go()
        self.open()

    @precondition(lambda self: self.model)
    @rule(what=st.sampled_from(["consumequeue", "index", "checkpoint"]))
    def lose_and_open(self, what: str) -> None:
        self.let_go()
        if what == "checkpoint":
            RealFiles().remove(f"{self.config.root}/checkpoint")
        else:
            shutil.rmtree(f"{self.config.root}/{what}", ignore_errors=True)
        self.open()

    @invariant()
    def positions_agree(self) -> None:
        if self.store is not None:
            store = self.store
            assert store.min_log_offset == 0
            assert store.dispatched_log_offset == store.max_log_offset
            assert store.flushed_log_offset <= store.max_log_offset
            for queue, expected in self.model.items():
                assert store.max_queue_offset(*queue) == len(expected)
                if expected:
                    body, _tag, _time, log_offset = expected[-1]
                    record = store.record(log_offset)
                    assert record is not None and record.body == body

    def let_go(self) -> None:
        """End the store as a kill does: its files stay, its lock is released."""
        self.opened._pool.close()
        self.opened._lock.release()
        self.store = None

    def teardown(self) -> None:
        if self.store is not None:
            self.let_go()
        shutil.rmtree(self.folder)


StoreAgainstListTest: Any = StoreAgainstList.TestCase
StoreAgainstListTest.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
