"""Reading: statuses, limits, tags, search by time and key, inner batches, extensions."""

from typing import Any

import pytest
from tests.waiting import delete_expired

from turbopump.engine.types import Boundary, NewMessage, PutStatus, ReadStatus
from turbopump.pyx.index import java_hash

NOW_MS = 1_700_000_000_000
FOREVER = 1 << 62


def fill(store: Any, put: Any, count: int, size: int = 10, **values: Any) -> None:
    for number in range(count):
        put(store, body=b"%d" % number + bytes(size), now_ms=NOW_MS + number * 10, **values)


class TestStatuses:
    def test_without_messages(self, stores: Any, put: Any) -> None:
        store = stores.open()
        result = store.read("Unknown", 0, 7, 32)
        assert result.status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
        assert result.next_queue_offset == 0

    @pytest.mark.parametrize(
        ("queue_offset", "status", "next_offset"),
        [
            (3, ReadStatus.OFFSET_OVERFLOW_ONE, 3),
            (4, ReadStatus.OFFSET_OVERFLOW_BADLY, 3),
            (1 << 40, ReadStatus.OFFSET_OVERFLOW_BADLY, 3),
            (-1, ReadStatus.OFFSET_TOO_SMALL, 0),
            (2, ReadStatus.FOUND, 3),
        ],
    )
    def test_of_offsets(
        self, stores: Any, put: Any, queue_offset: int, status: ReadStatus, next_offset: int
    ) -> None:
        store = stores.open()
        fill(store, put, 3)
        result = store.read("T", 0, queue_offset, 32)
        assert (result.status, result.next_queue_offset) == (status, next_offset)
        assert (result.min_queue_offset, result.max_queue_offset) == (0, 3)

    def test_below_the_minimum_after_old_files_went(
        self, stores: Any, put: Any, settle: Any
    ) -> None:
        stores.configure(file_reserved_time_hours=0)
        store = stores.open()
        fill(store, put, 60, 1000)
        settle(store)
        delete_expired(store, NOW_MS * 2)
        minimum = store.min_queue_offset("T", 0)
        assert minimum > 0
        result = store.read("T", 0, 0, 32)
        assert result.status is ReadStatus.OFFSET_TOO_SMALL
        assert result.next_queue_offset == minimum
        assert store.read("T", 0, minimum, 1).status is ReadStatus.FOUND


class TestLimits:
    def test_count_of_the_request(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put, 9, 1)
        result = store.read("T", 0, 2, 4)
        assert (result.count, result.next_queue_offset) == (4, 6)

    def test_count_in_memory_is_bounded(self, stores: Any, put: Any) -> None:
        stores.configure(
            max_transfer_count_on_message_in_memory=5, mapped_file_size_consume_queue=2000
        )
        store = stores.open()
        fill(store, put, 9)
        assert store.read("T", 0, 0, 1000).count == 5

    def test_bytes_of_the_request(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put, 9)
        size = store.units("T", 0, 0, 1)[0].size
        assert store.read("T", 0, 0, 32, max_size=3 * size).count == 3
        assert store.read("T", 0, 0, 32, max_size=3 * size - 1).count == 2
        assert store.read("T", 0, 0, 32, max_size=1).count == 1, "one message always"

    def test_far_behind_the_end_less_is_read(self, stores: Any, put: Any) -> None:
        stores.configure(
            access_message_in_memory_max_ratio=0, max_transfer_count_on_message_in_disk=2
        )
        store = stores.open()
        fill(store, put, 9)
        assert store.read("T", 0, 0, 32).count == 2
        assert not store.in_memory(0)
        assert store.in_memory(store.max_log_offset)

    def test_one_queue_file_a_read(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put, 25)
        assert store.config.queue_file_size == 200
        assert store.read("T", 0, 7, 32).next_queue_offset == 10

    def test_neighbours_are_one_slice(self, stores: Any, put: Any) -> None:
        store = stores.open()
        for number in range(9):
            put(store, "T", number == 4)
        result = store.read("T", 0, 0, 32)
        assert (result.count, len(result.slices)) == (8, 2)
        assert sum(map(len, result.slices)) == result.size
        result = store.read("T", 1, 0, 32)
        assert (result.count, len(result.slices)) == (1, 1)

    def test_slices_outlive_their_file(self, stores: Any, put: Any, settle: Any) -> None:
        stores.configure(file_reserved_time_hours=0)
        store = stores.open()
        fill(store, put, 60, 1000)
        settle(store)
        view = store.read("T", 0, 0, 1).slices[0]
        copy = bytes(view)
        assert delete_expired(store, NOW_MS * 2) > 0
        assert not (stores.root / "commitlog" / f"{0:020d}").exists()
        store.close(NOW_MS)
        assert bytes(view) == copy


