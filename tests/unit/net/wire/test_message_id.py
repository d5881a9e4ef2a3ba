"""Both ids of a message: the client's unique id and the log's offset id."""

from datetime import datetime

import pytest
from tests.shortcuts.addresses import pack_host

from turbopump.net.wire.message_id import UniqueIds, decode_message_id, encode_message_id


def test_offset_ids() -> None:
    text = encode_message_id(pack_host("10.0.0.5:10911"), 0x1234)
    assert text == "0A00000500002A9F0000000000001234"
    assert decode_message_id(text) == (pack_host("10.0.0.5:10911"), 0x1234)
    six = encode_message_id(pack_host("[::1]:10911"), 5)
    assert len(six) == 56
    assert decode_message_id(six.lower()) == (pack_host("[::1]:10911"), 5)


@pytest.mark.parametrize("text", ["", "0A", "z" * 32, "0" * 33, "0" * 48])
def test_invalid_ids(text) -> None:
    with pytest.raises(ValueError):
        decode_message_id(text)


def milliseconds(*when: int) -> int:
    return int(datetime(*when).timestamp() * 1000)


def test_unique_ids() -> None:
    clock = [milliseconds(2026, 11, 1, 0, 0, 1)]
    ids = UniqueIds(bytes([10, 0, 0, 5]), 0x12345, -2, lambda: clock[0])
    first, second = ids.next_id(), ids.next_id()
    assert first == "0A0000052345FFFFFFFE000003E80001"
    assert second == "0A0000052345FFFFFFFE000003E80002"
    clock[0] = milliseconds(2026, 12, 31, 23, 59, 59)
    assert ids.next_id()[20:28] == f"{(31 * 86400 - 1) * 1000:08X}"
    clock[0] = milliseconds(2027, 1, 1)
    assert ids.next_id()[20:28] == "00000000"


def test_unique_ids_of_one_millisecond_are_distinct() -> None:
    ids = UniqueIds(bytes(16), 1, 1, lambda: milliseconds(2026, 11, 5))
    made = {ids.next_id() for _ in range(0x10000)}
    assert len(made) == 0x10000
    assert {len(text) for text in made} == {56}
