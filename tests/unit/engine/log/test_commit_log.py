"""Appending: the fields of a record, its place, and refused messages."""

from typing import Any

import pytest

from turbopump.engine.log.record_parts import encode_copy, records_in
from turbopump.engine.types import NewMessage, PutStatus, ReadStatus
from turbopump.pyx import record as kernel

NOW_MS = 1_700_000_000_000
V6_HOST = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")


def test_an_appended_message_can_be_read_at_once(stores: Any, put: Any) -> None:
    store = stores.open()
    appended = put(store, "T", 3, b"hello", TAGS="a")
    result = store.read("T", 3, 0, 32)
    assert result.status is ReadStatus.FOUND
    assert (result.count, result.next_queue_offset, result.max_queue_offset) == (1, 1, 1)
    record = store.record(appended.log_offsets[0])
    assert record is not None
    assert (record.body, record.topic, record.queue_id) == (b"hello", b"T", 3)
    assert bytes(result.slices[0]) == bytes(store.record_view(0) or b"")
    assert appended.end == store.max_log_offset == record.size


def test_queue_offsets_count_up_in_each_queue(stores: Any, put: Any) -> None:
    store = stores.open()
    seen = [
        put(store, topic, queue_id).queue_offset
        for topic, queue_id in [("A", 0), ("A", 1), ("A", 0), ("B", 0), ("A", 0)]
    ]
    assert seen == [0, 0, 1, 0, 2]
    assert store.topics() == ["A", "B"]
    assert store.queue_ids("A") == [0, 1]


def test_prepared_and_rolled_back_records_have_no_unit(stores: Any, put: Any) -> None:
    store = stores.open()
    put(store)
    for sys_flag in (0x04, 0x0C):
        assert put(store, sys_flag=sys_flag).queue_offset == 0
    assert put(store, sys_flag=0x08).queue_offset == 1
    assert store.max_queue_offset("T", 0) == 2


def test_a_full_file_ends_with_a_filler_and_no_record_spans_files(
    stores: Any, put: Any, read_bodies: Any
) -> None:
    store = stores.open()
    size = store.config.mapped_file_size_commit_log
    bodies = [b"%05d" % number * 200 for number in range(60)]
    for body in bodies:
        put(store, body=body)
    assert store.max_log_offset > 3 * size
    assert read_bodies(store) == bodies
    for unit in store.units("T", 0, 0, 60):
        assert unit.log_offset // size == (unit.log_offset + unit.size - 1) // size
        record = store.record(unit.log_offset)
        assert record is not None and record.physical_offset == unit.log_offset
    first = (stores.root / "commitlog" / f"{0:020d}").read_bytes()
    last = max(
        unit.log_offset + unit.size for unit in store.units("T", 0, 0, 60) if unit.log_offset < size
    )
    assert int.from_bytes(first[last : last + 4], "big") == size - last
    assert int.from_bytes(first[last + 4 : last + 8], "big") == kernel.BLANK & 0xFFFFFFFF
    assert not any(first[last + 8 :])


def test_a_record_that_would_fit_exactly_rolls(stores: Any, put: Any) -> None:
    store = stores.open()
    size = store.config.mapped_file_size_commit_log
    overhead = put(store, body=b"").size
    while size - store.max_log_offset > 4096:
        put(store, body=bytes(1000))
    exact = size - store.max_log_offset - overhead
    assert put(store, body=bytes(exact)).log_offsets == [size]


def test_a_record_and_the_filler_just_fit(stores: Any, put: Any) -> None:
    store = stores.open()
    size = store.config.mapped_file_size_commit_log
    overhead = put(store, body=b"").size
    while size - store.max_log_offset > 4096:
        put(store, body=bytes(1000))
    fitting = size - store.max_log_offset - overhead - kernel.FILLER_SIZE
    assert put(store, body=bytes(fitting)).end == size - kernel.FILLER_SIZE
    assert put(store).log_offsets == [size]