class TestTags:
    def codes(self, *tags: str) -> frozenset[int]:
        return frozenset(java_hash(tag.encode()) for tag in tags)

    def test_only_matching_messages(self, stores: Any, put: Any) -> None:
        store = stores.open()
        for number in range(9):
            put(store, TAGS="abc"[number % 3])
        result = store.read("T", 0, 0, 32, self.codes("a", "c"))
        assert (result.status, result.count, result.next_queue_offset) == (ReadStatus.FOUND, 6, 9)
        result = store.read("T", 0, 1, 1, self.codes("a"))
        assert (result.count, result.next_queue_offset) == (1, 4)

    def test_nothing_matches(self, stores: Any, put: Any) -> None:
        store = stores.open()
        fill(store, put, 15, TAGS="a")
        result = store.read("T", 0, 3, 32, self.codes("x"))
        assert result.status is ReadStatus.NO_MATCHED_MESSAGE
        assert result.next_queue_offset == 10

    def test_units_examined_are_bounded(self, stores: Any, put: Any) -> None:
        stores.configure(mapped_file_size_consume_queue=20_000, mapped_file_size_commit_log=1 << 20)
        store = stores.open()
        fill(store, put, 900, TAGS="a")
        assert store.read("T", 0, 0, 32, self.codes("x")).next_queue_offset == 800

    def test_the_delay_topic_has_delivery_times(self, stores: Any, put: Any) -> None:
        store = stores.open()
        put(store, "SCHEDULE_TOPIC_XXXX", 1, now_ms=NOW_MS, DELAY="2")
        assert store.units("SCHEDULE_TOPIC_XXXX", 1, 0, 1)[0].tags_code == NOW_MS + 5000


class TestTime:
    @pytest.fixture
    def store(self, stores: Any, put: Any) -> Any:
        store = stores.open()
        for step in (0, 10, 10, 10, 20, 30, 30, 50, 50, 50, 50, 70, 90):
            put(store, now_ms=NOW_MS + step)
        return store

    @pytest.mark.parametrize(
        ("step", "lower", "upper"),
        [
            (-1, 0, 0),
            (0, 0, 0),
            (5, 1, 0),
            (10, 1, 3),
            (15, 4, 3),
            (20, 4, 4),
            (30, 5, 6),
            (40, 7, 6),
            (50, 7, 10),
            (60, 11, 10),
            (90, 12, 12),
            (91, 13, 12),
        ],
    )
    def test_search(self, store: Any, step: int, lower: int, upper: int) -> None:
        assert store.search_time("T", 0, NOW_MS + step, Boundary.LOWER) == lower
        assert store.search_time("T", 0, NOW_MS + step, Boundary.UPPER) == upper

    def test_of_a_message(self, store: Any) -> None:
        assert store.store_timestamp_ms("T", 0, 4) == NOW_MS + 20
        assert store.store_timestamp_ms("T", 0, 13) == -1
        assert store.store_timestamp_ms("Unknown", 0, 0) == -1

    def test_of_an_unknown_queue(self, store: Any) -> None:
        assert store.search_time("Unknown", 0, NOW_MS, Boundary.LOWER) == 0


