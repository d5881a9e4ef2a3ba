"""Index kernel against a list, Java's hash against UTF-16, and damaged files."""

from hypothesis import given
from hypothesis import strategies as st
from tests.property.memory.regions import exact

from turbopump.pyx.index import HEADER_SIZE, IndexFile, java_hash, key_hash


def model_hash(text: bytes) -> int:
    units = text.decode("utf-8", "replace").encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


nearly_utf8 = st.lists(
    st.text(max_size=5).map(str.encode)
    | st.binary(max_size=4)
    | st.sampled_from([b"\xe0\x9f\x80", b"\xed\xa0\x80", b"\xf0\x8f\x80\x80", b"\xf4\x90", b"\xc0"])
).map(b"".join)


@given(st.text().map(str.encode) | st.binary() | nearly_utf8)
def test_java_hash_is_over_utf16(text: bytes) -> None:
    assert java_hash(text) == model_hash(text)
    assert key_hash(text) == (abs(java_hash(text)) & 0x7FFFFFFF)


keys = st.sampled_from([b"T#a", b"T#b", b"Aa", b"BB", b"polygenelubricants", b""])
times = st.integers(1, 1 << 45)
puts = st.lists(st.tuples(keys, st.integers(0, (1 << 63) - 1), times), max_size=40)


@given(puts, st.integers(1, 5), st.integers(1, 30), keys, times, times, st.integers(0, 10))
def test_search_equals_a_search_in_a_list(
    written: list[tuple[bytes, int, int]],
    slots: int,
    entries: int,
    key: bytes,
    begin_ms: int,
    end_ms: int,
    max_count: int,
) -> None:
    index = IndexFile(exact(HEADER_SIZE + slots * 4 + entries * 20), slots, entries)
    kept: list[tuple[int, int, int]] = []
    for text, log_offset, time_ms in written:
        room = len(kept) + 1 < entries
        assert index.put(text, log_offset, time_ms) == room
        if room:
            first_ms = kept[0][2] if kept else time_ms
            seconds = min(max(0, time_ms - first_ms) // 1000, (1 << 31) - 1)
            kept.append((key_hash(text), log_offset, first_ms + seconds * 1000))
    assert (index.count, index.full) == (len(kept) + 1, len(kept) + 1 >= entries)
    wanted = []
    for hashed, log_offset, time_ms in reversed(kept):
        if hashed % slots != key_hash(key) % slots or len(wanted) == max_count:
            continue
        if hashed == key_hash(key) and begin_ms <= time_ms <= end_ms:
            wanted.append(log_offset)
        if time_ms < begin_ms:
            break
    assert index.search(key, max_count, begin_ms, end_ms) == wanted[:max_count]
    if kept:
        assert (index.begin_timestamp_ms, index.begin_log_offset) == (kept[0][2], kept[0][1])
        assert index.end_log_offset == kept[-1][1]
        assert index.slot_count == len({hashed % slots for hashed, _, _ in kept})


@given(st.binary(min_size=HEADER_SIZE + 100, max_size=HEADER_SIZE + 300), st.integers(1, 5), keys)
def test_a_file_of_garbage_never_crashes(garbage: bytes, slots: int, key: bytes) -> None:
    entries = (len(garbage) - HEADER_SIZE - slots * 4) // 20
    region = exact(
        HEADER_SIZE + slots * 4 + entries * 20, garbage[: HEADER_SIZE + slots * 4 + entries * 20]
    )
    index = IndexFile(region, slots, entries)
    assert len(index.search(key, 1000, -(1 << 63), (1 << 63) - 1)) <= entries
    for n in range(entries):
        index.put(key, n, n)
        index.put(b"%d" % n, n, -n)
    assert len(index.search(key, 1000, -(1 << 63), (1 << 63) - 1)) <= entries
    assert index.full in (True, False)
