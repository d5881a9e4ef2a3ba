"""Dispatch into the index, and the reasons to end a range."""

import pytest
from tests.unit.pyx.dispatching import EVER, Log, index_of, run, table_of

from turbopump.pyx import dispatch, record
from turbopump.pyx.index import HEADER_SIZE, IndexFile, key_hash
from turbopump.pyx.region import Region


def test_the_keys_of_a_record_in_order() -> None:
    log = Log(base=77)
    log.add(properties=b"TAGS\x01tag\x02KEYS\x01 k1  k2 \x02UNIQ_KEY\x01u\x02")
    table, _ = table_of(log, (b"T", 0))
    slots = 1 << 16
    region = Region(bytearray(HEADER_SIZE + slots * 4 + 10 * 20))
    table.set_index(IndexFile(region, slots, 10))
    run(table, log)
    entries = HEADER_SIZE + slots * 4
    hashes = [region.get_i32(entries + n * 20) for n in range(1, 5)]
    assert hashes == [key_hash(b"T#" + key) for key in (b"u", b"k1", b"k2", b"T#tag")]
    assert {region.get_i64(entries + n * 20 + 4) for n in range(1, 5)} == {77}
    assert region.is_zero(entries + 100, 100)


def test_a_full_index_is_resumed_inside_the_record() -> None:
    log = Log()
    log.add(properties=b"UNIQ_KEY\x01u\x02KEYS\x01a b c d e f\x02TAGS\x01t\x02")
    log.add(queue_offset=1, properties=b"KEYS\x01z\x02")
    table, _ = table_of(log, (b"T", 0))
    files = [index_of(entries=3)]
    table.set_index(files[0])
    position = 0
    while (stop := run(table, log, position)).status == dispatch.NEEDS_INDEX:
        following = index_of(entries=3)
        following.start_after(files[-1].end_log_offset, files[-1].end_timestamp_ms)
        files.append(following)
        table.set_index(following)
        position = stop.position
    assert stop.status == dispatch.DONE
    assert [file.count - 1 for file in files] == [2, 2, 2, 2, 1]
    for key in (b"u", b"a", b"b", b"c", b"d", b"e", b"f", b"T#t", b"z"):
        assert sum(len(file.search(b"T#" + key, 9, *EVER)) for file in files) == 1, key
    assert table.max_offset(0) == 2


def test_a_record_half_indexed_before_a_crash_is_completed() -> None:
    log = Log(base=100)
    log.add(properties=b"KEYS\x01a b c\x02")
    table, _ = table_of(log, (b"T", 0))
    index = index_of()
    index.put(b"T#a", 100, 1000)
    index.put(b"T#b", 100, 1000)
    table.set_index(index)
    run(table, log)
    assert index.count - 1 == 3
    assert index.search(b"T#c", 9, *EVER) == [100]


def test_records_before_the_end_of_the_index_are_passed_over() -> None:
    log = Log(base=100)
    first = log.add(properties=b"KEYS\x01a\x02")
    second = log.add(queue_offset=1, properties=b"KEYS\x01b\x02")
    table, _ = table_of(log, (b"T", 0))
    index = index_of()
    index.start_after(second, 5)
    table.set_index(index)
    run(table, log)
    assert index.search(b"T#a", 9, *EVER) == []
    assert index.search(b"T#b", 9, *EVER) == [second]
    assert first < second


def test_without_an_index_no_keys() -> None:
    log = Log()
    log.add(properties=b"KEYS\x01a\x02")
    table, _ = table_of(log, (b"T", 0))
    index = index_of()
    table.set_index(index)
    table.set_index(None)
    assert run(table, log).status == dispatch.DONE
    assert index.count == 1


def test_fillers_ends_and_garbage() -> None:
    log = Log(size=1000)
    log.add()
    table, _ = table_of(log, (b"T", 0))
    end = log.end
    assert run(table, log, 0, end - 1).status == dispatch.SHORT
    assert run(table, log, 0, end + 8).status == dispatch.BAD_RECORD
    record.append_filler(log.region, end, 1000)
    stop = run(table, log, 0, 1000)
    assert (stop.status, stop.position, stop.count) == (dispatch.BLANK_FOUND, end, 1)
    assert (stop.slot, stop.size) == (-1, 0)
    with pytest.raises(IndexError):
        run(table, log, 0, 1001)