class TestQuery:
    def bodies(self, result: Any, store: Any) -> list[bytes]:
        offsets = [int.from_bytes(view[28:36], "big") for view in result.slices]
        assert offsets == sorted(offsets)
        return [store.record(at).body for at in offsets]

    def test_by_key_unique_key_and_tag(self, stores: Any, put: Any) -> None:
        store = stores.open()
        put(store, body=b"1", KEYS="k1 k2", UNIQ_KEY="u1", TAGS="t")
        put(store, body=b"2", KEYS="k2", UNIQ_KEY="u2", TAGS="t")
        put(store, "Other", body=b"3", KEYS="k2")
        query = store.query
        assert self.bodies(query("T", "k2", 32, 0, FOREVER), store) == [b"1", b"2"]
        assert self.bodies(query("T", "k1", 32, 0, FOREVER, "K"), store) == [b"1"]
        assert self.bodies(query("T", "u2", 32, 0, FOREVER, "U"), store) == [b"2"]
        assert self.bodies(query("T", "t", 32, 0, FOREVER, "T"), store) == [b"1", b"2"]
        assert self.bodies(query("T", "t", 32, 0, FOREVER), store) == []
        assert query("T", "k2", 32, 0, FOREVER).last_log_offset > 0

    def test_newest_first_counted_over_rolled_files(self, stores: Any, put: Any) -> None:
        store = stores.open()
        for number in range(250):
            put(store, body=b"%d" % number, now_ms=NOW_MS + number * 1000, KEYS="same")
        assert len(list((stores.root / "index").iterdir())) == 3
        found = self.bodies(store.query("T", "same", 5, 0, FOREVER), store)
        assert found == [b"245", b"246", b"247", b"248", b"249"]
        assert len(store.query("T", "same", 1000, 0, FOREVER).slices) == 64

    def test_other_keys_of_the_same_hash_do_not_count(self, stores: Any, put: Any) -> None:
        """64 newer messages with a different key must not hide the message."""
        store = stores.open()
        put(store, body=b"wanted", KEYS="AaAa", now_ms=NOW_MS)
        assert java_hash(b"T#AaAa") == java_hash(b"T#BBBB") == java_hash(b"T#AaBB")
        for number in range(400):
            put(store, body=b"other", KEYS=("BBBB", "AaBB")[number % 2], now_ms=NOW_MS + number)
        found = store.query("T", "AaAa", 64, 0, FOREVER)
        assert self.bodies(found, store) == [b"wanted"]
        assert len(store.query("T", "BBBB", 64, 0, FOREVER).slices) == 64

    def test_a_record_is_shown_once(self, stores: Any, put: Any) -> None:
        store = stores.open()
        put(store, body=b"a", KEYS="k k k", now_ms=NOW_MS)
        put(store, body=b"b", KEYS="k", now_ms=NOW_MS + 1)
        assert len(store.query("T", "k", 64, 0, FOREVER).slices) == 2
        assert len(store.query("T", "k", 1, 0, FOREVER).slices) == 1

    def test_another_topic_of_the_same_hash_is_not_shown(self, stores: Any, put: Any) -> None:
        store = stores.open()
        put(store, topic="Aa", body=b"a", KEYS="k", now_ms=NOW_MS)
        put(store, topic="BB", body=b"b", KEYS="k", now_ms=NOW_MS)
        assert len(store.query("Aa", "k", 64, 0, FOREVER).slices) == 1

    def test_within_a_time(self, stores: Any, put: Any) -> None:
        store = stores.open()
        for number in range(250):
            put(store, body=b"%d" % number, now_ms=NOW_MS + number * 1000, KEYS="same")
        begin, end = NOW_MS + 50_000, NOW_MS + 53_000
        found = self.bodies(store.query("T", "same", 32, begin, end), store)
        assert found == [b"50", b"51", b"52", b"53"]

    def test_without_an_index(self, stores: Any, put: Any) -> None:
        stores.configure(message_index_enable=False)
        store = stores.open()
        put(store, KEYS="k")
        assert store.query("T", "k", 32, 0, FOREVER).slices == []
        assert not (stores.root / "index").exists()

    def test_names_of_index_files_are_times_and_ascend(self, stores: Any, put: Any) -> None:
        store = stores.open()
        for number in range(400):
            put(store, now_ms=NOW_MS - number, KEYS="k")
        names = sorted(path.name for path in (stores.root / "index").iterdir())
        assert len(names) == 5
        assert all(len(name) == 17 and name.isdigit() for name in names)
        assert names[0].endswith("000")