def test_topics_over_127_characters_are_v2_records(stores: Any, put: Any) -> None:
    store = stores.open()
    for topic, magic in (("%RETRY%" + "g" * 120, kernel.V1), ("%RETRY%" + "g" * 121, kernel.V2)):
        record = store.record(put(store, topic).log_offsets[0])
        assert record is not None
        assert (record.magic, record.topic.decode()) == (magic, topic)


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b", "x" * 128, "%RETRY%" + "x" * 249])
def test_topics_that_cannot_be_folders_are_refused(stores: Any, topic: str) -> None:
    store = stores.open()
    appended = store.append(NewMessage(topic, 0, b"x"), NOW_MS)
    assert appended.status is PutStatus.MESSAGE_ILLEGAL
    assert store.max_log_offset == 0


def test_limits_of_body_and_properties(stores: Any) -> None:
    stores.configure(mapped_file_size_commit_log=1 << 20)
    store = stores.open()
    largest = store.config.max_message_size
    assert store.append(NewMessage("T", 0, bytes(largest)), NOW_MS).status is PutStatus.PUT_OK
    too_big = store.append(NewMessage("T", 0, bytes(largest + 1)), NOW_MS)
    assert too_big.status is PutStatus.MESSAGE_ILLEGAL
    assert str(largest + 1) in too_big.reason
    fine = NewMessage("T", 0, b"", b"a\x01" + b"x" * (32_767 - 2))
    assert store.append(fine, NOW_MS).status is PutStatus.PUT_OK
    fine.properties += b"x"
    assert store.append(fine, NOW_MS).status is PutStatus.PROPERTIES_SIZE_EXCEEDED
    assert store.append(NewMessage("T", -1, b""), NOW_MS).status is PutStatus.MESSAGE_ILLEGAL


def test_a_record_that_fits_no_file_is_refused_and_changes_nothing(stores: Any, put: Any) -> None:
    stores.configure(max_message_size=1 << 20)
    store = stores.open()
    end = put(store).end
    appended = store.append(NewMessage("T", 0, bytes(20_000)), NOW_MS)
    assert appended.status is PutStatus.MESSAGE_ILLEGAL
    assert store.max_log_offset == end


def test_hosts_of_both_families(stores: Any) -> None:
    store = stores.open()
    message = NewMessage("T", 0, b"six", born_host=V6_HOST, store_host=V6_HOST)
    appended = store.append(message, NOW_MS)
    record = store.record(appended.log_offsets[0])
    assert record is not None
    assert (record.born_host, record.store_host) == (V6_HOST, V6_HOST)
    assert record.sys_flag == 0x30
    assert store.store_timestamp_ms("T", 0, 0) == NOW_MS


def test_store_times_do_not_go_back_with_the_clock(stores: Any, put: Any) -> None:
    store = stores.open()
    assert put(store, now_ms=NOW_MS + 50).store_timestamp_ms == NOW_MS + 50
    assert put(store, now_ms=NOW_MS).store_timestamp_ms == NOW_MS + 50
    store.close(NOW_MS)
    again = stores.open()
    assert put(again, now_ms=NOW_MS).store_timestamp_ms == NOW_MS + 50


def test_property_crc_replaces_a_senders_value(stores: Any, put: Any) -> None:
    stores.configure(enabled_append_prop_crc=True)
    store = stores.open()
    appended = put(store, KEYS="k", **{"__CRC32#": "1234567890"})
    record = store.record(appended.log_offsets[0])
    assert record is not None
    assert record.properties.count(b"__CRC32#") == 1
    assert record.properties.startswith(b"KEYS\x01k\x02__CRC32#\x01")
    assert len(record.properties) == len(b"KEYS\x01k\x02") + 20


