"""Messages decoded from bytes, and the flags that a client may set."""

import gzip

import pytest

from turbopump.net.grpc.framing import MessageReader, frame_message, timeout_ms, uses_gzip
from turbopump.net.grpc.health import service_of
from turbopump.net.grpc.status import GrpcCode, GrpcError, quote_text


@pytest.mark.parametrize("cut", [1, 3, 5, 6, 1_000])
def test_messages_come_whole_however_they_are_cut(cut: int) -> None:
    reader = MessageReader(100, gzip=True)
    packed = gzip.compress(b"packed")
    data = (
        frame_message(b"one") + frame_message(b"") + b"\1" + len(packed).to_bytes(4, "big") + packed
    )
    found = [
        one for at in range(0, len(data), cut) for one in reader.feed_bytes(data[at : at + cut])
    ]
    assert (found, reader.held_bytes) == ([b"one", b"", b"packed"], 0)


def test_bytes_that_come_one_by_one_are_not_copied_each_time() -> None:
    """16 MiB in pieces of a byte must not block the loop for seconds."""
    reader, data = MessageReader(1 << 20, gzip=False), frame_message(bytes(1 << 19))
    assert reader.feed_bytes(data[:-9]) == []
    held = reader._held
    assert [reader.feed_bytes(data[at : at + 1]) for at in range(len(data) - 9, len(data) - 1)] == [
        []
    ] * 8
    assert reader._held is held and reader.held_bytes == len(data) - 1
    assert reader.feed_bytes(data[-1:] + b"\0") == [data[5:]]
    assert reader.held_bytes == 1


@pytest.mark.parametrize(
    ("data", "packs", "code"),
    [
        (b"\0\xff\xff\xff\xff", False, GrpcCode.RESOURCE_EXHAUSTED),
        (b"\1\0\0\0\1x", False, GrpcCode.INTERNAL),
        (b"\2\0\0\0\1x", True, GrpcCode.INTERNAL),
        (b"\1\0\0\0\1x", True, GrpcCode.INTERNAL),
        (b"\1\0\0\0\1\x1f", True, GrpcCode.INTERNAL),
    ],
)
def test_bytes_that_are_no_message_end_the_call(data: bytes, packs: bool, code: GrpcCode) -> None:
    with pytest.raises(GrpcError) as caught:
        MessageReader(1_000, packs).feed_bytes(data)
    assert caught.value.code is code


@pytest.mark.parametrize("rest", [b"\xff\xff\xff\xff", b"\0\0\0\1x"])
def test_refused_calls_are_not_held(rest: bytes) -> None:
    """The hub accounts for a reader by its last `held`, which an error must leave unchanged."""
    reader = MessageReader(1_000, gzip=False)
    assert reader.feed_bytes(b"\1") == []
    with pytest.raises(GrpcError):
        reader.feed_bytes(rest)
    assert reader.held_bytes == 1


def test_a_small_message_cannot_unpack_into_a_large_one() -> None:
    packed = gzip.compress(bytes(100 << 20))
    with pytest.raises(GrpcError) as caught:
        MessageReader(200_000, gzip=True).feed_bytes(
            b"\1" + len(packed).to_bytes(4, "big") + packed
        )
    assert caught.value.code is GrpcCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        (b"250m", 250),
        (b"2S", 2_000),
        (b"3M", 180_000),
        (b"1H", 3_600_000),
        (b"5000u", 5),
        (b"99999999n", 99.999999),
        (b"31539599S", None),
        (b"99999999H", None),
    ],
)
def test_deadlines_in_all_units(text: bytes | None, expected: float | None) -> None:
    assert timeout_ms(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", [b"", b"S", b"1", b"-1S", b"123456789S", b"1s", b"1.5S", b"\xb2S"])
def test_a_deadline_that_is_none_ends_the_call(text: bytes) -> None:
    with pytest.raises(GrpcError):
        timeout_ms(text)


def test_encodings_and_texts() -> None:
    assert (uses_gzip({}), uses_gzip({b"grpc-encoding": b"gzip"})) == (False, True)
    with pytest.raises(GrpcError, match="snappy"):
        uses_gzip({b"grpc-encoding": b"snappy"})
    assert quote_text("50% ü\n") == b"50%25 %C3%BC%0A"
    assert len(quote_text("x" * 5_000)) == 1_024


@pytest.mark.parametrize("bad", [b"\x0a", b"\x0a\x05abc", b"\x12\x00", b"\x0a\xff" + b"x" * 255])
def test_a_health_check_that_is_none_is_refused(bad: bytes) -> None:
    assert (service_of(b""), service_of(b"\x0a\x02ab")) == ("", "ab")
    with pytest.raises(GrpcError):
        service_of(bad)