class TestInnerBatches:
    @pytest.fixture
    def store(self, stores: Any) -> Any:
        stores.batch_topics.add("Inner")
        stores.configure(mapper_file_size_batch_consume_queue=92)
        return stores.open()

    def put(self, store: Any, properties: bytes, body: bytes = b"inner") -> Any:
        appended = store.append(NewMessage("Inner", 0, body, properties, sys_flag=0xC0), NOW_MS)
        assert appended.status is PutStatus.PUT_OK
        return appended

    def test_a_record_takes_as_many_offsets_as_it_holds(self, store: Any) -> None:
        offsets = [
            self.put(store, f"INNER_NUM\x01{n}\x02".encode()).queue_offset for n in (2, 4, 1, 3)
        ]
        assert offsets == [0, 2, 6, 7]
        assert self.put(store, b"KEYS\x01single\x02").queue_offset == 10
        assert store.max_queue_offset("Inner", 0) == 11
        record = store.record(store.units("Inner", 0, 2, 1)[0].log_offset)
        assert b"INNER_BASE\x012\x02" in record.properties

    def test_reading_from_within_a_batch_returns_all_of_it(self, store: Any) -> None:
        for count in (2, 4, 1):
            self.put(store, f"INNER_NUM\x01{count}\x02TAGS\x01t{count}\x02".encode())
        result = store.read("Inner", 0, 3, 32)
        assert (result.status, result.count, result.next_queue_offset) == (ReadStatus.FOUND, 5, 7)
        assert [unit.queue_offset for unit in store.units("Inner", 0, 3, 9)] == [2, 6]
        codes = frozenset({java_hash(b"t1")})
        assert store.read("Inner", 0, 0, 32, codes).next_queue_offset == 7
        assert store.read("Inner", 0, 0, 32, codes).count == 1
        assert store.read("Inner", 0, 7, 32).status is ReadStatus.OFFSET_OVERFLOW_ONE

    def test_by_time_without_reading_the_whole_queue(self, store: Any, monkeypatch: Any) -> None:
        times = [10, 20, 20, 20, 30, 50, 50, 70] + [100] * 120
        begins = []
        for number, time_ms in enumerate(times):
            count = number % 3 + 1
            message = NewMessage(
                "Inner", 0, b"x", f"INNER_NUM\x01{count}\x02".encode(), sys_flag=0xC0
            )
            begins.append(store.append(message, NOW_MS + time_ms).queue_offset)
        reads: list[int] = []
        batches = store._batches
        unit = batches.read_unit
        monkeypatch.setattr(batches, "read_unit", lambda *place: reads.append(1) or unit(*place))
        for time_ms in range(120):
            reads.clear()
            lower = [at for at, when in zip(begins, times, strict=True) if when >= time_ms]
            upper = [at for at, when in zip(begins, times, strict=True) if when <= time_ms]
            found = [store.search_time("Inner", 0, NOW_MS + time_ms, which) for which in Boundary]
            assert found == [(lower or begins[-1:])[0], (upper or begins[:1])[-1]], time_ms
            assert len(reads) < 40
        assert store.search_time("Inner", 9, NOW_MS, Boundary.LOWER) == 0

    def test_survives_a_restart_and_a_rebuild(self, stores: Any, store: Any) -> None:
        for count in (2, 4, 1, 3, 1):
            self.put(store, f"INNER_NUM\x01{count}\x02".encode())
        before = store.units("Inner", 0, 0, 9)
        store.close(NOW_MS)
        assert stores.open().units("Inner", 0, 0, 9) == before
        stores.close()
        again = stores.open()
        assert again.units("Inner", 0, 0, 9) == before
        assert self.put(again, b"").queue_offset == 11
        assert again.topics() == ["Inner"]
        again.delete_topic("Inner")
        assert again.topics() == []


class TestExtensions:
    def test_tags_are_found_through_the_extension(self, stores: Any, put: Any) -> None:
        stores.configure(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=100)
        store = stores.open()
        for number in range(30):
            put(store, TAGS="ab"[number % 2])
        units = store.units("T", 0, 0, 30)
        assert [unit.tags_code for unit in units] == [java_hash(b"a"), java_hash(b"b")] * 15
        assert store.read("T", 0, 0, 32, frozenset({java_hash(b"a")})).count > 0
        assert len(list((stores.root / "consumequeue_ext/T/0").iterdir())) == 8
        stores.kill(store)
        again = stores.open()
        assert again.units("T", 0, 0, 30) == units
        put(again, TAGS="a")
        assert again.units("T", 0, 30, 1)[0].tags_code == java_hash(b"a")

    def test_a_round_syncs_all_files_that_have_new_units(self, stores: Any, put: Any) -> None:
        """Otherwise queues with extensions would never be dirty, and only the last extension file
        would be synced, although the checkpoint calls all units durable."""
        stores.configure(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=100)
        store = stores.open()
        for _ in range(30):
            put(store, TAGS="a")
        folder = stores.root / "consumequeue_ext/T/0"
        plan = store._checkpointer.dirty.plan_sync(last=False)
        synced = {path for path in plan.paths if path.startswith(str(folder))}
        assert synced == {str(path) for path in folder.iterdir()}
        assert len(synced) == 8
        assert {str(folder), str(stores.root / "consumequeue/T/0")} <= set(plan.folders)
        assert any(path.startswith(str(stores.root / "consumequeue/T/0")) for path in plan.paths)
        assert not store._checkpointer.dirty.plan_sync(last=False).paths
        put(store, TAGS="a")
        plan = store._checkpointer.dirty.plan_sync(last=False)
        assert {path.rpartition("/")[0] for path in plan.paths} == {
            str(folder),
            str(stores.root / "consumequeue/T/0"),
        }
