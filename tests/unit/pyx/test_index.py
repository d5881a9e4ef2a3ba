"""The key index: hashes, chains, headers, and damaged files."""

import pytest

from turbopump.pyx.index import HEADER_SIZE, IndexFile, java_hash, key_hash
from turbopump.pyx.region import Region

SLOTS, ENTRIES = 8, 20
EVER = (0, 1 << 62)


def index_of(slots: int = SLOTS, entries: int = ENTRIES) -> tuple[IndexFile, Region]:
    region = Region(bytearray(HEADER_SIZE + slots * 4 + entries * 20))
    return IndexFile(region, slots, entries), region


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("TagA", 2598919),
        ("polygenelubricants", -(1 << 31)),
        ("ASCII first, then é", -349797861),
        ("你好", 652829),
        ("😀", 1772899),
        ("a😀b", 57849694),
    ],
)
def test_java_hash(text: str, wanted: int) -> None:
    assert java_hash(text.encode()) == wanted


def test_key_hash_is_never_negative() -> None:
    assert key_hash(b"polygenelubricants") == 0
    assert key_hash(b"TagA") == 2598919
    assert key_hash("ASCII first, then é".encode()) == 349797861


def test_a_region_must_hold_the_file() -> None:
    size = HEADER_SIZE + SLOTS * 4 + ENTRIES * 20
    IndexFile(Region(bytearray(size)), SLOTS, ENTRIES)
    with pytest.raises(ValueError, match="do not fit"):
        IndexFile(Region(bytearray(size - 1)), SLOTS, ENTRIES)
    for slots, entries in [(0, 1), (1, 0), (1 << 31, 1), (1, 1 << 31), (-1, 1)]:
        with pytest.raises(ValueError, match="do not fit"):
            IndexFile(Region(bytearray(size)), slots, entries)


def test_an_empty_file_counts_from_one() -> None:
    index, _ = index_of()
    assert (index.count, index.slot_count, index.full) == (1, 0, False)
    assert (index.slots, index.entries) == (SLOTS, ENTRIES)
    assert index.search(b"T#a", 10, *EVER) == []


def test_the_bytes_of_the_first_entry() -> None:
    index, region = index_of()
    assert index.put(b"T#a", 700, 1_000_000)
    assert index.put(b"T#a", 900, 1_002_999)
    hashed = key_hash(b"T#a")
    entry = HEADER_SIZE + SLOTS * 4 + 20
    assert region.get_i32(HEADER_SIZE + hashed % SLOTS * 4) == 2
    assert [region.get_i32(entry), region.get_i64(entry + 4)] == [hashed, 700]
    assert [region.get_i32(entry + at) for at in (12, 16)] == [0, 0]
    assert region.get_i64(entry + 24) == 900
    assert [region.get_i32(entry + 20 + at) for at in (12, 16)] == [2, 1]
    assert (index.begin_timestamp_ms, index.end_timestamp_ms) == (1_000_000, 1_002_999)
    assert (index.begin_log_offset, index.end_log_offset) == (700, 900)
    assert (index.slot_count, index.count) == (1, 3)


def test_newest_first_within_the_time_and_the_count() -> None:
    index, _ = index_of()
    for n in range(6):
        index.put(b"T#a", n, 10_000 + n * 1000)
        index.put(b"T#b", 100 + n, 10_000 + n * 1000)
    assert index.search(b"T#a", 10, *EVER) == [5, 4, 3, 2, 1, 0]
    assert index.search(b"T#a", 2, *EVER) == [5, 4]
    assert index.search(b"T#a", 10, 12_000, 13_000) == [3, 2]
    assert index.search(b"T#a", 0, *EVER) == []
    assert index.search(b"T#a", -1, *EVER) == []


def test_keys_of_equal_hash_are_not_told_apart() -> None:
    index, _ = index_of()
    index.put(b"Aa", 1, 1000)
    index.put(b"BB", 2, 1000)
    assert index.search(b"Aa", 10, *EVER) == [2, 1]


def test_a_full_file_refuses_and_changes_nothing() -> None:
    index, region = index_of(entries=4)
    assert [index.put(b"k", n, 1) for n in range(3)] == [True] * 3
    assert index.full
    before = region.read(0, region.size)
    assert not index.put(b"k", 9, 1)
    assert region.read(0, region.size) == before


def test_seconds_are_clamped() -> None:
    index, region = index_of()
    for n, time_ms in enumerate([5000, 4000, 5000 + (1 << 31) * 1000, 5999]):
        index.put(b"k", n, time_ms)
    entries = HEADER_SIZE + SLOTS * 4
    stored = [region.get_i32(entries + n * 20 + 12) for n in range(1, 5)]
    assert stored == [0, 0, (1 << 31) - 1, 0]


def test_a_new_file_starts_at_the_end_of_the_one_before() -> None:
    index, _ = index_of()
    index.start_after(500, 7000)
    assert (index.begin_log_offset, index.end_log_offset) == (500, 500)
    assert (index.begin_timestamp_ms, index.end_timestamp_ms) == (7000, 7000)
    index.put(b"k", 600, 9000)
    assert (index.begin_log_offset, index.begin_timestamp_ms) == (600, 9000)
    # The first entry's seconds count from where the file started.
    assert index.search(b"k", 9, *EVER) == [600]


@pytest.mark.parametrize("link", [-1, 0, 1, 2, 3, 99, 0x7FFFFFFF])
def test_a_damaged_chain_ends_the_walk(link: int) -> None:
    index, region = index_of()
    for n in range(3):
        index.put(b"k", n, 1000)
    region.put_i32(HEADER_SIZE + SLOTS * 4 + 2 * 20 + 16, link)
    wanted = [2, 1, 0] if link == 1 else [2, 1]
    assert index.search(b"k", 10, *EVER) == wanted


@pytest.mark.parametrize("slot", [-1, 4, 99, 0x7FFFFFFF])
def test_a_damaged_slot_is_an_empty_one(slot: int) -> None:
    index, region = index_of()
    for n in range(3):
        index.put(b"k", n, 1000)
    region.put_i32(HEADER_SIZE + key_hash(b"k") % SLOTS * 4, slot)
    assert index.search(b"k", 10, *EVER) == []
    assert index.put(b"k", 9, 2000)
    assert index.search(b"k", 10, *EVER) == [9]
    assert region.get_i32(HEADER_SIZE + SLOTS * 4 + 4 * 20 + 16) == 0


@pytest.mark.parametrize("count", [-5, 0, 99, 0x7FFFFFFF])
def test_a_damaged_count_leads_nowhere(count: int) -> None:
    index, region = index_of()
    for n in range(3):
        index.put(b"k", n, 1000)
    region.put_i32(36, count)
    assert len(index.search(b"k", 10, *EVER)) <= 3
    assert index.put(b"k", 9, 2000) == (count < ENTRIES)
    assert index.full == (count >= ENTRIES)


def test_after_the_release_nothing_works() -> None:
    index, region = index_of()
    region.release()
    for call in (lambda: index.put(b"k", 1, 1), lambda: index.count, lambda: index.full):
        with pytest.raises(ValueError, match="released"):
            call()
    with pytest.raises(ValueError, match="released"):
        index.search(b"k", 1, *EVER)


def test_a_read_only_file_can_be_searched() -> None:
    index, region = index_of()
    index.put(b"k", 5, 1000)
    frozen = IndexFile(Region(region.read(0, region.size)), SLOTS, ENTRIES)
    assert frozen.search(b"k", 10, *EVER) == [5]
    with pytest.raises(TypeError):
        frozen.put(b"k", 6, 1000)