class TestBatch:
    def test_elements_become_records_of_their_own(
        self, stores: Any, batch_body: Any, read_bodies: Any
    ) -> None:
        store = stores.open()
        appended = store.append_batch(NewMessage("T", 0, batch_body(b"a", b"", b"ccc")), NOW_MS)
        assert appended.status is PutStatus.PUT_OK
        assert len(appended.log_offsets) == 3
        assert appended.queue_offset == 0
        assert read_bodies(store) == [b"a", b"", b"ccc"]
        assert store.append_batch(NewMessage("T", 0, batch_body(b"d")), NOW_MS).queue_offset == 3

    def test_a_batch_that_does_not_fit_moves_as_a_whole(
        self, stores: Any, put: Any, batch_body: Any
    ) -> None:
        store = stores.open()
        size = store.config.mapped_file_size_commit_log
        while size - store.max_log_offset > 2500:
            put(store, body=bytes(1000))
        body = batch_body(*[bytes(500)] * 6)
        appended = store.append_batch(NewMessage("T", 1, body), NOW_MS)
        assert appended.log_offsets[0] == size
        assert store.max_queue_offset("T", 1) == 6

    @pytest.mark.parametrize(
        "damage",
        [
            lambda body: body[:-1],
            lambda body: body + b"\0",
            lambda body: body[:16] + (-8).to_bytes(4, "big", signed=True) + body[20:],
            lambda body: body[:16] + (1 << 30).to_bytes(4, "big") + body[20:],
            lambda body: (-8).to_bytes(4, "big", signed=True) + body[4:],
            lambda body: (1 << 30).to_bytes(4, "big") + body[4:],
            lambda body: bytes(4) + body[4:],
            lambda body: body[:25] + (-25).to_bytes(4, "big", signed=True) + body[29:],
            lambda body: body[:23] + b"\xff\xff" + body[25:],
            lambda body: b"",
        ],
    )
    def test_a_malformed_batch_writes_nothing(
        self, stores: Any, batch_body: Any, damage: Any
    ) -> None:
        for log_size in (16 * 1024, 1 << 20):
            stores.configure(root=f"{stores.root}-{log_size}", mapped_file_size_commit_log=log_size)
            store = stores.open()
            body = damage(batch_body(b"one", b"two"))
            appended = store.append_batch(NewMessage("T", 0, body), NOW_MS)
            assert appended.status is PutStatus.MESSAGE_ILLEGAL
            assert appended.reason
            assert store.max_log_offset == 0
            assert store.max_queue_offset("T", 0) == 0

    def test_a_transactional_batch_is_refused(self, stores: Any, batch_body: Any) -> None:
        store = stores.open()
        message = NewMessage("T", 0, batch_body(b"x"), sys_flag=0x04)
        assert store.append_batch(message, NOW_MS).status is PutStatus.MESSAGE_ILLEGAL


def test_arrivals_are_told_after_messages_can_be_read(stores: Any, put: Any) -> None:
    store = stores.open()
    seen: list[tuple[str, int, int, int]] = []
    store.on_arrival(
        lambda topic, queue_id, maximum: seen.append(
            (topic, queue_id, maximum, store.read(topic, queue_id, maximum - 1, 1).count)
        )
    )
    put(store, "A", 1)
    put(store, "B", 0)
    put(store, "A", 1)
    assert seen == [("A", 1, 1, 1), ("B", 0, 1, 1), ("A", 1, 2, 1)]


def test_statistics_count_puts_and_reads(stores: Any, put: Any, batch_body: Any) -> None:
    store = stores.open()
    put(store)
    store.append_batch(NewMessage("T", 0, batch_body(b"a", b"b")), NOW_MS)
    store.append(NewMessage("", 0, b""), NOW_MS)
    store.read("T", 0, 0, 32)
    store.read("T", 0, 3, 32)
    total = store.statistics.total
    assert (total.put_count, total.found_count, total.miss_count) == (3, 1, 1)
    assert store.statistics.put_count_by_topic == {"T": 3}
    for second in range(11):
        store.tick(NOW_MS + second * 1000)
        put(store)
    assert store.statistics.rate("put_count", 10) == pytest.approx(1.0)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_copy_for_a_peer_keeps_the_stored_crc(stores: Any, put: Any, is_damaged: bool) -> None:
    """A client must recognize a body that was damaged on the disk."""
    store = stores.open()
    log_offset = put(store, "T", 0, b"hello").log_offsets[0]
    stored = bytearray(store.record_view(log_offset) or b"")
    if is_damaged:
        stored[stored.index(b"hello")] ^= 1
    (record,) = records_in(memoryview(stored))
    (copy,) = records_in(encode_copy(record, b"another", b"K\x01v\x02"))
    assert (copy.topic, copy.body, copy.body_crc) == (b"another", record.body, record.body_crc)
    assert copy.crc_ok is record.crc_ok is not is_damaged
